/* PNG of every kind, by libpng and by stb_image: right pixels, or refused with the reason. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "base/clock.h"
#include "base/system.h"
#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"

static const struct {
    int colour, depth;
} FORMATS[] = {{0, 1}, {0, 2}, {0, 4}, {0, 8}, {0, 16}, {2, 8}, {2, 16}, {3, 1},
               {3, 2}, {3, 4}, {3, 8}, {4, 8}, {4, 16}, {6, 8}, {6, 16}};

/* Widths that fill a byte and that do not, down to passes of the interlacing that are empty. */
static void check_formats(struct made_png png, const char *what)
{
    static const uint32_t sizes[][2] = {{1, 1}, {3, 5}, {8, 8}, {33, 17}};

    for (size_t i = 0; i < sizeof(FORMATS) / sizeof(FORMATS[0]); i++) {
        for (size_t j = 0; j < sizeof(sizes) / sizeof(sizes[0]); j++) {
            char text[128];
            png.colour = FORMATS[i].colour;
            png.depth = FORMATS[i].depth;
            png.width = sizes[j][0];
            png.height = sizes[j][1];
            struct made_image image = make_png(&png);
            snprintf(text, sizeof(text), "%s, colour type %d, %d bits, %u x %u", what, png.colour,
                     png.depth, png.width, png.height);
            check_pixels("libpng", &image, text);
            if (png.depth <= 8) {
                check_pixels("stb", &image, text);
            } else {
                check_refused("stb", &image, STATUS_UNSUPPORTED, "16-bit PNG");
            }
            made_image_free(&image);
        }
    }
}

START_TEST(test_every_format)
{
    check_formats((struct made_png){0}, "plain");
    check_formats((struct made_png){.interlaced = true}, "interlaced");
    check_formats((struct made_png){.split = 7}, "many IDAT");
}
END_TEST

/* Inflated data of exactly 65,535 bytes (the most that a stored block of deflate holds), of a row more,
 * and of twice as much in many chunks. */
START_TEST(test_pictures_of_several_blocks)
{
    static const struct made_png pictures[] = {
        {.width = 254, .height = 257, .depth = 8},
        {.width = 254, .height = 258, .depth = 8},
        {.width = 218, .height = 201, .depth = 8, .colour = 2, .split = 5000},
    };

    for (size_t i = 0; i < sizeof(pictures) / sizeof(pictures[0]); i++) {
        struct made_image image = make_png(&pictures[i]);
        check_pixels("libpng", &image, i < 2 ? "one chunk" : "many chunks");
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_transparency_and_metadata_change_no_pixel)
{
    check_formats((struct made_png){.profile = true}, "profile");
    check_formats((struct made_png){.animated = true}, "animated");
    for (int colour = 0; colour <= 3; colour++) {
        for (int depth = 1; depth <= 16; depth *= 2) {
            if (colour == 1 || (colour == 2 && depth < 8) || (colour == 3 && depth > 8)) {
                continue;
            }
            struct made_png png = {
                .width = 19, .height = 11, .colour = colour, .depth = depth, .transparency = true};
            struct made_image image = make_png(&png);
            check_pixels("libpng", &image, "transparent colour");
            if (depth <= 8) {
                check_pixels("stb", &image, "transparent colour");
            }
            ck_assert(check_facts(&image, false).alpha);
            made_image_free(&image);
        }
    }
}
END_TEST

START_TEST(test_facts)
{
    struct made_png png = {.width = 13,
                           .height = 7,
                           .colour = 4,
                           .depth = 16,
                           .interlaced = true,
                           .animated = true,
                           .orientation = 6};
    struct made_image image = make_png(&png);
    struct image_facts facts = check_facts(&image, false);

    ck_assert_int_eq(facts.kind, IMAGE_PNG);
    ck_assert_uint_eq(facts.width, 13);
    ck_assert_uint_eq(facts.height, 7);
    ck_assert_int_eq(facts.channels, 2);
    ck_assert_int_eq(facts.bits, 16);
    ck_assert_int_eq(facts.colour, IMAGE_COLOUR_GREY);
    ck_assert(facts.alpha && facts.interlaced && facts.animated);
    ck_assert_int_eq(facts.orientation, 6);
    facts = check_facts(&image, true);
    ck_assert_uint_eq(facts.width, 7);
    ck_assert_uint_eq(facts.height, 13);
    made_image_free(&image);
}
END_TEST

START_TEST(test_an_index_beyond_the_palette_is_black)
{
    struct made_png png = {.width = 16, .height = 16, .colour = 3, .depth = 4};
    struct made_image image = make_png(&png);
    size_t at = made_png_chunk(&image, "PLTE");
    size_t kept = 5 * 3, removed = 16 * 3 - kept;

    /* Five entries are left. */
    memmove(image.bytes + at + 8 + kept, image.bytes + at + 8 + 48, image.count - at - 8 - 48);
    image.count -= removed;
    image.bytes[at + 3] = (uint8_t)kept;
    uint32_t crc = (uint32_t)crc32(0, image.bytes + at + 4, (uInt)kept + 4);
    for (int i = 0; i < 4; i++) {
        image.bytes[at + 8 + kept + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
    }
    for (uint32_t y = 0; y < 16; y++) {
        for (uint32_t x = 0; x < 16; x++) {
            if (made_sample(x, y, 0, 15) >= 5) {
                memset(image.rgb + (y * 16 + x) * 3, 0, 3);
            }
        }
    }
    check_pixels("libpng", &image, "short palette");
    check_pixels("stb", &image, "short palette");
    made_image_free(&image);
}
END_TEST

START_TEST(test_a_file_cut_anywhere_is_refused)
{
    struct made_png png = {.width = 20, .height = 20, .colour = 2, .depth = 8, .split = 300};
    struct made_image image = make_png(&png);

    for (size_t count = 8; count < image.count; count += count < 100 ? 1 : 37) {
        struct made_image cut = check_cut(&image, count);
        check_refused("libpng", &cut, STATUS_INVALID, "the file is cut");
        check_refused("stb,libpng", &cut, STATUS_INVALID, "the file is cut");
        made_image_free(&cut);
    }
    made_image_free(&image);
}
END_TEST

START_TEST(test_a_wrong_checksum_is_found_by_either_library)
{
    static const char *const types[] = {"IHDR", "PLTE", "IDAT", "IEND"};
    struct made_png png = {.width = 20, .height = 20, .colour = 3, .depth = 8};

    for (size_t i = 0; i < 4; i++) {
        struct made_image image = make_png(&png);
        size_t at = made_png_chunk(&image, types[i]);
        ck_assert_uint_ne(at, 0);
        size_t length = (size_t)image.bytes[at + 2] << 8 | image.bytes[at + 3];
        image.bytes[at + 8 + length + 3] ^= 1;
        check_refused("libpng", &image, STATUS_INVALID, "CRC");
        check_refused("stb,libpng", &image, STATUS_INVALID, "CRC");
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_damage_below_the_rows_that_are_wanted_is_found)
{
    struct made_png png = {.width = 64, .height = 64, .colour = 2, .depth = 8, .split = 500};
    struct made_image image = make_png(&png);
    image_decoder *decoder = check_open("libpng");
    uint8_t pixels[8 * 8 * 3];
    struct image_output output = {.format = IMAGE_U8, .pixels = pixels};
    struct image_view view;

    image_view_whole(64, 64, 8, &view);
    view.crop_height = 8;
    view.crop_width = 8;
    ck_assert_int_eq(image_render(decoder, image.bytes, image.count, &view, &output), STATUS_OK);
    /* The last bytes of the last IDAT, and then the end. */
    image.bytes[image.count - 12 - 10] ^= 0x40;
    ck_assert_int_eq(image_render(decoder, image.bytes, image.count, &view, &output),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(status_message(), "CRC"));
    image.bytes[image.count - 12 - 10] ^= 0x40;
    ck_assert_int_eq(image_render(decoder, image.bytes, image.count - 1, &view, &output),
                     STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(status_message(), "cut"));
    image_decoder_close(&decoder);
    made_image_free(&image);
}
END_TEST

/* Behind the image data, where libpng lets some pass. */
START_TEST(test_an_unknown_chunk_that_counts_is_refused)
{
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        struct made_png png = {.width = 9, .height = 7, .colour = 2, .depth = 8};
        png.interlaced = interlaced == 1;
        struct made_image image = make_png(&png);
        uint8_t chunk[12] = {0, 0, 0, 0, 'I', 'D', 'x', 'T'};
        uint32_t crc = (uint32_t)crc32(0, chunk + 4, 4);
        for (int i = 0; i < 4; i++) {
            chunk[8 + i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        size_t end = image.count - 12;
        uint8_t *bytes = malloc(image.count + sizeof(chunk));
        ck_assert_ptr_nonnull(bytes);
        memcpy(bytes, image.bytes, end);
        memcpy(bytes + end, chunk, sizeof(chunk));
        memcpy(bytes + end + sizeof(chunk), image.bytes + end, 12);
        free(image.bytes);
        image.bytes = bytes;
        image.count += sizeof(chunk);
        check_refused("libpng", &image, STATUS_INVALID, "cannot be passed over");
        check_refused("stb", &image, STATUS_INVALID, "cannot be passed over");
        /* One that does not count. */
        bytes[end + 4] = 'i';
        crc = (uint32_t)crc32(0, bytes + end + 4, 4);
        for (int i = 0; i < 4; i++) {
            bytes[end + 8 + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        check_pixels("libpng", &image, "an unknown chunk that may be passed over");
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_apples_variant_is_named)
{
    struct made_png png = {.width = 8, .height = 8, .colour = 6, .depth = 8, .apple = true};
    struct made_image image = make_png(&png);

    check_refused(NULL, &image, STATUS_UNSUPPORTED, "CgBI");
    check_refused("stb,libpng", &image, STATUS_UNSUPPORTED, "CgBI");
    made_image_free(&image);
}
END_TEST

START_TEST(test_text_that_inflates_to_much_is_not_inflated)
{
    struct made_png png = {
        .width = 8, .height = 8, .colour = 2, .depth = 8, .text_bytes = (size_t)64 << 20};
    struct made_image image = make_png(&png);
    struct system_usage before, after;

    ck_assert_uint_lt(image.count, 300000);
    system_read_usage(&before);
    uint64_t start = clock_thread_cpu_ns();
    check_pixels("libpng", &image, "long text");
    check_pixels("stb", &image, "long text");
    ck_assert_double_lt(clock_seconds(start, clock_thread_cpu_ns()), 1.0);
    system_read_usage(&after);
    ck_assert_uint_lt(after.resident_peak_bytes, before.resident_peak_bytes + (16 << 20));
    made_image_free(&image);
}
END_TEST

START_TEST(test_claims_are_refused_before_memory_is_taken)
{
    struct made_png png = {.width = 8,
                           .height = 8,
                           .colour = 2,
                           .depth = 8,
                           .text_bytes = 300000,
                           .claim_width = 50000,
                           .claim_height = 50000};
    struct made_image image = make_png(&png);
    struct system_usage before, after;

    system_read_usage(&before);
    check_refused(NULL, &image, STATUS_LIMIT, "50000 x 50000 = 2500000000 pixels");
    made_image_free(&image);

    /* Under the limit, but more than the file could hold. */
    png.claim_width = 12000;
    png.claim_height = 12000;
    for (int interlaced = 0; interlaced < 2; interlaced++) {
        png.interlaced = interlaced != 0;
        image = make_png(&png);
        check_refused("libpng", &image, STATUS_INVALID, "cannot hold 12000 x 12000");
        check_refused("stb", &image, STATUS_INVALID, "cannot hold 12000 x 12000");
        made_image_free(&image);
    }
    png.claim_width = 0x7fffffff;
    png.claim_height = 0x7fffffff;
    image = make_png(&png);
    check_refused(NULL, &image, STATUS_LIMIT, "2147483647 x 2147483647");
    made_image_free(&image);
    png.claim_width = 0x80000000u;
    image = make_png(&png);
    check_refused(NULL, &image, STATUS_LIMIT, "2147483648 x 2147483647");
    made_image_free(&image);
    system_read_usage(&after);
    ck_assert_uint_lt(after.resident_peak_bytes, before.resident_peak_bytes + (16 << 20));
}
END_TEST

/* Data of more rows than the header says: stb_image would inflate all of them. */
START_TEST(test_data_beyond_the_picture_cost_no_memory)
{
    struct made_png png = {.width = 3000,
                           .height = 3000,
                           .colour = 0,
                           .depth = 1,
                           .claim_width = 3000,
                           .claim_height = 3};
    struct made_image image = make_png(&png);
    struct system_usage before, after;

    image.height = 3;
    system_read_usage(&before);
    check_pixels("libpng", &image, "too many rows");
    system_read_usage(&after);
    ck_assert_uint_lt(after.resident_peak_bytes, before.resident_peak_bytes + (16 << 20));
    made_image_free(&image);
}
END_TEST

START_TEST(test_headers_that_cannot_be)
{
    /* Depth, colour type, compression, filter, interlacing: offsets in the header's data. */
    static const uint8_t changes[][2] = {{8, 3}, {8, 0},  {8, 32}, {9, 1},
                                         {9, 5}, {10, 1}, {11, 1}, {12, 2}};
    struct made_png png = {.width = 8, .height = 8, .colour = 2, .depth = 8};

    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        struct made_image image = make_png(&png);
        image.bytes[16 + changes[i][0]] = changes[i][1];
        uint32_t crc = (uint32_t)crc32(0, image.bytes + 12, 17);
        for (int j = 0; j < 4; j++) {
            image.bytes[29 + j] = (uint8_t)(crc >> (24 - 8 * j));
        }
        check_refused(NULL, &image, STATUS_INVALID, "PNG header");
        made_image_free(&image);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_every_format,
                                  test_pictures_of_several_blocks,
                                  test_transparency_and_metadata_change_no_pixel,
                                  test_facts,
                                  test_an_index_beyond_the_palette_is_black,
                                  test_a_file_cut_anywhere_is_refused,
                                  test_a_wrong_checksum_is_found_by_either_library,
                                  test_damage_below_the_rows_that_are_wanted_is_found,
                                  test_an_unknown_chunk_that_counts_is_refused,
                                  test_apples_variant_is_named,
                                  test_text_that_inflates_to_much_is_not_inflated,
                                  test_claims_are_refused_before_memory_is_taken,
                                  test_data_beyond_the_picture_cost_no_memory,
                                  test_headers_that_cannot_be};
    return check_run("decode_png", tests, sizeof tests / sizeof tests[0], 60);
}
