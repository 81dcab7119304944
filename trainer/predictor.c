#include "trainer/predictor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size.h"
#include "base/thread_pool.h"
#include "loader/augment.h"
#include "loader/image.h"
#include "trainer/checkpoint.h"
#include "trainer/job.h"

struct predictor {
    struct settings settings;
    int classes, batch;
    device *dev;
    device_stream *compute;
    network *net;
    device_buffer *slot;
    struct host_buffer staging; /* scalars, targets, pixels; then loss and logits */
    size_t targets_offset, pixels_offset, results_offset;
    size_t image_floats;
    float *probabilities;
    thread_pool *pool;
    image_decoder **decoders; /* one a thread */
    int threads;
    struct augment_settings view;

    /* Of the run that is going. */
    const char *const *paths;
    struct prediction *results;
};

static enum status open_network(predictor *p)
{
    struct network_settings wanted = p->settings.network;
    const struct loader_settings *loading = &p->settings.loader;
    wanted.classes = p->classes;
    wanted.image_size = loading->size;
    wanted.precision = p->settings.device.precision;
    wanted.train = false;
    wanted.train_batch = wanted.train_last_batch = 0;
    wanted.eval_batch = p->batch;
    wanted.eval_last_batch = p->batch;
    TRY(network_open(p->dev, p->compute, &wanted, &p->net));
    struct network_slots slots = {
        .buffers = &p->slot,
        .count = 1,
        .targets_offset = p->targets_offset,
        .pixels_offset = p->pixels_offset,
        .pixel_dtype = DTYPE_F32,
        .training = false,
    };
    memcpy(slots.mean, loading->mean, sizeof slots.mean);
    memcpy(slots.deviation, loading->deviation, sizeof slots.deviation);
    TRY(network_bind_slots(p->net, &slots));
    TRY(network_prepare(p->net));
    TRY(network_initialise(p->net, 0));
    TRY(checkpoint_load_weights(p->settings.weights, wanted.model, p->net));
    return STATUS_OK;
}

static enum status open_decoders(predictor *p)
{
    p->threads = p->settings.loader.num_workers + 1;
    p->decoders = calloc((size_t)p->threads, sizeof(image_decoder *));
    if (!p->decoders) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d decoders", p->threads);
    }
    TRY(thread_pool_open(p->threads, &p->pool));
    for (int i = 0; i < p->threads; i++) {
        TRY(image_decoder_open(&p->settings.loader.image, &p->decoders[i]));
    }
    return STATUS_OK;
}

static enum status open_parts(predictor *p)
{
    struct loader_settings eval;
    const size_t edge = (size_t)p->settings.loader.size;
    const size_t batch = (size_t)p->batch;
    const size_t row_bytes = (size_t)p->classes * sizeof(float);
    job_eval_loader_settings(&p->settings, &eval);
    p->view = eval.augment;
    p->view.size = (uint32_t)edge;
    p->image_floats = edge * edge * 3;
    p->targets_offset = 256;
    p->pixels_offset = p->targets_offset + size_align(batch * row_bytes, 256);
    p->results_offset = p->pixels_offset + size_align(batch * p->image_floats * sizeof(float), 256);
    TRY(device_open(&p->settings.device, &p->dev));
    TRY(device_stream_create(p->dev, "compute", &p->compute));
    TRY(device_buffer_create(p->dev, p->results_offset, &p->slot));
    TRY(device_host_buffer_create(p->dev, p->results_offset + 256 + batch * row_bytes,
                                  HOST_MEMORY_PAGEABLE, &p->staging));
    memset(p->staging.data, 0, p->staging.bytes);
    p->probabilities = calloc(batch, row_bytes);
    if (!p->probabilities) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the probabilities of %d classes", p->classes);
    }
    TRY(open_network(p));
    TRY(open_decoders(p));
    return STATUS_OK;
}

enum status predictor_open(const struct settings *settings, int classes, int batch, predictor **out)
{
    predictor *p = calloc(1, sizeof *p);
    *out = NULL;
    if (!p) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a predictor");
    }
    p->settings = *settings;
    p->classes = classes;
    p->batch = batch;
    const enum status status = open_parts(p);
    if (status != STATUS_OK) {
        predictor_close(&p);
    }
    *out = p;
    return status;
}

void predictor_close(predictor **handle)
{
    predictor *p = *handle;
    if (!p) {
        return;
    }
    thread_pool_close(&p->pool);
    for (int i = 0; p->decoders && i < p->threads; i++) {
        image_decoder_close(&p->decoders[i]);
    }
    network_close(&p->net);
    if (p->dev) {
        device_host_buffer_destroy(p->dev, &p->staging);
        device_buffer_destroy(p->dev, &p->slot);
        device_stream_destroy(p->dev, &p->compute);
    }
    device_close(&p->dev);
    free(p->decoders);
    free(p->probabilities);
    free(p);
    *handle = NULL;
}

static enum status decode_file(predictor *p, image_decoder *decoder, const char *path,
                               float *pixels)
{
    const struct loader_settings *loading = &p->settings.loader;
    struct image_facts facts;
    struct image_view view;
    struct image_output output = {.format = IMAGE_F32, .pixels = pixels};
    void *data = NULL;
    size_t bytes;
    memcpy(output.mean, loading->mean, sizeof output.mean);
    memcpy(output.std, loading->deviation, sizeof output.std);
    TRY(file_read(path, (size_t)loading->image.max_file_bytes, &data, &bytes));
    enum status status = image_probe(decoder, data, bytes, &facts);
    if (status == STATUS_OK) {
        augment_draw(&p->view, facts.width, facts.height, NULL, &view);
        status = image_render(decoder, data, bytes, &view, &output);
    }
    free(data);
    if (status != STATUS_OK) {
        status_prefix("%s", path);
    }
    return status;
}

static void decode_part(void *context, int part, int worker)
{
    predictor *p = context;
    float *pixels = (float *)(void *)((uint8_t *)p->staging.data + p->pixels_offset);
    pixels += (size_t)part * p->image_floats;
    const enum status status = decode_file(p, p->decoders[worker], p->paths[part], pixels);
    status_save(&p->results[part].failure, status);
    if (status != STATUS_OK) {
        memset(pixels, 0, p->image_floats * sizeof *pixels);
    }
}

static enum status softmax(const float *logits, int classes, float *probabilities)
{
    double sum = 0;
    float top = logits[0];
    for (int c = 1; c < classes; c++) {
        top = logits[c] > top ? logits[c] : top;
    }
    for (int c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - (double)top);
    }
    if (!isfinite(sum)) {
        return FAIL(STATUS_DIVERGED, "the network gives values that are not finite: these weights "
                                     "are worthless");
    }
    for (int c = 0; c < classes; c++) {
        probabilities[c] = (float)(exp((double)logits[c] - (double)top) / sum);
    }
    return STATUS_OK;
}

enum status predictor_run(predictor *p, const char *const *paths, int count,
                          struct prediction *results)
{
    uint8_t *results_memory = (uint8_t *)p->staging.data + p->results_offset;
    float *loss = (float *)(void *)results_memory;
    float *logits = (float *)(void *)(results_memory + 256);
    p->paths = paths;
    p->results = results;
    thread_pool_run(p->pool, count, decode_part, p);
    TRY(device_copy_to_device(p->dev, p->compute, p->slot, 0, p->staging.data, p->results_offset));
    TRY(network_ingest(p->net, false, 0, p->batch));
    TRY(network_evaluate(p->net, p->batch));
    TRY(network_read_results_async(p->net, p->batch, loss, logits));
    TRY(device_stream_wait(p->dev, p->compute));
    for (int i = 0; i < count; i++) {
        float *row = p->probabilities + (size_t)i * (size_t)p->classes;
        results[i].probabilities = row;
        if (results[i].failure.status == STATUS_OK) {
            TRY(softmax(logits + (size_t)i * (size_t)p->classes, p->classes, row));
        }
    }
    return STATUS_OK;
}

void predictor_top(const float *probabilities, int classes, int k, int *order)
{
    /* By repeated search: k is small, and the order of equals is that of the classes. */
    for (int place = 0; place < k; place++) {
        int best = -1;
        for (int c = 0; c < classes; c++) {
            bool taken = false;
            for (int other = 0; other < place && !taken; other++) {
                taken = order[other] == c;
            }
            if (!taken && (best < 0 || probabilities[c] > probabilities[best])) {
                best = c;
            }
        }
        order[place] = best;
    }
}
