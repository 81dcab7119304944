/* Reading and verifying; packed_write.c writes. */
#include "data/packed.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/file.h"
#include "base/size.h"
#include "base/stop.h"
#include "data/dataset_internal.h"
#include "data/packed_internal.h"

/* zlib counts in unsigned int. */
#define CRC_BYTES_AT_ONCE ((size_t)1 << 24)

struct packed_source {
    struct source base;
    const uint8_t *map; /* the whole file, read-only */
    size_t map_bytes;
    const uint8_t *index;
    const char *names;
    uint64_t names_bytes;
    const char **class_names; /* into the map */
    enum sample_content content;
    int width, height;
};

static const struct packed_source *self_of(const struct source *source)
{
    return (const struct packed_source *)source;
}

static const uint8_t *entry_of(const struct packed_source *self, size_t sample)
{
    return self->index + sample * PACKED_ENTRY_BYTES;
}

static int packed_label(const struct source *source, size_t sample)
{
    return (int)packed_get32(entry_of(self_of(source), sample) + PACKED_ENTRY_LABEL);
}

static char *packed_name(const struct source *source, size_t sample, char *text, size_t bytes)
{
    const struct packed_source *self = self_of(source);
    const uint64_t at = packed_get64(entry_of(self, sample) + PACKED_ENTRY_NAME);
    (void)snprintf(text, bytes, "%s", self->names + at);
    return text;
}

static void packed_locate(const struct source *source, size_t sample, char *path_text,
                          size_t path_bytes, struct sample_location *location)
{
    const struct packed_source *self = self_of(source);
    const uint8_t *entry = entry_of(self, sample);
    if (path_bytes > 0) {
        path_text[0] = '\0';
    }
    *location = (struct sample_location){
        .content = self->content,
        .data = self->map + packed_get64(entry + PACKED_ENTRY_DATA),
        .bytes = packed_get32(entry + PACKED_ENTRY_SIZE),
        .width = self->width,
        .height = self->height,
    };
}

static size_t packed_memory(const struct source *source)
{
    return sizeof(struct packed_source) + (size_t)source->class_count * sizeof(char *);
}

static void packed_close(struct source *source)
{
    struct packed_source *self = (struct packed_source *)source;
    if (self->map != NULL) {
        union {
            const uint8_t *held;
            void *mapped;
        } memory = {.held = self->map};
        (void)munmap(memory.mapped, self->map_bytes);
    }
    free(self->class_names);
    free(self);
}

bool packed_recognise(const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    char magic[8];
    const bool is_packed = fd >= 0 && pread(fd, magic, sizeof magic, 0) == sizeof magic &&
                           memcmp(magic, PACKED_MAGIC, sizeof magic) == 0;
    if (fd >= 0) {
        (void)close(fd);
    }
    return is_packed;
}

/* --- Opening ------------------------------------------------------------------------------- */

static uint32_t checksum(const uint8_t *data, size_t bytes)
{
    uLong crc = crc32(0, Z_NULL, 0);
    while (bytes > 0) {
        const size_t now = bytes < CRC_BYTES_AT_ONCE ? bytes : CRC_BYTES_AT_ONCE;
        crc = crc32(crc, data, (uInt)now);
        data += now;
        bytes -= now;
    }
    return (uint32_t)crc;
}

static enum status map_file(struct packed_source *self, const char *path)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) != 0) {
        const int reason = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return FAIL(reason == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "%s cannot be opened: %s",
                    path, strerror(reason));
    }
    if (!S_ISREG(facts.st_mode) || facts.st_size < PACKED_HEADER_BYTES) {
        (void)close(fd);
        return FAIL(STATUS_INVALID,
                    "%s is no packed set, or it is cut within its header; pack it again", path);
    }
    self->map_bytes = (size_t)facts.st_size;
    void *map = mmap(NULL, self->map_bytes, PROT_READ, MAP_SHARED, fd, 0);
    const int reason = errno;
    (void)close(fd);
    if (map == MAP_FAILED) {
        return FAIL(reason == ENOMEM ? STATUS_NO_MEMORY : STATUS_IO, "%s cannot be mapped: %s",
                    path, strerror(reason));
    }
    self->map = map;
    return STATUS_OK;
}

static enum status check_header(struct packed_source *self, const char *path)
{
    const uint8_t *head = self->map;
    if (memcmp(head, PACKED_MAGIC, 8) != 0) {
        return FAIL(STATUS_INVALID, "%s is no packed set (pinline pack makes them)", path);
    }
    if (packed_get32(head + PACKED_AT_VERSION) != PACKED_VERSION) {
        return FAIL(
            STATUS_UNSUPPORTED,
            "%s is a packed set of version %u; this program reads version %d: pack it again", path,
            packed_get32(head + PACKED_AT_VERSION), PACKED_VERSION);
    }
    if (packed_get32(head + PACKED_AT_HEADER_CRC) != checksum(head, PACKED_AT_HEADER_CRC) ||
        packed_get32(head + PACKED_AT_HEADER_BYTES) != PACKED_HEADER_BYTES) {
        return FAIL(STATUS_INVALID,
                    "%s: the checksum of the header is wrong; the file is damaged: "
                    "pack it again",
                    path);
    }
    const uint64_t wanted = packed_get64(head + PACKED_AT_FILE_BYTES);
    if (wanted != self->map_bytes) {
        return FAIL(STATUS_INVALID,
                    "%s has %zu bytes, but its header says %llu; it is %s: copy or "
                    "pack it again",
                    path, self->map_bytes, (unsigned long long)wanted,
                    wanted > self->map_bytes ? "cut" : "longer than it was written");
    }
    return STATUS_OK;
}

static enum status fail_table(const char *path, const char *what)
{
    return FAIL(STATUS_INVALID, "%s: %s; the file is damaged: pack it again", path, what);
}

/* Sets index, names and counts; all of them lie inside the file afterwards. */
static enum status find_tables(struct packed_source *self, const char *path)
{
    const uint8_t *head = self->map;
    const uint64_t train = packed_get64(head + PACKED_AT_TRAIN_COUNT);
    const uint64_t val = packed_get64(head + PACKED_AT_VAL_COUNT);
    const uint64_t index = packed_get64(head + PACKED_AT_INDEX);
    const uint64_t names = packed_get64(head + PACKED_AT_NAMES);
    const uint64_t names_bytes = packed_get64(head + PACKED_AT_NAMES_BYTES);
    const uint32_t classes = packed_get32(head + PACKED_AT_CLASS_COUNT);
    const uint32_t content = packed_get32(head + PACKED_AT_CONTENT);
    const uint32_t width = packed_get32(head + PACKED_AT_WIDTH);
    const uint32_t height = packed_get32(head + PACKED_AT_HEIGHT);
    const uint64_t end = self->map_bytes;
    if (train < 1 || train > UINT32_MAX || val > UINT32_MAX || train + val > UINT32_MAX ||
        classes < 1 || classes > INT_MAX) {
        return fail_table(path, "the counts in its header are senseless");
    }
    const uint64_t index_bytes = (train + val) * PACKED_ENTRY_BYTES;
    if (index < PACKED_HEADER_BYTES || index > end || index_bytes > end - index ||
        names != index + index_bytes || names_bytes != end - names || names_bytes < 1 ||
        self->map[end - 1] != 0) {
        return fail_table(path, "its tables lie outside of the file");
    }
    if ((content != PACKED_ENCODED && content != PACKED_PIXELS) ||
        (content == PACKED_PIXELS &&
         (width < 1 || width > 65535 || height < 1 || height > 65535))) {
        return fail_table(path, "its kind of images is unknown");
    }
    if (checksum(self->map + index, (size_t)(index_bytes + names_bytes)) !=
        packed_get32(head + PACKED_AT_TABLE_CRC)) {
        return fail_table(path, "the checksum of its tables is wrong");
    }
    self->index = self->map + index;
    self->names = (const char *)self->map + names;
    self->names_bytes = names_bytes;
    self->content = content == PACKED_PIXELS ? SAMPLE_PIXELS : SAMPLE_ENCODED;
    self->width = content == PACKED_PIXELS ? (int)width : 0;
    self->height = content == PACKED_PIXELS ? (int)height : 0;
    self->base.train_count = (size_t)train;
    self->base.count = (size_t)(train + val);
    self->base.class_count = (int)classes;
    return STATUS_OK;
}

static enum status check_entries(const struct packed_source *self, const char *path)
{
    const uint64_t data_end = (uint64_t)(self->index - self->map);
    const uint64_t pixels = (uint64_t)self->width * (uint64_t)self->height * 3;
    for (size_t i = 0; i < self->base.count; i++) {
        const uint8_t *entry = entry_of(self, i);
        const uint64_t at = packed_get64(entry + PACKED_ENTRY_DATA);
        const uint64_t bytes = packed_get32(entry + PACKED_ENTRY_SIZE);
        if (at < PACKED_HEADER_BYTES || at > data_end || bytes > data_end - at || bytes == 0 ||
            packed_get64(entry + PACKED_ENTRY_NAME) >= self->names_bytes ||
            packed_get32(entry + PACKED_ENTRY_LABEL) >= (uint32_t)self->base.class_count ||
            (self->content == SAMPLE_PIXELS && bytes != pixels)) {
            return fail_table(path, "an entry of its index is senseless");
        }
    }
    return STATUS_OK;
}

/* Class names come first among the names. */
static enum status find_classes(struct packed_source *self, const char *path)
{
    const size_t classes = (size_t)self->base.class_count;
    if (classes > self->names_bytes) {
        return fail_table(path, "its class names are missing");
    }
    self->class_names = malloc(classes * sizeof *self->class_names);
    if (self->class_names == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu class names", classes);
    }
    uint64_t at = 0;
    for (size_t i = 0; i < classes; i++) {
        if (at >= self->names_bytes) {
            return fail_table(path, "its class names are missing");
        }
        self->class_names[i] = self->names + at;
        at += strlen(self->names + at) + 1;
    }
    self->base.class_names = self->class_names;
    return STATUS_OK;
}

enum status packed_source_open(const char *path, struct source **out)
{
    static const struct source_operations operations = {packed_label, packed_name, packed_locate,
                                                        packed_memory, packed_close};
    *out = NULL;
    struct packed_source *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    self->base.operations = &operations;
    atomic_init(&self->base.references, 1);
    char quoted[512];
    (void)file_quote(path, quoted, sizeof quoted);
    enum status status = map_file(self, quoted);
    if (status == STATUS_OK) {
        status = check_header(self, quoted);
    }
    if (status == STATUS_OK) {
        status = find_tables(self, quoted);
    }
    if (status == STATUS_OK) {
        status = check_entries(self, quoted);
    }
    if (status == STATUS_OK) {
        status = find_classes(self, quoted);
    }
    if (status != STATUS_OK) {
        packed_close(&self->base);
        TRY(status);
    }
    *out = &self->base;
    return STATUS_OK;
}

enum status packed_verify(const char *path, size_t *bad)
{
    struct source *source;
    if (bad != NULL) {
        *bad = 0;
    }
    TRY(packed_source_open(path, &source));
    const struct packed_source *self = self_of(source);
    size_t wrong = 0, first = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < source->count && status == STATUS_OK; i++) {
        const uint8_t *entry = entry_of(self, i);
        const uint8_t *data = self->map + packed_get64(entry + PACKED_ENTRY_DATA);
        if (checksum(data, packed_get32(entry + PACKED_ENTRY_SIZE)) !=
            packed_get32(entry + PACKED_ENTRY_CRC)) {
            first = wrong == 0 ? i : first;
            wrong++;
        }
        if (i % 256 == 0) {
            status = stop_check();
        }
    }
    if (status == STATUS_OK && wrong > 0) {
        char name[1024], quoted[1100], file[512];
        (void)packed_name(source, first, name, sizeof name);
        status = FAIL(STATUS_INVALID,
                      "%s: %zu of %zu samples are damaged, the first is %s; pack the set again",
                      file_quote(path, file, sizeof file), wrong, source->count,
                      file_quote(name, quoted, sizeof quoted));
    }
    source_release(&source);
    if (bad != NULL) {
        *bad = wrong;
    }
    TRY(status);
    return STATUS_OK;
}
