/*
 * One operation of a device beside its reference on random values, for both devices and any shape.
 */
#ifndef PINLINE_TESTS_OP_CASES_H
#define PINLINE_TESTS_OP_CASES_H

#include "tests/support/op_bench.h"
#include "tests/support/reference_ops.h"

/* Convolution of n x h x w x c to k filters of r x s: forward (with bias and ReLU as asked), both
 * gradients. */
struct conv_case {
    int n, h, w, c, k, r, s, stride, pad;
    bool bias, relu;
};
void op_case_conv(struct op_bench *bench, const struct conv_case *c);
void op_case_conv_backward_data(struct op_bench *bench, const struct conv_case *c);
/* dw of the data's type, or float32. */
void op_case_conv_backward_filter(struct op_bench *bench, const struct conv_case *c, bool f32);

struct norm_case {
    int n, h, w, c;
    bool residual, relu;
    double mean; /* of x, whose deviation is 1 */
};
void op_case_norm(struct op_bench *bench, const struct norm_case *c);
void op_case_norm_infer(struct op_bench *bench, const struct norm_case *c);
/* in_place: dresidual lies where dy lies. after_forward: of what the forward operation left, while
 * that is still there, and knowing the bias; otherwise of values that are given, without it. */
void op_case_norm_backward(struct op_bench *bench, const struct norm_case *c, bool in_place,
                           bool after_forward);

/* ties: few different values, so that many windows have several maxima; index: kept from forward.
 * Runs forward and backward. */
struct pool_case {
    int n, h, w, c, window, stride, pad;
    bool ties, index;
};
void op_case_pool(struct op_bench *bench, const struct pool_case *c);

void op_case_global_average(struct op_bench *bench, int n, int h, int w, int c, bool f32_result);
void op_case_linear(struct op_bench *bench, int rows, int in, int out, bool bias, double factor);
void op_case_softmax_loss(struct op_bench *bench, int rows, int classes, double spread,
                          bool gradient);
/* from bytes, or floats; to `channels` channels. */
void op_case_ingest(struct op_bench *bench, int n, int h, int w, int channels, bool bytes);
void op_case_bias_backward(struct op_bench *bench, int n, int h, int w, int c);
void op_case_relu_backward(struct op_bench *bench, int n, int h, int w, int c, bool in_place);
void op_case_add(struct op_bench *bench, int n, int h, int w, int c, bool in_place);
void op_case_cast(struct op_bench *bench, int count);
/* Three steps over `count` parameters; the gradient of the bench's type, a BF16 shadow as asked. */
void op_case_sgd(struct op_bench *bench, int count, bool decays, bool nesterov, bool shadow);
void op_case_adamw(struct op_bench *bench, int count, bool decays, bool shadow);

#endif
