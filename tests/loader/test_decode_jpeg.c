/* JPEG of every kind, beside the plainest use of libjpeg; colours by formula; what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"
#include "tests/support/skip.h"

#define SKIP_WITHOUT_JPEG()                                                                        \
    do {                                                                                           \
        if (!made_jpeg_available()) {                                                              \
            SKIP_TEST("this build has no libjpeg to make files with");                             \
        }                                                                                          \
    } while (0)

/* Inverted ink to light, as Pillow's convert("RGB") computes it, in whole numbers. */
static uint8_t light_of(const uint8_t *cmyk, int channel)
{
    int light = cmyk[3], ink = 255 - cmyk[channel];
    int product = ink * light + 128;

    return (uint8_t)(light - (((product >> 8) + product) >> 8));
}

/* Puts into image->rgb what libjpeg makes of the file. */
static void expect_reference(struct made_image *image)
{
    int components = 0;
    size_t count = (size_t)image->width * image->height;
    uint8_t *pixels = made_jpeg_reference(image, &components);

    if (components == 4) {
        image->rgb = malloc(count * 3);
        ck_assert_ptr_nonnull(image->rgb);
        for (size_t i = 0; i < count * 3; i++) {
            image->rgb[i] = light_of(pixels + i / 3 * 4, (int)(i % 3));
        }
        free(pixels);
    } else {
        image->rgb = pixels;
    }
}

static const struct made_jpeg KINDS[] = {
    {.width = 1, .height = 1},
    {.width = 61, .height = 43},
    {.width = 61, .height = 43, .across = 2, .down = 1},
    {.width = 61, .height = 43, .across = 1, .down = 2},
    {.width = 61, .height = 43, .across = 1, .down = 1},
    {.width = 61, .height = 43, .across = 4, .down = 1},
    {.width = 61, .height = 43, .progressive = true},
    {.width = 61, .height = 43, .progressive = true, .across = 1, .down = 1},
    {.width = 61, .height = 43, .restart = 2},
    {.width = 61, .height = 43, .colour = MADE_JPEG_GREY},
    {.width = 61, .height = 43, .colour = MADE_JPEG_GREY, .progressive = true},
    {.width = 61, .height = 43, .colour = MADE_JPEG_RGB},
    {.width = 61, .height = 43, .colour = MADE_JPEG_CMYK},
    {.width = 61, .height = 43, .colour = MADE_JPEG_YCCK},
    {.width = 61, .height = 43, .colour = MADE_JPEG_YCCK, .progressive = true},
    {.width = 61, .height = 43, .colour = MADE_JPEG_BARE_CMYK},
    {.width = 200, .height = 8, .quality = 30},
    {.width = 8, .height = 200, .quality = 100},
    {.width = 61, .height = 43, .orientation = 5, .thumbnail = true},
};
#define KIND_COUNT (sizeof(KINDS) / sizeof(KINDS[0]))

START_TEST(test_every_kind_is_what_libjpeg_makes_of_it)
{
    SKIP_WITHOUT_JPEG();
    for (size_t i = 0; i < KIND_COUNT; i++) {
        char what[64];
        struct made_image image = make_jpeg(&KINDS[i]);
        expect_reference(&image);
        snprintf(what, sizeof(what), "kind %zu", i);
        check_pixels("turbo", &image, what);
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_arithmetic_coding)
{
    SKIP_WITHOUT_JPEG();
    if (!made_jpeg_arithmetic_available()) {
        SKIP_TEST("this libjpeg writes no arithmetic coding");
    }
    for (int progressive = 0; progressive < 2; progressive++) {
        struct made_jpeg jpeg = {
            .width = 61, .height = 43, .arithmetic = true, .progressive = progressive != 0};
        struct made_image image = make_jpeg(&jpeg);
        expect_reference(&image);
        check_pixels("turbo", &image, "arithmetic");
        check_pixels("stb,turbo", &image, "arithmetic, by the library that can");
        check_refused("stb", &image, STATUS_UNSUPPORTED, "arithmetically coded JPEG");
        ck_assert(check_facts(&image, false).arithmetic);
        made_image_free(&image);
    }
}
END_TEST

/* A file of one colour: what comes out is that colour, whatever the library. */
START_TEST(test_colours_are_right)
{
    static const char *const orders[] = {"turbo", "stb"};

    SKIP_WITHOUT_JPEG();
    for (int colour = MADE_JPEG_YCBCR; colour <= MADE_JPEG_BARE_CMYK; colour++) {
        struct made_jpeg jpeg = {.width = 32,
                                 .height = 32,
                                 .colour = (enum made_jpeg_colour)colour,
                                 .quality = 100,
                                 .flat = true};
        struct made_image image = make_jpeg(&jpeg);
        uint8_t stored[4], expected[3], pixels[32 * 32 * 3];
        for (uint32_t channel = 0; channel < 4; channel++) {
            stored[channel] = made_smooth(0, 0, channel);
        }
        for (int channel = 0; channel < 3; channel++) {
            expected[channel] = colour >= MADE_JPEG_CMYK   ? light_of(stored, channel)
                                : colour == MADE_JPEG_GREY ? stored[0]
                                                           : stored[channel];
        }
        for (size_t i = 0; i < 2; i++) {
            if (i == 1 && colour == MADE_JPEG_BARE_CMYK) {
                check_refused("stb", &image, STATUS_UNSUPPORTED, "four-channel JPEG");
                continue;
            }
            image_decoder *decoder = check_open(orders[i]);
            enum status status =
                image_decode_rgb(decoder, image.bytes, image.count, pixels, sizeof(pixels), NULL);
            ck_assert_msg(status == STATUS_OK, "%s", status_message());
            for (size_t j = 0; j < sizeof(pixels); j++) {
                ck_assert_msg(abs((int)pixels[j] - expected[j % 3]) <= 3,
                              "%s, colour %d: channel %zu is %u, not %u", orders[i], colour, j % 3,
                              pixels[j], expected[j % 3]);
            }
            image_decoder_close(&decoder);
        }
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_stb_is_near)
{
    SKIP_WITHOUT_JPEG();
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (KINDS[i].colour == MADE_JPEG_BARE_CMYK) {
            continue;
        }
        struct made_image image = make_jpeg(&KINDS[i]);
        expect_reference(&image);
        size_t count = (size_t)image.width * image.height * 3;
        uint8_t *pixels = malloc(count);
        image_decoder *decoder = check_open("stb");
        ck_assert_ptr_nonnull(pixels);
        enum status status =
            image_decode_rgb(decoder, image.bytes, image.count, pixels, count, NULL);
        ck_assert_msg(status == STATUS_OK, "kind %zu: %s", i, status_message());
        double sum = 0;
        for (size_t j = 0; j < count; j++) {
            sum += abs((int)pixels[j] - image.rgb[j]);
        }
        /* Another transform and another smoothing of chroma, but the same picture. */
        ck_assert_msg(sum / (double)count < 2.5, "kind %zu differs by %g in the mean", i,
                      sum / (double)count);
        free(pixels);
        image_decoder_close(&decoder);
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_parts_are_those_of_the_whole)
{
    SKIP_WITHOUT_JPEG();
    image_decoder *decoder = check_open("turbo");
    /* Once more for a progressive file of one scan, which the library smooths. */
    for (size_t i = 0; i < KIND_COUNT + 1; i++) {
        struct made_jpeg jpeg = {.width = 61, .height = 43, .progressive = true};
        if (i < KIND_COUNT) {
            jpeg = KINDS[i];
        }
        jpeg.width = jpeg.width * 5 + 3;
        struct made_image image = make_jpeg(&jpeg);
        if (i == KIND_COUNT) {
            size_t end = made_jpeg_marker(&image, 0xda) + 2;
            while (image.bytes[end] != 0xff || image.bytes[end + 1] == 0) {
                end++;
            }
            image.bytes[end + 1] = 0xd9;
            image.count = end + 2;
        }
        size_t count = (size_t)image.width * image.height * 3;
        uint8_t *whole = malloc(count);
        ck_assert_ptr_nonnull(whole);
        ck_assert_int_eq(image_decode_rgb(decoder, image.bytes, image.count, whole, count, NULL),
                         STATUS_OK);
        for (uint32_t round = 0; round < 40; round++) {
            uint8_t part[20 * 20 * 3], reference[20 * 20 * 3];
            struct image_output one = {.format = IMAGE_U8, .pixels = part};
            struct image_output other = {.format = IMAGE_U8, .pixels = reference};
            struct image_view view;
            image_view_whole(image.width, image.height, 20, &view);
            view.crop_x = made_sample(round, (uint32_t)i, 0, image.width - 1);
            view.crop_y = made_sample(round, (uint32_t)i, 1, image.height - 1);
            view.crop_width = 1 + made_sample(round, (uint32_t)i, 2, image.width - view.crop_x - 1);
            view.crop_height =
                1 + made_sample(round, (uint32_t)i, 3, image.height - view.crop_y - 1);
            ck_assert_int_eq(image_render(decoder, image.bytes, image.count, &view, &one),
                             STATUS_OK);
            ck_assert_int_eq(
                image_render_pixels(decoder, whole, image.width, image.height, 3, &view, &other),
                STATUS_OK);
            ck_assert_msg(memcmp(part, reference, sizeof(part)) == 0,
                          "kind %zu, crop %u x %u at (%u, %u) of %u x %u", i, view.crop_width,
                          view.crop_height, view.crop_x, view.crop_y, image.width, image.height);
        }
        free(whole);
        made_image_free(&image);
    }
    image_decoder_close(&decoder);
}
END_TEST

static image_decoder *open_fast(void)
{
    struct image_settings settings;
    image_decoder *decoder = NULL;

    image_settings_defaults(&settings);
    ck_assert_int_eq(image_settings_parse_libraries(&settings, "turbo"), STATUS_OK);
    ck_assert_int_eq(image_decoder_open(&settings, &decoder), STATUS_OK);
    return decoder;
}

/* The view's bytes, from the file or, where `pixels` is not NULL, from pixels. */
static uint8_t *view_bytes(image_decoder *decoder, const struct made_image *image,
                           const uint8_t *pixels, uint32_t width, uint32_t height,
                           const struct image_view *view)
{
    size_t count = (size_t)view->width * view->height * 3;
    uint8_t *bytes = malloc(count);
    struct image_output output = {.format = IMAGE_U8, .pixels = bytes};
    enum status status;

    ck_assert_ptr_nonnull(bytes);
    if (pixels == NULL) {
        status = image_render(decoder, image->bytes, image->count, view, &output);
    } else {
        status = image_render_pixels(decoder, pixels, width, height, 3, view, &output);
    }
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
    return bytes;
}

/* Chroma is repeated where the decoded picture is 5/4 of the target or more in both directions, if
 * it has half the columns and all or half of the rows; never by the exact decoder, and never in a
 * picture that keeps its pixels. */
START_TEST(test_chroma_is_plain_only_where_that_is_smoothed)
{
    enum { WIDTH = 320, HEIGHT = 240 };
    static const struct {
        struct made_jpeg jpeg;
        bool may, may_scaled; /* at half of its size 4:2:0 has all of its chroma */
    } kinds[] = {
        {.jpeg = {.across = 2, .down = 2}, .may = true},
        {.jpeg = {.across = 2, .down = 1}, .may = true, .may_scaled = true},
        {.jpeg = {.across = 2, .down = 2, .progressive = true}, .may = true},
        {.jpeg = {.across = 2, .down = 1, .restart = 3}, .may = true, .may_scaled = true},
        {.jpeg = {.across = 1, .down = 1}},
        {.jpeg = {.across = 1, .down = 2}},
        {.jpeg = {.across = 4, .down = 1}},
        {.jpeg = {.colour = MADE_JPEG_GREY}},
        {.jpeg = {.colour = MADE_JPEG_RGB}},
    };
    static const struct {
        uint32_t width, height;
        int shift;
        bool smaller;
    } sizes[] = {
        {WIDTH, HEIGHT, 0, false}, {257, 193, 0, false},   {256, 193, 0, false},
        {257, 192, 0, false},      {256, 192, 0, true},    {161, 121, 0, true},
        {40, 192, 0, true},        {40, HEIGHT, 0, false}, {400, 100, 0, false},
        {160, 120, 1, false},      {129, 96, 1, false},    {128, 97, 1, false},
        {128, 96, 1, true},        {81, 61, 1, true},      {64, 48, 2, true},
    };

    SKIP_WITHOUT_JPEG();
    if (!made_jpeg_merged_available()) {
        SKIP_TEST("parts are not upsampled in one pass with this libjpeg");
    }
    image_decoder *exact = check_open("turbo"), *fast = open_fast();
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct made_jpeg jpeg = kinds[i].jpeg;
        jpeg.width = WIDTH;
        jpeg.height = HEIGHT;
        struct made_image image = make_jpeg(&jpeg);
        size_t whole_bytes = (size_t)WIDTH * HEIGHT * 3;
        int components;
        uint8_t *smooth = made_jpeg_reference(&image, &components);
        uint8_t *whole = malloc(whole_bytes);
        ck_assert_ptr_nonnull(whole);
        ck_assert_int_eq(image_decode_rgb(fast, image.bytes, image.count, whole, whole_bytes, NULL),
                         STATUS_OK);
        ck_assert_msg(memcmp(whole, smooth, whole_bytes) == 0, "kind %zu, whole", i);
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            int shift = sizes[j].shift;
            bool plain = sizes[j].smaller && (shift == 0 ? kinds[i].may : kinds[i].may_scaled);
            size_t count = (size_t)sizes[j].width * sizes[j].height * 3;
            struct image_view view, part;
            image_view_whole(WIDTH, HEIGHT, 1, &view);
            view.resize_width = view.width = sizes[j].width;
            view.resize_height = view.height = sizes[j].height;
            part = view;
            part.crop_width = WIDTH >> shift;
            part.crop_height = HEIGHT >> shift;
            uint8_t *pixels[2], *expected[2];
            for (int way = 0; way < 2; way++) {
                pixels[way] = made_jpeg_reference_as(&image, shift, way == 1, &components);
                expected[way] =
                    view_bytes(exact, NULL, pixels[way], WIDTH >> shift, HEIGHT >> shift, &part);
            }
            uint8_t *shown = view_bytes(fast, &image, NULL, 0, 0, &view);
            uint8_t *full = view_bytes(exact, &image, NULL, 0, 0, &view);
            uint8_t *full_expected = view_bytes(exact, NULL, smooth, WIDTH, HEIGHT, &view);
            ck_assert_msg(memcmp(shown, expected[plain], count) == 0, "kind %zu to %u x %u", i,
                          sizes[j].width, sizes[j].height);
            ck_assert_msg(memcmp(full, full_expected, count) == 0, "kind %zu to %u x %u, exact", i,
                          sizes[j].width, sizes[j].height);
            /* Otherwise nothing is told apart. */
            ck_assert(!plain || memcmp(expected[0], expected[1], count) != 0);
            for (int way = 0; way < 2; way++) {
                free(pixels[way]);
                free(expected[way]);
            }
            free(shown);
            free(full);
            free(full_expected);
        }
        free(whole);
        free(smooth);
        made_image_free(&image);
    }
    image_decoder_close(&exact);
    image_decoder_close(&fast);
}
END_TEST

/* Wherever a part begins and ends, and whatever was decoded before it. */
START_TEST(test_parts_with_plain_chroma_are_those_of_the_whole)
{
    static const struct made_jpeg kinds[] = {
        {.width = 203, .height = 99},
        {.width = 202, .height = 98, .across = 2, .down = 1},
        {.width = 203, .height = 99, .restart = 3},
        {.width = 203, .height = 99, .restart = 5, .across = 2, .down = 1},
        {.width = 202, .height = 99, .progressive = true},
        {.width = 203, .height = 98, .progressive = true, .across = 2, .down = 1},
    };
    struct made_jpeg between = {.width = 9, .height = 9};

    SKIP_WITHOUT_JPEG();
    if (!made_jpeg_merged_available()) {
        SKIP_TEST("parts are not upsampled in one pass with this libjpeg");
    }
    image_decoder *decoder = open_fast();
    struct made_image other = make_jpeg(&between);
    struct image_view whole_other;
    image_view_whole(9, 9, 9, &whole_other);
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        struct made_image image = make_jpeg(&kinds[i]);
        int components;
        uint8_t *whole = made_jpeg_reference_as(&image, 0, true, &components);
        uint32_t places = image.width - 5;
        for (uint32_t round = 0; round < 3 * places; round++) {
            /* Every column is the first of a part, and every row is a few times. */
            struct image_view view;
            image_view_whole(image.width, image.height, 4, &view);
            view.crop_x = round % places;
            view.crop_y = (round * 7 + round / places) % (image.height - 5);
            uint32_t right = image.width - view.crop_x, below = image.height - view.crop_y;
            view.crop_width = 5 + made_sample(round, (uint32_t)i, 0, right - 5);
            view.crop_height = 5 + made_sample(round, (uint32_t)i, 1, below - 5);
            view.resize_width = view.width = view.crop_width * 4 / 5;
            view.resize_height = view.height = view.crop_height * 4 / 5;
            uint8_t *part = view_bytes(decoder, &image, NULL, 0, 0, &view);
            uint8_t *expected = view_bytes(decoder, NULL, whole, image.width, image.height, &view);
            ck_assert_msg(memcmp(part, expected, (size_t)view.width * view.height * 3) == 0,
                          "kind %zu, crop %u x %u at (%u, %u) of %u x %u", i, view.crop_width,
                          view.crop_height, view.crop_x, view.crop_y, image.width, image.height);
            free(part);
            free(expected);
            if (round % 5 == 0) {
                free(view_bytes(decoder, &other, NULL, 0, 0, &whole_other));
            }
        }
        free(whole);
        made_image_free(&image);
    }
    made_image_free(&other);
    image_decoder_close(&decoder);
}
END_TEST

/* Decoding at a reduced scale or with plain chroma is near the exact rendering, and happens only
 * where the picture covers the target. */
START_TEST(test_reduced_scales_are_near)
{
    static const uint32_t sizes[] = {16, 32, 64, 128, 256, 312};

    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 515, .height = 389, .quality = 95};
    struct made_image image = make_jpeg(&jpeg);
    image_decoder *exact = check_open("turbo"), *fast = open_fast();

    for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
        uint32_t size = sizes[j];
        size_t count = (size_t)size * size * 3;
        uint8_t *one = malloc(count), *other = malloc(count);
        struct image_output first = {.format = IMAGE_U8, .pixels = one};
        struct image_output second = {.format = IMAGE_U8, .pixels = other};
        struct image_view view;
        ck_assert(one != NULL && other != NULL);
        image_view_whole(jpeg.width, jpeg.height, size, &view);
        ck_assert_int_eq(image_render(exact, image.bytes, image.count, &view, &first), STATUS_OK);
        ck_assert_int_eq(image_render(fast, image.bytes, image.count, &view, &second), STATUS_OK);
        double sum = 0;
        for (size_t i = 0; i < count; i++) {
            sum += abs((int)one[i] - other[i]);
        }
        ck_assert_msg(sum / (double)count < 2.0, "at %u the mean difference is %g", size,
                      sum / (double)count);
        /* 256 does not fit into half of 389, and 312 not into 4/5. */
        bool changed = size <= 128 || (size == 256 && made_jpeg_merged_available());
        ck_assert(changed ? sum > 0 : sum == 0);
        free(one);
        free(other);
    }
    image_decoder_close(&exact);
    image_decoder_close(&fast);
    made_image_free(&image);
}
END_TEST

START_TEST(test_a_file_cut_anywhere_is_refused)
{
    static const struct made_jpeg kinds[] = {
        {.width = 64, .height = 64},
        {.width = 64, .height = 64, .progressive = true},
        {.width = 64, .height = 64, .restart = 3},
        /* The thumbnail's end marker is not the picture's. */
        {.width = 64, .height = 64, .thumbnail = true},
    };

    SKIP_WITHOUT_JPEG();
    for (size_t i = 0; i < 4; i++) {
        struct made_image image = make_jpeg(&kinds[i]);
        for (size_t count = 2; count < image.count; count += count < 900 ? 13 : 7) {
            struct made_image cut = check_cut(&image, count);
            check_refused("turbo,libpng", &cut, STATUS_INVALID, "cut");
            check_refused("stb,libpng", &cut, STATUS_INVALID, "cut");
            made_image_free(&cut);
        }
        /* All but the last byte, which is half of the end marker. */
        struct made_image cut = check_cut(&image, image.count - 1);
        check_refused("turbo,libpng", &cut, STATUS_INVALID, "cut");
        check_refused("stb,libpng", &cut, STATUS_INVALID, "cut");
        made_image_free(&cut);
        made_image_free(&image);
    }
}
END_TEST

/* The end marker is there, but rows before it are not. */
START_TEST(test_missing_rows_before_the_end_are_found)
{
    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 64, .height = 64};
    struct made_image image = make_jpeg(&jpeg);
    struct made_image cut = check_cut(&image, image.count - 60);

    cut.bytes[cut.count - 2] = 0xff;
    cut.bytes[cut.count - 1] = 0xd9;
    check_refused("turbo,libpng", &cut, STATUS_INVALID, "premature end");
    made_image_free(&cut);
    made_image_free(&image);
}
END_TEST

START_TEST(test_bytes_that_do_not_belong_are_no_fault)
{
    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 40, .height = 40};
    struct made_image image = make_jpeg(&jpeg);
    expect_reference(&image);
    size_t at = made_jpeg_marker(&image, 0xdb);
    struct made_image longer = {.width = image.width, .height = image.height, .rgb = image.rgb};

    /* Between two segments, and behind the end. */
    longer.count = image.count + 16 + 100;
    longer.bytes = calloc(1, longer.count);
    ck_assert_ptr_nonnull(longer.bytes);
    memcpy(longer.bytes, image.bytes, at);
    memcpy(longer.bytes + at + 16, image.bytes + at, image.count - at);
    check_pixels("turbo", &longer, "bytes that do not belong");
    free(longer.bytes);
    made_image_free(&image);
}
END_TEST

/* An object kept from file to file remembers tables: one that lacks its own must not get them. */
START_TEST(test_tables_of_one_file_do_not_serve_the_next)
{
    static const int markers[] = {0xdb, 0xc4};

    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 40, .height = 40, .progressive = true};
    struct made_image good = make_jpeg(&jpeg);
    image_decoder *decoder = check_open("turbo");
    uint8_t pixels[40 * 40 * 3];

    for (size_t i = 0; i < 2; i++) {
        struct made_image bad = make_jpeg(&jpeg);
        size_t at;
        /* Every such segment of the header becomes a comment. */
        while ((at = made_jpeg_marker(&bad, markers[i])) != 0) {
            bad.bytes[at + 1] = 0xfe;
        }
        check_refused("turbo,libpng", &bad, STATUS_INVALID, "not defined");
        ck_assert_int_eq(
            image_decode_rgb(decoder, good.bytes, good.count, pixels, sizeof(pixels), NULL),
            STATUS_OK);
        ck_assert_int_eq(
            image_decode_rgb(decoder, bad.bytes, bad.count, pixels, sizeof(pixels), NULL),
            STATUS_INVALID);
        made_image_free(&bad);
    }
    image_decoder_close(&decoder);
    made_image_free(&good);
}
END_TEST

/* Changes a byte of the frame header: 0 marker, 4 bits, 5 height, 7 width, 9 components. */
static void check_frame(size_t offset, uint8_t value, enum status status, const char *text)
{
    struct made_jpeg jpeg = {.width = 40, .height = 40};
    struct made_image image = make_jpeg(&jpeg);
    size_t at = made_jpeg_marker(&image, 0xc0);

    ck_assert_uint_ne(at, 0);
    image.bytes[at + offset] = value;
    check_refused(NULL, &image, status, text);
    check_refused("stb,libpng", &image, status, text);
    made_image_free(&image);
}

START_TEST(test_processes_that_are_not_read_are_named)
{
    SKIP_WITHOUT_JPEG();
    check_frame(1, 0xc3, STATUS_UNSUPPORTED, "lossless JPEG");
    check_frame(1, 0xcb, STATUS_UNSUPPORTED, "lossless JPEG");
    check_frame(1, 0xf7, STATUS_UNSUPPORTED, "JPEG-LS");
    check_frame(1, 0xc5, STATUS_UNSUPPORTED, "hierarchical JPEG");
    check_frame(4, 12, STATUS_UNSUPPORTED, "12 bits");
    check_frame(4, 9, STATUS_INVALID, "9 bits");
    check_frame(6, 0, STATUS_UNSUPPORTED, "height stands behind its data");
    check_frame(8, 0, STATUS_INVALID, "claims");
    check_frame(9, 2, STATUS_UNSUPPORTED, "2 components");
    check_frame(11, 0x05, STATUS_INVALID, "sampling factors");
}
END_TEST

START_TEST(test_claims_are_refused_before_memory_is_taken)
{
    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 40, .height = 40, .progressive = true};
    struct made_image image = make_jpeg(&jpeg);
    size_t at = made_jpeg_marker(&image, 0xc2);

    /* 65500 x 24065 */
    memcpy(image.bytes + at + 5, "\x5e\x01\xff\xdc", 4);
    check_refused(NULL, &image, STATUS_LIMIT, "65500 x 24065 = 1576257500 pixels");
    check_refused("stb,libpng", &image, STATUS_LIMIT, "65500 x 24065");
    /* 12000 x 12000: within the limit, but not within the file. */
    memcpy(image.bytes + at + 5, "\x2e\xe0\x2e\xe0", 4);
    check_refused(NULL, &image, STATUS_INVALID, "cannot hold 12000 x 12000");
    check_refused("stb,libpng", &image, STATUS_INVALID, "cannot hold 12000 x 12000");
    made_image_free(&image);
}
END_TEST

/* A progressive file whose first scan stands in it a few hundred times. */
START_TEST(test_hundreds_of_scans_are_refused)
{
    SKIP_WITHOUT_JPEG();
    struct made_jpeg jpeg = {.width = 64, .height = 64, .progressive = true};
    struct made_image image = make_jpeg(&jpeg);
    size_t first = made_jpeg_marker(&image, 0xda), end = first + 2;

    while (image.bytes[end] != 0xff || image.bytes[end + 1] == 0) {
        end++;
    }
    size_t scan = end - first, copies = 300;
    struct made_image many = {.width = 64, .height = 64, .count = image.count + scan * copies};
    many.bytes = malloc(many.count);
    ck_assert_ptr_nonnull(many.bytes);
    memcpy(many.bytes, image.bytes, end);
    for (size_t i = 0; i < copies; i++) {
        memcpy(many.bytes + end + i * scan, image.bytes + first, scan);
    }
    memcpy(many.bytes + end + copies * scan, image.bytes + end, image.count - end);
    check_refused("turbo,libpng", &many, STATUS_LIMIT, "scans");
    check_refused("stb,libpng", &many, STATUS_LIMIT, "scans");
    made_image_free(&many);
    made_image_free(&image);
}
END_TEST

/* Where each orientation puts the stored picture's first pixel: column and row of a 3 x 2 picture
 * that is seen upright as width x height. */
START_TEST(test_orientation_is_ignored_unless_asked_for)
{
    static const struct {
        uint32_t width, height, x, y;
    } first[9] = {{0, 0, 0, 0},     {48, 32, 0, 0},   {48, 32, 47, 0},
                  {48, 32, 47, 31}, {48, 32, 0, 31},  {32, 48, 0, 0},
                  {32, 48, 31, 0},  {32, 48, 31, 47}, {32, 48, 0, 47}};

    SKIP_WITHOUT_JPEG();
    for (int orientation = 1; orientation <= 8; orientation++) {
        struct made_jpeg jpeg = {.width = 48,
                                 .height = 32,
                                 .orientation = orientation,
                                 .big_endian = orientation % 2 == 0};
        struct made_image image = make_jpeg(&jpeg);
        struct image_facts facts = check_facts(&image, false);
        ck_assert_int_eq(facts.orientation, orientation);
        ck_assert_uint_eq(facts.width, 48);
        facts = check_facts(&image, true);
        ck_assert_uint_eq(facts.width, first[orientation].width);
        ck_assert_uint_eq(facts.height, first[orientation].height);

        struct image_settings settings;
        image_decoder *turned = NULL, *stored = check_open("turbo");
        static uint8_t one[48 * 32 * 3], other[48 * 32 * 3], shown[48 * 32 * 3];
        image_settings_defaults(&settings);
        settings.exif_orientation = true;
        settings.exact_decode = true;
        ck_assert_int_eq(image_decoder_open(&settings, &turned), STATUS_OK);
        ck_assert_int_eq(image_decode_rgb(stored, image.bytes, image.count, one, sizeof(one), NULL),
                         STATUS_OK);
        ck_assert_int_eq(
            image_decode_rgb(turned, image.bytes, image.count, other, sizeof(other), NULL),
            STATUS_OK);
        size_t at = ((size_t)first[orientation].y * facts.width + first[orientation].x) * 3;
        ck_assert_mem_eq(one, other + at, 3);
        /* The pixel to the right of the first goes on along a row, or along a column. */
        bool along = orientation <= 4;
        size_t next = along ? (first[orientation].x == 0 ? at + 3 : at - 3)
                            : (first[orientation].y == 0 ? at + (size_t)facts.width * 3
                                                         : at - (size_t)facts.width * 3);
        ck_assert_mem_eq(one + 3, other + next, 3);

        /* Rendering at its own size gives the same. */
        struct image_output output = {.format = IMAGE_U8, .pixels = shown};
        struct image_view view;
        image_view_whole(facts.width, facts.height, 1, &view);
        view.resize_width = view.width = facts.width;
        view.resize_height = view.height = facts.height;
        ck_assert_int_eq(image_render(turned, image.bytes, image.count, &view, &output), STATUS_OK);
        ck_assert_mem_eq(shown, other, sizeof(shown));
        image_decoder_close(&turned);
        image_decoder_close(&stored);
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_facts)
{
    SKIP_WITHOUT_JPEG();
    static const enum image_colour colours[] = {IMAGE_COLOUR_YCBCR, IMAGE_COLOUR_GREY,
                                                IMAGE_COLOUR_RGB,   IMAGE_COLOUR_CMYK,
                                                IMAGE_COLOUR_YCCK,  IMAGE_COLOUR_CMYK};
    static const int channels[] = {3, 1, 3, 4, 4, 4};
    for (int colour = 0; colour < 6; colour++) {
        struct made_jpeg jpeg = {.width = 33,
                                 .height = 21,
                                 .colour = (enum made_jpeg_colour)colour,
                                 .progressive = colour % 2 == 1};
        struct made_image image = make_jpeg(&jpeg);
        struct image_facts facts = check_facts(&image, false);
        ck_assert_int_eq(facts.kind, IMAGE_JPEG);
        ck_assert_int_eq(facts.colour, colours[colour]);
        ck_assert_int_eq(facts.channels, channels[colour]);
        ck_assert_int_eq(facts.bits, 8);
        ck_assert_int_eq(facts.progressive, colour % 2 == 1);
        ck_assert_int_eq(facts.orientation, 1);
        ck_assert_uint_eq(facts.width, 33);
        ck_assert_uint_eq(facts.height, 21);
        made_image_free(&image);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_every_kind_is_what_libjpeg_makes_of_it,
                                  test_arithmetic_coding,
                                  test_colours_are_right,
                                  test_stb_is_near,
                                  test_parts_are_those_of_the_whole,
                                  test_chroma_is_plain_only_where_that_is_smoothed,
                                  test_parts_with_plain_chroma_are_those_of_the_whole,
                                  test_reduced_scales_are_near,
                                  test_a_file_cut_anywhere_is_refused,
                                  test_missing_rows_before_the_end_are_found,
                                  test_bytes_that_do_not_belong_are_no_fault,
                                  test_tables_of_one_file_do_not_serve_the_next,
                                  test_processes_that_are_not_read_are_named,
                                  test_claims_are_refused_before_memory_is_taken,
                                  test_hundreds_of_scans_are_refused,
                                  test_orientation_is_ignored_unless_asked_for,
                                  test_facts};
    return check_run("decode_jpeg", tests, sizeof tests / sizeof tests[0], 60);
}
