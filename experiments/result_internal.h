/* What the files that read a result share. */
#ifndef PINLINE_EXPERIMENTS_RESULT_INTERNAL_H
#define PINLINE_EXPERIMENTS_RESULT_INTERNAL_H

#include "experiments/result.h"

/* What to do, from the view's verdicts. Never more than the verdicts say. */
void result__advise(const struct result_view *view, struct result_advice *advice);

#endif
