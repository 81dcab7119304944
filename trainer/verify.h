/*
 * --verify-batches: every batch, as the first layer reads it, compared with what the workers decoded.
 * The input is copied back asynchronously on the compute stream, right after it was made, and
 * compared once the step has run, by several threads at once: a check that waited for the device, or
 * kept the thread that feeds it, would hide the races that it looks for. Called by the device's thread
 * alone.
 */
#ifndef PINLINE_TRAINER_VERIFY_H
#define PINLINE_TRAINER_VERIFY_H

#include <stdint.h>

#include "base/status.h"
#include "loader/loader.h"
#include "trainer/job.h"

typedef struct verifier verifier;

/* Batches under way at most, and so loader.keep_shadows of a job with --verify-batches. */
enum { VERIFY_DEPTH = 4 };

/* The job must be open, with loader.keep_shadows. STATUS_NO_MEMORY, STATUS_LIMIT, STATUS_DEVICE. */
enum status verifier_open(struct job *job, verifier **out) MUST_USE;
/* Nothing may be in flight. */
void verifier_close(verifier **v);

/* After network_ingest of `batch`, before its release: submits the copy. At most VERIFY_DEPTH batches
 * may be submitted and not compared. STATUS_DEVICE. */
enum status verifier_submit(verifier *v, const struct batch *batch, uint64_t step) MUST_USE;

/* Compares the oldest batch that was submitted, whose copy is complete, while VERIFY_DEPTH later ones
 * at most were released. STATUS_MISMATCH names step, slot, sample, place, and both values. Values may
 * differ by rounding alone: far less than one of 256 levels. */
enum status verifier_check(verifier *v) MUST_USE;

/* Batches compared so far. */
uint64_t verifier_count(const verifier *v);

#endif
