/* The nodes of a graph: what cuDNN is told of each operation. */
#include <string.h>

#include "device/cuda/cudnn_graph_internal.h"

/* --- Nodes ---------------------------------------------------------------------------------- */

static bool usable(cudnn_graph *graph, int tensor, const char *what)
{
    if (graph__failed(graph)) {
        return false;
    }
    if (tensor < 0 || tensor >= graph->tensor_count) {
        graph__refuse(graph, STATUS_INTERNAL, "%s is absent", what);
        return false;
    }
    return true;
}

/* Attaches an input of a node. A virtual tensor must have been written before. */
static void reads(cudnn_graph *graph, cudnnBackendDescriptor_t node,
                  cudnnBackendAttributeName_t name, int tensor, const char *what)
{
    if (!usable(graph, tensor, what)) {
        return;
    }
    struct graph_tensor *t = &graph->tensors[tensor];
    if (t->virtual && !t->written) {
        graph__refuse(graph, STATUS_INTERNAL, "%s is read before anything wrote it", what);
        return;
    }
    t->read = true;
    graph__set(graph, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->descriptor, what);
    graph__add_key(graph, "%s=%d,", what, tensor);
}

/* Attaches an output. Each tensor is written once. */
static void writes(cudnn_graph *graph, cudnnBackendDescriptor_t node,
                   cudnnBackendAttributeName_t name, int tensor, const char *what)
{
    if (!usable(graph, tensor, what)) {
        return;
    }
    struct graph_tensor *t = &graph->tensors[tensor];
    if (t->written || t->by_value || t->overlaps) {
        graph__refuse(graph, STATUS_INTERNAL, "%s is written twice or cannot be written", what);
        return;
    }
    t->written = true;
    graph__set(graph, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->descriptor, what);
    graph__add_key(graph, "%s>%d,", what, tensor);
}

static cudnnBackendDescriptor_t begin_node(cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                           const char *name)
{
    graph__add_key(graph, "%s(", name);
    return graph__make(graph, type);
}

static void end_node(cudnn_graph *graph, cudnnBackendDescriptor_t node, const char *name)
{
    graph__finalize(graph, node, name);
    if (graph__failed(graph)) {
        return;
    }
    if (graph->node_count == GRAPH_MAX_NODES) {
        graph__refuse(graph, STATUS_INTERNAL, "graph has too many nodes");
        return;
    }
    graph->nodes[graph->node_count++] = node;
    graph__add_key(graph, ")");
}

/* Checks that y = conv(x, w) has the sizes that stride and padding give. */
static void check_conv(cudnn_graph *graph, int x, int w, int y, int stride, int pad)
{
    if (!usable(graph, x, "x") || !usable(graph, w, "w") || !usable(graph, y, "y")) {
        return;
    }
    const int64_t *a = graph->tensors[x].dims;
    const int64_t *f = graph->tensors[w].dims;
    const int64_t *b = graph->tensors[y].dims;
    bool right = a[0] == b[0] && a[1] == f[1] && f[0] == b[1];
    for (int i = 2; i < 4; i++) {
        right = right && a[i] + 2 * pad >= f[i] && b[i] == (a[i] + 2 * pad - f[i]) / stride + 1;
    }
    if (!right) {
        graph__refuse(
            graph, STATUS_INTERNAL,
            "convolution of %lldx%lldx%lldx%lld (n, c, h, w) with %lldx%lldx%lldx%lld, stride "
            "%d, padding %d, does not give %lldx%lldx%lldx%lld",
            (long long)a[0], (long long)a[1], (long long)a[2], (long long)a[3], (long long)f[0],
            (long long)f[1], (long long)f[2], (long long)f[3], stride, pad, (long long)b[0],
            (long long)b[1], (long long)b[2], (long long)b[3]);
    }
}

static cudnnBackendDescriptor_t conv_descriptor(cudnn_graph *graph, int stride, int pad)
{
    graph->has_products = true;
    cudnnBackendDescriptor_t conv = graph__make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dimensions = 2;
    int64_t strides[2] = {stride, stride};
    int64_t pads[2] = {pad, pad};
    int64_t dilations[2] = {1, 1};
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions,
               "convolution dimensions");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
               "convolution compute type");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode,
               "convolution mode");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides,
               "convolution strides");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
               "convolution padding");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
               "convolution padding");
    graph__set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations,
               "convolution dilation");
    graph__finalize(graph, conv, "convolution descriptor");
    return conv;
}

static const float one = 1.0F;
static const float zero = 0.0F;

void graph_conv(cudnn_graph *graph, int x, int w, int y, int stride, int pad)
{
    check_conv(graph, x, w, y, stride, pad);
    cudnnBackendDescriptor_t conv = conv_descriptor(graph, stride, pad);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, "conv");
    graph__add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w, "w");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y, "y");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1,
               &one, "alpha");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1,
               &zero, "beta");
    end_node(graph, node, "convolution forward");
}

void graph_conv_data(cudnn_graph *graph, int dy, int w, int dx, int stride, int pad)
{
    check_conv(graph, dx, w, dy, stride, pad);
    cudnnBackendDescriptor_t conv = conv_descriptor(graph, stride, pad);
    cudnnBackendDescriptor_t node = begin_node(
        graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "conv_data");
    graph__add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy, "dy");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w, "w");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx, "dx");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1,
               &one, "alpha");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1,
               &zero, "beta");
    end_node(graph, node, "convolution backward data");
}

void graph_conv_filter(cudnn_graph *graph, int x, int dy, int dw, int stride, int pad)
{
    check_conv(graph, x, dw, dy, stride, pad);
    cudnnBackendDescriptor_t conv = conv_descriptor(graph, stride, pad);
    cudnnBackendDescriptor_t node = begin_node(
        graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "conv_filter");
    graph__add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy, "dy");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw, "dw");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1,
               &one, "alpha");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1,
               &zero, "beta");
    end_node(graph, node, "convolution backward filter");
}

/* y must have, in every dimension, the larger of the inputs' sizes, the other being equal or 1. */
static void check_broadcast(cudnn_graph *graph, int x, int b, int y)
{
    if (!usable(graph, x, "x") || !usable(graph, y, "y") ||
        (b != GRAPH_NONE && !usable(graph, b, "b"))) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        int64_t p = graph->tensors[x].dims[i];
        int64_t q = b == GRAPH_NONE ? p : graph->tensors[b].dims[i];
        int64_t larger = p > q ? p : q;
        if ((p != larger && p != 1) || (q != larger && q != 1) ||
            graph->tensors[y].dims[i] != larger) {
            graph__refuse(
                graph, STATUS_INTERNAL,
                "pointwise operation on sizes %lld and %lld in dimension %d gives %lld, not %lld",
                (long long)p, (long long)q, i, (long long)larger,
                (long long)graph->tensors[y].dims[i]);
            return;
        }
    }
}

static cudnnBackendDescriptor_t begin_pointwise(cudnn_graph *graph, cudnnPointwiseMode_t mode)
{
    cudnnBackendDescriptor_t pointwise = graph__make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    graph__set(graph, pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode,
               "pointwise mode");
    graph__set(graph, pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute,
               "pointwise compute type");
    graph__finalize(graph, pointwise, "pointwise descriptor");
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    graph__add_key(graph, "%d,", (int)mode);
    graph__set(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &pointwise, "pointwise descriptor");
    return node;
}

void graph_unary(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int y)
{
    check_broadcast(graph, x, GRAPH_NONE, y);
    cudnnBackendDescriptor_t node = begin_pointwise(graph, mode);
    reads(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "y");
    end_node(graph, node, "pointwise");
}

void graph_binary(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b, int y)
{
    check_broadcast(graph, x, b, y);
    cudnnBackendDescriptor_t node = begin_pointwise(graph, mode);
    reads(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, "b");
    writes(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, "y");
    end_node(graph, node, "pointwise");
}

void graph_relu_backward(cudnn_graph *graph, int dy, int x, int dx)
{
    check_broadcast(graph, dy, x, dx);
    cudnnBackendDescriptor_t node = begin_pointwise(graph, CUDNN_POINTWISE_RELU_BWD);
    reads(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_DYDESC, dy, "dy");
    reads(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_DXDESC, dx, "dx");
    end_node(graph, node, "pointwise");
}

int graph_unary_virtual(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x)
{
    int y = graph_virtual(graph, DTYPE_F32, x);
    graph_unary(graph, mode, x, y);
    return y;
}

int graph_binary_virtual(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b)
{
    int y = graph_virtual(graph, DTYPE_F32, x);
    graph_binary(graph, mode, x, b, y);
    return y;
}

void graph_reduce(cudnn_graph *graph, cudnnReduceTensorOp_t op, int x, int y)
{
    if (!usable(graph, x, "x") || !usable(graph, y, "y")) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (graph->tensors[y].dims[i] != graph->tensors[x].dims[i] &&
            graph->tensors[y].dims[i] != 1) {
            graph__refuse(graph, STATUS_INTERNAL, "reduction of size %lld in dimension %d to %lld",
                          (long long)graph->tensors[x].dims[i], i,
                          (long long)graph->tensors[y].dims[i]);
            return;
        }
    }
    cudnnBackendDescriptor_t reduction = graph__make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    graph__set(graph, reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE,
               1, &op, "reduction operator");
    graph__set(graph, reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
               "reduction compute type");
    graph__finalize(graph, reduction, "reduction descriptor");
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduce");
    graph__add_key(graph, "%d,", (int)op);
    reads(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, "y");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
               &reduction, "reduction");
    end_node(graph, node, "reduction");
}

void graph_norm(cudnn_graph *graph, const struct graph_norm *norm, bool training)
{
    graph->has_norms = true;
    check_broadcast(graph, norm->x, norm->scale, norm->y);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, "norm");
    graph__add_key(graph, "%s,", training ? "training" : "inference");
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase =
        training ? CUDNN_NORM_FWD_TRAINING : CUDNN_NORM_FWD_INFERENCE;
    graph__set(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode,
               "mode");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1,
               &phase, "phase");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_XDESC, norm->x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_SCALE_DESC, norm->scale, "scale");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_BIAS_DESC, norm->bias, "bias");
    if (norm->epsilon != GRAPH_NONE) {
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_EPSILON_DESC, norm->epsilon, "epsilon");
    }
    if (training) {
        writes(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, norm->mean, "mean");
        writes(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, norm->inv_std,
               "inv_std");
    } else {
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_MEAN_DESC, norm->mean, "mean");
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_INV_VARIANCE_DESC, norm->inv_std,
              "inv_std");
    }
    if (norm->running_mean_in != GRAPH_NONE) {
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_EXP_AVG_FACTOR_DESC, norm->averaging,
              "averaging");
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_MEAN_DESC,
              norm->running_mean_in, "running_mean");
        reads(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_INPUT_RUNNING_VAR_DESC,
              norm->running_var_in, "running_var");
        writes(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_MEAN_DESC,
               norm->running_mean_out, "running_mean");
        writes(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_OUTPUT_RUNNING_VAR_DESC,
               norm->running_var_out, "running_var");
    }
    writes(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_YDESC, norm->y, "y");
    end_node(graph, node, "batch norm");
}

void graph_norm_backward(cudnn_graph *graph, const struct graph_norm_backward *norm)
{
    graph->has_norms = true;
    check_broadcast(graph, norm->x, norm->dy, norm->dx);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, "norm_backward");
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    graph__set(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode,
               "mode");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_XDESC, norm->x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_DYDESC, norm->dy, "dy");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_SCALE_DESC, norm->scale, "scale");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_MEAN_DESC, norm->mean, "mean");
    reads(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_INV_VARIANCE_DESC, norm->inv_std, "inv_std");
    writes(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_DSCALE_DESC, norm->dscale, "dscale");
    writes(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_DBIAS_DESC, norm->dbias, "dbias");
    writes(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_DXDESC, norm->dx, "dx");
    end_node(graph, node, "batch norm backward");
}

static cudnnBackendDescriptor_t pool_descriptor(cudnn_graph *graph, cudnnResampleMode_t mode,
                                                int window_h, int window_w, int stride, int pad)
{
    cudnnBackendDescriptor_t pool = graph__make(graph, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnPaddingMode_t padding =
        mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    int64_t dimensions = 2;
    int64_t window[2] = {window_h, window_w};
    int64_t strides[2] = {stride, stride};
    int64_t pads[2] = {pad, pad};
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &mode,
               "pooling mode");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
               "pooling compute type");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1,
               &nan, "pooling of NaN");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding,
               "pooling padding mode");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions,
               "pooling dimensions");
    /* cuDNN takes windows, strides and padding of pooling as fractions or integers; integers do. */
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_INT64, 2, window,
               "pooling window");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_INT64, 2, strides,
               "pooling stride");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
               "pooling padding");
    graph__set(graph, pool, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
               "pooling padding");
    graph__finalize(graph, pool, "pooling descriptor");
    return pool;
}

static void check_pool(cudnn_graph *graph, int x, int y, int window_h, int window_w, int stride,
                       int pad)
{
    if (!usable(graph, x, "x") || !usable(graph, y, "y")) {
        return;
    }
    const int64_t *a = graph->tensors[x].dims;
    const int64_t *b = graph->tensors[y].dims;
    if (a[0] != b[0] || a[1] != b[1] || b[2] != (a[2] + 2 * pad - window_h) / stride + 1 ||
        b[3] != (a[3] + 2 * pad - window_w) / stride + 1) {
        graph__refuse(graph, STATUS_INTERNAL, "pooling of %lld x %lld to %lld x %lld",
                      (long long)a[2], (long long)a[3], (long long)b[2], (long long)b[3]);
    }
}

void graph_pool(cudnn_graph *graph, cudnnResampleMode_t mode, int x, int y, int index, int window_h,
                int window_w, int stride, int pad)
{
    check_pool(graph, x, y, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t pool = pool_descriptor(graph, mode, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, "pool");
    graph__add_key(graph, "%d,%dx%ds%dp%d,", (int)mode, window_h, window_w, stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y, "y");
    if (index != GRAPH_NONE) {
        writes(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index, "index");
    }
    graph__set(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &pool, "pooling");
    end_node(graph, node, "pooling");
}

void graph_pool_backward(cudnn_graph *graph, cudnnResampleMode_t mode, int dy, int dx, int index,
                         int x, int y, int window_h, int window_w, int stride, int pad)
{
    check_pool(graph, dx, dy, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t pool = pool_descriptor(graph, mode, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, "pool_backward");
    graph__add_key(graph, "%d,%dx%ds%dp%d,", (int)mode, window_h, window_w, stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DYDESC, dy, "dy");
    if (index != GRAPH_NONE) {
        reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_IDXDESC, index, "index");
    }
    if (x != GRAPH_NONE) {
        reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_XDESC, x, "x");
    }
    if (y != GRAPH_NONE) {
        reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_YDESC, y, "y");
    }
    writes(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DXDESC, dx, "dx");
    graph__set(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               1, &pool, "pooling");
    end_node(graph, node, "pooling backward");
}
