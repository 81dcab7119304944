/* How long, how often, and what each cell should reach. */
#include <math.h>
#include <string.h>

#include "base/log.h"
#include "experiments/ablate_internal.h"
#include "experiments/ceilings.h"

/* The fastest cell is timed for so long at least. */
#define TIMED_S 5.0
/* Opening the device, planning and slots, for each cell: a guess until a round was seen. */
#define OPENING_S 1.5
#define SIMULATED_EPOCHS 20

/* Options that leave the ceilings valid: they choose between stages that were measured. */
static bool keeps_ceilings(const struct cell *cell)
{
    for (size_t i = 0; i < cell->change_count; i++) {
        const char *option = cell->changes[i].option;
        if (strcmp(option, "pin-memory") != 0 && strcmp(option, "non-blocking") != 0 &&
            strcmp(option, "copy-stream") != 0 && strcmp(option, "pin-how") != 0) {
            return false;
        }
    }
    return true;
}

void ablate__predict(struct ablation *a)
{
    struct predict_ceilings ceilings;
    const int64_t batches = json_member_int(a->facts, "batches", 1);
    const int64_t samples = json_member_int(a->facts, "samples", 1);
    ceilings_read(a->found, batches > 0 ? batches : 1, &ceilings);
    const double per_batch = (double)samples / (double)(batches > 0 ? batches : 1);
    const double loader_locked_s = json_member_double(a->found, "loader_pinned_s", 0);
    for (size_t c = 0; c < a->cells.count; c++) {
        struct ablate_prediction *prediction = &a->predictions[c];
        struct settings settings;
        prediction->known = keeps_ceilings(&a->cells.cells[c]) &&
                            cells_settings(&a->job, &a->cells.cells[c], &settings) == STATUS_OK;
        if (!prediction->known) {
            continue;
        }
        const struct predict_cell cell = cells_prediction(&settings);
        struct predict_ceilings own = ceilings;
        if (cell.pin && loader_locked_s > 0) {
            own.loader_s = loader_locked_s;
        }
        const int epochs = batches > 100000 ? 1 : SIMULATED_EPOCHS;
        prediction->formula = per_batch / predict_formula(&own, &cell, &prediction->bound);
        prediction->trivial = per_batch / predict_trivial(&own);
        prediction->samples_per_s =
            per_batch / predict_simulate(&own, &cell, epochs, a->settings->order_seed);
    }
}

/* Seconds of an epoch of the fastest cell, and of all cells together. */
static void guess_epochs(struct ablation *a, double *fastest, double *sum)
{
    const double samples = (double)json_member_int(a->facts, "samples", 1);
    ablate__predict(a);
    *fastest = INFINITY;
    *sum = 0;
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct ablate_prediction *prediction =
            a->predictions[c].known ? &a->predictions[c] : &a->predictions[0];
        const double rate = prediction->samples_per_s > 0 ? prediction->samples_per_s : 1;
        const double epoch_s = samples / rate;
        *fastest = epoch_s < *fastest ? epoch_s : *fastest;
        *sum += epoch_s;
    }
}

/* Fits rounds, epochs and samples into the budget, in the order of what costs least certainty. */
static void fit_budget(struct ablation *a, double fastest, double sum)
{
    const double budget = a->settings->budget_s;
    const double fixed = (double)a->cells.count * (a->settings->settle_s + OPENING_S);
    const double samples = (double)json_member_int(a->facts, "samples", 1);
    double share = (budget / a->rounds - fixed) / sum; /* epochs of every cell that fit a round */
    if (share >= a->epochs) {
        return;
    }
    if (share >= 1) {
        a->epochs = (int)share;
        ablate__note(&a->warnings,
                     "the budget of %.0f s shortens each cell to %d epochs (%.1f s in the fastest, "
                     "5 s are recommended)",
                     budget, a->epochs, a->epochs * fastest);
        return;
    }
    a->epochs = 1;
    const double least = 20.0 * a->job.loader.batch_size / samples;
    if (share >= least && samples > 0) {
        a->job.dataset.limit_samples = (size_t)(share * samples);
        ablate__note(&a->warnings,
                     "the budget of %.0f s shortens each epoch to %zu of %.0f samples (%.1f s in "
                     "the fastest cell); short epochs weigh their beginning and end more",
                     budget, a->job.dataset.limit_samples, samples, share * fastest);
        return;
    }
    const double kept = least < 1 ? least : 1;
    a->job.dataset.limit_samples = least < 1 ? (size_t)(least * samples) : 0;
    const int rounds = (int)(budget / (fixed + kept * sum));
    a->rounds = rounds < 2 ? 2 : rounds < a->rounds ? rounds : a->rounds;
    ablate__note(&a->warnings, "the budget of %.0f s leaves %d rounds of %.0f samples: %s", budget,
                 a->rounds, kept * samples,
                 a->rounds < VERDICT_MIN_ROUNDS ? "a table, and no verdict" : "wide intervals");
}

enum status ablate__plan(struct ablation *a)
{
    double fastest, sum;
    const int cells = (int)a->cells.count;
    a->rounds = a->settings->rounds > 0      ? a->settings->rounds
                : cells > VERDICT_MIN_ROUNDS ? cells
                                             : VERDICT_MIN_ROUNDS;
    if (a->rounds > RESULT_MAX_ROUNDS) {
        return FAIL(STATUS_USAGE, "--rounds is at most %d", RESULT_MAX_ROUNDS);
    }
    guess_epochs(a, &fastest, &sum);
    const double epochs = ceil(TIMED_S / fastest);
    a->epochs = a->settings->epochs > 0 ? a->settings->epochs : epochs < 1e5 ? (int)epochs : 100000;
    if (a->epochs < 1) {
        a->epochs = 1;
    }
    if (a->settings->budget_s > 0) {
        fit_budget(a, fastest, sum);
    }
    const double round_s =
        a->epochs * sum *
            (a->job.dataset.limit_samples > 0 ? (double)a->job.dataset.limit_samples /
                                                    (double)json_member_int(a->facts, "samples", 1)
                                              : 1) +
        cells * (a->settings->settle_s + OPENING_S);
    log_info("%d cells, %d rounds, %d epoch%s a cell: about %.0f s", cells, a->rounds, a->epochs,
             a->epochs == 1 ? "" : "s", round_s * a->rounds);
    return STATUS_OK;
}
