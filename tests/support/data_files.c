#include "tests/support/data_files.h"

#include <check.h>
#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

static char root[PATH_MAX];

/* Paths that were given out, freed at the end. */
struct kept_path {
    struct kept_path *next;
    char text[];
};
static struct kept_path *kept_paths;

void data_files_begin(void)
{
    const char *folder = getenv("TMPDIR");
    (void)snprintf(root, sizeof root, "%s/pinline_data_XXXXXX",
                   folder != NULL && folder[0] == '/' ? folder : "/tmp");
    ck_assert_ptr_nonnull(mkdtemp(root));
    /* A failed check ends the process without its fixture. */
    (void)atexit(data_files_end);
}

static int remove_one(const char *path, const struct stat *facts, int kind, struct FTW *walk)
{
    (void)facts;
    (void)kind;
    (void)walk;
    return remove(path);
}

void data_files_end(void)
{
    if (root[0] != '\0') {
        (void)nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        root[0] = '\0';
    }
    while (kept_paths != NULL) {
        struct kept_path *next = kept_paths->next;
        free(kept_paths);
        kept_paths = next;
    }
}

const char *data_files_path(const char *name)
{
    const size_t bytes = strlen(root) + strlen(name) + 2;
    struct kept_path *path = malloc(sizeof *path + bytes);
    ck_assert_ptr_nonnull(path);
    (void)snprintf(path->text, bytes, "%s/%s", root, name);
    path->next = kept_paths;
    kept_paths = path;
    return path->text;
}

static void make_parents(const char *path)
{
    char partial[PATH_MAX];
    (void)snprintf(partial, sizeof partial, "%s", path);
    for (char *at = partial + strlen(root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = '\0';
        (void)mkdir(partial, 0777);
        *at = '/';
    }
}

void data_files_folder(const char *name)
{
    const char *path = data_files_path(name);
    make_parents(path);
    (void)mkdir(path, 0777);
}

void data_files_write(const char *name, const void *data, size_t bytes)
{
    const char *path = data_files_path(name);
    make_parents(path);
    FILE *file = fopen(path, "wb");
    ck_assert_msg(file != NULL, "cannot make %s", path);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

void data_files_touch(const char *name)
{
    data_files_write(name, name, strlen(name));
}

void data_files_link(const char *target, const char *name)
{
    const char *path = data_files_path(name);
    make_parents(path);
    ck_assert_int_eq(symlink(target, path), 0);
}

void data_files_write_gz(const char *name, const void *data, size_t bytes)
{
    const char *path = data_files_path(name);
    make_parents(path);
    gzFile file = gzopen(path, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    ck_assert_int_eq(gzclose(file), Z_OK);
}

unsigned char *data_files_read(const char *name, size_t *bytes)
{
    const char *path = data_files_path(name);
    FILE *file = fopen(path, "rb");
    ck_assert_msg(file != NULL, "cannot read %s", path);
    ck_assert_int_eq(fseek(file, 0, SEEK_END), 0);
    const long size = ftell(file);
    ck_assert_int_ge(size, 0);
    rewind(file);
    unsigned char *data = malloc((size_t)size + 1);
    ck_assert_ptr_nonnull(data);
    ck_assert_uint_eq(fread(data, 1, (size_t)size, file), (size_t)size);
    (void)fclose(file);
    *bytes = (size_t)size;
    return data;
}
