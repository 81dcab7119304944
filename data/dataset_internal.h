/* What the kinds of sets have in common, for the files of data/ alone. */
#ifndef PINLINE_DATA_DATASET_INTERNAL_H
#define PINLINE_DATA_DATASET_INTERNAL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

/* Images of one place: a folder, a packed file, the files of CIFAR or MNIST. The kinds embed it as
 * their first member. Read-only after opening; shared by the sets that were made of it. */
struct source {
    const struct source_operations *operations;
    size_t count;       /* all samples; those of validation follow those of training */
    size_t train_count; /* equals count where the place has no division of its own */
    int class_count;
    const char *const *class_names;
    struct dataset_skipped skipped;
    atomic_int references;
};

/* The first three are called by the loader's workers too, in which no descriptor of the opener's is open:
 * what a source reads from there is mapped, in memory, or opened by its path. */
struct source_operations {
    int (*label)(const struct source *source, size_t sample);
    char *(*name)(const struct source *source, size_t sample, char *text, size_t bytes);
    void (*locate)(const struct source *source, size_t sample, char *path_text, size_t path_bytes,
                   struct sample_location *location);
    size_t (*memory)(const struct source *source);
    void (*close)(struct source *source); /* frees the source itself too */
};

/* Openers. *out has one reference, and is NULL on failure; statuses as dataset_open. */
enum status folder_source_open(const char *path, struct source **out) MUST_USE;
enum status packed_source_open(const char *path, struct source **out) MUST_USE;
/* `path` is one of the files or a folder that holds them. */
enum status cifar_source_open(const char *path, struct source **out) MUST_USE;
enum status idx_source_open(const char *path, struct source **out) MUST_USE;

/* Whether path holds, or is, such files; from names and first bytes, without a message. */
bool cifar_recognise(const char *path);
bool idx_recognise(const char *path);

/* Adds a reference; returns the source. */
struct source *source_share(struct source *source);
/* Gives one back, the last of which closes the source; *source becomes NULL. Accepts NULL inside. */
void source_release(struct source **source);

/* What one path offers: training samples, and validation samples where it is divided. Zero is
 * empty. */
struct offer {
    struct source *train, *val; /* each one reference; may be the same source; val may be NULL */
    size_t train_first, train_count, val_first, val_count;
};

/* Finds out what `path` is and opens it. *offer may be half-built on failure: release it always.
 * Statuses as dataset_open. */
enum status offer_open(const char *path, struct offer *offer) MUST_USE;
void offer_release(struct offer *offer);

/* Where both have the same class names: *map holds for each class of `from` its number in `to`
 * (malloc, the caller frees), or is NULL when these are equal throughout. STATUS_INVALID names the
 * classes that only one side has; STATUS_NO_MEMORY. */
enum status class_match(const struct source *to, const struct source *from, int **map) MUST_USE;

/* Images in memory with a label each: what CIFAR and IDX files become. */
struct memory_source {
    struct source base;
    int width, height;
    uint8_t *pixels;  /* count x height x width x 3 */
    uint16_t *labels; /* count */
    char **names;     /* class_count, each malloc'ed */
    /* Where the samples come from, for their names: file f holds samples file_first[f] up to
     * file_first[f + 1]. */
    int file_count;
    char *file_names[16]; /* malloc'ed, without ".gz" */
    size_t file_first[17];
};

/* Makes an empty one whose operations are set. *out is NULL on failure. STATUS_NO_MEMORY. */
enum status memory_source_create(struct memory_source **out) MUST_USE;
/* Appends a file of samples by its path; its samples end where the next file's begin. */
enum status memory_source_add_file(struct memory_source *source, const char *path,
                                   size_t first) MUST_USE;
/* Enlarges pixels and labels to hold `count` samples of width x height. STATUS_NO_MEMORY. */
enum status memory_source_reserve(struct memory_source *source, size_t count) MUST_USE;
/* Names the classes "0", "1", ... up to `count` - 1. STATUS_NO_MEMORY. */
enum status memory_source_number_classes(struct memory_source *source, int count) MUST_USE;
/* Reads one class name a line; empty lines end nothing and name nothing. STATUS_NOT_FOUND without a
 * file of that name. */
enum status memory_source_read_classes(struct memory_source *source, const char *path) MUST_USE;

/* --- A file that may be compressed by gzip ------------------------------------------------- */

struct gzip_file {
    void *stream;
    const char *path;    /* the caller's */
    uint64_t file_bytes; /* on disk */
    uint64_t bytes_read; /* after decompression */
};

/* Opens a regular file. STATUS_NOT_FOUND, STATUS_INVALID (no regular file), STATUS_IO,
 * STATUS_NO_MEMORY. */
enum status gzip_file_open(struct gzip_file *file, const char *path) MUST_USE;
/* Reads up to `bytes` bytes; *got is less only at the end of the data. STATUS_INVALID for compressed
 * data that is damaged or cut; STATUS_IO; STATUS_INTERRUPTED. */
enum status gzip_file_read(struct gzip_file *file, void *data, size_t bytes, size_t *got) MUST_USE;
/* Accepts a file that was never opened (all zero). */
void gzip_file_close(struct gzip_file *file);
/* The most that this file can hold after decompression (deflate reaches 1032 to 1). */
uint64_t gzip_file_most_bytes(const struct gzip_file *file);

#endif
