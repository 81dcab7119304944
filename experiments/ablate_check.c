/* Whether the cells computed the same, and what makes the measurement doubtful. */
#include <math.h>
#include <string.h>

#include "experiments/ablate_internal.h"

static void check_bits(struct ablation *a, const char *member, const char *what)
{
    const char *expected = NULL;
    const char *expected_cell = NULL;
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct cell *cell = &a->cells.cells[c];
        const char *own = NULL;
        for (int round = 0; round < a->rounds_done; round++) {
            const char *hash = json_member_string(a->runs[round][c], member, "");
            const char **reference = cell->arithmetic ? &own : &expected;
            if (!*reference) {
                *reference = hash;
                expected_cell = cell->arithmetic ? expected_cell : cell->name;
            } else if (strcmp(*reference, hash) != 0) {
                ablate__note(&a->failures,
                             "%s of cell \"%s\" in round %d differ from those of \"%s\": the cells "
                             "did not compute the same, so their rates cannot be compared",
                             what, cell->name, round + 1,
                             cell->arithmetic ? cell->name : expected_cell);
                return;
            }
        }
    }
}

static void check_settings(struct ablation *a)
{
    const struct json_value *first = json_member(a->runs[0][0], "settings");
    for (size_t c = 0; c < a->cells.count; c++) {
        for (int round = 0; round < a->rounds_done; round++) {
            const struct json_value *other = json_member(a->runs[round][c], "settings");
            if (!first || !other ||
                cells_check_equal(&a->cells.cells[0], first, &a->cells.cells[c], other) !=
                    STATUS_OK) {
                ablate__note(&a->failures, "%s",
                             first && other ? status_message() : "a run has no settings");
                status_clear();
                return;
            }
        }
    }
}

/* What one kind of doubt came to over all runs. */
struct doubt {
    int runs;
    double sum, most;
};

static void doubt_add(struct doubt *doubt, double amount)
{
    if (amount > 0) {
        doubt->runs++;
        doubt->sum += amount;
        doubt->most = amount > doubt->most ? amount : doubt->most;
    }
}

/* One sentence for each kind, however many runs it concerns; each run keeps its own mark. */
static void warn_watch(struct ablation *a)
{
    struct doubt others = {0}, throttle = {0}, clocks = {0}, quota = {0}, steal = {0};
    const int runs = a->rounds_done * (int)a->cells.count;
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const struct json_value *seen = json_member(a->runs[round][c], "watch");
            const double begin = json_member_double(seen, "sm_clock_begin", 0);
            const double end = json_member_double(seen, "sm_clock_end", 0);
            const double change = begin > 0 ? fabs(end / begin - 1) : 0;
            doubt_add(&others, json_member_double(seen, "other_processes", 0));
            doubt_add(&throttle, json_member_int(seen, "throttle", 0) != 0 ? 1 : 0);
            doubt_add(&clocks, change > 0.03 ? 100 * change : 0);
            const double held = json_member_double(seen, "throttled_s", 0);
            doubt_add(&quota, held > 0.01 ? held : 0);
            const double taken = json_member_double(seen, "steal_ticks", 0);
            doubt_add(&steal, taken > 10 ? taken : 0);
        }
    }
    if (others.runs > 0) {
        ablate__note(&a->warnings,
                     "the GPU was shared: up to %.0f other processes in %d of %d runs; rates and "
                     "their spread are theirs too",
                     others.most, others.runs, runs);
    }
    if (throttle.runs > 0) {
        ablate__note(&a->warnings, "the GPU's clocks were throttled in %d of %d runs",
                     throttle.runs, runs);
    }
    if (clocks.runs > 0) {
        ablate__note(&a->warnings,
                     "the GPU's clock changed by more than 3 %% (by up to %.0f %%) within %d of %d "
                     "runs; they are marked",
                     clocks.most, clocks.runs, runs);
    }
    if (quota.runs > 0) {
        ablate__note(&a->warnings,
                     "the CPU quota held the process for %.1f s in %d of %d runs: take fewer "
                     "--num-workers",
                     quota.sum, quota.runs, runs);
    }
    if (steal.runs > 0) {
        ablate__note(&a->warnings, "the hypervisor took %.1f s of CPU time in %d of %d runs",
                     steal.sum / 100, steal.runs, runs);
    }
}

static void warn_memory(struct ablation *a)
{
    double lowest = INFINITY;
    int64_t swapped = 0;
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const struct json_value *seen = json_member(a->runs[round][c], "watch");
            const double available = json_member_double(seen, "memory_available_min", INFINITY);
            lowest = available < lowest ? available : lowest;
            swapped += json_member_int(seen, "swap_pages", 0);
        }
    }
    const double gib = 1024.0 * 1024 * 1024;
    if (swapped > 0) {
        ablate__note(&a->warnings,
                     "the machine swapped %lld pages while cells ran, with %.1f GiB left at least: "
                     "take fewer --num-workers or a smaller --prefetch, and measure again",
                     (long long)swapped, lowest / gib);
    } else if (lowest < gib / 2) {
        ablate__note(&a->warnings,
                     "host memory is short (%.1f GiB were left): take fewer --num-workers or a "
                     "smaller --prefetch, and measure again",
                     lowest / gib);
    }
}

static double read_in_round(const struct ablation *a, int round, const char *member)
{
    double sum = 0;
    for (size_t c = 0; c < a->cells.count; c++) {
        sum += json_member_double(json_member(a->runs[round][c], "watch"), member, 0);
    }
    return sum;
}

/* The page cache: cold in the first epoch of all, and in rounds that fetch from storage. */
static void warn_cold(struct ablation *a)
{
    const double mb = 1e6;
    const double cold_s = json_member_double(a->found, "cold_loader_s", 0);
    const double warm_s = json_member_double(a->found, "loader_s", 0);
    const double fetched = json_member_double(a->found, "cold_read_bytes", 0);
    if (fetched > mb && cold_s > 1.2 * warm_s && warm_s > 0) {
        ablate__note(&a->warnings,
                     "the very first epoch fetched %.0f MB from storage (%lld major faults) and "
                     "took %.2f ms a batch, %.2f ms once the files were in memory: the cells are "
                     "timed in the second state",
                     fetched / mb, (long long)json_member_int(a->found, "cold_major_faults", 0),
                     cold_s * 1e3, warm_s * 1e3);
    }
    if (a->rounds_done < 2) {
        return;
    }
    double later = 0;
    for (int round = 1; round < a->rounds_done; round++) {
        later += read_in_round(a, round, "read_bytes") / (a->rounds_done - 1);
    }
    const double first = read_in_round(a, 0, "read_bytes");
    if (first > later + 16 * mb && first > 2 * later) {
        ablate__note(&a->warnings,
                     "round 1 fetched %.0f MB from storage (%.0f major faults), later rounds %.0f "
                     "MB: its first cells met a colder page cache",
                     first / mb, read_in_round(a, 0, "major_faults"), later / mb);
    } else if (later > 16 * mb) {
        ablate__note(&a->warnings,
                     "every round fetches about %.0f MB from storage: the images do not stay in "
                     "memory, and storage is part of what was measured",
                     later / mb);
    }
}

/* Images passed over cost their reading in every epoch and bring no sample. */
static void warn_bad_images(struct ablation *a)
{
    int64_t most = 0;
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const struct json_value *run = a->runs[round][c];
            const struct json_value *epochs = json_member(run, "epoch_s");
            const int64_t count = epochs && epochs->count > 0 ? (int64_t)epochs->count : 1;
            const int64_t bad = json_member_int(json_member(run, "counters"), "bad_images", 0);
            most = (bad + count - 1) / count > most ? (bad + count - 1) / count : most;
        }
    }
    if (most > 0) {
        ablate__note(&a->warnings,
                     "images that could not be read were left out of each epoch, as --on-bad-image "
                     "skip asks: up to %lld; `pinline check` lists them",
                     (long long)most);
    }
}

static int most_workers(const struct ablation *a)
{
    static struct settings settings;
    int most = a->cells.count > 0 ? 0 : a->job.loader.num_workers;
    for (size_t c = 0; c < a->cells.count; c++) {
        if (cells_settings(&a->job, &a->cells.cells[c], &settings) != STATUS_OK) {
            status_clear();
        } else if (settings.loader.num_workers > most) {
            most = settings.loader.num_workers;
        }
    }
    return most;
}

static void warn_machine(struct ablation *a)
{
    const struct json_value *root = json_root(a->ceilings ? a->ceilings : a->earlier);
    const struct json_value *machine = json_member(root, "machine");
    const struct json_value *on = json_member(root, "device");
    const int cpus = (int)json_member_int(machine, "cpus_allowed", 0);
    const int workers = most_workers(a);
    if (cpus > 0 && workers > cpus) {
        ablate__note(&a->warnings,
                     "%d workers share %d CPUs: they stand in each other's way; try --num-workers "
                     "%d",
                     workers, cpus, cpus > 1 ? cpus - 1 : 1);
    }
    if (strcmp(json_member_string(on, "kind", ""), "host") == 0 &&
        a->job.device.host_mode != HOST_SIMULATED) {
        ablate__note(&a->warnings,
                     "there is no bus on the host device: the flags change who waits, steps and "
                     "decoders share the processors, and predictions are rough");
    }
    if (a->job.step_seconds > 0) {
        const double step_s = json_member_double(a->found, "emulated_step_s", 0);
        if (fabs(step_s / a->job.step_seconds - 1) > 0.05) {
            ablate__note(&a->warnings, "the emulated step takes %.3f ms instead of %.3f ms",
                         step_s * 1e3, a->job.step_seconds * 1e3);
        }
    }
}

static void warn_protocol(struct ablation *a)
{
    const int64_t working_set = json_member_int(a->facts, "working_set_bytes", 0);
    const int64_t cache = json_member_int(a->facts, "last_level_cache_bytes", 0);
    if (cache > 0 && working_set > 0 && working_set < cache) {
        ablate__note(
            &a->warnings,
            "the working set of %.0f MB fits the processor's cache of %.0f MB: larger sets "
            "may read more slowly",
            (double)working_set / 1e6, (double)cache / 1e6);
    }
    const int imbalance = order_imbalance(a->order, (int)a->cells.count, a->rounds);
    if (imbalance > 0 && a->rounds_done > 0) {
        ablate__note(&a->warnings,
                     "%d round%s of %zu cells %s not balanced: some cells follow others more often "
                     "(by %d)",
                     a->rounds, a->rounds == 1 ? "" : "s", a->cells.count,
                     a->rounds == 1 ? "is" : "are", imbalance);
    }
}

static int64_t samples_of(const struct ablation *a, const struct cell *cell)
{
    static struct settings settings;
    int64_t samples = a->samples;
    if (cells_settings(&a->job, cell, &settings) != STATUS_OK) {
        status_clear();
    } else {
        samples = ablate__cell_samples(a, &settings);
    }
    return samples < INT64_MAX ? samples : a->samples;
}

static void warn_length(struct ablation *a)
{
    double shortest = INFINITY, epoch_s = 0;
    bool known = false;
    const char *not_cached = NULL;
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const struct json_value *run = a->runs[round][c];
            const struct json_value *epochs = json_member(run, "epoch_s");
            const char *mode = json_member_string(json_member(run, "settings"), "cache", "none");
            double seconds = 0;
            for (size_t i = 0; epochs && i < epochs->count; i++) {
                seconds += epochs->items[i].number;
            }
            if (seconds < shortest && epochs && epochs->count > 0) {
                shortest = seconds;
                epoch_s = seconds / (double)epochs->count;
                known = a->predictions[c].known;
            }
            if (strcmp(mode, "none") != 0 &&
                json_member_int(run, "cache_images", 0) < samples_of(a, &a->cells.cells[c])) {
                not_cached = a->cells.cells[c].name;
            }
        }
    }
    if (shortest < 4.5 && a->rounds_done > 0) {
        const double first_s = json_member_double(a->found, "first_batch_s", 0);
        char waits[100] = "";
        if (known && epoch_s > 0) {
            snprintf(waits, sizeof waits,
                     ", and an epoch of %.2f s waits for its first batch for %.1f %% of it",
                     epoch_s, 100 * first_s / epoch_s);
        }
        ablate__note(&a->warnings,
                     "a cell was timed for %.2f s only; 5 s are recommended (--seconds): rates of "
                     "short runs spread more, which makes intervals wider%s",
                     shortest, waits);
    }
    if (not_cached) {
        ablate__note(&a->warnings,
                     "the cache of cell \"%s\" does not hold every image: the rest was decoded "
                     "while it was timed; give it more --cache-bytes",
                     not_cached);
    }
}

void ablate__check(struct ablation *a)
{
    a->failures.count = 0;
    a->warnings.count = a->planned_warnings;
    warn_machine(a);
    warn_cold(a);
    warn_protocol(a);
    if (a->rounds_done == 0) {
        return;
    }
    check_settings(a);
    check_bits(a, "plans_hash", "the plans");
    /* An emulated step computes nothing that could be compared. */
    if (a->job.step_seconds <= 0) {
        check_bits(a, "loss_hash", "the losses");
        check_bits(a, "weights_hash", "the final weights");
    }
    warn_watch(a);
    warn_memory(a);
    warn_bad_images(a);
    warn_length(a);
}
