/*
 * The models as static lists of layers: what networks are made of, without any device.
 *
 * A layer reads one value, sometimes a second, and makes one. Values are numbered like the layers: a
 * layer's input is the value made `from` layers before it, and the first layer reads the image.
 */
#ifndef PINLINE_MODELS_CATALOG_H
#define PINLINE_MODELS_CATALOG_H

#include <stdbool.h>

#include "base/status.h"
#include "models/network.h"

enum layer_kind {
    LAYER_CONV_NORM = 1,  /* convolution without bias, batch norm, residual?, ReLU? */
    LAYER_CONV,           /* convolution with bias, ReLU? */
    LAYER_MAX_POOL,       /* square window */
    LAYER_ADD,            /* sum of two values */
    LAYER_GLOBAL_AVERAGE, /* to 1x1, float32 */
    LAYER_GLOBAL_MAX,     /* to 1x1, float32 */
    LAYER_LINEAR          /* to the classes; always the last layer */
};

struct layer {
    enum layer_kind kind;
    const char *name;      /* in parameter names, "layer1.0.conv1"; also in messages */
    const char *norm_name; /* the batch norm's */
    int channels;          /* output channels of a convolution */
    int window, stride, pad;
    int from;          /* how many layers back the input was made; 0 means 1, the layer before */
    int residual;      /* the same for the second input (residual or addend); 0: none */
    bool relu;         /* ReLU at the end */
    bool follows_next; /* its parameters come after the next layer's, as in PyTorch's module */
    bool bias;         /* of the linear layer */
    float factor;      /* of the linear layer's product */
};

/* How random initial values are drawn. Batch norm is always scale 1, bias 0. */
enum initialisation {
    INITIALISE_DEFAULT,     /* PyTorch's layer defaults: uniform within 1 / sqrt(fan in) */
    INITIALISE_TORCHVISION, /* convolutions Kaiming normal by fan out; the linear layer's default */
    INITIALISE_FAN_OUT      /* Kaiming normal by fan out in all layers */
};

struct model {
    const char *name;
    enum initialisation initialisation;
    const struct layer *layers; /* the last one is LAYER_LINEAR */
    int count;
};

/* The layers of `name` for images of `image_size` pixels; `stem` as in network_settings. The result
 * is static. STATUS_USAGE: unknown model, with the known ones; a stem for a model without a choice. */
enum status model_find(const char *name, enum stem stem, int image_size,
                       const struct model **out) MUST_USE;

#endif
