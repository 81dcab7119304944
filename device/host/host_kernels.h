/*
 * The inner loops of the host device, once for each instruction set. The program itself is compiled
 * for the oldest processor of its architecture; the table that suits the one it runs on is chosen
 * when the device is opened. Results are the same bits every time with one table, and differ by
 * rounding between tables, so that the table's name is part of the plan ids.
 *
 * All pointers are to float32 unless said; strides are in floats. No function allocates, fails or
 * keeps state; all are thread-safe on disjoint outputs.
 */
#ifndef PINLINE_DEVICE_HOST_KERNELS_H
#define PINLINE_DEVICE_HOST_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No table has wider blocks of channels: buffers end with so many floats to spare. */
#define HOST_LANES_MAX 64

/*
 * One row of outputs of a convolution, for one block of `lanes` channels. Output p is the sum over
 * r < rows, d < depth of x[r * x_row + p * x_pixel + d] * w[r * depth + d][lane]: with NHWC maps a
 * row of a window is contiguous, so that depth is S * C and nothing is copied but the padding.
 */
struct host_conv_row {
    const float *x; /* first value of the first window */
    size_t x_row, x_pixel;
    const float *w;    /* packed: rows * depth lines of the table's `lanes` floats */
    const float *bias; /* `lanes` floats, NULL for none */
    float *y;
    size_t y_pixel;
    int rows, depth, pixels;
    int lanes; /* channels to store, 1 to the table's lanes */
    bool relu;
};

/*
 * One block of a filter gradient: dw[i][lane] += sum over row < rows, p < pixels of
 * dy[row * dy_row + p * dy_pixel + i] * x[row * x_row + p * x_pixel + lane], for i < filters and all
 * lanes of the table; x is read so far whatever it holds.
 */
struct host_filter_block {
    const float *x, *dy;
    size_t x_row, x_pixel, dy_row, dy_pixel;
    float *dw;
    size_t dw_filter; /* floats from filter i to i + 1 */
    int rows, pixels;
    int filters; /* 1 to the table's `filters` */
};

/* One normalisation over `pixels` rows of `channels`. Unused pointers are NULL. */
struct host_norm_part {
    const float *x, *residual, *dy;
    float *y, *dx, *dresidual;           /* y is read by the backward functions */
    const float *mean;                   /* a value a channel, as all that follow */
    const float *factor;                 /* forward: inv_std * scale; backward: the same */
    const float *bias;                   /* forward */
    const float *inv_std;                /* backward */
    const float *mean_dz, *mean_dz_xhat; /* backward: means over the batch of dz and dz * xhat */
    double *sum, *sum_product; /* sums: x and x^2, or dz and dz * (x - mean); set, not added to */
    size_t pixels, channels;
    bool relu;
};

struct host_update_part {
    float *parameters, *first, *second;
    const float *gradient;
    float *shadow;        /* NULL for none; receives the parameters as float32 */
    const float *scalars; /* struct step_scalars */
    size_t count;
    bool decays, nesterov;
};

struct host_kernels {
    const char *name; /* "avx512", "avx2", "generic" */
    int lanes;        /* channels of a packed block */
    int filters;      /* filters of a gradient block */
    void (*conv_row)(const struct host_conv_row *row);
    void (*filter_block)(const struct host_filter_block *block);
    void (*norm_sums)(const struct host_norm_part *part);
    void (*norm_apply)(const struct host_norm_part *part);
    void (*norm_backward_sums)(const struct host_norm_part *part);
    void (*norm_backward_apply)(const struct host_norm_part *part);
    void (*relu_backward)(const float *y, const float *dy, float *dx, size_t count);
    void (*add)(const float *a, const float *b, float *y, size_t count);
    /* to += from. */
    void (*accumulate)(float *to, const float *from, size_t count);
    /* sum[c] += x[p * channels + c] over pixels. */
    void (*channel_sums)(const float *x, size_t pixels, size_t channels, double *sum);
    /* y = max(y, x), a NaN winning, and index = tap where x won; index may be NULL. */
    void (*pool_tap)(const float *x, float *y, uint8_t *index, uint8_t tap, size_t channels);
    /* dx += dy where index is tap. */
    void (*pool_tap_backward)(const float *dy, const uint8_t *index, uint8_t tap, float *dx,
                              size_t channels);
    void (*sgd)(const struct host_update_part *part);
    void (*adamw)(const struct host_update_part *part);
    void (*widen)(const uint16_t *from, float *to, size_t count);
    void (*narrow)(const float *from, uint16_t *to, size_t count);
};

/* The table of this processor; `limit` NULL, or the name of the best table to use (tests). Returns
 * NULL when a limit is named that this processor or architecture does not have. */
const struct host_kernels *host__kernels(const char *limit);

extern const struct host_kernels host__kernels_generic;
#if defined(__x86_64__)
extern const struct host_kernels host__kernels_avx2;
extern const struct host_kernels host__kernels_avx512;
#endif

#endif
