/*
 * From rates of rounds to what may be said. The primary effect is named beforehand and is tested at
 * the full level; the others share it by Holm's procedure. No verdict is given below
 * VERDICT_MIN_ROUNDS rounds. Pure functions.
 */
#ifndef PINLINE_EXPERIMENTS_VERDICT_H
#define PINLINE_EXPERIMENTS_VERDICT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/statistics.h"

#define VERDICT_MIN_ROUNDS 6
#define VERDICT_MAX_EFFECTS 128
#define VERDICT_MAX_ROUNDS 256

enum verdict {
    VERDICT_NONE = 0,     /* fewer than VERDICT_MIN_ROUNDS rounds */
    VERDICT_WORTH_IT,     /* the whole interval lies above 1 + matters */
    VERDICT_COSTS,        /* the whole interval lies below 1 */
    VERDICT_NOT_WORTH_IT, /* the upper end lies below 1 + matters, and it does not cost */
    VERDICT_UNDECIDED
};

/* "worth it", "costs", "not worth it", "undecided", "too few rounds". */
const char *verdict_text(enum verdict verdict);

/* One effect: a ratio of rates, a over b, or for an interaction a1 a2 over b1 b2. Rates of round i
 * stand at [i]; the second pair is NULL for a plain ratio. */
struct effect {
    const char *name; /* "both/default" */
    bool interaction; /* of two flags: what both together bring beyond the product of each alone */
    bool primary;
    const double *a, *b;
    const double *a2, *b2;
    /* Filled in by verdict_decide: */
    struct statistics_ratio ratio; /* the interval is at `confidence` */
    double confidence;             /* 0.95 for the primary, at least that for the others (Holm) */
    double p_adjusted;             /* Holm-adjusted; the primary's own p */
    bool tests_disagree;           /* t test and sign-flip test differ at 5 % */
    enum verdict verdict;
    /* When undecided: rounds in all that would probably settle it, from the lower and the upper end
     * of what the spread may be (80 % limits); 0 when no number up to 1,000 would. */
    int rounds_low, rounds_high;
};

/* Whether a difference is claimed at all: the interval excludes 1 and the two tests agree. */
bool effect_is_claimed(const struct effect *effect);

/* `rounds` 2 to VERDICT_MAX_ROUNDS; `matters` for instance 0.02; at most one effect is primary. */
void verdict_decide(struct effect *effects, size_t count, size_t rounds, double matters);

#endif
