/* Max pooling and the global average. */
#include "device/cuda/cuda_op.h"

/* y and the index from x. The graph without an index is not used: in bfloat16 cuDNN 9.14's plan for it
 * gives wrong values. */
static cudnn_graph *max_pool_graph(const struct op_max_pool *pool, const struct tensor *y_like,
                                   void *y, void *index)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &pool->x);
        int to = cuda__graph_at(graph, y_like, y_like->dtype, y);
        graph_pool(graph, CUDNN_RESAMPLE_MAXPOOL, x, to, graph_index(graph, y_like, index),
                   pool->window, pool->window, pool->stride, pool->pad);
    }
    return graph;
}

enum status cuda__build_pool(struct op_builder *builder, const struct op_max_pool *pool)
{
    void *index = cuda_address(&pool->index);
    if (pool->index.buffer == NULL) {
        TRY(cuda__add_scratch(builder, tensor_elements(&pool->y), &index));
    }
    return cuda__add_graph(builder, max_pool_graph(pool, &pool->y, cuda_address(&pool->y), index),
                           "", NULL);
}

enum status cuda__build_pool_backward(struct op_builder *builder, const struct op_max_pool *pool)
{
    void *index = cuda_address(&pool->index);
    if (pool->index.buffer == NULL) {
        /* Nobody kept an index: the forward pass is run again for it. */
        void *values = NULL;
        TRY(cuda__add_scratch(builder, tensor_elements(&pool->dy), &index));
        TRY(cuda__add_scratch(builder, tensor_bytes(&pool->dy), &values));
        TRY(cuda__add_graph(builder, max_pool_graph(pool, &pool->dy, values, index), "/index",
                            NULL));
    }
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int dy = graph_tensor(graph, &pool->dy);
        int dx = graph_tensor(graph, &pool->dx);
        int kept = graph_index(graph, &pool->dy, index);
        graph_pool_backward(graph, CUDNN_RESAMPLE_MAXPOOL, dy, dx, kept, GRAPH_NONE, GRAPH_NONE,
                            pool->window, pool->window, pool->stride, pool->pad);
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

/* The average as a product: of 1 x HW ones with each image's HW x C matrix. cuDNN has no plan for the
 * reduction, none for average pooling with a float32 result of bfloat16 data, and its plan for average
 * pooling in bfloat16 gives wrong values (9.14). */
enum status cuda__build_average(struct op_builder *builder, const struct op_global_average *average)
{
    const struct tensor *x = &average->x;
    int area = x->h * x->w;
    if (area > CUDA_ONES) {
        return FAIL(STATUS_UNSUPPORTED, "%s: maps of %d values are over %d", builder->label, area,
                    CUDA_ONES);
    }
    struct matmul product = {
        .type_ab = x->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
        .type_c = average->y.dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
        .m = x->c,
        .n = 1,
        .k = area,
        .lda = x->c,
        .ldb = area,
        .ldc = x->c,
        .exact = true,
        .batch = x->n,
        .stride_a = (int64_t)area * x->c,
        .stride_b = 0,
        .stride_c = x->c,
        .alpha = 1.0F / (float)area,
        .a = cuda_address(x),
        .b = cuda__ones(builder, x->dtype),
        .c = cuda_address(&average->y),
    };
    return cuda__add_matmul(builder, &product, "", NULL);
}

enum status cuda__build_average_backward(struct op_builder *builder,
                                         const struct op_global_average *average)
{
    const struct tensor *dx = &average->dx;
    const struct tensor *dy = &average->dy;
    int area = dx->h * dx->w;
    if (area > CUDA_ONES) {
        return FAIL(STATUS_UNSUPPORTED, "%s: maps of %d values are over %d", builder->label, area,
                    CUDA_ONES);
    }
    cudnn_graph *graph = graph_create();
    bool done = false;
    if (graph != NULL) {
        /* One value a channel and image times one a place. */
        const int64_t dims[4] = {1, 1, dx->h, dx->w};
        const int64_t strides[4] = {area, 1, dx->w, 1};
        int each = graph_binary_virtual(graph, CUDNN_POINTWISE_MUL, graph_tensor(graph, dy),
                                        graph_constant(graph, 1.0F / (float)area));
        int places =
            graph_strided(graph, DTYPE_F32, dims, strides, cuda__ones(builder, DTYPE_F32), 16);
        graph_binary(graph, CUDNN_POINTWISE_MUL, each, places, graph_tensor(graph, dx));
    }
    TRY(cuda__add_graph(builder, graph, "/spread", &done));
    if (done) {
        return STATUS_OK;
    }
    void *narrow = cuda_address(dy);
    if (dy->dtype != dx->dtype) {
        TRY(cuda__add_scratch(builder, tensor_elements(dy) * dtype_bytes(dx->dtype), &narrow));
        graph = graph_create();
        if (graph != NULL) {
            graph_unary(graph, CUDNN_POINTWISE_IDENTITY, graph_tensor(graph, dy),
                        cuda__graph_at(graph, dy, dx->dtype, narrow));
        }
        TRY(cuda__add_graph(builder, graph, "/narrow", NULL));
    }
    struct matmul product = {
        .type_ab = dx->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
        .type_c = dx->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
        .m = dx->c,
        .n = area,
        .k = 1,
        .lda = dx->c,
        .ldb = 1,
        .ldc = dx->c,
        .exact = true,
        .batch = dx->n,
        .stride_a = dx->c,
        .stride_b = 0,
        .stride_c = (int64_t)area * dx->c,
        .alpha = 1.0F / (float)area,
        .a = narrow,
        .b = cuda__ones(builder, dx->dtype),
        .c = cuda_address(dx),
    };
    return cuda__add_matmul(builder, &product, "", NULL);
}
