/* The loops for x86-64 processors with AVX-512 (F, VL, BW, DQ). */
#include "device/host/host_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <math.h>
#include <string.h>

#include "device/device.h"

#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma"))), apply_to = function)
#else
#pragma GCC optimize("O3")
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,fma")
#endif

#define KERNEL_TABLE host__kernels_avx512
#define KERNEL_NAME "avx512"
#define VEC_WIDTH 16
#define PIXELS 8
#define FILTERS 8

typedef __m512 vec;

static inline vec vec_load(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void vec_store(float *to, vec value)
{
    _mm512_storeu_ps(to, value);
}

static inline vec vec_set(float value)
{
    return _mm512_set1_ps(value);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* Of a NaN and a number the instruction returns its second operand. */
static inline vec vec_relu(vec a)
{
    return _mm512_max_ps(_mm512_setzero_ps(), a);
}

#include "device/host/host_kernels_body.h"

#if defined(__clang__)
#pragma clang attribute pop
#endif

#endif
