/* Lowering: the operations of each layer's backward pass, and sums of gradients. */
#include <assert.h>

#include "models/lowering_internal.h"

/* One more part of the gradient of value `target`, which is summed over the layers that read it. */
static enum status deliver(struct lowering *low, int target, struct value part)
{
    struct value *sum = &low->gradients[target];
    if (target == 0) {
        return STATUS_OK; /* nobody wants the image's */
    }
    if (!sum->present) {
        *sum = part;
        return STATUS_OK;
    }
    struct op_desc desc = {.kind = OP_ADD};
    desc.u.add.a = lowering__use(low, sum);
    desc.u.add.b = lowering__use(low, &part);
    struct value total;
    if (!sum->shared) {
        total = *sum;
    } else if (!part.shared) {
        total = part;
    } else {
        total = lowering__make(low, part.tensor.dtype, low->net->extents[target]);
    }
    desc.u.add.y = lowering__use(low, &total);
    *sum = total;
    return lowering__emit(low, &desc, low->net->model->layers[target - 1].name, "gradient sum");
}

/* A convolution's weights and input, from the gradient of what it wrote. */
static enum status backward_conv(struct lowering *low, int i, const struct value *dy)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_FILTER};
    desc.u.conv.x = lowering__use(low, &low->outputs[input]);
    desc.u.conv.dy = lowering__use(low, dy);
    desc.u.conv.dw = lowering__weight_gradient(low, i, ROLE_CONV);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    TRY(lowering__emit(low, &desc, layer->name, "backward weights"));
    if (input == 0) {
        return STATUS_OK;
    }
    desc = (struct op_desc){.kind = OP_CONV_BACKWARD_DATA};
    desc.u.conv.dy = lowering__use(low, dy);
    desc.u.conv.w = lowering__weight(low, i, ROLE_CONV);
    const struct value dx =
        lowering__make(low, network__data_dtype(low->net), low->net->extents[input]);
    desc.u.conv.dx = lowering__use(low, &dx);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    TRY(lowering__emit(low, &desc, layer->name, "backward data"));
    return deliver(low, input, dx);
}

static enum status backward_conv_norm(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct value *dy = &low->gradients[i + 1];
    struct op_desc desc = {.kind = OP_NORM_BACKWARD};
    struct op_norm *norm = &desc.u.norm;
    norm->x = lowering__use(low, &low->convolved[i]);
    norm->y = lowering__use(low, &low->outputs[i + 1]);
    norm->dy = lowering__use(low, dy);
    norm->scale = lowering__weight(low, i, ROLE_SCALE);
    norm->bias = lowering__weight(low, i, ROLE_SHIFT);
    norm->saved_mean = lowering__use(low, &low->means[i]);
    norm->saved_inv_std = lowering__use(low, &low->deviations[i]);
    const struct value dx =
        lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    norm->dx = lowering__use(low, &dx);
    norm->dscale = lowering__weight_gradient(low, i, ROLE_SCALE);
    norm->dbias = lowering__weight_gradient(low, i, ROLE_SHIFT);
    norm->epsilon = NETWORK_EPSILON;
    norm->relu = layer->relu;
    /* Without a ReLU the residual's gradient is dy as it stands. */
    struct value branch = *dy;
    if (layer->residual > 0 && layer->relu) {
        if (dy->shared) {
            branch = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        }
        norm->dresidual = lowering__use(low, &branch);
    }
    TRY(lowering__emit(low, &desc, layer->norm_name, "backward"));
    if (layer->residual > 0) {
        TRY(deliver(low, network__input_layer(i, layer->residual), branch));
    }
    return backward_conv(low, i, &dx);
}

static enum status backward_conv_bias(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct value dz = low->gradients[i + 1];
    struct op_desc desc = {.kind = OP_RELU_BACKWARD};
    if (layer->relu) {
        desc.u.relu.y = lowering__use(low, &low->outputs[i + 1]);
        desc.u.relu.dy = lowering__use(low, &dz);
        if (dz.shared) {
            dz = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        }
        desc.u.relu.dx = lowering__use(low, &dz);
        TRY(lowering__emit(low, &desc, layer->name, "backward relu"));
    }
    desc = (struct op_desc){.kind = OP_BIAS_BACKWARD};
    desc.u.bias.dy = lowering__use(low, &dz);
    desc.u.bias.db = lowering__weight_gradient(low, i, ROLE_CONV_BIAS);
    TRY(lowering__emit(low, &desc, layer->name, "backward bias"));
    return backward_conv(low, i, &dz);
}

static const char *const backward_names[GLOBAL_STAGES] = {"backward", "backward 2", "backward 3",
                                                          "backward 4"};

static enum status backward_pool(struct lowering *low, int i, const struct pooling *pooling,
                                 const struct value *x, const struct value *y,
                                 const struct value *dy, struct value *dx)
{
    struct op_desc desc = {.kind = OP_MAX_POOL_BACKWARD};
    desc.u.pool.x = lowering__use(low, x);
    desc.u.pool.y = lowering__use(low, y);
    desc.u.pool.index = lowering__use(low, &low->indices[i][pooling->stage]);
    desc.u.pool.dy = lowering__use(low, dy);
    *dx = lowering__make(low, network__data_dtype(low->net),
                         (struct extent){x->tensor.h, x->tensor.w, x->tensor.c});
    desc.u.pool.dx = lowering__use(low, dx);
    desc.u.pool.window = pooling->window;
    desc.u.pool.stride = pooling->stride;
    desc.u.pool.pad = pooling->pad;
    return lowering__emit(low, &desc, low->net->model->layers[i].name,
                          backward_names[pooling->stage]);
}

static enum status backward_max(struct lowering *low, int i)
{
    const int input = network__input_layer(i, low->net->model->layers[i].from);
    const struct pooling pooling = lowering__pooling(low, i);
    struct value dx;
    TRY(backward_pool(low, i, &pooling, &low->outputs[input], &low->outputs[i + 1],
                      &low->gradients[i + 1], &dx));
    return deliver(low, input, dx);
}

static enum status backward_global_max(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct pooling poolings[GLOBAL_STAGES];
    struct value dy = low->gradients[i + 1];
    if (network__data_dtype(low->net) != DTYPE_F32) {
        struct op_desc desc = {.kind = OP_CAST};
        desc.u.cast.from = lowering__use(low, &dy);
        dy = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        desc.u.cast.to = lowering__use(low, &dy);
        TRY(lowering__emit(low, &desc, layer->name, "narrow"));
    }
    for (int stage = lowering__global_poolings(low, i, poolings) - 1; stage >= 0; stage--) {
        const struct value *x = stage > 0 ? &low->pooled[i][stage - 1] : &low->outputs[input];
        struct value dx;
        TRY(backward_pool(low, i, &poolings[stage], x, &low->pooled[i][stage], &dy, &dx));
        dy = dx;
    }
    return deliver(low, input, dy);
}

static enum status backward_average(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct op_desc desc = {.kind = OP_GLOBAL_AVERAGE_BACKWARD};
    desc.u.average.dy = lowering__use(low, &low->gradients[i + 1]);
    const struct value dx =
        lowering__make(low, network__data_dtype(low->net), low->net->extents[input]);
    desc.u.average.dx = lowering__use(low, &dx);
    TRY(lowering__emit(low, &desc, layer->name, "backward"));
    return deliver(low, input, dx);
}

static enum status backward_linear(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    const struct value *dy = &low->gradients[i + 1];
    struct op_desc desc = {.kind = OP_LINEAR_BACKWARD_WEIGHTS};
    desc.u.linear.x = lowering__use(low, &low->outputs[input]);
    desc.u.linear.dy = lowering__use(low, dy);
    desc.u.linear.dw = lowering__weight_gradient(low, i, ROLE_LINEAR);
    if (layer->bias) {
        desc.u.linear.db = lowering__weight_gradient(low, i, ROLE_LINEAR_BIAS);
    }
    desc.u.linear.factor = layer->factor;
    TRY(lowering__emit(low, &desc, layer->name, "backward weights"));
    desc = (struct op_desc){.kind = OP_LINEAR_BACKWARD_DATA};
    desc.u.linear.dy = lowering__use(low, dy);
    desc.u.linear.w = lowering__weight(low, i, ROLE_LINEAR);
    const struct value dx = lowering__make(low, DTYPE_F32, low->net->extents[input]);
    desc.u.linear.dx = lowering__use(low, &dx);
    desc.u.linear.factor = layer->factor;
    TRY(lowering__emit(low, &desc, layer->name, "backward data"));
    return deliver(low, input, dx);
}

enum status lowering__backward(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    assert(low->gradients[i + 1].present);
    switch (layer->kind) {
    case LAYER_CONV_NORM:
        return backward_conv_norm(low, i);
    case LAYER_CONV:
        return backward_conv_bias(low, i);
    case LAYER_MAX_POOL:
        return backward_max(low, i);
    case LAYER_GLOBAL_MAX:
        return backward_global_max(low, i);
    case LAYER_ADD: {
        /* Both addends have this gradient, in the same memory. */
        struct value part = low->gradients[i + 1];
        part.shared = true;
        TRY(deliver(low, network__input_layer(i, layer->from), part));
        return deliver(low, network__input_layer(i, layer->residual), part);
    }
    case LAYER_GLOBAL_AVERAGE:
        return backward_average(low, i);
    case LAYER_LINEAR:
        return backward_linear(low, i);
    }
    return FAIL(STATUS_INTERNAL, "layer %s has no kind", layer->name);
}
