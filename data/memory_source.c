/* Images that are read into memory whole: the common part of CIFAR and IDX files. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/size.h"
#include "data/dataset_internal.h"

/* No file of class names is longer. */
#define MOST_NAME_BYTES ((size_t)1 << 20)

static const struct memory_source *self_of(const struct source *source)
{
    return (const struct memory_source *)source;
}

static int memory_label(const struct source *source, size_t sample)
{
    return self_of(source)->labels[sample];
}

/* "data_batch_1.bin#17": the file and the number in it, from 0. */
static char *memory_name(const struct source *source, size_t sample, char *text, size_t bytes)
{
    const struct memory_source *self = self_of(source);
    int file = self->file_count - 1;
    while (file > 0 && self->file_first[file] > sample) {
        file--;
    }
    (void)snprintf(text, bytes, "%s#%zu", self->file_names[file], sample - self->file_first[file]);
    return text;
}

static void memory_locate(const struct source *source, size_t sample, char *path_text,
                          size_t path_bytes, struct sample_location *location)
{
    const struct memory_source *self = self_of(source);
    const size_t bytes = (size_t)self->width * (size_t)self->height * 3;
    if (path_bytes > 0) {
        path_text[0] = '\0';
    }
    *location = (struct sample_location){
        .content = SAMPLE_PIXELS,
        .data = self->pixels + sample * bytes,
        .bytes = bytes,
        .width = self->width,
        .height = self->height,
    };
}

static size_t memory_memory(const struct source *source)
{
    const struct memory_source *self = self_of(source);
    return sizeof *self +
           source->count * ((size_t)self->width * (size_t)self->height * 3 + sizeof *self->labels);
}

static void memory_close(struct source *source)
{
    struct memory_source *self = (struct memory_source *)source;
    free(self->pixels);
    free(self->labels);
    for (int i = 0; self->names != NULL && i < source->class_count; i++) {
        free(self->names[i]);
    }
    free(self->names);
    for (int i = 0; i < self->file_count; i++) {
        free(self->file_names[i]);
    }
    free(self);
}

enum status memory_source_create(struct memory_source **out)
{
    static const struct source_operations operations = {memory_label, memory_name, memory_locate,
                                                        memory_memory, memory_close};
    *out = calloc(1, sizeof **out);
    if (*out == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open a set");
    }
    (*out)->base.operations = &operations;
    atomic_init(&(*out)->base.references, 1);
    return STATUS_OK;
}

enum status memory_source_add_file(struct memory_source *source, const char *path, size_t first)
{
    const size_t capacity = sizeof source->file_names / sizeof source->file_names[0];
    if ((size_t)source->file_count >= capacity) {
        return FAIL(STATUS_LIMIT, "more than %zu data files beside %s; give one of them", capacity,
                    path);
    }
    char *name = strdup(file_name(path));
    if (name == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    const size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, ".gz") == 0) {
        name[length - 3] = '\0';
    }
    source->file_names[source->file_count] = name;
    source->file_first[source->file_count] = first;
    source->file_count++;
    return STATUS_OK;
}

enum status memory_source_reserve(struct memory_source *source, size_t count)
{
    size_t bytes = 0;
    const size_t edge_bytes = (size_t)source->width * (size_t)source->height * 3;
    void *pixels = NULL;
    void *labels = NULL;
    if (size_multiply(edge_bytes, count, &bytes)) {
        pixels = realloc(source->pixels, bytes);
        source->pixels = pixels != NULL ? pixels : source->pixels;
        labels = realloc(source->labels, count * sizeof *source->labels);
        source->labels = labels != NULL ? labels : source->labels;
    }
    if (pixels == NULL || labels == NULL) {
        return FAIL(STATUS_NO_MEMORY,
                    "no memory for %zu images of %d x %d; such files are held in memory whole",
                    count, source->width, source->height);
    }
    return STATUS_OK;
}

static enum status take_names(struct memory_source *source, int count)
{
    source->names = calloc((size_t)count, sizeof *source->names);
    if (source->names == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d class names", count);
    }
    source->base.class_count = count;
    source->base.class_names = (const char *const *)source->names;
    return STATUS_OK;
}

enum status memory_source_number_classes(struct memory_source *source, int count)
{
    TRY(take_names(source, count));
    for (int i = 0; i < count; i++) {
        char text[16];
        (void)snprintf(text, sizeof text, "%d", i);
        source->names[i] = strdup(text);
        if (source->names[i] == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for %d class names", count);
        }
    }
    return STATUS_OK;
}

enum status memory_source_read_classes(struct memory_source *source, const char *path)
{
    void *data = NULL;
    size_t bytes;
    TRY(file_read(path, MOST_NAME_BYTES, &data, &bytes));
    char *text = data;
    int count = 0;
    /* Two passes over the lines: one counts, one keeps. */
    for (size_t i = 0; i < bytes; i++) {
        text[i] = text[i] == '\n' || text[i] == '\r' ? '\0' : text[i];
    }
    for (size_t i = 0; i < bytes; i += strlen(text + i) + 1) {
        count += text[i] != '\0';
    }
    enum status status = STATUS_OK;
    if (count == 0) {
        status = FAIL(STATUS_INVALID, "%s holds no class names", path);
    } else {
        status = take_names(source, count);
    }
    int next = 0;
    for (size_t i = 0; i < bytes && status == STATUS_OK; i += strlen(text + i) + 1) {
        if (text[i] == '\0') {
            continue;
        }
        source->names[next] = strdup(text + i);
        if (source->names[next++] == NULL) {
            status = FAIL(STATUS_NO_MEMORY, "no memory for %d class names", count);
        }
    }
    free(data);
    TRY(status);
    return STATUS_OK;
}
