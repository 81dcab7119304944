/* A decoder's life, its memory, the sink, and what it makes of a header. */
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

/* Scratch memory above this is given back after the image that needed it. */
#define KEPT_BYTES ((size_t)64 << 20)

const char *image_kind_name(enum image_kind kind)
{
    switch (kind) {
    case IMAGE_PNG:
        return "PNG";
    case IMAGE_JPEG:
        return "JPEG";
    case IMAGE_BMP:
        return "BMP";
    case IMAGE_GIF:
        return "GIF";
    case IMAGE_TGA:
        return "TGA";
    case IMAGE_PSD:
        return "PSD";
    case IMAGE_PNM:
        return "PNM";
    case IMAGE_UNKNOWN:
        break;
    }
    return "unknown";
}

/* --- Memory ---------------------------------------------------------------------------------- */

enum status image__buffer_reserve(struct image_buffer *buffer, size_t bytes)
{
    size_t padded;

    if (bytes <= buffer->capacity) {
        return STATUS_OK;
    }
    free(buffer->bytes);
    buffer->bytes = NULL;
    buffer->capacity = 0;
    if (!size_add(bytes, RESAMPLE_SLACK + 63, &padded)) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a picture of %zu bytes", bytes);
    }
    padded &= ~(size_t)63;
    buffer->bytes = aligned_alloc(64, padded);
    if (buffer->bytes == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a picture of %zu bytes; use fewer workers",
                    bytes);
    }
    buffer->capacity = bytes;
    return STATUS_OK;
}

static void buffer_trim(struct image_buffer *buffer)
{
    if (buffer->capacity > KEPT_BYTES) {
        free(buffer->bytes);
        buffer->bytes = NULL;
        buffer->capacity = 0;
    }
}

void image__trim(struct image_decoder *decoder)
{
    buffer_trim(&decoder->pixels);
    buffer_trim(&decoder->whole);
    buffer_trim(&decoder->turned);
    buffer_trim(&decoder->file);
}

enum status image_decoder_open(const struct image_settings *settings, image_decoder **out)
{
    *out = NULL;
    TRY(image__check_settings(settings));
    image_decoder *decoder = calloc(1, sizeof(*decoder));
    if (decoder == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a decoder; use fewer workers");
    }
    decoder->settings = *settings;
    resample_init(&decoder->resample);
    *out = decoder;
    return STATUS_OK;
}

void image_decoder_close(image_decoder **decoder)
{
    if (*decoder == NULL) {
        return;
    }
    resample_fini(&(*decoder)->resample);
    image__png_close(&(*decoder)->png);
    image__jpeg_close(&(*decoder)->jpeg);
    free((*decoder)->pixels.bytes);
    free((*decoder)->whole.bytes);
    free((*decoder)->turned.bytes);
    free((*decoder)->file.bytes);
    free(*decoder);
    *decoder = NULL;
}

size_t image_decoder_bytes(const image_decoder *decoder)
{
    return sizeof(*decoder) + resample_bytes(&decoder->resample) + image__png_bytes(decoder->png) +
           decoder->pixels.capacity + decoder->whole.capacity + decoder->turned.capacity +
           decoder->file.capacity;
}

/* --- Sink ------------------------------------------------------------------------------------ */

enum status image__sink_begin(struct image_sink *sink, uint32_t width, uint32_t height, int shift)
{
    if (sink->resample == NULL) {
        sink->left = 0;
        sink->right = width;
        sink->top = 0;
        sink->bottom = height;
        return STATUS_OK;
    }
    TRY(resample_begin(sink->resample, sink->view, sink->output, width, height, shift));
    sink->left = sink->resample->left;
    sink->right = sink->resample->right;
    sink->top = sink->resample->top;
    sink->bottom = sink->resample->bottom;
    return STATUS_OK;
}

enum status image__sink_layout(struct image_sink *sink, uint32_t origin, uint32_t row_pixels)
{
    if (sink->resample == NULL) {
        return STATUS_OK;
    }
    return resample_layout(sink->resample, origin, row_pixels);
}

uint8_t *image__sink_row(struct image_sink *sink, uint32_t y)
{
    if (sink->resample == NULL) {
        return sink->whole + (size_t)y * sink->whole_stride;
    }
    return resample_row(sink->resample, y);
}

void image__sink_done(struct image_sink *sink, uint32_t y)
{
    if (sink->resample != NULL) {
        resample_done(sink->resample, y);
    }
}

/* --- Headers --------------------------------------------------------------------------------- */

static bool library_reads(enum image_library library, const struct image_header *header)
{
    const struct image_facts *facts = &header->facts;

    switch (library) {
    case IMAGE_LIBRARY_TURBO:
        return facts->kind == IMAGE_JPEG;
    case IMAGE_LIBRARY_LIBPNG:
        return facts->kind == IMAGE_PNG;
    case IMAGE_LIBRARY_STB:
        if (facts->kind == IMAGE_JPEG) {
            /* Without Adobe's marker it takes four components for three and an alpha channel. */
            return !facts->arithmetic && (facts->channels != 4 || header->adobe_transform == 0 ||
                                          header->adobe_transform == 2);
        }
        if (facts->kind == IMAGE_PNG) {
            return facts->bits <= 8;
        }
        return facts->kind != IMAGE_PNM;
    case IMAGE_LIBRARY_NONE:
        break;
    }
    return false;
}

static enum status choose_library(const struct image_decoder *decoder, enum image_library *library)
{
    const struct image_facts *facts = &decoder->header.facts;
    char text[32];

    *library = IMAGE_LIBRARY_NONE;
    if (facts->kind == IMAGE_PNM) {
        return STATUS_OK;
    }
    for (int i = 0; i < IMAGE_LIBRARIES; i++) {
        if (library_reads(decoder->settings.libraries[i], &decoder->header)) {
            *library = decoder->settings.libraries[i];
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_UNSUPPORTED, "%s%s data, which the decoders in use (%s) do not read",
                facts->arithmetic     ? "arithmetically coded "
                : facts->bits == 16   ? "16-bit "
                : facts->channels > 3 ? "four-channel "
                                      : "",
                image_kind_name(facts->kind),
                image_settings_libraries_text(&decoder->settings, text, sizeof(text)));
}

static enum status probe_kind(struct image_bytes file, struct image_header *header)
{
    switch (header->facts.kind) {
    case IMAGE_PNG:
        return image__probe_png(file, header);
    case IMAGE_JPEG:
        return image__probe_jpeg(file, header);
    case IMAGE_BMP:
        return image__probe_bmp(file, header);
    case IMAGE_GIF:
        return image__probe_gif(file, header);
    case IMAGE_TGA:
        return image__probe_tga(file, header);
    case IMAGE_PSD:
        return image__probe_psd(file, header);
    case IMAGE_PNM:
        return image__probe_pnm(file, header);
    case IMAGE_UNKNOWN:
        break;
    }
    return image__fail_unknown(file);
}

static enum status check_limits(const struct image_decoder *decoder)
{
    const struct image_settings *settings = &decoder->settings;
    const struct image_header *header = &decoder->header;
    uint64_t pixels = (uint64_t)header->width * header->height;

    if (header->width > settings->max_dimension || header->height > settings->max_dimension) {
        return FAIL(STATUS_LIMIT,
                    "%s header claims %u x %u pixels, more than the %u a side that are allowed",
                    image_kind_name(header->facts.kind), header->width, header->height,
                    settings->max_dimension);
    }
    if (pixels > settings->max_pixels) {
        return FAIL(STATUS_LIMIT,
                    "%s header claims %u x %u = %llu pixels, more than the limit of %llu "
                    "(--max-pixels)",
                    image_kind_name(header->facts.kind), header->width, header->height,
                    (unsigned long long)pixels, (unsigned long long)settings->max_pixels);
    }
    return STATUS_OK;
}

enum status image__probe(struct image_decoder *decoder, struct image_bytes file,
                         enum image_library *library)
{
    struct image_header *header = &decoder->header;
    struct image_facts *facts = &header->facts;

    if (file.count > decoder->settings.max_file_bytes) {
        return FAIL(STATUS_LIMIT,
                    "file of %zu bytes, more than the limit of %llu "
                    "(--max-file-bytes)",
                    file.count, (unsigned long long)decoder->settings.max_file_bytes);
    }
    memset(header, 0, sizeof(*header));
    facts->kind = image__sniff(file);
    facts->orientation = 1;
    enum status status = probe_kind(file, header);
    /* A claim that is both absurd and not backed by data is named as the first. */
    if (header->width != 0 && header->height != 0) {
        TRY(check_limits(decoder));
    }
    TRY(status);
    bool turn =
        decoder->settings.exif_orientation && image__orientation_transposes(facts->orientation);
    facts->width = turn ? header->height : header->width;
    facts->height = turn ? header->width : header->height;
    return choose_library(decoder, library);
}

enum status image_probe(image_decoder *decoder, const void *data, size_t bytes,
                        struct image_facts *facts)
{
    struct image_bytes file = {data, bytes};
    enum image_library library;

    TRY(image__probe(decoder, file, &library));
    *facts = decoder->header.facts;
    return STATUS_OK;
}
