/* Batch normalisation. */
#include <stddef.h>

#include "base/size.h"
#include "device/cuda/cuda_op.h"

/* Number of a field of struct step_scalars, which is a row of floats. */
#define SCALAR(field) (offsetof(struct step_scalars, field) / sizeof(float))

/* How the forward pass may be built; see cuda__build_norm. */
struct norm_form {
    bool tail; /* residual and ReLU in the same graph */
    bool mask; /* keeps one bit a value for the backward pass */
};

/* The variance's place behind the mean in a pair of vectors of `channels` floats. */
static float *second_vector(float *pair, int channels)
{
    return pair == NULL ? NULL : pair + size_align((size_t)channels, 4);
}

/*
 * The graph of the forward pass in one of its forms. cuDNN takes the averaging factor by value alone,
 * which a captured step cannot change: so the factor is 1, the batch's mean and unbiased variance go
 * to `batch`, and a graph of its own blends them into the running ones.
 */
static cudnn_graph *forward_graph(const struct op_norm *norm, struct norm_form form,
                                  const struct cuda_mask *mask, float *batch)
{
    cudnn_graph *graph = graph_create();
    if (graph == NULL) {
        return NULL;
    }
    bool residual = form.tail && norm->residual.buffer != NULL;
    bool relu = form.tail && norm->relu;
    int y = graph_tensor(graph, &norm->y);
    struct graph_norm node = {
        .x = graph_tensor(graph, &norm->x),
        .scale = graph_tensor(graph, &norm->scale),
        .bias = graph_tensor(graph, &norm->bias),
        .mean = graph_tensor(graph, &norm->saved_mean),
        .inv_std = graph_tensor(graph, &norm->saved_inv_std),
        .epsilon = graph_constant(graph, norm->epsilon),
        .averaging = graph_constant(graph, 1.0F),
        .running_mean_in = graph_tensor(graph, &norm->running_mean),
        .running_var_in = graph_tensor(graph, &norm->running_var),
        .running_mean_out = cuda__graph_at(graph, &norm->running_mean, DTYPE_F32, batch),
        .running_var_out =
            cuda__graph_at(graph, &norm->running_var, DTYPE_F32, second_vector(batch, norm->x.c)),
        .y = residual || relu ? graph_virtual(graph, DTYPE_F32, y) : y,
    };
    graph_norm(graph, &node, true);
    int value = node.y;
    if (residual) {
        int sum = relu ? graph_virtual(graph, DTYPE_F32, y) : y;
        graph_binary(graph, CUDNN_POINTWISE_ADD, value, graph_tensor(graph, &norm->residual), sum);
        value = sum;
    }
    if (relu) {
        graph_unary(graph, CUDNN_POINTWISE_RELU_FWD, value, y);
    }
    if (form.mask) {
        int bits = graph_bits(graph, &norm->y, mask == NULL ? NULL : mask->bits);
        graph_binary(graph, CUDNN_POINTWISE_CMP_GT, y, graph_constant(graph, 0.0F), bits);
    }
    return graph;
}

/* running = running + averaging * (batch - running), for mean and variance. */
static enum status add_blend(struct op_builder *builder, const struct op_norm *norm, float *batch)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int factor = graph_scalar(graph, &norm->scalars, SCALAR(averaging));
        const struct tensor *running[2] = {&norm->running_mean, &norm->running_var};
        for (int i = 0; i < 2; i++) {
            int old = graph_tensor(graph, running[i]);
            int now = cuda__graph_at(graph, running[i], DTYPE_F32,
                                     i == 0 ? batch : second_vector(batch, norm->x.c));
            int change = graph_binary_virtual(graph, CUDNN_POINTWISE_SUB, now, old);
            int step = graph_binary_virtual(graph, CUDNN_POINTWISE_MUL, change, factor);
            graph_binary(graph, CUDNN_POINTWISE_ADD, old, step, graph_tensor(graph, running[i]));
        }
    }
    return cuda__add_graph(builder, graph, "/running", NULL);
}

/* y = relu?(y + residual?), in place, for the form without a tail. */
static enum status add_tail(struct op_builder *builder, const struct op_norm *norm)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int value = graph_tensor(graph, &norm->y);
        int y = graph_tensor(graph, &norm->y);
        if (norm->residual.buffer != NULL) {
            int sum = norm->relu ? graph_virtual(graph, DTYPE_F32, y) : y;
            graph_binary(graph, CUDNN_POINTWISE_ADD, value, graph_tensor(graph, &norm->residual),
                         sum);
            value = sum;
        }
        if (norm->relu) {
            graph_unary(graph, CUDNN_POINTWISE_RELU_FWD, value, y);
        }
    }
    return cuda__add_graph(builder, graph, "/relu", NULL);
}

enum status cuda__build_norm(struct op_builder *builder, const struct op_norm *norm)
{
    bool tail = norm->relu || norm->residual.buffer != NULL;
    bool done = false;
    void *batch = NULL;
    TRY(cuda__add_scratch(builder, 2 * size_align((size_t)norm->x.c, 4) * sizeof(float), &batch));
    if (norm->relu && norm->residual.buffer != NULL) {
        /* With a residual the backward pass cannot work out the sign of y from x: keep it. */
        struct cuda_mask *mask = NULL;
        TRY(cuda__mask_acquire(builder, &norm->y, &mask));
        TRY(cuda__add_graph(
            builder,
            forward_graph(norm, (struct norm_form){.tail = true, .mask = true}, mask, batch),
            "/mask", &done));
        if (!done && builder->dev != NULL) {
            cuda__mask_release(builder->dev, &builder->op->mask);
        }
    }
    if (!done && tail) {
        TRY(cuda__add_graph(builder,
                            forward_graph(norm, (struct norm_form){.tail = true}, NULL, batch), "",
                            &done));
    }
    if (!done) {
        TRY(cuda__add_graph(builder, forward_graph(norm, (struct norm_form){0}, NULL, batch),
                            tail ? "/plain" : "", NULL));
        if (tail) {
            TRY(add_tail(builder, norm));
        }
    }
    return add_blend(builder, norm, batch);
}

enum status cuda__build_norm_infer(struct op_builder *builder, const struct op_norm *norm)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &norm->x);
        int y = graph_tensor(graph, &norm->y);
        int variance = graph_binary_virtual(graph, CUDNN_POINTWISE_ADD,
                                            graph_tensor(graph, &norm->running_var),
                                            graph_constant(graph, norm->epsilon));
        int inv_std = graph_unary_virtual(graph, CUDNN_POINTWISE_RSQRT, variance);
        int centred = graph_binary_virtual(graph, CUDNN_POINTWISE_SUB, x,
                                           graph_tensor(graph, &norm->running_mean));
        int unit = graph_binary_virtual(graph, CUDNN_POINTWISE_MUL, centred, inv_std);
        int value = graph_binary_virtual(graph, CUDNN_POINTWISE_MUL, unit,
                                         graph_tensor(graph, &norm->scale));
        bool residual = norm->residual.buffer != NULL;
        int bias = graph_tensor(graph, &norm->bias);
        int sum = residual || norm->relu ? graph_virtual(graph, DTYPE_F32, y) : y;
        graph_binary(graph, CUDNN_POINTWISE_ADD, value, bias, sum);
        if (residual) {
            int more = norm->relu ? graph_virtual(graph, DTYPE_F32, y) : y;
            graph_binary(graph, CUDNN_POINTWISE_ADD, sum, graph_tensor(graph, &norm->residual),
                         more);
            sum = more;
        }
        if (norm->relu) {
            graph_unary(graph, CUDNN_POINTWISE_RELU_FWD, sum, y);
        }
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

/* Adds the node of the backward pass from gradient `dy`, given as a tensor of the graph. */
static void add_backward(cudnn_graph *graph, const struct op_norm *norm, int x, int dy, int mean,
                         int inv_std, int scale)
{
    struct graph_norm_backward node = {
        .x = x,
        .dy = dy,
        .dx = graph_tensor(graph, &norm->dx),
        .scale = scale,
        .mean = mean,
        .inv_std = inv_std,
        .dscale = graph_tensor(graph, &norm->dscale),
        .dbias = graph_tensor(graph, &norm->dbias),
    };
    graph_norm_backward(graph, &node);
}

static cudnn_graph *plain_backward(const struct op_norm *norm, const struct tensor *dy)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &norm->x);
        int mean = graph_tensor(graph, &norm->saved_mean);
        int inv_std = graph_tensor(graph, &norm->saved_inv_std);
        int scale = graph_tensor(graph, &norm->scale);
        add_backward(graph, norm, x, graph_tensor(graph, dy), mean, inv_std, scale);
    }
    return graph;
}

/* The forward pass is worked out again inside the backward one, so that neither y nor a mask is
 * read: without a residual the sign of y follows from x alone. */
static cudnn_graph *recomputing_backward(const struct op_norm *norm)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &norm->x);
        int mean = graph_tensor(graph, &norm->saved_mean);
        int inv_std = graph_tensor(graph, &norm->saved_inv_std);
        int scale = graph_tensor(graph, &norm->scale);
        int y = graph_virtual(graph, DTYPE_F32, x);
        struct graph_norm forward = {.x = x,
                                     .y = y,
                                     .scale = scale,
                                     .bias = graph_tensor(graph, &norm->bias),
                                     .mean = mean,
                                     .inv_std = inv_std,
                                     .epsilon = GRAPH_NONE,
                                     .running_mean_in = GRAPH_NONE};
        graph_norm(graph, &forward, false);
        int dz = graph_virtual(graph, norm->x.dtype, x);
        graph_relu_backward(graph, graph_tensor(graph, &norm->dy), y, dz);
        add_backward(graph, norm, x, dz, mean, inv_std, scale);
    }
    return graph;
}

static cudnn_graph *masked_backward(const struct op_norm *norm, const struct cuda_mask *mask)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &norm->x);
        int mean = graph_tensor(graph, &norm->saved_mean);
        int inv_std = graph_tensor(graph, &norm->saved_inv_std);
        int scale = graph_tensor(graph, &norm->scale);
        int dy = graph_tensor(graph, &norm->dy);
        int dz = norm->dresidual.buffer != NULL ? graph_tensor(graph, &norm->dresidual)
                                                : graph_virtual(graph, norm->x.dtype, x);
        int bits = graph_bits(graph, &norm->y, mask == NULL ? NULL : mask->bits);
        graph_binary(graph, CUDNN_POINTWISE_MUL, dy, bits, dz);
        add_backward(graph, norm, x, dz, mean, inv_std, scale);
    }
    return graph;
}

enum status cuda__build_norm_backward(struct op_builder *builder, const struct op_norm *norm)
{
    const struct tensor *dz = &norm->dy;
    bool residual = norm->dresidual.buffer != NULL;
    bool done = false;
    if (norm->relu) {
        if (norm->bias.buffer != NULL && norm->residual.buffer == NULL && !residual) {
            TRY(cuda__add_graph(builder, recomputing_backward(norm), "/recompute", &done));
        }
        struct cuda_mask *mask = done ? NULL : cuda__mask_find(builder, &norm->y);
        if (!done && (mask != NULL || builder->dev == NULL)) {
            TRY(cuda__mask_acquire(builder, &norm->y, &mask));
            TRY(cuda__add_graph(builder, masked_backward(norm, mask), "/mask", &done));
            if (!done && builder->dev != NULL) {
                cuda__mask_release(builder->dev, &builder->op->mask);
            }
        }
        if (done) {
            return STATUS_OK;
        }
        /* dz goes where it is wanted anyway, or into dx, from which the normalisation's gradient is
         * then computed in place. */
        dz = residual ? &norm->dresidual : &norm->dx;
        cudnn_graph *graph = graph_create();
        if (graph != NULL) {
            int dy = graph_tensor(graph, &norm->dy);
            int y = graph_tensor(graph, &norm->y);
            graph_relu_backward(graph, dy, y, graph_tensor(graph, dz));
        }
        TRY(cuda__add_graph(builder, graph, "/relu", NULL));
    } else if (residual && cuda_address(&norm->dresidual) != cuda_address(&norm->dy)) {
        cudnn_graph *graph = graph_create();
        if (graph != NULL) {
            graph_unary(graph, CUDNN_POINTWISE_IDENTITY, graph_tensor(graph, &norm->dy),
                        graph_tensor(graph, &norm->dresidual));
        }
        TRY(cuda__add_graph(builder, graph, "/residual", NULL));
    }
    return cuda__add_graph(builder, plain_backward(norm, dz), norm->relu ? "/norm" : "", NULL);
}
