/* PBM, PGM and PPM, plain and raw (netpbm's pbm(5), pgm(5), ppm(5)): a file's first picture. */
#include "base/size.h"
#include "loader/image_internal.h"

static bool is_space(uint8_t byte)
{
    return byte == ' ' || (byte >= '\t' && byte <= '\r');
}

/* Moves *at to the next byte that is neither white space nor comment. */
static void skip_space(struct image_bytes file, size_t *at)
{
    while (*at < file.count) {
        uint8_t byte = file.data[*at];
        if (byte == '#') {
            while (*at < file.count && file.data[*at] != '\n' && file.data[*at] != '\r') {
                (*at)++;
            }
        } else if (is_space(byte)) {
            (*at)++;
        } else {
            return;
        }
    }
}

static bool read_number(struct image_bytes file, size_t *at, uint32_t *value)
{
    uint64_t number = 0;
    size_t from;

    skip_space(file, at);
    from = *at;
    while (*at < file.count && file.data[*at] >= '0' && file.data[*at] <= '9') {
        number = number * 10 + (uint64_t)(file.data[*at] - '0');
        if (number > UINT32_MAX) {
            return false;
        }
        (*at)++;
    }
    *value = (uint32_t)number;
    return *at > from;
}

enum status image__probe_pnm(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    size_t at = 2;

    header->variant = file.data[1] - '0';
    header->maximum = 1;
    bool bitmap = header->variant == 1 || header->variant == 4;
    bool colour = header->variant == 3 || header->variant == 6;
    if (!read_number(file, &at, &header->width) || !read_number(file, &at, &header->height) ||
        (!bitmap && !read_number(file, &at, &header->maximum))) {
        return FAIL(STATUS_INVALID, "PNM header without its numbers: the file is cut or damaged");
    }
    if (header->width == 0 || header->height == 0 || header->maximum == 0 ||
        header->maximum > 65535) {
        return FAIL(STATUS_INVALID, "PNM header claims %u x %u pixels up to %u", header->width,
                    header->height, header->maximum);
    }
    /* One white space character separates the header from raw samples. */
    if (at >= file.count || !is_space(file.data[at])) {
        return FAIL(STATUS_INVALID, "PNM data end within the header: the file is cut");
    }
    header->body = at + 1;
    facts->channels = colour ? 3 : 1;
    facts->bits = bitmap ? 1 : header->maximum > 255 ? 16 : 8;
    facts->colour = colour ? IMAGE_COLOUR_RGB : IMAGE_COLOUR_GREY;

    /* Plain samples take a digit each at least, and all but bits a separator. */
    uint64_t samples = (uint64_t)header->width * (uint64_t)facts->channels;
    uint64_t row = header->variant == 4  ? (samples + 7) / 8
                   : header->variant > 4 ? samples * (header->maximum > 255 ? 2 : 1)
                                         : samples;
    if (row > (file.count - header->body) / header->height) {
        return FAIL(STATUS_INVALID, "PNM data end early, after %zu bytes: the file is cut",
                    file.count);
    }
    return STATUS_OK;
}

/* To the nearest of 255 steps, and to the even one in the middle; the same for grey and colour. */
static uint8_t scale(uint32_t value, uint32_t maximum)
{
    if (value >= maximum) {
        return 255;
    }
    uint32_t step = value * 255u / maximum;
    uint32_t rest = value * 255u % maximum * 2;
    return (uint8_t)(step + (rest > maximum || (rest == maximum && (step & 1u) != 0)));
}

static enum status read_plain_sample(struct image_bytes file, size_t *at,
                                     const struct image_header *header, uint8_t *sample)
{
    uint32_t value = 0;

    if (header->variant == 1) {
        /* Bits need no separators. */
        skip_space(file, at);
        if (*at >= file.count || (file.data[*at] != '0' && file.data[*at] != '1')) {
            return FAIL(STATUS_INVALID, "PNM data end early or are damaged at byte %zu", *at);
        }
        *sample = file.data[(*at)++] == '0' ? 255 : 0;
        return STATUS_OK;
    }
    if (!read_number(file, at, &value)) {
        return FAIL(STATUS_INVALID, "PNM data end early or are damaged at byte %zu", *at);
    }
    *sample = scale(value, header->maximum);
    return STATUS_OK;
}

static enum status read_row(struct image_bytes file, size_t *at, const struct image_header *header,
                            uint8_t *row)
{
    bool colour = header->facts.channels == 3;
    size_t samples = (size_t)header->width * (colour ? 3 : 1);
    const uint8_t *from = file.data + *at;
    size_t step = colour ? 1 : 3;
    uint8_t sample = 0;

    for (size_t i = 0; i < samples; i++) {
        uint8_t *to = row + i * step;
        switch (header->variant) {
        case 4:
            sample = (from[i / 8] & (0x80u >> (i % 8))) != 0 ? 0 : 255;
            break;
        case 5:
        case 6:
            sample = header->maximum > 255    ? scale(image__be16(from + 2 * i), header->maximum)
                     : header->maximum == 255 ? from[i]
                                              : scale(from[i], header->maximum);
            break;
        default:
            TRY(read_plain_sample(file, at, header, &sample));
            break;
        }
        to[0] = sample;
        if (!colour) {
            to[1] = sample;
            to[2] = sample;
        }
    }
    if (header->variant == 4) {
        *at += (samples + 7) / 8;
    } else if (header->variant > 4) {
        *at += samples * (header->maximum > 255 ? 2 : 1);
    }
    return STATUS_OK;
}

enum status image__decode_pnm(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink)
{
    const struct image_header *header = &decoder->header;
    size_t at = header->body;

    TRY(image__sink_begin(sink, header->width, header->height, 0));
    TRY(image__sink_layout(sink, 0, header->width));
    /* That raw samples suffice was checked with the header. */
    for (uint32_t y = 0; y < header->height; y++) {
        TRY(read_row(file, &at, header, image__sink_row(sink, y)));
        image__sink_done(sink, y);
    }
    return STATUS_OK;
}
