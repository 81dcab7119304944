#include "loader/loader_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/size.h"
#include "base/system.h"

/* Allocations of single images would be filled by a fault a page and given back one by one, and spread
 * over more pages than a processor keeps addresses of. */
#define BLOCK_BYTES ((size_t)64 << 20)
#define PAGE ((size_t)4096)
#define ENTRY_ALIGNMENT ((size_t)64)

struct cache_block {
    struct cache_block *older;
    size_t bytes;
    alignas(64) _Atomic size_t used; /* of `bytes`, this header included; may run over */
};

/* Takes `need` bytes of a new block, which hangs before `newest`. */
static struct cache_block *create_block(const struct image_cache *cache, size_t need,
                                        struct cache_block *newest)
{
    size_t usual = cache->limit < BLOCK_BYTES ? cache->limit : BLOCK_BYTES;
    size_t bytes = (need > usual ? need : usual) + sizeof(struct cache_block);
    bytes = size_align(bytes, PAGE);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        return NULL;
    }
    if (bytes >= BLOCK_BYTES) {
        (void)madvise(memory, bytes, MADV_HUGEPAGE);
    }
    struct cache_block *block = memory;
    block->older = newest;
    block->bytes = bytes;
    atomic_store_explicit(&block->used, sizeof *block + need, memory_order_relaxed);
    return block;
}

/* NULL when the system has no memory. */
static struct cache_entry *allocate_entry(struct image_cache *cache, size_t need)
{
    struct cache_block *block = atomic_load_explicit(&cache->newest, memory_order_acquire);
    for (;;) {
        if (block != NULL) {
            size_t at = atomic_fetch_add_explicit(&block->used, need, memory_order_relaxed);
            if (at <= block->bytes && need <= block->bytes - at) {
                return (struct cache_entry *)(void *)((unsigned char *)block + at);
            }
        }
        struct cache_block *fresh = create_block(cache, need, block);
        if (fresh == NULL) {
            return NULL;
        }
        if (atomic_compare_exchange_strong_explicit(&cache->newest, &block, fresh,
                                                    memory_order_acq_rel, memory_order_acquire)) {
            return (struct cache_entry *)(void *)(fresh + 1);
        }
        /* Another thread was first, and `block` is its. */
        (void)munmap(fresh, fresh->bytes);
    }
}

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
        struct cache_block *block = atomic_load_explicit(&cache->newest, memory_order_acquire);
        while (block != NULL) {
            struct cache_block *older = block->older;
            (void)munmap(block, block->bytes);
            block = older;
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
    /* A sample that was read by two threads, for this epoch and the next one, is held already. */
    if (cache->entries == NULL || loader__cache_find(cache, sample) != NULL ||
        !size_add(bytes, sizeof(struct cache_entry) + ENTRY_ALIGNMENT - 1, &cost)) {
        return;
    }
    cost &= ~(ENTRY_ALIGNMENT - 1);
    if (cost > cache->limit) {
        return;
    }
    /* Reserved first, so that several threads together never go over the limit. */
    if (atomic_fetch_add(&cache->used, cost) > cache->limit - cost) {
        atomic_fetch_sub(&cache->used, cost);
        return;
    }
    struct cache_entry *entry = allocate_entry(cache, cost);
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
        /* Both threads came here at once: the block keeps the bytes, so they stay counted. */
        return;
    }
    atomic_fetch_add(&cache->images, 1);
}

/* --- From loader to loader ------------------------------------------------------------------ */

/* What decides the bytes of an entry, beside the set. */
struct cache_origin {
    const dataset *set;
    size_t limit; /* as asked for, 0: chosen */
    struct image_settings image;
    bool base_is_final;
    struct augment_settings base; /* where base_is_final */
};

struct loader_cache {
    struct image_cache images;
    struct cache_origin origin;
};

/* Member by member into zeros, so that two of them can be compared as memory. */
static void read_origin(const loader *l, struct cache_origin *origin)
{
    const struct image_settings *image = &l->settings.image;
    const struct augment_settings *base = &l->base_augment;
    memset(origin, 0, sizeof *origin);
    origin->set = l->set;
    origin->limit = l->settings.cache_bytes;
    memcpy(origin->image.libraries, image->libraries, sizeof image->libraries);
    origin->image.max_pixels = image->max_pixels;
    origin->image.max_dimension = image->max_dimension;
    origin->image.max_file_bytes = image->max_file_bytes;
    origin->image.exif_orientation = image->exif_orientation;
    origin->image.exact_decode = image->exact_decode;
    origin->base_is_final = l->cache_base_is_final;
    if (l->cache_base_is_final && l->settings.cache == CACHE_DECODED) {
        origin->base.kind = base->kind;
        origin->base.size = base->size;
        origin->base.resize = base->resize;
        origin->base.padding = base->padding;
        origin->base.fill = base->fill;
    }
}

struct loader_cache *loader__cache_take(loader *l)
{
    if (l->cache.entries == NULL) {
        return NULL;
    }
    struct loader_cache *cache = calloc(1, sizeof *cache);
    if (cache == NULL) {
        return NULL;
    }
    read_origin(l, &cache->origin);
    cache->images = l->cache;
    memset(&l->cache, 0, sizeof l->cache);
    return cache;
}

void loader_give_cache(loader *l, loader_cache **cache)
{
    struct cache_origin own;
    if (*cache == NULL) {
        return;
    }
    read_origin(l, &own);
    if (l->settings.cache == (*cache)->images.mode &&
        memcmp(&own, &(*cache)->origin, sizeof own) == 0) {
        struct image_cache empty = l->cache;
        l->cache = (*cache)->images;
        (*cache)->images = empty;
    }
    loader_cache_destroy(cache);
}

void loader_cache_destroy(loader_cache **cache)
{
    if (*cache != NULL) {
        loader__cache_close(&(*cache)->images);
        free(*cache);
        *cache = NULL;
    }
}
