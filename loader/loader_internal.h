/*
 * What the files of the loader share: the ring of slots, the workers, the staging, the cache.
 *
 * Numbers. Batches are numbered through from open on, over epochs: `seq`. Batch seq lies in slot
 * seq % slots, so the ring is described by four numbers that only grow:
 *
 *   retire_seq <= release_seq <= deliver_seq <= fill_seq <= retire_seq + slots
 *
 * Before retire_seq: copied, the host memory may be filled again. Up to release_seq: released, the
 * copy perhaps in flight. Up to deliver_seq: given out by next. Up to fill_seq: begun by workers. A
 * cancelled epoch takes fill_seq back to deliver_seq.
 *
 * Threads. The main thread is the device's; it alone touches the device, delivers, releases and
 * retires. Workers take places of the newest batch by its ticket counter, without the lock, and so
 * many at a time that small images do not make them meet at the counter. The lock is taken by who
 * finds no place left, to begin the next batch, and by whoever filled the last place of one.
 *
 * The lock guards what stands under "guarded" in each struct. There is one lock, so no order.
 */
#ifndef PINLINE_LOADER_LOADER_INTERNAL_H
#define PINLINE_LOADER_LOADER_INTERNAL_H

#include <limits.h>
#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "loader/loader.h"
#include "loader/sampler.h"

/* --- Slots --------------------------------------------------------------------------------- */

enum slot_state {
    SLOT_EMPTY = 0,
    SLOT_FILLING, /* workers are at its places */
    SLOT_FILLED,  /* full, waiting for the staging thread */
    SLOT_STAGING, /* the staging thread copies it */
    SLOT_READY    /* waiting for next, or given out */
};

/* One image that could not be used. Exists only from its failure to the batch's delivery. */
struct bad_place {
    struct bad_place *next;
    int place;
    enum status status;
    bool fatal; /* no fault of the image: ends the run under every policy */
    char reason[];
};

struct slot {
    /* Fixed after open. */
    int number;
    unsigned char *host;    /* the block that crosses the bus */
    unsigned char *targets; /* where workers write: in `host`, or in memory of its own for the */
    unsigned char *pixels;  /* staging thread to copy from */
    uint32_t *samples;      /* batch_size */
    int32_t *labels;        /* batch_size */

    /* Written under the lock when the batch is begun; read by whoever holds a ticket. */
    uint32_t epoch, index;
    unsigned char *shadow; /* NULL without keep_shadows */
    int n;
    bool empty_share;      /* this rank's share is empty: one image stands in, without a target */
    const uint32_t *ahead; /* samples whose files will be read some batches later, and how many */
    int ahead_count;

    /* Guarded by loader.mutex. */
    enum slot_state state;
    bool cancelled; /* whoever fills the last taken place empties the slot */
    struct bad_place *bad;
    bool reason_lost; /* a bad place could not be noted for want of memory */

    /* Written by whoever fills the last place, before the slot is ready; read by the main thread. */
    int good;

    /* The main thread's. */
    bool copy_issued;

    /* The high 32 bits hold n, the low ones the next place: one addition takes tickets, and a worker
     * that comes late to a slot in its next use takes valid ones or none. */
    alignas(64) _Atomic uint64_t tickets;
    /* Places that are not filled yet. */
    alignas(64) _Atomic int remaining;
};

/* --- Cache --------------------------------------------------------------------------------- */

struct cache_entry {
    size_t bytes;
    uint32_t width, height; /* of decoded pixels */
    unsigned char data[];
};

/* Entries are written once and stay until close, so a hit is one atomic load, and they lie in large
 * blocks that are given back as a whole. */
struct image_cache {
    enum cache_mode mode;
    size_t limit, count;
    _Atomic(struct cache_entry *) *entries; /* one a sample */
    _Atomic(struct cache_block *) newest;
    _Atomic size_t used, images;
};

/* `limit` 0: half of what is free. STATUS_NO_MEMORY. */
enum status loader__cache_open(struct image_cache *cache, enum cache_mode mode, size_t limit,
                               size_t count) MUST_USE;
void loader__cache_close(struct image_cache *cache);
/* Hands the images over, with what they depend on; NULL without a cache, or without memory for it. */
struct loader_cache *loader__cache_take(loader *l);
/* NULL when the sample is not held, or for CACHE_NONE. */
const struct cache_entry *loader__cache_find(const struct image_cache *cache, uint32_t sample);
/* Copies `data` if it fits; otherwise, or when another thread was first, does nothing. */
void loader__cache_insert(struct image_cache *cache, uint32_t sample, uint32_t width,
                          uint32_t height, const void *data, size_t bytes);

/* --- Workers ------------------------------------------------------------------------------- */

/* What a worker does at this moment: decides whether close may leave it behind. */
enum activity {
    ACTIVITY_BUSY = 0, /* may touch the loader */
    ACTIVITY_READING,  /* inside open or read; touches nothing but its own memory */
    ACTIVITY_ABANDONED /* left behind: frees itself and touches nothing else */
};

/* Written by their worker alone, so adding needs no locked instruction. */
struct worker_counts {
    _Atomic uint64_t read_ns, decode_ns, write_ns, cpu_ns, bytes_read, cache_hits;
    _Atomic uint64_t wait_slot_ns, waits_slot;
};

static inline void loader__count(_Atomic uint64_t *counter, uint64_t amount)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + amount,
                          memory_order_relaxed);
}

static inline uint64_t loader__counted(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* An allocation of its own, because an abandoned worker outlives the loader. */
struct worker {
    loader *loader;
    bool started; /* the main thread's: a thread to be joined */
    bool ended;   /* guarded by loader.mutex: the thread is past its last use of the loader */
    pthread_t thread;
    uint64_t file_limit; /* copies of settings: an abandoned worker must not look at the loader */
    bool map_files;
    image_decoder *decoder;
    unsigned char *file; /* bytes of the file in hand; grows to the largest one */
    size_t file_capacity;
    void *mapping; /* IO_MMAP: the file in hand */
    size_t mapping_bytes;
    unsigned char *base; /* decoded pixels on their way into the cache; grows likewise */
    size_t base_capacity;
    uint64_t cpu_seen; /* thread CPU time that is counted already */
    int slow_reads;    /* how many of the latest reads waited for storage, 0 to 64 */
    uint64_t place_ns; /* what a place took lately; rises at once and falls slowly */
    char path[PATH_MAX];
    char ahead_path[PATH_MAX];
    _Atomic int activity;
    alignas(64) struct worker_counts counts;
};

/* Opens and closes everything of a worker but its thread. STATUS_NO_MEMORY, STATUS_USAGE. */
enum status loader__worker_create(loader *l, struct worker **out) MUST_USE;
void loader__worker_destroy(struct worker **worker);
/* Fills places of `slot` until none is left or the loader stops; false: the worker was abandoned
 * and must touch nothing any more. */
bool loader__worker_fill(struct worker *worker, struct slot *slot);
/* pthread_create's functions of the two kinds of thread; the argument is the worker. */
void *loader__worker_run(void *argument);
void *loader__staging_run(void *argument);

/* Reads the file at worker->path whole. *bad tells a fault of this file from one of the process.
 * The result is valid until loader__read_end. worker->activity may be ACTIVITY_ABANDONED after. */
enum status loader__read_begin(struct worker *worker, const void **data, size_t *bytes,
                               bool *bad) MUST_USE;
void loader__read_end(struct worker *worker);
/* Asks the system to fetch the file at worker->ahead_path. */
void loader__read_ahead(struct worker *worker);
/* At least `bytes` at *memory, contents lost. STATUS_NO_MEMORY. */
enum status loader__grow(unsigned char **memory, size_t *capacity, size_t bytes) MUST_USE;

/* --- The loader ---------------------------------------------------------------------------- */

/* The order of one epoch. */
struct plan {
    uint32_t epoch;
    uint32_t *order; /* one number a sample of the set */
};

struct bad_image_record {
    uint32_t sample;
    char *reason;
};

struct loader {
    /* Fixed after open. */
    struct loader_settings settings;
    const dataset *set;
    device *dev;
    device_stream *compute_stream;
    struct loader_layout layout;
    struct sampler sampler;
    size_t image_bytes;       /* of one image in a slot */
    bool cache_base_is_final; /* decoded cache: of final size, otherwise the whole image */
    struct augment_settings base_augment; /* from the file to the final size, without chance */
    struct augment_settings rest_augment; /* from that to the slot */
    int ahead_batches;
    int most_places; /* that a worker takes at a time */
    struct slot *slots;
    struct worker **workers; /* num_workers, or one without a thread for inline decoding */
    int worker_count;
    struct worker *stager;      /* the staging thread's, NULL without */
    unsigned char *fill_memory; /* STAGING_THREAD: what workers write to */
    size_t fill_bytes;
    unsigned char *shadow_memory; /* keep_shadows: blocks for the slots and for those kept on */
    size_t shadow_bytes, shadow_stride;
    uint32_t *numbers; /* the slots' samples and labels */
    struct image_cache cache;

    /* Staging, the main thread's; see loader_staging.c. */
    struct host_buffer host;
    device_stream *copy_stream; /* NULL on the compute stream */
    device_buffer **buffers;
    device_event **copy_begun, **copied, **consumed;
    struct loader_staging staging;

    /* The main thread's. */
    struct status_report failure; /* every later call returns it */
    uint64_t release_seq;
    struct batch batch;
    bool held;       /* a batch is between next and release */
    bool epoch_open; /* between begin_epoch and the end or cancel */
    uint32_t deliver_batch;
    struct loader_counters counts;   /* the part that the main thread counts */
    struct loader_counters baseline; /* sums at the last reset */
    struct bad_image_record *bad_images;
    size_t bad_count, bad_capacity;
    unsigned char *bad_seen; /* a bit a sample: it is on the list */

    _Atomic uint64_t bytes_staged; /* by the staging thread */
    _Atomic bool stopping;         /* read between images; the truth is `stop` */
    /* The newest batch, perhaps with tickets left. Written under the mutex. */
    _Atomic(struct slot *) open_slot;

    pthread_mutex_t mutex;
    bool mutex_ready;
    /* Guarded by mutex; the main thread reads what it alone writes (*) without. */
    uint64_t retire_seq;  /* (*) */
    uint64_t deliver_seq; /* (*) */
    uint64_t fill_seq;
    uint64_t stage_seq; /* the batch that the staging thread copies next */
    struct plan plans[2];
    int fill_plan, deliver_plan; /* which plan is filled from, and which is delivered (*) */
    uint32_t fill_batch;         /* the next batch of fill_plan */
    bool fill_open;              /* batches may be begun */
    bool preparing;              /* a worker draws the order of the next epoch */
    bool stop;                   /* threads end */
    int work_waiters;
    bool ready_awaited; /* the main thread sleeps for deliver_seq */

    /* One predicate each, all on the monotonic clock. */
    pthread_cond_t work;     /* a place or batch can be taken, an order drawn, or stop */
    pthread_cond_t filled;   /* batch stage_seq is SLOT_FILLED, or stop */
    pthread_cond_t ready;    /* batch deliver_seq is SLOT_READY */
    pthread_cond_t drained;  /* no slot is SLOT_FILLING or SLOT_STAGING */
    pthread_cond_t prepared; /* !preparing */
    pthread_cond_t ended;    /* a thread has ended */
};

/* The time, or always the same one where nothing is timed. */
static inline uint64_t loader__now(const loader *l)
{
    return l->settings.timing ? clock_now_ns() : 0;
}

/* --- Settings (loader_settings.c) ---------------------------------------------------------- */

/* Checks every field of l->settings against l->set; fills in layout, sampler and what else is fixed
 * by them. STATUS_USAGE, STATUS_LIMIT. */
enum status loader__settle(loader *l) MUST_USE;

/* --- The ring (loader_ring.c) -------------------------------------------------------------- */

enum status loader__ring_open(loader *l) MUST_USE;
void loader__ring_close(loader *l);
/* The newest batch while it has tickets to take, without the lock; NULL when it has none. */
struct slot *loader__find_open(loader *l);
/* A slot with tickets to take, waiting for one; NULL when the thread must end. */
struct slot *loader__take_slot(loader *l, struct worker *worker);
/* Inline decoding: the slot of batch deliver_seq, begun if need be, while it has tickets to take. */
struct slot *loader__take_inline(loader *l);
/* Takes up to `most` places, the first of them *first; returns how many, 0 when none is left. */
int loader__take_places(struct slot *slot, int most, int *first);
/* So many places are filled, well or badly. */
void loader__finish_places(loader *l, struct slot *slot, int count);
/* Writes the target row of a place for a batch with `good` targets; label -1 gives zeros. */
void loader__write_target(const loader *l, const struct slot *slot, int place, int good);
/* Takes every batch that is begun but not delivered back. STATUS_INTERRUPTED when a stop was asked
 * for while a worker was still reading. */
enum status loader__drain(loader *l) MUST_USE;
/* Whether batch deliver_seq is ready, with `wait` after sleeping for it for as long as the main thread
 * has nothing else to look after. */
bool loader__await_ready(loader *l, bool wait);
/* One wait, at most so long; the caller's loop looks at its predicate and at the time. */
void loader__wait_locked(loader *l, pthread_cond_t *condition, uint64_t ns);
/* Gives slots whose copies have ended back to the workers, without waiting. The main thread's. */
enum status loader__retire(loader *l) MUST_USE;

/* --- Threads (loader_threads.c) ------------------------------------------------------------ */

/* Starts threads, or ends and joins them. With `abandon` one that is still reading after a second is
 * left behind. STATUS_LIMIT: the system refuses a thread; those started run on until the end. */
enum status loader__start_threads(loader *l) MUST_USE;
void loader__end_threads(loader *l, bool abandon);

/* --- Bad images (loader_bad.c) ------------------------------------------------------------- */

/* Notes that a place could not be filled, with the thread's message. */
void loader__note_bad(loader *l, struct slot *slot, int place, enum status status, bool fatal);
void loader__free_bad(struct slot *slot);
/* The places of bad images show the first good one, so that shapes and statistics stay sensible, under
 * a zero row, so that they teach nothing. */
void loader__replace_bad(const loader *l, struct slot *slot);
/* Turns what workers noted into a failure or into entries of the list, in the order of places. */
enum status loader__settle_bad(loader *l, struct slot *slot) MUST_USE;

/* --- Staging (loader_staging.c), the main thread's ----------------------------------------- */

/* Memory, streams and events for l->layout; STATUS_LIMIT, STATUS_NO_MEMORY, STATUS_MISMATCH,
 * STATUS_DEVICE. close accepts any half-built state; nothing may be in flight. */
enum status loader__staging_open(loader *l) MUST_USE;
void loader__staging_close(loader *l);
/* Issues the copy of the slot's first `bytes` as the settings say. STATUS_DEVICE. */
enum status loader__staging_upload(loader *l, struct slot *slot, size_t bytes) MUST_USE;
/* What reads the slot's device buffer has been submitted. STATUS_DEVICE. */
enum status loader__staging_release(loader *l, struct slot *slot) MUST_USE;
/* Whether the slot's host memory may be filled again; takes the copy's time when it may. */
enum status loader__staging_is_copied(loader *l, struct slot *slot, bool *copied) MUST_USE;
/* Waits until it may. */
enum status loader__staging_await_copied(loader *l, struct slot *slot) MUST_USE;
/* Waits for everything that is in flight. */
enum status loader__staging_drain(loader *l) MUST_USE;

#endif
