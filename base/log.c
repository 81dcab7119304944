#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define LINE_BYTES 4096
#define PROGRESS_BYTES 512

static enum log_level current_level = LOG_NORMAL;

/* Guards `progress` and the order of what is written to standard error. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char progress[PROGRESS_BYTES];

static const char clear_line[] = "\r\033[K";

void log_set_level(enum log_level level)
{
    current_level = level;
}

enum log_level log_get_level(void)
{
    return current_level;
}

bool log_is_terminal(void)
{
    return isatty(STDERR_FILENO) == 1;
}

/* Writes all of `text`; a standard error that is closed or full is nobody's business here. */
static void write_whole(const char *text, size_t bytes)
{
    while (bytes > 0) {
        const ssize_t written = write(STDERR_FILENO, text, bytes);
        if (written <= 0) {
            return;
        }
        text += written;
        bytes -= (size_t)written;
    }
}

/* Columns of the terminal, so that a progress line never wraps (a wrapped one cannot be cleared). */
static size_t terminal_columns(void)
{
    struct winsize size;
    memset(&size, 0, sizeof size);
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1) {
        return size.ws_col;
    }
    return 80;
}

/* Bytes of `text` that fill at most `columns` columns, counting a UTF-8 sequence as one column. */
static size_t fitting_bytes(const char *text, size_t columns)
{
    size_t at = 0;
    for (size_t used = 0; text[at] != '\0'; used++) {
        if (used == columns) {
            return at;
        }
        at++;
        while (((unsigned char)text[at] & 0xC0) == 0x80) {
            at++;
        }
    }
    return at;
}

/* One line: prefix, message, newline, written in one call so that lines of threads and of other
 * processes do not mix. */
PRINTF_LIKE(2, 0)
static void write_line(const char *prefix, const char *format, va_list arguments)
{
    char line[LINE_BYTES];
    size_t used = (size_t)snprintf(line, sizeof line, "%s", prefix);
    const int length = vsnprintf(line + used, sizeof line - used, format, arguments);
    if (length < 0) {
        return;
    }
    used += (size_t)length;
    if (used > sizeof line - 2) {
        used = sizeof line - 2;
        memcpy(line + used - 3, "...", 3);
    }
    line[used++] = '\n';

    pthread_mutex_lock(&lock);
    if (progress[0] != '\0') {
        char whole[sizeof clear_line + LINE_BYTES + PROGRESS_BYTES];
        const size_t clear = sizeof clear_line - 1;
        const size_t drawn = fitting_bytes(progress, terminal_columns() - 1);
        memcpy(whole, clear_line, clear);
        memcpy(whole + clear, line, used);
        memcpy(whole + clear + used, progress, drawn);
        write_whole(whole, clear + used + drawn);
    } else {
        write_whole(line, used);
    }
    pthread_mutex_unlock(&lock);
}

void log_info(const char *format, ...)
{
    if (current_level < LOG_NORMAL) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    write_line("", format, arguments);
    va_end(arguments);
}

void log_verbose(const char *format, ...)
{
    if (current_level < LOG_VERBOSE) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    write_line("", format, arguments);
    va_end(arguments);
}

void log_warn(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line("warning: ", format, arguments);
    va_end(arguments);
}

void log_error(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    write_line("error: ", format, arguments);
    va_end(arguments);
}

void log_progress(const char *text)
{
    if (current_level == LOG_QUIET || !log_is_terminal()) {
        return;
    }
    pthread_mutex_lock(&lock);
    if (text == NULL) {
        if (progress[0] != '\0') {
            write_whole(clear_line, sizeof clear_line - 1);
        }
        progress[0] = '\0';
    } else {
        snprintf(progress, sizeof progress, "%s", text);
        char whole[sizeof clear_line + PROGRESS_BYTES];
        const size_t clear = sizeof clear_line - 1;
        const size_t drawn = fitting_bytes(progress, terminal_columns() - 1);
        memcpy(whole, clear_line, clear);
        memcpy(whole + clear, progress, drawn);
        write_whole(whole, clear + drawn);
    }
    pthread_mutex_unlock(&lock);
}
