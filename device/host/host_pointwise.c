#include <assert.h>
#include <string.h>

#include "device/host/host_internal.h"

/* --- Pixels ----------------------------------------------------------------------------------- */

static void ingest_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_ingest *u = &op->desc.u.ingest;
    (void)worker;
    size_t pixels = tensor_elements(&u->from) / 3;
    size_t channels = (size_t)u->to.c;
    size_t begin = host__part_begin(pixels, op->parts, part);
    size_t end = host__part_begin(pixels, op->parts, part + 1);
    float *to = host__f32(host, op, &u->to) + begin * channels;
    const unsigned char *bytes = host__raw(&u->from);
    const float *floats = (const float *)(const void *)bytes;
    for (size_t p = begin; p < end; p++) {
        for (size_t c = 0; c < 3; c++) {
            float value = u->from.dtype == DTYPE_U8 ? (float)bytes[3 * p + c] : floats[3 * p + c];
            to[c] = value * u->scale[c] + u->offset[c];
        }
        for (size_t c = 3; c < channels; c++) {
            to[c] = 0.0F;
        }
        to += channels;
    }
}

static void ingest(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, ingest_part);
}

/* --- Sums over pixels ------------------------------------------------------------------------- */

static void bias_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_bias_backward *u = &op->desc.u.bias;
    (void)worker;
    size_t channels = (size_t)u->dy.c;
    size_t pixels = tensor_elements(&u->dy) / channels;
    size_t begin = host__part_begin(pixels, op->parts, part);
    size_t end = host__part_begin(pixels, op->parts, part + 1);
    double *sum = (double *)(void *)host__scratch(host, op) + (size_t)part * channels;
    memset(sum, 0, channels * sizeof *sum);
    host->kernels->channel_sums(host__f32(host, op, &u->dy) + begin * channels, end - begin,
                                channels, sum);
}

static void bias_backward(struct host_device *host, const device_op *op)
{
    const struct op_bias_backward *u = &op->desc.u.bias;
    size_t channels = (size_t)u->dy.c;
    const double *sums = (const double *)(const void *)host__scratch(host, op);
    float *db = host__f32(host, op, &u->db);
    host__parallel(host, op, op->parts, bias_part);
    for (size_t c = 0; c < channels; c++) {
        double sum = 0.0;
        for (int part = 0; part < op->parts; part++) {
            sum += sums[(size_t)part * channels + c];
        }
        db[c] = (float)sum;
    }
}

/* --- Element by element ----------------------------------------------------------------------- */

static void relu_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_relu_backward *u = &op->desc.u.relu;
    (void)worker;
    size_t count = tensor_elements(&u->y);
    size_t begin = host__part_begin(count, op->parts, part);
    size_t end = host__part_begin(count, op->parts, part + 1);
    host->kernels->relu_backward(host__f32(host, op, &u->y) + begin,
                                 host__f32(host, op, &u->dy) + begin,
                                 host__f32(host, op, &u->dx) + begin, end - begin);
}

static void relu_backward(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, relu_part);
}

static void add_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_add *u = &op->desc.u.add;
    (void)worker;
    size_t count = tensor_elements(&u->y);
    size_t begin = host__part_begin(count, op->parts, part);
    size_t end = host__part_begin(count, op->parts, part + 1);
    host->kernels->add(host__f32(host, op, &u->a) + begin, host__f32(host, op, &u->b) + begin,
                       host__f32(host, op, &u->y) + begin, end - begin);
}

static void add(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, add_part);
}

static void cast_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_cast *u = &op->desc.u.cast;
    (void)worker;
    size_t count = tensor_elements(&u->from);
    size_t begin = host__part_begin(count, op->parts, part);
    size_t end = host__part_begin(count, op->parts, part + 1);
    const unsigned char *from = host__raw(&u->from) + begin * dtype_bytes(u->from.dtype);
    unsigned char *to = host__raw(&u->to) + begin * dtype_bytes(u->to.dtype);
    if (u->from.dtype == u->to.dtype) {
        memmove(to, from, (end - begin) * dtype_bytes(u->to.dtype));
    } else if (u->from.dtype == DTYPE_BF16) {
        host->kernels->widen((const uint16_t *)(const void *)from, (float *)(void *)to,
                             end - begin);
    } else {
        host->kernels->narrow((const float *)(const void *)from, (uint16_t *)(void *)to,
                              end - begin);
    }
}

static void cast(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, cast_part);
}

/* --- Updates ---------------------------------------------------------------------------------- */

static void update_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_update *u = &op->desc.u.update;
    (void)worker;
    size_t count = tensor_elements(&u->parameters);
    size_t begin = host__part_begin(count, op->parts, part);
    size_t end = host__part_begin(count, op->parts, part + 1);
    struct host_update_part update = {
        .parameters = host__f32(host, op, &u->parameters) + begin,
        .first = host__f32(host, op, &u->first) + begin,
        .gradient = host__f32(host, op, &u->gradient) + begin,
        .scalars = host__f32(host, op, &u->scalars),
        .count = end - begin,
        .decays = u->decays,
        .nesterov = u->nesterov,
    };
    if (u->shadow.buffer != NULL) {
        update.shadow = host__f32(host, op, &u->shadow) + begin;
    }
    if (op->desc.kind == OP_ADAMW) {
        update.second = host__f32(host, op, &u->second) + begin;
        host->kernels->adamw(&update);
    } else {
        host->kernels->sgd(&update);
    }
}

static void update(struct host_device *host, const device_op *op)
{
    host__parallel(host, op, op->parts, update_part);
}

void host__plan_pointwise(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    (void)host;
    switch (op->desc.kind) {
    case OP_INGEST:
        op->run = ingest;
        op->parts = host__parts(tensor_elements(&op->desc.u.ingest.from) / 3, 3);
        break;
    case OP_BIAS_BACKWARD: {
        const struct tensor *dy = &op->desc.u.bias.dy;
        op->run = bias_backward;
        op->parts = host__parts(tensor_elements(dy) / (size_t)dy->c, (size_t)dy->c);
        *scratch_bytes = (size_t)op->parts * (size_t)dy->c * sizeof(double);
        break;
    }
    case OP_RELU_BACKWARD:
        op->run = relu_backward;
        op->parts = host__parts(tensor_elements(&op->desc.u.relu.y), 1);
        break;
    case OP_ADD:
        op->run = add;
        op->parts = host__parts(tensor_elements(&op->desc.u.add.y), 1);
        break;
    case OP_CAST:
        op->run = cast;
        op->parts = host__parts(tensor_elements(&op->desc.u.cast.from), 1);
        break;
    case OP_SGD:
    case OP_ADAMW:
        op->run = update;
        op->parts = host__parts(tensor_elements(&op->desc.u.update.parameters), 1);
        break;
    default:
        assert(!"not a pointwise operation");
    }
}
