/* GIF (CompuServe, 1987 and 1989): the blocks up to the first image. */
#include <string.h>

#include "loader/image_internal.h"

#define SCREEN_BYTES 13 /* signature and logical screen descriptor */

static enum status cut(struct image_bytes file)
{
    return FAIL(STATUS_INVALID, "GIF data end early, after %zu bytes: the file is cut", file.count);
}

/* Moves *offset behind a chain of data blocks, its empty last one included. */
static bool skip_blocks(struct image_bytes file, size_t *offset)
{
    size_t at = *offset;

    while (at < file.count) {
        size_t length = file.data[at++];
        if (length == 0) {
            *offset = at;
            return true;
        }
        if (file.count - at < length) {
            return false;
        }
        at += length;
    }
    return false;
}

struct gif {
    size_t palette; /* offset of the one that holds for the first image */
    uint32_t colours;
    int transparent;   /* index, -1 for none */
    size_t descriptor; /* offset of the first image's, behind its separator */
    size_t data;       /* offset of its code size */
};

static enum status find_image(struct image_bytes file, struct gif *gif)
{
    size_t at = SCREEN_BYTES;
    uint8_t flags = file.data[10];

    gif->transparent = -1;
    gif->palette = 0;
    gif->colours = 0;
    if ((flags & 0x80u) != 0) {
        gif->palette = at;
        gif->colours = 2u << (flags & 7u);
        at += 3 * (size_t)gif->colours;
    }
    for (;;) {
        if (at >= file.count) {
            return cut(file);
        }
        uint8_t kind = file.data[at++];
        if (kind == 0x2c) {
            break;
        }
        if (kind == 0x3b) {
            return FAIL(STATUS_INVALID, "GIF without an image");
        }
        if (kind != 0x21) {
            return FAIL(STATUS_INVALID, "no GIF block at byte %zu: the file is damaged", at - 1);
        }
        if (file.count - at >= 7 && file.data[at] == 0xf9 && file.data[at + 1] == 4) {
            gif->transparent = (file.data[at + 2] & 1u) != 0 ? file.data[at + 5] : -1;
        }
        at++;
        if (!skip_blocks(file, &at)) {
            return cut(file);
        }
    }
    if (file.count - at < 10) {
        return cut(file);
    }
    gif->descriptor = at;
    uint8_t local = file.data[at + 8];
    at += 9;
    if ((local & 0x80u) != 0) {
        gif->palette = at;
        gif->colours = 2u << (local & 7u);
        at += 3 * (size_t)gif->colours;
    }
    if (at >= file.count) {
        return cut(file);
    }
    gif->data = at;
    return STATUS_OK;
}

enum status image__probe_gif(struct image_bytes file, struct image_header *header)
{
    struct image_facts *facts = &header->facts;
    struct gif gif;

    if (file.count < SCREEN_BYTES) {
        return cut(file);
    }
    header->width = image__le16(file.data + 6);
    header->height = image__le16(file.data + 8);
    if (header->width == 0 || header->height == 0) {
        return FAIL(STATUS_INVALID, "GIF header claims %u x %u pixels", header->width,
                    header->height);
    }
    TRY(find_image(file, &gif));
    facts->channels = 1;
    facts->bits = 8;
    facts->colour = IMAGE_COLOUR_PALETTE;
    facts->alpha = gif.transparent >= 0;
    facts->interlaced = (file.data[gif.descriptor + 8] & 0x40u) != 0;
    return STATUS_OK;
}

/* A screen of the frame's size, one palette of 256, no transparency, the frame. */
enum status image__plain_gif(struct image_bytes file, struct image_buffer *buffer,
                             struct image_bytes *plain, struct image_gif_frame *frame)
{
    struct gif gif;

    TRY(find_image(file, &gif));
    const uint8_t *descriptor = file.data + gif.descriptor;
    frame->x = image__le16(descriptor);
    frame->y = image__le16(descriptor + 2);
    frame->width = image__le16(descriptor + 4);
    frame->height = image__le16(descriptor + 6);
    if (frame->width == 0 || frame->height == 0 ||
        frame->x + frame->width > image__le16(file.data + 6) ||
        frame->y + frame->height > image__le16(file.data + 8)) {
        return FAIL(STATUS_INVALID, "GIF frame of %u x %u at (%u, %u) is outside of its picture",
                    frame->width, frame->height, frame->x, frame->y);
    }
    size_t end = gif.data + 1;
    if (!skip_blocks(file, &end)) {
        return cut(file);
    }
    size_t total = SCREEN_BYTES + 768 + 10 + (end - gif.data) + 1;
    TRY(image__buffer_reserve(buffer, total));
    uint8_t *to = buffer->bytes;
    memset(to, 0, SCREEN_BYTES + 768 + 10);
    memcpy(to, "GIF89a", 6);
    memcpy(to + 6, descriptor + 4, 4);
    to[10] = 0xf7; /* a global palette of 256 */
    if (gif.palette != 0) {
        memcpy(to + SCREEN_BYTES, file.data + gif.palette, 3 * (size_t)gif.colours);
    } else {
        for (int i = 0; i < 768; i++) {
            to[SCREEN_BYTES + i] = (uint8_t)(i / 3);
        }
    }
    /* What the frame leaves free shows the transparent index, or the first. */
    memcpy(frame->rest, to + SCREEN_BYTES + 3 * (gif.transparent < 0 ? 0 : gif.transparent), 3);
    to += SCREEN_BYTES + 768;
    to[0] = 0x2c;
    memcpy(to + 5, descriptor + 4, 4);
    to[9] = descriptor[8] & 0x40u;
    memcpy(to + 10, file.data + gif.data, end - gif.data);
    to[10 + end - gif.data] = 0x3b;
    plain->data = buffer->bytes;
    plain->count = total;
    return STATUS_OK;
}
