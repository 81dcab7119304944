/* Class folders as a source of a set. */
#include <stdlib.h>

#include "data/dataset_internal.h"
#include "data/folder_index.h"

struct folder_source {
    struct source base;
    folder_index *index;
};

static const folder_index *index_of(const struct source *source)
{
    return ((const struct folder_source *)source)->index;
}

static int folder_label(const struct source *source, size_t sample)
{
    return folder_index_label(index_of(source), sample);
}

static char *folder_name(const struct source *source, size_t sample, char *text, size_t bytes)
{
    return folder_index_name(index_of(source), sample, text, bytes);
}

static void folder_locate(const struct source *source, size_t sample, char *path_text,
                          size_t path_bytes, struct sample_location *location)
{
    *location = (struct sample_location){
        .content = SAMPLE_FILE,
        .path = folder_index_path(index_of(source), sample, path_text, path_bytes),
        .bytes = folder_index_file_bytes(index_of(source), sample),
    };
}

static size_t folder_memory(const struct source *source)
{
    return sizeof(struct folder_source) + folder_index_memory(index_of(source));
}

static void folder_close(struct source *source)
{
    struct folder_source *self = (struct folder_source *)source;
    folder_index_close(&self->index);
    free(self);
}

enum status folder_source_open(const char *path, struct source **out)
{
    static const struct source_operations operations = {folder_label, folder_name, folder_locate,
                                                        folder_memory, folder_close};
    *out = NULL;
    struct folder_source *self = calloc(1, sizeof *self);
    if (self == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    self->base.operations = &operations;
    atomic_init(&self->base.references, 1);
    const enum status status = folder_index_open(path, FOLDER_CLASSES, &self->index);
    if (status != STATUS_OK) {
        free(self);
        TRY(status);
    }
    self->base.count = folder_index_count(self->index);
    self->base.train_count = self->base.count;
    self->base.class_count = folder_index_class_count(self->index);
    self->base.class_names = folder_index_class_names(self->index);
    folder_index_read_skipped(self->index, &self->base.skipped);
    *out = &self->base;
    return STATUS_OK;
}
