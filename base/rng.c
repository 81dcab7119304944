#include "base/rng.h"

#include <assert.h>
#include <math.h>

/* Constants of Philox4x32: two multipliers and the Weyl steps of the key. */
#define MULTIPLIER_0 UINT32_C(0xD2511F53)
#define MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define WEYL_0 UINT32_C(0x9E3779B9)
#define WEYL_1 UINT32_C(0xBB67AE85)
#define ROUNDS 10

void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t p0 = (uint64_t)MULTIPLIER_0 * c0;
        const uint64_t p1 = (uint64_t)MULTIPLIER_1 * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += WEYL_0;
        k1 += WEYL_1;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_init(struct rng *rng, uint64_t seed, enum rng_purpose purpose, uint32_t epoch,
              uint64_t sample)
{
    /* The purpose shares a word with the upper part of the sample's number, so a sample stays below
     * 2^56. The seed is the key; the counter's first word is left for the position. */
    assert(sample >> 56 == 0);
    *rng = (struct rng){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {0, epoch, (uint32_t)sample,
                    (uint32_t)(sample >> 32) | ((uint32_t)purpose << 24)},
        .used = 4,
    };
}

uint32_t rng_u32(struct rng *rng)
{
    if (rng->used == 4) {
        rng_philox(rng->counter, rng->key, rng->block);
        rng->counter[0]++;
        rng->used = 0;
    }
    return rng->block[rng->used++];
}

float rng_uniform(struct rng *rng)
{
    return (float)(rng_u32(rng) >> 8) * 0x1p-24f;
}

double rng_uniform_double(struct rng *rng)
{
    const uint64_t high = rng_u32(rng);
    const uint64_t low = rng_u32(rng);
    return (double)((high << 32 | low) >> 11) * 0x1p-53;
}

uint32_t rng_below(struct rng *rng, uint32_t bound)
{
    assert(bound >= 1);
    /* Multiply and reject (Lemire, "Fast random integer generation in an interval", 2019): the low
     * half below 2^32 mod bound marks the draws that would make some results too frequent. */
    const uint32_t threshold = (uint32_t)(-bound) % bound;
    for (;;) {
        const uint64_t product = (uint64_t)rng_u32(rng) * bound;
        if ((uint32_t)product >= threshold) {
            return (uint32_t)(product >> 32);
        }
    }
}

double rng_normal(struct rng *rng)
{
    const double two_pi = 6.283185307179586476925286766559;
    const double u = 1.0 - rng_uniform_double(rng); /* in (0, 1]: its logarithm is finite */
    const double v = rng_uniform_double(rng);
    return sqrt(-2.0 * log(u)) * cos(two_pi * v);
}

void rng_permutation(uint64_t seed, uint32_t epoch, uint32_t *out, size_t count)
{
    assert(count <= UINT32_MAX);
    struct rng rng;
    rng_init(&rng, seed, RNG_SHUFFLE, epoch, 0);
    for (size_t i = 0; i < count; i++) {
        out[i] = (uint32_t)i;
    }
    for (size_t i = count; i > 1; i--) {
        const uint32_t j = rng_below(&rng, (uint32_t)i);
        const uint32_t swapped = out[i - 1];
        out[i - 1] = out[j];
        out[j] = swapped;
    }
}
