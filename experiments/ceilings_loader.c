/* The loader alone. */
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "base/stop.h"
#include "base/system.h"
#include "experiments/ceilings_internal.h"

enum { MOST_TIMES = 100000, FIRST_REPEATS = 5, LEAST_BLOCKS = 5 };
/* The first epoch is read whole, so that files are in the page cache, but not for longer. */
#define COLD_SECONDS 60.0

/* What reading batches showed. */
struct series {
    double *intervals, *copies; /* between full batches; of copies on the device */
    size_t interval_count, copy_count;
    uint64_t batches, images;
};

void ceilings__summarise(const double *times, size_t count, size_t block, double *mean,
                         double *spread)
{
    while (block > 1 && count / block < LEAST_BLOCKS) {
        block--;
    }
    const size_t blocks = count / block;
    double *sums = calloc(blocks, sizeof *sums);
    *spread = 0;
    if (!sums) {
        *mean = statistics_mean(times, count);
        return;
    }
    for (size_t i = 0; i < blocks * block; i++) {
        sums[i / block] += times[i];
    }
    *mean = statistics_median(sums, blocks) / (double)block;
    if (blocks >= LEAST_BLOCKS && *mean > 0) {
        /* Half the distance of the quantiles at one deviation of a normal distribution. */
        const double deviation = (statistics_quantile(sums, blocks, 0.8413) -
                                  statistics_quantile(sums, blocks, 0.1587)) /
                                 2;
        *spread = deviation / (sqrt((double)block) * *mean);
    }
    free(sums);
}

/* The slot is filled again, so the copy that was in it has ended. */
static enum status note_copy(struct bench *bench, const loader *from, int slot,
                             struct series *series)
{
    device_event *begin, *end;
    double milliseconds = 0;
    loader_copy_events(from, slot, &begin, &end);
    TRY(device_event_elapsed(bench->job.dev, begin, end, &milliseconds));
    if (series->copy_count < MOST_TIMES) {
        series->copies[series->copy_count++] = milliseconds * 1e-3;
    }
    return STATUS_OK;
}

/* Reads an epoch until its end, `most` batches or the time `until_ns`, whichever comes first. */
static enum status read_epoch(struct bench *bench, loader *from, uint32_t epoch, uint64_t most,
                              uint64_t until_ns, bool upload, struct series *series)
{
    static bool copied[256];
    const int full = bench->settings.loader.batch_size;
    struct batch *batch = NULL;
    TRY(loader_begin_epoch(from, epoch, 0));
    if (epoch == 0) {
        memset(copied, 0, sizeof copied);
    }
    uint64_t last = 0;
    for (uint64_t number = 0; number < most; number++) {
        TRY(loader_next(from, &batch));
        if (!batch) {
            break;
        }
        const uint64_t now = clock_now_ns();
        if (number > 0 && batch->n == full && series->interval_count < MOST_TIMES) {
            series->intervals[series->interval_count++] = clock_seconds(last, now);
        }
        last = now;
        series->batches++;
        series->images += (uint64_t)batch->n;
        if (upload) {
            const int slot = batch->slot;
            if (copied[slot] && batch->n == full) {
                TRY(note_copy(bench, from, slot, series));
            }
            copied[slot] = batch->n == full;
            TRY(loader_upload(from, batch));
        }
        TRY(loader_release(from, &batch));
        TRY(stop_check());
        if (now > until_ns) {
            break;
        }
    }
    return loader_cancel_epoch(from);
}

/* Time until an epoch's first batch, from an empty ring. */
static enum status time_first_batch(loader *from, double *seconds)
{
    double times[FIRST_REPEATS];
    for (uint32_t i = 0; i < FIRST_REPEATS; i++) {
        struct batch *batch = NULL;
        const uint64_t begin = clock_now_ns();
        TRY(loader_begin_epoch(from, i, 0));
        TRY(loader_next(from, &batch));
        times[i] = clock_seconds(begin, clock_now_ns());
        if (batch) {
            TRY(loader_release(from, &batch));
        }
        TRY(loader_cancel_epoch(from));
        TRY(stop_check());
    }
    *seconds = statistics_median(times, FIRST_REPEATS);
    return STATUS_OK;
}

/* The very first epoch: what a cold page cache costs, and the end of its being cold. */
static enum status read_cold(struct bench *bench, loader *from, struct series *series)
{
    struct found *found = &bench->found;
    struct system_usage before, after;
    const bool whole = bench->settings.loader.cache != CACHE_NONE;
    const uint64_t begin = clock_now_ns();
    const uint64_t until = whole ? UINT64_MAX : begin + (uint64_t)(COLD_SECONDS * 1e9);
    system_read_usage(&before);
    TRY(read_epoch(bench, from, 0, UINT64_MAX, until, false, series));
    system_read_usage(&after);
    if (series->batches > 0) {
        found->cold_loader_s = clock_seconds(begin, clock_now_ns()) / (double)series->batches;
    }
    found->cold_read_bytes = after.read_bytes - before.read_bytes;
    found->cold_major_faults = after.major_faults - before.major_faults;
    struct loader_counters counters;
    loader_read_counters(from, &counters);
    if (series->images > 0) {
        found->bytes_per_sample = (double)counters.bytes_read / (double)series->images;
    }
    return STATUS_OK;
}

/* A turn of the ring; where there is a cache and the first kind's loader did not leave it, an epoch. */
static enum status read_warm_up(struct bench *bench, loader *from, struct series *series)
{
    struct loader_counters counters;
    loader_read_counters(from, &counters);
    const bool whole = bench->settings.loader.cache != CACHE_NONE && counters.cache_images == 0;
    const uint64_t most = whole ? UINT64_MAX : 2 * (uint64_t)bench->job.train_layout.slots;
    return read_epoch(bench, from, 0, most, UINT64_MAX, false, series);
}

/* Epochs, for about the time asked, of a loader that is warm. */
static enum status read_timed(struct bench *bench, loader *from, bool upload, struct series *series)
{
    const uint64_t until = clock_now_ns() + (uint64_t)(bench->seconds * 1e9);
    series->interval_count = series->copy_count = 0;
    series->batches = series->images = 0;
    loader_reset_counters(from);
    /* From the epoch after the first: a cache serves these. */
    for (uint32_t epoch = upload ? 0 : 1; epoch == 0 || clock_now_ns() < until; epoch++) {
        TRY(read_epoch(bench, from, epoch, UINT64_MAX, until, upload, series));
        if (series->interval_count == MOST_TIMES) {
            break;
        }
    }
    return device_synchronize(bench->job.dev);
}

static void take_loader(const struct bench *bench, const struct series *series, double *batch_s,
                        double *spread)
{
    if (series->interval_count > 0) {
        ceilings__summarise(series->intervals, series->interval_count,
                            (size_t)bench->job.train_layout.slots, batch_s, spread);
    } else {
        /* Epochs of a single batch have no intervals. */
        *batch_s = bench->found.first_batch_s;
        *spread = 0;
    }
}

/* A thread that spins, as a host that waits by polling does. */
static void *spin(void *context)
{
    atomic_bool *ending = context;
    while (!atomic_load_explicit(ending, memory_order_relaxed)) {
    }
    return NULL;
}

static enum status time_beside_spinner(struct bench *bench, loader *from, struct series *series)
{
    double spread;
    atomic_bool ending = false;
    pthread_t spinner;
    if (pthread_create(&spinner, NULL, spin, &ending) != 0) {
        return STATUS_OK; /* a figure less, and no reason to fail */
    }
    const enum status status = read_timed(bench, from, false, series);
    atomic_store(&ending, true);
    pthread_join(spinner, NULL);
    TRY(status);
    take_loader(bench, series, &bench->found.loader_busy_s, &spread);
    return STATUS_OK;
}

static void note_shares(struct bench *bench, loader *from)
{
    struct loader_counters counters;
    loader_read_counters(from, &counters);
    const double all = (double)(counters.read_ns + counters.decode_ns + counters.write_ns);
    if (all > 0) {
        bench->found.read_share = (double)counters.read_ns / all;
        bench->found.decode_share = (double)counters.decode_ns / all;
    }
}

/* The same with each batch copied as it comes; and what the copies took beside it. */
static enum status time_copying(struct bench *bench, bool locked, loader *from,
                                struct series *series)
{
    struct found *found = &bench->found;
    double spread;
    TRY(read_timed(bench, from, true, series));
    take_loader(bench, series, &found->loader_copying_s[locked], &spread);
    if (series->copy_count > 0) {
        found->copy_s[locked] = statistics_median(series->copies, series->copy_count);
    } else {
        struct loader_counters counters;
        loader_read_counters(from, &counters);
        found->copy_s[locked] =
            counters.copies > 0 ? counters.copy_device_ms * 1e-3 / (double)counters.copies : 0;
    }
    return STATUS_OK;
}

static enum status measure_kind(struct bench *bench, bool locked, loader *from,
                                struct series *series)
{
    struct found *found = &bench->found;
    double spread;
    if (!locked) {
        TRY(read_cold(bench, from, series));
        TRY(time_first_batch(from, &found->first_batch_s));
    } else {
        struct loader_staging staging;
        loader_read_staging(from, &staging);
        found->lock_s = staging.lock_seconds;
        TRY(read_warm_up(bench, from, series));
    }
    TRY(read_timed(bench, from, false, series));
    take_loader(bench, series, &found->loader_s[locked], locked ? &spread : &found->loader_spread);
    if (!locked) {
        note_shares(bench, from);
    } else if (bench->settings.device.spin) {
        TRY(time_beside_spinner(bench, from, series));
    }
    return time_copying(bench, locked, from, series);
}

/* Once more with slots of other memory: what is cached and known of the files stays. */
static enum status measure_again(struct bench *bench, bool locked, loader *from,
                                 struct series *series)
{
    TRY(read_warm_up(bench, from, series));
    return time_copying(bench, locked, from, series);
}

static enum status with_series(struct bench *bench, bool locked,
                               enum status (*measure)(struct bench *, bool, loader *,
                                                      struct series *))
{
    struct series series = {.intervals = malloc(MOST_TIMES * sizeof(double)),
                            .copies = malloc(MOST_TIMES * sizeof(double))};
    const enum status status = series.intervals && series.copies
                                   ? measure(bench, locked, bench->job.train_loader, &series)
                                   : FAIL(STATUS_NO_MEMORY, "no memory for times");
    free(series.intervals);
    free(series.copies);
    return status;
}

enum status ceilings__measure_loader(struct bench *bench, bool locked)
{
    return with_series(bench, locked, measure_kind);
}

enum status ceilings__measure_copying(struct bench *bench)
{
    return with_series(bench, false, measure_again);
}
