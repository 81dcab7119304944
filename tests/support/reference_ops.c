#include "tests/support/reference_ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

size_t reference_elements(struct reference_shape shape)
{
    return (size_t)shape.n * (size_t)shape.h * (size_t)shape.w * (size_t)shape.c;
}

size_t reference_index(struct reference_shape shape, int n, int h, int w, int c)
{
    assert(n >= 0 && n < shape.n && h >= 0 && h < shape.h && w >= 0 && w < shape.w && c >= 0 &&
           c < shape.c);
    return (((size_t)n * (size_t)shape.h + (size_t)h) * (size_t)shape.w + (size_t)w) *
               (size_t)shape.c +
           (size_t)c;
}

float reference_bf16_value(uint16_t bits)
{
    uint32_t wide = (uint32_t)bits << 16;
    float value;
    memcpy(&value, &wide, sizeof value);
    return value;
}

uint16_t reference_bf16_bits(float value)
{
    uint32_t wide;
    memcpy(&wide, &value, sizeof wide);
    uint16_t below = (uint16_t)(wide >> 16);
    if (isnan(value)) {
        return (uint16_t)(below | 0x40);
    }
    if (isinf(value)) {
        return below;
    }
    /* Of the two neighbours (towards zero, and the next away from it) the nearer one; the even one
     * on a tie. The larger neighbour of the largest finite number stands for 2^128. */
    uint16_t above = (uint16_t)(below + 1);
    double low = reference_bf16_value(below);
    double high = isinf(reference_bf16_value(above)) ? copysign(ldexp(1.0, 128), (double)value)
                                                     : (double)reference_bf16_value(above);
    double to_low = fabs((double)value - low);
    double to_high = fabs(high - (double)value);
    if (to_low < to_high) {
        return below;
    }
    if (to_high < to_low) {
        return above;
    }
    return (below & 1) == 0 ? below : above;
}

double reference_round_bf16(double value)
{
    return (double)reference_bf16_value(reference_bf16_bits((float)value));
}

void reference_ingest(const double *from, double *to, size_t pixels, int channels,
                      const float scale[3], const float offset[3])
{
    for (size_t p = 0; p < pixels; p++) {
        for (int c = 0; c < channels; c++) {
            to[p * (size_t)channels + (size_t)c] =
                c < 3 ? from[p * 3 + (size_t)c] * (double)scale[c] + (double)offset[c] : 0.0;
        }
    }
}

void reference_conv(const double *x, struct reference_shape xs, const double *w,
                    struct reference_shape ws, const double *bias, int stride, int pad, bool relu,
                    double *y, struct reference_shape ys)
{
    assert(ys.n == xs.n && ys.c == ws.n && ws.c == xs.c);
    assert(ys.h == (xs.h + 2 * pad - ws.h) / stride + 1);
    assert(ys.w == (xs.w + 2 * pad - ws.w) / stride + 1);
    for (int n = 0; n < ys.n; n++) {
        for (int i = 0; i < ys.h; i++) {
            for (int j = 0; j < ys.w; j++) {
                for (int k = 0; k < ys.c; k++) {
                    double sum = bias != NULL ? bias[k] : 0.0;
                    for (int r = 0; r < ws.h; r++) {
                        for (int s = 0; s < ws.w; s++) {
                            int row = i * stride - pad + r;
                            int column = j * stride - pad + s;
                            if (row < 0 || row >= xs.h || column < 0 || column >= xs.w) {
                                continue;
                            }
                            for (int c = 0; c < xs.c; c++) {
                                sum += x[reference_index(xs, n, row, column, c)] *
                                       w[reference_index(ws, k, r, s, c)];
                            }
                        }
                    }
                    y[reference_index(ys, n, i, j, k)] = relu && sum < 0.0 ? 0.0 : sum;
                }
            }
        }
    }
}

void reference_conv_backward_data(const double *dy, struct reference_shape ys, const double *w,
                                  struct reference_shape ws, int stride, int pad, double *dx,
                                  struct reference_shape xs)
{
    for (int n = 0; n < xs.n; n++) {
        for (int row = 0; row < xs.h; row++) {
            for (int column = 0; column < xs.w; column++) {
                for (int c = 0; c < xs.c; c++) {
                    double sum = 0.0;
                    /* Every output whose window covers (row, column). */
                    for (int i = 0; i < ys.h; i++) {
                        int r = row - (i * stride - pad);
                        if (r < 0 || r >= ws.h) {
                            continue;
                        }
                        for (int j = 0; j < ys.w; j++) {
                            int s = column - (j * stride - pad);
                            if (s < 0 || s >= ws.w) {
                                continue;
                            }
                            for (int k = 0; k < ys.c; k++) {
                                sum += dy[reference_index(ys, n, i, j, k)] *
                                       w[reference_index(ws, k, r, s, c)];
                            }
                        }
                    }
                    dx[reference_index(xs, n, row, column, c)] = sum;
                }
            }
        }
    }
}

void reference_conv_backward_filter(const double *x, struct reference_shape xs, const double *dy,
                                    struct reference_shape ys, int stride, int pad, double *dw,
                                    struct reference_shape ws)
{
    for (int k = 0; k < ws.n; k++) {
        for (int r = 0; r < ws.h; r++) {
            for (int s = 0; s < ws.w; s++) {
                for (int c = 0; c < ws.c; c++) {
                    double sum = 0.0;
                    for (int n = 0; n < ys.n; n++) {
                        for (int i = 0; i < ys.h; i++) {
                            for (int j = 0; j < ys.w; j++) {
                                int row = i * stride - pad + r;
                                int column = j * stride - pad + s;
                                if (row >= 0 && row < xs.h && column >= 0 && column < xs.w) {
                                    sum += dy[reference_index(ys, n, i, j, k)] *
                                           x[reference_index(xs, n, row, column, c)];
                                }
                            }
                        }
                    }
                    dw[reference_index(ws, k, r, s, c)] = sum;
                }
            }
        }
    }
}

void reference_bias_backward(const double *dy, struct reference_shape ys, double *db)
{
    for (int c = 0; c < ys.c; c++) {
        db[c] = 0.0;
        for (int n = 0; n < ys.n; n++) {
            for (int h = 0; h < ys.h; h++) {
                for (int w = 0; w < ys.w; w++) {
                    db[c] += dy[reference_index(ys, n, h, w, c)];
                }
            }
        }
    }
}

void reference_norm_train(const double *x, const double *residual, struct reference_shape xs,
                          struct reference_norm *norm, double *y)
{
    size_t channels = (size_t)xs.c;
    size_t rows = reference_elements(xs) / channels;
    assert(rows > 1);
    for (size_t c = 0; c < channels; c++) {
        double mean = 0.0;
        for (size_t i = 0; i < rows; i++) {
            mean += x[i * channels + c];
        }
        mean /= (double)rows;
        double squares = 0.0;
        for (size_t i = 0; i < rows; i++) {
            squares += (x[i * channels + c] - mean) * (x[i * channels + c] - mean);
        }
        double inv_std = 1.0 / sqrt(squares / (double)rows + norm->epsilon);
        norm->saved_mean[c] = mean;
        norm->saved_inv_std[c] = inv_std;
        norm->running_mean[c] =
            (1.0 - norm->averaging) * norm->running_mean[c] + norm->averaging * mean;
        norm->running_var[c] = (1.0 - norm->averaging) * norm->running_var[c] +
                               norm->averaging * squares / (double)(rows - 1);
        for (size_t i = 0; i < rows; i++) {
            double value = (x[i * channels + c] - mean) * inv_std * norm->scale[c] + norm->bias[c];
            if (residual != NULL) {
                value += residual[i * channels + c];
            }
            y[i * channels + c] = norm->relu && value < 0.0 ? 0.0 : value;
        }
    }
}

void reference_norm_infer(const double *x, const double *residual, struct reference_shape xs,
                          const struct reference_norm *norm, double *y)
{
    size_t channels = (size_t)xs.c;
    size_t rows = reference_elements(xs) / channels;
    for (size_t i = 0; i < rows; i++) {
        for (size_t c = 0; c < channels; c++) {
            double value = (x[i * channels + c] - norm->running_mean[c]) /
                               sqrt(norm->running_var[c] + norm->epsilon) * norm->scale[c] +
                           norm->bias[c];
            if (residual != NULL) {
                value += residual[i * channels + c];
            }
            y[i * channels + c] = norm->relu && value < 0.0 ? 0.0 : value;
        }
    }
}

/* By the chain rule of Ioffe and Szegedy, "Batch normalization" (2015), section 3, term by term. */
void reference_norm_backward(const double *x, const double *y, const double *dy,
                             struct reference_shape xs, const struct reference_norm *norm,
                             double *dx, double *dresidual, double *dscale, double *dbias)
{
    size_t channels = (size_t)xs.c;
    size_t rows = reference_elements(xs) / channels;
    double m = (double)rows;
    for (size_t c = 0; c < channels; c++) {
        double mean = norm->saved_mean[c];
        double inv_std = norm->saved_inv_std[c];
        double variance_gradient = 0.0, mean_gradient = 0.0, centred_sum = 0.0;
        dscale[c] = 0.0;
        dbias[c] = 0.0;
        for (size_t i = 0; i < rows; i++) {
            size_t at = i * channels + c;
            double dz = norm->relu && y[at] <= 0.0 ? 0.0 : dy[at];
            double dnormal = dz * norm->scale[c];
            variance_gradient += dnormal * (x[at] - mean) * -0.5 * inv_std * inv_std * inv_std;
            mean_gradient -= dnormal * inv_std;
            centred_sum += x[at] - mean;
            dscale[c] += dz * (x[at] - mean) * inv_std;
            dbias[c] += dz;
        }
        mean_gradient -= variance_gradient * 2.0 * centred_sum / m;
        for (size_t i = 0; i < rows; i++) {
            size_t at = i * channels + c;
            double dz = norm->relu && y[at] <= 0.0 ? 0.0 : dy[at];
            dx[at] = dz * norm->scale[c] * inv_std + variance_gradient * 2.0 * (x[at] - mean) / m +
                     mean_gradient / m;
            if (dresidual != NULL) {
                dresidual[at] = dz;
            }
        }
    }
}

void reference_relu_backward(const double *y, const double *dy, double *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        dx[i] = y[i] > 0.0 ? dy[i] : 0.0;
    }
}

void reference_add(const double *a, const double *b, double *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = a[i] + b[i];
    }
}

/* Index into x of the first maximum, in row order, of the window of output (i, j). */
static size_t first_maximum(const double *x, struct reference_shape xs, int window, int stride,
                            int pad, int n, int i, int j, int c)
{
    size_t best = SIZE_MAX;
    for (int r = 0; r < window; r++) {
        for (int s = 0; s < window; s++) {
            int row = i * stride - pad + r;
            int column = j * stride - pad + s;
            if (row < 0 || row >= xs.h || column < 0 || column >= xs.w) {
                continue;
            }
            size_t at = reference_index(xs, n, row, column, c);
            if (best == SIZE_MAX || x[at] > x[best]) {
                best = at;
            }
        }
    }
    assert(best != SIZE_MAX);
    return best;
}

void reference_max_pool(const double *x, struct reference_shape xs, int window, int stride, int pad,
                        double *y, struct reference_shape ys)
{
    for (int n = 0; n < ys.n; n++) {
        for (int i = 0; i < ys.h; i++) {
            for (int j = 0; j < ys.w; j++) {
                for (int c = 0; c < ys.c; c++) {
                    y[reference_index(ys, n, i, j, c)] =
                        x[first_maximum(x, xs, window, stride, pad, n, i, j, c)];
                }
            }
        }
    }
}

void reference_max_pool_backward(const double *x, struct reference_shape xs, const double *dy,
                                 struct reference_shape ys, int window, int stride, int pad,
                                 double *dx)
{
    memset(dx, 0, reference_elements(xs) * sizeof *dx);
    for (int n = 0; n < ys.n; n++) {
        for (int i = 0; i < ys.h; i++) {
            for (int j = 0; j < ys.w; j++) {
                for (int c = 0; c < ys.c; c++) {
                    dx[first_maximum(x, xs, window, stride, pad, n, i, j, c)] +=
                        dy[reference_index(ys, n, i, j, c)];
                }
            }
        }
    }
}

void reference_global_average(const double *x, struct reference_shape xs, double *y)
{
    for (int n = 0; n < xs.n; n++) {
        for (int c = 0; c < xs.c; c++) {
            double sum = 0.0;
            for (int h = 0; h < xs.h; h++) {
                for (int w = 0; w < xs.w; w++) {
                    sum += x[reference_index(xs, n, h, w, c)];
                }
            }
            y[(size_t)n * (size_t)xs.c + (size_t)c] = sum / ((double)xs.h * (double)xs.w);
        }
    }
}

void reference_global_average_backward(const double *dy, struct reference_shape xs, double *dx)
{
    for (int n = 0; n < xs.n; n++) {
        for (int h = 0; h < xs.h; h++) {
            for (int w = 0; w < xs.w; w++) {
                for (int c = 0; c < xs.c; c++) {
                    dx[reference_index(xs, n, h, w, c)] =
                        dy[(size_t)n * (size_t)xs.c + (size_t)c] / ((double)xs.h * (double)xs.w);
                }
            }
        }
    }
}

void reference_linear(const double *x, const double *w, const double *bias, double factor, int rows,
                      int in, int out, double *y)
{
    for (int n = 0; n < rows; n++) {
        for (int o = 0; o < out; o++) {
            double sum = 0.0;
            for (int i = 0; i < in; i++) {
                sum += x[n * in + i] * w[o * in + i];
            }
            y[n * out + o] = factor * sum + (bias != NULL ? bias[o] : 0.0);
        }
    }
}

void reference_linear_backward_data(const double *dy, const double *w, double factor, int rows,
                                    int in, int out, double *dx)
{
    for (int n = 0; n < rows; n++) {
        for (int i = 0; i < in; i++) {
            double sum = 0.0;
            for (int o = 0; o < out; o++) {
                sum += dy[n * out + o] * w[o * in + i];
            }
            dx[n * in + i] = factor * sum;
        }
    }
}

void reference_linear_backward_weights(const double *x, const double *dy, double factor, int rows,
                                       int in, int out, double *dw, double *db)
{
    for (int o = 0; o < out; o++) {
        for (int i = 0; i < in; i++) {
            double sum = 0.0;
            for (int n = 0; n < rows; n++) {
                sum += dy[n * out + o] * x[n * in + i];
            }
            dw[o * in + i] = factor * sum;
        }
        if (db != NULL) {
            db[o] = 0.0;
            for (int n = 0; n < rows; n++) {
                db[o] += dy[n * out + o];
            }
        }
    }
}

double reference_softmax_loss(const double *logits, const double *targets, int rows, int classes,
                              double *dlogits)
{
    double loss = 0.0;
    for (int n = 0; n < rows; n++) {
        const double *z = logits + (size_t)n * (size_t)classes;
        const double *t = targets + (size_t)n * (size_t)classes;
        double top = z[0], total = 0.0, target_sum = 0.0;
        for (int c = 1; c < classes; c++) {
            top = fmax(top, z[c]);
        }
        for (int c = 0; c < classes; c++) {
            total += exp(z[c] - top);
            target_sum += t[c];
        }
        for (int c = 0; c < classes; c++) {
            loss -= t[c] * (z[c] - top - log(total));
            if (dlogits != NULL) {
                dlogits[(size_t)n * (size_t)classes + (size_t)c] =
                    exp(z[c] - top) / total * target_sum - t[c];
            }
        }
    }
    return loss;
}

void reference_sgd(double *p, const double *g, double *velocity, size_t count, double rate,
                   double momentum, double decay, bool nesterov)
{
    for (size_t i = 0; i < count; i++) {
        double gradient = g[i] + decay * p[i];
        velocity[i] = momentum * velocity[i] + gradient;
        p[i] -= rate * (nesterov ? gradient + momentum * velocity[i] : velocity[i]);
    }
}

void reference_adamw(double *p, const double *g, double *first, double *second, size_t count,
                     double rate, double beta1, double beta2, double epsilon, double decay,
                     int step)
{
    for (size_t i = 0; i < count; i++) {
        p[i] *= 1.0 - rate * decay;
        first[i] = beta1 * first[i] + (1.0 - beta1) * g[i];
        second[i] = beta2 * second[i] + (1.0 - beta2) * g[i] * g[i];
        double mean = first[i] / (1.0 - pow(beta1, step));
        double square = second[i] / (1.0 - pow(beta2, step));
        p[i] -= rate * mean / (sqrt(square) + epsilon);
    }
}
