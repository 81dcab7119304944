#include "tests/support/host_variant.h"

#include <check.h>
#include <stdio.h>

#include "device/host/host_internal.h"

static const char *const kernel_names[HOST_VARIANT_KERNELS] = {"generic", "avx2", "avx512"};

device *host_variant_open_device(const char *kernels, int threads)
{
    struct device_settings settings;
    device *dev = NULL;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_HOST;
    settings.host_threads = threads;
    /* Deferred: buffers begin as NaN, so that an element left unwritten shows. */
    settings.host_mode = HOST_DEFERRED;
    enum status status = host__open_with_kernels(&settings, kernels, &dev);
    if (status == STATUS_UNSUPPORTED) {
        printf("skipped: %s\n", status_message());
        return NULL;
    }
    MUST(status);
    return dev;
}

/* Float32 sums of a few thousand terms are off by a few units of their last place (6e-8 each) times the
 * root of their number. */
bool host_variant_open(int variant, struct op_bench *bench)
{
    device *dev = host_variant_open_device(kernel_names[variant / 2], 2);
    if (dev == NULL) {
        return false;
    }
    op_bench_init(bench, dev, variant % 2 == 0 ? DTYPE_F32 : DTYPE_BF16, 3e-6, 2e-6,
                  (uint64_t)variant);
    return true;
}

void host_variant_close(struct op_bench *bench)
{
    device *dev = bench->dev;
    op_bench_fini(bench);
    device_close(&dev);
    ck_assert_ptr_null(dev);
}
