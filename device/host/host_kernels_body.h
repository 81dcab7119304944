/*
 * The loops of host_kernels.h as source, included once by the file of each instruction set, which
 * defines before:
 *   KERNEL_TABLE, KERNEL_NAME   the table and its name
 *   vec, VEC_WIDTH              a vector of floats and their number
 *   PIXELS, FILTERS             outputs, and filters, kept in registers at once; 1 to 8
 *   vec_load, vec_store         unaligned
 *   vec_set                     all lanes the same
 *   vec_fma(a, b, c)            a * b + c
 *   vec_relu(a)                 0 where a < 0, else a, a NaN included
 * Alone it is empty.
 */
#include "device/host/host_kernels.h"

#if defined(KERNEL_TABLE)

#define LANES (2 * VEC_WIDTH)
#define INLINE static inline __attribute__((always_inline))

/* Sums are kept in variables of their own, written out by this list: in arrays clang 14 keeps them
 * in memory. What is not used costs nothing. */
#define EACH(what) what(0) what(1) what(2) what(3) what(4) what(5) what(6) what(7)

/* --- Convolution ------------------------------------------------------------------------------ */

/* One pixel's channels, as many as there are. */
INLINE void store_pixel(const struct host_conv_row *row, float *y, vec low, vec high)
{
    if (row->relu) {
        low = vec_relu(low);
        high = vec_relu(high);
    }
    if (row->lanes == LANES) {
        vec_store(y, low);
        vec_store(y + VEC_WIDTH, high);
    } else {
        float values[LANES];
        vec_store(values, low);
        vec_store(values + VEC_WIDTH, high);
        memcpy(y, values, (size_t)row->lanes * sizeof *values);
    }
}

/* `pixels` is a constant wherever this is inlined, so that the conditions vanish. */
INLINE void conv_tile(const struct host_conv_row *row, const float *x, float *y, const int pixels)
{
    vec start_low = row->bias != NULL ? vec_load(row->bias) : vec_set(0.0F);
    vec start_high = row->bias != NULL ? vec_load(row->bias + VEC_WIDTH) : vec_set(0.0F);
#define BEGIN(i) vec low##i = start_low, high##i = start_high;
    EACH(BEGIN)
#undef BEGIN
    const float *w = row->w;
    size_t step = row->x_pixel;
    for (int r = 0; r < row->rows; r++) {
        const float *window = x + (size_t)r * row->x_row;
        for (int d = 0; d < row->depth; d++) {
            vec w_low = vec_load(w);
            vec w_high = vec_load(w + VEC_WIDTH);
            w += LANES;
#define ADD(i)                                                                                     \
    if (i < pixels) {                                                                              \
        vec value = vec_set(window[(size_t)i * step + (size_t)d]);                                 \
        low##i = vec_fma(value, w_low, low##i);                                                    \
        high##i = vec_fma(value, w_high, high##i);                                                 \
    }
            EACH(ADD)
#undef ADD
        }
    }
#define END(i)                                                                                     \
    if (i < pixels) {                                                                              \
        store_pixel(row, y + (size_t)i * row->y_pixel, low##i, high##i);                           \
    }
    EACH(END)
#undef END
}

static void conv_row(const struct host_conv_row *row)
{
    const float *x = row->x;
    float *y = row->y;
    int left = row->pixels;
    for (; left >= PIXELS; left -= PIXELS) {
        conv_tile(row, x, y, PIXELS);
        x += PIXELS * row->x_pixel;
        y += PIXELS * row->y_pixel;
    }
    switch (left) {
#if PIXELS > 7
    case 7:
        conv_tile(row, x, y, 7);
        break;
#endif
#if PIXELS > 6
    case 6:
        conv_tile(row, x, y, 6);
        break;
#endif
#if PIXELS > 5
    case 5:
        conv_tile(row, x, y, 5);
        break;
#endif
#if PIXELS > 4
    case 4:
        conv_tile(row, x, y, 4);
        break;
#endif
    case 3:
        conv_tile(row, x, y, 3);
        break;
    case 2:
        conv_tile(row, x, y, 2);
        break;
    case 1:
        conv_tile(row, x, y, 1);
        break;
    default:
        break;
    }
}

INLINE void filter_tile(const struct host_filter_block *block, const int filters)
{
    float *dw = block->dw;
    size_t next = block->dw_filter;
#define BEGIN(i)                                                                                   \
    vec low##i = i < filters ? vec_load(dw + i * next) : vec_set(0.0F);                            \
    vec high##i = i < filters ? vec_load(dw + i * next + VEC_WIDTH) : vec_set(0.0F);
    EACH(BEGIN)
#undef BEGIN
    for (int r = 0; r < block->rows; r++) {
        const float *x = block->x + (size_t)r * block->x_row;
        const float *dy = block->dy + (size_t)r * block->dy_row;
        for (int p = 0; p < block->pixels; p++) {
            vec x_low = vec_load(x);
            vec x_high = vec_load(x + VEC_WIDTH);
#define ADD(i)                                                                                     \
    if (i < filters) {                                                                             \
        vec value = vec_set(dy[i]);                                                                \
        low##i = vec_fma(value, x_low, low##i);                                                    \
        high##i = vec_fma(value, x_high, high##i);                                                 \
    }
            EACH(ADD)
#undef ADD
            x += block->x_pixel;
            dy += block->dy_pixel;
        }
    }
#define END(i)                                                                                     \
    if (i < filters) {                                                                             \
        vec_store(dw + i * next, low##i);                                                          \
        vec_store(dw + i * next + VEC_WIDTH, high##i);                                             \
    }
    EACH(END)
#undef END
}

static void filter_block(const struct host_filter_block *block)
{
    if (block->filters == FILTERS) {
        filter_tile(block, FILTERS);
        return;
    }
    struct host_filter_block one = *block;
    for (int i = 0; i < block->filters; i++) {
        filter_tile(&one, 1);
        one.dy++;
        one.dw += block->dw_filter;
    }
}

/* Values are loaded before they are chosen from: a load under a condition cannot be one of vectors. */

/* --- Normalisation ---------------------------------------------------------------------------- */

static void norm_sums(const struct host_norm_part *part)
{
    size_t channels = part->channels;
    double *restrict sum = part->sum;
    double *restrict square = part->sum_product;
    const float *restrict x = part->x;
    for (size_t c = 0; c < channels; c++) {
        sum[c] = 0.0;
        square[c] = 0.0;
    }
    for (size_t p = 0; p < part->pixels; p++) {
        for (size_t c = 0; c < channels; c++) {
            double value = (double)x[c];
            sum[c] += value;
            square[c] += value * value;
        }
        x += channels;
    }
}

static void norm_apply(const struct host_norm_part *part)
{
    size_t channels = part->channels;
    const float *x = part->x;
    const float *residual = part->residual;
    const float *restrict mean = part->mean;
    const float *restrict factor = part->factor;
    const float *restrict bias = part->bias;
    float *y = part->y;
    /* The smallest value that is passed on; comparing with it instead of branching keeps the loop
     * one of vectors, and lets a NaN through. */
    float floor = part->relu ? 0.0F : -INFINITY;
    for (size_t p = 0; p < part->pixels; p++) {
        if (residual != NULL) {
            for (size_t c = 0; c < channels; c++) {
                float value = (x[c] - mean[c]) * factor[c] + bias[c] + residual[c];
                y[c] = value < floor ? floor : value;
            }
            residual += channels;
        } else {
            for (size_t c = 0; c < channels; c++) {
                float value = (x[c] - mean[c]) * factor[c] + bias[c];
                y[c] = value < floor ? floor : value;
            }
        }
        x += channels;
        y += channels;
    }
}

static void norm_backward_sums(const struct host_norm_part *part)
{
    size_t channels = part->channels;
    double *restrict sum = part->sum;
    double *restrict product = part->sum_product;
    const float *restrict x = part->x;
    const float *restrict y = part->y;
    const float *restrict dy = part->dy;
    const float *restrict mean = part->mean;
    for (size_t c = 0; c < channels; c++) {
        sum[c] = 0.0;
        product[c] = 0.0;
    }
    for (size_t p = 0; p < part->pixels; p++) {
        if (part->relu) {
            for (size_t c = 0; c < channels; c++) {
                float given = dy[c];
                float dz = y[c] > 0.0F ? given : 0.0F;
                sum[c] += (double)dz;
                product[c] += (double)(dz * (x[c] - mean[c]));
            }
            y += channels;
        } else {
            for (size_t c = 0; c < channels; c++) {
                sum[c] += (double)dy[c];
                product[c] += (double)(dy[c] * (x[c] - mean[c]));
            }
        }
        x += channels;
        dy += channels;
    }
}

static void norm_backward_apply(const struct host_norm_part *part)
{
    size_t channels = part->channels;
    const float *restrict x = part->x;
    const float *restrict y = part->y;
    const float *dy = part->dy;
    const float *restrict mean = part->mean;
    const float *restrict inv_std = part->inv_std;
    const float *restrict factor = part->factor;
    const float *restrict mean_dz = part->mean_dz;
    const float *restrict mean_dz_xhat = part->mean_dz_xhat;
    float *restrict dx = part->dx;
    float *dresidual = part->dresidual;
    for (size_t p = 0; p < part->pixels; p++) {
        if (part->relu) {
            for (size_t c = 0; c < channels; c++) {
                float given = dy[c];
                float dz = y[c] > 0.0F ? given : 0.0F;
                float xhat = (x[c] - mean[c]) * inv_std[c];
                dx[c] = factor[c] * (dz - mean_dz[c] - xhat * mean_dz_xhat[c]);
            }
        } else {
            for (size_t c = 0; c < channels; c++) {
                float xhat = (x[c] - mean[c]) * inv_std[c];
                dx[c] = factor[c] * (dy[c] - mean_dz[c] - xhat * mean_dz_xhat[c]);
            }
        }
        if (dresidual != NULL) {
            for (size_t c = 0; c < channels; c++) {
                dresidual[c] = part->relu && !(y[c] > 0.0F) ? 0.0F : dy[c];
            }
            dresidual += channels;
        }
        x += channels;
        dy += channels;
        dx += channels;
        if (y != NULL) {
            y += channels;
        }
    }
}

/* --- Element by element ----------------------------------------------------------------------- */

static void relu_backward(const float *y, const float *dy, float *dx, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        float given = dy[i];
        dx[i] = y[i] > 0.0F ? given : 0.0F;
    }
}

static void add(const float *a, const float *b, float *y, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        y[i] = a[i] + b[i];
    }
}

static void accumulate(float *restrict to, const float *restrict from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] += from[i];
    }
}

static void channel_sums(const float *restrict x, size_t pixels, size_t channels,
                         double *restrict sum)
{
    for (size_t p = 0; p < pixels; p++) {
        for (size_t c = 0; c < channels; c++) {
            sum[c] += (double)x[c];
        }
        x += channels;
    }
}

static void pool_tap(const float *restrict x, float *restrict y, uint8_t *restrict index,
                     uint8_t tap, size_t channels)
{
    if (index == NULL) {
        for (size_t c = 0; c < channels; c++) {
            y[c] = x[c] > y[c] || x[c] != x[c] ? x[c] : y[c];
        }
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        bool wins = x[c] > y[c] || x[c] != x[c];
        y[c] = wins ? x[c] : y[c];
        index[c] = wins ? tap : index[c];
    }
}

static void pool_tap_backward(const float *restrict dy, const uint8_t *restrict index, uint8_t tap,
                              float *restrict dx, size_t channels)
{
    for (size_t c = 0; c < channels; c++) {
        float given = dy[c];
        dx[c] += index[c] == tap ? given : 0.0F;
    }
}

static void sgd(const struct host_update_part *part)
{
    float *restrict p = part->parameters;
    float *restrict velocity = part->first;
    const float *restrict gradient = part->gradient;
    float rate = part->scalars[0];
    float momentum = part->scalars[1];
    float decay = part->decays ? part->scalars[2] : 0.0F;
    /* step = g * gradient_share + v * velocity_share covers both kinds of momentum. */
    float gradient_share = part->nesterov ? 1.0F : 0.0F;
    float velocity_share = part->nesterov ? momentum : 1.0F;
    for (size_t i = 0; i < part->count; i++) {
        float g = gradient[i] + decay * p[i];
        float v = momentum * velocity[i] + g;
        velocity[i] = v;
        p[i] -= rate * (g * gradient_share + v * velocity_share);
    }
    if (part->shadow != NULL) {
        memcpy(part->shadow, p, part->count * sizeof *p);
    }
}

static void adamw(const struct host_update_part *part)
{
    float *restrict p = part->parameters;
    float *restrict first = part->first;
    float *restrict second = part->second;
    const float *restrict gradient = part->gradient;
    struct step_scalars s;
    memcpy(&s, part->scalars, sizeof s);
    float keep = part->decays ? s.decay_factor : 1.0F;
    for (size_t i = 0; i < part->count; i++) {
        float g = gradient[i];
        float m = s.beta1 * first[i] + s.one_minus_beta1 * g;
        float v = s.beta2 * second[i] + s.one_minus_beta2 * (g * g);
        first[i] = m;
        second[i] = v;
        p[i] = p[i] * keep - s.step_size * (m / (sqrtf(v) * s.second_scale + s.epsilon));
    }
    if (part->shadow != NULL) {
        memcpy(part->shadow, p, part->count * sizeof *p);
    }
}

static void widen(const uint16_t *restrict from, float *restrict to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits = (uint32_t)from[i] << 16;
        memcpy(&to[i], &bits, sizeof bits);
    }
}

static void narrow(const float *restrict from, uint16_t *restrict to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &from[i], sizeof bits);
        /* Half a unit of the last place kept, less one, plus that place itself: a tie goes to the
         * even neighbour. A NaN keeps its upper bits and one that makes it quiet. */
        uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
        uint32_t quiet = (bits >> 16) | 0x40U;
        to[i] = (uint16_t)((bits & 0x7FFFFFFFU) > 0x7F800000U ? quiet : rounded);
    }
}

const struct host_kernels KERNEL_TABLE = {
    .name = KERNEL_NAME,
    .lanes = LANES,
    .filters = FILTERS,
    .conv_row = conv_row,
    .filter_block = filter_block,
    .norm_sums = norm_sums,
    .norm_apply = norm_apply,
    .norm_backward_sums = norm_backward_sums,
    .norm_backward_apply = norm_backward_apply,
    .relu_backward = relu_backward,
    .add = add,
    .accumulate = accumulate,
    .channel_sums = channel_sums,
    .pool_tap = pool_tap,
    .pool_tap_backward = pool_tap_backward,
    .sgd = sgd,
    .adamw = adamw,
    .widen = widen,
    .narrow = narrow,
};

#endif
