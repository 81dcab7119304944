/*
 * The result of an ablation: one JSON file, written by the engine, read by the reports and by
 * `pinline compare`. This header is its schema.
 *
 *   {
 *     "pinline": "0.1.0", "kind": "ablation", "created": "2025-01-31T12:00:00Z",
 *     "command": "pinline ablate --data ...", "finished": true,
 *     "machine": {...}, "device": {...}, "data": {...},          as job_write_machine and friends
 *     "job": {"num-workers": 4, ...},                           every option of the job
 *     "protocol": {"seed": 1 (above 2^63 as text), "rounds": 6, "rounds_done": 6, "epochs": 3, "seconds": 5,
 *                  "settle_s": 1, "matters": 0.02, "limit_samples": 0, "imbalance": 0, "budget_s": 0,
 *                  "step_s": 0 (of an emulated step), "forward_only": false (inference),
 *                  "request": "--axis num-workers=1,2", "planned_warnings": 0,
 *                  "order": [["default", "pin", ...], ...], "plans_hash": "0123456789abcdef",
 *                  "batches": 100, "samples": 6400, "batch_bytes": 9633792,
 *                  "working_set_bytes": 123, "last_level_cache_bytes": 123},
 *     "ceilings": {"loader_s": 0.01, "loader_pinned_s": 0.01, "loader_busy_s": 0.01,
 *                  "loader_copying_s": 0.01, "loader_copying_pinned_s": 0.01, "loader_spread": 0.1, "read_share": 0.1, "decode_share": 0.8,
 *                  "cold_loader_s": 0.02, "cold_read_bytes": 1, "cold_major_faults": 1,
 *                  "emulated_step_s": 0, "first_batch_s": 0.02, "step_s": 0.005, "step_pinned_s": 0.005,
 *                  "issue_s": 0.0003, "wake_s": 0.00005, "copy_pageable_s": 0.009,
 *                  "copy_locked_s": 0.0002, "copy_pageable_quiet_s": 0.008,
 *                  "copy_locked_quiet_s": 0.0002, "call_pageable_s": 0.009,
 *                  "call_pageable_busy_s": 0.014, "call_locked_s": 0.00001,
 *                  "call_locked_busy_s": 0.00001, "pageable_drains": true, "slots": 8,
 *                  "lock_s": 0.01, "open_s": 1.1, "cell_s": 0.1, "measured_in_s": 5.1},
 *     "predictions": [{"cell": "default", "samples_per_s": 1.0, "formula_samples_per_s": 1.0,
 *                      "trivial_samples_per_s": 1.0, "bound": "loader"}, ...],
 *     "rounds": [{"round": 0, "wall_s": 1.0, "start_s": 0.1, "setup_s": 0.1, "settle_s": 0.2,
 *                 "timed_s": 0.5}, ...],
 *     "cells": [{"name": "default", "repeats": false, "arithmetic": false, "settings": {...},
 *       "rounds": [
 *         {"round": 0, "place": 3, "samples_per_s": 1.0, "epoch_s": [1.0, 1.1],
 *          "loss_hash": "0123456789abcdef", "weights_hash": "0123456789abcdef",
 *          "plans_hash": "0123456789abcdef", "cache_images": 0,
 *          "setup_s": 0.1, "settle_s": 0.1, "timed_s": 1.0, "timing": true,
 *          "page_locked": true, "lock_s": 0.01, "slots_bytes": 123, "marked": "",
 *          "host": {"wait_batch": s, "copy": s, "issue": s, "wait_device": s, "rest": s},
 *          "device": {"span": s, "compute": s, "copy": s, "hidden": s, "idle": s},
 *          "counters": {"waits_copy": 100, "copy_call_s": 0.1, "copy_bytes": 1, "host_copies": 0},
 *          "cpu": {"main_s": 1.0, "workers_s": 1.0, "process_s": 1.0},
 *          "watch": {"memory_available_min": 1, "resident_max": 1, "locked_max": 1, "swap_pages": 0,
 *                    "gpu_percent_mean": 50, "gpu_memory_max": 1, "sm_clock_begin": 1980,
 *                    "sm_clock_end": 1980, "throttle": 0, "other_processes": 0,
 *                    "read_bytes": 0, "major_faults": 0, "throttled_s": 0, "steal_ticks": 0},
 *          "timeline": [{"lane": "compute", "name": "step", "from": s, "to": s}, ...]}]}, ...],
 *     "failures": ["..."],       bits that differ, cells that are not what they must be; [] is good
 *     "warnings": ["..."],       what makes the measurement doubtful
 *     "diagnosis": {"cell": "default" (that the parts were measured for, and the rest speaks of),
 *                   "bound": "loader", "best_bound": "compute" (with
 *                   both flags and a stream of its own), "headline": "...", "advice": [{"what": "...",
 *                   "factor": 1.8, "how": "predicted"|"not measured"}, ...]},
 *     "peer": [{"name": "torch default", "rates": [...]}]        from --peer, may be absent
 *   }
 *
 * A loader's ceiling is the time of a full batch: loader_s into pageable slots, loader_pinned_s into
 * page-locked ones, loader_copying_s and loader_copying_pinned_s while each batch is copied as it
 * comes, loader_busy_s into page-locked ones beside a thread that spins (0 where the job's host
 * sleeps). copy_pageable_s and loader_copying_s are means over slots that were allocated several
 * times. step_s is with pageable slots, step_pinned_s with page-locked ones. open_s is for the device
 * and the sets, cell_s for opening a cell whose plans are known. wake_s is what a step costs beyond
 * itself when the host begins it with an idle device and sees its end.
 *
 * A run's time is setup_s (opening slots, streams, network and operations; for the first of a round
 * the device and the sets too), settle_s (untimed steps, a cache to be filled, weights), timed_s, and
 * closing. A round's are the sums of these, start_s (its process began and ended) and the rest of
 * wall_s. A run whose "timing" is off has no "host", "device" and "watch", and no times in its
 * counters.
 *
 * Times are seconds; host, device, counters and cpu are sums over the timed epochs of one cell-run.
 * Effects and verdicts are computed from the rounds when the file is read, never stored.
 */
#ifndef PINLINE_EXPERIMENTS_RESULT_H
#define PINLINE_EXPERIMENTS_RESULT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "experiments/prediction.h"
#include "experiments/verdict.h"

#define RESULT_MAX_CELLS 64
#define RESULT_MAX_ROUNDS VERDICT_MAX_ROUNDS

/* One cell in one round. */
struct result_run {
    int round, place;
    double samples_per_s;
    const struct json_value *object; /* everything else, by the names above */
    const char *loss_hash, *weights_hash;
    bool marked; /* something was unusual; the reason is object's "marked" */
};

struct result_cell {
    const char *name;
    const struct json_value *settings;
    struct result_run runs[RESULT_MAX_ROUNDS]; /* in order of rounds */
    size_t run_count;
    double rates[RESULT_MAX_ROUNDS]; /* samples/s of the complete rounds, in order */
    double median, lowest, highest;  /* of rates */
    double epoch_median, epoch_lowest, epoch_highest; /* seconds */
    /* Predictions, samples/s; 0 where there are none. */
    double predicted, predicted_formula, predicted_trivial;
    const char *bound; /* "loader", ..., "" */
    bool repeats;      /* a cell that ran already, once more */
};

/* Another program's rates. */
struct result_peer {
    const char *name;
    double median, lowest, highest;
    size_t rounds;
};

/* What to do, from the verdicts alone. */
struct result_advice {
    char text[600]; /* one sentence or two, with its size and its certainty */
    bool claims;    /* it names flags, or a cell, to take or to leave */
};

typedef struct result result;

/* Plain view of a result, valid while it is open. */
struct result_view {
    const struct json_value *root;
    struct result_cell *cells; /* in the order of the file */
    size_t cell_count;
    size_t rounds; /* complete rounds: every cell ran */
    double matters;
    struct effect *effects; /* decided; the primary first */
    size_t effect_count;
    struct effect check; /* the repeated cell against itself at 95 %, outside the family; name NULL
                            where nothing was repeated */
    struct result_peer *peers;
    size_t peer_count;
    struct result_advice advice;
    bool finished;
    size_t failures; /* entries of root's "failures" */
};

/* Reads and checks a result, by its file or by the folder that holds it as result.json; computes medians, effects and verdicts. STATUS_INVALID names what
 * is missing or of the wrong kind; STATUS_NOT_FOUND, STATUS_IO, STATUS_NO_MEMORY. */
enum status result_open(const char *path, result **out) MUST_USE;
void result_close(result **file);
const struct result_view *result_read_view(const result *file);

/* The seed of the order, which a number of JSON may be too small for: as member "seed" of an open
 * object, and back (1 when absent). */
void result_write_seed(struct json_writer *writer, uint64_t seed);
uint64_t result_read_seed(const struct json_value *protocol);

/* The cell of that name, NULL when absent. */
const struct result_cell *result_find_cell(const struct result_view *view, const char *name);
/* The effect "both/default" or the like, NULL when absent. */
const struct effect *result_find_effect(const struct result_view *view, const char *name);

#endif
