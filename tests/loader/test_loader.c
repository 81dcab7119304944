/* Batches in order: the same for any number of workers, through failures, early ends and resuming. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/stop.h"
#include "base/system.h"
#include "loader/loader.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 45, SIZE = 8, BATCHES = 12, SECOND = 1000000000 };

#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

static loader *open_loader(const struct loader_set *set, const struct loader_settings *settings)
{
    loader *l = NULL;
    ck_assert_msg(loader_open(settings, set->set, set->dev, set->stream, &l) == STATUS_OK, "%s",
                  status_message());
    return l;
}

/* --- Order --------------------------------------------------------------------------------- */

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
        loader *l = open_loader(&set, &settings);
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
        loader *l = open_loader(&set, &settings);
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
    loader *l = open_loader(&set, &settings);
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
    loader *l = open_loader(&set, &settings);
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
    l = open_loader(&set, &settings);
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
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&whole, &set, l, 3, 0, SIZE_MAX), STATUS_OK);
    ck_assert_int_eq(seen_read(&whole, &set, l, 4, 0, SIZE_MAX), STATUS_OK);
    loader_close(&l);
    for (uint32_t first = 0; first <= BATCHES; first++) {
        struct seen rest = {.count = 0};
        settings.num_workers = (int)first % 4;
        l = open_loader(&set, &settings);
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
        loader *l = open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&wanted, &set, l, 6, 0, SIZE_MAX), STATUS_OK);
        loader_close(&l);
        l = open_loader(&set, &settings);
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
    loader *l = open_loader(&set, &settings);
    settings.num_workers = 0;
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        struct seen seen = {.count = 0};
        struct seen wanted = {.count = 0};
        loader *fresh = open_loader(&set, &settings);
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
        loader *l = open_loader(&set, &settings);
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
        loader *l = open_loader(&set, &settings);
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
    loader *l = open_loader(&set, &settings);
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

/* --- Bad images ---------------------------------------------------------------------------- */

static void break_files(const struct loader_set *set, const int *samples, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (i % 3 == 0) {
            char path[PATH_MAX];
            ck_assert_int_eq(unlink(loader_set_path(set, samples[i], path)), 0);
        } else {
            loader_set_replace(set, samples[i], "P6\n8 8\n255\nshort", i % 3 == 1 ? 16 : 0);
        }
    }
}

START_TEST(test_bad_images_are_skipped)
{
    static const int broken[] = {5, 7, 12, 13, 14, 15, 44};
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    break_files(&set, broken, sizeof broken / sizeof broken[0]);
    for (int k = 0; k < 8; k++) {
        struct seen seen = {.count = 0};
        struct loader_counters counters;
        loader_set_settings(&set, &settings);
        settings.num_workers = k % 4;
        settings.staging = k >= 4 ? STAGING_THREAD : STAGING_SLOT;
        settings.on_bad_image = BAD_IMAGE_SKIP;
        settings.label_smoothing = 0.2;
        settings.prefetch_epochs = false;
        loader *l = open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
        ck_assert_int_eq(seen_read(&seen, &set, l, 1, 0, SIZE_MAX), STATUS_OK);
        loader_read_counters(l, &counters);
        ck_assert_uint_eq(counters.bad_images, 14);
        for (size_t e = 0; e < 2; e++) {
            const struct seen_batch *batch = &seen.batches[e * BATCHES + 1];
            ck_assert_int_eq(batch->n, 4);
            ck_assert_int_eq(batch->good, 2);
            ck_assert_int_eq(batch->labels[0], 0);
            ck_assert_int_eq(batch->labels[1], -1);
            ck_assert_int_eq(batch->labels[2], 0);
            ck_assert_int_eq(batch->labels[3], -1);
            /* Their places show sample 4, the first good one. */
            batch->samples[1] = batch->samples[3] = 4;
            /* Batches without a good image are left out by the trainer. */
            ck_assert_int_eq(seen.batches[e * BATCHES + 3].good, 0);
            ck_assert_int_eq(seen.batches[e * BATCHES + 3].n, 4);
            ck_assert_int_eq(seen.batches[e * BATCHES + 11].good, 0);
            ck_assert_int_eq(seen.batches[e * BATCHES + 11].n, 1);
            seen.batches[e * BATCHES + 3].n = seen.batches[e * BATCHES + 11].n = 0;
        }
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        ck_assert_uint_eq(seen_wrong_targets(&seen, 0.9, 0.1), 0);
        uint32_t sample = 0;
        const char *reason = NULL;
        for (size_t i = 0; i < 7; i++) {
            ck_assert(loader_bad_image(l, i, &sample, &reason));
            ck_assert_uint_eq(sample, (uint32_t)broken[i]);
            ck_assert_uint_gt(strlen(reason), 3);
            ck_assert_int_eq(strstr(reason, "No such file") != NULL, i % 3 == 0);
        }
        ck_assert(!loader_bad_image(l, 7, &sample, &reason));
        loader_close(&l);
        seen_free(&seen);
    }
    loader_set_close(&set);
}
END_TEST

START_TEST(test_bad_image_stops_at_its_turn)
{
    static const int broken[] = {11, 9};
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    break_files(&set, broken, 2);
    for (int workers = 0; workers <= 3; workers++) {
        struct seen seen = {.count = 0};
        loader_set_settings(&set, &settings);
        settings.num_workers = workers;
        loader *l = open_loader(&set, &settings);
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_INVALID);
        /* The first in the order of samples, whichever was met first, after all before it. */
        ck_assert_uint_eq(seen.count, 2);
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        ck_assert_ptr_nonnull(strstr(status_message(), "a/000009.ppm"));
        ck_assert_ptr_nonnull(strstr(status_message(), "(sample 9)"));
        ck_assert_ptr_nonnull(strstr(status_message(), "--on-bad-image skip"));
        char message[STATUS_MESSAGE_BYTES];
        snprintf(message, sizeof message, "%s", status_message());
        struct batch *batch = NULL;
        status_clear();
        ck_assert_int_eq(loader_next(l, &batch), STATUS_INVALID);
        ck_assert_str_eq(status_message(), message);
        ck_assert_int_eq(loader_begin_epoch(l, 1, 0), STATUS_INVALID);
        ck_assert_int_eq(loader_cancel_epoch(l), STATUS_INVALID);
        loader_close(&l);
        seen_free(&seen);
    }
    /* A file that is not there is a failure to read, not a broken image. */
    struct seen seen = {.count = 0};
    char path[PATH_MAX];
    ck_assert_int_eq(unlink(loader_set_path(&set, 0, path)), 0);
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(status_message(), "a/000000.ppm"));
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_limit_on_file_size)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    unsigned char *large = calloc(1, 4096);
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_replace(&set, 2, large, 4096);
    free(large);
    loader_set_settings(&set, &settings);
    settings.image.max_file_bytes = 4095;
    settings.on_bad_image = BAD_IMAGE_SKIP;
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    uint32_t sample = 0;
    const char *reason = NULL;
    ck_assert(loader_bad_image(l, 0, &sample, &reason));
    ck_assert_uint_eq(sample, 2);
    ck_assert_ptr_nonnull(strstr(reason, "4096"));
    ck_assert_ptr_nonnull(strstr(reason, "4095"));
    ck_assert(!loader_bad_image(l, 1, &sample, &reason));
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

/* --- Slow files and stopping --------------------------------------------------------------- */

/* The last of batch 1: no place that a worker took together with it comes after it. */
enum { SLOW = 7 };

/* Opens the pipe's other end, which lets a reader that waits for it go on. Without one nothing
 * happens: for reading and writing, a pipe opens at once. */
static void write_pipe(const struct loader_set *set, int sample)
{
    char path[PATH_MAX];
    unsigned char *file = malloc(loader_set_file_bytes(set));
    ck_assert_ptr_nonnull(file);
    size_t bytes = loader_set_encode(set, sample, file);
    int pipe_end = open(loader_set_path(set, sample, path), O_RDWR | O_NONBLOCK);
    ck_assert_int_ge(pipe_end, 0);
    ck_assert_int_eq(write(pipe_end, file, bytes), (ssize_t)bytes);
    ck_assert_int_eq(close(pipe_end), 0);
    free(file);
}

/* Waits until the workers have read so many images; nothing says how long that may take. */
static void await_read(loader *l, const struct loader_set *set, uint64_t images)
{
    struct loader_counters counters;
    unsigned char file[512];
    uint64_t wanted = images * loader_set_encode(set, 0, file);
    uint64_t until = clock_now_ns() + (uint64_t)20 * SECOND;
    do {
        clock_sleep_ns(1000000);
        loader_read_counters(l, &counters);
    } while (counters.bytes_read < wanted && clock_now_ns() < until);
    ck_assert_uint_eq(counters.bytes_read, wanted);
}

START_TEST(test_slow_file_costs_its_own_batch)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_make_pipe(&set, SLOW);
    loader_set_settings(&set, &settings);
    settings.prefetch_epochs = false; /* nobody writes into the pipe a second time */
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, 1), STATUS_OK);
    ck_assert_uint_eq(seen.count, 1);
    /* Batch 0 has left the ring of four, so all of batches 1 to 4 but the slow image can be there. */
    await_read(l, &set, 19);
    write_pipe(&set, SLOW);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, UINT32_MAX, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen.count, BATCHES);
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_blocked_read_is_left_behind)
{
    struct loader_set set;
    struct loader_settings settings;
    for (int io = IO_THREADS; io <= IO_MMAP; io++) {
        loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
        loader_set_make_pipe(&set, SLOW);
        loader_set_settings(&set, &settings);
        settings.io = (enum loader_io)io;
        struct seen seen = {.count = 0};
        struct system_usage before;
        loader *l = open_loader(&set, &settings);
        system_read_usage(&before);
        before.threads -= settings.num_workers; /* what is left is the libraries' own */
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, 1), STATUS_OK);
        await_read(l, &set, 19);
        stop_set(SIGINT);
        uint64_t begin = clock_now_ns();
        struct batch *batch = NULL;
        ck_assert_int_eq(loader_next(l, &batch), STATUS_INTERRUPTED);
        ck_assert_ptr_null(batch);
        loader_close(&l);
        ck_assert_ptr_null(l);
        ck_assert_uint_lt(clock_now_ns() - begin, (uint64_t)2 * SECOND);
        stop_set(0);
        /* The reader ends by itself and must find nothing to write to. */
        write_pipe(&set, SLOW);
        struct system_usage after;
        uint64_t until = clock_now_ns() + (uint64_t)20 * SECOND;
        do {
            clock_sleep_ns(1000000);
            system_read_usage(&after);
        } while (after.threads > before.threads && clock_now_ns() < until);
        ck_assert_int_eq(after.threads, before.threads);
        seen_free(&seen);
        loader_set_close(&set);
    }
}
END_TEST

static void *ask_for_stop(void *argument)
{
    (void)argument;
    clock_sleep_ns(50000000);
    stop_set(SIGTERM);
    return NULL;
}

START_TEST(test_stop_ends_a_wait)
{
    struct loader_set set;
    struct loader_settings settings;
    pthread_t thread;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_make_pipe(&set, 1);
    loader_set_settings(&set, &settings);
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
    ck_assert_int_eq(pthread_create(&thread, NULL, ask_for_stop, NULL), 0);
    uint64_t begin = clock_now_ns();
    struct batch *batch = NULL;
    ck_assert_int_eq(loader_next(l, &batch), STATUS_INTERRUPTED);
    ck_assert_uint_lt(clock_now_ns() - begin, SECOND);
    ck_assert_int_eq(loader_cancel_epoch(l), STATUS_INTERRUPTED);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    write_pipe(&set, 1);
    loader_close(&l);
    stop_set(0);
    loader_set_close(&set);
}
END_TEST

/* --- Resources and settings ---------------------------------------------------------------- */

START_TEST(test_memory_files_and_threads_stay_flat)
{
    struct loader_set set;
    struct loader_settings settings;
    struct system_usage early;
    struct system_usage late;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    for (int persistent = 0; persistent <= 1; persistent++) {
        loader_set_settings(&set, &settings);
        settings.num_workers = 3;
        settings.persistent_workers = persistent != 0;
        settings.shuffle = true;
        settings.augment.flip = 0.5;
        loader *l = open_loader(&set, &settings);
        for (uint32_t epoch = 0; epoch < 120; epoch++) {
            ck_assert_int_eq(loader_begin_epoch(l, epoch, 0), STATUS_OK);
            for (;;) {
                struct batch *batch = NULL;
                ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
                if (batch == NULL) {
                    break;
                }
                ck_assert_int_eq(loader_upload(l, batch), STATUS_OK);
                ck_assert_int_eq(loader_release(l, &batch), STATUS_OK);
            }
            if (epoch == 19) {
                system_read_usage(&early);
            }
        }
        system_read_usage(&late);
        /* The address sanitizer keeps what was freed for a while. */
        if (!sanitized) {
            ck_assert_uint_le(late.resident_bytes, early.resident_bytes + (1 << 19));
        }
        /* A persistent worker may be inside a file, and an ended thread not gone from the system. */
        ck_assert_int_le(late.open_files, early.open_files + 3);
        ck_assert_int_le(late.threads, early.threads + 3);
        loader_close(&l);
    }
    loader_set_close(&set);
}
END_TEST

static void expect_usage(const struct loader_set *set, const struct loader_settings *settings,
                         const char *word)
{
    loader *l = NULL;
    ck_assert_msg(loader_open(settings, set->set, set->dev, set->stream, &l) == STATUS_USAGE,
                  "%s was taken", word);
    ck_assert_ptr_null(l);
    ck_assert_msg(strstr(status_message(), word) != NULL, "%s: %s", word, status_message());
}

/* A main thread that does not come leaves the workers without slots, and without work. */
START_TEST(test_full_ring_is_counted_as_waiting)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    struct batch *batch = NULL;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.num_workers = 1;
    settings.prefetch = 2;
    loader *l = open_loader(&set, &settings);
    ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
    await_read(l, &set, 8);
    clock_sleep_ns(100000000);
    await_read(l, &set, 8);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
        ck_assert_int_eq(loader_release(l, &batch), STATUS_OK);
    }
    ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
    loader_read_counters(l, &counters);
    ck_assert_uint_ge(counters.waits_slot, 1);
    ck_assert_uint_ge(counters.wait_slot_ns, 30000000);
    loader_close(&l);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_wrong_settings_are_named)
{
    struct loader_set set;
    struct loader_settings right;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &right);
#define EXPECT(field, value)                                                                       \
    do {                                                                                           \
        struct loader_settings wrong = right;                                                      \
        wrong.field = value;                                                                       \
        expect_usage(&set, &wrong, #field);                                                        \
    } while (0)
    EXPECT(batch_size, 0);
    EXPECT(batch_size, 65537);
    EXPECT(num_workers, -1);
    EXPECT(num_workers, 1025);
    EXPECT(prefetch, 1);
    EXPECT(prefetch, 257);
    EXPECT(size, 3);
    EXPECT(size, 4097);
    EXPECT(label_smoothing, 1.0);
    EXPECT(label_smoothing, -0.1);
    EXPECT(cache, (enum cache_mode)7);
    EXPECT(rank, 1);
#undef EXPECT
    struct loader_settings wrong = right;
    wrong.deviation[1] = 0;
    expect_usage(&set, &wrong, "deviation");
    wrong = right;
    wrong.augment.flip = 2;
    expect_usage(&set, &wrong, "flip");
    wrong = right;
    wrong.batch_size = 65536;
    wrong.size = 4096;
    wrong.prefetch = 256;
    expect_usage(&set, &wrong, "memory");
    struct loader_settings defaults;
    loader_settings_defaults(&defaults);
    ck_assert_int_eq(defaults.batch_size, 64);
    ck_assert_int_ge(defaults.num_workers, 1);
    ck_assert(defaults.shuffle && defaults.persistent_workers && defaults.prefetch_epochs);
    ck_assert(!defaults.drop_last && !defaults.non_blocking);
    loader *l = open_loader(&set, &right);
    ck_assert_int_eq(loader_begin_epoch(l, 0, BATCHES + 1), STATUS_USAGE);
    ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
    loader_close(&l);
    loader_set_close(&set);
}
END_TEST

/* The pixels are kept until KEPT later batches were released, while workers fill what they can. */
START_TEST(test_shadow_holds_the_decoded_pixels)
{
    enum { KEPT = 3, BYTES = COUNT * SIZE * SIZE * 3 };
    static uint8_t pixels[KEPT + 1][BYTES];
    const void *shadows[KEPT + 1];
    size_t sizes[KEPT + 1];
    struct loader_set set;
    struct loader_settings settings;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.keep_shadows = KEPT;
    settings.num_workers = 2;
    settings.prefetch = 2;
    loader *l = open_loader(&set, &settings);
    size_t seen = 0;
    for (uint32_t epoch = 0; epoch < 3; epoch++) {
        ck_assert_int_eq(loader_begin_epoch(l, epoch, 0), STATUS_OK);
        for (;;) {
            struct batch *batch = NULL;
            ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
            if (batch == NULL) {
                break;
            }
            const size_t at = seen % (KEPT + 1);
            sizes[at] = (size_t)batch->n * SIZE * SIZE * 3;
            ck_assert_uint_le(sizes[at], BYTES);
            ck_assert_ptr_ne(batch->shadow, batch->pixels);
            ck_assert_mem_eq(batch->shadow, batch->pixels, sizes[at]);
            memcpy(pixels[at], batch->pixels, sizes[at]);
            shadows[at] = batch->shadow;
            seen++;
            ck_assert_int_eq(loader_release(l, &batch), STATUS_OK);
            usleep(2000); /* for workers to fill the slot again */
            for (size_t i = 0; i < KEPT && i < seen; i++) {
                const size_t earlier = (seen - 1 - i) % (KEPT + 1);
                ck_assert_mem_eq(shadows[earlier], pixels[earlier], sizes[earlier]);
            }
        }
    }
    loader_close(&l);
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
                                  test_ranks_read_their_shares,
                                  test_bad_images_are_skipped,
                                  test_bad_image_stops_at_its_turn,
                                  test_limit_on_file_size,
                                  test_slow_file_costs_its_own_batch,
                                  test_blocked_read_is_left_behind,
                                  test_stop_ends_a_wait,
                                  test_memory_files_and_threads_stay_flat,
                                  test_full_ring_is_counted_as_waiting,
                                  test_wrong_settings_are_named,
                                  test_shadow_holds_the_decoded_pixels};
    return check_run("loader", tests, sizeof tests / sizeof tests[0], 60);
}
