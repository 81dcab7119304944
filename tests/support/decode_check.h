/* Checks that a file decodes to what it must, or is refused as it must be. Each check has a decoder
 * of its own. */
#ifndef PINLINE_TESTS_SUPPORT_DECODE_CHECK_H
#define PINLINE_TESTS_SUPPORT_DECODE_CHECK_H

#include "loader/image.h"
#include "tests/support/make_images.h"

/* A decoder for the libraries in `order` ("turbo,libpng,stb"; NULL for the default), exact. */
image_decoder *check_open(const char *order);

/* The file's pixels are exactly image->rgb, whole and rendered at its own size. `what` goes into
 * the message. */
void check_pixels(const char *order, const struct made_image *image, const char *what);

/* Decoding fails with `status` and a message that contains `text`, whole and rendered; the decoder
 * then still reads a good file of each kind. */
void check_refused(const char *order, const struct made_image *image, enum status status,
                   const char *text);

/* The first `count` bytes of the file, in memory of exactly that size, so that a sanitiser sees
 * every read beyond them. No pixels. */
struct made_image check_cut(const struct made_image *image, size_t count);

/* The facts of a file that must pass. */
struct image_facts check_facts(const struct made_image *image, bool exif_orientation);

#endif
