/*
 * Everything that a training job is told, in one plain struct: filled in by the option tables
 * (trainer/job_options.h), written into every result, compared between the cells of an experiment.
 * Strings are borrowed from the command line or from the file that they were read from.
 */
#ifndef PINLINE_TRAINER_SETTINGS_H
#define PINLINE_TRAINER_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"
#include "device/device.h"
#include "loader/loader.h"
#include "models/network.h"

enum schedule { SCHEDULE_CONSTANT = 0, SCHEDULE_STEP, SCHEDULE_COSINE, SCHEDULE_ONE_CYCLE };

/* Rate and update; defaults in brackets. Formulas in trainer/schedule.h. */
struct optimiser_settings {
    double rate;         /* --lr, > 0 [0: settings_complete takes 0.05 for SGD, 0.001 for AdamW] */
    double momentum;     /* 0 to < 1 [0.9] */
    double weight_decay; /* >= 0 [5e-4] */
    double beta1, beta2; /* AdamW [0.9, 0.999] */
    double epsilon;      /* AdamW [1e-8] */
    enum schedule schedule; /* [one-cycle] */
    double warmup_epochs; /* linear from 0, >= 0 [0]; one-cycle: the rising part, [0.3 of epochs] */
    int step_epochs;      /* step schedule: epochs between drops [30] */
    double step_factor;   /* step schedule: factor at each drop [0.1] */
    double final_rate;    /* cosine: the rate at the end, >= 0 [0] */
};

struct settings {
    struct dataset_settings dataset;
    struct loader_settings loader;
    struct device_settings device;
    struct network_settings network; /* model, stem, precision, optimiser, nesterov, decay_all; the
                                        rest is filled in when the job is opened */
    struct optimiser_settings optimiser;
    uint64_t seed;       /* copied to loader.seed [0] */
    bool flip;           /* mirror at random: loader.augment.flip 0.5 [no] */
    int epochs;          /* 1 to 1,000,000 [10] */
    int64_t max_steps;   /* stop after so many steps of the run; 0: no limit [0] */
    int eval_batch;      /* 0: the training batch [0] */
    int eval_every;      /* epochs between evaluations; 0: never [1] */
    int save_every;      /* steps between extra checkpoints "step-N.safetensors"; 0: none [0] */
    int log_every;       /* steps between step lines in the run log; 0: none [50] */
    const char *out;     /* run folder [run] */
    const char *weights; /* safetensors file to start from, or to evaluate, NULL [none] */
    const char *resume;  /* last.safetensors of a run to go on with, NULL [none] */
    bool overwrite;      /* replace an earlier run in `out` [no] */
    bool replan;         /* resume although the recorded plans cannot be used [no] */
    bool verify_batches; /* compare every batch, as the first layer reads it [no] */
    const char *dump_batches; /* safetensors file for the first batches, NULL [none] */
    int dump_count;           /* how many [8] */
    int top_k;                /* predict: classes a file [5] */
    bool json, quiet, verbose;
    /* Experiments alone; no options of a run. */
    bool timing; /* time steps and copies by events and clocks, and watch the machine; copied to
                    loader.timing [yes] */
    double step_seconds; /* > 0: the device is kept busy for so long in place of each step [0] */
    bool forward_only;   /* a step is inference: forward, loss and logits, no update [no] */
};

/* Defaults of every field, those of the layers below included. */
void settings_defaults(struct settings *settings);

/* The learning rate where none is named. */
double settings_default_rate(enum optimiser optimiser);

/* Checks what no single layer can see (combinations of flags) and derives loader.seed,
 * network.precision and the like. STATUS_USAGE names the flags. */
enum status settings_complete(struct settings *settings) MUST_USE;

#endif
