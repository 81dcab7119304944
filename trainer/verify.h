/*
 * --verify-batches: every batch, as the first layer reads it, compared with what the workers decoded.
 * The input is copied back asynchronously on the compute stream, right after it was made, and
 * compared once the step has run: a check that waited for the device would hide the races that it
 * looks for. Called by the device's thread alone.
 */
#ifndef PINLINE_TRAINER_VERIFY_H
#define PINLINE_TRAINER_VERIFY_H

#include <stdint.h>

#include "base/status.h"
#include "loader/loader.h"
#include "trainer/job.h"

typedef struct verifier verifier;

/* Room for `depth` batches under way. The job must be open, with loader.keep_shadow. STATUS_NO_MEMORY,
 * STATUS_LIMIT, STATUS_DEVICE. */
enum status verifier_open(struct job *job, int depth, verifier **out) MUST_USE;
/* Nothing may be in flight. */
void verifier_close(verifier **v);

/* After network_ingest of `batch`, before its release: keeps what was decoded and submits the copy,
 * under number `entry`, 0 .. depth-1. STATUS_DEVICE. */
enum status verifier_submit(verifier *v, int entry, const struct batch *batch,
                            uint64_t step) MUST_USE;

/* Compares the batch of `entry`, whose copy is complete. STATUS_MISMATCH names step, slot, sample,
 * place, and both values. Values may differ by rounding alone: far less than one of 256 levels. */
enum status verifier_check(verifier *v, int entry) MUST_USE;

/* Batches compared so far. */
uint64_t verifier_count(const verifier *v);

#endif
