/*
 * One operation of a device beside its reference on random values, for both devices and any shape.
 * Each case asserts (Check) and prints operation, shape and the worst element when it fails.
 */
#ifndef PINLINE_TESTS_OP_CASES_H
#define PINLINE_TESTS_OP_CASES_H

#include "base/rng.h"
#include "device/device.h"
#include "tests/support/reference_ops.h"

#define OP_BENCH_TENSORS 24

/* A device and how closely it must agree. An element agrees when
 * |got - want| <= relative * |want| + absolute * (largest |want| of the tensor). */
struct op_bench {
    device *dev;
    device_stream *stream;
    enum dtype dtype; /* of data tensors: DTYPE_F32 or DTYPE_BF16 */
    double relative, absolute;
    struct rng rng;
    struct bench_tensor *tensors[OP_BENCH_TENSORS]; /* of the case that runs */
    int count;
};

/* Opens a stream on `dev` (the caller's) and starts the random numbers. */
void op_bench_init(struct op_bench *bench, device *dev, enum dtype dtype, double relative,
                   double absolute, uint64_t seed);
void op_bench_fini(struct op_bench *bench);

/* A tensor on the device together with its values as the device holds them, rounded to its type. */
struct bench_tensor {
    struct tensor tensor;
    double *values;
    size_t count;
};
/* Standard normal values times `spread`, or NaN where spread is 0 (an output). Freed by
 * op_bench_reset. */
struct bench_tensor *op_bench_tensor(struct op_bench *bench, enum dtype dtype, int n, int h, int w,
                                     int c, double spread);
/* Rounds `values` to the tensor's type and copies them to the device. */
void op_bench_upload(struct op_bench *bench, struct bench_tensor *tensor);
/* Creates, submits and waits for the operation, then destroys it. */
void op_bench_run(struct op_bench *bench, const struct op_desc *desc);
/* The tensor's elements on the device against `want`. */
void op_bench_compare(struct op_bench *bench, const struct bench_tensor *tensor, const double *want,
                      const char *what);
/* Frees the case's tensors. */
void op_bench_reset(struct op_bench *bench);

/* --- The cases -------------------------------------------------------------------------------- */

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
/* in_place: dresidual lies where dy lies. */
void op_case_norm_backward(struct op_bench *bench, const struct norm_case *c, bool in_place);

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
