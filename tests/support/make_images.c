#include "tests/support/make_images.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* --- Bytes that grow ------------------------------------------------------------------------- */

struct pen {
    uint8_t *bytes;
    size_t count, capacity;
};

static void *must_alloc(size_t bytes)
{
    void *memory = calloc(1, bytes == 0 ? 1 : bytes);
    if (memory == NULL) {
        fprintf(stderr, "make_images: no memory\n");
        abort();
    }
    return memory;
}

static void put(struct pen *pen, const void *bytes, size_t count)
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

static void put8(struct pen *pen, uint32_t value)
{
    uint8_t byte = (uint8_t)value;
    put(pen, &byte, 1);
}

static void put_be16(struct pen *pen, uint32_t value)
{
    put8(pen, value >> 8);
    put8(pen, value);
}

static void put_be32(struct pen *pen, uint32_t value)
{
    put_be16(pen, value >> 16);
    put_be16(pen, value);
}

static void put_le16(struct pen *pen, uint32_t value)
{
    put8(pen, value);
    put8(pen, value >> 8);
}

static void put_le32(struct pen *pen, uint32_t value)
{
    put_le16(pen, value);
    put_le16(pen, value >> 16);
}

static struct made_image start_image(uint32_t width, uint32_t height)
{
    struct made_image image = {.width = width, .height = height};
    image.rgb = must_alloc((size_t)width * height * 3);
    return image;
}

static uint8_t *pixel_of(const struct made_image *image, uint32_t x, uint32_t y)
{
    return image->rgb + ((size_t)y * image->width + x) * 3;
}

static void finish_image(struct made_image *image, struct pen *pen)
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

/* --- PNG ------------------------------------------------------------------------------------- */

static void put_chunk(struct pen *pen, const char *type, const void *data, size_t count)
{
    put_be32(pen, (uint32_t)count);
    size_t from = pen->count;
    put(pen, type, 4);
    put(pen, data, count);
    put_be32(pen, (uint32_t)crc32(0, pen->bytes + from, (uInt)(count + 4)));
}

static void put_deflated(struct pen *pen, const uint8_t *data, size_t count)
{
    uLongf bound = compressBound((uLong)count);
    uint8_t *packed = must_alloc(bound);
    compress2(packed, &bound, data, (uLong)count, 9);
    put(pen, packed, bound);
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
                put_be16(row, value);
            } else if (png->depth == 8) {
                put8(row, value);
            } else {
                bits = bits << png->depth | value;
                held += (uint32_t)png->depth;
                if (held == 8) {
                    put8(row, bits);
                    held = 0;
                    bits = 0;
                }
            }
        }
    }
    if (held > 0) {
        put8(row, bits << (8 - held));
    }
}

/* The filters of the standard, one after the other from row to row. */
static void put_filtered(struct pen *raw, const uint8_t *row, const uint8_t *above, size_t count,
                         size_t pixel, int filter)
{
    put8(raw, (uint32_t)filter);
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
        put8(raw, (uint32_t)(row[i] - predicted));
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
            uint8_t *pixel = pixel_of(image, x, y);
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
    uint8_t *zeros = must_alloc(bytes);

    put(&chunk, "Comment\0\0", 9);
    put_deflated(&chunk, zeros, bytes);
    put_chunk(pen, "zTXt", chunk.bytes, chunk.count);
    chunk.count = 0;
    put(&chunk, "Comment\0\1\0\0\0", 12);
    put_deflated(&chunk, zeros, bytes);
    put_chunk(pen, "iTXt", chunk.bytes, chunk.count);
    free(chunk.bytes);
    free(zeros);
}

static void put_exif(struct pen *pen, int orientation, bool big_endian)
{
    void (*half)(struct pen *, uint32_t) = big_endian ? put_be16 : put_le16;
    void (*word)(struct pen *, uint32_t) = big_endian ? put_be32 : put_le32;

    put(pen, big_endian ? "MM" : "II", 2);
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
                put8(&palette, made_sample(i, 1000, channel, 255));
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
        put_exif(&exif, png->orientation, true);
        put_chunk(pen, "eXIf", exif.bytes, exif.count);
        free(exif.bytes);
    }
    if (png->text_bytes > 0) {
        put_text(pen, png->text_bytes);
    }
    if (png->animated) {
        struct pen control = {0};
        put_chunk(pen, "acTL", "\0\0\0\2\0\0\0\0", 8);
        put_be32(&control, 0);
        put_be32(&control, png->width);
        put_be32(&control, png->height);
        put_be32(&control, 0);
        put_be32(&control, 0);
        put_be32(&control, 0x00010001);
        put_be16(&control, 0);
        put_chunk(pen, "fcTL", control.bytes, control.count);
        free(control.bytes);
    }
}

struct made_image make_png(const struct made_png *png)
{
    static const uint8_t passes[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                         {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
    struct made_image image = start_image(png->width, png->height);
    struct pen pen = {0}, header = {0}, raw = {0}, packed = {0};

    expect_png(png, &image);
    put(&pen, "\x89PNG\r\n\x1a\n", 8);
    if (png->apple) {
        put_chunk(&pen, "CgBI", "\x50\0\x20\x06", 4);
    }
    put_be32(&header, png->claim_width != 0 ? png->claim_width : png->width);
    put_be32(&header, png->claim_height != 0 ? png->claim_height : png->height);
    put8(&header, (uint32_t)png->depth);
    put8(&header, (uint32_t)png->colour);
    put_be16(&header, 0);
    put8(&header, png->interlaced);
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
        put_be32(&frame, 1);
        put(&frame, packed.bytes, packed.count / 2);
        put_chunk(&pen, "fdAT", frame.bytes, frame.count);
        free(frame.bytes);
    }
    put_chunk(&pen, "IEND", "", 0);
    finish_image(&image, &pen);
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

/* --- JPEG ------------------------------------------------------------------------------------ */

#if PINLINE_HAVE_TURBO

#include <jpeglib.h>

bool made_jpeg_available(void)
{
    return true;
}

bool made_jpeg_arithmetic_available(void)
{
#ifdef C_ARITH_CODING_SUPPORTED
    return true;
#else
    return false;
#endif
}

static void write_exif(struct jpeg_compress_struct *info, const struct made_jpeg *jpeg)
{
    struct pen exif = {0};

    put(&exif, "Exif\0\0", 6);
    put_exif(&exif, jpeg->orientation == 0 ? 1 : jpeg->orientation, jpeg->big_endian);
    if (jpeg->thumbnail) {
        struct made_jpeg small = {.width = 8, .height = 8};
        struct made_image inside = make_jpeg(&small);
        put(&exif, inside.bytes, inside.count);
        made_image_free(&inside);
    }
    jpeg_write_marker(info, JPEG_APP0 + 1, exif.bytes, (unsigned)exif.count);
    free(exif.bytes);
}

struct made_image make_jpeg(const struct made_jpeg *jpeg)
{
    struct made_image image = {.width = jpeg->width, .height = jpeg->height};
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *memory = NULL;
    unsigned long bytes = 0;
    int components = jpeg->colour == MADE_JPEG_GREY ? 1 : jpeg->colour >= MADE_JPEG_CMYK ? 4 : 3;

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &bytes);
    info.image_width = jpeg->width;
    info.image_height = jpeg->height;
    info.input_components = components;
    info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&info);
    switch (jpeg->colour) {
    case MADE_JPEG_RGB:
        jpeg_set_colorspace(&info, JCS_RGB);
        break;
    case MADE_JPEG_YCCK:
        jpeg_set_colorspace(&info, JCS_YCCK);
        break;
    default:
        break;
    }
    if (jpeg->colour == MADE_JPEG_BARE_CMYK) {
        info.write_Adobe_marker = FALSE;
    } else if (jpeg->colour == MADE_JPEG_RGB) {
        info.write_Adobe_marker = TRUE;
    }
    jpeg_set_quality(&info, jpeg->quality == 0 ? 90 : jpeg->quality, TRUE);
    if (jpeg->colour == MADE_JPEG_YCBCR || jpeg->colour == MADE_JPEG_YCCK) {
        info.comp_info[0].h_samp_factor = jpeg->across == 0 ? 2 : jpeg->across;
        info.comp_info[0].v_samp_factor = jpeg->down == 0 ? 2 : jpeg->down;
        if (components == 4) {
            info.comp_info[3].h_samp_factor = info.comp_info[0].h_samp_factor;
            info.comp_info[3].v_samp_factor = info.comp_info[0].v_samp_factor;
        }
    }
    info.arith_code = jpeg->arithmetic;
    info.restart_interval = (unsigned)jpeg->restart;
    if (jpeg->progressive) {
        jpeg_simple_progression(&info);
    }
    jpeg_start_compress(&info, TRUE);
    if (jpeg->orientation != 0 || jpeg->thumbnail) {
        write_exif(&info, jpeg);
    }
    uint8_t *row = must_alloc((size_t)jpeg->width * 4);
    for (uint32_t y = 0; y < jpeg->height; y++) {
        for (uint32_t x = 0; x < jpeg->width; x++) {
            for (int channel = 0; channel < components; channel++) {
                row[x * (uint32_t)components + (uint32_t)channel] =
                    jpeg->flat ? made_smooth(0, 0, (uint32_t)channel)
                               : made_smooth(x, y, (uint32_t)channel);
            }
        }
        JSAMPROW rows = row;
        jpeg_write_scanlines(&info, &rows, 1);
    }
    free(row);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    image.bytes = memory;
    image.count = bytes;
    return image;
}

uint8_t *made_jpeg_reference(const struct made_image *image, int *components)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;

    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, image->bytes, (unsigned long)image->count);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_start_decompress(&info);
    *components = info.output_components;
    size_t stride = (size_t)info.output_width * (size_t)info.output_components;
    uint8_t *pixels = must_alloc(stride * info.output_height);
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = pixels + stride * info.output_scanline;
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return pixels;
}

#else

bool made_jpeg_available(void)
{
    return false;
}

bool made_jpeg_arithmetic_available(void)
{
    return false;
}

struct made_image make_jpeg(const struct made_jpeg *jpeg)
{
    (void)jpeg;
    abort();
}

uint8_t *made_jpeg_reference(const struct made_image *image, int *components)
{
    (void)image;
    (void)components;
    abort();
}

#endif

size_t made_jpeg_marker(const struct made_image *image, int marker)
{
    for (size_t at = 2; at + 4 <= image->count;) {
        const uint8_t *p = image->bytes + at;
        if (p[1] == marker) {
            return at;
        }
        at += 2 + ((size_t)p[2] << 8 | p[3]);
        if (p[1] == 0xda) {
            break; /* what follows has no lengths */
        }
    }
    return 0;
}

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
    struct made_image image = start_image(bmp->width, bmp->height);
    struct pen pen = {0};
    struct field fields[3];
    uint32_t all = bmp->bits <= 8 ? 1u << bmp->bits : 0;
    uint32_t colours = bmp->colours != 0 ? (uint32_t)bmp->colours : all;
    uint32_t entry = bmp->core ? 3 : 4, header = bmp->core ? 12 : 40;
    uint32_t offset = 14 + header + colours * entry + (bmp->masks ? 12 : 0);
    size_t stride = ((size_t)bmp->width * (size_t)bmp->bits + 31) / 32 * 4;

    fields_of(bmp, fields);
    put(&pen, "BM", 2);
    put_le32(&pen, (uint32_t)(offset + stride * bmp->height));
    put_le32(&pen, 0);
    put_le32(&pen, offset);
    put_le32(&pen, header);
    if (bmp->core) {
        put_le16(&pen, bmp->width);
        put_le16(&pen, bmp->height);
    } else {
        put_le32(&pen, bmp->width);
        put_le32(&pen, bmp->top_down ? 0u - bmp->height : bmp->height);
    }
    put_le16(&pen, 1);
    put_le16(&pen, (uint32_t)bmp->bits);
    if (!bmp->core) {
        put_le32(&pen, bmp->compression != 0 ? (uint32_t)bmp->compression : bmp->masks ? 3 : 0);
        put_le32(&pen, 0);
        put_le32(&pen, 0);
        put_le32(&pen, 0);
        put_le32(&pen, (uint32_t)bmp->colours);
        put_le32(&pen, 0);
    }
    for (int i = 0; bmp->masks && i < 3; i++) {
        put_le32(&pen, ((1u << fields[i].bits) - 1) << fields[i].shift);
    }
    for (uint32_t i = 0; i < colours; i++) {
        for (uint32_t channel = 3; channel-- > 0;) {
            put8(&pen, made_sample(i, 1000, channel, 255));
        }
        if (entry == 4) {
            put8(&pen, 0);
        }
    }
    for (uint32_t row = 0; row < bmp->height; row++) {
        uint32_t y = bmp->top_down ? row : bmp->height - 1 - row;
        size_t from = pen.count;
        uint32_t bits = 0, held = 0;
        for (uint32_t x = 0; x < bmp->width; x++) {
            uint8_t *pixel = pixel_of(&image, x, y);
            if (bmp->bits <= 8) {
                uint32_t index = made_sample(x, y, 0, colours - 1);
                bits = bits << bmp->bits | index;
                held += (uint32_t)bmp->bits;
                if (held == 8 || x + 1 == bmp->width) {
                    put8(&pen, bits << (8 - held));
                    held = 0;
                    bits = 0;
                }
                for (uint32_t channel = 0; channel < 3; channel++) {
                    pixel[channel] = (uint8_t)made_sample(index, 1000, channel, 255);
                }
            } else if (bmp->bits == 24) {
                for (uint32_t channel = 3; channel-- > 0;) {
                    pixel[channel] = (uint8_t)made_sample(x, y, channel, 255);
                    put8(&pen, pixel[channel]);
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
                    put_le16(&pen, word);
                } else {
                    put_le32(&pen, word);
                }
            }
        }
        while (pen.count - from < stride) {
            put8(&pen, 0);
        }
    }
    finish_image(&image, &pen);
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
        put8(&lzw->data, lzw->bits);
        lzw->bits >>= 8;
        lzw->held -= 8;
    }
}

static void put_gif_palette(struct pen *pen, uint32_t seed)
{
    for (uint32_t i = 0; i < 256; i++) {
        for (uint32_t channel = 0; channel < 3; channel++) {
            put8(pen, made_sample(i, seed, channel, 255));
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

    put8(pen, 0x2c);
    put_le16(pen, gif->x);
    put_le16(pen, gif->y);
    put_le16(pen, width);
    put_le16(pen, height);
    put8(pen, (gif->local ? 0x87u : 0) | (gif->interlaced ? 0x40u : 0));
    if (gif->local) {
        put_gif_palette(pen, seed);
    }
    put8(pen, 8);
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
                    pixel_of(image, x + gif->x, y + gif->y)[channel] =
                        (uint8_t)made_sample(index, seed, channel, 255);
                }
            }
        }
    }
    put_code(&lzw, 257);
    put8(&lzw.data, lzw.bits);
    for (size_t at = 0; at < lzw.data.count; at += 255) {
        size_t left = lzw.data.count - at < 255 ? lzw.data.count - at : 255;
        put8(pen, (uint32_t)left);
        put(pen, lzw.data.bytes + at, left);
    }
    put8(pen, 0);
    free(lzw.data.bytes);
}

struct made_image make_gif(const struct made_gif *gif)
{
    struct made_image image = start_image(gif->width, gif->height);
    struct pen pen = {0};
    uint32_t seed = gif->local ? 2000 : 1000;

    /* What the frame leaves free shows the transparent index, or the first. */
    for (uint32_t y = 0; y < gif->height; y++) {
        for (uint32_t x = 0; x < gif->width; x++) {
            for (uint32_t channel = 0; channel < 3; channel++) {
                uint32_t index = gif->transparent < 0 ? 0 : (uint32_t)gif->transparent;
                pixel_of(&image, x, y)[channel] = (uint8_t)made_sample(index, seed, channel, 255);
            }
        }
    }
    put(&pen, "GIF89a", 6);
    put_le16(&pen, gif->width);
    put_le16(&pen, gif->height);
    put8(&pen, 0xf7);
    put8(&pen, 9); /* a background that nobody shows */
    put8(&pen, 0);
    put_gif_palette(&pen, 1000);
    put(&pen, "\x21\xfe\x05hello\0", 9);
    if (gif->transparent >= 0) {
        put(&pen, "\x21\xf9\x04\x01\0\0", 6);
        put8(&pen, (uint32_t)gif->transparent);
        put8(&pen, 0);
    }
    put_gif_frame(&pen, gif, &image, seed);
    if (gif->animated) {
        struct made_gif second = *gif;
        second.local = true;
        put_gif_frame(&pen, &second, NULL, 3000);
    }
    put8(&pen, 0x3b);
    finish_image(&image, &pen);
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
    struct made_image image = start_image(tga->width, tga->height);
    struct pen pen = {0};
    uint32_t kind = tga->mapped ? 1 : tga->bits == 8 ? 3 : 2;

    put8(&pen, 5); /* an identification of five bytes */
    put8(&pen, tga->mapped);
    put8(&pen, kind | (tga->packed ? 8u : 0));
    put_le16(&pen, 0);
    put_le16(&pen, tga->mapped ? 256 : 0);
    put8(&pen, tga->mapped ? 24 : 0);
    put_le32(&pen, 0);
    put_le16(&pen, tga->width);
    put_le16(&pen, tga->height);
    put8(&pen, (uint32_t)tga->bits);
    put8(&pen, tga->top_down ? 0x20 : 0);
    put(&pen, "hello", 5);
    for (uint32_t i = 0; tga->mapped && i < 256; i++) {
        for (uint32_t channel = 3; channel-- > 0;) {
            put8(&pen, made_sample(i, 1000, channel, 255));
        }
    }
    for (uint32_t row = 0; row < tga->height; row++) {
        uint32_t y = tga->top_down ? row : tga->height - 1 - row;
        for (uint32_t x = 0; x < tga->width; x++) {
            uint8_t stored[4];
            uint32_t bytes = tga_pixel(tga, x, y, stored, pixel_of(&image, x, y));
            bool pair = x % 2 == 0 && x + 1 < tga->width;
            if (tga->packed && x % 4 < 2) {
                /* A run of two, or a run of one at the end of the row. */
                if (x % 2 == 0) {
                    put8(&pen, pair ? 0x81 : 0x80);
                    put(&pen, stored, bytes);
                }
                continue;
            }
            if (tga->packed && x % 2 == 0) {
                put8(&pen, pair ? 1 : 0);
            }
            put(&pen, stored, bytes);
        }
    }
    finish_image(&image, &pen);
    return image;
}

/* --- PSD ------------------------------------------------------------------------------------- */

struct made_image make_psd(uint32_t width, uint32_t height, int channels, bool packed)
{
    struct made_image image = start_image(width, height);
    struct pen pen = {0}, lengths = {0}, data = {0};

    put(&pen, "8BPS\0\1\0\0\0\0\0\0", 12);
    put_be16(&pen, (uint32_t)channels);
    put_be32(&pen, height);
    put_be32(&pen, width);
    put_be16(&pen, 8);
    put_be16(&pen, 3);
    put_be32(&pen, 0);
    put_be32(&pen, 6);
    put(&pen, "8BIM??", 6);
    put_be32(&pen, 0);
    put_be16(&pen, packed ? 1 : 0);
    for (uint32_t channel = 0; channel < (uint32_t)channels; channel++) {
        for (uint32_t y = 0; y < height; y++) {
            size_t from = data.count;
            for (uint32_t x = 0; x < width; x++) {
                uint32_t value = made_sample(x / 3, y, channel, 255);
                if (channel < 3) {
                    pixel_of(&image, x, y)[channel] = (uint8_t)value;
                }
                uint32_t run = x % 3 == 0 && x + 2 < width ? 3 : 1;
                if (packed && run == 3) {
                    put8(&data, 257 - 3);
                    put8(&data, value);
                    if (channel < 3) {
                        pixel_of(&image, x + 1, y)[channel] = (uint8_t)value;
                        pixel_of(&image, x + 2, y)[channel] = (uint8_t)value;
                    }
                    x += 2;
                    continue;
                }
                if (packed) {
                    put8(&data, 0);
                }
                put8(&data, value);
            }
            put_be16(&lengths, (uint32_t)(data.count - from));
        }
    }
    if (packed) {
        put(&pen, lengths.bytes, lengths.count);
    }
    put(&pen, data.bytes, data.count);
    free(lengths.bytes);
    free(data.bytes);
    finish_image(&image, &pen);
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
    put(pen, text, (size_t)length);
}

struct made_image make_pnm(uint32_t width, uint32_t height, int variant, uint32_t maximum)
{
    struct made_image image = start_image(width, height);
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
            uint8_t *pixel = pixel_of(&image, x, y);
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
                        put8(&pen, bits << (7 - x % 8));
                        bits = 0;
                    }
                } else if (variant == 1) {
                    put_format(&pen, "%u", value);
                } else if (variant <= 3) {
                    put_format(&pen, "%u ", value);
                } else if (maximum > 255) {
                    put_be16(&pen, value);
                } else {
                    put8(&pen, value);
                }
            }
        }
        if (variant <= 3) {
            put8(&pen, '\n');
        }
    }
    finish_image(&image, &pen);
    return image;
}

struct made_image make_gzip(const struct made_image *inside)
{
    struct made_image image = {0};
    z_stream stream = {0};

    image.bytes = must_alloc(compressBound((uLong)inside->count) + 64);
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
