/*
 * Finds the fastest plan of a graph: cuDNN's heuristics propose, several threads build (which compiles
 * code and takes most of the time), and one after another is timed on the device.
 */
#ifndef PINLINE_DEVICE_PLAN_SEARCH_H
#define PINLINE_DEVICE_PLAN_SEARCH_H

#include "device/cuda/plan_config.h"

/* A configuration with its finalized plan. Zero is an empty one. */
struct found_plan {
    struct plan_config config;
    cudnnBackendDescriptor_t plan;
    size_t workspace;
    double ms; /* of one run; 0 when there was no memory to time it in */
};

void plan_search__fini(struct found_plan *found);

/* The threads that build plans, each with a cuDNN handle of its own. */
struct plan_builders;
void plan_builders__close(struct plan_builders **builders);

/* Searches for the finished graph's best plan; out->plan stays NULL when there is none.
 * STATUS_DEVICE, STATUS_NO_MEMORY. */
enum status plan_search__run(struct cuda_device *dev, const cudnn_graph *graph,
                             struct found_plan *out) MUST_USE;

/* Builds the plan that `id` describes, without searching, and times it when `timed`. out->plan stays
 * NULL when it cannot be built here. */
enum status plan_search__recall(struct cuda_device *dev, const cudnn_graph *graph, const char *id,
                                bool timed, struct found_plan *out) MUST_USE;

#endif
