/* BMP, GIF, TGA and PSD: right pixels by stb_image, and cut files found around it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/system.h"
#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"

static const struct made_bmp BMPS[] = {
    {.width = 37, .height = 9, .bits = 1},
    {.width = 37, .height = 9, .bits = 4},
    {.width = 37, .height = 9, .bits = 8},
    {.width = 37, .height = 9, .bits = 16},
    {.width = 37, .height = 9, .bits = 24},
    {.width = 37, .height = 9, .bits = 32},
    {.width = 36, .height = 9, .bits = 24, .top_down = true},
    {.width = 37, .height = 9, .bits = 8, .top_down = true},
    {.width = 37, .height = 9, .bits = 16, .masks = true},
    {.width = 37, .height = 9, .bits = 32, .masks = true},
    {.width = 37, .height = 9, .bits = 8, .colours = 20},
    {.width = 37, .height = 9, .bits = 4, .colours = 3},
    {.width = 37, .height = 9, .bits = 1, .core = true},
    {.width = 37, .height = 9, .bits = 4, .core = true},
    {.width = 37, .height = 9, .bits = 8, .core = true},
    {.width = 37, .height = 9, .bits = 24, .core = true},
    {.width = 1, .height = 1, .bits = 1},
};

/* Every file of a kind cut at a few places: within the header, and within the last row. */
static void check_cuts(const struct made_image *image)
{
    const size_t counts[] = {3, 12, 17, 30, 60, image->count / 2, image->count - 40};

    for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
        if (counts[i] >= image->count) {
            continue;
        }
        struct made_image cut = check_cut(image, counts[i]);
        check_refused("stb", &cut, STATUS_INVALID, "");
        made_image_free(&cut);
    }
}

START_TEST(test_bmp)
{
    for (size_t i = 0; i < sizeof(BMPS) / sizeof(BMPS[0]); i++) {
        char what[64];
        struct made_image image = make_bmp(&BMPS[i]);
        snprintf(what, sizeof(what), "BMP %zu", i);
        check_pixels("stb", &image, what);
        check_pixels(NULL, &image, what);
        if (image.width > 1) {
            check_cuts(&image);
            struct made_image cut = check_cut(&image, image.count - 1);
            check_refused("stb", &cut, STATUS_INVALID, "cut");
            made_image_free(&cut);
        }
        check_refused("libpng", &image, STATUS_UNSUPPORTED, "the decoders in use (libpng)");
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_bmp_that_is_not_read)
{
    struct made_bmp bmp = {.width = 8, .height = 8, .bits = 8, .compression = 1};
    struct made_image image = make_bmp(&bmp);

    check_refused(NULL, &image, STATUS_UNSUPPORTED, "run-length coded BMP");
    made_image_free(&image);
    bmp.compression = 4;
    image = make_bmp(&bmp);
    check_refused(NULL, &image, STATUS_UNSUPPORTED, "compression 4");
    made_image_free(&image);
    bmp = (struct made_bmp){.width = 8, .height = 8, .bits = 24};
    image = make_bmp(&bmp);
    image.bytes[28] = 2;
    check_refused(NULL, &image, STATUS_UNSUPPORTED, "2 bits a pixel");
    image.bytes[28] = 24;
    /* 65536 x 65536 */
    memcpy(image.bytes + 18, "\0\0\1\0\0\0\1\0", 8);
    check_refused(NULL, &image, STATUS_LIMIT, "65536 x 65536");
    memcpy(image.bytes + 18, "\0\0\0\0", 4);
    check_refused(NULL, &image, STATUS_INVALID, "claims 0 x");
    made_image_free(&image);
}
END_TEST

START_TEST(test_gif)
{
    static const struct made_gif gifs[] = {
        {.width = 31, .height = 17, .transparent = -1},
        {.width = 31, .height = 17, .transparent = -1, .interlaced = true},
        {.width = 31, .height = 3, .transparent = -1, .interlaced = true},
        {.width = 31, .height = 17, .transparent = 5},
        {.width = 31, .height = 17, .transparent = 5, .local = true},
        {.width = 31, .height = 17, .transparent = -1, .animated = true},
        {.width = 31,
         .height = 17,
         .x = 3,
         .y = 4,
         .frame_width = 20,
         .frame_height = 9,
         .transparent = -1},
        {.width = 31,
         .height = 17,
         .x = 3,
         .y = 4,
         .frame_width = 20,
         .frame_height = 9,
         .transparent = 7},
        {.width = 1, .height = 1, .transparent = -1},
    };

    for (size_t i = 0; i < sizeof(gifs) / sizeof(gifs[0]); i++) {
        char what[64];
        struct made_image image = make_gif(&gifs[i]);
        snprintf(what, sizeof(what), "GIF %zu", i);
        check_pixels("stb", &image, what);
        ck_assert_int_eq(check_facts(&image, false).interlaced, gifs[i].interlaced);
        ck_assert_int_eq(check_facts(&image, false).alpha, gifs[i].transparent >= 0);
        made_image_free(&image);
    }
}
END_TEST

START_TEST(test_gif_that_is_cut_or_ends_early)
{
    struct made_gif gif = {.width = 31, .height = 17, .transparent = -1};
    struct made_image image = make_gif(&gif);

    for (size_t count = 6; count < image.count - 2; count += 11) {
        struct made_image cut = check_cut(&image, count);
        check_refused("stb", &cut, STATUS_INVALID, "GIF");
        made_image_free(&cut);
    }
    /* The chain of blocks ends after the first: rows are missing though nothing is cut. */
    size_t at = 13 + 768 + 9 + 10 + 1;
    ck_assert_uint_eq(image.bytes[at], 255);
    image.bytes[at + 1 + 255] = 0;
    check_refused("stb", &image, STATUS_INVALID, "GIF data end early, in row");
    made_image_free(&image);

    gif = (struct made_gif){.width = 31, .height = 17, .transparent = -1};
    image = make_gif(&gif);
    /* The frame reaches beyond the picture. */
    image.bytes[13 + 768 + 9 + 1] = 5;
    check_refused("stb", &image, STATUS_INVALID, "outside of its picture");
    made_image_free(&image);
}
END_TEST

START_TEST(test_tga)
{
    static const struct made_tga tgas[] = {
        {.width = 29, .height = 7, .bits = 8},
        {.width = 29, .height = 7, .bits = 8, .mapped = true},
        {.width = 29, .height = 7, .bits = 15},
        {.width = 29, .height = 7, .bits = 16},
        {.width = 29, .height = 7, .bits = 24},
        {.width = 29, .height = 7, .bits = 32},
    };

    for (size_t i = 0; i < sizeof(tgas) / sizeof(tgas[0]); i++) {
        for (int variant = 0; variant < 4; variant++) {
            char what[64];
            struct made_tga tga = tgas[i];
            tga.packed = (variant & 1) != 0;
            tga.top_down = (variant & 2) != 0;
            struct made_image image = make_tga(&tga);
            snprintf(what, sizeof(what), "TGA %zu, variant %d", i, variant);
            check_pixels("stb", &image, what);
            for (size_t count = 18; count < image.count; count += 23) {
                struct made_image cut = check_cut(&image, count);
                check_refused("stb", &cut, STATUS_INVALID, "TGA data end early");
                made_image_free(&cut);
            }
            made_image_free(&image);
        }
    }
}
END_TEST

START_TEST(test_psd)
{
    for (int channels = 3; channels <= 5; channels++) {
        for (int packed = 0; packed < 2; packed++) {
            struct made_image image = make_psd(29, 7, channels, packed != 0);
            check_pixels("stb", &image, "PSD");
            for (size_t count = 4; count < image.count; count += 31) {
                struct made_image cut = check_cut(&image, count);
                /* Channels that are not wanted may be missing. */
                size_t wanted = image.count - (size_t)(channels - 3) * 29 * 7;
                if (packed == 0 && count < wanted) {
                    check_refused("stb", &cut, STATUS_INVALID, "PSD data end early");
                }
                made_image_free(&cut);
            }
            made_image_free(&image);
        }
    }
    struct made_image image = make_psd(29, 7, 3, false);
    image.bytes[23] = 16;
    check_refused(NULL, &image, STATUS_UNSUPPORTED, "16 bits a channel");
    image.bytes[23] = 8;
    image.bytes[25] = 4;
    check_refused(NULL, &image, STATUS_UNSUPPORTED, "colour mode 4");
    image.bytes[25] = 3;
    memcpy(image.bytes + 14, "\0\1\0\0\0\1\0\0", 8);
    check_refused(NULL, &image, STATUS_LIMIT, "65536 x 65536");
    made_image_free(&image);
}
END_TEST

/* Rendered small, so that the test itself needs no memory for what the file claims. */
static void check_not_rendered(const struct made_image *image, const char *text)
{
    image_decoder *decoder = check_open("stb");
    uint8_t pixels[8 * 8 * 3];
    struct image_output output = {.format = IMAGE_U8, .pixels = pixels};
    struct image_view view;

    image_view_whole(12288, 12288, 8, &view);
    ck_assert_int_eq(image_render(decoder, image->bytes, image->count, &view, &output),
                     STATUS_INVALID);
    ck_assert_msg(strstr(status_message(), text) != NULL, "%s", status_message());
    image_decoder_close(&decoder);
}

/* Claims of a large picture over little data take no memory. */
START_TEST(test_claims_without_data)
{
    struct made_bmp bmp = {.width = 8, .height = 8, .bits = 24};
    struct made_tga tga = {.width = 8, .height = 8, .bits = 24};
    struct made_image image = make_bmp(&bmp);
    struct system_usage before, after;

    system_read_usage(&before);
    /* 12288 x 12288 */
    memcpy(image.bytes + 18, "\0\x30\0\0\0\x30\0\0", 8);
    check_not_rendered(&image, "cut");
    made_image_free(&image);
    image = make_tga(&tga);
    memcpy(image.bytes + 12, "\0\x30\0\x30", 4);
    check_not_rendered(&image, "end early");
    made_image_free(&image);
    image = make_psd(8, 8, 3, false);
    memcpy(image.bytes + 14, "\0\0\x30\0\0\0\x30\0", 8);
    check_not_rendered(&image, "end early");
    made_image_free(&image);
    system_read_usage(&after);
    ck_assert_uint_lt(after.resident_peak_bytes, before.resident_peak_bytes + (16 << 20));
}
END_TEST

/* Several threads, each with its decoder, one of them with bad files: all get their own pixels. */
struct job {
    struct made_image image;
    const char *fault; /* what went wrong, NULL for nothing */
};

static void *decode_often(void *argument)
{
    struct job *job = argument;
    const struct made_image *image = &job->image;
    struct image_settings settings;
    image_decoder *decoder = NULL;
    uint8_t *pixels = malloc((size_t)image->width * image->height * 3);

    image_settings_defaults(&settings);
    if (pixels == NULL || image_settings_parse_libraries(&settings, "stb") != STATUS_OK ||
        image_decoder_open(&settings, &decoder) != STATUS_OK) {
        job->fault = "no decoder";
        free(pixels);
        return NULL;
    }
    for (int round = 0; round < 200 && job->fault == NULL; round++) {
        size_t capacity = (size_t)image->width * image->height * 3;
        enum status status =
            image_decode_rgb(decoder, image->bytes, image->count, pixels, capacity, NULL);
        if (status != (image->rgb == NULL ? STATUS_INVALID : STATUS_OK)) {
            job->fault = "wrong status";
        } else if (image->rgb != NULL && memcmp(pixels, image->rgb, capacity) != 0) {
            job->fault = "wrong pixels";
        } else if (image->rgb == NULL && strstr(status_message(), "GIF") == NULL) {
            job->fault = "another thread's message";
        }
    }
    image_decoder_close(&decoder);
    free(pixels);
    return NULL;
}

START_TEST(test_threads_do_not_meet)
{
    struct made_gif gif = {.width = 31, .height = 17, .transparent = -1};
    struct made_bmp bmp = {.width = 40, .height = 30, .bits = 24};
    struct made_tga tga = {.width = 29, .height = 7, .bits = 24, .packed = true};
    struct job jobs[4] = {{.image = make_gif(&gif)},
                          {.image = make_bmp(&bmp)},
                          {.image = make_tga(&tga)},
                          {.image = make_gif(&gif)}};
    pthread_t threads[4];

    free(jobs[3].image.rgb);
    jobs[3].image.rgb = NULL;
    jobs[3].image.count /= 2;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(pthread_create(&threads[i], NULL, decode_often, &jobs[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_msg(jobs[i].fault == NULL, "thread %d: %s", i, jobs[i].fault);
        made_image_free(&jobs[i].image);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_bmp,
                                  test_bmp_that_is_not_read,
                                  test_gif,
                                  test_gif_that_is_cut_or_ends_early,
                                  test_tga,
                                  test_psd,
                                  test_claims_without_data,
                                  test_threads_do_not_meet};
    return check_run("decode_stb", tests, sizeof tests / sizeof tests[0], 60);
}
