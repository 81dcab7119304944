/* Programs: a step captured into one graph, or replayed call by call where that is not possible. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/cuda/cuda_internal.h"
#include "device/cuda/cuda_plans.h"
#include "device/cuda/plan_search.h"

struct device_program {
    struct cuda_link link;
    device_op **ops;
    size_t count;
    cudaGraphExec_t launch; /* NULL: replayed */
    unsigned generation;    /* of the workspace whose address was captured */
    /* A delay: `repeats` fills of `bytes` bytes at `memory`, instead of operations. */
    void *memory;
    size_t bytes;
    int repeats;
};

static enum status issue(device *dev, const device_program *program, device_stream *stream)
{
    for (size_t i = 0; i < program->count; i++) {
        TRY(cuda__op_submit(dev, program->ops[i], stream));
    }
    for (int i = 0; i < program->repeats; i++) {
        CUDA_TRY(cudaMemsetAsync(program->memory, i & 1, program->bytes, stream->stream));
    }
    return STATUS_OK;
}

static void drop_launch(device_program *program)
{
    if (program->launch != NULL) {
        (void)cudaGraphExecDestroy(program->launch);
        program->launch = NULL;
    }
}

/* Captures the program. What cannot be captured is no failure: the program is replayed then. */
static enum status capture(device *dev, device_program *program, device_stream *stream)
{
    struct cuda_device *cuda = cuda_of(dev);
    drop_launch(program);
    program->generation = cuda->generation;
    if (!cuda->settings.capture) {
        return STATUS_OK;
    }
    cudaGraph_t graph = NULL;
    uint64_t start = clock_now_ns();
    /* Relaxed, because a kernel that is used for the first time is loaded by its first launch. */
    CUDA_TRY(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeRelaxed));
    enum status status = issue(dev, program, stream);
    cudaError_t error = cudaStreamEndCapture(stream->stream, &graph);
    if (status == STATUS_OK && error == cudaSuccess) {
        error = cudaGraphInstantiate(&program->launch, graph, 0);
    }
    if (status == STATUS_OK && error == cudaSuccess) {
        error = cudaGraphUpload(program->launch, stream->stream);
        log_verbose("program of %zu operations captured in %.2f s", program->count,
                    clock_seconds(start, clock_now_ns()));
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    if (status != STATUS_OK || error != cudaSuccess) {
        cudaError_t last = cudaGetLastError();
        log_warn("the step cannot be captured and is issued call by call: %s",
                 status != STATUS_OK ? status_message()
                                     : cudaGetErrorString(error != cudaSuccess ? error : last));
        status_clear();
        drop_launch(program);
    }
    return STATUS_OK;
}

enum status cuda__program_create(device *dev, device_op *const *ops, size_t count,
                                 device_stream *stream, device_program **out)
{
    *out = NULL;
    device_program *program = calloc(1, sizeof *program);
    if (program == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a program");
    }
    program->ops = calloc(count == 0 ? 1 : count, sizeof(device_op *));
    if (program->ops == NULL) {
        free(program);
        return FAIL(STATUS_NO_MEMORY, "no memory for a program");
    }
    memcpy(program->ops, ops, count * sizeof(device_op *));
    program->count = count;
    cuda__free_tuning(cuda_of(dev));
    plan_builders__close(&cuda_of(dev)->builders);
    cuda__plans_flush(cuda_of(dev));
    enum status status = capture(dev, program, stream);
    if (status != STATUS_OK) {
        cuda__program_destroy(dev, program);
        return status;
    }
    cuda_link_add(&cuda_of(dev)->programs, &program->link, program);
    *out = program;
    return STATUS_OK;
}

void cuda__program_destroy(device *dev, device_program *program)
{
    (void)dev;
    cuda_link_remove(&program->link);
    drop_launch(program);
    if (program->memory != NULL) {
        (void)cudaFree(program->memory);
    }
    free(program->ops);
    free(program);
}

enum status cuda__program_submit(device *dev, device_program *program, device_stream *stream)
{
    if (program->launch != NULL && program->generation != cuda_of(dev)->generation) {
        /* An operation created since then moved the workspace. */
        TRY(capture(dev, program, stream));
    }
    if (program->launch == NULL) {
        return issue(dev, program, stream);
    }
    CUDA_TRY(cudaGraphLaunch(program->launch, stream->stream));
    return STATUS_OK;
}

bool cuda__program_is_captured(const device_program *program)
{
    return program->launch != NULL;
}

/* --- Delays --------------------------------------------------------------------------------- */

static enum status time_program(device *dev, device_program *program, device_stream *stream,
                                cudaEvent_t from, cudaEvent_t to, double *seconds)
{
    float ms = 0;
    CUDA_TRY(cudaEventRecord(from, stream->stream));
    TRY(cuda__program_submit(dev, program, stream));
    CUDA_TRY(cudaEventRecord(to, stream->stream));
    CUDA_TRY(cudaEventSynchronize(to));
    CUDA_TRY(cudaEventElapsedTime(&ms, from, to));
    *seconds = ms / 1e3;
    return STATUS_OK;
}

/* Finds how many fills last `seconds`: from a first guess, corrected by what it took. */
static enum status calibrate(device *dev, device_program *program, double seconds,
                             device_stream *stream, cudaEvent_t from, cudaEvent_t to,
                             double *measured)
{
    program->repeats = 64;
    for (int round = 0; round < 4; round++) {
        TRY(capture(dev, program, stream));
        TRY(time_program(dev, program, stream, from, to, measured));
        TRY(time_program(dev, program, stream, from, to, measured));
        if (round == 3 || *measured <= 0) {
            break;
        }
        double repeats = program->repeats * seconds / *measured + 0.5;
        program->repeats = repeats < 1 ? 1 : repeats > 1e6 ? 1000000 : (int)repeats;
    }
    double again = 0;
    for (int i = 0; i < 2; i++) {
        TRY(time_program(dev, program, stream, from, to, &again));
        *measured = again < *measured ? again : *measured;
    }
    return STATUS_OK;
}

enum status cuda__delay_program_create(device *dev, double seconds, device_stream *stream,
                                       device_program **out, double *measured_seconds)
{
    *out = NULL;
    *measured_seconds = 0;
    device_program *program = calloc(1, sizeof *program);
    if (program == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a program");
    }
    cudaEvent_t from = NULL;
    cudaEvent_t to = NULL;
    enum status status = STATUS_OK;
    program->bytes = (size_t)64 << 20;
    status = cuda__allocate(cuda_of(dev), program->bytes, "delay", &program->memory);
    if (status == STATUS_OK &&
        (cudaEventCreate(&from) != cudaSuccess || cudaEventCreate(&to) != cudaSuccess)) {
        status = FAIL(STATUS_DEVICE, "events cannot be created: %s",
                      cudaGetErrorString(cudaGetLastError()));
    }
    if (status == STATUS_OK) {
        status = calibrate(dev, program, seconds, stream, from, to, measured_seconds);
    }
    if (from != NULL) {
        (void)cudaEventDestroy(from);
    }
    if (to != NULL) {
        (void)cudaEventDestroy(to);
    }
    if (status != STATUS_OK) {
        cuda__program_destroy(dev, program);
        return status;
    }
    cuda_link_add(&cuda_of(dev)->programs, &program->link, program);
    *out = program;
    return STATUS_OK;
}
