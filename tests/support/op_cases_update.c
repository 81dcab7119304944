/* Updates of parameters. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/op_cases_internal.h"

/* The change of the parameters, and their shadow, which is what the device has, rounded. */
static void compare_change(struct op_bench *b, const struct bench_tensor *p, const double *before,
                           const double *want_before, const struct bench_tensor *shadow)
{
    double *now = op_cases__doubles(p->count), *change = op_cases__doubles(p->count),
           *want = op_cases__doubles(p->count);
    op_bench_fetch(b, p, now);
    for (size_t i = 0; i < p->count; i++) {
        change[i] = now[i] - before[i];
        want[i] = p->values[i] - want_before[i];
    }
    if (b->bounds) {
        op_bench_compare_values(b, &p->tensor, change, want, OP_RESULT_CHANGE, "update: change");
    }
    if (shadow) {
        for (size_t i = 0; i < p->count; i++) {
            want[i] = reference_round_bf16(now[i]);
        }
        op_bench_compare_as(b, shadow, want, OP_RESULT_EXACT, "update: shadow");
    }
    free(now);
    free(change);
    free(want);
}

void op_case_sgd(struct op_bench *b, int count, bool decays, bool nesterov, bool with_shadow)
{
    struct bench_tensor *p = op_cases__vector(b, count, 1.0);
    struct bench_tensor *velocity = op_cases__vector(b, count, 0.1);
    struct bench_tensor *shadow = op_bench_tensor(b, DTYPE_BF16, 1, 1, 1, count, 0.0);
    struct bench_tensor *g = op_bench_tensor(b, b->dtype, 1, 1, 1, count, 1.0);
    struct step_scalars scalars = {.momentum = 0.9F, .decay = 0.01F};
    struct bench_tensor *s = op_cases__scalars(b, &scalars);
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
    double *before = op_cases__doubles(p->count), *want_before = op_cases__doubles(p->count);
    for (int step = 1; step <= 3; step++) {
        scalars.rate = 0.1F * (float)step;
        op_bench_put_scalars(b, s, &scalars);
        op_bench_fetch(b, p, before);
        memcpy(want_before, p->values, p->count * sizeof *want_before);
        reference_sgd(p->values, g->values, velocity->values, p->count, (double)scalars.rate,
                      (double)scalars.momentum, decays ? (double)scalars.decay : 0.0, nesterov);
        op_bench_run(b, &desc);
        op_bench_compare_as(b, velocity, velocity->values, OP_RESULT_UPDATE, "sgd: velocity");
        op_bench_compare_as(b, p, p->values, OP_RESULT_UPDATE, "sgd: parameters");
        compare_change(b, p, before, want_before, with_shadow ? shadow : NULL);
    }
    free(before);
    free(want_before);
    op_bench_reset(b);
}

void op_case_adamw(struct op_bench *b, int count, bool decays, bool with_shadow)
{
    const double rate = 0.01, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, decay = 0.05;
    struct bench_tensor *p = op_cases__vector(b, count, 1.0);
    struct bench_tensor *first = op_cases__vector(b, count, 1.0);
    struct bench_tensor *second = op_cases__vector(b, count, 1.0);
    double *before = op_cases__doubles((size_t)count),
           *want_before = op_cases__doubles((size_t)count);
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
    struct bench_tensor *s = op_cases__scalars(b, &scalars);
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
        op_bench_put_scalars(b, s, &scalars);
        op_bench_fetch(b, p, before);
        memcpy(want_before, p->values, p->count * sizeof *want_before);
        reference_adamw(p->values, g->values, first->values, second->values, p->count, rate, beta1,
                        beta2, epsilon, decays ? decay : 0.0, step);
        op_bench_run(b, &desc);
        op_bench_compare_as(b, first, first->values, OP_RESULT_UPDATE, "adamw: first");
        op_bench_compare_as(b, second, second->values, OP_RESULT_UPDATE, "adamw: second");
        op_bench_compare_as(b, p, p->values, OP_RESULT_UPDATE, "adamw: parameters");
        compare_change(b, p, before, want_before, with_shadow ? shadow : NULL);
    }
    free(before);
    free(want_before);
    op_bench_reset(b);
}
