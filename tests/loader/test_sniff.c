/* Files are known by their content, and what is not read is refused by its name. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"

static enum image_kind kind_of(struct made_image image)
{
    struct image_facts facts = check_facts(&image, false);

    made_image_free(&image);
    return facts.kind;
}

START_TEST(test_kinds_by_content)
{
    struct made_png png = {.width = 3, .height = 2, .colour = 2, .depth = 8};
    struct made_bmp bmp = {.width = 3, .height = 2, .bits = 24};
    struct made_gif gif = {.width = 3, .height = 2, .transparent = -1};
    struct made_tga tga = {.width = 3, .height = 2, .bits = 24};

    ck_assert_int_eq(kind_of(make_png(&png)), IMAGE_PNG);
    ck_assert_int_eq(kind_of(make_bmp(&bmp)), IMAGE_BMP);
    ck_assert_int_eq(kind_of(make_gif(&gif)), IMAGE_GIF);
    ck_assert_int_eq(kind_of(make_tga(&tga)), IMAGE_TGA);
    ck_assert_int_eq(kind_of(make_psd(3, 2, 3, false)), IMAGE_PSD);
    for (int variant = 1; variant <= 6; variant++) {
        ck_assert_int_eq(kind_of(make_pnm(3, 2, variant, 1)), IMAGE_PNM);
    }
    if (made_jpeg_available()) {
        struct made_jpeg jpeg = {.width = 3, .height = 2};
        ck_assert_int_eq(kind_of(make_jpeg(&jpeg)), IMAGE_JPEG);
    }
    ck_assert_str_eq(image_kind_name(IMAGE_JPEG), "JPEG");
    ck_assert_str_eq(image_kind_name(IMAGE_PNM), "PNM");
    ck_assert_str_eq(image_kind_name(IMAGE_UNKNOWN), "unknown");
}
END_TEST

struct foreign {
    const char *bytes;
    size_t count;
    enum status status;
    const char *text;
};

#define FILE_OF(text) (text), sizeof(text) - 1

static const struct foreign FOREIGN[] = {
    {FILE_OF("RIFF\x24\0\0\0WEBPVP8 "), STATUS_UNSUPPORTED, "WebP data, not supported"},
    {FILE_OF("II*\0\x08\0\0\0"), STATUS_UNSUPPORTED, "TIFF data, not supported"},
    {FILE_OF("MM\0*\0\0\0\x08"), STATUS_UNSUPPORTED, "TIFF data, not supported"},
    {FILE_OF("MM\0+\0\x08\0\0"), STATUS_UNSUPPORTED, "BigTIFF data, not supported"},
    {FILE_OF("\0\0\0\x18"
             "ftypheic\0\0\0\0"),
     STATUS_UNSUPPORTED, "HEIF data, not supported"},
    {FILE_OF("\0\0\0\x18"
             "ftypavif\0\0\0\0"),
     STATUS_UNSUPPORTED, "AVIF data, not supported"},
    {FILE_OF("\0\0\0\x18"
             "ftypmp42\0\0\0\0"),
     STATUS_UNSUPPORTED, "MP4"},
    {FILE_OF("\0\0\0\x0cjP  \r\n\x87\n"), STATUS_UNSUPPORTED, "JPEG 2000 data"},
    {FILE_OF("\xff\x4f\xff\x51\0\x2f"), STATUS_UNSUPPORTED, "JPEG 2000 data"},
    {FILE_OF("\xff\x0a\xfa\x7f"), STATUS_UNSUPPORTED, "JPEG XL data"},
    {FILE_OF("P7\nWIDTH 3\n"), STATUS_UNSUPPORTED, "PAM data"},
    {FILE_OF("Pf\n3 2\n"), STATUS_UNSUPPORTED, "PFM data"},
    {FILE_OF("\0\0\1\0\1\0\x10\x10\0\0\1\0\x20\0\x68\4\0\0\x16\0\0\0"), STATUS_UNSUPPORTED,
     "ICO data"},
    {FILE_OF("#?RADIANCE\n"), STATUS_UNSUPPORTED, "Radiance HDR data"},
    {FILE_OF("<!DOCTYPE html><html>"), STATUS_INVALID, "an HTML page"},
    {FILE_OF("\xef\xbb\xbf\r\n <HTML>"), STATUS_INVALID, "an HTML page"},
    {FILE_OF("<?xml version=\"1.0\"?>"), STATUS_UNSUPPORTED, "XML or SVG"},
    {FILE_OF("<svg xmlns="), STATUS_UNSUPPORTED, "SVG"},
    {FILE_OF("%PDF-1.4"), STATUS_UNSUPPORTED, "a PDF document"},
    {FILE_OF("PK\3\4...."), STATUS_UNSUPPORTED, "a ZIP archive"},
    {FILE_OF("version https://git-lfs.github.com/spec/v1\n"), STATUS_UNSUPPORTED, "Git LFS"},
    {FILE_OF("\0\5\x16\7\0\2\0\0"), STATUS_UNSUPPORTED, "AppleDouble"},
    {FILE_OF("\x1f\x8b\x08\0\0\0\0\0"), STATUS_UNSUPPORTED, "gzip data"},
    {FILE_OF("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), STATUS_INVALID, "zero bytes"},
    {FILE_OF("\x89PNG\n\x1a\n\0\0\0\rIHDR"), STATUS_INVALID, "PNG signature"},
    {FILE_OF("hello, world"), STATUS_INVALID, "not an image of a known kind"},
    {FILE_OF("BMW is no bitmap, and this is text"), STATUS_INVALID, "not an image"},
    {FILE_OF("P"), STATUS_INVALID, "not an image"},
    {FILE_OF(""), STATUS_INVALID, "empty file"},
};

START_TEST(test_what_is_not_read_is_named)
{
    for (size_t i = 0; i < sizeof(FOREIGN) / sizeof(FOREIGN[0]); i++) {
        struct made_image image = {.count = FOREIGN[i].count, .width = 1, .height = 1};
        image.bytes = malloc(image.count + 1);
        ck_assert_ptr_nonnull(image.bytes);
        memcpy(image.bytes, FOREIGN[i].bytes, image.count);
        check_refused(NULL, &image, FOREIGN[i].status, FOREIGN[i].text);
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_gzip_names_what_is_inside)
{
    struct made_png png = {.width = 3, .height = 2, .colour = 2, .depth = 8};
    struct made_image inside = make_png(&png), image = make_gzip(&inside);

    image.width = image.height = 1;
    check_refused(NULL, &image, STATUS_UNSUPPORTED, "gzip-compressed PNG data, not supported");
    made_image_free(&inside);
    made_image_free(&image);
    if (made_jpeg_available()) {
        struct made_jpeg jpeg = {.width = 3, .height = 2};
        inside = make_jpeg(&jpeg);
        image = make_gzip(&inside);
        image.width = image.height = 1;
        check_refused(NULL, &image, STATUS_UNSUPPORTED, "gzip-compressed JPEG data");
        made_image_free(&inside);
        made_image_free(&image);
    }
}
END_TEST

/* Random bytes are no TGA, though that has no magic number: one in a thousand may pass the header's
 * test, and none may be decoded without its rows. */
START_TEST(test_random_bytes_are_hardly_tga)
{
    image_decoder *decoder = check_open(NULL);
    uint8_t bytes[64];
    struct image_facts facts;
    int taken = 0;

    for (uint32_t round = 0; round < 20000; round++) {
        for (uint32_t i = 0; i < sizeof(bytes); i++) {
            bytes[i] = (uint8_t)made_sample(round, i, 0, 255);
        }
        taken += image_probe(decoder, bytes, sizeof(bytes), &facts) == STATUS_OK;
    }
    ck_assert_int_lt(taken, 20);
    image_decoder_close(&decoder);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_kinds_by_content, test_what_is_not_read_is_named,
                                  test_gzip_names_what_is_inside, test_random_bytes_are_hardly_tga};
    return check_run("sniff", tests, sizeof tests / sizeof tests[0], 30);
}
