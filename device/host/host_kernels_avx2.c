/* The loops for x86-64 processors with AVX2 and FMA. */
#include "device/host/host_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "device/device.h"

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("O3")
#pragma GCC target("avx2,fma")
#endif

#define KERNEL_TABLE host__kernels_avx2
#define KERNEL_NAME "avx2"
#define VEC_WIDTH 8
#define PIXELS 6
#define FILTERS 4

typedef __m256 vec;

static inline vec vec_load(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void vec_store(float *to, vec value)
{
    _mm256_storeu_ps(to, value);
}

static inline vec vec_set(float value)
{
    return _mm256_set1_ps(value);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* Of a NaN and a number the instruction returns its second operand. */
static inline vec vec_relu(vec a)
{
    return _mm256_max_ps(_mm256_setzero_ps(), a);
}

#include "device/host/host_kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
