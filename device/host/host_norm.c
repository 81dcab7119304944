#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/host/host_internal.h"

/* Scratch: sums of every part (two doubles a channel), then vectors of floats a channel. */
enum { VECTOR_FACTOR, VECTOR_MEAN_DZ, VECTOR_MEAN_DZ_XHAT, VECTOR_COUNT };

static size_t channels_of(const device_op *op)
{
    return (size_t)op->desc.u.norm.x.c;
}

static size_t pixels_of(const device_op *op)
{
    return tensor_elements(&op->desc.u.norm.x) / channels_of(op);
}

static double *sums_of(struct host_device *host, const device_op *op, int part)
{
    return (double *)(void *)host__scratch(host, op) + (size_t)part * 2 * channels_of(op);
}

static float *vector_of(struct host_device *host, const device_op *op, int vector)
{
    return (float *)(void *)sums_of(host, op, op->parts) + (size_t)vector * channels_of(op);
}

/* A tensor's values from this part's first pixel on, NULL when it is absent. */
static float *from_pixel(struct host_device *host, const device_op *op, const struct tensor *tensor,
                         int part)
{
    if (tensor->buffer == NULL) {
        return NULL;
    }
    return host__f32(host, op, tensor) +
           host__part_begin(pixels_of(op), op->parts, part) * channels_of(op);
}

static struct host_norm_part part_of(struct host_device *host, const device_op *op, int part)
{
    const struct op_norm *u = &op->desc.u.norm;
    return (struct host_norm_part){
        .x = from_pixel(host, op, &u->x, part),
        .factor = vector_of(host, op, VECTOR_FACTOR),
        .sum = sums_of(host, op, part),
        .sum_product = sums_of(host, op, part) + channels_of(op),
        .pixels = host__part_begin(pixels_of(op), op->parts, part + 1) -
                  host__part_begin(pixels_of(op), op->parts, part),
        .channels = channels_of(op),
        .relu = u->relu,
    };
}

/* The parts' sums added in order, into those of part 0. */
static void reduce_sums(struct host_device *host, const device_op *op)
{
    double *total = sums_of(host, op, 0);
    for (int part = 1; part < op->parts; part++) {
        const double *sum = sums_of(host, op, part);
        for (size_t c = 0; c < 2 * channels_of(op); c++) {
            total[c] += sum[c];
        }
    }
}

/* --- Forward ---------------------------------------------------------------------------------- */

static void sums_part(struct host_device *host, const device_op *op, int part, int worker)
{
    (void)worker;
    struct host_norm_part norm = part_of(host, op, part);
    host->kernels->norm_sums(&norm);
}

static void apply_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_norm *u = &op->desc.u.norm;
    (void)worker;
    bool training = op->desc.kind == OP_NORM;
    struct host_norm_part norm = part_of(host, op, part);
    norm.y = from_pixel(host, op, &u->y, part);
    norm.residual = from_pixel(host, op, &u->residual, part);
    norm.mean = host__f32(host, op, training ? &u->saved_mean : &u->running_mean);
    norm.bias = host__f32(host, op, &u->bias);
    host->kernels->norm_apply(&norm);
}

/* The sums are of float32 values in float64: their square of the mean can be taken from the mean of
 * the squares without harm until mean and deviation are a million apart, where the float32 values
 * themselves tell nothing any more. */
static void norm(struct host_device *host, const device_op *op)
{
    const struct op_norm *u = &op->desc.u.norm;
    size_t channels = channels_of(op);
    double pixels = (double)pixels_of(op);
    host__parallel(host, op, op->parts, sums_part);
    reduce_sums(host, op);
    const double *sum = sums_of(host, op, 0);
    const double *square = sum + channels;
    struct step_scalars scalars;
    memcpy(&scalars, host__f32(host, op, &u->scalars), sizeof scalars);
    double averaging = (double)scalars.averaging;
    const float *scale = host__f32(host, op, &u->scale);
    float *factor = vector_of(host, op, VECTOR_FACTOR);
    float *saved_mean = host__f32(host, op, &u->saved_mean);
    float *saved_inv_std = host__f32(host, op, &u->saved_inv_std);
    float *running_mean = host__f32(host, op, &u->running_mean);
    float *running_var = host__f32(host, op, &u->running_var);
    for (size_t c = 0; c < channels; c++) {
        double mean = sum[c] / pixels;
        double variance = square[c] / pixels - mean * mean;
        /* Rounding may leave a little less than nothing; a NaN is kept. */
        variance = variance < 0.0 ? 0.0 : variance;
        double inv_std = 1.0 / sqrt(variance + (double)u->epsilon);
        saved_mean[c] = (float)mean;
        saved_inv_std[c] = (float)inv_std;
        factor[c] = (float)(inv_std * (double)scale[c]);
        running_mean[c] = (float)((1.0 - averaging) * (double)running_mean[c] + averaging * mean);
        running_var[c] = (float)((1.0 - averaging) * (double)running_var[c] +
                                 averaging * variance * pixels / (pixels - 1.0));
    }
    host__parallel(host, op, op->parts, apply_part);
}

static void norm_infer(struct host_device *host, const device_op *op)
{
    const struct op_norm *u = &op->desc.u.norm;
    const float *scale = host__f32(host, op, &u->scale);
    const float *running_var = host__f32(host, op, &u->running_var);
    float *factor = vector_of(host, op, VECTOR_FACTOR);
    for (size_t c = 0; c < channels_of(op); c++) {
        factor[c] = (float)((double)scale[c] / sqrt((double)running_var[c] + (double)u->epsilon));
    }
    host__parallel(host, op, op->parts, apply_part);
}

/* --- Backward --------------------------------------------------------------------------------- */

static struct host_norm_part backward_part_of(struct host_device *host, const device_op *op,
                                              int part)
{
    const struct op_norm *u = &op->desc.u.norm;
    struct host_norm_part norm = part_of(host, op, part);
    norm.y = from_pixel(host, op, &u->y, part);
    norm.dy = from_pixel(host, op, &u->dy, part);
    norm.dx = from_pixel(host, op, &u->dx, part);
    norm.dresidual = from_pixel(host, op, &u->dresidual, part);
    norm.mean = host__f32(host, op, &u->saved_mean);
    norm.inv_std = host__f32(host, op, &u->saved_inv_std);
    norm.mean_dz = vector_of(host, op, VECTOR_MEAN_DZ);
    norm.mean_dz_xhat = vector_of(host, op, VECTOR_MEAN_DZ_XHAT);
    return norm;
}

static void backward_sums_part(struct host_device *host, const device_op *op, int part, int worker)
{
    (void)worker;
    struct host_norm_part norm = backward_part_of(host, op, part);
    host->kernels->norm_backward_sums(&norm);
}

static void backward_apply_part(struct host_device *host, const device_op *op, int part, int worker)
{
    (void)worker;
    struct host_norm_part norm = backward_part_of(host, op, part);
    host->kernels->norm_backward_apply(&norm);
}

/* dx = scale * inv_std * (dz - mean(dz) - xhat * mean(dz * xhat)): Ioffe and Szegedy's gradient with
 * the terms collected. */
static void norm_backward(struct host_device *host, const device_op *op)
{
    const struct op_norm *u = &op->desc.u.norm;
    size_t channels = channels_of(op);
    double pixels = (double)pixels_of(op);
    host__parallel(host, op, op->parts, backward_sums_part);
    reduce_sums(host, op);
    const double *sum = sums_of(host, op, 0);
    const double *product = sum + channels;
    const float *scale = host__f32(host, op, &u->scale);
    const float *inv_std = host__f32(host, op, &u->saved_inv_std);
    float *factor = vector_of(host, op, VECTOR_FACTOR);
    float *mean_dz = vector_of(host, op, VECTOR_MEAN_DZ);
    float *mean_dz_xhat = vector_of(host, op, VECTOR_MEAN_DZ_XHAT);
    float *dscale = host__f32(host, op, &u->dscale);
    float *dbias = host__f32(host, op, &u->dbias);
    for (size_t c = 0; c < channels; c++) {
        double dz_xhat = product[c] * (double)inv_std[c];
        dscale[c] = (float)dz_xhat;
        dbias[c] = (float)sum[c];
        factor[c] = scale[c] * inv_std[c];
        mean_dz[c] = (float)(sum[c] / pixels);
        mean_dz_xhat[c] = (float)(dz_xhat / pixels);
    }
    host__parallel(host, op, op->parts, backward_apply_part);
}

void host__plan_norm(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    (void)host;
    switch (op->desc.kind) {
    case OP_NORM:
        op->run = norm;
        break;
    case OP_NORM_INFER:
        op->run = norm_infer;
        break;
    case OP_NORM_BACKWARD:
        op->run = norm_backward;
        break;
    default:
        assert(!"not a normalisation");
    }
    op->parts = host__parts(pixels_of(op), channels_of(op));
    *scratch_bytes = channels_of(op) * ((size_t)op->parts * 2 * sizeof(double) +
                                        (size_t)VECTOR_COUNT * sizeof(float));
}
