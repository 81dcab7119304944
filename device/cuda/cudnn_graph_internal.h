/* What the files of the graph builder share. */
#ifndef PINLINE_DEVICE_CUDNN_GRAPH_INTERNAL_H
#define PINLINE_DEVICE_CUDNN_GRAPH_INTERNAL_H

#include "device/cuda/cudnn_graph.h"

#define MAX_DESCRIPTORS (GRAPH_MAX_TENSORS + 2 * GRAPH_MAX_NODES + 2)

struct graph_text {
    char text[GRAPH_KEY_BYTES];
    size_t length;
};

struct cudnn_graph {
    struct graph_tensor tensors[GRAPH_MAX_TENSORS];
    int tensor_count;
    cudnnBackendDescriptor_t nodes[GRAPH_MAX_NODES];
    int node_count;
    bool has_products, has_norms;
    cudnnBackendDescriptor_t descriptors[MAX_DESCRIPTORS]; /* all of them, in order of creation */
    int descriptor_count;
    cudnnBackendDescriptor_t graph;
    struct graph_text key, family;
    struct status_report failure;
};

/* Records the graph's first failure; later ones are consequences. */
void graph__refuse(cudnn_graph *graph, enum status status, const char *format, ...)
    PRINTF_LIKE(3, 4);
bool graph__failed(const cudnn_graph *graph);

/* A descriptor that the graph owns; NULL after a failure. */
cudnnBackendDescriptor_t graph__make(cudnn_graph *graph, cudnnBackendDescriptorType_t type);
void graph__set(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                const void *value, const char *what);
void graph__finalize(cudnn_graph *graph, cudnnBackendDescriptor_t descriptor, const char *what);

/* Adds to the texts that tell graphs apart. */
void graph__add_key(cudnn_graph *graph, const char *format, ...) PRINTF_LIKE(2, 3);

#endif
