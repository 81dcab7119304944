/* What the markers of a JPEG say (ITU-T T.81, annex B), without a decoding library. */
#include <string.h>

#include "loader/image_internal.h"

enum {
    SOI = 0xd8,
    EOI = 0xd9,
    SOS = 0xda,
    DQT = 0xdb,
    DHT = 0xc4,
    JPG = 0xc8,
    DAC = 0xcc,
    APP0 = 0xe0,
    APP1 = 0xe1,
    APP14 = 0xee,
    TEM = 0x01,
    RST0 = 0xd0,
    RST7 = 0xd7,
    JPEG_LS = 0xf7
};

/* What the frame header says beyond the facts. */
struct frame {
    bool seen;
    bool jfif;
    int components;
    uint8_t ids[4];
    uint32_t across[4], down[4]; /* sampling factors */
    uint8_t tables[4];           /* numbers of quantisation tables */
};

static enum status cut(struct image_bytes file)
{
    return FAIL(STATUS_INVALID,
                "JPEG data end early, after %zu bytes and within the header: the file is cut",
                file.count);
}

static enum status check_process(int marker)
{
    switch (marker) {
    case 0xc0:
    case 0xc1:
    case 0xc2:
    case 0xc9:
    case 0xca:
        return STATUS_OK;
    case 0xc3:
    case 0xcb:
        return FAIL(STATUS_UNSUPPORTED, "lossless JPEG, not supported: convert it to PNG");
    case JPEG_LS:
        return FAIL(STATUS_UNSUPPORTED, "JPEG-LS, not supported: convert it to PNG");
    default:
        return FAIL(STATUS_UNSUPPORTED, "hierarchical JPEG (process 0x%02x), not supported",
                    (unsigned)marker);
    }
}

static enum status read_frame(int marker, const uint8_t *body, size_t count,
                              struct image_header *header, struct frame *frame)
{
    struct image_facts *facts = &header->facts;

    TRY(check_process(marker));
    if (frame->seen) {
        return FAIL(STATUS_INVALID, "JPEG with two frame headers");
    }
    if (count < 6 || count < 6 + 3 * (size_t)body[5]) {
        return FAIL(STATUS_INVALID, "JPEG frame header of %zu bytes is too short", count);
    }
    frame->seen = true;
    frame->components = body[5];
    facts->bits = body[0];
    header->height = image__be16(body + 1);
    header->width = image__be16(body + 3);
    facts->progressive = marker == 0xc2 || marker == 0xca;
    facts->arithmetic = marker >= 0xc9;
    facts->channels = frame->components;
    if (facts->bits == 12) {
        return FAIL(STATUS_UNSUPPORTED, "JPEG of 12 bits a sample, not supported: convert it to 8");
    }
    if (facts->bits != 8) {
        return FAIL(STATUS_INVALID, "JPEG of %d bits a sample", facts->bits);
    }
    if (header->width == 0 || frame->components == 0) {
        return FAIL(STATUS_INVALID, "JPEG header claims %u x %u pixels of %d components",
                    header->width, header->height, frame->components);
    }
    if (header->height == 0) {
        return FAIL(STATUS_UNSUPPORTED,
                    "JPEG whose height stands behind its data (DNL), not supported");
    }
    if (frame->components != 1 && frame->components != 3 && frame->components != 4) {
        return FAIL(STATUS_UNSUPPORTED, "JPEG of %d components, not supported", frame->components);
    }
    for (int i = 0; i < frame->components; i++) {
        const uint8_t *component = body + 6 + 3 * i;
        frame->ids[i] = component[0];
        frame->across[i] = component[1] >> 4;
        frame->down[i] = component[1] & 15u;
        frame->tables[i] = component[2];
        if (frame->across[i] < 1 || frame->across[i] > 4 || frame->down[i] < 1 ||
            frame->down[i] > 4) {
            return FAIL(STATUS_INVALID, "JPEG with sampling factors %u x %u", frame->across[i],
                        frame->down[i]);
        }
    }
    return STATUS_OK;
}

/* The rules of the IJG library, which everybody follows since the standard is silent. */
static enum image_colour colour_of(const struct frame *frame, int adobe_transform)
{
    if (frame->components == 1) {
        return IMAGE_COLOUR_GREY;
    }
    if (frame->components == 4) {
        return adobe_transform > 0 ? IMAGE_COLOUR_YCCK : IMAGE_COLOUR_CMYK;
    }
    if (frame->jfif) {
        return IMAGE_COLOUR_YCBCR;
    }
    if (adobe_transform >= 0) {
        return adobe_transform == 0 ? IMAGE_COLOUR_RGB : IMAGE_COLOUR_YCBCR;
    }
    return memcmp(frame->ids, "RGB", 3) == 0 ? IMAGE_COLOUR_RGB : IMAGE_COLOUR_YCBCR;
}

/* Each block of the first component takes at least one bit of Huffman-coded data. */
static enum status check_plausible(struct image_bytes file, const struct image_header *header,
                                   const struct frame *frame)
{
    uint32_t across = 1, down = 1;

    if (header->facts.arithmetic) {
        return STATUS_OK;
    }
    for (int i = 0; i < frame->components; i++) {
        across = frame->across[i] > across ? frame->across[i] : across;
        down = frame->down[i] > down ? frame->down[i] : down;
    }
    uint64_t columns = ((uint64_t)header->width * frame->across[0] + 8 * across - 1) / (8 * across);
    uint64_t rows = ((uint64_t)header->height * frame->down[0] + 8 * down - 1) / (8 * down);
    if (columns * rows / 8 > file.count - header->body) {
        return FAIL(STATUS_INVALID, "%zu bytes of JPEG cannot hold %u x %u pixels: the file is cut",
                    file.count, header->width, header->height);
    }
    return STATUS_OK;
}

/* Which tables a DQT segment defines, a bit each. */
static uint32_t read_tables(const uint8_t *body, size_t count)
{
    uint32_t defined = 0;

    while (count > 0) {
        size_t bytes = 1 + ((body[0] >> 4) != 0 ? 128 : 64);
        defined |= 1u << (body[0] & 15u);
        if (count < bytes) {
            break;
        }
        body += bytes;
        count -= bytes;
    }
    return defined;
}

/* The next marker at or after *offset, which moves behind it; -1 at the end of the file. Bytes that
 * are no marker are passed over, as all decoders do. */
static int next_marker(struct image_bytes file, size_t *offset)
{
    size_t at = *offset;

    while (at + 1 < file.count) {
        if (file.data[at] != 0xff) {
            const uint8_t *found = memchr(file.data + at, 0xff, file.count - 1 - at);
            if (found == NULL) {
                break;
            }
            at = (size_t)(found - file.data);
        }
        at++;
        if (file.data[at] != 0 && file.data[at] != 0xff) {
            *offset = at + 1;
            return file.data[at];
        }
    }
    *offset = file.count;
    return -1;
}

enum status image__probe_jpeg(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    struct frame frame = {0};
    size_t offset = 2;
    uint32_t tables = 0;
    bool exif_seen = false;

    header->adobe_transform = -1;
    for (;;) {
        int marker = next_marker(file, &offset);
        if (marker < 0) {
            return cut(file);
        }
        if ((marker >= RST0 && marker <= RST7) || marker == TEM) {
            continue;
        }
        if (marker == EOI) {
            return FAIL(STATUS_INVALID, "JPEG without an image");
        }
        if (marker == SOI) {
            return FAIL(STATUS_INVALID, "JPEG begins twice: the file is damaged");
        }
        if (file.count - offset < 2) {
            return cut(file);
        }
        size_t length = image__be16(file.data + offset);
        if (length < 2) {
            return FAIL(STATUS_INVALID, "JPEG marker 0x%02x of length %zu: the file is damaged",
                        (unsigned)marker, length);
        }
        if (file.count - offset < length) {
            return cut(file);
        }
        const uint8_t *body = file.data + offset + 2;
        size_t count = length - 2;
        if (marker == SOS) {
            break;
        }
        if ((marker >= 0xc0 && marker <= 0xcf && marker != DHT && marker != JPG && marker != DAC) ||
            marker == JPEG_LS) {
            TRY(read_frame(marker, body, count, header, &frame));
        } else if (marker == DQT) {
            tables |= read_tables(body, count);
        } else if (marker == APP0 && count >= 14 && memcmp(body, "JFIF\0", 5) == 0) {
            frame.jfif = true;
        } else if (marker == APP14 && count >= 12 && memcmp(body, "Adobe", 5) == 0) {
            header->adobe_transform = body[11];
        } else if (marker == APP1 && !exif_seen && count >= 6 && memcmp(body, "Exif\0", 5) == 0) {
            struct image_bytes tiff = {body + 6, count - 6};
            exif_seen = true;
            facts->orientation = image__exif_orientation(tiff);
        }
        offset += length;
    }
    if (!frame.seen) {
        return FAIL(STATUS_INVALID, "JPEG scan without a frame header: the file is damaged");
    }
    for (int i = 0; i < frame.components; i++) {
        bool there = frame.tables[i] < 4 && (tables & 1u << frame.tables[i]) != 0;
        header->tables_missing = header->tables_missing || !there;
    }
    header->body = offset;
    facts->colour = colour_of(&frame, header->adobe_transform);
    return check_plausible(file, header, &frame);
}

bool image__jpeg_ends(struct image_bytes file, size_t from)
{
    /* From the back: it usually stands in the last two bytes. */
    for (size_t at = file.count; at >= from + 2; at--) {
        if (file.data[at - 1] == EOI && file.data[at - 2] == 0xff) {
            return true;
        }
    }
    return false;
}

int image__jpeg_scans(struct image_bytes file, size_t from, int most)
{
    int scans = 0;

    while (scans < most) {
        int marker = next_marker(file, &from);
        if (marker < 0) {
            break;
        }
        scans += marker == SOS;
    }
    return scans;
}
