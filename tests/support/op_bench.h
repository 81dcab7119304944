/*
 * A bench for one operation of a device: tensors together with the values that they hold, running,
 * and comparing with what is right. Asserts (Check) and prints what was compared, its shape, and the
 * worst element or the error of the whole tensor, when it fails.
 */
#ifndef PINLINE_TESTS_OP_BENCH_H
#define PINLINE_TESTS_OP_BENCH_H

#include <check.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "device/device.h"

/* Fails the test with the status's own message. */
#define MUST(expression)                                                                           \
    do {                                                                                           \
        if ((expression) != STATUS_OK) {                                                           \
            ck_abort_msg("%s: %s\n%s", #expression, status_message(), status_trace_text());        \
        }                                                                                          \
    } while (0)

#define OP_BENCH_TENSORS 24

/* What a result is, by how its error comes about. */
enum op_result {
    OP_RESULT_EXACT = 0,     /* values are chosen, or rounded once: max pool, ReLU backward, cast */
    OP_RESULT_POINTWISE,     /* a few roundings: add, ingest, pool backward, dresidual */
    OP_RESULT_NORM,          /* a normalised map */
    OP_RESULT_STATISTIC,     /* sums over places in float32: mean, deviation, bias gradient */
    OP_RESULT_NORM_GRADIENT, /* dx, dscale, dbias */
    OP_RESULT_AVERAGE,       /* over a map, and its gradient */
    OP_RESULT_PRODUCT,       /* convolutions */
    OP_RESULT_LINEAR,        /* products of float32 in every precision */
    OP_RESULT_LOSS,
    OP_RESULT_LOSS_GRADIENT,
    OP_RESULT_UPDATE, /* parameters and moments */
    OP_RESULT_CHANGE, /* of the parameters, not hidden behind their size; with `bounds` alone */
    OP_RESULTS
};

/* Places in a row of bounds: results in float32 under each precision of float32 data, in bfloat16,
 * and results in float32 of bfloat16 data. */
enum { OP_BOUND_F32, OP_BOUND_TF32, OP_BOUND_BF16, OP_BOUND_WIDE, OP_BOUNDS };

/* A device and how closely it must agree. An element agrees when
 * |got - want| <= relative * |want| + absolute * (largest |want| of the tensor). Fields from `offset` on
 * may be changed between cases. */
struct op_bench {
    device *dev;
    device_stream *stream;
    enum dtype dtype; /* of data tensors: DTYPE_F32 or DTYPE_BF16 */
    double relative, absolute;
    size_t offset;         /* of each tensor in its buffer [48] */
    double x_size, w_size; /* of a convolution's x, and of its w and dy, times what is usual [1] */
    double shift; /* added to what is summed over maps: around zero such a sum is mostly lost [0] */
    int repeats;  /* how often each operation runs again, to leave the same bits [0] */
    /* Not NULL: the most that |got - want| / |want| over a whole tensor may be, printed for each
     * result, in place of `relative` and `absolute`; a row for each enum op_result. */
    const double (*bounds)[OP_BOUNDS];
    enum precision precision; /* the device's; with `bounds` [PRECISION_F32] */
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
/* The tensor's values as they are on the device. */
void op_bench_fetch(struct op_bench *bench, const struct bench_tensor *tensor, double *values);
/* Sets a tensor of scalars, as op_bench_tensor made it with as many floats as there are. */
#define OP_BENCH_SCALARS ((int)(sizeof(struct step_scalars) / sizeof(float)))
void op_bench_put_scalars(struct op_bench *bench, struct bench_tensor *tensor,
                          const struct step_scalars *scalars);
/* Creates, submits and waits for the operation, `repeats` times again unless it reads what it writes,
 * then destroys it. */
void op_bench_run(struct op_bench *bench, const struct op_desc *desc);
/* The same for an operation that the caller created from *desc and destroys. */
void op_bench_run_op(struct op_bench *bench, const struct op_desc *desc, device_op *op);
/* The tensor's elements on the device against `want`. OP_RESULT_EXACT leaves no room in any bench;
 * otherwise `result` matters to `bounds` alone. */
void op_bench_compare_as(struct op_bench *bench, const struct bench_tensor *tensor,
                         const double *want, enum op_result result, const char *what);
void op_bench_compare(struct op_bench *bench, const struct bench_tensor *tensor, const double *want,
                      const char *what); /* as OP_RESULT_PRODUCT */
/* Values that were fetched or worked out, of the type and shape of `tensor`. */
void op_bench_compare_values(const struct op_bench *bench, const struct tensor *tensor,
                             const double *got, const double *want, enum op_result result,
                             const char *what);
/* Frees the case's tensors. */
void op_bench_reset(struct op_bench *bench);

#endif
