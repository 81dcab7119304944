/*
 * A labelled set of images: what there is, not how it is decoded. It comes from a folder of classes
 * (as torchvision's ImageFolder), a packed file of `pinline pack`, CIFAR's binary files, or IDX
 * files (MNIST). A dataset is read-only after opening; every function on it may be called from any
 * thread.
 */
#ifndef PINLINE_DATA_DATASET_H
#define PINLINE_DATA_DATASET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct dataset dataset;

/* Where the training and validation images are; data/README.md lists all that a place may be. Zero
 * is a usable value of each field but `data`; the commands' defaults are in their option table. */
struct dataset_settings {
    const char *data;     /* a folder or file; required */
    const char *val_data; /* a second folder or file for validation, or NULL */
    /* Share of the samples that is held out where there is neither val_data nor val/ or test/ inside
     * data, 0 (none) to 0.9. A sample is held out when the hash of its name says so, so adding files
     * moves no others. */
    double val_fraction;
    size_t limit_samples; /* > 0: at most so many training samples, spread evenly over the set */
};

/*
 * Opens training and validation set. `data` that holds train/ and val/, valid/, validation/ or test/
 * means those; such names are then never classes. *val is NULL where `val_fraction` is 0 and nothing
 * else is given, and, with a warning, where no sample falls into the share. A caller that wants
 * everything as one set passes val == NULL; names then begin with "train/" or "val/" where the place
 * is divided. Either set may be closed before the other.
 * Both sets have the same class table; classes that only one has are STATUS_INVALID, named.
 * STATUS_USAGE: a field out of its range. STATUS_NOT_FOUND: no such folder or file. STATUS_INVALID:
 * a file that is no known set, an empty class, no images, a single class, a cut or foreign file.
 * STATUS_UNSUPPORTED: a set of a version or variant that is not read. STATUS_LIMIT: 2^32 samples.
 * STATUS_IO, STATUS_NO_MEMORY, STATUS_INTERRUPTED. Both outputs are NULL on failure.
 */
enum status dataset_open(const struct dataset_settings *settings, dataset **train,
                         dataset **val) MUST_USE;
/*
 * Whether a program may write to `folder`, which need not be there yet, without writing among these
 * sets: STATUS_USAGE where it is a set's own folder, or lies where every folder is a class or part of
 * one. Beside train/ and val/, or below a folder of CIFAR's files, another folder does no harm.
 * `option` is named in the message, as "--out".
 */
enum status dataset_check_output(const struct dataset_settings *settings, const char *option,
                                 const char *folder) MUST_USE;
/* Accepts NULL inside; *set becomes NULL. */
void dataset_close(dataset **set);

size_t dataset_count(const dataset *set);                         /* >= 1 */
int dataset_class_count(const dataset *set);                      /* >= 2 */
const char *dataset_class_name(const dataset *set, int class_id); /* UTF-8 as on disk */
int dataset_label(const dataset *set, size_t sample);             /* 0 .. class_count - 1 */

/* A name that is unique in the set and the same on every machine, for messages, logs and the
 * fingerprint: "cat/001.jpg", "data_batch_1.bin#17". Returns text. */
char *dataset_sample_name(const dataset *set, size_t sample, char *text, size_t bytes);

enum sample_content {
    SAMPLE_FILE,    /* an encoded image in a file of its own: `path` */
    SAMPLE_ENCODED, /* an encoded image in memory: `data`, `bytes` */
    SAMPLE_PIXELS   /* decoded 8-bit RGB in memory, height x width x 3 */
};

/* Where a sample's bytes are. Pointers are valid while the set is open. */
struct sample_location {
    enum sample_content content;
    const char *path;  /* SAMPLE_FILE alone */
    const void *data;  /* SAMPLE_ENCODED and SAMPLE_PIXELS: mapped or read memory */
    size_t bytes;      /* of data; of the file where the listing told it, otherwise 0 */
    int width, height; /* SAMPLE_PIXELS alone */
};
/* `path_text` holds the path where content is SAMPLE_FILE; PATH_MAX bytes are enough. */
void dataset_locate(const dataset *set, size_t sample, char *path_text, size_t path_bytes,
                    struct sample_location *location);

/* What was passed over while listing, for the log. */
struct dataset_skipped {
    size_t hidden;       /* .DS_Store, Thumbs.db, .ipynb_checkpoints and the like */
    size_t unknown_type; /* extension of no image */
    size_t unsupported;  /* tif, webp, heic and the like: images that are not read */
    size_t loops;        /* links that lead back to a folder above */
    char example[256];   /* one of those that are images, "" when none */
};
void dataset_read_skipped(const dataset *set, struct dataset_skipped *skipped);

/* Hash over class names, sample names, labels and sizes, in order. The same files give the same
 * value on every machine. */
uint64_t dataset_fingerprint(const dataset *set);

/* Held in memory by this set, in bytes, mapped files not counted. */
size_t dataset_memory(const dataset *set);

#endif
