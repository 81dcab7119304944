/*
 * The files of a class folder, or of a folder without classes, found and put into order once.
 *
 * Layout as torchvision's ImageFolder: each folder directly below the root is a class, whose images
 * lie in it or in folders below it. Classes are in the order of the bytes of their names; within a
 * class, folders are in the order of their paths and files in that of their names, whatever the
 * locale. Links to files and folders are followed; a link to a folder that encloses it is not.
 *
 * Listed are, in any case: jpg jpeg png bmp gif tga psd pnm ppm pgm. Names that begin with a dot,
 * Thumbs.db, desktop.ini, __MACOSX and lost+found are passed over, as are files of other types.
 *
 * Each file costs one name, without its folder, and 16 bytes; each is looked at by one stat at most.
 * Read-only after opening; thread-safe.
 */
#ifndef PINLINE_DATA_FOLDER_INDEX_H
#define PINLINE_DATA_FOLDER_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

typedef struct folder_index folder_index;

enum folder_layout {
    FOLDER_CLASSES, /* each folder below the root is a class, which must hold an image */
    FOLDER_FLAT     /* every image below the root, without classes: class_count is 0 */
};

/*
 * Lists `root`. *out is NULL on failure.
 * STATUS_NOT_FOUND: no such folder. STATUS_INVALID: a file; no images; FOLDER_CLASSES also: no class
 * folders, classes without images (named). STATUS_IO: a folder below that cannot be read.
 * STATUS_LIMIT: 2^32 files, or folders nested so deep that a path would exceed PATH_MAX.
 * STATUS_NO_MEMORY, STATUS_INTERRUPTED.
 */
enum status folder_index_open(const char *root, enum folder_layout layout,
                              folder_index **out) MUST_USE;
/* Accepts NULL inside; *index becomes NULL. */
void folder_index_close(folder_index **index);

size_t folder_index_count(const folder_index *index); /* >= 1 */
int folder_index_class_count(const folder_index *index);
/* The table of all names, class_count of them, as on disk. */
const char *const *folder_index_class_names(const folder_index *index);
int folder_index_label(const folder_index *index, size_t file); /* 0 where there are no classes */

/* The path below the root, "cat/more/001.jpg"; cut to `bytes`. Returns text. */
char *folder_index_name(const folder_index *index, size_t file, char *text, size_t bytes);
/* The path that opens the file: root and name. Returns text. */
char *folder_index_path(const folder_index *index, size_t file, char *text, size_t bytes);
/* Size when it was listed; 0 where unknown (a broken link, 4 GiB and more). */
uint32_t folder_index_file_bytes(const folder_index *index, size_t file);

void folder_index_read_skipped(const folder_index *index, struct dataset_skipped *skipped);
size_t folder_index_memory(const folder_index *index); /* bytes */

/* What an entry of a folder is, told from its name alone. */
enum folder_name_kind {
    FOLDER_NAME_IMAGE,
    FOLDER_NAME_UNSUPPORTED, /* an image that this program does not read */
    FOLDER_NAME_UNKNOWN,
    FOLDER_NAME_HIDDEN
};
enum folder_name_kind folder_name_classify(const char *name);

#endif
