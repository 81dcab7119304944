/*
 * A whole run: folder, log, epochs, evaluations, checkpoints, resuming, and an orderly end when
 * something fails or a stop is asked for.
 */
#ifndef PINLINE_TRAINER_TRAIN_RUN_H
#define PINLINE_TRAINER_TRAIN_RUN_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "trainer/checkpoint.h"
#include "trainer/settings.h"
#include "trainer/train_loop.h"

/* One epoch of the result. */
struct train_run_epoch {
    struct train_epoch train; /* `losses` is NULL */
    bool evaluated;
    double accuracy1, accuracy5, loss; /* of the validation set, when evaluated */
};

/* Owned by the caller; close it also after a failure. */
struct train_run_result {
    struct train_run_epoch *epochs;
    size_t epoch_count;
    struct checkpoint_position position; /* where the run stands */
    uint64_t weights_hash;               /* at the end of a run that was not cut off */
    bool finished;
};

/* Hears of every step whose loss was read; NULL: none. For tests and experiments. */
struct train_run_observer {
    void *context;
    void (*step)(void *context, const struct train_step *step);
};

/*
 * Runs to the end, to settings.max_steps, or until it fails. In every case but STATUS_DIVERGED,
 * STATUS_MISMATCH and STATUS_DEVICE the state is saved first, so that --resume goes on from there.
 * Statuses of job_open, run_log_open, checkpoint_*, train_loop_epoch and evaluator_run.
 */
enum status train_run(const struct settings *settings, const struct train_run_observer *observer,
                      struct train_run_result *result) MUST_USE;
void train_run_result_close(struct train_run_result *result);

/* The object that `train --json` prints. */
void train_run_write(const struct train_run_result *result, const struct settings *settings,
                     struct json_writer *writer);

#endif
