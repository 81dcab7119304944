/* The option tables of a training job, all over struct settings. A command binds those it takes. */
#ifndef PINLINE_TRAINER_JOB_OPTIONS_H
#define PINLINE_TRAINER_JOB_OPTIONS_H

#include "trainer/options.h"

extern const char *const precision_names[]; /* of enum precision, NULL at the end */

extern const struct option_table options_data;     /* --data --val-data --val-fraction ... */
extern const struct option_table options_loading;  /* --batch-size --num-workers ... */
extern const struct option_table options_order;    /* --shuffle --seed --cache: training alone */
extern const struct option_table options_staging;  /* --pin-memory --non-blocking ... */
extern const struct option_table options_images;   /* --size --augment --mean --std */
extern const struct option_table options_decoding; /* --decoders --max-pixels ... */
extern const struct option_table options_augmentation; /* --flip --padding: training alone */
extern const struct option_table options_device;    /* --device --precision --deterministic ... */
extern const struct option_table options_model;     /* --model --stem --weights */
extern const struct option_table options_optimiser; /* --lr --momentum --schedule ... */
extern const struct option_table options_run;       /* --epochs --out --resume --log-every ... */
extern const struct option_table options_measuring; /* --timing: experiments alone */
extern const struct option_table options_predict;   /* --top-k */
extern const struct option_table options_output;    /* --json --quiet --verbose */

#endif
