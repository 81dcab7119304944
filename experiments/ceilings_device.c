/* The step, its issuing, and copies, each alone. */
#include <string.h>

#include "base/clock.h"
#include "base/statistics.h"
#include "base/stop.h"
#include "experiments/ceilings_internal.h"

enum {
    CALL_REPEATS = 7,
    WARM_STEPS = 5,
    STEP_GROUPS = 7,
    LEAST_GROUPS = 3,
    LEAST_STEPS = 4,
    MOST_STEPS = 1 << 20,
    LOSS_FLOATS = 64, /* before the logits */
    ISSUE_REPEATS = 40,
    LEAST_ISSUES = 10,
    MOST_COPY_SLOTS = 64,
    MOST_COPY_GROUPS = 1000
};
/* A busy stream, for the time inside a copy call behind it. */
#define BUSY_S 0.01

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

/* What the step of an epoch does with a batch that is on the device. */
struct step {
    int slot, n;
    struct host_buffer results; /* loss, and logits where inference reads them */
    device_event *from, *to;
};

static enum status submit_step(struct job *job, const struct step *step)
{
    const bool inference = job->settings.forward_only;
    float *results = step->results.data;
    TRY(network_ingest(job->net, !inference, step->slot, step->n));
    TRY(job_submit_step(job, step->n));
    return network_read_results_async(job->net, step->n, results,
                                      inference ? results + LOSS_FLOATS : NULL);
}

static bool is_time_left(const struct bench *bench, uint64_t begin_ns)
{
    return clock_seconds(begin_ns, clock_now_ns()) < bench->seconds;
}

static enum status time_group(struct bench *bench, const struct step *step, int steps,
                              double *seconds)
{
    struct job *job = &bench->job;
    double milliseconds = 0;
    TRY(device_synchronize(job->dev));
    TRY(device_event_record(job->dev, step->from, job->compute));
    for (int i = 0; i < steps; i++) {
        TRY(submit_step(job, step));
    }
    TRY(device_event_record(job->dev, step->to, job->compute));
    TRY(device_event_wait(job->dev, step->to));
    TRY(device_event_elapsed(job->dev, step->from, step->to, &milliseconds));
    *seconds = milliseconds * 1e-3;
    return stop_check();
}

/* Groups of steps that follow each other without a gap, of a length that fits the time; the median
 * of the groups. */
static enum status time_steps(struct bench *bench, const struct step *step, double *step_s)
{
    double group_s = 0, times[STEP_GROUPS];
    const double wanted_s = bench->seconds / STEP_GROUPS;
    int steps = LEAST_STEPS;
    TRY(time_group(bench, step, WARM_STEPS, &group_s));
    for (;;) {
        TRY(time_group(bench, step, steps, &group_s));
        if (group_s >= wanted_s || steps >= MOST_STEPS) {
            break;
        }
        const double factor = 1.1 * wanted_s / (group_s > 1e-6 ? group_s : 1e-6);
        steps = factor > 64 ? 64 * steps : factor > 2 ? (int)(factor * steps) : 2 * steps;
    }
    size_t count = 0;
    const uint64_t begin = clock_now_ns();
    do {
        TRY(time_group(bench, step, steps, &group_s));
        times[count++] = group_s / steps;
    } while (count < LEAST_GROUPS || (count < STEP_GROUPS && is_time_left(bench, begin)));
    *step_s = statistics_median(times, count);
    return STATUS_OK;
}

/* Host time of issuing a step behind an idle stream; and what a step costs beyond itself when the
 * host begins it with an idle device and sees its end: the way of the first launch to the device, and
 * the host's waking up. */
static enum status time_issue(struct bench *bench, const struct step *step, double step_s)
{
    struct job *job = &bench->job;
    struct found *found = &bench->found;
    double issue[ISSUE_REPEATS], whole[ISSUE_REPEATS];
    size_t count = 0;
    const uint64_t first = clock_now_ns();
    while (count < LEAST_ISSUES || (count < ISSUE_REPEATS && is_time_left(bench, first))) {
        TRY(device_synchronize(job->dev));
        const uint64_t begin = clock_now_ns();
        TRY(submit_step(job, step));
        TRY(device_event_record(job->dev, step->to, job->compute));
        const uint64_t issued = clock_now_ns();
        TRY(device_event_wait(job->dev, step->to));
        issue[count] = clock_seconds(begin, issued);
        whole[count++] = clock_seconds(begin, clock_now_ns());
        TRY(stop_check());
    }
    struct device_facts facts;
    TRY(device_read_facts(job->dev, &facts));
    /* Without a stream to submit to, issuing is the step itself. */
    const bool is_step =
        facts.kind == DEVICE_HOST && job->settings.device.host_mode != HOST_SIMULATED;
    found->issue_s = is_step ? 0 : statistics_median(issue, count);
    const double longer = step_s > found->issue_s ? step_s : found->issue_s;
    /* The lower quartile, since what disturbs a wait only lengthens it. */
    const double beyond = statistics_quantile(whole, count, 0.25) - longer;
    found->wake_s = beyond > 0 ? beyond : 0;
    return STATUS_OK;
}

enum status ceilings__measure_step(struct bench *bench, bool locked)
{
    double *step_s = &bench->found.step_s[locked];
    struct job *job = &bench->job;
    struct step step = {0};
    enum status status = keep_one_batch(bench, &step.slot, &step.n);
    if (status == STATUS_OK) {
        const size_t logits = (size_t)step.n * (size_t)job->settings.network.classes;
        status = device_host_buffer_create(job->dev, (LOSS_FLOATS + logits) * sizeof(float),
                                           HOST_MEMORY_ALLOCATED, &step.results);
    }
    if (status == STATUS_OK) {
        status = device_event_create(job->dev, true, &step.from);
    }
    if (status == STATUS_OK) {
        status = device_event_create(job->dev, true, &step.to);
    }
    if (status == STATUS_OK) {
        status = time_steps(bench, &step, step_s);
    }
    /* Submitting and waking know nothing of the slots' memory. */
    if (status == STATUS_OK && !locked) {
        status = time_issue(bench, &step, *step_s);
    }
    device_event_destroy(job->dev, &step.from);
    device_event_destroy(job->dev, &step.to);
    device_host_buffer_destroy(job->dev, &step.results);
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

/* Rings of copies, one ring without a gap; the median ring. */
static enum status time_copies(struct bench *bench, struct copy_ring *ring, double *seconds)
{
    static double times[MOST_COPY_GROUPS];
    device *dev = bench->job.dev;
    size_t count = 0;
    for (int i = 0; i < ring->count; i++) {
        TRY(submit_copy(bench, ring, i));
    }
    const uint64_t begin = clock_now_ns();
    do {
        double milliseconds = 0;
        TRY(device_stream_wait(dev, ring->stream));
        TRY(device_event_record(dev, ring->from, ring->stream));
        for (int i = 0; i < ring->count; i++) {
            TRY(submit_copy(bench, ring, i));
        }
        TRY(device_event_record(dev, ring->to, ring->stream));
        TRY(device_event_wait(dev, ring->to));
        TRY(device_event_elapsed(dev, ring->from, ring->to, &milliseconds));
        TRY(stop_check());
        times[count++] = milliseconds * 1e-3 / ring->count;
    } while (count < MOST_COPY_GROUPS && clock_seconds(begin, clock_now_ns()) < bench->seconds / 2);
    *seconds = statistics_median(times, count);
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
        if (status == STATUS_OK) {
            status = stop_check();
        }
    }
    if (status == STATUS_OK) {
        status = device_stream_wait(dev, ring->stream);
        bench->found.call_s[locked] = statistics_median(idle, CALL_REPEATS);
        bench->found.call_busy_s[locked] = statistics_median(busy, CALL_REPEATS);
    }
    device_program_destroy(dev, &delay);
    return status;
}

enum status ceilings__measure_copies(struct bench *bench, bool locked)
{
    struct copy_ring ring = {0};
    enum status status = open_ring(bench, locked, &ring);
    if (status == STATUS_OK) {
        status = time_copies(bench, &ring, &bench->found.copy_quiet_s[locked]);
    }
    if (status == STATUS_OK) {
        status = time_calls(bench, &ring, locked);
    }
    close_ring(bench, &ring);
    return status;
}
