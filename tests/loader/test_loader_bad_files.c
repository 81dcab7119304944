/* Images that cannot be read, files that are slow to come, and stopping while one is waited for. */
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
        loader *l = loader_set_open_loader(&set, &settings);
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
        loader *l = loader_set_open_loader(&set, &settings);
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
    loader *l = loader_set_open_loader(&set, &settings);
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
    loader *l = loader_set_open_loader(&set, &settings);
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

START_TEST(test_slow_file_costs_its_own_batch)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_make_pipe(&set, SLOW);
    loader_set_settings(&set, &settings);
    settings.prefetch_epochs = false; /* nobody writes into the pipe a second time */
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, 1), STATUS_OK);
    ck_assert_uint_eq(seen.count, 1);
    /* Batch 0 has left the ring of four, so all of batches 1 to 4 but the slow image can be there. */
    loader_set_await_read(&set, l, 19);
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
        loader *l = loader_set_open_loader(&set, &settings);
        system_read_usage(&before);
        before.threads -= settings.num_workers; /* what is left is the libraries' own */
        ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, 1), STATUS_OK);
        loader_set_await_read(&set, l, 19);
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
    loader *l = loader_set_open_loader(&set, &settings);
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

int main(void)
{
    const TTest *const tests[] = {
        test_bad_images_are_skipped,      test_bad_image_stops_at_its_turn,
        test_limit_on_file_size,          test_slow_file_costs_its_own_batch,
        test_blocked_read_is_left_behind, test_stop_ends_a_wait};
    return check_run("loader_bad_files", tests, sizeof tests / sizeof tests[0], 60);
}
