/*
 * IDX files (http://yann.lecun.com/exdb/mnist/): two zero bytes, the type of the values (8: bytes),
 * the number of dimensions, each dimension as a big-endian 32-bit number, and the values. Images are
 * count x height x width, or count x height x width x 3; labels are as many bytes. Grey images are
 * held as RGB.
 */
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size.h"
#include "data/dataset_internal.h"

#define TYPE_BYTES 8
#define MOST_EDGE 65536
#define IMAGES_AT_ONCE_BYTES ((size_t)1 << 20)

/* --- Which files --------------------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

/* "train-images-idx3-ubyte", "train-images.idx3-ubyte", with ".gz" or without. */
static bool is_images_name(const char *name)
{
    const char *images = strstr(name, "images");
    const char *kind = images != NULL ? strstr(images, "idx") : NULL;
    return kind != NULL && (kind[3] == '3' || kind[3] == '4') &&
           (strcmp(kind + 4, "-ubyte") == 0 || strcmp(kind + 4, "-ubyte.gz") == 0);
}

/* What a folder holds. `ambiguous` when there are several sets. */
struct found {
    char folder[PATH_MAX];
    char train[NAME_MAX + 1], val[NAME_MAX + 1]; /* "" when absent */
    bool ambiguous;
};

/* The same set compressed and not counts once, and the file that needs no unpacking is taken. */
static void take_name(struct found *found, char *kept, const char *name)
{
    const size_t kept_length = strlen(kept), length = strlen(name);
    const bool kept_gz = ends_with(kept, ".gz"), name_gz = ends_with(name, ".gz");
    const size_t kept_stem = kept_length - (kept_gz ? 3 : 0), stem = length - (name_gz ? 3 : 0);
    if (kept_length > 0 && (kept_stem != stem || strncmp(kept, name, stem) != 0)) {
        found->ambiguous = true;
    } else if (kept_length == 0 || kept_gz) {
        memcpy(kept, name, length + 1);
    }
}

static bool look_into(struct found *found)
{
    DIR *stream = opendir(found->folder);
    if (stream == NULL) {
        return false;
    }
    found->train[0] = found->val[0] = '\0';
    found->ambiguous = false;
    const struct dirent *entry;
    while ((entry = readdir(stream)) != NULL) {
        if (!is_images_name(entry->d_name) || entry->d_type == DT_DIR) {
            continue;
        }
        if (strstr(entry->d_name, "t10k") != NULL || strstr(entry->d_name, "test") != NULL) {
            take_name(found, found->val, entry->d_name);
        } else {
            take_name(found, found->train, entry->d_name);
        }
    }
    (void)closedir(stream);
    return found->train[0] != '\0' || found->val[0] != '\0';
}

static bool find_files(const char *path, struct found *found)
{
    static const char *const below[] = {"", "/raw", "/MNIST/raw", "/FashionMNIST/raw",
                                        "/KMNIST/raw"};
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        const int length = snprintf(found->folder, sizeof found->folder, "%s%s", path, below[i]);
        if (length < (int)sizeof found->folder && look_into(found)) {
            return true;
        }
    }
    return false;
}

static bool starts_as_idx(const char *path)
{
    struct gzip_file file;
    uint8_t head[4] = {1};
    size_t got = 0;
    bool is_idx = false;
    if (gzip_file_open(&file, path) == STATUS_OK &&
        gzip_file_read(&file, head, sizeof head, &got) == STATUS_OK) {
        is_idx = got == 4 && head[0] == 0 && head[1] == 0 && head[2] >= 8 && head[2] <= 14 &&
                 head[3] >= 1 && head[3] <= 4;
    } else {
        status_clear();
    }
    gzip_file_close(&file);
    return is_idx;
}

bool idx_recognise(const char *path)
{
    if (file_is_folder(path)) {
        struct found *found = malloc(sizeof *found);
        const bool any = found != NULL && find_files(path, found);
        free(found);
        return any;
    }
    return is_images_name(file_name(path)) || starts_as_idx(path);
}

/* --- One file ------------------------------------------------------------------------------ */

struct idx_header {
    int dimensions;
    uint32_t size[4];
};

static enum status read_exactly(struct gzip_file *file, void *data, size_t bytes)
{
    size_t got;
    TRY(gzip_file_read(file, data, bytes, &got));
    if (got < bytes) {
        return FAIL(STATUS_INVALID,
                    "%s is cut: it ends after %llu bytes, in the middle of its data; get it again",
                    file->path, (unsigned long long)file->bytes_read);
    }
    return STATUS_OK;
}

/* Also checks, before anything is allocated, that so many values can be in the file at all. */
static enum status read_header(struct gzip_file *file, struct idx_header *header)
{
    uint8_t bytes[16];
    TRY(read_exactly(file, bytes, 4));
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[3] < 1 || bytes[3] > 4) {
        return FAIL(STATUS_INVALID, "%s is not an IDX file: it begins with %02x %02x %02x %02x",
                    file->path, bytes[0], bytes[1], bytes[2], bytes[3]);
    }
    if (bytes[2] != TYPE_BYTES) {
        return FAIL(STATUS_UNSUPPORTED,
                    "%s holds IDX values of type 0x%02x; only bytes (0x08) are read", file->path,
                    bytes[2]);
    }
    header->dimensions = bytes[3];
    TRY(read_exactly(file, bytes, 4 * (size_t)header->dimensions));
    size_t values = 1;
    bool fits = true;
    for (int i = 0; i < header->dimensions; i++) {
        const uint8_t *at = bytes + 4 * i;
        header->size[i] =
            (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | (uint32_t)at[3];
        fits = fits && size_multiply(values, header->size[i], &values);
    }
    if (!fits || values > gzip_file_most_bytes(file)) {
        return FAIL(STATUS_INVALID,
                    "%s is cut or damaged: it claims more values than its %llu bytes "
                    "can hold",
                    file->path, (unsigned long long)file->file_bytes);
    }
    if (values == 0) {
        return FAIL(STATUS_INVALID, "%s holds no values", file->path);
    }
    return STATUS_OK;
}

static enum status check_end(struct gzip_file *file)
{
    /* Reading on is also what makes zlib check the trailer. */
    uint8_t more;
    size_t got;
    TRY(gzip_file_read(file, &more, 1, &got));
    if (got != 0) {
        return FAIL(STATUS_INVALID, "%s holds more than its header says; it is damaged",
                    file->path);
    }
    return STATUS_OK;
}

/* --- Images -------------------------------------------------------------------------------- */

static enum status check_images(struct memory_source *set, const struct gzip_file *file,
                                const struct idx_header *header)
{
    if (header->dimensions == 1) {
        return FAIL(STATUS_INVALID, "%s holds labels; give the file with the images beside it",
                    file->path);
    }
    const uint32_t channels = header->dimensions == 4 ? header->size[3] : 1;
    if (header->dimensions == 2 || (channels != 1 && channels != 3)) {
        return FAIL(STATUS_UNSUPPORTED,
                    "%s holds %d dimensions, the last of %u; images are count x height x width, or "
                    "that x 3",
                    file->path, header->dimensions, header->size[header->dimensions - 1]);
    }
    const uint32_t height = header->size[1], width = header->size[2];
    if (height > MOST_EDGE || width > MOST_EDGE) {
        return FAIL(STATUS_LIMIT, "%s claims images of %u x %u; the limit is %d", file->path, width,
                    height, MOST_EDGE);
    }
    if (set->base.count > 0 && (set->width != (int)width || set->height != (int)height)) {
        return FAIL(STATUS_INVALID,
                    "%s holds images of %u x %u, the training images are %d x %d; give two sets of "
                    "one kind",
                    file->path, width, height, set->width, set->height);
    }
    set->width = (int)width;
    set->height = (int)height;
    return STATUS_OK;
}

static enum status read_values(struct memory_source *set, struct gzip_file *file, size_t channels,
                               size_t count)
{
    uint8_t *out = set->pixels + set->base.count * (size_t)set->width * (size_t)set->height * 3;
    size_t left = count * (size_t)set->width * (size_t)set->height * channels;
    if (channels == 3) {
        return read_exactly(file, out, left);
    }
    uint8_t *grey = malloc(IMAGES_AT_ONCE_BYTES);
    if (grey == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to read %s", file->path);
    }
    enum status status = STATUS_OK;
    while (left > 0 && status == STATUS_OK) {
        const size_t now = left < IMAGES_AT_ONCE_BYTES ? left : IMAGES_AT_ONCE_BYTES;
        status = read_exactly(file, grey, now);
        for (size_t i = 0; i < now && status == STATUS_OK; i++) {
            out[0] = out[1] = out[2] = grey[i];
            out += 3;
        }
        left -= now;
    }
    free(grey);
    return status;
}

static enum status read_images(struct memory_source *set, const char *path, size_t *count)
{
    struct gzip_file file;
    struct idx_header header = {0};
    enum status status = gzip_file_open(&file, path);
    if (status == STATUS_OK) {
        status = read_header(&file, &header);
    }
    if (status == STATUS_OK) {
        status = check_images(set, &file, &header);
    }
    if (status == STATUS_OK) {
        *count = header.size[0];
        status = memory_source_reserve(set, set->base.count + *count);
    }
    if (status == STATUS_OK) {
        status = read_values(set, &file, header.dimensions == 4 ? header.size[3] : 1, *count);
    }
    if (status == STATUS_OK) {
        status = check_end(&file);
    }
    gzip_file_close(&file);
    TRY(status);
    return STATUS_OK;
}

/* --- Labels -------------------------------------------------------------------------------- */

/* "train-images-idx3-ubyte.gz" -> "train-labels-idx1-ubyte", then with or without ".gz". */
static enum status find_labels(const char *images, char *path)
{
    (void)snprintf(path, PATH_MAX, "%s", images);
    char *name = strrchr(path, '/') != NULL ? strrchr(path, '/') + 1 : path;
    char *word = strstr(name, "images");
    char *kind = word != NULL ? strstr(word, "idx") : NULL;
    if (word == NULL) {
        return FAIL(STATUS_INVALID,
                    "the labels of %s cannot be found: its name must have the word images, that of "
                    "the labels the word labels",
                    images);
    }
    memcpy(word, "labels", 6);
    if (kind != NULL && kind[3] != '\0') {
        kind[3] = '1';
    }
    if (file_exists(path)) {
        return STATUS_OK;
    }
    const size_t length = strlen(path);
    if (ends_with(path, ".gz")) {
        path[length - 3] = '\0';
    } else if (length + 4 <= PATH_MAX) {
        memcpy(path + length, ".gz", 4);
    }
    if (file_exists(path)) {
        return STATUS_OK;
    }
    return FAIL(STATUS_NOT_FOUND, "the labels of %s are missing: there is no %s", images, path);
}

static enum status read_labels(struct memory_source *set, const char *path, size_t count)
{
    struct gzip_file file;
    struct idx_header header = {0};
    uint8_t *labels = malloc(count);
    enum status status = gzip_file_open(&file, path);
    if (status == STATUS_OK) {
        status = read_header(&file, &header);
    }
    if (status == STATUS_OK && (header.dimensions != 1 || header.size[0] != count)) {
        status = FAIL(STATUS_INVALID, "%s holds %u labels in %d dimensions for %zu images", path,
                      header.size[0], header.dimensions, count);
    }
    if (status == STATUS_OK && labels == NULL) {
        status = FAIL(STATUS_NO_MEMORY, "no memory to read %s", path);
    }
    if (status == STATUS_OK) {
        status = read_exactly(&file, labels, count);
    }
    if (status == STATUS_OK) {
        status = check_end(&file);
    }
    for (size_t i = 0; i < count && status == STATUS_OK; i++) {
        set->labels[set->base.count + i] = labels[i];
    }
    gzip_file_close(&file);
    free(labels);
    TRY(status);
    return STATUS_OK;
}

static enum status read_pair(struct memory_source *set, const char *images)
{
    char labels[PATH_MAX];
    size_t count = 0;
    TRY(find_labels(images, labels));
    TRY(memory_source_add_file(set, images, set->base.count));
    TRY(read_images(set, images, &count));
    TRY(read_labels(set, labels, count));
    set->base.count += count;
    return STATUS_OK;
}

/* --- The set ------------------------------------------------------------------------------- */

static enum status read_found(struct memory_source *set, const char *path,
                              const struct found *found)
{
    if (found->ambiguous) {
        return FAIL(STATUS_INVALID, "%s holds several sets of IDX files; give the file of the one",
                    path);
    }
    char *images = NULL;
    enum status status = STATUS_OK;
    if (found->train[0] != '\0') {
        images = file_join(found->folder, found->train);
        status = images == NULL ? FAIL(STATUS_NO_MEMORY, "no memory to open %s", path)
                                : read_pair(set, images);
        free(images);
        TRY(status);
    }
    set->base.train_count = set->base.count;
    if (found->val[0] != '\0') {
        images = file_join(found->folder, found->val);
        status = images == NULL ? FAIL(STATUS_NO_MEMORY, "no memory to open %s", path)
                                : read_pair(set, images);
        free(images);
        TRY(status);
    }
    if (set->base.train_count == 0) {
        set->base.train_count = set->base.count;
    }
    return STATUS_OK;
}

static enum status open_path(struct memory_source *set, const char *path)
{
    if (!file_is_folder(path)) {
        TRY(read_pair(set, path));
        set->base.train_count = set->base.count;
    } else {
        struct found *found = malloc(sizeof *found);
        enum status status = STATUS_OK;
        if (found == NULL || !find_files(path, found)) {
            status = FAIL(found == NULL ? STATUS_NO_MEMORY : STATUS_NOT_FOUND,
                          "no IDX files can be read from %s", path);
        } else {
            status = read_found(set, path, found);
        }
        free(found);
        TRY(status);
    }
    int classes = 0;
    for (size_t i = 0; i < set->base.count; i++) {
        classes = set->labels[i] >= classes ? set->labels[i] + 1 : classes;
    }
    return memory_source_number_classes(set, classes);
}

enum status idx_source_open(const char *path, struct source **out)
{
    *out = NULL;
    struct memory_source *set;
    TRY(memory_source_create(&set));
    *out = &set->base;
    const enum status status = open_path(set, path);
    if (status != STATUS_OK) {
        source_release(out);
        TRY(status);
    }
    return STATUS_OK;
}
