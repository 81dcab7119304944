#include "base/status.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TRACE_BYTES 4096

static _Thread_local char thread_message[STATUS_MESSAGE_BYTES];
static _Thread_local char thread_trace[TRACE_BYTES];

/* Formats into `out` of `bytes` bytes; what does not fit is cut and ends in "...". */
PRINTF_LIKE(3, 0)
static void format_cut(char *out, size_t bytes, const char *format, va_list arguments)
{
    const int length = vsnprintf(out, bytes, format, arguments);
    if (length < 0) {
        snprintf(out, bytes, "(the message could not be formatted)");
    } else if ((size_t)length >= bytes) {
        memcpy(out + bytes - 4, "...", 4);
    }
}

const char *status_name(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return "ok";
    case STATUS_USAGE:
        return "usage";
    case STATUS_INVALID:
        return "invalid";
    case STATUS_NOT_FOUND:
        return "not found";
    case STATUS_IO:
        return "io";
    case STATUS_NO_MEMORY:
        return "no memory";
    case STATUS_LIMIT:
        return "limit";
    case STATUS_UNSUPPORTED:
        return "unsupported";
    case STATUS_DEVICE:
        return "device";
    case STATUS_DIVERGED:
        return "diverged";
    case STATUS_MISMATCH:
        return "mismatch";
    case STATUS_INTERRUPTED:
        return "interrupted";
    case STATUS_INTERNAL:
        return "internal";
    }
    return "unknown";
}

int status_exit_code(enum status status)
{
    switch (status) {
    case STATUS_OK:
        return 0;
    case STATUS_USAGE:
        return 2;
    case STATUS_DEVICE:
        return 3;
    case STATUS_DIVERGED:
        return 4;
    case STATUS_MISMATCH:
        return 5;
    case STATUS_INTERRUPTED:
        return 130;
    case STATUS_INVALID:
    case STATUS_NOT_FOUND:
    case STATUS_IO:
    case STATUS_NO_MEMORY:
    case STATUS_LIMIT:
    case STATUS_UNSUPPORTED:
    case STATUS_INTERNAL:
        break;
    }
    return 1;
}

enum status status_record(enum status status, const char *file, int line, const char *format, ...)
{
    assert(status != STATUS_OK);
    /* The arguments may point into the present message, so the new one is built beside it. */
    char message[STATUS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_cut(message, sizeof message, format, arguments);
    va_end(arguments);
    memcpy(thread_message, message, sizeof message);
    thread_trace[0] = '\0';
    status_trace(file, line, status_name(status));
    return status;
}

void status_trace(const char *file, int line, const char *expression)
{
    const size_t used = strlen(thread_trace);
    const int length =
        snprintf(thread_trace + used, TRACE_BYTES - used, "%s:%d %s\n", file, line, expression);
    if (length < 0 || (size_t)length >= TRACE_BYTES - used) {
        thread_trace[used] = '\0'; /* a full trace keeps its innermost lines whole */
    }
}

void status_prefix(const char *format, ...)
{
    char context[STATUS_MESSAGE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    format_cut(context, sizeof context, format, arguments);
    va_end(arguments);

    char joined[2 * STATUS_MESSAGE_BYTES + 2];
    snprintf(joined, sizeof joined, "%s: %s", context, thread_message);
    const size_t length = strlen(joined);
    if (length < STATUS_MESSAGE_BYTES) {
        memcpy(thread_message, joined, length + 1);
    } else {
        memcpy(thread_message, joined, STATUS_MESSAGE_BYTES - 4);
        memcpy(thread_message + STATUS_MESSAGE_BYTES - 4, "...", 4);
    }
}

const char *status_message(void)
{
    return thread_message;
}

const char *status_trace_text(void)
{
    return thread_trace;
}

void status_clear(void)
{
    thread_message[0] = '\0';
    thread_trace[0] = '\0';
}

void status_save(struct status_report *report, enum status status)
{
    report->status = status;
    memcpy(report->message, thread_message, sizeof report->message);
}

enum status status_restore(const struct status_report *report)
{
    memcpy(thread_message, report->message, sizeof thread_message);
    thread_message[sizeof thread_message - 1] = '\0';
    thread_trace[0] = '\0';
    return report->status;
}
