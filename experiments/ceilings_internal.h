/* What the files that measure the parts of a job share. */
#ifndef PINLINE_EXPERIMENTS_CEILINGS_INTERNAL_H
#define PINLINE_EXPERIMENTS_CEILINGS_INTERNAL_H

#include <stdint.h>

#include "experiments/request.h"
#include "trainer/job.h"

/* Everything that is measured, in seconds; names as in result.h. Index 0 is pageable, 1 page-locked
 * memory. */
struct found {
    double loader_s[2], loader_busy_s, loader_spread, first_batch_s;
    double read_share, decode_share; /* of the workers' time */
    double cold_loader_s;            /* a batch of the very first epoch */
    uint64_t cold_read_bytes, cold_major_faults;
    double step_s, issue_s, wake_s;
    double copy_s[2], copy_quiet_s[2];
    double call_s[2], call_busy_s[2];
    double busy_s; /* how long the stream was really busy */
    double lock_s, measured_in_s;
    double bytes_per_sample;
};

struct bench {
    struct request request;
    struct settings settings; /* completed; page-locked, non-blocking, dedicated stream */
    struct job job;
    double seconds; /* for each part */
    struct found found;
};

/* The loader alone, into both kinds of slot, quietly, beside a spinning thread, and with its batches
 * copied to the device; the copies' times with it. */
enum status ceilings__measure_loader(struct bench *bench) MUST_USE;

/* The step with its batch kept on the device, issuing it, and waking up after it. */
enum status ceilings__measure_step(struct bench *bench) MUST_USE;

/* Copies without decoders, and the time inside the copy call. */
enum status ceilings__measure_copies(struct bench *bench) MUST_USE;

/* Mean and spread of times that follow each other, from sums over `block` of them: the median block
 * is the mean, so that a disturbance of the machine does not spoil it, and the deviation of blocks,
 * divided by the root of their length, is the spread of one. A ring of `block` slots evens out what
 * varies faster than itself, so that this is the spread that its reader feels. `count` >= 1; fewer
 * than five blocks are made of fewer times. *spread is a share of *mean. */
void ceilings__summarise(const double *times, size_t count, size_t block, double *mean,
                         double *spread);

#endif
