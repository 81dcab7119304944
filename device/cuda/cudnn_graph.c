#include "device/cuda/cudnn_graph_internal.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Failures and descriptors --------------------------------------------------------------- */

void graph__refuse(cudnn_graph *graph, enum status status, const char *format, ...)
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

bool graph__failed(const cudnn_graph *graph)
{
    return graph->failure.status != STATUS_OK;
}

static void check(cudnn_graph *graph, cudnnStatus_t error, const char *what)
{
    if (error == CUDNN_STATUS_SUCCESS || graph__failed(graph)) {
        return;
    }
    char reason[768] = "";
    cudnnGetLastErrorString(reason, sizeof reason);
    graph__refuse(graph, STATUS_UNSUPPORTED, "%s: %s: %s", what, cudnnGetErrorString(error),
                  reason);
}

cudnnBackendDescriptor_t graph__make(cudnn_graph *graph, cudnnBackendDescriptorType_t type)
{
    if (graph__failed(graph)) {
        return NULL;
    }
    if (graph->descriptor_count == MAX_DESCRIPTORS) {
        graph__refuse(graph, STATUS_INTERNAL, "graph has too many descriptors");
        return NULL;
    }
    cudnnBackendDescriptor_t descriptor = NULL;
    check(graph, cudnnBackendCreateDescriptor(type, &descriptor), "creating a descriptor");
    if (!graph__failed(graph)) {
        graph->descriptors[graph->descriptor_count++] = descriptor;
    }
    return descriptor;
}

void graph__set(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *value, const char *what)
{
    if (!graph__failed(graph)) {
        check(graph, cudnnBackendSetAttribute(descriptor, name, type, count, value), what);
    }
}

void graph__finalize(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, const char *what)
{
    if (!graph__failed(graph)) {
        check(graph, cudnnBackendFinalize(descriptor), what);
    }
}

/* Adds to one of the texts, which have room for the largest graph that the operations build. */
PRINTF_LIKE(3, 0)
static void add_text(cudnn_graph *graph, struct graph_text *text, const char *format,
                     va_list arguments)
{
    size_t room = sizeof text->text - text->length;
    int length = vsnprintf(text->text + text->length, room, format, arguments);
    if (length < 0 || (size_t)length >= room) {
        graph__refuse(graph, STATUS_INTERNAL, "graph has a description that is too long");
        return;
    }
    text->length += (size_t)length;
}

PRINTF_LIKE(3, 4)
static void add_one(cudnn_graph *graph, struct graph_text *text, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    add_text(graph, text, format, arguments);
    va_end(arguments);
}

void graph__add_key(cudnn_graph *graph, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    va_list again;
    va_copy(again, arguments);
    add_text(graph, &graph->key, format, arguments);
    add_text(graph, &graph->family, format, again);
    va_end(again);
    va_end(arguments);
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
static int graph__add_tensor(cudnn_graph *graph, const struct graph_tensor *tensor)
{
    if (graph__failed(graph)) {
        return GRAPH_NONE;
    }
    if (graph->tensor_count == GRAPH_MAX_TENSORS) {
        graph__refuse(graph, STATUS_INTERNAL, "graph has too many tensors");
        return GRAPH_NONE;
    }
    int64_t span = 1;
    int64_t elements = 1;
    for (int i = 0; i < 4; i++) {
        if (tensor->dims[i] < 1 || tensor->strides[i] < (tensor->overlaps ? 0 : 1)) {
            graph__refuse(graph, STATUS_INTERNAL,
                          "tensor %d has dimension %d of %lld and stride %lld", graph->tensor_count,
                          i, (long long)tensor->dims[i], (long long)tensor->strides[i]);
            return GRAPH_NONE;
        }
        span += (tensor->dims[i] - 1) * tensor->strides[i];
        elements *= tensor->dims[i];
    }
    if (elements > span && !tensor->overlaps) {
        graph__refuse(graph, STATUS_INTERNAL, "tensor %d has strides under which elements overlap",
                      graph->tensor_count);
        return GRAPH_NONE;
    }
    int index = graph->tensor_count;
    struct graph_tensor *place = &graph->tensors[index];
    *place = *tensor;
    int64_t uid = index + 1;
    int64_t alignment = tensor->alignment;
    place->descriptor = graph__make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1,
               &place->type, "tensor type");
    graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4,
               place->dims, "tensor dimensions");
    graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4,
               place->strides, "tensor strides");
    graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid,
               "tensor identity");
    graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1,
               &alignment, "tensor alignment");
    if (place->virtual) {
        graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1,
                   &place->virtual, "virtual tensor");
    }
    if (place->by_value) {
        graph__set(graph, place->descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1,
                   &place->by_value, "tensor by value");
    }
    graph__finalize(graph, place->descriptor, "tensor");
    if (graph__failed(graph)) {
        return GRAPH_NONE;
    }
    graph->tensor_count++;
    graph__add_key(graph, "t%d=%s%s", index, type_name(place->type),
                   place->virtual    ? "~"
                   : place->by_value ? "="
                                     : ":");
    add_one(graph, &graph->key, "%lld", (long long)place->dims[0]);
    add_one(graph, &graph->family, "*");
    graph__add_key(graph, "x%lldx%lldx%lld", (long long)place->dims[1], (long long)place->dims[2],
                   (long long)place->dims[3]);
    if (place->strides[1] != 1 || place->strides[3] != place->dims[1]) {
        graph__add_key(graph, "/%lld,%lld,%lld,%lld", (long long)place->strides[0],
                       (long long)place->strides[1], (long long)place->strides[2],
                       (long long)place->strides[3]);
    }
    if (place->alignment != 16) {
        graph__add_key(graph, "@%d", place->alignment);
    }
    graph__add_key(graph, ";");
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
    return graph__add_tensor(graph, &made);
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
    return graph__add_tensor(graph, &made);
}

int graph_index(cudnn_graph *graph, const struct tensor *y, void *address)
{
    struct graph_tensor made = {.type = CUDNN_DATA_INT8, .alignment = 16, .address = address};
    nhwc(&made, y->n, y->c, y->h, y->w);
    return graph__add_tensor(graph, &made);
}

int graph_bits(cudnn_graph *graph, const struct tensor *y, void *address)
{
    struct graph_tensor made = {.type = CUDNN_DATA_BOOLEAN, .alignment = 16, .address = address};
    nhwc(&made, y->n, y->c, y->h, y->w);
    return graph__add_tensor(graph, &made);
}

int graph_virtual(cudnn_graph *graph, enum dtype dtype, int like)
{
    if (graph__failed(graph) || like == GRAPH_NONE) {
        graph__refuse(graph, STATUS_INTERNAL, "a virtual tensor has no model");
        return GRAPH_NONE;
    }
    const int64_t *dims = graph->tensors[like].dims;
    struct graph_tensor made = {.type = data_type(dtype), .alignment = 16, .virtual = true};
    nhwc(&made, dims[0], dims[1], dims[2], dims[3]);
    return graph__add_tensor(graph, &made);
}

int graph_virtual_channels(cudnn_graph *graph, int channels)
{
    struct graph_tensor made = {.type = CUDNN_DATA_FLOAT, .alignment = 16, .virtual = true};
    nhwc(&made, 1, channels, 1, 1);
    return graph__add_tensor(graph, &made);
}

int graph_constant(cudnn_graph *graph, float value)
{
    struct graph_tensor made = {
        .type = CUDNN_DATA_FLOAT, .alignment = 4, .by_value = true, .value = value};
    nhwc(&made, 1, 1, 1, 1);
    return graph__add_tensor(graph, &made);
}

int graph_scalar(cudnn_graph *graph, const struct tensor *vector, size_t index)
{
    struct graph_tensor made = {.type = CUDNN_DATA_FLOAT, .alignment = 4};
    nhwc(&made, 1, 1, 1, 1);
    char *start = cuda_address(vector);
    made.address = start == NULL ? NULL : start + index * sizeof(float);
    return graph__add_tensor(graph, &made);
}

/* --- Finishing ------------------------------------------------------------------------------ */

enum status graph_finish(cudnn_graph *graph, cudnnHandle_t handle)
{
    for (int i = 0; i < graph->tensor_count && !graph__failed(graph); i++) {
        const struct graph_tensor *t = &graph->tensors[i];
        if (t->virtual && (!t->written || !t->read)) {
            graph__refuse(graph, STATUS_INTERNAL, "virtual tensor %d is not both written and read",
                          i);
        } else if (!t->written && !t->read) {
            graph__refuse(graph, STATUS_INTERNAL, "tensor %d belongs to no node", i);
        }
    }
    if (!graph__failed(graph) && graph->node_count == 0) {
        graph__refuse(graph, STATUS_INTERNAL, "graph without nodes");
    }
    graph->graph = graph__make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph__set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
               graph->node_count, graph->nodes, "graph's nodes");
    if (handle != NULL) {
        graph__set(graph, graph->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                   &handle, "graph's handle");
    }
    graph__finalize(graph, graph->graph, "operation graph");
    if (graph__failed(graph)) {
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
    return graph->key.text;
}

const char *graph_family(const cudnn_graph *graph)
{
    return graph->family.text;
}

bool graph_has_products(const cudnn_graph *graph)
{
    return graph->has_products;
}

bool graph_has_norms(const cudnn_graph *graph)
{
    return graph->has_norms;
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
