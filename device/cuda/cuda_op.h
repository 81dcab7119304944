/*
 * How the CUDA device runs an operation: as a short list of steps, each a cuDNN graph with its plan,
 * a matrix product of cuBLAS, a softmax, or a plain copy. The files cuda_op_*.c describe operations;
 * what they describe can also be checked without a GPU.
 */
#ifndef PINLINE_DEVICE_CUDA_OP_H
#define PINLINE_DEVICE_CUDA_OP_H

#include "device/cuda/cuda_internal.h"
#include "device/cuda/cuda_plans.h"
#include "device/cuda/cudnn_graph.h"

enum step_kind { STEP_PLAN = 1, STEP_MATMUL, STEP_SOFTMAX, STEP_SOFTMAX_BACKWARD, STEP_COPY_ROWS };

/* c = alpha op(a) op(b) + beta c (+ bias along c's rows), all in column-major order as cuBLAS has
 * them; one of `batch` products whose matrices lie `stride_*` elements apart. */
struct matmul {
    cudaDataType_t type_ab, type_c;
    bool transpose_a, transpose_b;
    bool exact; /* float32 products in every precision: for sums that are written as products */
    int m, n, k;
    int lda, ldb, ldc;
    int batch;
    int64_t stride_a, stride_b, stride_c;
    float alpha, beta;
    const void *a, *b, *bias; /* bias: m floats or NULL */
    void *bias_gradient;      /* n floats or NULL: the sums of b over k, which then is transposed */
    void *c;
};

struct step {
    enum step_kind kind;
    struct cuda_plan plan;
    struct matmul matmul;
    cublasLtMatmulDesc_t matmul_desc;
    cublasLtMatrixLayout_t layout_a, layout_b, layout_c;
    cublasLtMatmulAlgo_t algorithm;
    size_t workspace;
    cudnnTensorDescriptor_t rows; /* softmax */
    const void *from, *from2;
    void *to;
    size_t rows_count, row_bytes,
        to_pitch; /* STEP_COPY_ROWS: rows that lie close into wider ones */
};

#define OP_MAX_STEPS 6
#define OP_MAX_SCRATCH 4

struct device_op {
    struct cuda_link link;
    char label[128];
    struct step steps[OP_MAX_STEPS];
    int step_count;
    void *scratch[OP_MAX_SCRATCH];
    int scratch_count;
    struct cuda_mask *mask;
    struct cuda_shared *shared;
};

/* What is under construction. Without a device graphs are finished as far as cuDNN goes without a
 * GPU, every form of the operation in turn, and nothing is planned or allocated. */
struct op_builder {
    struct cuda_device *dev; /* NULL: check only */
    struct device_op *op;
    const char *label;
    int finished, refused;    /* graphs, in a check */
    struct status_report why; /* of the first refusal */
};

/*
 * Adds a graph as the operation's next step; `part` is added to the label where an operation has
 * several. With `done` the graph is one form among several: *done tells whether it has a plan, and
 * having none is no failure; when it has none nothing is added. Without, it is the last resort and
 * STATUS_UNSUPPORTED is returned. Takes graph over.
 */
enum status cuda__add_graph(struct op_builder *builder, cudnn_graph *graph, const char *part,
                            bool *done) MUST_USE;
/* With `done` a product for which cuBLAS has no algorithm is no failure, as above. */
enum status cuda__add_matmul(struct op_builder *builder, const struct matmul *matmul,
                             const char *part, bool *done) MUST_USE;
void cuda__step_fini(struct step *step);
enum status cuda__run_matmul(struct cuda_device *dev, const struct step *step,
                             cudaStream_t stream) MUST_USE;
enum status cuda__add_softmax(struct op_builder *builder, const struct tensor *logits,
                              void *log_probabilities) MUST_USE;
/* dlogits = softmax * (row sum of targets) - targets, from the logarithms of softmax. */
enum status cuda__add_softmax_backward(struct op_builder *builder, const struct tensor *targets,
                                       const void *log_probabilities, void *dlogits) MUST_USE;
/* Copies `count` rows of `bytes` bytes that lie close together to places `to_pitch` bytes apart. */
enum status cuda__add_copy_rows(struct op_builder *builder, const void *from, void *to,
                                size_t count, size_t bytes, size_t to_pitch) MUST_USE;
/* Memory like scratch, zero at first, shared by the operations that ask for the same `purpose`: what is
 * in it does not outlast one operation's run. */
enum status cuda__add_shared(struct op_builder *builder, size_t bytes, uint64_t purpose,
                             void **out) MUST_USE;
/* Device memory that lives as long as the operation; *out is NULL in a check. */
enum status cuda__add_scratch(struct op_builder *builder, size_t bytes, void **out) MUST_USE;
/* A tensor like `like` at an address of the operation's own. */
int cuda__graph_at(cudnn_graph *graph, const struct tensor *like, enum dtype dtype, void *address);

/* The device's ones, of float or bfloat16; NULL in a check. */
void *cuda__ones(const struct op_builder *builder, enum dtype dtype);

enum status cuda__build_conv(struct op_builder *builder, const struct op_conv *conv) MUST_USE;
enum status cuda__build_conv_data(struct op_builder *builder, const struct op_conv *conv) MUST_USE;
enum status cuda__build_conv_filter(struct op_builder *builder,
                                    const struct op_conv *conv) MUST_USE;
enum status cuda__build_norm(struct op_builder *builder, const struct op_norm *norm) MUST_USE;
enum status cuda__build_norm_infer(struct op_builder *builder, const struct op_norm *norm) MUST_USE;
enum status cuda__build_norm_backward(struct op_builder *builder,
                                      const struct op_norm *norm) MUST_USE;
enum status cuda__build_pool(struct op_builder *builder, const struct op_max_pool *pool) MUST_USE;
enum status cuda__build_pool_backward(struct op_builder *builder,
                                      const struct op_max_pool *pool) MUST_USE;
enum status cuda__build_average(struct op_builder *builder,
                                const struct op_global_average *average) MUST_USE;
enum status cuda__build_average_backward(struct op_builder *builder,
                                         const struct op_global_average *average) MUST_USE;
enum status cuda__build_ingest(struct op_builder *builder, const struct op_ingest *ingest) MUST_USE;
enum status cuda__build_bias(struct op_builder *builder,
                             const struct op_bias_backward *bias) MUST_USE;
enum status cuda__build_relu(struct op_builder *builder,
                             const struct op_relu_backward *relu) MUST_USE;
enum status cuda__build_add(struct op_builder *builder, const struct op_add *add) MUST_USE;
enum status cuda__build_cast(struct op_builder *builder, const struct op_cast *cast) MUST_USE;
enum status cuda__build_sgd(struct op_builder *builder, const struct op_update *update) MUST_USE;
enum status cuda__build_adamw(struct op_builder *builder, const struct op_update *update) MUST_USE;
enum status cuda__build_linear(struct op_builder *builder, const struct op_linear *linear) MUST_USE;
enum status cuda__build_linear_data(struct op_builder *builder,
                                    const struct op_linear *linear) MUST_USE;
enum status cuda__build_linear_weights(struct op_builder *builder,
                                       const struct op_linear *linear) MUST_USE;
enum status cuda__build_loss(struct op_builder *builder,
                             const struct op_softmax_loss *loss) MUST_USE;

/* --- Masks (cuda_op.c) ---------------------------------------------------------------------- */

/* The mask of y, made if need be; the operation holds it. NULL in *out only in a check. */
enum status cuda__mask_acquire(struct op_builder *builder, const struct tensor *y,
                               struct cuda_mask **out) MUST_USE;
void cuda__mask_release(struct cuda_device *dev, struct cuda_mask **mask);
/* The mask that a forward operation of y keeps, NULL when there is none. */
struct cuda_mask *cuda__mask_find(const struct op_builder *builder, const struct tensor *y);

#endif
