#include "trainer/dump.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "models/safetensors.h"

enum { PARTS = 4, NAME_BYTES = 32 };

struct batch_dump {
    struct job *job;
    int wanted, count;
    bool written;
    struct safetensors_entry *entries; /* PARTS a batch */
    void **memory;                     /* of each entry */
    char *names;
};

enum status batch_dump_open(struct job *job, batch_dump **out)
{
    batch_dump *dump = calloc(1, sizeof *dump);
    *out = dump;
    if (!dump) {
        return FAIL(STATUS_NO_MEMORY, "no memory for --dump-batches");
    }
    const size_t entries = (size_t)job->settings.dump_count * PARTS;
    dump->job = job;
    dump->wanted = job->settings.dump_count;
    dump->entries = calloc(entries, sizeof *dump->entries);
    dump->memory = calloc(entries, sizeof *dump->memory);
    dump->names = calloc(entries, NAME_BYTES);
    if (!dump->entries || !dump->memory || !dump->names) {
        batch_dump_close(out);
        return FAIL(STATUS_NO_MEMORY, "no memory for --dump-batches");
    }
    return STATUS_OK;
}

void batch_dump_close(batch_dump **dump)
{
    if (!*dump) {
        return;
    }
    for (int i = 0; (*dump)->memory && i < (*dump)->wanted * PARTS; i++) {
        free((*dump)->memory[i]);
    }
    free((*dump)->entries);
    free((*dump)->memory);
    free((*dump)->names);
    free(*dump);
    *dump = NULL;
}

static enum status add_entry(batch_dump *dump, int part, const char *what,
                             enum safetensors_dtype dtype, int dims, const int64_t *shape,
                             size_t bytes, void **data)
{
    const size_t at = (size_t)dump->count * PARTS + (size_t)part;
    char *name = dump->names + at * NAME_BYTES;
    snprintf(name, NAME_BYTES, "%d.%s", dump->count, what);
    dump->memory[at] = *data = malloc(bytes);
    if (!*data) {
        return FAIL(STATUS_NO_MEMORY,
                    "no memory for batch %d of --dump-batches (%zu bytes); lower --dump-count",
                    dump->count, bytes);
    }
    struct safetensors_entry *entry = &dump->entries[at];
    entry->name = name;
    entry->dtype = dtype;
    entry->dims = dims;
    for (int d = 0; d < dims; d++) {
        entry->shape[d] = shape[d];
    }
    entry->data = *data;
    entry->bytes = bytes;
    return STATUS_OK;
}

static float widen(uint16_t half)
{
    float value;
    const uint32_t bits = (uint32_t)half << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void to_planes(const struct tensor *input, const void *values, float *planes)
{
    const size_t area = (size_t)input->h * (size_t)input->w;
    for (size_t n = 0; n < (size_t)input->n; n++) {
        for (size_t pixel = 0; pixel < area; pixel++) {
            for (size_t c = 0; c < 3; c++) {
                const size_t at = (n * area + pixel) * (size_t)input->c + c;
                planes[(n * 3 + c) * area + pixel] = input->dtype == DTYPE_BF16
                                                         ? widen(((const uint16_t *)values)[at])
                                                         : ((const float *)values)[at];
            }
        }
    }
}

static enum status copy_pixels(batch_dump *dump, const struct batch *batch, float *planes)
{
    struct job *job = dump->job;
    const struct tensor input = network_input(job->net, batch->n);
    void *values = malloc(tensor_bytes(&input));
    if (!values) {
        return FAIL(STATUS_NO_MEMORY, "no memory for --dump-batches (%zu bytes)",
                    tensor_bytes(&input));
    }
    enum status status = device_copy_to_host(job->dev, job->compute, values, input.buffer,
                                             input.offset, tensor_bytes(&input));
    if (status == STATUS_OK) {
        status = device_stream_wait(job->dev, job->compute);
    }
    if (status == STATUS_OK) {
        to_planes(&input, values, planes);
    }
    free(values);
    return status;
}

static enum status add_batch(batch_dump *dump, const struct batch *batch)
{
    struct job *job = dump->job;
    const int64_t n = batch->n;
    const int64_t size = job->settings.loader.size;
    const int64_t classes = job->train_layout.classes;
    const int64_t pixel_shape[] = {n, 3, size, size};
    const int64_t target_shape[] = {n, classes};
    const size_t target_bytes = (size_t)(n * classes) * sizeof(float);
    void *pixels, *labels, *samples, *targets;
    TRY(add_entry(dump, 0, "pixels", SAFETENSORS_F32, 4, pixel_shape,
                  (size_t)(n * 3 * size * size) * sizeof(float), &pixels));
    TRY(add_entry(dump, 1, "labels", SAFETENSORS_I64, 1, &n, (size_t)n * sizeof(int64_t), &labels));
    TRY(add_entry(dump, 2, "samples", SAFETENSORS_I64, 1, &n, (size_t)n * sizeof(int64_t),
                  &samples));
    TRY(add_entry(dump, 3, "targets", SAFETENSORS_F32, 2, target_shape, target_bytes, &targets));
    for (int64_t i = 0; i < n; i++) {
        ((int64_t *)labels)[i] = batch->labels[i];
        ((int64_t *)samples)[i] = batch->samples[i];
    }
    TRY(device_copy_to_host(job->dev, job->compute, targets, batch->buffer,
                            job->train_layout.targets_offset, target_bytes));
    TRY(copy_pixels(dump, batch, pixels));
    dump->count++;
    return STATUS_OK;
}

enum status batch_dump_add(batch_dump *dump, const struct batch *batch)
{
    if (dump->count >= dump->wanted) {
        return STATUS_OK;
    }
    TRY(add_batch(dump, batch));
    if (dump->count == dump->wanted) {
        TRY(batch_dump_finish(dump));
    }
    return STATUS_OK;
}

enum status batch_dump_finish(batch_dump *dump)
{
    if (dump->written || dump->count == 0) {
        return STATUS_OK;
    }
    const char *path = dump->job->settings.dump_batches;
    const struct safetensors_metadata metadata[] = {{"format", "pt"}};
    TRY(safetensors_write(path, dump->entries, (size_t)dump->count * PARTS, metadata, 1));
    dump->written = true;
    log_info("%d batches written to %s", dump->count, path);
    return STATUS_OK;
}
