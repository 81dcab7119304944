/* What the fuzzers of the decoders, and the test that replays their corpus, do with one file. */
#ifndef PINLINE_TESTS_SUPPORT_FUZZ_IMAGE_H
#define PINLINE_TESTS_SUPPORT_FUZZ_IMAGE_H

#include <stddef.h>
#include <stdint.h>

/*
 * Recognises the bytes, decodes them whole and renders parts of them, with each order of libraries
 * in `orders` ("turbo,libpng,stb" and the like, separated by blanks). Aborts when the same file
 * gives different pixels a second time, when a rendered part differs from the same part of the
 * whole picture, when a file that a probe refused is decoded, or when a failure has no message.
 */
void fuzz_image(const uint8_t *data, size_t bytes, const char *orders);

/* Gives every PNG chunk of the file the CRC that it should have, to get a fuzzer behind it. */
void fuzz_image_mend_png(uint8_t *data, size_t bytes);

#endif
