/* Who fills which place of which slot, and in which order they are given out. */
#include "loader/loader_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/stop.h"

/* How long the main thread sleeps before it looks for a request to stop. */
#define LOOK_NS UINT64_C(20000000)
/* How often a waiting main thread looks whether a copy has ended: while workers have a slot to go on
 * with, and while they have none. */
#define BUSY_POLL_NS UINT64_C(1000000)
#define STARVED_POLL_NS UINT64_C(100000)

static struct slot *slot_of(const loader *l, uint64_t seq)
{
    return &l->slots[seq % (uint64_t)l->layout.slots];
}

/* --- Waiting ------------------------------------------------------------------------------- */

static struct timespec time_after(uint64_t ns)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    ns += (uint64_t)at.tv_nsec;
    at.tv_sec += (time_t)(ns / 1000000000);
    at.tv_nsec = (long)(ns % 1000000000);
    return at;
}

/* One wait; the caller's loop looks at its predicate and at the time. */
void loader__wait_locked(loader *l, pthread_cond_t *condition, uint64_t ns)
{
    struct timespec at = time_after(ns);
    (void)pthread_cond_timedwait(condition, &l->mutex, &at);
}

enum { CONDITION_COUNT = 6 };

static pthread_cond_t *condition_at(loader *l, int i)
{
    pthread_cond_t *conditions[CONDITION_COUNT] = {&l->work,    &l->filled,   &l->ready,
                                                   &l->drained, &l->prepared, &l->ended};
    return conditions[i];
}

enum status loader__ring_open(loader *l)
{
    pthread_condattr_t monotonic;
    if (pthread_condattr_init(&monotonic) != 0) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the loader's locks");
    }
    (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    int made = 0;
    while (made < CONDITION_COUNT && pthread_cond_init(condition_at(l, made), &monotonic) == 0) {
        made++;
    }
    (void)pthread_condattr_destroy(&monotonic);
    if (made < CONDITION_COUNT || pthread_mutex_init(&l->mutex, NULL) != 0) {
        while (made > 0) {
            (void)pthread_cond_destroy(condition_at(l, --made));
        }
        return FAIL(STATUS_NO_MEMORY, "no memory for the loader's locks");
    }
    l->mutex_ready = true;
    return STATUS_OK;
}

void loader__ring_close(loader *l)
{
    if (!l->mutex_ready) {
        return;
    }
    for (int i = 0; i < CONDITION_COUNT; i++) {
        (void)pthread_cond_destroy(condition_at(l, i));
    }
    (void)pthread_mutex_destroy(&l->mutex);
    l->mutex_ready = false;
}

/* --- Tickets ------------------------------------------------------------------------------- */

static uint64_t tickets_from(int n)
{
    return (uint64_t)n << 32;
}

static int tickets_left(uint64_t tickets)
{
    int n = (int)(tickets >> 32);
    uint32_t place = (uint32_t)tickets;
    return place < (uint32_t)n ? n - (int)place : 0;
}

int loader__take_places(struct slot *slot, int most, int *first)
{
    uint64_t tickets =
        atomic_fetch_add_explicit(&slot->tickets, (uint64_t)most, memory_order_acq_rel);
    int left = tickets_left(tickets);
    *first = (int)(uint32_t)tickets;
    return left < most ? left : most;
}

/* --- Beginning batches --------------------------------------------------------------------- */

static bool slot_is_free_locked(const loader *l)
{
    return l->fill_seq < l->retire_seq + (uint64_t)l->layout.slots;
}

static bool batch_is_left_locked(const loader *l)
{
    return l->fill_open && l->fill_batch < l->sampler.batches;
}

static struct slot *begin_batch_locked(loader *l)
{
    struct slot *slot = slot_of(l, l->fill_seq);
    const struct plan *plan = &l->plans[l->fill_plan];
    const uint32_t *samples = NULL;
    assert(slot->state == SLOT_EMPTY && slot->bad == NULL);
    int n = sampler_batch(&l->sampler, plan->order, l->fill_batch, &samples);
    slot->empty_share = n == 0;
    slot->n = n > 0 ? n : 1;
    slot->epoch = plan->epoch;
    slot->index = l->fill_batch;
    if (l->shadow_memory != NULL) {
        uint64_t blocks = (uint64_t)(l->layout.slots + l->settings.keep_shadows);
        slot->shadow = l->shadow_memory + (size_t)(l->fill_seq % blocks) * l->shadow_stride;
    }
    memcpy(slot->samples, samples, (size_t)slot->n * sizeof *samples);
    slot->ahead_count = 0;
    if (l->sampler.batches - l->fill_batch > (uint32_t)l->ahead_batches) {
        slot->ahead_count = sampler_batch(&l->sampler, plan->order,
                                          l->fill_batch + (uint32_t)l->ahead_batches, &slot->ahead);
    }
    slot->state = SLOT_FILLING;
    slot->cancelled = false;
    slot->good = slot->empty_share ? 0 : slot->n;
    atomic_store_explicit(&slot->remaining, slot->n, memory_order_relaxed);
    atomic_store_explicit(&slot->tickets, tickets_from(slot->n), memory_order_release);
    l->fill_batch++;
    l->fill_seq++;
    atomic_store_explicit(&l->open_slot, slot, memory_order_release);
    return slot;
}

static bool has_tickets(const struct slot *slot)
{
    return slot != NULL &&
           tickets_left(atomic_load_explicit(&slot->tickets, memory_order_acquire)) > 0;
}

struct slot *loader__find_open(loader *l)
{
    struct slot *slot = atomic_load_explicit(&l->open_slot, memory_order_acquire);
    return has_tickets(slot) ? slot : NULL;
}

struct slot *loader__take_inline(loader *l)
{
    pthread_mutex_lock(&l->mutex);
    struct slot *slot = loader__find_open(l);
    if (slot == NULL && l->fill_seq == l->deliver_seq && batch_is_left_locked(l) &&
        slot_is_free_locked(l)) {
        slot = begin_batch_locked(l);
    }
    pthread_mutex_unlock(&l->mutex);
    return slot;
}

/* Whether the next epoch's order is to be drawn now: the present epoch is all begun, nobody has asked
 * for another one, and the plan before it is done with. */
static bool may_prepare_locked(const loader *l)
{
    return l->settings.prefetch_epochs && l->settings.persistent_workers && l->fill_open &&
           !l->preparing && l->fill_batch == l->sampler.batches &&
           l->fill_plan == l->deliver_plan && l->plans[l->fill_plan].epoch < UINT32_MAX;
}

static void prepare_locked(loader *l)
{
    struct plan *plan = &l->plans[1 - l->fill_plan];
    uint32_t epoch = l->plans[l->fill_plan].epoch + 1;
    l->preparing = true;
    pthread_mutex_unlock(&l->mutex);
    sampler_draw_order(&l->sampler, epoch, plan->order);
    pthread_mutex_lock(&l->mutex);
    plan->epoch = epoch;
    l->fill_plan = 1 - l->fill_plan;
    l->fill_batch = 0;
    l->preparing = false;
    pthread_cond_signal(&l->prepared);
}

/* A waker wakes one thread; whoever finds more work than it can take wakes the next, so that the main
 * thread pays for one wake-up however many workers there are. */
static void pass_on_locked(loader *l)
{
    if (l->work_waiters == 0) {
        return;
    }
    const struct slot *slot = loader__find_open(l);
    uint64_t tickets =
        slot != NULL ? atomic_load_explicit(&slot->tickets, memory_order_relaxed) : 0;
    if (tickets_left(tickets) > 1 || (batch_is_left_locked(l) && slot_is_free_locked(l))) {
        pthread_cond_signal(&l->work);
    }
}

struct slot *loader__take_slot(loader *l, struct worker *worker)
{
    struct slot *slot = NULL;
    pthread_mutex_lock(&l->mutex);
    while (!l->stop) {
        slot = loader__find_open(l);
        if (slot != NULL) {
            break;
        }
        bool starved = false;
        if (batch_is_left_locked(l)) {
            if (slot_is_free_locked(l)) {
                slot = begin_batch_locked(l);
                break;
            }
            starved = true;
        } else if (may_prepare_locked(l)) {
            prepare_locked(l);
            continue;
        }
        uint64_t begin = clock_now_ns();
        l->work_waiters++;
        pthread_cond_wait(&l->work, &l->mutex);
        l->work_waiters--;
        if (starved) {
            loader__count(&worker->counts.waits_slot, 1);
            loader__count(&worker->counts.wait_slot_ns, clock_now_ns() - begin);
        }
    }
    pass_on_locked(l);
    pthread_mutex_unlock(&l->mutex);
    return slot;
}

/* --- Finishing batches --------------------------------------------------------------------- */

void loader__write_target(const loader *l, const struct slot *slot, int place, int good)
{
    int classes = l->layout.classes;
    /* The block is page-aligned and the offset a multiple of 256. */
    float *row = (float *)(void *)slot->targets + (size_t)place * (size_t)classes;
    int label = slot->labels[place];
    if (label < 0) {
        memset(row, 0, (size_t)classes * sizeof *row);
        return;
    }
    double smoothing = l->settings.label_smoothing;
    double off = smoothing / classes;
    float everywhere = (float)(off / good);
    for (int i = 0; i < classes; i++) {
        row[i] = everywhere;
    }
    row[label] = (float)((1 - smoothing + off) / good);
}

static void signal_ready_locked(loader *l, const struct slot *slot)
{
    if (l->ready_awaited && slot == slot_of(l, l->deliver_seq)) {
        pthread_cond_signal(&l->ready);
    }
}

static void finish_batch(loader *l, struct slot *slot)
{
    pthread_mutex_lock(&l->mutex);
    if (slot->bad != NULL && !slot->cancelled && l->settings.on_bad_image == BAD_IMAGE_SKIP) {
        /* Nobody else touches the slot: its places are all filled, and it is not ready. */
        pthread_mutex_unlock(&l->mutex);
        loader__replace_bad(l, slot);
        pthread_mutex_lock(&l->mutex);
    }
    if (slot->cancelled) {
        slot->state = SLOT_EMPTY;
        pthread_cond_signal(&l->drained);
    } else if (l->stager != NULL) {
        slot->state = SLOT_FILLED;
        if (slot == slot_of(l, l->stage_seq)) {
            pthread_cond_signal(&l->filled);
        }
    } else {
        slot->state = SLOT_READY;
        signal_ready_locked(l, slot);
    }
    pthread_mutex_unlock(&l->mutex);
}

void loader__finish_places(loader *l, struct slot *slot, int count)
{
    if (atomic_fetch_sub_explicit(&slot->remaining, count, memory_order_acq_rel) == count) {
        finish_batch(l, slot);
    }
}

void *loader__staging_run(void *argument)
{
    struct worker *self = argument;
    loader *l = self->loader;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        struct slot *slot = slot_of(l, l->stage_seq);
        if (l->stop) {
            break;
        }
        if (l->stage_seq == l->fill_seq || slot->state != SLOT_FILLED) {
            pthread_cond_wait(&l->filled, &l->mutex);
            continue;
        }
        slot->state = SLOT_STAGING;
        pthread_mutex_unlock(&l->mutex);
        size_t bytes =
            l->layout.pixels_offset - l->layout.targets_offset + (size_t)slot->n * l->image_bytes;
        memcpy(slot->host + l->layout.targets_offset, slot->targets, bytes);
        atomic_fetch_add_explicit(&l->bytes_staged, bytes, memory_order_relaxed);
        pthread_mutex_lock(&l->mutex);
        slot->state = SLOT_READY;
        l->stage_seq++;
        signal_ready_locked(l, slot);
        pthread_cond_signal(&l->drained);
    }
    self->ended = true;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

/* --- The main thread's side ---------------------------------------------------------------- */

bool loader__await_ready(loader *l, bool wait)
{
    pthread_mutex_lock(&l->mutex);
    const struct slot *slot = slot_of(l, l->deliver_seq);
    if (wait && !(l->deliver_seq < l->fill_seq && slot->state == SLOT_READY)) {
        uint64_t ns = LOOK_NS;
        if (l->retire_seq < l->release_seq) {
            /* A copy in flight: when it has ended, its slot must not lie idle. */
            ns = slot_is_free_locked(l) ? BUSY_POLL_NS : STARVED_POLL_NS;
        }
        l->ready_awaited = true;
        loader__wait_locked(l, &l->ready, ns);
        l->ready_awaited = false;
    }
    bool ready = l->deliver_seq < l->fill_seq && slot->state == SLOT_READY;
    pthread_mutex_unlock(&l->mutex);
    return ready;
}

/* Takes the tickets back; a slot that nobody is at is empty at once. */
static void cancel_slot_locked(struct slot *slot)
{
    if (slot->state == SLOT_FILLED) {
        slot->state = SLOT_EMPTY;
    }
    if (slot->state != SLOT_FILLING) {
        return;
    }
    slot->cancelled = true;
    int untaken = tickets_left(atomic_exchange_explicit(&slot->tickets, 0, memory_order_acq_rel));
    if (untaken > 0 &&
        atomic_fetch_sub_explicit(&slot->remaining, untaken, memory_order_acq_rel) == untaken) {
        slot->state = SLOT_EMPTY;
    }
}

enum status loader__drain(loader *l)
{
    pthread_mutex_lock(&l->mutex);
    while (l->preparing) {
        pthread_cond_wait(&l->prepared, &l->mutex);
    }
    l->fill_open = false;
    atomic_store_explicit(&l->open_slot, NULL, memory_order_relaxed);
    for (uint64_t seq = l->deliver_seq; seq < l->fill_seq; seq++) {
        cancel_slot_locked(slot_of(l, seq));
    }
    enum status status = STATUS_OK;
    for (uint64_t seq = l->deliver_seq; seq < l->fill_seq && status == STATUS_OK; seq++) {
        struct slot *slot = slot_of(l, seq);
        while ((slot->state == SLOT_FILLING || slot->state == SLOT_STAGING) &&
               status == STATUS_OK) {
            loader__wait_locked(l, &l->drained, LOOK_NS);
            status = stop_check();
        }
        if (status == STATUS_OK) {
            slot->state = SLOT_EMPTY;
            loader__free_bad(slot);
        }
    }
    if (status == STATUS_OK) {
        l->fill_seq = l->deliver_seq;
        l->stage_seq = l->deliver_seq;
    }
    pthread_mutex_unlock(&l->mutex);
    return status;
}
