/* Shared between the files of device/host alone. */
#ifndef PINLINE_DEVICE_HOST_INTERNAL_H
#define PINLINE_DEVICE_HOST_INTERNAL_H

#include <pthread.h>

#include "base/thread_pool.h"
#include "device/device_backend.h"
#include "device/host/host_kernels.h"

/* Elements that one part of an element-wise operation has at least, and its most parts. Parts
 * follow from shapes alone, never from the number of threads. */
#define HOST_PART_ELEMENTS 16384
#define HOST_PARTS_MAX 32

/* Circular list without a head of its own: an object that begins with it is in one list at most. */
struct host_link {
    struct host_link *next, *previous;
};
void host__list_init(struct host_link *head);
void host__list_add(struct host_link *head, struct host_link *item);
void host__list_remove(struct host_link *item);

struct host_device;

/* A device_buffer of this device. */
struct host_storage {
    struct device_buffer base;
    struct host_link link;
    unsigned char *data;
};

/* Staging memory, so that copies know what is page-locked. */
struct host_staging {
    struct host_link link;
    unsigned char *data;
    size_t bytes;
    bool page_locked;
};

typedef void (*host_run)(struct host_device *host, const device_op *op);

/* One part of an operation; `worker` picks scratch memory. */
typedef void (*host_part)(struct host_device *host, const device_op *op, int part, int worker);

struct device_op {
    struct host_link link;
    struct op_desc desc;
    char label[128];
    host_run run;
    struct op_tensor tensors[OP_TENSORS_MAX];
    int tensor_count;
    size_t widened[OP_TENSORS_MAX]; /* place of a BF16 tensor's float32 values in the workspace */
    size_t scratch;                 /* place of the operation's own scratch in the workspace */
    int parts;
};

struct device_program {
    struct host_link link;
    device_op **ops;
    size_t count;
    double delay; /* seconds; below 0 for a program of operations */
};

/* A marked place in a stream. Fields but `timed` are guarded by the device's mutex. */
struct device_event {
    struct host_link link;
    bool timed;
    device_stream *stream; /* of the last record; NULL before the first */
    uint64_t sequence;     /* complete once the stream has done so much */
    uint64_t generation;   /* counts records, so that an old one does not set a new one's time */
    uint64_t time_ns;
    uint64_t queries; /* answered "not yet" since the last record; see HOST_QUERIES_MAX */
};

/* In deferred mode an event that was asked about so often is run after all: a caller that only
 * polls would wait for ever, and real devices finish on their own. */
#define HOST_QUERIES_MAX 10000

enum host_work_kind { WORK_OP, WORK_PROGRAM, WORK_COPY, WORK_ZERO, WORK_RECORD, WORK_AWAIT };

/* One entry of a stream's queue. */
struct host_work {
    enum host_work_kind kind;
    union {
        const device_op *op;
        const device_program *program;
        struct {
            void *to;
            const void *from; /* read when the work runs */
            size_t bytes;
        } copy;
        struct {
            device_event *event; /* NULL once it is destroyed */
            uint64_t generation;
            device_stream *stream; /* AWAIT: of the record that is awaited */
            uint64_t sequence;
        } mark;
    } u;
    double seconds;        /* simulated length */
    uint64_t submitted_ns; /* simulated mode */
};

/* Records whose simulated time a stream remembers, because their event may have been recorded again
 * before another stream comes to wait for them. */
#define HOST_HISTORY 256

/*
 * A queue of work. Streams are kept by the device until it is closed and used again after destroy,
 * so that events may name them for ever: `done` only grows.
 */
struct device_stream {
    struct host_link link;
    struct host_device *host;
    const char *name;
    bool in_use;
    /* Ring of pending work; done + pending = submitted. Guarded by the device's mutex. */
    struct host_work *ring;
    size_t capacity, first, pending;
    uint64_t done, submitted;
    /* Simulated mode. */
    uint64_t virtual_ns; /* when the last finished work ended on the simulated device */
    struct {
        uint64_t sequence, time_ns;
    } history[HOST_HISTORY]; /* of the last records, at sequence % HOST_HISTORY */
    pthread_t thread;
    bool has_thread, stop;
    pthread_cond_t arrived; /* pending > 0 or stop */
};

struct host_device {
    struct device base;
    enum host_mode mode;
    struct host_simulation simulated;
    const struct host_kernels *kernels;
    thread_pool *pool;
    struct host_link storages, stagings, streams, events, ops, programs;
    size_t page_locked_bytes; /* guarded by mutex */

    /* One operation runs at a time: the pool and the workspace are theirs together. */
    pthread_mutex_t arithmetic;
    bool has_arithmetic;
    unsigned char *workspace;
    size_t workspace_bytes;

    /* Guards queues, events and page_locked_bytes. Never held while an operation runs; taken after
     * none and before none. */
    pthread_mutex_t mutex;
    bool has_mutex;
    pthread_cond_t progress; /* some stream's `done` grew */
    bool has_progress;

    char plan_id[96];
    uint64_t plans_hash;
    char (*plan_labels)[128]; /* of every operation created, in order */
    size_t plan_count, plan_capacity;
    char (*foreign)[128]; /* labels whose required plan is not this device's */
    size_t foreign_count;
    bool allow_others;
};

static inline struct host_device *host__of(device *dev)
{
    return (struct host_device *)(void *)dev;
}

/* device__open_host with the best table named `kernels`, NULL for the best there is; for tests.
 * STATUS_UNSUPPORTED when this processor lacks it. */
enum status host__open_with_kernels(const struct device_settings *settings, const char *kernels,
                                    device **out) MUST_USE;

/* --- host_queue.c ----------------------------------------------------------------------------- */

/* Appends work to the stream, or runs it at once in immediate mode. STATUS_NO_MEMORY. */
enum status host__submit(device_stream *stream, const struct host_work *work) MUST_USE;
/* Runs a program at once, and gives it up between operations, before its first update, when a stop is
 * asked for. STATUS_INTERRUPTED. */
enum status host__run_program_until_stop(struct host_device *host,
                                         const device_program *program) MUST_USE;
/* Returns once the stream has done `sequence` works. */
void host__wait_for(device_stream *stream, uint64_t sequence);
/* The thread of a simulated stream; nothing in other modes. end waits until the queue is empty. */
enum status host__start_thread(device_stream *stream) MUST_USE;
void host__end_thread(device_stream *stream);
/* Keeps the caller until `seconds` after `start_ns`. */
void host__occupy_caller(uint64_t start_ns, double seconds);
bool host__is_mark(const struct host_work *work);

/* --- host_stream.c ---------------------------------------------------------------------------- */

enum status host__stream_create(device *dev, const char *name, device_stream **out);
void host__stream_destroy(device *dev, device_stream *stream);
enum status host__stream_wait(device *dev, device_stream *stream);
enum status host__synchronize(device *dev);
enum status host__event_create(device *dev, bool timed, device_event **out);
void host__event_destroy(device *dev, device_event *event);
enum status host__event_record(device *dev, device_event *event, device_stream *stream);
enum status host__event_await(device *dev, device_event *event, device_stream *stream);
enum status host__event_query(device *dev, device_event *event, bool *complete);
enum status host__event_wait(device *dev, device_event *event);
enum status host__event_elapsed(device *dev, device_event *from, device_event *to, double *ms);
enum status host__copy_to_device(device *dev, device_stream *stream, device_buffer *to,
                                 size_t to_offset, const void *from, size_t bytes);
enum status host__copy_to_host(device *dev, device_stream *stream, void *to,
                               const device_buffer *from, size_t from_offset, size_t bytes);
enum status host__copy_on_device(device *dev, device_stream *stream, device_buffer *to,
                                 size_t to_offset, const device_buffer *from, size_t from_offset,
                                 size_t bytes);
enum status host__zero(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                       size_t bytes);
enum status host__op_submit(device *dev, device_op *op, device_stream *stream);
enum status host__program_submit(device *dev, device_program *program, device_stream *stream);
/* Runs what is left, ends the threads and frees all streams; accepts a half-built device. */
void host__streams_fini(struct host_device *host);

/* --- host_op.c -------------------------------------------------------------------------------- */

enum status host__op_create(device *dev, const struct op_desc *desc, device_op **out);
void host__op_destroy(device *dev, device_op *op);
enum status host__program_create(device *dev, device_op *const *ops, size_t count,
                                 device_stream *stream, device_program **out);
void host__program_destroy(device *dev, device_program *program);
bool host__program_is_captured(const device_program *program);
enum status host__delay_program_create(device *dev, double seconds, device_stream *stream,
                                       device_program **out, double *measured_seconds);
/* Runs one operation to its end in the calling thread and the pool's. */
void host__run_op(struct host_device *host, const device_op *op);

/* The values of a tensor of `op`: float32 whatever its dtype; or its bytes as they are. */
float *host__f32(struct host_device *host, const device_op *op, const struct tensor *tensor);
unsigned char *host__raw(const struct tensor *tensor);
/* The operation's scratch memory, as large as its plan asked for; aligned to 256 bytes. */
unsigned char *host__scratch(struct host_device *host, const device_op *op);
/* Calls part(.., 0 .. parts-1, worker) in the pool. */
void host__parallel(struct host_device *host, const device_op *op, int parts, host_part part);

/* How many parts `units` of `unit_elements` elements are cut into, and where part p begins. */
int host__parts(size_t units, size_t unit_elements);
static inline size_t host__part_begin(size_t units, int parts, int part)
{
    return units * (size_t)part / (size_t)parts;
}

/* --- host_conv.c, host_norm.c, host_pool.c, host_pointwise.c, host_linear.c --------------------- */

/* Each fills in `run`, `parts` and the scratch bytes of an operation whose description is set. */
void host__plan_conv(struct host_device *host, device_op *op, size_t *scratch_bytes);
void host__plan_norm(struct host_device *host, device_op *op, size_t *scratch_bytes);
void host__plan_pool(struct host_device *host, device_op *op, size_t *scratch_bytes);
void host__plan_pointwise(struct host_device *host, device_op *op, size_t *scratch_bytes);
void host__plan_linear(struct host_device *host, device_op *op, size_t *scratch_bytes);

/* Names of the BLAS and a check that its products are right: STATUS_DEVICE with the way out. */
void host__blas_describe(char *text, size_t bytes);
const char *host__blas_core(void);
enum status host__blas_check(void) MUST_USE;

#endif
