/*
 * Decoding by stb_image. It is careful about little: it takes cut data for black rows, ignores
 * checksums and leaves memory unwritten. So it sees nothing but what the functions named
 * image__plain_* and image__check_png have gone through, and only kinds whose code in it holds:
 * neither PNM nor 16 bits. Its failure reason is state of the process and is left out of the build.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

/* What one file may still take, for the calls that stb_image makes from this thread. A stream that
 * inflates beyond its picture ends here. */
static _Thread_local size_t budget;

#define SMALL_BYTES ((size_t)64 << 10)

static void *limited_malloc(size_t bytes)
{
    if (bytes > budget) {
        return NULL;
    }
    budget -= bytes;
    /* Its tables are used without having been written where a file lacks them. */
    return bytes <= SMALL_BYTES ? calloc(1, bytes) : malloc(bytes);
}

static void *limited_realloc(void *memory, size_t bytes)
{
    if (bytes > budget) {
        return NULL;
    }
    budget -= bytes;
    return realloc(memory, bytes);
}

#define STBI_MALLOC(bytes) limited_malloc(bytes)
#define STBI_REALLOC(memory, bytes) limited_realloc(memory, bytes)
#define STBI_FREE(memory) free(memory)
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STBI_NO_PIC
#define STBI_NO_PNM
#define STBI_NO_FAILURE_STRINGS
#define STBI_ASSERT(condition) ((void)0)
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
/* It declares functions that it does not define, about which compilers complain at the end of the
 * file only; so this holds to the end. Its shifts of negative numbers are none of ours to judge. */
#pragma GCC diagnostic ignored "-Wunused-function"
#if defined(__clang__)
#pragma clang attribute push(__attribute__((no_sanitize("undefined"))), apply_to = function)
#endif
#include <stb/stb_image.h>
#if defined(__clang__)
#pragma clang attribute pop
#endif

/* Scans that a progressive JPEG may have; each costs a pass over the picture. */
#define MOST_SCANS 100

static enum status check_jpeg(struct image_bytes file, const struct image_header *header)
{
    if (!image__jpeg_ends(file, header->body)) {
        return FAIL(STATUS_INVALID, "JPEG data end early, after %zu bytes: the file is cut",
                    file.count);
    }
    if (header->tables_missing) {
        return FAIL(STATUS_INVALID, "JPEG without the quantisation table that it names");
    }
    if (image__jpeg_scans(file, header->body, MOST_SCANS) >= MOST_SCANS) {
        return FAIL(STATUS_LIMIT, "JPEG of more than %d scans", MOST_SCANS);
    }
    return STATUS_OK;
}

/* The pixels of a GIF's frame on the whole picture. Every pixel of the frame must have been drawn,
 * which its alpha tells. */
static enum status put_gif(struct image_sink *sink, const struct image_header *header,
                           const struct image_gif_frame *frame, const uint8_t *rgba)
{
    size_t count = (size_t)frame->width * frame->height;

    for (size_t i = 0; i < count; i++) {
        if (rgba[4 * i + 3] == 0) {
            return FAIL(STATUS_INVALID, "GIF data end early, in row %zu of %u", i / frame->width,
                        frame->height);
        }
    }
    for (uint32_t y = 0; y < header->height; y++) {
        uint8_t *row = image__sink_row(sink, y);
        for (uint32_t x = 0; x < header->width; x++) {
            bool inside = x >= frame->x && x - frame->x < frame->width && y >= frame->y &&
                          y - frame->y < frame->height;
            const uint8_t *from =
                inside ? rgba + ((size_t)(y - frame->y) * frame->width + (x - frame->x)) * 4
                       : frame->rest;
            memcpy(row + 3 * (size_t)x, from, 3);
        }
        image__sink_done(sink, y);
    }
    return STATUS_OK;
}

static void put_rgb(struct image_sink *sink, const struct image_header *header, const uint8_t *rgb)
{
    for (uint32_t y = 0; y < header->height; y++) {
        memcpy(image__sink_row(sink, y), rgb + (size_t)y * header->width * 3,
               (size_t)header->width * 3);
        image__sink_done(sink, y);
    }
}

/* What the largest consumer (progressive JPEG of four components) takes, with its padding. */
static enum status set_budget(const struct image_header *header, size_t file_bytes)
{
    size_t pixels, bytes;

    if (!size_multiply((size_t)header->width + 64, (size_t)header->height + 64, &pixels) ||
        !size_multiply(pixels, 32, &bytes) || !size_add(bytes, (size_t)4 << 20, &bytes) ||
        !size_add(bytes, file_bytes, &bytes)) {
        return FAIL(STATUS_LIMIT, "picture of %u x %u pixels is too large", header->width,
                    header->height);
    }
    budget = bytes;
    return STATUS_OK;
}

enum status image__decode_stb(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink)
{
    const struct image_header *header = &decoder->header;
    const char *kind = image_kind_name(header->facts.kind);
    struct image_gif_frame frame = {0};
    struct image_bytes plain = file;
    size_t copied = 0;
    int width = 0, height = 0, channels = 0;
    int wanted = header->facts.kind == IMAGE_GIF ? 4 : 3;

    switch (header->facts.kind) {
    case IMAGE_JPEG:
        TRY(check_jpeg(file, header));
        break;
    case IMAGE_PNG:
        TRY(image__check_png(file, &decoder->file, &copied));
        plain.data = decoder->file.bytes;
        plain.count = copied;
        break;
    case IMAGE_BMP:
        TRY(image__plain_bmp(file, header, &decoder->file, &plain));
        break;
    case IMAGE_GIF:
        TRY(image__plain_gif(file, &decoder->file, &plain, &frame));
        break;
    case IMAGE_TGA:
        TRY(image__plain_tga(file, header, &plain));
        break;
    default:
        TRY(image__plain_psd(file, header, &decoder->file, &plain));
        break;
    }
    if (plain.count > INT_MAX) {
        return FAIL(STATUS_LIMIT, "%s of %zu bytes is too large for stb_image", kind, plain.count);
    }
    TRY(image__sink_begin(sink, header->width, header->height, 0));
    TRY(image__sink_layout(sink, 0, header->width));
    TRY(set_budget(header, file.count));
    stbi_uc *pixels =
        stbi_load_from_memory(plain.data, (int)plain.count, &width, &height, &channels, wanted);
    if (pixels == NULL) {
        return FAIL(STATUS_INVALID, "%s data are damaged, or of a variant that stb_image lacks",
                    kind);
    }
    uint32_t expected_width = wanted == 4 ? frame.width : header->width;
    uint32_t expected_height = wanted == 4 ? frame.height : header->height;
    enum status status = STATUS_OK;
    if ((uint32_t)width != expected_width || (uint32_t)height != expected_height) {
        status = FAIL(STATUS_INVALID, "%s data of %d x %d pixels under a header of %u x %u", kind,
                      width, height, expected_width, expected_height);
    } else if (wanted == 4) {
        status = put_gif(sink, header, &frame, pixels);
    } else {
        put_rgb(sink, header, pixels);
    }
    free(pixels);
    return status;
}
