/* Files that may be compressed by gzip, read through zlib, which passes others through unchanged. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/stop.h"
#include "data/dataset_internal.h"

#define READ_BYTES ((size_t)1 << 20)

static enum status fail_system(const char *path, const char *verb, int reason)
{
    char quoted[512];
    return FAIL(reason == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s cannot be %s: %s",
                file_quote(path, quoted, sizeof quoted), verb, strerror(reason));
}

enum status gzip_file_open(struct gzip_file *file, const char *path)
{
    *file = (struct gzip_file){.path = path};
    /* Not blocking: a FIFO of this name must not hold the program up. */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail_system(path, "opened", errno);
    }
    struct stat facts;
    if (fstat(fd, &facts) != 0) {
        const int reason = errno;
        (void)close(fd);
        return fail_system(path, "looked at", reason);
    }
    if (!S_ISREG(facts.st_mode)) {
        char quoted[512];
        (void)close(fd);
        return FAIL(STATUS_INVALID, "%s is not a regular file; check the path",
                    file_quote(path, quoted, sizeof quoted));
    }
    file->file_bytes = (uint64_t)facts.st_size;
    gzFile stream = gzdopen(fd, "rb");
    if (stream == NULL) {
        (void)close(fd);
        return FAIL(STATUS_NO_MEMORY, "no memory to read %s", path);
    }
    (void)gzbuffer(stream, 256 * 1024);
    file->stream = stream;
    return STATUS_OK;
}

enum status gzip_file_read(struct gzip_file *file, void *data, size_t bytes, size_t *got)
{
    *got = 0;
    while (*got < bytes) {
        TRY(stop_check());
        const size_t want = bytes - *got < READ_BYTES ? bytes - *got : READ_BYTES;
        const int count = gzread(file->stream, (char *)data + *got, (unsigned)want);
        int error = Z_OK;
        const int reason = errno;
        const char *text = gzerror(file->stream, &error);
        if (count < 0 || (error != Z_OK && error != Z_STREAM_END)) {
            char quoted[512];
            if (error == Z_ERRNO) {
                return fail_system(file->path, "read", reason);
            }
            return FAIL(error == Z_MEM_ERROR ? STATUS_NO_MEMORY : STATUS_INVALID,
                        "%s: the compressed data is damaged or cut (%s); fetch it again",
                        file_quote(file->path, quoted, sizeof quoted), text);
        }
        *got += (size_t)count;
        file->bytes_read += (uint64_t)count;
        if (count == 0) {
            break;
        }
    }
    return STATUS_OK;
}

void gzip_file_close(struct gzip_file *file)
{
    if (file->stream != NULL) {
        (void)gzclose_r(file->stream);
    }
    *file = (struct gzip_file){0};
}

uint64_t gzip_file_most_bytes(const struct gzip_file *file)
{
    /* A gzip file also holds a header and a trailer, 18 bytes that this leaves in: an upper bound. */
    return gzdirect(file->stream) ? file->file_bytes : file->file_bytes * 1032;
}
