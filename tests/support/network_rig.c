#include "tests/support/network_rig.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/size.h"

#define OK(expression)                                                                             \
    do {                                                                                           \
        const enum status ok_ = (expression);                                                      \
        ck_assert_msg(ok_ == STATUS_OK, "%s: %s: %s\n%s", #expression, status_name(ok_),           \
                      status_message(), status_trace_text());                                      \
    } while (0)

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

struct step_scalars rig_scalars(void)
{
    return (struct step_scalars){.averaging = 0.1F, .epsilon = 1e-8F, .decay_factor = 1.0F};
}

static void bind(struct network_rig *rig, bool training)
{
    const struct network_slots slots = {.buffers = &rig->slot,
                                        .count = 1,
                                        .scalars_offset = 0,
                                        .targets_offset = rig->targets_offset,
                                        .pixels_offset = rig->pixels_offset,
                                        .pixel_dtype = rig->floats ? DTYPE_F32 : DTYPE_U8,
                                        .mean = {0.5F, 0.5F, 0.5F},
                                        .deviation = {0.25F, 0.25F, 0.25F},
                                        .training = training};
    OK(network_bind_slots(rig->net, &slots));
}

void rig_open(struct network_rig *rig, const struct network_settings *settings, bool floats)
{
    struct device_settings wanted;
    device_settings_defaults(&wanted);
    wanted.kind = DEVICE_HOST;
    wanted.host_threads = 2;
    wanted.precision = settings->precision;
    rig_open_on(rig, &wanted, settings, floats);
}

void rig_open_on(struct network_rig *rig, const struct device_settings *wanted,
                 const struct network_settings *settings, bool floats)
{
    *rig = (struct network_rig){.settings = *settings, .floats = floats};
    OK(device_open(wanted, &rig->dev));
    OK(device_stream_create(rig->dev, "compute", &rig->stream));
    OK(network_open(rig->dev, rig->stream, settings, &rig->net));
    const size_t batch =
        (size_t)(settings->train_batch > settings->eval_batch ? settings->train_batch
                                                              : settings->eval_batch);
    const size_t pixels = (size_t)settings->image_size * (size_t)settings->image_size * 3;
    rig->targets_offset = size_align(sizeof(struct step_scalars), 256);
    rig->pixels_offset =
        rig->targets_offset + size_align(batch * (size_t)settings->classes * sizeof(float), 256);
    rig->block_bytes = rig->pixels_offset + batch * pixels * (floats ? sizeof(float) : 1);
    OK(device_buffer_create(rig->dev, rig->block_bytes, &rig->slot));
    rig->block = allocate(rig->block_bytes, 1);
    rig->logits = allocate(batch * (size_t)settings->classes, sizeof(float));
    if (settings->train) {
        bind(rig, true);
    }
    if (settings->eval_batch > 0) {
        bind(rig, false);
    }
    OK(network_prepare(rig->net));
}

void rig_close(struct network_rig *rig)
{
    network_close(&rig->net);
    ck_assert_ptr_null(rig->net);
    device_buffer_destroy(rig->dev, &rig->slot);
    device_stream_destroy(rig->dev, &rig->stream);
    device_close(&rig->dev);
    free(rig->block);
    free(rig->logits);
}

void rig_step(struct network_rig *rig, bool training, int n, const void *pixels,
              const float *targets, const struct step_scalars *scalars)
{
    const size_t edge = (size_t)rig->settings.image_size;
    const size_t bytes = (size_t)n * edge * edge * 3 * (rig->floats ? sizeof(float) : 1);
    memcpy(rig->block, scalars, sizeof(*scalars));
    memcpy(rig->block + rig->targets_offset, targets,
           (size_t)n * (size_t)rig->settings.classes * sizeof(float));
    memcpy(rig->block + rig->pixels_offset, pixels, bytes);
    OK(device_copy_to_device(rig->dev, rig->stream, rig->slot, 0, rig->block,
                             rig->pixels_offset + bytes));
    OK(network_ingest(rig->net, training, 0, n));
    if (training) {
        OK(network_train(rig->net, n));
    } else {
        OK(network_evaluate(rig->net, n));
    }
    OK(network_read_results_async(rig->net, n, &rig->loss, rig->logits));
    OK(device_stream_wait(rig->dev, rig->stream));
}

int rig_index(const struct network_rig *rig, const char *name)
{
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        if (strcmp(network_parameter(rig->net, i)->name, name) == 0) {
            return i;
        }
    }
    ck_abort_msg("there is no parameter %s", name);
    return -1;
}

float *rig_parameter(struct network_rig *rig, int index)
{
    float *values = allocate(network_parameter(rig->net, index)->elements, sizeof(float));
    OK(network_get_parameter(rig->net, index, values));
    return values;
}

float *rig_gradient(struct network_rig *rig, int index)
{
    float *values = allocate(network_parameter(rig->net, index)->elements, sizeof(float));
    OK(network_get_gradient(rig->net, index, values));
    return values;
}

void rig_set(struct network_rig *rig, const char *name, const float *values)
{
    OK(network_set_parameter(rig->net, rig_index(rig, name), values));
}

void rig_fill(struct network_rig *rig, const char *name, float value)
{
    const int index = rig_index(rig, name);
    const size_t count = network_parameter(rig->net, index)->elements;
    float *values = allocate(count, sizeof(float));
    for (size_t i = 0; i < count; i++) {
        values[i] = value;
    }
    OK(network_set_parameter(rig->net, index, values));
    free(values);
}

void rig_random_floats(uint64_t seed, float *pixels, size_t count)
{
    struct rng rng;
    rng_init(&rng, seed, RNG_TEST, 0, 0);
    for (size_t i = 0; i < count; i++) {
        pixels[i] = (float)rng_normal(&rng);
    }
}

void rig_random_bytes(uint64_t seed, uint8_t *pixels, size_t count)
{
    struct rng rng;
    rng_init(&rng, seed, RNG_TEST, 0, 1);
    for (size_t i = 0; i < count; i++) {
        pixels[i] = (uint8_t)rng_below(&rng, 256);
    }
}

void rig_random_targets(uint64_t seed, float *targets, int n, int classes)
{
    struct rng rng;
    rng_init(&rng, seed, RNG_TEST, 0, 2);
    memset(targets, 0, (size_t)n * (size_t)classes * sizeof(float));
    for (int i = 0; i < n; i++) {
        targets[i * classes + (int)rng_below(&rng, (uint32_t)classes)] = 1.0F / (float)n;
    }
}
