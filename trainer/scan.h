/*
 * Reading and decoding samples of a data set outside of a training job: what checking, packing and
 * benchmarks share. A reader is used by one thread at a time.
 */
#ifndef PINLINE_TRAINER_SCAN_H
#define PINLINE_TRAINER_SCAN_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "data/dataset.h"
#include "loader/image.h"

struct scan_reader {
    image_decoder *decoder;
    size_t max_file_bytes;
    void *file; /* of the sample in hand; NULL when it lies in the set's memory */
    char path[PATH_MAX];
};

/* Statuses of image_decoder_open. fini accepts a half-built and an all-zero reader. */
enum status scan_reader_init(struct scan_reader *reader,
                             const struct image_settings *settings) MUST_USE;
void scan_reader_fini(struct scan_reader *reader);

/* The bytes of a sample: location->data and bytes are valid until the next call, also for files.
 * STATUS_NOT_FOUND, STATUS_IO, STATUS_LIMIT, STATUS_NO_MEMORY. */
enum status scan_read(struct scan_reader *reader, const dataset *set, size_t sample,
                      struct sample_location *location) MUST_USE;

/* What the sample is, and its whole picture squashed to size x size, u8 RGB. Pixels that are in the
 * set already have kind IMAGE_UNKNOWN. Statuses of scan_read, image_probe and image_render. */
enum status scan_render(struct scan_reader *reader, const dataset *set, size_t sample,
                        uint32_t size, uint8_t *rgb, struct image_facts *facts) MUST_USE;

#endif
