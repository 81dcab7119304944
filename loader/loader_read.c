/* Files, one at a time, each by the worker that decodes it. */
#include "loader/loader_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stop.h"

/* Where the size of what is read is not known beforehand: a pipe. */
#define READ_STEP ((size_t)65536)

enum status loader__grow(unsigned char **memory, size_t *capacity, size_t bytes)
{
    if (bytes <= *capacity) {
        return STATUS_OK;
    }
    size_t wanted = *capacity == 0 ? READ_STEP : *capacity;
    while (wanted < bytes) {
        wanted = wanted > SIZE_MAX / 2 ? bytes : wanted * 2;
    }
    free(*memory);
    *memory = malloc(wanted);
    *capacity = *memory == NULL ? 0 : wanted;
    if (*memory == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu bytes of an image; use fewer workers",
                    wanted);
    }
    return STATUS_OK;
}

/* The process, not this file, is at fault: the next file would fare no better. */
static bool is_process_fault(int error)
{
    return error == EMFILE || error == ENFILE || error == ENOMEM;
}

static enum status fail_system(const char *what, int error, bool *bad)
{
    *bad = !is_process_fault(error);
    if (error == EMFILE) {
        return FAIL(STATUS_IO, "%s: too many open files; raise the limit (ulimit -n)", what);
    }
    return FAIL(error == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s: %s", what, strerror(error));
}

static enum status fail_size(uint64_t bytes, uint64_t limit)
{
    return FAIL(STATUS_LIMIT, "the file has %llu bytes, over the limit of %llu (--max-file-bytes)",
                (unsigned long long)bytes, (unsigned long long)limit);
}

/* A signal ends a system call only in the main thread, for inline decoding. */
static enum status check_interrupted(bool *bad)
{
    *bad = false;
    return stop_check();
}

/* Reads until the end, or until *bytes are there when the size is known. */
static enum status read_all(struct worker *worker, int file, uint64_t limit, bool size_known,
                            size_t *bytes, bool *bad)
{
    size_t wanted = *bytes;
    size_t have = 0;
    for (;;) {
        if (size_known && have == wanted) {
            break;
        }
        if (!size_known && have == worker->file_capacity) {
            /* Growing loses the contents, so the doubling is done here. */
            size_t capacity = have == 0 ? READ_STEP : have * 2;
            unsigned char *larger = realloc(worker->file, capacity);
            if (larger == NULL) {
                *bad = false;
                return FAIL(STATUS_NO_MEMORY, "no memory for %zu bytes of an image", capacity);
            }
            worker->file = larger;
            worker->file_capacity = capacity;
        }
        size_t room = (size_known ? wanted : worker->file_capacity) - have;
        ssize_t got = read(file, worker->file + have, room);
        if (got < 0) {
            if (errno != EINTR) {
                return fail_system("cannot be read", errno, bad);
            }
            TRY(check_interrupted(bad));
            continue;
        }
        if (got == 0) {
            break;
        }
        have += (size_t)got;
        if (have > limit) {
            return fail_size(have, limit);
        }
    }
    *bytes = have;
    return STATUS_OK;
}

static enum status map_file(struct worker *worker, int file, size_t bytes, bool *bad)
{
    worker->mapping_bytes = 0;
    worker->mapping = NULL;
    if (bytes == 0) {
        return STATUS_OK;
    }
    /* All pages now: a fault later would block a worker that cannot be left behind then. */
    void *mapping = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_POPULATE, file, 0);
    if (mapping == MAP_FAILED) {
        return fail_system("cannot be mapped", errno, bad);
    }
    worker->mapping = mapping;
    worker->mapping_bytes = bytes;
    return STATUS_OK;
}

static enum status read_opened(struct worker *worker, int file, const void **data, size_t *bytes,
                               bool *bad)
{
    struct stat facts;
    uint64_t limit = worker->file_limit;
    if (fstat(file, &facts) != 0) {
        return fail_system("cannot be examined", errno, bad);
    }
    /* A pipe delivers an image as well as a file does; its size is known at its end. */
    bool size_known = S_ISREG(facts.st_mode);
    if (!size_known && !S_ISFIFO(facts.st_mode)) {
        return FAIL(STATUS_INVALID, "is not a regular file");
    }
    *bytes = 0;
    if (size_known) {
        if ((uint64_t)facts.st_size > limit) {
            return fail_size((uint64_t)facts.st_size, limit);
        }
        *bytes = (size_t)facts.st_size;
    }
    if (size_known && worker->map_files) {
        TRY(map_file(worker, file, *bytes, bad));
        *data = worker->mapping;
        return STATUS_OK;
    }
    if (size_known) {
        enum status status = loader__grow(&worker->file, &worker->file_capacity, *bytes);
        if (status != STATUS_OK) {
            *bad = false;
            return status;
        }
    }
    TRY(read_all(worker, file, limit, size_known, bytes, bad));
    *data = worker->file;
    return STATUS_OK;
}

enum status loader__read_begin(struct worker *worker, const void **data, size_t *bytes, bool *bad)
{
    int file = open(worker->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    while (file < 0) {
        if (errno != EINTR) {
            return fail_system("cannot be opened", errno, bad);
        }
        TRY(check_interrupted(bad));
        file = open(worker->path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    }
    *bad = true;
    enum status status = read_opened(worker, file, data, bytes, bad);
    (void)close(file);
    return status;
}

void loader__read_end(struct worker *worker)
{
    if (worker->mapping != NULL) {
        (void)munmap(worker->mapping, worker->mapping_bytes);
        worker->mapping = NULL;
        worker->mapping_bytes = 0;
    }
}

void loader__read_ahead(struct worker *worker)
{
    /* Without waiting: opening a pipe for reading would. */
    int file = open(worker->ahead_path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (file >= 0) {
        (void)posix_fadvise(file, 0, 0, POSIX_FADV_WILLNEED);
        (void)close(file);
    }
}
