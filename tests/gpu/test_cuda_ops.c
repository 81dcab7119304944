/*
 * Every operation of the CUDA device against its definition in double, in each precision: fresh random
 * data, outputs filled with NaN first, error as |got - expected| / |expected| over the whole tensor,
 * and the same bits from every operation that can run again.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "tests/support/op_cases.h"
#include "tests/support/skip.h"

static device *devices[3];
static const char *missing; /* why there is no device */
static uint64_t seed;       /* below 2^56, as the generator takes it */

#define PRECISIONS 3
#define REPEATS 6 /* of every operation, for its bits */

/*
 * What rounding of one result allows (2^-9 in bfloat16, 2^-24 in float32) and, for TF32, of the
 * factors (2^-11), times a small factor; sums of thousands of float32 products get 1e-5. The last
 * column is for float32 results of bfloat16 data.
 */
static const double bounds[OP_RESULTS][OP_BOUNDS] = {
    [OP_RESULT_EXACT] = {0, 0, 0, 0},
    [OP_RESULT_POINTWISE] = {2e-6, 2e-6, 4e-3, 4e-3},
    [OP_RESULT_NORM] = {4e-6, 4e-6, 8e-3, 8e-3},
    [OP_RESULT_STATISTIC] = {1e-5, 1e-5, 1e-5, 1e-5},
    [OP_RESULT_NORM_GRADIENT] = {2e-5, 2e-5, 8e-3, 8e-3},
    [OP_RESULT_AVERAGE] = {2e-6, 1e-3, 4e-3, 1e-3},
    [OP_RESULT_PRODUCT] = {1e-5, 1.5e-3, 4e-3, 4e-3},
    [OP_RESULT_LINEAR] = {2e-6, 1.5e-3, 1.5e-3, 1.5e-3},
    [OP_RESULT_LOSS] = {2e-6, 2e-6, 2e-6, 2e-6},
    [OP_RESULT_LOSS_GRADIENT] = {5e-6, 5e-6, 5e-6, 5e-6},
    [OP_RESULT_UPDATE] = {1e-6, 1e-6, 1e-6, 1e-6},
    [OP_RESULT_CHANGE] = {1e-4, 1e-4, 1e-4, 1e-4},
};

/* Devices stay open from test to test: their plans are searched for once. */
static bool open_bench(int precision, struct op_bench *b)
{
    static uint64_t benches;
    if (devices[precision] == NULL && missing == NULL) {
        struct device_settings settings;
        device_settings_defaults(&settings);
        settings.kind = DEVICE_CUDA;
        settings.precision = (enum precision)precision;
        settings.plan_candidates = 2;
        const enum status status = device_open(&settings, &devices[precision]);
        if (status == STATUS_NOT_FOUND) {
            static char reason[STATUS_MESSAGE_BYTES];
            snprintf(reason, sizeof reason, "%s", status_message());
            missing = reason;
        } else {
            MUST(status);
        }
    }
    if (devices[precision] == NULL) {
        return false;
    }
    op_bench_init(b, devices[precision], precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32, 0, 0,
                  seed + benches++);
    b->offset = 0;
    b->shift = 0.6;
    b->repeats = REPEATS;
    b->bounds = bounds;
    b->precision = (enum precision)precision;
    return true;
}

#define OPEN(b, precision)                                                                         \
    if (!open_bench(precision, b)) {                                                               \
        SKIP_TEST(missing);                                                                        \
    }

/* --- Convolutions --------------------------------------------------------------------------- */

static const struct conv_case conv_cases[] = {
    {4, 32, 32, 4, 32, 3, 3, 1, 1, false, false}, /* first layer, padded channels */
    {4, 32, 32, 32, 32, 3, 3, 1, 1, false, false},  {3, 15, 17, 64, 64, 3, 3, 1, 1, false, false},
    {2, 8, 8, 128, 128, 3, 3, 1, 1, false, false},  {2, 4, 4, 512, 512, 3, 3, 1, 1, false, false},
    {2, 64, 64, 4, 64, 7, 7, 2, 3, false, false},   {2, 33, 33, 4, 32, 3, 3, 4, 1, false, false},
    {2, 28, 28, 64, 128, 3, 3, 2, 1, false, false}, {2, 28, 28, 64, 128, 1, 1, 2, 0, false, false},
    {1, 7, 7, 256, 512, 1, 1, 2, 0, false, false},  {2, 9, 9, 32, 64, 1, 1, 1, 0, false, false},
    {17, 16, 16, 64, 128, 3, 3, 1, 1, false, false}};
#define CONV_CASES (sizeof conv_cases / sizeof conv_cases[0])

static void conv_with(struct op_bench *b, const struct conv_case *like, bool bias, bool relu)
{
    struct conv_case c = *like;
    c.bias = bias;
    c.relu = relu;
    op_case_conv(b, &c);
}

START_TEST(conv_forward)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (size_t i = 0; i < CONV_CASES; i++) {
        op_case_conv(&b, &conv_cases[i]);
    }
    conv_with(&b, &conv_cases[1], true, true);
    conv_with(&b, &conv_cases[6], true, true);
    conv_with(&b, &conv_cases[6], true, false);
    op_bench_fini(&b);
}
END_TEST

START_TEST(conv_backward)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (size_t i = 0; i < CONV_CASES; i++) {
        op_case_conv_backward_data(&b, &conv_cases[i]);
        op_case_conv_backward_filter(&b, &conv_cases[i], false);
    }
    if (b.dtype == DTYPE_BF16) {
        op_case_conv_backward_filter(&b, &conv_cases[1], true);
    }
    op_bench_fini(&b);
}
END_TEST

/* Values far beyond and far below what half precision holds: no plan may go through it. */
START_TEST(conv_range)
{
    static const double sizes[][2] = {{1e6, 1e-9}, {1e-9, 1e6}};
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < 2; i++) {
        b.x_size = sizes[i][0];
        b.w_size = sizes[i][1];
        op_case_conv(&b, &conv_cases[1]);
        op_case_conv_backward_data(&b, &conv_cases[1]);
        op_case_conv_backward_filter(&b, &conv_cases[1], false);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(bias_backward)
{
    struct op_bench b;
    OPEN(&b, _i);
    op_case_bias_backward(&b, 8, 8, 8, 32);
    op_case_bias_backward(&b, 3, 5, 7, 12);
    op_case_bias_backward(&b, 64, 56, 56, 32);
    op_bench_fini(&b);
}
END_TEST

/* --- Normalisation -------------------------------------------------------------------------- */

static const int norm_sizes[][4] = {{4, 32, 32, 32}, {3, 7, 5, 64},    {2, 8, 8, 128},
                                    {2, 4, 4, 512},  {16, 56, 56, 64}, {2, 2, 2, 24}};
#define NORM_SIZES 6

static void norm_case(struct op_bench *b, const int *size, bool residual, bool relu)
{
    const struct norm_case c = {size[0], size[1], size[2], size[3], residual, relu, 0.6};
    op_case_norm(b, &c);
    op_case_norm_infer(b, &c);
    op_case_norm_backward(b, &c, false, true);
    op_case_norm_backward(b, &c, false, false);
    if (residual) {
        op_case_norm_backward(b, &c, true, false);
    }
}

START_TEST(norm_plain)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(&b, norm_sizes[i], false, false);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(norm_relu)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(&b, norm_sizes[i], false, true);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(norm_residual)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(&b, norm_sizes[i], true, true);
    }
    norm_case(&b, norm_sizes[0], true, false);
    op_bench_fini(&b);
}
END_TEST

/* --- Pointwise ------------------------------------------------------------------------------ */

START_TEST(pixels)
{
    struct op_bench b;
    OPEN(&b, _i);
    for (int bytes = 1; bytes >= 0; bytes--) {
        /* A size that the widening product takes, and such that it does not. */
        op_case_ingest(&b, 3, 31, 32, 4, bytes == 1);
        op_case_ingest(&b, 3, 31, 33, 4, bytes == 1);
        op_case_ingest(&b, 3, 31, 33, 3, bytes == 1);
        op_case_ingest(&b, 3, 31, 33, 8, bytes == 1);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(relu_add_cast)
{
    struct op_bench b;
    OPEN(&b, _i);
    op_case_relu_backward(&b, 3, 13, 9, 32, false);
    op_case_relu_backward(&b, 3, 13, 9, 32, true);
    op_case_add(&b, 3, 13, 9, 32, true);
    op_case_cast(&b, 2);
    op_case_cast(&b, 9);
    op_case_cast(&b, 1000);
    op_case_cast(&b, 262147);
    op_bench_fini(&b);
}
END_TEST

/* --- Pooling -------------------------------------------------------------------------------- */

START_TEST(max_pool)
{
    static const struct pool_case cases[] = {
        {4, 32, 32, 32, 2, 2, 0, true, true},   {3, 7, 9, 64, 2, 2, 0, true, true},
        {2, 112, 112, 64, 3, 2, 1, true, true}, {2, 15, 13, 32, 3, 2, 1, true, true},
        {4, 4, 4, 512, 4, 4, 0, true, true},    {2, 6, 6, 32, 3, 1, 1, true, true},
    };
    struct op_bench b;
    OPEN(&b, _i);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct pool_case c = cases[i];
        op_case_pool(&b, &c);
        c.index = false;
        op_case_pool(&b, &c);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(global_average)
{
    static const int sizes[][4] = {{4, 8, 8, 128}, {3, 7, 7, 512}, {2, 56, 56, 128},
                                   {5, 1, 1, 64},  {2, 4, 4, 512}, {2, 55, 55, 32}};
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < 6; i++) {
        const int *s = sizes[i];
        op_case_global_average(&b, s[0], s[1], s[2], s[3], false);
        if (b.dtype == DTYPE_BF16) {
            op_case_global_average(&b, s[0], s[1], s[2], s[3], true);
        }
    }
    op_bench_fini(&b);
}
END_TEST

/* --- Linear and loss ------------------------------------------------------------------------ */

START_TEST(linear)
{
    static const int cases[][3] = {{64, 128, 10}, {17, 512, 1000}, {1, 32, 3}, {512, 128, 102}};
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < 4; i++) {
        op_case_linear(&b, cases[i][0], cases[i][1], cases[i][2], false, 0.125);
        op_case_linear(&b, cases[i][0], cases[i][1], cases[i][2], true, 1.0);
    }
    op_bench_fini(&b);
}
END_TEST

START_TEST(softmax_loss)
{
    static const int cases[][2] = {{64, 10}, {17, 1000}, {1, 2}, {512, 102}};
    struct op_bench b;
    OPEN(&b, _i);
    for (int i = 0; i < 4; i++) {
        op_case_softmax_loss(&b, cases[i][0], cases[i][1], 15.0, true);
        op_case_softmax_loss(&b, cases[i][0], cases[i][1], 15.0, false);
    }
    op_bench_fini(&b);
}
END_TEST

/* --- Updates -------------------------------------------------------------------------------- */

START_TEST(updates)
{
    static const int lengths[] = {10, 1280, 262147};
    struct op_bench b;
    OPEN(&b, _i);
    const bool shadow = b.dtype == DTYPE_BF16;
    for (int i = 0; i < 3; i++) {
        op_case_sgd(&b, lengths[i], i != 1, false, shadow);
        op_case_sgd(&b, lengths[i], i != 1, true, shadow);
        op_case_adamw(&b, lengths[i], i != 1, shadow);
    }
    op_case_adamw(&b, 8500001, true, shadow);
    b.dtype = DTYPE_F32;
    op_case_sgd(&b, 1281, false, false, false);
    op_bench_fini(&b);
}
END_TEST

/* --- Programs ------------------------------------------------------------------------------- */

/* A captured program does what its operations do, and reads scalars at each run. */
static void scalars_change(struct op_bench *b)
{
    const int length = 4099;
    struct bench_tensor *p = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, length, 1.0);
    struct bench_tensor *g = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, length, 1.0);
    struct bench_tensor *m = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, length, 1.0);
    struct bench_tensor *s = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, OP_BENCH_SCALARS, 1.0);
    struct op_desc desc = {.kind = OP_SGD, .label = "sgd"};
    desc.u.update = (struct op_update){.parameters = p->tensor,
                                       .gradient = g->tensor,
                                       .first = m->tensor,
                                       .scalars = s->tensor,
                                       .nesterov = true};
    device_op *op = NULL;
    device_program *steps = NULL;
    MUST(device_op_create(b->dev, &desc, &op));
    MUST(device_program_create(b->dev, &op, 1, b->stream, &steps));
    ck_assert(device_program_is_captured(steps));
    op_bench_upload(b, p);
    memset(m->values, 0, m->count * sizeof *m->values);
    op_bench_upload(b, m);
    for (int step = 0; step < 3; step++) {
        const struct step_scalars scalars = {.rate = 0.1F / (float)(step + 1), .momentum = 0.5F};
        op_bench_put_scalars(b, s, &scalars);
        MUST(device_program_submit(b->dev, steps, b->stream));
        MUST(device_stream_wait(b->dev, b->stream));
        reference_sgd(p->values, g->values, m->values, p->count, (double)scalars.rate, 0.5, 0,
                      true);
    }
    op_bench_compare_as(b, p, p->values, OP_RESULT_UPDATE, "three steps of a program");
    device_program_destroy(b->dev, &steps);
    device_op_destroy(b->dev, &op);
    op_bench_reset(b);
}

START_TEST(program)
{
    struct op_bench b;
    device_program *delay = NULL;
    double measured = 0;
    OPEN(&b, _i);
    scalars_change(&b);
    MUST(device_delay_program_create(b.dev, 0.005, b.stream, &delay, &measured));
    printf("    delay of 5 ms: %.3f ms\n", measured * 1e3);
    ck_assert_msg(fabs(measured - 0.005) < 0.001, "a delay of 5 ms takes %g s", measured);
    device_program_destroy(b.dev, &delay);
    op_bench_fini(&b);
}
END_TEST

static void close_devices(void)
{
    for (int i = 0; i < PRECISIONS; i++) {
        device_close(&devices[i]);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "-v") == 0) {
        log_set_level(LOG_VERBOSE);
    }
    seed = (uint64_t)time(NULL) << 8; /* a bench each takes the next one */
    printf("seed %llu\n", (unsigned long long)seed);
    const TTest *const tests[] = {pixels,       relu_add_cast, updates,        program,
                                  linear,       softmax_loss,  global_average, bias_backward,
                                  max_pool,     norm_plain,    norm_relu,      norm_residual,
                                  conv_forward, conv_range,    conv_backward};
    Suite *suite = suite_create("cuda operations");
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        TCase *one = tcase_create(tests[i]->name);
        tcase_add_loop_test(one, tests[i], 0, PRECISIONS);
        suite_add_tcase(suite, one);
    }
    SRunner *runner = srunner_create(suite);
    /* A CUDA context does not survive fork. */
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    close_devices();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
