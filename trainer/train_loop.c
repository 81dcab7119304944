#include "trainer/train_loop.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/stop.h"
#include "trainer/train_loop_internal.h"

enum {
    AHEAD_LEAST = 2,
    AHEAD_MOST = 4,
    /* Floats between two losses: a cache line, so that the device's write and the host's read of
     * neighbours do not meet. */
    LOSS_STRIDE = 16,
    NAMED_SAMPLES = 4
};
_Static_assert(TRAIN_LOOP_RING >= 2 * AHEAD_MOST + 1,
               "the ring must hold the steps that a copy can overlap");
_Static_assert((int)VERIFY_DEPTH >= (int)AHEAD_MOST,
               "a batch must be compared before its copy is overwritten");

int train_loop_ahead(int slots)
{
    return slots < AHEAD_LEAST ? AHEAD_LEAST : slots > AHEAD_MOST ? AHEAD_MOST : slots;
}

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
    loop->ahead = train_loop_ahead(job->train_layout.slots);
    loop->losses = malloc((size_t)job->train_layout.batches * sizeof *loop->losses);
    if (!loop->losses) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the losses of %u steps",
                    job->train_layout.batches);
    }
    TRY(device_host_buffer_create(job->dev, TRAIN_LOOP_RING * LOSS_STRIDE * sizeof(float),
                                  HOST_MEMORY_ALLOCATED, &loop->losses_memory));
    if (job->settings.forward_only) {
        loop->logits_stride = batch * (size_t)job->settings.network.classes;
        TRY(device_host_buffer_create(job->dev,
                                      TRAIN_LOOP_RING * loop->logits_stride * sizeof(float),
                                      HOST_MEMORY_ALLOCATED, &loop->logits_memory));
    }
    loop->timing = job->settings.timing;
    TRY(device_event_create(job->dev, loop->timing, &loop->origin));
    for (int i = 0; i < TRAIN_LOOP_RING; i++) {
        struct train_loop_entry *entry = &loop->ring[i];
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
    for (int i = 0; i < TRAIN_LOOP_RING; i++) {
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

/* --- Steps that are done -------------------------------------------------------------------- */

static enum status diverged(const train_loop *loop, const struct train_loop_entry *entry)
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

/* The oldest step under way has run. */
static enum status see_oldest(train_loop *loop)
{
    struct train_loop_entry *entry = &loop->ring[loop->seen % TRAIN_LOOP_RING];
    const float *losses = loop->losses_memory.data;
    /* An emulated step computes none. */
    entry->step.loss =
        loop->job->emulated_step ? 0 : losses[(loop->seen % TRAIN_LOOP_RING) * LOSS_STRIDE];
    if (loop->timing) {
        TRY(train_loop__read_times(loop, entry));
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
        TRY(device_event_query(loop->job->dev, loop->ring[loop->seen % TRAIN_LOOP_RING].end,
                               &complete));
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
        device_event *end = loop->ring[loop->seen % TRAIN_LOOP_RING].end;
        bool complete = false;
        TRY(device_event_query(loop->job->dev, end, &complete));
        if (!complete) {
            const uint64_t from = train_loop__now(loop);
            TRY(device_event_wait(loop->job->dev, end));
            result->host.wait_device += clock_seconds(from, train_loop__now(loop));
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
    const int number = (int)(loop->issued % TRAIN_LOOP_RING);
    struct train_loop_entry *entry = &loop->ring[number];
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

    const uint64_t before_copy = train_loop__now(loop);
    TRY(loader_upload(job->train_loader, *batch));
    const uint64_t before_issue = train_loop__now(loop);
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
        loop->turn_ns = train_loop__now(loop);
        TRY(wait_for_steps(loop, (uint64_t)loop->ahead - 1, result));
        loop->free_ns = train_loop__now(loop);
        const enum status status = loader_next(job->train_loader, batch);
        loop->batch_ns = train_loop__now(loop);
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
        const uint64_t before_wait = train_loop__now(loop);
        status = device_synchronize(job->dev);
        result->host.wait_device += clock_seconds(before_wait, train_loop__now(loop));
    } else {
        status = give_up_epoch(loop, &batch, status, result);
    }
    train_loop__close_account(loop, from_ns, cpu_from_ns, result);
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
