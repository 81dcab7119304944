/* Folders and files for tests of data: made in a temporary folder, removed with it. Failures of the
 * system end the test. */
#ifndef PINLINE_TESTS_SUPPORT_DATA_FILES_H
#define PINLINE_TESTS_SUPPORT_DATA_FILES_H

#include <stddef.h>

/* A fixture: makes an empty folder; removes it and everything in it. */
void data_files_begin(void);
void data_files_end(void);

/* The path of `name` in the temporary folder, valid until data_files_end. */
const char *data_files_path(const char *name);

/* Makes a folder with its parents, relative to the temporary one. */
void data_files_folder(const char *name);
/* Makes a file and its parents. */
void data_files_write(const char *name, const void *data, size_t bytes);
/* A file whose content is its own name. */
void data_files_touch(const char *name);
/* A symbolic link `name` with the text `target`. */
void data_files_link(const char *target, const char *name);
/* The same bytes compressed as gzip. */
void data_files_write_gz(const char *name, const void *data, size_t bytes);
/* Reads a file whole into malloc'ed memory. */
unsigned char *data_files_read(const char *name, size_t *bytes);

#endif
