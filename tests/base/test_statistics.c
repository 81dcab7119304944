/*
 * Statistics: closed forms and numerical integrals for Student's t, hand-worked small cases, and
 * simulated experiments with a fixed seed for what an interval promises.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/statistics.h"
#include "tests/support/check_run.h"

static void assert_close(double got, double wanted, double relative)
{
    ck_assert_msg(fabs(got - wanted) <= relative * fabs(wanted), "%.17g instead of %.17g", got,
                  wanted);
}

START_TEST(test_moments)
{
    const double values[] = {2, 4, 4, 4, 5, 5, 7, 9};
    assert_close(statistics_mean(values, 8), 5, 1e-15);
    assert_close(statistics_deviation(values, 8), sqrt(32.0 / 7), 1e-15);
    ck_assert_double_eq(statistics_deviation(values, 1), 0);
}
END_TEST

START_TEST(test_quantiles)
{
    const double values[] = {40, 10, 30, 20}; /* R: quantile(x, type = 7) */
    assert_close(statistics_quantile(values, 4, 0.25), 17.5, 1e-15);
    assert_close(statistics_quantile(values, 4, 0.9), 37, 1e-15);
    assert_close(statistics_median(values, 4), 25, 1e-15);
    ck_assert_double_eq(statistics_quantile(values, 4, 0), 10);
    ck_assert_double_eq(statistics_quantile(values, 4, 1), 40);
    ck_assert_double_eq(values[0], 40); /* the caller's array is left alone */
    assert_close(statistics_median(values, 3), 30, 1e-15);
    assert_close(statistics_median(values, 1), 40, 1e-15);
}
END_TEST

/* Closed forms for 1, 2 and 4 degrees of freedom (Shaw, "Sampling Student's T distribution", 2006),
 * written for the distance e = 1 - p or p from the nearer end so that small ones stay exact. */
static double exact_quantile(double e, int freedom)
{
    const double alpha = 4 * e * (1 - e);
    const double pi = acos(-1);
    switch (freedom) {
    case 1:
        return 1 / tan(pi * e);
    case 2:
        return (1 - 2 * e) * sqrt(2 / alpha);
    default:
        return 2 * sqrt(cos(acos(sqrt(alpha)) / 3) / sqrt(alpha) - 1);
    }
}

START_TEST(test_t_closed_forms)
{
    const int freedoms[] = {1, 2, 4};
    const double ends[] = {1e-12, 1e-6, 0.001, 0.025, 0.1, 0.24, 0.26, 0.4};
    for (size_t i = 0; i < 3; i++) {
        for (size_t j = 0; j < sizeof ends / sizeof ends[0]; j++) {
            const double t = exact_quantile(ends[j], freedoms[i]);
            assert_close(statistics_t_quantile(ends[j], freedoms[i]), -t, 1e-9);
            assert_close(statistics_t_cdf(-t, freedoms[i]), ends[j], 1e-9);
            if (ends[j] >= 0.001) {
                /* 1 - end is exact enough here for the upper side. */
                assert_close(statistics_t_quantile(1 - ends[j], freedoms[i]), t, 1e-9);
                assert_close(statistics_t_cdf(t, freedoms[i]), 1 - ends[j], 1e-12);
            }
        }
    }
}
END_TEST

START_TEST(test_t_tables)
{
    /* Tabulated to three decimals in every textbook; the last rows near the normal's. */
    const struct {
        double p, freedom, t;
    } rows[] = {
        {0.975, 1, 12.706}, {0.975, 2, 4.303},  {0.975, 3, 3.182},  {0.975, 5, 2.571},
        {0.975, 7, 2.365},  {0.975, 10, 2.228}, {0.975, 30, 2.042}, {0.975, 120, 1.980},
        {0.95, 5, 2.015},   {0.99, 5, 3.365},   {0.995, 5, 4.032},  {0.9995, 5, 6.869},
        {0.95, 10, 1.812},  {0.995, 30, 2.750}, {0.90, 7, 1.415},   {0.995, 60, 2.660},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_double_eq_tol(statistics_t_quantile(rows[i].p, rows[i].freedom), rows[i].t,
                                0.0005 + 1e-9);
    }
    ck_assert_double_eq(statistics_t_quantile(0.5, 3), 0);
    ck_assert_double_eq(statistics_t_cdf(0, 3), 0.5);
    /* The normal quantile 1.95996398454005 and its first correction z (z^2 + 1) / (4 n). */
    const double z = 1.959963984540054;
    assert_close(statistics_t_quantile(0.975, 1e5), z + z * (z * z + 1) / 4e5, 1e-9);
}
END_TEST

/* The density's integral from 0 to t by Simpson's rule. */
static double integrate_density(double t, double freedom)
{
    const double scale =
        tgamma((freedom + 1) / 2) / (sqrt(freedom * acos(-1)) * tgamma(freedom / 2));
    const int steps = 20000;
    const double width = t / steps;
    double sum = 0;
    for (int i = 0; i <= steps; i++) {
        const double x = width * i;
        const double weight = i == 0 || i == steps ? 1 : i % 2 == 1 ? 4 : 2;
        sum += weight * pow(1 + x * x / freedom, -(freedom + 1) / 2);
    }
    return scale * sum * width / 3;
}

START_TEST(test_t_against_integration)
{
    const double freedoms[] = {1, 2.5, 5, 7, 11, 29, 100, 150};
    const double points[] = {1e-3, 0.1, 0.7, 1.3, 2.6, 4};
    for (size_t i = 0; i < sizeof freedoms / sizeof freedoms[0]; i++) {
        for (size_t j = 0; j < sizeof points / sizeof points[0]; j++) {
            const double centre = integrate_density(points[j], freedoms[i]);
            assert_close(statistics_t_cdf(points[j], freedoms[i]), 0.5 + centre, 1e-11);
            /* 0.5 - centre loses digits of the tail, so the bound is absolute. */
            ck_assert_double_eq_tol(statistics_t_cdf(-points[j], freedoms[i]), 0.5 - centre, 1e-11);
            assert_close(statistics_t_quantile(0.5 + centre, freedoms[i]), points[j], 1e-8);
        }
    }
}
END_TEST

START_TEST(test_paired_ratio_by_hand)
{
    /* Log ratios 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641 with two
     * degrees, whose two-sided p is 1 - t / sqrt(2 + t^2) = 0.0741799; reach 4.302653 * 0.057735. */
    const double b[] = {100, 50, 10};
    const double a[] = {100 * exp(0.1), 50 * exp(0.2), 10 * exp(0.3)};
    struct statistics_ratio result;
    statistics_paired_ratio(a, b, 3, 0.95, &result);
    ck_assert_uint_eq(result.rounds, 3);
    assert_close(result.ratio, exp(0.2), 1e-12);
    assert_close(result.low, exp(0.2 - 4.30265272974946 * 0.1 / sqrt(3)), 1e-9);
    assert_close(result.high, exp(0.2 + 4.30265272974946 * 0.1 / sqrt(3)), 1e-9);
    assert_close(result.p_value, 1 - sqrt(12.0 / 14), 1e-9);
    /* Of the eight sign patterns only all-plus and all-minus reach a sum of 0.6. */
    assert_close(result.p_sign_flip, 2.0 / 8, 1e-15);

    struct statistics_ratio swapped;
    statistics_paired_ratio(b, a, 3, 0.95, &swapped);
    assert_close(swapped.low, 1 / result.high, 1e-12);
    assert_close(swapped.p_value, result.p_value, 1e-12);
}
END_TEST

START_TEST(test_paired_ratio_without_spread)
{
    const double a[] = {2, 2, 2}, b[] = {1, 1, 1};
    struct statistics_ratio result;
    statistics_paired_ratio(a, b, 3, 0.95, &result);
    assert_close(result.ratio, 2, 1e-15);
    ck_assert_double_eq(result.low, result.ratio);
    ck_assert_double_eq(result.high, result.ratio);
    ck_assert_double_eq(result.p_value, 0);
    statistics_paired_ratio(a, a, 3, 0.95, &result);
    ck_assert_double_eq(result.ratio, 1);
    ck_assert_double_eq(result.p_value, 1);
    ck_assert_double_eq(result.p_sign_flip, 1);
}
END_TEST

START_TEST(test_sign_flips_by_hand)
{
    /* Differences of 1, 1, -1 and 3 units sum to 4: counted over all patterns in integers. */
    const int differences[] = {1, 1, -1, 3};
    int extreme = 0;
    for (int pattern = 0; pattern < 16; pattern++) {
        int sum = 0;
        for (int i = 0; i < 4; i++) {
            sum += (pattern >> i & 1) != 0 ? -differences[i] : differences[i];
        }
        extreme += abs(sum) >= 4;
    }
    double a[4], b[4];
    for (int i = 0; i < 4; i++) {
        a[i] = exp(0.01 * differences[i]);
        b[i] = 1;
    }
    struct statistics_ratio result;
    statistics_paired_ratio(a, b, 4, 0.95, &result);
    assert_close(result.p_sign_flip, extreme / 16.0, 1e-15);

    /* With 20 rounds of equal sign the exact value is 2 / 2^20; drawing finds none or one. */
    double c[20], d[20];
    for (int i = 0; i < 20; i++) {
        c[i] = 1.1 + 0.001 * i;
        d[i] = 1;
    }
    statistics_paired_ratio(c, d, 20, 0.95, &result);
    ck_assert(result.p_sign_flip > 0 && result.p_sign_flip < 5.0 / 65536);
    /* And with no effect (signs in turn) it is far from 0. */
    for (int i = 0; i < 20; i++) {
        c[i] = i % 2 == 0 ? 1.1 : 1 / 1.1;
    }
    statistics_paired_ratio(c, d, 20, 0.95, &result);
    ck_assert(result.p_sign_flip > 0.9);
}
END_TEST

START_TEST(test_holm)
{
    /* Sorted 0.005, 0.01, 0.03, 0.04 times 4, 3, 2, 1, never falling. */
    const double p[] = {0.01, 0.04, 0.03, 0.005};
    const double wanted[] = {0.03, 0.06, 0.06, 0.02};
    double adjusted[5];
    statistics_holm(p, 4, adjusted);
    for (int i = 0; i < 4; i++) {
        assert_close(adjusted[i], wanted[i], 1e-12);
    }
    const double ties[] = {0.02, 0.02, 0.9, 0.02, 0.9};
    statistics_holm(ties, 5, adjusted);
    ck_assert_double_eq(adjusted[2], 1);
    const double ties4[] = {0.02, 0.02, 0.9, 0.02};
    statistics_holm(ties4, 4, adjusted);
    assert_close(adjusted[0], 0.08, 1e-12);
    assert_close(adjusted[1], 0.08, 1e-12);
    assert_close(adjusted[3], 0.08, 1e-12);
    assert_close(adjusted[2], 0.9, 1e-12);
    const double one[] = {0.2};
    statistics_holm(one, 1, adjusted);
    assert_close(adjusted[0], 0.2, 1e-15);
    const double zeros[] = {0, 0};
    statistics_holm(zeros, 2, adjusted);
    ck_assert_double_eq(adjusted[0], 0);
    ck_assert_double_eq(adjusted[1], 0);
}
END_TEST

/* --- Simulated experiments: six rounds of six runs in a Williams order ---------------------- */

enum { ROUNDS = 6, CELLS = 6, TRIALS = 2000 };

struct noise {
    const char *name;
    double deviation[2];    /* of the logarithm, of the two cells that are compared */
    double round;           /* deviation shared by the runs of a round */
    double outliers;        /* share of runs that are 10 % faster */
    double drift;           /* growth of the logarithm from one run to the next */
    double lowest, highest; /* the share of intervals that may cover the truth */
};

/* Position of a cell in the rows of the Williams square for six: 0 1 5 2 4 3, each row one more. */
static int position_of(int row, int cell)
{
    static const int first[CELLS] = {0, 1, 5, 2, 4, 3};
    for (int i = 0; i < CELLS; i++) {
        if ((first[i] + row) % CELLS == cell) {
            return i;
        }
    }
    return -1;
}

/* One experiment: rates of the compared cells, 0 and 3, where the truth is `ratio`. The rows of the
 * square are in random order. */
static void simulate(struct rng *rng, const struct noise *noise, double ratio, double *a, double *b)
{
    int rows[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        rows[i] = i;
    }
    for (int i = ROUNDS; i > 1; i--) {
        const int j = (int)rng_below(rng, (uint32_t)i);
        const int kept = rows[i - 1];
        rows[i - 1] = rows[j];
        rows[j] = kept;
    }
    for (int round = 0; round < ROUNDS; round++) {
        const double shared = noise->round * rng_normal(rng);
        for (int side = 0; side < 2; side++) {
            const int run = round * CELLS + position_of(rows[round], side == 0 ? 0 : 3);
            double value = shared + noise->deviation[side] * rng_normal(rng) + noise->drift * run;
            if (rng_uniform_double(rng) < noise->outliers) {
                value += log(1.1);
            }
            *(side == 0 ? &a[round] : &b[round]) = 1000 * exp(value) * (side == 0 ? ratio : 1);
        }
    }
}

static const struct noise noises[] = {
    {"lognormal", {0.01, 0.01}, 0.02, 0, 0, 0.935, 0.97},
    {"outliers", {0.01, 0.01}, 0.02, 0.05, 0, 0.935, 1},
    {"slow drift", {0.01, 0.01}, 0.02, 0, 0.002, 0.935, 1},
    {"unequal variances", {0.03, 0.003}, 0.02, 0, 0, 0.935, 1},
};

START_TEST(test_intervals_cover_the_truth)
{
    for (size_t i = 0; i < sizeof noises / sizeof noises[0]; i++) {
        struct rng rng;
        rng_init(&rng, 2024, RNG_TEST, 0, i);
        int covered = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            const double truth = 1.05;
            double a[ROUNDS], b[ROUNDS];
            simulate(&rng, &noises[i], truth, a, b);
            struct statistics_ratio result;
            statistics_paired_ratio(a, b, ROUNDS, 0.95, &result);
            covered += result.low <= truth && truth <= result.high;
        }
        const double share = (double)covered / TRIALS;
        printf("%s: %.2f %% of the intervals cover the truth\n", noises[i].name, 100 * share);
        ck_assert_msg(share >= noises[i].lowest && share <= noises[i].highest,
                      "%s: %.4f of the intervals cover the truth", noises[i].name, share);
    }
}
END_TEST

START_TEST(test_no_effect_is_rarely_claimed)
{
    for (size_t i = 0; i < sizeof noises / sizeof noises[0]; i++) {
        struct rng rng;
        rng_init(&rng, 2025, RNG_TEST, 0, i);
        int claimed = 0, claimed_by_both = 0;
        for (int trial = 0; trial < TRIALS; trial++) {
            double a[ROUNDS], b[ROUNDS];
            simulate(&rng, &noises[i], 1, a, b);
            struct statistics_ratio result;
            statistics_paired_ratio(a, b, ROUNDS, 0.95, &result);
            const int outside = result.low > 1 || result.high < 1;
            ck_assert_int_eq(outside, result.p_value < 0.05);
            claimed += outside;
            claimed_by_both += outside && result.p_sign_flip < 0.05;
        }
        printf("%s: an effect is claimed in %.2f %%, with sign flips in %.2f %%\n", noises[i].name,
               100.0 * claimed / TRIALS, 100.0 * claimed_by_both / TRIALS);
        ck_assert_msg(claimed <= 0.065 * TRIALS, "%s: claimed in %d of %d", noises[i].name, claimed,
                      TRIALS);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_moments,
        test_quantiles,
        test_t_closed_forms,
        test_t_tables,
        test_t_against_integration,
        test_paired_ratio_by_hand,
        test_paired_ratio_without_spread,
        test_sign_flips_by_hand,
        test_holm,
        test_intervals_cover_the_truth,
        test_no_effect_is_rarely_claimed,
    };
    return check_run("statistics", tests, sizeof tests / sizeof tests[0], 0);
}
