/* Messages, traces and their way from one thread to another. */
#include <pthread.h>
#include <string.h>

#include "base/status.h"
#include "tests/support/check_run.h"

static enum status fail_inner(void)
{
    return FAIL(STATUS_IO, "cannot read %s: %d", "a.png", 7);
}

static enum status fail_outer(void)
{
    TRY(fail_inner());
    ck_abort_msg("TRY must leave the function");
    return STATUS_OK;
}

static enum status succeed(void)
{
    return STATUS_OK;
}

static enum status pass_through(int *reached)
{
    TRY(succeed());
    *reached = 1;
    return STATUS_OK;
}

START_TEST(test_message_and_trace)
{
    ck_assert_str_eq(status_message(), "");
    ck_assert_str_eq(status_trace_text(), "");
    ck_assert_int_eq(fail_outer(), STATUS_IO);
    ck_assert_str_eq(status_message(), "cannot read a.png: 7");
    const char *inner = strstr(status_trace_text(), "test_status.c:");
    ck_assert_ptr_nonnull(inner);
    const char *outer = strstr(status_trace_text(), "fail_inner()");
    ck_assert_ptr_nonnull(outer);
    ck_assert(inner < outer);

    int reached = 0;
    ck_assert_int_eq(pass_through(&reached), STATUS_OK);
    ck_assert_int_eq(reached, 1);

    status_clear();
    ck_assert_str_eq(status_message(), "");
    ck_assert_str_eq(status_trace_text(), "");
}
END_TEST

START_TEST(test_new_failure_replaces_the_old_one)
{
    ck_assert_int_eq(fail_outer(), STATUS_IO);
    /* The old message is an argument of the new one. */
    ck_assert_int_eq(FAIL(STATUS_INVALID, "sample 3: %s", status_message()), STATUS_INVALID);
    ck_assert_str_eq(status_message(), "sample 3: cannot read a.png: 7");
    ck_assert_ptr_null(strstr(status_trace_text(), "fail_inner()"));
}
END_TEST

START_TEST(test_prefix)
{
    ck_assert_int_eq(fail_inner(), STATUS_IO);
    status_prefix("--data %s", "x");
    ck_assert_str_eq(status_message(), "--data x: cannot read a.png: 7");
}
END_TEST

START_TEST(test_long_messages_are_cut_with_dots)
{
    char text[2 * STATUS_MESSAGE_BYTES];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    ck_assert_int_eq(FAIL(STATUS_IO, "%s", text), STATUS_IO);
    ck_assert_uint_eq(strlen(status_message()), STATUS_MESSAGE_BYTES - 1);
    ck_assert_str_eq(status_message() + STATUS_MESSAGE_BYTES - 5, "x...");
    status_prefix("at %s", "start");
    ck_assert_uint_eq(strlen(status_message()), STATUS_MESSAGE_BYTES - 1);
    ck_assert_str_eq(status_message() + STATUS_MESSAGE_BYTES - 5, "x...");
    ck_assert(strncmp(status_message(), "at start: xxx", 13) == 0);

    /* One byte less than the room fits whole. */
    text[STATUS_MESSAGE_BYTES - 1] = '\0';
    ck_assert_int_eq(FAIL(STATUS_IO, "%s", text), STATUS_IO);
    ck_assert_str_eq(status_message(), text);
}
END_TEST

START_TEST(test_a_full_trace_keeps_the_innermost_lines)
{
    ck_assert_int_eq(fail_inner(), STATUS_IO);
    for (int i = 0; i < 10000; i++) {
        status_trace("somewhere.c", i, "call()");
    }
    const char *trace = status_trace_text();
    ck_assert_ptr_nonnull(strstr(trace, "test_status.c:"));
    ck_assert_ptr_nonnull(strstr(trace, "somewhere.c:0 call()"));
    ck_assert_int_eq(trace[strlen(trace) - 1], '\n');
}
END_TEST

static void *fail_elsewhere(void *argument)
{
    struct status_report *report = argument;
    if (status_message()[0] != '\0') {
        return NULL; /* the report stays zero and the test fails */
    }
    status_save(report, FAIL(STATUS_DIVERGED, "loss is nan at step 12"));
    return NULL;
}

START_TEST(test_threads_have_messages_of_their_own)
{
    struct status_report report = {0};
    ck_assert_int_eq(fail_inner(), STATUS_IO);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, fail_elsewhere, &report), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_str_eq(status_message(), "cannot read a.png: 7");
    ck_assert_int_eq(status_restore(&report), STATUS_DIVERGED);
    ck_assert_str_eq(status_message(), "loss is nan at step 12");

    const struct status_report fine = {0};
    ck_assert_int_eq(status_restore(&fine), STATUS_OK);
}
END_TEST

START_TEST(test_exit_codes_and_names)
{
    const struct {
        enum status status;
        int code;
        const char *name;
    } rows[] = {
        {STATUS_OK, 0, "ok"},
        {STATUS_USAGE, 2, "usage"},
        {STATUS_INVALID, 1, "invalid"},
        {STATUS_NOT_FOUND, 1, "not found"},
        {STATUS_IO, 1, "io"},
        {STATUS_NO_MEMORY, 1, "no memory"},
        {STATUS_LIMIT, 1, "limit"},
        {STATUS_UNSUPPORTED, 1, "unsupported"},
        {STATUS_DEVICE, 3, "device"},
        {STATUS_DIVERGED, 4, "diverged"},
        {STATUS_MISMATCH, 5, "mismatch"},
        {STATUS_INTERRUPTED, 130, "interrupted"},
        {STATUS_INTERNAL, 1, "internal"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_int_eq(status_exit_code(rows[i].status), rows[i].code);
        ck_assert_str_eq(status_name(rows[i].status), rows[i].name);
    }
    ck_assert_str_eq(status_name((enum status)99), "unknown");
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_message_and_trace,
        test_new_failure_replaces_the_old_one,
        test_prefix,
        test_long_messages_are_cut_with_dots,
        test_a_full_trace_keeps_the_innermost_lines,
        test_threads_have_messages_of_their_own,
        test_exit_codes_and_names,
    };
    return check_run("status", tests, sizeof tests / sizeof tests[0], 0);
}
