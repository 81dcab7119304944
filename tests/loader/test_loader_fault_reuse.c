/*
 * A loader that fills a slot again before its copy has ended must be found out.
 * The staging is compiled here with the planted fault, in place of the one in the archive: the same
 * reading that passes for the right build must see wrong bytes.
 */
#define PINLINE_FAULT_REUSE
#include "loader/loader_staging.c" /* NOLINT(bugprone-suspicious-include) */

#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

static size_t wrong_bytes(int workers, enum staging staging)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, 64, 8, HOST_DEFERRED);
    loader_set_settings(&set, &settings);
    settings.pin_memory = PIN_ON;
    settings.non_blocking = true;
    settings.copy_stream = COPY_STREAM_COMPUTE;
    settings.staging = staging;
    settings.num_workers = workers;
    settings.shuffle = true;
    ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), STATUS_OK);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_int_eq(seen_read(&seen, &set, l, epoch, 0, SIZE_MAX), STATUS_OK);
    }
    size_t wrong = seen_wrong_bytes(&seen);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
    return wrong;
}

START_TEST(test_fault_is_found)
{
    ck_assert_uint_gt(wrong_bytes(0, STAGING_SLOT), 0);
#if !defined(__SANITIZE_THREAD__) /* which rightly calls the fault itself a data race */
    ck_assert_uint_gt(wrong_bytes(2, STAGING_SLOT), 0);
    ck_assert_uint_gt(wrong_bytes(2, STAGING_THREAD), 0);
#endif
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_fault_is_found};
    return check_run("loader_fault_reuse", tests, sizeof tests / sizeof tests[0], 0);
}
