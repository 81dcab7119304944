/* Signals: the first asks, the second ends. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/stop.h"
#include "tests/support/check_run.h"

START_TEST(test_first_signal_asks)
{
    stop_install();
    ck_assert(!stop_requested());
    ck_assert_int_eq(stop_check(), STATUS_OK);
    ck_assert_int_eq(stop_signal(), 0);
    raise(SIGTERM);
    ck_assert(stop_requested());
    ck_assert_int_eq(stop_signal(), SIGTERM);
    ck_assert_int_eq(stop_check(), STATUS_INTERRUPTED);
    ck_assert_ptr_nonnull(strstr(status_message(), "SIGTERM"));
}
END_TEST

/* Sends `first` and `second` to a process that would otherwise end by itself with 0. */
static int end_of_process(int first, int second)
{
    const pid_t child = fork();
    if (child == 0) {
        stop_install();
        raise(first);
        if (stop_signal() == first) {
            raise(second);
        }
        _exit(0);
    }
    ck_assert_int_gt(child, 0);
    int state = 0;
    ck_assert_int_eq(waitpid(child, &state, 0), child);
    return WIFSIGNALED(state) ? WTERMSIG(state) : 0;
}

START_TEST(test_second_signal_ends)
{
    ck_assert_int_eq(end_of_process(SIGINT, SIGINT), SIGINT);
    ck_assert_int_eq(end_of_process(SIGTERM, SIGTERM), SIGTERM);
    ck_assert_int_eq(end_of_process(SIGINT, SIGTERM), SIGTERM);
    ck_assert_int_eq(end_of_process(SIGTERM, SIGINT), SIGINT);
}
END_TEST

START_TEST(test_set_and_take_back)
{
    stop_set(SIGINT);
    ck_assert(stop_requested());
    ck_assert_int_eq(stop_signal(), SIGINT);
    stop_set(0);
    ck_assert(!stop_requested());
    ck_assert_int_eq(stop_check(), STATUS_OK);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_first_signal_asks, test_second_signal_ends,
                                  test_set_and_take_back};
    return check_run("stop", tests, sizeof tests / sizeof tests[0], 0);
}
