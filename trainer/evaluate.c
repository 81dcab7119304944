#include "trainer/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/stop.h"

enum { RING = 3, TOP = 5 };

/* A batch under way. */
struct entry {
    int n;
    int32_t *labels;
    float *loss, *logits; /* page-locked; n x classes */
    device_event *done;
};

struct evaluator {
    struct job *job;
    int classes;
    struct host_buffer memory;
    struct entry ring[RING];
    uint64_t issued, seen;
    uint64_t *counts; /* the arrays of struct evaluation */
    uint32_t *confusion;
    double loss_sum;
    struct evaluation sums;
};

static enum status open_parts(evaluator *e)
{
    struct job *job = e->job;
    const size_t batch = (size_t)job->settings.eval_batch;
    const size_t classes = (size_t)e->classes;
    const size_t loss_bytes = 256;
    const size_t stride = loss_bytes + (batch * classes * sizeof(float) + 255) / 256 * 256;
    e->counts = calloc(classes * 3, sizeof *e->counts);
    if (!e->counts) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the counts of %d classes", e->classes);
    }
    if (e->classes <= EVALUATE_CONFUSION_CLASSES) {
        e->confusion = calloc(classes * classes, sizeof *e->confusion);
        if (!e->confusion) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the confusion matrix of %d classes",
                        e->classes);
        }
    }
    TRY(device_host_buffer_create(job->dev, stride * RING, HOST_MEMORY_ALLOCATED, &e->memory));
    for (int i = 0; i < RING; i++) {
        struct entry *entry = &e->ring[i];
        uint8_t *at = (uint8_t *)e->memory.data + stride * (size_t)i;
        entry->loss = (float *)(void *)at;
        entry->logits = (float *)(void *)(at + loss_bytes);
        entry->labels = malloc(batch * sizeof *entry->labels);
        if (!entry->labels) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the labels of a batch");
        }
        TRY(device_event_create(job->dev, false, &entry->done));
    }
    return STATUS_OK;
}

enum status evaluator_open(struct job *job, evaluator **out)
{
    evaluator *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the evaluation");
    }
    e->job = job;
    e->classes = job->settings.network.classes;
    const enum status status = open_parts(e);
    if (status != STATUS_OK) {
        evaluator_close(&e);
    }
    *out = e;
    return status;
}

void evaluator_close(evaluator **handle)
{
    evaluator *e = *handle;
    if (!e) {
        return;
    }
    for (int i = 0; i < RING; i++) {
        device_event_destroy(e->job->dev, &e->ring[i].done);
        free(e->ring[i].labels);
    }
    device_host_buffer_destroy(e->job->dev, &e->memory);
    free(e->counts);
    free(e->confusion);
    free(e);
    *handle = NULL;
}

double evaluate_row(const float *logits, int classes, int label, int *before, int *predicted)
{
    int best = 0, larger = 0;
    for (int c = 1; c < classes; c++) {
        if (logits[c] > logits[best]) {
            best = c;
        }
    }
    for (int c = 0; c < classes; c++) {
        larger += logits[c] > logits[label] || (logits[c] == logits[label] && c < label);
    }
    double sum = 0;
    const double top = (double)logits[best];
    for (int c = 0; c < classes; c++) {
        sum += exp((double)logits[c] - top);
    }
    *before = larger;
    *predicted = best;
    return log(sum) + top - (double)logits[label];
}

static enum status see_oldest(evaluator *e)
{
    const struct entry *entry = &e->ring[e->seen % RING];
    const size_t classes = (size_t)e->classes;
    struct evaluation *sums = &e->sums;
    for (int i = 0; i < entry->n; i++) {
        const int label = entry->labels[i];
        const float *logits = entry->logits + (size_t)i * classes;
        int before, predicted;
        if (label < 0) {
            continue;
        }
        const double loss = evaluate_row(logits, e->classes, label, &before, &predicted);
        if (!isfinite(loss)) {
            return FAIL(STATUS_DIVERGED,
                        "the evaluation gives values that are not finite: the weights are "
                        "worthless; lower --lr or go back to an earlier checkpoint");
        }
        e->loss_sum += loss;
        sums->samples++;
        sums->correct1 += before == 0;
        sums->correct5 += before < (e->classes < TOP ? e->classes : TOP);
        e->counts[label]++;
        e->counts[classes + (size_t)label] += predicted == label;
        e->counts[2 * classes + (size_t)predicted]++;
        if (e->confusion) {
            e->confusion[(size_t)label * classes + (size_t)predicted]++;
        }
    }
    e->seen++;
    return STATUS_OK;
}

static enum status wait_for_batches(evaluator *e, uint64_t most)
{
    while (e->issued - e->seen > most) {
        TRY(device_event_wait(e->job->dev, e->ring[e->seen % RING].done));
        TRY(see_oldest(e));
    }
    return STATUS_OK;
}

static enum status issue_batch(evaluator *e, struct batch **batch)
{
    struct job *job = e->job;
    struct entry *entry = &e->ring[e->issued % RING];
    const int n = (*batch)->n;
    entry->n = n;
    memcpy(entry->labels, (*batch)->labels, (size_t)n * sizeof *entry->labels);
    memset((*batch)->scalars, 0, sizeof *(*batch)->scalars);
    TRY(loader_upload(job->val_loader, *batch));
    TRY(network_ingest(job->net, false, (*batch)->slot, n));
    TRY(loader_release(job->val_loader, batch));
    TRY(network_evaluate(job->net, n));
    TRY(network_read_results_async(job->net, n, entry->loss, entry->logits));
    TRY(device_event_record(job->dev, entry->done, job->compute));
    e->issued++;
    return STATUS_OK;
}

static enum status run_batches(evaluator *e, struct batch **batch)
{
    for (;;) {
        TRY(stop_check());
        TRY(wait_for_batches(e, RING - 1));
        TRY(loader_next(e->job->val_loader, batch));
        if (!*batch) {
            break;
        }
        if ((*batch)->good == 0) {
            TRY(loader_release(e->job->val_loader, batch));
            continue;
        }
        TRY(issue_batch(e, batch));
    }
    return wait_for_batches(e, 0);
}

static enum status give_up(evaluator *e, struct batch **batch, enum status status)
{
    struct status_report report;
    status_save(&report, status);
    if (status != STATUS_DEVICE) {
        if ((*batch && loader_release(e->job->val_loader, batch) != STATUS_OK) ||
            device_synchronize(e->job->dev) != STATUS_OK ||
            loader_cancel_epoch(e->job->val_loader) != STATUS_OK) {
            status_clear();
        }
    }
    return status_restore(&report);
}

enum status evaluator_run(evaluator *e, struct evaluation *out)
{
    struct batch *batch = NULL;
    const size_t classes = (size_t)e->classes;
    memset(&e->sums, 0, sizeof e->sums);
    memset(e->counts, 0, classes * 3 * sizeof *e->counts);
    if (e->confusion) {
        memset(e->confusion, 0, classes * classes * sizeof *e->confusion);
    }
    e->issued = e->seen = 0;
    e->loss_sum = 0;
    const uint64_t from = clock_now_ns();
    loader_reset_counters(e->job->val_loader);
    TRY(loader_begin_epoch(e->job->val_loader, 0, 0));
    const enum status status = run_batches(e, &batch);
    if (status != STATUS_OK) {
        return give_up(e, &batch, status);
    }
    struct loader_counters counters;
    loader_read_counters(e->job->val_loader, &counters);
    struct evaluation *sums = &e->sums;
    if (sums->samples == 0) {
        return FAIL(STATUS_INVALID,
                    "none of the %zu validation images could be read, so there is nothing to "
                    "evaluate; `pinline check DIR` says why of each",
                    dataset_count(e->job->val_set));
    }
    if (counters.bad_images > 0) {
        log_warn("validation images that could not be read and do not count: %llu (`pinline check "
                 "DIR` names them)",
                 (unsigned long long)counters.bad_images);
    }
    const double samples = (double)sums->samples;
    sums->classes = e->classes;
    sums->accuracy1 = (double)sums->correct1 / samples;
    sums->accuracy5 = (double)sums->correct5 / samples;
    sums->loss = e->loss_sum / samples;
    sums->seconds = clock_seconds(from, clock_now_ns());
    sums->samples_per_s = sums->seconds > 0 ? (double)sums->samples / sums->seconds : 0;
    sums->bad_images = counters.bad_images;
    sums->class_samples = e->counts;
    sums->class_correct = e->counts + classes;
    sums->class_predicted = e->counts + 2 * classes;
    sums->confusion = e->confusion;
    *out = *sums;
    return STATUS_OK;
}

static void write_tables(const struct evaluation *result, const dataset *set,
                         struct json_writer *writer)
{
    json_key(writer, "classes");
    json_begin_array(writer);
    for (int c = 0; c < result->classes; c++) {
        const uint64_t samples = result->class_samples[c];
        const uint64_t predicted = result->class_predicted[c];
        const double correct = (double)result->class_correct[c];
        json_begin_object(writer);
        json_key_string(writer, "name", dataset_class_name(set, c));
        json_key_int(writer, "samples", (int64_t)samples);
        json_key_int(writer, "correct", (int64_t)result->class_correct[c]);
        json_key_int(writer, "predicted", (int64_t)predicted);
        json_key_double(writer, "recall", samples > 0 ? correct / (double)samples : NAN);
        json_key_double(writer, "precision", predicted > 0 ? correct / (double)predicted : NAN);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_key(writer, "confusion");
    if (!result->confusion) {
        json_null(writer);
        return;
    }
    json_begin_array(writer);
    for (int row = 0; row < result->classes; row++) {
        json_begin_array(writer);
        for (int c = 0; c < result->classes; c++) {
            json_int(writer, result->confusion[(size_t)row * (size_t)result->classes + (size_t)c]);
        }
        json_end_array(writer);
    }
    json_end_array(writer);
}

void evaluation_write(const struct evaluation *result, const dataset *set, bool tables,
                      struct json_writer *writer)
{
    json_key_int(writer, "samples", (int64_t)result->samples);
    json_key_double(writer, "accuracy", result->accuracy1);
    json_key_double(writer, "accuracy_top5", result->accuracy5);
    json_key_double(writer, "loss", result->loss);
    json_key_double(writer, "seconds", result->seconds);
    json_key_double(writer, "samples_per_s", result->samples_per_s);
    json_key_int(writer, "bad_images", (int64_t)result->bad_images);
    if (tables) {
        write_tables(result, set, writer);
    }
}
