#include "experiments/ceilings.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "base/stop.h"
#include "base/system.h"
#include "experiments/request.h"
#include "trainer/job.h"

enum {
    MOST_INTERVALS = 100000,
    CALL_REPEATS = 7,
    WARM_STEPS = 5,
    ISSUE_REPEATS = 40,
    MOST_COPY_SLOTS = 64
};
/* A busy stream, for the time inside a copy call behind it. */
#define BUSY_S 0.01

/* Everything that is measured, in seconds; names as in result.h. */
struct found {
    double loader_s, loader_pinned_s, loader_busy_s, loader_spread, first_batch_s;
    double step_s, issue_s, wake_s;
    double copy_s[2], copy_quiet_s[2]; /* [0] pageable, [1] page-locked */
    double call_s[2], call_busy_s[2];
    double busy_s; /* how long the stream was really busy */
    double lock_s, measured_in_s;
    double bytes_per_sample;
};

struct bench {
    struct request request;
    struct settings settings; /* completed; page-locked, non-blocking, dedicated stream */
    struct job job;
    double seconds; /* for each part */
    struct found found;
};

/* --- The loader alone ----------------------------------------------------------------------- */

struct loader_rate {
    double batch_s, spread, first_s;
    double copy_device_s; /* mean of a copy, when batches were uploaded */
    double bytes_per_sample;
};

/* Reads batches for about `seconds`, whole epochs at most as often as needed; uploads them if asked.
 * The first batch of an epoch is its latency, the others its rate. */
static enum status run_loader(struct bench *bench, loader *from, bool upload,
                              struct loader_rate *rate)
{
    double *intervals = malloc(MOST_INTERVALS * sizeof *intervals);
    if (!intervals) {
        return FAIL(STATUS_NO_MEMORY, "no memory for times");
    }
    size_t count = 0;
    uint64_t images = 0, bytes = 0;
    enum status status = STATUS_OK;
    const uint64_t begin = clock_now_ns();
    loader_reset_counters(from);
    struct loader_counters counters = {0};
    for (uint32_t epoch = 0; status == STATUS_OK && count < MOST_INTERVALS; epoch++) {
        uint64_t last = clock_now_ns();
        struct batch *batch = NULL;
        status = loader_begin_epoch(from, epoch, 0);
        for (bool first = true; status == STATUS_OK; first = false) {
            status = loader_next(from, &batch);
            if (status != STATUS_OK || !batch) {
                break;
            }
            const uint64_t now = clock_now_ns();
            if (first && epoch == 0) {
                rate->first_s = clock_seconds(last, now);
            } else if (!first && count < MOST_INTERVALS) {
                intervals[count++] = clock_seconds(last, now);
            }
            last = now;
            images += (uint64_t)batch->n;
            if (upload) {
                status = loader_upload(from, batch);
            }
            if (status == STATUS_OK) {
                status = loader_release(from, &batch);
            }
            if (status == STATUS_OK) {
                status = stop_check();
            }
            /* One epoch is the least, so that a cache is filled and every file was read once. */
            if (epoch > 0 && clock_seconds(begin, now) > bench->seconds) {
                break;
            }
        }
        loader_read_counters(from, &counters);
        bytes = counters.bytes_read;
        if (status == STATUS_OK) {
            status = loader_cancel_epoch(from);
        }
        if (clock_seconds(begin, clock_now_ns()) > bench->seconds) {
            break;
        }
    }
    if (status == STATUS_OK && upload) {
        status = device_synchronize(bench->job.dev);
        loader_read_counters(from, &counters);
    }
    if (count > 0) {
        rate->batch_s = statistics_mean(intervals, count);
        rate->spread = statistics_deviation(intervals, count) / rate->batch_s;
    } else {
        rate->batch_s = rate->first_s;
        rate->spread = 0;
    }
    rate->copy_device_s =
        counters.copies > 0 ? counters.copy_device_ms * 1e-3 / (double)counters.copies : 0;
    rate->bytes_per_sample = images > 0 ? (double)bytes / (double)images : 0;
    free(intervals);
    return status;
}

static enum status with_loader(struct bench *bench, bool locked, bool upload,
                               struct loader_rate *rate)
{
    struct loader_settings settings = bench->settings.loader;
    loader *from = NULL;
    memset(rate, 0, sizeof *rate);
    settings.pin_memory = locked ? PIN_ON : PIN_OFF;
    enum status status =
        loader_open(&settings, bench->job.train_set, bench->job.dev, bench->job.compute, &from);
    if (status == STATUS_OK) {
        if (locked) {
            struct loader_staging staging;
            loader_read_staging(from, &staging);
            bench->found.lock_s = staging.lock_seconds;
        }
        status = run_loader(bench, from, upload, rate);
    }
    loader_close(&from);
    return status;
}

/* A thread that spins, as a host that waits by polling does. */
static void *spin(void *context)
{
    atomic_bool *ending = context;
    while (!atomic_load_explicit(ending, memory_order_relaxed)) {
    }
    return NULL;
}

static enum status measure_loader(struct bench *bench)
{
    struct found *found = &bench->found;
    struct loader_rate rate;
    TRY(with_loader(bench, false, false, &rate));
    found->loader_s = rate.batch_s;
    found->loader_spread = rate.spread;
    found->first_batch_s = rate.first_s;
    found->bytes_per_sample = rate.bytes_per_sample;
    TRY(with_loader(bench, true, false, &rate));
    found->loader_pinned_s = rate.batch_s;
    atomic_bool ending = false;
    pthread_t spinner;
    if (pthread_create(&spinner, NULL, spin, &ending) == 0) {
        const enum status status = with_loader(bench, true, false, &rate);
        atomic_store(&ending, true);
        pthread_join(spinner, NULL);
        TRY(status);
        found->loader_busy_s = rate.batch_s;
    }
    for (int locked = 0; locked < 2; locked++) {
        TRY(with_loader(bench, locked != 0, true, &rate));
        found->copy_s[locked] = rate.copy_device_s;
    }
    return STATUS_OK;
}

/* --- The step alone ------------------------------------------------------------------------- */

/* Brings one batch to the device and leaves it in its slot, with a rate of zero so that the weights
 * stay where they are. */
static enum status keep_one_batch(struct bench *bench, int *slot, int *n)
{
    struct job *job = &bench->job;
    struct batch *batch = NULL;
    TRY(loader_begin_epoch(job->train_loader, 0, 0));
    TRY(loader_next(job->train_loader, &batch));
    if (!batch) {
        return FAIL(STATUS_INVALID, "the training set has no batch");
    }
    schedule_fill(&job->schedule, 0, batch->scalars);
    batch->scalars->rate = batch->scalars->step_size = 0;
    batch->scalars->decay_factor = 1;
    *slot = batch->slot;
    *n = batch->n;
    TRY(loader_upload(job->train_loader, batch));
    TRY(loader_release(job->train_loader, &batch));
    TRY(loader_cancel_epoch(job->train_loader));
    TRY(device_synchronize(job->dev));
    return STATUS_OK;
}

static enum status submit_step(struct job *job, int slot, int n)
{
    TRY(network_ingest(job->net, true, slot, n));
    TRY(network_train(job->net, n));
    return STATUS_OK;
}

static enum status time_steps(struct bench *bench, int slot, int n, device_event *from,
                              device_event *to)
{
    struct job *job = &bench->job;
    double milliseconds = 0;
    int steps = 8;
    for (int i = 0; i < WARM_STEPS; i++) {
        TRY(submit_step(job, slot, n));
    }
    for (;;) {
        TRY(device_synchronize(job->dev));
        TRY(device_event_record(job->dev, from, job->compute));
        for (int i = 0; i < steps; i++) {
            TRY(submit_step(job, slot, n));
        }
        TRY(device_event_record(job->dev, to, job->compute));
        TRY(device_event_wait(job->dev, to));
        TRY(device_event_elapsed(job->dev, from, to, &milliseconds));
        TRY(stop_check());
        if (milliseconds * 1e-3 >= bench->seconds || steps >= 1 << 20) {
            break;
        }
        const double wanted =
            bench->seconds * 1e3 * 1.1 / (milliseconds > 0.01 ? milliseconds : 0.01);
        steps = wanted > 64 ? 64 * steps : wanted > 2 ? (int)(wanted * steps) : 2 * steps;
    }
    bench->found.step_s = milliseconds * 1e-3 / steps;
    return STATUS_OK;
}

/* Host time of issuing a step behind an idle stream, and of seeing its end. */
static enum status time_issue(struct bench *bench, int slot, int n, device_event *from,
                              device_event *to)
{
    struct job *job = &bench->job;
    double issue[ISSUE_REPEATS], wake[ISSUE_REPEATS];
    for (int i = 0; i < ISSUE_REPEATS; i++) {
        double milliseconds;
        TRY(device_synchronize(job->dev));
        const uint64_t begin = clock_now_ns();
        TRY(device_event_record(job->dev, from, job->compute));
        TRY(submit_step(job, slot, n));
        TRY(device_event_record(job->dev, to, job->compute));
        const uint64_t issued = clock_now_ns();
        TRY(device_event_wait(job->dev, to));
        const uint64_t seen = clock_now_ns();
        TRY(device_event_elapsed(job->dev, from, to, &milliseconds));
        issue[i] = clock_seconds(begin, issued);
        const double longer = milliseconds * 1e-3 > issue[i] ? milliseconds * 1e-3 : issue[i];
        const double left = clock_seconds(begin, seen) - longer;
        wake[i] = left > 0 ? left : 0;
    }
    bench->found.issue_s = statistics_median(issue, ISSUE_REPEATS);
    bench->found.wake_s = statistics_median(wake, ISSUE_REPEATS);
    return STATUS_OK;
}

static enum status measure_step(struct bench *bench)
{
    struct job *job = &bench->job;
    device_event *from = NULL, *to = NULL;
    int slot = 0, n = 0;
    enum status status = keep_one_batch(bench, &slot, &n);
    if (status == STATUS_OK) {
        status = device_event_create(job->dev, true, &from);
    }
    if (status == STATUS_OK) {
        status = device_event_create(job->dev, true, &to);
    }
    if (status == STATUS_OK) {
        status = time_steps(bench, slot, n, from, to);
    }
    if (status == STATUS_OK) {
        status = time_issue(bench, slot, n, from, to);
    }
    device_event_destroy(job->dev, &from);
    device_event_destroy(job->dev, &to);
    return status;
}

/* --- Copies alone --------------------------------------------------------------------------- */

struct copy_ring {
    struct host_buffer host[MOST_COPY_SLOTS];
    device_buffer *on_device[MOST_COPY_SLOTS];
    device_stream *stream;
    device_event *from, *to;
    int count;
    size_t bytes;
};

static enum status open_ring(struct bench *bench, bool locked, struct copy_ring *ring)
{
    device *dev = bench->job.dev;
    const struct loader_layout *layout = &bench->job.train_layout;
    const enum host_memory kind = !locked ? HOST_MEMORY_PAGEABLE
                                  : bench->settings.loader.pin_how == PIN_ALLOC
                                      ? HOST_MEMORY_ALLOCATED
                                      : HOST_MEMORY_REGISTERED;
    ring->count = layout->slots < MOST_COPY_SLOTS ? layout->slots : MOST_COPY_SLOTS;
    ring->bytes = layout->slot_bytes;
    TRY(device_stream_create(dev, "copies alone", &ring->stream));
    TRY(device_event_create(dev, true, &ring->from));
    TRY(device_event_create(dev, true, &ring->to));
    for (int i = 0; i < ring->count; i++) {
        TRY(device_host_buffer_create(dev, ring->bytes, kind, &ring->host[i]));
        memset(ring->host[i].data, i + 1, ring->bytes);
        TRY(device_buffer_create(dev, ring->bytes, &ring->on_device[i]));
    }
    return STATUS_OK;
}

static void close_ring(struct bench *bench, struct copy_ring *ring)
{
    device *dev = bench->job.dev;
    for (int i = 0; i < ring->count; i++) {
        device_buffer_destroy(dev, &ring->on_device[i]);
        device_host_buffer_destroy(dev, &ring->host[i]);
    }
    device_event_destroy(dev, &ring->from);
    device_event_destroy(dev, &ring->to);
    device_stream_destroy(dev, &ring->stream);
}

static enum status submit_copy(struct bench *bench, struct copy_ring *ring, int number)
{
    const int slot = number % ring->count;
    return device_copy_to_device(bench->job.dev, ring->stream, ring->on_device[slot], 0,
                                 ring->host[slot].data, ring->bytes);
}

static enum status time_copies(struct bench *bench, struct copy_ring *ring, double *seconds)
{
    device *dev = bench->job.dev;
    const uint64_t begin = clock_now_ns();
    double milliseconds = 0;
    int copies = 2 * ring->count, all = 0;
    for (int i = 0; i < ring->count; i++) {
        TRY(submit_copy(bench, ring, i));
    }
    double sum = 0;
    do {
        TRY(device_stream_wait(dev, ring->stream));
        TRY(device_event_record(dev, ring->from, ring->stream));
        for (int i = 0; i < copies; i++) {
            TRY(submit_copy(bench, ring, i));
        }
        TRY(device_event_record(dev, ring->to, ring->stream));
        TRY(device_event_wait(dev, ring->to));
        TRY(device_event_elapsed(dev, ring->from, ring->to, &milliseconds));
        TRY(stop_check());
        sum += milliseconds * 1e-3;
        all += copies;
    } while (clock_seconds(begin, clock_now_ns()) < bench->seconds / 2);
    *seconds = sum / all;
    return STATUS_OK;
}

/* Time inside the call: on an idle stream, and behind work that keeps the stream busy. */
static enum status time_two_calls(struct bench *bench, struct copy_ring *ring, int number,
                                  device_program *delay, double *idle, double *busy)
{
    device *dev = bench->job.dev;
    TRY(device_stream_wait(dev, ring->stream));
    uint64_t from = clock_now_ns();
    TRY(submit_copy(bench, ring, number));
    *idle = clock_seconds(from, clock_now_ns());
    TRY(device_stream_wait(dev, ring->stream));
    TRY(device_program_submit(dev, delay, ring->stream));
    from = clock_now_ns();
    TRY(submit_copy(bench, ring, number));
    *busy = clock_seconds(from, clock_now_ns());
    return STATUS_OK;
}

static enum status time_calls(struct bench *bench, struct copy_ring *ring, bool locked)
{
    device *dev = bench->job.dev;
    device_program *delay = NULL;
    double idle[CALL_REPEATS], busy[CALL_REPEATS];
    enum status status =
        device_delay_program_create(dev, BUSY_S, ring->stream, &delay, &bench->found.busy_s);
    for (int i = 0; status == STATUS_OK && i < CALL_REPEATS; i++) {
        status = time_two_calls(bench, ring, i, delay, &idle[i], &busy[i]);
    }
    if (status == STATUS_OK) {
        status = device_stream_wait(dev, ring->stream);
        bench->found.call_s[locked] = statistics_median(idle, CALL_REPEATS);
        bench->found.call_busy_s[locked] = statistics_median(busy, CALL_REPEATS);
    }
    device_program_destroy(dev, &delay);
    return status;
}

static enum status measure_copies(struct bench *bench)
{
    for (int locked = 0; locked < 2; locked++) {
        struct copy_ring ring = {0};
        enum status status = open_ring(bench, locked != 0, &ring);
        if (status == STATUS_OK) {
            status = time_copies(bench, &ring, &bench->found.copy_quiet_s[locked]);
        }
        if (status == STATUS_OK) {
            status = time_calls(bench, &ring, locked != 0);
        }
        close_ring(bench, &ring);
        TRY(status);
    }
    return STATUS_OK;
}

/* --- The answer ----------------------------------------------------------------------------- */

static void write_found(const struct bench *bench, struct json_writer *writer)
{
    const struct found *found = &bench->found;
    const bool drains = found->call_busy_s[0] > found->call_s[0] + found->busy_s / 2;
    json_begin_object(writer);
    json_key_double(writer, "loader_s", found->loader_s);
    json_key_double(writer, "loader_pinned_s", found->loader_pinned_s);
    json_key_double(writer, "loader_busy_s", found->loader_busy_s);
    json_key_double(writer, "loader_spread", found->loader_spread);
    json_key_double(writer, "first_batch_s", found->first_batch_s);
    json_key_double(writer, "step_s", found->step_s);
    json_key_double(writer, "issue_s", found->issue_s);
    json_key_double(writer, "wake_s", found->wake_s);
    json_key_double(writer, "copy_pageable_s", found->copy_s[0]);
    json_key_double(writer, "copy_locked_s", found->copy_s[1]);
    json_key_double(writer, "copy_pageable_quiet_s", found->copy_quiet_s[0]);
    json_key_double(writer, "copy_locked_quiet_s", found->copy_quiet_s[1]);
    json_key_double(writer, "call_pageable_s", found->call_s[0]);
    json_key_double(writer, "call_pageable_busy_s", found->call_busy_s[0]);
    json_key_double(writer, "call_locked_s", found->call_s[1]);
    json_key_double(writer, "call_locked_busy_s", found->call_busy_s[1]);
    json_key_bool(writer, "pageable_drains", drains);
    json_key_int(writer, "slots", bench->job.train_layout.slots);
    json_key_double(writer, "lock_s", found->lock_s);
    json_key_double(writer, "measured_in_s", found->measured_in_s);
    json_end_object(writer);
}

static enum status write_answer(struct bench *bench, struct json_writer *writer)
{
    const struct loader_layout *layout = &bench->job.train_layout;
    struct system_facts facts;
    system_read_facts(&facts);
    const size_t samples = dataset_count(bench->job.train_set);
    json_begin_object(writer);
    json_key(writer, "ceilings");
    write_found(bench, writer);
    json_key(writer, "facts");
    json_begin_object(writer);
    json_key_int(writer, "batches", layout->batches);
    json_key_int(writer, "samples", (int64_t)samples);
    json_key_int(writer, "batch_bytes", (int64_t)layout->slot_bytes);
    json_key_int(writer, "slots", layout->slots);
    json_key_int(writer, "working_set_bytes",
                 (int64_t)(bench->found.bytes_per_sample * (double)samples +
                           (double)layout->slot_bytes * layout->slots));
    json_key_int(writer, "last_level_cache_bytes", (int64_t)facts.last_level_cache);
    json_end_object(writer);
    json_key(writer, "machine");
    job_write_machine(writer);
    json_key(writer, "device");
    TRY(job_write_device(bench->job.dev, writer));
    json_key(writer, "data");
    job_write_data(&bench->job, writer);
    json_key(writer, "memory");
    job_write_memory(&bench->job, writer);
    json_key(writer, "plans");
    device_write_plans(bench->job.dev, writer);
    json_key(writer, "plans_hash");
    json_hex64(writer, device_plans_hash(bench->job.dev));
    json_end_object(writer);
    return STATUS_OK;
}

enum status ceilings_measure(const struct json_value *root, struct json_writer *answer)
{
    static struct bench bench;
    memset(&bench, 0, sizeof bench);
    TRY(request_read(root, &bench.request));
    bench.seconds = json_member_double(root, "seconds", 1);
    bench.settings = bench.request.job;
    bench.settings.loader.pin_memory = PIN_ON;
    bench.settings.loader.non_blocking = true;
    bench.settings.loader.copy_stream = COPY_STREAM_DEDICATED;
    TRY(settings_complete(&bench.settings));
    const uint64_t begin = clock_now_ns();
    enum status status =
        job_open(&bench.settings, JOB_TRAIN_ALONE, NULL, bench.request.plans, &bench.job);
    if (status == STATUS_OK) {
        status = measure_loader(&bench);
    }
    if (status == STATUS_OK) {
        status = measure_step(&bench);
    }
    if (status == STATUS_OK) {
        status = measure_copies(&bench);
    }
    bench.found.measured_in_s = clock_seconds(begin, clock_now_ns());
    if (status == STATUS_OK) {
        status = write_answer(&bench, answer);
    }
    job_close(&bench.job);
    return status;
}

void ceilings_read(const struct json_value *ceilings, int64_t batches, struct predict_ceilings *out)
{
    *out = (struct predict_ceilings){
        .loader_s = json_member_double(ceilings, "loader_s", 0),
        .loader_spread = json_member_double(ceilings, "loader_spread", 0),
        .first_batch_s = json_member_double(ceilings, "first_batch_s", 0),
        .step_s = json_member_double(ceilings, "step_s", 0),
        .issue_s = json_member_double(ceilings, "issue_s", 0),
        .wake_s = json_member_double(ceilings, "wake_s", 0),
        .copy_pageable_s = json_member_double(ceilings, "copy_pageable_s", 0),
        .copy_locked_s = json_member_double(ceilings, "copy_locked_s", 0),
        .call_pageable_s = json_member_double(ceilings, "call_pageable_s", 0),
        .call_locked_s = json_member_double(ceilings, "call_locked_s", 0),
        .pageable_drains = json_member_bool(ceilings, "pageable_drains", true),
        .slots = (int)json_member_int(ceilings, "slots", 2),
        .batches = batches,
    };
}
