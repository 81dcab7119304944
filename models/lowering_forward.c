/* Lowering: the operations of each layer's forward pass. */
#include <assert.h>

#include "models/lowering_internal.h"

static enum status forward_conv(struct lowering *low, int i, struct value *y, bool plain)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv.x = lowering__use(low, &low->outputs[network__input_layer(i, layer->from)]);
    desc.u.conv.w = lowering__weight(low, i, ROLE_CONV);
    if (!plain) {
        desc.u.conv.bias = lowering__weight(low, i, ROLE_CONV_BIAS);
        desc.u.conv.relu = layer->relu;
    }
    *y = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    desc.u.conv.y = lowering__use(low, y);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    return lowering__emit(low, &desc, layer->name, "forward");
}

static enum status forward_norm(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const bool training = low->program->training;
    struct value *y = &low->outputs[i + 1];
    struct op_desc desc = {.kind = training ? OP_NORM : OP_NORM_INFER};
    struct op_norm *norm = &desc.u.norm;
    norm->x = lowering__use(low, &low->convolved[i]);
    if (layer->residual > 0) {
        norm->residual =
            lowering__use(low, &low->outputs[network__input_layer(i, layer->residual)]);
    }
    norm->scale = lowering__weight(low, i, ROLE_SCALE);
    norm->bias = lowering__weight(low, i, ROLE_SHIFT);
    norm->running_mean = lowering__weight(low, i, ROLE_MEAN);
    norm->running_var = lowering__weight(low, i, ROLE_VARIANCE);
    norm->epsilon = NETWORK_EPSILON;
    norm->relu = layer->relu;
    *y = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    norm->y = lowering__use(low, y);
    if (training) {
        const struct extent vector = {1, 1, low->net->extents[i + 1].c};
        low->means[i] = lowering__make_rows(low, 1, DTYPE_F32, vector);
        low->deviations[i] = lowering__make_rows(low, 1, DTYPE_F32, vector);
        norm->saved_mean = lowering__use(low, &low->means[i]);
        norm->saved_inv_std = lowering__use(low, &low->deviations[i]);
        norm->scalars = network__scalars(low->net);
    }
    return lowering__emit(low, &desc, layer->norm_name, "forward");
}

static const char *const forward_names[GLOBAL_STAGES] = {"forward", "forward 2", "forward 3",
                                                         "forward 4"};

static enum status forward_pool(struct lowering *low, int i, const struct pooling *pooling,
                                const struct value *x, struct value *y)
{
    struct op_desc desc = {.kind = OP_MAX_POOL};
    desc.u.pool.x = lowering__use(low, x);
    *y = lowering__make(low, network__data_dtype(low->net), pooling->out);
    desc.u.pool.y = lowering__use(low, y);
    if (low->program->training) {
        struct value *index = &low->indices[i][pooling->stage];
        *index = lowering__make(low, DTYPE_U8, pooling->out);
        desc.u.pool.index = lowering__use(low, index);
    }
    desc.u.pool.window = pooling->window;
    desc.u.pool.stride = pooling->stride;
    desc.u.pool.pad = pooling->pad;
    return lowering__emit(low, &desc, low->net->model->layers[i].name,
                          forward_names[pooling->stage]);
}

/* The head computes in float32, so what it reads is widened. */
static enum status forward_global_max(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct pooling poolings[GLOBAL_STAGES];
    const int stages = lowering__global_poolings(low, i, poolings);
    const struct value *x = &low->outputs[network__input_layer(i, layer->from)];
    for (int stage = 0; stage < stages; stage++) {
        TRY(forward_pool(low, i, &poolings[stage], x, &low->pooled[i][stage]));
        x = &low->pooled[i][stage];
    }
    if (network__data_dtype(low->net) == DTYPE_F32) {
        low->outputs[i + 1] = *x;
        return STATUS_OK;
    }
    struct op_desc desc = {.kind = OP_CAST};
    desc.u.cast.from = lowering__use(low, x);
    low->outputs[i + 1] = lowering__make(low, DTYPE_F32, low->net->extents[i + 1]);
    desc.u.cast.to = lowering__use(low, &low->outputs[i + 1]);
    return lowering__emit(low, &desc, layer->name, "widen");
}

enum status lowering__forward(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const struct value *x = &low->outputs[network__input_layer(i, layer->from)];
    struct value *y = &low->outputs[i + 1];
    struct op_desc desc = {0};
    struct pooling pooling;
    switch (layer->kind) {
    case LAYER_CONV_NORM:
        TRY(forward_conv(low, i, &low->convolved[i], true));
        return forward_norm(low, i);
    case LAYER_CONV:
        return forward_conv(low, i, y, false);
    case LAYER_MAX_POOL:
        pooling = lowering__pooling(low, i);
        return forward_pool(low, i, &pooling, x, y);
    case LAYER_GLOBAL_MAX:
        return forward_global_max(low, i);
    case LAYER_ADD:
        desc.kind = OP_ADD;
        desc.u.add.a = lowering__use(low, x);
        desc.u.add.b = lowering__use(low, &low->outputs[network__input_layer(i, layer->residual)]);
        *y = lowering__make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        desc.u.add.y = lowering__use(low, y);
        return lowering__emit(low, &desc, layer->name, "add");
    case LAYER_GLOBAL_AVERAGE:
        desc.kind = OP_GLOBAL_AVERAGE;
        desc.u.average.x = lowering__use(low, x);
        *y = lowering__make(low, DTYPE_F32, low->net->extents[i + 1]);
        desc.u.average.y = lowering__use(low, y);
        return lowering__emit(low, &desc, layer->name, "forward");
    case LAYER_LINEAR:
        desc.kind = OP_LINEAR;
        desc.u.linear.x = lowering__use(low, x);
        desc.u.linear.w = lowering__weight(low, i, ROLE_LINEAR);
        if (layer->bias) {
            desc.u.linear.bias = lowering__weight(low, i, ROLE_LINEAR_BIAS);
        }
        *y = lowering__fixed(network__logits(low->net, low->program->n));
        desc.u.linear.y = lowering__use(low, y);
        desc.u.linear.factor = layer->factor;
        return lowering__emit(low, &desc, layer->name, "forward");
    }
    return FAIL(STATUS_INTERNAL, "layer %s has no kind", layer->name);
}
