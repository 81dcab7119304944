#include "trainer/verify.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size.h"
#include "base/system.h"
#include "base/thread_pool.h"

enum {
    BLOCK = 256,        /* pixels compared together */
    CHANNELS_MOST = 16, /* of the input */
    THREADS_MOST = 8
};

struct entry {
    uint64_t step;
    uint32_t epoch, index;
    int slot, n;
    uint32_t *samples;
    const void *decoded; /* n x size x size x 3, as the loader's `transfer`; the loader keeps it */
    const void *seen;    /* the input, copied back */
};

struct verifier {
    struct job *job;
    thread_pool *pool;
    float level[256]
               [3]; /* TRANSFER_U8: what the first layer must read for a byte of each channel */
    struct entry entries[VERIFY_DEPTH];
    struct host_buffer memory; /* what `seen` points into */
    size_t *wrong;             /* of each image of a batch: its first wrong value, or NONE */
    uint64_t submitted, count;
};

#define NONE SIZE_MAX

static enum status no_memory(void)
{
    return FAIL(STATUS_NO_MEMORY, "no memory for --verify-batches");
}

static enum status open_parts(verifier *v)
{
    const struct loader_settings *settings = &v->job->settings.loader;
    const int most = v->job->settings.network.train_batch;
    const struct tensor input = network_input(v->job->net, most);
    const size_t stride = size_align(tensor_bytes(&input), 256);
    struct system_facts facts;
    if (input.c > CHANNELS_MOST) {
        return FAIL(STATUS_INTERNAL, "--verify-batches compares at most %d channels, not %d",
                    CHANNELS_MOST, input.c);
    }
    for (int byte = 0; byte < 256; byte++) {
        for (int c = 0; c < 3; c++) {
            v->level[byte][c] = ((float)byte / 255.0F - settings->mean[c]) / settings->deviation[c];
        }
    }
    TRY(device_host_buffer_create(v->job->dev, stride * VERIFY_DEPTH, HOST_MEMORY_ALLOCATED,
                                  &v->memory));
    for (int i = 0; i < VERIFY_DEPTH; i++) {
        v->entries[i].samples = malloc((size_t)most * sizeof *v->entries[i].samples);
        v->entries[i].seen = (const uint8_t *)v->memory.data + stride * (size_t)i;
        if (!v->entries[i].samples) {
            return no_memory();
        }
    }
    v->wrong = malloc((size_t)most * sizeof *v->wrong);
    if (!v->wrong) {
        return no_memory();
    }
    system_read_facts(&facts);
    const int threads = facts.cpus_allowed / 2;
    return thread_pool_open(threads < 1              ? 1
                            : threads > THREADS_MOST ? THREADS_MOST
                                                     : threads,
                            &v->pool);
}

enum status verifier_open(struct job *job, verifier **out)
{
    *out = NULL;
    verifier *v = calloc(1, sizeof *v);
    if (!v) {
        return no_memory();
    }
    v->job = job;
    const enum status status = open_parts(v);
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
    for (int i = 0; i < VERIFY_DEPTH; i++) {
        free((*v)->entries[i].samples);
    }
    device_host_buffer_destroy((*v)->job->dev, &(*v)->memory);
    thread_pool_close(&(*v)->pool);
    free((*v)->wrong);
    free(*v);
    *v = NULL;
}

enum status verifier_submit(verifier *v, const struct batch *batch, uint64_t step)
{
    if (v->submitted - v->count >= VERIFY_DEPTH) {
        return FAIL(STATUS_INTERNAL, "--verify-batches holds %d batches that nobody compared",
                    VERIFY_DEPTH);
    }
    struct entry *entry = &v->entries[v->submitted % VERIFY_DEPTH];
    entry->step = step;
    entry->epoch = batch->epoch;
    entry->index = batch->index;
    entry->slot = batch->slot;
    entry->n = batch->n;
    entry->decoded = batch->shadow;
    memcpy(entry->samples, batch->samples, (size_t)batch->n * sizeof *entry->samples);
    v->submitted++;
    const struct tensor input = network_input(v->job->net, batch->n);
    const size_t at = (size_t)((const uint8_t *)entry->seen - (const uint8_t *)v->memory.data);
    return device_copy_to_host(v->job->dev, v->job->compute, (uint8_t *)v->memory.data + at,
                               input.buffer, input.offset, tensor_bytes(&input));
}

/* --- Comparing ------------------------------------------------------------------------------ */

struct comparison {
    const verifier *v;
    const struct entry *entry;
    struct tensor input;
    float relative; /* of a value, that rounding may change */
};

/* bfloat16 keeps 8 bits, so rounding moves a value by up to 2^-9 of it; neighbouring levels of a pixel
 * lie 1 / (255 deviation) apart. Written so that a value that is no number is wrong. */
static bool is_wrong(float seen, float wanted, float relative)
{
    return !(fabsf(seen - wanted) <= relative * fabsf(wanted) + 2e-5F);
}

static void read_seen(const struct comparison *comparison, size_t at, size_t count, float *seen)
{
    if (comparison->input.dtype == DTYPE_F32) {
        memcpy(seen, (const float *)comparison->entry->seen + at, count * sizeof *seen);
        return;
    }
    const uint16_t *halves = (const uint16_t *)comparison->entry->seen + at;
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = (uint32_t)halves[i] << 16;
        memcpy(&seen[i], &bits, sizeof bits);
    }
}

/* Writes the first three of each pixel's channels; those behind are zero already. */
static void read_wanted(const struct comparison *comparison, size_t pixel, size_t count,
                        float *wanted)
{
    const size_t channels = (size_t)comparison->input.c;
    if (comparison->v->job->settings.loader.transfer == TRANSFER_F32) {
        const float *values = (const float *)comparison->entry->decoded + pixel * 3;
        for (size_t i = 0; i < count; i++) {
            memcpy(wanted + i * channels, values + i * 3, 3 * sizeof *wanted);
        }
        return;
    }
    const uint8_t *bytes = (const uint8_t *)comparison->entry->decoded + pixel * 3;
    for (size_t i = 0; i < count; i++) {
        for (size_t c = 0; c < 3; c++) {
            wanted[i * channels + c] = comparison->v->level[bytes[i * 3 + c]][c];
        }
    }
}

/* The first of `count` values that is wrong, or NONE. Nearly always none is, so all are looked at
 * without asking after each. */
static size_t find_wrong(const float *seen, const float *wanted, size_t count, float relative)
{
    int wrong = 0;
    for (size_t i = 0; i < count; i++) {
        wrong |= is_wrong(seen[i], wanted[i], relative);
    }
    for (size_t i = 0; wrong && i < count; i++) {
        if (is_wrong(seen[i], wanted[i], relative)) {
            return i;
        }
    }
    return NONE;
}

static void compare_image(void *context, int image, int worker)
{
    const struct comparison *comparison = context;
    const size_t channels = (size_t)comparison->input.c;
    const size_t pixels = (size_t)comparison->input.h * (size_t)comparison->input.w;
    const size_t first = (size_t)image * pixels;
    float seen[BLOCK * CHANNELS_MOST];
    float wanted[BLOCK * CHANNELS_MOST] = {0};
    (void)worker;
    comparison->v->wrong[image] = NONE;
    for (size_t from = 0; from < pixels; from += BLOCK) {
        const size_t count = pixels - from < BLOCK ? pixels - from : BLOCK;
        read_seen(comparison, (first + from) * channels, count * channels, seen);
        read_wanted(comparison, first + from, count, wanted);
        const size_t at = find_wrong(seen, wanted, count * channels, comparison->relative);
        if (at != NONE) {
            comparison->v->wrong[image] = (first + from) * channels + at;
            return;
        }
    }
}

/* `at` counts values of the input. */
static enum status mismatch(const struct comparison *comparison, size_t at)
{
    const verifier *v = comparison->v;
    const struct entry *entry = comparison->entry;
    const size_t channels = (size_t)comparison->input.c;
    const size_t pixel = at / channels;
    const size_t c = at % channels;
    float seen;
    float wanted[CHANNELS_MOST] = {0};
    read_seen(comparison, at, 1, &seen);
    read_wanted(comparison, pixel, 1, wanted);
    char name[512], quoted[512];
    const size_t edge = (size_t)v->job->settings.loader.size;
    const size_t place = pixel / (edge * edge);
    const size_t inside = pixel % (edge * edge);
    dataset_sample_name(v->job->train_set, entry->samples[place], name, sizeof name);
    return FAIL(
        STATUS_MISMATCH,
        "--verify-batches: step %llu (epoch %u, batch %u) read other pixels than were "
        "decoded: slot %d, place %zu, sample %u \"%s\", row %zu, column %zu, channel %zu is "
        "%g instead of %g; a slot was reused before its copy had ended, or the step did not "
        "wait for it: the results of this run are worthless",
        (unsigned long long)entry->step, entry->epoch + 1, entry->index, entry->slot, place,
        entry->samples[place], file_quote(name, quoted, sizeof quoted), inside / edge,
        inside % edge, c, (double)seen, (double)wanted[c]);
}

enum status verifier_check(verifier *v)
{
    if (v->count == v->submitted) {
        return FAIL(STATUS_INTERNAL, "--verify-batches has no batch to compare");
    }
    const struct entry *entry = &v->entries[v->count % VERIFY_DEPTH];
    struct comparison comparison = {
        .v = v, .entry = entry, .input = network_input(v->job->net, entry->n)};
    comparison.relative = comparison.input.dtype == DTYPE_BF16 ? 1.0F / 256.0F : 1e-5F;
    thread_pool_run(v->pool, entry->n, compare_image, &comparison);
    v->count++;
    for (int image = 0; image < entry->n; image++) {
        if (v->wrong[image] != NONE) {
            return mismatch(&comparison, v->wrong[image]);
        }
    }
    return STATUS_OK;
}

uint64_t verifier_count(const verifier *v)
{
    return v->count;
}
