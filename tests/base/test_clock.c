/* Clocks: which time passes when. */
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/support/check_run.h"

START_TEST(test_sleep_takes_wall_time_but_no_cpu_time)
{
    const uint64_t length = 50000000;
    const uint64_t cpu = clock_thread_cpu_ns();
    const uint64_t begin = clock_now_ns();
    clock_sleep_ns(length);
    const uint64_t end = clock_now_ns();
    ck_assert_uint_ge(end - begin, length);
    ck_assert_uint_lt(clock_thread_cpu_ns() - cpu, length / 2);
}
END_TEST

START_TEST(test_work_takes_cpu_time)
{
    const uint64_t process = clock_process_cpu_ns();
    const uint64_t thread = clock_thread_cpu_ns();
    volatile unsigned sum = 0;
    while (clock_thread_cpu_ns() - thread < 20000000) {
        for (unsigned i = 0; i < 1000; i++) {
            sum += i;
        }
    }
    (void)sum;
    ck_assert_uint_ge(clock_process_cpu_ns() - process, 20000000);
}
END_TEST

START_TEST(test_seconds)
{
    ck_assert_double_eq_tol(clock_seconds(5000000000, 7500000000), 2.5, 1e-15);
    ck_assert_double_eq_tol(clock_seconds(7500000000, 5000000000), -2.5, 1e-15);
    /* A nanosecond is still seen after years of uptime. */
    const uint64_t years = UINT64_C(300000000000000000);
    ck_assert_double_eq_tol(clock_seconds(years, years + 1), 1e-9, 1e-24);
}
END_TEST

START_TEST(test_wall_text)
{
    const time_t before = time(NULL);
    char text[32];
    clock_wall_text(text, sizeof text);
    struct tm parts;
    memset(&parts, 0, sizeof parts);
    const char *end = strptime(text, "%Y-%m-%dT%H:%M:%SZ", &parts);
    ck_assert_ptr_nonnull(end);
    ck_assert_str_eq(end, "");
    const time_t told = timegm(&parts);
    ck_assert(told >= before && told <= time(NULL));

    char cut[5];
    clock_wall_text(cut, sizeof cut);
    ck_assert_uint_eq(strlen(cut), 4);
    ck_assert(strncmp(cut, text, 4) == 0);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_sleep_takes_wall_time_but_no_cpu_time,
                                  test_work_takes_cpu_time, test_seconds, test_wall_text};
    return check_run("clock", tests, sizeof tests / sizeof tests[0], 0);
}
