/* TGA (Truevision, 1989), which has no magic number: the header must make sense in every field. */
#include "loader/image_internal.h"

#define HEADER 18

struct tga {
    bool mapped, grey, packed;
    uint32_t map_count, map_bits;
    uint32_t bits;
};

static void read_tga(struct image_bytes file, struct tga *tga)
{
    const uint8_t *p = file.data;

    tga->mapped = p[1] == 1;
    tga->packed = (p[2] & 8u) != 0;
    tga->grey = (p[2] & 7u) == 3;
    tga->map_count = image__le16(p + 5);
    tga->map_bits = p[7];
    tga->bits = p[16];
}

bool image__looks_like_tga(struct image_bytes file)
{
    const uint8_t *p = file.data;
    struct tga tga;

    if (file.count < HEADER || p[1] > 1 || (p[2] & ~8u) < 1 || (p[2] & ~8u) > 3) {
        return false;
    }
    read_tga(file, &tga);
    if (tga.mapped != ((p[2] & 7u) == 1)) {
        return false;
    }
    if (image__le16(p + 12) == 0 || image__le16(p + 14) == 0 || (p[17] & 0xc0u) != 0) {
        return false;
    }
    if (tga.mapped) {
        return tga.map_count > 0 && tga.bits == 8 &&
               (tga.map_bits == 15 || tga.map_bits == 16 || tga.map_bits == 24 ||
                tga.map_bits == 32);
    }
    if (image__le16(p + 3) != 0 || tga.map_count != 0) {
        return false;
    }
    return tga.grey ? tga.bits == 8 || tga.bits == 16
                    : tga.bits == 15 || tga.bits == 16 || tga.bits == 24 || tga.bits == 32;
}

enum status image__probe_tga(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    struct tga tga;

    read_tga(file, &tga);
    header->width = image__le16(file.data + 12);
    header->height = image__le16(file.data + 14);
    if ((file.data[17] & 0x10u) != 0) {
        return FAIL(STATUS_UNSUPPORTED, "TGA stored from right to left, not supported");
    }
    if (tga.mapped && image__le16(file.data + 3) != 0) {
        return FAIL(STATUS_UNSUPPORTED, "TGA whose palette begins at %u, not supported",
                    image__le16(file.data + 3));
    }
    facts->colour = tga.mapped ? IMAGE_COLOUR_PALETTE
                    : tga.grey ? IMAGE_COLOUR_GREY
                               : IMAGE_COLOUR_RGB;
    facts->bits = !tga.mapped && !tga.grey && tga.bits <= 16 ? 5 : 8;
    facts->channels = tga.mapped ? 1 : tga.grey ? (int)tga.bits / 8 : tga.bits == 32 ? 4 : 3;
    facts->alpha = facts->channels == 2 || facts->channels == 4;
    header->body = HEADER + (size_t)file.data[0] +
                   (tga.mapped ? (size_t)tga.map_count * ((tga.map_bits + 7) / 8) : 0);
    return STATUS_OK;
}

enum status image__plain_tga(struct image_bytes file, const struct image_header *header,
                             struct image_bytes *plain)
{
    struct tga tga;
    size_t at = header->body;
    uint64_t left = (uint64_t)header->width * header->height;
    bool whole = at <= file.count;

    read_tga(file, &tga);
    size_t pixel = (tga.bits + 7) / 8;
    if (!tga.packed) {
        whole = whole && (file.count - at) / pixel >= left;
    }
    while (tga.packed && whole && left > 0) {
        if (at >= file.count) {
            whole = false;
            break;
        }
        uint8_t packet = file.data[at++];
        uint64_t pixels = (packet & 0x7fu) + 1u;
        size_t bytes = (packet & 0x80u) != 0 ? pixel : (size_t)pixels * pixel;
        whole = file.count - at >= bytes;
        at += bytes;
        left -= pixels < left ? pixels : left;
    }
    if (!whole) {
        return FAIL(STATUS_INVALID, "TGA data end early, after %zu bytes: the file is cut",
                    file.count);
    }
    *plain = file;
    return STATUS_OK;
}
