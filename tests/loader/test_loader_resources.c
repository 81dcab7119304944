/* What a loader takes and gives back, counts and refuses. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/system.h"
#include "loader/loader.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 45, SIZE = 8, BATCHES = 12 };

#if defined(__SANITIZE_ADDRESS__)
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

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
        loader *l = loader_set_open_loader(&set, &settings);
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

/* Workers keep nothing open that was open when they began: a pipe that its writer closes ends. */
START_TEST(test_workers_hold_no_file_of_others)
{
    struct loader_set set;
    struct loader_settings settings;
    int ends[2];
    char byte;
    loader_set_open(&set, COUNT, SIZE, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.num_workers = 3;
    settings.prefetch = 2;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
    /* A worker that has not begun by now begins without the pipe. */
    loader_set_await_read(&set, l, 8);
    errno = 0;
    ck_assert_int_eq(read(ends[0], &byte, 1), -1);
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_eq(close(ends[1]), 0);
    ck_assert_int_eq(read(ends[0], &byte, 1), 0);
    ck_assert_int_eq(close(ends[0]), 0);
    loader_close(&l);
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
    loader *l = loader_set_open_loader(&set, &settings);
    ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
    loader_set_await_read(&set, l, 8);
    clock_sleep_ns(100000000);
    loader_set_await_read(&set, l, 8);
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
    loader *l = loader_set_open_loader(&set, &right);
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
    loader *l = loader_set_open_loader(&set, &settings);
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
    const TTest *const tests[] = {
        test_memory_files_and_threads_stay_flat, test_workers_hold_no_file_of_others,
        test_full_ring_is_counted_as_waiting, test_wrong_settings_are_named,
        test_shadow_holds_the_decoded_pixels};
    return check_run("loader_resources", tests, sizeof tests / sizeof tests[0], 60);
}
