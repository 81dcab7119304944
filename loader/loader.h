/*
 * From samples to batches on the device: sampler, workers, ring of slots, staging copies.
 *
 * A slot holds one batch in host memory, as one contiguous block that crosses the bus in one copy:
 *
 *   [struct step_scalars, padded to 256 bytes]
 *   [targets: batch_size x classes float32, padded to 256 bytes]
 *   [pixels: n x size x size x 3, u8 or normalised float32]
 *
 * and a device buffer of the same layout, so a partial batch of n copies a prefix. Workers decode
 * straight into their place in the slot. A slot's host memory is filled again only when its event
 * "copied" is complete, its device buffer is overwritten only after its event "consumed".
 *
 * Which samples a batch holds, their order and every pixel are a pure function of (settings, data,
 * seed, epoch, batch): they depend neither on the number of workers nor on the flags of staging.
 *
 * All functions are called by the device's thread; the workers touch no device, and have no
 * files open but their own.
 */
#ifndef PINLINE_LOADER_LOADER_H
#define PINLINE_LOADER_LOADER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"
#include "device/device.h"
#include "loader/augment.h"
#include "loader/image.h"

typedef struct loader loader;

enum pin_memory { PIN_OFF = 0, PIN_ON, PIN_AUTO /* falls back to pageable and says so */ };
enum pin_how { PIN_REGISTER = 0, PIN_ALLOC };
enum copy_stream { COPY_STREAM_DEDICATED = 0, COPY_STREAM_COMPUTE };
enum transfer { TRANSFER_U8 = 0, TRANSFER_F32 };
enum staging { STAGING_SLOT = 0, STAGING_THREAD };
enum cache_mode { CACHE_NONE = 0, CACHE_ENCODED, CACHE_DECODED };
enum bad_image { BAD_IMAGE_STOP = 0, BAD_IMAGE_SKIP };
/* How workers write pixels: through the cache, or past it by streaming stores where the processor has
 * them. Only speed differs. */
enum slot_stores { STORES_AUTO = 0, STORES_PLAIN, STORES_STREAMED };
enum loader_io { IO_THREADS = 0, IO_MMAP };

/* Defaults from loader_settings_defaults; checked by loader_open. */
struct loader_settings {
    int batch_size;  /* 1 to 65536; default 64 */
    int num_workers; /* 0 (decode inline) to 1024; default CPUs allowed - 1, at least 1 */
    int prefetch;    /* batches in the whole ring, 2 to 256; 0: 2 + workers' need, chosen */
    enum pin_memory pin_memory;
    enum pin_how pin_how;
    bool non_blocking; /* default false */
    enum copy_stream copy_stream;
    bool persistent_workers; /* default true */
    bool prefetch_epochs;    /* workers go on into the next epoch; default true */
    enum transfer transfer;
    enum staging staging;
    /* STORES_AUTO streams where a ring larger than the cache is filled by 4 workers or more, straight
     * into slots, and is not read again on the host. */
    enum slot_stores stores;
    bool shuffle;       /* default true */
    bool drop_last;     /* default false */
    uint64_t seed;      /* default 0 */
    int size;           /* edge of the square images, 4 to 4096; default 32 */
    float mean[3];      /* default 0.5; pixel x becomes (x / 255 - mean) / deviation */
    float deviation[3]; /* default 0.25 */
    struct augment_settings augment;
    struct image_settings image;
    double label_smoothing; /* 0 to < 1; default 0 */
    enum cache_mode cache;
    size_t cache_bytes; /* 0: half of what is free */
    enum bad_image on_bad_image;
    enum loader_io io;
    int keep_shadows; /* where above 0, each batch's pixels are kept a second time, until so many later
                         batches were released: for --verify-batches; 0 to 64, default 0 */
    bool
        timing; /* record when copies begin, and read clocks around copies and images; default true.
                    Without, the counters of times stay 0 and loader_copy_events gives no times */
    bool allow_large_pinned; /* page-lock more than a tenth of RAM; default false */
    int rank, world;         /* this process's share of each global batch; default 0 of 1 */
};
void loader_settings_defaults(struct loader_settings *settings);

/* One batch, from next to release. Fields are read-only but *scalars. */
struct batch {
    int slot; /* 0 .. slot_count - 1 */
    int n;    /* images, 1 .. batch_size */
    int good; /* images with a target: n less the replaced bad ones; 0: leave the batch out (release
                 it without a step). A rank whose share of the last global batch is empty gets one
                 image with good 0 */
    uint32_t epoch, index;        /* index: number of the batch in its epoch */
    const uint32_t *samples;      /* n numbers into the dataset */
    const int32_t *labels;        /* n labels, -1 for a replaced bad image */
    struct step_scalars *scalars; /* in the slot's host memory; write before upload */
    const void *pixels;           /* host side, for dumps: u8 or float32 as `transfer` */
    const void *shadow;    /* keep_shadows: the pixels as decoded, in memory of their own, which
                                     stays as it is after the release as keep_shadows says */
    device_buffer *buffer; /* the slot's device buffer; offsets below are the same for all */
};

/*
 * Opens a loader over `set` (kept by reference, must outlive it) for `dev`; copies are ordered with
 * `compute_stream`. Allocates every slot, page-locks them as asked, starts persistent workers.
 * STATUS_USAGE names the field; STATUS_NO_MEMORY, STATUS_LIMIT (page-locking: see device.h; more
 * than a tenth of RAM), STATUS_DEVICE.
 */
enum status loader_open(const struct loader_settings *settings, const dataset *set, device *dev,
                        device_stream *compute_stream, loader **out) MUST_USE;
/* Stops workers (at most the image in hand is finished; a worker in a blocked read is abandoned
 * after 1 s), waits for copies in flight, frees everything; *loader becomes NULL. */
void loader_close(loader **loader);

/*
 * Images that a loader keeps (settings.cache), beyond its own life: loader_close_keeping closes as
 * loader_close and hands the cache over, NULL where there was none; loader_give_cache, before the
 * first epoch, lets another loader begin with it. What would not be the same bits there (another set,
 * kind of cache, size, limit or way of decoding) is freed instead. Both leave *loader or *cache NULL. Sets
 * outlive the caches of their images.
 */
typedef struct loader_cache loader_cache;
void loader_close_keeping(loader **loader, loader_cache **cache);
void loader_give_cache(loader *loader, loader_cache **cache);
void loader_cache_destroy(loader_cache **cache);

/* Layout facts, fixed after open. Offsets are in bytes inside each slot's buffer. */
struct loader_layout {
    int slots;
    size_t scalars_offset, targets_offset, pixels_offset;
    size_t slot_bytes; /* whole block for a full batch */
    int classes;
    uint32_t batches; /* an epoch, for this rank */
    int last_batch;   /* images of the last batch; batch_size when all are full */
};
void loader_read_layout(const loader *loader, struct loader_layout *layout);
device_buffer *loader_slot_buffer(const loader *loader, int slot);

/* Begins epoch `epoch` at batch `first_batch` (for resuming). The epoch before must have been read
 * to its end or cancelled. STATUS_LIMIT when a thread is refused. */
enum status loader_begin_epoch(loader *loader, uint32_t epoch, uint32_t first_batch) MUST_USE;
/* The epoch is given up: prefetched batches are dropped, and a batch that is between next and release
 * goes back as by release. STATUS_INTERRUPTED when a stop is asked for while a read still blocks. */
enum status loader_cancel_epoch(loader *loader) MUST_USE;

/*
 * The next batch in order, waiting for it when need be; *batch is NULL after the last one. At most
 * one batch is between next and release.
 * A bad image under BAD_IMAGE_STOP: STATUS_INVALID with name, reason and sample number.
 * STATUS_INTERRUPTED once a stop was asked for; STATUS_DEVICE; STATUS_IO.
 */
enum status loader_next(loader *loader, struct batch **batch) MUST_USE;

/* Issues the slot's copy as the flags say (docs/flags.md has the table), and makes
 * compute_stream wait for it. In blocking mode the host waits here. */
enum status loader_upload(loader *loader, struct batch *batch) MUST_USE;

/* Everything in compute_stream that reads the slot's device buffer has been submitted: records
 * "consumed". The slot goes back to the ring; *batch becomes NULL. */
enum status loader_release(loader *loader, struct batch **batch) MUST_USE;

/* Counters since open or the last reset; times in nanoseconds of the calling thread unless said.
 * Reading costs no synchronisation: it looks which copies have ended, and device times cover those. */
struct loader_counters {
    uint64_t batches, images;
    uint64_t wait_batch_ns, waits_batch; /* next: no batch was ready */
    uint64_t wait_slot_ns, waits_slot;   /* workers had no free slot: summed over workers */
    uint64_t wait_free_ns, waits_free; /* next: the host waited for the oldest copy, because no slot
                                            was free for the next batch; not in wait_batch_ns */
    uint64_t wait_copy_ns, waits_copy; /* upload: host waits for the copy; 1 a step when blocking,
                                            0 otherwise */
    uint64_t copy_call_ns;             /* inside the copy call itself */
    uint64_t copy_bytes, copies;
    double copy_device_ms;                 /* sum of copy durations by events */
    uint64_t read_ns, decode_ns, write_ns; /* workers' CPU-side stages, summed over workers */
    uint64_t worker_cpu_ns;
    uint64_t bytes_read;           /* encoded bytes read from files */
    uint64_t bytes_copied_on_host; /* staging copies; 0 unless STAGING_THREAD */
    uint64_t cache_hits;
    uint64_t bad_images; /* met; one that every epoch meets counts each time */
    /* The state now, since open and untouched by reset. cache_images below the number of samples
     * after an epoch: the rest did not fit and is read from disk in every epoch. */
    uint64_t cache_bytes, cache_images, cache_limit;
};
void loader_read_counters(loader *loader, struct loader_counters *counters);
void loader_reset_counters(loader *loader);

/* The timed events around the last copy of a slot, for intervals on the device's clock. Complete once
 * an event recorded after the batch's step is; valid until the slot's next upload. */
void loader_copy_events(const loader *loader, int slot, device_event **from, device_event **to);

/* What staging turned out to be, for the result. */
struct loader_staging {
    bool page_locked; /* as the runtime says */
    bool fell_back;   /* PIN_AUTO took pageable memory */
    bool streamed;    /* workers are asked to write past the cache */
    double lock_seconds;
    size_t host_bytes, device_bytes; /* all slots */
    char note[256];                  /* the reason for falling back, "" otherwise */
};
void loader_read_staging(const loader *loader, struct loader_staging *staging);

/* The n-th bad image that was skipped, each sample once, in the order in which they were met: its
 * sample and reason (kept until close), for the run log. Returns false past the end. */
bool loader_bad_image(const loader *loader, size_t n, uint32_t *sample, const char **reason);

#endif
