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

/* A plan whose id is known, to be built for a finished graph. out->plan stays NULL when it cannot be
 * built here. */
struct known_plan {
    const cudnn_graph *graph;
    const char *id;
    struct found_plan *out;
};

/* Builds plans without searching, several at a time, and times none. STATUS_NO_MEMORY, STATUS_LIMIT
 * when the system refuses threads, STATUS_DEVICE. */
enum status plan_search__recall(struct cuda_device *dev, const struct known_plan *known,
                                int count) MUST_USE;

/* Builds one plan without searching and times it where there is memory for that. */
enum status plan_search__recall_timed(struct cuda_device *dev,
                                      const struct known_plan *known) MUST_USE;

#endif
