/* The loops for any processor that the compiler supports. */
#include <math.h>
#include <string.h>

#include "device/device.h"
#include "device/host/host_kernels.h"

#if defined(__GNUC__) && !defined(__clang__)
/* The loops below are worth vectorising, which gcc 12 does thoroughly only from this level on. */
#pragma GCC optimize("O3")
#endif

#define KERNEL_TABLE host__kernels_generic
#define KERNEL_NAME "generic"
#define VEC_WIDTH 4
#define PIXELS 6
#define FILTERS 4

typedef float vec __attribute__((vector_size(16)));
typedef int32_t vec_bits __attribute__((vector_size(16)));

static inline vec vec_load(const float *from)
{
    vec value;
    memcpy(&value, from, sizeof value);
    return value;
}

static inline void vec_store(float *to, vec value)
{
    memcpy(to, &value, sizeof value);
}

static inline vec vec_set(float value)
{
    return (vec){value, value, value, value};
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return a * b + c;
}

/* All bits of the lanes below 0 are cleared. */
static inline vec vec_relu(vec a)
{
    vec_bits negative = a < vec_set(0.0F);
    return (vec)((vec_bits)a & ~negative);
}

#include "device/host/host_kernels_body.h"
