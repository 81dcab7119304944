#include "trainer/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

struct entry {
    uint64_t step;
    uint32_t epoch, index;
    int slot, n;
    uint32_t *samples;
    void *decoded;    /* n x size x size x 3, as the loader's `transfer` */
    const void *seen; /* the input, copied back */
};

struct verifier {
    struct job *job;
    int depth;
    size_t decoded_bytes; /* of one image */
    struct entry *entries;
    struct host_buffer memory; /* what `seen` points into */
    uint64_t count;
};

static enum status open_entries(verifier *v)
{
    const struct loader_settings *settings = &v->job->settings.loader;
    const int most = v->job->settings.network.train_batch;
    const size_t pixels = (size_t)settings->size * (size_t)settings->size;
    v->decoded_bytes = pixels * 3 * (settings->transfer == TRANSFER_F32 ? sizeof(float) : 1);
    const struct tensor input = network_input(v->job->net, most);
    const size_t stride = (tensor_bytes(&input) + 255) / 256 * 256;
    v->entries = calloc((size_t)v->depth, sizeof *v->entries);
    if (!v->entries) {
        return FAIL(STATUS_NO_MEMORY, "no memory for --verify-batches");
    }
    TRY(device_host_buffer_create(v->job->dev, stride * (size_t)v->depth, HOST_MEMORY_ALLOCATED,
                                  &v->memory));
    for (int i = 0; i < v->depth; i++) {
        struct entry *entry = &v->entries[i];
        entry->samples = malloc((size_t)most * sizeof *entry->samples);
        entry->decoded = malloc(v->decoded_bytes * (size_t)most);
        entry->seen = (const uint8_t *)v->memory.data + stride * (size_t)i;
        if (!entry->samples || !entry->decoded) {
            return FAIL(STATUS_NO_MEMORY, "no memory for --verify-batches: %zu bytes a batch",
                        v->decoded_bytes * (size_t)most);
        }
    }
    return STATUS_OK;
}

enum status verifier_open(struct job *job, int depth, verifier **out)
{
    *out = NULL;
    verifier *v = calloc(1, sizeof *v);
    if (!v) {
        return FAIL(STATUS_NO_MEMORY, "no memory for --verify-batches");
    }
    v->job = job;
    v->depth = depth;
    const enum status status = open_entries(v);
    if (status != STATUS_OK) {
        verifier_close(&v);
    }
    *out = v;
    return status;
}

void verifier_close(verifier **v)
{
    if (!*v) {
        return;
    }
    for (int i = 0; (*v)->entries && i < (*v)->depth; i++) {
        free((*v)->entries[i].samples);
        free((*v)->entries[i].decoded);
    }
    device_host_buffer_destroy((*v)->job->dev, &(*v)->memory);
    free((*v)->entries);
    free(*v);
    *v = NULL;
}

enum status verifier_submit(verifier *v, int entry_number, const struct batch *batch, uint64_t step)
{
    struct entry *entry = &v->entries[entry_number];
    entry->step = step;
    entry->epoch = batch->epoch;
    entry->index = batch->index;
    entry->slot = batch->slot;
    entry->n = batch->n;
    memcpy(entry->samples, batch->samples, (size_t)batch->n * sizeof *entry->samples);
    memcpy(entry->decoded, batch->shadow, v->decoded_bytes * (size_t)batch->n);
    const struct tensor input = network_input(v->job->net, batch->n);
    const size_t at = (size_t)((const uint8_t *)entry->seen - (const uint8_t *)v->memory.data);
    return device_copy_to_host(v->job->dev, v->job->compute, (uint8_t *)v->memory.data + at,
                               input.buffer, input.offset, tensor_bytes(&input));
}

static float read_value(const void *values, enum dtype dtype, size_t at)
{
    float value;
    if (dtype == DTYPE_BF16) {
        uint16_t half;
        memcpy(&half, (const uint8_t *)values + at * sizeof half, sizeof half);
        const uint32_t bits = (uint32_t)half << 16;
        memcpy(&value, &bits, sizeof value);
    } else {
        memcpy(&value, (const uint8_t *)values + at * sizeof value, sizeof value);
    }
    return value;
}

/* What the first layer must read for one decoded value. */
static float expected(const struct loader_settings *settings, const void *decoded, size_t at, int c)
{
    if (settings->transfer == TRANSFER_F32) {
        return read_value(decoded, DTYPE_F32, at);
    }
    const uint8_t level = ((const uint8_t *)decoded)[at];
    return ((float)level / 255.0F - settings->mean[c]) / settings->deviation[c];
}

static enum status mismatch(const verifier *v, const struct entry *entry, size_t pixel, int c,
                            float seen, float wanted)
{
    char name[512], quoted[512];
    const size_t edge = (size_t)v->job->settings.loader.size;
    const size_t place = pixel / (edge * edge);
    const size_t inside = pixel % (edge * edge);
    dataset_sample_name(v->job->train_set, entry->samples[place], name, sizeof name);
    return FAIL(
        STATUS_MISMATCH,
        "--verify-batches: step %llu (epoch %u, batch %u) read other pixels than were "
        "decoded: slot %d, place %zu, sample %u \"%s\", row %zu, column %zu, channel %d is "
        "%g instead of %g; a slot was reused before its copy had ended, or the step did not "
        "wait for it: the results of this run are worthless",
        (unsigned long long)entry->step, entry->epoch + 1, entry->index, entry->slot, place,
        entry->samples[place], file_quote(name, quoted, sizeof quoted), inside / edge,
        inside % edge, c, (double)seen, (double)wanted);
}

enum status verifier_check(verifier *v, int entry_number)
{
    const struct entry *entry = &v->entries[entry_number];
    const struct loader_settings *settings = &v->job->settings.loader;
    const struct tensor input = network_input(v->job->net, entry->n);
    const size_t pixels = (size_t)input.n * (size_t)input.h * (size_t)input.w;
    /* bfloat16 keeps 8 bits, so rounding moves a value by up to 2^-9 of it; neighbouring levels of a
     * pixel lie 1 / (255 deviation) apart. */
    const float relative = input.dtype == DTYPE_BF16 ? 1.0F / 256.0F : 1e-5F;
    for (size_t pixel = 0; pixel < pixels; pixel++) {
        for (int c = 0; c < input.c; c++) {
            const float seen =
                read_value(entry->seen, input.dtype, pixel * (size_t)input.c + (size_t)c);
            const float wanted =
                c < 3 ? expected(settings, entry->decoded, pixel * 3 + (size_t)c, c) : 0.0F;
            /* Written so that a value that is no number fails. */
            if (!(fabsf(seen - wanted) <= relative * fabsf(wanted) + 2e-5F)) {
                return mismatch(v, entry, pixel, c, seen, wanted);
            }
        }
    }
    v->count++;
    return STATUS_OK;
}

uint64_t verifier_count(const verifier *v)
{
    return v->count;
}
