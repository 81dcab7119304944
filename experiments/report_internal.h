/* What the reports share. */
#ifndef PINLINE_EXPERIMENTS_REPORT_INTERNAL_H
#define PINLINE_EXPERIMENTS_REPORT_INTERNAL_H

#include "experiments/result.h"

/* 1.05 -> 5. */
double report__percent(double ratio);

/* Sum over the complete rounds of a member of a run's group, "host", "wait_batch". */
double report__sum(const struct result_view *view, const struct result_cell *cell,
                   const char *group, const char *name);

/* Timed seconds, and batches, of a cell over all complete rounds. */
double report__wall(const struct result_view *view, const struct result_cell *cell);
double report__batches(const struct result_view *view, const struct result_cell *cell);

/* The highest step of the ladder default, pin, both, both+stream that is worth it; NULL for none. */
const struct effect *report__best(const struct result_view *view);

/* "both/default: +3.1 % (+2.4 to +3.8, 95 % interval), worth it" */
void report__effect_text(const struct effect *effect, double matters, char *text, size_t bytes);

#endif
