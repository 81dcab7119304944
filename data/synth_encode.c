#include <png.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if PINLINE_HAVE_TURBO
#include <jpeglib.h>
#endif

#include "data/synth_internal.h"

static enum status reserve(struct synth_buffer *buffer, size_t bytes)
{
    if (bytes <= buffer->capacity) {
        return STATUS_OK;
    }
    void *larger = realloc(buffer->data, bytes);
    if (larger == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to encode an image, %zu bytes", bytes);
    }
    buffer->data = larger;
    buffer->capacity = bytes;
    return STATUS_OK;
}

enum status synth_encode_png(const uint8_t *rgb, int width, int height, struct synth_buffer *out)
{
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    image.width = (png_uint_32)width;
    image.height = (png_uint_32)height;
    image.format = PNG_FORMAT_RGB;
    TRY(reserve(out, PNG_IMAGE_PNG_SIZE_MAX(image)));
    png_alloc_size_t bytes = out->capacity;
    if (!png_image_write_to_memory(&image, out->data, &bytes, 0, rgb, 0, NULL)) {
        return FAIL(STATUS_INTERNAL, "libpng cannot encode a made image: %s", image.message);
    }
    out->bytes = bytes;
    return STATUS_OK;
}

#if PINLINE_HAVE_TURBO

struct jpeg_failure {
    struct jpeg_error_mgr manager; /* first, so that the library's pointer is ours */
    jmp_buf back;
    char text[JMSG_LENGTH_MAX];
};

static void leave(j_common_ptr codec)
{
    struct jpeg_failure *failure = (struct jpeg_failure *)codec->err;
    codec->err->format_message(codec, failure->text);
    longjmp(failure->back, 1);
}

/* What a jump must find unchanged lives here, outside of the function that sets it up. */
struct jpeg_job {
    struct jpeg_compress_struct codec;
    struct jpeg_failure failure;
    unsigned char *memory; /* where the library writes; it may replace it */
    unsigned long bytes;
};

static void compress(struct jpeg_job *job, const uint8_t *rgb, int width, int height, int quality)
{
    struct jpeg_compress_struct *codec = &job->codec;
    jpeg_create_compress(codec);
    jpeg_mem_dest(codec, &job->memory, &job->bytes);
    codec->image_width = (JDIMENSION)width;
    codec->image_height = (JDIMENSION)height;
    codec->input_components = 3;
    codec->in_color_space = JCS_RGB;
    jpeg_set_defaults(codec);
    jpeg_set_quality(codec, quality, TRUE);
    /* The accurate transform: the fast ones may differ between processors. */
    codec->dct_method = JDCT_ISLOW;
    codec->optimize_coding = TRUE;
    jpeg_start_compress(codec, TRUE);
    for (int y = 0; y < height; y++) {
        /* The library's rows are not const, although it only reads them. */
        union {
            const uint8_t *given;
            JSAMPROW wanted;
        } row = {.given = rgb + (size_t)y * (size_t)width * 3};
        (void)jpeg_write_scanlines(codec, &row.wanted, 1);
    }
    jpeg_finish_compress(codec);
}

enum status synth_encode_jpeg(const uint8_t *rgb, int width, int height, int quality,
                              struct synth_buffer *out)
{
    /* Noise at quality 100 stays below this; were it not so, the library takes memory of its own. */
    TRY(reserve(out, (size_t)width * (size_t)height * 3 * 2 + 4096));
    struct jpeg_job *job = calloc(1, sizeof *job);
    if (job == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to encode an image");
    }
    job->memory = out->data;
    job->bytes = out->capacity;
    job->codec.err = jpeg_std_error(&job->failure.manager);
    job->failure.manager.error_exit = leave;
    enum status status = STATUS_OK;
    if (setjmp(job->failure.back) == 0) {
        compress(job, rgb, width, height, quality);
    } else {
        status = FAIL(STATUS_INTERNAL, "libjpeg cannot encode a made image: %s", job->failure.text);
    }
    jpeg_destroy_compress(&job->codec);
    if (status == STATUS_OK && job->memory != out->data) {
        free(out->data);
        out->data = job->memory;
        out->capacity = job->bytes;
    }
    out->bytes = job->bytes;
    free(job);
    return status;
}

#else

enum status synth_encode_jpeg(const uint8_t *rgb, int width, int height, int quality,
                              struct synth_buffer *out)
{
    (void)rgb;
    (void)width;
    (void)height;
    (void)quality;
    (void)out;
    return FAIL(STATUS_UNSUPPORTED,
                "this build has no libjpeg-turbo, so it writes no JPEG; use --format png");
}

#endif
