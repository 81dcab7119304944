/* What the chunks of a PNG say (W3C "Portable Network Graphics", third edition), without libpng. */
#include <string.h>

#include "loader/image_internal.h"

static bool is_type(const uint8_t *type, const char *name)
{
    return memcmp(type, name, 4) == 0;
}

static enum status cut(struct image_bytes file)
{
    return FAIL(STATUS_INVALID, "PNG data end early, after %zu bytes: the file is cut", file.count);
}

/* The CRC covers type and data. */
static bool crc_holds(const uint8_t *chunk, uint32_t length)
{
    return image__png_crc(chunk + 4, (size_t)length + 4) == image__be32(chunk + 8 + length);
}

static enum status wrong_crc(const uint8_t *chunk)
{
    return FAIL(STATUS_INVALID, "wrong CRC in PNG chunk %.4s: the file is damaged",
                (const char *)chunk + 4);
}

/* The chunk at *offset, whole; moves *offset behind it. NULL when the file ends within it. */
static const uint8_t *next_chunk(struct image_bytes file, size_t *offset, uint32_t *length)
{
    const uint8_t *chunk = file.data + *offset;
    size_t left = file.count - *offset;

    if (left < PNG_CHUNK_OVERHEAD) {
        return NULL;
    }
    *length = image__be32(chunk);
    if (*length > 0x7fffffffu || left - PNG_CHUNK_OVERHEAD < *length) {
        return NULL;
    }
    *offset += PNG_CHUNK_OVERHEAD + (size_t)*length;
    return chunk;
}

static bool is_letter(uint8_t byte)
{
    return (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z');
}

static enum status read_ihdr(const uint8_t *body, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    uint32_t depth = body[8], colour = body[9];
    bool known = false;

    header->width = image__be32(body);
    header->height = image__be32(body + 4);
    if (header->width == 0 || header->height == 0 || header->width > 0x7fffffffu ||
        header->height > 0x7fffffffu) {
        return FAIL(STATUS_INVALID, "PNG header claims %u x %u pixels", header->width,
                    header->height);
    }
    facts->bits = (int)depth;
    facts->interlaced = body[12] == 1;
    switch (colour) {
    case 0:
        known = depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16;
        facts->channels = 1;
        facts->colour = IMAGE_COLOUR_GREY;
        break;
    case 2:
        known = depth == 8 || depth == 16;
        facts->channels = 3;
        facts->colour = IMAGE_COLOUR_RGB;
        break;
    case 3:
        known = depth == 1 || depth == 2 || depth == 4 || depth == 8;
        facts->channels = 1;
        facts->colour = IMAGE_COLOUR_PALETTE;
        break;
    case 4:
    case 6:
        known = depth == 8 || depth == 16;
        facts->channels = colour == 4 ? 2 : 4;
        facts->colour = colour == 4 ? IMAGE_COLOUR_GREY : IMAGE_COLOUR_RGB;
        facts->alpha = true;
        break;
    default:
        break;
    }
    if (!known || body[10] != 0 || body[11] != 0 || body[12] > 1) {
        return FAIL(STATUS_INVALID,
                    "PNG header with colour type %u, %u bits, compression %u, filter %u, "
                    "interlace %u is none that exists",
                    colour, depth, body[10], body[11], body[12]);
    }
    return STATUS_OK;
}

enum status image__probe_png(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    size_t offset = PNG_SIGNATURE_BYTES;
    uint32_t length = 0;
    bool first = true;

    if (file.count >= PNG_SIGNATURE_BYTES + 8 &&
        is_type(file.data + PNG_SIGNATURE_BYTES + 4, "CgBI")) {
        return FAIL(STATUS_UNSUPPORTED,
                    "Apple's CgBI variant of PNG, not supported: convert it back (pngcrush "
                    "-revert-iphone-optimizations)");
    }
    for (;;) {
        size_t at = offset;
        /* The data of an IDAT may be cut; that is found by the decoder. */
        if (!first && file.count - at >= 8 && is_type(file.data + at + 4, "IDAT")) {
            break;
        }
        const uint8_t *chunk = next_chunk(file, &offset, &length);
        if (chunk == NULL) {
            return cut(file);
        }
        for (int i = 4; i < 8; i++) {
            if (!is_letter(chunk[i])) {
                return FAIL(STATUS_INVALID, "no PNG chunk at byte %zu: the file is damaged", at);
            }
        }
        if (first) {
            if (!is_type(chunk + 4, "IHDR") || length != 13) {
                return FAIL(STATUS_INVALID, "PNG does not begin with its header");
            }
            if (!crc_holds(chunk, length)) {
                return wrong_crc(chunk);
            }
            TRY(read_ihdr(chunk + 8, header));
            first = false;
        } else if (is_type(chunk + 4, "tRNS")) {
            facts->alpha = true;
        } else if (is_type(chunk + 4, "acTL")) {
            facts->animated = true;
        } else if (is_type(chunk + 4, "eXIf")) {
            struct image_bytes tiff = {chunk + 8, length};
            facts->orientation = image__exif_orientation(tiff);
        } else if (is_type(chunk + 4, "CgBI")) {
            return FAIL(STATUS_UNSUPPORTED, "Apple's CgBI variant of PNG, not supported");
        } else if (is_type(chunk + 4, "IEND")) {
            return FAIL(STATUS_INVALID, "PNG without image data");
        }
    }
    /* Deflate shrinks to 1/1032 at the best, so a small file cannot hold a huge picture. */
    int samples = facts->channels * facts->bits;
    uint64_t row = ((uint64_t)header->width * (uint64_t)samples + 7) / 8;
    if (row * header->height / 1032 > file.count) {
        return FAIL(STATUS_INVALID, "%zu bytes of PNG cannot hold %u x %u pixels: the file is cut",
                    file.count, header->width, header->height);
    }
    return STATUS_OK;
}

static uint8_t *append_chunk(uint8_t *to, const uint8_t *chunk, uint32_t length)
{
    memcpy(to, chunk, PNG_CHUNK_OVERHEAD + (size_t)length);
    return to + PNG_CHUNK_OVERHEAD + length;
}

/* All 256 entries, so that an index beyond the palette is black and not what memory held. */
static uint8_t *append_palette(uint8_t *to, const uint8_t *chunk, uint32_t length)
{
    uint32_t kept = length > 768 ? 768 : length;

    memset(to, 0, PNG_CHUNK_OVERHEAD + 768);
    to[2] = 3; /* 768 */
    memcpy(to + 4, chunk + 4, 4 + (size_t)kept);
    uint32_t crc = image__png_crc(to + 4, 4 + 768);
    return image__put_be32(to + 8 + 768, crc);
}

enum status image__check_png(struct image_bytes file, struct image_buffer *copy, size_t *copied)
{
    size_t offset = PNG_SIGNATURE_BYTES;
    uint8_t *to = NULL;
    bool palette_seen = false;

    if (copy != NULL) {
        TRY(image__buffer_reserve(copy, file.count + PNG_CHUNK_OVERHEAD + 768));
        memcpy(copy->bytes, file.data, PNG_SIGNATURE_BYTES);
        to = copy->bytes + PNG_SIGNATURE_BYTES;
    }
    for (;;) {
        uint32_t length = 0;
        const uint8_t *chunk = next_chunk(file, &offset, &length);
        if (chunk == NULL) {
            return cut(file);
        }
        /* An upper-case first letter marks what a decoder must understand. */
        bool critical = (chunk[4] & 0x20u) == 0;
        if (!critical) {
            continue;
        }
        if (!crc_holds(chunk, length)) {
            return wrong_crc(chunk);
        }
        bool end = is_type(chunk + 4, "IEND");
        if (is_type(chunk + 4, "PLTE")) {
            if (to != NULL && !palette_seen) {
                to = append_palette(to, chunk, length);
            }
            palette_seen = true;
        } else if (is_type(chunk + 4, "IHDR") || is_type(chunk + 4, "IDAT") || end) {
            if (to != NULL) {
                to = append_chunk(to, chunk, length);
            }
        } else {
            return FAIL(STATUS_INVALID, "PNG chunk %.4s is unknown and cannot be passed over",
                        (const char *)chunk + 4);
        }
        if (end) {
            break;
        }
    }
    if (copied != NULL) {
        *copied = copy == NULL ? 0 : (size_t)(to - copy->bytes);
    }
    return STATUS_OK;
}
