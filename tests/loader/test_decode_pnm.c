/* PBM, PGM and PPM: every variant and range of samples. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"

START_TEST(test_every_variant)
{
    static const uint32_t maxima[] = {1, 2, 3, 15, 100, 255, 256, 1000, 65535};

    for (int variant = 1; variant <= 6; variant++) {
        for (size_t i = 0; i < sizeof(maxima) / sizeof(maxima[0]); i++) {
            bool bitmap = variant == 1 || variant == 4;
            if (bitmap && maxima[i] != 1) {
                continue;
            }
            char what[64];
            struct made_image image = make_pnm(19, 7, variant, maxima[i]);
            snprintf(what, sizeof(what), "P%d up to %u", variant, maxima[i]);
            check_pixels(NULL, &image, what);
            /* It needs none of the libraries. */
            check_pixels("libpng", &image, what);
            made_image_free(&image);
        }
    }
}
END_TEST

/* By hand: black, white and the middle, with comments where they may stand. */
START_TEST(test_a_file_by_hand)
{
    static const char text[] = "P3#one\n# two\n 2#three\r1\n#four\n255\n0 128 255\n7 8\t9";
    struct made_image image = {.width = 2, .height = 1, .count = sizeof(text) - 1};
    uint8_t expected[] = {0, 128, 255, 7, 8, 9};

    image.bytes = malloc(image.count);
    image.rgb = malloc(sizeof(expected));
    ck_assert(image.bytes != NULL && image.rgb != NULL);
    memcpy(image.bytes, text, image.count);
    memcpy(image.rgb, expected, sizeof(expected));
    check_pixels(NULL, &image, "by hand");
    made_image_free(&image);
}
END_TEST

START_TEST(test_a_second_picture_is_no_fault)
{
    struct made_image image = make_pnm(5, 4, 6, 255), twice = image;

    twice.count = 2 * image.count;
    twice.bytes = malloc(twice.count);
    ck_assert_ptr_nonnull(twice.bytes);
    memcpy(twice.bytes, image.bytes, image.count);
    memcpy(twice.bytes + image.count, image.bytes, image.count);
    check_pixels(NULL, &twice, "two pictures");
    free(twice.bytes);
    made_image_free(&image);
}
END_TEST

START_TEST(test_a_file_cut_anywhere_is_refused)
{
    for (int variant = 1; variant <= 6; variant++) {
        struct made_image image = make_pnm(19, 7, variant, variant == 6 ? 1000 : 1);
        /* The last sample of a plain file may miss its line's end. */
        for (size_t count = 3; count + 3 < image.count; count += 5) {
            struct made_image cut = check_cut(&image, count);
            check_refused(NULL, &cut, STATUS_INVALID, "PNM");
            made_image_free(&cut);
        }
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_headers_that_cannot_be)
{
    static const struct {
        const char *text;
        enum status status;
        const char *message;
    } files[] = {
        {"P6\n0 5\n255\n", STATUS_INVALID, "claims"},
        {"P6\n5 0\n255\n", STATUS_INVALID, "claims"},
        {"P6\n5 5\n0\n", STATUS_INVALID, "claims"},
        {"P6\n5 5\n65536\n", STATUS_INVALID, "claims"},
        {"P6\n5 x\n255\n", STATUS_INVALID, "numbers"},
        {"P6\n-5 5\n255\n", STATUS_INVALID, "numbers"},
        {"P6\n99999999999 5\n255\n", STATUS_INVALID, "numbers"},
        {"P6\n50000 50000\n255\n", STATUS_LIMIT, "50000 x 50000"},
        {"P6\n10000 10000\n255\nabc", STATUS_INVALID, "end early"},
        {"P3\n2 1\n255\n1 2 3 4 5 six", STATUS_INVALID, "damaged at byte"},
        {"P1\n2 2\n0 1 2 0", STATUS_INVALID, "damaged at byte"},
    };

    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
        struct made_image image = {.width = 10, .height = 10, .count = strlen(files[i].text)};
        image.bytes = malloc(image.count);
        ck_assert_ptr_nonnull(image.bytes);
        memcpy(image.bytes, files[i].text, image.count);
        check_refused(NULL, &image, files[i].status, files[i].message);
        made_image_free(&image);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_every_variant, test_a_file_by_hand,
                                  test_a_second_picture_is_no_fault,
                                  test_a_file_cut_anywhere_is_refused, test_headers_that_cannot_be};
    return check_run("decode_pnm", tests, sizeof tests / sizeof tests[0], 30);
}
