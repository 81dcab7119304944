/*
 * Builds one cuDNN operation graph through the backend API. The builder owns every descriptor, hands
 * out the tensors' identities, checks shapes and strides where cuDNN does not, and keeps the first
 * failure: after it every call does nothing and graph_finish returns the failure with its place and
 * cuDNN's explanation. Graphs can be built and finalized without a GPU.
 *
 * Tensors are named by their number, 0 and up; GRAPH_NONE stands for one that is absent or failed.
 * Dimensions are always in the order n, c, h, w, whatever the strides.
 */
#ifndef PINLINE_DEVICE_CUDNN_GRAPH_H
#define PINLINE_DEVICE_CUDNN_GRAPH_H

#include <cudnn.h>

#include "device/device.h"

#define GRAPH_NONE (-1)
#define GRAPH_MAX_TENSORS 40
#define GRAPH_MAX_NODES 24
#define GRAPH_KEY_BYTES 4096

typedef struct cudnn_graph cudnn_graph;

/* A tensor as the graph knows it. */
struct graph_tensor {
    int64_t dims[4];    /* n, c, h, w */
    int64_t strides[4]; /* in elements, same order */
    cudnnDataType_t type;
    int alignment; /* bytes */
    bool virtual;  /* lives only inside the graph */
    bool by_value; /* `value`, a float, travels with the call */
    bool overlaps; /* elements share places: for reading alone */
    bool written;  /* by a node of this graph */
    bool read;
    void *address; /* in device memory; NULL in a graph that is only checked */
    float value;
    cudnnBackendDescriptor_t descriptor;
};

/* NULL when host memory is exhausted. */
cudnn_graph *graph_create(void);
void graph_destroy(cudnn_graph *graph);

/* The address of a tensor's first element in device memory; NULL for an absent tensor and for one
 * whose buffer holds no memory (graphs that are only checked). */
void *cuda_address(const struct tensor *tensor);

/* --- Tensors -------------------------------------------------------------------------------- */

/* Device memory laid out as device.h says. GRAPH_NONE for an absent tensor. */
int graph_tensor(cudnn_graph *graph, const struct tensor *tensor);
/* Device memory with dimensions and strides (in elements) of one's own, `alignment` in bytes. Only
 * such a tensor may have elements that share a place, and then it can only be read. */
int graph_strided(cudnn_graph *graph, enum dtype dtype, const int64_t dims[4],
                  const int64_t strides[4], void *address, int alignment);
/* The index that max pooling keeps: one byte a value of y. */
int graph_index(cudnn_graph *graph, const struct tensor *y, void *address);
/* One bit a value of y, set by graph_greater: cuDNN's boolean type. */
int graph_bits(cudnn_graph *graph, const struct tensor *y, void *address);
/* A value inside the graph, in the shape and layout of tensor `like`, of type `dtype`. */
int graph_virtual(cudnn_graph *graph, enum dtype dtype, int like);
/* The same with one value a channel. */
int graph_virtual_channels(cudnn_graph *graph, int channels);
/* A float known now. */
int graph_constant(cudnn_graph *graph, float value);
/* A float that is read from device memory when the graph runs: element `index` of `vector`. */
int graph_scalar(cudnn_graph *graph, const struct tensor *vector, size_t index);

/* --- Nodes ---------------------------------------------------------------------------------- */

void graph_conv(cudnn_graph *graph, int x, int w, int y, int stride, int pad);
void graph_conv_data(cudnn_graph *graph, int dy, int w, int dx, int stride, int pad);
void graph_conv_filter(cudnn_graph *graph, int x, int dy, int dw, int stride, int pad);

/* y = mode(x), y = mode(x, b). Shapes broadcast. */
void graph_unary(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int y);
void graph_binary(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b, int y);
/* dx = dy where x (the input or the output of the ReLU) is positive, else 0. */
void graph_relu_backward(cudnn_graph *graph, int dy, int x, int dx);
/* The same as graph_unary and graph_binary into a new virtual float tensor shaped like x. */
int graph_unary_virtual(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x);
int graph_binary_virtual(cudnn_graph *graph, cudnnPointwiseMode_t mode, int x, int b);

/* y = op over the dimensions in which y is 1. */
void graph_reduce(cudnn_graph *graph, cudnnReduceTensorOp_t op, int x, int y);

struct graph_norm {
    int x, y, scale, bias, mean, inv_std;
    int epsilon, averaging;
    int running_mean_in, running_var_in, running_mean_out, running_var_out;
};
void graph_norm(cudnn_graph *graph, const struct graph_norm *norm, bool training);

struct graph_norm_backward {
    int x, dy, dx, scale, mean, inv_std, dscale, dbias;
};
void graph_norm_backward(cudnn_graph *graph, const struct graph_norm_backward *norm);

void graph_pool(cudnn_graph *graph, cudnnResampleMode_t mode, int x, int y, int index, int window_h,
                int window_w, int stride, int pad);
void graph_pool_backward(cudnn_graph *graph, cudnnResampleMode_t mode, int dy, int dx, int index,
                         int x, int y, int window_h, int window_w, int stride, int pad);

/* --- Finishing ------------------------------------------------------------------------------ */

/* Finalizes the graph. `handle` may be NULL where there is no GPU: then it can only be checked.
 * STATUS_UNSUPPORTED: cuDNN refuses it, with its reason; STATUS_INTERNAL: shapes contradict. */
enum status graph_finish(cudnn_graph *graph, cudnnHandle_t handle) MUST_USE;

cudnnBackendDescriptor_t graph_descriptor(const cudnn_graph *graph);
/* Text that is equal for graphs that compute the same thing on tensors of the same shape. */
const char *graph_key(const cudnn_graph *graph);
/* The same without the number of images: equal for batches of different size. */
const char *graph_family(const cudnn_graph *graph);
/* Whether the graph has a convolution. */
bool graph_has_products(const cudnn_graph *graph);
/* Whether it has a normalisation. */
bool graph_has_norms(const cudnn_graph *graph);
int graph_tensor_count(const cudnn_graph *graph);
const struct graph_tensor *graph_tensor_at(const cudnn_graph *graph, int index);
/* Bytes from a tensor's first to its last element. */
size_t graph_tensor_span(const struct graph_tensor *tensor);

#endif
