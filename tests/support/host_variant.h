/* The host device with each set of loops that it may have, for tests of its operations. */
#ifndef PINLINE_TESTS_SUPPORT_HOST_VARIANT_H
#define PINLINE_TESTS_SUPPORT_HOST_VARIANT_H

#include <stdbool.h>

#include "tests/support/op_bench.h"

/* Sets of loops: generic, AVX2, AVX-512. */
#define HOST_VARIANT_KERNELS 3

/* What loop tests run over: variant / 2 is the set of loops, variant % 2 the data type. */
#define HOST_VARIANTS (HOST_VARIANT_KERNELS * 2)

/* A deferred host device with the loops "generic", "avx2" or "avx512"; NULL, with the reason printed,
 * where this processor lacks them. */
device *host_variant_open_device(const char *kernels, int threads);

/* A bench on such a device with two threads; false when this processor lacks the variant's loops. */
bool host_variant_open(int variant, struct op_bench *bench);
void host_variant_close(struct op_bench *bench);

#endif
