/* What reaches the device, in every cell, also when copies run as late as they may. */
#include "loader/loader.h"
#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

enum { COUNT = 45, SIZE = 8, EPOCHS = 3 };

struct cell {
    enum pin_memory pin;
    enum pin_how how;
    bool non_blocking;
    enum copy_stream stream;
    enum staging staging;
    int workers;
};

static void use_cell(const struct cell *cell, struct loader_settings *settings)
{
    settings->pin_memory = cell->pin;
    settings->pin_how = cell->how;
    settings->non_blocking = cell->non_blocking;
    settings->copy_stream = cell->stream;
    settings->staging = cell->staging;
    settings->num_workers = cell->workers;
    settings->shuffle = true;
    settings->label_smoothing = 0.1;
}

/* Three epochs in one cell; the counters must tell what the cell is. */
static void read_cell(const struct loader_set *set, const struct cell *cell, struct seen *seen)
{
    struct loader_settings settings;
    struct loader_counters counters;
    struct loader_staging staging;
    loader *l = NULL;
    loader_set_settings(set, &settings);
    use_cell(cell, &settings);
    settings.prefetch = 3;
    ck_assert_msg(loader_open(&settings, set->set, set->dev, set->stream, &l) == STATUS_OK, "%s",
                  status_message());
    for (uint32_t epoch = 0; epoch < EPOCHS; epoch++) {
        ck_assert_msg(seen_read(seen, set, l, epoch, 0, SIZE_MAX) == STATUS_OK, "%s",
                      status_message());
    }
    loader_read_counters(l, &counters);
    loader_read_staging(l, &staging);
    ck_assert_int_eq(staging.page_locked, cell->pin == PIN_ON);
    ck_assert(!staging.fell_back);
    ck_assert_uint_ge(staging.host_bytes, 3 * seen->layout.slot_bytes);
    ck_assert_uint_eq(staging.device_bytes, 3 * seen->layout.slot_bytes);
    ck_assert_uint_eq(counters.batches, seen->count);
    ck_assert_uint_eq(counters.images, EPOCHS * COUNT);
    ck_assert_uint_eq(counters.copies, seen->count);
    ck_assert_uint_eq(counters.copy_bytes, seen->count * seen->layout.pixels_offset +
                                               (size_t)EPOCHS * COUNT * seen->image_bytes);
    ck_assert_uint_eq(counters.waits_copy, cell->non_blocking ? 0 : seen->count);
    if (!cell->non_blocking) {
        ck_assert_uint_eq(counters.waits_free, 0);
    }
    if (cell->staging == STAGING_SLOT) {
        ck_assert_uint_eq(counters.bytes_copied_on_host, 0);
    } else {
        /* The next epoch's first batches may be copied already. */
        ck_assert_uint_ge(counters.bytes_copied_on_host,
                          (size_t)EPOCHS * COUNT * seen->image_bytes);
    }
    loader_close(&l);
    ck_assert_ptr_null(l);
}

static void check_all_cells(enum host_mode mode)
{
    struct loader_set set;
    struct seen first = {.count = 0};
    int cells = 0;
    loader_set_open(&set, COUNT, SIZE, mode);
    for (int bits = 0; bits < 16; bits++) {
        for (int workers = 0; workers <= 8; workers = workers == 0 ? 1 : workers * 8) {
            const struct cell cell = {.pin = (bits & 1) != 0 ? PIN_ON : PIN_OFF,
                                      .how = workers == 8 ? PIN_ALLOC : PIN_REGISTER,
                                      .non_blocking = (bits & 2) != 0,
                                      .stream = (bits & 4) != 0 ? COPY_STREAM_COMPUTE
                                                                : COPY_STREAM_DEDICATED,
                                      .staging = (bits & 8) != 0 ? STAGING_THREAD : STAGING_SLOT,
                                      .workers = workers};
            struct seen seen = {.count = 0};
            read_cell(&set, &cell, &seen);
            ck_assert_uint_eq(seen.count, 3 * EPOCHS * 4);
            ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
            ck_assert_uint_eq(seen_wrong_targets(&seen, 0.95, 0.05), 0);
            cells++;
            if (first.count == 0) {
                first = seen;
                continue;
            }
            ck_assert(seen_equal(&first, &seen));
            seen_free(&seen);
        }
    }
    ck_assert_int_eq(cells, 48);
    seen_free(&first);
    loader_set_close(&set);
}

START_TEST(test_every_cell_delivers_the_same_bytes)
{
    check_all_cells(HOST_IMMEDIATE);
}
END_TEST

START_TEST(test_every_cell_delivers_the_same_bytes_when_copies_are_late)
{
    check_all_cells(HOST_DEFERRED);
}
END_TEST

/* Copies that never end by themselves leave only the wait for the oldest one. */
/* What the planted faults of test_loader_fault_*.c show is not there. */
START_TEST(test_reading_that_finds_planted_faults_finds_none)
{
    for (int workers = 0; workers < 3; workers += 2) {
        ck_assert_uint_eq(loader_set_wrong_bytes(COPY_STREAM_COMPUTE, STAGING_SLOT, workers), 0);
        ck_assert_uint_eq(loader_set_wrong_bytes(COPY_STREAM_DEDICATED, STAGING_SLOT, workers), 0);
    }
    ck_assert_uint_eq(loader_set_wrong_bytes(COPY_STREAM_COMPUTE, STAGING_THREAD, 2), 0);
    ck_assert_uint_eq(loader_set_wrong_bytes(COPY_STREAM_DEDICATED, STAGING_THREAD, 2), 0);
}
END_TEST

START_TEST(test_full_ring_waits_for_its_oldest_copy)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, COUNT, SIZE, HOST_DEFERRED);
    loader_set_settings(&set, &settings);
    settings.non_blocking = true;
    settings.pin_memory = PIN_ON;
    settings.prefetch = 2;
    ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), STATUS_OK);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    loader_read_counters(l, &counters);
    ck_assert_uint_ge(counters.waits_free, 1);
    ck_assert_uint_le(counters.waits_free, counters.batches);
    ck_assert_uint_eq(counters.waits_copy, 0);
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

/* Streams that run beside the host, at a bus slow enough for copies to be in flight for a while. */
START_TEST(test_cells_on_a_bus_that_takes_time)
{
    struct loader_set set;
    struct seen first = {.count = 0};
    loader_set_open(&set, COUNT, SIZE, HOST_SIMULATED);
    for (int bits = 0; bits < 8; bits++) {
        const struct cell cell = {.pin = (bits & 1) != 0 ? PIN_ON : PIN_OFF,
                                  .non_blocking = (bits & 2) != 0,
                                  .stream =
                                      (bits & 4) != 0 ? COPY_STREAM_COMPUTE : COPY_STREAM_DEDICATED,
                                  .workers = 2};
        struct seen seen = {.count = 0};
        read_cell(&set, &cell, &seen);
        ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
        if (bits == 0) {
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

/* Blocking means that the copy is over when upload returns; otherwise nobody has waited for it. */
START_TEST(test_only_blocking_uploads_wait)
{
    struct loader_set set;
    loader_set_open(&set, COUNT, SIZE, HOST_DEFERRED);
    for (int bits = 0; bits < 4; bits++) {
        struct loader_settings settings;
        struct batch *batch = NULL;
        device_event *from = NULL;
        device_event *to = NULL;
        loader *l = NULL;
        bool complete = false;
        loader_set_settings(&set, &settings);
        settings.non_blocking = (bits & 1) != 0;
        settings.copy_stream = (bits & 2) != 0 ? COPY_STREAM_COMPUTE : COPY_STREAM_DEDICATED;
        ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), STATUS_OK);
        ck_assert_int_eq(loader_begin_epoch(l, 0, 0), STATUS_OK);
        ck_assert_int_eq(loader_next(l, &batch), STATUS_OK);
        ck_assert_int_eq(loader_upload(l, batch), STATUS_OK);
        loader_copy_events(l, batch->slot, &from, &to);
        ck_assert_int_eq(device_event_query(set.dev, to, &complete), STATUS_OK);
        ck_assert_int_eq(complete, !settings.non_blocking);
        /* The compute stream waits for the copy even where the host does not. */
        ck_assert_int_eq(device_stream_wait(set.dev, set.stream), STATUS_OK);
        ck_assert_int_eq(device_event_query(set.dev, to, &complete), STATUS_OK);
        ck_assert(complete);
        double milliseconds = -1;
        ck_assert_int_eq(device_event_elapsed(set.dev, from, to, &milliseconds), STATUS_OK);
        ck_assert_double_ge(milliseconds, 0);
        loader_close(&l);
    }
    loader_set_close(&set);
}
END_TEST

/* Copy times come from events: on this bus, bytes over rate and the start of each copy. */
START_TEST(test_copy_times_are_those_of_the_bus)
{
    struct loader_set set;
    struct loader_settings settings;
    struct loader_counters counters;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, COUNT, 32, HOST_SIMULATED);
    loader_set_settings(&set, &settings);
    settings.pin_memory = PIN_ON;
    ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), STATUS_OK);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    loader_read_counters(l, &counters);
    /* 20 MB/s and 20 us a copy, as loader_set_open says; a loaded machine only makes it longer. */
    double least = (double)counters.copy_bytes / 20e6 * 1e3 + (double)counters.copies * 0.02;
    ck_assert_double_ge(counters.copy_device_ms, 0.99 * least);
    ck_assert_double_le(counters.copy_device_ms, 20 * least);
    loader_reset_counters(l);
    loader_read_counters(l, &counters);
    ck_assert_uint_eq(counters.copies + counters.images + counters.waits_copy, 0);
    ck_assert_double_eq(counters.copy_device_ms, 0);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_every_cell_delivers_the_same_bytes,
                                  test_every_cell_delivers_the_same_bytes_when_copies_are_late,
                                  test_reading_that_finds_planted_faults_finds_none,
                                  test_full_ring_waits_for_its_oldest_copy,
                                  test_cells_on_a_bus_that_takes_time,
                                  test_only_blocking_uploads_wait,
                                  test_copy_times_are_those_of_the_bus};
    return check_run("loader_staging", tests, sizeof tests / sizeof tests[0], 0);
}
