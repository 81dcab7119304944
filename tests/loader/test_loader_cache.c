/* The caches: what is held is never read again, what does not fit is, and pixels never change. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "loader/loader.h"
#include "loader/loader_internal.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 40, SIZE = 16 };

static void open_loader(const struct loader_set *set, const struct loader_settings *settings,
                        loader **l)
{
    ck_assert_msg(loader_open(settings, set->set, set->dev, set->stream, l) == STATUS_OK, "%s",
                  status_message());
}

/* Without files the second epoch can come from nowhere else. */
static void read_without_files(enum cache_mode mode, int workers)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.cache = mode;
    settings.cache_bytes = 1 << 20;
    settings.num_workers = workers;
    settings.prefetch_epochs = false;
    settings.shuffle = true;
    open_loader(&set, &settings, &l);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    loader_read_counters(l, &counters);
    ck_assert_uint_eq(counters.cache_hits, 0);
    ck_assert_uint_eq(counters.cache_images, COUNT);
    ck_assert_uint_eq(counters.cache_limit, 1 << 20);
    ck_assert_uint_ge(counters.cache_bytes, COUNT * seen.image_bytes);
    ck_assert_uint_le(counters.cache_bytes, 1 << 20);
    ck_assert_uint_gt(counters.bytes_read, COUNT * seen.image_bytes);
    loader_reset_counters(l);
    loader_set_remove_files(&set);
    ck_assert_msg(seen_read(&seen, &set, l, 1, 0, SIZE_MAX) == STATUS_OK, "%s", status_message());
    ck_assert_int_eq(seen_read(&seen, &set, l, 2, 0, SIZE_MAX), STATUS_OK);
    loader_read_counters(l, &counters);
    ck_assert_uint_eq(counters.cache_hits, 2 * COUNT);
    ck_assert_uint_eq(counters.bytes_read, 0);
    ck_assert_uint_eq(seen.count, 30);
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}

START_TEST(test_held_set_reads_no_file)
{
    for (int workers = 0; workers <= 2; workers++) {
        read_without_files(CACHE_ENCODED, workers);
        read_without_files(CACHE_DECODED, workers);
    }
}
END_TEST

START_TEST(test_what_does_not_fit_is_read_again)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (int mode = CACHE_ENCODED; mode <= CACHE_DECODED; mode++) {
        struct seen seen = {.count = 0};
        loader *l = NULL;
        loader_set_settings(&set, &settings);
        settings.cache = (enum cache_mode)mode;
        /* The table, and about a quarter of the images. */
        settings.cache_bytes = COUNT * 8 + COUNT / 4 * (SIZE * SIZE * 3 + 64);
        settings.prefetch_epochs = false;
        open_loader(&set, &settings, &l);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
        loader_read_counters(l, &counters);
        uint64_t held = counters.cache_images;
        ck_assert_uint_ge(held, COUNT / 5);
        ck_assert_uint_le(held, COUNT / 3);
        ck_assert_uint_le(counters.cache_bytes, settings.cache_bytes);
        uint64_t bytes_per_image = counters.bytes_read / COUNT;
        loader_reset_counters(l);
        ck_assert_int_eq(seen_read(&seen, &set, l, 1, 0, SIZE_MAX), STATUS_OK);
        loader_read_counters(l, &counters);
        ck_assert_uint_eq(counters.cache_hits, held);
        ck_assert_uint_eq(counters.bytes_read, (COUNT - held) * bytes_per_image);
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        loader_close(&l);
        seen_free(&seen);
    }
    loader_set_close(&set);
}
END_TEST

/* Two epochs under one augmentation. */
static void read_augmented(const struct loader_set *set, enum augment_kind kind, double flip,
                           enum transfer transfer, enum cache_mode mode, int size,
                           size_t cache_bytes, struct seen *seen)
{
    struct loader_settings settings;
    loader *l = NULL;
    loader_set_settings(set, &settings);
    settings.augment.kind = kind;
    settings.augment.flip = flip;
    settings.augment.padding = 2;
    settings.transfer = transfer;
    settings.cache = mode;
    settings.cache_bytes = cache_bytes;
    settings.size = size;
    settings.shuffle = true;
    settings.image.exact_decode = true;
    struct loader_set sized = *set;
    sized.size = size;
    open_loader(set, &settings, &l);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_msg(seen_read(seen, &sized, l, epoch, 0, SIZE_MAX) == STATUS_OK, "%s",
                      status_message());
    }
    seen->image_bytes *= transfer == TRANSFER_F32 ? sizeof(float) : 1;
    loader_close(&l);
}

START_TEST(test_pixels_are_those_without_a_cache)
{
    static const enum augment_kind kinds[] = {AUGMENT_NONE, AUGMENT_CENTRE, AUGMENT_PADDED_CROP,
                                              AUGMENT_RESIZED_CROP};
    struct loader_set set;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (size_t k = 0; k < 4; k++) {
        for (int bits = 0; bits < 8; bits++) {
            double flip = (bits & 1) != 0 ? 0.5 : 0;
            enum transfer transfer = (bits & 2) != 0 ? TRANSFER_F32 : TRANSFER_U8;
            int size = (bits & 4) != 0 ? SIZE : 10;
            struct seen none = {.count = 0};
            read_augmented(&set, kinds[k], flip, transfer, CACHE_NONE, size, 0, &none);
            for (int mode = CACHE_ENCODED; mode <= CACHE_DECODED; mode++) {
                for (size_t bytes = COUNT * 300; bytes <= 1 << 20; bytes += (1 << 20) - 12000) {
                    struct seen cached = {.count = 0};
                    read_augmented(&set, kinds[k], flip, transfer, (enum cache_mode)mode, size,
                                   bytes, &cached);
                    ck_assert_msg(seen_equal(&none, &cached), "kind %zu, bits %d, mode %d", k, bits,
                                  mode);
                    seen_free(&cached);
                }
            }
            seen_free(&none);
        }
    }
    loader_set_close(&set);
}
END_TEST

START_TEST(test_limit_is_one_on_memory)
{
    static const unsigned char data[1000];
    struct image_cache cache;
    ck_assert_int_eq(loader__cache_open(&cache, CACHE_ENCODED, 2500, 4), STATUS_OK);
    ck_assert_ptr_null(loader__cache_find(&cache, 0));
    loader__cache_insert(&cache, 0, 1, 2, data, 1000);
    const struct cache_entry *entry = loader__cache_find(&cache, 0);
    ck_assert_ptr_nonnull(entry);
    ck_assert_uint_eq(entry->bytes, 1000);
    ck_assert_uint_eq(entry->width, 1);
    ck_assert_uint_eq(entry->height, 2);
    loader__cache_insert(&cache, 0, 1, 2, data, 1000);
    ck_assert_ptr_eq(loader__cache_find(&cache, 0), entry);
    ck_assert_uint_eq(cache.images, 1);
    loader__cache_insert(&cache, 1, 1, 2, data, 1000);
    ck_assert_ptr_nonnull(loader__cache_find(&cache, 1));
    size_t used = cache.used;
    ck_assert_uint_gt(used, 2000);
    ck_assert_uint_le(used, 2500);
    loader__cache_insert(&cache, 2, 1, 2, data, 1000);
    ck_assert_ptr_null(loader__cache_find(&cache, 2));
    loader__cache_insert(&cache, 2, 1, 2, data, SIZE_MAX - 8);
    ck_assert_ptr_null(loader__cache_find(&cache, 2));
    ck_assert_uint_eq(cache.used, used);
    loader__cache_close(&cache);

    /* Half of what is free, when nothing is said. */
    ck_assert_int_eq(loader__cache_open(&cache, CACHE_DECODED, 0, 4), STATUS_OK);
    ck_assert_uint_gt(cache.limit, 1 << 20);
    loader__cache_close(&cache);
}
END_TEST

/* More than one block of memory, and threads that are there at once with the same samples. */
enum { BLOCK_COUNT = 90, INSERTERS = 4 };

static size_t block_sample_bytes(uint32_t sample)
{
    return sample % 3 == 0 ? 3000000 + sample : 1 + sample * 1001;
}

struct inserter {
    struct image_cache *cache;
    uint32_t first;
};

static void *insert_all(void *argument)
{
    const struct inserter *inserter = argument;
    unsigned char *data = malloc(block_sample_bytes(BLOCK_COUNT / 3 * 3));
    for (uint32_t i = 0; i < BLOCK_COUNT && data != NULL; i++) {
        uint32_t sample = (inserter->first + i) % BLOCK_COUNT;
        memset(data, (int)sample + 1, block_sample_bytes(sample));
        loader__cache_insert(inserter->cache, sample, sample, 7, data, block_sample_bytes(sample));
    }
    bool done = data != NULL;
    free(data);
    return done ? argument : NULL;
}

START_TEST(test_threads_insert_at_once)
{
    struct image_cache cache;
    struct inserter inserters[INSERTERS];
    pthread_t threads[INSERTERS];
    /* All fit even where each is held once a thread. */
    ck_assert_int_eq(loader__cache_open(&cache, CACHE_DECODED, 500 << 20, BLOCK_COUNT), STATUS_OK);
    for (int i = 0; i < INSERTERS; i++) {
        inserters[i] = (struct inserter){.cache = &cache, .first = (uint32_t)i / 2 * 10};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, insert_all, &inserters[i]), 0);
    }
    for (int i = 0; i < INSERTERS; i++) {
        void *done = NULL;
        ck_assert_int_eq(pthread_join(threads[i], &done), 0);
        ck_assert_ptr_nonnull(done);
    }
    ck_assert_uint_eq(cache.images, BLOCK_COUNT);
    for (uint32_t sample = 0; sample < BLOCK_COUNT; sample++) {
        const struct cache_entry *entry = loader__cache_find(&cache, sample);
        ck_assert_ptr_nonnull(entry);
        ck_assert_uint_eq(entry->bytes, block_sample_bytes(sample));
        ck_assert_uint_eq(entry->width, sample);
        size_t wrong = 0;
        for (size_t i = 0; i < entry->bytes; i++) {
            wrong += entry->data[i] != (unsigned char)(sample + 1);
        }
        ck_assert_uint_eq(wrong, 0);
    }
    loader__cache_close(&cache);
}
END_TEST

/* What one loader kept, another begins with: without files there is nowhere else to read from. */
START_TEST(test_cache_outlives_its_loader)
{
    for (int mode = CACHE_ENCODED; mode <= CACHE_DECODED; mode++) {
        struct loader_set set;
        struct loader_settings settings;
        struct loader_counters counters;
        struct seen seen = {.count = 0};
        loader_cache *cache = NULL;
        loader *l = NULL;
        loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
        loader_set_settings(&set, &settings);
        settings.cache = (enum cache_mode)mode;
        settings.cache_bytes = 1 << 20;
        settings.prefetch_epochs = false;
        open_loader(&set, &settings, &l);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
        loader_close_keeping(&l, &cache);
        ck_assert_ptr_null(l);
        ck_assert_ptr_nonnull(cache);
        loader_set_remove_files(&set);
        /* Staged otherwise, with other workers: the images are the same. */
        settings.pin_memory = PIN_ON;
        settings.num_workers = 2;
        settings.transfer = TRANSFER_F32;
        open_loader(&set, &settings, &l);
        loader_give_cache(l, &cache);
        ck_assert_ptr_null(cache);
        loader_read_counters(l, &counters);
        ck_assert_uint_eq(counters.cache_images, COUNT);
        ck_assert_uint_le(counters.cache_bytes, 1 << 20);
        struct seen again = {.count = 0};
        ck_assert_msg(seen_read(&again, &set, l, 1, 0, SIZE_MAX) == STATUS_OK, "%s",
                      status_message());
        loader_read_counters(l, &counters);
        ck_assert_uint_eq(counters.cache_hits, COUNT);
        ck_assert_uint_eq(counters.bytes_read, 0);
        loader_close(&l);
        seen_free(&seen);
        seen_free(&again);
        loader_set_close(&set);
    }
}
END_TEST

/* A cache of other bits is not taken over. */
START_TEST(test_other_cache_is_not_taken)
{
    for (int what = 0; what < 5; what++) {
        struct loader_set set;
        struct loader_settings settings;
        struct loader_counters counters;
        struct seen seen = {.count = 0};
        loader_cache *cache = NULL;
        loader *l = NULL;
        loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
        loader_set_settings(&set, &settings);
        settings.cache = CACHE_DECODED;
        settings.cache_bytes = 1 << 20;
        settings.prefetch_epochs = false;
        open_loader(&set, &settings, &l);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
        loader_close_keeping(&l, &cache);
        switch (what) {
        case 0:
            settings.cache = CACHE_ENCODED;
            break;
        case 1:
            settings.cache = CACHE_NONE;
            break;
        case 2:
            settings.cache_bytes = 1 << 21;
            break;
        case 3:
            settings.image.exact_decode = !settings.image.exact_decode;
            break;
        default:
            settings.size = 2 * SIZE;
            settings.augment.size = 2 * SIZE;
            break;
        }
        open_loader(&set, &settings, &l);
        loader_give_cache(l, &cache);
        ck_assert_ptr_null(cache);
        loader_read_counters(l, &counters);
        ck_assert_uint_eq(counters.cache_images, 0);
        loader_close(&l);
        seen_free(&seen);
        loader_set_close(&set);
    }
    /* A loader without a cache leaves none. */
    loader_cache *cache = NULL;
    loader *none = NULL;
    loader_close_keeping(&none, &cache);
    ck_assert_ptr_null(cache);
    loader_cache_destroy(&cache);
}
END_TEST

/* Nothing is timed, and everything else is as it was. */
START_TEST(test_loader_without_timing)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.timing = false;
    settings.non_blocking = false;
    open_loader(&set, &settings, &l);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    loader_read_counters(l, &counters);
    ck_assert_uint_eq(counters.images, COUNT);
    ck_assert_uint_eq(counters.copies, counters.batches);
    ck_assert_uint_eq(counters.waits_copy, counters.batches);
    ck_assert_uint_eq(counters.copy_call_ns, 0);
    ck_assert_uint_eq(counters.wait_copy_ns, 0);
    ck_assert(counters.copy_device_ms == 0);
    ck_assert_uint_eq(counters.read_ns + counters.decode_ns + counters.write_ns, 0);
    ck_assert_uint_eq(counters.worker_cpu_ns, 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_held_set_reads_no_file,           test_what_does_not_fit_is_read_again,
        test_pixels_are_those_without_a_cache, test_limit_is_one_on_memory,
        test_threads_insert_at_once,           test_cache_outlives_its_loader,
        test_other_cache_is_not_taken,         test_loader_without_timing};
    return check_run("loader_cache", tests, sizeof tests / sizeof tests[0], 0);
}
