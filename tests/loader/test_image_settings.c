/* Settings of decoders: the list of libraries, limits, and what opens. */
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"
#include "tests/support/skip.h"

#if defined(__has_feature)
#define SANITIZED (__has_feature(address_sanitizer) || __has_feature(thread_sanitizer))
#elif defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

static bool has_turbo(void)
{
    char text[128];

    return strstr(image_libraries_versions(text, sizeof(text)), "turbo") != NULL;
}

START_TEST(test_defaults)
{
    struct image_settings settings;
    char text[24];

    image_settings_defaults(&settings);
    ck_assert_str_eq(image_settings_libraries_text(&settings, text, sizeof(text)),
                     has_turbo() ? "turbo,libpng,stb" : "libpng,stb");
    ck_assert_uint_eq(settings.max_pixels, 178956970);
    ck_assert(!settings.exif_orientation && !settings.exact_decode);
}
END_TEST

START_TEST(test_lists_of_libraries)
{
    static const char *const right[] = {"libpng", "stb", "stb,libpng", "libpng,stb"};
    static const char *const wrong[] = {
        "",     ",",   "stb,",       ",stb",        "stb,stb",
        "png",  "STB", "stb libpng", "stb,,libpng", "libpng,stb,libpng,stb",
        "stbx", "st"};
    struct image_settings settings, before;
    char text[24];

    image_settings_defaults(&settings);
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        ck_assert_int_eq(image_settings_parse_libraries(&settings, right[i]), STATUS_OK);
        ck_assert_str_eq(image_settings_libraries_text(&settings, text, sizeof(text)), right[i]);
    }
    before = settings;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        ck_assert_msg(image_settings_parse_libraries(&settings, wrong[i]) == STATUS_USAGE,
                      "'%s' was taken", wrong[i]);
        ck_assert_ptr_nonnull(strstr(status_message(), "--decoders"));
        ck_assert_mem_eq(settings.libraries, before.libraries, sizeof(before.libraries));
    }
    enum status turbo = image_settings_parse_libraries(&settings, "turbo,libpng,stb");
    ck_assert_int_eq(turbo, has_turbo() ? STATUS_OK : STATUS_UNSUPPORTED);
}
END_TEST

START_TEST(test_open_checks_each_field)
{
    struct image_settings settings;
    image_decoder *decoder = NULL;

    for (int field = 0; field < 5; field++) {
        image_settings_defaults(&settings);
        switch (field) {
        case 0:
            settings.libraries[0] = IMAGE_LIBRARY_NONE;
            break;
        case 1:
            settings.libraries[1] = settings.libraries[0];
            break;
        case 2:
            settings.max_pixels = 0;
            break;
        case 3:
            settings.max_dimension = 16777217;
            break;
        default:
            settings.max_file_bytes = 0;
            break;
        }
        ck_assert_int_eq(image_decoder_open(&settings, &decoder), STATUS_USAGE);
        ck_assert_ptr_null(decoder);
    }
    image_decoder_close(&decoder);
}
END_TEST

START_TEST(test_limits_hold)
{
    struct made_png png = {.width = 30, .height = 20, .colour = 2, .depth = 8};
    struct made_image image = make_png(&png);
    static uint8_t pixels[30 * 20 * 3];
    struct image_settings settings;
    struct image_facts facts;

    for (int limit = 0; limit < 3; limit++) {
        for (int over = 0; over < 2; over++) {
            image_decoder *decoder = NULL;
            image_settings_defaults(&settings);
            settings.max_pixels = limit == 0 ? 600 - (uint64_t)over : settings.max_pixels;
            settings.max_dimension = limit == 1 ? 30 - (uint32_t)over : settings.max_dimension;
            settings.max_file_bytes =
                limit == 2 ? image.count - (uint64_t)over : settings.max_file_bytes;
            ck_assert_int_eq(image_decoder_open(&settings, &decoder), STATUS_OK);
            enum status expected = over ? STATUS_LIMIT : STATUS_OK;
            ck_assert_int_eq(image_probe(decoder, image.bytes, image.count, &facts), expected);
            ck_assert_int_eq(
                image_decode_rgb(decoder, image.bytes, image.count, pixels, sizeof(pixels), NULL),
                expected);
            image_decoder_close(&decoder);
        }
    }
    image_decoder *decoder = check_open(NULL);
    ck_assert_int_eq(
        image_decode_rgb(decoder, image.bytes, image.count, pixels, sizeof(pixels) - 1, NULL),
        STATUS_LIMIT);
    image_decoder_close(&decoder);
    made_image_free(&image);
}
END_TEST

/* The library that stands first reads what it can. */
START_TEST(test_the_order_decides)
{
    struct made_png png = {.width = 30, .height = 20, .colour = 3, .depth = 8};
    struct made_image image = make_png(&png);

    /* stb_image does not look at the checksum at the end of the compressed data; libpng does. */
    size_t at = made_png_chunk(&image, "IDAT");
    size_t length = (size_t)image.bytes[at + 2] << 8 | image.bytes[at + 3];
    image.bytes[at + 8 + length - 1] ^= 1;
    struct made_image mended = check_cut(&image, image.count);
    /* The chunk's own checksum must hold: take it over the changed data. */
    static uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++) {
            table[i] = (table[i] & 1u) != 0 ? 0xedb88320u ^ table[i] >> 1 : table[i] >> 1;
        }
    }
    uint32_t crc = 0xffffffffu;
    for (size_t i = at + 4; i < at + 8 + length; i++) {
        crc = table[(crc ^ mended.bytes[i]) & 255u] ^ crc >> 8;
    }
    crc = ~crc;
    for (int i = 0; i < 4; i++) {
        mended.bytes[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    mended.rgb = image.rgb;
    check_pixels("stb,libpng", &mended, "stb first");
    check_refused("libpng,stb", &mended, STATUS_INVALID, "incorrect data check");
    mended.rgb = NULL;
    made_image_free(&mended);
    made_image_free(&image);
}
END_TEST

/* Bad files in a row, of all kinds: nothing grows. */
START_TEST(test_bad_files_leave_nothing)
{
    struct made_png png = {.width = 40, .height = 40, .colour = 2, .depth = 8, .interlaced = true};
    struct made_gif gif = {.width = 40, .height = 40, .transparent = -1};
    struct made_jpeg jpeg = {.width = 40, .height = 40, .progressive = true};
    struct made_image images[4] = {make_png(&png), make_gif(&gif), make_psd(40, 40, 3, true), {0}};
    int count = 3;
    image_decoder *decoder = check_open(NULL);
    static uint8_t pixels[40 * 40 * 3];
    size_t held = 0;

    if (made_jpeg_available()) {
        images[count++] = make_jpeg(&jpeg);
    }
    for (uint32_t round = 0; round < 4000; round++) {
        const struct made_image *image = &images[round % (uint32_t)count];
        size_t cut = made_sample(round, 0, 0, (uint32_t)image->count - 3);
        ck_assert_int_ne(image_decode_rgb(decoder, image->bytes, cut, pixels, sizeof(pixels), NULL),
                         STATUS_OK);
        if (round == 400) {
            held = image_decoder_bytes(decoder);
        }
    }
    ck_assert_uint_eq(image_decoder_bytes(decoder), held);
    ck_assert_uint_lt(held, 2 << 20);
    image_decoder_close(&decoder);
    for (int i = 0; i < count; i++) {
        made_image_free(&images[i]);
    }
}
END_TEST

/* A picture that must be held whole while the process may have only a little more memory. */
static void check_exhausted(const struct made_image *image)
{
    image_decoder *decoder = check_open(NULL);
    struct made_png small = {.width = 9, .height = 9, .colour = 2, .depth = 8};
    struct made_image good = make_png(&small);
    uint8_t pixels[9 * 9 * 3];
    struct image_output output = {.format = IMAGE_U8, .pixels = pixels};
    struct image_view view;
    struct rlimit before, tight;
    FILE *file = fopen("/proc/self/statm", "r");
    unsigned long pages = 0;

    /* What was freed before must not serve now. */
    malloc_trim(0);
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
    fclose(file);
    ck_assert_int_eq(getrlimit(RLIMIT_AS, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)pages * 4096 + (2 << 20);
    image_view_whole(image->width, image->height, 9, &view);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &tight), 0);
    enum status status = image_render(decoder, image->bytes, image->count, &view, &output);
    ck_assert_int_eq(setrlimit(RLIMIT_AS, &before), 0);
    ck_assert_msg(status == STATUS_NO_MEMORY, "%s: %s", status_name(status), status_message());
    ck_assert_ptr_nonnull(strstr(status_message(), "fewer workers"));
    /* With memory again, the same decoder reads this and others. */
    ck_assert_int_eq(image_render(decoder, image->bytes, image->count, &view, &output), STATUS_OK);
    ck_assert_int_eq(
        image_decode_rgb(decoder, good.bytes, good.count, pixels, sizeof(pixels), NULL), STATUS_OK);
    ck_assert_mem_eq(pixels, good.rgb, sizeof(pixels));
    made_image_free(&good);
    image_decoder_close(&decoder);
}

START_TEST(test_exhausted_memory_is_said)
{
    if (SANITIZED) {
        SKIP_TEST("a sanitiser's own memory hides the limit");
    }
    struct made_png png = {
        .width = 2000, .height = 2000, .colour = 0, .depth = 1, .interlaced = true};
    struct made_image image = make_png(&png);
    check_exhausted(&image);
    made_image_free(&image);
    struct made_bmp bmp = {.width = 1500, .height = 1500, .bits = 24};
    image = make_bmp(&bmp);
    check_exhausted(&image);
    made_image_free(&image);
    if (made_jpeg_available()) {
        struct made_jpeg jpeg = {.width = 3000, .height = 3000, .progressive = true};
        image = make_jpeg(&jpeg);
        check_exhausted(&image);
        made_image_free(&image);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_defaults,
                                  test_lists_of_libraries,
                                  test_open_checks_each_field,
                                  test_limits_hold,
                                  test_the_order_decides,
                                  test_bad_files_leave_nothing,
                                  test_exhausted_memory_is_said};
    return check_run("image_settings", tests, sizeof tests / sizeof tests[0], 60);
}
