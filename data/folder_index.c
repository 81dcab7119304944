#include "data/folder_index.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "data/folder_index_internal.h"

/* How many classes without images a message names. */
#define NAMED_CLASSES 5

/* --- Names --------------------------------------------------------------------------------- */

static char lower(char letter)
{
    return letter >= 'A' && letter <= 'Z' ? (char)(letter - 'A' + 'a') : letter;
}

static bool same_but_case(const char *text, const char *lower_case)
{
    while (*text != '\0' && lower(*text) == *lower_case) {
        text++;
        lower_case++;
    }
    return *text == '\0' && *lower_case == '\0';
}

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list != NULL; list++) {
        if (same_but_case(text, *list)) {
            return true;
        }
    }
    return false;
}

enum folder_name_kind folder_name_classify(const char *name)
{
    static const char *const images[] = {"jpg", "jpeg", "png", "bmp", "gif", "tga",
                                         "psd", "pnm",  "ppm", "pgm", NULL};
    static const char *const unsupported[] = {"webp", "tif", "tiff", "heic", "heif",
                                              "avif", "jxl", "jp2",  NULL};
    static const char *const litter[] = {"thumbs.db", "desktop.ini", "__macosx", "lost+found",
                                         NULL};
    if (name[0] == '.' || is_one_of(name, litter)) {
        return FOLDER_NAME_HIDDEN;
    }
    const char *dot = strrchr(name, '.');
    if (dot == NULL) {
        return FOLDER_NAME_UNKNOWN;
    }
    if (is_one_of(dot + 1, images)) {
        return FOLDER_NAME_IMAGE;
    }
    return is_one_of(dot + 1, unsupported) ? FOLDER_NAME_UNSUPPORTED : FOLDER_NAME_UNKNOWN;
}

/* --- Classes ------------------------------------------------------------------------------- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The classes that hold nothing, for one message. */
struct empty_classes {
    size_t count;
    size_t unsupported; /* images in them that cannot be read */
    char names[512];
};

static void note_empty(struct empty_classes *empty, const char *name, size_t unsupported)
{
    if (empty->count < NAMED_CLASSES) {
        char quoted[128];
        (void)file_quote(name, quoted, sizeof quoted);
        const size_t used = strlen(empty->names);
        (void)snprintf(empty->names + used, sizeof empty->names - used, "%s%s",
                       empty->count == 0 ? "" : ", ", quoted);
    }
    empty->count++;
    empty->unsupported += unsupported;
}

static enum status check_classes(const struct walk *walk, const struct empty_classes *empty)
{
    const folder_index *index = walk->index;
    char root[512];
    (void)folder_walk__show(index, "", root, sizeof root);
    if (index->class_count == 0 && empty->count == 0) {
        return FAIL(STATUS_INVALID,
                    walk->unused > 0
                        ? "%s holds images but no class folders; put the images of each class into "
                          "a folder of its own, named as the class"
                        : "%s holds no class folders; expected is a folder a class with its images "
                          "in it, or train/ and val/ with such folders",
                    root);
    }
    if (empty->count > 0) {
        return FAIL(STATUS_INVALID, "%s: %zu of %zu classes hold no images: %s%s; %s", root,
                    empty->count, empty->count + (size_t)index->class_count, empty->names,
                    empty->count > NAMED_CLASSES ? ", ..." : "",
                    empty->unsupported > 0
                        ? "they hold TIFF, WebP or other images that are not read: convert these "
                          "to PNG or JPEG"
                        : "add images or remove the folders");
    }
    return STATUS_OK;
}

/* Lists the classes in the order of their names; *empty tells of those without images. */
static enum status list_named(struct walk *walk, char *const *names, size_t count,
                              struct empty_classes *empty)
{
    folder_index *index = walk->index;
    for (size_t i = 0; i < count; i++) {
        const size_t first_file = index->file_count;
        bool looped;
        TRY(folder_walk__add_folder(walk, NO_FOLDER, names[i], index->class_count));
        TRY(folder_walk__list_below(walk, &looped));
        if (!looped && index->file_count == first_file) {
            note_empty(empty, names[i], walk->class_skip);
        } else if (!looped) {
            index->class_count++;
        }
    }
    return STATUS_OK;
}

static enum status list_classes(struct walk *walk)
{
    folder_index *index = walk->index;
    bool looped;
    TRY(folder_walk__list(walk, NO_FOLDER, &looped));

    /* The root's folders leave the table again and come back one by one in order, each followed by
     * what lies below it. */
    const size_t found = index->folder_count;
    index->class_names = calloc(found + 1, sizeof *index->class_names);
    char **names = calloc(found + 1, sizeof *names);
    if (names == NULL || index->class_names == NULL) {
        free(names);
        return folder_walk__no_memory(index->root);
    }
    enum status status = STATUS_OK;
    for (size_t i = 0; i < found && status == STATUS_OK; i++) {
        names[i] = strdup(folder_walk__path(index, (uint32_t)i));
        status = names[i] == NULL ? folder_walk__no_memory(index->root) : STATUS_OK;
    }
    index->folder_count = 0;
    index->text_bytes = 0;
    struct empty_classes empty = {0};
    if (status == STATUS_OK) {
        qsort(names, found, sizeof *names, compare_names);
        status = list_named(walk, names, found, &empty);
    }
    for (size_t i = 0; i < found; i++) {
        free(names[i]);
    }
    free(names);
    TRY(status);
    return check_classes(walk, &empty);
}

static enum status list_flat(struct walk *walk)
{
    bool looped;
    TRY(folder_walk__add_folder(walk, NO_FOLDER, "", 0));
    TRY(folder_walk__list_below(walk, &looped));
    if (walk->index->file_count == 0) {
        char root[512];
        return FAIL(STATUS_INVALID,
                    "%s holds no images (jpg, png, bmp, gif, tga, psd, pnm); check the path",
                    folder_walk__show(walk->index, "", root, sizeof root));
    }
    return STATUS_OK;
}

/* --- Opening ------------------------------------------------------------------------------- */

/* `memory` cut to `bytes`; where that fails, as it was. */
static void *cut(void *memory, size_t bytes)
{
    /* For nothing, realloc may free and return NULL. */
    void *smaller = bytes > 0 ? realloc(memory, bytes) : NULL;
    return smaller != NULL ? smaller : memory;
}

/* Gives back what was reserved beyond need. */
static void shrink(folder_index *index)
{
    index->files = cut(index->files, index->file_count * sizeof *index->files);
    index->file_capacity = index->file_count;
    index->folders = cut(index->folders, index->folder_count * sizeof *index->folders);
    index->folder_capacity = index->folder_count;
    index->text = cut(index->text, index->text_bytes);
    index->text_capacity = index->text_bytes;
}

/* The path of a class's own folder is its name; such folders have no slash in their paths. */
static void find_class_names(folder_index *index)
{
    for (size_t i = 0; i < index->folder_count && index->class_count > 0; i++) {
        const char *path = folder_walk__path(index, (uint32_t)i);
        if (strchr(path, '/') == NULL) {
            index->class_names[index->folders[i].class_id] = path;
        }
    }
}

static enum status list_all(struct walk *walk, enum folder_layout layout)
{
    TRY(folder_walk__open_root(walk));
    TRY(layout == FOLDER_CLASSES ? list_classes(walk) : list_flat(walk));
    shrink(walk->index);
    find_class_names(walk->index);
    if (walk->unused > 0) {
        char root[512];
        log_warn("%zu images lie directly in %s, beside its class folders, and are not used",
                 walk->unused, folder_walk__show(walk->index, "", root, sizeof root));
    }
    return STATUS_OK;
}

enum status folder_index_open(const char *root, enum folder_layout layout, folder_index **out)
{
    *out = NULL;
    folder_index *index = calloc(1, sizeof *index);
    if (index == NULL) {
        return folder_walk__no_memory(root);
    }
    index->root = strdup(root);
    if (index->root == NULL) {
        folder_index_close(&index);
        return folder_walk__no_memory(root);
    }
    for (size_t end = strlen(index->root); end > 1 && index->root[end - 1] == '/'; end--) {
        index->root[end - 1] = '\0';
    }
    struct walk walk = {.index = index, .root_fd = -1};
    const enum status status = list_all(&walk, layout);
    if (walk.seen >= 65536) {
        log_progress(NULL);
    }
    if (walk.root_fd >= 0) {
        (void)close(walk.root_fd);
    }
    free(walk.above);
    free(walk.identities);
    if (status != STATUS_OK) {
        folder_index_close(&index);
        TRY(status);
    }
    *out = index;
    return STATUS_OK;
}

void folder_index_close(folder_index **index)
{
    if (*index == NULL) {
        return;
    }
    free((*index)->root);
    free((*index)->text);
    free((*index)->files);
    free((*index)->folders);
    free((*index)->class_names);
    free(*index);
    *index = NULL;
}

/* --- Reading ------------------------------------------------------------------------------- */

size_t folder_index_count(const folder_index *index)
{
    return index->file_count;
}

int folder_index_class_count(const folder_index *index)
{
    return index->class_count;
}

const char *const *folder_index_class_names(const folder_index *index)
{
    return index->class_names;
}

int folder_index_label(const folder_index *index, size_t file)
{
    return index->folders[index->files[file].folder].class_id;
}

char *folder_index_name(const folder_index *index, size_t file, char *text, size_t bytes)
{
    const struct folder_file *entry = &index->files[file];
    const char *folder = folder_walk__path(index, entry->folder);
    (void)snprintf(text, bytes, "%s%s%s", folder, *folder == '\0' ? "" : "/",
                   index->text + entry->name);
    return text;
}

char *folder_index_path(const folder_index *index, size_t file, char *text, size_t bytes)
{
    const struct folder_file *entry = &index->files[file];
    const char *folder = folder_walk__path(index, entry->folder);
    const bool at_root = strcmp(index->root, "/") == 0;
    (void)snprintf(text, bytes, "%s%s%s%s%s", index->root, at_root ? "" : "/", folder,
                   *folder == '\0' ? "" : "/", index->text + entry->name);
    return text;
}

uint32_t folder_index_file_bytes(const folder_index *index, size_t file)
{
    return index->files[file].bytes;
}

void folder_index_read_skipped(const folder_index *index, struct dataset_skipped *skipped)
{
    *skipped = index->skipped;
}

size_t folder_index_memory(const folder_index *index)
{
    return sizeof *index + index->text_capacity + index->file_capacity * sizeof *index->files +
           index->folder_capacity * sizeof *index->folders +
           ((size_t)index->class_count + 1) * sizeof *index->class_names;
}
