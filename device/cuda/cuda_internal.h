/*
 * What the files of the CUDA device share. The only place, with cudnn_graph.h and cuda_plans.h, where
 * the types of CUDA's libraries appear.
 */
#ifndef PINLINE_DEVICE_CUDA_INTERNAL_H
#define PINLINE_DEVICE_CUDA_INTERNAL_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>

#include "device/cuda/nvml.h"
#include "device/device_backend.h"

struct cuda_plans;
struct plan_builders;

/* A place in a list of what a device owns, so that closing finds what was not destroyed. */
struct cuda_link {
    struct cuda_link *next, **previous;
    void *object;
};

static inline void cuda_link_add(struct cuda_link **list, struct cuda_link *link, void *object)
{
    *link = (struct cuda_link){.next = *list, .previous = list, .object = object};
    if (link->next != NULL) {
        link->next->previous = &link->next;
    }
    *list = link;
}

static inline void cuda_link_remove(struct cuda_link *link)
{
    if (link->previous == NULL) {
        return;
    }
    *link->previous = link->next;
    if (link->next != NULL) {
        link->next->previous = link->previous;
    }
    *link = (struct cuda_link){0};
}

struct device_stream {
    struct cuda_link link;
    cudaStream_t stream;
    const char *name;
};

struct device_event {
    struct cuda_link link;
    cudaEvent_t event;
    bool timed;
};

/* Device memory; begins as every implementation's buffer does. */
struct cuda_buffer {
    struct device_buffer base;
    struct cuda_link link;
    void *data;
};

/* The bits that a normalisation with ReLU kept for its backward pass: one a value of y, set where
 * y > 0. Found again by the address and the shape of y. */
struct cuda_mask {
    struct cuda_mask *next;
    const void *y;
    size_t elements;
    void *bits;
    int users;
};

/* Memory that operations of the compute stream use one after another, each within its own run. */
struct cuda_shared {
    struct cuda_shared *next;
    size_t bytes;
    uint64_t purpose; /* what it is divided up for: only equal ones share */
    void *data;
    int users;
};

struct cuda_device {
    struct device base;
    struct device_settings settings; /* without the pointers, which live below */
    int index;                       /* CUDA's device number */
    struct cudaDeviceProp properties;
    cudnnHandle_t cudnn;
    cublasLtHandle_t cublas;
    cudaStream_t cudnn_stream; /* the stream that the cuDNN handle was last set to */
    cudaStream_t tune_stream;  /* for timing plans */
    struct nvml *nvml;         /* NULL when NVML is not there */

    /* One workspace for the compute stream. It grows when operations are created; `generation`
     * counts how often it moved, so that what holds its address notices. */
    void *workspace;
    size_t workspace_bytes;
    unsigned generation;

    /* Memory in which plans are timed, so that timing touches nobody's data. */
    void *tuning;
    size_t tuning_bytes;
    bool
        tuning_refused; /* there was not enough memory: plans are taken as the heuristics rank them */

    /* What is open; see struct cuda_link. */
    struct cuda_link *programs, *ops, *buffers, *events, *streams;

    struct cuda_plans *plans;
    struct plan_builders *builders; /* open while operations are created */
    struct cuda_mask *masks;
    struct cuda_shared *shared;
    float *ones; /* CUDA_ONES ones of float, then as many of bfloat16: for sums by matrix product */
};

/* The most terms of a sum by matrix product. */
#define CUDA_ONES 65536

static inline struct cuda_device *cuda_of(device *dev)
{
    return (struct cuda_device *)(void *)dev;
}

/* --- Checked calls -------------------------------------------------------------------------- */

/* Record a failed call with its text, the library's explanation and the place. STATUS_DEVICE, or
 * STATUS_NO_MEMORY where the library says that memory ran out. */
enum status cuda__fail(cudaError_t error, const char *call, const char *file, int line) MUST_USE;
enum status cuda__fail_cudnn(cudnnStatus_t error, const char *call, const char *file,
                             int line) MUST_USE;
enum status cuda__fail_cublas(cublasStatus_t error, const char *call, const char *file,
                              int line) MUST_USE;

#define CUDA_TRY(call)                                                                             \
    do {                                                                                           \
        cudaError_t cuda_try_error_ = (call);                                                      \
        if (cuda_try_error_ != cudaSuccess) {                                                      \
            return cuda__fail(cuda_try_error_, #call, __FILE__, __LINE__);                         \
        }                                                                                          \
    } while (0)

#define CUDNN_TRY(call)                                                                            \
    do {                                                                                           \
        cudnnStatus_t cudnn_try_error_ = (call);                                                   \
        if (cudnn_try_error_ != CUDNN_STATUS_SUCCESS) {                                            \
            return cuda__fail_cudnn(cudnn_try_error_, #call, __FILE__, __LINE__);                  \
        }                                                                                          \
    } while (0)

#define CUBLAS_TRY(call)                                                                           \
    do {                                                                                           \
        cublasStatus_t cublas_try_error_ = (call);                                                 \
        if (cublas_try_error_ != CUBLAS_STATUS_SUCCESS) {                                          \
            return cuda__fail_cublas(cublas_try_error_, #call, __FILE__, __LINE__);                \
        }                                                                                          \
    } while (0)

/* --- Memory (cuda_memory.c) ----------------------------------------------------------------- */

/* cudaMalloc that gives up the tuning memory before it fails; the message names what was asked, for
 * what, and what is free. STATUS_NO_MEMORY, STATUS_DEVICE. */
enum status cuda__allocate(struct cuda_device *dev, size_t bytes, const char *purpose,
                           void **out) MUST_USE;
/* Makes the workspace at least `bytes` long. */
enum status cuda__need_workspace(struct cuda_device *dev, size_t bytes) MUST_USE;
/* Makes the tuning memory at least `bytes` long, filled with random numbers that are ordinary values
 * both as float and as bfloat16. False when there is no room. */
bool cuda__need_tuning(struct cuda_device *dev, size_t bytes);
void cuda__free_tuning(struct cuda_device *dev);

enum status cuda__buffer_create(device *dev, size_t bytes, device_buffer **out) MUST_USE;
void cuda__buffer_destroy(device *dev, device_buffer *buffer);
enum status cuda__host_buffer_create(device *dev, size_t bytes, enum host_memory kind,
                                     struct host_buffer *out) MUST_USE;
void cuda__host_buffer_destroy(device *dev, struct host_buffer *buffer);

/* --- Operations (cuda_op*.c) ---------------------------------------------------------------- */

enum status cuda__op_create(device *dev, const struct op_desc *desc, device_op **out) MUST_USE;
void cuda__op_destroy(device *dev, device_op *op);
enum status cuda__op_submit(device *dev, device_op *op, device_stream *stream) MUST_USE;

/* --- Programs (cuda_program.c) -------------------------------------------------------------- */

enum status cuda__program_create(device *dev, device_op *const *ops, size_t count,
                                 device_stream *stream, device_program **out) MUST_USE;
void cuda__program_destroy(device *dev, device_program *program);
enum status cuda__program_submit(device *dev, device_program *program,
                                 device_stream *stream) MUST_USE;
bool cuda__program_is_captured(const device_program *program);
enum status cuda__delay_program_create(device *dev, double seconds, device_stream *stream,
                                       device_program **out, double *measured_seconds) MUST_USE;

#endif
