#include "device/cuda/cuda_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

void *cuda_address(const struct tensor *tensor)
{
    if (tensor->buffer == NULL) {
        return NULL;
    }
    char *data = ((const struct cuda_buffer *)(const void *)tensor->buffer)->data;
    return data == NULL ? NULL : data + tensor->offset;
}

int cuda__graph_at(cudnn_graph *graph, const struct tensor *like, enum dtype dtype, void *address)
{
    const int64_t c = like->c;
    const int64_t h = like->h;
    const int64_t w = like->w;
    const int64_t dims[4] = {like->n, c, h, w};
    const int64_t strides[4] = {h * w * c, 1, w * c, c};
    return graph_strided(graph, dtype, dims, strides, address, 16);
}

void *cuda__ones(const struct op_builder *builder, enum dtype dtype)
{
    if (builder->dev == NULL) {
        return NULL;
    }
    float *ones = builder->dev->ones;
    return dtype == DTYPE_BF16 ? (void *)(ones + CUDA_ONES) : (void *)ones;
}

/* --- Building ------------------------------------------------------------------------------- */

static struct step *next_step(struct op_builder *builder)
{
    return builder->op->step_count < OP_MAX_STEPS ? &builder->op->steps[builder->op->step_count]
                                                  : NULL;
}

/* Finishes a graph as far as that goes without a GPU. */
static enum status check_graph(struct op_builder *builder, cudnn_graph *graph, bool last)
{
    enum status status =
        graph == NULL ? FAIL(STATUS_NO_MEMORY, "no memory for a graph") : graph_finish(graph, NULL);
    graph_destroy(graph);
    if (status == STATUS_OK) {
        builder->finished++;
        return STATUS_OK;
    }
    if (last || status != STATUS_UNSUPPORTED) {
        return status;
    }
    if (builder->refused++ == 0) {
        status_save(&builder->why, status);
    }
    status_clear();
    return STATUS_OK;
}

enum status cuda__add_graph(struct op_builder *builder, cudnn_graph *graph, const char *part,
                            bool *done)
{
    if (done != NULL) {
        *done = false;
    }
    if (builder->dev == NULL) {
        return check_graph(builder, graph, done == NULL);
    }
    struct step *step = next_step(builder);
    if (step == NULL) {
        graph_destroy(graph);
        return FAIL(STATUS_INTERNAL, "%s has too many steps", builder->label);
    }
    char label[128];
    snprintf(label, sizeof label, "%s%s", builder->label, part);
    *step = (struct step){.kind = STEP_PLAN};
    enum status status = cuda__plan_create(builder->dev, graph, label, &step->plan);
    if (status == STATUS_OK) {
        builder->op->step_count++;
        if (done != NULL) {
            *done = true;
        }
    } else if (status == STATUS_UNSUPPORTED && done != NULL) {
        log_verbose("%s", status_message());
        status_clear();
        status = STATUS_OK;
    }
    return status;
}

enum status cuda__add_scratch(struct op_builder *builder, size_t bytes, void **out)
{
    *out = NULL;
    if (builder->dev == NULL) {
        return STATUS_OK;
    }
    if (builder->op->scratch_count == OP_MAX_SCRATCH) {
        return FAIL(STATUS_INTERNAL, "%s needs too many buffers", builder->label);
    }
    TRY(cuda__allocate(builder->dev, bytes, builder->label, out));
    builder->op->scratch[builder->op->scratch_count++] = *out;
    return STATUS_OK;
}

static void shared_release(struct cuda_device *dev, struct cuda_shared **shared)
{
    struct cuda_shared *gone = *shared;
    *shared = NULL;
    if (gone == NULL || --gone->users > 0) {
        return;
    }
    struct cuda_shared **link = &dev->shared;
    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    (void)cudaFree(gone->data);
    free(gone);
}

enum status cuda__add_shared(struct op_builder *builder, size_t bytes, uint64_t purpose, void **out)
{
    struct cuda_device *dev = builder->dev;
    *out = NULL;
    if (dev == NULL) {
        return STATUS_OK;
    }
    struct cuda_shared *found = dev->shared;
    while (found != NULL && (found->bytes != bytes || found->purpose != purpose)) {
        found = found->next;
    }
    if (found == NULL) {
        found = calloc(1, sizeof *found);
        if (found == NULL) {
            return FAIL(STATUS_NO_MEMORY, "%s: no memory", builder->label);
        }
        enum status status = cuda__allocate(dev, bytes, builder->label, &found->data);
        if (status != STATUS_OK) {
            free(found);
            return status;
        }
        found->bytes = bytes;
        found->purpose = purpose;
        found->next = dev->shared;
        dev->shared = found;
        CUDA_TRY(cudaMemsetAsync(found->data, 0, bytes, dev->tune_stream));
        CUDA_TRY(cudaStreamSynchronize(dev->tune_stream));
    }
    found->users++;
    builder->op->shared = found;
    *out = found->data;
    return STATUS_OK;
}

enum status cuda__add_copy_rows(struct op_builder *builder, const void *from, void *to,
                                size_t count, size_t bytes, size_t to_pitch)
{
    struct step *step = next_step(builder);
    if (step == NULL) {
        return FAIL(STATUS_INTERNAL, "%s has too many steps", builder->label);
    }
    *step = (struct step){.kind = STEP_COPY_ROWS,
                          .from = from,
                          .to = to,
                          .rows_count = count,
                          .row_bytes = bytes,
                          .to_pitch = to_pitch};
    builder->op->step_count++;
    return STATUS_OK;
}

static enum status describe_rows(struct op_builder *builder, struct step *step,
                                 const struct tensor *rows)
{
    CUDNN_TRY(cudnnCreateTensorDescriptor(&step->rows));
    CUDNN_TRY(cudnnSetTensor4dDescriptor(step->rows, CUDNN_TENSOR_NCHW, CUDNN_DATA_FLOAT, rows->n,
                                         rows->c, 1, 1));
    builder->op->step_count++;
    return STATUS_OK;
}

enum status cuda__add_softmax(struct op_builder *builder, const struct tensor *logits,
                              void *log_probabilities)
{
    struct step *step = next_step(builder);
    if (step == NULL || builder->dev == NULL) {
        return step == NULL ? FAIL(STATUS_INTERNAL, "too many steps") : STATUS_OK;
    }
    *step =
        (struct step){.kind = STEP_SOFTMAX, .from = cuda_address(logits), .to = log_probabilities};
    return describe_rows(builder, step, logits);
}

enum status cuda__add_softmax_backward(struct op_builder *builder, const struct tensor *targets,
                                       const void *log_probabilities, void *dlogits)
{
    struct step *step = next_step(builder);
    if (step == NULL || builder->dev == NULL) {
        return step == NULL ? FAIL(STATUS_INTERNAL, "too many steps") : STATUS_OK;
    }
    *step = (struct step){.kind = STEP_SOFTMAX_BACKWARD,
                          .from = log_probabilities,
                          .from2 = cuda_address(targets),
                          .to = dlogits};
    return describe_rows(builder, step, targets);
}

/* --- Masks ---------------------------------------------------------------------------------- */

struct cuda_mask *cuda__mask_find(const struct op_builder *builder, const struct tensor *y)
{
    struct cuda_mask *mask = builder->dev == NULL ? NULL : builder->dev->masks;
    while (mask != NULL && (mask->y != cuda_address(y) || mask->elements != tensor_elements(y))) {
        mask = mask->next;
    }
    return mask;
}

enum status cuda__mask_acquire(struct op_builder *builder, const struct tensor *y,
                               struct cuda_mask **out)
{
    struct cuda_device *dev = builder->dev;
    *out = cuda__mask_find(builder, y);
    if (dev == NULL) {
        return STATUS_OK;
    }
    if (*out == NULL) {
        struct cuda_mask *mask = calloc(1, sizeof *mask);
        if (mask == NULL) {
            return FAIL(STATUS_NO_MEMORY, "%s: no memory", builder->label);
        }
        enum status status =
            cuda__allocate(dev, (tensor_elements(y) + 7) / 8 + 16, builder->label, &mask->bits);
        if (status != STATUS_OK) {
            free(mask);
            return status;
        }
        mask->y = cuda_address(y);
        mask->elements = tensor_elements(y);
        mask->next = dev->masks;
        dev->masks = mask;
        *out = mask;
    }
    (*out)->users++;
    builder->op->mask = *out;
    return STATUS_OK;
}

void cuda__mask_release(struct cuda_device *dev, struct cuda_mask **mask)
{
    struct cuda_mask *gone = *mask;
    *mask = NULL;
    if (gone == NULL || --gone->users > 0) {
        return;
    }
    struct cuda_mask **link = &dev->masks;
    while (*link != gone) {
        link = &(*link)->next;
    }
    *link = gone->next;
    (void)cudaFree(gone->bits);
    free(gone);
}

/* --- The operation -------------------------------------------------------------------------- */

void cuda__step_fini(struct step *step)
{
    cuda__plan_destroy(&step->plan);
    if (step->matmul_desc != NULL) {
        (void)cublasLtMatmulDescDestroy(step->matmul_desc);
    }
    if (step->layout_a != NULL) {
        (void)cublasLtMatrixLayoutDestroy(step->layout_a);
    }
    if (step->layout_b != NULL) {
        (void)cublasLtMatrixLayoutDestroy(step->layout_b);
    }
    if (step->layout_c != NULL) {
        (void)cublasLtMatrixLayoutDestroy(step->layout_c);
    }
    if (step->rows != NULL) {
        (void)cudnnDestroyTensorDescriptor(step->rows);
    }
    *step = (struct step){0};
}

static enum status build(struct op_builder *builder, const struct op_desc *desc)
{
    switch (desc->kind) {
    case OP_INGEST:
        return cuda__build_ingest(builder, &desc->u.ingest);
    case OP_CONV:
        return cuda__build_conv(builder, &desc->u.conv);
    case OP_CONV_BACKWARD_DATA:
        return cuda__build_conv_data(builder, &desc->u.conv);
    case OP_CONV_BACKWARD_FILTER:
        return cuda__build_conv_filter(builder, &desc->u.conv);
    case OP_BIAS_BACKWARD:
        return cuda__build_bias(builder, &desc->u.bias);
    case OP_NORM:
        return cuda__build_norm(builder, &desc->u.norm);
    case OP_NORM_INFER:
        return cuda__build_norm_infer(builder, &desc->u.norm);
    case OP_NORM_BACKWARD:
        return cuda__build_norm_backward(builder, &desc->u.norm);
    case OP_RELU_BACKWARD:
        return cuda__build_relu(builder, &desc->u.relu);
    case OP_ADD:
        return cuda__build_add(builder, &desc->u.add);
    case OP_MAX_POOL:
        return cuda__build_pool(builder, &desc->u.pool);
    case OP_MAX_POOL_BACKWARD:
        return cuda__build_pool_backward(builder, &desc->u.pool);
    case OP_GLOBAL_AVERAGE:
        return cuda__build_average(builder, &desc->u.average);
    case OP_GLOBAL_AVERAGE_BACKWARD:
        return cuda__build_average_backward(builder, &desc->u.average);
    case OP_LINEAR:
        return cuda__build_linear(builder, &desc->u.linear);
    case OP_LINEAR_BACKWARD_DATA:
        return cuda__build_linear_data(builder, &desc->u.linear);
    case OP_LINEAR_BACKWARD_WEIGHTS:
        return cuda__build_linear_weights(builder, &desc->u.linear);
    case OP_SOFTMAX_LOSS:
        return cuda__build_loss(builder, &desc->u.loss);
    case OP_CAST:
        return cuda__build_cast(builder, &desc->u.cast);
    case OP_SGD:
        return cuda__build_sgd(builder, &desc->u.update);
    case OP_ADAMW:
        return cuda__build_adamw(builder, &desc->u.update);
    }
    return FAIL(STATUS_INTERNAL, "%s is of no known kind (%d)", builder->label, (int)desc->kind);
}

void cuda__op_destroy(device *dev, device_op *op)
{
    cuda_link_remove(&op->link);
    for (int i = 0; i < OP_MAX_STEPS; i++) {
        cuda__step_fini(&op->steps[i]);
    }
    for (int i = 0; i < op->scratch_count; i++) {
        (void)cudaFree(op->scratch[i]);
    }
    if (op->mask != NULL) {
        cuda__mask_release(cuda_of(dev), &op->mask);
    }
    shared_release(cuda_of(dev), &op->shared);
    free(op);
}

enum status cuda__op_create(device *dev, const struct op_desc *desc, device_op **out)
{
    *out = NULL;
    struct device_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for operation %s", desc->label);
    }
    snprintf(op->label, sizeof op->label, "%s", desc->label == NULL ? "operation" : desc->label);
    struct op_builder builder = {.dev = cuda_of(dev), .op = op, .label = op->label};
    enum status status = build(&builder, desc);
    if (status != STATUS_OK) {
        if (status == STATUS_UNSUPPORTED) {
            char text[256];
            status_prefix("%s", device__describe_op(desc, text, sizeof text));
        }
        cuda__op_destroy(dev, op);
        return status;
    }
    cuda_link_add(&cuda_of(dev)->ops, &op->link, op);
    *out = op;
    return STATUS_OK;
}

static enum status run_softmax(struct cuda_device *dev, const struct step *step,
                               cudaStream_t stream)
{
    const float one = 1.0F;
    const float minus_one = -1.0F;
    const float zero = 0.0F;
    TRY(cuda__use_cudnn_stream(dev, stream));
    if (step->kind == STEP_SOFTMAX) {
        CUDNN_TRY(cudnnSoftmaxForward(dev->cudnn, CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_INSTANCE,
                                      &one, step->rows, step->from, &zero, step->rows, step->to));
    } else {
        /* cuDNN's gradient for dy = targets is targets - softmax * (row sum of targets). */
        CUDNN_TRY(cudnnSoftmaxBackward(dev->cudnn, CUDNN_SOFTMAX_LOG, CUDNN_SOFTMAX_MODE_INSTANCE,
                                       &minus_one, step->rows, step->from, step->rows, step->from2,
                                       &zero, step->rows, step->to));
    }
    return STATUS_OK;
}

enum status cuda__op_submit(device *dev, device_op *op, device_stream *stream)
{
    struct cuda_device *cuda = cuda_of(dev);
    for (int i = 0; i < op->step_count; i++) {
        struct step *step = &op->steps[i];
        switch (step->kind) {
        case STEP_PLAN:
            TRY(cuda__plan_run(cuda, &step->plan, stream->stream));
            break;
        case STEP_MATMUL:
            TRY(cuda__run_matmul(cuda, step, stream->stream));
            break;
        case STEP_SOFTMAX:
        case STEP_SOFTMAX_BACKWARD:
            TRY(run_softmax(cuda, step, stream->stream));
            break;
        case STEP_COPY_ROWS:
            CUDA_TRY(cudaMemcpy2DAsync(step->to, step->to_pitch, step->from, step->row_bytes,
                                       step->row_bytes, step->rows_count, cudaMemcpyDeviceToDevice,
                                       stream->stream));
            break;
        }
    }
    return STATUS_OK;
}

/* Exported: builds every graph of every form of the operation and finalizes it without a GPU.
 * Buffers of the tensors may be 64 zero bytes. *finished and *refused count graphs; the last form of
 * an operation must be accepted, others may be refused, the first with the reason in `why`. */
enum status pinline_cuda_check_op(const struct op_desc *desc, int *finished, int *refused,
                                  struct status_report *why);
enum status pinline_cuda_check_op(const struct op_desc *desc, int *finished, int *refused,
                                  struct status_report *why)
{
    struct device_op *op = calloc(1, sizeof *op);
    if (op == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory");
    }
    struct op_builder builder = {.op = op,
                                 .label = desc->label == NULL ? "operation" : desc->label};
    enum status status = build(&builder, desc);
    *finished = builder.finished;
    *refused = builder.refused;
    *why = builder.why;
    free(op);
    return status;
}
