/*
 * One file that holds a whole set, encoded or decoded: the format is in data/README.md. It is read
 * by mapping, so that opening reads the header and the tables alone, however large the images are.
 * dataset_open opens it; this header is for those who write and verify it.
 */
#ifndef PINLINE_DATA_PACKED_H
#define PINLINE_DATA_PACKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"

/* Plain data; zero is no default of `content`'s size fields where pixels are packed. */
struct packed_settings {
    const char *path;            /* the file to write; required */
    enum sample_content content; /* SAMPLE_ENCODED or SAMPLE_PIXELS */
    int width, height;           /* SAMPLE_PIXELS: of every image, 1 to 65,535; otherwise ignored */
    bool overwrite;              /* replace an existing file; default false */
};

/*
 * Gives the bytes of one sample. Called for the samples of the training set in order, then for those
 * of the validation set, always from the thread that called packed_write, so it may work ahead. The
 * memory stays the callback's and must hold until the next call. SAMPLE_PIXELS: exactly
 * height x width x 3 bytes. *data NULL with STATUS_OK leaves the sample out. Any other status ends
 * the writing with that status.
 */
typedef enum status (*packed_supply)(void *context, const dataset *set, size_t sample,
                                     const void **data, size_t *bytes);

/* What was written. */
struct packed_result {
    size_t samples, left_out;
    uint64_t bytes; /* of the file */
};

/*
 * Writes `train`, and `val` where it is not NULL, into one file that dataset_open divides in the same
 * way. Classes, names and labels are the sets'. supply == NULL passes encoded files, or memory, on
 * as they are; with SAMPLE_PIXELS the sets must then hold pixels of that size. The file is written
 * aside, synced and renamed; on failure nothing is left. *result (may be NULL) is filled on success.
 * STATUS_USAGE names the field; STATUS_INVALID: exists and not `overwrite`, a sample without bytes,
 * pixels of another size, no sample left, one over 4 GiB; STATUS_IO, STATUS_NOT_FOUND,
 * STATUS_NO_MEMORY, STATUS_INTERRUPTED; those of `supply`.
 */
enum status packed_write(const struct packed_settings *settings, const dataset *train,
                         const dataset *val, packed_supply supply, void *context,
                         struct packed_result *result) MUST_USE;

/* Whether the file begins as a packed set does; without a message. */
bool packed_recognise(const char *path);

/*
 * Compares every sample of a packed file with its checksum. *bad (may be NULL) counts those that
 * differ; the message names the first. STATUS_INVALID when any differs; statuses of dataset_open;
 * STATUS_INTERRUPTED.
 */
enum status packed_verify(const char *path, size_t *bad) MUST_USE;

#endif
