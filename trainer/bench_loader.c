#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/stop.h"
#include "base/system.h"
#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/job.h"

enum { MOST_ROWS = 16 };

/* One number of workers. */
struct row {
    int workers;
    double seconds;
    struct loader_counters counters;
    double images_per_s;
};

struct loader_bench {
    const struct settings *settings;
    const struct bench_settings *bench;
    const dataset *set;
    device *dev;
    device_stream *compute;
    struct row rows[MOST_ROWS];
    int count;
};

static enum status run_epoch(loader *l, uint32_t epoch)
{
    struct batch *batch = NULL;
    TRY(loader_begin_epoch(l, epoch, 0));
    for (;;) {
        TRY(stop_check());
        TRY(loader_next(l, &batch));
        if (!batch) {
            return STATUS_OK;
        }
        TRY(loader_release(l, &batch));
    }
}

/* One epoch untimed, then whole epochs until the time is over. */
static enum status run_row(struct loader_bench *b, loader *l, struct row *row)
{
    uint32_t epoch = 0;
    TRY(run_epoch(l, epoch++));
    loader_reset_counters(l);
    const uint64_t from = clock_now_ns();
    do {
        TRY(run_epoch(l, epoch++));
        row->seconds = clock_seconds(from, clock_now_ns());
    } while (row->seconds < b->bench->seconds);
    loader_read_counters(l, &row->counters);
    row->images_per_s = (double)row->counters.images / row->seconds;
    return STATUS_OK;
}

static enum status measure_row(struct loader_bench *b, int workers)
{
    struct loader_settings wanted = b->settings->loader;
    struct row *row = &b->rows[b->count];
    loader *l = NULL;
    wanted.num_workers = workers;
    row->workers = workers;
    TRY(loader_open(&wanted, b->set, b->dev, b->compute, &l));
    const enum status status = run_row(b, l, row);
    loader_close(&l);
    TRY(status);
    b->count++;
    return STATUS_OK;
}

static enum status measure(struct loader_bench *b)
{
    struct system_facts facts;
    system_read_facts(&facts);
    if (options_was_given("num-workers")) {
        return measure_row(b, b->settings->loader.num_workers);
    }
    TRY(measure_row(b, 0));
    for (int workers = 1; b->count < MOST_ROWS - 1; workers *= 2) {
        if (workers >= facts.cpus_allowed) {
            return measure_row(b, facts.cpus_allowed);
        }
        TRY(measure_row(b, workers));
    }
    return STATUS_OK;
}

static double microseconds(uint64_t nanoseconds, uint64_t images)
{
    return images > 0 ? (double)nanoseconds * 1e-3 / (double)images : 0;
}

static void write_result(void *context, struct json_writer *writer)
{
    const struct loader_bench *b = context;
    json_begin_object(writer);
    json_key_int(writer, "images", (int64_t)dataset_count(b->set));
    json_key_int(writer, "batch", b->settings->loader.batch_size);
    json_key_int(writer, "size", b->settings->loader.size);
    json_key(writer, "machine");
    job_write_machine(writer);
    json_key(writer, "rows");
    json_begin_array(writer);
    for (int i = 0; i < b->count; i++) {
        const struct row *row = &b->rows[i];
        const uint64_t images = row->counters.images;
        json_begin_object(writer);
        json_key_int(writer, "workers", row->workers);
        json_key_double(writer, "images_per_s", row->images_per_s);
        json_key_double(writer, "read_us", microseconds(row->counters.read_ns, images));
        json_key_double(writer, "decode_us", microseconds(row->counters.decode_ns, images));
        json_key_double(writer, "write_us", microseconds(row->counters.write_ns, images));
        json_key_double(writer, "cpu_us", microseconds(row->counters.worker_cpu_ns, images));
        json_key_double(writer, "seconds", row->seconds);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}

static void print_result(const struct loader_bench *b)
{
    printf("%zu images, batches of %d, %dx%d\nworkers   images/s   read us  decode us  write us  "
           "CPU us (an image)\n",
           dataset_count(b->set), b->settings->loader.batch_size, b->settings->loader.size,
           b->settings->loader.size);
    for (int i = 0; i < b->count; i++) {
        const struct row *row = &b->rows[i];
        const uint64_t images = row->counters.images;
        printf("%7d %10.0f %9.1f %10.1f %9.1f %7.1f\n", row->workers, row->images_per_s,
               microseconds(row->counters.read_ns, images),
               microseconds(row->counters.decode_ns, images),
               microseconds(row->counters.write_ns, images),
               microseconds(row->counters.worker_cpu_ns, images));
    }
}

static enum status run_bench(struct loader_bench *b)
{
    TRY(device_open(&b->settings->device, &b->dev));
    TRY(device_stream_create(b->dev, "compute", &b->compute));
    TRY(measure(b));
    return STATUS_OK;
}

enum status bench_loader(const struct settings *settings, const struct bench_settings *bench)
{
    dataset *set = NULL, *val = NULL;
    struct loader_bench b;
    memset(&b, 0, sizeof b);
    b.settings = settings;
    b.bench = bench;
    if (!settings->dataset.data) {
        return FAIL(STATUS_USAGE, "bench loader needs --data: a folder of classes of images");
    }
    TRY(dataset_open(&settings->dataset, &set, &val));
    b.set = set;
    const enum status status = run_bench(&b);
    if (status == STATUS_OK && settings->json) {
        command_print_json(write_result, &b);
    } else if (status == STATUS_OK) {
        print_result(&b);
    }
    if (b.dev) {
        device_stream_destroy(b.dev, &b.compute);
    }
    device_close(&b.dev);
    dataset_close(&set);
    dataset_close(&val);
    return status;
}
