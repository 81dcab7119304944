/* PSD (Adobe's file format specification): the merged picture of an RGB document of 8 bits. */
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

#define HEADER 26
#define PLAIN_HEADER (HEADER + 3 * 4 + 2) /* three empty sections, and the compression */

static enum status cut(struct image_bytes file)
{
    return FAIL(STATUS_INVALID, "PSD data end early, after %zu bytes: the file is cut", file.count);
}

enum status image__probe_psd(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    size_t at = HEADER;

    if (file.count < HEADER) {
        return cut(file);
    }
    uint32_t version = image__be16(file.data + 4), depth = image__be16(file.data + 22);
    uint32_t mode = image__be16(file.data + 24), channels = image__be16(file.data + 12);
    header->height = image__be32(file.data + 14);
    header->width = image__be32(file.data + 18);
    if (version != 1) {
        return FAIL(STATUS_UNSUPPORTED, "PSD of version %u, not supported", version);
    }
    if (depth != 8) {
        return FAIL(STATUS_UNSUPPORTED, "PSD of %u bits a channel, not supported: convert it to 8",
                    depth);
    }
    if (mode != 3 || channels < 3) {
        return FAIL(STATUS_UNSUPPORTED,
                    "PSD of colour mode %u with %u channels, not supported: convert it to RGB",
                    mode, channels);
    }
    if (header->width == 0 || header->height == 0) {
        return FAIL(STATUS_INVALID, "PSD header claims %u x %u pixels", header->width,
                    header->height);
    }
    for (int section = 0; section < 3; section++) {
        if (file.count - at < 4) {
            return cut(file);
        }
        size_t length = image__be32(file.data + at);
        at += 4;
        if (file.count - at < length) {
            return cut(file);
        }
        at += length;
    }
    if (file.count - at < 2) {
        return cut(file);
    }
    if (image__be16(file.data + at) > 1) {
        return FAIL(STATUS_UNSUPPORTED, "PSD of compression %u, not supported",
                    image__be16(file.data + at));
    }
    header->body = at;
    facts->channels = channels > 3 ? 4 : 3;
    facts->bits = 8;
    facts->colour = IMAGE_COLOUR_RGB;
    facts->alpha = channels > 3;
    return STATUS_OK;
}

/* Moves *at behind run-length coded data of `left` bytes (PackBits). */
static bool skip_packed(struct image_bytes file, size_t *at, uint64_t left)
{
    while (left > 0) {
        if (*at >= file.count) {
            return false;
        }
        uint32_t code = file.data[(*at)++];
        if (code == 128) {
            continue;
        }
        uint32_t run = code < 128 ? code + 1 : 257 - code;
        size_t bytes = code < 128 ? run : 1;
        if (run > left || file.count - *at < bytes) {
            return false;
        }
        *at += bytes;
        left -= run;
    }
    return true;
}

/* Three channels, nothing else. */
enum status image__plain_psd(struct image_bytes file, const struct image_header *header,
                             struct image_buffer *buffer, struct image_bytes *plain)
{
    size_t channels = image__be16(file.data + 12);
    bool packed = image__be16(file.data + header->body) == 1;
    size_t at = header->body + 2;
    size_t plane, bytes, table = 0, total;

    if (!size_multiply(header->width, header->height, &plane) || !size_multiply(plane, 3, &bytes)) {
        return FAIL(STATUS_LIMIT, "PSD of %u x %u pixels is too large", header->width,
                    header->height);
    }
    if (packed) {
        /* The lengths of all rows come first. */
        size_t lengths = (size_t)header->height * channels * 2;
        if (file.count - at < lengths) {
            return cut(file);
        }
        at += lengths;
        size_t end = at;
        for (int channel = 0; channel < 3; channel++) {
            if (!skip_packed(file, &end, plane)) {
                return FAIL(STATUS_INVALID, "PSD data end early or are damaged");
            }
        }
        bytes = end - at;
        table = (size_t)header->height * 3 * 2;
    } else if (file.count - at < bytes) {
        return cut(file);
    }
    if (!size_add(PLAIN_HEADER + table, bytes, &total)) {
        return FAIL(STATUS_LIMIT, "PSD of %zu bytes is too large", bytes);
    }
    TRY(image__buffer_reserve(buffer, total));
    uint8_t *to = buffer->bytes;
    memset(to, 0, PLAIN_HEADER + table);
    memcpy(to, file.data, HEADER);
    to[12] = 0;
    to[13] = 3;
    to[PLAIN_HEADER - 1] = packed ? 1 : 0;
    memcpy(to + PLAIN_HEADER + table, file.data + at, bytes);
    plain->data = to;
    plain->count = total;
    return STATUS_OK;
}
