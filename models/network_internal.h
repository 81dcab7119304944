/* What the files of the network share. Nothing here is for others. */
#ifndef PINLINE_MODELS_NETWORK_INTERNAL_H
#define PINLINE_MODELS_NETWORK_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "device/device.h"
#include "models/catalog.h"
#include "models/memory_plan.h"
#include "models/network.h"

#define NETWORK_MAX_LAYERS 32
#define NETWORK_NAME_BYTES 64
/* Three channels are padded to four: the fast convolutions want rows of 4, 8, ... channels. */
#define NETWORK_INPUT_CHANNELS 4
#define NETWORK_EPSILON 1e-5F

enum role {
    ROLE_CONV = 1,
    ROLE_CONV_BIAS,
    ROLE_SCALE,
    ROLE_SHIFT,
    ROLE_MEAN,
    ROLE_VARIANCE,
    ROLE_COUNTER,
    ROLE_LINEAR,
    ROLE_LINEAR_BIAS
};
#define NETWORK_ROLES (ROLE_LINEAR_BIAS + 1)

/* A parameter and where it lies on the device. */
struct placed_parameter {
    struct parameter info;
    char name[NETWORK_NAME_BYTES];
    enum role role;
    int layer;
    int region;      /* index into network.regions; -1 when not trained */
    size_t offset;   /* bytes in `parameters`; the same in each state when trained */
    size_t gradient; /* bytes in `gradients` */
    size_t shadow;   /* bytes in `shadow` */
    int n, h, w, c;  /* device layout: K R S C with padded C, rows of a matrix, or a vector */
    size_t placed;   /* elements on the device, the padding of C included */
    int fan_in, fan_out;
    int64_t counter; /* of ROLE_COUNTER */
};

/* A contiguous part of the parameters that one operation updates. */
struct region {
    bool decays;
    enum dtype gradient_dtype; /* BF16: with a shadow */
    size_t offset, elements;   /* in `parameters`; elements with padding between parameters */
    size_t gradient;           /* bytes in `gradients` */
};
enum { REGION_CONV_BF16 = 0, REGION_DECAYS, REGION_PLAIN, REGION_COUNT };

/* Height, width and channels of a value for one image. */
struct extent {
    int h, w, c;
};

/* The fixed program of one batch size. */
struct network_program {
    int n; /* images; 0: not there */
    bool training;
    device_op **ops;
    int count;
    device_program *program;
};
enum { PROGRAM_TRAIN = 0, PROGRAM_TRAIN_LAST, PROGRAM_EVAL, PROGRAM_EVAL_LAST, PROGRAM_COUNT };

/* The ingest of the slots of one loader. */
struct slot_binding {
    device_buffer **buffers;
    device_op **ops; /* of slot s and the first (0) or the last (1) batch size: ops[2 s + which] */
    int count;
    size_t scalars_offset, targets_offset;
};

struct network {
    device *dev;
    device_stream *stream;
    struct network_settings settings;
    const struct model *model;
    struct extent extents[NETWORK_MAX_LAYERS + 1]; /* [0] the image, [i + 1] layer i's output */

    struct placed_parameter *parameters;
    int parameter_count;
    int by_role[NETWORK_MAX_LAYERS][NETWORK_ROLES]; /* parameter number or -1 */
    struct region regions[REGION_COUNT];
    size_t trained_bytes, parameter_bytes, gradient_bytes, shadow_bytes;

    int max_batch;
    size_t targets_offset, logits_offset, loss_offset, input_offset, fixed_bytes;
    size_t activation_bytes;

    device_buffer *parameter_buffer, *shadow_buffer, *gradient_buffer, *state_buffer;
    device_buffer *fixed_buffer, *activation_buffer;
    struct network_program programs[PROGRAM_COUNT];
    struct slot_binding bindings[2]; /* [training] */
    bool prepared;
    float *scratch;     /* one parameter in the device's layout */
    float *file_values; /* one parameter in the file's layout */
};

/* Data type of activations and convolution weights. */
static inline enum dtype network__data_dtype(const struct network *net)
{
    return net->settings.precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
}

static inline int network__input_layer(int layer, int back)
{
    return layer + 1 - (back == 0 ? 1 : back); /* index of the value */
}

/* Fills in extents, parameters, regions and scratch memory from model and settings; close frees
 * them. STATUS_USAGE: image too small, batch of one at 1x1; STATUS_NO_MEMORY. */
enum status network__lay_out(struct network *net) MUST_USE;

/* Plans the memory of `program` (create false) or creates its operations at the places of `plan`. */
enum status network__lower(struct network *net, struct network_program *program,
                           struct memory_plan *plan, bool create) MUST_USE;
/* Room that a plan and a list of operations need at most. */
int network__max_spans(const struct network *net);
int network__max_ops(const struct network *net);

/* Fills in the places of scalars, targets, logits, loss and input from the largest batch. */
void network__place_fixed(struct network *net);
/* Creates the arenas of a network whose sizes are known. STATUS_NO_MEMORY with the largest batch
 * that would fit; STATUS_DEVICE. */
enum status network__create_buffers(struct network *net) MUST_USE;
/* Zeros in all of them but the activations, also between parameters: updates run over that. */
enum status network__zero_buffers(struct network *net) MUST_USE;

/* Views of the fixed places. */
struct tensor network__scalars(const struct network *net);
struct tensor network__targets(const struct network *net, int n);
struct tensor network__logits(const struct network *net, int n);
struct tensor network__loss(const struct network *net);

/* Round to nearest even; NaN stays NaN. */
static inline uint16_t network__to_bf16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    if ((bits & 0x7fffffffU) > 0x7f800000U) {
        return (uint16_t)((bits >> 16) | 0x40U);
    }
    return (uint16_t)((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

static inline float network__from_bf16(uint16_t value)
{
    const uint32_t bits = (uint32_t)value << 16;
    float result;
    memcpy(&result, &bits, sizeof(result));
    return result;
}

#endif
