/* JPEG files, written by libjpeg where it is there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/make_pen.h"

#if PINLINE_HAVE_TURBO

#include <jpeglib.h>

bool made_jpeg_available(void)
{
    return true;
}

bool made_jpeg_arithmetic_available(void)
{
#ifdef C_ARITH_CODING_SUPPORTED
    return true;
#else
    return false;
#endif
}

bool made_jpeg_merged_available(void)
{
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
    return true;
#else
    return false;
#endif
}

static void write_exif(struct jpeg_compress_struct *info, const struct made_jpeg *jpeg)
{
    struct pen exif = {0};

    pen_put(&exif, "Exif\0\0", 6);
    pen_exif(&exif, jpeg->orientation == 0 ? 1 : jpeg->orientation, jpeg->big_endian);
    if (jpeg->thumbnail) {
        struct made_jpeg small = {.width = 8, .height = 8};
        struct made_image inside = make_jpeg(&small);
        pen_put(&exif, inside.bytes, inside.count);
        made_image_free(&inside);
    }
    jpeg_write_marker(info, JPEG_APP0 + 1, exif.bytes, (unsigned)exif.count);
    free(exif.bytes);
}

struct made_image make_jpeg(const struct made_jpeg *jpeg)
{
    struct made_image image = {.width = jpeg->width, .height = jpeg->height};
    struct jpeg_compress_struct info;
    struct jpeg_error_mgr errors;
    unsigned char *memory = NULL;
    unsigned long bytes = 0;
    int components = jpeg->colour == MADE_JPEG_GREY ? 1 : jpeg->colour >= MADE_JPEG_CMYK ? 4 : 3;

    info.err = jpeg_std_error(&errors);
    jpeg_create_compress(&info);
    jpeg_mem_dest(&info, &memory, &bytes);
    info.image_width = jpeg->width;
    info.image_height = jpeg->height;
    info.input_components = components;
    info.in_color_space = components == 1 ? JCS_GRAYSCALE : components == 4 ? JCS_CMYK : JCS_RGB;
    jpeg_set_defaults(&info);
    switch (jpeg->colour) {
    case MADE_JPEG_RGB:
        jpeg_set_colorspace(&info, JCS_RGB);
        break;
    case MADE_JPEG_YCCK:
        jpeg_set_colorspace(&info, JCS_YCCK);
        break;
    default:
        break;
    }
    if (jpeg->colour == MADE_JPEG_BARE_CMYK) {
        info.write_Adobe_marker = FALSE;
    } else if (jpeg->colour == MADE_JPEG_RGB) {
        info.write_Adobe_marker = TRUE;
    }
    jpeg_set_quality(&info, jpeg->quality == 0 ? 90 : jpeg->quality, TRUE);
    if (jpeg->colour == MADE_JPEG_YCBCR || jpeg->colour == MADE_JPEG_YCCK) {
        info.comp_info[0].h_samp_factor = jpeg->across == 0 ? 2 : jpeg->across;
        info.comp_info[0].v_samp_factor = jpeg->down == 0 ? 2 : jpeg->down;
        if (components == 4) {
            info.comp_info[3].h_samp_factor = info.comp_info[0].h_samp_factor;
            info.comp_info[3].v_samp_factor = info.comp_info[0].v_samp_factor;
        }
    }
    info.arith_code = jpeg->arithmetic;
    info.restart_interval = (unsigned)jpeg->restart;
    if (jpeg->progressive) {
        jpeg_simple_progression(&info);
    }
    jpeg_start_compress(&info, TRUE);
    if (jpeg->orientation != 0 || jpeg->thumbnail) {
        write_exif(&info, jpeg);
    }
    uint8_t *row = made_alloc((size_t)jpeg->width * 4);
    for (uint32_t y = 0; y < jpeg->height; y++) {
        for (uint32_t x = 0; x < jpeg->width; x++) {
            for (int channel = 0; channel < components; channel++) {
                row[x * (uint32_t)components + (uint32_t)channel] =
                    jpeg->flat ? made_smooth(0, 0, (uint32_t)channel)
                               : made_smooth(x, y, (uint32_t)channel);
            }
        }
        JSAMPROW rows = row;
        jpeg_write_scanlines(&info, &rows, 1);
    }
    free(row);
    jpeg_finish_compress(&info);
    jpeg_destroy_compress(&info);
    image.bytes = memory;
    image.count = bytes;
    return image;
}

uint8_t *made_jpeg_reference_as(const struct made_image *image, int shift, bool plain_chroma,
                                int *components)
{
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;

    info.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&info);
    jpeg_mem_src(&info, image->bytes, (unsigned long)image->count);
    jpeg_read_header(&info, TRUE);
    info.out_color_space = info.num_components == 4 ? JCS_CMYK : JCS_RGB;
    info.scale_num = 1;
    info.scale_denom = 1u << shift;
    info.do_fancy_upsampling = !plain_chroma;
    jpeg_start_decompress(&info);
    *components = info.output_components;
    size_t stride = (size_t)info.output_width * (size_t)info.output_components;
    uint8_t *pixels = made_alloc(stride * info.output_height);
    while (info.output_scanline < info.output_height) {
        JSAMPROW row = pixels + stride * info.output_scanline;
        jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    jpeg_destroy_decompress(&info);
    return pixels;
}

#else

bool made_jpeg_available(void)
{
    return false;
}

bool made_jpeg_arithmetic_available(void)
{
    return false;
}

bool made_jpeg_merged_available(void)
{
    return false;
}

struct made_image make_jpeg(const struct made_jpeg *jpeg)
{
    (void)jpeg;
    abort();
}

uint8_t *made_jpeg_reference_as(const struct made_image *image, int shift, bool plain_chroma,
                                int *components)
{
    (void)image;
    (void)shift;
    (void)plain_chroma;
    (void)components;
    abort();
}

#endif

uint8_t *made_jpeg_reference(const struct made_image *image, int *components)
{
    return made_jpeg_reference_as(image, 0, false, components);
}

size_t made_jpeg_marker(const struct made_image *image, int marker)
{
    for (size_t at = 2; at + 4 <= image->count;) {
        const uint8_t *p = image->bytes + at;
        if (p[1] == marker) {
            return at;
        }
        at += 2 + ((size_t)p[2] << 8 | p[3]);
        if (p[1] == 0xda) {
            break; /* what follows has no lengths */
        }
    }
    return 0;
}
