#include "models/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/size.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "files hold little-endian values");

#define MAX_DIMS 8
#define LENGTH_BYTES 8
/* The format's own limit: nothing sensible has a longer header. */
#define MAX_HEADER_BYTES 100000000
#define METADATA_NAME "__metadata__"
#define PATH_BYTES 512

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [SAFETENSORS_F32] = {"F32", 4}, [SAFETENSORS_BF16] = {"BF16", 2},
    [SAFETENSORS_F16] = {"F16", 2}, [SAFETENSORS_U8] = {"U8", 1},
    [SAFETENSORS_I32] = {"I32", 4}, [SAFETENSORS_I64] = {"I64", 8},
};
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

/* --- Writing -------------------------------------------------------------------------------- */

static void write_header(FILE *stream, const struct safetensors_entry *entries, size_t count,
                         const struct safetensors_metadata *metadata, size_t metadata_count)
{
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    json_begin_object(&writer);
    if (metadata_count > 0) {
        json_key(&writer, METADATA_NAME);
        json_begin_object(&writer);
        for (size_t i = 0; i < metadata_count; i++) {
            json_key_string(&writer, metadata[i].key, metadata[i].value);
        }
        json_end_object(&writer);
    }
    uint64_t offset = 0;
    for (size_t i = 0; i < count; i++) {
        const struct safetensors_entry *entry = &entries[i];
        json_key(&writer, entry->name);
        json_begin_object(&writer);
        json_key_string(&writer, "dtype", dtypes[entry->dtype].name);
        json_key(&writer, "shape");
        json_begin_array(&writer);
        for (int d = 0; d < entry->dims; d++) {
            json_int(&writer, entry->shape[d]);
        }
        json_end_array(&writer);
        json_key(&writer, "data_offsets");
        json_begin_array(&writer);
        json_uint(&writer, offset);
        offset += entry->bytes;
        json_uint(&writer, offset);
        json_end_array(&writer);
        json_end_object(&writer);
    }
    json_end_object(&writer);
    /* Spaces bring the data to a multiple of 8, so that readers can use it in place. */
    fflush(stream);
    for (long length = ftell(stream); length % LENGTH_BYTES != 0; length++) {
        fputc(' ', stream);
    }
}

static enum status make_header(const struct safetensors_entry *entries, size_t count,
                               const struct safetensors_metadata *metadata, size_t metadata_count,
                               char **text, size_t *bytes)
{
    *text = NULL;
    FILE *stream = open_memstream(text, bytes);
    if (stream == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the header of %zu tensors", count);
    }
    write_header(stream, entries, count, metadata, metadata_count);
    const bool failed = ferror(stream) != 0;
    if (fclose(stream) != 0 || failed) {
        free(*text);
        *text = NULL;
        return FAIL(STATUS_NO_MEMORY, "no memory for the header of %zu tensors", count);
    }
    return STATUS_OK;
}

enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t count, const struct safetensors_metadata *metadata,
                              size_t metadata_count)
{
    char *header;
    size_t header_bytes;
    TRY(make_header(entries, count, metadata, metadata_count, &header, &header_bytes));
    struct file_writer writer;
    const enum status status = file_writer_open(&writer, path);
    if (status != STATUS_OK) {
        free(header);
        return status;
    }
    /* A write that fails leaves its mark in the stream, where commit finds it. */
    const uint64_t length = header_bytes;
    fwrite(&length, sizeof(length), 1, writer.stream);
    fwrite(header, 1, header_bytes, writer.stream);
    free(header);
    for (size_t i = 0; i < count; i++) {
        if (entries[i].bytes > 0) {
            fwrite(entries[i].data, 1, entries[i].bytes, writer.stream);
        }
    }
    return file_writer_commit(&writer);
}

/* --- Reading -------------------------------------------------------------------------------- */

struct safetensors {
    char path[PATH_BYTES]; /* for messages */
    unsigned char *map;
    size_t map_bytes;
    json_document *header;
    struct safetensors_entry *entries;
    size_t *begins; /* offset of each entry's data */
    size_t count;
    const unsigned char *data;
    size_t data_bytes;
};

static enum status map_file(struct safetensors *file, const char *path)
{
    /* Not blocking: opening a FIFO must not wait for somebody to write to it. */
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return FAIL(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_IO, "cannot open %s: %s",
                    file->path, strerror(errno));
    }
    struct stat facts;
    enum status status = STATUS_OK;
    if (fstat(descriptor, &facts) != 0) {
        status = FAIL(STATUS_IO, "cannot look at %s: %s", file->path, strerror(errno));
    } else if (!S_ISREG(facts.st_mode)) {
        status =
            FAIL(STATUS_INVALID, "%s is not a file; name the safetensors file itself", file->path);
    } else if (facts.st_size < LENGTH_BYTES) {
        status = FAIL(STATUS_INVALID,
                      "%s is no safetensors file: it has %jd bytes, and the length of the header "
                      "alone takes 8; check the path",
                      file->path, (intmax_t)facts.st_size);
    } else {
        file->map_bytes = (size_t)facts.st_size;
        void *map = mmap(NULL, file->map_bytes, PROT_READ, MAP_PRIVATE, descriptor, 0);
        if (map == MAP_FAILED) {
            status = FAIL(STATUS_IO, "cannot map %s: %s", file->path, strerror(errno));
        } else {
            file->map = map;
        }
    }
    close(descriptor);
    return status;
}

static enum status parse_header(struct safetensors *file)
{
    uint64_t length;
    memcpy(&length, file->map, sizeof(length));
    if (length > MAX_HEADER_BYTES) {
        return FAIL(STATUS_INVALID,
                    "%s is no safetensors file: its header would have %" PRIu64
                    " bytes, and 100,000,000 are the limit; check the path",
                    file->path, length);
    }
    if (length > file->map_bytes - LENGTH_BYTES) {
        return FAIL(STATUS_INVALID,
                    "%s is cut: it has %zu bytes, and its header alone ends at %" PRIu64
                    "; use another copy",
                    file->path, file->map_bytes, length + LENGTH_BYTES);
    }
    file->data = file->map + LENGTH_BYTES + length;
    file->data_bytes = file->map_bytes - LENGTH_BYTES - (size_t)length;
    const char *text = (const char *)file->map + LENGTH_BYTES;
    if (length == 0 || text[0] != '{') {
        return FAIL(STATUS_INVALID,
                    "%s is no safetensors file: its header does not begin with {; check the path",
                    file->path);
    }
    const enum status status = json_parse(text, (size_t)length, &file->header);
    if (status != STATUS_OK) {
        status_prefix("the header of %s", file->path);
    }
    return status;
}

static enum status read_dtype(const struct safetensors *file, const struct json_value *value,
                              struct safetensors_entry *entry)
{
    const char *name = json_member_string(value, "dtype", NULL);
    if (name == NULL) {
        return FAIL(STATUS_INVALID, "%s: tensor %s has no dtype", file->path, entry->name);
    }
    for (size_t i = 0; i < DTYPES; i++) {
        if (strcmp(name, dtypes[i].name) == 0) {
            entry->dtype = (enum safetensors_dtype)i;
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_INVALID,
                "%s: tensor %s is of type %.20s, which is none of F32, BF16, F16, U8, I32, I64",
                file->path, entry->name, name);
}

/* Sizes multiply within size_t, or the file is refused. */
static enum status read_shape(const struct safetensors *file, const struct json_value *value,
                              struct safetensors_entry *entry, size_t *bytes)
{
    const struct json_value *shape = json_member(value, "shape");
    if (shape == NULL || shape->kind != JSON_ARRAY || shape->count > MAX_DIMS) {
        return FAIL(STATUS_INVALID, "%s: tensor %s has no shape of at most %d dimensions",
                    file->path, entry->name, MAX_DIMS);
    }
    entry->dims = (int)shape->count;
    *bytes = dtypes[entry->dtype].bytes;
    for (int d = 0; d < entry->dims; d++) {
        const struct json_value *length = &shape->items[d];
        if (!length->is_integer || length->integer < 0 ||
            !size_multiply(*bytes, (size_t)length->integer, bytes)) {
            return FAIL(STATUS_INVALID, "%s: dimension %d of tensor %s is no usable length",
                        file->path, d, entry->name);
        }
        entry->shape[d] = length->integer;
    }
    return STATUS_OK;
}

static enum status read_entry(struct safetensors *file, const char *name,
                              const struct json_value *value)
{
    struct safetensors_entry *entry = &file->entries[file->count];
    entry->name = name;
    if (value->kind != JSON_OBJECT) {
        return FAIL(STATUS_INVALID, "%s: tensor %s is not described by an object", file->path,
                    name);
    }
    size_t bytes = 0;
    TRY(read_dtype(file, value, entry));
    TRY(read_shape(file, value, entry, &bytes));
    const struct json_value *offsets = json_member(value, "data_offsets");
    if (offsets == NULL || offsets->kind != JSON_ARRAY || offsets->count != 2 ||
        !offsets->items[0].is_integer || !offsets->items[1].is_integer ||
        offsets->items[0].integer < 0 || offsets->items[1].integer < offsets->items[0].integer) {
        return FAIL(STATUS_INVALID, "%s: tensor %s has no pair of rising data_offsets", file->path,
                    name);
    }
    const size_t begin = (size_t)offsets->items[0].integer;
    const size_t end = (size_t)offsets->items[1].integer;
    if (end - begin != bytes) {
        return FAIL(STATUS_INVALID,
                    "%s: tensor %s takes %zu bytes by its shape and type and %zu by its offsets",
                    file->path, name, bytes, end - begin);
    }
    if (end > file->data_bytes) {
        return FAIL(STATUS_INVALID,
                    "%s is cut: tensor %s ends at byte %zu of %zu bytes of data; use another copy",
                    file->path, name, end, file->data_bytes);
    }
    entry->data = file->data + begin;
    entry->bytes = bytes;
    file->begins[file->count] = begin;
    file->count++;
    return STATUS_OK;
}

static int compare_places(const void *a, const void *b)
{
    const struct safetensors_entry *first = *(const struct safetensors_entry *const *)a;
    const struct safetensors_entry *second = *(const struct safetensors_entry *const *)b;
    const uintptr_t first_place = (uintptr_t)first->data;
    const uintptr_t second_place = (uintptr_t)second->data;
    if (first_place != second_place) {
        return first_place < second_place ? -1 : 1;
    }
    return (first->bytes > second->bytes) - (first->bytes < second->bytes);
}

/* Every byte of the data belongs to exactly one tensor. */
static enum status check_coverage(const struct safetensors *file)
{
    const struct safetensors_entry **order = calloc(file->count + 1, sizeof(*order));
    if (order == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to check %zu tensors", file->count);
    }
    for (size_t i = 0; i < file->count; i++) {
        order[i] = &file->entries[i];
    }
    qsort(order, file->count, sizeof(*order), compare_places);
    size_t end = 0;
    enum status status = STATUS_OK;
    for (size_t i = 0; i < file->count && status == STATUS_OK; i++) {
        const size_t begin = file->begins[order[i] - file->entries];
        if (begin != end) {
            status = FAIL(STATUS_INVALID, "%s: tensor %s begins at %zu and %s at %zu", file->path,
                          order[i]->name, begin,
                          begin > end ? "leaves a gap, for the last one ended"
                                      : "overlaps another, which ends",
                          end);
        }
        end = begin + order[i]->bytes;
    }
    if (status == STATUS_OK && end != file->data_bytes) {
        status = FAIL(STATUS_INVALID, "%s has %zu bytes of data, and its tensors take %zu",
                      file->path, file->data_bytes, end);
    }
    free(order);
    return status;
}

static enum status check_metadata(const struct safetensors *file, const struct json_value *value)
{
    bool strings = value->kind == JSON_OBJECT;
    for (size_t i = 0; strings && i < value->count; i++) {
        strings = value->items[i].kind == JSON_STRING;
    }
    if (!strings) {
        return FAIL(STATUS_INVALID, "%s: " METADATA_NAME " is not a table of strings", file->path);
    }
    return STATUS_OK;
}

static enum status read_file(struct safetensors *file, const char *path)
{
    TRY(map_file(file, path));
    TRY(parse_header(file));
    const struct json_value *root = json_root(file->header);
    file->entries = calloc(root->count + 1, sizeof(*file->entries));
    file->begins = calloc(root->count + 1, sizeof(*file->begins));
    if (file->entries == NULL || file->begins == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the table of %zu tensors", root->count);
    }
    for (size_t i = 0; i < root->count; i++) {
        if (strcmp(root->names[i], METADATA_NAME) == 0) {
            TRY(check_metadata(file, &root->items[i]));
        } else {
            TRY(read_entry(file, root->names[i], &root->items[i]));
        }
    }
    return check_coverage(file);
}

enum status safetensors_open(const char *path, safetensors **out)
{
    *out = NULL;
    struct safetensors *file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open a file");
    }
    file_quote(path, file->path, sizeof(file->path));
    const enum status status = read_file(file, path);
    if (status != STATUS_OK) {
        safetensors_close(&file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

void safetensors_close(safetensors **file_pointer)
{
    struct safetensors *file = *file_pointer;
    if (file == NULL) {
        return;
    }
    *file_pointer = NULL;
    if (file->map != NULL) {
        munmap(file->map, file->map_bytes);
    }
    json_document_destroy(&file->header);
    free(file->entries);
    free(file->begins);
    free(file);
}

size_t safetensors_count(const safetensors *file)
{
    return file->count;
}

const struct safetensors_entry *safetensors_at(const safetensors *file, size_t index)
{
    assert(index < file->count);
    return &file->entries[index];
}

const struct safetensors_entry *safetensors_find(const safetensors *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->entries[i].name, name) == 0) {
            return &file->entries[i];
        }
    }
    return NULL;
}

const char *safetensors_metadata_value(const safetensors *file, const char *key)
{
    const struct json_value *metadata = json_member(json_root(file->header), METADATA_NAME);
    return json_member_string(metadata, key, NULL);
}
