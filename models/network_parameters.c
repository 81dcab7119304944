/* Parameters, gradients and optimiser state between the device's layout and that of files. */
#include <assert.h>
#include <string.h>

#include "base/hash.h"
#include "models/network_internal.h"

int network_parameter_count(const network *net)
{
    return net->parameter_count;
}

const struct parameter *network_parameter(const network *net, int index)
{
    assert(index >= 0 && index < net->parameter_count);
    return &net->parameters[index].info;
}

int network_state_count(const network *net)
{
    if (!net->settings.train) {
        return 0;
    }
    return net->settings.optimiser == OPTIMISER_ADAMW ? 2 : 1;
}

static struct placed_parameter *parameter_at(network *net, int index)
{
    assert(index >= 0 && index < net->parameter_count);
    return &net->parameters[index];
}

/* Where element `i` of the file's layout (O I H W for convolutions) lies on the device (K R S C). */
static size_t device_place(const struct placed_parameter *p, size_t i)
{
    if (p->role != ROLE_CONV) {
        return i;
    }
    const size_t width = (size_t)p->w;
    const size_t height = (size_t)p->h;
    const size_t inputs = (size_t)p->info.shape[1];
    const size_t s = i % width;
    const size_t r = i / width % height;
    const size_t c = i / (width * height) % inputs;
    const size_t k = i / (width * height * inputs);
    return ((k * height + r) * width + s) * (size_t)p->c + c;
}

/* Reads a parameter's tensor into *values in file layout. */
static enum status read_tensor(network *net, const struct placed_parameter *p,
                               const device_buffer *buffer, size_t offset, enum dtype dtype,
                               float *values)
{
    TRY(device_copy_to_host(net->dev, net->stream, net->scratch, buffer, offset,
                            p->placed * dtype_bytes(dtype)));
    TRY(device_stream_wait(net->dev, net->stream));
    if (dtype == DTYPE_BF16) {
        /* From the end, because the wider values grow over the narrow ones. */
        for (size_t i = p->placed; i-- > 0;) {
            uint16_t narrow;
            memcpy(&narrow, (const char *)net->scratch + i * sizeof(narrow), sizeof(narrow));
            net->scratch[i] = network__from_bf16(narrow);
        }
    }
    for (size_t i = 0; i < p->info.elements; i++) {
        values[i] = net->scratch[device_place(p, i)];
    }
    return STATUS_OK;
}

/* Puts a parameter's tensor, given in file layout, into `scratch` and then to its place. */
static enum status write_tensor(network *net, const struct placed_parameter *p,
                                device_buffer *buffer, size_t offset, const void *values)
{
    const char *bytes = values; /* inside a mapped file values may lie at any address */
    memset(net->scratch, 0, p->placed * sizeof(float));
    for (size_t i = 0; i < p->info.elements; i++) {
        memcpy(&net->scratch[device_place(p, i)], bytes + i * sizeof(float), sizeof(float));
    }
    TRY(device_copy_to_device(net->dev, net->stream, buffer, offset, net->scratch,
                              p->placed * sizeof(float)));
    return device_stream_wait(net->dev, net->stream);
}

enum status network_get_parameter(network *net, int index, void *values)
{
    const struct placed_parameter *p = parameter_at(net, index);
    if (p->role == ROLE_COUNTER) {
        memcpy(values, &p->counter, sizeof(p->counter));
        return STATUS_OK;
    }
    return read_tensor(net, p, net->parameter_buffer, p->offset, DTYPE_F32, values);
}

enum status network_set_parameter(network *net, int index, const void *values)
{
    struct placed_parameter *p = parameter_at(net, index);
    if (p->role == ROLE_COUNTER) {
        memcpy(&p->counter, values, sizeof(p->counter));
        return STATUS_OK;
    }
    TRY(write_tensor(net, p, net->parameter_buffer, p->offset, values));
    if (p->region != REGION_CONV_BF16) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < p->placed; i++) {
        const uint16_t narrow = network__to_bf16(net->scratch[i]);
        memcpy((char *)net->scratch + i * sizeof(narrow), &narrow, sizeof(narrow));
    }
    TRY(device_copy_to_device(net->dev, net->stream, net->shadow_buffer, p->shadow, net->scratch,
                              p->placed * sizeof(uint16_t)));
    return device_stream_wait(net->dev, net->stream);
}

enum status network_get_gradient(network *net, int index, float *values)
{
    const struct placed_parameter *p = parameter_at(net, index);
    if (p->region < 0 || !net->settings.train) {
        return FAIL(STATUS_INTERNAL, "%s has no gradient", p->name);
    }
    return read_tensor(net, p, net->gradient_buffer, p->gradient,
                       net->regions[p->region].gradient_dtype, values);
}

static enum status check_state(const network *net, const struct placed_parameter *p, int which)
{
    if (p->region < 0 || which < 0 || which >= network_state_count(net)) {
        return FAIL(STATUS_INTERNAL, "%s has no optimiser state %d", p->name, which);
    }
    return STATUS_OK;
}

enum status network_get_state(network *net, int index, int which, float *values)
{
    const struct placed_parameter *p = parameter_at(net, index);
    TRY(check_state(net, p, which));
    return read_tensor(net, p, net->state_buffer, (size_t)which * net->trained_bytes + p->offset,
                       DTYPE_F32, values);
}

enum status network_set_state(network *net, int index, int which, const float *values)
{
    const struct placed_parameter *p = parameter_at(net, index);
    TRY(check_state(net, p, which));
    return write_tensor(net, p, net->state_buffer, (size_t)which * net->trained_bytes + p->offset,
                        values);
}

enum status network_weights_hash(network *net, uint64_t *hash)
{
    *hash = HASH_START;
    for (int i = 0; i < net->parameter_count; i++) {
        const struct placed_parameter *p = &net->parameters[i];
        *hash = hash_text(*hash, p->name);
        if (p->role == ROLE_COUNTER) {
            *hash = hash_bytes(*hash, &p->counter, sizeof(p->counter));
        } else {
            TRY(network_get_parameter(net, i, net->file_values));
            *hash = hash_bytes(*hash, net->file_values, p->info.elements * sizeof(float));
        }
    }
    return STATUS_OK;
}
