/* What the files of cases share. */
#ifndef PINLINE_TESTS_OP_CASES_INTERNAL_H
#define PINLINE_TESTS_OP_CASES_INTERNAL_H

#include <stddef.h>

#include "tests/support/op_cases.h"

/* `count` zeros, for the caller to free. */
double *op_cases__doubles(size_t count);

/* `length` numbers in float32, whatever the bench's type. */
struct bench_tensor *op_cases__vector(struct op_bench *bench, int length, double spread);

struct bench_tensor *op_cases__scalars(struct op_bench *bench, const struct step_scalars *scalars);

struct reference_shape op_cases__shape(const struct bench_tensor *tensor);

#endif
