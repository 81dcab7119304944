/*
 * The operations of device.h once more, from their definitions, in double, one element after
 * another: what both devices are compared with. Nothing here is shared with an implementation, and
 * nothing is clever. Arrays are NHWC as in device.h; filters are K x R x S x C. Outputs are
 * overwritten unless said; none may alias an input. No state; thread-safe.
 */
#ifndef PINLINE_TESTS_REFERENCE_OPS_H
#define PINLINE_TESTS_REFERENCE_OPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As in struct tensor: element (n, h, w, c) lies at ((n*H + h)*W + w)*C + c. */
struct reference_shape {
    int n, h, w, c;
};

size_t reference_elements(struct reference_shape shape);
size_t reference_index(struct reference_shape shape, int n, int h, int w, int c);

/* The nearest bfloat16, ties to even, and its bits; NaN stays NaN. */
uint16_t reference_bf16_bits(float value);
float reference_bf16_value(uint16_t bits);
double reference_round_bf16(double value);

/* from: pixels x 3; to: pixels x channels; channels 3 and above become 0. */
void reference_ingest(const double *from, double *to, size_t pixels, int channels,
                      const float scale[3], const float offset[3]);

/* bias may be NULL. ys must be the shape that the convolution gives. */
void reference_conv(const double *x, struct reference_shape xs, const double *w,
                    struct reference_shape ws, const double *bias, int stride, int pad, bool relu,
                    double *y, struct reference_shape ys);
void reference_conv_backward_data(const double *dy, struct reference_shape ys, const double *w,
                                  struct reference_shape ws, int stride, int pad, double *dx,
                                  struct reference_shape xs);
void reference_conv_backward_filter(const double *x, struct reference_shape xs, const double *dy,
                                    struct reference_shape ys, int stride, int pad, double *dw,
                                    struct reference_shape ws);
void reference_bias_backward(const double *dy, struct reference_shape ys, double *db);

/* Per-channel values of one normalisation; arrays of C doubles. */
struct reference_norm {
    const double *scale, *bias;
    double *running_mean, *running_var; /* training: moved; inference: read */
    double *saved_mean, *saved_inv_std; /* training: written; backward: read */
    double epsilon, averaging;
    bool relu;
};
/* residual may be NULL. */
void reference_norm_train(const double *x, const double *residual, struct reference_shape xs,
                          struct reference_norm *norm, double *y);
void reference_norm_infer(const double *x, const double *residual, struct reference_shape xs,
                          const struct reference_norm *norm, double *y);
/* dresidual may be NULL. */
void reference_norm_backward(const double *x, const double *y, const double *dy,
                             struct reference_shape xs, const struct reference_norm *norm,
                             double *dx, double *dresidual, double *dscale, double *dbias);

void reference_relu_backward(const double *y, const double *dy, double *dx, size_t count);
void reference_add(const double *a, const double *b, double *y, size_t count);

void reference_max_pool(const double *x, struct reference_shape xs, int window, int stride, int pad,
                        double *y, struct reference_shape ys);
void reference_max_pool_backward(const double *x, struct reference_shape xs, const double *dy,
                                 struct reference_shape ys, int window, int stride, int pad,
                                 double *dx);

void reference_global_average(const double *x, struct reference_shape xs, double *y);
void reference_global_average_backward(const double *dy, struct reference_shape xs, double *dx);

/* x: rows x in; w: out x in; y: rows x out; bias and db may be NULL. */
void reference_linear(const double *x, const double *w, const double *bias, double factor, int rows,
                      int in, int out, double *y);
void reference_linear_backward_data(const double *dy, const double *w, double factor, int rows,
                                    int in, int out, double *dx);
void reference_linear_backward_weights(const double *x, const double *dy, double factor, int rows,
                                       int in, int out, double *dw, double *db);

/* Returns the loss; dlogits may be NULL. */
double reference_softmax_loss(const double *logits, const double *targets, int rows, int classes,
                              double *dlogits);

/* One step of PyTorch's SGD and AdamW over `count` parameters; p and the state are moved. `step`
 * counts from 1. decay 0 where the region does not decay. */
void reference_sgd(double *p, const double *g, double *velocity, size_t count, double rate,
                   double momentum, double decay, bool nesterov);
void reference_adamw(double *p, const double *g, double *first, double *second, size_t count,
                     double rate, double beta1, double beta2, double epsilon, double decay,
                     int step);

#endif
