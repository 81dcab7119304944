/* How long, how often, and what each cell should reach. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "experiments/ablate_internal.h"
#include "experiments/ceilings.h"
#include "trainer/job.h"

/* Starting a process and building the plans that are known: guesses. */
#define STARTING_CUDA_S 3.0
#define STARTING_HOST_S 0.1
#define SIMULATED_EPOCHS 20
/* An epoch that a budget shortens keeps so many batches. */
#define LEAST_BATCHES 10.0

/* Every option of a job but the flags of cells, which choose between stages that were measured. */
static char *rest_of_settings(const struct ablation *a, const struct settings *settings)
{
    struct settings copy = *settings;
    char *text = NULL;
    copy.loader.pin_memory = a->job.loader.pin_memory;
    copy.loader.non_blocking = a->job.loader.non_blocking;
    copy.loader.copy_stream = a->job.loader.copy_stream;
    if (job_settings_text(&copy, &text) != STATUS_OK) {
        status_clear();
    }
    return text;
}

static bool is_job_but_for_flags(const struct ablation *a, const struct settings *settings)
{
    char *own = rest_of_settings(a, &a->job), *cell = rest_of_settings(a, settings);
    const bool same = own && cell && strcmp(own, cell) == 0;
    free(own);
    free(cell);
    return same;
}

/* Whether the ceilings, measured with the job's own settings, are this cell's too: how memory is
 * page-locked changes no stage, and they are timed whatever the cell is. */
static bool keeps_ceilings(const struct ablation *a, const struct settings *settings)
{
    struct settings copy = *settings;
    copy.loader.pin_how = a->job.loader.pin_how;
    copy.timing = a->job.timing;
    return is_job_but_for_flags(a, &copy);
}

const struct cell *ablate__reference(const struct ablation *a, struct settings *settings)
{
    for (size_t c = 0; c < a->cells.count; c++) {
        if (cells_settings(&a->job, &a->cells.cells[c], settings) != STATUS_OK) {
            status_clear(); /* the round will say it */
        } else if (is_job_but_for_flags(a, settings)) {
            return &a->cells.cells[c];
        }
    }
    return NULL;
}

void ablate__predict(struct ablation *a)
{
    const int64_t full = a->job.loader.batch_size;
    /* The ceilings are those of full batches. */
    const double per_batch = (double)(a->samples < full ? a->samples : full);
    const double loader_locked_s = json_member_double(a->found, "loader_pinned_s", 0);
    const double loader_busy_s = json_member_double(a->found, "loader_busy_s", 0);
    for (size_t c = 0; c < a->cells.count; c++) {
        struct ablate_prediction *prediction = &a->predictions[c];
        struct settings settings;
        if (cells_settings(&a->job, &a->cells.cells[c], &settings) != STATUS_OK) {
            status_clear(); /* the round will say it */
            continue;
        }
        /* Where the ceilings are another cell's, the figures serve planning alone. */
        prediction->known = keeps_ceilings(a, &settings);
        const struct predict_cell cell = cells_prediction(&settings);
        struct predict_ceilings own;
        const bool no_workers = settings.loader.num_workers == 0;
        ceilings_read(a->found, a->batches, cell.pin, no_workers, &own);
        /* A thread that decodes does not spin meanwhile. */
        if (settings.device.spin && !no_workers && loader_locked_s > 0 && loader_busy_s > 0) {
            own.loader_s *= loader_busy_s / loader_locked_s;
            own.loader_quiet_s *= loader_busy_s / loader_locked_s;
        }
        const int epochs = a->batches > 100000 ? 1 : SIMULATED_EPOCHS;
        prediction->formula = per_batch / predict_formula(&own, &cell, &prediction->bound);
        prediction->trivial = per_batch / predict_trivial(&own);
        prediction->samples_per_s =
            per_batch / predict_simulate(&own, &cell, epochs, a->settings->order_seed);
    }
}

/* What a limit leaves of a set, of which `job_limit` left `found`; 0: no limit. Where both leave less than
 * the set, which is then not known whole, the limit itself. */
static int64_t limited(int64_t found, int64_t job_limit, int64_t limit)
{
    const bool whole = job_limit == 0 || found < job_limit;
    if (limit == 0) {
        return whole ? found : INT64_MAX;
    }
    return whole && found < limit ? found : limit;
}

int64_t ablate__cell_samples(const struct ablation *a, const struct settings *settings)
{
    const int64_t job_limit = (int64_t)a->job.dataset.limit_samples;
    const int64_t limit = (int64_t)settings->dataset.limit_samples;
    const int64_t batch = settings->loader.batch_size;
    if (limit == job_limit) {
        return a->samples;
    }
    const int64_t samples = limited(a->samples, job_limit, limit);
    return settings->loader.drop_last && samples > batch && samples < INT64_MAX
               ? samples / batch * batch
               : samples;
}

/* How many samples an epoch has in the cell with the fewest, and in that with the most. */
static void find_samples(const struct ablation *a, int64_t *least, int64_t *most)
{
    *least = *most = 0;
    for (size_t c = 0; c < a->cells.count; c++) {
        struct settings settings;
        if (cells_settings(&a->job, &a->cells.cells[c], &settings) != STATUS_OK) {
            status_clear(); /* the round will say it */
            continue;
        }
        const int64_t samples = ablate__cell_samples(a, &settings);
        *least = *least == 0 || samples < *least ? samples : *least;
        *most = samples > *most ? samples : *most;
    }
}

char *ablate__samples_text(const struct ablation *a, char *text, size_t bytes)
{
    int64_t least, most;
    find_samples(a, &least, &most);
    if (least == most) {
        snprintf(text, bytes, "%lld samples", (long long)(most > 0 ? most : a->samples));
    } else if (most == INT64_MAX) {
        snprintf(text, bytes, "%lld samples to all of them", (long long)least);
    } else {
        snprintf(text, bytes, "%lld to %lld samples", (long long)least, (long long)most);
    }
    return text;
}

/* Seconds of an epoch of the fastest cell, and of all cells together. */
static void guess_epochs(struct ablation *a, double *fastest, double *sum)
{
    ablate__predict(a);
    *fastest = INFINITY;
    *sum = 0;
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct ablate_prediction *prediction = &a->predictions[c];
        const double rate = prediction->samples_per_s > 0 ? prediction->samples_per_s : 1;
        struct settings settings;
        int64_t samples = a->samples;
        if (cells_settings(&a->job, &a->cells.cells[c], &settings) == STATUS_OK) {
            samples = ablate__cell_samples(a, &settings);
        } else {
            status_clear(); /* the round will say it */
        }
        const double epoch_s = (double)(samples < INT64_MAX ? samples : a->samples) / rate;
        *fastest = epoch_s < *fastest ? epoch_s : *fastest;
        *sum += epoch_s;
    }
}

/* Untimed seconds of a round: its process, a cache that its first cell fills, and opening and settling
 * every cell. */
static double guess_fixed(const struct ablation *a, double sum)
{
    const struct json_value *root = json_root(a->ceilings);
    const bool host =
        strcmp(json_member_string(json_member(root, "device"), "kind", ""), "host") == 0;
    const double cells = (double)a->cells.count;
    const double epoch_s = sum / cells;
    const int64_t slots = json_member_int(a->found, "slots", 2);
    double settle_s = 2 * (double)slots * epoch_s / (double)a->batches;
    settle_s = settle_s > a->settings->settle_s ? settle_s : a->settings->settle_s;
    double once_s = json_member_double(a->found, "open_s", 0);
    once_s += host ? STARTING_HOST_S : STARTING_CUDA_S;
    if (a->job.loader.cache != CACHE_NONE) {
        once_s += json_member_double(a->found, "cold_loader_s", 0) * (double)a->batches;
    }
    return once_s + cells * (settle_s + json_member_double(a->found, "cell_s", 0));
}

void ablate__fit_budget(const struct ablate_budget *in, struct ablate_fit *fit)
{
    *fit = (struct ablate_fit){.rounds = in->rounds, .epochs = in->epochs};
    const double round_s = in->seconds / in->rounds - in->fixed_s;
    const double share = round_s / in->sum_s; /* epochs of every cell that fit a round */
    if (share >= in->epochs) {
        return;
    }
    if (share >= 1) {
        fit->epochs = (int)share;
        return;
    }
    fit->epochs = 1;
    /* Whole batches, so that no last batch needs plans of its own. */
    const double batch = in->batch;
    const double least = LEAST_BATCHES * batch;
    if (in->samples <= least) {
        fit->limit = 0;
    } else {
        const double wanted = floor(share * (double)in->samples / batch) * batch;
        fit->limit = (int64_t)(wanted > least ? wanted : least);
    }
    const double kept = fit->limit > 0 ? (double)fit->limit / (double)in->samples : 1;
    if (share < kept) {
        const double rounds = in->seconds / (in->fixed_s + kept * in->sum_s);
        fit->rounds = rounds < 2 ? 2 : rounds < in->rounds ? (int)rounds : in->rounds;
    }
}

/* Fits rounds, epochs and samples into what the ceilings have left of the budget. */
static void fit_budget(struct ablation *a, double fastest, double sum)
{
    const double budget = a->settings->budget_s;
    const double used = json_member_double(a->found, "measured_in_s", 0);
    const struct ablate_budget in = {.seconds = budget > used ? budget - used : 0,
                                     .fixed_s = guess_fixed(a, sum),
                                     .sum_s = sum,
                                     .rounds = a->rounds,
                                     .epochs = a->epochs,
                                     .samples = a->samples,
                                     .batch = a->job.loader.batch_size};
    struct ablate_fit fit;
    ablate__fit_budget(&in, &fit);
    const int64_t all = a->samples;
    const bool fewer_rounds = fit.rounds < a->rounds, shorter = fit.epochs < a->epochs;
    a->rounds = fit.rounds;
    a->epochs = fit.epochs;
    if (fit.limit > 0) {
        a->job.dataset.limit_samples = (size_t)fit.limit;
        ablate__take_facts(a, fit.limit);
        ablate__note(&a->warnings,
                     "the budget of %.0f s shortens each epoch to %lld of %lld samples (%.1f s in "
                     "the fastest cell; 5 s are recommended): a short epoch weighs its beginning "
                     "and end more, and spreads more",
                     budget, (long long)fit.limit, (long long)all,
                     fastest * (double)fit.limit / (double)all);
    } else if (shorter) {
        ablate__note(
            &a->warnings,
            "the budget of %.0f s shortens each cell to %d epoch%s (%.1f s in the fastest; "
            "5 s are recommended)",
            budget, a->epochs, a->epochs == 1 ? "" : "s", a->epochs * fastest);
    }
    if (fewer_rounds) {
        ablate__note(&a->warnings, "the budget of %.0f s leaves %d rounds: %s", budget, a->rounds,
                     a->rounds < VERDICT_MIN_ROUNDS
                         ? "a table and no verdict, for which 6 are the least"
                         : "intervals are wider than with as many rounds as cells");
    }
}

/* As many as cells, six at least; with an even number of cells, whole squares. */
static int usual_rounds(int cells)
{
    const int least = cells > VERDICT_MIN_ROUNDS ? cells : VERDICT_MIN_ROUNDS;
    return cells % 2 == 0 ? (least + cells - 1) / cells * cells : least;
}

enum status ablate__plan(struct ablation *a)
{
    double fastest, sum;
    const int cells = (int)a->cells.count;
    a->rounds = a->settings->rounds > 0 ? a->settings->rounds : usual_rounds(cells);
    if (a->rounds > RESULT_MAX_ROUNDS) {
        return FAIL(STATUS_USAGE, "--rounds is at most %d", RESULT_MAX_ROUNDS);
    }
    guess_epochs(a, &fastest, &sum);
    const double epochs = ceil(a->settings->seconds / fastest);
    a->epochs = a->settings->epochs > 0 ? a->settings->epochs : epochs < 1e5 ? (int)epochs : 100000;
    if (a->epochs < 1) {
        a->epochs = 1;
    }
    if (a->settings->budget_s > 0) {
        fit_budget(a, fastest, sum);
        guess_epochs(a, &fastest, &sum);
    }
    a->planned_warnings = a->warnings.count;
    const double round_s = a->epochs * sum + guess_fixed(a, sum);
    if (!a->settings->predict_only) {
        char samples[80];
        log_info("%d cells, %d round%s, %d epoch%s of %s a cell: about %.0f s", cells, a->rounds,
                 a->rounds == 1 ? "" : "s", a->epochs, a->epochs == 1 ? "" : "s",
                 ablate__samples_text(a, samples, sizeof samples), round_s * a->rounds);
        if (a->settings->epochs == 0 && fastest > 2 * a->settings->seconds) {
            log_info("an epoch alone takes %.1f s in the fastest cell; --limit-samples shortens it",
                     fastest);
        }
    }
    return STATUS_OK;
}
