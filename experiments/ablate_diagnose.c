/*
 * What bounds the job and what else could be changed, from the ceilings. Factors are those of the
 * formulas: the job as it stands in a cell that runs, against the same with one thing changed.
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

static const struct predict_cell best = {true, true, true};

/* Whom the diagnosis speaks of: the cell that the parts were measured for. */
struct subject {
    struct predict_cell flags;
    char words[120]; /* "the default cell", "cell \"pin num-workers=1\"" */
    const char *name;
    bool is_default; /* "default", with nothing but flags between the cells */
};

/* What rounds measure, and nobody wants a prediction of. */
struct measured {
    bool flags; /* the subject's cell, and the same with all flags */
    bool workers, decoded, encoded, u8, twice, bf16;
};

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

static int more_workers(const struct ablation *a)
{
    const struct json_value *machine = ablate__from_ceilings(a, "machine");
    return (int)json_member_int(machine, "cpus_allowed", 0) - 1;
}

static struct subject find_subject(const struct ablation *a)
{
    static struct settings settings;
    struct subject subject = {.words = "the default cell", .name = "default", .is_default = true};
    const struct cell *cell = ablate__reference(a, &settings);
    if (cell) {
        subject.flags = cells_prediction(&settings);
        subject.name = cell->name;
        subject.is_default = strcmp(cell->name, "default") == 0;
    }
    if (!subject.is_default) {
        snprintf(subject.words, sizeof subject.words, "cell \"%s\"", subject.name);
    }
    return subject;
}

static bool is_best(const struct predict_cell *flags)
{
    return flags->pin && flags->non_blocking && flags->dedicated;
}

static void find_measured(const struct ablation *a, struct measured *measured)
{
    static struct settings settings;
    const struct loader_settings *job = &a->job.loader;
    memset(measured, 0, sizeof *measured);
    for (size_t c = 0; c < a->cells.count && !a->settings->predict_only; c++) {
        if (cells_settings(&a->job, &a->cells.cells[c], &settings) != STATUS_OK) {
            status_clear();
            continue;
        }
        const struct loader_settings *own = &settings.loader;
        const struct predict_cell flags = cells_prediction(&settings);
        measured->flags = measured->flags || (a->predictions[c].known && is_best(&flags));
        measured->workers = measured->workers || own->num_workers == more_workers(a);
        measured->decoded = measured->decoded || own->cache == CACHE_DECODED;
        measured->encoded = measured->encoded || own->cache == CACHE_ENCODED;
        measured->u8 = measured->u8 || own->transfer == TRANSFER_U8;
        measured->twice = measured->twice || own->batch_size == 2 * job->batch_size;
        measured->bf16 = measured->bf16 || settings.device.precision == PRECISION_BF16;
    }
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
                          const struct measured *measured, struct advice_list *list)
{
    const struct loader_settings *job = &a->job.loader;
    const double read_share = json_member_double(a->found, "read_share", 0);
    const double decode_share = json_member_double(a->found, "decode_share", 0);
    const int more = more_workers(a);
    struct both_kinds changed = *now;
    char text[sizeof list->items[0].what];
    if (more >= 1 && more > job->num_workers && !measured->workers) {
        /* Without workers the host's thread decodes as one would, and does nothing else meanwhile. */
        scale_loader(&changed, (double)(job->num_workers > 0 ? job->num_workers : 1) / more);
        changed.pageable.no_workers = changed.locked.no_workers = false;
        snprintf(text, sizeof text, "--num-workers %d instead of %d", more, job->num_workers);
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
    if (!measured->decoded) {
        advise(list, best_s / seconds_of(&changed, &best), text);
    }
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
    if (!measured->encoded) {
        advise(list, best_s / seconds_of(&changed, &best), text);
    }
}

static void advise_transfer(const struct both_kinds *now, const struct subject *subject,
                            struct advice_list *list)
{
    struct both_kinds changed = *now;
    char text[sizeof list->items[0].what];
    /* Workers write a quarter of the bytes as well; that is not counted. */
    changed.locked.copy_locked_s = now->locked.copy_locked_s / 4;
    changed.pageable.copy_pageable_s = now->pageable.copy_pageable_s / 4;
    changed.locked.loader_s = now->locked.loader_quiet_s;
    changed.pageable.loader_s = now->pageable.loader_quiet_s;
    advise(list, seconds_of(now, &best) / seconds_of(&changed, &best),
           "--transfer u8 instead of f32, in the best cell");
    if (!is_best(&subject->flags)) {
        snprintf(text, sizeof text, "--transfer u8 instead of f32, in %s", subject->words);
        advise(list, seconds_of(now, &subject->flags) / seconds_of(&changed, &subject->flags),
               text);
    }
}

/* Each proposal against the job in its best cell, so that what the flags bring is not counted
 * twice. */
static void collect(const struct ablation *a, const struct both_kinds *now,
                    const struct subject *subject, struct advice_list *list)
{
    const double own_s = seconds_of(now, &subject->flags);
    const double best_s = seconds_of(now, &best);
    struct measured measured;
    char text[sizeof list->items[0].what];
    find_measured(a, &measured);
    if (!measured.flags) {
        snprintf(text, sizeof text,
                 "--pin-memory --non-blocking --copy-stream dedicated, against %s", subject->words);
        advise(list, own_s / best_s, text);
    }
    advise_loader(a, now, best_s, &measured, list);
    if (a->job.loader.transfer == TRANSFER_F32 && !measured.u8) {
        advise_transfer(now, subject, list);
    }
    if (!measured.twice) {
        advise(list, larger_batch(now, best_s),
               "twice the --batch-size, if loader, copy and step then take twice as long");
    }
    const bool step_is_limit = now->locked.step_s >= 0.98 * best_s && a->job.step_seconds <= 0;
    if (step_is_limit && a->job.device.precision != PRECISION_BF16 && !measured.bf16) {
        advise(list, 0, "--precision bf16, since the step is the limit");
    }
}

/* " (1.23 ms beside page-locked slots)" where that differs by more than 5 %, otherwise "". */
static void with_other(double own_s, double other_s, const char *where, char *text, size_t bytes)
{
    text[0] = '\0';
    if (other_s > 1.05 * own_s || other_s < 0.95 * own_s) {
        snprintf(text, bytes, " (%.2f ms%s)", other_s * 1e3, where);
    }
}

static bool on_host(const struct ablation *a)
{
    const struct json_value *on = ablate__from_ceilings(a, "device");
    return strcmp(json_member_string(on, "kind", ""), "host") == 0;
}

/* Where the job waits for its copies, and what all flags would make of that. */
static void describe_copies(const struct both_kinds *kinds, const struct subject *subject,
                            enum predict_bound best_bound, char *text, size_t bytes)
{
    static const char *const with_flags[] = {
        "the loader would be next", "copying would still be it", "the step would be next",
        "the host's issuing would be next", "copying and the step would be"};
    const struct predict_cell *flags = &subject->flags;
    const struct predict_ceilings *now = kind_of(kinds, flags);
    const double copy_s = flags->pin ? now->copy_locked_s : now->copy_pageable_s;
    char locked[40] = "";
    if (!flags->pin) {
        snprintf(locked, sizeof locked, " (%.2f ms page-locked)", now->copy_locked_s * 1e3);
    }
    const int used =
        snprintf(text, bytes,
                 "Copying bounds this job in %s: %.2f ms a batch from %s memory%s %s of %.2f ms",
                 subject->is_default ? "its default cell" : subject->words, copy_s * 1e3,
                 flags->pin ? "page-locked" : "pageable", locked,
                 flags->dedicated ? "beside a step" : "before each step", now->step_s * 1e3);
    if (!is_best(flags) && used > 0 && (size_t)used < bytes) {
        snprintf(text + used, bytes - (size_t)used,
                 "; with all flags %s, at %.2f ms a batch instead of %.2f", with_flags[best_bound],
                 seconds_of(kinds, &best) * 1e3, seconds_of(kinds, flags) * 1e3);
    }
}

static void describe(const struct ablation *a, const struct both_kinds *kinds,
                     const struct subject *subject, enum predict_bound bound,
                     enum predict_bound best_bound, char *text, size_t bytes)
{
    const struct predict_cell *flags = &subject->flags;
    const struct predict_ceilings *now = kind_of(kinds, flags);
    const struct predict_ceilings *other = flags->pin ? &kinds->pageable : &kinds->locked;
    const double best_s = seconds_of(kinds, &best);
    char of_loader[80], of_step[80], in[sizeof subject->words + 8] = "";
    const char *beside = flags->pin ? " beside pageable slots" : " beside page-locked slots";
    const char *into = flags->pin ? " into pageable slots" : " into page-locked slots";
    if (!subject->is_default) {
        snprintf(in, sizeof in, " in %s", subject->words);
    }
    with_other(now->loader_s, other->loader_s, into, of_loader, sizeof of_loader);
    with_other(now->step_s, other->step_s, beside, of_step, sizeof of_step);
    switch (bound) {
    case PREDICT_LOADER: {
        char workers[48];
        snprintf(workers, sizeof workers,
                 a->job.loader.num_workers == 0   ? "%d workers, in the training's own thread"
                 : a->job.loader.num_workers == 1 ? "%d worker"
                                                  : "%d workers",
                 a->job.loader.num_workers);
        const double busy = best_s > 0 ? 100 * kinds->locked.step_s / best_s : 0;
        snprintf(
            text, bytes,
            "The loader bounds this job%s: a batch takes %.2f ms to read and decode with %s%s, "
            "the step %.2f ms%s, so the %s works %.0f %% of the time at best, whatever the "
            "flags",
            in, now->loader_s * 1e3, workers, of_loader, now->step_s * 1e3, of_step,
            on_host(a) ? "device" : "GPU", busy < 100 ? busy : 100);
        break;
    }
    case PREDICT_COPY:
    case PREDICT_SERIAL:
        describe_copies(kinds, subject, best_bound, text, bytes);
        break;
    case PREDICT_HOST:
        snprintf(
            text, bytes,
            "The host bounds this job%s: issuing a step takes %.2f ms, the step itself %.2f ms", in,
            now->issue_s * 1e3, now->step_s * 1e3);
        break;
    case PREDICT_COMPUTE: {
        const bool waits =
            !flags->dedicated && !(flags->non_blocking && (flags->pin || !now->pageable_drains));
        char waking[80] = "";
        if (waits && now->wake_s > 0.05 * now->step_s) {
            snprintf(waking, sizeof waking, " and %.2f ms more where the host waits for its end",
                     now->wake_s * 1e3);
        }
        snprintf(text, bytes,
                 "The step bounds this job%s: it takes %.2f ms a batch%s%s, the loader %.2f ms, a "
                 "copy %.2f ms pageable and %.2f ms page-locked",
                 in, now->step_s * 1e3, of_step, waking, now->loader_s * 1e3,
                 now->copy_pageable_s * 1e3, now->copy_locked_s * 1e3);
        break;
    }
    }
}

void ablate__write_diagnosis(const struct ablation *a, struct json_writer *writer)
{
    struct both_kinds now;
    struct advice_list list = {.count = 0};
    char headline[500];
    const struct subject subject = find_subject(a);
    const bool no_workers = a->job.loader.num_workers == 0;
    ceilings_read(a->found, a->batches, false, no_workers, &now.pageable);
    ceilings_read(a->found, a->batches, true, no_workers, &now.locked);
    const enum predict_bound bound = bound_of(&now, &subject.flags);
    const enum predict_bound best_bound = bound_of(&now, &best);
    describe(a, &now, &subject, bound, best_bound, headline, sizeof headline);
    collect(a, &now, &subject, &list);
    json_key(writer, "diagnosis");
    json_begin_object(writer);
    json_key_string(writer, "cell", subject.name);
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
