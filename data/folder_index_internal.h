/* What the files that make a folder index share. */
#ifndef PINLINE_DATA_FOLDER_INDEX_INTERNAL_H
#define PINLINE_DATA_FOLDER_INDEX_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/status.h"
#include "data/folder_index.h"

#define NO_FOLDER UINT32_MAX

struct folder_file {
    uint64_t name; /* offset into `text` */
    uint32_t folder;
    uint32_t bytes; /* 0 when unknown */
};

struct folder {
    uint64_t path; /* below the root, offset into `text` */
    int class_id;
};

struct folder_index {
    char *root;
    char *text; /* every name and path, each closed by a zero */
    size_t text_bytes, text_capacity;
    struct folder_file *files;
    size_t file_count, file_capacity;
    struct folder *folders;
    size_t folder_count, folder_capacity;
    const char **class_names; /* into `text` */
    int class_count;
    struct dataset_skipped skipped;
};

/* Which folder this is, whatever the path that led to it, and what encloses it. */
struct identity {
    dev_t device;
    ino_t inode;
    uint32_t parent; /* number of a folder of the walk, or NO_FOLDER */
};

/* State of one listing; gone when it ends. */
struct walk {
    folder_index *index;
    int root_fd;
    struct identity *above; /* the root and the folders that enclose it */
    size_t above_count;
    struct identity *identities; /* one a folder of the index */
    size_t identity_capacity;
    size_t seen;       /* entries, for progress and stop */
    size_t unused;     /* images beside the class folders */
    size_t class_skip; /* unsupported images of the class in hand */
};

/* Fails for want of memory, naming the set. */
enum status folder_walk__no_memory(const char *root) MUST_USE;

/* Makes room for one more element of `size` bytes. */
bool folder_walk__grow(void **array, size_t *capacity, size_t count, size_t size);

/* The path of a folder below the root; "" for NO_FOLDER. */
const char *folder_walk__path(const folder_index *index, uint32_t folder);

/* "root/below" for messages, with odd characters made visible, in `out`, which is returned. */
const char *folder_walk__show(const folder_index *index, const char *below, char *out,
                              size_t bytes);

/* Opens the root and notes what encloses it. */
enum status folder_walk__open_root(struct walk *walk) MUST_USE;

/* Appends a folder below `parent` (NO_FOLDER: the root) to the index, to be listed later. */
enum status folder_walk__add_folder(struct walk *walk, uint32_t parent, const char *name,
                                    int class_id) MUST_USE;

/* Lists one folder, at NO_FOLDER the root, whose folders are added as the beginnings of classes.
 * *looped says that it encloses itself and was left out. */
enum status folder_walk__list(struct walk *walk, uint32_t folder, bool *looped) MUST_USE;

/* Lists everything below the folder that was added last and puts it into order. *looped as above:
 * then the folder was taken away again. */
enum status folder_walk__list_below(struct walk *walk, bool *looped) MUST_USE;

#endif
