/* Device memory, workspace, the memory in which plans are timed, and host memory for staging. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/size.h"
#include "base/system.h"
#include "device/cuda/cuda_internal.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

/* --- Device memory -------------------------------------------------------------------------- */

enum status cuda__allocate(struct cuda_device *dev, size_t bytes, const char *purpose, void **out)
{
    *out = NULL;
    cudaError_t error = cudaMalloc(out, bytes == 0 ? 256 : bytes);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        cuda__free_tuning(dev);
        error = cudaMalloc(out, bytes == 0 ? 256 : bytes);
    }
    if (error == cudaErrorMemoryAllocation) {
        size_t available = 0;
        size_t total = 0;
        (void)cudaGetLastError();
        (void)cudaMemGetInfo(&available, &total);
        *out = NULL;
        return FAIL(STATUS_NO_MEMORY,
                    "%s: %zu bytes (%.2f GiB) of device memory were asked for, %zu (%.2f GiB) of "
                    "%.1f GiB are free on %s; a smaller --batch-size or --size needs less",
                    purpose, bytes, (double)bytes / GIB, available, (double)available / GIB,
                    (double)total / GIB, dev->properties.name);
    }
    CUDA_TRY(error);
#ifdef PINLINE_POISON
    /* A test build: what reads memory that nothing wrote finds NaN. */
    CUDA_TRY(cudaMemset(*out, 0xff, bytes));
    CUDA_TRY(cudaDeviceSynchronize());
#endif
    return STATUS_OK;
}

enum status cuda__buffer_create(device *dev, size_t bytes, device_buffer **out)
{
    *out = NULL;
    struct cuda_buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a buffer");
    }
    enum status status = cuda__allocate(cuda_of(dev), bytes, "buffer", &buffer->data);
    if (status != STATUS_OK) {
        free(buffer);
        return status;
    }
    buffer->base.bytes = bytes;
    cuda_link_add(&cuda_of(dev)->buffers, &buffer->link, buffer);
    *out = &buffer->base;
    return STATUS_OK;
}

void cuda__buffer_destroy(device *dev, device_buffer *buffer)
{
    (void)dev;
    struct cuda_buffer *cuda = (struct cuda_buffer *)(void *)buffer;
    cuda_link_remove(&cuda->link);
    (void)cudaFree(cuda->data);
    free(cuda);
}

enum status cuda__need_workspace(struct cuda_device *dev, size_t bytes)
{
    if (bytes <= dev->workspace_bytes) {
        return STATUS_OK;
    }
    /* cudaFree waits for what still uses the old one. */
    CUDA_TRY(cudaDeviceSynchronize());
    if (dev->workspace != NULL) {
        CUDA_TRY(cudaFree(dev->workspace));
        dev->workspace = NULL;
        dev->workspace_bytes = 0;
    }
    dev->generation++;
    size_t rounded = size_align(bytes, (size_t)1 << 20);
    TRY(cuda__allocate(dev, rounded, "workspace", &dev->workspace));
    /* cuDNN promises to need no zeros there; some of its kernels read before they write. */
    CUDA_TRY(cudaMemset(dev->workspace, 0, rounded));
    CUDA_TRY(cudaDeviceSynchronize());
    dev->workspace_bytes = rounded;
    return STATUS_OK;
}

void cuda__free_tuning(struct cuda_device *dev)
{
    if (dev->tuning != NULL) {
        (void)cudaStreamSynchronize(dev->tune_stream);
        (void)cudaFree(dev->tuning);
        dev->tuning = NULL;
        dev->tuning_bytes = 0;
    }
}

/* Halves of a float that are a bfloat16 each, between 2^-7 and 2 in size. Zeros would flatter: the
 * GPU computes faster on them. */
static void fill_random(uint16_t *values, size_t count)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < count; i++) {
        state = state * 1664525U + 1013904223U;
        uint32_t sign = state >> 31;
        uint32_t exponent = 120 + ((state >> 20) & 7);
        uint32_t mantissa = (state >> 8) & 0x7f;
        values[i] = (uint16_t)(sign << 15 | exponent << 7 | mantissa);
    }
}

static bool fill_tuning(struct cuda_device *dev)
{
    const size_t block = (size_t)4 << 20;
    uint16_t *values = malloc(block);
    if (values == NULL) {
        return false;
    }
    fill_random(values, block / 2);
    char *start = dev->tuning;
    size_t done = dev->tuning_bytes < block ? dev->tuning_bytes : block;
    bool filled = cudaMemcpyAsync(start, values, done, cudaMemcpyHostToDevice, dev->tune_stream) ==
                      cudaSuccess &&
                  cudaStreamSynchronize(dev->tune_stream) == cudaSuccess;
    free(values);
    while (filled && done < dev->tuning_bytes) {
        size_t part = dev->tuning_bytes - done < done ? dev->tuning_bytes - done : done;
        filled = cudaMemcpyAsync(start + done, start, part, cudaMemcpyDeviceToDevice,
                                 dev->tune_stream) == cudaSuccess;
        done += part;
    }
    return filled && cudaStreamSynchronize(dev->tune_stream) == cudaSuccess;
}

bool cuda__need_tuning(struct cuda_device *dev, size_t bytes)
{
    if (bytes <= dev->tuning_bytes) {
        return true;
    }
    cuda__free_tuning(dev);
    size_t rounded = size_align(bytes, (size_t)64 << 20);
    if (cudaMalloc(&dev->tuning, rounded) != cudaSuccess) {
        (void)cudaGetLastError();
        dev->tuning = NULL;
        return false;
    }
    dev->tuning_bytes = rounded;
    if (!fill_tuning(dev)) {
        cuda__free_tuning(dev);
        return false;
    }
    return true;
}

/* --- Host memory ---------------------------------------------------------------------------- */

static enum status check_room(size_t bytes)
{
    struct system_facts facts;
    system_read_facts(&facts);
    if (facts.memory_available > 0 && bytes > facts.memory_available) {
        return FAIL(STATUS_NO_MEMORY,
                    "%zu bytes (%.2f GiB) of host memory were asked for and %.2f GiB are free; a "
                    "smaller --batch-size or --prefetch needs less",
                    bytes, (double)bytes / GIB, (double)facts.memory_available / GIB);
    }
    return STATUS_OK;
}

/* What a refusal of the runtime to lock pages comes down to, and the ways out. */
static enum status refuse_lock(cudaError_t error, size_t bytes, const char *call)
{
    struct system_facts facts;
    system_read_facts(&facts);
    (void)cudaGetLastError();
    char limit[64] = "unlimited";
    if (facts.locked_limit != UINT64_MAX) {
        snprintf(limit, sizeof limit, "%.2f GiB", (double)facts.locked_limit / GIB);
    }
    return FAIL(
        error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_LIMIT,
        "%s refused to page-lock %zu bytes (%.2f GiB): %s; %.2f GiB are free, and the limit "
        "on locked memory (ulimit -l) is %s. Raise the limit, take a smaller --batch-size "
        "or --prefetch, or train with --no-pin-memory or --pin-memory auto",
        call, bytes, (double)bytes / GIB, cudaGetErrorString(error),
        (double)facts.memory_available / GIB, limit);
}

/* Asks the runtime what the memory is: hopes are not results. */
static enum status verify_lock(struct host_buffer *buffer, bool wanted)
{
    struct cudaPointerAttributes attributes;
    memset(&attributes, 0, sizeof attributes);
    cudaError_t error = cudaPointerGetAttributes(&attributes, buffer->data);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
    }
    unsigned flags = 0;
    bool locked = error == cudaSuccess && attributes.type == cudaMemoryTypeHost;
    if (locked && cudaHostGetFlags(&flags, buffer->data) != cudaSuccess) {
        (void)cudaGetLastError();
        locked = false;
    }
    buffer->page_locked = locked;
    if (locked != wanted) {
        return FAIL(STATUS_MISMATCH, "host memory was to be %s and the CUDA runtime says it is %s",
                    wanted ? "page-locked" : "pageable", locked ? "page-locked" : "pageable");
    }
    return STATUS_OK;
}

/* Pages of our own, all touched, under one advice whether they are locked later or not. */
static enum status map_pages(size_t bytes, void **out)
{
    void *pages = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) {
        return FAIL(STATUS_NO_MEMORY, "%zu bytes of host memory cannot be mapped: %s", bytes,
                    strerror(errno));
    }
    /* Advice that the kernel does not take changes nothing here. */
    (void)madvise(pages, bytes, MADV_HUGEPAGE);
    long page = sysconf(_SC_PAGESIZE);
    volatile char *touch = pages;
    for (size_t i = 0; i < bytes; i += (size_t)page) {
        touch[i] = 0;
    }
    *out = pages;
    return STATUS_OK;
}

static enum status create_pages(struct host_buffer *buffer)
{
    TRY(map_pages(buffer->bytes, &buffer->data));
    if (buffer->kind == HOST_MEMORY_REGISTERED) {
        uint64_t start = clock_now_ns();
        cudaError_t error = cudaHostRegister(buffer->data, buffer->bytes, cudaHostRegisterDefault);
        buffer->lock_seconds = clock_seconds(start, clock_now_ns());
        if (error != cudaSuccess) {
            return refuse_lock(error, buffer->bytes, "cudaHostRegister");
        }
        buffer->handle = buffer->data; /* registered: to be taken back */
    }
    return STATUS_OK;
}

static enum status create_allocated(struct host_buffer *buffer)
{
    uint64_t start = clock_now_ns();
    cudaError_t error = cudaHostAlloc(&buffer->data, buffer->bytes, cudaHostAllocDefault);
    buffer->lock_seconds = clock_seconds(start, clock_now_ns());
    if (error != cudaSuccess) {
        buffer->data = NULL;
        return refuse_lock(error, buffer->bytes, "cudaHostAlloc");
    }
    memset(buffer->data, 0, buffer->bytes);
    return STATUS_OK;
}

enum status cuda__host_buffer_create(device *dev, size_t bytes, enum host_memory kind,
                                     struct host_buffer *out)
{
    long page = sysconf(_SC_PAGESIZE);
    *out = (struct host_buffer){.bytes = size_align(bytes == 0 ? 1 : bytes, (size_t)page),
                                .kind = kind};
    enum status status = check_room(out->bytes);
    if (status == STATUS_OK) {
        status = kind == HOST_MEMORY_ALLOCATED ? create_allocated(out) : create_pages(out);
    }
    if (status == STATUS_OK) {
        status = verify_lock(out, kind != HOST_MEMORY_PAGEABLE);
    }
    if (status != STATUS_OK) {
        cuda__host_buffer_destroy(dev, out);
        return status;
    }
    out->bytes = bytes;
    return STATUS_OK;
}

void cuda__host_buffer_destroy(device *dev, struct host_buffer *buffer)
{
    (void)dev;
    if (buffer->data == NULL) {
        *buffer = (struct host_buffer){0};
        return;
    }
    if (buffer->kind == HOST_MEMORY_ALLOCATED) {
        (void)cudaFreeHost(buffer->data);
    } else {
        long page = sysconf(_SC_PAGESIZE);
        if (buffer->handle != NULL) {
            (void)cudaHostUnregister(buffer->data);
        }
        (void)munmap(buffer->data,
                     size_align(buffer->bytes == 0 ? 1 : buffer->bytes, (size_t)page));
    }
    *buffer = (struct host_buffer){0};
}
