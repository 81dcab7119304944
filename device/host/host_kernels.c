#include "device/host/host_kernels.h"

#include <string.h>

const struct host_kernels *host__kernels(const char *limit)
{
    const struct host_kernels *tables[3];
    int count = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq")) {
        tables[count++] = &host__kernels_avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        tables[count++] = &host__kernels_avx2;
    }
#endif
    tables[count++] = &host__kernels_generic;
    for (int i = 0; i < count; i++) {
        if (limit == NULL || strcmp(limit, tables[i]->name) == 0) {
            return tables[i];
        }
    }
    return NULL;
}
