/* What the files that measure the parts of a job share. */
#ifndef PINLINE_EXPERIMENTS_CEILINGS_INTERNAL_H
#define PINLINE_EXPERIMENTS_CEILINGS_INTERNAL_H

#include <stdint.h>

#include "experiments/request.h"
#include "trainer/job.h"

/* Everything that is measured, in seconds; names as in result.h. Index 0 is pageable, 1 page-locked
 * memory. */
struct found {
    double loader_s[2], loader_spread, first_batch_s;
    double loader_copying_s[2]; /* the same while each batch is copied as it comes */
    double loader_busy_s;       /* beside a thread that spins; 0 where the job's host does not */
    double read_share, decode_share; /* of the workers' time */
    double cold_loader_s;            /* a batch of the very first epoch */
    uint64_t cold_read_bytes, cold_major_faults;
    double step_s[2], issue_s, wake_s;
    double copy_s[2], copy_quiet_s[2];
    double call_s[2], call_busy_s[2];
    double busy_s; /* how long the stream was really busy */
    double lock_s, measured_in_s;
    double open_s; /* the device and the sets */
    double cell_s; /* slots, streams, network and operations, plans being known */
    double bytes_per_sample;
};

struct bench {
    struct request request;
    struct settings settings; /* completed; non-blocking, dedicated stream, one kind of memory */
    struct job_parts parts;   /* what the jobs of both kinds share */
    loader_cache *cache;      /* images that the first kind's loader kept */
    struct job job;           /* of the kind of memory in hand */
    double seconds;           /* for each part */
    struct found found;
};

/* These measure with bench->job, whose slots are of one kind of memory.
 *
 * The loader alone, quietly, beside a spinning thread where the job spins, and with its batches copied
 * to the device; the copies' times with it. */
enum status ceilings__measure_loader(struct bench *bench, bool locked) MUST_USE;

/* Of that, the pageable loader with its batches copied, and the copies' times, once more, in place of what
 * was found before: with other slots. */
enum status ceilings__measure_copying(struct bench *bench) MUST_USE;

/* The step with its batch kept on the device, issuing it, and waking up after it. */
enum status ceilings__measure_step(struct bench *bench, bool locked) MUST_USE;

/* Copies without decoders, and the time inside the copy call. */
enum status ceilings__measure_copies(struct bench *bench, bool locked) MUST_USE;

/* Mean and spread of times that follow each other, from sums over `block` of them: the median block
 * is the mean, so that a disturbance of the machine does not spoil it, and the deviation of blocks,
 * divided by the root of their length, is the spread of one. A ring of `block` slots evens out what
 * varies faster than itself, so that this is the spread that its reader feels. `count` >= 1; fewer
 * than five blocks are made of fewer times. *spread is a share of *mean. */
void ceilings__summarise(const double *times, size_t count, size_t block, double *mean,
                         double *spread);

#endif
