/* A made set of images in a temporary folder, settings for quick runs on the host device, and a run
 * that keeps the loss of every step. For tests of the trainer; failures of the system end the test. */
#ifndef PINLINE_TESTS_SUPPORT_TRAINER_SET_H
#define PINLINE_TESTS_SUPPORT_TRAINER_SET_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "trainer/settings.h"
#include "trainer/train_run.h"

/* Makes `train` and `val` images of size x size in ten classes, in the folder "images" of a temporary
 * one. */
void trainer_set_begin(size_t train, size_t val, int size);
void trainer_set_end(void);
/* A path in the temporary folder, valid until the end. */
const char *trainer_set_path(const char *name);

/* The smallcnn on the set: batch 8, 2 epochs, one host thread, the run in folder `out`. */
void trainer_set_settings(struct settings *settings, int size, const char *out);

#define TRAINER_SET_STEPS 4096

/* Losses by step number; steps that were not seen have NaN. */
struct seen_run {
    float losses[TRAINER_SET_STEPS];
    uint64_t last_step;
    size_t steps;
    int64_t stop_at; /* asks for a stop when this step was seen; below 0: never */
    enum status status;
    struct train_run_result result; /* `epochs` is freed and NULL */
};
/* Completes the settings and runs. The stop is taken back afterwards. */
void trainer_set_run(const struct settings *settings, int64_t stop_at, struct seen_run *seen);

#endif
