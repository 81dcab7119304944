#include "base/statistics.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"

#define ENUMERATED_ROUNDS 16
#define SIGN_FLIP_DRAWS 65536
#define HALF_LOG_PI 0.57236494292470008707171367567653

double statistics_mean(const double *values, size_t count)
{
    assert(count >= 1);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += values[i];
    }
    return sum / (double)count;
}

double statistics_deviation(const double *values, size_t count)
{
    if (count < 2) {
        return 0;
    }
    const double mean = statistics_mean(values, count);
    double sum = 0;
    for (size_t i = 0; i < count; i++) {
        sum += (values[i] - mean) * (values[i] - mean);
    }
    return sqrt(sum / (double)(count - 1));
}

static int compare_doubles(const void *a, const void *b)
{
    const double left = *(const double *)a;
    const double right = *(const double *)b;
    return (left > right) - (left < right);
}

double statistics_quantile(const double *values, size_t count, double p)
{
    assert(count >= 1 && p >= 0 && p <= 1);
    double *sorted = malloc(count * sizeof *sorted);
    if (sorted == NULL) {
        return NAN;
    }
    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_doubles);
    const double position = p * (double)(count - 1);
    const size_t below = (size_t)position;
    const size_t above = below + 1 < count ? below + 1 : below;
    const double result =
        sorted[below] + (position - (double)below) * (sorted[above] - sorted[below]);
    free(sorted);
    return result;
}

double statistics_median(const double *values, size_t count)
{
    return statistics_quantile(values, count, 0.5);
}

/* --- Student's t --------------------------------------------------------------------------- */

/* log(gamma(a + 1/2) / gamma(a)). The difference of two logarithms of gamma loses digits when a is
 * large, so from 50 on it is the asymptotic series (Tricomi and Erdelyi, 1951), whose next term is
 * below 1e-14 there. */
static double log_gamma_step(double a)
{
    if (a < 50) {
        int sign;
        return lgamma_r(a + 0.5, &sign) - lgamma_r(a, &sign);
    }
    const double square = a * a;
    return 0.5 * log(a) - 1 / (8 * a) + 1 / (192 * a * square) - 1 / (640 * a * square * square) +
           17 / (14336 * a * square * square * square);
}

/* The continued fraction of the incomplete beta function (DLMF 8.17.22), evaluated from the front by
 * Lentz's method. Converges fast for x < (a + 1) / (a + b + 2). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1;
    double d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double result = d;
    for (int m = 1; m < 100000; m++) {
        const double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        d = 1 + even * d;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = 1 + even / c;
        c = fabs(c) < tiny ? tiny : c;
        result *= d * c;
        const double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
        d = 1 + odd * d;
        d = 1 / (fabs(d) < tiny ? tiny : d);
        c = 1 + odd / c;
        c = fabs(c) < tiny ? tiny : c;
        const double factor = d * c;
        result *= factor;
        if (fabs(factor - 1) < 1e-16) {
            break;
        }
    }
    return result;
}

/* P(T > |t|) and P(0 < T < |t|), each to its own relative precision: with h = freedom / 2 they are
 * I_x(h, 1/2) / 2 and I_y(1/2, h) / 2, x = freedom / (freedom + t^2), y = 1 - x. */
static void t_parts(double t, double freedom, double *tail, double *centre)
{
    const double h = freedom / 2;
    const double square = t * t;
    const double x = freedom / (freedom + square);
    const double y = square / (freedom + square);
    if (y == 0) {
        *tail = 0.5;
        *centre = 0;
        return;
    }
    /* x^h y^(1/2) / B(h, 1/2); B(h, 1/2) = sqrt(pi) gamma(h) / gamma(h + 1/2). */
    const double log_x = x > 0.5 ? log1p(-y) : log(x);
    const double front = exp(log_gamma_step(h) - HALF_LOG_PI + h * log_x + 0.5 * log(y));
    if (x < (h + 1) / (h + 2.5)) {
        *tail = 0.5 * front * beta_fraction(h, 0.5, x) / h;
        *centre = 0.5 - *tail;
    } else {
        *centre = front * beta_fraction(0.5, h, y);
        *tail = 0.5 - *centre;
    }
}

double statistics_t_cdf(double t, double freedom)
{
    assert(freedom > 0);
    double tail, centre;
    t_parts(t, freedom, &tail, &centre);
    return t < 0 ? tail : 0.5 + centre;
}

double statistics_t_quantile(double p, double freedom)
{
    assert(p > 0 && p < 1 && freedom > 0);
    if (p == 0.5) {
        return 0;
    }
    /* Solved for |t| by whichever part is the smaller one: a bracket [low, high] that is widened
     * first, then Newton's steps, and a halving wherever a step would leave the bracket. */
    const double outside = p < 0.5 ? p : 1 - p;
    const double inside = fabs(p - 0.5);
    double low = 0, high = 1, tail, centre;
    for (int i = 0; i < 1023; i++) {
        t_parts(high, freedom, &tail, &centre);
        if (tail <= outside) {
            break;
        }
        low = high;
        high *= 2;
    }
    const double log_scale = log_gamma_step(freedom / 2) - HALF_LOG_PI - 0.5 * log(freedom);
    double t = low + (high - low) / 2;
    for (int i = 0; i < 2100; i++) {
        t_parts(t, freedom, &tail, &centre);
        const double excess = outside < 0.25 ? tail - outside : inside - centre;
        if (excess > 0) {
            low = t;
        } else {
            high = t;
        }
        const double density = exp(log_scale - (freedom + 1) / 2 * log1p(t * t / freedom));
        double next = t + excess / density;
        if (!(next > low && next < high)) {
            next = low + (high - low) / 2;
        }
        if (fabs(next - t) <= 1e-15 * t || next <= low || next >= high) {
            break;
        }
        t = next;
    }
    return p < 0.5 ? -t : t;
}

/* --- Comparing cells ----------------------------------------------------------------------- */

/* Share of sign patterns whose sum is at least as far from 0 as the observed one. */
static double sign_flip_p(const double *differences, size_t count)
{
    double observed = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        observed += differences[i];
        size += fabs(differences[i]);
    }
    /* Sums of the same numbers in another order differ in their last digits and count as equal. */
    const double bound = fabs(observed) - size * 1e-12;
    uint32_t extreme = 0;
    if (count <= ENUMERATED_ROUNDS) {
        const uint32_t patterns = UINT32_C(1) << count;
        for (uint32_t pattern = 0; pattern < patterns; pattern++) {
            double sum = 0;
            for (size_t i = 0; i < count; i++) {
                sum += pattern >> i & 1 ? -differences[i] : differences[i];
            }
            extreme += fabs(sum) >= bound;
        }
        return (double)extreme / patterns;
    }
    struct rng rng;
    rng_init(&rng, 1, RNG_TEST, 0, count);
    for (uint32_t draw = 0; draw < SIGN_FLIP_DRAWS; draw++) {
        double sum = 0;
        uint32_t bits = 0;
        for (size_t i = 0; i < count; i++) {
            if (i % 32 == 0) {
                bits = rng_u32(&rng);
            }
            sum += bits >> (i % 32) & 1 ? -differences[i] : differences[i];
        }
        extreme += fabs(sum) >= bound;
    }
    /* The observed pattern is one of the possible ones, so the result is never 0. */
    return (extreme + 1.0) / (SIGN_FLIP_DRAWS + 1.0);
}

void statistics_paired_ratio(const double *a, const double *b, size_t rounds, double confidence,
                             struct statistics_ratio *out)
{
    assert(rounds >= 2 && confidence > 0 && confidence < 1);
    memset(out, 0, sizeof *out);
    out->rounds = rounds;
    double *differences = malloc(rounds * sizeof *differences);
    if (differences == NULL) {
        out->ratio = out->low = out->high = out->p_value = out->p_sign_flip = NAN;
        return;
    }
    int equal = 1;
    for (size_t i = 0; i < rounds; i++) {
        assert(a[i] > 0 && b[i] > 0);
        differences[i] = log(a[i]) - log(b[i]);
        equal &= differences[i] == differences[0];
    }
    const double mean = equal ? differences[0] : statistics_mean(differences, rounds);
    const double deviation = equal ? 0 : statistics_deviation(differences, rounds);
    const double error = deviation / sqrt((double)rounds);
    const double freedom = (double)(rounds - 1);
    const double reach = error * statistics_t_quantile(0.5 + confidence / 2, freedom);
    out->ratio = exp(mean);
    out->low = exp(mean - reach);
    out->high = exp(mean + reach);
    if (error > 0) {
        double tail, centre;
        t_parts(mean / error, freedom, &tail, &centre);
        out->p_value = 2 * tail;
    } else {
        out->p_value = mean == 0 ? 1 : 0;
    }
    out->p_sign_flip = sign_flip_p(differences, rounds);
    free(differences);
}

void statistics_holm(const double *p, size_t count, double *adjusted)
{
    /* Families are small: the next smallest is looked for each time, ties in order of index. */
    double largest = 0;
    double last = -1;
    size_t last_index = 0;
    for (size_t rank = 0; rank < count; rank++) {
        size_t next = count;
        for (size_t i = 0; i < count; i++) {
            const int after = p[i] > last || (rank > 0 && p[i] == last && i > last_index);
            if (after && (next == count || p[i] < p[next])) {
                next = i;
            }
        }
        assert(next < count); /* every p is a number */
        last = p[next];
        last_index = next;
        const double scaled = p[next] * (double)(count - rank);
        largest = scaled > largest ? scaled : largest;
        adjusted[next] = largest < 1 ? largest : 1;
    }
}
