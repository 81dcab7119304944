/*
 * Chooses how a graph is run. cuDNN's heuristics propose engines; those that the device's settings
 * rule out are dropped; the best few are timed; the winner is remembered in the process, in the cache
 * file, and in the list that goes into every result.
 */
#ifndef PINLINE_DEVICE_CUDA_PLANS_H
#define PINLINE_DEVICE_CUDA_PLANS_H

#include "device/cuda/cuda_internal.h"
#include "device/cuda/cudnn_graph.h"
#include "device/cuda/plan_config.h"

struct built_plan;

/* A graph bound to its addresses, ready to run. The plan itself belongs to the device and is shared by
 * all graphs that compute the same thing on tensors of the same shape. Zero is an empty one. */
struct cuda_plan {
    cudnn_graph *graph;
    const struct built_plan *built;
    cudnnBackendDescriptor_t pack;
    unsigned generation; /* of the workspace that `pack` names */
};

/* The device's memory of plans. Opens the cache file when settings name one; a file that cannot be
 * read is reported as a warning and replaced. STATUS_NO_MEMORY. */
enum status cuda__plans_open(struct cuda_device *dev) MUST_USE;
/* Writes the cache file where something was added. */
void cuda__plans_flush(struct cuda_device *dev);
void cuda__plans_close(struct cuda_device *dev);

/*
 * Finishes `graph`, chooses its plan and binds its addresses. Takes `graph` over in every case, NULL
 * (no memory) included. `label` names the operation in lists and messages.
 * STATUS_UNSUPPORTED when nothing can run it, which the caller may answer with another form of the
 * operation; STATUS_MISMATCH when a plan is required and missing; STATUS_DEVICE, STATUS_NO_MEMORY.
 */
enum status cuda__plan_create(struct cuda_device *dev, cudnn_graph *graph, const char *label,
                              struct cuda_plan *out) MUST_USE;
/* Points the cuDNN handle at `stream`. */
enum status cuda__use_cudnn_stream(struct cuda_device *dev, cudaStream_t stream) MUST_USE;
void cuda__plan_destroy(struct cuda_plan *plan);
enum status cuda__plan_run(struct cuda_device *dev, struct cuda_plan *plan,
                           cudaStream_t stream) MUST_USE;

/* Adds the choice of another library (cuBLAS) to the lists. `key` tells apart what `id` does not. */
enum status cuda__plans_note(struct cuda_device *dev, const char *label, const char *key,
                             const char *id) MUST_USE;
/* The id that such a choice must have: "" when any will do. STATUS_MISMATCH when one is required
 * and missing. */
enum status cuda__plans_wanted(struct cuda_device *dev, const char *label, const char *key,
                               char id[PLAN_ID_BYTES]) MUST_USE;

/* Binds a graph's tensors to their own addresses, or to places in the tuning memory; replaces *pack. */
enum status cuda__pack_build(struct cuda_device *dev, const cudnn_graph *graph, bool tuning,
                             cudnnBackendDescriptor_t *pack) MUST_USE;
/* Bytes of tuning memory that the graph's tensors take. */
size_t cuda__tuning_need(const cudnn_graph *graph);

void cuda__write_plans(device *dev, struct json_writer *writer);
uint64_t cuda__plans_hash(device *dev);
enum status cuda__require_plans(device *dev, const struct json_value *plans,
                                bool allow_others) MUST_USE;

#endif
