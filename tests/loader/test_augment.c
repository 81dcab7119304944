/* Views: each kind by its definition, and what chance must and must not do. */
#include <math.h>
#include <string.h>

#include "loader/augment.h"
#include "tests/support/check_run.h"

static struct augment_settings settings_for(enum augment_kind kind, uint32_t size)
{
    struct augment_settings settings;

    augment_settings_defaults(&settings);
    settings.kind = kind;
    settings.size = size;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_OK);
    return settings;
}

static struct image_view draw(const struct augment_settings *settings, uint32_t width,
                              uint32_t height, uint32_t epoch, uint64_t sample)
{
    struct image_view view;
    struct rng rng;

    rng_init(&rng, 42, RNG_AUGMENT, epoch, sample);
    augment_draw(settings, width, height, &rng, &view);
    ck_assert(view.crop_width >= 1 && view.crop_x + view.crop_width <= width);
    ck_assert(view.crop_height >= 1 && view.crop_y + view.crop_height <= height);
    ck_assert_uint_eq(view.width, settings->size);
    ck_assert_uint_eq(view.height, settings->size);
    return view;
}

START_TEST(test_none_squashes_the_whole)
{
    struct augment_settings settings = settings_for(AUGMENT_NONE, 32);
    struct image_view view;

    ck_assert(!augment_is_random(&settings));
    augment_draw(&settings, 100, 50, NULL, &view);
    ck_assert_uint_eq(view.crop_x, 0);
    ck_assert_uint_eq(view.crop_y, 0);
    ck_assert_uint_eq(view.crop_width, 100);
    ck_assert_uint_eq(view.crop_height, 50);
    ck_assert_uint_eq(view.resize_width, 32);
    ck_assert_uint_eq(view.resize_height, 32);
    ck_assert_int_eq(view.window_x, 0);
    ck_assert_int_eq(view.window_y, 0);
    ck_assert(!view.flip);
}
END_TEST

/* Resize(256) and CenterCrop(224) of torchvision for 500 x 375: 341 x 256, corner (58, 16). */
START_TEST(test_centre_is_that_of_torchvision)
{
    static const struct {
        uint32_t width, height, across, down;
        int32_t x, y;
    } cases[] = {
        {500, 375, 341, 256, 58, 16},
        {375, 500, 256, 341, 16, 58},
        {256, 256, 256, 256, 16, 16},
        /* 100 * 256 / 99 = 258.6, cut to 258; (258 - 224) / 2 = 17. */
        {100, 99, 258, 256, 17, 16},
        /* 257 - 224 = 33: 16.5 goes to the even 16. */
        {2008, 2000, 257, 256, 16, 16},
    };
    struct augment_settings settings = settings_for(AUGMENT_CENTRE, 224);

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct image_view view;
        augment_draw(&settings, cases[i].width, cases[i].height, NULL, &view);
        ck_assert_uint_eq(view.crop_width, cases[i].width);
        ck_assert_uint_eq(view.crop_height, cases[i].height);
        ck_assert_uint_eq(view.resize_width, cases[i].across);
        ck_assert_uint_eq(view.resize_height, cases[i].down);
        ck_assert_int_eq(view.window_x, cases[i].x);
        ck_assert_int_eq(view.window_y, cases[i].y);
    }
    /* A strip of any length stays drawable. */
    struct image_view view;
    augment_draw(&settings, 1000000, 1, NULL, &view);
    ck_assert_uint_le(view.resize_width, 16384);
    ck_assert_int_le(view.window_x + 224, 16384);
}
END_TEST

START_TEST(test_padded_crop_reaches_every_offset)
{
    struct augment_settings settings = settings_for(AUGMENT_PADDED_CROP, 32);
    int seen[9][9] = {{0}};

    settings.fill = IMAGE_FILL_REFLECT;
    for (uint64_t sample = 0; sample < 8100; sample++) {
        struct image_view view = draw(&settings, 40, 50, 0, sample);
        ck_assert_uint_eq(view.crop_width, 40);
        ck_assert_uint_eq(view.crop_height, 50);
        ck_assert_uint_eq(view.resize_width, 32);
        ck_assert(view.window_x >= -4 && view.window_x <= 4);
        ck_assert(view.window_y >= -4 && view.window_y <= 4);
        ck_assert_int_eq(view.fill, IMAGE_FILL_REFLECT);
        seen[view.window_y + 4][view.window_x + 4]++;
    }
    /* 100 expected in each of 81 places; 5 standard deviations are 50. */
    for (int i = 0; i < 81; i++) {
        ck_assert_int_ge(seen[i / 9][i % 9], 50);
        ck_assert_int_le(seen[i / 9][i % 9], 150);
    }
}
END_TEST

START_TEST(test_resized_crop_keeps_to_its_ranges)
{
    struct augment_settings settings = settings_for(AUGMENT_RESIZED_CROP, 64);
    double area_sum = 0, log_sum = 0;
    int count = 20000;

    for (int sample = 0; sample < count; sample++) {
        struct image_view view = draw(&settings, 500, 500, 1, (uint64_t)sample);
        double share = (double)view.crop_width * view.crop_height / (500.0 * 500.0);
        double ratio = (double)view.crop_width / view.crop_height;
        /* Sides are rounded to whole pixels. */
        ck_assert_double_ge(share, 0.08 - 0.002);
        ck_assert_double_le(share, 1.0);
        ck_assert_double_ge(ratio, 0.75 - 0.01);
        ck_assert_double_le(ratio, 4.0 / 3.0 + 0.01);
        ck_assert_uint_eq(view.resize_width, 64);
        area_sum += share;
        log_sum += log(ratio);
    }
    /* Boxes that would not fit are drawn again, which takes from the largest. The mean of the rest
     * lies below that of 0.08 .. 1, and shape is as often wide as tall. */
    ck_assert_double_lt(area_sum / count, 0.54);
    ck_assert_double_gt(area_sum / count, 0.45);
    ck_assert_double_lt(fabs(log_sum / count), 0.01);
}
END_TEST

/* The algorithm once more, as torchvision's documentation describes it, from the same numbers. */
START_TEST(test_resized_crop_is_that_of_torchvision)
{
    struct augment_settings settings = settings_for(AUGMENT_RESIZED_CROP, 64);

    for (uint64_t sample = 0; sample < 2000; sample++) {
        struct image_view view = draw(&settings, 333, 127, 3, sample);
        struct rng rng;
        bool found = false;
        double log_low = log(3.0 / 4.0), log_high = log(4.0 / 3.0);

        rng_init(&rng, 42, RNG_AUGMENT, 3, sample);
        for (int attempt = 0; attempt < 10 && !found; attempt++) {
            double target = 333.0 * 127.0 * (0.08 + (1.0 - 0.08) * rng_uniform_double(&rng));
            double ratio = exp(log_low + (log_high - log_low) * rng_uniform_double(&rng));
            long width = lrint(sqrt(target * ratio)), height = lrint(sqrt(target / ratio));
            if (width > 0 && width <= 333 && height > 0 && height <= 127) {
                ck_assert_int_eq(view.crop_width, width);
                ck_assert_int_eq(view.crop_height, height);
                ck_assert_uint_eq(view.crop_y, rng_below(&rng, 127 - (uint32_t)height + 1));
                ck_assert_uint_eq(view.crop_x, rng_below(&rng, 333 - (uint32_t)width + 1));
                found = true;
            }
        }
        if (!found) {
            /* Too wide for any ratio: full height, 4/3 of it in width, from the middle. */
            ck_assert_uint_eq(view.crop_height, 127);
            ck_assert_uint_eq(view.crop_width, 169);
            ck_assert_uint_eq(view.crop_x, (333 - 169) / 2);
        }
    }
}
END_TEST

START_TEST(test_resized_crop_of_strips_falls_back)
{
    struct augment_settings settings = settings_for(AUGMENT_RESIZED_CROP, 64);
    struct image_view view = draw(&settings, 1000, 10, 0, 0);

    ck_assert_uint_eq(view.crop_height, 10);
    ck_assert_uint_eq(view.crop_width, 13);
    ck_assert_uint_eq(view.crop_x, 493);
    view = draw(&settings, 10, 1000, 0, 0);
    ck_assert_uint_eq(view.crop_width, 10);
    ck_assert_uint_eq(view.crop_height, 13);
    view = draw(&settings, 1, 1, 0, 0);
    ck_assert_uint_eq(view.crop_width, 1);
}
END_TEST

START_TEST(test_flips_are_as_frequent_as_asked)
{
    struct augment_settings settings = settings_for(AUGMENT_NONE, 32);
    struct image_view view;
    int flips = 0;

    settings.flip = 0.25;
    ck_assert(augment_is_random(&settings));
    for (uint64_t sample = 0; sample < 10000; sample++) {
        flips += draw(&settings, 40, 40, 0, sample).flip;
    }
    /* 2500 expected, 5 standard deviations are 217. */
    ck_assert_int_gt(flips, 2500 - 217);
    ck_assert_int_lt(flips, 2500 + 217);
    settings.flip = 1.0;
    ck_assert(!augment_is_random(&settings));
    augment_draw(&settings, 40, 40, NULL, &view);
    ck_assert(view.flip);
}
END_TEST

START_TEST(test_a_view_is_a_pure_function)
{
    struct augment_settings settings = settings_for(AUGMENT_RESIZED_CROP, 64);
    int equal_epochs = 0;

    settings.flip = 0.5;
    for (uint64_t sample = 0; sample < 200; sample++) {
        struct image_view one = draw(&settings, 300, 200, 5, sample);
        struct image_view two = draw(&settings, 300, 200, 5, sample);
        struct image_view other = draw(&settings, 300, 200, 6, sample);
        ck_assert_uint_eq(one.crop_x, two.crop_x);
        ck_assert_uint_eq(one.crop_y, two.crop_y);
        ck_assert_uint_eq(one.crop_width, two.crop_width);
        ck_assert_uint_eq(one.crop_height, two.crop_height);
        ck_assert_int_eq(one.flip, two.flip);
        equal_epochs += one.crop_x == other.crop_x && one.crop_width == other.crop_width;
    }
    ck_assert_int_lt(equal_epochs, 5);
}
END_TEST

START_TEST(test_settings_out_of_range_are_named)
{
    struct augment_settings settings;

    augment_settings_defaults(&settings);
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE); /* no size */
    ck_assert_ptr_nonnull(strstr(status_message(), "--size"));
    settings.size = 4097;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings = settings_for(AUGMENT_PADDED_CROP, 5);
    settings.size = 4; /* no more than the padding */
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings = settings_for(AUGMENT_CENTRE, 32);
    settings.resize = 31;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings = settings_for(AUGMENT_RESIZED_CROP, 32);
    settings.scale_low = 0;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings.scale_low = (double)NAN;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings.scale_low = 0.5;
    settings.scale_high = 1.5;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings.scale_high = 1;
    settings.ratio_low = 2;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings.ratio_high = (double)INFINITY;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings = settings_for(AUGMENT_NONE, 32);
    settings.flip = 1.5;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
    settings.flip = (double)NAN;
    ck_assert_int_eq(augment_settings_check(&settings), STATUS_USAGE);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_none_squashes_the_whole,
                                  test_centre_is_that_of_torchvision,
                                  test_padded_crop_reaches_every_offset,
                                  test_resized_crop_keeps_to_its_ranges,
                                  test_resized_crop_is_that_of_torchvision,
                                  test_resized_crop_of_strips_falls_back,
                                  test_flips_are_as_frequent_as_asked,
                                  test_a_view_is_a_pure_function,
                                  test_settings_out_of_range_are_named};
    return check_run("augment", tests, sizeof tests / sizeof tests[0], 30);
}
