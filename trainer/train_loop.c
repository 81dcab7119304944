#include "trainer/train_loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/stop.h"
#include "trainer/dump.h"
#include "trainer/verify.h"

enum {
    /* Entries: those under way, and as many before them, whose times the overlap needs. */
    RING = 16,
    AHEAD_LEAST = 2,
    AHEAD_MOST = 4,
    /* Floats between two losses: a cache line, so that the device's write and the host's read of
     * neighbours do not meet. */
    LOSS_STRIDE = 16,
    NAMED_SAMPLES = 4
};
_Static_assert(RING >= 2 * AHEAD_MOST + 1, "the ring must hold the steps that a copy can overlap");
_Static_assert((int)VERIFY_DEPTH >= (int)AHEAD_MOST,
               "a batch must be compared before its copy is overwritten");

/* A step that was issued. */
struct entry {
    struct train_step step; /* `loss` once it was read */
    int slot;
    device_event *begin, *end; /* in the compute stream, timed where settings.timing */
    double begin_ms, end_ms;   /* since the epoch's origin, once read */
    uint32_t *samples;         /* `step.n` numbers */
};

struct train_loop {
    struct job *job;
    struct train_hooks hooks;
    bool timing; /* settings.timing */
    int ahead;
    struct host_buffer losses_memory;    /* RING losses, LOSS_STRIDE floats apart */
    struct host_buffer logits_memory;    /* settings.forward_only: RING times a batch's logits */
    size_t logits_stride;                /* floats */
    uint64_t turn_ns, free_ns, batch_ns; /* of the step in hand: as train_step's host_begin, ... */
    device_event *origin;
    struct entry ring[RING];
    uint64_t issued, seen; /* steps of this epoch: issued >= seen, issued - seen <= ahead */
    float *losses;         /* one a batch of an epoch */
    double loss_sum;       /* over samples */
    double compute_ms, copy_ms, hidden_ms;
    uint64_t begin_ns;                  /* of the epoch */
    const struct train_epoch *progress; /* its account, while it runs */
    verifier *verify;
    batch_dump *dump;
    /* Running statistics before the step, where a step can be given up half way; otherwise NULL. */
    float *statistics;
};

/* --- Opening -------------------------------------------------------------------------------- */

/* Copies the running statistics from the network, or with `restore` back to it. */
static enum status copy_statistics(train_loop *loop, bool restore)
{
    network *net = loop->job->net;
    float *at = loop->statistics;
    for (int i = 0; i < network_parameter_count(net); i++) {
        const struct parameter *parameter = network_parameter(net, i);
        if (parameter->kind == PARAMETER_RUNNING) {
            TRY(restore ? network_set_parameter(net, i, at) : network_get_parameter(net, i, at));
            at += parameter->elements;
        }
    }
    return STATUS_OK;
}

/* A step of the host device stops between its operations, when batch norm has moved its running
 * statistics already. */
static enum status open_statistics(train_loop *loop)
{
    const struct job *job = loop->job;
    struct device_facts facts;
    size_t floats = 1;
    TRY(device_read_facts(job->dev, &facts));
    if (facts.kind != DEVICE_HOST || job->settings.device.host_mode != HOST_IMMEDIATE ||
        job->settings.forward_only || job->emulated_step) {
        return STATUS_OK;
    }
    for (int i = 0; i < network_parameter_count(job->net); i++) {
        const struct parameter *parameter = network_parameter(job->net, i);
        floats += parameter->kind == PARAMETER_RUNNING ? parameter->elements : 0;
    }
    loop->statistics = malloc(floats * sizeof *loop->statistics);
    if (!loop->statistics) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a copy of the running statistics");
    }
    return STATUS_OK;
}

static enum status open_parts(train_loop *loop)
{
    struct job *job = loop->job;
    const size_t batch = (size_t)job->settings.loader.batch_size;
    const int slots = job->train_layout.slots;
    loop->ahead = slots < AHEAD_LEAST ? AHEAD_LEAST : slots > AHEAD_MOST ? AHEAD_MOST : slots;
    loop->losses = malloc((size_t)job->train_layout.batches * sizeof *loop->losses);
    if (!loop->losses) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the losses of %u steps",
                    job->train_layout.batches);
    }
    TRY(device_host_buffer_create(job->dev, RING * LOSS_STRIDE * sizeof(float),
                                  HOST_MEMORY_ALLOCATED, &loop->losses_memory));
    if (job->settings.forward_only) {
        loop->logits_stride = batch * (size_t)job->settings.network.classes;
        TRY(device_host_buffer_create(job->dev, RING * loop->logits_stride * sizeof(float),
                                      HOST_MEMORY_ALLOCATED, &loop->logits_memory));
    }
    loop->timing = job->settings.timing;
    TRY(device_event_create(job->dev, loop->timing, &loop->origin));
    for (int i = 0; i < RING; i++) {
        struct entry *entry = &loop->ring[i];
        TRY(device_event_create(job->dev, loop->timing, &entry->begin));
        TRY(device_event_create(job->dev, loop->timing, &entry->end));
        entry->samples = malloc(batch * sizeof *entry->samples);
        if (!entry->samples) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the samples of a step");
        }
    }
    TRY(open_statistics(loop));
    if (job->settings.verify_batches) {
        TRY(verifier_open(job, &loop->verify));
    }
    if (job->settings.dump_batches) {
        TRY(batch_dump_open(job, &loop->dump));
    }
    return STATUS_OK;
}

enum status train_loop_open(struct job *job, const struct train_hooks *hooks, train_loop **out)
{
    train_loop *loop = calloc(1, sizeof *loop);
    *out = NULL;
    if (!loop) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the training loop");
    }
    loop->job = job;
    if (hooks) {
        loop->hooks = *hooks;
    }
    const enum status status = open_parts(loop);
    if (status != STATUS_OK) {
        train_loop_close(&loop);
    }
    *out = loop;
    return status;
}

void train_loop_close(train_loop **handle)
{
    train_loop *loop = *handle;
    if (!loop) {
        return;
    }
    device *dev = loop->job->dev;
    verifier_close(&loop->verify);
    batch_dump_close(&loop->dump);
    for (int i = 0; i < RING; i++) {
        device_event_destroy(dev, &loop->ring[i].begin);
        device_event_destroy(dev, &loop->ring[i].end);
        free(loop->ring[i].samples);
    }
    device_event_destroy(dev, &loop->origin);
    device_host_buffer_destroy(dev, &loop->losses_memory);
    device_host_buffer_destroy(dev, &loop->logits_memory);
    free(loop->losses);
    free(loop->statistics);
    free(loop);
    *handle = NULL;
}

/* The time, or always the same one where nothing is timed. */
static uint64_t now(const train_loop *loop)
{
    return loop->timing ? clock_now_ns() : 0;
}

/* --- Steps that are done -------------------------------------------------------------------- */

static enum status diverged(const train_loop *loop, const struct entry *entry)
{
    char names[1024];
    size_t used = 0;
    names[0] = '\0';
    for (int i = 0; i < entry->step.n && i < NAMED_SAMPLES && used < sizeof names; i++) {
        char name[160], quoted[200];
        dataset_sample_name(loop->job->train_set, entry->samples[i], name, sizeof name);
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 file_quote(name, quoted, sizeof quoted));
    }
    return FAIL(STATUS_DIVERGED,
                "the loss of step %llu (epoch %u, batch %u) is %s at learning rate %g; the batch "
                "held %s%s (%d images); lower --lr (%g for instance) or add --warmup-epochs, and "
                "look at these images; checkpoints hold the weights from before",
                (unsigned long long)entry->step.step, entry->step.epoch + 1, entry->step.batch,
                isnan(entry->step.loss) ? "not a number" : "infinite", entry->step.rate, names,
                entry->step.n > NAMED_SAMPLES ? ", ..." : "", entry->step.n, entry->step.rate / 10);
}

static double overlap(double a_begin, double a_end, double b_begin, double b_end)
{
    const double begin = a_begin > b_begin ? a_begin : b_begin;
    const double end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

/*
 * Places a step and its copy on the device's clock. Times are counted from the event that is nearest
 * before, since a difference loses digits with its length. The copy was issued after the host had
 * seen the step `ahead` before it end, so it overlaps none but the steps in between.
 */
static enum status read_times(train_loop *loop, struct entry *entry)
{
    device *dev = loop->job->dev;
    const uint64_t number = loop->seen;
    const struct entry *before = number > 0 ? &loop->ring[(number - 1) % RING] : NULL;
    const uint64_t ahead = (uint64_t)loop->ahead;
    const struct entry *ended = number >= ahead ? &loop->ring[(number - ahead) % RING] : NULL;
    double gap, length, copy_wait, copy_length;
    TRY(device_event_elapsed(dev, before ? before->end : loop->origin, entry->begin, &gap));
    TRY(device_event_elapsed(dev, entry->begin, entry->end, &length));
    entry->begin_ms = (before ? before->end_ms : 0) + gap;
    entry->end_ms = entry->begin_ms + length;
    device_event *copy_from, *copy_to;
    loader_copy_events(loop->job->train_loader, entry->slot, &copy_from, &copy_to);
    TRY(device_event_elapsed(dev, ended ? ended->end : loop->origin, copy_from, &copy_wait));
    TRY(device_event_elapsed(dev, copy_from, copy_to, &copy_length));
    const double copy_begin = (ended ? ended->end_ms : 0) + copy_wait;
    for (uint64_t other = number >= ahead ? number - ahead : 0; other < number; other++) {
        const struct entry *running = &loop->ring[other % RING];
        loop->hidden_ms +=
            overlap(copy_begin, copy_begin + copy_length, running->begin_ms, running->end_ms);
    }
    entry->step.copy_begin = copy_begin * 1e-3;
    entry->step.copy_end = (copy_begin + copy_length) * 1e-3;
    entry->step.begin = entry->begin_ms * 1e-3;
    entry->step.end = entry->end_ms * 1e-3;
    loop->compute_ms += length;
    loop->copy_ms += copy_length;
    return STATUS_OK;
}

/* The oldest step under way has run. */
static enum status see_oldest(train_loop *loop)
{
    struct entry *entry = &loop->ring[loop->seen % RING];
    const float *losses = loop->losses_memory.data;
    /* An emulated step computes none. */
    entry->step.loss = loop->job->emulated_step ? 0 : losses[(loop->seen % RING) * LOSS_STRIDE];
    if (loop->timing) {
        TRY(read_times(loop, entry));
    }
    loop->losses[loop->seen] = entry->step.loss;
    loop->seen++;
    if (loop->verify) {
        TRY(verifier_check(loop->verify));
    }
    if (!isfinite(entry->step.loss)) {
        return diverged(loop, entry);
    }
    loop->loss_sum += (double)entry->step.loss * entry->step.good;
    if (loop->hooks.seen) {
        TRY(loop->hooks.seen(loop->hooks.context, &entry->step));
    }
    return STATUS_OK;
}

/* Reads what is complete without waiting. */
static enum status poll(train_loop *loop)
{
    while (loop->seen < loop->issued) {
        bool complete = false;
        TRY(device_event_query(loop->job->dev, loop->ring[loop->seen % RING].end, &complete));
        if (!complete) {
            break;
        }
        TRY(see_oldest(loop));
    }
    return STATUS_OK;
}

/* Waits until at most `most` steps are under way. */
static enum status wait_for_steps(train_loop *loop, uint64_t most, struct train_epoch *result)
{
    while (loop->issued - loop->seen > most) {
        device_event *end = loop->ring[loop->seen % RING].end;
        bool complete = false;
        TRY(device_event_query(loop->job->dev, end, &complete));
        if (!complete) {
            const uint64_t from = now(loop);
            TRY(device_event_wait(loop->job->dev, end));
            result->host.wait_device += clock_seconds(from, now(loop));
            result->waits_device++;
        }
        TRY(see_oldest(loop));
    }
    return STATUS_OK;
}

/* --- One step ------------------------------------------------------------------------------- */

/* Submits the step; one that was given up half way leaves no trace. */
static enum status submit_step(train_loop *loop, int n)
{
    struct job *job = loop->job;
    if (loop->statistics) {
        TRY(copy_statistics(loop, false));
    }
    const enum status status = job_submit_step(job, n);
    if (status == STATUS_INTERRUPTED && loop->statistics) {
        TRY(copy_statistics(loop, true));
    }
    return status;
}

static enum status issue_step(train_loop *loop, struct batch **batch, uint64_t step,
                              struct train_epoch *result)
{
    struct job *job = loop->job;
    const int number = (int)(loop->issued % RING);
    struct entry *entry = &loop->ring[number];
    const int n = (*batch)->n;
    schedule_fill(&job->schedule, step, (*batch)->scalars);
    entry->step = (struct train_step){.step = step,
                                      .epoch = (*batch)->epoch,
                                      .batch = (*batch)->index,
                                      .n = n,
                                      .good = (*batch)->good,
                                      .rate = schedule_rate(&job->schedule, step)};
    entry->slot = (*batch)->slot;
    memcpy(entry->samples, (*batch)->samples, (size_t)n * sizeof *entry->samples);

    const uint64_t before_copy = now(loop);
    TRY(loader_upload(job->train_loader, *batch));
    const uint64_t before_issue = now(loop);
    if (loop->timing) {
        TRY(device_event_record(job->dev, entry->begin, job->compute));
    }
    TRY(network_ingest(job->net, !job->settings.forward_only, entry->slot, n));
    if (loop->verify) {
        TRY(verifier_submit(loop->verify, *batch, step));
    }
    if (loop->dump) {
        TRY(batch_dump_add(loop->dump, *batch));
    }
    TRY(loader_release(job->train_loader, batch));
    TRY(submit_step(loop, n));
    float *losses = loop->losses_memory.data;
    float *logits = loop->logits_memory.data;
    TRY(network_read_results_async(job->net, n, &losses[number * LOSS_STRIDE],
                                   logits ? logits + (size_t)number * loop->logits_stride : NULL));
    TRY(device_event_record(job->dev, entry->end, job->compute));
    loop->issued++;
    if (loop->timing) {
        const uint64_t after_issue = clock_now_ns();
        result->host.copy += clock_seconds(before_copy, before_issue);
        result->host.issue += clock_seconds(before_issue, after_issue);
        entry->step.host_begin = clock_seconds(loop->begin_ns, loop->turn_ns);
        entry->step.host_free = clock_seconds(loop->begin_ns, loop->free_ns);
        entry->step.host_batch = clock_seconds(loop->begin_ns, loop->batch_ns);
        entry->step.host_copied = clock_seconds(loop->begin_ns, before_issue);
        entry->step.host_issued = clock_seconds(loop->begin_ns, after_issue);
    }
    result->samples += (uint64_t)entry->step.good;
    result->rate = entry->step.rate;
    return STATUS_OK;
}

static enum status pause_if_due(train_loop *loop, uint64_t step, struct train_epoch *result)
{
    const struct train_hooks *hooks = &loop->hooks;
    if (!hooks->pause || hooks->pause_every == 0 || (step + 1) % hooks->pause_every != 0) {
        return STATUS_OK;
    }
    TRY(wait_for_steps(loop, 0, result));
    return hooks->pause(hooks->context, result->epoch, result->next_batch);
}

/* Trains until the end of the range; *batch is what is in hand when that fails. */
static enum status run_batches(train_loop *loop, uint32_t end_batch, struct batch **batch,
                               struct train_epoch *result)
{
    struct job *job = loop->job;
    const uint64_t first_step = (uint64_t)result->epoch * job->train_layout.batches;
    while (result->next_batch < end_batch) {
        TRY(stop_check());
        loop->turn_ns = now(loop);
        TRY(wait_for_steps(loop, (uint64_t)loop->ahead - 1, result));
        loop->free_ns = now(loop);
        const enum status status = loader_next(job->train_loader, batch);
        loop->batch_ns = now(loop);
        result->host.wait_batch += clock_seconds(loop->free_ns, loop->batch_ns);
        TRY(status);
        if (!*batch) {
            break;
        }
        const uint64_t step = first_step + (*batch)->index;
        if ((*batch)->good == 0) {
            if (loop->verify) {
                TRY(wait_for_steps(loop, 0, result)); /* those kept are counted in steps */
            }
            TRY(loader_release(job->train_loader, batch));
            result->left_out++;
        } else {
            TRY(issue_step(loop, batch, step, result));
        }
        result->next_batch++;
        TRY(poll(loop));
        TRY(pause_if_due(loop, step, result));
    }
    TRY(wait_for_steps(loop, 0, result));
    return STATUS_OK;
}

/* --- The epoch ------------------------------------------------------------------------------ */

/* After a failure: steps under way are seen to their end, so that the weights stand at next_batch,
 * and the loader is ready for another epoch. Keeps the worse of two failures. */
static enum status give_up_epoch(train_loop *loop, struct batch **batch, enum status status,
                                 struct train_epoch *result)
{
    struct status_report report;
    status_save(&report, status);
    if (status == STATUS_DEVICE) {
        return status;
    }
    if (*batch && loader_release(loop->job->train_loader, batch) != STATUS_OK) {
        status_clear();
    }
    enum status later = STATUS_OK;
    if (status == STATUS_DIVERGED || status == STATUS_MISMATCH) {
        later = device_synchronize(loop->job->dev);
    } else {
        later = wait_for_steps(loop, 0, result);
    }
    if (later == STATUS_DIVERGED || later == STATUS_MISMATCH || later == STATUS_DEVICE) {
        status_save(&report, later);
        if (later != STATUS_DEVICE && device_synchronize(loop->job->dev) != STATUS_OK) {
            status_clear();
        }
    }
    if (loader_cancel_epoch(loop->job->train_loader) != STATUS_OK) {
        status_clear();
    }
    return status_restore(&report);
}

static void close_account(train_loop *loop, uint64_t from_ns, uint64_t cpu_from_ns,
                          struct train_epoch *result)
{
    struct train_host_time *host = &result->host;
    struct train_device_time *on_device = &result->device;
    result->seconds = clock_seconds(from_ns, clock_now_ns());
    if (loop->timing) {
        result->host_cpu_ns = clock_thread_cpu_ns() - cpu_from_ns;
        host->rest =
            result->seconds - host->wait_batch - host->copy - host->issue - host->wait_device;
    }
    result->samples_per_s = result->seconds > 0 ? (double)result->samples / result->seconds : 0;
    result->losses = loop->losses;
    result->steps = (size_t)loop->seen;
    result->loss_hash = hash_bytes(HASH_START, loop->losses, result->steps * sizeof *loop->losses);
    result->loss = result->samples > 0 ? loop->loss_sum / (double)result->samples : NAN;
    if (loop->seen > 0 && loop->timing) {
        on_device->span = loop->ring[(loop->seen - 1) % RING].end_ms / 1000;
    }
    on_device->compute = loop->compute_ms / 1000;
    on_device->copy = loop->copy_ms / 1000;
    on_device->hidden = loop->hidden_ms / 1000;
    on_device->idle = on_device->span - on_device->compute - on_device->copy + on_device->hidden;
    loader_read_counters(loop->job->train_loader, &result->counters);
}

enum status train_loop_epoch(train_loop *loop, uint32_t epoch, uint32_t first_batch,
                             uint32_t end_batch, struct train_epoch *result)
{
    struct job *job = loop->job;
    struct batch *batch = NULL;
    const uint32_t batches = job->train_layout.batches;
    if (end_batch == 0 || end_batch > batches) {
        end_batch = batches;
    }
    memset(result, 0, sizeof *result);
    result->epoch = epoch;
    result->first_batch = result->next_batch = first_batch;
    loop->issued = loop->seen = 0;
    loop->loss_sum = loop->compute_ms = loop->copy_ms = loop->hidden_ms = 0;
    TRY(device_synchronize(job->dev));
    loader_reset_counters(job->train_loader);
    const uint64_t from_ns = clock_now_ns();
    const uint64_t cpu_from_ns = loop->timing ? clock_thread_cpu_ns() : 0;
    loop->begin_ns = from_ns;
    loop->progress = result;
    if (loop->timing) {
        TRY(device_event_record(job->dev, loop->origin, job->compute));
    }
    TRY(loader_begin_epoch(job->train_loader, epoch, first_batch));
    enum status status = run_batches(loop, end_batch, &batch, result);
    if (status == STATUS_OK) {
        const uint64_t before_wait = now(loop);
        status = device_synchronize(job->dev);
        result->host.wait_device += clock_seconds(before_wait, now(loop));
    } else {
        status = give_up_epoch(loop, &batch, status, result);
    }
    close_account(loop, from_ns, cpu_from_ns, result);
    loop->progress = NULL;
    TRY(status);
    /* The end of an epoch is where next returns none; an epoch that ends before it is given up. */
    if (result->next_batch < batches) {
        return loader_cancel_epoch(job->train_loader);
    }
    TRY(loader_next(job->train_loader, &batch));
    if (batch) {
        return FAIL(STATUS_INTERNAL, "epoch %u has more than its %u batches", epoch + 1, batches);
    }
    return STATUS_OK;
}

enum status train_loop_finish(train_loop *loop)
{
    return loop->dump ? batch_dump_finish(loop->dump) : STATUS_OK;
}

void train_loop_read_progress(const train_loop *loop, double *seconds, double *waiting)
{
    *seconds = loop->progress ? clock_seconds(loop->begin_ns, clock_now_ns()) : 0;
    *waiting = loop->progress ? loop->progress->host.wait_batch : 0;
}

uint64_t train_loop_verified(const train_loop *loop)
{
    return loop->verify ? verifier_count(loop->verify) : 0;
}
