/*
 * The last layer and its loss. cuBLAS counts in columns: a row-major matrix of n rows of c is to it a
 * column-major matrix of c rows and n columns, so every product below is written transposed.
 */
#include "device/cuda/cuda_op.h"

enum status cuda__build_linear(struct op_builder *builder, const struct op_linear *linear)
{
    int batch = linear->x.n;
    int inputs = linear->x.c;
    int outputs = linear->y.c;
    struct matmul product = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .transpose_a = true,
        .m = outputs,
        .n = batch,
        .k = inputs,
        .lda = inputs,
        .ldb = inputs,
        .ldc = outputs,
        .batch = 1,
        .alpha = linear->factor,
        .a = cuda_address(&linear->w),
        .b = cuda_address(&linear->x),
        .bias = cuda_address(&linear->bias),
        .c = cuda_address(&linear->y),
    };
    return cuda__add_matmul(builder, &product, "", NULL);
}

enum status cuda__build_linear_data(struct op_builder *builder, const struct op_linear *linear)
{
    int batch = linear->dy.n;
    int inputs = linear->dx.c;
    int outputs = linear->dy.c;
    struct matmul product = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .m = inputs,
        .n = batch,
        .k = outputs,
        .lda = inputs,
        .ldb = outputs,
        .ldc = inputs,
        .batch = 1,
        .alpha = linear->factor,
        .a = cuda_address(&linear->w),
        .b = cuda_address(&linear->dy),
        .c = cuda_address(&linear->dx),
    };
    return cuda__add_matmul(builder, &product, "", NULL);
}

enum status cuda__build_linear_weights(struct op_builder *builder, const struct op_linear *linear)
{
    int batch = linear->dy.n;
    int inputs = linear->x.c;
    int outputs = linear->dy.c;
    struct matmul weights = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .transpose_b = true,
        .m = inputs,
        .n = outputs,
        .k = batch,
        .lda = inputs,
        .ldb = outputs,
        .ldc = inputs,
        .batch = 1,
        .alpha = linear->factor,
        .a = cuda_address(&linear->x),
        .b = cuda_address(&linear->dy),
        .c = cuda_address(&linear->dw),
    };
    if (linear->db.buffer == NULL) {
        return cuda__add_matmul(builder, &weights, "", NULL);
    }
    if (linear->factor == 1.0F) {
        /* The sums come with the product where cuBLAS can; the factor would scale them too. */
        struct matmul both = weights;
        bool done = false;
        both.bias_gradient = cuda_address(&linear->db);
        TRY(cuda__add_matmul(builder, &both, "", &done));
        if (done) {
            return STATUS_OK;
        }
    }
    TRY(cuda__add_matmul(builder, &weights, "", NULL));
    if (batch > CUDA_ONES) {
        return FAIL(STATUS_UNSUPPORTED, "%s: a batch of %d is over %d", builder->label, batch,
                    CUDA_ONES);
    }
    struct matmul bias = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .m = outputs,
        .exact = true,
        .n = 1,
        .k = batch,
        .lda = outputs,
        .ldb = batch,
        .ldc = outputs,
        .batch = 1,
        .alpha = 1.0F,
        .a = cuda_address(&linear->dy),
        .b = cuda__ones(builder, DTYPE_F32),
        .c = cuda_address(&linear->db),
    };
    return cuda__add_matmul(builder, &bias, "/bias", NULL);
}

/* cuDNN's softmax calls take logarithms directly and are not deprecated; a graph for softmax exists
 * only inside attention. */
enum status cuda__build_loss(struct op_builder *builder, const struct op_softmax_loss *loss)
{
    void *logarithms = NULL;
    const struct tensor *targets = &loss->targets;
    TRY(cuda__add_scratch(builder, tensor_bytes(&loss->logits), &logarithms));
    TRY(cuda__add_softmax(builder, &loss->logits, logarithms));
    if (loss->dlogits.buffer != NULL) {
        TRY(cuda__add_softmax_backward(builder, targets, logarithms, cuda_address(&loss->dlogits)));
    }
    /* loss = -sum of targets * logarithms, as the product of a row with a column. */
    struct matmul product = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .m = 1,
        .n = 1,
        .k = (int)tensor_elements(targets),
        .lda = 1,
        .ldb = (int)tensor_elements(targets),
        .ldc = 1,
        .batch = 1,
        .exact = true,
        .alpha = -1.0F,
        .a = cuda_address(targets),
        .b = logarithms,
        .c = cuda_address(&loss->loss),
    };
    return cuda__add_matmul(builder, &product, "/sum", NULL);
}
