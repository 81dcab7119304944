#include "experiments/ceilings.h"

#include <string.h>

#include "base/clock.h"
#include "base/system.h"
#include "experiments/ceilings_internal.h"

static void write_found(const struct bench *bench, struct json_writer *writer)
{
    const struct found *found = &bench->found;
    const bool drains = found->call_busy_s[0] > found->call_s[0] + found->busy_s / 2;
    json_begin_object(writer);
    json_key_double(writer, "loader_s", found->loader_s[0]);
    json_key_double(writer, "loader_pinned_s", found->loader_s[1]);
    json_key_double(writer, "loader_copying_s", found->loader_copying_s[0]);
    json_key_double(writer, "loader_copying_pinned_s", found->loader_copying_s[1]);
    json_key_double(writer, "loader_busy_s", found->loader_busy_s);
    json_key_double(writer, "loader_spread", found->loader_spread);
    json_key_double(writer, "read_share", found->read_share);
    json_key_double(writer, "decode_share", found->decode_share);
    json_key_double(writer, "cold_loader_s", found->cold_loader_s);
    json_key_int(writer, "cold_read_bytes", (int64_t)found->cold_read_bytes);
    json_key_int(writer, "cold_major_faults", (int64_t)found->cold_major_faults);
    json_key_double(writer, "first_batch_s", found->first_batch_s);
    json_key_double(writer, "step_s", found->step_s[0]);
    json_key_double(writer, "step_pinned_s", found->step_s[1]);
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
    json_key_double(writer, "emulated_step_s", bench->job.emulated_seconds);
    json_key_double(writer, "lock_s", found->lock_s);
    json_key_double(writer, "open_s", found->open_s);
    json_key_double(writer, "cell_s", found->cell_s);
    json_key_double(writer, "measured_in_s", found->measured_in_s);
    json_end_object(writer);
}

static enum status write_answer(struct bench *bench, struct json_writer *writer)
{
    const struct loader_layout *layout = &bench->job.train_layout;
    struct system_facts facts;
    system_read_facts(&facts);
    size_t samples = dataset_count(bench->job.train_set);
    if (bench->settings.loader.drop_last) {
        samples = (size_t)layout->batches * (size_t)bench->settings.loader.batch_size;
    }
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

static enum status open_kind(struct bench *bench)
{
    TRY(job_open(&bench->settings, JOB_TRAIN_ALONE, &bench->parts, bench->request.plans,
                 &bench->job));
    loader_give_cache(bench->job.train_loader, &bench->cache);
    return STATUS_OK;
}

/* Everything that depends on the slots' memory, of one kind; the job stays open. */
static enum status measure_kind(struct bench *bench, bool locked)
{
    const uint64_t begin = clock_now_ns();
    bench->settings.loader.pin_memory = locked ? PIN_ON : PIN_OFF;
    TRY(open_kind(bench));
    /* The first opening looks for plans. */
    bench->found.cell_s = clock_seconds(begin, clock_now_ns());
    TRY(ceilings__measure_loader(bench, locked));
    TRY(ceilings__measure_step(bench, locked));
    return ceilings__measure_copies(bench, locked);
}

static void close_kind(struct bench *bench)
{
    if (bench->job.train_loader) {
        loader_close_keeping(&bench->job.train_loader, &bench->cache);
    }
    job_close(&bench->job);
}

/* Copies out of one allocation of pageable memory are alike, and unlike those out of the next. What was
 * found is therefore the mean over several allocations. */
enum { ALLOCATIONS = 3 };

static enum status average_allocations(struct bench *bench)
{
    struct found *found = &bench->found;
    double copy_s = found->copy_s[0], copying_s = found->loader_copying_s[0];
    for (int i = 1; i < ALLOCATIONS; i++) {
        TRY(open_kind(bench));
        TRY(ceilings__measure_copying(bench));
        close_kind(bench);
        copy_s += found->copy_s[0];
        copying_s += found->loader_copying_s[0];
    }
    found->copy_s[0] = copy_s / ALLOCATIONS;
    found->loader_copying_s[0] = copying_s / ALLOCATIONS;
    return STATUS_OK;
}

static enum status measure(struct bench *bench, struct json_writer *answer)
{
    const uint64_t begin = clock_now_ns();
    TRY(device_open(&bench->settings.device, &bench->parts.dev));
    TRY(dataset_open(&bench->settings.dataset, &bench->parts.train_set, &bench->parts.val_set));
    bench->found.open_s = clock_seconds(begin, clock_now_ns());
    TRY(measure_kind(bench, false));
    close_kind(bench);
    TRY(average_allocations(bench));
    TRY(measure_kind(bench, true));
    bench->found.measured_in_s = clock_seconds(begin, clock_now_ns());
    return write_answer(bench, answer);
}

enum status ceilings_measure(const struct json_value *root, struct json_writer *answer)
{
    static struct bench bench;
    memset(&bench, 0, sizeof bench);
    TRY(request_read(root, &bench.request));
    bench.seconds = json_member_double(root, "seconds", 1);
    bench.settings = bench.request.job;
    bench.settings.loader.non_blocking = true;
    bench.settings.loader.copy_stream = COPY_STREAM_DEDICATED;
    bench.settings.timing = true; /* copies are timed by events, whatever the cells do */
    TRY(settings_complete(&bench.settings));
    const enum status status = measure(&bench, answer);
    close_kind(&bench);
    loader_cache_destroy(&bench.cache);
    dataset_close(&bench.parts.train_set);
    dataset_close(&bench.parts.val_set);
    device_close(&bench.parts.dev);
    return status;
}

/* A loader whose batches are copied as they come. Where the copies set the pace, which batches then
 * follow to within this factor, its own time does not show: it is the shorter one that it has alone. */
#define COPIES_SET_PACE 1.05

static double loader_beside_copies(double copying_s, double quiet_s, double copy_s)
{
    return copying_s > COPIES_SET_PACE * copy_s ? copying_s : quiet_s;
}

/* Without workers the calls of the copies are between the batches. A pageable copy is made inside its
 * call, so that nothing is decoded beside it. */
static double decoding_beside_copies(double copying_s, double quiet_s, double copy_s, double call_s,
                                     bool pin)
{
    const bool beside = pin && copying_s > COPIES_SET_PACE * copy_s;
    return beside && copying_s - call_s > quiet_s ? copying_s - call_s : quiet_s;
}

/* Times that differ by less are the same, measured twice. A loader's wanders more than a step's, and more
 * than the kind of memory that it writes to changes it. */
#define STEPS_AGREE 1.05
#define LOADERS_AGREE 1.15

static double of_kind(double own_s, double other_s, double agree)
{
    const bool same = own_s < agree * other_s && other_s < agree * own_s;
    return same ? (own_s + other_s) / 2 : own_s;
}

/* Loader and step with one kind of memory. What an older result lacks is the same in both. */
struct kind {
    double loader_s, loader_quiet_s, step_s;
};

static struct kind read_kind(const struct json_value *ceilings, bool pin, bool no_workers)
{
    const double loader_s = json_member_double(ceilings, "loader_s", 0);
    const double step_s = json_member_double(ceilings, "step_s", 0);
    const double quiet_s =
        json_member_double(ceilings, pin ? "loader_pinned_s" : "loader_s", loader_s);
    const double copying_s =
        json_member_double(ceilings, pin ? "loader_copying_pinned_s" : "loader_copying_s", quiet_s);
    const double copy_s =
        json_member_double(ceilings, pin ? "copy_locked_s" : "copy_pageable_s", 0);
    const double call_s =
        json_member_double(ceilings, pin ? "call_locked_s" : "call_pageable_s", 0);
    return (struct kind){
        .loader_s = no_workers ? decoding_beside_copies(copying_s, quiet_s, copy_s, call_s, pin)
                               : loader_beside_copies(copying_s, quiet_s, copy_s),
        .loader_quiet_s = quiet_s,
        .step_s = json_member_double(ceilings, pin ? "step_pinned_s" : "step_s", step_s),
    };
}

void ceilings_read(const struct json_value *ceilings, int64_t batches, bool pin, bool no_workers,
                   struct predict_ceilings *out)
{
    const struct kind own = read_kind(ceilings, pin, no_workers);
    const struct kind other = read_kind(ceilings, !pin, no_workers);
    *out = (struct predict_ceilings){
        .loader_s = of_kind(own.loader_s, other.loader_s, LOADERS_AGREE),
        .loader_quiet_s = of_kind(own.loader_quiet_s, other.loader_quiet_s, LOADERS_AGREE),
        .loader_spread = json_member_double(ceilings, "loader_spread", 0),
        .first_batch_s = json_member_double(ceilings, "first_batch_s", 0),
        .step_s = of_kind(own.step_s, other.step_s, STEPS_AGREE),
        .issue_s = json_member_double(ceilings, "issue_s", 0),
        .wake_s = json_member_double(ceilings, "wake_s", 0),
        .copy_pageable_s = json_member_double(ceilings, "copy_pageable_s", 0),
        .copy_locked_s = json_member_double(ceilings, "copy_locked_s", 0),
        .call_pageable_s = json_member_double(ceilings, "call_pageable_s", 0),
        .call_locked_s = json_member_double(ceilings, "call_locked_s", 0),
        .pageable_drains = json_member_bool(ceilings, "pageable_drains", true),
        .no_workers = no_workers,
        .slots = (int)json_member_int(ceilings, "slots", 2),
        .batches = batches,
    };
}
