#include "experiments/verdict.h"

#include <assert.h>
#include <math.h>

#define LEVEL 0.05
#define MOST_ROUNDS 1000

const char *verdict_text(enum verdict verdict)
{
    switch (verdict) {
    case VERDICT_WORTH_IT:
        return "worth it";
    case VERDICT_COSTS:
        return "costs";
    case VERDICT_NOT_WORTH_IT:
        return "not worth it";
    case VERDICT_UNDECIDED:
        return "undecided";
    case VERDICT_NONE:
        break;
    }
    return "too few rounds";
}

/* Products of rates turn an interaction into a plain ratio. */
static void rates_of(const struct effect *effect, size_t rounds, double *a, double *b)
{
    for (size_t i = 0; i < rounds; i++) {
        a[i] = effect->a[i] * (effect->a2 ? effect->a2[i] : 1);
        b[i] = effect->b[i] * (effect->b2 ? effect->b2[i] : 1);
    }
}

static void measure(struct effect *effect, size_t rounds, double confidence)
{
    double a[VERDICT_MAX_ROUNDS], b[VERDICT_MAX_ROUNDS];
    rates_of(effect, rounds, a, b);
    statistics_paired_ratio(a, b, rounds, confidence, &effect->ratio);
    effect->confidence = confidence;
    effect->tests_disagree = (effect->ratio.p_value < LEVEL) != (effect->ratio.p_sign_flip < LEVEL);
}

/* Quantile of chi-squared by Wilson and Hilferty's cube-root approximation (1931), good to a few
 * per cent from 5 degrees on, which is enough for advice. */
static double chi_squared_quantile(double normal_quantile, double freedom)
{
    double term = 2 / (9 * freedom);
    double root = 1 - term + normal_quantile * sqrt(term);
    return freedom * root * root * root;
}

/* Rounds at which an interval of this deviation no longer reaches the nearer bound. */
static int rounds_needed(double distance, double deviation, double confidence, size_t rounds)
{
    for (int n = (int)rounds; n <= MOST_ROUNDS; n++) {
        double half = statistics_t_quantile(0.5 + confidence / 2, n - 1) * deviation / sqrt(n);
        if (half < distance) {
            return n;
        }
    }
    return 0;
}

static void advise(struct effect *effect, size_t rounds, double matters)
{
    const double normal_90 = 1.2815515655446004;
    double freedom = (double)rounds - 1;
    double mean = log(effect->ratio.ratio);
    double half = (log(effect->ratio.high) - log(effect->ratio.low)) / 2;
    double deviation =
        half / statistics_t_quantile(0.5 + effect->confidence / 2, freedom) * sqrt((double)rounds);
    double to_zero = fabs(mean), to_matters = fabs(mean - log1p(matters));
    /* Between the bounds only the upper one must be cleared; below zero, zero itself. */
    double distance = mean >= 0 ? to_matters : to_zero;
    double smallest = deviation * sqrt(freedom / chi_squared_quantile(normal_90, freedom));
    double largest = deviation * sqrt(freedom / chi_squared_quantile(-normal_90, freedom));
    effect->rounds_low = rounds_needed(distance, smallest, effect->confidence, rounds + 1);
    effect->rounds_high = rounds_needed(distance, largest, effect->confidence, rounds + 1);
}

static void judge(struct effect *effect, size_t rounds, double matters)
{
    const struct statistics_ratio *ratio = &effect->ratio;
    effect->rounds_low = effect->rounds_high = 0;
    if (rounds < VERDICT_MIN_ROUNDS) {
        effect->verdict = VERDICT_NONE;
    } else if (effect->tests_disagree) {
        effect->verdict = VERDICT_UNDECIDED;
    } else if (ratio->low > 1 + matters) {
        effect->verdict = VERDICT_WORTH_IT;
    } else if (ratio->high < 1) {
        effect->verdict = VERDICT_COSTS;
    } else if (ratio->high < 1 + matters) {
        effect->verdict = VERDICT_NOT_WORTH_IT;
    } else {
        effect->verdict = VERDICT_UNDECIDED;
    }
    if (effect->verdict == VERDICT_UNDECIDED) {
        advise(effect, rounds, matters);
    }
}

bool effect_is_claimed(const struct effect *effect)
{
    return !effect->tests_disagree && (effect->ratio.low > 1 || effect->ratio.high < 1);
}

void verdict_decide(struct effect *effects, size_t count, size_t rounds, double matters)
{
    assert(count <= VERDICT_MAX_EFFECTS && rounds >= 2 && rounds <= VERDICT_MAX_ROUNDS);
    double p[VERDICT_MAX_EFFECTS] = {0}, adjusted[VERDICT_MAX_EFFECTS];
    size_t others[VERDICT_MAX_EFFECTS], other_count = 0;
    for (size_t i = 0; i < count; i++) {
        measure(&effects[i], rounds, 1 - LEVEL);
        effects[i].p_adjusted = effects[i].ratio.p_value;
        if (!effects[i].primary) {
            p[other_count] = effects[i].ratio.p_value;
            others[other_count++] = i;
        }
    }
    statistics_holm(p, other_count, adjusted);
    for (size_t i = 0; i < other_count; i++) {
        /* Step-down: the k-th smallest of m is tested at LEVEL / (m - k), k from 0. The first that
         * does not pass ends the procedure, and those after it keep its level. */
        size_t smaller = 0;
        for (size_t j = 0; j < other_count; j++) {
            bool before = p[j] < p[i] || (p[j] == p[i] && j < i);
            smaller += before && adjusted[j] < LEVEL;
        }
        struct effect *effect = &effects[others[i]];
        measure(effect, rounds, 1 - LEVEL / (double)(other_count - smaller));
        effect->p_adjusted = adjusted[i];
    }
    for (size_t i = 0; i < count; i++) {
        judge(&effects[i], rounds, matters);
    }
}
