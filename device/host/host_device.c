#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/size.h"
#include "base/system.h"
#include "device/host/host_internal.h"

/* Buffers from this size on ask for huge pages: the activations of a batch are walked through again
 * and again. */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

/* --- Lists ------------------------------------------------------------------------------------ */

void host__list_init(struct host_link *head)
{
    head->next = head;
    head->previous = head;
}

void host__list_add(struct host_link *head, struct host_link *item)
{
    item->previous = head->previous;
    item->next = head;
    head->previous->next = item;
    head->previous = item;
}

void host__list_remove(struct host_link *item)
{
    item->previous->next = item->next;
    item->next->previous = item->previous;
    item->next = NULL;
    item->previous = NULL;
}

/* --- Facts ------------------------------------------------------------------------------------ */

static void describe(const struct host_kernels *kernels, int threads, char *text, size_t bytes)
{
    snprintf(text, bytes, "host (%s loops, OpenBLAS %s, %d thread%s)", kernels->name,
             host__blas_core(), threads, threads == 1 ? "" : "s");
}

static enum status read_facts(device *dev, struct device_facts *facts)
{
    struct host_device *host = host__of(dev);
    struct system_facts system;
    system_read_facts(&system);
    facts->kind = DEVICE_HOST;
    describe(host->kernels, thread_pool_threads(host->pool), facts->name, sizeof facts->name);
    host__blas_describe(facts->blas, sizeof facts->blas);
    facts->numa_node = -1;
    facts->memory_total = system.memory_total;
    facts->memory_free = system.memory_available;
    facts->copies_are_real = false;
    return STATUS_OK;
}

void device__host_doctor(const struct device_settings *settings, device_doctor_line line,
                         void *context)
{
    struct system_facts system;
    char text[512], blas[256];
    const struct host_kernels *kernels = host__kernels(NULL);
    system_read_facts(&system);
    host__blas_describe(blas, sizeof blas);
    snprintf(text, sizeof text, "host device: %s loops, %d threads of %d CPUs allowed; %s",
             kernels->name,
             settings->host_threads > 0 ? settings->host_threads : system.cpus_allowed,
             system.cpus_allowed, blas);
    line(context, false, text);
    if (host__blas_check() != STATUS_OK) {
        line(context, true, status_message());
        status_clear();
    }
}

/* --- Memory ----------------------------------------------------------------------------------- */

static enum status buffer_create(device *dev, size_t bytes, device_buffer **out)
{
    struct host_device *host = host__of(dev);
    struct system_facts system;
    struct host_storage *storage = NULL;
    size_t alignment = bytes >= HUGE_PAGE_BYTES ? HUGE_PAGE_BYTES : 256;
    size_t padded = 0;
    system_read_facts(&system);
    /* Linux grants more than it has and ends the process later: what cannot fit is refused here.
     * Whole vectors may be read beyond the last value. */
    if (bytes <= system.memory_available) {
        storage = calloc(1, sizeof *storage);
        padded = size_align(bytes + HOST_LANES_MAX * sizeof(float), alignment);
    }
    if (storage != NULL) {
        storage->data = aligned_alloc(alignment, padded);
    }
    if (storage == NULL || storage->data == NULL) {
        free(storage);
        return FAIL(STATUS_NO_MEMORY,
                    "no memory for a device buffer of %zu bytes on the host (%llu bytes are free): "
                    "use a smaller batch or smaller images",
                    bytes, (unsigned long long)system.memory_available);
    }
    if (alignment == HUGE_PAGE_BYTES) {
        /* A wish: without it everything works, only slower. */
        (void)madvise(storage->data, padded, MADV_HUGEPAGE);
    }
    if (host->mode == HOST_DEFERRED) {
        /* Contents are undefined by contract; here they are NaN, so that a use of them shows. */
        memset(storage->data, 0xFF, padded);
    }
    storage->base.bytes = bytes;
    host__list_add(&host->storages, &storage->link);
    *out = &storage->base;
    return STATUS_OK;
}

static void buffer_destroy(device *dev, device_buffer *buffer)
{
    struct host_storage *storage = (struct host_storage *)(void *)buffer;
    if (host__synchronize(dev) != STATUS_OK) {
        status_clear();
    }
    host__list_remove(&storage->link);
    free(storage->data);
    free(storage);
}

static enum status host_buffer_create(device *dev, size_t bytes, enum host_memory kind,
                                      struct host_buffer *out)
{
    struct host_device *host = host__of(dev);
    struct system_facts system;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    size_t padded;
    system_read_facts(&system);
    if (!size_add(bytes, page, &padded) || bytes > system.memory_available) {
        return FAIL(STATUS_NO_MEMORY,
                    "%zu bytes of staging memory do not fit into the %llu bytes that are free: use "
                    "a smaller batch or fewer slots (--prefetch)",
                    bytes, (unsigned long long)system.memory_available);
    }
    padded = size_align(bytes, page);
    struct host_staging *staging = calloc(1, sizeof *staging);
    if (staging == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a staging buffer");
    }
    void *data = mmap(NULL, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) {
        free(staging);
        return FAIL(STATUS_NO_MEMORY, "no memory for a staging buffer of %zu bytes", bytes);
    }
    uint64_t start = clock_now_ns();
    memset(data, 0, padded);
    *staging = (struct host_staging){
        .data = data, .bytes = padded, .page_locked = kind != HOST_MEMORY_PAGEABLE};
    pthread_mutex_lock(&host->mutex);
    host__list_add(&host->stagings, &staging->link);
    host->page_locked_bytes += staging->page_locked ? bytes : 0;
    pthread_mutex_unlock(&host->mutex);
    *out = (struct host_buffer){
        .data = data,
        .bytes = bytes,
        .kind = kind,
        .page_locked = staging->page_locked,
        .lock_seconds = staging->page_locked ? clock_seconds(start, clock_now_ns()) : 0.0,
        .handle = staging,
    };
    return STATUS_OK;
}

static void host_buffer_destroy(device *dev, struct host_buffer *buffer)
{
    struct host_device *host = host__of(dev);
    /* No copy may use it any more by contract; one that is still queued would crash. */
    if (host__synchronize(dev) != STATUS_OK) {
        status_clear();
    }
    pthread_mutex_lock(&host->mutex);
    struct host_staging *staging = buffer->handle;
    host->page_locked_bytes -= staging->page_locked ? buffer->bytes : 0;
    host__list_remove(&staging->link);
    pthread_mutex_unlock(&host->mutex);
    munmap(staging->data, staging->bytes);
    free(staging);
}

/* --- Plans ------------------------------------------------------------------------------------ */

static void write_plans(device *dev, struct json_writer *writer)
{
    const struct host_device *host = host__of(dev);
    json_begin_array(writer);
    for (size_t i = 0; i < host->plan_count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "op", host->plan_labels[i]);
        json_key_string(writer, "plan", host->plan_id);
        json_key(writer, "ms");
        json_null(writer);
        json_end_object(writer);
    }
    json_end_array(writer);
}

static uint64_t plans_hash(device *dev)
{
    return host__of(dev)->plans_hash;
}

static enum status require_plans(device *dev, const struct json_value *plans, bool allow_others)
{
    struct host_device *host = host__of(dev);
    char(*foreign)[128] = calloc(plans->count > 0 ? plans->count : 1, sizeof *foreign);
    size_t count = 0;
    if (foreign == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the list of required plans");
    }
    for (size_t i = 0; i < plans->count; i++) {
        const char *id = json_member_string(&plans->items[i], "plan", "");
        if (strcmp(id, host->plan_id) != 0) {
            snprintf(foreign[count], sizeof foreign[count], "%s",
                     json_member_string(&plans->items[i], "op", ""));
            count++;
        }
    }
    free(host->foreign);
    host->foreign = foreign;
    host->foreign_count = count;
    host->allow_others = allow_others;
    host->plan_count = 0;
    host->plans_hash = HASH_START;
    return STATUS_OK;
}

/* --- Opening ---------------------------------------------------------------------------------- */

/* Frees what is left in a list; `item` is each object in turn. The list itself is not kept in order:
 * the device goes with it. */
#define FREE_LIST(head, type, ...)                                                                 \
    for (struct host_link *link = (head)->next, *next; link != (head); link = next) {              \
        type *item = (type *)(void *)((unsigned char *)link - offsetof(type, link));               \
        next = link->next;                                                                         \
        __VA_ARGS__                                                                                \
        free(item);                                                                                \
    }

static void close_host(device *dev)
{
    struct host_device *host = host__of(dev);
    host__streams_fini(host);
    FREE_LIST(&host->programs, device_program, { free(item->ops); })
    FREE_LIST(&host->ops, device_op, {})
    FREE_LIST(&host->events, device_event, {})
    FREE_LIST(&host->storages, struct host_storage, { free(item->data); })
    FREE_LIST(&host->stagings, struct host_staging, { munmap(item->data, item->bytes); })
    thread_pool_close(&host->pool);
    if (host->has_arithmetic) {
        pthread_mutex_destroy(&host->arithmetic);
    }
    if (host->has_mutex) {
        pthread_mutex_destroy(&host->mutex);
    }
    if (host->has_progress) {
        pthread_cond_destroy(&host->progress);
    }
    free(host->workspace);
    free(host->plan_labels);
    free(host->foreign);
    free(host);
}

static const struct device_backend backend = {
    .name = "host",
    .close = close_host,
    .read_facts = read_facts,
    .read_sample = NULL,
    .buffer_create = buffer_create,
    .buffer_destroy = buffer_destroy,
    .host_buffer_create = host_buffer_create,
    .host_buffer_destroy = host_buffer_destroy,
    .stream_create = host__stream_create,
    .stream_destroy = host__stream_destroy,
    .stream_wait = host__stream_wait,
    .synchronize = host__synchronize,
    .event_create = host__event_create,
    .event_destroy = host__event_destroy,
    .event_record = host__event_record,
    .event_await = host__event_await,
    .event_query = host__event_query,
    .event_wait = host__event_wait,
    .event_elapsed = host__event_elapsed,
    .copy_to_device = host__copy_to_device,
    .copy_to_host = host__copy_to_host,
    .copy_on_device = host__copy_on_device,
    .zero = host__zero,
    .op_create = host__op_create,
    .op_destroy = host__op_destroy,
    .op_submit = host__op_submit,
    .program_create = host__program_create,
    .program_destroy = host__program_destroy,
    .program_submit = host__program_submit,
    .program_is_captured = host__program_is_captured,
    .write_plans = write_plans,
    .plans_hash = plans_hash,
    .require_plans = require_plans,
    .delay_program_create = host__delay_program_create,
};

static enum status build(struct host_device *host, const struct device_settings *settings,
                         const char *kernels)
{
    host->has_arithmetic = pthread_mutex_init(&host->arithmetic, NULL) == 0;
    host->has_mutex = pthread_mutex_init(&host->mutex, NULL) == 0;
    host->has_progress = pthread_cond_init(&host->progress, NULL) == 0;
    if (!host->has_arithmetic || !host->has_mutex || !host->has_progress) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the host device's locks");
    }
    host->kernels = host__kernels(kernels);
    if (host->kernels == NULL) {
        return FAIL(STATUS_UNSUPPORTED, "this processor has no %s loops; choose others", kernels);
    }
    TRY(host__blas_check());
    int threads = settings->host_threads;
    if (threads == 0) {
        struct system_facts system;
        system_read_facts(&system);
        threads = system.cpus_allowed < 1024 ? system.cpus_allowed : 1024;
    }
    TRY(thread_pool_open(threads, &host->pool));
    snprintf(host->plan_id, sizeof host->plan_id, "host/direct-v1 %s OpenBLAS-%s",
             host->kernels->name, host__blas_core());
    return STATUS_OK;
}

enum status host__open_with_kernels(const struct device_settings *settings, const char *kernels,
                                    device **out)
{
    *out = NULL;
    struct host_device *host = calloc(1, sizeof *host);
    if (host == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the host device");
    }
    host->base.backend = &backend;
    host->mode = settings->host_mode;
    host->simulated = settings->simulated;
    host->plans_hash = HASH_START;
    host__list_init(&host->storages);
    host__list_init(&host->stagings);
    host__list_init(&host->streams);
    host__list_init(&host->events);
    host__list_init(&host->ops);
    host__list_init(&host->programs);
    enum status status = build(host, settings, kernels);
    if (status != STATUS_OK) {
        close_host(&host->base);
        return status;
    }
    *out = &host->base;
    return STATUS_OK;
}

enum status device__open_host(const struct device_settings *settings, device **out)
{
    return host__open_with_kernels(settings, NULL, out);
}
