#include "tests/support/make_pen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void *made_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fprintf(stderr, "make_images: no memory\n");
        abort();
    }
    return memory;
}

void pen_put(struct pen *pen, const void *bytes, size_t count)
{
    if (count == 0) {
        return;
    }
    if (pen->count + count > pen->capacity) {
        pen->capacity = 2 * (pen->count + count) + 64;
        pen->bytes = realloc(pen->bytes, pen->capacity);
        if (pen->bytes == NULL) {
            abort();
        }
    }
    memcpy(pen->bytes + pen->count, bytes, count);
    pen->count += count;
}

void pen_put8(struct pen *pen, uint32_t value)
{
    uint8_t byte = (uint8_t)value;
    pen_put(pen, &byte, 1);
}

void pen_be16(struct pen *pen, uint32_t value)
{
    pen_put8(pen, value >> 8);
    pen_put8(pen, value);
}

void pen_be32(struct pen *pen, uint32_t value)
{
    pen_be16(pen, value >> 16);
    pen_be16(pen, value);
}

void pen_le16(struct pen *pen, uint32_t value)
{
    pen_put8(pen, value);
    pen_put8(pen, value >> 8);
}

void pen_le32(struct pen *pen, uint32_t value)
{
    pen_le16(pen, value);
    pen_le16(pen, value >> 16);
}

struct made_image made_start(uint32_t width, uint32_t height)
{
    struct made_image image = {.width = width, .height = height};
    image.rgb = made_alloc((size_t)width * height * 3);
    return image;
}

uint8_t *made_pixel(const struct made_image *image, uint32_t x, uint32_t y)
{
    return image->rgb + ((size_t)y * image->width + x) * 3;
}

void made_finish(struct made_image *image, struct pen *pen)
{
    image->bytes = pen->bytes;
    image->count = pen->count;
}

void made_image_free(struct made_image *image)
{
    free(image->bytes);
    free(image->rgb);
    memset(image, 0, sizeof(*image));
}

uint32_t made_sample(uint32_t x, uint32_t y, uint32_t channel, uint32_t maximum)
{
    uint32_t hash = x * 0x9e3779b1u ^ y * 0x85ebca77u ^ channel * 0xc2b2ae3du;
    hash ^= hash >> 15;
    hash *= 0x2c1b3c6du;
    hash ^= hash >> 12;
    hash *= 0x297a2d39u;
    hash ^= hash >> 15;
    return hash % (maximum + 1);
}

uint8_t made_smooth(uint32_t x, uint32_t y, uint32_t channel)
{
    /* Triangles of different length in each channel and direction. */
    uint32_t along = (x * (3 + channel) + y * (5 - channel) + 40 * channel) % 400;
    return (uint8_t)(30 + (along < 200 ? along : 400 - along));
}

void pen_exif(struct pen *pen, int orientation, bool big_endian)
{
    void (*half)(struct pen *, uint32_t) = big_endian ? pen_be16 : pen_le16;
    void (*word)(struct pen *, uint32_t) = big_endian ? pen_be32 : pen_le32;

    pen_put(pen, big_endian ? "MM" : "II", 2);
    half(pen, 42);
    word(pen, 8);
    half(pen, 2);
    /* ImageWidth first, so that the tag must be looked for. */
    half(pen, 0x0100);
    half(pen, 4);
    word(pen, 1);
    word(pen, 1);
    half(pen, 0x0112);
    half(pen, 3);
    word(pen, 1);
    half(pen, (uint32_t)orientation);
    half(pen, 0);
    word(pen, 0);
}
