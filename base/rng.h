/*
 * Counter-based random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random
 * numbers: as easy as 1, 2, 3", SC 2011). A value is a pure function of (seed, purpose, epoch,
 * sample, position), so results depend neither on threads nor on order.
 */
#ifndef PINLINE_BASE_RNG_H
#define PINLINE_BASE_RNG_H

#include <stddef.h>
#include <stdint.h>

/* What a sequence is for; two purposes never share numbers. Append only: the values are part of
 * what makes a run repeatable. */
enum rng_purpose {
    RNG_SHUFFLE = 1, /* order of samples in an epoch */
    RNG_AUGMENT = 2, /* crop and flip of one sample in one epoch */
    RNG_WEIGHTS = 3, /* initial weights; `sample` is the parameter's number */
    RNG_SPLIT = 4,   /* which samples are held out */
    RNG_SYNTH = 5,   /* synthetic images */
    RNG_PLAN = 6,    /* order of an experiment's cells */
    RNG_TEST = 7     /* tests and simulations */
};

/* One sequence. Plain data, owned by the caller, used by one thread. */
struct rng {
    uint32_t key[2];
    uint32_t counter[4]; /* counter[0] is the position; the rest identify the sequence */
    uint32_t block[4];
    int used; /* numbers of `block` already handed out, 0 to 4 */
};

/* One Philox4x32-10 block. The published test vectors hold. */
void rng_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* Starts the sequence (seed, purpose, epoch, sample). Same arguments, same numbers, everywhere. */
void rng_init(struct rng *rng, uint64_t seed, enum rng_purpose purpose, uint32_t epoch,
              uint64_t sample);

/* 32 uniform bits. */
uint32_t rng_u32(struct rng *rng);

/* Uniform in [0, 1), 24 bits of resolution (float) or 53 (double; takes two numbers). */
float rng_uniform(struct rng *rng);
double rng_uniform_double(struct rng *rng);

/* Uniform in 0 .. bound - 1, without bias. `bound` must be at least 1. */
uint32_t rng_below(struct rng *rng, uint32_t bound);

/* Standard normal, by Box-Muller on two uniform doubles (the second value is not kept). */
double rng_normal(struct rng *rng);

/* Fills out[0 .. count-1] with a permutation of 0 .. count-1 (Fisher-Yates from the end), from the
 * sequence (seed, RNG_SHUFFLE, epoch, 0). `count` below 2^32. */
void rng_permutation(uint64_t seed, uint32_t epoch, uint32_t *out, size_t count);

#endif
