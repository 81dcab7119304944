#include "loader/loader_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "base/system.h"

/* What an allocation costs beyond the bytes asked for, so that the limit is one on memory. */
#define CACHE_ENTRY_COST (sizeof(struct cache_entry) + 16)

enum status loader__cache_open(struct image_cache *cache, enum cache_mode mode, size_t limit,
                               size_t count)
{
    memset(cache, 0, sizeof *cache);
    if (mode == CACHE_NONE) {
        return STATUS_OK;
    }
    if (limit == 0) {
        struct system_facts facts;
        system_read_facts(&facts);
        limit = (size_t)(facts.memory_available / 2);
    }
    cache->entries = calloc(count, sizeof *cache->entries);
    if (cache->entries == NULL) {
        return FAIL(STATUS_NO_MEMORY,
                    "no memory for the cache's table of %zu samples; use --cache none", count);
    }
    cache->mode = mode;
    cache->limit = limit;
    cache->count = count;
    atomic_store(&cache->used, count * sizeof *cache->entries);
    return STATUS_OK;
}

void loader__cache_close(struct image_cache *cache)
{
    if (cache->entries != NULL) {
        for (size_t i = 0; i < cache->count; i++) {
            free(atomic_load_explicit(&cache->entries[i], memory_order_relaxed));
        }
        free(cache->entries);
    }
    memset(cache, 0, sizeof *cache);
}

const struct cache_entry *loader__cache_find(const struct image_cache *cache, uint32_t sample)
{
    if (cache->entries == NULL) {
        return NULL;
    }
    return atomic_load_explicit(&cache->entries[sample], memory_order_acquire);
}

void loader__cache_insert(struct image_cache *cache, uint32_t sample, uint32_t width,
                          uint32_t height, const void *data, size_t bytes)
{
    size_t cost = 0;
    if (cache->entries == NULL || !size_add(bytes, CACHE_ENTRY_COST, &cost) ||
        cost > cache->limit) {
        return;
    }
    /* Reserved first, so that several threads together never go over the limit. */
    if (atomic_fetch_add(&cache->used, cost) > cache->limit - cost) {
        atomic_fetch_sub(&cache->used, cost);
        return;
    }
    struct cache_entry *entry = malloc(sizeof *entry + bytes);
    if (entry == NULL) {
        atomic_fetch_sub(&cache->used, cost);
        return;
    }
    entry->bytes = bytes;
    entry->width = width;
    entry->height = height;
    memcpy(entry->data, data, bytes);
    struct cache_entry *none = NULL;
    if (!atomic_compare_exchange_strong_explicit(&cache->entries[sample], &none, entry,
                                                 memory_order_acq_rel, memory_order_acquire)) {
        /* The same sample was read by two threads, for this epoch and the next one. */
        free(entry);
        atomic_fetch_sub(&cache->used, cost);
        return;
    }
    atomic_fetch_add(&cache->images, 1);
}
