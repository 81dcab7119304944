/* Lowering: shared by the files that turn layers into operations, forward and backward. */
#ifndef PINLINE_MODELS_LOWERING_INTERNAL_H
#define PINLINE_MODELS_LOWERING_INTERNAL_H

#include <stdbool.h>

#include "base/status.h"
#include "models/network_internal.h"

/* A global maximum is taken in stages of small windows: a device's index of the maximum has 8 bits. */
#define GLOBAL_WINDOW 8
#define GLOBAL_STAGES 4 /* enough for maps of 512, the largest that an image of 4096 leaves */

/* A tensor whose place is decided by the plan (span >= 0) or fixed (span -1, buffer set). */
struct value {
    struct tensor tensor;
    int span;
    bool present;
    bool shared; /* a gradient that stands for several values must not be overwritten */
};

struct lowering {
    struct network *net;
    struct network_program *program;
    struct memory_plan *plan;
    bool create;
    int position;  /* number of the next operation */
    int next_span; /* number of the next buffer, when the plan is already made */
    struct value outputs[NETWORK_MAX_LAYERS + 1];   /* [0] the image, [i + 1] of layer i */
    struct value gradients[NETWORK_MAX_LAYERS + 1]; /* of the same */
    struct value convolved[NETWORK_MAX_LAYERS];     /* what a batch norm reads */
    struct value means[NETWORK_MAX_LAYERS], deviations[NETWORK_MAX_LAYERS]; /* of the batch */
    struct value pooled[NETWORK_MAX_LAYERS][GLOBAL_STAGES]; /* of a global maximum */
    struct value indices[NETWORK_MAX_LAYERS][GLOBAL_STAGES];
};

/* --- Values --------------------------------------------------------------------------------- */

/* A value at a fixed place. */
struct value lowering__fixed(struct tensor tensor);
/* A new buffer, first used by the operation that comes next: of n rows, or of one for each image. */
struct value lowering__make_rows(struct lowering *low, int n, enum dtype dtype,
                                 struct extent extent);
struct value lowering__make(struct lowering *low, enum dtype dtype, struct extent extent);
/* The value's tensor for the operation that comes next. */
struct tensor lowering__use(struct lowering *low, const struct value *value);

/* What operations read of a parameter (the shadow of a convolution in bfloat16), and its gradient. */
struct tensor lowering__weight(const struct lowering *low, int layer, enum role role);
struct tensor lowering__weight_gradient(const struct lowering *low, int layer, enum role role);

/* The next operation: counted while planning, created afterwards. Its label, "train 64: LAYER WHAT",
 * is unique in the network. */
enum status lowering__emit(struct lowering *low, struct op_desc *desc, const char *layer,
                           const char *what) MUST_USE;

/* --- Layers --------------------------------------------------------------------------------- */

/* One pooling operation of layer i. */
struct pooling {
    int stage;
    int window, stride, pad;
    struct extent out;
};

/* Of LAYER_MAX_POOL. */
struct pooling lowering__pooling(const struct lowering *low, int i);
/* The stages of LAYER_GLOBAL_MAX; returns their number. */
int lowering__global_poolings(const struct lowering *low, int i,
                              struct pooling poolings[GLOBAL_STAGES]);

/* The operations of layer i; backward needs the gradient of its output. */
enum status lowering__forward(struct lowering *low, int i) MUST_USE;
enum status lowering__backward(struct lowering *low, int i) MUST_USE;

#endif
