/* Size arithmetic at its limits. */
#include <stdint.h>

#include "base/size.h"
#include "tests/support/check_run.h"

START_TEST(test_add_reports_overflow)
{
    size_t out = 7;
    ck_assert(size_add(SIZE_MAX - 1, 1, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    out = 7;
    ck_assert(!size_add(SIZE_MAX, 1, &out));
    ck_assert(!size_add(1, SIZE_MAX, &out));
    ck_assert_uint_eq(out, 7);
}
END_TEST

START_TEST(test_multiply_reports_overflow)
{
    const size_t half = (SIZE_MAX >> 1) + 1; /* 2^63: twice this is 2^64 */
    size_t out = 7;
    ck_assert(size_multiply(half - 1, 2, &out));
    ck_assert_uint_eq(out, SIZE_MAX - 1);
    ck_assert(size_multiply(0, SIZE_MAX, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(size_multiply(SIZE_MAX, 0, &out));
    ck_assert_uint_eq(out, 0);
    ck_assert(size_multiply(SIZE_MAX, 1, &out));
    ck_assert_uint_eq(out, SIZE_MAX);
    out = 7;
    ck_assert(!size_multiply(half, 2, &out));
    ck_assert(!size_multiply(2, half, &out));
    ck_assert_uint_eq(out, 7);
}
END_TEST

START_TEST(test_align_rounds_up)
{
    ck_assert_uint_eq(size_align(0, 64), 0);
    ck_assert_uint_eq(size_align(1, 64), 64);
    ck_assert_uint_eq(size_align(64, 64), 64);
    ck_assert_uint_eq(size_align(65, 64), 128);
    ck_assert_uint_eq(size_align(13, 1), 13);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_add_reports_overflow, test_multiply_reports_overflow,
                                  test_align_rounds_up};
    return check_run("size", tests, sizeof tests / sizeof tests[0], 0);
}
