#include "device/cuda/plan_search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/system.h"
#include "base/thread_pool.h"
#include "device/cuda/cuda_plans.h"

#define MAX_CONFIGS 64
#define MAX_CANDIDATES 160
#define MAX_BUILDERS 8

/* Convolutions are built from ready code in milliseconds, so more of them can be tried. */
#define CONVOLUTION_FACTOR 3

/* Work of one value at a time is compiled anew for each candidate, and the first few are as good as
 * all; among normalisations the best may come late and be twice as fast. */
#define POINTWISE_CANDIDATES 4

void plan_search__fini(struct found_plan *found)
{
    plan_config__destroy(&found->plan);
    plan_config__fini(&found->config);
    *found = (struct found_plan){0};
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

/* --- Building in parallel ------------------------------------------------------------------- */

struct plan_builders {
    thread_pool *pool;
    cudnnHandle_t handles[MAX_BUILDERS];
    int count;
};

void plan_builders__close(struct plan_builders **builders)
{
    if (*builders == NULL) {
        return;
    }
    thread_pool_close(&(*builders)->pool);
    for (int i = 0; i < (*builders)->count; i++) {
        (void)cudnnDestroy((*builders)->handles[i]);
    }
    free(*builders);
    *builders = NULL;
}

static enum status open_builders(struct cuda_device *dev)
{
    if (dev->builders != NULL) {
        return STATUS_OK;
    }
    struct system_facts facts;
    system_read_facts(&facts);
    int threads = facts.cpus_allowed < MAX_BUILDERS ? facts.cpus_allowed : MAX_BUILDERS;
    dev->builders = calloc(1, sizeof *dev->builders);
    if (dev->builders == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to search plans");
    }
    for (int i = 0; i < threads; i++) {
        CUDNN_TRY(cudnnCreate(&dev->builders->handles[i]));
        dev->builders->count++;
    }
    return thread_pool_open(threads, &dev->builders->pool);
}

struct search {
    struct cuda_device *dev;
    const cudnn_graph *graph;
    struct found_plan candidates[MAX_CANDIDATES];
    int count;
    int first; /* of the candidates that are being built */
};

/* Builds one candidate on a thread of the pool. A thread that calls the runtime names its device
 * first. */
static void build_part(void *context, int part, int worker)
{
    struct search *search = context;
    struct cuda_device *dev = search->dev;
    struct found_plan *candidate = &search->candidates[search->first + part];
    if (cudaSetDevice(dev->index) == cudaSuccess) {
        (void)plan_config__finalize(&candidate->config, dev->builders->handles[worker],
                                    dev->settings.workspace_limit, &candidate->plan,
                                    &candidate->workspace);
    }
}

/* --- Searching ------------------------------------------------------------------------------ */

static bool proposed_before(const struct search *search, const char *id)
{
    for (int i = 0; i < search->count; i++) {
        if (strcmp(search->candidates[i].config.id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* Asks one heuristic and adds what is new and allowed to the candidates, in its order. A heuristic
 * that fails has nothing to propose. */
static void ask_heuristic(struct search *search, cudnnBackendHeurMode_t mode)
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
    for (int64_t i = 0; asked && i < count && i < MAX_CONFIGS && search->count < MAX_CANDIDATES;
         i++) {
        struct plan_config config = {.config = found[i]};
        found[i] = NULL;
        if (plan_config__read(&config) && !proposed_before(search, config.id) &&
            plan_config__allowed(search->dev, search->graph, config.engine)) {
            search->candidates[search->count++].config = config;
        } else {
            plan_config__fini(&config);
        }
    }
    for (int i = 0; i < MAX_CONFIGS; i++) {
        plan_config__destroy(&found[i]);
    }
    plan_config__destroy(&heuristic);
}

/* Times a built plan. A plan that fails is dropped and no failure of the search, unless the device
 * itself broke. */
static enum status time_found(struct cuda_device *dev, const cudnn_graph *graph, double best,
                              struct timer *timer, struct found_plan *found)
{
    cudnnBackendDescriptor_t pack = NULL;
    enum status status = cuda__need_workspace(dev, found->workspace);
    if (status == STATUS_OK) {
        status = cuda__pack_build(dev, graph, true, &pack);
    }
    if (status == STATUS_OK) {
        status = time_plan(dev, found->plan, pack, best, timer, &found->ms);
    }
    plan_config__destroy(&pack);
    if (status == STATUS_OK) {
        return STATUS_OK;
    }
    plan_config__destroy(&found->plan);
    if (status != STATUS_NO_MEMORY && cudaGetLastError() == cudaSuccess &&
        cudaStreamSynchronize(dev->tune_stream) == cudaSuccess) {
        log_verbose("plan %s is skipped: %s", found->config.id, status_message());
        status_clear();
        return STATUS_OK;
    }
    return status == STATUS_NO_MEMORY ? status : STATUS_DEVICE;
}

/* Builds and times candidates in the order of their proposal until `wanted` of them work; keeps the
 * best in *out. */
static enum status try_candidates(struct search *search, int from, int wanted, bool timed,
                                  struct timer *timer, struct found_plan *out, int *working)
{
    struct cuda_device *dev = search->dev;
    while (from < search->count && *working < wanted) {
        int parts =
            wanted - *working < search->count - from ? wanted - *working : search->count - from;
        search->first = from;
        thread_pool_run(dev->builders->pool, parts, build_part, search);
        for (int i = from; i < from + parts; i++) {
            struct found_plan *candidate = &search->candidates[i];
            if (candidate->plan != NULL && timed) {
                TRY(time_found(dev, search->graph, out->ms, timer, candidate));
            }
            if (candidate->plan == NULL) {
                continue;
            }
            ++*working;
            if (out->plan == NULL || (timed && candidate->ms < out->ms)) {
                plan_search__fini(out);
                *out = *candidate;
                /* The id stays: it tells what was proposed before. */
                candidate->config = (struct plan_config){0};
                memcpy(candidate->config.id, out->config.id, sizeof out->config.id);
                candidate->plan = NULL;
            } else {
                plan_config__destroy(&candidate->plan);
            }
        }
        from += parts;
    }
    return STATUS_OK;
}

static enum status search_all(struct search *search, struct timer *timer, struct found_plan *out)
{
    struct cuda_device *dev = search->dev;
    int wanted = dev->settings.plan_candidates;
    if (graph_has_products(search->graph)) {
        wanted *= CONVOLUTION_FACTOR;
    } else if (!graph_has_norms(search->graph) && wanted > POINTWISE_CANDIDATES) {
        wanted = POINTWISE_CANDIDATES;
    }
    int working = 0;
    bool timed = cuda__need_tuning(dev, cuda__tuning_need(search->graph));
    if (!timed) {
        wanted = 1;
    }
    TRY(open_builders(dev));
    ask_heuristic(search, CUDNN_HEUR_MODE_A);
    ask_heuristic(search, CUDNN_HEUR_MODE_B);
    TRY(try_candidates(search, 0, wanted, timed, timer, out, &working));
    if (working < 2) {
        /* The fall-backs are correct and slow: only where hardly anything else was found. */
        int from = search->count;
        ask_heuristic(search, CUDNN_HEUR_MODE_FALLBACK);
        TRY(try_candidates(search, from, wanted, timed, timer, out, &working));
    }
    return STATUS_OK;
}

static enum status open_timer(struct timer *timer)
{
    CUDA_TRY(cudaEventCreate(&timer->from));
    CUDA_TRY(cudaEventCreate(&timer->to));
    return STATUS_OK;
}

static void close_timer(struct timer *timer)
{
    if (timer->from != NULL) {
        (void)cudaEventDestroy(timer->from);
    }
    if (timer->to != NULL) {
        (void)cudaEventDestroy(timer->to);
    }
}

enum status plan_search__run(struct cuda_device *dev, const cudnn_graph *graph,
                             struct found_plan *out)
{
    *out = (struct found_plan){0};
    struct search *search = calloc(1, sizeof *search);
    if (search == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to search plans");
    }
    search->dev = dev;
    search->graph = graph;
    struct timer timer = {NULL, NULL};
    enum status status = open_timer(&timer);
    if (status == STATUS_OK) {
        status = search_all(search, &timer, out);
    }
    close_timer(&timer);
    for (int i = 0; i < search->count; i++) {
        plan_search__fini(&search->candidates[i]);
    }
    free(search);
    if (status != STATUS_OK) {
        plan_search__fini(out);
    }
    return status;
}

enum status plan_search__recall(struct cuda_device *dev, const cudnn_graph *graph, const char *id,
                                bool timed, struct found_plan *out)
{
    *out = (struct found_plan){0};
    if (!plan_config__build(graph_descriptor(graph), id, &out->config) ||
        !plan_config__allowed(dev, graph, out->config.engine) ||
        !plan_config__finalize(&out->config, dev->cudnn, dev->settings.workspace_limit, &out->plan,
                               &out->workspace)) {
        plan_search__fini(out);
        return STATUS_OK;
    }
    if (!timed || !cuda__need_tuning(dev, cuda__tuning_need(graph))) {
        return STATUS_OK;
    }
    struct timer timer = {NULL, NULL};
    enum status status = open_timer(&timer);
    if (status == STATUS_OK) {
        status = time_found(dev, graph, 0, &timer, out);
    }
    close_timer(&timer);
    if (status != STATUS_OK || out->plan == NULL) {
        plan_search__fini(out);
    }
    return status;
}
