/*
 * One way to run a graph: a cuDNN engine with a choice for each of its knobs, as text ("e7:2=1,5=0":
 * engine 7, knob 2 at 1, knob 5 at 0) and as descriptors.
 */
#ifndef PINLINE_DEVICE_PLAN_CONFIG_H
#define PINLINE_DEVICE_PLAN_CONFIG_H

#include "device/cuda/cuda_internal.h"
#include "device/cuda/cudnn_graph.h"

#define PLAN_ID_BYTES 256
#define MAX_KNOBS 32

/* Owns its descriptors; zero is an empty one. */
struct plan_config {
    cudnnBackendDescriptor_t engine, config;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int knob_count;
    char id[PLAN_ID_BYTES];
};

/* Destroys a descriptor, if there is one, and clears it. */
void plan_config__destroy(cudnnBackendDescriptor_t *descriptor);
void plan_config__fini(struct plan_config *config);

/* Fills in engine, knobs and id of a configuration that a heuristic proposed (config->config). */
bool plan_config__read(struct plan_config *config);
/* Makes the configuration that `id` describes; what fails is left to plan_config__fini. */
bool plan_config__build(cudnnBackendDescriptor_t graph, const char *id, struct plan_config *config);

/* Whether the device's settings allow the engine for this graph. */
bool plan_config__allowed(const struct cuda_device *dev, const cudnn_graph *graph,
                          cudnnBackendDescriptor_t engine);

/* Makes the execution plan, which may compile code. False when the engine cannot do it after all or
 * wants more than `limit` bytes of workspace. Any thread, with a handle of its own. */
bool plan_config__finalize(const struct plan_config *config, cudnnHandle_t handle, size_t limit,
                           cudnnBackendDescriptor_t *plan, size_t *workspace);

#endif
