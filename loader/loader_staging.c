/*
 * Host blocks, device buffers, and the copies between them, ordered by events alone:
 *
 *   copied    the host block may be filled again; and compute may read the device buffer
 *   consumed  the device buffer may be overwritten
 *
 * On the compute stream the order of the stream says both of the device buffer.
 *
 * Two macros plant faults for builds that prove the checks: PINLINE_FAULT_REUSE gives a slot back
 * without waiting for "copied", PINLINE_FAULT_NO_WAIT lets compute run without waiting for it.
 */
#include "loader/loader_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/size.h"
#include "base/system.h"

#define PAGE ((size_t)4096)

/* --- Memory -------------------------------------------------------------------------------- */

/* More than a tenth of the machine locked needs the user's word: it is taken from everybody else. */
static enum status check_lock_size(const loader *l, size_t bytes)
{
    struct system_facts facts;
    system_read_facts(&facts);
    if (l->settings.allow_large_pinned || bytes <= facts.memory_total / 10) {
        return STATUS_OK;
    }
    return FAIL(STATUS_LIMIT,
                "the ring of %d batches would page-lock %zu bytes, more than a tenth of this "
                "machine's %llu bytes; use a smaller --prefetch or --batch-size, or "
                "--allow-large-pinned",
                l->layout.slots, bytes, (unsigned long long)facts.memory_total);
}

static enum status create_host(loader *l, size_t bytes, enum host_memory kind)
{
    TRY(device_host_buffer_create(l->dev, bytes, kind, &l->host));
    bool locked = kind != HOST_MEMORY_PAGEABLE;
    if (l->host.page_locked != locked) {
        device_host_buffer_destroy(l->dev, &l->host);
        return FAIL(STATUS_MISMATCH,
                    "the slots were asked to be %s and the runtime says that they are not; cells "
                    "would not be what they are named",
                    locked ? "page-locked" : "pageable");
    }
    return STATUS_OK;
}

static enum status create_locked(loader *l, size_t bytes)
{
    TRY(check_lock_size(l, bytes));
    return create_host(l, bytes,
                       l->settings.pin_how == PIN_ALLOC ? HOST_MEMORY_ALLOCATED
                                                        : HOST_MEMORY_REGISTERED);
}

static enum status open_host(loader *l)
{
    size_t stride = size_align(l->layout.slot_bytes, PAGE);
    size_t bytes = stride * (size_t)l->layout.slots;
    if (l->settings.pin_memory == PIN_OFF) {
        TRY(create_host(l, bytes, HOST_MEMORY_PAGEABLE));
    } else {
        enum status status = create_locked(l, bytes);
        if (status != STATUS_OK && (l->settings.pin_memory == PIN_ON || status == STATUS_DEVICE)) {
            return status;
        }
        if (status != STATUS_OK) {
            snprintf(l->staging.note, sizeof l->staging.note, "%s", status_message());
            log_warn("batches are staged in pageable memory: %s", status_message());
            status_clear();
            l->staging.fell_back = true;
            TRY(create_host(l, bytes, HOST_MEMORY_PAGEABLE));
        }
    }
    /* A short last batch carries target rows that nobody wrote; they are zero, not chance. */
    memset(l->host.data, 0, l->host.bytes);
    for (int i = 0; i < l->layout.slots; i++) {
        l->slots[i].host = (unsigned char *)l->host.data + (size_t)i * stride;
    }
    l->staging.page_locked = l->host.page_locked;
    l->staging.lock_seconds = l->host.lock_seconds;
    l->staging.host_bytes = bytes;
    return STATUS_OK;
}

/* Plain memory, touched once. */
static enum status map_memory(size_t bytes, const char *what, unsigned char **out)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (memory == MAP_FAILED) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu bytes of %s; use a smaller --prefetch",
                    bytes, what);
    }
    *out = memory;
    return STATUS_OK;
}

/* Where workers write: the host block itself, or memory of their own when a thread copies. */
static enum status open_fill(loader *l)
{
    size_t stride = size_align(l->layout.slot_bytes, PAGE);
    if (l->settings.staging == STAGING_THREAD) {
        TRY(map_memory(stride * (size_t)l->layout.slots, "decoded batches", &l->fill_memory));
        l->fill_bytes = stride * (size_t)l->layout.slots;
    }
    if (l->settings.keep_shadows > 0) {
        l->shadow_stride = size_align((size_t)l->settings.batch_size * l->image_bytes, PAGE);
        size_t bytes = l->shadow_stride * (size_t)(l->layout.slots + l->settings.keep_shadows);
        TRY(map_memory(bytes, "copies for --verify-batches", &l->shadow_memory));
        l->shadow_bytes = bytes;
    }
    for (int i = 0; i < l->layout.slots; i++) {
        struct slot *slot = &l->slots[i];
        unsigned char *block =
            l->fill_memory != NULL ? l->fill_memory + (size_t)i * stride : slot->host;
        slot->targets = block + l->layout.targets_offset;
        slot->pixels = block + l->layout.pixels_offset;
    }
    return STATUS_OK;
}

static enum status open_device(loader *l)
{
    size_t slots = (size_t)l->layout.slots;
    l->buffers = calloc(slots, sizeof(device_buffer *));
    l->copy_begun = calloc(slots, sizeof(device_event *));
    l->copied = calloc(slots, sizeof(device_event *));
    l->consumed = calloc(slots, sizeof(device_event *));
    if (l->buffers == NULL || l->copy_begun == NULL || l->copied == NULL || l->consumed == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the ring's %zu slots", slots);
    }
    if (l->settings.copy_stream == COPY_STREAM_DEDICATED) {
        TRY(device_stream_create(l->dev, "copy", &l->copy_stream));
    }
    for (size_t i = 0; i < slots; i++) {
        TRY(device_buffer_create(l->dev, l->layout.slot_bytes, &l->buffers[i]));
        TRY(device_event_create(l->dev, l->settings.timing, &l->copy_begun[i]));
        TRY(device_event_create(l->dev, l->settings.timing, &l->copied[i]));
        TRY(device_event_create(l->dev, false, &l->consumed[i]));
    }
    l->staging.device_bytes = l->layout.slot_bytes * slots;
    return STATUS_OK;
}

enum status loader__staging_open(loader *l)
{
    TRY(open_host(l));
    TRY(open_fill(l));
    return open_device(l);
}

void loader__staging_close(loader *l)
{
    for (int i = 0; i < l->layout.slots; i++) {
        if (l->consumed != NULL) {
            device_event_destroy(l->dev, &l->consumed[i]);
        }
        if (l->copied != NULL) {
            device_event_destroy(l->dev, &l->copied[i]);
        }
        if (l->copy_begun != NULL) {
            device_event_destroy(l->dev, &l->copy_begun[i]);
        }
        if (l->buffers != NULL) {
            device_buffer_destroy(l->dev, &l->buffers[i]);
        }
    }
    free(l->buffers);
    free(l->copy_begun);
    free(l->copied);
    free(l->consumed);
    l->buffers = NULL;
    l->copy_begun = l->copied = l->consumed = NULL;
    device_stream_destroy(l->dev, &l->copy_stream);
    device_host_buffer_destroy(l->dev, &l->host);
    if (l->fill_memory != NULL) {
        (void)munmap(l->fill_memory, l->fill_bytes);
        l->fill_memory = NULL;
    }
    if (l->shadow_memory != NULL) {
        (void)munmap(l->shadow_memory, l->shadow_bytes);
        l->shadow_memory = NULL;
    }
}

/* --- Copies -------------------------------------------------------------------------------- */

enum status loader__staging_upload(loader *l, struct slot *slot, size_t bytes)
{
    int i = slot->number;
    device_stream *stream = l->copy_stream != NULL ? l->copy_stream : l->compute_stream;
    if (l->copy_stream != NULL) {
        TRY(device_event_await(l->dev, l->consumed[i], stream));
    }
    if (l->settings.timing) {
        TRY(device_event_record(l->dev, l->copy_begun[i], stream));
    }
    uint64_t begin = loader__now(l);
    TRY(device_copy_to_device(l->dev, stream, l->buffers[i], 0, slot->host, bytes));
    l->counts.copy_call_ns += loader__now(l) - begin;
    TRY(device_event_record(l->dev, l->copied[i], stream));
    slot->copy_issued = true;
    l->counts.copies++;
    l->counts.copy_bytes += bytes;
    if (!l->settings.non_blocking) {
        begin = loader__now(l);
        TRY(device_stream_wait(l->dev, stream));
        l->counts.waits_copy++;
        l->counts.wait_copy_ns += loader__now(l) - begin;
    }
#ifndef PINLINE_FAULT_NO_WAIT
    if (l->copy_stream != NULL) {
        TRY(device_event_await(l->dev, l->copied[i], l->compute_stream));
    }
#endif
    return STATUS_OK;
}

enum status loader__staging_release(loader *l, struct slot *slot)
{
    if (l->copy_stream != NULL && slot->copy_issued) {
        TRY(device_event_record(l->dev, l->consumed[slot->number], l->compute_stream));
    }
    return STATUS_OK;
}

enum status loader__staging_is_copied(loader *l, struct slot *slot, bool *copied)
{
    *copied = true;
    if (!slot->copy_issued) {
        return STATUS_OK;
    }
#ifdef PINLINE_FAULT_REUSE
    slot->copy_issued = false;
    (void)l;
#else
    TRY(device_event_query(l->dev, l->copied[slot->number], copied));
    if (*copied && l->settings.timing) {
        double milliseconds = 0;
        TRY(device_event_elapsed(l->dev, l->copy_begun[slot->number], l->copied[slot->number],
                                 &milliseconds));
        l->counts.copy_device_ms += milliseconds;
    }
    slot->copy_issued = !*copied;
#endif
    return STATUS_OK;
}

enum status loader__staging_await_copied(loader *l, struct slot *slot)
{
    if (slot->copy_issued) {
        TRY(device_event_wait(l->dev, l->copied[slot->number]));
    }
    return STATUS_OK;
}

enum status loader__staging_drain(loader *l)
{
    if (l->copy_stream != NULL) {
        TRY(device_stream_wait(l->dev, l->copy_stream));
    }
    return device_stream_wait(l->dev, l->compute_stream);
}
