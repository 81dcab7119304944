/*
 * Every operation of the CUDA device against its definition in double, in each precision: fresh random
 * data, outputs filled with NaN first, error as |got - expected| / |expected| over the whole tensor.
 * Bounds: what rounding of one result allows (2^-9 in bfloat16, 2^-24 in float32) and, for TF32, of
 * the factors (2^-11), times a small factor; sums of thousands of float32 products get 1e-5.
 */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "base/rng.h"
#include "device/device.h"
#include "device/device_backend.h"
#include "tests/support/reference_ops.h"
#include "tests/support/skip.h"

static device *devices[3];
static device_stream *streams[3];
static const char *missing; /* why there is no device */
static uint64_t seed;

#define PRECISIONS 3
#define REPEATS 6 /* of every operation, for its bits */

static void must(enum status status)
{
    if (status != STATUS_OK) {
        ck_abort_msg("%s\n%s", status_message(), status_trace_text());
    }
}

static bool open_device(int precision)
{
    if (devices[precision] != NULL) {
        return true;
    }
    if (missing != NULL) {
        return false;
    }
    struct device_settings settings;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_CUDA;
    settings.precision = (enum precision)precision;
    settings.plan_candidates = 2;
    enum status status = device_open(&settings, &devices[precision]);
    if (status == STATUS_NOT_FOUND) {
        static char reason[STATUS_MESSAGE_BYTES];
        snprintf(reason, sizeof reason, "%s", status_message());
        missing = reason;
        return false;
    }
    must(status);
    must(device_stream_create(devices[precision], "test", &streams[precision]));
    return true;
}

#define OPEN(precision)                                                                            \
    if (!open_device(precision)) {                                                                 \
        SKIP_TEST(missing);                                                                        \
    }                                                                                              \
    device *const dev = devices[precision];                                                        \
    device_stream *const stream = streams[precision];                                              \
    const enum dtype data = (precision) == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;                \
    (void)data;                                                                                    \
    (void)dev;                                                                                     \
    (void)stream

/* The bound for results that are products (convolutions, linear) and for the others. */
static const double product_bound[PRECISIONS] = {1e-5, 1.5e-3, 4e-3};
static const double plain_bound[PRECISIONS] = {2e-6, 2e-6, 4e-3};

/* --- Tensors with their values -------------------------------------------------------------- */

struct item {
    struct tensor t;
    double *v;      /* values on the host, exactly those on the device */
    uint8_t *bytes; /* for copies */
};

static struct reference_shape shape(const struct item *item)
{
    return (struct reference_shape){item->t.n, item->t.h, item->t.w, item->t.c};
}

static double uniform(void)
{
    static uint64_t state;
    if (state == 0) {
        state = seed;
    }
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (double)(state >> 11) / 9007199254740992.0;
}

static struct item empty(device *dev, enum dtype dtype, int n, int h, int w, int c)
{
    struct item item = {.t = {.dtype = dtype, .n = n, .h = h, .w = w, .c = c}};
    must(device_buffer_create(dev, tensor_bytes(&item.t), &item.t.buffer));
    item.v = calloc(tensor_elements(&item.t) + 1, sizeof(double));
    item.bytes = malloc(tensor_bytes(&item.t) + 1);
    ck_assert_ptr_nonnull(item.v);
    ck_assert_ptr_nonnull(item.bytes);
    return item;
}

static void upload(device *dev, device_stream *stream, const struct item *item)
{
    size_t count = tensor_elements(&item->t);
    for (size_t i = 0; i < count; i++) {
        float value = (float)item->v[i];
        uint16_t bits = reference_bf16_bits(value);
        switch (item->t.dtype) {
        case DTYPE_F32:
            memcpy(item->bytes + i * 4, &value, 4);
            break;
        case DTYPE_BF16:
            memcpy(item->bytes + i * 2, &bits, 2);
            break;
        case DTYPE_U8:
            item->bytes[i] = (uint8_t)item->v[i];
            break;
        }
    }
    must(device_copy_to_device(dev, stream, item->t.buffer, item->t.offset, item->bytes,
                               tensor_bytes(&item->t)));
    must(device_stream_wait(dev, stream));
}

static void fetch(device *dev, device_stream *stream, struct item *item)
{
    must(device_copy_to_host(dev, stream, item->bytes, item->t.buffer, item->t.offset,
                             tensor_bytes(&item->t)));
    must(device_stream_wait(dev, stream));
    size_t count = tensor_elements(&item->t);
    for (size_t i = 0; i < count; i++) {
        float value = 0;
        uint16_t bits = 0;
        switch (item->t.dtype) {
        case DTYPE_F32:
            memcpy(&value, item->bytes + i * 4, 4);
            item->v[i] = (double)value;
            break;
        case DTYPE_BF16:
            memcpy(&bits, item->bytes + i * 2, 2);
            item->v[i] = (double)reference_bf16_value(bits);
            break;
        case DTYPE_U8:
            item->v[i] = item->bytes[i];
            break;
        }
    }
}

/* Random values between low and high, as the type holds them. */
static struct item random_between(device *dev, device_stream *stream, enum dtype dtype, int n,
                                  int h, int w, int c, double low, double high)
{
    struct item item = empty(dev, dtype, n, h, w, c);
    size_t count = tensor_elements(&item.t);
    for (size_t i = 0; i < count; i++) {
        double value = low + (high - low) * uniform();
        item.v[i] = dtype == DTYPE_U8     ? floor(value)
                    : dtype == DTYPE_BF16 ? reference_round_bf16(value)
                                          : (double)(float)value;
    }
    upload(dev, stream, &item);
    return item;
}

static struct item random_item(device *dev, device_stream *stream, enum dtype dtype, int n, int h,
                               int w, int c)
{
    return random_between(dev, stream, dtype, n, h, w, c, -1, 1);
}

/* An output: every byte 0xff, which is NaN in both types. */
static struct item poisoned(device *dev, device_stream *stream, enum dtype dtype, int n, int h,
                            int w, int c)
{
    struct item item = empty(dev, dtype, n, h, w, c);
    memset(item.bytes, 0xff, tensor_bytes(&item.t));
    must(device_copy_to_device(dev, stream, item.t.buffer, 0, item.bytes, tensor_bytes(&item.t)));
    must(device_stream_wait(dev, stream));
    return item;
}

static void drop(device *dev, struct item *item)
{
    if (item->t.buffer != NULL) {
        device_buffer_destroy(dev, &item->t.buffer);
    }
    free(item->v);
    free(item->bytes);
    *item = (struct item){0};
}

static double *doubles(size_t count)
{
    double *values = calloc(count + 1, sizeof *values);
    ck_assert_ptr_nonnull(values);
    return values;
}

static double error_of(const double *got, const double *expected, size_t count)
{
    double difference = 0;
    double size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (got[i] - expected[i]) * (got[i] - expected[i]);
        size += expected[i] * expected[i];
    }
    return size > 0 ? sqrt(difference / size) : sqrt(difference);
}

/* Fetches `item` and compares; `what` and the shape say which case it was. */
static void expect(device *dev, device_stream *stream, const char *what, struct item *item,
                   const double *expected, double bound)
{
    fetch(dev, stream, item);
    double error = error_of(item->v, expected, tensor_elements(&item->t));
    printf("    %-34s %4d x %3d x %3d x %4d  error %.2e\n", what, item->t.n, item->t.h, item->t.w,
           item->t.c, error);
    if (!(error <= bound)) {
        ck_abort_msg("%s of %d x %d x %d x %d: error %g is over %g", what, item->t.n, item->t.h,
                     item->t.w, item->t.c, error, bound);
    }
}

/* What the operation wrote is the same bits when it runs again, many times: a library's word for it
 * is not enough. Operations that read what they write cannot be repeated. */
static void expect_same_bits(device *dev, device_stream *stream, const struct op_desc *desc,
                             device_op *op)
{
    struct op_tensor tensors[OP_TENSORS_MAX];
    const int count = device__op_tensors(desc, tensors);
    unsigned char *first[OP_TENSORS_MAX] = {NULL};
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            const struct tensor *a = tensors[i].tensor, *b = tensors[j].tensor;
            if (a->buffer && (tensors[i].access & OP_WRITES) && (tensors[j].access & OP_READS) &&
                a->buffer == b->buffer && a->offset == b->offset) {
                return;
            }
        }
    }
    for (int again = 0; again <= REPEATS; again++) {
        if (again > 0) {
            must(device_op_submit(dev, op, stream));
        }
        for (int i = 0; i < count; i++) {
            const struct tensor *t = tensors[i].tensor;
            if (!t->buffer || !(tensors[i].access & OP_WRITES)) {
                continue;
            }
            const size_t bytes = tensor_bytes(t);
            unsigned char *now = malloc(bytes);
            ck_assert_ptr_nonnull(now);
            must(device_copy_to_host(dev, stream, now, t->buffer, t->offset, bytes));
            must(device_stream_wait(dev, stream));
            if (again == 0) {
                first[i] = now;
                continue;
            }
            ck_assert_msg(memcmp(first[i], now, bytes) == 0,
                          "%s: %s of %d x %d x %d x %d has other bits when run again",
                          device__op_kind_name(desc->kind), tensors[i].name, t->n, t->h, t->w,
                          t->c);
            free(now);
        }
    }
    for (int i = 0; i < count; i++) {
        free(first[i]);
    }
}

static void run(device *dev, device_stream *stream, const struct op_desc *desc)
{
    device_op *op = NULL;
    must(device_op_create(dev, desc, &op));
    must(device_op_submit(dev, op, stream));
    must(device_stream_wait(dev, stream));
    expect_same_bits(dev, stream, desc, op);
    device_op_destroy(dev, &op);
}

/* --- Convolutions --------------------------------------------------------------------------- */

struct conv_case {
    int n, h, w, c, k, window, stride, pad;
};

static const struct conv_case conv_cases[] = {
    {4, 32, 32, 4, 32, 3, 1, 1}, /* first layer, padded channels */
    {4, 32, 32, 32, 32, 3, 1, 1},  {3, 15, 17, 64, 64, 3, 1, 1},   {2, 8, 8, 128, 128, 3, 1, 1},
    {2, 4, 4, 512, 512, 3, 1, 1},  {2, 64, 64, 4, 64, 7, 2, 3},    {2, 33, 33, 4, 32, 3, 4, 1},
    {2, 28, 28, 64, 128, 3, 2, 1}, {2, 28, 28, 64, 128, 1, 2, 0},  {1, 7, 7, 256, 512, 1, 2, 0},
    {2, 9, 9, 32, 64, 1, 1, 0},    {17, 16, 16, 64, 128, 3, 1, 1},
};
#define CONV_CASES (int)(sizeof conv_cases / sizeof conv_cases[0])

static void test_conv_case(device *dev, device_stream *stream, int precision, enum dtype data,
                           const struct conv_case *s, bool bias, bool relu)
{
    int ho = (s->h + 2 * s->pad - s->window) / s->stride + 1;
    int wo = (s->w + 2 * s->pad - s->window) / s->stride + 1;
    struct item x = random_item(dev, stream, data, s->n, s->h, s->w, s->c);
    struct item w = random_item(dev, stream, data, s->k, s->window, s->window, s->c);
    struct item b = random_item(dev, stream, DTYPE_F32, 1, 1, 1, s->k);
    struct item y = poisoned(dev, stream, data, s->n, ho, wo, s->k);
    double *expected = doubles(tensor_elements(&y.t));
    struct op_desc desc = {.kind = OP_CONV, .label = "conv"};
    desc.u.conv = (struct op_conv){
        .x = x.t, .w = w.t, .y = y.t, .stride = s->stride, .pad = s->pad, .relu = relu};
    if (bias) {
        desc.u.conv.bias = b.t;
    }
    reference_conv(x.v, shape(&x), w.v, shape(&w), bias ? b.v : NULL, s->stride, s->pad, relu,
                   expected, shape(&y));
    run(dev, stream, &desc);
    expect(dev, stream, bias ? "conv + bias + relu" : "conv", &y, expected,
           product_bound[precision]);
    free(expected);
    drop(dev, &x);
    drop(dev, &w);
    drop(dev, &b);
    drop(dev, &y);
}

START_TEST(conv_forward)
{
    OPEN(_i);
    for (int i = 0; i < CONV_CASES; i++) {
        test_conv_case(dev, stream, _i, data, &conv_cases[i], false, false);
    }
    test_conv_case(dev, stream, _i, data, &conv_cases[1], true, true);
    test_conv_case(dev, stream, _i, data, &conv_cases[6], true, true);
    test_conv_case(dev, stream, _i, data, &conv_cases[6], true, false);
}
END_TEST

START_TEST(conv_backward)
{
    OPEN(_i);
    for (int i = 0; i < CONV_CASES; i++) {
        const struct conv_case *s = &conv_cases[i];
        int ho = (s->h + 2 * s->pad - s->window) / s->stride + 1;
        int wo = (s->w + 2 * s->pad - s->window) / s->stride + 1;
        struct item x = random_item(dev, stream, data, s->n, s->h, s->w, s->c);
        struct item w = random_item(dev, stream, data, s->k, s->window, s->window, s->c);
        struct item dy = random_item(dev, stream, data, s->n, ho, wo, s->k);
        struct item dx = poisoned(dev, stream, data, s->n, s->h, s->w, s->c);
        struct item dw = poisoned(dev, stream, data, s->k, s->window, s->window, s->c);
        struct item wide = poisoned(dev, stream, DTYPE_F32, s->k, s->window, s->window, s->c);
        double *expected_dx = doubles(tensor_elements(&dx.t));
        double *expected_dw = doubles(tensor_elements(&dw.t));
        reference_conv_backward_data(dy.v, shape(&dy), w.v, shape(&w), s->stride, s->pad,
                                     expected_dx, shape(&dx));
        reference_conv_backward_filter(x.v, shape(&x), dy.v, shape(&dy), s->stride, s->pad,
                                       expected_dw, shape(&dw));
        struct op_desc desc = {.kind = OP_CONV_BACKWARD_DATA, .label = "conv data"};
        desc.u.conv = (struct op_conv){.x = x.t,
                                       .w = w.t,
                                       .dy = dy.t,
                                       .dx = dx.t,
                                       .dw = dw.t,
                                       .stride = s->stride,
                                       .pad = s->pad};
        run(dev, stream, &desc);
        expect(dev, stream, "conv backward data", &dx, expected_dx, product_bound[_i]);
        desc.kind = OP_CONV_BACKWARD_FILTER;
        desc.label = "conv filter";
        run(dev, stream, &desc);
        expect(dev, stream, "conv backward filter", &dw, expected_dw, product_bound[_i]);
        if (data == DTYPE_BF16 && i == 1) {
            desc.u.conv.dw = wide.t;
            run(dev, stream, &desc);
            expect(dev, stream, "conv backward filter to float", &wide, expected_dw,
                   product_bound[_i]);
        }
        free(expected_dx);
        free(expected_dw);
        drop(dev, &x);
        drop(dev, &w);
        drop(dev, &dy);
        drop(dev, &dx);
        drop(dev, &dw);
        drop(dev, &wide);
    }
}
END_TEST

/* Values far beyond and far below what half precision holds: no plan may go through it. */
START_TEST(conv_range)
{
    OPEN(_i);
    const struct conv_case *s = &conv_cases[1];
    static const double sizes[][2] = {{1e6, 1e-9}, {1e-9, 1e6}};
    for (int i = 0; i < 2; i++) {
        const double large = sizes[i][0];
        const double small = sizes[i][1];
        struct item x = random_between(dev, stream, data, s->n, s->h, s->w, s->c, -large, large);
        struct item w = random_between(dev, stream, data, s->k, 3, 3, s->c, -small, small);
        struct item dy = random_between(dev, stream, data, s->n, s->h, s->w, s->k, -small, small);
        struct item y = poisoned(dev, stream, data, s->n, s->h, s->w, s->k);
        struct item dx = poisoned(dev, stream, data, s->n, s->h, s->w, s->c);
        struct item dw = poisoned(dev, stream, data, s->k, 3, 3, s->c);
        double *expected = doubles(tensor_elements(&x.t));
        struct op_desc desc = {.kind = OP_CONV, .label = "conv of extremes"};
        desc.u.conv = (struct op_conv){.x = x.t,
                                       .w = w.t,
                                       .y = y.t,
                                       .dy = dy.t,
                                       .dx = dx.t,
                                       .dw = dw.t,
                                       .stride = 1,
                                       .pad = 1};
        reference_conv(x.v, shape(&x), w.v, shape(&w), NULL, 1, 1, false, expected, shape(&y));
        run(dev, stream, &desc);
        expect(dev, stream, "conv of extremes", &y, expected, product_bound[_i]);
        desc.kind = OP_CONV_BACKWARD_DATA;
        reference_conv_backward_data(dy.v, shape(&dy), w.v, shape(&w), 1, 1, expected, shape(&dx));
        run(dev, stream, &desc);
        expect(dev, stream, "conv backward data of extremes", &dx, expected, product_bound[_i]);
        desc.kind = OP_CONV_BACKWARD_FILTER;
        reference_conv_backward_filter(x.v, shape(&x), dy.v, shape(&dy), 1, 1, expected,
                                       shape(&dw));
        run(dev, stream, &desc);
        expect(dev, stream, "conv backward filter of extremes", &dw, expected, product_bound[_i]);
        free(expected);
        struct item *all[] = {&x, &w, &dy, &y, &dx, &dw};
        for (size_t j = 0; j < 6; j++) {
            drop(dev, all[j]);
        }
    }
}
END_TEST

START_TEST(bias_backward)
{
    OPEN(_i);
    static const int sizes[][4] = {{8, 8, 8, 32}, {3, 5, 7, 12}, {64, 56, 56, 32}};
    for (int i = 0; i < 3; i++) {
        struct item dy = random_between(dev, stream, data, sizes[i][0], sizes[i][1], sizes[i][2],
                                        sizes[i][3], -0.5, 1);
        struct item db = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, sizes[i][3]);
        double *expected = doubles((size_t)sizes[i][3]);
        reference_bias_backward(dy.v, shape(&dy), expected);
        struct op_desc desc = {.kind = OP_BIAS_BACKWARD, .label = "bias"};
        desc.u.bias = (struct op_bias_backward){.dy = dy.t, .db = db.t};
        run(dev, stream, &desc);
        expect(dev, stream, "bias backward", &db, expected, 1e-5);
        free(expected);
        drop(dev, &dy);
        drop(dev, &db);
    }
}
END_TEST

/* --- Normalisation -------------------------------------------------------------------------- */

struct norm_items {
    struct item x, residual, y, scale, bias, running_mean, running_var, saved_mean, saved_inv_std;
    struct item scalars, dy, dx, dresidual, dscale, dbias;
    struct reference_norm reference;
};

#define NORM_AVERAGING 3 /* place of `averaging` in struct step_scalars */

static void norm_init(device *dev, device_stream *stream, enum dtype data, const int *size,
                      struct norm_items *m)
{
    int n = size[0];
    int h = size[1];
    int w = size[2];
    int c = size[3];
    m->x = random_between(dev, stream, data, n, h, w, c, -1, 2);
    m->residual = random_item(dev, stream, data, n, h, w, c);
    m->y = poisoned(dev, stream, data, n, h, w, c);
    m->dy = random_item(dev, stream, data, n, h, w, c);
    m->dx = poisoned(dev, stream, data, n, h, w, c);
    m->dresidual = poisoned(dev, stream, data, n, h, w, c);
    m->scale = random_between(dev, stream, DTYPE_F32, 1, 1, 1, c, 0.5, 1.5);
    m->bias = random_item(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->running_mean = random_item(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->running_var = random_between(dev, stream, DTYPE_F32, 1, 1, 1, c, 0.5, 2);
    m->saved_mean = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->saved_inv_std = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->dscale = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->dbias = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, c);
    m->scalars = empty(dev, DTYPE_F32, 1, 1, 1, (int)(sizeof(struct step_scalars) / sizeof(float)));
    m->scalars.v[NORM_AVERAGING] = (double)0.1F;
    upload(dev, stream, &m->scalars);
    m->reference = (struct reference_norm){.epsilon = 1e-5, .averaging = 0.1};
    size_t bytes = (size_t)c * sizeof(double);
    double **copies[] = {&m->reference.running_mean, &m->reference.running_var,
                         &m->reference.saved_mean, &m->reference.saved_inv_std};
    for (int i = 0; i < 4; i++) {
        *copies[i] = doubles((size_t)c);
    }
    memcpy(m->reference.running_mean, m->running_mean.v, bytes);
    memcpy(m->reference.running_var, m->running_var.v, bytes);
    m->reference.scale = m->scale.v;
    m->reference.bias = m->bias.v;
}

static void norm_fini(device *dev, struct norm_items *m)
{
    struct item *items[] = {&m->x,           &m->residual,   &m->y,
                            &m->scale,       &m->bias,       &m->running_mean,
                            &m->running_var, &m->saved_mean, &m->saved_inv_std,
                            &m->scalars,     &m->dy,         &m->dx,
                            &m->dresidual,   &m->dscale,     &m->dbias};
    free(m->reference.running_mean);
    free(m->reference.running_var);
    free(m->reference.saved_mean);
    free(m->reference.saved_inv_std);
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        drop(dev, items[i]);
    }
}

static struct op_desc norm_desc(const struct norm_items *m, enum op_kind kind, bool residual,
                                bool relu)
{
    struct op_desc desc = {.kind = kind, .label = "norm"};
    desc.u.norm = (struct op_norm){.x = m->x.t,
                                   .y = m->y.t,
                                   .scale = m->scale.t,
                                   .bias = m->bias.t,
                                   .running_mean = m->running_mean.t,
                                   .running_var = m->running_var.t,
                                   .saved_mean = m->saved_mean.t,
                                   .saved_inv_std = m->saved_inv_std.t,
                                   .scalars = m->scalars.t,
                                   .dy = m->dy.t,
                                   .dx = m->dx.t,
                                   .dscale = m->dscale.t,
                                   .dbias = m->dbias.t,
                                   .epsilon = 1e-5F,
                                   .relu = relu};
    if (residual) {
        desc.u.norm.residual = m->residual.t;
        desc.u.norm.dresidual = m->dresidual.t;
    }
    return desc;
}

static const int norm_sizes[][4] = {{4, 32, 32, 32}, {3, 7, 5, 64},    {2, 8, 8, 128},
                                    {2, 4, 4, 512},  {16, 56, 56, 64}, {2, 2, 2, 24}};
#define NORM_SIZES 6

/* Forward and backward of one shape: first with the forward operation alive, so that what it keeps
 * for the backward one is used, then with the backward operation alone. */
static void norm_case(device *dev, device_stream *stream, int precision, enum dtype data,
                      const int *size, bool residual, bool relu)
{
    struct norm_items m;
    norm_init(dev, stream, data, size, &m);
    m.reference.relu = relu;
    size_t count = tensor_elements(&m.x.t);
    double *y = doubles(count);
    double *dx = doubles(count);
    double *dresidual = doubles(count);
    double *dscale = doubles((size_t)size[3]);
    double *dbias = doubles((size_t)size[3]);
    reference_norm_train(m.x.v, residual ? m.residual.v : NULL, shape(&m.x), &m.reference, y);

    struct op_desc forward = norm_desc(&m, OP_NORM, residual, relu);
    struct op_desc backward = norm_desc(&m, OP_NORM_BACKWARD, residual, relu);
    device_op *forward_op = NULL;
    device_op *backward_op = NULL;
    must(device_op_create(dev, &forward, &forward_op));
    must(device_op_create(dev, &backward, &backward_op));
    must(device_op_submit(dev, forward_op, stream));
    expect(dev, stream,
           residual ? "norm + add + relu"
           : relu   ? "norm + relu"
                    : "norm",
           &m.y, y, plain_bound[precision] * 2);
    expect(dev, stream, "  mean", &m.saved_mean, m.reference.saved_mean, 1e-5);
    expect(dev, stream, "  1 / deviation", &m.saved_inv_std, m.reference.saved_inv_std, 1e-5);
    expect(dev, stream, "  running mean", &m.running_mean, m.reference.running_mean, 1e-5);
    expect(dev, stream, "  running variance", &m.running_var, m.reference.running_var, 1e-5);

    /* The sign of y near zero is a matter of rounding: the expectation takes the device's y. */
    reference_norm_backward(m.x.v, m.y.v, m.dy.v, shape(&m.x), &m.reference, dx,
                            residual ? dresidual : NULL, dscale, dbias);
    for (int alone = 0; alone < 2; alone++) {
        if (alone == 1) {
            device_op_destroy(dev, &backward_op);
            device_op_destroy(dev, &forward_op);
            backward.u.norm.bias = (struct tensor){0};
            must(device_op_create(dev, &backward, &backward_op));
        }
        must(device_op_submit(dev, backward_op, stream));
        double bound = data == DTYPE_BF16 ? 8e-3 : 2e-5;
        expect(dev, stream, alone ? "norm backward, alone" : "norm backward", &m.dx, dx, bound);
        expect(dev, stream, "  dscale", &m.dscale, dscale, bound);
        expect(dev, stream, "  dbias", &m.dbias, dbias, bound);
        if (residual) {
            expect(dev, stream, "  dresidual", &m.dresidual, dresidual, plain_bound[precision]);
        }
    }
    device_op_destroy(dev, &backward_op);
    if (residual) {
        /* dresidual in the place of dy. */
        backward.u.norm.dresidual = m.dy.t;
        run(dev, stream, &backward);
        expect(dev, stream, "norm backward, dy replaced", &m.dx, dx,
               data == DTYPE_BF16 ? 8e-3 : 2e-5);
        expect(dev, stream, "  dresidual", &m.dy, dresidual, plain_bound[precision]);
    }

    struct op_desc infer = norm_desc(&m, OP_NORM_INFER, residual, relu);
    reference_norm_infer(m.x.v, residual ? m.residual.v : NULL, shape(&m.x), &m.reference, y);
    memset(m.y.bytes, 0xff, tensor_bytes(&m.y.t));
    must(device_copy_to_device(dev, stream, m.y.t.buffer, 0, m.y.bytes, tensor_bytes(&m.y.t)));
    run(dev, stream, &infer);
    expect(dev, stream, "norm for inference", &m.y, y, plain_bound[precision] * 2);

    free(y);
    free(dx);
    free(dresidual);
    free(dscale);
    free(dbias);
    norm_fini(dev, &m);
}

START_TEST(norm_plain)
{
    OPEN(_i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(dev, stream, _i, data, norm_sizes[i], false, false);
    }
}
END_TEST

START_TEST(norm_relu)
{
    OPEN(_i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(dev, stream, _i, data, norm_sizes[i], false, true);
    }
}
END_TEST

START_TEST(norm_residual)
{
    OPEN(_i);
    for (int i = 0; i < NORM_SIZES; i++) {
        norm_case(dev, stream, _i, data, norm_sizes[i], true, true);
    }
    norm_case(dev, stream, _i, data, norm_sizes[0], true, false);
}
END_TEST

/* --- Pointwise ------------------------------------------------------------------------------ */

START_TEST(pixels)
{
    OPEN(_i);
    static const enum dtype sources[] = {DTYPE_U8, DTYPE_F32};
    static const int channels[] = {4, 4, 3, 8};
    for (int s = 0; s < 2; s++) {
        for (int c = 0; c < 4; c++) {
            /* Sizes that the widening product takes, and such that it does not. */
            const int w = c == 0 ? 32 : 33;
            struct item from = random_between(dev, stream, sources[s], 3, 31, w, 3, 0, 256);
            struct item to = poisoned(dev, stream, data, 3, 31, w, channels[c]);
            double *expected = doubles(tensor_elements(&to.t));
            struct op_desc desc = {.kind = OP_INGEST, .label = "pixels"};
            desc.u.ingest = (struct op_ingest){.from = from.t,
                                               .to = to.t,
                                               .scale = {0.0157F, 0.0151F, 0.0147F},
                                               .offset = {-2.0F, -1.9F, -2.1F}};
            reference_ingest(from.v, expected, (size_t)3 * 31 * (size_t)w, channels[c],
                             desc.u.ingest.scale, desc.u.ingest.offset);
            run(dev, stream, &desc);
            expect(dev, stream, s == 0 ? "pixels from bytes" : "pixels from floats", &to, expected,
                   plain_bound[_i]);
            for (size_t i = 0; i < tensor_elements(&to.t); i++) {
                if (i % (size_t)channels[c] >= 3) {
                    ck_assert_msg(to.v[i] == 0, "padding channel holds %g", to.v[i]);
                }
            }
            free(expected);
            drop(dev, &from);
            drop(dev, &to);
        }
    }
}
END_TEST

START_TEST(relu_add_cast)
{
    OPEN(_i);
    struct item a = random_item(dev, stream, data, 3, 13, 9, 32);
    struct item b = random_item(dev, stream, data, 3, 13, 9, 32);
    struct item y = poisoned(dev, stream, data, 3, 13, 9, 32);
    size_t count = tensor_elements(&a.t);
    double *expected = doubles(count);
    for (size_t i = 0; i < count; i++) {
        a.v[i] = a.v[i] < 0 ? 0 : a.v[i];
    }
    upload(dev, stream, &a);
    struct op_desc desc = {.kind = OP_RELU_BACKWARD, .label = "relu"};
    desc.u.relu = (struct op_relu_backward){.y = a.t, .dy = b.t, .dx = y.t};
    reference_relu_backward(a.v, b.v, expected, count);
    run(dev, stream, &desc);
    expect(dev, stream, "relu backward", &y, expected, 0);

    desc = (struct op_desc){.kind = OP_ADD, .label = "add"};
    desc.u.add = (struct op_add){.a = a.t, .b = b.t, .y = a.t};
    reference_add(a.v, b.v, expected, count);
    run(dev, stream, &desc);
    expect(dev, stream, "add, in place", &a, expected, plain_bound[_i]);

    desc = (struct op_desc){.kind = OP_RELU_BACKWARD, .label = "relu in place"};
    desc.u.relu = (struct op_relu_backward){.y = y.t, .dy = b.t, .dx = b.t};
    reference_relu_backward(y.v, b.v, expected, count);
    run(dev, stream, &desc);
    expect(dev, stream, "relu backward, in place", &b, expected, 0);

    static const int lengths[] = {2, 9, 1000, 262147};
    for (int i = 0; i < 4; i++) {
        struct item f = random_item(dev, stream, DTYPE_F32, 1, 1, 1, lengths[i]);
        struct item h = poisoned(dev, stream, DTYPE_BF16, 1, 1, 1, lengths[i]);
        struct item back = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, lengths[i]);
        double *rounded = doubles((size_t)lengths[i]);
        for (int j = 0; j < lengths[i]; j++) {
            rounded[j] = reference_round_bf16(f.v[j]);
        }
        desc = (struct op_desc){.kind = OP_CAST, .label = "cast"};
        desc.u.cast = (struct op_cast){.from = f.t, .to = h.t};
        run(dev, stream, &desc);
        expect(dev, stream, "float32 to bfloat16", &h, rounded, 0);
        desc.u.cast = (struct op_cast){.from = h.t, .to = back.t};
        run(dev, stream, &desc);
        expect(dev, stream, "bfloat16 to float32", &back, rounded, 0);
        free(rounded);
        drop(dev, &f);
        drop(dev, &h);
        drop(dev, &back);
    }
    free(expected);
    drop(dev, &a);
    drop(dev, &b);
    drop(dev, &y);
}
END_TEST

/* --- Pooling -------------------------------------------------------------------------------- */

START_TEST(max_pool)
{
    OPEN(_i);
    static const int cases[][7] = {
        /* n, h, w, c, window, stride, pad */
        {4, 32, 32, 32, 2, 2, 0}, {3, 7, 9, 64, 2, 2, 0},  {2, 112, 112, 64, 3, 2, 1},
        {2, 15, 13, 32, 3, 2, 1}, {4, 4, 4, 512, 4, 4, 0}, {2, 6, 6, 32, 3, 1, 1},
    };
    for (int i = 0; i < 6; i++) {
        const int *s = cases[i];
        int ho = (s[1] + 2 * s[6] - s[4]) / s[5] + 1;
        int wo = (s[2] + 2 * s[6] - s[4]) / s[5] + 1;
        struct item x = random_item(dev, stream, data, s[0], s[1], s[2], s[3]);
        /* Equal values: the first one takes the gradient. */
        for (size_t j = 0; j < tensor_elements(&x.t); j++) {
            x.v[j] = floor(x.v[j] * 6) / 4;
        }
        upload(dev, stream, &x);
        struct item y = poisoned(dev, stream, data, s[0], ho, wo, s[3]);
        struct item index = poisoned(dev, stream, DTYPE_U8, s[0], ho, wo, s[3]);
        struct item dy = random_item(dev, stream, data, s[0], ho, wo, s[3]);
        struct item dx = poisoned(dev, stream, data, s[0], s[1], s[2], s[3]);
        struct item dx2 = poisoned(dev, stream, data, s[0], s[1], s[2], s[3]);
        double *expected = doubles(tensor_elements(&y.t));
        double *expected_dx = doubles(tensor_elements(&x.t));
        reference_max_pool(x.v, shape(&x), s[4], s[5], s[6], expected, shape(&y));
        reference_max_pool_backward(x.v, shape(&x), dy.v, shape(&dy), s[4], s[5], s[6],
                                    expected_dx);
        struct op_desc desc = {.kind = OP_MAX_POOL, .label = "pool"};
        desc.u.pool = (struct op_max_pool){.x = x.t,
                                           .y = y.t,
                                           .index = index.t,
                                           .dy = dy.t,
                                           .dx = dx.t,
                                           .window = s[4],
                                           .stride = s[5],
                                           .pad = s[6]};
        run(dev, stream, &desc);
        expect(dev, stream, "max pool", &y, expected, 0);
        desc.kind = OP_MAX_POOL_BACKWARD;
        desc.label = "pool backward";
        run(dev, stream, &desc);
        expect(dev, stream, "max pool backward", &dx, expected_dx, plain_bound[_i]);
        desc.u.pool.index = (struct tensor){0};
        desc.u.pool.dx = dx2.t;
        run(dev, stream, &desc);
        expect(dev, stream, "max pool backward, no index", &dx2, expected_dx, plain_bound[_i]);
        desc.kind = OP_MAX_POOL;
        run(dev, stream, &desc);
        expect(dev, stream, "max pool, no index", &y, expected, 0);
        free(expected);
        free(expected_dx);
        drop(dev, &x);
        drop(dev, &y);
        drop(dev, &index);
        drop(dev, &dy);
        drop(dev, &dx);
        drop(dev, &dx2);
    }
}
END_TEST

START_TEST(global_average)
{
    OPEN(_i);
    static const int sizes[][4] = {{4, 8, 8, 128}, {3, 7, 7, 512}, {2, 56, 56, 128},
                                   {5, 1, 1, 64},  {2, 4, 4, 512}, {2, 55, 55, 32}};
    for (int i = 0; i < 6; i++) {
        for (int wide = 0; wide < 2; wide++) {
            const int *s = sizes[i];
            enum dtype type = wide ? DTYPE_F32 : data;
            if (wide && data == DTYPE_F32) {
                continue;
            }
            struct item x = random_between(dev, stream, data, s[0], s[1], s[2], s[3], -0.5, 1);
            struct item y = poisoned(dev, stream, type, s[0], 1, 1, s[3]);
            struct item dy = random_item(dev, stream, type, s[0], 1, 1, s[3]);
            struct item dx = poisoned(dev, stream, data, s[0], s[1], s[2], s[3]);
            double *expected = doubles(tensor_elements(&y.t));
            double *expected_dx = doubles(tensor_elements(&x.t));
            reference_global_average(x.v, shape(&x), expected);
            reference_global_average_backward(dy.v, shape(&x), expected_dx);
            struct op_desc desc = {.kind = OP_GLOBAL_AVERAGE, .label = "average"};
            desc.u.average = (struct op_global_average){.x = x.t, .y = y.t, .dy = dy.t, .dx = dx.t};
            run(dev, stream, &desc);
            expect(dev, stream, wide ? "global average to float" : "global average", &y, expected,
                   type == DTYPE_F32 ? _i == PRECISION_F32 ? 2e-6 : 1e-3 : 4e-3);
            desc.kind = OP_GLOBAL_AVERAGE_BACKWARD;
            desc.label = "average backward";
            run(dev, stream, &desc);
            expect(dev, stream, "global average backward", &dx, expected_dx,
                   _i == PRECISION_TF32 ? 1e-3 : plain_bound[_i]);
            free(expected);
            free(expected_dx);
            drop(dev, &x);
            drop(dev, &y);
            drop(dev, &dy);
            drop(dev, &dx);
        }
    }
}
END_TEST

/* --- Linear and loss ------------------------------------------------------------------------ */

START_TEST(linear)
{
    OPEN(_i);
    static const int cases[][3] = {{64, 128, 10}, {17, 512, 1000}, {1, 32, 3}, {512, 128, 102}};
    for (int i = 0; i < 4; i++) {
        for (int bias = 0; bias < 2; bias++) {
            int rows = cases[i][0];
            int in = cases[i][1];
            int out = cases[i][2];
            double factor = bias ? 1.0 : 0.125;
            struct item x = random_item(dev, stream, DTYPE_F32, rows, 1, 1, in);
            struct item w = random_item(dev, stream, DTYPE_F32, out, 1, 1, in);
            struct item b = random_item(dev, stream, DTYPE_F32, 1, 1, 1, out);
            struct item y = poisoned(dev, stream, DTYPE_F32, rows, 1, 1, out);
            struct item dy = random_item(dev, stream, DTYPE_F32, rows, 1, 1, out);
            struct item dx = poisoned(dev, stream, DTYPE_F32, rows, 1, 1, in);
            struct item dw = poisoned(dev, stream, DTYPE_F32, out, 1, 1, in);
            struct item db = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, out);
            double *ey = doubles((size_t)rows * (size_t)out);
            double *edx = doubles((size_t)rows * (size_t)in);
            double *edw = doubles((size_t)out * (size_t)in);
            double *edb = doubles((size_t)out);
            reference_linear(x.v, w.v, bias ? b.v : NULL, factor, rows, in, out, ey);
            reference_linear_backward_data(dy.v, w.v, factor, rows, in, out, edx);
            reference_linear_backward_weights(x.v, dy.v, factor, rows, in, out, edw,
                                              bias ? edb : NULL);
            struct op_desc desc = {.kind = OP_LINEAR, .label = "linear"};
            desc.u.linear = (struct op_linear){.x = x.t,
                                               .w = w.t,
                                               .y = y.t,
                                               .dx = dx.t,
                                               .dw = dw.t,
                                               .dy = dy.t,
                                               .factor = (float)factor};
            if (bias) {
                desc.u.linear.bias = b.t;
                desc.u.linear.db = db.t;
            }
            double bound = _i == PRECISION_F32 ? 2e-6 : 1.5e-3;
            run(dev, stream, &desc);
            expect(dev, stream, "linear", &y, ey, bound);
            desc.kind = OP_LINEAR_BACKWARD_DATA;
            run(dev, stream, &desc);
            expect(dev, stream, "linear backward data", &dx, edx, bound);
            desc.kind = OP_LINEAR_BACKWARD_WEIGHTS;
            run(dev, stream, &desc);
            expect(dev, stream, "linear backward weights", &dw, edw, bound);
            if (bias) {
                expect(dev, stream, "linear backward bias", &db, edb, bound);
            }
            free(ey);
            free(edx);
            free(edw);
            free(edb);
            struct item *all[] = {&x, &w, &b, &y, &dy, &dx, &dw, &db};
            for (size_t j = 0; j < 8; j++) {
                drop(dev, all[j]);
            }
        }
    }
}
END_TEST

START_TEST(softmax_loss)
{
    OPEN(_i);
    static const int cases[][2] = {{64, 10}, {17, 1000}, {1, 2}, {512, 102}};
    for (int i = 0; i < 4; i++) {
        int rows = cases[i][0];
        int classes = cases[i][1];
        size_t count = (size_t)rows * (size_t)classes;
        struct item logits = random_between(dev, stream, DTYPE_F32, rows, 1, 1, classes, -30, 30);
        struct item targets = empty(dev, DTYPE_F32, rows, 1, 1, classes);
        struct item loss = poisoned(dev, stream, DTYPE_F32, 1, 1, 1, 1);
        struct item dlogits = poisoned(dev, stream, DTYPE_F32, rows, 1, 1, classes);
        double *expected = doubles(count);
        for (int r = 0; r < rows; r++) {
            /* One row in five stands for a skipped image: no target, no gradient. */
            if (r % 5 == 4) {
                continue;
            }
            for (int c = 0; c < classes; c++) {
                targets.v[r * classes + c] = (double)(float)(0.1 / classes / rows);
            }
            targets.v[r * classes + r % classes] = (double)(float)(0.9 / rows);
        }
        upload(dev, stream, &targets);
        double want = reference_softmax_loss(logits.v, targets.v, rows, classes, expected);
        struct op_desc desc = {.kind = OP_SOFTMAX_LOSS, .label = "loss"};
        desc.u.loss = (struct op_softmax_loss){
            .logits = logits.t, .targets = targets.t, .loss = loss.t, .dlogits = dlogits.t};
        run(dev, stream, &desc);
        expect(dev, stream, "loss", &loss, &want, 2e-6);
        expect(dev, stream, "gradient of the logits", &dlogits, expected, 5e-6);
        desc.u.loss.dlogits = (struct tensor){0};
        run(dev, stream, &desc);
        expect(dev, stream, "loss alone", &loss, &want, 2e-6);
        free(expected);
        drop(dev, &logits);
        drop(dev, &targets);
        drop(dev, &loss);
        drop(dev, &dlogits);
    }
}
END_TEST

/* --- Updates -------------------------------------------------------------------------------- */

static void put_scalars(device *dev, device_stream *stream, struct item *item,
                        const struct step_scalars *scalars)
{
    const float *values = (const float *)(const void *)scalars;
    for (size_t i = 0; i < sizeof *scalars / sizeof(float); i++) {
        item->v[i] = (double)values[i];
    }
    upload(dev, stream, item);
}

static void update_case(device *dev, device_stream *stream, int length, enum dtype gradient_type,
                        bool adamw, bool decays, bool nesterov)
{
    struct item p = random_item(dev, stream, DTYPE_F32, 1, 1, 1, length);
    struct item g = random_item(dev, stream, gradient_type, 1, 1, 1, length);
    struct item m = random_between(dev, stream, DTYPE_F32, 1, 1, 1, length, -0.1, 0.1);
    struct item v = random_between(dev, stream, DTYPE_F32, 1, 1, 1, length, 0, 0.01);
    struct item shadow = poisoned(dev, stream, DTYPE_BF16, 1, 1, 1, length);
    struct item scalars =
        empty(dev, DTYPE_F32, 1, 1, 1, (int)(sizeof(struct step_scalars) / sizeof(float)));
    const int step = 3;
    const double rate = 0.01;
    struct step_scalars s = {.rate = (float)rate, .momentum = 0.9F, .decay = 5e-4F, .averaging = 7};
    if (adamw) {
        s.beta1 = 0.9F;
        s.beta2 = 0.999F;
        s.one_minus_beta1 = (float)(1 - 0.9);
        s.one_minus_beta2 = (float)(1 - 0.999);
        s.step_size = (float)(rate / (1 - pow(0.9, step)));
        s.second_scale = (float)(1 / sqrt(1 - pow(0.999, step)));
        s.epsilon = 1e-8F;
        s.decay_factor = (float)(1 - rate * 0.01);
    }
    put_scalars(dev, stream, &scalars, &s);
    size_t count = (size_t)length;
    double *old = doubles(count);
    double *ep = doubles(count);
    double *em = doubles(count);
    double *ev = doubles(count);
    double *rounded = doubles(count);
    memcpy(old, p.v, count * sizeof(double));
    memcpy(ep, p.v, count * sizeof(double));
    memcpy(em, m.v, count * sizeof(double));
    memcpy(ev, v.v, count * sizeof(double));
    if (adamw) {
        reference_adamw(ep, g.v, em, ev, count, rate, 0.9, 0.999, 1e-8, decays ? 0.01 : 0, step);
    } else {
        reference_sgd(ep, g.v, em, count, (double)s.rate, (double)s.momentum,
                      decays ? (double)s.decay : 0, nesterov);
    }
    struct op_desc desc = {.kind = adamw ? OP_ADAMW : OP_SGD, .label = adamw ? "adamw" : "sgd"};
    desc.u.update = (struct op_update){.parameters = p.t,
                                       .gradient = g.t,
                                       .first = m.t,
                                       .scalars = scalars.t,
                                       .decays = decays,
                                       .nesterov = nesterov};
    if (adamw) {
        desc.u.update.second = v.t;
    }
    if (gradient_type == DTYPE_BF16) {
        desc.u.update.shadow = shadow.t;
    }
    run(dev, stream, &desc);
    expect(dev, stream, adamw ? "adamw" : "sgd", &p, ep, 1e-6);
    /* The change itself, not hidden behind the size of the parameters. */
    for (size_t i = 0; i < count; i++) {
        p.v[i] -= old[i];
        ep[i] -= old[i];
        rounded[i] = reference_round_bf16(p.v[i] + old[i]);
    }
    double error = error_of(p.v, ep, count);
    ck_assert_msg(error < 1e-4, "change of the parameters: error %g", error);
    expect(dev, stream, "  first", &m, em, 1e-6);
    if (adamw) {
        expect(dev, stream, "  second", &v, ev, 1e-6);
    }
    if (gradient_type == DTYPE_BF16) {
        expect(dev, stream, "  shadow", &shadow, rounded, 0);
    }
    free(old);
    free(ep);
    free(em);
    free(ev);
    free(rounded);
    struct item *all[] = {&p, &g, &m, &v, &shadow, &scalars};
    for (size_t j = 0; j < 6; j++) {
        drop(dev, all[j]);
    }
}

START_TEST(updates)
{
    OPEN(_i);
    static const int lengths[] = {10, 1280, 262147, 8500001};
    for (int i = 0; i < 4; i++) {
        for (int kind = i == 3 ? 2 : 0; kind < 3; kind++) {
            update_case(dev, stream, lengths[i], data, kind == 2, i != 1, kind == 1);
        }
    }
    update_case(dev, stream, 1281, DTYPE_F32, false, false, false);
}
END_TEST

/* --- Programs ------------------------------------------------------------------------------- */

/* A captured program does what its operations do, reads scalars at each run, and gives the same bits
 * every time. */
START_TEST(program)
{
    OPEN(_i);
    const int length = 4099;
    struct item p = random_item(dev, stream, DTYPE_F32, 1, 1, 1, length);
    struct item g = random_item(dev, stream, DTYPE_F32, 1, 1, 1, length);
    struct item m = empty(dev, DTYPE_F32, 1, 1, 1, length);
    upload(dev, stream, &m);
    struct item scalars =
        empty(dev, DTYPE_F32, 1, 1, 1, (int)(sizeof(struct step_scalars) / sizeof(float)));
    struct op_desc desc = {.kind = OP_SGD, .label = "sgd"};
    desc.u.update = (struct op_update){
        .parameters = p.t, .gradient = g.t, .first = m.t, .scalars = scalars.t, .nesterov = true};
    double *ep = doubles((size_t)length);
    double *em = doubles((size_t)length);
    device_op *op = NULL;
    device_program *steps = NULL;
    must(device_op_create(dev, &desc, &op));
    must(device_program_create(dev, &op, 1, stream, &steps));
    ck_assert(device_program_is_captured(steps));
    upload(dev, stream, &p);
    memcpy(ep, p.v, (size_t)length * sizeof(double));
    upload(dev, stream, &m);
    memcpy(em, m.v, (size_t)length * sizeof(double));
    for (int step = 0; step < 3; step++) {
        struct step_scalars s = {.rate = 0.1F / (float)(step + 1), .momentum = 0.5F};
        put_scalars(dev, stream, &scalars, &s);
        must(device_program_submit(dev, steps, stream));
        must(device_stream_wait(dev, stream));
        reference_sgd(ep, g.v, em, (size_t)length, (double)s.rate, 0.5, 0, true);
    }
    expect(dev, stream, "three steps of a program", &p, ep, 1e-6);
    device_program_destroy(dev, &steps);
    device_op_destroy(dev, &op);
    free(ep);
    free(em);
    struct item *all[] = {&p, &g, &m, &scalars};
    for (size_t j = 0; j < 4; j++) {
        drop(dev, all[j]);
    }

    double measured = 0;
    must(device_delay_program_create(dev, 0.005, stream, &steps, &measured));
    printf("    delay of 5 ms: %.3f ms\n", measured * 1e3);
    ck_assert_msg(fabs(measured - 0.005) < 0.001, "a delay of 5 ms takes %g s", measured);
    device_program_destroy(dev, &steps);
}
END_TEST

static void close_devices(void)
{
    for (int i = 0; i < PRECISIONS; i++) {
        if (devices[i] != NULL) {
            device_stream_destroy(devices[i], &streams[i]);
            device_close(&devices[i]);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "-v") == 0) {
        log_set_level(LOG_VERBOSE);
    }
    seed = (uint64_t)time(NULL) * 2654435761U + 1;
    printf("seed %llu\n", (unsigned long long)seed);
    const TTest *const tests[] = {pixels,       relu_add_cast, updates,        program,
                                  linear,       softmax_loss,  global_average, bias_backward,
                                  max_pool,     norm_plain,    norm_relu,      norm_residual,
                                  conv_forward, conv_range,    conv_backward};
    Suite *suite = suite_create("cuda operations");
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        TCase *one = tcase_create(tests[i]->name);
        tcase_add_loop_test(one, tests[i], 0, PRECISIONS);
        suite_add_tcase(suite, one);
    }
    SRunner *runner = srunner_create(suite);
    /* A CUDA context does not survive fork. */
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    close_devices();
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
