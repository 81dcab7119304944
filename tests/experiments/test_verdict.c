/* Verdicts on constructed rounds, Holm's levels by hand, and the family's error rate by simulation
 * with a fixed seed. */
#include "experiments/verdict.h"

#include <math.h>

#include "base/rng.h"
#include "tests/support/check_run.h"

enum { ROUNDS = 6 };
static const double base_rates[ROUNDS] = {100, 101, 99, 100.5, 99.5, 100};
/* Small deviations of both signs, in per cent, mean 0. */
static const double wobble[ROUNDS] = {0.1, -0.1, 0.2, -0.2, 0.05, -0.05};

static enum verdict decide(double gain, double wobble_scale)
{
    double rates[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rates[i] = base_rates[i] * gain * (1 + wobble_scale * wobble[i] / 100);
    }
    struct effect effect = {.name = "a/b", .primary = true, .a = rates, .b = base_rates};
    verdict_decide(&effect, 1, ROUNDS, 0.02);
    return effect.verdict;
}

START_TEST(test_verdicts)
{
    ck_assert_int_eq(decide(1.10, 1), VERDICT_WORTH_IT);
    ck_assert_int_eq(decide(0.95, 1), VERDICT_COSTS);
    ck_assert_int_eq(decide(1.00, 1), VERDICT_NOT_WORTH_IT);
    ck_assert_int_eq(decide(1.01, 1), VERDICT_NOT_WORTH_IT);
    ck_assert_int_eq(decide(1.02, 1), VERDICT_UNDECIDED);
    ck_assert_int_eq(decide(1.05, 100), VERDICT_UNDECIDED);
}
END_TEST

START_TEST(test_few_rounds_no_verdict)
{
    struct effect effect = {.name = "a/b", .primary = true, .a = base_rates, .b = base_rates};
    verdict_decide(&effect, 1, VERDICT_MIN_ROUNDS - 1, 0.02);
    ck_assert_int_eq(effect.verdict, VERDICT_NONE);
    ck_assert_str_eq(verdict_text(effect.verdict), "too few rounds");
}
END_TEST

START_TEST(test_interaction)
{
    /* a a2 / (b b2) = 1.2 * 1 / (1.1 * 1.05) in every round. */
    double a[ROUNDS], b[ROUNDS], b2[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        a[i] = base_rates[i] * 1.2;
        b[i] = base_rates[i] * 1.1;
        b2[i] = base_rates[i] * 1.05;
    }
    struct effect effect = {
        .name = "interaction", .a = a, .a2 = base_rates, .b = b, .b2 = b2, .primary = true};
    verdict_decide(&effect, 1, ROUNDS, 0.02);
    ck_assert_double_eq_tol(effect.ratio.ratio, 1.2 / (1.1 * 1.05), 1e-12);
}
END_TEST

START_TEST(test_holm_levels)
{
    /* Effects of +5 %, +3 % and 0 with the same wobble: the first two reject, so they are held to
     * 0.05 / 3 and 0.05 / 2, and the last to 0.05 / 1. */
    double rates[3][ROUNDS];
    const double gains[3] = {1.03, 1.05, 1.0};
    struct effect effects[3];
    for (int e = 0; e < 3; e++) {
        for (int i = 0; i < ROUNDS; i++) {
            rates[e][i] = base_rates[i] * gains[e] * (1 + wobble[i] / 100);
        }
        effects[e] = (struct effect){.name = "e", .a = rates[e], .b = base_rates};
    }
    verdict_decide(effects, 3, ROUNDS, 0.02);
    ck_assert_double_eq_tol(effects[1].confidence, 1 - 0.05 / 3, 1e-12);
    ck_assert_double_eq_tol(effects[0].confidence, 1 - 0.05 / 2, 1e-12);
    ck_assert_double_eq_tol(effects[2].confidence, 0.95, 1e-12);
    ck_assert_double_ge(effects[1].p_adjusted, effects[1].ratio.p_value);
}
END_TEST

START_TEST(test_rounds_that_would_settle)
{
    double rates[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rates[i] = base_rates[i] * 1.03 * (1 + 8 * wobble[i] / 100);
    }
    struct effect effect = {.name = "a/b", .primary = true, .a = rates, .b = base_rates};
    verdict_decide(&effect, 1, ROUNDS, 0.02);
    ck_assert_int_eq(effect.verdict, VERDICT_UNDECIDED);
    ck_assert_int_gt(effect.rounds_low, ROUNDS);
    ck_assert_int_ge(effect.rounds_high, effect.rounds_low);
}
END_TEST

/* 2,000 trials of six rounds in which no cell differs: the primary claims an effect, and any of the
 * family claims one, in at most 6.5 %. A claim is an interval that excludes 1. */
START_TEST(test_no_effect_claims_nothing)
{
    enum { TRIALS = 2000, CELLS = 5 };
    int primary_claims = 0, family_claims = 0;
    struct rng rng;
    rng_init(&rng, 2024, RNG_TEST, 0, 0);
    for (int trial = 0; trial < TRIALS; trial++) {
        double rates[CELLS][ROUNDS];
        for (int round = 0; round < ROUNDS; round++) {
            double common = 0.05 * rng_normal(&rng);
            for (int c = 0; c < CELLS; c++) {
                rates[c][round] = 1000 * exp(common + 0.01 * rng_normal(&rng));
            }
        }
        /* default, pin, non_blocking, both, both+stream */
        struct effect effects[] = {
            {.name = "both/default", .primary = true, .a = rates[3], .b = rates[0]},
            {.name = "pin/default", .a = rates[1], .b = rates[0]},
            {.name = "non_blocking/default", .a = rates[2], .b = rates[0]},
            {.name = "interaction", .a = rates[3], .a2 = rates[0], .b = rates[1], .b2 = rates[2]},
            {.name = "both+stream/both", .a = rates[4], .b = rates[3]}};
        verdict_decide(effects, 5, ROUNDS, 0.02);
        bool any = false;
        for (int e = 0; e < 5; e++) {
            bool claims = !effects[e].tests_disagree &&
                          (effects[e].ratio.low > 1 || effects[e].ratio.high < 1);
            primary_claims += e == 0 && claims;
            any = any || (e > 0 && claims);
        }
        family_claims += any;
    }
    ck_assert_msg(primary_claims <= TRIALS * 0.065, "primary: %d", primary_claims);
    ck_assert_msg(family_claims <= TRIALS * 0.065, "family: %d", family_claims);
    ck_assert_msg(primary_claims >= TRIALS * 0.02, "primary: %d, too timid to be right",
                  primary_claims);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_verdicts,    test_few_rounds_no_verdict,    test_interaction,
        test_holm_levels, test_rounds_that_would_settle, test_no_effect_claims_nothing};
    return check_run("verdict", tests, sizeof tests / sizeof tests[0], 60);
}
