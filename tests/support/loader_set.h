/*
 * A small set of made images whose every pixel is known without decoding, and a reader that keeps
 * what the device got of each batch. The images are PPM files of the size that the loader is asked
 * for, so what must arrive are the bytes of the file.
 */
#ifndef PINLINE_TESTS_SUPPORT_LOADER_SET_H
#define PINLINE_TESTS_SUPPORT_LOADER_SET_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "data/dataset.h"
#include "device/device.h"
#include "loader/loader.h"

struct loader_set {
    char folder[64];
    int count, size;
    dataset *set;
    device *dev;
    device_stream *stream; /* "compute" */
};

/* Writes `count` images of size x size in two classes (the first half is class 0), opens them as a set
 * in the order of their numbers, and a host device. Failures are failed checks. */
void loader_set_open(struct loader_set *set, int count, int size, enum host_mode mode);
/* Closes what is open and removes the files. */
void loader_set_close(struct loader_set *set);

/* Byte `at` of the pixels of image `sample`. */
uint8_t loader_set_pixel(int sample, size_t at);
int loader_set_label(const struct loader_set *set, int sample);
/* The image's file; returns text. */
char *loader_set_path(const struct loader_set *set, int sample, char text[PATH_MAX]);
/* What the file of `sample` holds, into memory of at least loader_set_file_bytes; returns its size. */
size_t loader_set_encode(const struct loader_set *set, int sample, unsigned char *file);
size_t loader_set_file_bytes(const struct loader_set *set);
/* Puts other bytes into the file. */
void loader_set_replace(const struct loader_set *set, int sample, const void *data, size_t bytes);
/* Replaces the file by a pipe. */
void loader_set_make_pipe(const struct loader_set *set, int sample);
/* Removes every image file. */
void loader_set_remove_files(const struct loader_set *set);

/* Defaults for this set: its size, the whole image, two workers, no shuffling, batches of 4. */
void loader_set_settings(const struct loader_set *set, struct loader_settings *settings);

/* Opens a loader over the set; a failure is a failed check. */
loader *loader_set_open_loader(const struct loader_set *set,
                               const struct loader_settings *settings);

/* Waits until the workers have read so many images; nothing says how long that may take. */
void loader_set_await_read(const struct loader_set *set, loader *l, uint64_t images);

/* One batch as the device had it. */
struct seen_batch {
    int n, good;
    uint32_t epoch, index;
    uint32_t *samples;
    int32_t *labels;
    unsigned char *block; /* the slot's device buffer */
};

struct seen {
    struct loader_layout layout;
    size_t image_bytes;
    size_t count, capacity;
    struct seen_batch *batches;
};

/* Reads up to `limit` batches (all for SIZE_MAX) from epoch `epoch` on, begun at first_batch unless it
 * is UINT32_MAX (the epoch is open), each uploaded, copied back on the compute stream, and released
 * without waiting; then waits for the stream. Appends to *seen, which is zero at first. */
enum status seen_read(struct seen *seen, const struct loader_set *set, loader *l, uint32_t epoch,
                      uint32_t first_batch, size_t limit);
void seen_free(struct seen *seen);

/* Bytes of pixels that are not those of the samples named, over all batches. */
size_t seen_wrong_bytes(const struct seen *seen);
/* Target rows that differ from `on` at the label and `off` elsewhere, divided by the good images. */
size_t seen_wrong_targets(const struct seen *seen, double on, double off);
/* Whether both hold the same batches with the same pixels and targets. */
int seen_equal(const struct seen *a, const struct seen *b);

/* Bytes that two shuffled epochs of page-locked, non-blocking batches over deferred streams show
 * wrong: 0 for a right loader. */
size_t loader_set_wrong_bytes(enum copy_stream copy_stream, enum staging staging, int workers);

#endif
