#include "models/network.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "models/network_internal.h"

void network_settings_defaults(struct network_settings *settings)
{
    *settings = (struct network_settings){.model = "smallcnn",
                                          .classes = 10,
                                          .image_size = 32,
                                          .precision = PRECISION_F32,
                                          .stem = STEM_AUTO,
                                          .train = true,
                                          .train_batch = 64,
                                          .optimiser = OPTIMISER_SGD};
}

static enum status check_range(const char *what, int value, int low, int high)
{
    if (value < low || value > high) {
        return FAIL(STATUS_USAGE, "%s is %d: it must be %d to %d", what, value, low, high);
    }
    return STATUS_OK;
}

static enum status check_settings(const struct network_settings *settings)
{
    TRY(check_range("the number of classes", settings->classes, 2, 100000));
    TRY(check_range("the image size", settings->image_size, 1, 4096));
    TRY(check_range("the training batch", settings->train_batch, settings->train ? 1 : 0, 65536));
    TRY(check_range("the last training batch", settings->train_last_batch, 0,
                    settings->train_batch));
    TRY(check_range("the evaluation batch", settings->eval_batch, settings->train ? 0 : 1, 65536));
    TRY(check_range("the last evaluation batch", settings->eval_last_batch, 0,
                    settings->eval_batch));
    return STATUS_OK;
}

/* --- Programs ------------------------------------------------------------------------------- */

static void choose_batches(struct network *net)
{
    const struct network_settings *settings = &net->settings;
    struct network_program *programs = net->programs;
    if (settings->train) {
        programs[PROGRAM_TRAIN].n = settings->train_batch;
        if (settings->train_last_batch != settings->train_batch) {
            programs[PROGRAM_TRAIN_LAST].n = settings->train_last_batch;
        }
    }
    programs[PROGRAM_EVAL].n = settings->eval_batch;
    if (settings->eval_last_batch != settings->eval_batch) {
        programs[PROGRAM_EVAL_LAST].n = settings->eval_last_batch;
    }
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        programs[i].training = i == PROGRAM_TRAIN || i == PROGRAM_TRAIN_LAST;
        net->max_batch = programs[i].n > net->max_batch ? programs[i].n : net->max_batch;
    }
}

static enum status plan_programs(struct network *net, struct memory_plan plans[PROGRAM_COUNT])
{
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        if (net->programs[i].n == 0) {
            continue;
        }
        TRY(memory_plan_init(&plans[i], network__max_spans(net)));
        TRY(network__lower(net, &net->programs[i], &plans[i], false));
        TRY(memory_plan_solve(&plans[i]));
        if (plans[i].bytes > net->activation_bytes) {
            net->activation_bytes = plans[i].bytes;
        }
    }
    return STATUS_OK;
}

static enum status create_operations(struct network *net, struct memory_plan plans[PROGRAM_COUNT])
{
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        struct network_program *program = &net->programs[i];
        if (program->n == 0) {
            continue;
        }
        program->ops = calloc((size_t)network__max_ops(net), sizeof(*program->ops));
        if (program->ops == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the operations of %s", net->model->name);
        }
        TRY(network__lower(net, program, &plans[i], true));
    }
    return STATUS_OK;
}

/* --- Opening -------------------------------------------------------------------------------- */

static enum status build(struct network *net, struct memory_plan plans[PROGRAM_COUNT])
{
    TRY(network__lay_out(net));
    choose_batches(net);
    network__place_fixed(net);
    TRY(plan_programs(net, plans));
    TRY(network__create_buffers(net));
    /* Choosing plans may run operations on the buffers, so they become zero afterwards. */
    TRY(create_operations(net, plans));
    return network__zero_buffers(net);
}

enum status network_open(device *dev, device_stream *stream,
                         const struct network_settings *settings, network **out)
{
    *out = NULL;
    const struct model *model;
    TRY(check_settings(settings));
    TRY(model_find(settings->model, settings->stem, settings->image_size, &model));
    network *net = calloc(1, sizeof(*net));
    if (net == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a network");
    }
    net->dev = dev;
    net->stream = stream;
    net->settings = *settings;
    net->settings.model = model->name;
    net->model = model;
    struct memory_plan plans[PROGRAM_COUNT] = {{0}};
    const enum status status = build(net, plans);
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        memory_plan_fini(&plans[i]);
    }
    if (status != STATUS_OK) {
        status_trace(__FILE__, __LINE__, "build(net, plans)");
        network_close(&net);
        return status;
    }
    *out = net;
    return STATUS_OK;
}

static void unbind(struct network *net, struct slot_binding *binding)
{
    for (int i = 0; binding->ops != NULL && i < 2 * binding->count; i++) {
        device_op_destroy(net->dev, &binding->ops[i]);
    }
    free(binding->ops);
    free(binding->buffers);
    *binding = (struct slot_binding){0};
}

void network_close(network **net_pointer)
{
    network *net = *net_pointer;
    if (net == NULL) {
        return;
    }
    *net_pointer = NULL;
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        struct network_program *program = &net->programs[i];
        device_program_destroy(net->dev, &program->program);
        for (int k = 0; k < program->count; k++) {
            device_op_destroy(net->dev, &program->ops[k]);
        }
        free(program->ops);
    }
    unbind(net, &net->bindings[0]);
    unbind(net, &net->bindings[1]);
    device_buffer_destroy(net->dev, &net->parameter_buffer);
    device_buffer_destroy(net->dev, &net->shadow_buffer);
    device_buffer_destroy(net->dev, &net->gradient_buffer);
    device_buffer_destroy(net->dev, &net->state_buffer);
    device_buffer_destroy(net->dev, &net->fixed_buffer);
    device_buffer_destroy(net->dev, &net->activation_buffer);
    free(net->parameters);
    free(net->scratch);
    free(net->file_values);
    free(net);
}

/* --- Slots ---------------------------------------------------------------------------------- */

static enum status create_ingest(struct network *net, const struct network_slots *slots, int slot,
                                 int n, device_op **out)
{
    const struct tensor to = network_input(net, n);
    char label[64];
    snprintf(label, sizeof label, "ingest %d %s", to.n,
             slots->pixel_dtype == DTYPE_U8 ? "u8" : "f32");
    struct op_desc desc = {.kind = OP_INGEST, .label = label};
    desc.u.ingest.to = to;
    desc.u.ingest.from = (struct tensor){.buffer = slots->buffers[slot],
                                         .offset = slots->pixels_offset,
                                         .dtype = slots->pixel_dtype,
                                         .n = n,
                                         .h = to.h,
                                         .w = to.w,
                                         .c = 3};
    for (int c = 0; c < 3; c++) {
        const bool bytes = slots->pixel_dtype == DTYPE_U8;
        desc.u.ingest.scale[c] = bytes ? 1.0F / (255.0F * slots->deviation[c]) : 1.0F;
        desc.u.ingest.offset[c] = bytes ? -slots->mean[c] / slots->deviation[c] : 0.0F;
    }
    return device_op_create(net->dev, &desc, out);
}

enum status network_bind_slots(network *net, const struct network_slots *slots)
{
    struct slot_binding *binding = &net->bindings[slots->training];
    const struct network_program *programs =
        &net->programs[slots->training ? PROGRAM_TRAIN : PROGRAM_EVAL];
    unbind(net, binding);
    if (programs[0].n == 0) {
        return FAIL(STATUS_INTERNAL, "slots for %s are bound to a network that was opened without",
                    slots->training ? "training" : "evaluation");
    }
    binding->buffers = calloc((size_t)slots->count, sizeof(device_buffer *));
    binding->ops = calloc((size_t)slots->count * 2, sizeof(device_op *));
    if (binding->buffers == NULL || binding->ops == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d slots", slots->count);
    }
    binding->count = slots->count;
    binding->scalars_offset = slots->scalars_offset;
    binding->targets_offset = slots->targets_offset;
    for (int slot = 0; slot < slots->count; slot++) {
        binding->buffers[slot] = slots->buffers[slot];
        for (int which = 0; which < 2; which++) {
            if (programs[which].n > 0) {
                TRY(create_ingest(net, slots, slot, programs[which].n,
                                  &binding->ops[2 * slot + which]));
            }
        }
    }
    return STATUS_OK;
}

/* --- Preparing ------------------------------------------------------------------------------ */

struct saved_buffer {
    device_buffer *buffer;
    void *copy;
};

static enum status create_programs(struct network *net)
{
    for (int i = 0; i < PROGRAM_COUNT; i++) {
        struct network_program *program = &net->programs[i];
        if (program->n > 0) {
            TRY(device_program_create(net->dev, program->ops, (size_t)program->count, net->stream,
                                      &program->program));
        }
    }
    return STATUS_OK;
}

/* Creating a program may run it once, on what the buffers hold: an update of the weights and of the
 * running statistics that did not happen in training is taken back. */
static enum status create_programs_keeping(struct network *net, struct saved_buffer *saved,
                                           size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (saved[i].buffer == NULL) {
            continue;
        }
        const size_t bytes = device_buffer_bytes(saved[i].buffer);
        saved[i].copy = malloc(bytes);
        if (saved[i].copy == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory to keep %zu bytes of weights", bytes);
        }
        TRY(device_copy_to_host(net->dev, net->stream, saved[i].copy, saved[i].buffer, 0, bytes));
    }
    TRY(device_stream_wait(net->dev, net->stream));
    TRY(create_programs(net));
    for (size_t i = 0; i < count; i++) {
        if (saved[i].buffer != NULL) {
            TRY(device_copy_to_device(net->dev, net->stream, saved[i].buffer, 0, saved[i].copy,
                                      device_buffer_bytes(saved[i].buffer)));
        }
    }
    return device_stream_wait(net->dev, net->stream);
}

enum status network_prepare(network *net)
{
    if (net->prepared) {
        return STATUS_OK;
    }
    struct saved_buffer saved[] = {
        {net->parameter_buffer, NULL}, {net->shadow_buffer, NULL}, {net->state_buffer, NULL}};
    const size_t count = sizeof(saved) / sizeof(saved[0]);
    const enum status status = create_programs_keeping(net, saved, count);
    for (size_t i = 0; i < count; i++) {
        free(saved[i].copy);
    }
    TRY(status);
    net->prepared = true;
    return STATUS_OK;
}

/* --- Stepping ------------------------------------------------------------------------------- */

/* 0 or 1: the program of n images among the two of training or evaluation. */
static enum status find_batch(const struct network *net, bool training, int n, int *which)
{
    const struct network_program *programs =
        &net->programs[training ? PROGRAM_TRAIN : PROGRAM_EVAL];
    if (n > 0 && (n == programs[0].n || n == programs[1].n)) {
        *which = n == programs[0].n ? 0 : 1;
        return STATUS_OK;
    }
    return FAIL(STATUS_INTERNAL,
                "a %s batch of %d images, but the network was opened for %d and %d",
                training ? "training" : "evaluation", n, programs[0].n, programs[1].n);
}

enum status network_ingest(network *net, bool training, int slot, int n)
{
    const struct slot_binding *binding = &net->bindings[training];
    int which;
    TRY(find_batch(net, training, n, &which));
    if (slot < 0 || slot >= binding->count) {
        return FAIL(STATUS_INTERNAL, "slot %d of %d bound slots", slot, binding->count);
    }
    TRY(device_op_submit(net->dev, binding->ops[2 * slot + which], net->stream));
    device_buffer *from = binding->buffers[slot];
    const size_t rows = (size_t)n * (size_t)net->settings.classes * sizeof(float);
    if (binding->targets_offset - binding->scalars_offset == net->targets_offset) {
        return device_copy_on_device(net->dev, net->stream, net->fixed_buffer, 0, from,
                                     binding->scalars_offset, net->targets_offset + rows);
    }
    TRY(device_copy_on_device(net->dev, net->stream, net->fixed_buffer, 0, from,
                              binding->scalars_offset, sizeof(struct step_scalars)));
    return device_copy_on_device(net->dev, net->stream, net->fixed_buffer, net->targets_offset,
                                 from, binding->targets_offset, rows);
}

static enum status submit(network *net, bool training, int n)
{
    int which;
    TRY(find_batch(net, training, n, &which));
    device_program *program =
        net->programs[(training ? PROGRAM_TRAIN : PROGRAM_EVAL) + which].program;
    if (program == NULL) {
        return FAIL(STATUS_INTERNAL, "a step before network_prepare");
    }
    return device_program_submit(net->dev, program, net->stream);
}

enum status network_train(network *net, int n)
{
    TRY(submit(net, true, n));
    for (int i = 0; i < net->model->count; i++) {
        const int counter = net->by_role[i][ROLE_COUNTER];
        if (counter >= 0) {
            net->parameters[counter].counter++;
        }
    }
    return STATUS_OK;
}

enum status network_evaluate(network *net, int n)
{
    return submit(net, false, n);
}

enum status network_read_results_async(network *net, int n, float *loss, float *logits)
{
    assert(n > 0 && n <= net->max_batch);
    TRY(device_copy_to_host(net->dev, net->stream, loss, net->fixed_buffer, net->loss_offset,
                            sizeof(float)));
    if (logits == NULL) {
        return STATUS_OK;
    }
    return device_copy_to_host(net->dev, net->stream, logits, net->fixed_buffer, net->logits_offset,
                               (size_t)n * (size_t)net->settings.classes * sizeof(float));
}
