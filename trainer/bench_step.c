#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/size.h"
#include "base/statistics.h"
#include "base/stop.h"
#include "models/network.h"
#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/job.h"
#include "trainer/job_options.h"
#include "trainer/schedule.h"

static const double warm_seconds = 1;
enum { WARM_STEPS = 10 };

struct step_bench {
    const struct settings *settings;
    const struct bench_settings *bench;
    device *dev;
    device_stream *compute;
    network *net;
    device_buffer *slot;
    struct host_buffer staging;
    size_t targets_offset, pixels_offset, bytes;
    double *rates, *step_ms, *issue_ms;
    float loss;
};

/* Random pixels, and every image of a class of its own in turn. */
static void fill_slot(struct step_bench *b)
{
    const int batch = b->settings->loader.batch_size;
    const size_t pixels = b->bytes - b->pixels_offset;
    struct schedule_plan plan;
    struct rng rng;
    uint8_t *memory = b->staging.data;
    memset(memory, 0, b->bytes);
    schedule_init(&plan, &b->settings->optimiser, 1, 1000000);
    schedule_fill(&plan, plan.warmup_steps, (struct step_scalars *)(void *)memory);
    float *targets = (float *)(void *)(memory + b->targets_offset);
    for (int i = 0; i < batch; i++) {
        targets[(size_t)i * (size_t)b->bench->classes + (size_t)(i % b->bench->classes)] =
            1.0F / (float)batch;
    }
    rng_init(&rng, b->settings->seed, RNG_TEST, 0, 0);
    for (size_t i = 0; i < pixels; i++) {
        memory[b->pixels_offset + i] = (uint8_t)(rng_u32(&rng) >> 24);
    }
}

static enum status open_bench(struct step_bench *b)
{
    const struct loader_settings *loading = &b->settings->loader;
    const size_t batch = (size_t)loading->batch_size;
    const size_t edge = (size_t)loading->size;
    struct network_settings wanted = b->settings->network;
    wanted.classes = b->bench->classes;
    wanted.image_size = loading->size;
    wanted.precision = b->settings->device.precision;
    wanted.train = true;
    wanted.train_batch = wanted.train_last_batch = loading->batch_size;
    wanted.eval_batch = wanted.eval_last_batch = 0;
    b->targets_offset = 256;
    b->pixels_offset =
        b->targets_offset + size_align(batch * (size_t)wanted.classes * sizeof(float), 256);
    b->bytes = b->pixels_offset + batch * edge * edge * 3;
    b->rates = calloc((size_t)b->bench->repeats * 3, sizeof *b->rates);
    if (!b->rates) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the results");
    }
    b->step_ms = b->rates + b->bench->repeats;
    b->issue_ms = b->step_ms + b->bench->repeats;
    TRY(device_open(&b->settings->device, &b->dev));
    TRY(device_stream_create(b->dev, "compute", &b->compute));
    TRY(device_buffer_create(b->dev, b->bytes, &b->slot));
    TRY(device_host_buffer_create(b->dev, b->bytes, HOST_MEMORY_PAGEABLE, &b->staging));
    TRY(network_open(b->dev, b->compute, &wanted, &b->net));
    struct network_slots slots = {
        .buffers = &b->slot,
        .count = 1,
        .targets_offset = b->targets_offset,
        .pixels_offset = b->pixels_offset,
        .pixel_dtype = DTYPE_U8,
        .training = true,
    };
    memcpy(slots.mean, loading->mean, sizeof slots.mean);
    memcpy(slots.deviation, loading->deviation, sizeof slots.deviation);
    TRY(network_bind_slots(b->net, &slots));
    TRY(network_prepare(b->net));
    TRY(network_initialise(b->net, b->settings->seed));
    fill_slot(b);
    TRY(device_copy_to_device(b->dev, b->compute, b->slot, 0, b->staging.data, b->bytes));
    return device_synchronize(b->dev);
}

static void close_bench(struct step_bench *b)
{
    network_close(&b->net);
    if (b->dev) {
        device_host_buffer_destroy(b->dev, &b->staging);
        device_buffer_destroy(b->dev, &b->slot);
        device_stream_destroy(b->dev, &b->compute);
    }
    device_close(&b->dev);
    free(b->rates);
}

static enum status run_steps(struct step_bench *b, int steps)
{
    const int batch = b->settings->loader.batch_size;
    for (int i = 0; i < steps; i++) {
        TRY(network_ingest(b->net, true, 0, batch));
        TRY(network_train(b->net, batch));
    }
    return STATUS_OK;
}

static enum status measure(struct step_bench *b)
{
    const int steps = b->bench->steps;
    const int batch = b->settings->loader.batch_size;
    const uint64_t begun = clock_now_ns();
    do {
        TRY(run_steps(b, WARM_STEPS));
        TRY(device_synchronize(b->dev));
        TRY(stop_check());
    } while (clock_seconds(begun, clock_now_ns()) < warm_seconds);
    for (int i = 0; i < b->bench->repeats; i++) {
        TRY(stop_check());
        const uint64_t from = clock_now_ns();
        TRY(run_steps(b, steps));
        const uint64_t issued = clock_now_ns();
        TRY(device_synchronize(b->dev));
        const uint64_t to = clock_now_ns();
        b->rates[i] = (double)steps * batch / clock_seconds(from, to);
        b->step_ms[i] = clock_seconds(from, to) * 1e3 / steps;
        b->issue_ms[i] = clock_seconds(from, issued) * 1e3 / steps;
    }
    TRY(network_read_results_async(b->net, batch, &b->loss, NULL));
    return device_synchronize(b->dev);
}

static void write_result(void *context, struct json_writer *writer)
{
    const struct step_bench *b = context;
    const size_t repeats = (size_t)b->bench->repeats;
    json_begin_object(writer);
    json_key_string(writer, "model", b->settings->network.model);
    json_key_int(writer, "size", b->settings->loader.size);
    json_key_int(writer, "batch", b->settings->loader.batch_size);
    json_key_int(writer, "steps", b->bench->steps);
    json_key_string(writer, "precision", precision_names[b->settings->device.precision]);
    json_key_double(writer, "samples_per_s_best", statistics_quantile(b->rates, repeats, 1));
    json_key_double(writer, "samples_per_s_median", statistics_median(b->rates, repeats));
    json_key_double(writer, "samples_per_s_lowest", statistics_quantile(b->rates, repeats, 0));
    json_key_double(writer, "step_ms", statistics_median(b->step_ms, repeats));
    json_key_double(writer, "issue_ms", statistics_median(b->issue_ms, repeats));
    json_key(writer, "samples_per_s");
    json_begin_array(writer);
    for (size_t i = 0; i < repeats; i++) {
        json_double(writer, b->rates[i]);
    }
    json_end_array(writer);
    json_key_double(writer, "loss", (double)b->loss);
    json_key(writer, "device");
    if (job_write_device(b->dev, writer) != STATUS_OK) {
        json_null(writer);
    }
    json_key(writer, "plans");
    device_write_plans(b->dev, writer);
    json_end_object(writer);
}

static void print_result(const struct step_bench *b)
{
    const size_t repeats = (size_t)b->bench->repeats;
    printf("%s size=%d batch=%d %s: %.0f samples/s best, %.0f median, %.0f lowest of %zu; a step "
           "takes %.3f ms, issuing it %.3f ms\n",
           b->settings->network.model, b->settings->loader.size, b->settings->loader.batch_size,
           precision_names[b->settings->device.precision],
           statistics_quantile(b->rates, repeats, 1), statistics_median(b->rates, repeats),
           statistics_quantile(b->rates, repeats, 0), repeats,
           statistics_median(b->step_ms, repeats), statistics_median(b->issue_ms, repeats));
}

enum status bench_step(const struct settings *settings, const struct bench_settings *bench)
{
    struct step_bench b;
    memset(&b, 0, sizeof b);
    b.settings = settings;
    b.bench = bench;
    enum status status = open_bench(&b);
    if (status == STATUS_OK) {
        status = measure(&b);
    }
    if (status == STATUS_OK && settings->json) {
        command_print_json(write_result, &b);
    } else if (status == STATUS_OK) {
        print_result(&b);
    }
    close_bench(&b);
    return status;
}
