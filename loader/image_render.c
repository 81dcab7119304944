/* From a file, or from pixels, to the output. */
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

void image_view_whole(uint32_t width, uint32_t height, uint32_t size, struct image_view *view)
{
    *view = (struct image_view){
        .crop_width = width,
        .crop_height = height,
        .resize_width = size,
        .resize_height = size,
        .width = size,
        .height = size,
    };
}

static enum status check_view(const struct image_view *view, uint32_t width, uint32_t height)
{
    bool inside = view->crop_width >= 1 && view->crop_height >= 1 && view->crop_x < width &&
                  view->crop_y < height && view->crop_width <= width - view->crop_x &&
                  view->crop_height <= height - view->crop_y;
    bool sizes = view->resize_width >= 1 && view->resize_height >= 1 &&
                 view->resize_width <= 16384 && view->resize_height <= 16384 && view->width >= 1 &&
                 view->height >= 1 && view->width <= 16384 && view->height <= 16384;

    if (!inside || !sizes) {
        return FAIL(STATUS_INTERNAL, "a view of %u x %u at (%u, %u) does not fit %u x %u pixels",
                    view->crop_width, view->crop_height, view->crop_x, view->crop_y, width, height);
    }
    return STATUS_OK;
}

static enum status decode(struct image_decoder *decoder, struct image_bytes file,
                          enum image_library library, struct image_sink *sink)
{
    switch (library) {
    case IMAGE_LIBRARY_TURBO:
        return image__decode_jpeg(decoder, file, sink);
    case IMAGE_LIBRARY_LIBPNG:
        return image__decode_png(decoder, file, sink);
    case IMAGE_LIBRARY_STB:
        return image__decode_stb(decoder, file, sink);
    case IMAGE_LIBRARY_NONE:
        break;
    }
    return image__decode_pnm(decoder, file, sink);
}

static bool is_turned(const struct image_decoder *decoder)
{
    return decoder->settings.exif_orientation && decoder->header.facts.orientation != 1;
}

/* The whole picture as stored. */
static enum status decode_whole(struct image_decoder *decoder, struct image_bytes file,
                                enum image_library library, uint8_t *pixels)
{
    struct image_sink sink = {
        .whole = pixels,
        .whole_stride = (size_t)decoder->header.width * 3,
    };

    return decode(decoder, file, library, &sink);
}

static enum status picture_bytes(const struct image_header *header, size_t *bytes)
{
    if (!size_multiply(header->width, header->height, bytes) || !size_multiply(*bytes, 3, bytes)) {
        return FAIL(STATUS_LIMIT, "picture of %u x %u pixels is too large", header->width,
                    header->height);
    }
    return STATUS_OK;
}

/* The whole picture, turned upright, into `pixels`. */
static enum status decode_turned(struct image_decoder *decoder, struct image_bytes file,
                                 enum image_library library, uint8_t *pixels)
{
    const struct image_header *header = &decoder->header;
    size_t bytes;

    TRY(picture_bytes(header, &bytes));
    TRY(image__buffer_reserve(&decoder->whole, bytes));
    TRY(decode_whole(decoder, file, library, decoder->whole.bytes));
    image__orient(decoder->whole.bytes, header->width, header->height, header->facts.orientation,
                  pixels);
    return STATUS_OK;
}

static enum status render_rgb(struct image_decoder *decoder, const uint8_t *pixels, uint32_t width,
                              uint32_t height, const struct image_view *view,
                              const struct image_output *output)
{
    struct resample *resample = &decoder->resample;

    TRY(resample_begin(resample, view, output, width, height, 0));
    TRY(resample_layout(resample, 0, width));
    resample_take_all(resample, pixels);
    resample_finish(resample);
    return STATUS_OK;
}

static enum status render_grey(struct image_decoder *decoder, const uint8_t *pixels, uint32_t width,
                               uint32_t height, const struct image_view *view,
                               const struct image_output *output)
{
    struct resample *resample = &decoder->resample;

    TRY(resample_begin(resample, view, output, width, height, 0));
    TRY(resample_layout(resample, 0, width));
    for (uint32_t y = resample->top; y < resample->bottom; y++) {
        const uint8_t *from = pixels + (size_t)y * width;
        uint8_t *to = resample_row(resample, y);
        for (uint32_t x = 0; x < width; x++) {
            memset(to + 3 * (size_t)x, from[x], 3);
        }
        resample_done(resample, y);
    }
    resample_finish(resample);
    return STATUS_OK;
}

static enum status render_file(struct image_decoder *decoder, struct image_bytes file,
                               const struct image_view *view, const struct image_output *output)
{
    enum image_library library;
    size_t bytes;

    TRY(image__probe(decoder, file, &library));
    const struct image_facts *facts = &decoder->header.facts;
    TRY(check_view(view, facts->width, facts->height));
    if (is_turned(decoder)) {
        TRY(picture_bytes(&decoder->header, &bytes));
        TRY(image__buffer_reserve(&decoder->turned, bytes));
        TRY(decode_turned(decoder, file, library, decoder->turned.bytes));
        return render_rgb(decoder, decoder->turned.bytes, facts->width, facts->height, view,
                          output);
    }
    struct image_sink sink = {
        .resample = &decoder->resample,
        .view = view,
        .output = output,
    };
    TRY(decode(decoder, file, library, &sink));
    resample_finish(&decoder->resample);
    return STATUS_OK;
}

enum status image_render(image_decoder *decoder, const void *data, size_t bytes,
                         const struct image_view *view, const struct image_output *output)
{
    struct image_bytes file = {data, bytes};
    enum status status = render_file(decoder, file, view, output);

    resample_publish(&decoder->resample);
    image__trim(decoder);
    return status;
}

enum status image_render_pixels(image_decoder *decoder, const uint8_t *pixels, uint32_t width,
                                uint32_t height, int channels, const struct image_view *view,
                                const struct image_output *output)
{
    TRY(check_view(view, width, height));
    enum status status = channels == 1 ? render_grey(decoder, pixels, width, height, view, output)
                                       : render_rgb(decoder, pixels, width, height, view, output);
    resample_publish(&decoder->resample);
    return status;
}

static enum status decode_file(struct image_decoder *decoder, struct image_bytes file,
                               uint8_t *pixels, size_t capacity, struct image_facts *facts)
{
    enum image_library library;
    size_t need;

    TRY(image__probe(decoder, file, &library));
    if (facts != NULL) {
        *facts = decoder->header.facts;
    }
    TRY(picture_bytes(&decoder->header, &need));
    if (capacity < need) {
        return FAIL(STATUS_LIMIT, "%u x %u pixels need %zu bytes, and there are %zu",
                    decoder->header.width, decoder->header.height, need, capacity);
    }
    if (is_turned(decoder)) {
        return decode_turned(decoder, file, library, pixels);
    }
    return decode_whole(decoder, file, library, pixels);
}

enum status image_decode_rgb(image_decoder *decoder, const void *data, size_t bytes,
                             uint8_t *pixels, size_t capacity, struct image_facts *facts)
{
    struct image_bytes file = {data, bytes};
    enum status status = decode_file(decoder, file, pixels, capacity, facts);

    image__trim(decoder);
    return status;
}
