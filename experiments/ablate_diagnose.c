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

/* What was measured, by kind of memory. */
struct both_kinds {
    struct predict_ceilings pageable, locked;
};

static const struct predict_ceilings *kind_of(const struct both_kinds *ceilings,
                                              const struct predict_cell *cell)
{
    return cell->pin ? &ceilings->locked : &ceilings->pageable;
}

static double seconds_of(const struct both_kinds *ceilings, const struct predict_cell *cell)
{
    enum predict_bound bound;
    return predict_formula(kind_of(ceilings, cell), cell, &bound);
}

static void scale_loader(struct both_kinds *ceilings, double factor)
{
    ceilings->pageable.loader_s *= factor;
    ceilings->locked.loader_s *= factor;
}

static void advise(struct advice_list *list, double factor, const char *text)
{
    if (list->count < MAX_ADVICE && (factor == 0 || factor >= LEAST_FACTOR)) {
        struct advice *advice = &list->items[list->count++];
        snprintf(advice->what, sizeof advice->what, "%s", text);
        advice->factor = factor;
    }
}

/* Which part a cell waits for. Where copy and step follow each other, the longer of the two; both,
 * when they are within a third of each other. */
static enum predict_bound bound_of(const struct both_kinds *ceilings,
                                   const struct predict_cell *cell)
{
    const struct predict_ceilings *now = kind_of(ceilings, cell);
    enum predict_bound bound;
    predict_formula(now, cell, &bound);
    if (bound != PREDICT_SERIAL) {
        return bound;
    }
    const double copy_s = cell->pin ? now->copy_locked_s : now->copy_pageable_s;
    const double step_s = now->step_s > now->issue_s ? now->step_s : now->issue_s;
    if (copy_s > step_s * 4 / 3) {
        return PREDICT_COPY;
    }
    if (step_s > copy_s * 4 / 3) {
        return now->issue_s > now->step_s ? PREDICT_HOST : PREDICT_COMPUTE;
    }
    return PREDICT_SERIAL;
}

/* Twice the batch: what grows with it does, and what a step costs however large it is stays. */
static double larger_batch(const struct both_kinds *now, double best_s)
{
    struct both_kinds twice = *now;
    twice.locked.loader_s *= 2;
    twice.locked.step_s *= 2;
    twice.locked.copy_locked_s *= 2;
    return 2 * best_s / seconds_of(&twice, &best);
}

static void advise_loader(const struct ablation *a, const struct both_kinds *now, double best_s,
                          struct advice_list *list)
{
    const struct loader_settings *job = &a->job.loader;
    const struct json_value *machine = ablate__from_ceilings(a, "machine");
    const int cpus = (int)json_member_int(machine, "cpus_allowed", 0);
    const double read_share = json_member_double(a->found, "read_share", 0);
    const double decode_share = json_member_double(a->found, "decode_share", 0);
    struct both_kinds changed = *now;
    char text[sizeof list->items[0].what];
    if (job->num_workers >= 1 && cpus - 1 > job->num_workers) {
        scale_loader(&changed, (double)job->num_workers / (cpus - 1));
        snprintf(text, sizeof text, "--num-workers %d instead of %d", cpus - 1, job->num_workers);
        advise(list, best_s / seconds_of(&changed, &best), text);
    }
    if (job->cache == CACHE_DECODED) {
        return;
    }
    changed = *now;
    scale_loader(&changed, 1 - decode_share);
    snprintf(text, sizeof text,
             "--cache decoded, or a set packed decoded at this size: decoding is %.0f %% of the "
             "workers' time",
             100 * decode_share);
    advise(list, best_s / seconds_of(&changed, &best), text);
    changed = *now;
    scale_loader(&changed, 1 - decode_share / 2);
    advise(list, best_s / seconds_of(&changed, &best),
           "images stored at about the size that is trained on, if that halves decoding");
    changed = *now;
    scale_loader(&changed, 1 - read_share);
    snprintf(text, sizeof text,
             "--cache encoded, or a packed set: opening and reading files is %.0f %% of the "
             "workers' time",
             100 * read_share);
    advise(list, best_s / seconds_of(&changed, &best), text);
}

/* Whether rounds measure what all the flags together bring: then nobody wants a prediction of it. */
static bool measures_best(const struct ablation *a)
{
    bool first = false, last = false;
    for (size_t i = 0; i < a->cells.count; i++) {
        first = first || strcmp(a->cells.cells[i].name, "default") == 0;
        last = last || strcmp(a->cells.cells[i].name, "both+stream") == 0;
    }
    return first && last && !a->settings->predict_only;
}

/* Each proposal against the job in its best cell, so that what the flags bring is not counted
 * twice. */
static void collect(const struct ablation *a, const struct both_kinds *now,
                    struct advice_list *list)
{
    const double default_s = seconds_of(now, &plain);
    const double best_s = seconds_of(now, &best);
    struct both_kinds changed = *now;
    if (!measures_best(a)) {
        advise(list, default_s / best_s,
               "--pin-memory --non-blocking --copy-stream dedicated, against the default cell");
    }
    advise_loader(a, now, best_s, list);
    if (a->job.loader.transfer == TRANSFER_F32) {
        /* Workers write a quarter of the bytes as well; that is not counted. */
        changed.locked.copy_locked_s = now->locked.copy_locked_s / 4;
        changed.pageable.copy_pageable_s = now->pageable.copy_pageable_s / 4;
        changed.locked.loader_s = now->locked.loader_quiet_s;
        changed.pageable.loader_s = now->pageable.loader_quiet_s;
        advise(list, best_s / seconds_of(&changed, &best),
               "--transfer u8 instead of f32, in the best cell");
        advise(list, default_s / seconds_of(&changed, &plain),
               "--transfer u8 instead of f32, in the default cell");
    }
    advise(list, larger_batch(now, best_s),
           "twice the --batch-size, if loader, copy and step then take twice as long");
    const bool step_is_limit = now->locked.step_s >= 0.98 * best_s && a->job.step_seconds <= 0;
    if (step_is_limit && a->job.device.precision != PRECISION_BF16) {
        advise(list, 0, "--precision bf16, since the step is the limit");
    }
}

/* " (1.23 ms beside page-locked slots)" where that differs by more than 5 %, otherwise "". */
static const char *with_locked(double pageable_s, double locked_s, const char *where, char *text,
                               size_t bytes)
{
    text[0] = '\0';
    if (locked_s > 1.05 * pageable_s || locked_s < 0.95 * pageable_s) {
        snprintf(text, bytes, " (%.2f ms%s)", locked_s * 1e3, where);
    }
    return text;
}

static bool on_host(const struct ablation *a)
{
    const struct json_value *on = ablate__from_ceilings(a, "device");
    return strcmp(json_member_string(on, "kind", ""), "host") == 0;
}

static void describe(const struct ablation *a, const struct both_kinds *kinds,
                     enum predict_bound bound, enum predict_bound best_bound, char *text,
                     size_t bytes)
{
    const struct predict_ceilings *now = &kinds->pageable;
    static const char *const with_flags[] = {
        "the loader would be next", "copying would still be it", "the step would be next",
        "the host's issuing would be next", "copying and the step would be"};
    const double best_s = seconds_of(kinds, &best), default_s = seconds_of(kinds, &plain);
    char locked_loader[80], locked_step[80];
    switch (bound) {
    case PREDICT_LOADER: {
        const double busy = best_s > 0 ? 100 * kinds->locked.step_s / best_s : 0;
        snprintf(text, bytes,
                 "The loader bounds this job: a batch takes %.2f ms to read and decode with %d "
                 "worker%s%s, the step %.2f ms%s, so the %s works %.0f %% of the time at best, "
                 "whatever the flags",
                 now->loader_s * 1e3, a->job.loader.num_workers,
                 a->job.loader.num_workers == 1 ? "" : "s",
                 with_locked(now->loader_s, kinds->locked.loader_s, " into page-locked slots",
                             locked_loader, sizeof locked_loader),
                 now->step_s * 1e3,
                 with_locked(now->step_s, kinds->locked.step_s, " beside page-locked slots",
                             locked_step, sizeof locked_step),
                 on_host(a) ? "device" : "GPU", busy < 100 ? busy : 100);
        break;
    }
    case PREDICT_COPY:
    case PREDICT_SERIAL:
        snprintf(
            text, bytes,
            "Copying bounds this job in its default cell: %.2f ms a batch from pageable memory "
            "(%.2f ms page-locked) before each step of %.2f ms; with all flags %s, at %.2f ms "
            "a batch instead of %.2f",
            now->copy_pageable_s * 1e3, now->copy_locked_s * 1e3, now->step_s * 1e3,
            with_flags[best_bound], best_s * 1e3, default_s * 1e3);
        break;
    case PREDICT_HOST:
        snprintf(text, bytes,
                 "The host bounds this job: issuing a step takes %.2f ms, the step itself %.2f ms",
                 now->issue_s * 1e3, now->step_s * 1e3);
        break;
    case PREDICT_COMPUTE:
        snprintf(text, bytes,
                 "The step bounds this job: it takes %.2f ms a batch%s, the loader %.2f ms, a copy "
                 "%.2f ms pageable and %.2f ms page-locked",
                 now->step_s * 1e3,
                 with_locked(now->step_s, kinds->locked.step_s, " beside page-locked slots",
                             locked_step, sizeof locked_step),
                 now->loader_s * 1e3, now->copy_pageable_s * 1e3, now->copy_locked_s * 1e3);
        break;
    }
}

void ablate__write_diagnosis(const struct ablation *a, struct json_writer *writer)
{
    struct both_kinds now;
    struct advice_list list = {.count = 0};
    char headline[500];
    ceilings_read(a->found, a->batches, false, &now.pageable);
    ceilings_read(a->found, a->batches, true, &now.locked);
    const enum predict_bound bound = bound_of(&now, &plain), best_bound = bound_of(&now, &best);
    describe(a, &now, bound, best_bound, headline, sizeof headline);
    collect(a, &now, &list);
    json_key(writer, "diagnosis");
    json_begin_object(writer);
    json_key_string(writer, "bound", predict_bound_text(bound));
    json_key_string(writer, "best_bound", predict_bound_text(best_bound));
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
