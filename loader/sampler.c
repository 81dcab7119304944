#include "loader/sampler.h"

#include <assert.h>

#include "base/rng.h"

/* Where this rank's share of a global batch of `total` samples begins, counted in that batch. */
static size_t share_begin(size_t total, int rank, int world)
{
    return (size_t)((unsigned long long)total * (unsigned long long)rank /
                    (unsigned long long)world);
}

enum status sampler_init(struct sampler *sampler)
{
    assert(sampler->batch_size >= 1);
    if (sampler->count < 1 || sampler->count > UINT32_MAX) {
        return FAIL(STATUS_LIMIT,
                    "the set has %zu samples; 1 to 4294967295 can be numbered: take a part of it",
                    sampler->count);
    }
    if (sampler->world < 1 || sampler->rank < 0 || sampler->rank >= sampler->world) {
        return FAIL(STATUS_USAGE, "rank %d of world %d: a rank is 0 to world - 1", sampler->rank,
                    sampler->world);
    }
    size_t global = (size_t)sampler->batch_size * (size_t)sampler->world;
    size_t full = sampler->count / global;
    size_t rest = sampler->count % global;
    if (full == 0 && sampler->drop_last) {
        return FAIL(STATUS_USAGE,
                    "--drop-last leaves nothing: %zu samples do not fill one batch of %zu; use a "
                    "smaller --batch-size or --no-drop-last",
                    sampler->count, global);
    }
    bool partial = rest > 0 && !sampler->drop_last;
    sampler->batches = (uint32_t)(full + (partial ? 1 : 0));
    sampler->last_batch = sampler->batch_size;
    if (partial) {
        sampler->last_batch = (int)(share_begin(rest, sampler->rank + 1, sampler->world) -
                                    share_begin(rest, sampler->rank, sampler->world));
    }
    return STATUS_OK;
}

void sampler_draw_order(const struct sampler *sampler, uint32_t epoch, uint32_t *order)
{
    if (sampler->shuffle) {
        rng_permutation(sampler->seed, epoch, order, sampler->count);
        return;
    }
    for (size_t i = 0; i < sampler->count; i++) {
        order[i] = (uint32_t)i;
    }
}

int sampler_batch(const struct sampler *sampler, const uint32_t *order, uint32_t batch,
                  const uint32_t **samples)
{
    assert(batch < sampler->batches);
    size_t global = (size_t)sampler->batch_size * (size_t)sampler->world;
    size_t begin = batch * global;
    size_t total = sampler->count - begin < global ? sampler->count - begin : global;
    size_t from = share_begin(total, sampler->rank, sampler->world);
    size_t to = share_begin(total, sampler->rank + 1, sampler->world);
    *samples = order + begin + (to > from ? from : 0);
    return (int)(to - from);
}
