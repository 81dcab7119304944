/* The generator against its published vectors, and the distributions made of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "tests/support/check_run.h"

/* Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors). */
START_TEST(test_philox_vectors)
{
    const struct {
        uint32_t counter[4], key[2], out[4];
    } rows[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        uint32_t out[4];
        rng_philox(rows[i].counter, rows[i].key, out);
        ck_assert_mem_eq(out, rows[i].out, sizeof out);
    }
}
END_TEST

START_TEST(test_a_sequence_is_a_function_of_its_name)
{
    const struct {
        uint64_t seed;
        enum rng_purpose purpose;
        uint32_t epoch;
        uint64_t sample;
    } names[] = {
        {1, RNG_AUGMENT, 0, 0},
        {2, RNG_AUGMENT, 0, 0},
        {1 | UINT64_C(1) << 32, RNG_AUGMENT, 0, 0},
        {1, RNG_SHUFFLE, 0, 0},
        {1, RNG_AUGMENT, 1, 0},
        {1, RNG_AUGMENT, 0, 1},
        {1, RNG_AUGMENT, 0, UINT64_C(1) << 32},
        {1, RNG_AUGMENT, 0, UINT64_C(1) << 55},
        {1, RNG_WEIGHTS, 0, 0}, /* differs from the purpose of the others by one bit */
    };
    enum { COUNT = sizeof names / sizeof names[0], LENGTH = 11 };
    uint32_t numbers[COUNT][LENGTH];
    for (size_t i = 0; i < COUNT; i++) {
        struct rng rng, again;
        rng_init(&rng, names[i].seed, names[i].purpose, names[i].epoch, names[i].sample);
        again = rng;
        for (int j = 0; j < LENGTH; j++) {
            numbers[i][j] = rng_u32(&rng);
            ck_assert_uint_eq(numbers[i][j], rng_u32(&again));
        }
        for (size_t other = 0; other < i; other++) {
            ck_assert(memcmp(numbers[i], numbers[other], sizeof numbers[i]) != 0);
        }
    }
}
END_TEST

START_TEST(test_uniform_range_and_moments)
{
    struct rng rng;
    rng_init(&rng, 7, RNG_TEST, 0, 0);
    const int count = 200000;
    double sum = 0, squares = 0, lowest = 1, highest = 0;
    for (int i = 0; i < count; i++) {
        const double value = i % 2 == 0 ? rng_uniform_double(&rng) : (double)rng_uniform(&rng);
        ck_assert(value >= 0 && value < 1);
        sum += value;
        squares += value * value;
        lowest = value < lowest ? value : lowest;
        highest = value > highest ? value : highest;
    }
    /* Five standard errors: 0.2887 / sqrt(n) for the mean, 0.2981 / sqrt(n) for the square. */
    ck_assert_double_eq_tol(sum / count, 0.5, 5 * 0.2887 / sqrt(count));
    ck_assert_double_eq_tol(squares / count, 1.0 / 3, 5 * 0.2981 / sqrt(count));
    ck_assert(lowest < 1e-4 && highest > 1 - 1e-4);
}
END_TEST

START_TEST(test_below_is_fair)
{
    struct rng rng;
    rng_init(&rng, 8, RNG_TEST, 0, 0);
    ck_assert_uint_eq(rng_below(&rng, 1), 0);
    /* Three quarters of 2^32: without rejection every third value would come twice as often. */
    const uint32_t bound = UINT32_C(3) << 30;
    int thirds[3] = {0};
    const int count = 30000;
    for (int i = 0; i < count; i++) {
        const uint32_t value = rng_below(&rng, bound);
        ck_assert(value < bound);
        thirds[value % 3]++;
    }
    for (int i = 0; i < 3; i++) {
        /* Five standard deviations of a binomial with p = 1/3. */
        ck_assert_double_eq_tol(thirds[i], count / 3.0, 5 * sqrt(count * 2.0 / 9));
    }
}
END_TEST

START_TEST(test_normal_moments)
{
    struct rng rng;
    rng_init(&rng, 9, RNG_TEST, 0, 0);
    const int count = 200000;
    double sum = 0, squares = 0, fourth = 0;
    for (int i = 0; i < count; i++) {
        const double value = rng_normal(&rng);
        sum += value;
        squares += value * value;
        fourth += value * value * value * value;
    }
    /* Five standard errors; the variances of x, x^2 and x^4 are 1, 2 and 96. */
    ck_assert_double_eq_tol(sum / count, 0, 5 / sqrt(count));
    ck_assert_double_eq_tol(squares / count, 1, 5 * sqrt(2.0 / count));
    ck_assert_double_eq_tol(fourth / count, 3, 5 * sqrt(96.0 / count));
}
END_TEST

START_TEST(test_permutation)
{
    enum { COUNT = 1000 };
    uint32_t order[COUNT], again[COUNT], next[COUNT];
    rng_permutation(3, 4, order, COUNT);
    rng_permutation(3, 4, again, COUNT);
    rng_permutation(3, 5, next, COUNT);
    ck_assert_mem_eq(order, again, sizeof order);
    ck_assert(memcmp(order, next, sizeof order) != 0);
    char seen[COUNT] = {0};
    int unmoved = 0;
    for (uint32_t i = 0; i < COUNT; i++) {
        ck_assert(order[i] < COUNT && !seen[order[i]]);
        seen[order[i]] = 1;
        unmoved += order[i] == i;
    }
    ck_assert_int_lt(unmoved, 10); /* one is expected; ten has a chance of 1e-7 */
    rng_permutation(3, 4, order, 1);
    ck_assert_uint_eq(order[0], 0);
    rng_permutation(3, 4, NULL, 0);

    /* All six orders of three come equally often. */
    int counts[27] = {0};
    const int trials = 12000;
    for (int i = 0; i < trials; i++) {
        rng_permutation((uint64_t)i, 0, order, 3);
        counts[order[0] * 9 + order[1] * 3 + order[2]]++;
    }
    int kinds = 0;
    for (int i = 0; i < 27; i++) {
        if (counts[i] != 0) {
            kinds++;
            ck_assert_double_eq_tol(counts[i], trials / 6.0, 5 * sqrt(trials * 5.0 / 36));
        }
    }
    ck_assert_int_eq(kinds, 6);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_philox_vectors,
        test_a_sequence_is_a_function_of_its_name,
        test_uniform_range_and_moments,
        test_below_is_fair,
        test_normal_moments,
        test_permutation,
    };
    return check_run("rng", tests, sizeof tests / sizeof tests[0], 0);
}
