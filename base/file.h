/* Whole files and paths. Messages name the path and the system's reason. Thread-safe. */
#ifndef PINLINE_BASE_FILE_H
#define PINLINE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/*
 * Reads a regular file whole into *data (malloc; the caller frees; one zero byte follows the last).
 * A file over `max_bytes` is STATUS_LIMIT before anything is allocated; a folder, FIFO or device is
 * STATUS_INVALID; absent is STATUS_NOT_FOUND; other failures STATUS_IO, STATUS_NO_MEMORY.
 */
enum status file_read(const char *path, size_t max_bytes, void **data, size_t *bytes) MUST_USE;

/*
 * A file written aside and put in place in one step: `path`.partial is created, written, synced,
 * and renamed over `path` by commit (whose folder is synced too). Until then the old file stays.
 * abort removes what was written; it accepts a file that was never opened (all zero).
 * What is there already must be a regular file: a device or a pipe is refused by open.
 * Statuses: STATUS_IO with the reason ("No space left on device" and the like), STATUS_NOT_FOUND
 * for a missing folder, STATUS_NO_MEMORY.
 */
struct file_writer {
    FILE *stream; /* write here with stdio; errors are found at commit */
    char *path;
    char *partial_path;
};
enum status file_writer_open(struct file_writer *writer, const char *path) MUST_USE;
enum status file_writer_commit(struct file_writer *writer) MUST_USE;
void file_writer_abort(struct file_writer *writer);

/* "folder/name" in malloc'ed memory that the caller frees; NULL when memory is exhausted. */
char *file_join(const char *folder, const char *name);

/* What follows the last slash of a path: a part of `path` itself. */
const char *file_name(const char *path);

/* The folder that a path lies in ("." where it has no slash), in malloc'ed memory that the caller
 * frees; NULL when memory is exhausted. */
char *file_folder(const char *path);

/* Makes a folder and its parents; an existing one is fine. STATUS_IO, STATUS_NO_MEMORY. */
enum status file_make_folder(const char *path) MUST_USE;

bool file_exists(const char *path);
bool file_is_folder(const char *path);

/* Whether `path` is the folder itself or would lie below it, links and ".." resolved. What `path` ends
 * with need not be there yet. False where there is no such folder, or a path cannot be resolved. */
bool file_is_within(const char *path, const char *folder);

/* Writes `text` to `out` (at most `bytes`, zero-terminated) with control characters, quotes and
 * backslashes as \n, \", \xNN, so that a name with a newline stays one line. Returns out. */
char *file_quote(const char *text, char *out, size_t bytes);

#endif
