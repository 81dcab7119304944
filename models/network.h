/*
 * A network laid out on a device: parameters, activations, gradients and optimiser state in a few
 * arenas, and one program for each batch size that will occur. Nothing is allocated after open.
 *
 * Per step, in one stream:   network_ingest (slot -> fixed input; the slot is consumed after it)
 *                            network_train or network_evaluate (a fixed, capturable program)
 *                            network_read_results_async (loss and logits to host memory)
 *
 * Models and their parameter names are in docs/models.md. Called by the device's thread alone.
 */
#ifndef PINLINE_MODELS_NETWORK_H
#define PINLINE_MODELS_NETWORK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "device/device.h"

typedef struct network network;

enum optimiser { OPTIMISER_SGD = 0, OPTIMISER_ADAMW };
enum stem { STEM_AUTO = 0, STEM_SMALL /* 3x3 stride 1 */, STEM_LARGE /* 7x7 stride 2 + pool */ };

/* Names of the models, NULL at the end: "smallcnn", "resnet9", "resnet18", "probe". */
extern const char *const network_model_names[];

struct network_settings {
    const char *model;        /* one of network_model_names; default "smallcnn" */
    int classes;              /* 2 to 100000 */
    int image_size;           /* as the loader's size */
    enum precision precision; /* default PRECISION_F32 */
    enum stem stem;           /* resnet18 alone: large from 64 pixels on when AUTO */
    bool train;               /* false: no gradients, optimiser state or training programs */
    int train_batch;          /* images of a full training batch */
    int train_last_batch;     /* of the last one; 0 or train_batch when there is none other */
    int eval_batch, eval_last_batch; /* likewise for evaluation; eval_batch 0: none */
    enum optimiser optimiser;
    bool nesterov;  /* default false */
    bool decay_all; /* weight decay also on batch norm and biases; default false */
};
void network_settings_defaults(struct network_settings *settings);

/*
 * Lays out everything and creates operations and programs on `stream` (the compute stream, kept).
 * Parameters hold zeros until initialised or loaded.
 * STATUS_USAGE: unknown model, image too small for it, a training batch of one whose maps are 1x1
 * (with the remedy); STATUS_NO_MEMORY with the bytes wanted and the largest batch that would fit;
 * STATUS_UNSUPPORTED, STATUS_DEVICE.
 */
enum status network_open(device *dev, device_stream *stream,
                         const struct network_settings *settings, network **out) MUST_USE;
void network_close(network **net);

/* Binds the slots of a loader: one ingest operation for each slot and batch size. Offsets are those
 * of loader.h; pixels are `pixel_dtype` (U8: normalised here with mean and deviation; F32: already
 * normalised). `training` says which batch sizes. Call once for each of the two loaders. */
struct network_slots {
    device_buffer *const *buffers;
    int count;
    size_t scalars_offset, targets_offset, pixels_offset;
    enum dtype pixel_dtype;
    float mean[3], deviation[3];
    bool training;
};
enum status network_bind_slots(network *net, const struct network_slots *slots) MUST_USE;

/* Creates the programs; after both bind calls, before the first step. Weights and optimiser state
 * survive it. */
enum status network_prepare(network *net) MUST_USE;

/* Submits: pixels of `slot` to the input, targets and scalars to their fixed places. */
enum status network_ingest(network *net, bool training, int slot, int n) MUST_USE;
/* Submits one training step (forward, loss, backward, update) of n images. */
enum status network_train(network *net, int n) MUST_USE;
/* Submits forward and loss of n images with the running statistics. */
enum status network_evaluate(network *net, int n) MUST_USE;

/* Submits the copy of loss (1 float) and, when `logits` is not NULL, n x classes floats to host
 * memory that stays valid until a later event is complete. */
enum status network_read_results_async(network *net, int n, float *loss, float *logits) MUST_USE;

/* The fixed input as the first layer reads it (n x size x size x channels, channels >= 3; F32 or
 * BF16), for verification and dumps. */
struct tensor network_input(const network *net, int n);

/* --- Parameters ------------------------------------------------------------------------------- */

enum parameter_kind {
    PARAMETER_WEIGHT,  /* trained */
    PARAMETER_RUNNING, /* running mean or variance */
    PARAMETER_COUNTER  /* num_batches_tracked: int64, no dimensions; kept on the host */
};

struct parameter {
    const char *name; /* PyTorch's, "layer1.0.bn1.running_mean" */
    enum parameter_kind kind;
    int dims;         /* 0 to 4 */
    int64_t shape[4]; /* OIHW for convolutions */
    size_t elements;
    bool decays; /* weight decay applies */
};
int network_parameter_count(const network *net);
const struct parameter *network_parameter(const network *net, int index);

/* Random initial values (docs/models.md), a pure function of (model, seed); optimiser state and
 * counters to zero. */
enum status network_initialise(network *net, uint64_t seed) MUST_USE;

/* Copies of a parameter in file layout (OIHW, float32; a counter as one int64) between host and
 * device; they wait for the device. */
enum status network_get_parameter(network *net, int index, void *values) MUST_USE;
enum status network_set_parameter(network *net, int index, const void *values) MUST_USE;
/* The same for the last step's gradient (WEIGHT alone), for tests and comparisons. */
enum status network_get_gradient(network *net, int index, float *values) MUST_USE;
/* Optimiser state of a WEIGHT: which 0 (velocity or first moment) or 1 (second moment). */
int network_state_count(const network *net); /* 1 SGD, 2 AdamW, 0 without training */
enum status network_get_state(network *net, int index, int which, float *values) MUST_USE;
enum status network_set_state(network *net, int index, int which, const float *values) MUST_USE;

/* FNV-1a over names and file-layout bytes of all parameters, in order; waits for the device. */
enum status network_weights_hash(network *net, uint64_t *hash) MUST_USE;

/* Bytes on the device by class, for the run log and for messages. */
struct network_memory {
    size_t parameters, gradients, state, activations;
};
void network_read_memory(const network *net, struct network_memory *memory);

#endif
