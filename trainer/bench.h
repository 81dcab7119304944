/* What `pinline bench` measures: each a function that prints its result. */
#ifndef PINLINE_TRAINER_BENCH_H
#define PINLINE_TRAINER_BENCH_H

#include "base/status.h"
#include "trainer/settings.h"

/* Plain data. */
struct bench_settings {
    int steps;   /* of one repeat of `bench step`, >= 1 [50] */
    int repeats; /* of these steps, >= 1 [5] */
    int classes; /* of the network of `bench step`, >= 2 [10] */
    double
        seconds; /* that one measurement of `bench loader` and `bench decode` lasts at least [2] */
};

/*
 * The step with its batch kept on the device: pixels to input, forward, backward and update, without
 * data, loader or copies. Prints samples/s of each repeat (best, median, lowest), the time of a step
 * and the time that issuing one keeps the host. Statuses of device_open and network_open.
 */
enum status bench_step(const struct settings *settings,
                       const struct bench_settings *bench) MUST_USE;

/* The loader alone into its slots, nothing copied or trained, for 0, 1, 2, 4, ... workers up to the
 * CPUs allowed: images/s, and microseconds an image of each stage. Statuses of loader_open. */
enum status bench_loader(const struct settings *settings,
                         const struct bench_settings *bench) MUST_USE;

/* Decoding alone, on one thread, from memory: each decoding library that can read a kind of file,
 * whole images and images squashed to --size. Statuses of dataset_open. */
enum status bench_decode(const struct settings *settings,
                         const struct bench_settings *bench) MUST_USE;

#endif
