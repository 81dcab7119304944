/* The options that `pinline ablate` alone has. */
#ifndef PINLINE_EXPERIMENTS_ABLATE_OPTIONS_INTERNAL_H
#define PINLINE_EXPERIMENTS_ABLATE_OPTIONS_INTERNAL_H

#include "trainer/options.h"

/* Over struct ablate_settings. */
extern const struct option_table ablate__options_cells;     /* --cells --again --copy-stream ... */
extern const struct option_table ablate__options_emulation; /* --step-ms --batch-bytes */
extern const struct option_table ablate__options_protocol;  /* --rounds --epochs --budget ... */
extern const struct option_table ablate__options_result;    /* --out --resume --peer --trace ... */

/* Each over one int, which is an index of the names beside it: where a cell's value may be one of two,
 * or both of them. */
extern const struct option_table ablate__options_transfer; /* --transfer */
extern const char *const ablate__transfer_names[];         /* NULL at the end */
extern const struct option_table ablate__options_staging;  /* --staging */
extern const char *const ablate__staging_names[];
extern const struct option_table ablate__options_job; /* --job */
extern const char *const ablate__job_names[];

#endif
