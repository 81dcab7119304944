#include "tests/support/op_bench.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device_backend.h"
#include "tests/support/reference_ops.h"

#define INIT_SEED UINT64_C(20250131)

void op_bench_init(struct op_bench *bench, device *dev, enum dtype dtype, double relative,
                   double absolute, uint64_t seed)
{
    *bench = (struct op_bench){.dev = dev,
                               .dtype = dtype,
                               .relative = relative,
                               .absolute = absolute,
                               .offset = 48,
                               .x_size = 1.0,
                               .w_size = 1.0};
    rng_init(&bench->rng, INIT_SEED, RNG_TEST, 0, seed);
    MUST(device_stream_create(dev, "bench", &bench->stream));
}

void op_bench_reset(struct op_bench *bench)
{
    for (int i = 0; i < bench->count; i++) {
        device_buffer_destroy(bench->dev, &bench->tensors[i]->tensor.buffer);
        free(bench->tensors[i]->values);
        free(bench->tensors[i]);
    }
    bench->count = 0;
}

void op_bench_fini(struct op_bench *bench)
{
    op_bench_reset(bench);
    device_stream_destroy(bench->dev, &bench->stream);
}

/* --- Tensors ---------------------------------------------------------------------------------- */

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count > 0 ? count : 1, bytes);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

static double *doubles(size_t count)
{
    return allocate(count, sizeof(double));
}

void op_bench_upload(struct op_bench *bench, struct bench_tensor *t)
{
    size_t bytes = t->count * dtype_bytes(t->tensor.dtype);
    unsigned char *data = allocate(bytes, 1);
    for (size_t i = 0; i < t->count; i++) {
        if (t->tensor.dtype == DTYPE_F32) {
            float value = (float)t->values[i];
            memcpy(data + 4 * i, &value, 4);
            t->values[i] = (double)value;
        } else if (t->tensor.dtype == DTYPE_BF16) {
            uint16_t bits = reference_bf16_bits((float)t->values[i]);
            memcpy(data + 2 * i, &bits, 2);
            t->values[i] = (double)reference_bf16_value(bits);
        } else {
            data[i] = (unsigned char)t->values[i];
            t->values[i] = (double)data[i];
        }
    }
    MUST(device_copy_to_device(bench->dev, bench->stream, t->tensor.buffer, t->tensor.offset, data,
                               bytes));
    MUST(device_stream_wait(bench->dev, bench->stream));
    free(data);
}

struct bench_tensor *op_bench_tensor(struct op_bench *bench, enum dtype dtype, int n, int h, int w,
                                     int c, double spread)
{
    ck_assert_int_lt(bench->count, OP_BENCH_TENSORS);
    struct bench_tensor *t = allocate(1, sizeof *t);
    bench->tensors[bench->count++] = t;
    t->tensor =
        (struct tensor){.dtype = dtype, .n = n, .h = h, .w = w, .c = c, .offset = bench->offset};
    t->count = tensor_elements(&t->tensor);
    t->values = doubles(t->count);
    MUST(device_buffer_create(bench->dev, t->tensor.offset + tensor_bytes(&t->tensor),
                              &t->tensor.buffer));
    for (size_t i = 0; i < t->count; i++) {
        if (dtype == DTYPE_U8) {
            t->values[i] = (double)rng_below(&bench->rng, 256);
        } else {
            t->values[i] = spread != 0.0 ? spread * rng_normal(&bench->rng) : (double)NAN;
        }
    }
    op_bench_upload(bench, t);
    return t;
}

void op_bench_put_scalars(struct op_bench *bench, struct bench_tensor *t,
                          const struct step_scalars *scalars)
{
    float values[sizeof *scalars / sizeof(float)];
    memcpy(values, scalars, sizeof values);
    for (size_t i = 0; i < t->count; i++) {
        t->values[i] = (double)values[i];
    }
    op_bench_upload(bench, t);
}

/* --- Running ---------------------------------------------------------------------------------- */

static unsigned char *fetch_bytes(struct op_bench *b, const struct tensor *t)
{
    const size_t bytes = tensor_bytes(t);
    unsigned char *data = allocate(bytes, 1);
    MUST(device_copy_to_host(b->dev, b->stream, data, t->buffer, t->offset, bytes));
    MUST(device_stream_wait(b->dev, b->stream));
    return data;
}

static bool reads_what_it_writes(const struct op_tensor *tensors, int count)
{
    for (int i = 0; i < count; i++) {
        for (int j = 0; j < count; j++) {
            const struct tensor *a = tensors[i].tensor, *c = tensors[j].tensor;
            if (a->buffer && (tensors[i].access & OP_WRITES) && (tensors[j].access & OP_READS) &&
                a->buffer == c->buffer && a->offset == c->offset) {
                return true;
            }
        }
    }
    return false;
}

/* What the operation wrote is the same bits when it runs again, many times: a library's word for it
 * is not enough. Operations that read what they write cannot be repeated. */
static void run_again(struct op_bench *b, const struct op_desc *desc, device_op *op)
{
    struct op_tensor tensors[OP_TENSORS_MAX];
    const int count = device__op_tensors(desc, tensors);
    unsigned char *first[OP_TENSORS_MAX] = {NULL};
    if (reads_what_it_writes(tensors, count)) {
        return;
    }
    for (int again = 0; again <= b->repeats; again++) {
        if (again > 0) {
            MUST(device_op_submit(b->dev, op, b->stream));
        }
        for (int i = 0; i < count; i++) {
            const struct tensor *t = tensors[i].tensor;
            if (!t->buffer || !(tensors[i].access & OP_WRITES)) {
                continue;
            }
            unsigned char *now = fetch_bytes(b, t);
            if (again == 0) {
                first[i] = now;
                continue;
            }
            ck_assert_msg(memcmp(first[i], now, tensor_bytes(t)) == 0,
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

void op_bench_run_op(struct op_bench *b, const struct op_desc *desc, device_op *op)
{
    MUST(device_op_submit(b->dev, op, b->stream));
    MUST(device_stream_wait(b->dev, b->stream));
    if (b->repeats > 0) {
        run_again(b, desc, op);
    }
}

void op_bench_run(struct op_bench *bench, const struct op_desc *desc)
{
    device_op *op = NULL;
    MUST(device_op_create(bench->dev, desc, &op));
    op_bench_run_op(bench, desc, op);
    device_op_destroy(bench->dev, &op);
    ck_assert_ptr_null(op);
}

/* --- Comparing -------------------------------------------------------------------------------- */

void op_bench_fetch(struct op_bench *b, const struct bench_tensor *t, double *values)
{
    unsigned char *data = fetch_bytes(b, &t->tensor);
    for (size_t i = 0; i < t->count; i++) {
        if (t->tensor.dtype == DTYPE_F32) {
            float value;
            memcpy(&value, data + 4 * i, 4);
            values[i] = (double)value;
        } else {
            uint16_t bits;
            memcpy(&bits, data + 2 * i, 2);
            values[i] = (double)reference_bf16_value(bits);
        }
    }
    free(data);
}

static void compare_whole(const struct op_bench *b, const struct tensor *t, const double *got,
                          const double *want, enum op_result result, const char *what)
{
    double difference = 0.0, size = 0.0;
    for (size_t i = 0; i < tensor_elements(t); i++) {
        difference += (got[i] - want[i]) * (got[i] - want[i]);
        size += want[i] * want[i];
    }
    const double error = size > 0.0 ? sqrt(difference / size) : sqrt(difference);
    const double bound = b->bounds[result][t->dtype == DTYPE_BF16           ? OP_BOUND_BF16
                                           : b->precision == PRECISION_BF16 ? OP_BOUND_WIDE
                                           : b->precision == PRECISION_TF32 ? OP_BOUND_TF32
                                                                            : OP_BOUND_F32];
    printf("    %-60s %4d x %3d x %3d x %4d  error %.2e\n", what, t->n, t->h, t->w, t->c, error);
    /* Negated so that a NaN does not pass. */
    if (!(error <= bound)) {
        ck_abort_msg("%s of %d x %d x %d x %d: error %g is over %g", what, t->n, t->h, t->w, t->c,
                     error, bound);
    }
}

static void compare_each(const struct op_bench *b, const struct tensor *t, const double *got,
                         const double *want, enum op_result result, const char *what)
{
    double largest = 0.0;
    for (size_t i = 0; i < tensor_elements(t); i++) {
        largest = fmax(largest, fabs(want[i]));
    }
    /* BF16 results may be off by half a unit of their last place on top. */
    double relative = b->relative + (t->dtype == DTYPE_BF16 ? 1.0 / 256.0 : 0.0);
    double absolute = b->absolute * largest;
    if (result == OP_RESULT_EXACT) {
        relative = absolute = 0.0;
    }
    for (size_t i = 0; i < tensor_elements(t); i++) {
        /* Negated so that a NaN does not pass. */
        if (!(fabs(got[i] - want[i]) <= relative * fabs(want[i]) + absolute)) {
            ck_abort_msg("%s, %dx%dx%dx%d: element %zu is %.9g and must be %.9g (largest %.3g)",
                         what, t->n, t->h, t->w, t->c, i, got[i], want[i], largest);
        }
    }
}

void op_bench_compare_values(const struct op_bench *b, const struct tensor *t, const double *got,
                             const double *want, enum op_result result, const char *what)
{
    if (b->bounds) {
        compare_whole(b, t, got, want, result, what);
    } else {
        compare_each(b, t, got, want, result, what);
    }
}

void op_bench_compare_as(struct op_bench *bench, const struct bench_tensor *t, const double *want,
                         enum op_result result, const char *what)
{
    double *got = doubles(t->count);
    op_bench_fetch(bench, t, got);
    op_bench_compare_values(bench, &t->tensor, got, want, result, what);
    free(got);
}

void op_bench_compare(struct op_bench *bench, const struct bench_tensor *t, const double *want,
                      const char *what)
{
    op_bench_compare_as(bench, t, want, OP_RESULT_PRODUCT, what);
}
