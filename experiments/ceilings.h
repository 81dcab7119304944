/*
 * What each part of a job reaches alone: loader, step, copies, issuing, waking. Measured in a process
 * of its own, before the first round, with the job's own batch, sizes, workers and data.
 */
#ifndef PINLINE_EXPERIMENTS_CEILINGS_H
#define PINLINE_EXPERIMENTS_CEILINGS_H

#include "base/json.h"
#include "base/status.h"
#include "experiments/prediction.h"

/*
 * Request: {"job": {...options}, "eval": false, "step_s": 0, "plans": null, "seconds": 1}: about
 * `seconds` for each part. Answer: {"ceilings": {...as result.h lists them}, "facts": {"batches",
 * "samples", "batch_bytes", "slots", "working_set_bytes"}, "machine": {...}, "device": {...},
 * "data": {...}, "plans": [...], "plans_hash": "..."}. Statuses as round_run.
 */
enum status ceilings_measure(const struct json_value *request, struct json_writer *answer) MUST_USE;

/* The ceilings of a result as the prediction wants them, of cells with page-locked or pageable slots,
 * with or without workers; `batches` and `slots` too. */
void ceilings_read(const struct json_value *ceilings, int64_t batches, bool pin, bool no_workers,
                   struct predict_ceilings *out);

#endif
