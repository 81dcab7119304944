/*
 * The binary version of CIFAR-10 and CIFAR-100 (https://www.cs.toronto.edu/~kriz/cifar.html): records
 * without a header, each of one label (CIFAR-100: the coarse, then the fine one), 1,024 bytes of red,
 * 1,024 of green and 1,024 of blue, rows from the top. The fine labels of CIFAR-100 are used.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/dataset_internal.h"

#define EDGE 32
#define PLANE (EDGE * EDGE)
#define RECORDS_AT_ONCE 256
#define MOST_LABELS 2
/* CIFAR-10 has five files of training images; more of them do no harm. */
#define MOST_BATCHES 9

static const char *const python_hint =
    "these are the files for Python; fetch the binary version (data/fetch.sh cifar10 or cifar100)";

/* Whether folder/name or folder/name.gz is a file; its path goes to `path` (PATH_MAX bytes). */
static bool find_file(const char *folder, const char *name, char *path)
{
    static const char *const ends[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        const int length = snprintf(path, PATH_MAX, "%s/%s%s", folder, name, ends[i]);
        if (length < PATH_MAX && file_exists(path) && !file_is_folder(path)) {
            return true;
        }
    }
    return false;
}

/* Which files of a set lie in a folder. */
enum variant { CIFAR_NONE, CIFAR_10, CIFAR_100, CIFAR_PYTHON };

static enum variant look_into(const char *folder)
{
    char path[PATH_MAX];
    for (int i = 1; i <= MOST_BATCHES; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (find_file(folder, name, path)) {
            return CIFAR_10;
        }
    }
    if (find_file(folder, "train.bin", path)) {
        return CIFAR_100;
    }
    return find_file(folder, "data_batch_1", path) ? CIFAR_PYTHON : CIFAR_NONE;
}

/* The folder itself, or the one that the published archives unpack to. */
static enum variant find_folder(const char *path, char *folder)
{
    static const char *const below[] = {"", "/cifar-10-batches-bin", "/cifar-100-binary",
                                        "/cifar-10-batches-py"};
    for (size_t i = 0; i < sizeof below / sizeof below[0]; i++) {
        if (snprintf(folder, PATH_MAX, "%s%s", path, below[i]) < PATH_MAX) {
            const enum variant variant = look_into(folder);
            if (variant != CIFAR_NONE) {
                return variant;
            }
        }
    }
    return CIFAR_NONE;
}

static bool ends_with(const char *text, const char *end)
{
    const size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && strcmp(text + length - end_length, end) == 0;
}

bool cifar_recognise(const char *path)
{
    char folder[PATH_MAX];
    if (file_is_folder(path)) {
        return find_folder(path, folder) != CIFAR_NONE;
    }
    return ends_with(path, ".bin") || ends_with(path, ".bin.gz");
}

/* A file alone tells its variant by its name, and by what lies beside it. */
static enum variant variant_of_file(const char *path, const char *folder)
{
    const char *name = file_name(path);
    if (strncmp(name, "data_batch", 10) == 0 || strncmp(name, "test_batch", 10) == 0) {
        return CIFAR_10;
    }
    char beside[PATH_MAX];
    if (strncmp(name, "train.", 6) == 0 || strncmp(name, "test.", 5) == 0 ||
        find_file(folder, "fine_label_names.txt", beside)) {
        return CIFAR_100;
    }
    return CIFAR_10;
}

static enum status name_classes(struct memory_source *set, enum variant variant, const char *folder)
{
    static const char *const ten[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                      "dog",      "frog",       "horse", "ship", "truck"};
    const int expected = variant == CIFAR_10 ? 10 : 100;
    char path[PATH_MAX];
    if (find_file(folder, variant == CIFAR_10 ? "batches.meta.txt" : "fine_label_names.txt",
                  path)) {
        TRY(memory_source_read_classes(set, path));
        if (set->base.class_count != expected) {
            return FAIL(STATUS_INVALID, "%s names %d classes; the set has %d", path,
                        set->base.class_count, expected);
        }
        return STATUS_OK;
    }
    TRY(memory_source_number_classes(set, expected));
    for (int i = 0; i < 10 && variant == CIFAR_10; i++) {
        char *name = strdup(ten[i]);
        if (name == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for class names");
        }
        free(set->names[i]);
        set->names[i] = name;
    }
    return STATUS_OK;
}

static void interleave(const uint8_t *planes, uint8_t *pixels)
{
    for (size_t i = 0; i < PLANE; i++) {
        pixels[3 * i] = planes[i];
        pixels[3 * i + 1] = planes[PLANE + i];
        pixels[3 * i + 2] = planes[2 * PLANE + i];
    }
}

static enum status take_records(struct memory_source *set, const char *path, const uint8_t *records,
                                size_t count, int labels, size_t first)
{
    const size_t record_bytes = (size_t)labels + 3 * PLANE;
    for (size_t i = 0; i < count; i++) {
        const uint8_t *record = records + i * record_bytes;
        const size_t sample = set->base.count + i;
        if (record[labels - 1] >= set->base.class_count) {
            return FAIL(STATUS_INVALID,
                        "%s: record %zu has label %d, but the set has %d classes; this is no CIFAR "
                        "file or it is damaged",
                        path, sample - first, record[labels - 1], set->base.class_count);
        }
        set->labels[sample] = record[labels - 1];
        interleave(record + labels, set->pixels + sample * 3 * PLANE);
    }
    set->base.count += count;
    return STATUS_OK;
}

static enum status read_records(struct memory_source *set, struct gzip_file *file, int labels,
                                uint8_t *records)
{
    const size_t record_bytes = (size_t)labels + 3 * PLANE;
    const size_t first = set->base.count;
    size_t capacity = first;
    size_t got;
    do {
        TRY(gzip_file_read(file, records, RECORDS_AT_ONCE * record_bytes, &got));
        if (got % record_bytes != 0) {
            return FAIL(
                STATUS_INVALID,
                "%s has %llu bytes, which is no multiple of CIFAR's %zu; it is cut or not a "
                "CIFAR file",
                file->path, (unsigned long long)file->bytes_read, record_bytes);
        }
        const size_t count = got / record_bytes;
        if (set->base.count + count > capacity) {
            capacity = capacity + capacity / 2 + 8192;
            TRY(memory_source_reserve(set, capacity));
        }
        TRY(take_records(set, file->path, records, count, labels, first));
    } while (got == RECORDS_AT_ONCE * record_bytes);
    if (set->base.count == first) {
        return FAIL(STATUS_INVALID, "%s is empty; fetch it again", file->path);
    }
    return memory_source_reserve(set, set->base.count);
}

static enum status read_file(struct memory_source *set, const char *path, enum variant variant)
{
    const int labels = variant == CIFAR_10 ? 1 : 2;
    TRY(memory_source_add_file(set, path, set->base.count));
    uint8_t *records = malloc(RECORDS_AT_ONCE * (MOST_LABELS + 3 * (size_t)PLANE));
    if (records == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to read %s", path);
    }
    struct gzip_file file;
    enum status status = gzip_file_open(&file, path);
    if (status == STATUS_OK) {
        status = read_records(set, &file, labels, records);
    }
    gzip_file_close(&file);
    free(records);
    TRY(status);
    return STATUS_OK;
}

static enum status read_folder(struct memory_source *set, const char *folder, enum variant variant)
{
    char path[PATH_MAX];
    if (variant == CIFAR_PYTHON) {
        return FAIL(STATUS_UNSUPPORTED, "%s: %s", folder, python_hint);
    }
    TRY(name_classes(set, variant, folder));
    if (variant == CIFAR_100) {
        (void)find_file(folder, "train.bin", path);
        TRY(read_file(set, path, variant));
    }
    for (int i = 1; i <= MOST_BATCHES && variant == CIFAR_10; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "data_batch_%d.bin", i);
        if (find_file(folder, name, path)) {
            TRY(read_file(set, path, variant));
        }
    }
    set->base.train_count = set->base.count;
    if (find_file(folder, variant == CIFAR_10 ? "test_batch.bin" : "test.bin", path)) {
        TRY(read_file(set, path, variant));
    }
    return STATUS_OK;
}

static enum status open_path(struct memory_source *set, const char *path)
{
    char folder[PATH_MAX];
    if (file_is_folder(path)) {
        const enum variant variant = find_folder(path, folder);
        return read_folder(set, folder, variant);
    }
    if (snprintf(folder, sizeof folder, "%s", path) >= (int)sizeof folder) {
        return FAIL(STATUS_INVALID, "the path %.200s... is too long", path);
    }
    char *slash = strrchr(folder, '/');
    if (slash != NULL) {
        *slash = '\0';
    }
    const char *beside = slash == NULL ? "." : slash == folder ? "/" : folder;
    const enum variant variant = variant_of_file(path, beside);
    TRY(name_classes(set, variant, beside));
    TRY(read_file(set, path, variant));
    set->base.train_count = set->base.count;
    return STATUS_OK;
}

enum status cifar_source_open(const char *path, struct source **out)
{
    *out = NULL;
    struct memory_source *set;
    TRY(memory_source_create(&set));
    set->width = EDGE;
    set->height = EDGE;
    *out = &set->base;
    const enum status status = open_path(set, path);
    if (status != STATUS_OK) {
        source_release(out);
        TRY(status);
    }
    return STATUS_OK;
}
