/* Streams, events and copies of the host device in its three modes. */
#include <check.h>
#include <stdint.h>
#include <string.h>

#include "base/clock.h"
#include "device/device.h"
#include "tests/support/check_run.h"

#define MUST(expression)                                                                           \
    do {                                                                                           \
        if ((expression) != STATUS_OK) {                                                           \
            ck_abort_msg("%s: %s", #expression, status_message());                                 \
        }                                                                                          \
    } while (0)

#define BYTES 4096

static device *dev;

static void open_mode(enum host_mode mode, const struct host_simulation *simulated)
{
    struct device_settings settings;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_HOST;
    settings.host_threads = 1;
    settings.host_mode = mode;
    if (simulated != NULL) {
        settings.simulated = *simulated;
    }
    MUST(device_open(&settings, &dev));
}

static device_stream *stream(const char *name)
{
    device_stream *out = NULL;
    MUST(device_stream_create(dev, name, &out));
    return out;
}

static device_event *event(bool timed)
{
    device_event *out = NULL;
    MUST(device_event_create(dev, timed, &out));
    return out;
}

static device_buffer *buffer(size_t bytes)
{
    device_buffer *out = NULL;
    MUST(device_buffer_create(dev, bytes, &out));
    ck_assert_uint_eq(device_buffer_bytes(out), bytes);
    return out;
}

static struct host_buffer staging(size_t bytes, enum host_memory kind)
{
    struct host_buffer out;
    MUST(device_host_buffer_create(dev, bytes, kind, &out));
    ck_assert_uint_eq((uintptr_t)out.data % 4096, 0);
    ck_assert_uint_eq(out.bytes, bytes);
    ck_assert(out.page_locked == (kind != HOST_MEMORY_PAGEABLE));
    return out;
}

/* The three modes; simulated ones of a very fast bus. */
static void open_any(int mode)
{
    struct host_simulation fast = {.pageable_bytes_per_s = 1e12, .locked_bytes_per_s = 1e12};
    open_mode((enum host_mode)mode, &fast);
}

/* --- What holds in every mode ------------------------------------------------------------------ */

START_TEST(copies_arrive)
{
    open_any(_i);
    device_stream *s = stream("copy");
    device_buffer *a = buffer(BYTES), *b = buffer(BYTES);
    unsigned char in[BYTES], out[BYTES];
    for (int i = 0; i < BYTES; i++) {
        in[i] = (unsigned char)(i * 7 + 3);
    }
    memset(out, 0, sizeof out);
    MUST(device_copy_to_device(dev, s, a, 0, in, BYTES));
    MUST(device_copy_on_device(dev, s, b, 16, a, 32, BYTES - 32));
    MUST(device_zero(dev, s, b, 0, 16));
    MUST(device_zero(dev, s, b, BYTES - 16, 16));
    MUST(device_copy_to_host(dev, s, out, b, 0, BYTES));
    MUST(device_stream_wait(dev, s));
    for (int i = 0; i < BYTES; i++) {
        ck_assert_uint_eq(out[i], i < 16 || i >= BYTES - 16 ? 0 : in[i + 16]);
    }
    device_buffer_destroy(dev, &a);
    device_buffer_destroy(dev, &b);
    device_stream_destroy(dev, &s);
    device_close(&dev);
}
END_TEST

/* A consumer on a second stream sees what the awaited record's stream wrote before it, and an await
 * holds the record of its own time, not a later one. */
START_TEST(await_orders_streams)
{
    open_any(_i);
    device_stream *copy = stream("copy"), *compute = stream("compute");
    device_event *copied = event(false);
    device_buffer *slot = buffer(BYTES), *result = buffer(BYTES);
    struct host_buffer from = staging(BYTES, HOST_MEMORY_REGISTERED);
    unsigned char out[BYTES];
    for (int round = 0; round < 20; round++) {
        memset(from.data, round + 1, BYTES);
        MUST(device_copy_to_device(dev, copy, slot, 0, from.data, BYTES));
        MUST(device_event_record(dev, copied, copy));
        MUST(device_event_await(dev, copied, compute));
        MUST(device_copy_on_device(dev, compute, result, 0, slot, 0, BYTES));
        MUST(device_copy_to_host(dev, compute, out, result, 0, BYTES));
        MUST(device_stream_wait(dev, compute));
        ck_assert_uint_eq(out[0], (unsigned)round + 1);
        ck_assert_uint_eq(out[BYTES - 1], (unsigned)round + 1);
    }
    device_host_buffer_destroy(dev, &from);
    ck_assert_ptr_null(from.data);
    device_close(&dev);
}
END_TEST

START_TEST(events_become_complete)
{
    open_any(_i);
    device_stream *s = stream("s");
    device_event *e = event(true), *never = event(true);
    bool complete = false;
    double ms = 0.0;
    MUST(device_event_query(dev, never, &complete));
    ck_assert(complete);
    MUST(device_event_wait(dev, never));
    MUST(device_event_await(dev, never, s));
    ck_assert_int_eq(device_event_elapsed(dev, never, never, &ms), STATUS_INTERNAL);
    MUST(device_event_record(dev, e, s));
    MUST(device_event_wait(dev, e));
    MUST(device_event_query(dev, e, &complete));
    ck_assert(complete);
    MUST(device_event_elapsed(dev, e, e, &ms));
    ck_assert_double_eq(ms, 0.0);
    device_event *untimed = event(false);
    MUST(device_event_record(dev, untimed, s));
    MUST(device_synchronize(dev));
    ck_assert_int_eq(device_event_elapsed(dev, e, untimed, &ms), STATUS_INTERNAL);
    device_event_destroy(dev, &untimed);
    ck_assert_ptr_null(untimed);
    device_close(&dev);
}
END_TEST

/* Everything may be destroyed in any order while work is pending, and close frees the rest. */
START_TEST(destroy_with_work_pending)
{
    open_any(_i);
    device_stream *s = stream("one"), *t = stream("two");
    device_event *e = event(true);
    device_buffer *a = buffer(BYTES);
    unsigned char in[BYTES], out[BYTES];
    memset(in, 5, sizeof in);
    memset(out, 0, sizeof out);
    MUST(device_copy_to_device(dev, s, a, 0, in, BYTES));
    MUST(device_event_record(dev, e, s));
    MUST(device_event_await(dev, e, t));
    MUST(device_copy_to_host(dev, t, out, a, 0, BYTES));
    device_event_destroy(dev, &e);
    device_stream_destroy(dev, &s);
    ck_assert_ptr_null(s);
    device_buffer_destroy(dev, &a);
    ck_assert_uint_eq(out[BYTES - 1], 5);
    /* A stream after a destroyed one, and more work than a ring begins with. */
    s = stream("three");
    a = buffer(BYTES);
    for (int i = 0; i < 1000; i++) {
        MUST(device_zero(dev, s, a, 0, BYTES));
    }
    e = event(false);
    MUST(device_event_record(dev, e, s));
    device_close(&dev);
}
END_TEST

/* Programs are the operations in order; a delay takes its time. */
START_TEST(programs_run)
{
    open_any(_i);
    device_stream *s = stream("compute");
    device_buffer *memory = buffer(BYTES);
    struct tensor a = {memory, 0, DTYPE_F32, 1, 1, 1, 4};
    struct tensor b = a, sum = a;
    b.offset = 16;
    sum.offset = 32;
    struct op_desc desc = {.kind = OP_ADD, .label = "sum"};
    desc.u.add = (struct op_add){.a = a, .b = b, .y = sum};
    device_op *ops[2] = {NULL, NULL};
    MUST(device_op_create(dev, &desc, &ops[0]));
    desc.u.add = (struct op_add){.a = sum, .b = b, .y = a};
    MUST(device_op_create(dev, &desc, &ops[1]));
    device_program *program = NULL, *delay = NULL;
    MUST(device_program_create(dev, ops, 2, s, &program));
    ck_assert(!device_program_is_captured(program));
    const float in[8] = {1, 2, 3, 4, 10, 20, 30, 40};
    float out[4] = {0};
    MUST(device_copy_to_device(dev, s, memory, 0, in, sizeof in));
    MUST(device_program_submit(dev, program, s));
    MUST(device_program_submit(dev, program, s));
    MUST(device_copy_to_host(dev, s, out, memory, 0, sizeof out));
    MUST(device_stream_wait(dev, s));
    for (int i = 0; i < 4; i++) {
        ck_assert_float_eq(out[i], in[i] + 4 * in[4 + i]);
    }
    double measured = 0.0;
    MUST(device_delay_program_create(dev, 0.02, s, &delay, &measured));
    ck_assert_double_ge(measured, 0.0199);
    ck_assert_double_le(measured, 0.2);
    uint64_t start = clock_now_ns();
    MUST(device_program_submit(dev, delay, s));
    MUST(device_stream_wait(dev, s));
    ck_assert_double_ge(clock_seconds(start, clock_now_ns()), 0.0199);
    ck_assert_int_eq(device_delay_program_create(dev, -1.0, s, &delay, &measured), STATUS_USAGE);
    device_program_destroy(dev, &program);
    ck_assert_ptr_null(program);
    device_op_destroy(dev, &ops[0]);
    device_close(&dev);
}
END_TEST

/* --- Deferred mode ----------------------------------------------------------------------------- */

/* Nothing runs before somebody waits, and then what the wait needs alone. */
START_TEST(deferred_runs_as_late_as_it_may)
{
    open_mode(HOST_DEFERRED, NULL);
    device_stream *copy = stream("copy"), *compute = stream("compute");
    device_event *copied = event(false), *half = event(false);
    device_buffer *slot = buffer(BYTES);
    unsigned char in[BYTES], out[BYTES];
    bool complete = true;
    memset(in, 1, sizeof in);
    memset(out, 0, sizeof out);
    MUST(device_copy_to_device(dev, copy, slot, 0, in, BYTES));
    MUST(device_event_record(dev, copied, copy));
    MUST(device_event_query(dev, copied, &complete));
    ck_assert(!complete);
    /* Read when it runs, not when it was submitted. */
    memset(in, 2, sizeof in);
    MUST(device_event_await(dev, copied, compute));
    MUST(device_copy_to_host(dev, compute, out, slot, 0, BYTES / 2));
    MUST(device_event_record(dev, half, compute));
    MUST(device_copy_to_host(dev, compute, out + BYTES / 2, slot, BYTES / 2, BYTES / 2));
    MUST(device_event_query(dev, half, &complete));
    ck_assert(!complete);
    ck_assert_uint_eq(out[0], 0);
    MUST(device_event_wait(dev, half));
    ck_assert_uint_eq(out[0], 2);
    ck_assert_uint_eq(out[BYTES / 2], 0);
    MUST(device_event_query(dev, copied, &complete));
    ck_assert(complete);
    MUST(device_stream_wait(dev, compute));
    ck_assert_uint_eq(out[BYTES / 2], 2);
    device_close(&dev);
}
END_TEST

/* A ring of two slots, each refilled for the batch after the next. With `wait_copied` the host waits
 * for the slot's copy before it fills the slot again, with `await_consumed` the copy waits for the
 * step that reads the device buffer. Without either a batch is lost. Returns how many of the ten
 * steps saw the batch that was meant for them. */
static int right_batches(bool wait_copied, bool await_consumed)
{
    enum { SLOTS = 2, STEPS = 10 };
    device_stream *copy = stream("copy"), *compute = stream("compute");
    struct host_buffer host[SLOTS];
    device_buffer *slot[SLOTS], *seen = buffer(STEPS * 16);
    device_event *copied[SLOTS], *consumed[SLOTS];
    for (int i = 0; i < SLOTS; i++) {
        host[i] = staging(16, HOST_MEMORY_REGISTERED);
        slot[i] = buffer(16);
        copied[i] = event(false);
        consumed[i] = event(false);
    }
    for (int step = 0; step < STEPS; step++) {
        int i = step % SLOTS;
        if (wait_copied) {
            MUST(device_event_wait(dev, copied[i]));
        }
        memset(host[i].data, step + 1, 16);
        if (await_consumed) {
            MUST(device_event_await(dev, consumed[i], copy));
        }
        MUST(device_copy_to_device(dev, copy, slot[i], 0, host[i].data, 16));
        MUST(device_event_record(dev, copied[i], copy));
        MUST(device_event_await(dev, copied[i], compute));
        MUST(device_copy_on_device(dev, compute, seen, (size_t)step * 16, slot[i], 0, 16));
        MUST(device_event_record(dev, consumed[i], compute));
    }
    unsigned char out[STEPS * 16];
    MUST(device_copy_to_host(dev, compute, out, seen, 0, sizeof out));
    MUST(device_stream_wait(dev, compute));
    int right = 0;
    for (int step = 0; step < STEPS; step++) {
        right += out[step * 16] == step + 1 ? 1 : 0;
    }
    return right;
}

START_TEST(deferred_catches_a_slot_reused_too_early)
{
    open_mode(HOST_DEFERRED, NULL);
    ck_assert_int_eq(right_batches(true, true), 10);
    /* The host buffer filled again before it was copied: all but the last round of the ring. */
    ck_assert_int_eq(right_batches(false, true), 2);
    /* The device buffer overwritten before it was read: the last wait of the host, in step 9, runs
     * the copies of steps 0 to 7, so that of the steps that read afterwards 0 to 5 find a later
     * batch. */
    ck_assert_int_eq(right_batches(true, false), 4);
    device_close(&dev);
}
END_TEST

/* An event recorded again belongs to its last record: when the earlier one runs after it, on another
 * stream, the time stays that of the last. */
START_TEST(deferred_old_record_leaves_the_time)
{
    open_mode(HOST_DEFERRED, NULL);
    device_stream *early = stream("early"), *late = stream("late");
    device_event *e = event(true), *after = event(true);
    double ms = -1.0;
    MUST(device_event_record(dev, e, early));
    MUST(device_event_record(dev, e, late));
    MUST(device_event_record(dev, after, late));
    MUST(device_event_wait(dev, after));
    clock_sleep_ns(2000000);
    MUST(device_stream_wait(dev, early));
    MUST(device_event_elapsed(dev, e, after, &ms));
    ck_assert_double_ge(ms, 0.0);
    device_close(&dev);
}
END_TEST

/* A caller that only polls gets there in the end. */
START_TEST(deferred_polling_ends)
{
    open_mode(HOST_DEFERRED, NULL);
    device_stream *s = stream("s");
    device_buffer *a = buffer(BYTES);
    device_event *e = event(false);
    MUST(device_zero(dev, s, a, 0, BYTES));
    MUST(device_event_record(dev, e, s));
    bool complete = false;
    long polls = 0;
    while (!complete && polls < 1000000) {
        MUST(device_event_query(dev, e, &complete));
        polls++;
    }
    ck_assert(complete);
    ck_assert_int_gt(polls, 100);
    device_close(&dev);
}
END_TEST

/* Contents of a new buffer are undefined: here they are NaN, so that their use shows. */
START_TEST(deferred_buffers_begin_as_nan)
{
    open_mode(HOST_DEFERRED, NULL);
    device_stream *s = stream("s");
    device_buffer *a = buffer(16);
    float out[4] = {0};
    MUST(device_copy_to_host(dev, s, out, a, 0, sizeof out));
    MUST(device_stream_wait(dev, s));
    ck_assert(out[0] != out[0] && out[3] != out[3]);
    device_close(&dev);
}
END_TEST

/* --- Simulated mode ---------------------------------------------------------------------------- */

#define MILLION ((size_t)1000000)

/* 50 MB/s pageable, 200 MB/s locked: a million bytes take 20 and 5 ms; a step takes 8. */
static const struct host_simulation bus = {.pageable_bytes_per_s = 50e6,
                                           .locked_bytes_per_s = 200e6,
                                           .copy_start_s = 0.001,
                                           .step_s = 0.008,
                                           .issue_s = 0.002,
                                           .pin_page_s = 0.0};

/* Another process may take the processor meanwhile: times are held from below exactly, from above
 * with room. */
static void is_about(double seconds, double want)
{
    ck_assert_double_ge(seconds, want - 1e-4);
    ck_assert_double_le(seconds, want * 1.25 + 0.05);
}

/* The simulated device's own times do not depend on when threads wake. */
static double between(device_event *from, device_event *to)
{
    double ms = 0.0;
    MUST(device_event_elapsed(dev, from, to, &ms));
    return ms / 1e3;
}

START_TEST(simulated_copies_take_their_time)
{
    /* Slower than elsewhere: 101 and 401 ms, so that a busy machine does not decide. */
    struct host_simulation slow = bus;
    slow.locked_bytes_per_s = 10e6;
    slow.pageable_bytes_per_s = 2.5e6;
    open_mode(HOST_SIMULATED, &slow);
    device_stream *s = stream("copy");
    device_buffer *a = buffer(MILLION);
    struct host_buffer pageable = staging(MILLION, HOST_MEMORY_PAGEABLE);
    struct host_buffer locked = staging(MILLION, HOST_MEMORY_REGISTERED);
    device_event *e[3] = {event(true), event(true), event(true)};
    MUST(device_event_record(dev, e[0], s));
    uint64_t start = clock_now_ns();
    MUST(device_copy_to_device(dev, s, a, 0, locked.data, MILLION));
    /* Three quarters of the copy's time: the call does not wait for it. */
    ck_assert_double_le(clock_seconds(start, clock_now_ns()), 0.075);
    MUST(device_event_record(dev, e[1], s));
    MUST(device_event_wait(dev, e[1]));
    is_about(clock_seconds(start, clock_now_ns()), 0.101);
    is_about(between(e[0], e[1]), 0.101);

    start = clock_now_ns();
    MUST(device_copy_to_device(dev, s, a, 0, pageable.data, MILLION));
    is_about(clock_seconds(start, clock_now_ns()), 0.401);
    start = clock_now_ns();
    MUST(device_copy_to_host(dev, s, pageable.data, a, 0, MILLION / 4));
    is_about(clock_seconds(start, clock_now_ns()), 0.101);
    device_close(&dev);
}
END_TEST

/* Behind a step, a pageable copy keeps the caller for both; a locked one for neither. */
START_TEST(simulated_pageable_copy_drains_its_stream)
{
    open_mode(HOST_SIMULATED, &bus);
    device_stream *s = stream("compute");
    device_buffer *a = buffer(MILLION);
    struct host_buffer pageable = staging(MILLION, HOST_MEMORY_PAGEABLE);
    device_program *step = NULL;
    MUST(device_program_create(dev, NULL, 0, s, &step));
    uint64_t start = clock_now_ns();
    MUST(device_program_submit(dev, step, s));
    /* Submitting keeps the caller for issue_s. */
    is_about(clock_seconds(start, clock_now_ns()), 0.002);
    MUST(device_copy_to_device(dev, s, a, 0, pageable.data, MILLION));
    is_about(clock_seconds(start, clock_now_ns()), 0.008 + 0.021);
    device_close(&dev);
}
END_TEST

/* Ten batches: locked copies of 6 ms on their own stream beside steps of 8 ms take 6 + 10 * 8; on one
 * stream 10 * (6 + 8). */
START_TEST(simulated_streams_overlap)
{
    struct host_simulation at_once = bus;
    at_once.issue_s = 0.0;
    /* The same 5 ms for few bytes, so that moving them takes no time worth mentioning. */
    at_once.locked_bytes_per_s = bus.locked_bytes_per_s / 10;
    const size_t bytes = MILLION / 10;
    open_mode(HOST_SIMULATED, &at_once);
    device_stream *copy = stream("copy"), *compute = stream("compute");
    device_buffer *a = buffer(bytes);
    struct host_buffer locked = staging(bytes, HOST_MEMORY_ALLOCATED);
    device_program *step = NULL;
    MUST(device_program_create(dev, NULL, 0, compute, &step));
    device_event *begin = event(true), *end = event(true), *copied = event(true);
    device_program *hold = NULL;
    double measured = 0.0;
    MUST(device_delay_program_create(dev, 0.2, compute, &hold, &measured));
    device_event *held = event(false);
    for (int dedicated = 1; dedicated >= 0; dedicated--) {
        /* All is submitted while the streams are still held, so that a caller that loses the
         * processor leaves no gap. */
        MUST(device_program_submit(dev, hold, compute));
        MUST(device_event_record(dev, held, compute));
        MUST(device_event_await(dev, held, copy));
        MUST(device_event_record(dev, begin, dedicated ? copy : compute));
        for (int i = 0; i < 10; i++) {
            MUST(device_copy_to_device(dev, dedicated ? copy : compute, a, 0, locked.data, bytes));
            MUST(device_event_record(dev, copied, dedicated ? copy : compute));
            MUST(device_event_await(dev, copied, compute));
            MUST(device_program_submit(dev, step, compute));
        }
        MUST(device_event_record(dev, end, compute));
        MUST(device_event_wait(dev, end));
        double want = dedicated ? 0.006 + 10 * 0.008 : 10 * 0.014;
        double seconds = between(begin, end);
        ck_assert_double_eq_tol(seconds, want, 0.002);
    }
    device_close(&dev);
}
END_TEST

/* A step is longer while page-locked memory exists, when the simulation says so. */
START_TEST(simulated_page_locking_may_cost)
{
    struct host_simulation costly = bus;
    costly.pin_page_s = 0.01;
    costly.issue_s = 0.0;
    open_mode(HOST_SIMULATED, &costly);
    device_stream *s = stream("compute");
    device_program *step = NULL, *delay = NULL;
    double measured = 0.0;
    MUST(device_program_create(dev, NULL, 0, s, &step));
    MUST(device_delay_program_create(dev, 0.015, s, &delay, &measured));
    ck_assert_double_eq(measured, 0.015);
    device_event *e[4] = {event(true), event(true), event(true), event(true)};
    MUST(device_event_record(dev, e[0], s));
    MUST(device_program_submit(dev, step, s));
    MUST(device_event_record(dev, e[1], s));
    MUST(device_program_submit(dev, delay, s));
    MUST(device_event_record(dev, e[2], s));
    struct host_buffer locked = staging(4096, HOST_MEMORY_REGISTERED);
    MUST(device_program_submit(dev, step, s));
    MUST(device_event_record(dev, e[3], s));
    MUST(device_synchronize(dev));
    is_about(between(e[0], e[1]), 0.008);
    is_about(between(e[1], e[2]), 0.015);
    is_about(between(e[2], e[3]), 0.018);
    device_host_buffer_destroy(dev, &locked);
    device_close(&dev);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("host_streams");
    TCase *every = tcase_create("every mode");
    TCase *deferred = tcase_create("deferred");
    TCase *simulated = tcase_create("simulated");
    tcase_add_loop_test(every, copies_arrive, 0, 3);
    tcase_add_loop_test(every, await_orders_streams, 0, 3);
    tcase_add_loop_test(every, events_become_complete, 0, 3);
    tcase_add_loop_test(every, destroy_with_work_pending, 0, 3);
    tcase_add_loop_test(every, programs_run, 0, 3);
    tcase_add_test(deferred, deferred_runs_as_late_as_it_may);
    tcase_add_test(deferred, deferred_catches_a_slot_reused_too_early);
    tcase_add_test(deferred, deferred_old_record_leaves_the_time);
    tcase_add_test(deferred, deferred_polling_ends);
    tcase_add_test(deferred, deferred_buffers_begin_as_nan);
    tcase_add_test(simulated, simulated_copies_take_their_time);
    tcase_add_test(simulated, simulated_pageable_copy_drains_its_stream);
    tcase_add_test(simulated, simulated_streams_overlap);
    tcase_add_test(simulated, simulated_page_locking_may_cost);
    suite_add_tcase(suite, every);
    suite_add_tcase(suite, deferred);
    suite_add_tcase(suite, simulated);
    return check_run_suite(suite);
}
