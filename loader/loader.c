/* The loader as its user sees it: open, epochs, batches, counters. */
#include "loader/loader_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/stop.h"

/* --- Open and close ------------------------------------------------------------------------ */

static enum status allocate(loader *l)
{
    size_t slots = (size_t)l->layout.slots;
    size_t batch = (size_t)l->settings.batch_size;
    l->worker_count = l->settings.num_workers > 0 ? l->settings.num_workers : 1;
    l->slots = aligned_alloc(alignof(struct slot), slots * sizeof *l->slots);
    l->workers = calloc((size_t)l->worker_count, sizeof(struct worker *));
    l->numbers = calloc(slots * batch, 2 * sizeof *l->numbers);
    l->plans[0].order = malloc(l->sampler.count * sizeof(uint32_t));
    l->plans[1].order = malloc(l->sampler.count * sizeof(uint32_t));
    if (l->slots != NULL) {
        memset(l->slots, 0, slots * sizeof *l->slots);
    }
    l->bad_seen = calloc(l->sampler.count / 8 + 1, 1);
    if (l->slots == NULL || l->workers == NULL || l->numbers == NULL || l->bad_seen == NULL ||
        l->plans[0].order == NULL || l->plans[1].order == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the order of %zu samples and %zu slots",
                    l->sampler.count, slots);
    }
    for (size_t i = 0; i < slots; i++) {
        l->slots[i].number = (int)i;
        l->slots[i].samples = l->numbers + i * 2 * batch;
        /* Signed and unsigned of one width may share memory. */
        l->slots[i].labels = (int32_t *)(l->numbers + (i * 2 + 1) * batch);
    }
    return STATUS_OK;
}

static enum status build(loader *l)
{
    TRY(loader__settle(l));
    TRY(allocate(l));
    TRY(loader__ring_open(l));
    TRY(loader__cache_open(&l->cache, l->settings.cache, l->settings.cache_bytes,
                           l->sampler.count));
    TRY(loader__staging_open(l));
    for (int i = 0; i < l->worker_count; i++) {
        TRY(loader__worker_create(l, &l->workers[i]));
    }
    if (l->settings.staging == STAGING_THREAD) {
        TRY(loader__worker_create(l, &l->stager));
    }
    if (l->settings.persistent_workers) {
        TRY(loader__start_threads(l));
    }
    return STATUS_OK;
}

enum status loader_open(const struct loader_settings *settings, const dataset *set, device *dev,
                        device_stream *compute_stream, loader **out)
{
    *out = NULL;
    loader *l = calloc(1, sizeof *l);
    if (l == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a loader");
    }
    l->settings = *settings;
    l->set = set;
    l->dev = dev;
    l->compute_stream = compute_stream;
    enum status status = build(l);
    if (status != STATUS_OK) {
        loader_close(&l);
        return status;
    }
    *out = l;
    return STATUS_OK;
}

void loader_close(loader **loader_pointer)
{
    loader_cache *cache = NULL;
    loader_close_keeping(loader_pointer, &cache);
    loader_cache_destroy(&cache);
}

void loader_close_keeping(loader **loader_pointer, loader_cache **cache)
{
    loader *l = *loader_pointer;
    *cache = NULL;
    if (l == NULL) {
        return;
    }
    loader__end_threads(l, true);
    /* No worker is left that could touch it. */
    *cache = loader__cache_take(l);
    if (l->buffers != NULL) {
        /* The caller's message outlives a device that fails here; memory is freed all the same. */
        struct status_report report;
        status_save(&report, STATUS_INTERNAL);
        if (loader__staging_drain(l) != STATUS_OK) {
            enum status restored = status_restore(&report);
            (void)restored;
        }
    }
    loader__staging_close(l);
    for (int i = 0; i < l->worker_count && l->workers != NULL; i++) {
        loader__worker_destroy(&l->workers[i]);
    }
    loader__worker_destroy(&l->stager);
    for (int i = 0; i < l->layout.slots && l->slots != NULL; i++) {
        loader__free_bad(&l->slots[i]);
    }
    loader__cache_close(&l->cache);
    loader__ring_close(l);
    for (size_t i = 0; i < l->bad_count; i++) {
        free(l->bad_images[i].reason);
    }
    free(l->bad_images);
    free(l->bad_seen);
    free(l->plans[0].order);
    free(l->plans[1].order);
    free(l->numbers);
    free(l->workers);
    free(l->slots);
    free(l);
    *loader_pointer = NULL;
}

void loader_read_layout(const loader *l, struct loader_layout *layout)
{
    *layout = l->layout;
}

device_buffer *loader_slot_buffer(const loader *l, int slot)
{
    assert(slot >= 0 && slot < l->layout.slots);
    return l->buffers[slot];
}

void loader_copy_events(const loader *l, int slot, device_event **from, device_event **to)
{
    assert(slot >= 0 && slot < l->layout.slots);
    *from = l->copy_begun[slot];
    *to = l->copied[slot];
}

/* --- Failures ------------------------------------------------------------------------------ */

/* A failure that nothing can follow: every later call returns it. */
static enum status poison(loader *l, enum status status)
{
    if (status != STATUS_OK && l->failure.status == STATUS_OK) {
        status_save(&l->failure, status);
    }
    return status;
}

static enum status check_failure(const loader *l)
{
    return l->failure.status == STATUS_OK ? STATUS_OK : status_restore(&l->failure);
}

/* --- Slots going back ---------------------------------------------------------------------- */

static struct slot *slot_of(const loader *l, uint64_t seq)
{
    return &l->slots[seq % (uint64_t)l->layout.slots];
}

/* Gives released slots whose copies have ended back to the workers. Copies end in order, so the
 * oldest is asked first and the first that has not ended is the last one asked. */
static enum status retire(loader *l)
{
    uint64_t seq = l->retire_seq;
    while (seq < l->release_seq) {
        bool copied = false;
        TRY(loader__staging_is_copied(l, slot_of(l, seq), &copied));
        if (!copied) {
            break;
        }
        seq++;
    }
    if (seq != l->retire_seq) {
        pthread_mutex_lock(&l->mutex);
        l->retire_seq = seq;
        if (l->work_waiters > 0) {
            pthread_cond_signal(&l->work);
        }
        pthread_mutex_unlock(&l->mutex);
    }
    return STATUS_OK;
}

enum status loader__retire(loader *l)
{
    return l->failure.status == STATUS_OK ? poison(l, retire(l)) : STATUS_OK;
}

/* Nothing but the end of the oldest copy lets batch deliver_seq be filled. */
static bool must_await_copy(const loader *l)
{
    return l->deliver_seq >= l->retire_seq + (uint64_t)l->layout.slots;
}

static enum status await_copy(loader *l)
{
    uint64_t begin = clock_now_ns();
    TRY(loader__staging_await_copied(l, slot_of(l, l->retire_seq)));
    l->counts.waits_free++;
    l->counts.wait_free_ns += clock_now_ns() - begin;
    return retire(l);
}

static enum status release_held(loader *l)
{
    struct slot *slot = slot_of(l, l->release_seq);
    TRY(loader__staging_release(l, slot));
    pthread_mutex_lock(&l->mutex);
    slot->state = SLOT_EMPTY;
    pthread_mutex_unlock(&l->mutex);
    l->release_seq++;
    l->held = false;
    return retire(l);
}

/* --- Epochs -------------------------------------------------------------------------------- */

/* Whether the workers have begun just this epoch already. */
static bool adopt_locked(loader *l, uint32_t epoch, uint32_t first_batch)
{
    while (l->preparing) {
        pthread_cond_wait(&l->prepared, &l->mutex);
    }
    if (!l->fill_open || l->fill_plan == l->deliver_plan || first_batch != 0 ||
        l->plans[l->fill_plan].epoch != epoch) {
        return false;
    }
    l->deliver_plan = l->fill_plan;
    pthread_cond_signal(&l->work);
    return true;
}

static enum status begin_anew(loader *l, uint32_t epoch, uint32_t first_batch)
{
    TRY(loader__drain(l));
    struct plan *plan = &l->plans[l->deliver_plan];
    sampler_draw_order(&l->sampler, epoch, plan->order);
    pthread_mutex_lock(&l->mutex);
    plan->epoch = epoch;
    l->fill_plan = l->deliver_plan;
    l->fill_batch = first_batch;
    l->fill_open = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->mutex);
    return STATUS_OK;
}

enum status loader_begin_epoch(loader *l, uint32_t epoch, uint32_t first_batch)
{
    TRY(check_failure(l));
    if (l->epoch_open) {
        return FAIL(STATUS_INTERNAL,
                    "epoch %u begins before the one before it was read or cancelled", epoch);
    }
    if (first_batch > l->layout.batches) {
        return FAIL(STATUS_USAGE, "epoch %u cannot begin at batch %u: it has %u", epoch,
                    first_batch, l->layout.batches);
    }
    pthread_mutex_lock(&l->mutex);
    bool adopted = adopt_locked(l, epoch, first_batch);
    pthread_mutex_unlock(&l->mutex);
    if (!adopted) {
        TRY(poison(l, begin_anew(l, epoch, first_batch)));
    }
    /* A thread that is refused leaves an epoch that was not begun. */
    enum status status = loader__start_threads(l);
    if (status != STATUS_OK) {
        return poison(l, status);
    }
    l->deliver_batch = first_batch;
    l->epoch_open = true;
    return STATUS_OK;
}

static void end_epoch(loader *l)
{
    l->epoch_open = false;
    if (!l->settings.persistent_workers) {
        loader__end_threads(l, false);
    }
}

enum status loader_cancel_epoch(loader *l)
{
    TRY(check_failure(l));
    if (l->held) {
        TRY(poison(l, release_held(l)));
    }
    TRY(poison(l, loader__drain(l)));
    if (l->epoch_open) {
        end_epoch(l);
    }
    return STATUS_OK;
}

/* --- Batches ------------------------------------------------------------------------------- */

/* Waits until batch deliver_seq is ready, giving slots back meanwhile. */
static enum status await_batch(loader *l)
{
    if (loader__await_ready(l, false)) {
        return STATUS_OK;
    }
    uint64_t begin = clock_now_ns();
    uint64_t free_before = l->counts.wait_free_ns;
    for (;;) {
        TRY(stop_check());
        TRY(poison(l, retire(l)));
        if (must_await_copy(l)) {
            TRY(poison(l, await_copy(l)));
            continue;
        }
        struct slot *slot = l->settings.num_workers == 0 ? loader__take_inline(l) : NULL;
        if (slot != NULL) {
            (void)loader__worker_fill(l->workers[0], slot);
        }
        if (loader__await_ready(l, true)) {
            break;
        }
    }
    l->counts.waits_batch++;
    l->counts.wait_batch_ns += clock_now_ns() - begin - (l->counts.wait_free_ns - free_before);
    return STATUS_OK;
}

static void fill_batch(loader *l, const struct slot *slot)
{
    /* The block begins with the scalars, and is page-aligned. */
    l->batch = (struct batch){
        .slot = slot->number,
        .n = slot->n,
        .good = slot->good,
        .epoch = slot->epoch,
        .index = slot->index,
        .samples = slot->samples,
        .labels = slot->labels,
        .scalars = (struct step_scalars *)(void *)(slot->host + l->layout.scalars_offset),
        .pixels = slot->host + l->layout.pixels_offset,
        .shadow = slot->shadow,
        .buffer = l->buffers[slot->number]};
}

enum status loader_next(loader *l, struct batch **batch)
{
    *batch = NULL;
    TRY(check_failure(l));
    if (l->held) {
        return FAIL(STATUS_INTERNAL,
                    "the next batch is asked for before the last one was released");
    }
    TRY(stop_check());
    if (!l->epoch_open) {
        return STATUS_OK;
    }
    if (l->deliver_batch == l->layout.batches) {
        end_epoch(l);
        return poison(l, retire(l));
    }
    TRY(await_batch(l));
    struct slot *slot = slot_of(l, l->deliver_seq);
    if (slot->bad != NULL || slot->reason_lost) {
        TRY(poison(l, loader__settle_bad(l, slot)));
    }
    pthread_mutex_lock(&l->mutex);
    l->deliver_seq++;
    pthread_mutex_unlock(&l->mutex);
    l->deliver_batch++;
    l->held = true;
    l->counts.batches++;
    l->counts.images += (uint64_t)slot->n;
    fill_batch(l, slot);
    *batch = &l->batch;
    return STATUS_OK;
}

enum status loader_upload(loader *l, struct batch *batch)
{
    TRY(check_failure(l));
    assert(l->held && batch == &l->batch);
    struct slot *slot = &l->slots[batch->slot];
    size_t bytes = l->layout.pixels_offset + (size_t)batch->n * l->image_bytes;
    TRY(poison(l, loader__staging_upload(l, slot, bytes)));
    return poison(l, retire(l));
}

enum status loader_release(loader *l, struct batch **batch)
{
    TRY(check_failure(l));
    assert(l->held && *batch == &l->batch);
    *batch = NULL;
    return poison(l, release_held(l));
}
