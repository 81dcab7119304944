/* BMP, GIF, TGA, PSD and PNM files, written by hand. */
#include "tests/support/make_images.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "tests/support/make_pen.h"

/* --- BMP ------------------------------------------------------------------------------------- */

/* The three fields of a pixel of 16 or 32 bits: how many bits, and from which on. */
struct field {
    uint32_t bits, shift;
};

static void fields_of(const struct made_bmp *bmp, struct field fields[3])
{
    static const struct field usual16[3] = {{5, 10}, {5, 5}, {5, 0}};
    static const struct field wide16[3] = {{5, 11}, {6, 5}, {5, 0}};
    static const struct field usual32[3] = {{8, 16}, {8, 8}, {8, 0}};
    static const struct field odd32[3] = {{8, 8}, {8, 24}, {8, 0}};
    const struct field *from =
        bmp->bits == 16 ? (bmp->masks ? wide16 : usual16) : (bmp->masks ? odd32 : usual32);
    memcpy(fields, from, 3 * sizeof(*fields));
}

struct made_image make_bmp(const struct made_bmp *bmp)
{
    struct made_image image = made_start(bmp->width, bmp->height);
    struct pen pen = {0};
    struct field fields[3];
    uint32_t all = bmp->bits <= 8 ? 1u << bmp->bits : 0;
    uint32_t colours = bmp->colours != 0 ? (uint32_t)bmp->colours : all;
    uint32_t entry = bmp->core ? 3 : 4, header = bmp->core ? 12 : 40;
    uint32_t offset = 14 + header + colours * entry + (bmp->masks ? 12 : 0);
    size_t stride = ((size_t)bmp->width * (size_t)bmp->bits + 31) / 32 * 4;

    fields_of(bmp, fields);
    pen_put(&pen, "BM", 2);
    pen_le32(&pen, (uint32_t)(offset + stride * bmp->height));
    pen_le32(&pen, 0);
    pen_le32(&pen, offset);
    pen_le32(&pen, header);
    if (bmp->core) {
        pen_le16(&pen, bmp->width);
        pen_le16(&pen, bmp->height);
    } else {
        pen_le32(&pen, bmp->width);
        pen_le32(&pen, bmp->top_down ? 0u - bmp->height : bmp->height);
    }
    pen_le16(&pen, 1);
    pen_le16(&pen, (uint32_t)bmp->bits);
    if (!bmp->core) {
        pen_le32(&pen, bmp->compression != 0 ? (uint32_t)bmp->compression : bmp->masks ? 3 : 0);
        pen_le32(&pen, 0);
        pen_le32(&pen, 0);
        pen_le32(&pen, 0);
        pen_le32(&pen, (uint32_t)bmp->colours);
        pen_le32(&pen, 0);
    }
    for (int i = 0; bmp->masks && i < 3; i++) {
        pen_le32(&pen, ((1u << fields[i].bits) - 1) << fields[i].shift);
    }
    for (uint32_t i = 0; i < colours; i++) {
        for (uint32_t channel = 3; channel-- > 0;) {
            pen_put8(&pen, made_sample(i, 1000, channel, 255));
        }
        if (entry == 4) {
            pen_put8(&pen, 0);
        }
    }
    for (uint32_t row = 0; row < bmp->height; row++) {
        uint32_t y = bmp->top_down ? row : bmp->height - 1 - row;
        size_t from = pen.count;
        uint32_t bits = 0, held = 0;
        for (uint32_t x = 0; x < bmp->width; x++) {
            uint8_t *pixel = made_pixel(&image, x, y);
            if (bmp->bits <= 8) {
                uint32_t index = made_sample(x, y, 0, colours - 1);
                bits = bits << bmp->bits | index;
                held += (uint32_t)bmp->bits;
                if (held == 8 || x + 1 == bmp->width) {
                    pen_put8(&pen, bits << (8 - held));
                    held = 0;
                    bits = 0;
                }
                for (uint32_t channel = 0; channel < 3; channel++) {
                    pixel[channel] = (uint8_t)made_sample(index, 1000, channel, 255);
                }
            } else if (bmp->bits == 24) {
                for (uint32_t channel = 3; channel-- > 0;) {
                    pixel[channel] = (uint8_t)made_sample(x, y, channel, 255);
                    pen_put8(&pen, pixel[channel]);
                }
            } else {
                uint32_t word = 0;
                for (uint32_t channel = 0; channel < 3; channel++) {
                    uint32_t maximum = (1u << fields[channel].bits) - 1;
                    uint32_t value = made_sample(x, y, channel, maximum);
                    word |= value << fields[channel].shift;
                    pixel[channel] = (uint8_t)(value * 255 / maximum);
                }
                if (bmp->bits == 16) {
                    pen_le16(&pen, word);
                } else {
                    pen_le32(&pen, word);
                }
            }
        }
        while (pen.count - from < stride) {
            pen_put8(&pen, 0);
        }
    }
    made_finish(&image, &pen);
    return image;
}

/* --- GIF ------------------------------------------------------------------------------------- */

/* Codes of nine bits alone: a clear code comes before they would grow. */
struct lzw {
    struct pen data;
    uint32_t bits, held;
};

static void put_code(struct lzw *lzw, uint32_t code)
{
    lzw->bits |= code << lzw->held;
    lzw->held += 9;
    while (lzw->held >= 8) {
        pen_put8(&lzw->data, lzw->bits);
        lzw->bits >>= 8;
        lzw->held -= 8;
    }
}

static void put_gif_palette(struct pen *pen, uint32_t seed)
{
    for (uint32_t i = 0; i < 256; i++) {
        for (uint32_t channel = 0; channel < 3; channel++) {
            pen_put8(pen, made_sample(i, seed, channel, 255));
        }
    }
}

static void put_gif_frame(struct pen *pen, const struct made_gif *gif, struct made_image *image,
                          uint32_t seed)
{
    uint32_t width = gif->frame_width != 0 ? gif->frame_width : gif->width;
    uint32_t height = gif->frame_height != 0 ? gif->frame_height : gif->height;
    static const uint32_t first[4] = {0, 4, 2, 1}, step[4] = {8, 8, 4, 2};
    struct lzw lzw = {0};
    uint32_t count = 0;

    pen_put8(pen, 0x2c);
    pen_le16(pen, gif->x);
    pen_le16(pen, gif->y);
    pen_le16(pen, width);
    pen_le16(pen, height);
    pen_put8(pen, (gif->local ? 0x87u : 0) | (gif->interlaced ? 0x40u : 0));
    if (gif->local) {
        put_gif_palette(pen, seed);
    }
    pen_put8(pen, 8);
    for (int pass = gif->interlaced ? 0 : 3; pass < 4; pass++) {
        uint32_t from = gif->interlaced ? first[pass] : 0, by = gif->interlaced ? step[pass] : 1;
        for (uint32_t y = from; y < height; y += by) {
            for (uint32_t x = 0; x < width; x++) {
                uint32_t index = made_sample(x, y, 7, 255);
                if (count++ % 200 == 0) {
                    put_code(&lzw, 256);
                }
                put_code(&lzw, index);
                for (uint32_t channel = 0; image != NULL && channel < 3; channel++) {
                    made_pixel(image, x + gif->x, y + gif->y)[channel] =
                        (uint8_t)made_sample(index, seed, channel, 255);
                }
            }
        }
    }
    put_code(&lzw, 257);
    pen_put8(&lzw.data, lzw.bits);
    for (size_t at = 0; at < lzw.data.count; at += 255) {
        size_t left = lzw.data.count - at < 255 ? lzw.data.count - at : 255;
        pen_put8(pen, (uint32_t)left);
        pen_put(pen, lzw.data.bytes + at, left);
    }
    pen_put8(pen, 0);
    free(lzw.data.bytes);
}

struct made_image make_gif(const struct made_gif *gif)
{
    struct made_image image = made_start(gif->width, gif->height);
    struct pen pen = {0};
    uint32_t seed = gif->local ? 2000 : 1000;

    /* What the frame leaves free shows the transparent index, or the first. */
    for (uint32_t y = 0; y < gif->height; y++) {
        for (uint32_t x = 0; x < gif->width; x++) {
            for (uint32_t channel = 0; channel < 3; channel++) {
                uint32_t index = gif->transparent < 0 ? 0 : (uint32_t)gif->transparent;
                made_pixel(&image, x, y)[channel] = (uint8_t)made_sample(index, seed, channel, 255);
            }
        }
    }
    pen_put(&pen, "GIF89a", 6);
    pen_le16(&pen, gif->width);
    pen_le16(&pen, gif->height);
    pen_put8(&pen, 0xf7);
    pen_put8(&pen, 9); /* a background that nobody shows */
    pen_put8(&pen, 0);
    put_gif_palette(&pen, 1000);
    pen_put(&pen, "\x21\xfe\x05hello\0", 9);
    if (gif->transparent >= 0) {
        pen_put(&pen, "\x21\xf9\x04\x01\0\0", 6);
        pen_put8(&pen, (uint32_t)gif->transparent);
        pen_put8(&pen, 0);
    }
    put_gif_frame(&pen, gif, &image, seed);
    if (gif->animated) {
        struct made_gif second = *gif;
        second.local = true;
        put_gif_frame(&pen, &second, NULL, 3000);
    }
    pen_put8(&pen, 0x3b);
    made_finish(&image, &pen);
    return image;
}

/* --- TGA ------------------------------------------------------------------------------------- */

/* The stored pixel at (x, y), `bytes` of them, and what it must become. */
static uint32_t tga_pixel(const struct made_tga *tga, uint32_t x, uint32_t y, uint8_t stored[4],
                          uint8_t rgb[3])
{
    /* Pairs of equal pixels, so that run-length coding has runs. */
    uint32_t at = x / 2;

    if (tga->mapped || tga->bits == 8) {
        stored[0] = (uint8_t)made_sample(at, y, 0, 255);
        for (uint32_t channel = 0; channel < 3; channel++) {
            rgb[channel] =
                tga->mapped ? (uint8_t)made_sample(stored[0], 1000, channel, 255) : stored[0];
        }
        return 1;
    }
    if (tga->bits <= 16) {
        uint32_t word = 0;
        for (uint32_t channel = 0; channel < 3; channel++) {
            uint32_t value = made_sample(at, y, channel, 31);
            word = word << 5 | value;
            rgb[channel] = (uint8_t)(value * 255 / 31);
        }
        stored[0] = (uint8_t)word;
        stored[1] = (uint8_t)(word >> 8);
        return 2;
    }
    for (uint32_t channel = 0; channel < 3; channel++) {
        rgb[channel] = (uint8_t)made_sample(at, y, channel, 255);
        stored[2 - channel] = rgb[channel];
    }
    stored[3] = (uint8_t)made_sample(at, y, 3, 255);
    return tga->bits == 32 ? 4 : 3;
}

struct made_image make_tga(const struct made_tga *tga)
{
    struct made_image image = made_start(tga->width, tga->height);
    struct pen pen = {0};
    uint32_t kind = tga->mapped ? 1 : tga->bits == 8 ? 3 : 2;

    pen_put8(&pen, 5); /* an identification of five bytes */
    pen_put8(&pen, tga->mapped);
    pen_put8(&pen, kind | (tga->packed ? 8u : 0));
    pen_le16(&pen, 0);
    pen_le16(&pen, tga->mapped ? 256 : 0);
    pen_put8(&pen, tga->mapped ? 24 : 0);
    pen_le32(&pen, 0);
    pen_le16(&pen, tga->width);
    pen_le16(&pen, tga->height);
    pen_put8(&pen, (uint32_t)tga->bits);
    pen_put8(&pen, tga->top_down ? 0x20 : 0);
    pen_put(&pen, "hello", 5);
    for (uint32_t i = 0; tga->mapped && i < 256; i++) {
        for (uint32_t channel = 3; channel-- > 0;) {
            pen_put8(&pen, made_sample(i, 1000, channel, 255));
        }
    }
    for (uint32_t row = 0; row < tga->height; row++) {
        uint32_t y = tga->top_down ? row : tga->height - 1 - row;
        for (uint32_t x = 0; x < tga->width; x++) {
            uint8_t stored[4];
            uint32_t bytes = tga_pixel(tga, x, y, stored, made_pixel(&image, x, y));
            bool pair = x % 2 == 0 && x + 1 < tga->width;
            if (tga->packed && x % 4 < 2) {
                /* A run of two, or a run of one at the end of the row. */
                if (x % 2 == 0) {
                    pen_put8(&pen, pair ? 0x81 : 0x80);
                    pen_put(&pen, stored, bytes);
                }
                continue;
            }
            if (tga->packed && x % 2 == 0) {
                pen_put8(&pen, pair ? 1 : 0);
            }
            pen_put(&pen, stored, bytes);
        }
    }
    made_finish(&image, &pen);
    return image;
}

/* --- PSD ------------------------------------------------------------------------------------- */

struct made_image make_psd(uint32_t width, uint32_t height, int channels, bool packed)
{
    struct made_image image = made_start(width, height);
    struct pen pen = {0}, lengths = {0}, data = {0};

    pen_put(&pen, "8BPS\0\1\0\0\0\0\0\0", 12);
    pen_be16(&pen, (uint32_t)channels);
    pen_be32(&pen, height);
    pen_be32(&pen, width);
    pen_be16(&pen, 8);
    pen_be16(&pen, 3);
    pen_be32(&pen, 0);
    pen_be32(&pen, 6);
    pen_put(&pen, "8BIM??", 6);
    pen_be32(&pen, 0);
    pen_be16(&pen, packed ? 1 : 0);
    for (uint32_t channel = 0; channel < (uint32_t)channels; channel++) {
        for (uint32_t y = 0; y < height; y++) {
            size_t from = data.count;
            for (uint32_t x = 0; x < width; x++) {
                uint32_t value = made_sample(x / 3, y, channel, 255);
                if (channel < 3) {
                    made_pixel(&image, x, y)[channel] = (uint8_t)value;
                }
                uint32_t run = x % 3 == 0 && x + 2 < width ? 3 : 1;
                if (packed && run == 3) {
                    pen_put8(&data, 257 - 3);
                    pen_put8(&data, value);
                    if (channel < 3) {
                        made_pixel(&image, x + 1, y)[channel] = (uint8_t)value;
                        made_pixel(&image, x + 2, y)[channel] = (uint8_t)value;
                    }
                    x += 2;
                    continue;
                }
                if (packed) {
                    pen_put8(&data, 0);
                }
                pen_put8(&data, value);
            }
            pen_be16(&lengths, (uint32_t)(data.count - from));
        }
    }
    if (packed) {
        pen_put(&pen, lengths.bytes, lengths.count);
    }
    pen_put(&pen, data.bytes, data.count);
    free(lengths.bytes);
    free(data.bytes);
    made_finish(&image, &pen);
    return image;
}

/* --- PNM, gzip ------------------------------------------------------------------------------- */

static void put_format(struct pen *pen, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

static void put_format(struct pen *pen, const char *format, ...)
{
    char text[128];
    va_list arguments;

    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    pen_put(pen, text, (size_t)length);
}

struct made_image make_pnm(uint32_t width, uint32_t height, int variant, uint32_t maximum)
{
    struct made_image image = made_start(width, height);
    struct pen pen = {0};
    uint32_t channels = variant == 3 || variant == 6 ? 3 : 1;
    bool bitmap = variant == 1 || variant == 4;

    put_format(&pen, "P%d\n# a comment with 12 34\n%u %u\n", variant, width, height);
    if (!bitmap) {
        put_format(&pen, "%u\n", maximum);
    }
    for (uint32_t y = 0; y < height; y++) {
        uint32_t bits = 0;
        for (uint32_t x = 0; x < width; x++) {
            uint8_t *pixel = made_pixel(&image, x, y);
            for (uint32_t channel = 0; channel < channels; channel++) {
                uint32_t value = made_sample(x, y, channel, maximum);
                /* A set bit is black. To the nearest step, to the even one in the middle. */
                double exact = bitmap ? (value != 0 ? 0 : 255) : value * 255.0 / maximum;
                uint32_t whole = (uint32_t)exact;
                double rest = exact - whole;
                whole += rest > 0.5 || (rest == 0.5 && (whole & 1u) != 0);
                memset(pixel + channel, (int)whole, channels == 3 ? 1 : 3);
                if (variant == 4) {
                    bits = bits << 1 | value;
                    if (x % 8 == 7 || x + 1 == width) {
                        pen_put8(&pen, bits << (7 - x % 8));
                        bits = 0;
                    }
                } else if (variant == 1) {
                    put_format(&pen, "%u", value);
                } else if (variant <= 3) {
                    put_format(&pen, "%u ", value);
                } else if (maximum > 255) {
                    pen_be16(&pen, value);
                } else {
                    pen_put8(&pen, value);
                }
            }
        }
        if (variant <= 3) {
            pen_put8(&pen, '\n');
        }
    }
    made_finish(&image, &pen);
    return image;
}

struct made_image make_gzip(const struct made_image *inside)
{
    struct made_image image = {0};
    z_stream stream = {0};

    image.bytes = made_alloc(compressBound((uLong)inside->count) + 64);
    if (deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        abort();
    }
    stream.next_in = inside->bytes;
    stream.avail_in = (uInt)inside->count;
    stream.next_out = image.bytes;
    stream.avail_out = (uInt)compressBound((uLong)inside->count) + 64;
    if (deflate(&stream, Z_FINISH) != Z_STREAM_END) {
        abort();
    }
    image.count = stream.total_out;
    deflateEnd(&stream);
    return image;
}
