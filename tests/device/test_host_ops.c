/* Every operation of the host device, with each set of loops that this processor has: small cases
 * worked by hand, random shapes against the reference, gradients against finite differences. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/host/host_internal.h"
#include "tests/support/check_run.h"
#include "tests/support/op_cases.h"

static const char *const kernel_names[] = {"generic", "avx2", "avx512"};
#define KERNELS 3

/* What the loop tests run over: a set of loops and a data type. */
#define VARIANTS (KERNELS * 2)

static device *open_with(const char *kernels, int threads)
{
    struct device_settings settings;
    device *dev = NULL;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_HOST;
    settings.host_threads = threads;
    /* Deferred: buffers begin as NaN, so that an element left unwritten shows. */
    settings.host_mode = HOST_DEFERRED;
    enum status status = host__open_with_kernels(&settings, kernels, &dev);
    if (status == STATUS_UNSUPPORTED) {
        printf("skipped: %s\n", status_message());
        return NULL;
    }
    MUST(status);
    return dev;
}

/* false when this processor lacks the variant's loops. Float32 sums of a few thousand terms are off
 * by a few units of their last place (6e-8 each) times the root of their number. */
static bool open_variant(int variant, struct op_bench *bench)
{
    device *dev = open_with(kernel_names[variant / 2], 2);
    if (dev == NULL) {
        return false;
    }
    op_bench_init(bench, dev, variant % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, 3e-6, 2e-6,
                  (uint64_t)variant);
    return true;
}

static void close_variant(struct op_bench *bench)
{
    device *dev = bench->dev;
    op_bench_fini(bench);
    device_close(&dev);
    ck_assert_ptr_null(dev);
}

/* --- Worked by hand --------------------------------------------------------------------------- */

static struct bench_tensor *given(struct op_bench *b, enum dtype dtype, int n, int h, int w, int c,
                                  const double *values)
{
    struct bench_tensor *t = op_bench_tensor(b, dtype, n, h, w, c, 1.0);
    memcpy(t->values, values, t->count * sizeof *values);
    op_bench_upload(b, t);
    return t;
}

#define GIVEN(b, n, h, w, c, ...) given(b, (b)->dtype, n, h, w, c, (const double[]){__VA_ARGS__})
#define VECTOR(b, length, ...) given(b, DTYPE_F32, 1, 1, 1, length, (const double[]){__VA_ARGS__})
#define OUTPUT(b, n, h, w, c) op_bench_tensor(b, (b)->dtype, n, h, w, c, 0.0)
#define COMPARE(b, tensor, ...)                                                                    \
    op_bench_compare(b, tensor, (const double[]){__VA_ARGS__}, #tensor " by hand")

/* A 3x4 image of one channel, a 2x3 filter, padding 1, stride 2: the outputs see
 *   rows -1..0 and 1..2, columns -1..1 and 1..3 of
 *   1  2  3  4
 *   5  6  7  8
 *   9 10 11 12          filter  1 2 3 / 4 5 6 */
START_TEST(conv_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    struct bench_tensor *x = GIVEN(&b, 1, 3, 4, 1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12);
    struct bench_tensor *w = GIVEN(&b, 1, 2, 3, 1, 1, 2, 3, 4, 5, 6);
    struct bench_tensor *bias = VECTOR(&b, 1, -30);
    struct bench_tensor *y = OUTPUT(&b, 1, 2, 2, 1);
    struct op_desc desc = {.kind = OP_CONV, .label = "by hand"};
    desc.u.conv = (struct op_conv){.x = x->tensor,
                                   .w = w->tensor,
                                   .bias = bias->tensor,
                                   .y = y->tensor,
                                   .stride = 2,
                                   .pad = 1,
                                   .relu = true};
    op_bench_run(&b, &desc);
    /* (0,0): 5*1 + 6*2 = 17; (0,1): 4*2 + 5*3 + 6*4 = 47;
     * (1,0): 2*5 + 3*6 + 5*9 + 6*10 = 133; (1,1): 6 + 14 + 24 + 40 + 55 + 72 = 211. */
    COMPARE(&b, y, 0, 17, 103, 181);

    struct bench_tensor *dy = GIVEN(&b, 1, 2, 2, 1, 1, 2, 3, 4);
    struct bench_tensor *dx = OUTPUT(&b, 1, 3, 4, 1);
    struct bench_tensor *dw = OUTPUT(&b, 1, 2, 3, 1);
    desc.kind = OP_CONV_BACKWARD_DATA;
    desc.u.conv =
        (struct op_conv){.dy = dy->tensor, .w = w->tensor, .dx = dx->tensor, .stride = 2, .pad = 1};
    op_bench_run(&b, &desc);
    /* Row 0 is under filter row 1 of dy (1, 2), row 1 under row 0 of (3, 4), row 2 under row 1. */
    COMPARE(&b, dx, 5, 6 + 8, 10, 12, 6, 9 + 4, 8, 12, 15, 18 + 16, 20, 24);

    desc.kind = OP_CONV_BACKWARD_FILTER;
    desc.u.conv =
        (struct op_conv){.x = x->tensor, .dy = dy->tensor, .dw = dw->tensor, .stride = 2, .pad = 1};
    op_bench_run(&b, &desc);
    COMPARE(&b, dw, 4 * 6, 3 * 5 + 4 * 7, 3 * 6 + 4 * 8, 2 * 2 + 4 * 10,
            1 * 1 + 2 * 3 + 3 * 9 + 4 * 11, 1 * 2 + 2 * 4 + 3 * 10 + 4 * 12);
    close_variant(&b);
}
END_TEST

/* Two channels and two filters of one tap: the order of channels in filters and maps. */
START_TEST(conv_channels_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    struct bench_tensor *x = GIVEN(&b, 2, 1, 1, 2, 1, 2, 3, 4);
    struct bench_tensor *w = GIVEN(&b, 2, 1, 1, 2, 10, 1, 0, -1);
    struct bench_tensor *y = OUTPUT(&b, 2, 1, 1, 2);
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv = (struct op_conv){.x = x->tensor, .w = w->tensor, .y = y->tensor, .stride = 1};
    op_bench_run(&b, &desc);
    COMPARE(&b, y, 12, -2, 34, -4);
    close_variant(&b);
}
END_TEST

/* Four values 1, 3, 5, 7: mean 4, biased variance 5, unbiased 20/3. */
START_TEST(norm_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    struct bench_tensor *x = GIVEN(&b, 2, 1, 2, 1, 1, 3, 5, 7);
    struct bench_tensor *y = OUTPUT(&b, 2, 1, 2, 1);
    struct bench_tensor *scale = VECTOR(&b, 1, 2);
    struct bench_tensor *bias = VECTOR(&b, 1, 1);
    struct bench_tensor *running_mean = VECTOR(&b, 1, 10);
    struct bench_tensor *running_var = VECTOR(&b, 1, 1);
    struct bench_tensor *saved_mean = VECTOR(&b, 1, 0);
    struct bench_tensor *saved_inv_std = VECTOR(&b, 1, 0);
    struct bench_tensor *scalars =
        VECTOR(&b, 16, 0, 0, 0, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    struct op_desc desc = {.kind = OP_NORM};
    desc.u.norm = (struct op_norm){.x = x->tensor,
                                   .y = y->tensor,
                                   .scale = scale->tensor,
                                   .bias = bias->tensor,
                                   .running_mean = running_mean->tensor,
                                   .running_var = running_var->tensor,
                                   .saved_mean = saved_mean->tensor,
                                   .saved_inv_std = saved_inv_std->tensor,
                                   .scalars = scalars->tensor,
                                   .epsilon = 1e-12F,
                                   .relu = true};
    op_bench_run(&b, &desc);
    double d = 1.0 / sqrt(5.0);
    COMPARE(&b, y, 0, 1 - 2 * d, 1 + 2 * d, 1 + 6 * d);
    COMPARE(&b, saved_mean, 4);
    COMPARE(&b, saved_inv_std, d);
    COMPARE(&b, running_mean, 0.75 * 10 + 0.25 * 4);
    COMPARE(&b, running_var, 0.75 * 1 + 0.25 * 20.0 / 3.0);

    /* With the mask (0, 1, 1, 1) and dy = 1: dz sums to 3, dz * xhat to (-1 + 1 + 3) d = 3 d. */
    struct bench_tensor *dy = GIVEN(&b, 2, 1, 2, 1, 1, 1, 1, 1);
    struct bench_tensor *dx = OUTPUT(&b, 2, 1, 2, 1);
    struct bench_tensor *dresidual = OUTPUT(&b, 2, 1, 2, 1);
    struct bench_tensor *dscale = VECTOR(&b, 1, 0);
    struct bench_tensor *dbias = VECTOR(&b, 1, 0);
    desc.kind = OP_NORM_BACKWARD;
    desc.u.norm.dy = dy->tensor;
    desc.u.norm.dx = dx->tensor;
    desc.u.norm.dresidual = dresidual->tensor;
    desc.u.norm.dscale = dscale->tensor;
    desc.u.norm.dbias = dbias->tensor;
    op_bench_run(&b, &desc);
    COMPARE(&b, dscale, 3 * d);
    COMPARE(&b, dbias, 3);
    COMPARE(&b, dresidual, 0, 1, 1, 1);
    /* 2 d (dz - 3/4 - xhat d 3/4), where xhat d = (-3, -1, 1, 3) / 5. */
    COMPARE(&b, dx, 2 * d * -0.3, 2 * d * 0.4, 2 * d * 0.1, 2 * d * -0.2);

    desc.kind = OP_NORM_INFER;
    desc.u.norm.relu = false;
    op_bench_run(&b, &desc);
    double v = 2.0 / sqrt(0.75 + 5.0 / 3.0);
    COMPARE(&b, y, 1 - 7.5 * v, 1 - 5.5 * v, 1 - 3.5 * v, 1 - 1.5 * v);
    close_variant(&b);
}
END_TEST

/* Overlapping windows of 3 with stride 2 and padding 1 over 3 x 3, with a tie: the first in row
 * order takes the gradient, and the shared maximum takes the sum. Negative values all: padding must
 * not count as zero. */
START_TEST(pool_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    struct bench_tensor *x = GIVEN(&b, 1, 3, 3, 1, -5, -1, -4, -3, -9, -2, -1, -8, -2);
    struct bench_tensor *y = OUTPUT(&b, 1, 2, 2, 1);
    struct bench_tensor *index = op_bench_tensor(&b, DTYPE_U8, 1, 2, 2, 1, 0.0);
    struct bench_tensor *dy = GIVEN(&b, 1, 2, 2, 1, 1, 2, 4, 8);
    struct bench_tensor *dx = OUTPUT(&b, 1, 3, 3, 1);
    struct op_desc desc = {.kind = OP_MAX_POOL};
    desc.u.pool = (struct op_max_pool){.x = x->tensor,
                                       .y = y->tensor,
                                       .dy = dy->tensor,
                                       .dx = dx->tensor,
                                       .window = 3,
                                       .stride = 2,
                                       .pad = 1};
    for (int kept = 0; kept < 2; kept++) {
        if (kept == 1) {
            desc.u.pool.index = index->tensor;
        }
        desc.kind = OP_MAX_POOL;
        op_bench_run(&b, &desc);
        COMPARE(&b, y, -1, -1, -1, -2);
        desc.kind = OP_MAX_POOL_BACKWARD;
        op_bench_run(&b, &desc);
        COMPARE(&b, dx, 0, 1 + 2, 0, 0, 0, 8, 4, 0, 0);
    }
    close_variant(&b);
}
END_TEST

START_TEST(loss_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    /* Odds 1 : 3 and 1 : 1; targets 0.5 at class 1 of row 0, 0.25 each in row 1. */
    struct bench_tensor *logits = given(&b, DTYPE_F32, 2, 1, 1, 2, (double[]){0, log(3), 700, 700});
    struct bench_tensor *targets = given(&b, DTYPE_F32, 2, 1, 1, 2, (double[]){0, 0.5, 0.25, 0.25});
    struct bench_tensor *loss = VECTOR(&b, 1, 0);
    struct bench_tensor *dlogits = op_bench_tensor(&b, DTYPE_F32, 2, 1, 1, 2, 0.0);
    struct op_desc desc = {.kind = OP_SOFTMAX_LOSS};
    desc.u.loss = (struct op_softmax_loss){.logits = logits->tensor,
                                           .targets = targets->tensor,
                                           .loss = loss->tensor,
                                           .dlogits = dlogits->tensor};
    op_bench_run(&b, &desc);
    COMPARE(&b, loss, 0.5 * log(4.0 / 3.0) + 0.5 * log(2.0));
    COMPARE(&b, dlogits, 0.125, -0.125, 0, 0);
    close_variant(&b);
}
END_TEST

/* A NaN anywhere in the logits must reach the loss, or training would go on with it. */
START_TEST(nan_reaches_the_loss)
{
    struct op_bench b;
    if (!open_variant(0, &b)) {
        return;
    }
    static const double bad[] = {NAN, INFINITY};
    for (int i = 0; i < 2; i++) {
        struct bench_tensor *logits = given(&b, DTYPE_F32, 1, 1, 1, 3, (double[]){1, bad[i], 2});
        struct bench_tensor *targets = given(&b, DTYPE_F32, 1, 1, 1, 3, (double[]){1, 0, 0});
        struct bench_tensor *loss = VECTOR(&b, 1, 0);
        struct op_desc desc = {.kind = OP_SOFTMAX_LOSS};
        desc.u.loss = (struct op_softmax_loss){
            .logits = logits->tensor, .targets = targets->tensor, .loss = loss->tensor};
        op_bench_run(&b, &desc);
        float got = 0.0F;
        MUST(device_copy_to_host(b.dev, b.stream, &got, loss->tensor.buffer, loss->tensor.offset,
                                 sizeof got));
        MUST(device_stream_wait(b.dev, b.stream));
        ck_assert(isnan(got));
    }
    /* And it passes the maximum of a window and a ReLU. */
    struct bench_tensor *x = GIVEN(&b, 1, 2, 2, 1, 1, NAN, 3, 2);
    struct bench_tensor *y = OUTPUT(&b, 1, 1, 1, 1);
    struct op_desc desc = {.kind = OP_MAX_POOL};
    desc.u.pool =
        (struct op_max_pool){.x = x->tensor, .y = y->tensor, .window = 2, .stride = 2, .pad = 0};
    op_bench_run(&b, &desc);
    float got = 0.0F;
    MUST(
        device_copy_to_host(b.dev, b.stream, &got, y->tensor.buffer, y->tensor.offset, sizeof got));
    MUST(device_stream_wait(b.dev, b.stream));
    ck_assert(isnan(got));
    close_variant(&b);
}
END_TEST

START_TEST(cast_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    /* One unit of bfloat16's last place at 1 is 2^-7. Ties go to the even neighbour; the largest
     * float32 rounds to infinity. */
    const double u = 1.0 / 128.0;
    struct bench_tensor *from = given(&b, DTYPE_F32, 1, 1, 1, 8,
                                      (double[]){1 + 0.5 * u, 1 + 1.5 * u, 1 + 0.5 * u + 1e-6,
                                                 -1 - 0.4 * u, 0.0, 3.4028234e38, 1e-40, -2.5});
    struct bench_tensor *to = op_bench_tensor(&b, DTYPE_BF16, 1, 1, 1, 8, 0.0);
    struct op_desc desc = {.kind = OP_CAST};
    desc.u.cast = (struct op_cast){.from = from->tensor, .to = to->tensor};
    op_bench_run(&b, &desc);
    uint16_t bits[8];
    MUST(device_copy_to_host(b.dev, b.stream, bits, to->tensor.buffer, to->tensor.offset,
                             sizeof bits));
    MUST(device_stream_wait(b.dev, b.stream));
    static const uint16_t want[8] = {0x3F80, 0x3F82, 0x3F81, 0xBF80,
                                     0x0000, 0x7F80, 0x0001, 0xC020};
    for (int i = 0; i < 8; i++) {
        ck_assert_uint_eq(bits[i], want[i]);
    }
    close_variant(&b);
}
END_TEST

START_TEST(updates_by_hand)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    /* rate 0.5, momentum 0.5, decay 0.25: g = 1 + 0.25 * 4 = 2, v = 0.5 * 2 + 2 = 3. */
    struct bench_tensor *p = VECTOR(&b, 1, 4);
    struct bench_tensor *g = VECTOR(&b, 1, 1);
    struct bench_tensor *v = VECTOR(&b, 1, 2);
    struct bench_tensor *scalars =
        VECTOR(&b, 16, 0.5, 0.5, 0.25, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    struct op_desc desc = {.kind = OP_SGD};
    desc.u.update = (struct op_update){.parameters = p->tensor,
                                       .gradient = g->tensor,
                                       .first = v->tensor,
                                       .scalars = scalars->tensor,
                                       .decays = true};
    op_bench_run(&b, &desc);
    COMPARE(&b, v, 3);
    COMPARE(&b, p, 4 - 0.5 * 3);
    /* Nesterov, without decay: v = 0.5 * 3 + 1 = 2.5, step = 1 + 0.5 * 2.5 = 2.25. */
    desc.u.update.decays = false;
    desc.u.update.nesterov = true;
    op_bench_run(&b, &desc);
    COMPARE(&b, v, 2.5);
    COMPARE(&b, p, 2.5 - 0.5 * 2.25);
    close_variant(&b);
}
END_TEST

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
    if (!open_variant(_i, &b)) {
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
    close_variant(&b);
}
END_TEST

START_TEST(norm_against_reference)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
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
    close_variant(&b);
}
END_TEST

/* A mean a thousand deviations from zero: sums in float32 would lose the variance altogether. x
 * itself has 24 bits, so that 1 / deviation is known to about 1e-5. */
START_TEST(norm_far_from_zero)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    b.relative = 1e-4;
    b.absolute = 1e-4;
    op_case_norm(&b, &(struct norm_case){4, 8, 8, 8, false, false, 1000.0});
    close_variant(&b);
}
END_TEST

START_TEST(pool_against_reference)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
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
    close_variant(&b);
}
END_TEST

START_TEST(linear_against_reference)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
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
    close_variant(&b);
}
END_TEST

START_TEST(pointwise_against_reference)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
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
    close_variant(&b);
}
END_TEST

START_TEST(updates_against_reference)
{
    struct op_bench b;
    if (!open_variant(_i, &b)) {
        return;
    }
    for (int bits = 0; bits < 8; bits++) {
        op_case_sgd(&b, 1 + 333 * bits, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0);
        op_case_adamw(&b, 1 + 333 * bits, (bits & 1) != 0, (bits & 4) != 0);
    }
    op_case_sgd(&b, 100001, true, true, true);
    op_case_adamw(&b, 100001, true, true);
    close_variant(&b);
}
END_TEST

/* --- A small network -------------------------------------------------------------------------- */

/* conv 3 > 6, norm, ReLU; conv 6 > 6, norm, + what came before, ReLU; pool; average; linear; loss. */
#define CHAIN_N 5
#define CHAIN_SIZE 6
#define CHAIN_C 6
#define CHAIN_CLASSES 4
#define CHAIN_EPSILON 1e-3F

enum { W1, S1, B1, W2, S2, B2, W3, B3, CHAIN_PARAMETERS };

struct chain {
    struct bench_tensor *x, *targets, *scalars, *unused;
    struct bench_tensor *p[CHAIN_PARAMETERS], *g[CHAIN_PARAMETERS];
    struct bench_tensor *loss;
};

static const struct reference_shape image_shape = {CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, 3};
static const struct reference_shape map_shape = {CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, CHAIN_C};
static const struct reference_shape pool_shape = {CHAIN_N, CHAIN_SIZE / 2, CHAIN_SIZE / 2, CHAIN_C};

#define MAP_VALUES (CHAIN_N * CHAIN_SIZE * CHAIN_SIZE * CHAIN_C)

/* The loss in double, forward alone: what finite differences are taken of. */
static double chain_loss(const struct chain *c)
{
    static double conv[MAP_VALUES], first[MAP_VALUES], second[MAP_VALUES], pooled[MAP_VALUES];
    double average[CHAIN_N * CHAIN_C], logits[CHAIN_N * CHAIN_CLASSES];
    double running[CHAIN_C] = {0}, saved[2][CHAIN_C];
    struct reference_norm norm = {.scale = c->p[S1]->values,
                                  .bias = c->p[B1]->values,
                                  .running_mean = running,
                                  .running_var = running,
                                  .saved_mean = saved[0],
                                  .saved_inv_std = saved[1],
                                  .epsilon = (double)CHAIN_EPSILON,
                                  .relu = true};
    reference_conv(c->x->values, image_shape, c->p[W1]->values,
                   (struct reference_shape){CHAIN_C, 3, 3, 3}, NULL, 1, 1, false, conv, map_shape);
    reference_norm_train(conv, NULL, map_shape, &norm, first);
    reference_conv(first, map_shape, c->p[W2]->values,
                   (struct reference_shape){CHAIN_C, 3, 3, CHAIN_C}, NULL, 1, 1, false, conv,
                   map_shape);
    norm.scale = c->p[S2]->values;
    norm.bias = c->p[B2]->values;
    reference_norm_train(conv, first, map_shape, &norm, second);
    reference_max_pool(second, map_shape, 2, 2, 0, pooled, pool_shape);
    reference_global_average(pooled, pool_shape, average);
    reference_linear(average, c->p[W3]->values, c->p[B3]->values, 1.0, CHAIN_N, CHAIN_C,
                     CHAIN_CLASSES, logits);
    return reference_softmax_loss(logits, c->targets->values, CHAIN_N, CHAIN_CLASSES, NULL);
}

static void make_chain(struct op_bench *b, struct chain *c)
{
    static const int shapes[CHAIN_PARAMETERS][4] = {{CHAIN_C, 3, 3, 3},
                                                    {1, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {CHAIN_C, 3, 3, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {CHAIN_CLASSES, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_CLASSES}};
    c->x = op_bench_tensor(b, DTYPE_F32, CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, 3, 1.0);
    c->targets = op_bench_tensor(b, DTYPE_F32, CHAIN_N, 1, 1, CHAIN_CLASSES, 1.0);
    for (size_t i = 0; i < c->targets->count; i++) {
        size_t label = i / CHAIN_CLASSES % CHAIN_CLASSES;
        c->targets->values[i] = (i % CHAIN_CLASSES == label ? 0.875 : 0.03125) / CHAIN_N;
    }
    op_bench_upload(b, c->targets);
    for (int i = 0; i < CHAIN_PARAMETERS; i++) {
        const int *s = shapes[i];
        c->p[i] = op_bench_tensor(b, DTYPE_F32, s[0], s[1], s[2], s[3], 0.5);
        c->g[i] = op_bench_tensor(b, DTYPE_F32, s[0], s[1], s[2], s[3], 0.0);
    }
    c->loss = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 1, 0.0);
    /* Averaging 0: the running values are not looked at. */
    c->scalars = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 16, 1.0);
    memset(c->scalars->values, 0, 16 * sizeof(double));
    op_bench_upload(b, c->scalars);
    c->unused = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 4 * CHAIN_C, 1.0);
}

/* A vector inside `storage`, which is larger: tensors may share a buffer. */
static struct tensor part_of_buffer(const struct bench_tensor *storage, size_t offset)
{
    struct tensor tensor = storage->tensor;
    tensor.offset += offset;
    tensor.c = CHAIN_C;
    return tensor;
}

/* The network on the device, forward and backward, from the operations alone. */
static void run_chain(struct op_bench *b, const struct chain *c)
{
    device_buffer *buffer = NULL;
    const size_t map_bytes = MAP_VALUES * sizeof(float);
    MUST(device_buffer_create(b->dev, 16 * map_bytes, &buffer));
    struct tensor maps[12];
    for (size_t i = 0; i < 12; i++) {
        maps[i] = (struct tensor){buffer,     i * map_bytes, DTYPE_F32, CHAIN_N,
                                  CHAIN_SIZE, CHAIN_SIZE,    CHAIN_C};
    }
    struct tensor conv1 = maps[0], first = maps[1], conv2 = maps[2], second = maps[3];
    struct tensor pooled = maps[4], dpooled = maps[5], dsecond = maps[6], dconv2 = maps[7];
    struct tensor dshort = maps[8], dfirst = maps[9], dconv1 = maps[10], small = maps[11];
    pooled.h = pooled.w = dpooled.h = dpooled.w = CHAIN_SIZE / 2;
    struct tensor average = small, daverage = small, logits = small, dlogits = small, saved = small;
    average.h = average.w = 1;
    daverage = average;
    daverage.offset += 512;
    logits = average;
    logits.offset += 1024;
    logits.c = CHAIN_CLASSES;
    dlogits = logits;
    dlogits.offset += 512;
    saved.n = saved.h = saved.w = 1;
    saved.offset += 2048;
    struct tensor saved1[2] = {saved, saved}, saved2[2] = {saved, saved};
    saved1[1].offset += 64;
    saved2[0].offset += 128;
    saved2[1].offset += 192;
    struct op_norm norm1 = {.x = conv1,
                            .y = first,
                            .scale = c->p[S1]->tensor,
                            .bias = c->p[B1]->tensor,
                            .running_mean = part_of_buffer(c->unused, 0),
                            .running_var = part_of_buffer(c->unused, 32),
                            .saved_mean = saved1[0],
                            .saved_inv_std = saved1[1],
                            .scalars = c->scalars->tensor,
                            .dy = dfirst,
                            .dx = dconv1,
                            .dscale = c->g[S1]->tensor,
                            .dbias = c->g[B1]->tensor,
                            .epsilon = CHAIN_EPSILON,
                            .relu = true};
    struct op_norm norm2 = norm1;
    norm2.x = conv2;
    norm2.residual = first;
    norm2.y = second;
    norm2.scale = c->p[S2]->tensor;
    norm2.bias = c->p[B2]->tensor;
    norm2.saved_mean = saved2[0];
    norm2.saved_inv_std = saved2[1];
    norm2.dy = dsecond;
    norm2.dx = dconv2;
    norm2.dresidual = dshort;
    norm2.dscale = c->g[S2]->tensor;
    norm2.dbias = c->g[B2]->tensor;
    struct op_max_pool pool = {
        .x = second, .y = pooled, .dy = dpooled, .dx = dsecond, .window = 2, .stride = 2};
    struct op_linear linear = {.x = average,
                               .w = c->p[W3]->tensor,
                               .bias = c->p[B3]->tensor,
                               .y = logits,
                               .dx = daverage,
                               .dw = c->g[W3]->tensor,
                               .db = c->g[B3]->tensor,
                               .dy = dlogits,
                               .factor = 1.0F};
    struct op_conv both1 = {.x = c->x->tensor,
                            .w = c->p[W1]->tensor,
                            .y = conv1,
                            .dw = c->g[W1]->tensor,
                            .dy = dconv1,
                            .stride = 1,
                            .pad = 1};
    struct op_conv both2 = {.x = first,
                            .w = c->p[W2]->tensor,
                            .y = conv2,
                            .dx = dfirst,
                            .dw = c->g[W2]->tensor,
                            .dy = dconv2,
                            .stride = 1,
                            .pad = 1};
    const struct op_desc descs[] = {
        {.kind = OP_CONV, .u.conv = both1},
        {.kind = OP_NORM, .u.norm = norm1},
        {.kind = OP_CONV, .u.conv = both2},
        {.kind = OP_NORM, .u.norm = norm2},
        {.kind = OP_MAX_POOL, .u.pool = pool},
        {.kind = OP_GLOBAL_AVERAGE, .u.average = {.x = pooled, .y = average}},
        {.kind = OP_LINEAR, .u.linear = linear},
        {.kind = OP_SOFTMAX_LOSS,
         .u.loss = {.logits = logits,
                    .targets = c->targets->tensor,
                    .loss = c->loss->tensor,
                    .dlogits = dlogits}},
        {.kind = OP_LINEAR_BACKWARD_WEIGHTS, .u.linear = linear},
        {.kind = OP_LINEAR_BACKWARD_DATA, .u.linear = linear},
        {.kind = OP_GLOBAL_AVERAGE_BACKWARD, .u.average = {.dy = daverage, .dx = dpooled}},
        {.kind = OP_MAX_POOL_BACKWARD, .u.pool = pool},
        {.kind = OP_NORM_BACKWARD, .u.norm = norm2},
        {.kind = OP_CONV_BACKWARD_FILTER, .u.conv = both2},
        {.kind = OP_CONV_BACKWARD_DATA, .u.conv = both2},
        {.kind = OP_ADD, .u.add = {.a = dfirst, .b = dshort, .y = dfirst}},
        {.kind = OP_NORM_BACKWARD, .u.norm = norm1},
        {.kind = OP_CONV_BACKWARD_FILTER, .u.conv = both1},
    };
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++) {
        op_bench_run(b, &descs[i]);
    }
    device_buffer_destroy(b->dev, &buffer);
}

/* Every parameter's gradient against central differences of the loss in double. Differences over
 * 1e-5 are right to about 1e-9; the device's float32 is what is off. */
START_TEST(chain_against_finite_differences)
{
    struct op_bench b;
    if (!open_variant(2 * _i, &b)) {
        return;
    }
    struct chain c;
    make_chain(&b, &c);
    run_chain(&b, &c);
    double loss = chain_loss(&c);
    op_bench_compare(&b, c.loss, &loss, "chain: loss");
    b.relative = 1e-4;
    b.absolute = 1e-5;
    for (int i = 0; i < CHAIN_PARAMETERS; i++) {
        double *want = calloc(c.p[i]->count, sizeof *want);
        ck_assert_ptr_nonnull(want);
        for (size_t j = 0; j < c.p[i]->count; j++) {
            const double step = 1e-5;
            double value = c.p[i]->values[j];
            c.p[i]->values[j] = value + step;
            double above = chain_loss(&c);
            c.p[i]->values[j] = value - step;
            double below = chain_loss(&c);
            c.p[i]->values[j] = value;
            want[j] = (above - below) / (2.0 * step);
        }
        char what[64];
        snprintf(what, sizeof what, "chain: gradient of parameter %d", i);
        op_bench_compare(&b, c.g[i], want, what);
        free(want);
    }
    close_variant(&b);
}
END_TEST

/* --- The same bits ---------------------------------------------------------------------------- */

/* Every byte of a tensor's buffer, added to a simple hash. */
static uint64_t hash_tensor(struct op_bench *b, const struct tensor *tensor, uint64_t hash)
{
    size_t bytes = tensor_bytes(tensor);
    unsigned char *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    MUST(device_copy_to_host(b->dev, b->stream, data, tensor->buffer, tensor->offset, bytes));
    MUST(device_stream_wait(b->dev, b->stream));
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ data[i]) * UINT64_C(1099511628211);
    }
    free(data);
    return hash;
}

/* Shapes large enough to be cut into many parts. */
static uint64_t bits_of(enum dtype dtype, int threads)
{
    struct op_bench b;
    device *dev = open_with("generic", threads);
    op_bench_init(&b, dev, dtype, 1e-5, 1e-5, 77);
    uint64_t hash = UINT64_C(14695981039346656037);
    struct bench_tensor *x = op_bench_tensor(&b, dtype, 19, 12, 12, 24, 1.0);
    struct bench_tensor *w = op_bench_tensor(&b, dtype, 40, 3, 3, 24, 0.3);
    struct bench_tensor *y = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *z = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *dx = op_bench_tensor(&b, dtype, 19, 12, 12, 24, 0.0);
    struct bench_tensor *dw = op_bench_tensor(&b, dtype, 40, 3, 3, 24, 0.0);
    struct bench_tensor *dy = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *dz = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 1.0);
    struct bench_tensor *v = op_bench_tensor(&b, DTYPE_F32, 1, 1, 1, 40, 1.0);
    struct bench_tensor *vectors[8];
    for (int i = 0; i < 8; i++) {
        vectors[i] = op_bench_tensor(&b, DTYPE_F32, 1, 1, 1, 40, 1.0);
    }
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv = (struct op_conv){.x = x->tensor,
                                   .w = w->tensor,
                                   .y = y->tensor,
                                   .dx = dx->tensor,
                                   .dw = dw->tensor,
                                   .dy = dy->tensor,
                                   .stride = 1,
                                   .pad = 1};
    op_bench_run(&b, &desc);
    struct op_desc norm = {.kind = OP_NORM};
    norm.u.norm = (struct op_norm){.x = y->tensor,
                                   .y = z->tensor,
                                   .scale = vectors[0]->tensor,
                                   .bias = vectors[1]->tensor,
                                   .running_mean = vectors[2]->tensor,
                                   .running_var = vectors[3]->tensor,
                                   .saved_mean = vectors[4]->tensor,
                                   .saved_inv_std = vectors[5]->tensor,
                                   .scalars = v->tensor,
                                   .dy = dz->tensor,
                                   .dx = dy->tensor,
                                   .dscale = vectors[6]->tensor,
                                   .dbias = vectors[7]->tensor,
                                   .epsilon = 1e-5F,
                                   .relu = true};
    op_bench_run(&b, &norm);
    norm.kind = OP_NORM_BACKWARD;
    op_bench_run(&b, &norm);
    desc.kind = OP_CONV_BACKWARD_FILTER;
    op_bench_run(&b, &desc);
    desc.kind = OP_CONV_BACKWARD_DATA;
    op_bench_run(&b, &desc);
    struct op_desc bias = {.kind = OP_BIAS_BACKWARD};
    bias.u.bias = (struct op_bias_backward){.dy = dy->tensor, .db = v->tensor};
    op_bench_run(&b, &bias);
    const struct bench_tensor *results[] = {y, z, dx, dw, dy, v};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        hash = hash_tensor(&b, &results[i]->tensor, hash);
    }
    for (int i = 0; i < 8; i++) {
        hash = hash_tensor(&b, &vectors[i]->tensor, hash);
    }
    op_bench_fini(&b);
    device_close(&dev);
    return hash;
}

START_TEST(bits_do_not_depend_on_threads)
{
    enum dtype dtype = _i == 0 ? DTYPE_F32 : DTYPE_BF16;
    uint64_t one = bits_of(dtype, 1);
    ck_assert_uint_eq(one, bits_of(dtype, 1));
    ck_assert_uint_eq(one, bits_of(dtype, 2));
    ck_assert_uint_eq(one, bits_of(dtype, 5));
}
END_TEST

/* --- The BLAS --------------------------------------------------------------------------------- */

/* OpenBLAS of some years is wrong on processors younger than it. The shapes cover whole blocks and
 * rests of its kernels. */
START_TEST(blas_computes_right_products)
{
    struct op_bench b;
    if (!open_variant(0, &b)) {
        return;
    }
    MUST(host__blas_check());
    static const int sizes[] = {1, 3, 15, 16, 17, 31, 48, 97, 130};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t j = 0; j < sizeof sizes / sizeof *sizes; j++) {
            op_case_linear(&b, sizes[i], sizes[j], sizes[(i + 2 * j) % 9], true, 1.0);
        }
    }
    close_variant(&b);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_ops");
    TCase *hand = tcase_create("by hand");
    TCase *random = tcase_create("against the reference");
    TCase *whole = tcase_create("whole chains");
    tcase_add_loop_test(hand, conv_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, conv_channels_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, norm_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, pool_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, loss_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, cast_by_hand, 0, VARIANTS);
    tcase_add_loop_test(hand, updates_by_hand, 0, VARIANTS);
    tcase_add_test(hand, nan_reaches_the_loss);
    tcase_set_timeout(random, 60);
    tcase_add_loop_test(random, conv_against_reference, 0, VARIANTS);
    tcase_add_loop_test(random, norm_against_reference, 0, VARIANTS);
    tcase_add_loop_test(random, norm_far_from_zero, 0, 1);
    tcase_add_loop_test(random, pool_against_reference, 0, VARIANTS);
    tcase_add_loop_test(random, linear_against_reference, 0, VARIANTS);
    tcase_add_loop_test(random, pointwise_against_reference, 0, VARIANTS);
    tcase_add_loop_test(random, updates_against_reference, 0, VARIANTS);
    tcase_set_timeout(whole, 60);
    tcase_add_loop_test(whole, chain_against_finite_differences, 0, KERNELS);
    tcase_add_loop_test(whole, bits_do_not_depend_on_threads, 0, 2);
    tcase_add_test(whole, blas_computes_right_products);
    suite_add_tcase(suite, hand);
    suite_add_tcase(suite, random);
    suite_add_tcase(suite, whole);
    return check_run_suite(suite);
}
