#include "tests/support/op_cases.h"

#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fails the test with the status's own message. */
#define MUST(expression)                                                                           \
    do {                                                                                           \
        if ((expression) != STATUS_OK) {                                                           \
            ck_abort_msg("%s: %s", #expression, status_message());                                 \
        }                                                                                          \
    } while (0)

#define INIT_SEED UINT64_C(20250131)

void op_bench_init(struct op_bench *bench, device *dev, enum dtype dtype, double relative,
                   double absolute, uint64_t seed)
{
    *bench =
        (struct op_bench){.dev = dev, .dtype = dtype, .relative = relative, .absolute = absolute};
    rng_init(&bench->rng, INIT_SEED, RNG_TEST, 0, seed);
    MUST(device_stream_create(dev, "bench", &bench->stream));
}

void op_bench_reset(struct op_bench *bench)
{
    for (int i = 0; i < bench->count; i++) {
        device_buffer_destroy(bench->dev, &bench->tensors[i]->tensor.buffer);
        free(bench->tensors[i]->values);
        free(bench->tensors[i]);
    }
    bench->count = 0;
}

void op_bench_fini(struct op_bench *bench)
{
    op_bench_reset(bench);
    device_stream_destroy(bench->dev, &bench->stream);
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static double *doubles(size_t count)
{
    return allocate(count, sizeof(double));
}

void op_bench_upload(struct op_bench *bench, struct bench_tensor *t)
{
    size_t bytes = t->count * dtype_bytes(t->tensor.dtype);
    unsigned char *data = allocate(bytes, 1);
    for (size_t i = 0; i < t->count; i++) {
        if (t->tensor.dtype == DTYPE_F32) {
            float value = (float)t->values[i];
            memcpy(data + 4 * i, &value, 4);
            t->values[i] = (double)value;
        } else if (t->tensor.dtype == DTYPE_BF16) {
            uint16_t bits = reference_bf16_bits((float)t->values[i]);
            memcpy(data + 2 * i, &bits, 2);
            t->values[i] = (double)reference_bf16_value(bits);
        } else {
            data[i] = (unsigned char)t->values[i];
            t->values[i] = (double)data[i];
        }
    }
    MUST(device_copy_to_device(bench->dev, bench->stream, t->tensor.buffer, t->tensor.offset, data,
                               bytes));
    MUST(device_stream_wait(bench->dev, bench->stream));
    free(data);
}

struct bench_tensor *op_bench_tensor(struct op_bench *bench, enum dtype dtype, int n, int h, int w,
                                     int c, double spread)
{
    ck_assert_int_lt(bench->count, OP_BENCH_TENSORS);
    struct bench_tensor *t = allocate(1, sizeof *t);
    bench->tensors[bench->count++] = t;
    t->tensor = (struct tensor){.dtype = dtype, .n = n, .h = h, .w = w, .c = c, .offset = 48};
    t->count = tensor_elements(&t->tensor);
    t->values = doubles(t->count);
    MUST(device_buffer_create(bench->dev, t->tensor.offset + tensor_bytes(&t->tensor),
                              &t->tensor.buffer));
    for (size_t i = 0; i < t->count; i++) {
        if (dtype == DTYPE_U8) {
            t->values[i] = (double)rng_below(&bench->rng, 256);
        } else {
            t->values[i] = spread != 0.0 ? spread * rng_normal(&bench->rng) : (double)NAN;
        }
    }
    op_bench_upload(bench, t);
    return t;
}

static struct bench_tensor *vector(struct op_bench *bench, int length, double spread)
{
    return op_bench_tensor(bench, DTYPE_F32, 1, 1, 1, length, spread);
}

void op_bench_run(struct op_bench *bench, const struct op_desc *desc)
{
    device_op *op = NULL;
    MUST(device_op_create(bench->dev, desc, &op));
    MUST(device_op_submit(bench->dev, op, bench->stream));
    MUST(device_stream_wait(bench->dev, bench->stream));
    device_op_destroy(bench->dev, &op);
    ck_assert_ptr_null(op);
}

void op_bench_compare(struct op_bench *bench, const struct bench_tensor *t, const double *want,
                      const char *what)
{
    size_t bytes = t->count * dtype_bytes(t->tensor.dtype);
    unsigned char *data = allocate(bytes, 1);
    MUST(device_copy_to_host(bench->dev, bench->stream, data, t->tensor.buffer, t->tensor.offset,
                             bytes));
    MUST(device_stream_wait(bench->dev, bench->stream));
    double largest = 0.0;
    for (size_t i = 0; i < t->count; i++) {
        largest = fmax(largest, fabs(want[i]));
    }
    /* BF16 results may be off by half a unit of their last place on top. */
    double relative = bench->relative + (t->tensor.dtype == DTYPE_BF16 ? 1.0 / 256.0 : 0.0);
    for (size_t i = 0; i < t->count; i++) {
        double got;
        if (t->tensor.dtype == DTYPE_F32) {
            float value;
            memcpy(&value, data + 4 * i, 4);
            got = (double)value;
        } else {
            uint16_t bits;
            memcpy(&bits, data + 2 * i, 2);
            got = (double)reference_bf16_value(bits);
        }
        /* Negated so that a NaN does not pass. */
        if (!(fabs(got - want[i]) <= relative * fabs(want[i]) + bench->absolute * largest)) {
            ck_abort_msg("%s, %dx%dx%dx%d: element %zu is %.9g and must be %.9g (largest %.3g)",
                         what, t->tensor.n, t->tensor.h, t->tensor.w, t->tensor.c, i, got, want[i],
                         largest);
        }
    }
    free(data);
}

static struct reference_shape shape_of(const struct bench_tensor *t)
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

void op_case_conv(struct op_bench *b, const struct conv_case *c)
{
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    struct bench_tensor *w = op_bench_tensor(b, b->dtype, c->k, c->r, c->s, c->c, 0.5);
    struct bench_tensor *bias = vector(b, c->k, 1.0);
    struct bench_tensor *y =
        op_bench_tensor(b, b->dtype, c->n, out_size(c->h, c->r, c->stride, c->pad),
                        out_size(c->w, c->s, c->stride, c->pad), c->k, 0.0);
    double *want = doubles(y->count);
    reference_conv(x->values, shape_of(x), w->values, shape_of(w), c->bias ? bias->values : NULL,
                   c->stride, c->pad, c->relu, want, shape_of(y));
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
    op_bench_compare(b, y, want, conv_text(c, "conv"));
    free(want);
    op_bench_reset(b);
}

void op_case_conv_backward_data(struct op_bench *b, const struct conv_case *c)
{
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *w = op_bench_tensor(b, b->dtype, c->k, c->r, c->s, c->c, 0.5);
    struct bench_tensor *dy =
        op_bench_tensor(b, b->dtype, c->n, out_size(c->h, c->r, c->stride, c->pad),
                        out_size(c->w, c->s, c->stride, c->pad), c->k, 1.0);
    double *want = doubles(dx->count);
    reference_conv_backward_data(dy->values, shape_of(dy), w->values, shape_of(w), c->stride,
                                 c->pad, want, shape_of(dx));
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_DATA, .label = "case conv data"};
    desc.u.conv = (struct op_conv){
        .dx = dx->tensor, .w = w->tensor, .dy = dy->tensor, .stride = c->stride, .pad = c->pad};
    op_bench_run(b, &desc);
    op_bench_compare(b, dx, want, conv_text(c, "conv backward data"));
    free(want);
    op_bench_reset(b);
}

void op_case_conv_backward_filter(struct op_bench *b, const struct conv_case *c, bool f32)
{
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    struct bench_tensor *dw =
        op_bench_tensor(b, f32 ? DTYPE_F32 : b->dtype, c->k, c->r, c->s, c->c, 0.0);
    struct bench_tensor *dy =
        op_bench_tensor(b, b->dtype, c->n, out_size(c->h, c->r, c->stride, c->pad),
                        out_size(c->w, c->s, c->stride, c->pad), c->k, 1.0);
    double *want = doubles(dw->count);
    reference_conv_backward_filter(x->values, shape_of(x), dy->values, shape_of(dy), c->stride,
                                   c->pad, want, shape_of(dw));
    struct op_desc desc = {.kind = OP_CONV_BACKWARD_FILTER, .label = "case conv filter"};
    desc.u.conv = (struct op_conv){
        .x = x->tensor, .dw = dw->tensor, .dy = dy->tensor, .stride = c->stride, .pad = c->pad};
    op_bench_run(b, &desc);
    op_bench_compare(b, dw, want, conv_text(c, "conv backward filter"));
    free(want);
    op_bench_reset(b);
}

/* --- Normalisation ---------------------------------------------------------------------------- */

/* What one normalisation holds beside its maps. */
struct norm_values {
    struct bench_tensor *x, *residual, *y;
    struct bench_tensor *scale, *bias, *running_mean, *running_var, *saved_mean, *saved_inv_std;
    struct bench_tensor *scalars;
    struct reference_norm reference;
};

#define TEST_EPSILON 1e-5F
#define TEST_AVERAGING 0.1F

static struct bench_tensor *scalars_tensor(struct op_bench *b, const struct step_scalars *scalars)
{
    float values[sizeof *scalars / sizeof(float)];
    struct bench_tensor *t = vector(b, (int)(sizeof values / sizeof *values), 1.0);
    memcpy(values, scalars, sizeof values);
    for (size_t i = 0; i < t->count; i++) {
        t->values[i] = (double)values[i];
    }
    op_bench_upload(b, t);
    return t;
}

static void make_norm(struct op_bench *b, const struct norm_case *c, struct norm_values *v)
{
    v->x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    for (size_t i = 0; i < v->x->count; i++) {
        v->x->values[i] += c->mean;
    }
    op_bench_upload(b, v->x);
    v->residual = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    v->y = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    v->scale = vector(b, c->c, 1.0);
    v->bias = vector(b, c->c, 1.0);
    v->running_mean = vector(b, c->c, 1.0);
    v->running_var = vector(b, c->c, 1.0);
    for (int i = 0; i < c->c; i++) {
        v->running_mean->values[i] += c->mean;
        v->running_var->values[i] = 0.1 + fabs(v->running_var->values[i]);
    }
    op_bench_upload(b, v->running_mean);
    op_bench_upload(b, v->running_var);
    v->saved_mean = vector(b, c->c, 0.0);
    v->saved_inv_std = vector(b, c->c, 0.0);
    struct step_scalars scalars = {.averaging = TEST_AVERAGING};
    v->scalars = scalars_tensor(b, &scalars);
    v->reference = (struct reference_norm){.scale = v->scale->values,
                                           .bias = v->bias->values,
                                           .running_mean = v->running_mean->values,
                                           .running_var = v->running_var->values,
                                           .saved_mean = v->saved_mean->values,
                                           .saved_inv_std = v->saved_inv_std->values,
                                           .epsilon = (double)TEST_EPSILON,
                                           .averaging = (double)TEST_AVERAGING,
                                           .relu = c->relu};
}

static struct op_norm norm_desc(const struct norm_values *v, const struct norm_case *c)
{
    struct op_norm norm = {.x = v->x->tensor,
                           .y = v->y->tensor,
                           .scale = v->scale->tensor,
                           .bias = v->bias->tensor,
                           .running_mean = v->running_mean->tensor,
                           .running_var = v->running_var->tensor,
                           .saved_mean = v->saved_mean->tensor,
                           .saved_inv_std = v->saved_inv_std->tensor,
                           .scalars = v->scalars->tensor,
                           .epsilon = TEST_EPSILON,
                           .relu = c->relu};
    if (c->residual) {
        norm.residual = v->residual->tensor;
    }
    return norm;
}

void op_case_norm(struct op_bench *b, const struct norm_case *c)
{
    struct norm_values v;
    make_norm(b, c, &v);
    double *want = doubles(v.y->count);
    reference_norm_train(v.x->values, c->residual ? v.residual->values : NULL, shape_of(v.x),
                         &v.reference, want);
    struct op_desc desc = {.kind = OP_NORM, .label = "case norm"};
    desc.u.norm = norm_desc(&v, c);
    op_bench_run(b, &desc);
    op_bench_compare(b, v.saved_mean, v.saved_mean->values, "norm: saved mean");
    op_bench_compare(b, v.saved_inv_std, v.saved_inv_std->values, "norm: saved inv_std");
    op_bench_compare(b, v.running_mean, v.running_mean->values, "norm: running mean");
    op_bench_compare(b, v.running_var, v.running_var->values, "norm: running variance");
    op_bench_compare(b, v.y, want, "norm: y");
    free(want);
    op_bench_reset(b);
}

void op_case_norm_infer(struct op_bench *b, const struct norm_case *c)
{
    struct norm_values v;
    make_norm(b, c, &v);
    double *want = doubles(v.y->count);
    reference_norm_infer(v.x->values, c->residual ? v.residual->values : NULL, shape_of(v.x),
                         &v.reference, want);
    struct op_desc desc = {.kind = OP_NORM_INFER, .label = "case norm infer"};
    desc.u.norm = norm_desc(&v, c);
    op_bench_run(b, &desc);
    op_bench_compare(b, v.y, want, "norm infer");
    free(want);
    op_bench_reset(b);
}

void op_case_norm_backward(struct op_bench *b, const struct norm_case *c, bool in_place)
{
    struct norm_values v;
    make_norm(b, c, &v);
    /* What forward leaves, in the types of the device. */
    reference_norm_train(v.x->values, c->residual ? v.residual->values : NULL, shape_of(v.x),
                         &v.reference, v.y->values);
    op_bench_upload(b, v.y);
    op_bench_upload(b, v.saved_mean);
    op_bench_upload(b, v.saved_inv_std);
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *dresidual =
        in_place ? dy : op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *dscale = vector(b, c->c, 0.0);
    struct bench_tensor *dbias = vector(b, c->c, 0.0);
    double *want_dx = doubles(dx->count), *want_residual = doubles(dx->count);
    double *want_scale = doubles(dscale->count), *want_bias = doubles(dbias->count);
    reference_norm_backward(v.x->values, v.y->values, dy->values, shape_of(v.x), &v.reference,
                            want_dx, want_residual, want_scale, want_bias);
    struct op_desc desc = {.kind = OP_NORM_BACKWARD, .label = "case norm backward"};
    desc.u.norm = norm_desc(&v, c);
    desc.u.norm.dy = dy->tensor;
    desc.u.norm.dx = dx->tensor;
    desc.u.norm.dscale = dscale->tensor;
    desc.u.norm.dbias = dbias->tensor;
    if (c->residual) {
        desc.u.norm.dresidual = dresidual->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare(b, dscale, want_scale, "norm backward: dscale");
    op_bench_compare(b, dbias, want_bias, "norm backward: dbias");
    op_bench_compare(b, dx, want_dx, "norm backward: dx");
    if (c->residual) {
        op_bench_compare(b, dresidual, want_residual, "norm backward: dresidual");
    }
    free(want_dx);
    free(want_residual);
    free(want_scale);
    free(want_bias);
    op_bench_reset(b);
}

/* --- Pooling ---------------------------------------------------------------------------------- */

void op_case_pool(struct op_bench *b, const struct pool_case *c)
{
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    for (size_t i = 0; c->ties && i < x->count; i++) {
        x->values[i] = (double)rng_below(&b->rng, 3) - 2.0;
    }
    op_bench_upload(b, x);
    int h = out_size(c->h, c->window, c->stride, c->pad);
    int w = out_size(c->w, c->window, c->stride, c->pad);
    struct bench_tensor *y = op_bench_tensor(b, b->dtype, c->n, h, w, c->c, 0.0);
    struct bench_tensor *index = op_bench_tensor(b, DTYPE_U8, c->n, h, w, c->c, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, c->n, h, w, c->c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    double *want = doubles(y->count), *want_dx = doubles(dx->count);
    reference_max_pool(x->values, shape_of(x), c->window, c->stride, c->pad, want, shape_of(y));
    reference_max_pool_backward(x->values, shape_of(x), dy->values, shape_of(dy), c->window,
                                c->stride, c->pad, want_dx);
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
    op_bench_compare(b, y, want, "max pool");
    desc.kind = OP_MAX_POOL_BACKWARD;
    desc.label = "case pool backward";
    op_bench_run(b, &desc);
    op_bench_compare(b, dx, want_dx, "max pool backward");
    free(want);
    free(want_dx);
    op_bench_reset(b);
}

void op_case_global_average(struct op_bench *b, int n, int h, int w, int c, bool f32_result)
{
    enum dtype result = f32_result ? DTYPE_F32 : b->dtype;
    struct bench_tensor *x = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *y = op_bench_tensor(b, result, n, 1, 1, c, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, result, n, 1, 1, c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, n, h, w, c, 0.0);
    double *want = doubles(y->count), *want_dx = doubles(dx->count);
    reference_global_average(x->values, shape_of(x), want);
    reference_global_average_backward(dy->values, shape_of(x), want_dx);
    struct op_desc desc = {.kind = OP_GLOBAL_AVERAGE, .label = "case average"};
    desc.u.average = (struct op_global_average){
        .x = x->tensor, .y = y->tensor, .dy = dy->tensor, .dx = dx->tensor};
    op_bench_run(b, &desc);
    op_bench_compare(b, y, want, "global average");
    desc.kind = OP_GLOBAL_AVERAGE_BACKWARD;
    op_bench_run(b, &desc);
    op_bench_compare(b, dx, want_dx, "global average backward");
    free(want);
    free(want_dx);
    op_bench_reset(b);
}

/* --- Linear layer and loss -------------------------------------------------------------------- */

void op_case_linear(struct op_bench *b, int rows, int in, int out, bool bias, double factor)
{
    struct bench_tensor *x = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, in, 1.0);
    struct bench_tensor *w = op_bench_tensor(b, DTYPE_F32, out, 1, 1, in, 0.5);
    struct bench_tensor *offset = vector(b, out, 1.0);
    struct bench_tensor *y = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, out, 0.0);
    struct bench_tensor *dy = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, out, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, DTYPE_F32, rows, 1, 1, in, 0.0);
    struct bench_tensor *dw = op_bench_tensor(b, DTYPE_F32, out, 1, 1, in, 0.0);
    struct bench_tensor *db = vector(b, out, 0.0);
    double *want = doubles(y->count), *want_dx = doubles(dx->count);
    double *want_dw = doubles(dw->count), *want_db = doubles(db->count);
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
    op_bench_compare(b, y, want, "linear");
    desc.kind = OP_LINEAR_BACKWARD_DATA;
    op_bench_run(b, &desc);
    op_bench_compare(b, dx, want_dx, "linear backward data");
    desc.kind = OP_LINEAR_BACKWARD_WEIGHTS;
    op_bench_run(b, &desc);
    op_bench_compare(b, dw, want_dw, "linear backward weights");
    if (bias) {
        op_bench_compare(b, db, want_db, "linear backward bias");
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
    struct bench_tensor *loss = vector(b, 1, 0.0);
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
    double *want = doubles(dlogits->count);
    double want_loss = reference_softmax_loss(logits->values, targets->values, rows, classes, want);
    struct op_desc desc = {.kind = OP_SOFTMAX_LOSS, .label = "case loss"};
    desc.u.loss = (struct op_softmax_loss){
        .logits = logits->tensor, .targets = targets->tensor, .loss = loss->tensor};
    if (gradient) {
        desc.u.loss.dlogits = dlogits->tensor;
    }
    op_bench_run(b, &desc);
    op_bench_compare(b, loss, &want_loss, "loss");
    if (gradient) {
        op_bench_compare(b, dlogits, want, "loss gradient");
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
    double *want = doubles(to->count);
    reference_ingest(from->values, want, from->count / 3, channels, desc.u.ingest.scale,
                     desc.u.ingest.offset);
    op_bench_run(b, &desc);
    op_bench_compare(b, to, want, "ingest");
    free(want);
    op_bench_reset(b);
}

void op_case_bias_backward(struct op_bench *b, int n, int h, int w, int c)
{
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *db = vector(b, c, 0.0);
    double *want = doubles(db->count);
    reference_bias_backward(dy->values, shape_of(dy), want);
    struct op_desc desc = {.kind = OP_BIAS_BACKWARD, .label = "case bias backward"};
    desc.u.bias = (struct op_bias_backward){.dy = dy->tensor, .db = db->tensor};
    op_bench_run(b, &desc);
    op_bench_compare(b, db, want, "bias backward");
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
    double *want = doubles(dx->count);
    reference_relu_backward(y->values, dy->values, want, dx->count);
    struct op_desc desc = {.kind = OP_RELU_BACKWARD, .label = "case relu backward"};
    desc.u.relu = (struct op_relu_backward){.y = y->tensor, .dy = dy->tensor, .dx = dx->tensor};
    op_bench_run(b, &desc);
    op_bench_compare(b, dx, want, "relu backward");
    free(want);
    op_bench_reset(b);
}

void op_case_add(struct op_bench *b, int n, int h, int w, int c, bool in_place)
{
    struct bench_tensor *left = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *right = op_bench_tensor(b, b->dtype, n, h, w, c, 1.0);
    struct bench_tensor *y = in_place ? left : op_bench_tensor(b, b->dtype, n, h, w, c, 0.0);
    double *want = doubles(y->count);
    reference_add(left->values, right->values, want, y->count);
    struct op_desc desc = {.kind = OP_ADD, .label = "case add"};
    desc.u.add = (struct op_add){.a = left->tensor, .b = right->tensor, .y = y->tensor};
    op_bench_run(b, &desc);
    op_bench_compare(b, y, want, "add");
    free(want);
    op_bench_reset(b);
}

void op_case_cast(struct op_bench *b, int count)
{
    struct bench_tensor *wide = vector(b, count, 3.0);
    struct bench_tensor *narrow = op_bench_tensor(b, DTYPE_BF16, 1, 1, 1, count, 0.0);
    struct bench_tensor *back = vector(b, count, 0.0);
    double *want = doubles(wide->count);
    for (size_t i = 0; i < wide->count; i++) {
        want[i] = reference_round_bf16(wide->values[i]);
    }
    struct op_desc desc = {.kind = OP_CAST, .label = "case narrow"};
    desc.u.cast = (struct op_cast){.from = wide->tensor, .to = narrow->tensor};
    op_bench_run(b, &desc);
    desc.label = "case widen";
    desc.u.cast = (struct op_cast){.from = narrow->tensor, .to = back->tensor};
    op_bench_run(b, &desc);
    /* Exact: rounding to the nearest is one right value. */
    struct op_bench exact = *b;
    exact.relative = 0.0;
    exact.absolute = 0.0;
    op_bench_compare(&exact, back, want, "cast");
    free(want);
    op_bench_reset(b);
}

/* --- Updates ---------------------------------------------------------------------------------- */

static void new_scalars(struct op_bench *b, struct bench_tensor *t,
                        const struct step_scalars *scalars)
{
    float values[sizeof *scalars / sizeof(float)];
    memcpy(values, scalars, sizeof values);
    for (size_t i = 0; i < t->count; i++) {
        t->values[i] = (double)values[i];
    }
    op_bench_upload(b, t);
}

static void compare_shadow(struct op_bench *b, const struct bench_tensor *shadow,
                           const double *parameters)
{
    op_bench_compare(b, shadow, parameters, "update: shadow");
}

void op_case_sgd(struct op_bench *b, int count, bool decays, bool nesterov, bool with_shadow)
{
    struct bench_tensor *p = vector(b, count, 1.0);
    struct bench_tensor *velocity = vector(b, count, 0.1);
    struct bench_tensor *shadow = op_bench_tensor(b, DTYPE_BF16, 1, 1, 1, count, 0.0);
    struct bench_tensor *g = op_bench_tensor(b, b->dtype, 1, 1, 1, count, 1.0);
    struct step_scalars scalars = {.momentum = 0.9F, .decay = 0.01F};
    struct bench_tensor *s = scalars_tensor(b, &scalars);
    struct op_desc desc = {.kind = OP_SGD, .label = "case sgd"};
    desc.u.update = (struct op_update){.parameters = p->tensor,
                                       .gradient = g->tensor,
                                       .first = velocity->tensor,
                                       .scalars = s->tensor,
                                       .decays = decays,
                                       .nesterov = nesterov};
    if (with_shadow) {
        desc.u.update.shadow = shadow->tensor;
    }
    for (int step = 1; step <= 3; step++) {
        scalars.rate = 0.1F * (float)step;
        new_scalars(b, s, &scalars);
        reference_sgd(p->values, g->values, velocity->values, p->count, (double)scalars.rate,
                      (double)scalars.momentum, decays ? (double)scalars.decay : 0.0, nesterov);
        op_bench_run(b, &desc);
        op_bench_compare(b, velocity, velocity->values, "sgd: velocity");
        op_bench_compare(b, p, p->values, "sgd: parameters");
        if (with_shadow) {
            compare_shadow(b, shadow, p->values);
        }
    }
    op_bench_reset(b);
}

void op_case_adamw(struct op_bench *b, int count, bool decays, bool with_shadow)
{
    const double rate = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.05;
    struct bench_tensor *p = vector(b, count, 1.0);
    struct bench_tensor *first = vector(b, count, 1.0);
    struct bench_tensor *second = vector(b, count, 1.0);
    struct bench_tensor *shadow = op_bench_tensor(b, DTYPE_BF16, 1, 1, 1, count, 0.0);
    struct bench_tensor *g = op_bench_tensor(b, b->dtype, 1, 1, 1, count, 1.0);
    memset(first->values, 0, first->count * sizeof *first->values);
    memset(second->values, 0, second->count * sizeof *second->values);
    op_bench_upload(b, first);
    op_bench_upload(b, second);
    struct step_scalars scalars = {.beta1 = (float)beta1,
                                   .beta2 = (float)beta2,
                                   .one_minus_beta1 = (float)(1.0 - beta1),
                                   .one_minus_beta2 = (float)(1.0 - beta2),
                                   .epsilon = (float)epsilon,
                                   .decay_factor = (float)(1.0 - rate * decay)};
    struct bench_tensor *s = scalars_tensor(b, &scalars);
    struct op_desc desc = {.kind = OP_ADAMW, .label = "case adamw"};
    desc.u.update = (struct op_update){.parameters = p->tensor,
                                       .gradient = g->tensor,
                                       .first = first->tensor,
                                       .second = second->tensor,
                                       .scalars = s->tensor,
                                       .decays = decays};
    if (with_shadow) {
        desc.u.update.shadow = shadow->tensor;
    }
    for (int step = 1; step <= 3; step++) {
        scalars.step_size = (float)(rate / (1.0 - pow(beta1, step)));
        scalars.second_scale = (float)(1.0 / sqrt(1.0 - pow(beta2, step)));
        new_scalars(b, s, &scalars);
        reference_adamw(p->values, g->values, first->values, second->values, p->count, rate, beta1,
                        beta2, epsilon, decays ? decay : 0.0, step);
        op_bench_run(b, &desc);
        op_bench_compare(b, first, first->values, "adamw: first");
        op_bench_compare(b, second, second->values, "adamw: second");
        op_bench_compare(b, p, p->values, "adamw: parameters");
        if (with_shadow) {
            compare_shadow(b, shadow, p->values);
        }
    }
    op_bench_reset(b);
}
