/* Memory on the device: the fixed places of a step, the arenas, and what to say when they do not fit. */
#include "base/size.h"
#include "models/network_internal.h"

#define ALIGNMENT MEMORY_PLAN_ALIGNMENT

/* --- Fixed places --------------------------------------------------------------------------- */

void network__place_fixed(struct network *net)
{
    const struct network_settings *settings = &net->settings;
    const size_t batch = (size_t)net->max_batch;
    const size_t rows = batch * (size_t)settings->classes * sizeof(float);
    const size_t pixels = (size_t)settings->image_size * (size_t)settings->image_size;
    net->targets_offset = size_align(sizeof(struct step_scalars), ALIGNMENT);
    net->logits_offset = net->targets_offset + size_align(rows, ALIGNMENT);
    net->loss_offset = net->logits_offset + size_align(rows, ALIGNMENT);
    net->input_offset = net->loss_offset + ALIGNMENT;
    net->fixed_bytes = net->input_offset + batch * pixels * NETWORK_INPUT_CHANNELS *
                                               dtype_bytes(network__data_dtype(net));
}

static struct tensor fixed_tensor(const struct network *net, size_t offset, int n, int c)
{
    return (struct tensor){.buffer = net->fixed_buffer,
                           .offset = offset,
                           .dtype = DTYPE_F32,
                           .n = n,
                           .h = 1,
                           .w = 1,
                           .c = c};
}

struct tensor network__scalars(const struct network *net)
{
    return fixed_tensor(net, 0, 1, (int)(sizeof(struct step_scalars) / sizeof(float)));
}

struct tensor network__targets(const struct network *net, int n)
{
    return fixed_tensor(net, net->targets_offset, n, net->settings.classes);
}

struct tensor network__logits(const struct network *net, int n)
{
    return fixed_tensor(net, net->logits_offset, n, net->settings.classes);
}

struct tensor network__loss(const struct network *net)
{
    return fixed_tensor(net, net->loss_offset, 1, 1);
}

struct tensor network_input(const struct network *net, int n)
{
    struct tensor tensor = fixed_tensor(net, net->input_offset, n, NETWORK_INPUT_CHANNELS);
    tensor.dtype = network__data_dtype(net);
    tensor.h = tensor.w = net->settings.image_size;
    return tensor;
}

/* --- Memory --------------------------------------------------------------------------------- */

static size_t state_bytes(const struct network *net)
{
    return (size_t)network_state_count(net) * net->trained_bytes;
}

void network_read_memory(const struct network *net, struct network_memory *memory)
{
    *memory = (struct network_memory){
        .parameters = net->parameter_bytes + net->shadow_bytes,
        .gradients = net->settings.train ? net->gradient_bytes : 0,
        .state = state_bytes(net),
        .activations = net->activation_bytes + net->fixed_bytes,
    };
}

/* What is wanted, what there is, and the batch with which it would do. */
static enum status fail_memory(const struct network *net, uint64_t available)
{
    const double mb = 1e-6;
    struct network_memory memory;
    network_read_memory(net, &memory);
    const size_t constant = memory.parameters + memory.gradients + memory.state;
    const size_t image = memory.activations / (size_t)net->max_batch + 1;
    const uint64_t fits = available > constant ? (available - constant) / image : 0;
    const char *flag =
        net->max_batch == net->settings.train_batch ? "--batch-size" : "the evaluation batch";
    if (fits == 0 || fits >= (uint64_t)net->max_batch) {
        return FAIL(STATUS_NO_MEMORY,
                    "%s at --size %d with a batch of %d wants %.1f MB on the device, where %.1f MB "
                    "are free: free memory there or take a smaller model, size or batch",
                    net->model->name, net->settings.image_size, net->max_batch,
                    (double)(constant + memory.activations) * mb, (double)available * mb);
    }
    return FAIL(STATUS_NO_MEMORY,
                "%s at --size %d with a batch of %d wants %.1f MB on the device, where %.1f MB are "
                "free: a batch of %llu would fit; lower %s",
                net->model->name, net->settings.image_size, net->max_batch,
                (double)(constant + memory.activations) * mb, (double)available * mb,
                (unsigned long long)fits, flag);
}

static enum status create_buffer(struct network *net, size_t bytes, uint64_t available,
                                 device_buffer **out)
{
    if (bytes == 0) {
        return STATUS_OK;
    }
    const enum status status = device_buffer_create(net->dev, bytes, out);
    if (status == STATUS_NO_MEMORY) {
        return fail_memory(net, available);
    }
    return status;
}

enum status network__create_buffers(struct network *net)
{
    struct device_facts facts;
    TRY(device_read_facts(net->dev, &facts));
    const uint64_t available = facts.memory_free;
    struct network_memory memory;
    network_read_memory(net, &memory);
    const size_t wanted = memory.parameters + memory.gradients + memory.state + memory.activations;
    /* A device that does not tell says 0. */
    if (available > 0 && wanted > available) {
        return fail_memory(net, available);
    }
    TRY(create_buffer(net, net->parameter_bytes, available, &net->parameter_buffer));
    TRY(create_buffer(net, net->shadow_bytes, available, &net->shadow_buffer));
    TRY(create_buffer(net, memory.gradients, available, &net->gradient_buffer));
    TRY(create_buffer(net, memory.state, available, &net->state_buffer));
    TRY(create_buffer(net, net->fixed_bytes, available, &net->fixed_buffer));
    TRY(create_buffer(net, net->activation_bytes, available, &net->activation_buffer));
    return STATUS_OK;
}

/* Also what lies between parameters must be zero: updates run over it. */
enum status network__zero_buffers(struct network *net)
{
    device_buffer *const buffers[] = {net->parameter_buffer, net->shadow_buffer,
                                      net->gradient_buffer, net->state_buffer, net->fixed_buffer};
    for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
        if (buffers[i] != NULL) {
            TRY(device_zero(net->dev, net->stream, buffers[i], 0, device_buffer_bytes(buffers[i])));
        }
    }
    return device_stream_wait(net->dev, net->stream);
}
