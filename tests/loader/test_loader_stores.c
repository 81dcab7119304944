/* Streaming stores: batches are the same bytes with them as without, and they are chosen where a ring
 * is larger than the cache. */
#include <stdio.h>
#include <string.h>

#include "loader/loader.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 23, SIZE = 16 };

/* Two shuffled epochs of batches of four, the last of three, of images of odd or even size. */
static void read_batches(const struct loader_set *set, struct loader_settings settings,
                         enum slot_stores stores, struct seen *seen)
{
    struct loader_set sized = *set;
    struct loader_staging staging;
    loader *l = NULL;
    settings.stores = stores;
    sized.size = settings.size;
    ck_assert_msg(loader_open(&settings, set->set, set->dev, set->stream, &l) == STATUS_OK, "%s",
                  status_message());
    loader_read_staging(l, &staging);
    ck_assert(staging.streamed == (stores == STORES_STREAMED));
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_msg(seen_read(seen, &sized, l, epoch, 0, SIZE_MAX) == STATUS_OK, "%s",
                      status_message());
    }
    seen->image_bytes *= settings.transfer == TRANSFER_F32 ? sizeof(float) : 1;
    loader_close(&l);
}

static void compare(const struct loader_set *set, const struct loader_settings *settings)
{
    struct seen plain = {.count = 0}, streamed = {.count = 0}, chosen = {.count = 0};
    read_batches(set, *settings, STORES_PLAIN, &plain);
    read_batches(set, *settings, STORES_STREAMED, &streamed);
    read_batches(set, *settings, STORES_AUTO, &chosen);
    ck_assert_uint_eq(plain.count, 12);
    ck_assert_int_eq(plain.batches[5].n, 3);
    ck_assert_msg(seen_equal(&plain, &streamed) && seen_equal(&plain, &chosen),
                  "size %d, cache %d, transfer %d, %d workers", settings->size, settings->cache,
                  settings->transfer, settings->num_workers);
    seen_free(&plain);
    seen_free(&streamed);
    seen_free(&chosen);
}

START_TEST(test_streamed_batches_are_the_same_bytes)
{
    static const int sizes[] = {SIZE, 13, 5};
    struct loader_set set;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (int bits = 0; bits < 64; bits++) {
        struct loader_settings settings;
        loader_set_settings(&set, &settings);
        settings.shuffle = true;
        settings.transfer = (bits & 1) != 0 ? TRANSFER_F32 : TRANSFER_U8;
        settings.cache = (bits & 2) != 0 ? CACHE_DECODED : CACHE_NONE;
        settings.augment.flip = (bits & 4) != 0 ? 0.5 : 0;
        settings.augment.kind = (bits & 8) != 0 ? AUGMENT_PADDED_CROP : AUGMENT_NONE;
        settings.augment.padding = 2;
        settings.staging = (bits & 48) == 16 ? STAGING_THREAD : STAGING_SLOT;
        settings.keep_shadows = (bits & 48) == 32 ? 1 : 0;
        settings.num_workers = bits % 5 == 4 ? 0 : 1 + bits % 3;
        settings.size = sizes[bits % 3];
        compare(&set, &settings);
    }
    loader_set_close(&set);
}
END_TEST

/* The place of a file that ends early has been written in part, and is written again. */
START_TEST(test_replaced_images_are_the_same_bytes)
{
    static const enum transfer transfers[] = {TRANSFER_U8, TRANSFER_F32};
    struct loader_set set;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (int sample = 1; sample < COUNT; sample += 4) {
        static unsigned char file[4096];
        ck_assert_uint_le(loader_set_file_bytes(&set), sizeof file);
        loader_set_replace(&set, sample, file, loader_set_encode(&set, sample, file) / 2);
    }
    for (size_t i = 0; i < 2; i++) {
        struct loader_settings settings;
        loader_set_settings(&set, &settings);
        settings.transfer = transfers[i];
        settings.on_bad_image = BAD_IMAGE_SKIP;
        settings.num_workers = 3;
        compare(&set, &settings);
    }
    loader_set_close(&set);
}
END_TEST

static bool is_streamed(const struct loader_set *set, int size, int prefetch, int workers,
                        enum staging how, bool shadow)
{
    struct loader_settings settings;
    struct loader_staging staging;
    loader *l = NULL;
    loader_set_settings(set, &settings);
    settings.size = size;
    settings.batch_size = 64;
    settings.prefetch = prefetch;
    settings.num_workers = workers;
    settings.staging = how;
    settings.keep_shadows = shadow ? 1 : 0;
    ck_assert_msg(loader_open(&settings, set->set, set->dev, set->stream, &l) == STATUS_OK, "%s",
                  status_message());
    loader_read_staging(l, &staging);
    loader_close(&l);
    return staging.streamed;
}

/* 64 images of 224 x 224 are 9.6 MB: eight such batches are more than any single cache. */
START_TEST(test_large_rings_are_streamed)
{
    struct loader_set set;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    ck_assert(is_streamed(&set, 224, 8, 4, STAGING_SLOT, false));
    ck_assert(!is_streamed(&set, 224, 8, 3, STAGING_SLOT, false));
    ck_assert(!is_streamed(&set, 224, 8, 4, STAGING_THREAD, false));
    ck_assert(!is_streamed(&set, 224, 8, 4, STAGING_SLOT, true));
    ck_assert(!is_streamed(&set, 32, 8, 4, STAGING_SLOT, false));
    loader_set_close(&set);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_streamed_batches_are_the_same_bytes,
                                  test_replaced_images_are_the_same_bytes,
                                  test_large_rings_are_streamed};
    return check_run("loader_stores", tests, sizeof tests / sizeof tests[0], 60);
}
