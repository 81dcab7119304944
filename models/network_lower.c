/*
 * From layers to device operations. The same walk runs twice for each program: first only to learn
 * which buffers live from which operation to which, then, when the plan has given them places, to
 * create the operations. A gradient takes the memory of what is no longer needed.
 */
#include <assert.h>
#include <stdio.h>

#include "models/network_internal.h"

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
    struct value pooled[NETWORK_MAX_LAYERS]; /* a global maximum before it is widened */
    struct value indices[NETWORK_MAX_LAYERS];
};

int network__max_ops(const struct network *net)
{
    return 10 * net->model->count + 8;
}

int network__max_spans(const struct network *net)
{
    return 12 * net->model->count + 8;
}

/* --- Values --------------------------------------------------------------------------------- */

static struct value fixed(struct tensor tensor)
{
    return (struct value){.tensor = tensor, .span = -1, .present = true};
}

/* A new buffer of n rows, first used by the operation that comes next. */
static struct value make_rows(struct lowering *low, int n, enum dtype dtype, struct extent extent)
{
    struct value value = {
        .tensor = {.dtype = dtype, .n = n, .h = extent.h, .w = extent.w, .c = extent.c},
        .present = true};
    if (low->create) {
        value.span = low->next_span++;
        assert(value.span < low->plan->count);
    } else {
        value.span = memory_plan_add(low->plan, tensor_bytes(&value.tensor), low->position);
    }
    return value;
}

/* The same for each image of the batch. */
static struct value make(struct lowering *low, enum dtype dtype, struct extent extent)
{
    return make_rows(low, low->program->n, dtype, extent);
}

/* The tensor for the operation that comes next. */
static struct tensor use(struct lowering *low, const struct value *value)
{
    assert(value->present);
    struct tensor tensor = value->tensor;
    if (value->span >= 0 && low->create) {
        tensor.buffer = low->net->activation_buffer;
        tensor.offset = low->plan->spans[value->span].offset;
    } else if (value->span >= 0) {
        memory_plan_use(low->plan, value->span, low->position);
    }
    return tensor;
}

static const struct placed_parameter *parameter_of(const struct lowering *low, int layer,
                                                   enum role role)
{
    const int number = low->net->by_role[layer][role];
    assert(number >= 0);
    return &low->net->parameters[number];
}

static struct tensor parameter_view(const struct placed_parameter *parameter)
{
    return (struct tensor){.dtype = DTYPE_F32,
                           .n = parameter->n,
                           .h = parameter->h,
                           .w = parameter->w,
                           .c = parameter->c};
}

/* The values that operations read: the shadow of a convolution in bfloat16, else the parameter. */
static struct tensor weight(const struct lowering *low, int layer, enum role role)
{
    const struct placed_parameter *parameter = parameter_of(low, layer, role);
    struct tensor tensor = parameter_view(parameter);
    if (role == ROLE_CONV && network__data_dtype(low->net) == DTYPE_BF16) {
        tensor.dtype = DTYPE_BF16;
        tensor.buffer = low->net->shadow_buffer;
        tensor.offset = parameter->shadow;
    } else {
        tensor.buffer = low->net->parameter_buffer;
        tensor.offset = parameter->offset;
    }
    return tensor;
}

static struct tensor weight_gradient(const struct lowering *low, int layer, enum role role)
{
    const struct placed_parameter *parameter = parameter_of(low, layer, role);
    struct tensor tensor = parameter_view(parameter);
    tensor.dtype = low->net->regions[parameter->region].gradient_dtype;
    tensor.buffer = low->net->gradient_buffer;
    tensor.offset = parameter->gradient;
    return tensor;
}

static enum status emit(struct lowering *low, struct op_desc *desc, const char *layer,
                        const char *what)
{
    low->position++;
    if (!low->create) {
        return STATUS_OK;
    }
    char label[128];
    snprintf(label, sizeof(label), "%s %d: %s %s", low->program->training ? "train" : "eval",
             low->program->n, layer, what);
    desc->label = label;
    struct network_program *program = low->program;
    assert(program->count < network__max_ops(low->net));
    TRY(device_op_create(low->net->dev, desc, &program->ops[program->count]));
    program->count++;
    return STATUS_OK;
}

/* --- Forward -------------------------------------------------------------------------------- */

static enum status forward_conv(struct lowering *low, int i, struct value *y, bool plain)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv.x = use(low, &low->outputs[network__input_layer(i, layer->from)]);
    desc.u.conv.w = weight(low, i, ROLE_CONV);
    if (!plain) {
        desc.u.conv.bias = weight(low, i, ROLE_CONV_BIAS);
        desc.u.conv.relu = layer->relu;
    }
    *y = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    desc.u.conv.y = use(low, y);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    return emit(low, &desc, layer->name, "forward");
}

static enum status forward_norm(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const bool training = low->program->training;
    struct value *y = &low->outputs[i + 1];
    struct op_desc desc = {.kind = training ? OP_NORM : OP_NORM_INFER};
    struct op_norm *norm = &desc.u.norm;
    norm->x = use(low, &low->convolved[i]);
    if (layer->residual > 0) {
        norm->residual = use(low, &low->outputs[network__input_layer(i, layer->residual)]);
    }
    norm->scale = weight(low, i, ROLE_SCALE);
    norm->bias = weight(low, i, ROLE_SHIFT);
    norm->running_mean = weight(low, i, ROLE_MEAN);
    norm->running_var = weight(low, i, ROLE_VARIANCE);
    norm->epsilon = NETWORK_EPSILON;
    norm->relu = layer->relu;
    *y = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    norm->y = use(low, y);
    if (training) {
        const struct extent vector = {1, 1, low->net->extents[i + 1].c};
        low->means[i] = make_rows(low, 1, DTYPE_F32, vector);
        low->deviations[i] = make_rows(low, 1, DTYPE_F32, vector);
        norm->saved_mean = use(low, &low->means[i]);
        norm->saved_inv_std = use(low, &low->deviations[i]);
        norm->scalars = network__scalars(low->net);
    }
    return emit(low, &desc, layer->norm_name, "forward");
}

static enum status forward_pool(struct lowering *low, int i, struct value *y, int window,
                                int stride, int pad)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct op_desc desc = {.kind = OP_MAX_POOL};
    desc.u.pool.x = use(low, &low->outputs[network__input_layer(i, layer->from)]);
    *y = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    desc.u.pool.y = use(low, y);
    if (low->program->training) {
        low->indices[i] = make(low, DTYPE_U8, low->net->extents[i + 1]);
        desc.u.pool.index = use(low, &low->indices[i]);
    }
    desc.u.pool.window = window;
    desc.u.pool.stride = stride;
    desc.u.pool.pad = pad;
    return emit(low, &desc, layer->name, "forward");
}

/* The head computes in float32, so what it reads is widened. */
static enum status forward_global_max(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const struct extent in = low->net->extents[network__input_layer(i, layer->from)];
    TRY(forward_pool(low, i, &low->pooled[i], in.h, in.h, 0));
    if (network__data_dtype(low->net) == DTYPE_F32) {
        low->outputs[i + 1] = low->pooled[i];
        return STATUS_OK;
    }
    struct op_desc desc = {.kind = OP_CAST};
    desc.u.cast.from = use(low, &low->pooled[i]);
    low->outputs[i + 1] = make(low, DTYPE_F32, low->net->extents[i + 1]);
    desc.u.cast.to = use(low, &low->outputs[i + 1]);
    return emit(low, &desc, layer->name, "widen");
}

static enum status forward_layer(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const struct value *x = &low->outputs[network__input_layer(i, layer->from)];
    struct value *y = &low->outputs[i + 1];
    struct op_desc desc = {0};
    switch (layer->kind) {
    case LAYER_CONV_NORM:
        TRY(forward_conv(low, i, &low->convolved[i], true));
        return forward_norm(low, i);
    case LAYER_CONV:
        return forward_conv(low, i, y, false);
    case LAYER_MAX_POOL:
        return forward_pool(low, i, y, layer->window, layer->stride, layer->pad);
    case LAYER_GLOBAL_MAX:
        return forward_global_max(low, i);
    case LAYER_ADD:
        desc.kind = OP_ADD;
        desc.u.add.a = use(low, x);
        desc.u.add.b = use(low, &low->outputs[network__input_layer(i, layer->residual)]);
        *y = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        desc.u.add.y = use(low, y);
        return emit(low, &desc, layer->name, "add");
    case LAYER_GLOBAL_AVERAGE:
        desc.kind = OP_GLOBAL_AVERAGE;
        desc.u.average.x = use(low, x);
        *y = make(low, DTYPE_F32, low->net->extents[i + 1]);
        desc.u.average.y = use(low, y);
        return emit(low, &desc, layer->name, "forward");
    case LAYER_LINEAR:
        desc.kind = OP_LINEAR;
        desc.u.linear.x = use(low, x);
        desc.u.linear.w = weight(low, i, ROLE_LINEAR);
        if (layer->bias) {
            desc.u.linear.bias = weight(low, i, ROLE_LINEAR_BIAS);
        }
        *y = fixed(network__logits(low->net, low->program->n));
        desc.u.linear.y = use(low, y);
        desc.u.linear.factor = layer->factor;
        return emit(low, &desc, layer->name, "forward");
    }
    return FAIL(STATUS_INTERNAL, "layer %s has no kind", layer->name);
}

static enum status lower_loss(struct lowering *low)
{
    const int last = low->net->model->count;
    struct op_desc desc = {.kind = OP_SOFTMAX_LOSS};
    desc.u.loss.logits = use(low, &low->outputs[last]);
    desc.u.loss.targets = network__targets(low->net, low->program->n);
    desc.u.loss.loss = network__loss(low->net);
    if (low->program->training) {
        low->gradients[last] = make(low, DTYPE_F32, low->net->extents[last]);
        desc.u.loss.dlogits = use(low, &low->gradients[last]);
    }
    return emit(low, &desc, "loss", "forward");
}

/* --- Backward ------------------------------------------------------------------------------- */

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
    desc.u.add.a = use(low, sum);
    desc.u.add.b = use(low, &part);
    struct value total;
    if (!sum->shared) {
        total = *sum;
    } else if (!part.shared) {
        total = part;
    } else {
        total = make(low, part.tensor.dtype, low->net->extents[target]);
    }
    desc.u.add.y = use(low, &total);
    *sum = total;
    return emit(low, &desc, low->net->model->layers[target - 1].name, "gradient sum");
}

/* A convolution's weights and input, from the gradient of what it wrote. */
static enum status backward_conv(struct lowering *low, int i, const struct value *dy)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_FILTER};
    desc.u.conv.x = use(low, &low->outputs[input]);
    desc.u.conv.dy = use(low, dy);
    desc.u.conv.dw = weight_gradient(low, i, ROLE_CONV);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    TRY(emit(low, &desc, layer->name, "backward weights"));
    if (input == 0) {
        return STATUS_OK;
    }
    desc = (struct op_desc){.kind = OP_CONV_BACKWARD_DATA};
    desc.u.conv.dy = use(low, dy);
    desc.u.conv.w = weight(low, i, ROLE_CONV);
    const struct value dx = make(low, network__data_dtype(low->net), low->net->extents[input]);
    desc.u.conv.dx = use(low, &dx);
    desc.u.conv.stride = layer->stride;
    desc.u.conv.pad = layer->pad;
    TRY(emit(low, &desc, layer->name, "backward data"));
    return deliver(low, input, dx);
}

static enum status backward_conv_norm(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    struct value *dy = &low->gradients[i + 1];
    struct op_desc desc = {.kind = OP_NORM_BACKWARD};
    struct op_norm *norm = &desc.u.norm;
    norm->x = use(low, &low->convolved[i]);
    norm->y = use(low, &low->outputs[i + 1]);
    norm->dy = use(low, dy);
    norm->scale = weight(low, i, ROLE_SCALE);
    norm->saved_mean = use(low, &low->means[i]);
    norm->saved_inv_std = use(low, &low->deviations[i]);
    const struct value dx = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
    norm->dx = use(low, &dx);
    norm->dscale = weight_gradient(low, i, ROLE_SCALE);
    norm->dbias = weight_gradient(low, i, ROLE_SHIFT);
    norm->epsilon = NETWORK_EPSILON;
    norm->relu = layer->relu;
    /* Without a ReLU the residual's gradient is dy as it stands. */
    struct value branch = *dy;
    if (layer->residual > 0 && layer->relu) {
        if (dy->shared) {
            branch = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        }
        norm->dresidual = use(low, &branch);
    }
    TRY(emit(low, &desc, layer->norm_name, "backward"));
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
        desc.u.relu.y = use(low, &low->outputs[i + 1]);
        desc.u.relu.dy = use(low, &dz);
        if (dz.shared) {
            dz = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        }
        desc.u.relu.dx = use(low, &dz);
        TRY(emit(low, &desc, layer->name, "backward relu"));
    }
    desc = (struct op_desc){.kind = OP_BIAS_BACKWARD};
    desc.u.bias.dy = use(low, &dz);
    desc.u.bias.db = weight_gradient(low, i, ROLE_CONV_BIAS);
    TRY(emit(low, &desc, layer->name, "backward bias"));
    return backward_conv(low, i, &dz);
}

static enum status backward_pool(struct lowering *low, int i, const struct value *y,
                                 const struct value *dy, int window, int stride, int pad)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct op_desc desc = {.kind = OP_MAX_POOL_BACKWARD};
    desc.u.pool.x = use(low, &low->outputs[input]);
    desc.u.pool.y = use(low, y);
    desc.u.pool.index = use(low, &low->indices[i]);
    desc.u.pool.dy = use(low, dy);
    const struct value dx = make(low, network__data_dtype(low->net), low->net->extents[input]);
    desc.u.pool.dx = use(low, &dx);
    desc.u.pool.window = window;
    desc.u.pool.stride = stride;
    desc.u.pool.pad = pad;
    TRY(emit(low, &desc, layer->name, "backward"));
    return deliver(low, input, dx);
}

static enum status backward_global_max(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const struct extent in = low->net->extents[network__input_layer(i, layer->from)];
    struct value dy = low->gradients[i + 1];
    if (network__data_dtype(low->net) != DTYPE_F32) {
        struct op_desc desc = {.kind = OP_CAST};
        desc.u.cast.from = use(low, &dy);
        dy = make(low, network__data_dtype(low->net), low->net->extents[i + 1]);
        desc.u.cast.to = use(low, &dy);
        TRY(emit(low, &desc, layer->name, "narrow"));
    }
    return backward_pool(low, i, &low->pooled[i], &dy, in.h, in.h, 0);
}

static enum status backward_average(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    struct op_desc desc = {.kind = OP_GLOBAL_AVERAGE_BACKWARD};
    desc.u.average.dy = use(low, &low->gradients[i + 1]);
    const struct value dx = make(low, network__data_dtype(low->net), low->net->extents[input]);
    desc.u.average.dx = use(low, &dx);
    TRY(emit(low, &desc, layer->name, "backward"));
    return deliver(low, input, dx);
}

static enum status backward_linear(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    const int input = network__input_layer(i, layer->from);
    const struct value *dy = &low->gradients[i + 1];
    struct op_desc desc = {.kind = OP_LINEAR_BACKWARD_WEIGHTS};
    desc.u.linear.x = use(low, &low->outputs[input]);
    desc.u.linear.dy = use(low, dy);
    desc.u.linear.dw = weight_gradient(low, i, ROLE_LINEAR);
    if (layer->bias) {
        desc.u.linear.db = weight_gradient(low, i, ROLE_LINEAR_BIAS);
    }
    desc.u.linear.factor = layer->factor;
    TRY(emit(low, &desc, layer->name, "backward weights"));
    desc = (struct op_desc){.kind = OP_LINEAR_BACKWARD_DATA};
    desc.u.linear.dy = use(low, dy);
    desc.u.linear.w = weight(low, i, ROLE_LINEAR);
    const struct value dx = make(low, DTYPE_F32, low->net->extents[input]);
    desc.u.linear.dx = use(low, &dx);
    desc.u.linear.factor = layer->factor;
    TRY(emit(low, &desc, layer->name, "backward data"));
    return deliver(low, input, dx);
}

static enum status backward_layer(struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    assert(low->gradients[i + 1].present);
    switch (layer->kind) {
    case LAYER_CONV_NORM:
        return backward_conv_norm(low, i);
    case LAYER_CONV:
        return backward_conv_bias(low, i);
    case LAYER_MAX_POOL:
        return backward_pool(low, i, &low->outputs[i + 1], &low->gradients[i + 1], layer->window,
                             layer->stride, layer->pad);
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

/* --- Update --------------------------------------------------------------------------------- */

static enum status lower_update(struct lowering *low, int number)
{
    static const char *const names[REGION_COUNT] = {"convolutions", "weights", "plain"};
    struct network *net = low->net;
    const struct region *region = &net->regions[number];
    if (region->elements == 0) {
        return STATUS_OK;
    }
    const bool adam = net->settings.optimiser == OPTIMISER_ADAMW;
    struct op_desc desc = {.kind = adam ? OP_ADAMW : OP_SGD};
    struct op_update *update = &desc.u.update;
    const struct tensor vector = {.buffer = net->parameter_buffer,
                                  .offset = region->offset,
                                  .dtype = DTYPE_F32,
                                  .n = 1,
                                  .h = 1,
                                  .w = 1,
                                  .c = (int)region->elements};
    update->parameters = update->gradient = update->first = vector;
    update->gradient.buffer = net->gradient_buffer;
    update->gradient.offset = region->gradient;
    update->gradient.dtype = region->gradient_dtype;
    update->first.buffer = net->state_buffer;
    if (adam) {
        update->second = update->first;
        update->second.offset += net->trained_bytes;
    }
    if (number == REGION_CONV_BF16) {
        update->shadow = vector;
        update->shadow.buffer = net->shadow_buffer;
        update->shadow.offset = region->offset / 2;
        update->shadow.dtype = DTYPE_BF16;
    }
    update->scalars = network__scalars(net);
    update->decays = region->decays;
    update->nesterov = net->settings.nesterov && !adam;
    return emit(low, &desc, "update", names[number]);
}

enum status network__lower(struct network *net, struct network_program *program,
                           struct memory_plan *plan, bool create)
{
    struct lowering low = {.net = net, .program = program, .plan = plan, .create = create};
    low.outputs[0] = fixed(network_input(net, program->n));
    for (int i = 0; i < net->model->count; i++) {
        TRY(forward_layer(&low, i));
    }
    TRY(lower_loss(&low));
    if (program->training) {
        for (int i = net->model->count - 1; i >= 0; i--) {
            TRY(backward_layer(&low, i));
        }
        for (int region = 0; region < REGION_COUNT; region++) {
            TRY(lower_update(&low, region));
        }
    }
    assert(!create || low.next_span == plan->count);
    return STATUS_OK;
}
