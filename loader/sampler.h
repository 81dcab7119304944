/*
 * Which samples a batch holds. The order of an epoch is a pure function of (seed, epoch); a batch is
 * a run of it. With several processes a global batch holds world x batch_size samples, of which each
 * rank takes its own run, so all ranks together read what one process with the larger batch would.
 * Plain data, read-only after init: any thread may ask.
 */
#ifndef PINLINE_LOADER_SAMPLER_H
#define PINLINE_LOADER_SAMPLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct sampler {
    /* Set by the caller before init. */
    size_t count;   /* samples in the set, 1 to 2^32 - 1 */
    int batch_size; /* of this rank, >= 1 */
    bool shuffle;   /* false: in the order of the set, in every epoch */
    bool drop_last; /* leave out a last global batch that is not full */
    uint64_t seed;
    int rank, world; /* 0 <= rank < world */
    /* Set by init. */
    uint32_t batches; /* an epoch, the same for every rank */
    int last_batch;   /* samples of this rank in the last batch, 0 to batch_size; see below */
};

/*
 * Checks the fields and sets the rest. STATUS_USAGE: rank and world contradict each other, or
 * drop_last leaves no batch; STATUS_LIMIT: more samples than 32 bits can number.
 */
enum status sampler_init(struct sampler *sampler) MUST_USE;

/* Writes the order of `epoch`, `count` sample numbers, into `order`. */
void sampler_draw_order(const struct sampler *sampler, uint32_t epoch, uint32_t *order);

/*
 * The samples of batch `batch` (below `batches`) of this rank: returns how many and points *samples
 * into `order`. A last global batch of m samples is shared as evenly as whole samples allow: rank r
 * takes the m r / world-th up to the m (r + 1) / world-th. Where m < world some ranks get none: 0 is
 * returned, and *samples points to the global batch's first one.
 */
int sampler_batch(const struct sampler *sampler, const uint32_t *order, uint32_t batch,
                  const uint32_t **samples);

#endif
