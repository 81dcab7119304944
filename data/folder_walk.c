/* The walk over the folders of a set, and their order. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "data/folder_index_internal.h"

enum status folder_walk__no_memory(const char *root)
{
    return FAIL(STATUS_NO_MEMORY,
                "no memory for the list of files of %s; use fewer files, or pack them", root);
}

/* Makes room for one more element of `size` bytes. */
bool folder_walk__grow(void **array, size_t *capacity, size_t count, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    const size_t wanted = *capacity == 0 ? 64 : *capacity * 2;
    void *larger = wanted > SIZE_MAX / size ? NULL : realloc(*array, wanted * size);
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    *capacity = wanted;
    return true;
}

/* Copies "folder/name" (or name alone) into the text; its offset goes to *at. */
static bool add_text(folder_index *index, const char *folder, const char *name, uint64_t *at)
{
    const size_t folder_bytes = *folder == '\0' ? 0 : strlen(folder);
    const size_t name_bytes = strlen(name);
    const size_t needed = index->text_bytes + folder_bytes + name_bytes + 2;
    if (needed > index->text_capacity) {
        size_t capacity = index->text_capacity == 0 ? 4096 : index->text_capacity * 2;
        while (capacity < needed) {
            capacity *= 2;
        }
        /* `folder` may lie in the text that moves. */
        const bool inside = folder_bytes > 0 && index->text != NULL && folder >= index->text &&
                            folder < index->text + index->text_bytes;
        const size_t folder_at = inside ? (size_t)(folder - index->text) : 0;
        char *larger = realloc(index->text, capacity);
        if (larger == NULL) {
            return false;
        }
        index->text = larger;
        index->text_capacity = capacity;
        if (inside) {
            folder = larger + folder_at;
        }
    }
    char *out = index->text + index->text_bytes;
    *at = index->text_bytes;
    if (folder_bytes > 0) {
        memcpy(out, folder, folder_bytes);
        out += folder_bytes;
        *out++ = '/';
    }
    memcpy(out, name, name_bytes + 1);
    index->text_bytes = (size_t)(out - index->text) + name_bytes + 1;
    return true;
}

const char *folder_walk__path(const folder_index *index, uint32_t folder)
{
    return folder == NO_FOLDER ? "" : index->text + index->folders[folder].path;
}

/* "root/below" for messages, with odd characters made visible. */
const char *folder_walk__show(const folder_index *index, const char *below, char *out, size_t bytes)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s%s%s", index->root, *below == '\0' ? "" : "/", below);
    return file_quote(path, out, bytes);
}

enum status folder_walk__add_folder(struct walk *walk, uint32_t parent, const char *name,
                                    int class_id)
{
    folder_index *index = walk->index;
    const char *parent_path = folder_walk__path(index, parent);
    if (strlen(index->root) + strlen(parent_path) + strlen(name) + 3 > PATH_MAX) {
        char text[512];
        return FAIL(STATUS_LIMIT,
                    "folders below %s are nested so deep that their paths exceed %d bytes; move "
                    "them up",
                    folder_walk__show(index, parent_path, text, sizeof text), PATH_MAX);
    }
    struct folder folder = {.class_id = class_id};
    void *folders = index->folders;
    void *identities = walk->identities;
    const bool room = folder_walk__grow(&folders, &index->folder_capacity, index->folder_count,
                                        sizeof *index->folders);
    index->folders = folders;
    const bool more_room = room && folder_walk__grow(&identities, &walk->identity_capacity,
                                                     index->folder_count, sizeof *walk->identities);
    walk->identities = identities;
    if (!more_room || index->folder_count >= NO_FOLDER ||
        !add_text(index, parent_path, name, &folder.path)) {
        return folder_walk__no_memory(index->root);
    }
    index->folders[index->folder_count] = folder;
    walk->identities[index->folder_count] = (struct identity){.parent = parent};
    index->folder_count++;
    return STATUS_OK;
}

static enum status add_file(struct walk *walk, uint32_t folder, const char *name, off_t bytes)
{
    folder_index *index = walk->index;
    struct folder_file file = {.folder = folder};
    if (bytes > 0 && (uint64_t)bytes <= UINT32_MAX) {
        file.bytes = (uint32_t)bytes;
    }
    if (index->file_count >= UINT32_MAX) {
        return FAIL(STATUS_LIMIT,
                    "%s holds more than 4,294,967,295 files, the most that a set can "
                    "have; divide it",
                    index->root);
    }
    if (strlen(index->root) + strlen(folder_walk__path(index, folder)) + strlen(name) + 3 >
        PATH_MAX) {
        char text[512];
        return FAIL(STATUS_LIMIT, "the path of %s exceeds %d bytes; move it up",
                    folder_walk__show(index, folder_walk__path(index, folder), text, sizeof text),
                    PATH_MAX);
    }
    void *files = index->files;
    const bool room =
        folder_walk__grow(&files, &index->file_capacity, index->file_count, sizeof *index->files);
    index->files = files;
    if (!room || !add_text(index, "", name, &file.name)) {
        return folder_walk__no_memory(index->root);
    }
    index->files[index->file_count++] = file;
    return STATUS_OK;
}

/* Adds as much of `text` as fits. */
static void append(char *out, size_t bytes, const char *text)
{
    const size_t used = strlen(out), length = strlen(text);
    const size_t room = bytes - used - 1;
    const size_t count = length < room ? length : room;
    memcpy(out + used, text, count);
    out[used + count] = '\0';
}

static void count_unsupported(struct walk *walk, uint32_t folder, const char *name)
{
    struct dataset_skipped *skipped = &walk->index->skipped;
    if (skipped->unsupported == 0) {
        const char *path = folder_walk__path(walk->index, folder);
        append(skipped->example, sizeof skipped->example, path);
        append(skipped->example, sizeof skipped->example, *path == '\0' ? "" : "/");
        append(skipped->example, sizeof skipped->example, name);
    }
    skipped->unsupported++;
    walk->class_skip++;
}

/* What an entry is, as far as the walk needs it. */
enum entry_kind { ENTRY_FOLDER, ENTRY_FILE, ENTRY_BROKEN, ENTRY_LOOP, ENTRY_OTHER };

/* Links are followed. The size is only asked for where it is wanted: an image costs one stat, what
 * the folder itself tells the type of and is no image costs none. */
static enum entry_kind look_at(int fd, const struct dirent *entry, bool image, off_t *bytes)
{
    *bytes = 0;
    if (entry->d_type == DT_DIR) {
        return ENTRY_FOLDER;
    }
    if (entry->d_type == DT_REG && !image) {
        return ENTRY_FILE;
    }
    if (entry->d_type != DT_REG && entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN) {
        return ENTRY_OTHER;
    }
    struct stat facts;
    if (fstatat(fd, entry->d_name, &facts, 0) != 0) {
        return errno == ELOOP ? ENTRY_LOOP : ENTRY_BROKEN;
    }
    if (S_ISDIR(facts.st_mode)) {
        return ENTRY_FOLDER;
    }
    *bytes = facts.st_size;
    return S_ISREG(facts.st_mode) ? ENTRY_FILE : ENTRY_OTHER;
}

/* Takes one entry of `folder`; at the root (NO_FOLDER) folders become classes. */
static enum status take_entry(struct walk *walk, int fd, uint32_t folder,
                              const struct dirent *entry)
{
    folder_index *index = walk->index;
    const enum folder_name_kind kind = folder_name_classify(entry->d_name);
    if (kind == FOLDER_NAME_HIDDEN) {
        index->skipped.hidden++;
        return STATUS_OK;
    }
    off_t bytes;
    switch (look_at(fd, entry, kind == FOLDER_NAME_IMAGE, &bytes)) {
    case ENTRY_FOLDER:
        return folder_walk__add_folder(walk, folder, entry->d_name,
                                       folder == NO_FOLDER ? -1 : index->folders[folder].class_id);
    case ENTRY_LOOP:
        index->skipped.loops++;
        return STATUS_OK;
    case ENTRY_FILE:
    case ENTRY_BROKEN:
        /* A link to nowhere that is named as an image is listed: reading it will fail by name,
         * where passing over it here would lose a sample in silence. */
        break;
    case ENTRY_OTHER:
        index->skipped.unknown_type++;
        return STATUS_OK;
    }
    if (kind == FOLDER_NAME_UNSUPPORTED) {
        count_unsupported(walk, folder, entry->d_name);
        return STATUS_OK;
    }
    if (kind == FOLDER_NAME_UNKNOWN) {
        index->skipped.unknown_type++;
        return STATUS_OK;
    }
    if (folder == NO_FOLDER) {
        walk->unused++;
        return STATUS_OK;
    }
    return add_file(walk, folder, entry->d_name, bytes);
}

static bool is_above(const struct walk *walk, uint32_t folder, const struct stat *facts)
{
    for (uint32_t at = folder; at != NO_FOLDER; at = walk->identities[at].parent) {
        if (walk->identities[at].device == facts->st_dev &&
            walk->identities[at].inode == facts->st_ino) {
            return true;
        }
    }
    for (size_t i = 0; i < walk->above_count; i++) {
        if (walk->above[i].device == facts->st_dev && walk->above[i].inode == facts->st_ino) {
            return true;
        }
    }
    return false;
}

static enum status read_entries(struct walk *walk, DIR *stream, uint32_t folder)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(stream);
        if (entry == NULL) {
            break;
        }
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) {
            continue;
        }
        TRY(take_entry(walk, dirfd(stream), folder, entry));
        walk->seen++;
        if (walk->seen % 1024 == 0) {
            TRY(stop_check());
        }
        if (walk->seen % 65536 == 0) {
            char text[64];
            (void)snprintf(text, sizeof text, "listing: %zu files", walk->seen);
            log_progress(text);
        }
    }
    if (errno != 0) {
        const int reason = errno;
        char text[512];
        return FAIL(STATUS_IO,
                    "the folder %s cannot be listed: %s; mend that or move the folder away",
                    folder_walk__show(walk->index, folder_walk__path(walk->index, folder), text,
                                      sizeof text),
                    strerror(reason));
    }
    return STATUS_OK;
}

/* Lists one folder; *looped says that it encloses itself and was left out. */
enum status folder_walk__list(struct walk *walk, uint32_t folder, bool *looped)
{
    folder_index *index = walk->index;
    *looped = false;
    const char *path = folder_walk__path(index, folder);
    const int fd =
        openat(walk->root_fd, *path == '\0' ? "." : path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat facts;
    if (fd < 0 || fstat(fd, &facts) != 0) {
        const int reason = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        char text[512];
        return FAIL(STATUS_IO,
                    "the folder %s cannot be opened: %s; make it readable or move it away",
                    folder_walk__show(index, path, text, sizeof text), strerror(reason));
    }
    if (folder != NO_FOLDER) {
        struct identity *identity = &walk->identities[folder];
        /* In a set without classes the root is a folder of the index and its own identity. */
        if (*path != '\0' && is_above(walk, identity->parent, &facts)) {
            (void)close(fd);
            *looped = true;
            index->skipped.loops++;
            return STATUS_OK;
        }
        identity->device = facts.st_dev;
        identity->inode = facts.st_ino;
    }
    DIR *stream = fdopendir(fd);
    if (stream == NULL) {
        (void)close(fd);
        return folder_walk__no_memory(index->root);
    }
    const enum status status = read_entries(walk, stream, folder);
    (void)closedir(stream);
    return status;
}

/* The root and everything above it: a link to any of these leads back. */
static enum status note_above(struct walk *walk)
{
    size_t capacity = 0;
    int fd = dup(walk->root_fd);
    struct stat facts;
    while (fd >= 0 && fstat(fd, &facts) == 0) {
        if (walk->above_count > 0 && walk->above[walk->above_count - 1].device == facts.st_dev &&
            walk->above[walk->above_count - 1].inode == facts.st_ino) {
            break; /* "/" is above itself */
        }
        void *above = walk->above;
        const bool room =
            folder_walk__grow(&above, &capacity, walk->above_count, sizeof *walk->above);
        walk->above = above;
        if (!room) {
            (void)close(fd);
            return folder_walk__no_memory(walk->index->root);
        }
        walk->above[walk->above_count++] =
            (struct identity){.device = facts.st_dev, .inode = facts.st_ino, .parent = NO_FOLDER};
        const int next = openat(fd, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        (void)close(fd);
        fd = next;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    return STATUS_OK;
}

enum status folder_walk__open_root(struct walk *walk)
{
    const char *root = walk->index->root;
    walk->root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (walk->root_fd >= 0) {
        return note_above(walk);
    }
    const int reason = errno;
    char text[512];
    (void)file_quote(root, text, sizeof text);
    if (reason == ENOENT) {
        return FAIL(STATUS_NOT_FOUND, "there is no folder %s; check the path", text);
    }
    if (reason == ENOTDIR) {
        return FAIL(STATUS_INVALID,
                    "%s is a file, not a folder; give the folder that holds the "
                    "class folders",
                    text);
    }
    return FAIL(STATUS_IO, "the folder %s cannot be opened: %s; mend that or move the folder away",
                text, strerror(reason));
}

static int compare_folders(const void *a, const void *b, void *context)
{
    const folder_index *index = context;
    return strcmp(folder_walk__path(index, *(const uint32_t *)a),
                  folder_walk__path(index, *(const uint32_t *)b));
}

static int compare_files(const void *a, const void *b, void *context)
{
    const char *text = context;
    const struct folder_file *left = a;
    const struct folder_file *right = b;
    if (left->folder != right->folder) {
        return left->folder < right->folder ? -1 : 1;
    }
    return strcmp(text + left->name, text + right->name);
}

/* Puts the folders of one class, and the files in them, into order. */
static enum status sort_class(struct walk *walk, size_t first_folder, size_t first_file)
{
    folder_index *index = walk->index;
    const size_t folders = index->folder_count - first_folder;
    if (folders > 1) {
        uint32_t *order = malloc(folders * sizeof *order);
        uint32_t *rank = malloc(folders * sizeof *rank);
        struct folder *sorted = malloc(folders * sizeof *sorted);
        if (order == NULL || rank == NULL || sorted == NULL) {
            free(order);
            free(rank);
            free(sorted);
            return folder_walk__no_memory(index->root);
        }
        for (size_t i = 0; i < folders; i++) {
            order[i] = (uint32_t)(first_folder + i);
        }
        qsort_r(order, folders, sizeof *order, compare_folders, index);
        for (size_t i = 0; i < folders; i++) {
            sorted[i] = index->folders[order[i]];
            rank[order[i] - first_folder] = (uint32_t)(first_folder + i);
        }
        memcpy(index->folders + first_folder, sorted, folders * sizeof *sorted);
        for (size_t i = first_file; i < index->file_count; i++) {
            index->files[i].folder = rank[index->files[i].folder - first_folder];
        }
        free(order);
        free(rank);
        free(sorted);
    }
    if (index->file_count > first_file) {
        qsort_r(index->files + first_file, index->file_count - first_file, sizeof *index->files,
                compare_files, index->text);
    }
    return STATUS_OK;
}

/* Lists everything below the folder that was added last. *looped as list_folder. */
enum status folder_walk__list_below(struct walk *walk, bool *looped)
{
    folder_index *index = walk->index;
    const size_t first_folder = index->folder_count - 1;
    const size_t first_file = index->file_count;
    walk->class_skip = 0;
    TRY(folder_walk__list(walk, (uint32_t)first_folder, looped));
    if (*looped) {
        index->folder_count--;
        return STATUS_OK;
    }
    for (size_t i = first_folder + 1; i < index->folder_count; i++) {
        bool inner_loop;
        TRY(folder_walk__list(walk, (uint32_t)i, &inner_loop));
    }
    return sort_class(walk, first_folder, first_file);
}
