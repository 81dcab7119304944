#include "device/cuda/cudnn_graph.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_DESCRIPTORS (GRAPH_MAX_TENSORS + 2 * GRAPH_MAX_NODES + 2)

struct cudnn_graph {
    struct graph_tensor tensors[GRAPH_MAX_TENSORS];
    int tensor_count;
    cudnnBackendDescriptor_t nodes[GRAPH_MAX_NODES];
    int node_count;
    bool has_products;
    cudnnBackendDescriptor_t descriptors[MAX_DESCRIPTORS]; /* all of them, in order of creation */
    int descriptor_count;
    cudnnBackendDescriptor_t graph;
    char key[GRAPH_KEY_BYTES];
    size_t key_length;
    struct status_report failure;
};

/* --- Failures and descriptors --------------------------------------------------------------- */

PRINTF_LIKE(3, 4)
static void refuse(cudnn_graph *graph, enum status status, const char *format, ...)
{
    if (graph->failure.status != STATUS_OK) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(graph->failure.message, sizeof graph->failure.message, format, arguments);
    va_end(arguments);
    graph->failure.status = status;
}

static bool failed(const cudnn_graph *graph)
{
    return graph->failure.status != STATUS_OK;
}

static void check(cudnn_graph *graph, cudnnStatus_t error, const char *what)
{
    if (error == CUDNN_STATUS_SUCCESS || failed(graph)) {
        return;
    }
    char reason[768] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    refuse(graph, STATUS_UNSUPPORTED, "%s: %s: %s", what, cudnnGetErrorString(error), reason);
}

static cudnnBackendDescriptor_t make(cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    if (failed(graph)) {
        return NULL;
    }
    if (graph->descriptor_count == MAX_DESCRIPTORS) {
        refuse(graph, STATUS_INTERNAL, "graph has too many descriptors");
        return NULL;
    }
    cudnnBackendDescriptor_t descriptor = NULL;
    check(graph, cudnnBackendCreateDescriptor(type, &descriptor), "creating a descriptor");
    if (!failed(graph)) {
        graph->descriptors[graph->descriptor_count++] = descriptor;
    }
    return descriptor;
}

static void set(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *value, const char *what)
{
    if (!failed(graph)) {
        check(graph, cudnnBackendSetAttribute(descriptor, name, type, count, value), what);
    }
}

static void finalize(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (!failed(graph)) {
        check(graph, cudnnBackendFinalize(descriptor), what);
    }
}

PRINTF_LIKE(2, 3)
static void add_key(cudnn_graph *graph, const char *format, ...)
{
    size_t room = sizeof graph->key - graph->key_length;
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(graph->key + graph->key_length, room, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= room) {
        refuse(graph, STATUS_INTERNAL, "graph has a description that is too long");
        return;
    }
    graph->key_length += (size_t)length;
}

cudnn_graph *graph_create(void)
{
    return calloc(1, sizeof(cudnn_graph));
}

void graph_destroy(cudnn_graph *graph)
{
    if (graph == NULL) {
        return;
    }
    for (int i = graph->descriptor_count; i-- > 0;) {
        cudnnBackendDestroyDescriptor(graph->descriptors[i]);
    }
    free(graph);
}

/* --- Tensors -------------------------------------------------------------------------------- */

static cudnnDataType_t data_type(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return CUDNN_DATA_FLOAT;
    case DTYPE_BF16:
        return CUDNN_DATA_BFLOAT16;
    case DTYPE_U8:
        return CUDNN_DATA_UINT8;
    }
    return CUDNN_DATA_FLOAT;
}

static const char *type_name(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_FLOAT:
        return "f32";
    case CUDNN_DATA_BFLOAT16:
        return "bf16";
    case CUDNN_DATA_UINT8:
        return "u8";
    case CUDNN_DATA_INT8:
        return "i8";
    case CUDNN_DATA_BOOLEAN:
        return "bit";
    default:
        return "?";
    }
}

/* Registers a tensor and makes its descriptor. What cuDNN lets pass is refused here: sizes and
 * strides below 1, and elements that share a place. */
static int add_tensor(cudnn_graph *graph, const struct graph_tensor *tensor)
{
    if (failed(graph)) {
        return GRAPH_NONE;
    }
    if (graph->tensor_count == GRAPH_MAX_TENSORS) {
        refuse(graph, STATUS_INTERNAL, "graph has too many tensors");
        return GRAPH_NONE;
    }
    int64_t span = 1;
    int64_t elements = 1;
    for (int i = 0; i < 4; i++) {
        if (tensor->dims[i] < 1 || tensor->strides[i] < (tensor->overlaps ? 0 : 1)) {
            refuse(graph, STATUS_INTERNAL, "tensor %d has dimension %d of %lld and stride %lld",
                   graph->tensor_count, i, (long long)tensor->dims[i],
                   (long long)tensor->strides[i]);
            return GRAPH_NONE;
        }
        span += (tensor->dims[i] - 1) * tensor->strides[i];
        elements *= tensor->dims[i];
    }
    if (elements > span && !tensor->overlaps) {
        refuse(graph, STATUS_INTERNAL, "tensor %d has strides under which elements overlap",
               graph->tensor_count);
        return GRAPH_NONE;
    }
    int index = graph->tensor_count;
    struct graph_tensor *place = &graph->tensors[index];
    *place = *tensor;
    int64_t uid = index + 1;
    int64_t alignment = tensor->alignment;
    place->descriptor = make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(graph, place->descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
        &place->type, "tensor type");
    set(graph, place->descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, place->dims,
        "tensor dimensions");
    set(graph, place->descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, place->strides,
        "tensor strides");
    set(graph, place->descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid,
        "tensor identity");
    set(graph, place->descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment,
        "tensor alignment");
    if (place->virtual) {
        set(graph, place->descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
            &place->virtual, "virtual tensor");
    }
    if (place->by_value) {
        set(graph, place->descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
            &place->by_value, "tensor by value");
    }
    finalize(graph, place->descriptor, "tensor");
    if (failed(graph)) {
        return GRAPH_NONE;
    }
    graph->tensor_count++;
    add_key(graph, "t%d=%s%s%lldx%lldx%lldx%lld", index, type_name(place->type),
            place->virtual    ? "~"
            : place->by_value ? "="
                              : ":",
            (long long)place->dims[0], (long long)place->dims[1], (long long)place->dims[2],
            (long long)place->dims[3]);
    if (place->strides[1] != 1 || place->strides[3] != place->dims[1]) {
        add_key(graph, "/%lld,%lld,%lld,%lld", (long long)place->strides[0],
                (long long)place->strides[1], (long long)place->strides[2],
                (long long)place->strides[3]);
    }
    if (place->alignment != 16) {
        add_key(graph, "@%d", place->alignment);
    }
    add_key(graph, ";");
    return index;
}

static void nhwc(struct graph_tensor *tensor, int64_t n, int64_t c, int64_t h, int64_t w)
{
    tensor->dims[0] = n;
    tensor->dims[1] = c;
    tensor->dims[2] = h;
    tensor->dims[3] = w;
    tensor->strides[0] = h * w * c;
    tensor->strides[1] = 1;
    tensor->strides[2] = w * c;
    tensor->strides[3] = c;
}

int graph_tensor(cudnn_graph *graph, const struct tensor *tensor)
{
    if (tensor->buffer == NULL) {
        return GRAPH_NONE;
    }
    struct graph_tensor made = {.type = data_type(tensor->dtype), .alignment = 16};
    nhwc(&made, tensor->n, tensor->c, tensor->h, tensor->w);
    made.address = cuda_address(tensor);
    return add_tensor(graph, &made);
}

int graph_strided(cudnn_graph *graph, enum dtype dtype, const int64_t dims[4],
                  const int64_t strides[4], void *address, int alignment)
{
    struct graph_tensor made = {
        .type = data_type(dtype), .alignment = alignment, .address = address};
    memcpy(made.dims, dims, sizeof made.dims);
    memcpy(made.strides, strides, sizeof made.strides);
    int64_t elements = 1;
    int64_t span = 1;
    for (int i = 0; i < 4; i++) {
        elements *= dims[i];
        span += (dims[i] - 1) * strides[i];
    }
    made.overlaps = elements > span;
    return add_tensor(graph, &made);
}

int graph_index(cudnn_graph *graph, const struct tensor *y, void *address)
{
    struct graph_tensor made = {.type = CUDNN_DATA_INT8, .alignment = 16, .address = address};
    nhwc(&made, y->n, y->c, y->h, y->w);
    return add_tensor(graph, &made);
}

int graph_bits(cudnn_graph *graph, const struct tensor *y, void *address)
{
    struct graph_tensor made = {.type = CUDNN_DATA_BOOLEAN, .alignment = 16, .address = address};
    nhwc(&made, y->n, y->c, y->h, y->w);
    return add_tensor(graph, &made);
}

int graph_virtual(cudnn_graph *graph, enum dtype dtype, int like)
{
    if (failed(graph) || like == GRAPH_NONE) {
        refuse(graph, STATUS_INTERNAL, "a virtual tensor has no model");
        return GRAPH_NONE;
    }
    const int64_t *dims = graph->tensors[like].dims;
    struct graph_tensor made = {.type = data_type(dtype), .alignment = 16, .virtual = true};
    nhwc(&made, dims[0], dims[1], dims[2], dims[3]);
    return add_tensor(graph, &made);
}

int graph_virtual_channels(cudnn_graph *graph, int channels)
{
    struct graph_tensor made = {.type = CUDNN_DATA_FLOAT, .alignment = 16, .virtual = true};
    nhwc(&made, 1, channels, 1, 1);
    return add_tensor(graph, &made);
}

int graph_constant(cudnn_graph *graph, float value)
{
    struct graph_tensor made = {
        .type = CUDNN_DATA_FLOAT, .alignment = 4, .by_value = true, .value = value};
    nhwc(&made, 1, 1, 1, 1);
    return add_tensor(graph, &made);
}

int graph_scalar(cudnn_graph *graph, const struct tensor *vector, size_t index)
{
    struct graph_tensor made = {.type = CUDNN_DATA_FLOAT, .alignment = 4};
    nhwc(&made, 1, 1, 1, 1);
    char *start = cuda_address(vector);
    made.address = start == NULL ? NULL : start + index * sizeof(float);
    return add_tensor(graph, &made);
}

/* --- Nodes ---------------------------------------------------------------------------------- */

static bool usable(cudnn_graph *graph, int tensor, const char *what)
{
    if (failed(graph)) {
        return false;
    }
    if (tensor < 0 || tensor >= graph->tensor_count) {
        refuse(graph, STATUS_INTERNAL, "%s is absent", what);
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
        refuse(graph, STATUS_INTERNAL, "%s is read before anything wrote it", what);
        return;
    }
    t->read = true;
    set(graph, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->descriptor, what);
    add_key(graph, "%s=%d,", what, tensor);
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
        refuse(graph, STATUS_INTERNAL, "%s is written twice or cannot be written", what);
        return;
    }
    t->written = true;
    set(graph, node, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &t->descriptor, what);
    add_key(graph, "%s>%d,", what, tensor);
}

static cudnnBackendDescriptor_t begin_node(cudnn_graph *graph, cudnnBackendDescriptorType_t type,
                                           const char *name)
{
    add_key(graph, "%s(", name);
    return make(graph, type);
}

static void end_node(cudnn_graph *graph, cudnnBackendDescriptor_t node, const char *name)
{
    finalize(graph, node, name);
    if (failed(graph)) {
        return;
    }
    if (graph->node_count == GRAPH_MAX_NODES) {
        refuse(graph, STATUS_INTERNAL, "graph has too many nodes");
        return;
    }
    graph->nodes[graph->node_count++] = node;
    add_key(graph, ")");
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
        refuse(graph, STATUS_INTERNAL,
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
    cudnnBackendDescriptor_t conv = make(graph, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t dimensions = 2;
    int64_t strides[2] = {stride, stride};
    int64_t pads[2] = {pad, pad};
    int64_t dilations[2] = {1, 1};
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions,
        "convolution dimensions");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
        "convolution compute type");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode,
        "convolution mode");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides,
        "convolution strides");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
        "convolution padding");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
        "convolution padding");
    set(graph, conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilations,
        "convolution dilation");
    finalize(graph, conv, "convolution descriptor");
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
    add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w, "w");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y, "y");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one,
        "alpha");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero,
        "beta");
    end_node(graph, node, "convolution forward");
}

void graph_conv_data(cudnn_graph *graph, int dy, int w, int dx, int stride, int pad)
{
    check_conv(graph, dx, w, dy, stride, pad);
    cudnnBackendDescriptor_t conv = conv_descriptor(graph, stride, pad);
    cudnnBackendDescriptor_t node = begin_node(
        graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, "conv_data");
    add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, dy, "dy");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, w, "w");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, dx, "dx");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_TYPE_FLOAT, 1, &one,
        "alpha");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_TYPE_FLOAT, 1, &zero,
        "beta");
    end_node(graph, node, "convolution backward data");
}

void graph_conv_filter(cudnn_graph *graph, int x, int dy, int dw, int stride, int pad)
{
    check_conv(graph, x, dw, dy, stride, pad);
    cudnnBackendDescriptor_t conv = conv_descriptor(graph, stride, pad);
    cudnnBackendDescriptor_t node = begin_node(
        graph, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR, "conv_filter");
    add_key(graph, "s%dp%d,", stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, x, "x");
    reads(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY, dy, "dy");
    writes(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, dw, "dw");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
        CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv, "convolution");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_TYPE_FLOAT, 1, &one,
        "alpha");
    set(graph, node, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, CUDNN_TYPE_FLOAT, 1, &zero,
        "beta");
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
            refuse(
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
    cudnnBackendDescriptor_t pointwise = make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    set(graph, pointwise, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode,
        "pointwise mode");
    set(graph, pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute,
        "pointwise compute type");
    finalize(graph, pointwise, "pointwise descriptor");
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, "pointwise");
    add_key(graph, "%d,", (int)mode);
    set(graph, node, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &pointwise, "pointwise descriptor");
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

void graph_reduce(cudnn_graph *graph, cudnnReduceTensorOp_t op, int x, int y, bool deterministic)
{
    if (!usable(graph, x, "x") || !usable(graph, y, "y")) {
        return;
    }
    for (int i = 0; i < 4; i++) {
        if (graph->tensors[y].dims[i] != graph->tensors[x].dims[i] &&
            graph->tensors[y].dims[i] != 1) {
            refuse(graph, STATUS_INTERNAL, "reduction of size %lld in dimension %d to %lld",
                   (long long)graph->tensors[x].dims[i], i, (long long)graph->tensors[y].dims[i]);
            return;
        }
    }
    cudnnBackendDescriptor_t reduction = make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    set(graph, reduction, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op,
        "reduction operator");
    set(graph, reduction, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
        "reduction compute type");
    if (deterministic) {
        set(graph, reduction, CUDNN_ATTR_REDUCTION_IS_DETERMINISTIC, CUDNN_TYPE_BOOLEAN, 1,
            &deterministic, "reduction determinism");
    }
    finalize(graph, reduction, "reduction descriptor");
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduce");
    add_key(graph, "%d%s,", (int)op, deterministic ? "d" : "");
    reads(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, "y");
    set(graph, node, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &reduction, "reduction");
    end_node(graph, node, "reduction");
}

void graph_norm(cudnn_graph *graph, const struct graph_norm *norm, bool training)
{
    check_broadcast(graph, norm->x, norm->scale, norm->y);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_NORM_FORWARD_DESCRIPTOR, "norm");
    add_key(graph, "%s,", training ? "training" : "inference");
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    cudnnBackendNormFwdPhase_t phase =
        training ? CUDNN_NORM_FWD_TRAINING : CUDNN_NORM_FWD_INFERENCE;
    set(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode, "mode");
    set(graph, node, CUDNN_ATTR_OPERATION_NORM_FWD_PHASE, CUDNN_TYPE_NORM_FWD_PHASE, 1, &phase,
        "phase");
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
    check_broadcast(graph, norm->x, norm->dy, norm->dx);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_NORM_BACKWARD_DESCRIPTOR, "norm_backward");
    cudnnBackendNormMode_t mode = CUDNN_BATCH_NORM;
    set(graph, node, CUDNN_ATTR_OPERATION_NORM_BWD_MODE, CUDNN_TYPE_NORM_MODE, 1, &mode, "mode");
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
    cudnnBackendDescriptor_t pool = make(graph, CUDNN_BACKEND_RESAMPLE_DESCRIPTOR);
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    cudnnPaddingMode_t padding =
        mode == CUDNN_RESAMPLE_MAXPOOL ? CUDNN_NEG_INF_PAD : CUDNN_ZERO_PAD;
    cudnnNanPropagation_t nan = CUDNN_PROPAGATE_NAN;
    int64_t dimensions = 2;
    int64_t window[2] = {window_h, window_w};
    int64_t strides[2] = {stride, stride};
    int64_t pads[2] = {pad, pad};
    set(graph, pool, CUDNN_ATTR_RESAMPLE_MODE, CUDNN_TYPE_RESAMPLE_MODE, 1, &mode, "pooling mode");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute,
        "pooling compute type");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION, 1, &nan,
        "pooling of NaN");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_PADDING_MODE, CUDNN_TYPE_PADDING_MODE, 1, &padding,
        "pooling padding mode");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &dimensions,
        "pooling dimensions");
    /* cuDNN takes windows, strides and padding of pooling as fractions or integers; integers do. */
    set(graph, pool, CUDNN_ATTR_RESAMPLE_WINDOW_DIMS, CUDNN_TYPE_INT64, 2, window,
        "pooling window");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_STRIDES, CUDNN_TYPE_INT64, 2, strides, "pooling stride");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
        "pooling padding");
    set(graph, pool, CUDNN_ATTR_RESAMPLE_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads,
        "pooling padding");
    finalize(graph, pool, "pooling descriptor");
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
        refuse(graph, STATUS_INTERNAL, "pooling of %lld x %lld to %lld x %lld", (long long)a[2],
               (long long)a[3], (long long)b[2], (long long)b[3]);
    }
}

void graph_pool(cudnn_graph *graph, cudnnResampleMode_t mode, int x, int y, int index, int window_h,
                int window_w, int stride, int pad)
{
    check_pool(graph, x, y, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t pool = pool_descriptor(graph, mode, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_FWD_DESCRIPTOR, "pool");
    add_key(graph, "%d,%dx%ds%dp%d,", (int)mode, window_h, window_w, stride, pad);
    reads(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_XDESC, x, "x");
    writes(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_YDESC, y, "y");
    if (index != GRAPH_NONE) {
        writes(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_IDXDESC, index, "index");
    }
    set(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_FWD_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &pool, "pooling");
    end_node(graph, node, "pooling");
}

void graph_pool_backward(cudnn_graph *graph, cudnnResampleMode_t mode, int dy, int dx, int index,
                         int x, int y, int window_h, int window_w, int stride, int pad)
{
    check_pool(graph, dx, dy, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t pool = pool_descriptor(graph, mode, window_h, window_w, stride, pad);
    cudnnBackendDescriptor_t node =
        begin_node(graph, CUDNN_BACKEND_OPERATION_RESAMPLE_BWD_DESCRIPTOR, "pool_backward");
    add_key(graph, "%d,%dx%ds%dp%d,", (int)mode, window_h, window_w, stride, pad);
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
    set(graph, node, CUDNN_ATTR_OPERATION_RESAMPLE_BWD_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
        &pool, "pooling");
    end_node(graph, node, "pooling backward");
}

/* --- Finishing ------------------------------------------------------------------------------ */

enum status graph_finish(cudnn_graph *graph, cudnnHandle_t handle)
{
    for (int i = 0; i < graph->tensor_count && !failed(graph); i++) {
        const struct graph_tensor *t = &graph->tensors[i];
        if (t->virtual && (!t->written || !t->read)) {
            refuse(graph, STATUS_INTERNAL, "virtual tensor %d is not both written and read", i);
        } else if (!t->written && !t->read) {
            refuse(graph, STATUS_INTERNAL, "tensor %d belongs to no node", i);
        }
    }
    if (!failed(graph) && graph->node_count == 0) {
        refuse(graph, STATUS_INTERNAL, "graph without nodes");
    }
    graph->graph = make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        graph->node_count, graph->nodes, "graph's nodes");
    if (handle != NULL) {
        set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle,
            "graph's handle");
    }
    finalize(graph, graph->graph, "operation graph");
    if (failed(graph)) {
        return status_restore(&graph->failure);
    }
    return STATUS_OK;
}

cudnnBackendDescriptor_t graph_descriptor(const cudnn_graph *graph)
{
    return graph->graph;
}

const char *graph_key(const cudnn_graph *graph)
{
    return graph->key;
}

bool graph_has_products(const cudnn_graph *graph)
{
    return graph->has_products;
}

int graph_tensor_count(const cudnn_graph *graph)
{
    return graph->tensor_count;
}

const struct graph_tensor *graph_tensor_at(const cudnn_graph *graph, int index)
{
    assert(index >= 0 && index < graph->tensor_count);
    return &graph->tensors[index];
}

size_t graph_tensor_span(const struct graph_tensor *tensor)
{
    size_t elements = 1;
    for (int i = 0; i < 4; i++) {
        elements += (size_t)((tensor->dims[i] - 1) * tensor->strides[i]);
    }
    switch (tensor->type) {
    case CUDNN_DATA_BFLOAT16:
        return elements * 2;
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_INT8:
        return elements;
    case CUDNN_DATA_BOOLEAN:
        return (elements + 7) / 8;
    default:
        return elements * 4;
    }
}
