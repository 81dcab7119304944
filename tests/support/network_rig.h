/*
 * A network on the host device with one slot that a test fills itself: the loader's part, without
 * files. Statuses that are not OK fail the test.
 */
#ifndef PINLINE_TESTS_SUPPORT_NETWORK_RIG_H
#define PINLINE_TESTS_SUPPORT_NETWORK_RIG_H

#include <stdbool.h>
#include <stdint.h>

#include "models/network.h"
#include "tests/support/skip.h"

/* The thread sanitizer makes arithmetic tens of times slower, and what it looks for shows in any short
 * step: long computations are left out under it. */
#if defined(__SANITIZE_THREAD__)
#define RIG_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RIG_THREAD_SANITIZER 1
#endif
#endif
#ifndef RIG_THREAD_SANITIZER
#define RIG_THREAD_SANITIZER 0
#endif
#define RIG_SKIP_LONG()                                                                            \
    do {                                                                                           \
        if (RIG_THREAD_SANITIZER) {                                                                \
            SKIP_TEST("too long under the thread sanitizer");                                      \
        }                                                                                          \
    } while (0)

struct network_rig {
    device *dev;
    device_stream *stream;
    network *net;
    struct network_settings settings;
    device_buffer *slot;
    unsigned char *block; /* host side of the slot: scalars, targets, pixels */
    size_t targets_offset, pixels_offset, block_bytes;
    bool floats; /* pixels are normalised float32, else bytes with mean 0.5, deviation 0.25 */
    float loss;  /* of the last step */
    float *logits;
};

/* Scalars without momentum, decay or rate; running statistics move by 0.1. */
struct step_scalars rig_scalars(void);

/* Opens the host device with 2 threads, the network, binds the slot for training and evaluation, and
 * prepares. */
void rig_open(struct network_rig *rig, const struct network_settings *settings, bool floats);
/* The same on another device; its precision must be the network's. */
void rig_open_on(struct network_rig *rig, const struct device_settings *wanted,
                 const struct network_settings *settings, bool floats);
void rig_close(struct network_rig *rig);

/* One step of n images (NHWC, 3 channels) and waits. `pixels` is what `floats` says. */
void rig_step(struct network_rig *rig, bool training, int n, const void *pixels,
              const float *targets, const struct step_scalars *scalars);

/* The number of the parameter called `name`; fails the test when there is none. */
int rig_index(const struct network_rig *rig, const char *name);
/* In memory that the caller frees; a counter as one double in *values. */
float *rig_parameter(struct network_rig *rig, int index);
float *rig_gradient(struct network_rig *rig, int index);
void rig_set(struct network_rig *rig, const char *name, const float *values);
/* All values of a parameter. */
void rig_fill(struct network_rig *rig, const char *name, float value);

/* Fills with normal (float) or uniform (byte) random pixels and random labels as one-hot rows that
 * are divided by n. */
void rig_random_floats(uint64_t seed, float *pixels, size_t count);
void rig_random_bytes(uint64_t seed, uint8_t *pixels, size_t count);
void rig_random_targets(uint64_t seed, float *targets, int n, int classes);

#endif
