/* Every operation of the host device, with each set of loops that this processor has: small cases worked
 * by hand. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/host_variant.h"
#include "tests/support/op_cases.h"

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
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

/* Two channels and two filters of one tap: the order of channels in filters and maps. */
START_TEST(conv_channels_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
        return;
    }
    struct bench_tensor *x = GIVEN(&b, 2, 1, 1, 2, 1, 2, 3, 4);
    struct bench_tensor *w = GIVEN(&b, 2, 1, 1, 2, 10, 1, 0, -1);
    struct bench_tensor *y = OUTPUT(&b, 2, 1, 1, 2);
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv = (struct op_conv){.x = x->tensor, .w = w->tensor, .y = y->tensor, .stride = 1};
    op_bench_run(&b, &desc);
    COMPARE(&b, y, 12, -2, 34, -4);
    host_variant_close(&b);
}
END_TEST

/* Four values 1, 3, 5, 7: mean 4, biased variance 5, unbiased 20/3. */
START_TEST(norm_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

/* Overlapping windows of 3 with stride 2 and padding 1 over 3 x 3, with a tie: the first in row
 * order takes the gradient, and the shared maximum takes the sum. Negative values all: padding must
 * not count as zero. */
START_TEST(pool_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

START_TEST(loss_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

/* A NaN anywhere in the logits must reach the loss, or training would go on with it. */
START_TEST(nan_reaches_the_loss)
{
    struct op_bench b;
    if (!host_variant_open(0, &b)) {
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
    host_variant_close(&b);
}
END_TEST

START_TEST(cast_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

START_TEST(updates_by_hand)
{
    struct op_bench b;
    if (!host_variant_open(_i, &b)) {
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
    host_variant_close(&b);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("by hand");
    tcase_add_loop_test(tests, conv_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, conv_channels_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, norm_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, pool_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, loss_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, cast_by_hand, 0, HOST_VARIANTS);
    tcase_add_loop_test(tests, updates_by_hand, 0, HOST_VARIANTS);
    tcase_add_test(tests, nan_reaches_the_loss);
    return check_run_case("host_ops_by_hand", tests);
}
