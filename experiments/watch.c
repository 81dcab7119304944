#include "experiments/watch.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/system.h"

/* Clocks of the two ends may differ by this share before a run is marked. */
#define CLOCK_CHANGE 0.03
/* NVML's reasons that mean less speed than asked for: software and hardware thermal slowdown,
 * hardware slowdown, hardware power brake, software power cap. Idle and application clocks do not. */
#define THROTTLE_MASK                                                                              \
    (UINT64_C(0x4) | UINT64_C(0x8) | UINT64_C(0x20) | UINT64_C(0x40) | UINT64_C(0x80))

struct watch {
    device *dev;
    double period_s;
    pthread_t thread;
    pthread_mutex_t lock; /* guards `ending` alone */
    pthread_cond_t ended;
    bool ending, running;
    /* Written by the thread, read after it was joined. */
    struct system_usage begin, end;
    uint64_t available_min, resident_max, locked_max;
    struct device_sample first, last;
    double gpu_percent_sum;
    uint64_t gpu_samples, gpu_memory_max, throttle;
    int other_processes;
};

static void look(watch *w)
{
    struct system_facts facts;
    struct device_sample sample;
    system_read_facts(&facts);
    system_read_usage(&w->end);
    w->available_min =
        facts.memory_available < w->available_min ? facts.memory_available : w->available_min;
    w->resident_max =
        w->end.resident_bytes > w->resident_max ? w->end.resident_bytes : w->resident_max;
    w->locked_max = w->end.locked_bytes > w->locked_max ? w->end.locked_bytes : w->locked_max;
    device_read_sample(w->dev, &sample);
    if (!sample.valid) {
        return;
    }
    if (w->gpu_samples == 0) {
        w->first = sample;
    }
    w->last = sample;
    w->gpu_samples++;
    w->gpu_percent_sum += sample.gpu_percent;
    w->throttle |= sample.throttle_reasons & THROTTLE_MASK;
    if (sample.memory_used > w->gpu_memory_max) {
        w->gpu_memory_max = sample.memory_used;
    }
    if (sample.other_processes > w->other_processes) {
        w->other_processes = sample.other_processes;
    }
}

static void *run(void *context)
{
    watch *w = context;
    struct timespec next;
    clock_gettime(CLOCK_MONOTONIC, &next);
    pthread_mutex_lock(&w->lock);
    while (!w->ending) {
        pthread_mutex_unlock(&w->lock);
        look(w);
        pthread_mutex_lock(&w->lock);
        next.tv_sec += (time_t)w->period_s;
        next.tv_nsec += (long)((w->period_s - (double)(time_t)w->period_s) * 1e9);
        if (next.tv_nsec >= 1000000000L) {
            next.tv_nsec -= 1000000000L;
            next.tv_sec++;
        }
        while (!w->ending && pthread_cond_timedwait(&w->ended, &w->lock, &next) != ETIMEDOUT) {
        }
    }
    pthread_mutex_unlock(&w->lock);
    look(w);
    return NULL;
}

enum status watch_open(device *dev, double period_s, watch **out)
{
    *out = NULL;
    watch *w = calloc(1, sizeof *w);
    if (!w) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the watch");
    }
    w->dev = dev;
    w->period_s = period_s;
    w->available_min = UINT64_MAX;
    w->other_processes = -1;
    system_read_usage(&w->begin);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->ended, &attributes);
    pthread_condattr_destroy(&attributes);
    const int error = pthread_create(&w->thread, NULL, run, w);
    if (error != 0) {
        watch_close(&w);
        return FAIL(STATUS_LIMIT, "cannot start the watching thread: %s", strerror(error));
    }
    w->running = true;
    *out = w;
    return STATUS_OK;
}

void watch_stop(watch *w)
{
    if (!w->running) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->ending = true;
    pthread_cond_broadcast(&w->ended);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    w->running = false;
}

void watch_close(watch **handle)
{
    watch *w = *handle;
    if (!w) {
        return;
    }
    watch_stop(w);
    pthread_cond_destroy(&w->ended);
    pthread_mutex_destroy(&w->lock);
    free(w);
    *handle = NULL;
}

static uint64_t swapped_pages(const watch *w)
{
    return w->end.swap_in_pages - w->begin.swap_in_pages + w->end.swap_out_pages -
           w->begin.swap_out_pages;
}

static double throttled_seconds(const watch *w)
{
    return (double)(w->end.cgroup_throttled_ns - w->begin.cgroup_throttled_ns) * 1e-9;
}

void watch_write(const watch *w, struct json_writer *writer)
{
    json_begin_object(writer);
    json_key_int(writer, "memory_available_min", (int64_t)w->available_min);
    json_key_int(writer, "resident_max", (int64_t)w->resident_max);
    json_key_int(writer, "locked_max", (int64_t)w->locked_max);
    json_key_int(writer, "swap_pages", (int64_t)swapped_pages(w));
    json_key_double(writer, "gpu_percent_mean",
                    w->gpu_samples ? w->gpu_percent_sum / (double)w->gpu_samples : 0);
    json_key_int(writer, "gpu_memory_max", (int64_t)w->gpu_memory_max);
    json_key_int(writer, "sm_clock_begin", w->first.sm_clock_mhz);
    json_key_int(writer, "sm_clock_end", w->last.sm_clock_mhz);
    json_key_int(writer, "throttle", (int64_t)w->throttle);
    json_key_int(writer, "other_processes", w->other_processes);
    json_key_int(writer, "read_bytes", (int64_t)(w->end.read_bytes - w->begin.read_bytes));
    json_key_int(writer, "major_faults", (int64_t)(w->end.major_faults - w->begin.major_faults));
    json_key_double(writer, "throttled_s", throttled_seconds(w));
    json_key_int(writer, "steal_ticks", (int64_t)(w->end.steal_ticks - w->begin.steal_ticks));
    json_end_object(writer);
}

/* Adds a clause to a sentence; what does not fit is cut. */
static void PRINTF_LIKE(3, 4) add(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    if (used > 0 && used + 2 < bytes) {
        memcpy(text + used, "; ", 3);
        used += 2;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

char *watch_describe(const watch *w, char *text, size_t bytes)
{
    text[0] = '\0';
    if (w->gpu_samples > 1 && w->first.sm_clock_mhz > 0) {
        double change = (double)w->last.sm_clock_mhz / w->first.sm_clock_mhz - 1;
        if (change > CLOCK_CHANGE || change < -CLOCK_CHANGE) {
            add(text, bytes, "the GPU's clock went from %d to %d MHz", w->first.sm_clock_mhz,
                w->last.sm_clock_mhz);
        }
    }
    if (w->throttle) {
        add(text, bytes, "the GPU was throttled (reasons 0x%llx)", (unsigned long long)w->throttle);
    }
    if (w->other_processes > 0) {
        add(text, bytes, "%d other processes were on the GPU", w->other_processes);
    }
    if (swapped_pages(w) > 0) {
        add(text, bytes, "the machine swapped %llu pages", (unsigned long long)swapped_pages(w));
    }
    if (throttled_seconds(w) > 0.01) {
        add(text, bytes, "the CPU quota held the process for %.2f s", throttled_seconds(w));
    }
    const uint64_t steal = w->end.steal_ticks - w->begin.steal_ticks;
    if (steal > 10) {
        add(text, bytes, "the hypervisor took %llu ticks of CPU time", (unsigned long long)steal);
    }
    return text;
}
