#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define QUOTED_BYTES 1024

/* STATUS_NOT_FOUND, NO_MEMORY or IO, whichever errno value `error` means. */
static enum status status_of(int error)
{
    switch (error) {
    case ENOENT:
        return STATUS_NOT_FOUND;
    case ENOMEM:
        return STATUS_NO_MEMORY;
    default:
        return STATUS_IO;
    }
}

/* Fails with "cannot <verb> <path>: <reason>". */
MUST_USE static enum status fail_path(const char *verb, const char *path, int error)
{
    char quoted[QUOTED_BYTES];
    return FAIL(status_of(error), "cannot %s %s: %s", verb, file_quote(path, quoted, sizeof quoted),
                strerror(error));
}

MUST_USE static enum status read_descriptor(int descriptor, const char *path, size_t max_bytes,
                                            void **data, size_t *bytes)
{
    char quoted[QUOTED_BYTES];
    file_quote(path, quoted, sizeof quoted);
    struct stat facts;
    if (fstat(descriptor, &facts) != 0) {
        return fail_path("look at", path, errno);
    }
    if (!S_ISREG(facts.st_mode)) {
        return FAIL(STATUS_INVALID, "%s is %s, not a file; check the path", quoted,
                    S_ISDIR(facts.st_mode) ? "a folder" : "a device, socket or pipe");
    }
    if ((uintmax_t)facts.st_size > max_bytes) {
        return FAIL(STATUS_LIMIT, "%s has %jd bytes, more than the limit of %zu", quoted,
                    (intmax_t)facts.st_size, max_bytes);
    }
    /* Room for one byte more than the file should have tells its end from growth meanwhile (and
     * files of /proc say that they have none). It never exceeds the limit and one. */
    size_t room = (size_t)facts.st_size + 1;
    size_t used = 0;
    char *buffer = NULL;
    for (;;) {
        char *larger = realloc(buffer, room + 1);
        if (larger == NULL) {
            free(buffer);
            return FAIL(STATUS_NO_MEMORY, "no memory for the %zu bytes of %s", room, quoted);
        }
        buffer = larger;
        ssize_t got = 1;
        while (used < room && got > 0) {
            got = read(descriptor, buffer + used, room - used);
            if (got < 0 && errno == EINTR) {
                got = 1;
            } else if (got < 0) {
                const int error = errno;
                free(buffer);
                return fail_path("read", path, error);
            } else {
                used += (size_t)got;
            }
        }
        if (used > max_bytes) {
            free(buffer);
            return FAIL(STATUS_LIMIT, "%s has more than the limit of %zu bytes", quoted, max_bytes);
        }
        if (used < room) {
            break;
        }
        room = room <= max_bytes / 2 ? room * 2 : max_bytes + 1;
    }
    buffer[used] = '\0';
    *data = buffer;
    *bytes = used;
    return STATUS_OK;
}

enum status file_read(const char *path, size_t max_bytes, void **data, size_t *bytes)
{
    *data = NULL;
    *bytes = 0;
    if (max_bytes > SIZE_MAX / 4) {
        max_bytes = SIZE_MAX / 4; /* so that room for one more always fits */
    }
    /* Not blocking: opening a FIFO must not wait for somebody to write to it. */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return fail_path("open", path, errno);
    }
    const enum status status = read_descriptor(descriptor, path, max_bytes, data, bytes);
    close(descriptor);
    return status;
}

enum status file_writer_open(struct file_writer *writer, const char *path)
{
    *writer = (struct file_writer){0};
    const size_t length = strlen(path);
    struct stat there;
    /* The rename at the end would put a file in place of /dev/null or a pipe. */
    if (stat(path, &there) == 0 && !S_ISREG(there.st_mode)) {
        char quoted[QUOTED_BYTES];
        return FAIL(STATUS_IO, "%s is there and no regular file; give another name",
                    file_quote(path, quoted, sizeof quoted));
    }
    writer->path = strdup(path);
    writer->partial_path = malloc(length + sizeof ".partial");
    if (writer->path == NULL || writer->partial_path == NULL) {
        file_writer_abort(writer);
        return FAIL(STATUS_NO_MEMORY, "no memory for the name of a file");
    }
    memcpy(writer->partial_path, path, length);
    memcpy(writer->partial_path + length, ".partial", sizeof ".partial");
    writer->stream = fopen(writer->partial_path, "wbe");
    if (writer->stream == NULL) {
        const int error = errno;
        /* Nothing was created, so nothing may be removed. */
        free(writer->partial_path);
        writer->partial_path = NULL;
        file_writer_abort(writer);
        return fail_path("write", path, error);
    }
    return STATUS_OK;
}

/* Syncs the folder that holds `path`, so that the rename itself survives a power cut. */
static int sync_folder_of(const char *path)
{
    char *folder = file_folder(path);
    if (folder == NULL) {
        return ENOMEM;
    }
    int error = 0;
    const int descriptor = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
        error = errno;
    } else {
        /* Some file systems cannot sync a folder and say EINVAL; there is nothing to do then. */
        if (fsync(descriptor) != 0 && errno != EINVAL && errno != ENOSYS) {
            error = errno;
        }
        close(descriptor);
    }
    free(folder);
    return error;
}

enum status file_writer_commit(struct file_writer *writer)
{
    int error = 0;
    /* A failed write leaves only the stream's error flag, so errno is set anew by a last flush:
     * stdio keeps the unwritten bytes and fails again for the same reason. */
    errno = 0;
    if (fflush(writer->stream) != 0 || ferror(writer->stream)) {
        error = errno != 0 ? errno : EIO;
    }
    if (error == 0 && fsync(fileno(writer->stream)) != 0 && errno != EINVAL) {
        error = errno;
    }
    if (fclose(writer->stream) != 0 && error == 0) {
        error = errno;
    }
    writer->stream = NULL;
    if (error == 0 && rename(writer->partial_path, writer->path) != 0) {
        error = errno;
    }
    if (error == 0) {
        /* The partial name is gone: abort has nothing to remove. */
        free(writer->partial_path);
        writer->partial_path = NULL;
        error = sync_folder_of(writer->path);
    }
    enum status status = STATUS_OK;
    if (error != 0) {
        status = fail_path("write", writer->path, error);
    }
    file_writer_abort(writer);
    return status;
}

void file_writer_abort(struct file_writer *writer)
{
    if (writer->stream != NULL) {
        fclose(writer->stream);
    }
    if (writer->partial_path != NULL) {
        unlink(writer->partial_path);
    }
    free(writer->partial_path);
    free(writer->path);
    *writer = (struct file_writer){0};
}

char *file_join(const char *folder, const char *name)
{
    const size_t folder_length = strlen(folder);
    const size_t name_length = strlen(name);
    const bool slash = folder_length > 0 && folder[folder_length - 1] != '/';
    char *joined = malloc(folder_length + (slash ? 1 : 0) + name_length + 1);
    if (joined == NULL) {
        return NULL;
    }
    memcpy(joined, folder, folder_length);
    char *at = joined + folder_length;
    if (slash) {
        *at++ = '/';
    }
    memcpy(at, name, name_length + 1);
    return joined;
}

const char *file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

char *file_folder(const char *path)
{
    const size_t length = (size_t)(file_name(path) - path);
    if (length == 0) {
        return strdup(".");
    }
    return strndup(path, length > 1 ? length - 1 : 1);
}

enum status file_make_folder(const char *path)
{
    char *partial = strdup(path);
    if (partial == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the name of a folder");
    }
    enum status status = STATUS_OK;
    /* Each parent in turn, cut at its slash; the whole path last. */
    for (char *at = partial;; at++) {
        if ((*at == '/' && at > partial && at[-1] != '/') || *at == '\0') {
            const char kept = *at;
            *at = '\0';
            if (mkdir(partial, 0777) != 0) {
                const int error = errno;
                if (error != EEXIST || !file_is_folder(partial)) {
                    /* A missing parent cannot be: it was made just before. An empty path is one. */
                    char quoted[QUOTED_BYTES];
                    status = FAIL(STATUS_IO, "cannot make the folder %s: %s",
                                  file_quote(partial, quoted, sizeof quoted),
                                  error == EEXIST ? "a file of this name is in the way"
                                                  : strerror(error));
                    break;
                }
            }
            *at = kept;
            if (kept == '\0') {
                break;
            }
        }
    }
    free(partial);
    return status;
}

bool file_exists(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0;
}

bool file_is_folder(const char *path)
{
    struct stat facts;
    return stat(path, &facts) == 0 && S_ISDIR(facts.st_mode);
}

bool file_is_within(const char *path, const char *folder)
{
    struct stat wanted, facts;
    /* The nearest folder that is there; what is missing below it cannot be a link. */
    char *there = strdup(path);
    while (there != NULL && stat(there, &facts) != 0 && strcmp(there, ".") != 0 &&
           strcmp(there, "/") != 0) {
        size_t length = strlen(there);
        while (length > 1 && there[length - 1] == '/') {
            there[--length] = '\0';
        }
        char *above = file_folder(there);
        free(there);
        there = above;
    }
    char *at = there != NULL ? realpath(there, NULL) : NULL;
    free(there);
    bool within = false;
    const bool known = at != NULL && stat(folder, &wanted) == 0 && S_ISDIR(wanted.st_mode);
    while (known && !within) {
        within =
            stat(at, &facts) == 0 && facts.st_dev == wanted.st_dev && facts.st_ino == wanted.st_ino;
        char *slash = strrchr(at, '/');
        if (slash == NULL || at[1] == '\0') {
            break;
        }
        /* "/" stays of "/name". */
        slash[slash == at ? 1 : 0] = '\0';
    }
    free(at);
    return within;
}

char *file_quote(const char *text, char *out, size_t bytes)
{
    size_t used = 0;
    for (const char *at = text; *at != '\0' && bytes > 0; at++) {
        const unsigned char byte = (unsigned char)*at;
        char piece[8];
        if (byte == '\n') {
            snprintf(piece, sizeof piece, "\\n");
        } else if (byte == '"' || byte == '\\') {
            snprintf(piece, sizeof piece, "\\%c", byte);
        } else if (byte < 0x20 || byte == 0x7F) {
            snprintf(piece, sizeof piece, "\\x%02X", byte);
        } else {
            snprintf(piece, sizeof piece, "%c", byte);
        }
        const size_t length = strlen(piece);
        if (used + length >= bytes) {
            break; /* an escape is written whole or not at all */
        }
        memcpy(out + used, piece, length);
        used += length;
    }
    if (bytes > 0) {
        out[used] = '\0';
    }
    return out;
}
