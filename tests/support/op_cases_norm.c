/* Normalisation: forward, with running statistics, and backward. */
#include <math.h>
#include <stdlib.h>

#include "tests/support/op_cases_internal.h"

/* What one normalisation holds beside its maps. */
struct norm_values {
    struct bench_tensor *x, *residual, *y;
    struct bench_tensor *scale, *bias, *running_mean, *running_var, *saved_mean, *saved_inv_std;
    struct bench_tensor *scalars;
    struct reference_norm reference;
};

#define TEST_EPSILON 1e-5F
#define TEST_AVERAGING 0.1F

static void make_norm(struct op_bench *b, const struct norm_case *c, struct norm_values *v)
{
    v->x = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    for (size_t i = 0; i < v->x->count; i++) {
        v->x->values[i] += c->mean;
    }
    op_bench_upload(b, v->x);
    v->residual = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    v->y = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    v->scale = op_cases__vector(b, c->c, 1.0);
    v->bias = op_cases__vector(b, c->c, 1.0);
    v->running_mean = op_cases__vector(b, c->c, 1.0);
    v->running_var = op_cases__vector(b, c->c, 1.0);
    for (int i = 0; i < c->c; i++) {
        v->running_mean->values[i] += c->mean;
        v->running_var->values[i] = 0.1 + fabs(v->running_var->values[i]);
    }
    op_bench_upload(b, v->running_mean);
    op_bench_upload(b, v->running_var);
    v->saved_mean = op_cases__vector(b, c->c, 0.0);
    v->saved_inv_std = op_cases__vector(b, c->c, 0.0);
    struct step_scalars scalars = {.averaging = TEST_AVERAGING};
    v->scalars = op_cases__scalars(b, &scalars);
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
    double *want = op_cases__doubles(v.y->count);
    reference_norm_train(v.x->values, c->residual ? v.residual->values : NULL, op_cases__shape(v.x),
                         &v.reference, want);
    struct op_desc desc = {.kind = OP_NORM, .label = "case norm"};
    desc.u.norm = norm_desc(&v, c);
    op_bench_run(b, &desc);
    op_bench_compare_as(b, v.saved_mean, v.saved_mean->values, OP_RESULT_STATISTIC,
                        "norm: saved mean");
    op_bench_compare_as(b, v.saved_inv_std, v.saved_inv_std->values, OP_RESULT_STATISTIC,
                        "norm: saved inv_std");
    op_bench_compare_as(b, v.running_mean, v.running_mean->values, OP_RESULT_STATISTIC,
                        "norm: running mean");
    op_bench_compare_as(b, v.running_var, v.running_var->values, OP_RESULT_STATISTIC,
                        "norm: running variance");
    op_bench_compare_as(b, v.y, want, OP_RESULT_NORM, "norm: y");
    free(want);
    op_bench_reset(b);
}

void op_case_norm_infer(struct op_bench *b, const struct norm_case *c)
{
    struct norm_values v;
    make_norm(b, c, &v);
    double *want = op_cases__doubles(v.y->count);
    reference_norm_infer(v.x->values, c->residual ? v.residual->values : NULL, op_cases__shape(v.x),
                         &v.reference, want);
    struct op_desc desc = {.kind = OP_NORM_INFER, .label = "case norm infer"};
    desc.u.norm = norm_desc(&v, c);
    op_bench_run(b, &desc);
    op_bench_compare_as(b, v.y, want, OP_RESULT_NORM, "norm infer");
    free(want);
    op_bench_reset(b);
}

void op_case_norm_backward(struct op_bench *b, const struct norm_case *c, bool in_place,
                           bool after_forward)
{
    struct norm_values v;
    make_norm(b, c, &v);
    reference_norm_train(v.x->values, c->residual ? v.residual->values : NULL, op_cases__shape(v.x),
                         &v.reference, v.y->values);
    if (!after_forward) {
        /* What forward would leave, in the types of the device. */
        op_bench_upload(b, v.y);
        op_bench_upload(b, v.saved_mean);
        op_bench_upload(b, v.saved_inv_std);
    }
    struct bench_tensor *dy = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 1.0);
    struct bench_tensor *dx = op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *dresidual =
        in_place ? dy : op_bench_tensor(b, b->dtype, c->n, c->h, c->w, c->c, 0.0);
    struct bench_tensor *dscale = op_cases__vector(b, c->c, 0.0);
    struct bench_tensor *dbias = op_cases__vector(b, c->c, 0.0);
    double *want_dx = op_cases__doubles(dx->count), *want_residual = op_cases__doubles(dx->count);
    double *want_scale = op_cases__doubles(dscale->count),
           *want_bias = op_cases__doubles(dbias->count);
    struct op_desc desc = {.kind = OP_NORM_BACKWARD, .label = "case norm backward"};
    desc.u.norm = norm_desc(&v, c);
    if (!after_forward) {
        desc.u.norm.bias = (struct tensor){0};
    }
    desc.u.norm.dy = dy->tensor;
    desc.u.norm.dx = dx->tensor;
    desc.u.norm.dscale = dscale->tensor;
    desc.u.norm.dbias = dbias->tensor;
    if (c->residual) {
        desc.u.norm.dresidual = dresidual->tensor;
    }
    struct op_desc forward_desc = {.kind = OP_NORM, .label = "case norm"};
    forward_desc.u.norm = norm_desc(&v, c);
    device_op *forward = NULL, *backward = NULL;
    if (after_forward) {
        MUST(device_op_create(b->dev, &forward_desc, &forward));
    }
    MUST(device_op_create(b->dev, &desc, &backward));
    if (after_forward) {
        MUST(device_op_submit(b->dev, forward, b->stream));
        /* The sign of y near zero is a matter of rounding: the expectation takes the device's y. */
        op_bench_fetch(b, v.y, v.y->values);
    }
    reference_norm_backward(v.x->values, v.y->values, dy->values, op_cases__shape(v.x),
                            &v.reference, want_dx, want_residual, want_scale, want_bias);
    op_bench_run_op(b, &desc, backward);
    op_bench_compare_as(b, dscale, want_scale, OP_RESULT_NORM_GRADIENT, "norm backward: dscale");
    op_bench_compare_as(b, dbias, want_bias, OP_RESULT_NORM_GRADIENT, "norm backward: dbias");
    op_bench_compare_as(b, dx, want_dx, OP_RESULT_NORM_GRADIENT, "norm backward: dx");
    if (c->residual) {
        op_bench_compare_as(b, dresidual, want_residual, OP_RESULT_POINTWISE,
                            "norm backward: dresidual");
    }
    device_op_destroy(b->dev, &backward);
    if (forward) {
        device_op_destroy(b->dev, &forward);
    }
    free(want_dx);
    free(want_residual);
    free(want_scale);
    free(want_bias);
    op_bench_reset(b);
}
