/*
 * Outcomes of calls, and the message that goes with a failure.
 *
 * Every function that can fail returns an `enum status` and is marked MUST_USE. The function that
 * meets the failure calls FAIL once, with a message for the user; callers forward with TRY, which
 * adds the place to a trace. Only main prints and chooses the exit code.
 *
 * Message and trace belong to the calling thread. A worker that must hand its failure to another
 * thread saves it in a struct status_report and the other thread restores it.
 */
#ifndef PINLINE_BASE_STATUS_H
#define PINLINE_BASE_STATUS_H

#include <stddef.h>

#if defined(__GNUC__)
#define MUST_USE __attribute__((warn_unused_result))
#define PRINTF_LIKE(format_index, first_argument)                                                  \
    __attribute__((format(printf, format_index, first_argument)))
#else
#define MUST_USE
#define PRINTF_LIKE(format_index, first_argument)
#endif

enum status {
    STATUS_OK = 0,
    STATUS_USAGE,       /* a flag, a value or a combination of flags is wrong; exit code 2 */
    STATUS_INVALID,     /* input (file, folder, checkpoint) is broken or not what it must be */
    STATUS_NOT_FOUND,   /* a file, folder, device or library does not exist */
    STATUS_IO,          /* the operating system refused to read or write */
    STATUS_NO_MEMORY,   /* host or device memory is exhausted */
    STATUS_LIMIT,       /* refused beforehand because of a configured limit */
    STATUS_UNSUPPORTED, /* well-formed, but not something that this build or device can do */
    STATUS_DEVICE,      /* the GPU, its driver or one of its libraries failed; exit code 3 */
    STATUS_DIVERGED,    /* a loss is not finite; exit code 4 */
    STATUS_MISMATCH, /* two things that must be equal are not (cells, checkpoints); exit code 5 */
    STATUS_INTERRUPTED, /* SIGINT (exit code 130) or SIGTERM (143) asked for the end */
    STATUS_INTERNAL     /* a bug in this program */
};

/* Longest message kept, in bytes, the terminating zero included; longer ones are cut with "...". */
#define STATUS_MESSAGE_BYTES 2048

/* A failure on its way from one thread to another. Plain data; zero means STATUS_OK. */
struct status_report {
    enum status status;
    char message[STATUS_MESSAGE_BYTES];
};

/* "ok", "usage", "invalid", ...: a short lower-case word, never NULL. */
const char *status_name(enum status status);

/* The process exit code that stands for `status`: 0 for OK, 2 usage, 3 device, 4 diverged,
 * 5 mismatch, 130 interrupted, otherwise 1. */
int status_exit_code(enum status status);

/* Records a failure and returns `status`. The message names the thing, what is wrong with it, and
 * what to do, without a final newline. Replaces the thread's earlier message and empties its trace.
 * Use it through FAIL. `status` must not be STATUS_OK. */
enum status status_record(enum status status, const char *file, int line, const char *format, ...)
    PRINTF_LIKE(4, 5) MUST_USE;

/* Appends one place to the thread's trace. Use it through TRY. */
void status_trace(const char *file, int line, const char *expression);

/* Puts "context: " in front of the thread's message, for callers that know more than the function
 * that failed (which sample, which flag). Returns nothing; the status in hand stays the same. */
void status_prefix(const char *format, ...) PRINTF_LIKE(1, 2);

/* The message of the thread's last failure, "" when there was none. Valid until the thread's next
 * FAIL, status_prefix, status_restore or status_clear. */
const char *status_message(void);

/* The trace, one "file:line expression" a line, innermost first; "" when empty. */
const char *status_trace_text(void);

/* Forgets message and trace of the calling thread. For failures that are handled. */
void status_clear(void);

/* Copies the calling thread's message, with `status`, into *report. */
void status_save(struct status_report *report, enum status status);

/* Makes *report the calling thread's failure and returns its status (which may be STATUS_OK). */
enum status status_restore(const struct status_report *report) MUST_USE;

#if defined(__clang_analyzer__)
/* The analyzer does not see into status_record; so it learns that FAIL never yields STATUS_OK. */
#define FAIL(status, ...) ((void)status_record((status), __FILE__, __LINE__, __VA_ARGS__), (status))
#else
#define FAIL(status, ...) status_record((status), __FILE__, __LINE__, __VA_ARGS__)
#endif

#define TRY(expression)                                                                            \
    do {                                                                                           \
        enum status try_status_ = (expression);                                                    \
        if (try_status_ != STATUS_OK) {                                                            \
            status_trace(__FILE__, __LINE__, #expression);                                         \
            return try_status_;                                                                    \
        }                                                                                          \
    } while (0)

#endif
