/*
 * The statistics of section "Measuring" in docs/measuring.md: paired ratios over rounds. Pure
 * functions of their arguments; arrays are the caller's and are not changed unless said.
 */
#ifndef PINLINE_BASE_STATISTICS_H
#define PINLINE_BASE_STATISTICS_H

#include <stddef.h>

/* count >= 1. */
double statistics_mean(const double *values, size_t count);
/* Sample standard deviation (count - 1 in the denominator); 0 for count < 2. */
double statistics_deviation(const double *values, size_t count);
/* Quantile by linear interpolation between order statistics, 0 <= p <= 1 (type 7 of Hyndman and
 * Fan, 1996). Sorts a copy; count >= 1; NaN when memory is exhausted. */
double statistics_quantile(const double *values, size_t count, double p);
double statistics_median(const double *values, size_t count);

/* P(T <= t) of Student's t with `freedom` > 0 degrees, and its inverse, 0 < p < 1. Relative error
 * below 1e-9. */
double statistics_t_cdf(double t, double freedom);
double statistics_t_quantile(double p, double freedom);

/* Result of comparing two cells over rounds. Ratios are of rates: 1.05 is 5 % more samples/s. */
struct statistics_ratio {
    size_t rounds;
    double ratio;       /* exp(mean of log(a/b)) */
    double low, high;   /* two-sided t interval at `confidence` over rounds, as ratios */
    double p_value;     /* two-sided paired t test of ratio = 1 */
    double p_sign_flip; /* two-sided sign-flip (permutation) test of the same */
};

/*
 * Paired over rounds: a[i] and b[i] are rates of round i, both > 0. `confidence` for instance 0.95.
 * rounds >= 2; the sign-flip test enumerates all 2^rounds flips up to 16 rounds, above that it draws
 * 65,536 from a fixed seed. All-equal differences give an interval of zero width and p 1 or 0.
 */
void statistics_paired_ratio(const double *a, const double *b, size_t rounds, double confidence,
                             struct statistics_ratio *out);

/* Holm's step-down adjustment: adjusted[i] for p[i], in the same order, each at most 1. */
void statistics_holm(const double *p, size_t count, double *adjusted);

#endif
