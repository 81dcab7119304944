/*
 * A loader that fills a slot again before its copy has ended must be found out.
 * The staging is compiled here with the planted fault, in place of the one in the archive: the same
 * reading that passes for the right build must see wrong bytes.
 */
#define PINLINE_FAULT_REUSE
#include "loader/loader_staging.c" /* NOLINT(bugprone-suspicious-include) */

#include "tests/support/check_run.h"
#include "tests/support/loader_set.h"

START_TEST(test_fault_is_found)
{
    ck_assert_uint_gt(loader_set_wrong_bytes(COPY_STREAM_COMPUTE, STAGING_SLOT, 0), 0);
#if !defined(__SANITIZE_THREAD__) /* which rightly calls the fault itself a data race */
    ck_assert_uint_gt(loader_set_wrong_bytes(COPY_STREAM_COMPUTE, STAGING_SLOT, 2), 0);
    ck_assert_uint_gt(loader_set_wrong_bytes(COPY_STREAM_COMPUTE, STAGING_THREAD, 2), 0);
#endif
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_fault_is_found};
    return check_run("loader_fault_reuse", tests, sizeof tests / sizeof tests[0], 0);
}
