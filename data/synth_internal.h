/* Encoding of made images, for the files of data/ alone. */
#ifndef PINLINE_DATA_SYNTH_INTERNAL_H
#define PINLINE_DATA_SYNTH_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* An encoded image; `data` is reused and grows. Zero is empty. */
struct synth_buffer {
    void *data; /* malloc; freed by the owner */
    size_t capacity, bytes;
};

/* rgb[height][width][3]. STATUS_NO_MEMORY; STATUS_INTERNAL with the library's message. */
enum status synth_encode_png(const uint8_t *rgb, int width, int height,
                             struct synth_buffer *out) MUST_USE;
/* The same; STATUS_UNSUPPORTED in a build without libjpeg-turbo. */
enum status synth_encode_jpeg(const uint8_t *rgb, int width, int height, int quality,
                              struct synth_buffer *out) MUST_USE;

#endif
