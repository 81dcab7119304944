#include "tests/support/op_cases.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/op_cases_internal.h"

double *op_cases__doubles(size_t count)
{
    double *values = calloc(count > 0 ? count : 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

struct bench_tensor *op_cases__vector(struct op_bench *bench, int length, double spread)
{
    return op_bench_tensor(bench, DTYPE_F32, 1, 1, 1, length, spread);
}

struct bench_tensor *op_cases__scalars(struct op_bench *b, const struct step_scalars *scalars)
{
    struct bench_tensor *t = op_cases__vector(b, OP_BENCH_SCALARS, 1.0);
    op_bench_put_scalars(b, t, scalars);
    return t;
}

/* Moved away from zero as the bench says. */
static void shift(struct op_bench *b, struct bench_tensor *t)
{
    for (size_t i = 0; i < t->count; i++) {
        t->values[i] += b->shift;
    }
    op_bench_upload(b, t);
}

struct reference_shape op_cases__shape(const struct bench_tensor *t)
{
    return (struct reference_shape){t->tensor.n, t->tensor.h, t->tensor.w, t->tensor.c};
}

/* --- Convolution ------------------------------------------------------------------------------ */

static int out_size(int in, int window, int stride, int pad)
{
    return (in + 2 * pad - window) / stride + 1;
}

static const char *conv_text(const struct conv_case *c, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s %dx%dx%dx%d, %d filters %dx%d, stride %d, pad %d", what, c->n,
             c->h, c->w, c->c, c->k, c->r, c->s, c->stride, c->pad);
    return text;
}

static struct bench_tensor *conv_x(struct op_bench *b, const struct conv_case *c)
{
    return op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, b->x_size);
}

static struct bench_tensor *conv_w(struct op_bench *b, const struct conv_case *c)
{
    return op_bench_tensor(b, b->dtype, c->k, c->r, c->s, c->c, 0.5 * b->w_size);
}

static struct bench_tensor *conv_y(struct op_bench *b, const struct conv_case *c, double spread)
{
    return op_bench_tensor(b, b->dtype, c->n, out_size(c->h, c->r, c->stride, c->pad),
                           out_size(c->w, c->s, c->stride, c->pad), c->k, spread);
}

void op_case_conv(struct op_bench *b, const struct conv_case *c)
{
    struct bench_tensor *x = conv_x(b, c);
    struct bench_tensor *w = conv_w(b, c);
    struct bench_tensor *bias = op_cases__vector(b, c->k, 1.0);
    struct bench_tensor *y = conv_y(b, c, 0.0);
    double *want = op_cases__doubles(y->count);
    reference_conv(x->values, op_cases__shape(x), w->values, op_cases__shape(w),
                   c->bias ? bias->values : NULL, c->stride, c->pad, c->relu, want,
                   op_cases__shape(y));
    struct op_desc desc = {.kind = OP_CONV, .label = "case conv"};
    desc.u.conv = (struct op_conv){.x = x->tensor,
                                   .w = w->tensor,
                                   .y = y->tensor,
                                   .stride = c->stride,
                                   .pad = c->pad,
                                   .relu = c->relu};
    if (c->bias) {
        desc.u.conv.bias = bias->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare_as(b, y, want, OP_RESULT_PRODUCT, conv_text(c, "conv"));
    free(want);
    op_bench_reset(b);
}

void op_case_conv_backward_data(struct op_bench *b, const struct conv_case *c)
{
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *w = conv_w(b, c);
    struct bench_tensor *dy = conv_y(b, c, b->w_size);
    double *want = op_cases__doubles(dx->count);
    reference_conv_backward_data(dy->values, op_cases__shape(dy), w->values, op_cases__shape(w),
                                 c->stride, c->pad, want, op_cases__shape(dx));
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_DATA, .label = "case conv data"};
    desc.u.conv = (struct op_conv){
        .dx = dx->tensor, .w = w->tensor, .dy = dy->tensor, .stride = c->stride, .pad = c->pad};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dx, want, OP_RESULT_PRODUCT, conv_text(c, "conv backward data"));
    free(want);
    op_bench_reset(b);
}

void op_case_conv_backward_filter(struct op_bench *b, const struct conv_case *c, bool f32)
{
    struct bench_tensor *x = conv_x(b, c);
    struct bench_tensor *dw =
        op_bench_tensor(b, f32 ? DTYPE_F32 : b->dtype, c->k, c->r, c->s, c->c, 0.0);
    struct bench_tensor *dy = conv_y(b, c, b->w_size);
    double *want = op_cases__doubles(dw->count);
    reference_conv_backward_filter(x->values, op_cases__shape(x), dy->values, op_cases__shape(dy),
                                   c->stride, c->pad, want, op_cases__shape(dw));
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_FILTER, .label = "case conv filter"};
    desc.u.conv = (struct op_conv){
        .x = x->tensor, .dw = dw->tensor, .dy = dy->tensor, .stride = c->stride, .pad = c->pad};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dw, want, OP_RESULT_PRODUCT, conv_text(c, "conv backward filter"));
    free(want);
    op_bench_reset(b);
}

/* --- Pooling ---------------------------------------------------------------------------------- */

void op_case_pool(struct op_bench *b, const struct pool_case *c)
{
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    for (size_t i = 0; c->ties && i < x->count; i++) {
        x->values[i] = (double)rng_below(&b->rng, 12) / -4.0;
    }
    op_bench_upload(b, x);
    int h = out_size(c->h, c->window, c->stride, c->pad);
    int w = out_size(c->w, c->window, c->stride, c->pad);
    struct bench_tensor *y = op_bench_tensor(b, b->dtype, c->n, h, w, c->c, 0.0);
    struct bench_tensor *index = op_bench_tensor(b, DTYPE_U8, c->n, h, w, c->c, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, c->n, h, w, c->c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    double *want = op_cases__doubles(y->count), *want_dx = op_cases__doubles(dx->count);
    reference_max_pool(x->values, op_cases__shape(x), c->window, c->stride, c->pad, want,
                       op_cases__shape(y));
    reference_max_pool_backward(x->values, op_cases__shape(x), dy->values, op_cases__shape(dy),
                                c->window, c->stride, c->pad, want_dx);
    struct op_desc desc = {.kind = OP_MAX_POOL, .label = "case pool"};
    desc.u.pool = (struct op_max_pool){.x = x->tensor,
                                       .y = y->tensor,
                                       .dy = dy->tensor,
                                       .dx = dx->tensor,
                                       .window = c->window,
                                       .stride = c->stride,
                                       .pad = c->pad};
    if (c->index) {
        desc.u.pool.index = index->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare_as(b, y, want, OP_RESULT_EXACT, "max pool");
    desc.kind = OP_MAX_POOL_BACKWARD;
    desc.label = "case pool backward";
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dx, want_dx, OP_RESULT_POINTWISE, "max pool backward");
    free(want);
    free(want_dx);
    op_bench_reset(b);
}

void op_case_global_average(struct op_bench *b, int n, int h, int w, int c, bool f32_result)
{
    enum dtype result = f32_result ? DTYPE_F32 : b->dtype;
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    shift(b, x);
    struct bench_tensor *y = op_bench_tensor(b, result, n, 1, 1, c, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, result, n, 1, 1, c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, n, h, w, c, 0.0);
    double *want = op_cases__doubles(y->count), *want_dx = op_cases__doubles(dx->count);
    reference_global_average(x->values, op_cases__shape(x), want);
    reference_global_average_backward(dy->values, op_cases__shape(x), want_dx);
    struct op_desc desc = {.kind = OP_GLOBAL_AVERAGE, .label = "case average"};
    desc.u.average = (struct op_global_average){
        .x = x->tensor, .y = y->tensor, .dy = dy->tensor, .dx = dx->tensor};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, y, want, OP_RESULT_AVERAGE, "global average");
    desc.kind = OP_GLOBAL_AVERAGE_BACKWARD;
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dx, want_dx, OP_RESULT_AVERAGE, "global average backward");
    free(want);
    free(want_dx);
    op_bench_reset(b);
}

/* --- Linear layer and loss -------------------------------------------------------------------- */

void op_case_linear(struct op_bench *b, int rows, int in, int out, bool bias, double factor)
{
    struct bench_tensor *x = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, in, 1.0);
    struct bench_tensor *w = op_bench_tensor(b, DTYPE_F32, out, 1, 1, in, 0.5);
    struct bench_tensor *offset = op_cases__vector(b, out, 1.0);
    struct bench_tensor *y = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, out, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, out, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, in, 0.0);
    struct bench_tensor *dw = op_bench_tensor(b, DTYPE_F32, out, 1, 1, in, 0.0);
    struct bench_tensor *db = op_cases__vector(b, out, 0.0);
    double *want = op_cases__doubles(y->count), *want_dx = op_cases__doubles(dx->count);
    double *want_dw = op_cases__doubles(dw->count), *want_db = op_cases__doubles(db->count);
    double f32_factor = (double)(float)factor;
    reference_linear(x->values, w->values, bias ? offset->values : NULL, f32_factor, rows, in, out,
                     want);
    reference_linear_backward_data(dy->values, w->values, f32_factor, rows, in, out, want_dx);
    reference_linear_backward_weights(x->values, dy->values, f32_factor, rows, in, out, want_dw,
                                      want_db);
    struct op_desc desc = {.kind = OP_LINEAR, .label = "case linear"};
    desc.u.linear = (struct op_linear){.x = x->tensor,
                                       .w = w->tensor,
                                       .y = y->tensor,
                                       .dx = dx->tensor,
                                       .dw = dw->tensor,
                                       .dy = dy->tensor,
                                       .factor = (float)factor};
    if (bias) {
        desc.u.linear.bias = offset->tensor;
        desc.u.linear.db = db->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare_as(b, y, want, OP_RESULT_LINEAR, "linear");
    desc.kind = OP_LINEAR_BACKWARD_DATA;
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dx, want_dx, OP_RESULT_LINEAR, "linear backward data");
    desc.kind = OP_LINEAR_BACKWARD_WEIGHTS;
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dw, want_dw, OP_RESULT_LINEAR, "linear backward weights");
    if (bias) {
        op_bench_compare_as(b, db, want_db, OP_RESULT_LINEAR, "linear backward bias");
    }
    free(want);
    free(want_dx);
    free(want_dw);
    free(want_db);
    op_bench_reset(b);
}

void op_case_softmax_loss(struct op_bench *b, int rows, int classes, double spread, bool gradient)
{
    struct bench_tensor *logits = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, classes, spread);
    struct bench_tensor *targets = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, classes, 1.0);
    struct bench_tensor *loss = op_cases__vector(b, 1, 0.0);
    struct bench_tensor *dlogits = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, classes, 0.0);
    for (int n = 0; n < rows; n++) {
        /* Smoothed labels; every fourth row has no target, as the place of a bad image. */
        int label = (int)rng_below(&b->rng, (uint32_t)classes);
        for (int c = 0; c < classes; c++) {
            double share = 0.1 / (double)classes + (c == label ? 0.9 : 0.0);
            targets->values[n * classes + c] = n % 4 == 3 ? 0.0 : share / (double)rows;
        }
    }
    op_bench_upload(b, targets);
    double *want = op_cases__doubles(dlogits->count);
    double want_loss = reference_softmax_loss(logits->values, targets->values, rows, classes, want);
    struct op_desc desc = {.kind = OP_SOFTMAX_LOSS, .label = "case loss"};
    desc.u.loss = (struct op_softmax_loss){
        .logits = logits->tensor, .targets = targets->tensor, .loss = loss->tensor};
    if (gradient) {
        desc.u.loss.dlogits = dlogits->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare_as(b, loss, &want_loss, OP_RESULT_LOSS, "loss");
    if (gradient) {
        op_bench_compare_as(b, dlogits, want, OP_RESULT_LOSS_GRADIENT, "loss gradient");
    }
    free(want);
    op_bench_reset(b);
}

/* --- Element by element ----------------------------------------------------------------------- */

void op_case_ingest(struct op_bench *b, int n, int h, int w, int channels, bool bytes)
{
    struct bench_tensor *from = op_bench_tensor(b, bytes ? DTYPE_U8 : DTYPE_F32, n, h, w, 3, 1.0);
    struct bench_tensor *to = op_bench_tensor(b, b->dtype, n, h, w, channels, 0.0);
    struct op_desc desc = {.kind = OP_INGEST, .label = "case ingest"};
    desc.u.ingest = (struct op_ingest){.from = from->tensor,
                                       .to = to->tensor,
                                       .scale = {0.0157F, 0.02F, 0.5F},
                                       .offset = {-2.0F, 1.5F, 0.25F}};
    double *want = op_cases__doubles(to->count);
    reference_ingest(from->values, want, from->count / 3, channels, desc.u.ingest.scale,
                     desc.u.ingest.offset);
    op_bench_run(b, &desc);
    op_bench_compare_as(b, to, want, OP_RESULT_POINTWISE, "ingest");
    double *got = op_cases__doubles(to->count);
    op_bench_fetch(b, to, got);
    for (size_t i = 0; i < to->count; i++) {
        if (i % (size_t)channels >= 3) {
            ck_assert_msg(got[i] == 0.0, "a channel of padding holds %g", got[i]);
        }
    }
    free(got);
    free(want);
    op_bench_reset(b);
}

void op_case_bias_backward(struct op_bench *b, int n, int h, int w, int c)
{
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    shift(b, dy);
    struct bench_tensor *db = op_cases__vector(b, c, 0.0);
    double *want = op_cases__doubles(db->count);
    reference_bias_backward(dy->values, op_cases__shape(dy), want);
    struct op_desc desc = {.kind = OP_BIAS_BACKWARD, .label = "case bias backward"};
    desc.u.bias = (struct op_bias_backward){.dy = dy->tensor, .db = db->tensor};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, db, want, OP_RESULT_STATISTIC, "bias backward");
    free(want);
    op_bench_reset(b);
}

void op_case_relu_backward(struct op_bench *b, int n, int h, int w, int c, bool in_place)
{
    struct bench_tensor *y = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    for (size_t i = 0; i < y->count; i++) {
        y->values[i] = fmax(y->values[i], 0.0);
    }
    op_bench_upload(b, y);
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *dx = in_place ? dy : op_bench_tensor(b, b->dtype, n, h, w, c, 0.0);
    double *want = op_cases__doubles(dx->count);
    reference_relu_backward(y->values, dy->values, want, dx->count);
    struct op_desc desc = {.kind = OP_RELU_BACKWARD, .label = "case relu backward"};
    desc.u.relu = (struct op_relu_backward){.y = y->tensor, .dy = dy->tensor, .dx = dx->tensor};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, dx, want, OP_RESULT_EXACT, "relu backward");
    free(want);
    op_bench_reset(b);
}

void op_case_add(struct op_bench *b, int n, int h, int w, int c, bool in_place)
{
    struct bench_tensor *left = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *right = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *y = in_place ? left : op_bench_tensor(b, b->dtype, n, h, w, c, 0.0);
    double *want = op_cases__doubles(y->count);
    reference_add(left->values, right->values, want, y->count);
    struct op_desc desc = {.kind = OP_ADD, .label = "case add"};
    desc.u.add = (struct op_add){.a = left->tensor, .b = right->tensor, .y = y->tensor};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, y, want, OP_RESULT_POINTWISE, "add");
    free(want);
    op_bench_reset(b);
}

void op_case_cast(struct op_bench *b, int count)
{
    struct bench_tensor *wide = op_cases__vector(b, count, 3.0);
    struct bench_tensor *narrow = op_bench_tensor(b, DTYPE_BF16, 1, 1, 1, count, 0.0);
    struct bench_tensor *back = op_cases__vector(b, count, 0.0);
    double *want = op_cases__doubles(wide->count);
    for (size_t i = 0; i < wide->count; i++) {
        want[i] = reference_round_bf16(wide->values[i]);
    }
    struct op_desc desc = {.kind = OP_CAST, .label = "case narrow"};
    desc.u.cast = (struct op_cast){.from = wide->tensor, .to = narrow->tensor};
    op_bench_run(b, &desc);
    op_bench_compare_as(b, narrow, want, OP_RESULT_EXACT, "cast to bfloat16");
    desc.label = "case widen";
    desc.u.cast = (struct op_cast){.from = narrow->tensor, .to = back->tensor};
    op_bench_run(b, &desc);
    /* Exact: rounding to the nearest is one right value. */
    op_bench_compare_as(b, back, want, OP_RESULT_EXACT, "cast to float32");
    free(want);
    op_bench_reset(b);
}
