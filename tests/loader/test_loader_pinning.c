/*
 * Page-locking that is refused, falls back, or is not what was asked. The staging is compiled here
 * with a machine of little memory and a runtime that answers as the test wants.
 */
#include <stdint.h>

#include "base/system.h"
#include "device/device.h"

static void small_machine(struct system_facts *facts);
static enum status host_buffer_as_told(device *dev, size_t bytes, enum host_memory kind,
                                       struct host_buffer *out);
#define system_read_facts small_machine
#define device_host_buffer_create host_buffer_as_told
#include "loader/loader_staging.c" /* NOLINT(bugprone-suspicious-include) */
#undef system_read_facts
#undef device_host_buffer_create

#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

static uint64_t machine_bytes;
static bool runtime_lies;
static enum status runtime_refuses;
static int asked_for_locked;

static void small_machine(struct system_facts *facts)
{
    system_read_facts(facts);
    facts->memory_total = machine_bytes;
}

static enum status host_buffer_as_told(device *dev, size_t bytes, enum host_memory kind,
                                       struct host_buffer *out)
{
    if (kind != HOST_MEMORY_PAGEABLE) {
        asked_for_locked++;
        if (runtime_refuses != STATUS_OK) {
            return FAIL(runtime_refuses, "the runtime will not lock %zu bytes", bytes);
        }
    }
    TRY(device_host_buffer_create(dev, bytes, kind, out));
    if (runtime_lies) {
        out->page_locked = !out->page_locked;
    }
    return STATUS_OK;
}

static struct loader_set set;
static struct loader_settings settings;

static void begin(void)
{
    loader_set_open(&set, 20, 8, HOST_IMMEDIATE);
    loader_set_settings(&set, &settings);
    settings.pin_memory = PIN_ON;
    machine_bytes = (uint64_t)1 << 40;
    runtime_lies = false;
    runtime_refuses = STATUS_OK;
    asked_for_locked = 0;
}

static void expect_failure(enum status status, const char *words)
{
    loader *l = NULL;
    ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), status);
    ck_assert_ptr_null(l);
    ck_assert_msg(strstr(status_message(), words) != NULL, "%s", status_message());
}

/* Opens, reads an epoch, and tells what the staging turned out to be. */
static void expect_success(struct loader_staging *staging)
{
    struct seen seen = {.count = 0};
    loader *l = NULL;
    ck_assert_msg(loader_open(&settings, set.set, set.dev, set.stream, &l) == STATUS_OK, "%s",
                  status_message());
    loader_read_staging(l, staging);
    ck_assert_int_eq(seen_read(&seen, &set, l, 0, 0, SIZE_MAX), STATUS_OK);
    ck_assert_uint_eq(seen.count, 5);
    ck_assert_uint_eq(seen_wrong_bytes(&seen), 0);
    loader_close(&l);
    seen_free(&seen);
}

START_TEST(test_more_than_a_tenth_needs_a_word)
{
    struct loader_staging staging;
    begin();
    expect_success(&staging);
    ck_assert_int_eq(asked_for_locked, 1);
    ck_assert(staging.page_locked && !staging.fell_back);
    machine_bytes = 10 * staging.host_bytes;
    expect_success(&staging);
    ck_assert_int_eq(asked_for_locked, 2);
    machine_bytes = 10 * staging.host_bytes - 10;
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%zu bytes", staging.host_bytes);
    expect_failure(STATUS_LIMIT, numbers);
    snprintf(numbers, sizeof numbers, "%llu bytes", (unsigned long long)machine_bytes);
    expect_failure(STATUS_LIMIT, numbers);
    expect_failure(STATUS_LIMIT, "--allow-large-pinned");
    /* Refused before anything was taken. */
    ck_assert_int_eq(asked_for_locked, 2);
    settings.allow_large_pinned = true;
    expect_success(&staging);
    ck_assert(staging.page_locked);
    settings.allow_large_pinned = false;
    settings.pin_memory = PIN_OFF;
    expect_success(&staging);
    ck_assert(!staging.page_locked && !staging.fell_back);
    loader_set_close(&set);
}
END_TEST

START_TEST(test_auto_falls_back_and_says_so)
{
    static const enum status refusals[] = {STATUS_LIMIT, STATUS_NO_MEMORY, STATUS_MISMATCH};
    struct loader_staging staging;
    begin();
    settings.pin_memory = PIN_AUTO;
    expect_success(&staging);
    ck_assert(staging.page_locked && !staging.fell_back);
    ck_assert_str_eq(staging.note, "");
    for (size_t i = 0; i < 3; i++) {
        runtime_refuses = refusals[i];
        expect_success(&staging);
        ck_assert(!staging.page_locked && staging.fell_back);
        ck_assert_ptr_nonnull(strstr(staging.note, "will not lock"));
    }
    /* A device that has failed is no reason to go on. */
    runtime_refuses = STATUS_DEVICE;
    expect_failure(STATUS_DEVICE, "will not lock");
    runtime_refuses = STATUS_OK;
    machine_bytes = 100;
    expect_success(&staging);
    ck_assert(!staging.page_locked && staging.fell_back);
    ck_assert_ptr_nonnull(strstr(staging.note, "a tenth"));
    settings.pin_memory = PIN_ON;
    machine_bytes = (uint64_t)1 << 40;
    for (size_t i = 0; i < 3; i++) {
        runtime_refuses = refusals[i];
        expect_failure(refusals[i], "will not lock");
    }
    loader_set_close(&set);
}
END_TEST

START_TEST(test_memory_is_what_was_asked_for)
{
    begin();
    runtime_lies = true;
    expect_failure(STATUS_MISMATCH, "page-locked");
    settings.pin_how = PIN_ALLOC;
    expect_failure(STATUS_MISMATCH, "page-locked");
    settings.pin_memory = PIN_OFF;
    expect_failure(STATUS_MISMATCH, "pageable");
    loader_set_close(&set);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_more_than_a_tenth_needs_a_word,
                                  test_auto_falls_back_and_says_so,
                                  test_memory_is_what_was_asked_for};
    return check_run("loader_pinning", tests, sizeof tests / sizeof tests[0], 0);
}
