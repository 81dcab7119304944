/*
 * A trained network applied to image files, without a data set: files are decoded by several threads
 * into one slot of its own and go through the network in batches. Called by the device's thread
 * alone.
 */
#ifndef PINLINE_TRAINER_PREDICTOR_H
#define PINLINE_TRAINER_PREDICTOR_H

#include <stddef.h>

#include "base/status.h"
#include "device/device.h"
#include "trainer/settings.h"

typedef struct predictor predictor;

/* Most images that go through the network at once. */
#define PREDICTOR_BATCH 32

/* What became of one file. */
struct prediction {
    struct status_report failure; /* status OK: `probabilities` is valid */
    float *probabilities;         /* `classes` values that sum to 1; the predictor's */
};

/*
 * Opens device and network for settings->weights (settings completed, model taken by
 * command_take_model); `classes` as the weights file has them. `batch` 1 .. PREDICTOR_BATCH.
 * Statuses of device_open, network_open, checkpoint_load_weights, image_decoder_open.
 */
enum status predictor_open(const struct settings *settings, int classes, int batch,
                           predictor **out) MUST_USE;
void predictor_close(predictor **p);

/* `count` files, 1 .. batch. results[i] is valid until the next call. A file that cannot be used is
 * in its result; STATUS_DEVICE and STATUS_DIVERGED end it all. */
enum status predictor_run(predictor *p, const char *const *paths, int count,
                          struct prediction *results) MUST_USE;

/* The `k` most probable classes, first of equals first, into `order`. */
void predictor_top(const float *probabilities, int classes, int k, int *order);

#endif
