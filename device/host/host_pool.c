#include <assert.h>
#include <string.h>

#include "device/host/host_internal.h"

/* --- Max pooling ------------------------------------------------------------------------------ */

/* The input's pixel under tap number `tap` (in row order) of the window of output (i, j); false where
 * that is padding. */
static bool tap_pixel(const struct op_max_pool *u, int i, int j, int tap, size_t *pixel)
{
    int row = i * u->stride - u->pad + tap / u->window;
    int column = j * u->stride - u->pad + tap % u->window;
    if (row < 0 || row >= u->x.h || column < 0 || column >= u->x.w) {
        return false;
    }
    *pixel = (size_t)row * (size_t)u->x.w + (size_t)column;
    return true;
}

/* The maxima of one output pixel's channels, and which tap each came from. */
static void pool_pixel(const struct host_device *host, const struct op_max_pool *u, int i, int j,
                       const float *x, float *y, uint8_t *index)
{
    size_t channels = (size_t)u->x.c;
    bool first = true;
    for (int tap = 0; tap < u->window * u->window; tap++) {
        size_t pixel;
        if (!tap_pixel(u, i, j, tap, &pixel)) {
            continue;
        }
        if (first) {
            memcpy(y, x + pixel * channels, channels * sizeof *y);
            if (index != NULL) {
                memset(index, tap, channels);
            }
            first = false;
        } else {
            host->kernels->pool_tap(x + pixel * channels, y, index, (uint8_t)tap, channels);
        }
    }
}

/* One image. */
static void pool_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_max_pool *u = &op->desc.u.pool;
    (void)worker;
    size_t channels = (size_t)u->x.c;
    const float *x =
        host__f32(host, op, &u->x) + (size_t)part * (size_t)u->x.h * (size_t)u->x.w * channels;
    size_t out = (size_t)part * (size_t)u->y.h * (size_t)u->y.w * channels;
    float *y = host__f32(host, op, &u->y) + out;
    uint8_t *index = u->index.buffer != NULL ? host__raw(&u->index) + out : NULL;
    for (int i = 0; i < u->y.h; i++) {
        for (int j = 0; j < u->y.w; j++) {
            pool_pixel(host, u, i, j, x, y, index);
            y += channels;
            index = index != NULL ? index + channels : NULL;
        }
    }
}

static void pool(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->desc.u.pool.x.n, pool_part);
}

/* Scratch of a worker when the index is computed again: one pixel's maxima and their taps. */
static size_t recompute_bytes(const device_op *op)
{
    return ((size_t)op->desc.u.pool.x.c * (sizeof(float) + 1) + 63) / 64 * 64;
}

static void pool_backward_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_max_pool *u = &op->desc.u.pool;
    size_t channels = (size_t)u->x.c;
    size_t in_values = (size_t)u->x.h * (size_t)u->x.w * channels;
    const float *x = host__f32(host, op, &u->x) + (size_t)part * in_values;
    float *dx = host__f32(host, op, &u->dx) + (size_t)part * in_values;
    size_t out = (size_t)part * (size_t)u->y.h * (size_t)u->y.w * channels;
    const float *dy = host__f32(host, op, &u->dy) + out;
    bool kept = u->index.buffer != NULL;
    float *maxima =
        (float *)(void *)(host__scratch(host, op) + (size_t)worker * recompute_bytes(op));
    uint8_t *taps = (uint8_t *)(void *)(maxima + channels);
    const uint8_t *index = kept ? host__raw(&u->index) + out : taps;
    memset(dx, 0, in_values * sizeof *dx);
    for (int i = 0; i < u->y.h; i++) {
        for (int j = 0; j < u->y.w; j++) {
            if (!kept) {
                pool_pixel(host, u, i, j, x, maxima, taps);
            }
            for (int tap = 0; tap < u->window * u->window; tap++) {
                size_t pixel;
                if (tap_pixel(u, i, j, tap, &pixel)) {
                    host->kernels->pool_tap_backward(dy, index, (uint8_t)tap, dx + pixel * channels,
                                                     channels);
                }
            }
            dy += channels;
            index = kept ? index + channels : index;
        }
    }
}

static void pool_backward(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->desc.u.pool.x.n, pool_backward_part);
}

/* --- Global average --------------------------------------------------------------------------- */

static void average_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_global_average *u = &op->desc.u.average;
    size_t channels = (size_t)u->x.c;
    size_t pixels = (size_t)u->x.h * (size_t)u->x.w;
    double *sum = (double *)(void *)host__scratch(host, op) + (size_t)worker * channels;
    float *y = host__f32(host, op, &u->y) + (size_t)part * channels;
    memset(sum, 0, channels * sizeof *sum);
    host->kernels->channel_sums(host__f32(host, op, &u->x) + (size_t)part * pixels * channels,
                                pixels, channels, sum);
    for (size_t c = 0; c < channels; c++) {
        y[c] = (float)(sum[c] / (double)pixels);
    }
}

static void average(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->desc.u.average.x.n, average_part);
}

static void average_backward_part(struct host_device *host, const device_op *op, int part,
                                  int worker)
{
    const struct op_global_average *u = &op->desc.u.average;
    (void)worker;
    size_t channels = (size_t)u->dx.c;
    size_t pixels = (size_t)u->dx.h * (size_t)u->dx.w;
    const float *dy = host__f32(host, op, &u->dy) + (size_t)part * channels;
    float *dx = host__f32(host, op, &u->dx) + (size_t)part * pixels * channels;
    for (size_t c = 0; c < channels; c++) {
        dx[c] = dy[c] / (float)pixels;
    }
    for (size_t p = 1; p < pixels; p++) {
        memcpy(dx + p * channels, dx, channels * sizeof *dx);
    }
}

static void average_backward(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->desc.u.average.dx.n, average_backward_part);
}

void host__plan_pool(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    size_t workers = (size_t)thread_pool_threads(host->pool);
    switch (op->desc.kind) {
    case OP_MAX_POOL:
        op->run = pool;
        break;
    case OP_MAX_POOL_BACKWARD:
        op->run = pool_backward;
        *scratch_bytes = op->desc.u.pool.index.buffer != NULL ? 0 : workers * recompute_bytes(op);
        break;
    case OP_GLOBAL_AVERAGE:
        op->run = average;
        *scratch_bytes = workers * (size_t)op->desc.u.average.x.c * sizeof(double);
        break;
    case OP_GLOBAL_AVERAGE_BACKWARD:
        op->run = average_backward;
        break;
    default:
        assert(!"not a pooling operation");
    }
}
