/* PNG files, written by hand but for the compression. */
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/support/make_pen.h"

static void put_chunk(struct pen *pen, const char *type, const void *data, size_t count)
{
    pen_be32(pen, (uint32_t)count);
    size_t from = pen->count;
    pen_put(pen, type, 4);
    pen_put(pen, data, count);
    pen_be32(pen, (uint32_t)crc32(0, pen->bytes + from, (uInt)(count + 4)));
}

static void put_deflated(struct pen *pen, const uint8_t *data, size_t count)
{
    uLongf bound = compressBound((uLong)count);
    uint8_t *packed = made_alloc(bound);
    compress2(packed, &bound, data, (uLong)count, 9);
    pen_put(pen, packed, bound);
    free(packed);
}

static uint32_t png_channels(const struct made_png *png)
{
    return png->colour == 2 ? 3 : png->colour == 6 ? 4 : png->colour == 4 ? 2 : 1;
}

/* One row of samples, packed as PNG wants them, of the pixels x0, x0 + step, ... */
static void pack_row(const struct made_png *png, uint32_t y, uint32_t x0, uint32_t step,
                     struct pen *row)
{
    uint32_t maximum = (1u << png->depth) - 1;
    uint32_t bits = 0, held = 0;

    for (uint32_t x = x0; x < png->width; x += step) {
        for (uint32_t channel = 0; channel < png_channels(png); channel++) {
            uint32_t value = made_sample(x, y, channel, maximum);
            if (png->depth == 16) {
                pen_be16(row, value);
            } else if (png->depth == 8) {
                pen_put8(row, value);
            } else {
                bits = bits << png->depth | value;
                held += (uint32_t)png->depth;
                if (held == 8) {
                    pen_put8(row, bits);
                    held = 0;
                    bits = 0;
                }
            }
        }
    }
    if (held > 0) {
        pen_put8(row, bits << (8 - held));
    }
}

/* The filters of the standard, one after the other from row to row. */
static void put_filtered(struct pen *raw, const uint8_t *row, const uint8_t *above, size_t count,
                         size_t pixel, int filter)
{
    pen_put8(raw, (uint32_t)filter);
    for (size_t i = 0; i < count; i++) {
        int a = i >= pixel ? row[i - pixel] : 0;
        int b = above != NULL ? above[i] : 0;
        int c = above != NULL && i >= pixel ? above[i - pixel] : 0;
        int p = a + b - c, predicted = 0;
        int pa = abs(p - a), pb = abs(p - b), pc = abs(p - c);
        switch (filter) {
        case 1:
            predicted = a;
            break;
        case 2:
            predicted = b;
            break;
        case 3:
            predicted = (a + b) / 2;
            break;
        case 4:
            predicted = pa <= pb && pa <= pc ? a : pb <= pc ? b : c;
            break;
        default:
            break;
        }
        pen_put8(raw, (uint32_t)(row[i] - predicted));
    }
}

static void put_pass(const struct made_png *png, uint32_t x0, uint32_t y0, uint32_t dx, uint32_t dy,
                     struct pen *raw)
{
    struct pen above = {0};
    int filter = 0;
    size_t pixel = (png_channels(png) * (uint32_t)png->depth + 7) / 8;

    if (x0 >= png->width) {
        return;
    }
    for (uint32_t y = y0; y < png->height; y += dy) {
        struct pen row = {0};
        pack_row(png, y, x0, dx, &row);
        put_filtered(raw, row.bytes, above.bytes, row.count, pixel, filter);
        filter = (filter + 1) % 5;
        free(above.bytes);
        above = row;
    }
    free(above.bytes);
}

static void expect_png(const struct made_png *png, struct made_image *image)
{
    uint32_t maximum = (1u << png->depth) - 1;

    for (uint32_t y = 0; y < png->height; y++) {
        for (uint32_t x = 0; x < png->width; x++) {
            uint8_t *pixel = made_pixel(image, x, y);
            for (uint32_t channel = 0; channel < 3; channel++) {
                uint32_t source = png->colour == 2 || png->colour == 6 ? channel : 0;
                uint32_t value = made_sample(x, y, source, maximum);
                if (png->colour == 3) {
                    value = made_sample(value, 1000, channel, 255);
                } else if (png->depth == 16) {
                    value >>= 8;
                } else {
                    value = value * 255 / maximum;
                }
                pixel[channel] = (uint8_t)value;
            }
        }
    }
}

static void put_text(struct pen *pen, size_t bytes)
{
    struct pen chunk = {0};
    uint8_t *zeros = made_alloc(bytes);

    pen_put(&chunk, "Comment\0\0", 9);
    put_deflated(&chunk, zeros, bytes);
    put_chunk(pen, "zTXt", chunk.bytes, chunk.count);
    chunk.count = 0;
    pen_put(&chunk, "Comment\0\1\0\0\0", 12);
    put_deflated(&chunk, zeros, bytes);
    put_chunk(pen, "iTXt", chunk.bytes, chunk.count);
    free(chunk.bytes);
    free(zeros);
}

static void put_before_data(struct pen *pen, const struct made_png *png)
{
    if (png->profile) {
        put_chunk(pen, "gAMA", "\0\0\x11\x11", 4);
        put_chunk(pen, "iCCP", "bad\0\0not deflate at all", 23);
        put_chunk(pen, "cHRM", "too short", 9);
    }
    if (png->colour == 3) {
        struct pen palette = {0};
        for (uint32_t i = 0; i < 1u << png->depth; i++) {
            for (uint32_t channel = 0; channel < 3; channel++) {
                pen_put8(&palette, made_sample(i, 1000, channel, 255));
            }
        }
        put_chunk(pen, "PLTE", palette.bytes, palette.count);
        free(palette.bytes);
    }
    if (png->transparency) {
        uint8_t entries[256] = {0};
        /* For a palette alpha of entries, otherwise the transparent colour. */
        put_chunk(pen, "tRNS", entries,
                  png->colour == 3   ? (size_t)(1u << png->depth) / 2 + 1
                  : png->colour == 2 ? 6
                                     : 2);
    }
    if (png->profile) {
        put_chunk(pen, "bKGD", "\0\1\0\1\0\1", png->colour == 3 ? 1 : png->colour & 2 ? 6 : 2);
        put_chunk(pen, "tIME", "\x07\xe5\x01\x02\x03\x04\x05", 7);
    }
    if (png->orientation != 0) {
        struct pen exif = {0};
        pen_exif(&exif, png->orientation, true);
        put_chunk(pen, "eXIf", exif.bytes, exif.count);
        free(exif.bytes);
    }
    if (png->text_bytes > 0) {
        put_text(pen, png->text_bytes);
    }
    if (png->animated) {
        struct pen control = {0};
        put_chunk(pen, "acTL", "\0\0\0\2\0\0\0\0", 8);
        pen_be32(&control, 0);
        pen_be32(&control, png->width);
        pen_be32(&control, png->height);
        pen_be32(&control, 0);
        pen_be32(&control, 0);
        pen_be32(&control, 0x00010001);
        pen_be16(&control, 0);
        put_chunk(pen, "fcTL", control.bytes, control.count);
        free(control.bytes);
    }
}

struct made_image make_png(const struct made_png *png)
{
    static const uint8_t passes[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                         {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    struct made_image image = made_start(png->width, png->height);
    struct pen pen = {0}, header = {0}, raw = {0}, packed = {0};

    expect_png(png, &image);
    pen_put(&pen, "\x89PNG\r\n\x1a\n", 8);
    if (png->apple) {
        put_chunk(&pen, "CgBI", "\x50\0\x20\x06", 4);
    }
    pen_be32(&header, png->claim_width != 0 ? png->claim_width : png->width);
    pen_be32(&header, png->claim_height != 0 ? png->claim_height : png->height);
    pen_put8(&header, (uint32_t)png->depth);
    pen_put8(&header, (uint32_t)png->colour);
    pen_be16(&header, 0);
    pen_put8(&header, png->interlaced);
    put_chunk(&pen, "IHDR", header.bytes, header.count);
    put_before_data(&pen, png);
    if (png->interlaced) {
        for (int i = 0; i < 7; i++) {
            put_pass(png, passes[i][0], passes[i][1], passes[i][2], passes[i][3], &raw);
        }
    } else {
        put_pass(png, 0, 0, 1, 1, &raw);
    }
    put_deflated(&packed, raw.bytes, raw.count);
    size_t split = png->split == 0 ? packed.count : png->split;
    for (size_t at = 0; at < packed.count; at += split) {
        size_t left = packed.count - at;
        put_chunk(&pen, "IDAT", packed.bytes + at, left < split ? left : split);
    }
    if (png->animated) {
        /* The second frame: the same data under another sequence number. */
        struct pen frame = {0};
        pen_be32(&frame, 1);
        pen_put(&frame, packed.bytes, packed.count / 2);
        put_chunk(&pen, "fdAT", frame.bytes, frame.count);
        free(frame.bytes);
    }
    put_chunk(&pen, "IEND", "", 0);
    made_finish(&image, &pen);
    free(header.bytes);
    free(raw.bytes);
    free(packed.bytes);
    return image;
}

size_t made_png_chunk(const struct made_image *image, const char *type)
{
    size_t at = 8;

    while (at + 12 <= image->count) {
        const uint8_t *p = image->bytes + at;
        if (memcmp(p + 4, type, 4) == 0) {
            return at;
        }
        at += 12 + ((size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
    }
    return 0;
}
