/* What reaches standard error, in a pipe and on a terminal. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

static int read_end = -1;

/* Standard error goes into a pipe from here on. */
static void use_pipe(void)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    close(ends[1]);
    read_end = ends[0];
}

/* Standard error is a terminal of `columns` columns from here on; false where the system has no
 * pseudo-terminals (a root folder without /dev/pts). */
static bool use_terminal(unsigned short columns)
{
    read_end = posix_openpt(O_RDWR | O_NOCTTY);
    if (read_end < 0) {
        return false;
    }
    ck_assert_int_eq(grantpt(read_end), 0);
    ck_assert_int_eq(unlockpt(read_end), 0);
    const int terminal = open(ptsname(read_end), O_RDWR | O_NOCTTY);
    ck_assert_int_ge(terminal, 0);
    struct termios settings;
    ck_assert_int_eq(tcgetattr(terminal, &settings), 0);
    cfmakeraw(&settings); /* no translation of newlines */
    ck_assert_int_eq(tcsetattr(terminal, TCSANOW, &settings), 0);
    const struct winsize size = {.ws_row = 24, .ws_col = columns};
    ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &size), 0);
    ck_assert_int_eq(dup2(terminal, STDERR_FILENO), STDERR_FILENO);
    close(terminal);
    return true;
}

/* What was written since the last call. */
static const char *written(void)
{
    static char text[65536];
    size_t used = 0;
    /* A terminal hands its bytes on a little later, so the end is 50 ms without one. */
    ck_assert_int_eq(fcntl(read_end, F_SETFL, O_NONBLOCK), 0);
    for (int idle = 0; idle < 5;) {
        const ssize_t got = read(read_end, text + used, sizeof text - 1 - used);
        if (got > 0) {
            used += (size_t)got;
            idle = 0;
        } else {
            usleep(10000);
            idle++;
        }
    }
    text[used] = '\0';
    return text;
}

static void say_everything(void)
{
    log_verbose("verbose %d", 1);
    log_info("info %d", 2);
    log_warn("warn %d", 3);
    log_error("error %d", 4);
}

START_TEST(test_levels)
{
    use_pipe();
    ck_assert_int_eq(log_get_level(), LOG_NORMAL);
    say_everything();
    ck_assert_str_eq(written(), "info 2\nwarning: warn 3\nerror: error 4\n");
    log_set_level(LOG_QUIET);
    say_everything();
    ck_assert_str_eq(written(), "warning: warn 3\nerror: error 4\n");
    log_set_level(LOG_VERBOSE);
    say_everything();
    ck_assert_str_eq(written(), "verbose 1\ninfo 2\nwarning: warn 3\nerror: error 4\n");
}
END_TEST

START_TEST(test_no_progress_in_a_pipe)
{
    use_pipe();
    ck_assert(!log_is_terminal());
    log_progress("epoch 1");
    log_info("line");
    log_progress(NULL);
    ck_assert_str_eq(written(), "line\n");
}
END_TEST

START_TEST(test_progress_on_a_terminal)
{
    if (!use_terminal(80)) {
        SKIP_TEST("no pseudo-terminal here");
    }
    ck_assert(log_is_terminal());
    log_progress("epoch 1");
    ck_assert_str_eq(written(), "\r\033[Kepoch 1");
    log_info("line");
    ck_assert_str_eq(written(), "\r\033[Kline\nepoch 1");
    log_progress("epoch 2");
    ck_assert_str_eq(written(), "\r\033[Kepoch 2");
    log_progress(NULL);
    ck_assert_str_eq(written(), "\r\033[K");
    log_info("line");
    ck_assert_str_eq(written(), "line\n");
    log_set_level(LOG_QUIET);
    log_progress("epoch 3");
    ck_assert_str_eq(written(), "");
}
END_TEST

START_TEST(test_progress_never_wraps)
{
    if (!use_terminal(10)) {
        SKIP_TEST("no pseudo-terminal here");
    }
    /* Nine columns are used; a character of two bytes is one column and is never split. */
    log_progress("12345678\xC3\xA4"
                 "abc");
    ck_assert_str_eq(written(), "\r\033[K12345678\xC3\xA4");
}
END_TEST

START_TEST(test_a_long_line_is_cut)
{
    use_pipe();
    char *text = malloc(20001);
    ck_assert_ptr_nonnull(text);
    memset(text, 'x', 20000);
    text[20000] = '\0';
    log_info("%s", text);
    free(text);
    const char *line = written();
    const size_t length = strlen(line);
    ck_assert_uint_gt(length, 1000);
    ck_assert_uint_lt(length, 20000);
    ck_assert_str_eq(line + length - 5, "x...\n");
}
END_TEST

static void *write_lines(void *argument)
{
    for (int i = 0; i < 50; i++) {
        log_info("%s", (const char *)argument);
    }
    return NULL;
}

START_TEST(test_lines_of_threads_do_not_mix)
{
    use_pipe();
    char texts[4][101];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        memset(texts[i], 'a' + i, 100);
        texts[i][100] = '\0';
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_lines, texts[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    }
    const char *text = written();
    ck_assert_uint_eq(strlen(text), 4 * 50 * 101);
    for (int line = 0; line < 200; line++) {
        const char *begin = text + line * 101;
        ck_assert_uint_eq(strspn(begin, (const char[]){begin[0], '\0'}), 100);
        ck_assert_int_eq(begin[100], '\n');
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_levels,
        test_no_progress_in_a_pipe,
        test_progress_on_a_terminal,
        test_progress_never_wraps,
        test_a_long_line_is_cut,
        test_lines_of_threads_do_not_mix,
    };
    return check_run("log", tests, sizeof tests / sizeof tests[0], 0);
}
