/*
 * What bounds the job and what else could be changed, from the ceilings. Factors are those of the
 * formulas: the job as it stands in its default cell, against the same with one thing changed.
 */
#include <stdio.h>
#include <string.h>

#include "experiments/ablate_internal.h"
#include "experiments/ceilings.h"

#define MAX_ADVICE 12
/* Less than this is not worth a line. */
#define LEAST_FACTOR 1.02

struct advice {
    char what[200];
    double factor; /* of samples/s; 0 when it was not measured */
};
struct advice_list {
    struct advice items[MAX_ADVICE];
    size_t count;
};

static const struct predict_cell plain = {false, false, false};
static const struct predict_cell best = {true, true, true};

static double seconds_of(const struct predict_ceilings *ceilings, const struct predict_cell *cell)
{
    enum predict_bound bound;
    return predict_formula(ceilings, cell, &bound);
}

static void advise(struct advice_list *list, double factor, const char *text)
{
    if (list->count < MAX_ADVICE && (factor == 0 || factor >= LEAST_FACTOR)) {
        struct advice *advice = &list->items[list->count++];
        snprintf(advice->what, sizeof advice->what, "%s", text);
        advice->factor = factor;
    }
}

/* Each proposal against the job in its best cell, so that what the flags bring is not counted
 * twice. */
static void collect(const struct ablation *a, const struct predict_ceilings *now,
                    struct advice_list *list)
{
    const double default_s = seconds_of(now, &plain);
    const double best_s = seconds_of(now, &best);
    char text[200];
    advise(list, default_s / best_s,
           "--pin-memory --non-blocking --copy-stream dedicated, against the default cell");
    struct predict_ceilings changed = *now;
    const struct loader_settings *job = &a->job.loader;
    const int cpus = (int)json_member_int(
        json_member(json_root(a->ceilings ? a->ceilings : a->earlier), "machine"), "cpus_allowed",
        0);
    if (job->num_workers >= 1 && cpus - 1 > job->num_workers) {
        changed.loader_s = now->loader_s * job->num_workers / (cpus - 1);
        snprintf(text, sizeof text, "--num-workers %d instead of %d", cpus - 1, job->num_workers);
        advise(list, best_s / seconds_of(&changed, &best), text);
    }
    changed = *now;
    if (job->cache != CACHE_DECODED) {
        changed.loader_s = 0;
        advise(list, best_s / seconds_of(&changed, &best),
               "--cache decoded, or a set packed at this size (the most that decoding costs)");
    }
    changed = *now;
    if (job->transfer == TRANSFER_F32) {
        changed.copy_locked_s = now->copy_locked_s / 4;
        advise(list, best_s / seconds_of(&changed, &best), "--transfer u8 instead of f32");
    }
    changed = *now;
    if (now->issue_s > now->step_s) {
        changed.issue_s = now->step_s;
        advise(list, best_s / seconds_of(&changed, &best),
               "a larger --batch-size: issuing a step takes the host longer than the GPU needs");
    }
    if (now->step_s >= 0.98 * best_s && a->job.device.precision != PRECISION_BF16) {
        advise(list, 0, "--precision bf16 (the step is the limit; not measured here)");
    }
}

static void describe(const struct ablation *a, const struct predict_ceilings *now,
                     enum predict_bound bound, char *text, size_t bytes)
{
    const double best_s = seconds_of(now, &best);
    const double busy = best_s > 0 ? 100 * now->step_s / best_s : 0;
    switch (bound) {
    case PREDICT_LOADER:
        snprintf(text, bytes,
                 "The loader bounds this job: reading and decoding take %.2f ms a batch on %d "
                 "workers, the step %.2f ms, so the GPU works %.0f %% of the time at best",
                 now->loader_s * 1e3, a->job.loader.num_workers, now->step_s * 1e3,
                 busy < 100 ? busy : 100);
        break;
    case PREDICT_COPY:
        snprintf(text, bytes,
                 "The bus bounds this job: a batch takes %.2f ms to copy even from page-locked "
                 "memory, the step %.2f ms",
                 now->copy_locked_s * 1e3, now->step_s * 1e3);
        break;
    case PREDICT_HOST:
        snprintf(text, bytes,
                 "The host bounds this job: issuing a step takes %.2f ms, the step itself %.2f ms",
                 now->issue_s * 1e3, now->step_s * 1e3);
        break;
    case PREDICT_COMPUTE:
    case PREDICT_SERIAL:
        snprintf(text, bytes,
                 "The step bounds this job: it takes %.2f ms a batch, the loader %.2f ms, a copy "
                 "%.2f ms pageable and %.2f ms page-locked",
                 now->step_s * 1e3, now->loader_s * 1e3, now->copy_pageable_s * 1e3,
                 now->copy_locked_s * 1e3);
        break;
    }
}

void ablate__write_diagnosis(const struct ablation *a, struct json_writer *writer)
{
    struct predict_ceilings now;
    struct advice_list list = {.count = 0};
    enum predict_bound bound;
    char headline[400];
    ceilings_read(a->found, json_member_int(a->facts, "batches", 1), &now);
    predict_formula(&now, &best, &bound);
    describe(a, &now, bound, headline, sizeof headline);
    collect(a, &now, &list);
    json_key(writer, "diagnosis");
    json_begin_object(writer);
    json_key_string(writer, "bound", predict_bound_text(bound));
    json_key_string(writer, "headline", headline);
    json_key(writer, "advice");
    json_begin_array(writer);
    for (size_t i = 0; i < list.count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "what", list.items[i].what);
        if (list.items[i].factor > 0) {
            json_key_double(writer, "factor", list.items[i].factor);
        }
        json_key_string(writer, "how", list.items[i].factor > 0 ? "predicted" : "not measured");
        json_end_object(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}
