#include "device/cuda/cuda_plans.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"

#define NO_PLAN "none"
#define MAX_CONFIGS 64
#define CACHE_VERSION 1
#define CACHE_MAX_BYTES ((size_t)64 << 20)

struct plan_entry {
    uint64_t key;
    double ms;
    bool required;
    bool saved; /* stands in the cache file */
    char id[PLAN_ID_BYTES];
};

struct plan_choice {
    uint64_t key;
    double ms;
    char id[PLAN_ID_BYTES];
    char label[128];
};

/* A finalized plan with what it was made from. Building one compiles code, which takes longer than
 * anything else at opening: so each is built once. */
struct built_plan {
    struct built_plan *next;
    uint64_t key;
    char id[PLAN_ID_BYTES];
    double ms;
    cudnn_graph *graph; /* the first of its kind, from which the plan was made */
    cudnnBackendDescriptor_t engine, config, plan;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int knob_count;
    size_t workspace;
};

struct cuda_plans {
    struct built_plan *built;
    struct plan_entry *entries;
    size_t entry_count, entry_room;
    struct plan_choice *choices; /* in order of creation */
    size_t choice_count, choice_room;
    bool require;      /* plans must be those that were given */
    bool allow_others; /* except where none was given */
    bool dirty;
    char *path;        /* of the cache file, NULL for none */
    char machine[256]; /* GPU, driver and library versions: plans of another one do not count */
};

/* --- The table ------------------------------------------------------------------------------ */

static struct plan_entry *find_entry(struct cuda_plans *plans, uint64_t key)
{
    for (size_t i = 0; i < plans->entry_count; i++) {
        if (plans->entries[i].key == key) {
            return &plans->entries[i];
        }
    }
    return NULL;
}

static enum status add_entry(struct cuda_plans *plans, uint64_t key, const char *id, double ms,
                             bool required, bool saved)
{
    struct plan_entry *entry = find_entry(plans, key);
    if (entry == NULL) {
        if (plans->entry_count == plans->entry_room) {
            size_t room = plans->entry_room == 0 ? 64 : plans->entry_room * 2;
            struct plan_entry *grown = realloc(plans->entries, room * sizeof *grown);
            if (grown == NULL) {
                return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
            }
            plans->entries = grown;
            plans->entry_room = room;
        }
        entry = &plans->entries[plans->entry_count++];
    }
    *entry = (struct plan_entry){.key = key, .ms = ms, .required = required, .saved = saved};
    snprintf(entry->id, sizeof entry->id, "%s", id);
    if (!saved) {
        plans->dirty = true;
    }
    return STATUS_OK;
}

static enum status add_choice(struct cuda_plans *plans, const char *label, uint64_t key,
                              const char *id, double ms)
{
    if (plans->choice_count == plans->choice_room) {
        size_t room = plans->choice_room == 0 ? 64 : plans->choice_room * 2;
        struct plan_choice *grown = realloc(plans->choices, room * sizeof *grown);
        if (grown == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the list of plans");
        }
        plans->choices = grown;
        plans->choice_room = room;
    }
    struct plan_choice *choice = &plans->choices[plans->choice_count++];
    *choice = (struct plan_choice){.key = key, .ms = ms};
    snprintf(choice->id, sizeof choice->id, "%s", id);
    snprintf(choice->label, sizeof choice->label, "%s", label);
    return STATUS_OK;
}

/* The key of a graph under the settings that decide which plans are allowed. */
static uint64_t settings_key(const struct cuda_device *dev, const char *text)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "|%s%s", dev->settings.precision == PRECISION_F32 ? "f32" : "",
             dev->settings.deterministic ? "" : "any");
    return hash_text(hash_text(HASH_START, text), suffix);
}

/* --- The cache file ------------------------------------------------------------------------- */

static enum status parse_file(const char *path, json_document **out)
{
    *out = NULL;
    void *text = NULL;
    size_t bytes = 0;
    TRY(file_read(path, CACHE_MAX_BYTES, &text, &bytes));
    enum status status = json_parse(text, bytes, out);
    free(text);
    return status;
}

static bool parse_hex64(const char *text, uint64_t *value)
{
    char *end = NULL;
    if (text == NULL || strlen(text) != 16) {
        return false;
    }
    *value = strtoull(text, &end, 16);
    return *end == '\0';
}

static enum status load_cache(struct cuda_plans *plans)
{
    json_document *document = NULL;
    enum status status = parse_file(plans->path, &document);
    if (status == STATUS_NOT_FOUND) {
        status_clear();
        return STATUS_OK;
    }
    if (status != STATUS_OK) {
        log_warn("the cache of plans %s is not used: %s", plans->path, status_message());
        status_clear();
        return STATUS_OK;
    }
    const struct json_value *machines = json_member(json_root(document), "machines");
    if (json_member_int(json_root(document), "version", 0) == CACHE_VERSION && machines != NULL &&
        machines->kind == JSON_ARRAY) {
        for (size_t i = 0; i < machines->count && status == STATUS_OK; i++) {
            const struct json_value *machine = &machines->items[i];
            const struct json_value *list = json_member(machine, "plans");
            if (strcmp(json_member_string(machine, "machine", ""), plans->machine) != 0 ||
                list == NULL || list->kind != JSON_ARRAY) {
                continue;
            }
            for (size_t j = 0; j < list->count && status == STATUS_OK; j++) {
                uint64_t key = 0;
                if (parse_hex64(json_member_string(&list->items[j], "graph", ""), &key)) {
                    status =
                        add_entry(plans, key, json_member_string(&list->items[j], "plan", NO_PLAN),
                                  json_member_double(&list->items[j], "ms", 0), false, true);
                }
            }
        }
    }
    json_document_destroy(&document);
    return status;
}

static void write_machine(struct json_writer *writer, const char *name)
{
    json_begin_object(writer);
    json_key_string(writer, "machine", name);
    json_key(writer, "plans");
    json_begin_array(writer);
}

static void write_entry(struct json_writer *writer, uint64_t key, const char *id, double ms)
{
    json_begin_object(writer);
    json_key(writer, "graph");
    json_hex64(writer, key);
    json_key_string(writer, "plan", id);
    json_key_double(writer, "ms", ms);
    json_end_object(writer);
}

/* Writes the machines of the present file that are not this one, so that a folder shared by several
 * machines keeps all of them. */
static void copy_other_machines(const struct cuda_plans *plans, struct json_writer *writer)
{
    json_document *document = NULL;
    if (parse_file(plans->path, &document) != STATUS_OK) {
        status_clear();
        return;
    }
    const struct json_value *machines = json_member(json_root(document), "machines");
    for (size_t i = 0; machines != NULL && machines->kind == JSON_ARRAY && i < machines->count;
         i++) {
        const struct json_value *list = json_member(&machines->items[i], "plans");
        const char *name = json_member_string(&machines->items[i], "machine", "");
        if (strcmp(name, plans->machine) == 0 || list == NULL || list->kind != JSON_ARRAY) {
            continue;
        }
        write_machine(writer, name);
        for (size_t j = 0; j < list->count; j++) {
            uint64_t key = 0;
            if (parse_hex64(json_member_string(&list->items[j], "graph", ""), &key)) {
                write_entry(writer, key, json_member_string(&list->items[j], "plan", NO_PLAN),
                            json_member_double(&list->items[j], "ms", 0));
            }
        }
        json_end_array(writer);
        json_end_object(writer);
    }
    json_document_destroy(&document);
}

void cuda__plans_flush(struct cuda_device *dev)
{
    struct cuda_plans *plans = dev->plans;
    if (plans == NULL || plans->path == NULL || !plans->dirty) {
        return;
    }
    plans->dirty = false;
    struct file_writer file = {0};
    enum status status = file_writer_open(&file, plans->path);
    if (status == STATUS_OK) {
        struct json_writer writer;
        json_writer_init(&writer, file.stream, true);
        json_begin_object(&writer);
        json_key_int(&writer, "version", CACHE_VERSION);
        json_key(&writer, "machines");
        json_begin_array(&writer);
        copy_other_machines(plans, &writer);
        write_machine(&writer, plans->machine);
        for (size_t i = 0; i < plans->entry_count; i++) {
            write_entry(&writer, plans->entries[i].key, plans->entries[i].id, plans->entries[i].ms);
            plans->entries[i].saved = true;
        }
        json_end_array(&writer);
        json_end_object(&writer);
        json_end_array(&writer);
        json_end_object(&writer);
        status = file_writer_commit(&file);
    }
    if (status != STATUS_OK) {
        file_writer_abort(&file);
        log_warn("the cache of plans was not written: %s", status_message());
        status_clear();
    }
}

enum status cuda__plans_open(struct cuda_device *dev)
{
    dev->plans = calloc(1, sizeof *dev->plans);
    if (dev->plans == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
    }
    int driver = 0;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    snprintf(dev->plans->machine, sizeof dev->plans->machine,
             "%.128s %d.%d, driver %s (CUDA %d), cuDNN %zu, CUDA runtime %zu", dev->properties.name,
             dev->properties.major, dev->properties.minor, nvml_driver(dev->nvml), driver,
             cudnnGetVersion(), cudnnGetCudartVersion());
    if (dev->settings.plan_cache != NULL) {
        dev->plans->path = strdup(dev->settings.plan_cache);
        if (dev->plans->path == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
        }
        TRY(load_cache(dev->plans));
    }
    return STATUS_OK;
}

/* --- Engine configurations ------------------------------------------------------------------ */

/* An engine configuration that heuristics proposed or an id describes. */
struct config {
    cudnnBackendDescriptor_t engine, config;
    cudnnBackendDescriptor_t knobs[MAX_KNOBS];
    int knob_count;
    char id[PLAN_ID_BYTES];
};

static void destroy(cudnnBackendDescriptor_t *descriptor)
{
    if (*descriptor != NULL) {
        cudnnBackendDestroyDescriptor(*descriptor);
        *descriptor = NULL;
    }
}

static void config_fini(struct config *config)
{
    destroy(&config->config);
    for (int i = 0; i < config->knob_count; i++) {
        destroy(&config->knobs[i]);
    }
    config->knob_count = 0;
    destroy(&config->engine);
}

/* Writes "e7:2=1,5=0" for a proposed configuration and fetches its engine. */
static bool read_config(struct config *config)
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
        if (added < 0 || (size_t)(length + added) >= sizeof config->id) {
            return false;
        }
        length += added;
    }
    return true;
}

/* Builds the configuration that `id` describes, for `graph`. */
static bool build_config(cudnnBackendDescriptor_t graph, const char *id, struct config *config)
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
static bool allowed(const struct cuda_device *dev, const cudnn_graph *graph,
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

/* --- Plans and packs ------------------------------------------------------------------------ */

static void built_destroy(struct built_plan *built)
{
    destroy(&built->plan);
    destroy(&built->config);
    for (int i = 0; i < built->knob_count; i++) {
        destroy(&built->knobs[i]);
    }
    destroy(&built->engine);
    graph_destroy(built->graph);
    free(built);
}

void cuda__plans_close(struct cuda_device *dev)
{
    if (dev->plans == NULL) {
        return;
    }
    cuda__plans_flush(dev);
    while (dev->plans->built != NULL) {
        struct built_plan *built = dev->plans->built;
        dev->plans->built = built->next;
        built_destroy(built);
    }
    free(dev->plans->entries);
    free(dev->plans->choices);
    free(dev->plans->path);
    free(dev->plans);
    dev->plans = NULL;
}

void cuda__plan_destroy(struct cuda_plan *plan)
{
    destroy(&plan->pack);
    graph_destroy(plan->graph);
    *plan = (struct cuda_plan){0};
}

/* Makes and finalizes an execution plan; false when the engine cannot do it after all. */
static bool build_plan(struct cuda_device *dev, cudnnBackendDescriptor_t config,
                       cudnnBackendDescriptor_t *plan, size_t *workspace)
{
    int64_t count = 0;
    int64_t bytes = 0;
    bool built =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, plan) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &dev->cudnn) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(*plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(*plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &bytes) == CUDNN_STATUS_SUCCESS &&
        bytes >= 0 && (uint64_t)bytes <= dev->settings.workspace_limit;
    if (!built) {
        destroy(plan);
        return false;
    }
    *workspace = (size_t)bytes;
    return true;
}

/* Binds the graph's tensors: their own addresses, or places in the tuning memory. */
static enum status build_pack(struct cuda_device *dev, const cudnn_graph *graph, bool tuning,
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
    destroy(pack);
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

static size_t tuning_need(const cudnn_graph *graph)
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
        TRY(build_pack(dev, graph, false, &plan->pack));
        plan->generation = dev->generation;
    }
    TRY(cuda__use_cudnn_stream(dev, stream));
    CUDNN_TRY(cudnnBackendExecute(dev->cudnn, plan->built->plan, plan->pack));
    return STATUS_OK;
}

/* --- Timing --------------------------------------------------------------------------------- */

struct timer {
    cudaEvent_t from, to;
};

static enum status elapsed(struct timer *timer, double *ms)
{
    float value = 0;
    CUDA_TRY(cudaEventSynchronize(timer->to));
    CUDA_TRY(cudaEventElapsedTime(&value, timer->from, timer->to));
    *ms = value;
    return STATUS_OK;
}

/* Milliseconds of `count` runs issued one by one. */
static enum status time_plain(struct cuda_device *dev, cudnnBackendDescriptor_t plan,
                              cudnnBackendDescriptor_t pack, int count, struct timer *timer,
                              double *ms)
{
    CUDA_TRY(cudaEventRecord(timer->from, dev->tune_stream));
    for (int i = 0; i < count; i++) {
        CUDNN_TRY(cudnnBackendExecute(dev->cudnn, plan, pack));
    }
    CUDA_TRY(cudaEventRecord(timer->to, dev->tune_stream));
    return elapsed(timer, ms);
}

/* The same inside a captured graph, where short kernels are not hidden behind their launching. */
static enum status time_captured(struct cuda_device *dev, cudnnBackendDescriptor_t plan,
                                 cudnnBackendDescriptor_t pack, int count, struct timer *timer,
                                 double *ms)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t launch = NULL;
    CUDA_TRY(cudaStreamBeginCapture(dev->tune_stream, cudaStreamCaptureModeThreadLocal));
    cudnnStatus_t error = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < count && error == CUDNN_STATUS_SUCCESS; i++) {
        error = cudnnBackendExecute(dev->cudnn, plan, pack);
    }
    cudaError_t ended = cudaStreamEndCapture(dev->tune_stream, &graph);
    if (error == CUDNN_STATUS_SUCCESS && ended == cudaSuccess) {
        ended = cudaGraphInstantiate(&launch, graph, 0);
    }
    enum status status = STATUS_OK;
    if (error != CUDNN_STATUS_SUCCESS || ended != cudaSuccess) {
        (void)cudaGetLastError();
        status = FAIL(STATUS_UNSUPPORTED, "plan cannot be captured");
    }
    double best = 0;
    for (int i = 0; i < 3 && status == STATUS_OK; i++) {
        double once = 0;
        if (cudaEventRecord(timer->from, dev->tune_stream) != cudaSuccess ||
            cudaGraphLaunch(launch, dev->tune_stream) != cudaSuccess ||
            cudaEventRecord(timer->to, dev->tune_stream) != cudaSuccess) {
            status = FAIL(STATUS_UNSUPPORTED, "captured plan cannot be launched");
        } else {
            status = elapsed(timer, &once);
        }
        /* The first launch also carries the graph to the device. */
        if (i == 1 || (i > 1 && once < best)) {
            best = once;
        }
    }
    if (launch != NULL) {
        (void)cudaGraphExecDestroy(launch);
    }
    if (graph != NULL) {
        (void)cudaGraphDestroy(graph);
    }
    *ms = best;
    return status;
}

/* Milliseconds of one run. Plans that are far from `best` are measured no closer. */
static enum status time_plan(struct cuda_device *dev, cudnnBackendDescriptor_t plan,
                             cudnnBackendDescriptor_t pack, double best, struct timer *timer,
                             double *ms)
{
    TRY(cuda__use_cudnn_stream(dev, dev->tune_stream));
    double once = 0;
    TRY(time_plain(dev, plan, pack, 1, timer, &once));
    TRY(time_plain(dev, plan, pack, 1, timer, &once));
    if (best > 0 && once > 4 * best + 0.05) {
        *ms = once;
        return STATUS_OK;
    }
    if (once > 0.5) {
        double again = 0;
        TRY(time_plain(dev, plan, pack, 3, timer, &again));
        *ms = again / 3;
        return STATUS_OK;
    }
    double many = 0;
    if (dev->settings.capture && time_captured(dev, plan, pack, 20, timer, &many) == STATUS_OK) {
        *ms = many / 20;
        return STATUS_OK;
    }
    status_clear();
    TRY(time_plain(dev, plan, pack, 20, timer, &many));
    *ms = many / 20;
    return STATUS_OK;
}

/* --- Searching ------------------------------------------------------------------------------ */

struct search {
    struct cuda_device *dev;
    const cudnn_graph *graph;
    struct timer timer;
    cudnnBackendDescriptor_t pack;
    bool timed; /* there is memory to time in */
    int tried;
    double best_ms;
    struct config best;
    cudnnBackendDescriptor_t best_plan;
    size_t best_workspace;
    char seen[256][PLAN_ID_BYTES];
    int seen_count;
};

static bool seen_before(struct search *search, const char *id)
{
    for (int i = 0; i < search->seen_count; i++) {
        if (strcmp(search->seen[i], id) == 0) {
            return true;
        }
    }
    if (search->seen_count < 256) {
        snprintf(search->seen[search->seen_count++], PLAN_ID_BYTES, "%s", id);
    }
    return false;
}

/* Builds and times one proposed configuration; a failure of the candidate is no failure of the
 * search, unless the device itself broke. Takes what it keeps out of *config. */
static enum status try_config(struct search *search, struct config *config)
{
    struct cuda_device *dev = search->dev;
    if (!read_config(config) || seen_before(search, config->id) ||
        !allowed(dev, search->graph, config->engine)) {
        return STATUS_OK;
    }
    cudnnBackendDescriptor_t plan = NULL;
    size_t workspace = 0;
    if (!build_plan(dev, config->config, &plan, &workspace)) {
        return STATUS_OK;
    }
    double ms = 0;
    if (search->timed) {
        enum status status = cuda__need_workspace(dev, workspace);
        if (status == STATUS_OK) {
            status = build_pack(dev, search->graph, true, &search->pack);
        }
        if (status == STATUS_OK) {
            status = time_plan(dev, plan, search->pack, search->best_ms, &search->timer, &ms);
        }
        if (status != STATUS_OK) {
            destroy(&plan);
            cudaError_t error = cudaGetLastError();
            if (error == cudaSuccess && cudaStreamSynchronize(dev->tune_stream) == cudaSuccess) {
                log_verbose("plan %s is skipped: %s", config->id, status_message());
                status_clear();
                return STATUS_OK;
            }
            return status == STATUS_NO_MEMORY ? status : STATUS_DEVICE;
        }
    }
    search->tried++;
    if (search->best_plan == NULL || (search->timed && ms < search->best_ms)) {
        destroy(&search->best_plan);
        config_fini(&search->best);
        search->best = *config;
        *config = (struct config){0};
        search->best_plan = plan;
        search->best_workspace = workspace;
        search->best_ms = ms;
    } else {
        destroy(&plan);
    }
    return STATUS_OK;
}

/* Asks one heuristic for configurations and tries them in its order. A heuristic that fails has
 * nothing to propose. */
static enum status try_heuristic(struct search *search, cudnnBackendHeurMode_t mode)
{
    cudnnBackendDescriptor_t heuristic = NULL;
    cudnnBackendDescriptor_t graph = graph_descriptor(search->graph);
    cudnnBackendDescriptor_t found[MAX_CONFIGS] = {NULL};
    int64_t count = 0;
    bool asked = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic) ==
                     CUDNN_STATUS_SUCCESS &&
                 cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH,
                                          CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                          &graph) == CUDNN_STATUS_SUCCESS &&
                 cudnnBackendSetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE,
                                          CUDNN_TYPE_HEUR_MODE, 1, &mode) == CUDNN_STATUS_SUCCESS &&
                 cudnnBackendFinalize(heuristic) == CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < MAX_CONFIGS && asked; i++) {
        asked = cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &found[i]) ==
                CUDNN_STATUS_SUCCESS;
    }
    /* The number that counts is the one that comes back with the configurations. */
    asked = asked && cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                              CUDNN_TYPE_BACKEND_DESCRIPTOR, MAX_CONFIGS, &count,
                                              found) == CUDNN_STATUS_SUCCESS;
    enum status status = STATUS_OK;
    for (int64_t i = 0; asked && i < count && i < MAX_CONFIGS && status == STATUS_OK &&
                        search->tried < search->dev->settings.plan_candidates;
         i++) {
        struct config config = {.config = found[i]};
        found[i] = NULL;
        status = try_config(search, &config);
        config_fini(&config);
    }
    for (int i = 0; i < MAX_CONFIGS; i++) {
        destroy(&found[i]);
    }
    destroy(&heuristic);
    return status;
}

static void keep_config(struct built_plan *out, struct config *config)
{
    out->engine = config->engine;
    out->config = config->config;
    memcpy(out->knobs, config->knobs, sizeof out->knobs);
    out->knob_count = config->knob_count;
    *config = (struct config){0};
}

/* Searches for the graph's best plan; out->plan stays NULL when there is none. */
static enum status search_plan(struct cuda_device *dev, struct built_plan *out, char *id,
                               double *ms)
{
    struct search *search = calloc(1, sizeof *search);
    if (search == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to search plans");
    }
    search->dev = dev;
    search->graph = out->graph;
    search->timed = cuda__need_tuning(dev, tuning_need(out->graph));
    enum status status = STATUS_OK;
    if (cudaEventCreate(&search->timer.from) != cudaSuccess ||
        cudaEventCreate(&search->timer.to) != cudaSuccess) {
        status = FAIL(STATUS_DEVICE, "events for timing plans cannot be created: %s",
                      cudaGetErrorString(cudaGetLastError()));
    }
    static const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B,
                                                   CUDNN_HEUR_MODE_FALLBACK};
    for (size_t i = 0; i < 3 && status == STATUS_OK; i++) {
        /* The fall-backs are correct and slow: only where hardly anything else was found. */
        if (i < 2 || search->tried < 2) {
            status = try_heuristic(search, modes[i]);
        }
    }
    if (status == STATUS_OK && search->best_plan != NULL) {
        snprintf(id, PLAN_ID_BYTES, "%s", search->best.id);
        *ms = search->best_ms;
        out->plan = search->best_plan;
        out->workspace = search->best_workspace;
        search->best_plan = NULL;
        keep_config(out, &search->best);
    }
    destroy(&search->best_plan);
    config_fini(&search->best);
    destroy(&search->pack);
    if (search->timer.from != NULL) {
        (void)cudaEventDestroy(search->timer.from);
    }
    if (search->timer.to != NULL) {
        (void)cudaEventDestroy(search->timer.to);
    }
    free(search);
    return status;
}

/* Takes a remembered plan; false when it cannot be built any more. */
static bool recall_plan(struct cuda_device *dev, struct built_plan *out, const char *id)
{
    struct config config = {0};
    if (build_config(graph_descriptor(out->graph), id, &config) &&
        allowed(dev, out->graph, config.engine) &&
        build_plan(dev, config.config, &out->plan, &out->workspace)) {
        keep_config(out, &config);
        return true;
    }
    config_fini(&config);
    return false;
}

/* Finds the plan of a finished graph: remembered, required or searched. `built->plan` stays NULL where
 * there is none. */
static enum status choose_plan(struct cuda_device *dev, struct built_plan *built, const char *label)
{
    struct cuda_plans *plans = dev->plans;
    struct plan_entry *entry = find_entry(plans, built->key);
    bool must = plans->require && !plans->allow_others;
    if (must && (entry == NULL || !entry->required)) {
        return FAIL(STATUS_MISMATCH,
                    "%s: the plans to be used hold none for this operation (another batch size, "
                    "precision or library?); --replan chooses new ones",
                    label);
    }
    if (entry != NULL) {
        snprintf(built->id, sizeof built->id, "%s", entry->id);
        built->ms = entry->ms;
        if (strcmp(built->id, NO_PLAN) == 0 || recall_plan(dev, built, built->id)) {
            return STATUS_OK;
        }
        if (must) {
            return FAIL(STATUS_MISMATCH,
                        "%s: plan %s cannot be used with this GPU and these libraries; --replan "
                        "chooses another one",
                        label, built->id);
        }
    }
    snprintf(built->id, sizeof built->id, "%s", NO_PLAN);
    built->ms = 0;
    TRY(search_plan(dev, built, built->id, &built->ms));
    return add_entry(plans, built->key, built->id, built->ms, false, false);
}

/* The built plan of a graph, made if need be. `graph` is taken over when *out is made from it, which
 * *taken tells. */
static enum status obtain_plan(struct cuda_device *dev, cudnn_graph *graph, const char *label,
                               struct built_plan **out, bool *taken)
{
    *out = NULL;
    *taken = false;
    TRY(graph_finish(graph, dev->cudnn));
    uint64_t key = settings_key(dev, graph_key(graph));
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
    built->graph = graph;
    uint64_t start = clock_now_ns();
    enum status status = choose_plan(dev, built, label);
    if (status != STATUS_OK) {
        built->graph = NULL;
        built_destroy(built);
        return status;
    }
    log_verbose("%s: plan %s, %.4f ms, workspace %zu bytes; found in %.2f s", label, built->id,
                built->ms, built->workspace, clock_seconds(start, clock_now_ns()));
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
    TRY(add_choice(dev->plans, label, built->key, built->id, built->ms));
    if (built->plan == NULL) {
        return FAIL(STATUS_UNSUPPORTED, "%s: cuDNN %zu has no plan for %s on this GPU", label,
                    cudnnGetVersion(), graph_key(built->graph));
    }
    TRY(cuda__need_workspace(dev, built->workspace));
    TRY(build_pack(dev, out->graph != NULL ? out->graph : built->graph, false, &out->pack));
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

/* --- Lists ---------------------------------------------------------------------------------- */

enum status cuda__plans_note(struct cuda_device *dev, const char *label, const char *key,
                             const char *id)
{
    return add_choice(dev->plans, label, settings_key(dev, key), id, 0);
}

enum status cuda__plans_wanted(struct cuda_device *dev, const char *label, const char *key,
                               char id[PLAN_ID_BYTES])
{
    struct plan_entry *entry = find_entry(dev->plans, settings_key(dev, key));
    id[0] = '\0';
    if (entry != NULL && entry->required) {
        snprintf(id, PLAN_ID_BYTES, "%s", entry->id);
    } else if (dev->plans->require && !dev->plans->allow_others) {
        return FAIL(STATUS_MISMATCH,
                    "%s: the plans to be used hold none for this operation; --replan chooses new "
                    "ones",
                    label);
    }
    return STATUS_OK;
}

void cuda__write_plans(device *dev, struct json_writer *writer)
{
    const struct cuda_plans *plans = cuda_of(dev)->plans;
    json_begin_array(writer);
    for (size_t i = 0; i < plans->choice_count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "op", plans->choices[i].label);
        json_key_string(writer, "plan", plans->choices[i].id);
        json_key_double(writer, "ms", plans->choices[i].ms);
        json_key(writer, "graph");
        json_hex64(writer, plans->choices[i].key);
        json_end_object(writer);
    }
    json_end_array(writer);
}

uint64_t cuda__plans_hash(device *dev)
{
    const struct cuda_plans *plans = cuda_of(dev)->plans;
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < plans->choice_count; i++) {
        hash = hash_text(hash_text(hash, plans->choices[i].label), "\n");
        hash = hash_text(hash_text(hash, plans->choices[i].id), "\n");
    }
    return hash;
}

enum status cuda__require_plans(device *dev, const struct json_value *plans, bool allow_others)
{
    struct cuda_plans *table = cuda_of(dev)->plans;
    if (plans == NULL || plans->kind != JSON_ARRAY) {
        return FAIL(STATUS_INVALID, "the plans to be used are no list");
    }
    for (size_t i = 0; i < plans->count; i++) {
        uint64_t key = 0;
        const char *id = json_member_string(&plans->items[i], "plan", "");
        if (id[0] == '\0' ||
            !parse_hex64(json_member_string(&plans->items[i], "graph", ""), &key)) {
            return FAIL(STATUS_INVALID, "entry %zu of the plans to be used has no plan or graph",
                        i);
        }
        struct plan_entry *entry = find_entry(table, key);
        bool saved = entry != NULL && entry->saved && strcmp(entry->id, id) == 0;
        TRY(add_entry(table, key, id, json_member_double(&plans->items[i], "ms", 0), true, saved));
    }
    table->require = true;
    table->allow_others = allow_others;
    return STATUS_OK;
}
