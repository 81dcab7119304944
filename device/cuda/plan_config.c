#include "device/cuda/plan_config.h"

#include <stdio.h>
#include <stdlib.h>

void plan_config__destroy(cudnnBackendDescriptor_t *descriptor)
{
    if (*descriptor != NULL) {
        cudnnBackendDestroyDescriptor(*descriptor);
        *descriptor = NULL;
    }
}

void plan_config__fini(struct plan_config *config)
{
    plan_config__destroy(&config->config);
    for (int i = 0; i < config->knob_count; i++) {
        plan_config__destroy(&config->knobs[i]);
    }
    plan_config__destroy(&config->engine);
    *config = (struct plan_config){0};
}

/* Writes "e7:2=1,5=0" for a proposed configuration and fetches its engine. */
bool plan_config__read(struct plan_config *config)
{
    int64_t count = 0;
    int64_t engine = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &config->engine) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(config->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                 &config->engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(config->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                 1, &count, &engine) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    int length = snprintf(config->id, sizeof config->id, "e%lld", (long long)engine);
    /* The number of knobs is known only once they are fetched into descriptors that exist. */
    for (int i = 0; i < MAX_KNOBS; i++) {
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &config->knobs[i]) !=
            CUDNN_STATUS_SUCCESS) {
            return false;
        }
        config->knob_count++;
    }
    int64_t fetched = 0;
    if (cudnnBackendGetAttribute(config->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_KNOBS, &fetched,
                                 config->knobs) != CUDNN_STATUS_SUCCESS) {
        return true; /* an engine without knobs */
    }
    for (int64_t i = 0; i < fetched && i < MAX_KNOBS; i++) {
        cudnnBackendKnobType_t type = 0;
        int64_t value = 0;
        if (cudnnBackendGetAttribute(config->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE,
                                     CUDNN_TYPE_KNOB_TYPE, 1, &count,
                                     &type) != CUDNN_STATUS_SUCCESS ||
            cudnnBackendGetAttribute(config->knobs[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE,
                                     CUDNN_TYPE_INT64, 1, &count, &value) != CUDNN_STATUS_SUCCESS) {
            return false;
        }
        int added = snprintf(config->id + length, sizeof config->id - (size_t)length, "%c%d=%lld",
                             i == 0 ? ':' : ',', (int)type, (long long)value);
        if (added < 0 || (size_t)length + (size_t)added >= sizeof config->id) {
            return false;
        }
        length += added;
    }
    return true;
}

/* Builds the configuration that `id` describes, for `graph`. */
bool plan_config__build(cudnnBackendDescriptor_t graph, const char *id, struct plan_config *config)
{
    char *end = NULL;
    if (id[0] != 'e') {
        return false;
    }
    int64_t engine = strtoll(id + 1, &end, 10);
    snprintf(config->id, sizeof config->id, "%s", id);
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &config->engine) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(config->engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &graph) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(config->engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
                                 1, &engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(config->engine) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config->config) !=
            CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(config->config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config->engine) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    while (*end == ':' || *end == ',') {
        int type_value = (int)strtol(end + 1, &end, 10);
        if (*end != '=' || config->knob_count == MAX_KNOBS) {
            return false;
        }
        int64_t value = strtoll(end + 1, &end, 10);
        cudnnBackendKnobType_t type = (cudnnBackendKnobType_t)type_value;
        cudnnBackendDescriptor_t *knob = &config->knobs[config->knob_count];
        if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, knob) !=
            CUDNN_STATUS_SUCCESS) {
            return false;
        }
        config->knob_count++;
        if (cudnnBackendSetAttribute(*knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE,
                                     1, &type) != CUDNN_STATUS_SUCCESS ||
            cudnnBackendSetAttribute(*knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                                     &value) != CUDNN_STATUS_SUCCESS ||
            cudnnBackendFinalize(*knob) != CUDNN_STATUS_SUCCESS) {
            return false;
        }
    }
    if (*end != '\0') {
        return false;
    }
    if (config->knob_count > 0 &&
        cudnnBackendSetAttribute(config->config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, config->knob_count,
                                 config->knobs) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    return cudnnBackendFinalize(config->config) == CUDNN_STATUS_SUCCESS;
}

/* Whether the settings allow the engine, by what cuDNN notes about its arithmetic. Engines that fuse
 * note tensor cores whether or not the graph has products, so that note counts only where it has. */
bool plan_config__allowed(const struct cuda_device *dev, const cudnn_graph *graph,
                          cudnnBackendDescriptor_t engine)
{
    bool exact = dev->settings.precision == PRECISION_F32 && graph_has_products(graph);
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                                 notes) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    for (int64_t i = 0; i < count && i < CUDNN_NUMERICAL_NOTE_TYPE_COUNT; i++) {
        switch (notes[i]) {
        case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
            if (dev->settings.deterministic) {
                return false;
            }
            break;
        case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
            return false; /* the interface promises to accumulate in float32 */
        case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
        case CUDNN_NUMERICAL_NOTE_FFT:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
        case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
            /* Each of these loses digits that PRECISION_F32 promises. */
            if (exact) {
                return false;
            }
            break;
        default:
            break;
        }
    }
    return true;
}

/* Makes and finalizes an execution plan; false when the engine cannot do it after all. */
bool plan_config__finalize(const struct plan_config *config, cudnnHandle_t handle, size_t limit,
                           cudnnBackendDescriptor_t *plan, size_t *workspace)
{
    int64_t count = 0;
    int64_t bytes = 0;
    bool built =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &handle) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config->config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(*plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &bytes) == CUDNN_STATUS_SUCCESS &&
        bytes >= 0 && (uint64_t)bytes <= limit;
    if (!built) {
        plan_config__destroy(plan);
        return false;
    }
    *workspace = (size_t)bytes;
    return true;
}
