/*
 * An ablation from beginning to end: ceilings, predictions, rounds in processes of their own, checks
 * that all cells computed the same, and the result file. Nothing of it opens a device in this
 * process, so that no context of ours stands beside the one that is measured.
 */
#ifndef PINLINE_EXPERIMENTS_ABLATE_H
#define PINLINE_EXPERIMENTS_ABLATE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "experiments/cells.h"
#include "trainer/settings.h"

/* Defaults in brackets, from ablate_settings_defaults. */
struct ablate_settings {
    struct settings job; /* every option of a training job; cells change some */
    struct cells_request cells;
    int rounds;          /* 2 to 256; 0: as many as there are cells, 6 at least [0] */
    int epochs;          /* timed for each cell; 0: so many that the fastest takes `seconds` [0] */
    double seconds;      /* for which the fastest cell is timed at least, > 0 [5] */
    double settle_s;     /* untimed, before each cell [1] */
    double ceiling_s;    /* for each part of the ceilings [1] */
    double budget_s;     /* > 0: rounds, epochs and samples are fitted to it [0] */
    double matters;      /* an effect below this is not worth it [0.02] */
    double step_ms;      /* > 0: an emulated step of that length in place of the model's [0] */
    int64_t batch_bytes; /* > 0: the image size is chosen so that the pixels of a batch are about so
                            many bytes [0] */
    uint64_t order_seed; /* of the order of cells [1] */
    bool predict_only;   /* ceilings and predictions, no rounds [false] */
    const char *out;     /* folder of the result [ablation] */
    bool overwrite;      /* replace the result that is there [false] */
    const char *resume;  /* not NULL: go on with the result that `out` holds; the name that it was
                            given by, for messages [NULL] */
    const char *peer;    /* CSV of another program's rates: name,samples_per_s; NULL none */
    const char *trace;   /* trace file to write; NULL none */
    int timeline_steps;  /* steps drawn for each cell in round 0 [12] */
    const char
        *spoil; /* to try the checks on equality: a cell's name, whose weights are changed by a
                          bit's worth; NAME:batches, whose pixels are shifted; NAME:workers, which gets
                          one worker more; NULL none */
    const char *request;      /* the options that chose the cells, for the record; NULL none */
    const char *command_line; /* for the record */
};
void ablate_settings_defaults(struct ablate_settings *settings);

/* What step_ms and batch_bytes make of the job: the emulated step, the probe's network for the batch's
 * way to it, and the size. Padding the copy instead would cross the bus with bytes that no decoder
 * wrote; a larger image costs the decoder and the bus what such a batch costs. STATUS_USAGE: no size
 * from 4 to 4096 gives that batch within a tenth, naming what would. */
enum status ablate_apply_emulation(struct ablate_settings *settings) MUST_USE;

/*
 * Runs it and leaves result.json in `out`, complete after every round. STATUS_MISMATCH when cells
 * did not compute the same (the result is written and says so first); STATUS_INTERRUPTED: what is
 * finished is written and --resume goes on; statuses of round_spawn; STATUS_INVALID for an earlier
 * result that does not belong to these settings; STATUS_USAGE.
 */
enum status ablate_run(const struct ablate_settings *settings) MUST_USE;

/* "out/result.json" and the like; PATH_MAX bytes. Returns text. */
char *ablate_path(const struct ablate_settings *settings, const char *name, char *text,
                  size_t bytes);

#endif
