/* Every operation of the host device, with each set of loops that this processor has: random shapes
 * against the reference, and the BLAS. */
#include <check.h>

#include "device/host/host_internal.h"
#include "tests/support/check_run.h"
#include "tests/support/host_variant.h"
#include "tests/support/op_cases.h"

/* --- Random shapes ---------------------------------------------------------------------------- */

static const struct conv_case conv_cases[] = {
    {2, 8, 8, 16, 32, 3, 3, 1, 1, false, false}, {3, 7, 9, 5, 7, 3, 3, 1, 1, true, true},
    {2, 9, 7, 4, 32, 3, 3, 4, 1, true, true},    {1, 11, 13, 3, 33, 7, 7, 2, 3, false, false},
    {2, 8, 8, 24, 40, 1, 1, 1, 0, false, true},  {2, 9, 8, 17, 10, 1, 1, 2, 0, false, false},
    {3, 8, 11, 8, 65, 3, 3, 2, 1, true, false},  {2, 6, 5, 6, 3, 2, 3, 1, 0, true, true},
    {1, 5, 5, 3, 4, 3, 3, 3, 2, false, false},   {2, 3, 3, 2, 2, 3, 3, 2, 4, true, false},
    {17, 4, 4, 8, 8, 3, 3, 1, 1, false, false},  {1, 1, 1, 1, 1, 1, 1, 1, 0, false, false},
    {2, 2, 2, 7, 5, 3, 3, 1, 1, true, true},     {1, 40, 37, 3, 9, 3, 3, 1, 1, true, true},
    {2, 6, 6, 70, 34, 3, 3, 1, 1, false, false}, {2, 10, 6, 4, 6, 5, 1, 2, 2, false, false},
};

START_TEST(conv_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    for (size_t i = 0; i < sizeof conv_cases / sizeof *conv_cases; i++) {
        op_case_conv(&b, &conv_cases[i]);
        op_case_conv_backward_data(&b, &conv_cases[i]);
        op_case_conv_backward_filter(&b, &conv_cases[i], false);
        op_case_conv_backward_filter(&b, &conv_cases[i], true);
    }
    for (int i = 0; i < 40; i++) {
        struct conv_case c = {
            .n = 1 + (int)rng_below(&b.rng, 5),
            .r = 1 + (int)rng_below(&b.rng, 4),
            .s = 1 + (int)rng_below(&b.rng, 4),
            .c = 1 + (int)rng_below(&b.rng, 40),
            .k = 1 + (int)rng_below(&b.rng, 40),
            .stride = 1 + (int)rng_below(&b.rng, 3),
            .pad = (int)rng_below(&b.rng, 4),
            .bias = rng_below(&b.rng, 2) == 1,
            .relu = rng_below(&b.rng, 2) == 1,
        };
        c.h = c.r + (int)rng_below(&b.rng, 12);
        c.w = c.s + (int)rng_below(&b.rng, 12);
        op_case_conv(&b, &c);
        op_case_conv_backward_data(&b, &c);
        op_case_conv_backward_filter(&b, &c, i % 2 == 0);
    }
    host_variant_close(&b);
}
END_TEST

START_TEST(norm_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    static const struct norm_case cases[] = {
        {2, 5, 3, 7, false, false, 0.0},   {3, 4, 4, 16, true, true, 0.5},
        {2, 1, 1, 5, false, true, 0.0},    {1, 9, 5, 33, true, false, -2.0},
        {8, 16, 16, 24, true, true, 0.1},  {1, 1, 2, 1, false, true, 0.0},
        {16, 9, 11, 64, false, true, 1.0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        op_case_norm(&b, &cases[i]);
        op_case_norm_infer(&b, &cases[i]);
        /* Of two values the normalised ones are 1 and -1 whatever they are: their gradient is
         * nothing but rounding. */
        if (cases[i].n * cases[i].h * cases[i].w > 2) {
            op_case_norm_backward(&b, &cases[i], false, false);
            op_case_norm_backward(&b, &cases[i], true, false);
            op_case_norm_backward(&b, &cases[i], false, true);
        }
    }
    host_variant_close(&b);
}
END_TEST

/* A mean a thousand deviations from zero: sums in float32 would lose the variance altogether. x
 * itself has 24 bits, so that 1 / deviation is known to about 1e-5. */
START_TEST(norm_far_from_zero)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    b.relative = 1e-4;
    b.absolute = 1e-4;
    op_case_norm(&b, &(struct norm_case){4, 8, 8, 8, false, false, 1000.0});
    host_variant_close(&b);
}
END_TEST

START_TEST(pool_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    for (int i = 0; i < 40; i++) {
        struct pool_case c = {
            .n = 1 + (int)rng_below(&b.rng, 4),
            .c = 1 + (int)rng_below(&b.rng, 40),
            .window = 1 + (int)rng_below(&b.rng, 4),
            .stride = 1 + (int)rng_below(&b.rng, 3),
            .ties = rng_below(&b.rng, 2) == 1,
            .index = rng_below(&b.rng, 2) == 1,
        };
        c.pad = (int)rng_below(&b.rng, (uint32_t)c.window / 2 + 1);
        c.h = c.window + (int)rng_below(&b.rng, 10);
        c.w = c.window + (int)rng_below(&b.rng, 10);
        op_case_pool(&b, &c);
    }
    op_case_global_average(&b, 3, 7, 5, 19, true);
    op_case_global_average(&b, 2, 1, 1, 8, false);
    op_case_global_average(&b, 5, 8, 8, 64, false);
    host_variant_close(&b);
}
END_TEST

START_TEST(linear_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    op_case_linear(&b, 64, 128, 10, true, 1.0);
    op_case_linear(&b, 1, 3, 2, true, 0.125);
    op_case_linear(&b, 37, 51, 101, false, 0.125);
    op_case_linear(&b, 70, 300, 33, true, -2.0);
    op_case_softmax_loss(&b, 64, 10, 3.0, true);
    op_case_softmax_loss(&b, 1, 2, 1.0, true);
    op_case_softmax_loss(&b, 77, 1000, 5.0, true);
    op_case_softmax_loss(&b, 5, 7, 100.0, false);
    host_variant_close(&b);
}
END_TEST

START_TEST(pointwise_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    for (int channels = 3; channels <= 8; channels++) {
        op_case_ingest(&b, 2, 5, 7, channels, true);
        op_case_ingest(&b, 2, 5, 7, channels, false);
    }
    op_case_ingest(&b, 4, 64, 64, 4, true);
    op_case_bias_backward(&b, 3, 5, 7, 19);
    op_case_bias_backward(&b, 16, 16, 16, 40);
    for (int place = 0; place < 2; place++) {
        op_case_relu_backward(&b, 3, 5, 7, 19, place == 1);
        op_case_relu_backward(&b, 8, 16, 16, 40, place == 1);
        op_case_add(&b, 3, 5, 7, 19, place == 1);
        op_case_add(&b, 8, 16, 16, 40, place == 1);
    }
    op_case_cast(&b, 100003);
    host_variant_close(&b);
}
END_TEST

START_TEST(updates_against_reference)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    for (int bits = 0; bits < 8; bits++) {
        op_case_sgd(&b, 1 + 333 * bits, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0);
        op_case_adamw(&b, 1 + 333 * bits, (bits & 1) != 0, (bits & 4) != 0);
    }
    op_case_sgd(&b, 100001, true, true, true);
    op_case_adamw(&b, 100001, true, true);
    host_variant_close(&b);
}
END_TEST

/* --- The BLAS --------------------------------------------------------------------------------- */

/* OpenBLAS of some years is wrong on processors younger than it. The shapes cover whole blocks and
 * rests of its kernels. */
START_TEST(blas_computes_right_products)
{
    struct op_bench b;
    if (!host_variant_open(0, &b)) {
        return;
    }
    MUST(host__blas_check());
    static const int sizes[] = {1, 3, 15, 16, 17, 31, 48, 97, 130};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            op_case_linear(&b, sizes[i], sizes[j], sizes[(i + 2 * j) % 9], true, 1.0);
        }
    }
    host_variant_close(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_ops");
    TCase *random = tcase_create("against the reference");
    TCase *blas = tcase_create("the BLAS");
    tcase_set_timeout(random, 60);
    tcase_add_loop_test(random, conv_against_reference, 0, HOST_VARIANTS);
    tcase_add_loop_test(random, norm_against_reference, 0, HOST_VARIANTS);
    tcase_add_loop_test(random, norm_far_from_zero, 0, 1);
    tcase_add_loop_test(random, pool_against_reference, 0, HOST_VARIANTS);
    tcase_add_loop_test(random, linear_against_reference, 0, HOST_VARIANTS);
    tcase_add_loop_test(random, pointwise_against_reference, 0, HOST_VARIANTS);
    tcase_add_loop_test(random, updates_against_reference, 0, HOST_VARIANTS);
    tcase_set_timeout(blas, 60);
    tcase_add_test(blas, blas_computes_right_products);
    suite_add_tcase(suite, random);
    suite_add_tcase(suite, blas);
    return check_run_suite(suite);
}
