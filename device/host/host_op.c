#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/size.h"
#include "device/host/host_internal.h"

/* Room after every region, so that whole vectors may be read beyond its last value. */
#define SLACK_BYTES (HOST_LANES_MAX * sizeof(float))

#define WORKSPACE_ALIGNMENT 256

/* A BF16 tensor that the operation handles itself, without float32 values aside. */
static bool handles_bf16(enum op_kind kind)
{
    return kind == OP_CAST;
}

int host__parts(size_t units, size_t unit_elements)
{
    size_t parts = units * unit_elements / HOST_PART_ELEMENTS;
    if (parts > units) {
        parts = units;
    }
    if (parts > HOST_PARTS_MAX) {
        parts = HOST_PARTS_MAX;
    }
    return parts < 1 ? 1 : (int)parts;
}

unsigned char *host__raw(const struct tensor *tensor)
{
    assert(tensor->buffer != NULL);
    return ((struct host_storage *)(void *)tensor->buffer)->data + tensor->offset;
}

float *host__f32(struct host_device *host, const device_op *op, const struct tensor *tensor)
{
    if (tensor->dtype == DTYPE_F32) {
        return (float *)(void *)host__raw(tensor);
    }
    assert(tensor->dtype == DTYPE_BF16);
    for (int i = 0; i < op->tensor_count; i++) {
        if (op->tensors[i].tensor == tensor) {
            return (float *)(void *)(host->workspace + op->widened[i]);
        }
    }
    assert(!"a tensor that is not the operation's");
    return NULL;
}

unsigned char *host__scratch(struct host_device *host, const device_op *op)
{
    return host->workspace + op->scratch;
}

/* --- Running ---------------------------------------------------------------------------------- */

struct parallel {
    struct host_device *host;
    const device_op *op;
    host_part part;
};

static void run_part(void *context, int part, int worker)
{
    const struct parallel *parallel = context;
    parallel->part(parallel->host, parallel->op, part, worker);
}

void host__parallel(struct host_device *host, const device_op *op, int parts, host_part part)
{
    if (parts == 1) {
        part(host, op, 0, 0);
        return;
    }
    struct parallel parallel = {.host = host, .op = op, .part = part};
    thread_pool_run(host->pool, parts, run_part, &parallel);
}

struct conversion {
    struct host_device *host;
    uint16_t *narrow;
    float *wide;
    size_t count;
    int parts;
    bool widen;
};

static void convert_part(void *context, int part, int worker)
{
    const struct conversion *c = context;
    (void)worker;
    size_t from = host__part_begin(c->count, c->parts, part);
    size_t to = host__part_begin(c->count, c->parts, part + 1);
    if (c->widen) {
        c->host->kernels->widen(c->narrow + from, c->wide + from, to - from);
    } else {
        c->host->kernels->narrow(c->wide + from, c->narrow + from, to - from);
    }
}

/* Float32 values of the BF16 tensors that are read, or back from those that are written. */
static void convert_tensors(struct host_device *host, const device_op *op, bool widen)
{
    if (handles_bf16(op->desc.kind)) {
        return;
    }
    for (int i = 0; i < op->tensor_count; i++) {
        const struct tensor *t = op->tensors[i].tensor;
        if (t->buffer == NULL || t->dtype != DTYPE_BF16 ||
            (op->tensors[i].access & (widen ? OP_READS : OP_WRITES)) == 0) {
            continue;
        }
        struct conversion conversion = {
            .host = host,
            .narrow = (uint16_t *)(void *)host__raw(t),
            .wide = (float *)(void *)(host->workspace + op->widened[i]),
            .count = tensor_elements(t),
            .parts = host__parts(tensor_elements(t), 1),
            .widen = widen,
        };
        thread_pool_run(host->pool, conversion.parts, convert_part, &conversion);
    }
}

void host__run_op(struct host_device *host, const device_op *op)
{
    pthread_mutex_lock(&host->arithmetic);
    convert_tensors(host, op, true);
    op->run(host, op);
    convert_tensors(host, op, false);
    pthread_mutex_unlock(&host->arithmetic);
}

/* --- Creating --------------------------------------------------------------------------------- */

static void plan(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    switch (op->desc.kind) {
    case OP_CONV:
    case OP_CONV_BACKWARD_DATA:
    case OP_CONV_BACKWARD_FILTER:
        host__plan_conv(host, op, scratch_bytes);
        return;
    case OP_NORM:
    case OP_NORM_INFER:
    case OP_NORM_BACKWARD:
        host__plan_norm(host, op, scratch_bytes);
        return;
    case OP_MAX_POOL:
    case OP_MAX_POOL_BACKWARD:
    case OP_GLOBAL_AVERAGE:
    case OP_GLOBAL_AVERAGE_BACKWARD:
        host__plan_pool(host, op, scratch_bytes);
        return;
    case OP_LINEAR:
    case OP_LINEAR_BACKWARD_DATA:
    case OP_LINEAR_BACKWARD_WEIGHTS:
    case OP_SOFTMAX_LOSS:
        host__plan_linear(host, op, scratch_bytes);
        return;
    case OP_INGEST:
    case OP_BIAS_BACKWARD:
    case OP_RELU_BACKWARD:
    case OP_ADD:
    case OP_CAST:
    case OP_SGD:
    case OP_ADAMW:
        host__plan_pointwise(host, op, scratch_bytes);
        return;
    }
}

/* Adds a region to the layout of the workspace; false when the sum does not fit a size. */
static bool lay_out(size_t *end, size_t bytes, size_t *place)
{
    *place = *end;
    size_t next;
    if (!size_add(*end, bytes, &next) ||
        !size_add(next, SLACK_BYTES + WORKSPACE_ALIGNMENT, &next)) {
        return false;
    }
    *end = size_align(next - WORKSPACE_ALIGNMENT, WORKSPACE_ALIGNMENT);
    return true;
}

static enum status grow_workspace(struct host_device *host, const char *label, size_t bytes)
{
    if (bytes <= host->workspace_bytes) {
        return STATUS_OK;
    }
    pthread_mutex_lock(&host->arithmetic);
    unsigned char *larger = aligned_alloc(WORKSPACE_ALIGNMENT, bytes);
    if (larger != NULL) {
        free(host->workspace);
        host->workspace = larger;
        host->workspace_bytes = bytes;
    }
    pthread_mutex_unlock(&host->arithmetic);
    if (larger == NULL) {
        return FAIL(STATUS_NO_MEMORY, "%s: no memory for a workspace of %zu bytes", label, bytes);
    }
    return STATUS_OK;
}

/* Adds the operation to the list of plans. */
static enum status note_plan(struct host_device *host, const char *label)
{
    for (size_t i = 0; i < host->foreign_count && !host->allow_others; i++) {
        if (strcmp(host->foreign[i], label) == 0) {
            return FAIL(STATUS_MISMATCH,
                        "%s: the plan that the earlier run used is not this device's (%s); "
                        "continue with --replan to take this one, which may change the last bits",
                        label, host->plan_id);
        }
    }
    if (host->plan_count == host->plan_capacity) {
        size_t capacity = host->plan_capacity == 0 ? 64 : 2 * host->plan_capacity;
        char(*labels)[128] = realloc(host->plan_labels, capacity * sizeof *labels);
        if (labels == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the list of plans");
        }
        host->plan_labels = labels;
        host->plan_capacity = capacity;
    }
    snprintf(host->plan_labels[host->plan_count], sizeof host->plan_labels[0], "%s", label);
    host->plan_count++;
    host->plans_hash = hash_bytes(host->plans_hash, label, strlen(label) + 1);
    host->plans_hash = hash_bytes(host->plans_hash, host->plan_id, strlen(host->plan_id) + 1);
    return STATUS_OK;
}

static enum status build_op(struct host_device *host, const struct op_desc *desc, device_op *op)
{
    op->desc = *desc;
    snprintf(op->label, sizeof op->label, "%s",
             desc->label != NULL ? desc->label : device__op_kind_name(desc->kind));
    op->desc.label = op->label;
    op->tensor_count = device__op_tensors(&op->desc, op->tensors);
    op->parts = 1;
    size_t end = 0;
    bool fits = true;
    for (int i = 0; i < op->tensor_count; i++) {
        const struct tensor *t = op->tensors[i].tensor;
        if (t->buffer != NULL && t->dtype == DTYPE_BF16 && !handles_bf16(desc->kind)) {
            fits = fits && lay_out(&end, tensor_elements(t) * sizeof(float), &op->widened[i]);
        }
    }
    size_t scratch_bytes = 0;
    plan(host, op, &scratch_bytes);
    assert(op->run != NULL);
    fits = fits && lay_out(&end, scratch_bytes, &op->scratch);
    if (!fits) {
        return FAIL(STATUS_NO_MEMORY, "%s: its workspace is larger than the address space",
                    op->label);
    }
    TRY(grow_workspace(host, op->label, end));
    return note_plan(host, op->label);
}

enum status host__op_create(device *dev, const struct op_desc *desc, device_op **out)
{
    struct host_device *host = host__of(dev);
    device_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for an operation");
    }
    enum status status = build_op(host, desc, op);
    if (status != STATUS_OK) {
        free(op);
        return status;
    }
    host__list_add(&host->ops, &op->link);
    *out = op;
    return STATUS_OK;
}

/* Waits for all work first: the queues may hold the object. A failure to wait leaves nothing to
 * report to, and the queues of this device cannot fail. */
static void drain(device *dev)
{
    if (host__synchronize(dev) != STATUS_OK) {
        status_clear();
    }
}

void host__op_destroy(device *dev, device_op *op)
{
    drain(dev);
    host__list_remove(&op->link);
    free(op);
}

/* --- Programs --------------------------------------------------------------------------------- */

enum status host__program_create(device *dev, device_op *const *ops, size_t count,
                                 device_stream *stream, device_program **out)
{
    struct host_device *host = host__of(dev);
    (void)stream;
    device_program *program = calloc(1, sizeof *program);
    device_op **copy = calloc(count > 0 ? count : 1, sizeof(void *));
    if (program == NULL || copy == NULL) {
        free(program);
        free(copy);
        return FAIL(STATUS_NO_MEMORY, "no memory for a program of %zu operations", count);
    }
    if (count > 0) {
        memcpy(copy, ops, count * sizeof(void *));
    }
    *program = (device_program){.ops = copy, .count = count, .delay = -1.0};
    host__list_add(&host->programs, &program->link);
    *out = program;
    return STATUS_OK;
}

void host__program_destroy(device *dev, device_program *program)
{
    drain(dev);
    host__list_remove(&program->link);
    free(program->ops);
    free(program);
}

bool host__program_is_captured(const device_program *program)
{
    (void)program;
    return false;
}

enum status host__delay_program_create(device *dev, double seconds, device_stream *stream,
                                       device_program **out, double *measured_seconds)
{
    TRY(host__program_create(dev, NULL, 0, stream, out));
    (*out)->delay = seconds;
    *measured_seconds = seconds;
    if (host__of(dev)->mode != HOST_SIMULATED && seconds > 0.0 && seconds <= 0.1) {
        uint64_t start = clock_now_ns();
        clock_sleep_ns((uint64_t)(seconds * 1e9));
        *measured_seconds = clock_seconds(start, clock_now_ns());
    }
    return STATUS_OK;
}
