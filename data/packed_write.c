#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/file.h"
#include "base/stop.h"
#include "data/packed.h"
#include "data/packed_internal.h"

/* The largest file that is passed on as it is. */
#define MOST_FILE_BYTES ((size_t)UINT32_MAX)

struct bytes {
    uint8_t *data;
    size_t used, capacity;
};

/* State of one writing. */
struct packing {
    const struct packed_settings *settings;
    packed_supply supply;
    void *context;
    struct file_writer writer;
    uint64_t at;        /* bytes written so far */
    struct bytes index; /* entries of the samples so far */
    struct bytes names;
    void *held; /* the file passed on last */
    struct packed_result result;
};

static enum status append(struct bytes *bytes, const void *data, size_t count)
{
    if (bytes->used + count > bytes->capacity) {
        size_t capacity = bytes->capacity == 0 ? 4096 : bytes->capacity;
        while (capacity < bytes->used + count) {
            capacity *= 2;
        }
        uint8_t *larger = realloc(bytes->data, capacity);
        if (larger == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the tables of a packed set");
        }
        bytes->data = larger;
        bytes->capacity = capacity;
    }
    memcpy(bytes->data + bytes->used, data, count);
    bytes->used += count;
    return STATUS_OK;
}

static enum status write_bytes(struct packing *packing, const void *data, size_t bytes)
{
    if (bytes > 0 && fwrite(data, 1, bytes, packing->writer.stream) != bytes) {
        const int reason = errno;
        char quoted[512];
        return FAIL(STATUS_IO, "%s cannot be written: %s",
                    file_quote(packing->settings->path, quoted, sizeof quoted), strerror(reason));
    }
    packing->at += bytes;
    return STATUS_OK;
}

static enum status pad(struct packing *packing)
{
    static const uint8_t zeros[PACKED_ALIGNMENT];
    const size_t over = (size_t)(packing->at % PACKED_ALIGNMENT);
    return write_bytes(packing, zeros, over == 0 ? 0 : PACKED_ALIGNMENT - over);
}

/* What a set holds, unchanged. */
static enum status pass_on(struct packing *packing, const dataset *set, size_t sample,
                           const void **data, size_t *bytes)
{
    char path[PATH_MAX];
    struct sample_location location;
    dataset_locate(set, sample, path, sizeof path, &location);
    if (location.content == SAMPLE_FILE) {
        free(packing->held);
        packing->held = NULL;
        TRY(file_read(location.path, MOST_FILE_BYTES, &packing->held, bytes));
        *data = packing->held;
    } else {
        *data = location.data;
        *bytes = location.bytes;
    }
    const bool wants_pixels = packing->settings->content == SAMPLE_PIXELS;
    if (wants_pixels != (location.content == SAMPLE_PIXELS)) {
        return FAIL(STATUS_INVALID,
                    wants_pixels ? "encoded images cannot be packed as pixels without decoding them"
                                 : "this set holds pixels, not encoded images; pack it as pixels");
    }
    if (wants_pixels && (location.width != packing->settings->width ||
                         location.height != packing->settings->height)) {
        return FAIL(STATUS_INVALID, "the images are %d x %d, to be packed are %d x %d",
                    location.width, location.height, packing->settings->width,
                    packing->settings->height);
    }
    return STATUS_OK;
}

static enum status write_sample(struct packing *packing, const dataset *set, size_t sample)
{
    const struct packed_settings *settings = packing->settings;
    const void *data = NULL;
    size_t bytes = 0;
    TRY(packing->supply != NULL ? packing->supply(packing->context, set, sample, &data, &bytes)
                                : pass_on(packing, set, sample, &data, &bytes));
    if (data == NULL) {
        packing->result.left_out++;
        return STATUS_OK;
    }
    char name[PATH_MAX], quoted[512];
    (void)dataset_sample_name(set, sample, name, sizeof name);
    if (bytes == 0 || bytes > UINT32_MAX) {
        return FAIL(STATUS_INVALID, "%s has %zu bytes; a packed sample has 1 to 4,294,967,295",
                    file_quote(name, quoted, sizeof quoted), bytes);
    }
    if (settings->content == SAMPLE_PIXELS &&
        bytes != (size_t)settings->width * (size_t)settings->height * 3) {
        return FAIL(STATUS_INVALID, "%s has %zu bytes of pixels; %d x %d x 3 are expected",
                    file_quote(name, quoted, sizeof quoted), bytes, settings->width,
                    settings->height);
    }
    TRY(pad(packing));
    uint8_t entry[PACKED_ENTRY_BYTES] = {0};
    packed_put64(entry + PACKED_ENTRY_DATA, packing->at);
    packed_put64(entry + PACKED_ENTRY_NAME, packing->names.used);
    packed_put32(entry + PACKED_ENTRY_SIZE, (uint32_t)bytes);
    packed_put32(entry + PACKED_ENTRY_LABEL, (uint32_t)dataset_label(set, sample));
    packed_put32(entry + PACKED_ENTRY_CRC, (uint32_t)crc32(crc32(0, Z_NULL, 0), data, (uInt)bytes));
    TRY(append(&packing->index, entry, sizeof entry));
    TRY(append(&packing->names, name, strlen(name) + 1));
    TRY(write_bytes(packing, data, bytes));
    packing->result.samples++;
    return STATUS_OK;
}

static enum status write_set(struct packing *packing, const dataset *set)
{
    for (size_t i = 0; i < dataset_count(set); i++) {
        if (i % 64 == 0) {
            TRY(stop_check());
        }
        TRY(write_sample(packing, set, i));
    }
    return STATUS_OK;
}

/* The tables close the file; the header, which stands in front, is written last. */
static enum status write_tables(struct packing *packing, size_t train_count, int class_count)
{
    const struct packed_settings *settings = packing->settings;
    const bool pixels = settings->content == SAMPLE_PIXELS;
    TRY(pad(packing));
    uLong crc = crc32(0, Z_NULL, 0);
    const struct bytes *tables[] = {&packing->index, &packing->names};
    const uint64_t index_at = packing->at;
    for (int i = 0; i < 2; i++) {
        crc = crc32_z(crc, tables[i]->data, tables[i]->used);
        TRY(write_bytes(packing, tables[i]->data, tables[i]->used));
    }
    uint8_t head[PACKED_HEADER_BYTES] = {0};
    memcpy(head + PACKED_AT_MAGIC, PACKED_MAGIC, 8);
    packed_put32(head + PACKED_AT_VERSION, PACKED_VERSION);
    packed_put32(head + PACKED_AT_HEADER_BYTES, PACKED_HEADER_BYTES);
    packed_put64(head + PACKED_AT_FILE_BYTES, packing->at);
    packed_put64(head + PACKED_AT_TRAIN_COUNT, train_count);
    packed_put64(head + PACKED_AT_VAL_COUNT, packing->result.samples - train_count);
    packed_put32(head + PACKED_AT_CLASS_COUNT, (uint32_t)class_count);
    packed_put32(head + PACKED_AT_CONTENT, pixels ? PACKED_PIXELS : PACKED_ENCODED);
    packed_put32(head + PACKED_AT_WIDTH, pixels ? (uint32_t)settings->width : 0);
    packed_put32(head + PACKED_AT_HEIGHT, pixels ? (uint32_t)settings->height : 0);
    packed_put64(head + PACKED_AT_INDEX, index_at);
    packed_put64(head + PACKED_AT_NAMES, index_at + packing->index.used);
    packed_put64(head + PACKED_AT_NAMES_BYTES, packing->names.used);
    packed_put32(head + PACKED_AT_TABLE_CRC, (uint32_t)crc);
    packed_put32(head + PACKED_AT_HEADER_CRC,
                 (uint32_t)crc32(crc32(0, Z_NULL, 0), head, PACKED_AT_HEADER_CRC));
    packing->result.bytes = packing->at;
    if (fseeko(packing->writer.stream, 0, SEEK_SET) != 0) {
        return FAIL(STATUS_IO, "%s cannot be written: %s", settings->path, strerror(errno));
    }
    return write_bytes(packing, head, sizeof head);
}

static enum status write_all(struct packing *packing, const dataset *train, const dataset *val)
{
    const uint8_t head[PACKED_HEADER_BYTES] = {0};
    TRY(file_writer_open(&packing->writer, packing->settings->path));
    TRY(write_bytes(packing, head, sizeof head));
    const int classes = dataset_class_count(train);
    for (int i = 0; i < classes; i++) {
        const char *name = dataset_class_name(train, i);
        TRY(append(&packing->names, name, strlen(name) + 1));
    }
    TRY(write_set(packing, train));
    const size_t train_count = packing->result.samples;
    if (train_count == 0) {
        return FAIL(STATUS_INVALID, "no training sample is left to pack; all %zu were left out",
                    packing->result.left_out);
    }
    if (val != NULL) {
        TRY(write_set(packing, val));
    }
    TRY(write_tables(packing, train_count, classes));
    TRY(file_writer_commit(&packing->writer));
    return STATUS_OK;
}

static enum status check(const struct packed_settings *settings, const dataset *train,
                         const dataset *val)
{
    if (settings->path == NULL || settings->path[0] == '\0') {
        return FAIL(STATUS_USAGE, "no file was named for the packed set");
    }
    if (settings->content != SAMPLE_ENCODED && settings->content != SAMPLE_PIXELS) {
        return FAIL(STATUS_USAGE, "a packed set holds encoded images or pixels, not kind %d",
                    (int)settings->content);
    }
    if (settings->content == SAMPLE_PIXELS && (settings->width < 1 || settings->width > 65535 ||
                                               settings->height < 1 || settings->height > 65535)) {
        return FAIL(STATUS_USAGE, "a packed size of %d x %d is outside 1 to 65535", settings->width,
                    settings->height);
    }
    if (val != NULL && dataset_class_count(val) != dataset_class_count(train)) {
        return FAIL(STATUS_USAGE, "the sets to pack have %d and %d classes",
                    dataset_class_count(train), dataset_class_count(val));
    }
    char quoted[512];
    (void)file_quote(settings->path, quoted, sizeof quoted);
    if (file_is_folder(settings->path)) {
        return FAIL(STATUS_INVALID, "%s is a folder; name a file", quoted);
    }
    if (!settings->overwrite && file_exists(settings->path)) {
        return FAIL(STATUS_INVALID, "%s exists; give another name, or --overwrite", quoted);
    }
    return STATUS_OK;
}

enum status packed_write(const struct packed_settings *settings, const dataset *train,
                         const dataset *val, packed_supply supply, void *context,
                         struct packed_result *result)
{
    TRY(check(settings, train, val));
    struct packing packing = {.settings = settings, .supply = supply, .context = context};
    const enum status status = write_all(&packing, train, val);
    file_writer_abort(&packing.writer);
    free(packing.index.data);
    free(packing.names.data);
    free(packing.held);
    TRY(status);
    if (result != NULL) {
        *result = packing.result;
    }
    return STATUS_OK;
}
