/* What the makers of image files share: bytes that grow, and pictures that are being made. */
#ifndef PINLINE_TESTS_SUPPORT_MAKE_PEN_H
#define PINLINE_TESTS_SUPPORT_MAKE_PEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/make_images.h"

/* Bytes that grow as they are written; begin with zero. `bytes` is malloc'ed and the caller's. */
struct pen {
    uint8_t *bytes;
    size_t count, capacity;
};
void pen_put(struct pen *pen, const void *bytes, size_t count);
void pen_put8(struct pen *pen, uint32_t value);
void pen_be16(struct pen *pen, uint32_t value);
void pen_be32(struct pen *pen, uint32_t value);
void pen_le16(struct pen *pen, uint32_t value);
void pen_le32(struct pen *pen, uint32_t value);
/* A TIFF structure as Exif holds it, with an orientation. */
void pen_exif(struct pen *pen, int orientation, bool big_endian);

/* Zeroed memory; ends the test when there is none. */
void *made_alloc(size_t bytes);
/* A picture of black pixels without a file, the place of one of its pixels, and its file. */
struct made_image made_start(uint32_t width, uint32_t height);
uint8_t *made_pixel(const struct made_image *image, uint32_t x, uint32_t y);
void made_finish(struct made_image *image, struct pen *pen);

#endif
