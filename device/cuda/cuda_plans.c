#include "device/cuda/cuda_plans.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/cuda/plan_search.h"
#include "device/cuda/plan_table.h"

/* A finalized plan with what it was made from. Building one compiles code, which takes longer than
 * anything else at opening: so each is built once. */
struct built_plan {
    struct built_plan *next;
    uint64_t key;
    uint64_t family;         /* of graphs that differ in the batch alone */
    size_t span;             /* bytes of all tensors, to compare members of a family */
    cudnn_graph *graph;      /* the first of its kind, from which the plan was made */
    struct found_plan found; /* found.plan is NULL where there is none */
};

struct cuda_plans {
    struct plan_table table; /* first: plan_table.c relies on it */
    struct built_plan *built;
};

enum status cuda__plans_open(struct cuda_device *dev)
{
    dev->plans = calloc(1, sizeof *dev->plans);
    if (dev->plans == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
    }
    return plan_table__open(dev, &dev->plans->table);
}

void cuda__plans_flush(struct cuda_device *dev)
{
    plan_table__flush(&dev->plans->table);
}

static void built_destroy(struct built_plan *built)
{
    plan_search__fini(&built->found);
    graph_destroy(built->graph);
    free(built);
}

void cuda__plans_close(struct cuda_device *dev)
{
    if (dev->plans == NULL) {
        return;
    }
    while (dev->plans->built != NULL) {
        struct built_plan *built = dev->plans->built;
        dev->plans->built = built->next;
        built_destroy(built);
    }
    plan_table__fini(&dev->plans->table);
    free(dev->plans);
    dev->plans = NULL;
}

/* --- Running -------------------------------------------------------------------------------- */

void cuda__plan_destroy(struct cuda_plan *plan)
{
    plan_config__destroy(&plan->pack);
    graph_destroy(plan->graph);
    *plan = (struct cuda_plan){0};
}

/* Binds the graph's tensors: their own addresses, or places in the tuning memory. */
enum status cuda__pack_build(struct cuda_device *dev, const cudnn_graph *graph, bool tuning,
                             cudnnBackendDescriptor_t *pack)
{
    int64_t uids[GRAPH_MAX_TENSORS];
    void *addresses[GRAPH_MAX_TENSORS];
    union {
        const float *constant;
        void *address;
    } by_value;
    int64_t count = 0;
    size_t place = 0;
    for (int i = 0; i < graph_tensor_count(graph); i++) {
        const struct graph_tensor *tensor = graph_tensor_at(graph, i);
        if (tensor->virtual) {
            continue;
        }
        uids[count] = i + 1;
        if (tensor->by_value) {
            by_value.constant = &tensor->value;
            addresses[count] = by_value.address;
        } else if (tuning) {
            addresses[count] = (char *)dev->tuning + place;
            place += (graph_tensor_span(tensor) + 255) & ~(size_t)255;
        } else {
            addresses[count] = tensor->address;
        }
        count++;
    }
    plan_config__destroy(pack);
    CUDNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, pack));
    CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64,
                                       count, uids));
    CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                       CUDNN_TYPE_VOID_PTR, count, addresses));
    CUDNN_TRY(cudnnBackendSetAttribute(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                       CUDNN_TYPE_VOID_PTR, 1, &dev->workspace));
    CUDNN_TRY(cudnnBackendFinalize(*pack));
    return STATUS_OK;
}

size_t cuda__tuning_need(const cudnn_graph *graph)
{
    size_t bytes = 0;
    for (int i = 0; i < graph_tensor_count(graph); i++) {
        const struct graph_tensor *tensor = graph_tensor_at(graph, i);
        if (!tensor->virtual && !tensor->by_value) {
            bytes += (graph_tensor_span(tensor) + 255) & ~(size_t)255;
        }
    }
    return bytes;
}

enum status cuda__use_cudnn_stream(struct cuda_device *dev, cudaStream_t stream)
{
    if (dev->cudnn_stream != stream) {
        CUDNN_TRY(cudnnSetStream(dev->cudnn, stream));
        dev->cudnn_stream = stream;
    }
    return STATUS_OK;
}

enum status cuda__plan_run(struct cuda_device *dev, struct cuda_plan *plan, cudaStream_t stream)
{
    if (plan->generation != dev->generation) {
        const cudnn_graph *graph = plan->graph != NULL ? plan->graph : plan->built->graph;
        TRY(cuda__pack_build(dev, graph, false, &plan->pack));
        plan->generation = dev->generation;
    }
    TRY(cuda__use_cudnn_stream(dev, stream));
    CUDNN_TRY(cudnnBackendExecute(dev->cudnn, plan->built->found.plan, plan->pack));
    return STATUS_OK;
}

/* --- Choosing ------------------------------------------------------------------------------- */

/* The plan that a larger batch of the same work has, if it works here too: the last batch of an epoch
 * is not worth a search of its own. */
static enum status borrow_plan(struct cuda_device *dev, struct built_plan *built)
{
    const struct built_plan *larger = dev->plans->built;
    while (larger != NULL && (larger->family != built->family || larger->span < built->span ||
                              larger->found.plan == NULL)) {
        larger = larger->next;
    }
    if (larger == NULL) {
        return STATUS_OK;
    }
    return plan_search__recall(dev, built->graph, larger->found.config.id, true, &built->found);
}

/* Finds the plan of a finished graph: remembered, required, borrowed or searched. */
static enum status choose_plan(struct cuda_device *dev, struct built_plan *built, const char *label)
{
    struct plan_table *table = &dev->plans->table;
    struct plan_entry *entry = plan_table__find(table, built->key);
    bool must = plan_table__must(table, label);
    if (must && (entry == NULL || !entry->required)) {
        return FAIL(STATUS_MISMATCH,
                    "%s: the plans to be used are for another form of this operation (another GPU, "
                    "precision or library?); --replan chooses new ones",
                    label);
    }
    if (entry != NULL) {
        double ms = entry->ms;
        if (strcmp(entry->id, PLAN_NONE) == 0) {
            return STATUS_OK;
        }
        TRY(plan_search__recall(dev, built->graph, entry->id, false, &built->found));
        built->found.ms = ms;
        if (built->found.plan != NULL) {
            return STATUS_OK;
        }
        if (must) {
            return FAIL(STATUS_MISMATCH,
                        "%s: plan %s cannot be used with this GPU and these libraries; --replan "
                        "chooses another one",
                        label, entry->id);
        }
    }
    TRY(borrow_plan(dev, built));
    if (built->found.plan == NULL) {
        TRY(plan_search__run(dev, built->graph, &built->found));
    }
    return plan_table__add(table, built->key,
                           built->found.plan == NULL ? PLAN_NONE : built->found.config.id,
                           built->found.ms, false, false);
}

/* The built plan of a graph, made if need be. `graph` is taken over when *out is made from it, which
 * *taken tells. */
static enum status obtain_plan(struct cuda_device *dev, cudnn_graph *graph, const char *label,
                               struct built_plan **out, bool *taken)
{
    *out = NULL;
    *taken = false;
    TRY(graph_finish(graph, dev->cudnn));
    uint64_t key = plan_table__key(dev, graph_key(graph));
    for (struct built_plan *built = dev->plans->built; built != NULL; built = built->next) {
        if (built->key == key) {
            *out = built;
            return STATUS_OK;
        }
    }
    struct built_plan *built = calloc(1, sizeof *built);
    if (built == NULL) {
        return FAIL(STATUS_NO_MEMORY, "%s: no memory for its plan", label);
    }
    built->key = key;
    built->family = hash_text(HASH_START, graph_family(graph));
    built->span = cuda__tuning_need(graph);
    built->graph = graph;
    uint64_t start = clock_now_ns();
    enum status status = choose_plan(dev, built, label);
    if (status != STATUS_OK) {
        built->graph = NULL;
        built_destroy(built);
        return status;
    }
    log_verbose("%s: plan %s, %.4f ms, workspace %zu bytes; found in %.2f s", label,
                built->found.plan == NULL ? PLAN_NONE : built->found.config.id, built->found.ms,
                built->found.workspace, clock_seconds(start, clock_now_ns()));
    built->next = dev->plans->built;
    dev->plans->built = built;
    *out = built;
    *taken = true;
    return STATUS_OK;
}

/* Binds the graph's addresses: those of out->graph, or of the plan's own graph when that is NULL. */
static enum status bind_plan(struct cuda_device *dev, struct built_plan *built,
                             struct cuda_plan *out, const char *label)
{
    TRY(plan_table__choose(&dev->plans->table, label, built->key,
                           built->found.plan == NULL ? PLAN_NONE : built->found.config.id,
                           built->found.ms));
    if (built->found.plan == NULL) {
        return FAIL(STATUS_UNSUPPORTED, "%s: cuDNN %zu has no plan for %s on this GPU", label,
                    cudnnGetVersion(), graph_key(built->graph));
    }
    TRY(cuda__need_workspace(dev, built->found.workspace));
    TRY(cuda__pack_build(dev, out->graph != NULL ? out->graph : built->graph, false, &out->pack));
    out->built = built;
    out->generation = dev->generation;
    return STATUS_OK;
}

enum status cuda__plan_create(struct cuda_device *dev, cudnn_graph *graph, const char *label,
                              struct cuda_plan *out)
{
    *out = (struct cuda_plan){0};
    if (graph == NULL) {
        return FAIL(STATUS_NO_MEMORY, "%s: no memory for its graph", label);
    }
    struct built_plan *built = NULL;
    bool taken = false;
    enum status status = obtain_plan(dev, graph, label, &built, &taken);
    if (!taken) {
        out->graph = graph;
    }
    if (status == STATUS_OK) {
        status = bind_plan(dev, built, out, label);
    }
    if (status != STATUS_OK) {
        cuda__plan_destroy(out);
    }
    return status;
}
