/* Opening and closing, facts, streams, events and copies; the table of functions of this device. */
#include <assert.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cuda/cuda_doctor.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/cuda_plans.h"
#include "device/cuda/plan_search.h"

#define OLDEST_CUDNN 91000
#define OLDEST_CUDA 12000

/* --- Failures ------------------------------------------------------------------------------- */

enum status cuda__fail(cudaError_t error, const char *call, const char *file, int line)
{
    (void)cudaGetLastError();
    return status_record(error == cudaErrorMemoryAllocation ? STATUS_NO_MEMORY : STATUS_DEVICE,
                         file, line, "CUDA: %s (%s) in %s", cudaGetErrorString(error),
                         cudaGetErrorName(error), call);
}

enum status cuda__fail_cudnn(cudnnStatus_t error, const char *call, const char *file, int line)
{
    char reason[768] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    return status_record(STATUS_DEVICE, file, line, "cuDNN: %s in %s: %s",
                         cudnnGetErrorString(error), call, reason);
}

enum status cuda__fail_cublas(cublasStatus_t error, const char *call, const char *file, int line)
{
    return status_record(error == CUBLAS_STATUS_ALLOC_FAILED ? STATUS_NO_MEMORY : STATUS_DEVICE,
                         file, line, "cuBLAS: %s in %s", cublasLtGetStatusString(error), call);
}

/* --- Facts ---------------------------------------------------------------------------------- */

static void version_text(int version, char *text, size_t bytes)
{
    snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

int cuda__numa_node(const char *pci_bus)
{
    char path[96];
    char address[32];
    size_t i = 0;
    for (; pci_bus[i] != '\0' && i + 1 < sizeof address; i++) {
        address[i] = (char)tolower((unsigned char)pci_bus[i]);
    }
    address[i] = '\0';
    snprintf(path, sizeof path, "/sys/bus/pci/devices/%s/numa_node", address);
    FILE *file = fopen(path, "r");
    int node = -1;
    if (file != NULL) {
        if (fscanf(file, "%d", &node) != 1) {
            node = -1;
        }
        fclose(file);
    }
    return node;
}

static enum status read_facts(device *dev, struct device_facts *facts)
{
    struct cuda_device *cuda = cuda_of(dev);
    *facts = (struct device_facts){.kind = DEVICE_CUDA, .copies_are_real = true};
    snprintf(facts->name, sizeof facts->name, "%.127s", cuda->properties.name);
    snprintf(facts->driver, sizeof facts->driver, "%.31s", nvml_driver(cuda->nvml));
    int runtime = 0;
    CUDA_TRY(cudaRuntimeGetVersion(&runtime));
    version_text(runtime, facts->runtime, sizeof facts->runtime);
    size_t cudnn = cudnnGetVersion();
    snprintf(facts->cudnn, sizeof facts->cudnn, "%zu.%zu.%zu", cudnn / 10000, cudnn / 100 % 100,
             cudnn % 100);
    size_t blas = cublasLtGetVersion();
    snprintf(facts->blas, sizeof facts->blas, "cuBLAS %zu.%zu.%zu", blas / 10000, blas / 100 % 100,
             blas % 100);
    CUDA_TRY(cudaDeviceGetPCIBusId(facts->pci_bus, sizeof facts->pci_bus, cuda->index));
    facts->compute_major = cuda->properties.major;
    facts->compute_minor = cuda->properties.minor;
    struct nvml_link link;
    nvml_read_link(cuda->nvml, &link);
    facts->pcie_generation = link.generation;
    facts->pcie_width = link.width;
    facts->numa_node = cuda__numa_node(facts->pci_bus);
    size_t available = 0;
    size_t total = 0;
    CUDA_TRY(cudaMemGetInfo(&available, &total));
    facts->memory_free = available;
    facts->memory_total = total;
    return STATUS_OK;
}

static void read_sample(device *dev, struct device_sample *sample)
{
    nvml_read_sample(cuda_of(dev)->nvml, sample);
}

/* --- Streams and events --------------------------------------------------------------------- */

static enum status stream_create(device *dev, const char *name, device_stream **out)
{
    *out = NULL;
    struct device_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a stream");
    }
    stream->name = name;
    cudaError_t error = cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking);
    if (error != cudaSuccess) {
        free(stream);
        CUDA_TRY(error);
    }
    cuda_link_add(&cuda_of(dev)->streams, &stream->link, stream);
    *out = stream;
    return STATUS_OK;
}

static void stream_destroy(device *dev, device_stream *stream)
{
    struct cuda_device *cuda = cuda_of(dev);
    if (cuda->cudnn_stream == stream->stream) {
        (void)cudnnSetStream(cuda->cudnn, cuda->tune_stream);
        cuda->cudnn_stream = cuda->tune_stream;
    }
    cuda_link_remove(&stream->link);
    (void)cudaStreamDestroy(stream->stream);
    free(stream);
}

static enum status stream_wait(device *dev, device_stream *stream)
{
    (void)dev;
    CUDA_TRY(cudaStreamSynchronize(stream->stream));
    return STATUS_OK;
}

static enum status synchronize(device *dev)
{
    (void)dev;
    CUDA_TRY(cudaDeviceSynchronize());
    return STATUS_OK;
}

static enum status event_create(device *dev, bool timed, device_event **out)
{
    *out = NULL;
    struct device_event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for an event");
    }
    unsigned flags = timed ? cudaEventDefault : cudaEventDisableTiming;
    if (!cuda_of(dev)->settings.spin) {
        flags |= cudaEventBlockingSync;
    }
    event->timed = timed;
    cudaError_t error = cudaEventCreateWithFlags(&event->event, flags);
    if (error != cudaSuccess) {
        free(event);
        CUDA_TRY(error);
    }
    cuda_link_add(&cuda_of(dev)->events, &event->link, event);
    *out = event;
    return STATUS_OK;
}

static void event_destroy(device *dev, device_event *event)
{
    (void)dev;
    cuda_link_remove(&event->link);
    (void)cudaEventDestroy(event->event);
    free(event);
}

static enum status event_record(device *dev, device_event *event, device_stream *stream)
{
    (void)dev;
    CUDA_TRY(cudaEventRecord(event->event, stream->stream));
    return STATUS_OK;
}

static enum status event_await(device *dev, device_event *event, device_stream *stream)
{
    (void)dev;
    CUDA_TRY(cudaStreamWaitEvent(stream->stream, event->event, 0));
    return STATUS_OK;
}

static enum status event_query(device *dev, device_event *event, bool *complete)
{
    (void)dev;
    cudaError_t error = cudaEventQuery(event->event);
    *complete = error == cudaSuccess;
    if (error != cudaErrorNotReady) {
        CUDA_TRY(error);
    }
    return STATUS_OK;
}

static enum status event_wait(device *dev, device_event *event)
{
    (void)dev;
    CUDA_TRY(cudaEventSynchronize(event->event));
    return STATUS_OK;
}

static enum status event_elapsed(device *dev, device_event *from, device_event *to, double *ms)
{
    (void)dev;
    float value = 0;
    CUDA_TRY(cudaEventElapsedTime(&value, from->event, to->event));
    *ms = value;
    return STATUS_OK;
}

/* --- Copies --------------------------------------------------------------------------------- */

static char *place(const device_buffer *buffer, size_t offset)
{
    return (char *)((const struct cuda_buffer *)(const void *)buffer)->data + offset;
}

static enum status copy_to_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const void *from, size_t bytes)
{
    (void)dev;
    CUDA_TRY(
        cudaMemcpyAsync(place(to, to_offset), from, bytes, cudaMemcpyHostToDevice, stream->stream));
    return STATUS_OK;
}

static enum status copy_to_host(device *dev, device_stream *stream, void *to,
                                const device_buffer *from, size_t from_offset, size_t bytes)
{
    (void)dev;
    CUDA_TRY(cudaMemcpyAsync(to, place(from, from_offset), bytes, cudaMemcpyDeviceToHost,
                             stream->stream));
    return STATUS_OK;
}

static enum status copy_on_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const device_buffer *from, size_t from_offset,
                                  size_t bytes)
{
    (void)dev;
    CUDA_TRY(cudaMemcpyAsync(place(to, to_offset), place(from, from_offset), bytes,
                             cudaMemcpyDeviceToDevice, stream->stream));
    return STATUS_OK;
}

static enum status zero(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                        size_t bytes)
{
    (void)dev;
    CUDA_TRY(cudaMemsetAsync(place(to, to_offset), 0, bytes, stream->stream));
    return STATUS_OK;
}

/* --- Opening -------------------------------------------------------------------------------- */

static void close_device(device *dev)
{
    struct cuda_device *cuda = cuda_of(dev);
    (void)cudaDeviceSynchronize();
    struct cuda_link *next = NULL;
    for (struct cuda_link *link = cuda->programs; link != NULL; link = next) {
        next = link->next;
        cuda__program_destroy(dev, link->object);
    }
    for (struct cuda_link *link = cuda->ops; link != NULL; link = next) {
        next = link->next;
        cuda__op_destroy(dev, link->object);
    }
    for (struct cuda_link *link = cuda->buffers; link != NULL; link = next) {
        next = link->next;
        cuda__buffer_destroy(dev, link->object);
    }
    for (struct cuda_link *link = cuda->events; link != NULL; link = next) {
        next = link->next;
        event_destroy(dev, link->object);
    }
    for (struct cuda_link *link = cuda->streams; link != NULL; link = next) {
        next = link->next;
        stream_destroy(dev, link->object);
    }
    plan_builders__close(&cuda->builders);
    cuda__plans_close(cuda);
    while (cuda->masks != NULL) {
        struct cuda_mask *mask = cuda->masks;
        cuda->masks = mask->next;
        (void)cudaFree(mask->bits);
        free(mask);
    }
    while (cuda->shared != NULL) {
        struct cuda_shared *shared = cuda->shared;
        cuda->shared = shared->next;
        (void)cudaFree(shared->data);
        free(shared);
    }
    cuda__free_tuning(cuda);
    (void)cudaFree(cuda->workspace);
    (void)cudaFree(cuda->ones);
    if (cuda->cublas != NULL) {
        (void)cublasLtDestroy(cuda->cublas);
    }
    if (cuda->cudnn != NULL) {
        (void)cudnnDestroy(cuda->cudnn);
    }
    if (cuda->tune_stream != NULL) {
        (void)cudaStreamDestroy(cuda->tune_stream);
    }
    nvml_close(&cuda->nvml);
    free(cuda);
}

static const struct device_backend backend = {
    .name = "cuda",
    .close = close_device,
    .read_facts = read_facts,
    .read_sample = read_sample,
    .buffer_create = cuda__buffer_create,
    .buffer_destroy = cuda__buffer_destroy,
    .host_buffer_create = cuda__host_buffer_create,
    .host_buffer_destroy = cuda__host_buffer_destroy,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_wait = stream_wait,
    .synchronize = synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .event_await = event_await,
    .event_query = event_query,
    .event_wait = event_wait,
    .event_elapsed = event_elapsed,
    .copy_to_device = copy_to_device,
    .copy_to_host = copy_to_host,
    .copy_on_device = copy_on_device,
    .zero = zero,
    .op_create = cuda__op_create,
    .op_destroy = cuda__op_destroy,
    .op_submit = cuda__op_submit,
    .program_create = cuda__program_create,
    .program_destroy = cuda__program_destroy,
    .program_submit = cuda__program_submit,
    .program_is_captured = cuda__program_is_captured,
    .write_plans = cuda__write_plans,
    .plans_hash = cuda__plans_hash,
    .require_plans = cuda__require_plans,
    .delay_program_create = cuda__delay_program_create,
};

enum status cuda__check_machine(int index, int *count)
{
    int driver = 0;
    int runtime = 0;
    *count = 0;
    (void)cudaRuntimeGetVersion(&runtime);
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) {
        return FAIL(
            STATUS_NOT_FOUND,
            "no NVIDIA driver is installed or reachable (libcuda.so.1): install it, or in a "
            "container start it with the GPU (docker run --gpus all)");
    }
    cudaError_t error = cudaGetDeviceCount(count);
    if (error == cudaErrorInsufficientDriver || driver / 1000 < runtime / 1000) {
        (void)cudaGetLastError();
        return FAIL(STATUS_NOT_FOUND,
                    "the NVIDIA driver is too old: it serves CUDA %d.%d and the runtime here is "
                    "%d.%d; update the driver or give older libraries with --cuda-libs",
                    driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && *count == 0)) {
        (void)cudaGetLastError();
        return FAIL(
            STATUS_NOT_FOUND,
            "the driver sees no GPU: CUDA_VISIBLE_DEVICES may hide it, or the container was "
            "started without it");
    }
    CUDA_TRY(error);
    if (index >= *count) {
        return FAIL(STATUS_USAGE, "--device cuda:%d: there %s %d GPU%s here, cuda:0%s%.0d", index,
                    *count == 1 ? "is" : "are", *count, *count == 1 ? "" : "s",
                    *count == 1 ? "" : " to cuda:", *count == 1 ? 0 : *count - 1);
    }
    size_t cudnn = cudnnGetVersion();
    if (runtime < OLDEST_CUDA || cudnn < OLDEST_CUDNN) {
        return FAIL(STATUS_NOT_FOUND,
                    "CUDA %d.%d with cuDNN %zu.%zu.%zu was found; CUDA 12 and cuDNN 9.10 are the "
                    "oldest that do",
                    runtime / 1000, runtime % 1000 / 10, cudnn / 10000, cudnn / 100 % 100,
                    cudnn % 100);
    }
    size_t built = cudnnGetCudartVersion();
    if (built / 1000 != (size_t)runtime / 1000) {
        return FAIL(STATUS_NOT_FOUND,
                    "cuDNN %zu.%zu.%zu is made for CUDA %zu and the runtime here is CUDA %d.%d; "
                    "install the one that belongs to it",
                    cudnn / 10000, cudnn / 100 % 100, cudnn % 100, built / 1000, runtime / 1000,
                    runtime % 1000 / 10);
    }
    return STATUS_OK;
}

static enum status make_ones(struct cuda_device *cuda)
{
    void *memory = NULL;
    TRY(cuda__allocate(cuda, CUDA_ONES * (sizeof(float) + 2), "constants", &memory));
    cuda->ones = memory;
    float *values = malloc(CUDA_ONES * (sizeof(float) + 2));
    if (values == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for constants");
    }
    uint16_t *halves = (uint16_t *)(void *)(values + CUDA_ONES);
    for (size_t i = 0; i < CUDA_ONES; i++) {
        values[i] = 1.0F;
        halves[i] = 0x3f80;
    }
    cudaError_t error = cudaMemcpyAsync(memory, values, CUDA_ONES * (sizeof(float) + 2),
                                        cudaMemcpyHostToDevice, cuda->tune_stream);
    if (error == cudaSuccess) {
        error = cudaStreamSynchronize(cuda->tune_stream);
    }
    free(values);
    CUDA_TRY(error);
    return STATUS_OK;
}

static enum status open_device(struct cuda_device *cuda, const struct device_settings *settings)
{
    int count = 0;
    TRY(cuda__check_machine(settings->index, &count));
    cuda->index = settings->index;
    CUDA_TRY(cudaInitDevice(
        cuda->index, settings->spin ? cudaDeviceScheduleSpin : cudaDeviceScheduleBlockingSync,
        cudaInitDeviceFlagsAreValid));
    CUDA_TRY(cudaSetDevice(cuda->index));
    CUDA_TRY(cudaGetDeviceProperties(&cuda->properties, cuda->index));
    char bus[32] = "";
    CUDA_TRY(cudaDeviceGetPCIBusId(bus, sizeof bus, cuda->index));
    cuda->nvml = nvml_open(bus);
    CUDA_TRY(cudaStreamCreateWithFlags(&cuda->tune_stream, cudaStreamNonBlocking));
    CUDNN_TRY(cudnnCreate(&cuda->cudnn));
    CUDNN_TRY(cudnnSetStream(cuda->cudnn, cuda->tune_stream));
    cuda->cudnn_stream = cuda->tune_stream;
    CUBLAS_TRY(cublasLtCreate(&cuda->cublas));
    TRY(make_ones(cuda));
    TRY(cuda__plans_open(cuda));
    return STATUS_OK;
}

enum status pinline_cuda_open(const struct device_settings *settings, device **out)
{
    *out = NULL;
    struct cuda_device *cuda = calloc(1, sizeof *cuda);
    if (cuda == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a device");
    }
    cuda->base.backend = &backend;
    cuda->settings = *settings;
    cuda->generation = 1;
    uint64_t start = clock_now_ns();
    enum status status = open_device(cuda, settings);
    cuda->settings.plan_cache = NULL;
    cuda->settings.cuda_libs = NULL;
    if (status != STATUS_OK) {
        close_device(&cuda->base);
        return status;
    }
    log_verbose("device opened in %.2f s", clock_seconds(start, clock_now_ns()));
    *out = &cuda->base;
    return STATUS_OK;
}

int pinline_cuda_version(void)
{
    return DEVICE_PLUGIN_VERSION;
}
