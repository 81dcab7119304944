/* Streams, events and copies: what device.h says of them, in terms of the queues of host_queue.c. */
#include <stddef.h>
#include <stdlib.h>

#include "base/clock.h"
#include "device/host/host_internal.h"

static device_stream *stream_at(struct host_link *link)
{
    return (device_stream *)(void *)((unsigned char *)link - offsetof(struct device_stream, link));
}

enum status host__stream_create(device *dev, const char *name, device_stream **out)
{
    struct host_device *host = host__of(dev);
    device_stream *stream = NULL;
    for (struct host_link *l = host->streams.next; l != &host->streams; l = l->next) {
        if (!stream_at(l)->in_use) {
            stream = stream_at(l);
            break;
        }
    }
    if (stream == NULL) {
        stream = calloc(1, sizeof *stream);
        if (stream == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for stream %s", name);
        }
        stream->host = host;
        host__list_add(&host->streams, &stream->link);
    }
    stream->name = name;
    TRY(host__start_thread(stream));
    stream->in_use = true;
    *out = stream;
    return STATUS_OK;
}

void host__stream_destroy(device *dev, device_stream *stream)
{
    (void)dev;
    host__wait_for(stream, stream->submitted);
    host__end_thread(stream);
    stream->in_use = false;
}

enum status host__stream_wait(device *dev, device_stream *stream)
{
    (void)dev;
    host__wait_for(stream, stream->submitted);
    return STATUS_OK;
}

enum status host__synchronize(device *dev)
{
    struct host_device *host = host__of(dev);
    for (struct host_link *l = host->streams.next; l != &host->streams; l = l->next) {
        host__wait_for(stream_at(l), stream_at(l)->submitted);
    }
    return STATUS_OK;
}

void host__streams_fini(struct host_device *host)
{
    for (struct host_link *l = host->streams.next; l != &host->streams; l = l->next) {
        host__wait_for(stream_at(l), stream_at(l)->submitted);
    }
    for (struct host_link *l = host->streams.next, *next; l != &host->streams; l = next) {
        device_stream *stream = stream_at(l);
        next = l->next;
        host__end_thread(stream);
        free(stream->ring);
        free(stream);
    }
}

/* --- Events ------------------------------------------------------------------------------------- */

enum status host__event_create(device *dev, bool timed, device_event **out)
{
    struct host_device *host = host__of(dev);
    device_event *event = calloc(1, sizeof *event);
    if (event == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for an event");
    }
    event->timed = timed;
    pthread_mutex_lock(&host->mutex);
    host__list_add(&host->events, &event->link);
    pthread_mutex_unlock(&host->mutex);
    *out = event;
    return STATUS_OK;
}

/* What is queued may name the event: it must not, once the event is gone. */
void host__event_destroy(device *dev, device_event *event)
{
    struct host_device *host = host__of(dev);
    pthread_mutex_lock(&host->mutex);
    for (struct host_link *l = host->streams.next; l != &host->streams; l = l->next) {
        device_stream *stream = stream_at(l);
        for (size_t i = 0; i < stream->pending; i++) {
            struct host_work *work = &stream->ring[(stream->first + i) % stream->capacity];
            if (host__is_mark(work) && work->u.mark.event == event) {
                work->u.mark.event = NULL;
            }
        }
    }
    host__list_remove(&event->link);
    pthread_mutex_unlock(&host->mutex);
    free(event);
}

enum status host__event_record(device *dev, device_event *event, device_stream *stream)
{
    struct host_device *host = host__of(dev);
    struct host_work work = {.kind = WORK_RECORD};
    pthread_mutex_lock(&host->mutex);
    event->generation++;
    event->stream = stream;
    event->sequence = stream->submitted + 1;
    event->queries = 0;
    event->time_ns = host->mode == HOST_IMMEDIATE ? clock_now_ns() : 0;
    work.u.mark.event = event;
    work.u.mark.generation = event->generation;
    pthread_mutex_unlock(&host->mutex);
    return host__submit(stream, &work);
}

enum status host__event_await(device *dev, device_event *event, device_stream *stream)
{
    struct host_device *host = host__of(dev);
    struct host_work work = {.kind = WORK_AWAIT};
    pthread_mutex_lock(&host->mutex);
    bool recorded = event->stream != NULL;
    work.u.mark.event = event;
    work.u.mark.generation = event->generation;
    work.u.mark.stream = event->stream;
    work.u.mark.sequence = event->sequence;
    pthread_mutex_unlock(&host->mutex);
    return recorded ? host__submit(stream, &work) : STATUS_OK;
}

static bool is_complete(struct host_device *host, const device_event *event)
{
    pthread_mutex_lock(&host->mutex);
    bool complete = event->stream == NULL || event->stream->done >= event->sequence;
    pthread_mutex_unlock(&host->mutex);
    return complete;
}

enum status host__event_query(device *dev, device_event *event, bool *complete)
{
    struct host_device *host = host__of(dev);
    *complete = is_complete(host, event);
    if (!*complete && host->mode == HOST_DEFERRED && ++event->queries >= HOST_QUERIES_MAX) {
        host__wait_for(event->stream, event->sequence);
        *complete = true;
    }
    return STATUS_OK;
}

enum status host__event_wait(device *dev, device_event *event)
{
    (void)dev;
    if (event->stream != NULL) {
        host__wait_for(event->stream, event->sequence);
    }
    return STATUS_OK;
}

enum status host__event_elapsed(device *dev, device_event *from, device_event *to, double *ms)
{
    struct host_device *host = host__of(dev);
    if (!from->timed || !to->timed) {
        return FAIL(STATUS_INTERNAL, "the time of an event that was created without one");
    }
    if (from->stream == NULL || to->stream == NULL || !is_complete(host, from) ||
        !is_complete(host, to)) {
        return FAIL(STATUS_INTERNAL, "the time of an event that is not recorded and complete");
    }
    pthread_mutex_lock(&host->mutex);
    uint64_t begin = from->time_ns, end = to->time_ns;
    pthread_mutex_unlock(&host->mutex);
    *ms = end >= begin ? (double)(end - begin) / 1e6 : -((double)(begin - end) / 1e6);
    return STATUS_OK;
}

/* --- Copies ------------------------------------------------------------------------------------- */

static unsigned char *data_of(const device_buffer *buffer)
{
    return ((const struct host_storage *)(const void *)buffer)->data;
}

static bool is_page_locked(struct host_device *host, const void *data)
{
    bool locked = false;
    pthread_mutex_lock(&host->mutex);
    for (struct host_link *l = host->stagings.next; l != &host->stagings; l = l->next) {
        const struct host_staging *staging =
            (const struct host_staging *)(const void *)((const unsigned char *)l -
                                                        offsetof(struct host_staging, link));
        uintptr_t at = (uintptr_t)data, begin = (uintptr_t)staging->data;
        if (at >= begin && at - begin < staging->bytes) {
            locked = staging->page_locked;
            break;
        }
    }
    pthread_mutex_unlock(&host->mutex);
    return locked;
}

/* A copy between host and device. From or to pageable memory the call returns when the copy is done,
 * which is after all earlier work of its stream, as with a driver that drains the stream first. */
static enum status copy_across(struct host_device *host, device_stream *stream, void *to,
                               const void *from, size_t bytes, const void *host_memory)
{
    struct host_work work = {.kind = WORK_COPY, .u.copy = {.to = to, .from = from, .bytes = bytes}};
    if (host->mode != HOST_SIMULATED) {
        return host__submit(stream, &work);
    }
    bool locked = is_page_locked(host, host_memory);
    const struct host_simulation *s = &host->simulated;
    work.seconds = s->copy_start_s +
                   (double)bytes / (locked ? s->locked_bytes_per_s : s->pageable_bytes_per_s);
    TRY(host__submit(stream, &work));
    if (!locked) {
        host__wait_for(stream, stream->submitted);
    }
    return STATUS_OK;
}

enum status host__copy_to_device(device *dev, device_stream *stream, device_buffer *to,
                                 size_t to_offset, const void *from, size_t bytes)
{
    return copy_across(host__of(dev), stream, data_of(to) + to_offset, from, bytes, from);
}

enum status host__copy_to_host(device *dev, device_stream *stream, void *to,
                               const device_buffer *from, size_t from_offset, size_t bytes)
{
    return copy_across(host__of(dev), stream, to, data_of(from) + from_offset, bytes, to);
}

enum status host__copy_on_device(device *dev, device_stream *stream, device_buffer *to,
                                 size_t to_offset, const device_buffer *from, size_t from_offset,
                                 size_t bytes)
{
    (void)dev;
    struct host_work work = {.kind = WORK_COPY,
                             .u.copy = {.to = data_of(to) + to_offset,
                                        .from = data_of(from) + from_offset,
                                        .bytes = bytes}};
    return host__submit(stream, &work);
}

enum status host__zero(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                       size_t bytes)
{
    (void)dev;
    struct host_work work = {.kind = WORK_ZERO,
                             .u.copy = {.to = data_of(to) + to_offset, .bytes = bytes}};
    return host__submit(stream, &work);
}

/* --- Operations --------------------------------------------------------------------------------- */

enum status host__op_submit(device *dev, device_op *op, device_stream *stream)
{
    (void)dev;
    struct host_work work = {.kind = WORK_OP, .u.op = op};
    return host__submit(stream, &work);
}

enum status host__program_submit(device *dev, device_program *program, device_stream *stream)
{
    struct host_device *host = host__of(dev);
    struct host_work work = {.kind = WORK_PROGRAM, .u.program = program};
    if (host->mode == HOST_IMMEDIATE) {
        TRY(host__run_program_until_stop(host, program));
        stream->submitted++;
        stream->done++;
        return STATUS_OK;
    }
    if (host->mode != HOST_SIMULATED) {
        return host__submit(stream, &work);
    }
    uint64_t start = clock_now_ns();
    pthread_mutex_lock(&host->mutex);
    /* Less than a page is where losses are read back, in every cell of an experiment. */
    bool pinned = host->page_locked_bytes >= 4096;
    pthread_mutex_unlock(&host->mutex);
    work.seconds = (program->delay >= 0.0 ? program->delay : host->simulated.step_s) +
                   (pinned ? host->simulated.pin_page_s : 0.0);
    TRY(host__submit(stream, &work));
    host__occupy_caller(start, host->simulated.issue_s);
    return STATUS_OK;
}
