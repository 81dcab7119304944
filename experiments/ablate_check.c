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

static void check_plans(struct ablation *a)
{
    const char *first = NULL;
    for (int round = 0; round < a->rounds_done; round++) {
        if (!a->answers[round]) {
            continue;
        }
        const char *hash = json_member_string(json_root(a->answers[round]), "plans_hash", "");
        if (!first) {
            first = hash;
        } else if (strcmp(first, hash) != 0) {
            ablate__note(&a->failures, "round %d used other plans than the one before", round + 1);
            return;
        }
    }
}

static void warn_marks(struct ablation *a)
{
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const char *mark = json_member_string(a->runs[round][c], "marked", "");
            if (mark[0]) {
                ablate__note(&a->warnings, "round %d, cell \"%s\": %s", round + 1,
                             a->cells.cells[c].name, mark);
            }
        }
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
    if (swapped > 0 || lowest < gib / 2) {
        ablate__note(&a->warnings,
                     "host memory is short (%.1f GiB were left%s): take fewer --num-workers or a "
                     "smaller --prefetch, and measure again",
                     lowest / gib, swapped > 0 ? ", and the machine swapped" : "");
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
    if (imbalance > 0 && a->rounds_done == a->rounds) {
        ablate__note(&a->warnings,
                     "%d rounds of %zu cells are not balanced: some cells follow others more often "
                     "(by %d)",
                     a->rounds, a->cells.count, imbalance);
    }
    double shortest = INFINITY;
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            const struct json_value *epochs = json_member(a->runs[round][c], "epoch_s");
            double seconds = 0;
            for (size_t i = 0; epochs && i < epochs->count; i++) {
                seconds += epochs->items[i].number;
            }
            shortest = seconds < shortest ? seconds : shortest;
        }
    }
    if (shortest < 1) {
        ablate__note(&a->warnings, "a cell was timed for %.2f s only; 5 s are recommended",
                     shortest);
    }
}

void ablate__check(struct ablation *a)
{
    a->failures.count = 0;
    if (a->rounds_done == 0) {
        return;
    }
    check_settings(a);
    check_plans(a);
    check_bits(a, "loss_hash", "the losses");
    check_bits(a, "weights_hash", "the final weights");
    warn_marks(a);
    warn_memory(a);
    warn_protocol(a);
}
