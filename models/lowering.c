/*
 * From layers to device operations. The same walk runs twice for each program: first only to learn
 * which buffers live from which operation to which, then, when the plan has given them places, to
 * create the operations. A gradient takes the memory of what is no longer needed.
 */
#include <assert.h>
#include <stdio.h>

#include "models/lowering_internal.h"

int network__max_ops(const struct network *net)
{
    return 10 * net->model->count + 8;
}

int network__max_spans(const struct network *net)
{
    return 12 * net->model->count + 8;
}

/* --- Values --------------------------------------------------------------------------------- */

struct value lowering__fixed(struct tensor tensor)
{
    return (struct value){.tensor = tensor, .span = -1, .present = true};
}

/* A new buffer of n rows, first used by the operation that comes next. */
struct value lowering__make_rows(struct lowering *low, int n, enum dtype dtype,
                                 struct extent extent)
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
struct value lowering__make(struct lowering *low, enum dtype dtype, struct extent extent)
{
    return lowering__make_rows(low, low->program->n, dtype, extent);
}

/* The tensor for the operation that comes next. */
struct tensor lowering__use(struct lowering *low, const struct value *value)
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
struct tensor lowering__weight(const struct lowering *low, int layer, enum role role)
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

struct tensor lowering__weight_gradient(const struct lowering *low, int layer, enum role role)
{
    const struct placed_parameter *parameter = parameter_of(low, layer, role);
    struct tensor tensor = parameter_view(parameter);
    tensor.dtype = low->net->regions[parameter->region].gradient_dtype;
    tensor.buffer = low->net->gradient_buffer;
    tensor.offset = parameter->gradient;
    return tensor;
}

enum status lowering__emit(struct lowering *low, struct op_desc *desc, const char *layer,
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

/* --- Loss and update ------------------------------------------------------------------------ */

static enum status lower_loss(struct lowering *low)
{
    const int last = low->net->model->count;
    struct op_desc desc = {.kind = OP_SOFTMAX_LOSS};
    desc.u.loss.logits = lowering__use(low, &low->outputs[last]);
    desc.u.loss.targets = network__targets(low->net, low->program->n);
    desc.u.loss.loss = network__loss(low->net);
    if (low->program->training) {
        low->gradients[last] = lowering__make(low, DTYPE_F32, low->net->extents[last]);
        desc.u.loss.dlogits = lowering__use(low, &low->gradients[last]);
    }
    return lowering__emit(low, &desc, "loss", "forward");
}

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
    return lowering__emit(low, &desc, "update", names[number]);
}

enum status network__lower(struct network *net, struct network_program *program,
                           struct memory_plan *plan, bool create)
{
    struct lowering low = {.net = net, .program = program, .plan = plan, .create = create};
    low.outputs[0] = lowering__fixed(network_input(net, program->n));
    for (int i = 0; i < net->model->count; i++) {
        TRY(lowering__forward(&low, i));
    }
    TRY(lower_loss(&low));
    if (program->training) {
        for (int i = net->model->count - 1; i >= 0; i--) {
            TRY(lowering__backward(&low, i));
        }
        for (int region = 0; region < REGION_COUNT; region++) {
            TRY(lower_update(&low, region));
        }
    }
    assert(!create || low.next_span == plan->count);
    return STATUS_OK;
}
