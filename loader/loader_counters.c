/* What the loader counted. */
#include "loader/loader_internal.h"

static void sum_counters(const loader *l, struct loader_counters *sum)
{
    *sum = l->counts;
    sum->bytes_copied_on_host = atomic_load_explicit(&l->bytes_staged, memory_order_relaxed);
    for (int i = 0; i < l->worker_count; i++) {
        if (l->workers[i] == NULL) {
            continue;
        }
        const struct worker_counts *counts = &l->workers[i]->counts;
        sum->wait_slot_ns += loader__counted(&counts->wait_slot_ns);
        sum->waits_slot += loader__counted(&counts->waits_slot);
        sum->read_ns += loader__counted(&counts->read_ns);
        sum->decode_ns += loader__counted(&counts->decode_ns);
        sum->write_ns += loader__counted(&counts->write_ns);
        sum->worker_cpu_ns += loader__counted(&counts->cpu_ns);
        sum->bytes_read += loader__counted(&counts->bytes_read);
        sum->cache_hits += loader__counted(&counts->cache_hits);
    }
}

void loader_read_counters(loader *l, struct loader_counters *counters)
{
    const struct loader_counters *base = &l->baseline;
    /* A device that fails here is reported by the next call that can. */
    if (loader__retire(l) != STATUS_OK) {
        status_clear();
    }
    sum_counters(l, counters);
    counters->batches -= base->batches;
    counters->images -= base->images;
    counters->wait_batch_ns -= base->wait_batch_ns;
    counters->waits_batch -= base->waits_batch;
    counters->wait_slot_ns -= base->wait_slot_ns;
    counters->waits_slot -= base->waits_slot;
    counters->wait_free_ns -= base->wait_free_ns;
    counters->waits_free -= base->waits_free;
    counters->wait_copy_ns -= base->wait_copy_ns;
    counters->waits_copy -= base->waits_copy;
    counters->copy_call_ns -= base->copy_call_ns;
    counters->copy_bytes -= base->copy_bytes;
    counters->copies -= base->copies;
    counters->copy_device_ms -= base->copy_device_ms;
    counters->read_ns -= base->read_ns;
    counters->decode_ns -= base->decode_ns;
    counters->write_ns -= base->write_ns;
    counters->worker_cpu_ns -= base->worker_cpu_ns;
    counters->bytes_read -= base->bytes_read;
    counters->bytes_copied_on_host -= base->bytes_copied_on_host;
    counters->cache_hits -= base->cache_hits;
    counters->bad_images -= base->bad_images;
    counters->cache_bytes = atomic_load(&l->cache.used);
    counters->cache_images = atomic_load(&l->cache.images);
    counters->cache_limit = l->cache.limit;
}

void loader_reset_counters(loader *l)
{
    sum_counters(l, &l->baseline);
}

void loader_read_staging(const loader *l, struct loader_staging *staging)
{
    *staging = l->staging;
}
