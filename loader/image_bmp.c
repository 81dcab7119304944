/* BMP: headers of OS/2 1.x (12 bytes) and Windows (40, 52, 56, 108, 124), uncompressed. */
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

#define FILE_HEADER 14
#define PLAIN_HEADER (FILE_HEADER + 40)

struct bmp {
    uint32_t header; /* bytes of the information header */
    uint32_t bits;
    uint32_t compression;
    uint32_t colours; /* of the palette, as stored */
    size_t entry;     /* bytes of one */
    size_t palette;   /* offset */
    size_t row;       /* bytes, padding included */
    bool masked;
    uint32_t masks[3];
};

static enum status read_bmp(struct image_bytes file, struct image_header *header, struct bmp *bmp)
{
    const uint8_t *info = file.data + FILE_HEADER;

    memset(bmp, 0, sizeof(*bmp));
    if (file.count < FILE_HEADER + 12) {
        return FAIL(STATUS_INVALID, "BMP data end within the header: the file is cut");
    }
    header->body = image__le32(file.data + 10);
    bmp->header = image__le32(info);
    if (bmp->header != 12 && bmp->header != 40 && bmp->header != 52 && bmp->header != 56 &&
        bmp->header != 108 && bmp->header != 124) {
        return FAIL(STATUS_UNSUPPORTED, "BMP with a header of %u bytes, not supported",
                    bmp->header);
    }
    if (file.count < FILE_HEADER + (size_t)bmp->header) {
        return FAIL(STATUS_INVALID, "BMP data end within the header: the file is cut");
    }
    if (bmp->header == 12) {
        header->width = image__le16(info + 4);
        header->height = image__le16(info + 6);
        bmp->bits = image__le16(info + 10);
        bmp->entry = 3;
    } else {
        uint32_t height = image__le32(info + 8);
        header->width = image__le32(info + 4);
        /* Negative: the top row comes first. */
        header->height = (height & 0x80000000u) != 0 ? 0u - height : height;
        bmp->bits = image__le16(info + 14);
        bmp->compression = image__le32(info + 16);
        bmp->colours = image__le32(info + 32);
        bmp->entry = 4;
    }
    if (header->width == 0 || header->width > 0x7fffffffu || header->height == 0 ||
        header->height > 0x7fffffffu) {
        return FAIL(STATUS_INVALID, "BMP header claims %u x %u pixels", header->width,
                    header->height);
    }
    if (bmp->compression == 1 || bmp->compression == 2) {
        return FAIL(STATUS_UNSUPPORTED, "run-length coded BMP, not supported: convert it to PNG");
    }
    if (bmp->compression != 0 && bmp->compression != 3) {
        return FAIL(STATUS_UNSUPPORTED, "BMP of compression %u, not supported", bmp->compression);
    }
    switch (bmp->bits) {
    case 1:
    case 4:
    case 8:
    case 16:
    case 24:
    case 32:
        break;
    default:
        return FAIL(STATUS_UNSUPPORTED, "BMP of %u bits a pixel, not supported", bmp->bits);
    }
    if (bmp->compression == 3) {
        if (bmp->bits != 16 && bmp->bits != 32) {
            return FAIL(STATUS_INVALID, "BMP with bit masks and %u bits a pixel", bmp->bits);
        }
        /* The masks follow a header of 40 bytes and are part of a longer one. */
        if (file.count < FILE_HEADER + 52) {
            return FAIL(STATUS_INVALID, "BMP data end within the header: the file is cut");
        }
        bmp->masked = true;
        for (int i = 0; i < 3; i++) {
            bmp->masks[i] = image__le32(info + 40 + 4 * i);
            /* The bits of a field must follow each other. */
            uint32_t field = bmp->masks[i] == 0 ? 0 : bmp->masks[i] >> __builtin_ctz(bmp->masks[i]);
            if (field == 0 || (field & (field + 1)) != 0 || field > 255) {
                return FAIL(STATUS_UNSUPPORTED, "BMP with a bit mask of 0x%08x, not supported",
                            bmp->masks[i]);
            }
        }
        if (bmp->masks[0] == bmp->masks[1] && bmp->masks[1] == bmp->masks[2]) {
            return FAIL(STATUS_UNSUPPORTED, "BMP with three equal bit masks, not supported");
        }
    }
    bmp->palette = FILE_HEADER + (size_t)bmp->header;
    if (header->body < bmp->palette) {
        return FAIL(STATUS_INVALID, "BMP whose pixels begin at byte %zu, within the header",
                    header->body);
    }
    if (bmp->bits <= 8) {
        uint32_t most = 1u << bmp->bits;
        size_t room = (header->body - bmp->palette) / bmp->entry;
        if (bmp->colours == 0 || bmp->colours > most) {
            bmp->colours = most;
        }
        if (bmp->colours > room) {
            bmp->colours = (uint32_t)room;
        }
    }
    bmp->row = (((size_t)header->width * bmp->bits + 31) / 32) * 4;
    return STATUS_OK;
}

enum status image__probe_bmp(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    struct bmp bmp;

    TRY(read_bmp(file, header, &bmp));
    facts->colour = bmp.bits <= 8 ? IMAGE_COLOUR_PALETTE : IMAGE_COLOUR_RGB;
    facts->channels = bmp.bits <= 8 ? 1 : bmp.bits == 32 ? 4 : 3;
    facts->alpha = bmp.bits == 32;
    facts->bits = bmp.bits <= 8 ? (int)bmp.bits : bmp.bits == 16 ? 5 : 8;
    return STATUS_OK;
}

static void put32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)value;
    to[1] = (uint8_t)(value >> 8);
    to[2] = (uint8_t)(value >> 16);
    to[3] = (uint8_t)(value >> 24);
}

/* One row of 16 bits a pixel as 24. A field of n bits goes from 0 .. 2^n - 1 to 0 .. 255, rounded
 * down as Pillow does. */
static void widen_row(const uint8_t *from, uint32_t width, const uint32_t masks[3], uint8_t *to)
{
    for (uint32_t x = 0; x < width; x++) {
        uint32_t pixel = image__le16(from + 2 * (size_t)x);
        for (int channel = 0; channel < 3; channel++) {
            int shift = __builtin_ctz(masks[channel]);
            uint32_t field = (pixel & masks[channel]) >> shift;
            to[3 * (size_t)x + 2 - (size_t)channel] =
                (uint8_t)(field * 255u / (masks[channel] >> shift));
        }
    }
}

/* A header of 40 bytes, a palette of full size, and the rows; 16 bits a pixel become 24. */
enum status image__plain_bmp(struct image_bytes file, const struct image_header *header,
                             struct image_buffer *buffer, struct image_bytes *plain)
{
    struct image_header again = *header;
    struct bmp bmp;
    size_t pixels, total;

    TRY(read_bmp(file, &again, &bmp));
    if (!size_multiply(bmp.row, header->height, &pixels) || file.count < header->body ||
        file.count - header->body < pixels) {
        return FAIL(STATUS_INVALID, "BMP data end early, after %zu bytes: the file is cut",
                    file.count);
    }
    bool widen = bmp.bits == 16;
    uint32_t bits = widen ? 24 : bmp.bits;
    bool masked = bmp.masked && !widen;
    size_t row = (((size_t)header->width * bits + 31) / 32) * 4;
    size_t extra = bits <= 8 ? (size_t)4 << bits : masked ? 12 : 0;
    size_t offset = PLAIN_HEADER + extra;
    if (!size_multiply(row, header->height, &pixels) || !size_add(offset, pixels, &total)) {
        return FAIL(STATUS_LIMIT, "BMP of %zu bytes is too large", pixels);
    }
    TRY(image__buffer_reserve(buffer, total));
    uint8_t *to = buffer->bytes;
    memset(to, 0, offset);
    memcpy(to, "BM", 2);
    put32(to + 2, (uint32_t)total);
    put32(to + 10, (uint32_t)offset);
    put32(to + 14, 40);
    put32(to + 18, header->width);
    /* The sign tells the order of the rows. */
    put32(to + 22, bmp.header == 12 ? header->height : image__le32(file.data + 22));
    to[26] = 1;
    to[28] = (uint8_t)bits;
    put32(to + 30, masked ? 3 : 0);
    if (masked) {
        for (int i = 0; i < 3; i++) {
            put32(to + PLAIN_HEADER + 4 * i, bmp.masks[i]);
        }
    }
    for (uint32_t i = 0; bits <= 8 && i < bmp.colours; i++) {
        memcpy(to + PLAIN_HEADER + 4 * (size_t)i, file.data + bmp.palette + i * bmp.entry, 3);
    }
    if (widen) {
        static const uint32_t usual[3] = {0x7c00, 0x3e0, 0x1f};
        for (uint32_t y = 0; y < header->height; y++) {
            widen_row(file.data + header->body + y * bmp.row, header->width,
                      bmp.masked ? bmp.masks : usual, to + offset + y * row);
        }
    } else {
        memcpy(to + offset, file.data + header->body, pixels);
    }
    plain->data = to;
    plain->count = total;
    return STATUS_OK;
}
