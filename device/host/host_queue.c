/*
 * Streams as queues of work. Immediate: work runs inside submit and the queues stay empty. Deferred:
 * it runs in the thread that waits, and only what the wait needs. Simulated: every stream has a
 * thread, and work ends no earlier than the simulated device would end it.
 */
#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "base/stop.h"
#include "device/host/host_internal.h"

#define RING_START 64

/* A caller that is kept busy sleeps until so long before the end and then watches the clock, because
 * a sleep ends late by about so much. */
#define WATCH_NS 150000

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t to_ns(double seconds)
{
    return (uint64_t)(seconds * 1e9 + 0.5);
}

/* --- Doing the work ---------------------------------------------------------------------------- */

static void run_program(struct host_device *host, const device_program *program)
{
    for (size_t i = 0; i < program->count; i++) {
        host__run_op(host, program->ops[i]);
    }
    if (program->delay > 0.0 && host->mode != HOST_SIMULATED) {
        clock_sleep_ns(to_ns(program->delay));
    }
}

/* As run_program, for a caller that waits for it. A step may take seconds here, so a request to stop is seen
 * between operations, until the first update: from there on it would be half done. */
enum status host__run_program_until_stop(struct host_device *host, const device_program *program)
{
    bool updating = false;
    for (size_t i = 0; i < program->count; i++) {
        const enum op_kind kind = program->ops[i]->desc.kind;
        updating = updating || kind == OP_SGD || kind == OP_ADAMW;
        if (!updating) {
            TRY(stop_check());
        }
        host__run_op(host, program->ops[i]);
    }
    if (program->delay > 0.0) {
        clock_sleep_ns(to_ns(program->delay));
    }
    return STATUS_OK;
}

/* Everything but marks, which need the lock. */
static void run_work(struct host_device *host, const struct host_work *work)
{
    switch (work->kind) {
    case WORK_OP:
        host__run_op(host, work->u.op);
        break;
    case WORK_PROGRAM:
        run_program(host, work->u.program);
        break;
    case WORK_COPY:
        memmove(work->u.copy.to, work->u.copy.from, work->u.copy.bytes);
        break;
    case WORK_ZERO:
        memset(work->u.copy.to, 0, work->u.copy.bytes);
        break;
    case WORK_RECORD:
    case WORK_AWAIT:
        break;
    }
}

bool host__is_mark(const struct host_work *work)
{
    return work->kind == WORK_RECORD || work->kind == WORK_AWAIT;
}

/* The event's time, unless it was recorded again or destroyed since. */
static void mark_time_locked(const struct host_work *work, uint64_t time_ns)
{
    device_event *event = work->u.mark.event;
    if (event != NULL && event->generation == work->u.mark.generation) {
        event->time_ns = time_ns;
    }
}

static void pop_locked(device_stream *stream)
{
    stream->first = (stream->first + 1) % stream->capacity;
    stream->pending--;
    stream->done++;
}

/* --- Deferred mode ----------------------------------------------------------------------------- */

/* Runs the stream's work up to `sequence`, and of other streams what that awaits. An awaited record
 * lies before the await in the order of submission, so that this ends. Only one thread makes calls
 * in this mode: the lock is taken for the sake of the fields' rule alone. */
static void run_until(device_stream *stream, uint64_t sequence)
{
    struct host_device *host = stream->host;
    while (stream->done < sequence) {
        struct host_work work = stream->ring[stream->first];
        if (work.kind == WORK_AWAIT) {
            run_until(work.u.mark.stream, work.u.mark.sequence);
        }
        run_work(host, &work);
        pthread_mutex_lock(&host->mutex);
        if (work.kind == WORK_RECORD) {
            mark_time_locked(&work, clock_now_ns());
        }
        pop_locked(stream);
        pthread_mutex_unlock(&host->mutex);
    }
}

/* --- Simulated mode ----------------------------------------------------------------------------- */

static void sleep_until(uint64_t end_ns)
{
    struct timespec end = {.tv_sec = (time_t)(end_ns / 1000000000U),
                           .tv_nsec = (long)(end_ns % 1000000000U)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) == EINTR) {
    }
}

/* Waits for the record that `work` awaits, with the lock let go meanwhile, and returns when it
 * happened on the simulated device; the present time when that is long past. */
static uint64_t await_locked(struct host_device *host, const struct host_work *work)
{
    const device_stream *other = work->u.mark.stream;
    uint64_t sequence = work->u.mark.sequence;
    while (other->done < sequence) {
        pthread_cond_wait(&host->progress, &host->mutex);
    }
    size_t place = sequence % HOST_HISTORY;
    return other->history[place].sequence == sequence ? other->history[place].time_ns
                                                      : clock_now_ns();
}

/*
 * The simulated device's time of a stream moves on by the length of each work from the later of the
 * previous work's end and the submission; a thread that wakes late or loses the processor meanwhile
 * does not delay what follows. Work whose arithmetic takes longer than its simulated length, in time
 * of this thread, takes as long as the arithmetic.
 */
static void *simulate(void *argument)
{
    device_stream *stream = argument;
    struct host_device *host = stream->host;
    /* Sleeps end as exactly as the system can. */
    (void)prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
    pthread_mutex_lock(&host->mutex);
    for (;;) {
        while (stream->pending == 0 && !stream->stop) {
            pthread_cond_wait(&stream->arrived, &host->mutex);
        }
        if (stream->pending == 0) {
            break;
        }
        struct host_work work = stream->ring[stream->first];
        uint64_t start = later(stream->virtual_ns, work.submitted_ns);
        if (work.kind == WORK_AWAIT) {
            start = later(start, await_locked(host, &work));
        } else if (!host__is_mark(&work)) {
            pthread_mutex_unlock(&host->mutex);
            uint64_t began = clock_thread_cpu_ns();
            run_work(host, &work);
            start += later(to_ns(work.seconds), clock_thread_cpu_ns() - began);
            sleep_until(start);
            pthread_mutex_lock(&host->mutex);
        } else {
            mark_time_locked(&work, start);
            size_t place = (stream->done + 1) % HOST_HISTORY;
            stream->history[place].sequence = stream->done + 1;
            stream->history[place].time_ns = start;
        }
        stream->virtual_ns = start;
        pop_locked(stream);
        pthread_cond_broadcast(&host->progress);
    }
    pthread_mutex_unlock(&host->mutex);
    return NULL;
}

/* Keeps the caller for the rest of `seconds` since `start_ns`. */
void host__occupy_caller(uint64_t start_ns, double seconds)
{
    uint64_t end = start_ns + to_ns(seconds);
    if (end > clock_now_ns() + WATCH_NS) {
        sleep_until(end - WATCH_NS);
    }
    while (clock_now_ns() < end) {
    }
}

/* --- Queues ------------------------------------------------------------------------------------- */

/* Waits until the stream has done `sequence`. */
void host__wait_for(device_stream *stream, uint64_t sequence)
{
    struct host_device *host = stream->host;
    if (host->mode == HOST_DEFERRED) {
        run_until(stream, sequence);
        return;
    }
    if (host->mode == HOST_SIMULATED) {
        pthread_mutex_lock(&host->mutex);
        while (stream->done < sequence) {
            pthread_cond_wait(&host->progress, &host->mutex);
        }
        pthread_mutex_unlock(&host->mutex);
    }
}

/* The ring has a fixed size for most callers; one that submits far ahead makes it grow. */
static enum status reserve_locked(device_stream *stream)
{
    if (stream->pending < stream->capacity) {
        return STATUS_OK;
    }
    size_t capacity = stream->capacity == 0 ? RING_START : 2 * stream->capacity;
    struct host_work *ring = calloc(capacity, sizeof *ring);
    if (ring == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu entries of stream %s", capacity,
                    stream->name);
    }
    assert(stream->pending == 0 || stream->capacity > 0);
    for (size_t i = 0; i < stream->pending; i++) {
        ring[i] = stream->ring[(stream->first + i) % stream->capacity];
    }
    free(stream->ring);
    stream->ring = ring;
    stream->capacity = capacity;
    stream->first = 0;
    return STATUS_OK;
}

/* Appends work, or runs it at once. */
enum status host__submit(device_stream *stream, const struct host_work *work)
{
    struct host_device *host = stream->host;
    if (host->mode == HOST_IMMEDIATE) {
        run_work(host, work);
        stream->submitted++;
        stream->done++;
        return STATUS_OK;
    }
    pthread_mutex_lock(&host->mutex);
    enum status status = reserve_locked(stream);
    if (status == STATUS_OK) {
        struct host_work *entry =
            &stream->ring[(stream->first + stream->pending) % stream->capacity];
        *entry = *work;
        if (host->mode == HOST_SIMULATED) {
            entry->submitted_ns = clock_now_ns();
        }
        stream->pending++;
        stream->submitted++;
        if (stream->has_thread) {
            pthread_cond_signal(&stream->arrived);
        }
    }
    pthread_mutex_unlock(&host->mutex);
    return status;
}

/* --- Threads ------------------------------------------------------------------------------------ */

enum status host__start_thread(device_stream *stream)
{
    stream->stop = false;
    if (stream->host->mode != HOST_SIMULATED) {
        return STATUS_OK;
    }
    if (pthread_cond_init(&stream->arrived, NULL) != 0) {
        return FAIL(STATUS_NO_MEMORY, "no memory for stream %s", stream->name);
    }
    int error = pthread_create(&stream->thread, NULL, simulate, stream);
    if (error != 0) {
        pthread_cond_destroy(&stream->arrived);
        return FAIL(STATUS_LIMIT, "the thread of simulated stream %s: %s", stream->name,
                    strerror(error));
    }
    stream->has_thread = true;
    return STATUS_OK;
}

/* The thread ends once its queue is empty. */
void host__end_thread(device_stream *stream)
{
    if (!stream->has_thread) {
        return;
    }
    pthread_mutex_lock(&stream->host->mutex);
    stream->stop = true;
    pthread_cond_broadcast(&stream->arrived);
    pthread_mutex_unlock(&stream->host->mutex);
    pthread_join(stream->thread, NULL);
    pthread_cond_destroy(&stream->arrived);
    stream->has_thread = false;
}
