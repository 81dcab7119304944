/*
 * Lines for people, on standard error. Results go to standard output and never pass here. A
 * progress line, if one is on the terminal, is cleared before a log line and drawn again after it.
 * Thread-safe: a line is written whole.
 */
#ifndef PINLINE_BASE_LOG_H
#define PINLINE_BASE_LOG_H

#include <stdbool.h>

#include "base/status.h"

enum log_level {
    LOG_QUIET = 0, /* warnings and errors alone */
    LOG_NORMAL,    /* default: what a user wants to know */
    LOG_VERBOSE    /* decisions and places too */
};

/* Sets the level for the whole process; call before threads start. */
void log_set_level(enum log_level level);
enum log_level log_get_level(void);

void log_info(const char *format, ...) PRINTF_LIKE(1, 2);    /* NORMAL and above */
void log_verbose(const char *format, ...) PRINTF_LIKE(1, 2); /* VERBOSE */
void log_warn(const char *format, ...) PRINTF_LIKE(1, 2);    /* "warning: ", always */
void log_error(const char *format, ...) PRINTF_LIKE(1, 2);   /* "error: ", always */

/* Draws `text` as the progress line (replacing the last one) when standard error is a terminal and
 * the level is not QUIET; NULL removes it. No newline in `text`. */
void log_progress(const char *text);

/* Whether standard error is a terminal on which a progress line makes sense. */
bool log_is_terminal(void);

#endif
