/* Convolutions. */
#include "device/cuda/cuda_op.h"

/* y = relu?(y + bias?), in place. */
static enum status add_bias_relu(struct op_builder *builder, const struct op_conv *conv)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int from = graph_tensor(graph, &conv->y);
        int to = graph_tensor(graph, &conv->y);
        if (conv->bias.buffer != NULL) {
            int bias = graph_tensor(graph, &conv->bias);
            int sum = conv->relu ? graph_virtual(graph, DTYPE_F32, from) : to;
            graph_binary(graph, CUDNN_POINTWISE_ADD, from, bias, sum);
            from = sum;
        }
        if (conv->relu) {
            graph_unary(graph, CUDNN_POINTWISE_RELU_FWD, from, to);
        }
    }
    return cuda__add_graph(builder, graph, "/bias", NULL);
}

enum status cuda__build_conv(struct op_builder *builder, const struct op_conv *conv)
{
    bool more = conv->bias.buffer != NULL || conv->relu;
    if (more) {
        cudnn_graph *graph = graph_create();
        bool done = false;
        if (graph != NULL) {
            int x = graph_tensor(graph, &conv->x);
            int w = graph_tensor(graph, &conv->w);
            int y = graph_tensor(graph, &conv->y);
            int value = graph_virtual(graph, DTYPE_F32, y);
            graph_conv(graph, x, w, value, conv->stride, conv->pad);
            if (conv->bias.buffer != NULL) {
                int bias = graph_tensor(graph, &conv->bias);
                int sum = conv->relu ? graph_virtual(graph, DTYPE_F32, y) : y;
                graph_binary(graph, CUDNN_POINTWISE_ADD, value, bias, sum);
                value = sum;
            }
            if (conv->relu) {
                graph_unary(graph, CUDNN_POINTWISE_RELU_FWD, value, y);
            }
        }
        TRY(cuda__add_graph(builder, graph, "", &done));
        if (done) {
            return STATUS_OK;
        }
    }
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &conv->x);
        int w = graph_tensor(graph, &conv->w);
        int y = graph_tensor(graph, &conv->y);
        graph_conv(graph, x, w, y, conv->stride, conv->pad);
    }
    TRY(cuda__add_graph(builder, graph, more ? "/conv" : "", NULL));
    return more ? add_bias_relu(builder, conv) : STATUS_OK;
}

enum status cuda__build_conv_data(struct op_builder *builder, const struct op_conv *conv)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int dy = graph_tensor(graph, &conv->dy);
        int w = graph_tensor(graph, &conv->w);
        int dx = graph_tensor(graph, &conv->dx);
        graph_conv_data(graph, dy, w, dx, conv->stride, conv->pad);
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

/* A float32 gradient of bfloat16 data is computed in bfloat16 and widened: cuDNN has but a slow
 * fall-back for the mixed form. */
enum status cuda__build_conv_filter(struct op_builder *builder, const struct op_conv *conv)
{
    bool widen = conv->dw.dtype != conv->x.dtype;
    void *narrow = NULL;
    if (widen) {
        TRY(cuda__add_scratch(builder, tensor_elements(&conv->dw) * dtype_bytes(conv->x.dtype),
                              &narrow));
    }
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int x = graph_tensor(graph, &conv->x);
        int dy = graph_tensor(graph, &conv->dy);
        int dw = widen ? cuda__graph_at(graph, &conv->dw, conv->x.dtype, narrow)
                       : graph_tensor(graph, &conv->dw);
        graph_conv_filter(graph, x, dy, dw, conv->stride, conv->pad);
    }
    TRY(cuda__add_graph(builder, graph, "", NULL));
    if (!widen) {
        return STATUS_OK;
    }
    graph = graph_create();
    if (graph != NULL) {
        int from = cuda__graph_at(graph, &conv->dw, conv->x.dtype, narrow);
        int to = graph_tensor(graph, &conv->dw);
        graph_unary(graph, CUDNN_POINTWISE_IDENTITY, from, to);
    }
    return cuda__add_graph(builder, graph, "/widen", NULL);
}
