/* Random initial values, drawn on the host. */
#include <math.h>

#include "base/rng.h"
#include "models/network_internal.h"

static void fill(float *values, size_t count, float value)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
}

/* Uniform in [-bound, bound). */
static void fill_uniform(struct rng *rng, float *values, size_t count, double bound)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(bound * (2.0 * rng_uniform_double(rng) - 1.0));
    }
}

static void fill_normal(struct rng *rng, float *values, size_t count, double deviation)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(deviation * rng_normal(rng));
    }
}

/* Whether this weight is drawn as He et al. (2015) do, from the fan out and the gain of a ReLU. */
static bool is_kaiming_normal(enum initialisation initialisation, enum role role)
{
    return initialisation == INITIALISE_FAN_OUT ||
           (initialisation == INITIALISE_TORCHVISION && role == ROLE_CONV);
}

static void draw(const struct network *net, int index, uint64_t seed, float *values)
{
    const struct placed_parameter *p = &net->parameters[index];
    const size_t count = p->info.elements;
    struct rng rng;
    rng_init(&rng, seed, RNG_WEIGHTS, 0, (uint64_t)index);
    switch (p->role) {
    case ROLE_SCALE:
    case ROLE_VARIANCE:
        fill(values, count, 1.0F);
        break;
    case ROLE_CONV:
    case ROLE_LINEAR:
        if (is_kaiming_normal(net->model->initialisation, p->role)) {
            fill_normal(&rng, values, count, sqrt(2.0 / p->fan_out));
        } else {
            /* Kaiming uniform with a = sqrt 5: sqrt(6 / ((1 + a^2) fan in)). */
            fill_uniform(&rng, values, count, 1.0 / sqrt(p->fan_in));
        }
        break;
    case ROLE_CONV_BIAS:
    case ROLE_LINEAR_BIAS:
        fill_uniform(&rng, values, count, 1.0 / sqrt(p->fan_in));
        break;
    case ROLE_SHIFT:
    case ROLE_MEAN:
    case ROLE_COUNTER:
        fill(values, count, 0.0F);
        break;
    }
}

enum status network_initialise(network *net, uint64_t seed)
{
    for (int i = 0; i < net->parameter_count; i++) {
        if (net->parameters[i].role == ROLE_COUNTER) {
            net->parameters[i].counter = 0;
            continue;
        }
        draw(net, i, seed, net->file_values);
        TRY(network_set_parameter(net, i, net->file_values));
    }
    if (net->state_buffer != NULL) {
        TRY(device_zero(net->dev, net->stream, net->state_buffer, 0,
                        device_buffer_bytes(net->state_buffer)));
    }
    return device_stream_wait(net->dev, net->stream);
}
