/* Batches in order: the same for any number of workers, through early ends and resuming. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "loader/loader.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 45, SIZE = 8, BATCHES = 12 };

START_TEST(test_same_batches_for_any_number_of_workers)
{
    static const int workers[] = {0, 1, 2, 8};
    struct loader_set set;
    struct seen first = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (int k = 0; k < 16; k++) {
        struct loader_settings settings;
        struct seen seen = {.count = 0};
        loader_set_settings(&set, &settings);
        settings.num_workers = workers[k % 4];
        settings.persistent_workers = (k & 4) == 0;
        settings.prefetch_epochs = (k & 8) == 0;
        settings.prefetch = k % 3 == 0 ? 0 : 2 + k;
        settings.io = k % 2 == 0 ? IO_THREADS : IO_MMAP;
        settings.shuffle = true;
        settings.seed = 5;
        settings.augment.kind = AUGMENT_PADDED_CROP;
        settings.augment.padding = 2;
        settings.augment.flip = 0.5;
        loader *l = loader_set_open_loader(&set, &settings);
        for (uint32_t epoch = 7; epoch < 10; epoch++) {
            ck_assert_int_eq(seen_read(&seen, &set, l, epoch, 0, SIZE_MAX), STATUS_OK);
        }
        loader_close(&l);
        ck_assert_uint_eq(seen.count, 3 * BATCHES);
        if (k == 0) {
            first = seen;
            continue;
        }
        ck_assert(seen_equal(&first, &seen));
        seen_free(&seen);
    }
    seen_free(&first);
    loader_set_close(&set);
}
END_TEST

/* Small images in large batches, of which a worker takes several places at a time. */
START_TEST(test_places_are_taken_several_at_a_time)
{
    static const int workers[] = {0, 1, 2, 3, 8};
    struct loader_set set;
    loader_set_open(&set, 300, SIZE, HOST_IMMEDIATE);
    for (int k = 0; k < 30; k++) {
        struct loader_settings settings;
        struct seen seen = {.count = 0};
        loader_set_settings(&set, &settings);
        settings.batch_size = k % 2 == 0 ? 64 : 101;
        settings.num_workers = workers[k % 5];
        settings.prefetch = k % 3 == 0 ? 2 : 3 + k % 7;
        settings.cache = k % 4 < 2 ? CACHE_DECODED : CACHE_NONE;
        settings.shuffle = true;
        loader *l = loader_set_open_loader(&set, &settings);
        for (uint32_t epoch = 0; epoch < 3; epoch++) {
            ck_assert_int_eq(seen_read(&seen, &set, l, epoch, 0, SIZE_MAX), STATUS_OK);
            /* Cut off while places are taken: those that were are filled, and no others. */
            ck_assert_int_eq(seen_read(&seen, &set, l, 100 + epoch, 0, 1), STATUS_OK);
            ck_assert_int_eq(loader_cancel_epoch(l), STATUS_OK);
        }
        ck_assert_uint_eq(seen.count, 3 * ((k % 2 == 0 ? 5 : 3) + 1));
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        ck_assert_uint_eq(seen_wrong_targets(&seen, 1, 0), 0);
        loader_close(&l);
        seen_free(&seen);
    }
    loader_set_close(&set);
}
END_TEST

/* Whether the block shows the image, or its mirror image. */
static bool shows(const struct seen *seen, const struct seen_batch *batch, int place, bool mirrored)
{
    const unsigned char *pixels =
        batch->block + seen->layout.pixels_offset + (size_t)place * SIZE * SIZE * 3;
    for (size_t y = 0; y < SIZE; y++) {
        for (size_t x = 0; x < SIZE; x++) {
            size_t from = mirrored ? SIZE - 1 - x : x;
            for (size_t c = 0; c < 3; c++) {
                if (pixels[(y * SIZE + x) * 3 + c] !=
                    loader_set_pixel((int)batch->samples[place], (y * SIZE + from) * 3 + c)) {
                    return false;
                }
            }
        }
    }
    return true;
}

START_TEST(test_chance_depends_on_sample_and_epoch)
{
    enum { EPOCHS = 6 };
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    bool mirrored[EPOCHS][COUNT];
    int all = 0;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.augment.flip = 0.5;
    loader *l = loader_set_open_loader(&set, &settings);
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        ck_assert_int_eq(seen_read(&seen, &set, l, epoch, 0, SIZE_MAX), STATUS_OK);
    }
    for (size_t i = 0; i < seen.count; i++) {
        const struct seen_batch *batch = &seen.batches[i];
        for (int place = 0; place < batch->n; place++) {
            bool flipped = shows(&seen, batch, place, true);
            ck_assert(flipped || shows(&seen, batch, place, false));
            mirrored[batch->epoch][batch->samples[place]] = flipped;
            all += flipped ? 1 : 0;
        }
    }
    /* 270 fair tosses: 135, with a deviation of 8.2. */
    ck_assert_int_ge(all, 135 - 50);
    ck_assert_int_le(all, 135 + 50);
    for (int a = 0; a < EPOCHS; a++) {
        for (int b = 0; b < a; b++) {
            ck_assert(memcmp(mirrored[a], mirrored[b], sizeof mirrored[a]) != 0);
        }
    }
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_partial_last_batch)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen.layout.batches, BATCHES);
    ck_assert_int_eq(seen.layout.last_batch, 1);
    ck_assert_int_eq(seen.layout.slots, 4);
    ck_assert_int_eq(seen.layout.classes, 2);
    ck_assert_uint_eq(seen.layout.targets_offset % 256, 0);
    ck_assert_uint_eq(seen.layout.pixels_offset % 256, 0);
    ck_assert_uint_ge(seen.layout.targets_offset, sizeof(struct step_scalars));
    for (size_t i = 0; i < BATCHES; i++) {
        const struct seen_batch *batch = &seen.batches[i];
        ck_assert_int_eq(batch->n, i < BATCHES - 1 ? 4 : 1);
        ck_assert_int_eq(batch->good, batch->n);
        ck_assert_uint_eq(batch->index, i);
        for (int place = 0; place < batch->n; place++) {
            ck_assert_uint_eq(batch->samples[place], 4 * i + (size_t)place);
            ck_assert_int_eq(batch->labels[place],
                             loader_set_label(&set, (int)batch->samples[place]));
        }
    }
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    ck_assert_uint_eq(seen_wrong_targets(&seen, 1, 0), 0);
    loader_close(&l);
    seen_free(&seen);

    settings.drop_last = true;
    l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen.count, BATCHES - 1);
    ck_assert_int_eq(seen.layout.last_batch, 4);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_resumes_at_any_batch)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen whole = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.shuffle = true;
    settings.augment.flip = 0.5;
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&whole, &set, l, 3, 0, SIZE_MAX), STATUS_OK);
    ck_assert_int_eq(seen_read(&whole, &set, l, 4, 0, SIZE_MAX), STATUS_OK);
    loader_close(&l);
    for (uint32_t first = 0; first <= BATCHES; first++) {
        struct seen rest = {.count = 0};
        settings.num_workers = (int)first % 4;
        l = loader_set_open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&rest, &set, l, 3, first, SIZE_MAX), STATUS_OK);
        ck_assert_int_eq(seen_read(&rest, &set, l, 4, 0, SIZE_MAX), STATUS_OK);
        struct seen tail = whole;
        tail.batches += first;
        tail.count -= first;
        ck_assert_uint_eq(rest.count, 2 * BATCHES - first);
        ck_assert(seen_equal(&tail, &rest));
        loader_close(&l);
        seen_free(&rest);
    }
    seen_free(&whole);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_epochs_are_cancelled_and_skipped)
{
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.shuffle = true;
    for (int workers = 0; workers <= 3; workers++) {
        settings.num_workers = workers;
        settings.persistent_workers = workers != 2;
        settings.staging = workers == 3 ? STAGING_THREAD : STAGING_SLOT;
        struct seen wanted = {.count = 0};
        loader *l = loader_set_open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&wanted, &set, l, 6, 0, SIZE_MAX), STATUS_OK);
        loader_close(&l);
        l = loader_set_open_loader(&set, &settings);
        for (size_t after = 0; after <= BATCHES; after++) {
            struct seen seen = {.count = 0};
            ck_assert_int_eq(seen_read(&seen, &set, l, 5, 0, after), STATUS_OK);
            if (after % 2 == 1) {
                struct batch *batch = NULL;
                ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
                ck_assert_ptr_nonnull(batch);
                ck_assert_int_eq(loader_begin_epoch(l, 6, 0), STATUS_INTERNAL);
            }
            ck_assert_int_eq(loader_cancel_epoch(l), STATUS_OK);
            ck_assert_int_eq(loader_cancel_epoch(l), STATUS_OK);
            struct batch *none = NULL;
            ck_assert_int_eq(loader_next(l, &none), STATUS_OK);
            ck_assert_ptr_null(none);
            seen_free(&seen);
            /* The one wanted, not the one that the workers may have begun. */
            ck_assert_int_eq(seen_read(&seen, &set, l, 6, 0, SIZE_MAX), STATUS_OK);
            ck_assert(seen_equal(&wanted, &seen));
            seen_free(&seen);
        }
        loader_close(&l);
        seen_free(&wanted);
    }
    loader_set_close(&set);
}
END_TEST

/* Workers have begun the next epoch when another one is asked for, or another place in it. */
START_TEST(test_prefetched_epoch_is_only_a_guess)
{
    static const struct {
        uint32_t epoch, first;
    } asked[] = {{0, 0}, {5, 0}, {2, 0}, {3, 0}, {4, 3}, {4, 0}, {5, BATCHES}, {6, 0}};
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.shuffle = true;
    loader *l = loader_set_open_loader(&set, &settings);
    settings.num_workers = 0;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct seen seen = {.count = 0};
        struct seen wanted = {.count = 0};
        loader *fresh = loader_set_open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&wanted, &set, fresh, asked[i].epoch, asked[i].first, SIZE_MAX),
                         STATUS_OK);
        ck_assert_int_eq(seen_read(&seen, &set, l, asked[i].epoch, asked[i].first, SIZE_MAX),
                         STATUS_OK);
        ck_assert_uint_eq(seen.count, BATCHES - asked[i].first);
        ck_assert(seen_equal(&wanted, &seen));
        loader_close(&fresh);
        seen_free(&seen);
        seen_free(&wanted);
        clock_sleep_ns(20000000);
    }
    loader_close(&l);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_closes_at_any_time)
{
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_DEFERRED);
    for (int k = 0; k < 60; k++) {
        loader_set_settings(&set, &settings);
        settings.num_workers = k % 5;
        settings.non_blocking = k % 2 == 0;
        settings.persistent_workers = k % 3 != 0;
        settings.staging = k % 7 == 0 ? STAGING_THREAD : STAGING_SLOT;
        loader *l = loader_set_open_loader(&set, &settings);
        struct seen seen = {.count = 0};
        if (k > 4) {
            ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, (size_t)k / 5), STATUS_OK);
            ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        }
        struct batch *batch = NULL;
        if (k > 4 && k % 4 == 1) {
            ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
            if (batch != NULL && k % 8 == 1) {
                ck_assert_int_eq(loader_upload(l, batch), STATUS_OK);
            }
        }
        loader_close(&l);
        loader_close(&l);
        seen_free(&seen);
    }
    loader_set_close(&set);
}
END_TEST

START_TEST(test_ranks_read_their_shares)
{
    struct loader_set set;
    struct loader_settings settings;
    int times[COUNT] = {0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.shuffle = true;
    settings.world = 2;
    for (settings.rank = 0; settings.rank < 2; settings.rank++) {
        struct seen seen = {.count = 0};
        loader *l = loader_set_open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
        ck_assert_uint_eq(seen.count, 6);
        for (size_t i = 0; i < seen.count; i++) {
            for (int place = 0; place < seen.batches[i].n; place++) {
                times[seen.batches[i].samples[place]]++;
            }
        }
        ck_assert_int_eq(seen.batches[5].n, settings.rank == 0 ? 2 : 3);
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        loader_close(&l);
        seen_free(&seen);
    }
    for (int i = 0; i < COUNT; i++) {
        ck_assert_int_eq(times[i], 1);
    }
    /* 45 = 2 x 22 + 1: the last one goes to rank 1, and rank 0 gets a batch that teaches nothing. */
    settings.batch_size = 11;
    settings.rank = 0;
    struct seen seen = {.count = 0};
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen.count, 3);
    ck_assert_int_eq(seen.batches[2].n, 1);
    ck_assert_int_eq(seen.batches[2].good, 0);
    ck_assert_int_eq(seen.batches[2].labels[0], -1);
    seen.batches[2].good = 1;
    ck_assert_uint_eq(seen_wrong_targets(&seen, 1, 0), 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_same_batches_for_any_number_of_workers,
                                  test_places_are_taken_several_at_a_time,
                                  test_chance_depends_on_sample_and_epoch,
                                  test_partial_last_batch,
                                  test_resumes_at_any_batch,
                                  test_epochs_are_cancelled_and_skipped,
                                  test_prefetched_epoch_is_only_a_guess,
                                  test_closes_at_any_time,
                                  test_ranks_read_their_shares};
    return check_run("loader", tests, sizeof tests / sizeof tests[0], 60);
}
