/* The resampler: against the filter written down in doubles, against hand-worked rows, its two
 * versions against each other, and windows, padding and flips by their definition. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "loader/resample.h"
#include "tests/support/check_run.h"
#include "tests/support/decode_check.h"

/* --- The filter in doubles ------------------------------------------------------------------- */

/* One axis: out[i] of `resize` from in[first .. first + size - 1], a triangle of half-width
 * max(scale, 1) around the middle of each output, weights brought to a sum of one. */
static void resize_row(const double *in, size_t step, uint32_t first, uint32_t size,
                       uint32_t resize, double *out, size_t out_step)
{
    double scale = (double)size / resize, support = scale > 1 ? scale : 1;

    for (uint32_t i = 0; i < resize; i++) {
        double centre = (i + 0.5) * scale, sum = 0, weights = 0;
        for (uint32_t x = 0; x < size; x++) {
            double distance = fabs(x + 0.5 - centre) / support;
            double weight = distance < 1 ? 1 - distance : 0;
            sum += weight * in[(size_t)(first + x) * step];
            weights += weight;
        }
        out[i * out_step] = sum / weights;
    }
}

/* The crop box of `pixels` (width x height RGB) as view->resize_width x resize_height doubles. */
static double *resize_reference(const uint8_t *pixels, uint32_t width, uint32_t height,
                                const struct image_view *view)
{
    size_t count = (size_t)width * height * 3;
    double *in = malloc(count * sizeof(double));
    double *middle = malloc((size_t)view->resize_width * height * 3 * sizeof(double));
    double *out = malloc((size_t)view->resize_width * view->resize_height * 3 * sizeof(double));

    ck_assert(in != NULL && middle != NULL && out != NULL);
    for (size_t i = 0; i < count; i++) {
        in[i] = pixels[i];
    }
    for (size_t channel = 0; channel < 3; channel++) {
        for (uint32_t y = 0; y < height; y++) {
            resize_row(in + (size_t)y * width * 3 + channel, 3, view->crop_x, view->crop_width,
                       view->resize_width, middle + (size_t)y * view->resize_width * 3 + channel,
                       3);
        }
        for (uint32_t x = 0; x < view->resize_width; x++) {
            resize_row(middle + (size_t)x * 3 + channel, (size_t)view->resize_width * 3,
                       view->crop_y, view->crop_height, view->resize_height,
                       out + (size_t)x * 3 + channel, (size_t)view->resize_width * 3);
        }
    }
    free(in);
    free(middle);
    return out;
}

static uint8_t *picture(uint32_t width, uint32_t height, int kind)
{
    uint8_t *pixels = malloc((size_t)width * height * 3);

    ck_assert_ptr_nonnull(pixels);
    for (uint32_t y = 0; y < height; y++) {
        for (uint32_t x = 0; x < width; x++) {
            for (uint32_t channel = 0; channel < 3; channel++) {
                uint8_t *to = pixels + ((size_t)y * width + x) * 3 + channel;
                switch (kind) {
                case 0:
                    *to = (uint8_t)made_sample(x, y, channel, 255);
                    break;
                case 1:
                    *to = (uint8_t)(255 * made_sample(x, y, channel, 1));
                    break;
                case 2:
                    *to = made_smooth(x, y, channel);
                    break;
                default:
                    *to = (uint8_t)(kind + 80 * (int)channel);
                    break;
                }
            }
        }
    }
    return pixels;
}

static struct image_view random_view(struct rng *rng, uint32_t width, uint32_t height,
                                     uint32_t most)
{
    struct image_view view;

    image_view_whole(width, height, 1, &view);
    view.resize_width = view.width = 1 + rng_below(rng, most);
    view.resize_height = view.height = 1 + rng_below(rng, most);
    if (rng_below(rng, 3) != 0) {
        view.crop_x = rng_below(rng, width);
        view.crop_y = rng_below(rng, height);
        view.crop_width = 1 + rng_below(rng, width - view.crop_x);
        view.crop_height = 1 + rng_below(rng, height - view.crop_y);
    }
    return view;
}

START_TEST(test_within_one_of_the_exact_filter)
{
    image_decoder *decoder = check_open(NULL);
    struct rng rng;
    double largest = 0;

    rng_init(&rng, 1, RNG_TEST, 0, 0);
    for (int round = 0; round < 120; round++) {
        bool large = round % 12 == 0;
        uint32_t width = 1 + rng_below(&rng, large ? 900 : 90);
        uint32_t height = 1 + rng_below(&rng, large ? 700 : 90);
        uint8_t *pixels = picture(width, height, round % 4);
        struct image_view view = random_view(&rng, width, height, 60);
        uint8_t *out = malloc((size_t)view.width * view.height * 3);
        struct image_output output = {.format = IMAGE_U8, .pixels = out};
        double *exact = resize_reference(pixels, width, height, &view);
        ck_assert_ptr_nonnull(out);
        ck_assert_int_eq(image_render_pixels(decoder, pixels, width, height, 3, &view, &output),
                         STATUS_OK);
        for (size_t i = 0; i < (size_t)view.width * view.height * 3; i++) {
            double difference = fabs(out[i] - exact[i]);
            largest = difference > largest ? difference : largest;
        }
        free(exact);
        free(out);
        free(pixels);
    }
    /* Half a level is rounding to bytes; the rest is the fixed point: 4/128 of a level where the
     * vertical pass is short, and weights of 14 bits and more. */
    ck_assert_msg(largest < 0.6, "the largest difference is %g", largest);
    image_decoder_close(&decoder);
}
END_TEST

/* Two pixels become one, one becomes three, three become two: weights by hand. */
START_TEST(test_rows_by_hand)
{
    static const struct {
        uint32_t size, resize;
        uint8_t in[4], out[4];
    } rows[] = {
        {2, 1, {10, 30}, {20}},
        {1, 3, {77}, {77, 77, 77}},
        /* Centres at 0.25, 0.75, 1.25, 1.75 of pixels with middles at 0.5 and 1.5. */
        {2, 4, {0, 200}, {0, 50, 150, 200}},
        /* Scale 1.5, centre 0.75: distances 0.25, 0.75, 1.75 over 1.5: weights 5/6, 1/2, 0. */
        {3, 2, {0, 120, 240}, {45, 195}},
        /* Scale 2, centre 1: distances 0.5, 0.5, 1.5, 2.5 over 2: weights 3/4, 3/4, 1/4, 0. */
        {4, 2, {0, 0, 140, 140}, {20, 120}},
    };
    image_decoder *decoder = check_open(NULL);

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        for (int upright = 0; upright < 2; upright++) {
            uint32_t size = rows[i].size, resize = rows[i].resize;
            uint8_t out[4 * 3];
            struct image_output output = {.format = IMAGE_U8, .pixels = out};
            struct image_view view = {.crop_width = upright ? 1 : size,
                                      .crop_height = upright ? size : 1,
                                      .resize_width = upright ? 1 : resize,
                                      .resize_height = upright ? resize : 1,
                                      .width = upright ? 1 : resize,
                                      .height = upright ? resize : 1};
            ck_assert_int_eq(image_render_pixels(decoder, rows[i].in, view.crop_width,
                                                 view.crop_height, 1, &view, &output),
                             STATUS_OK);
            for (uint32_t j = 0; j < resize * 3; j++) {
                ck_assert_msg(abs((int)out[j] - rows[i].out[j / 3]) <= 1,
                              "row %zu, output %u: %u, not %u", i, j / 3, out[j],
                              rows[i].out[j / 3]);
            }
        }
    }
    image_decoder_close(&decoder);
}
END_TEST

START_TEST(test_a_flat_picture_stays_flat)
{
    image_decoder *decoder = check_open(NULL);
    struct rng rng;

    rng_init(&rng, 2, RNG_TEST, 0, 0);
    for (int level = 3; level <= 95; level += 4) {
        uint32_t width = 1 + rng_below(&rng, 1500), height = 1 + rng_below(&rng, 1500);
        uint8_t *pixels = picture(width, height, level);
        struct image_view view = random_view(&rng, width, height, 40);
        uint8_t out[40 * 40 * 3];
        struct image_output output = {.format = IMAGE_U8, .pixels = out};
        ck_assert_int_eq(image_render_pixels(decoder, pixels, width, height, 3, &view, &output),
                         STATUS_OK);
        for (uint32_t i = 0; i < view.width * view.height * 3; i++) {
            ck_assert_uint_eq(out[i], (uint32_t)level + 80 * (i % 3));
        }
        free(pixels);
    }
    image_decoder_close(&decoder);
}
END_TEST

/* --- Windows, padding, flips ----------------------------------------------------------------- */

static int64_t reflect(int64_t position, int64_t size)
{
    return position < 0 ? -position : position >= size ? 2 * (size - 1) - position : position;
}

START_TEST(test_windows_padding_and_flips)
{
    image_decoder *decoder = check_open(NULL);
    struct rng rng;

    rng_init(&rng, 3, RNG_TEST, 0, 0);
    for (int round = 0; round < 300; round++) {
        uint32_t width = 1 + rng_below(&rng, 60), height = 1 + rng_below(&rng, 60);
        uint8_t *pixels = picture(width, height, round % 3);
        struct image_view view = random_view(&rng, width, height, 40);
        uint8_t whole[40 * 40 * 3], shown[40 * 40 * 3];
        struct image_output output = {.format = IMAGE_U8, .pixels = whole};
        if (round % 5 == 0) {
            /* Nothing to resize: pixels are copied, or picked. */
            view.crop_x = view.crop_y = 0;
            view.crop_width = view.resize_width = view.width = width < 40 ? width : 40;
            view.crop_height = view.resize_height = view.height = height < 40 ? height : 40;
        }
        ck_assert_int_eq(image_render_pixels(decoder, pixels, width, height, 3, &view, &output),
                         STATUS_OK);
        struct image_view part = view;
        int64_t across = view.resize_width, down = view.resize_height;
        part.fill = round % 2 == 0 ? IMAGE_FILL_ZERO : IMAGE_FILL_REFLECT;
        part.flip = rng_below(&rng, 2) != 0;
        part.window_x = (int32_t)rng_below(&rng, 2 * view.resize_width) - (int32_t)across + 1;
        part.window_y = (int32_t)rng_below(&rng, 2 * view.resize_height) - (int32_t)down + 1;
        part.width = 1 + rng_below(&rng, view.resize_width);
        part.height = 1 + rng_below(&rng, view.resize_height);
        if (part.fill == IMAGE_FILL_REFLECT) {
            /* No further than the other edge. */
            int64_t most_x = 2 * across - 1 - part.width, most_y = 2 * down - 1 - part.height;
            part.window_x = part.window_x > most_x ? (int32_t)most_x : part.window_x;
            part.window_y = part.window_y > most_y ? (int32_t)most_y : part.window_y;
        }
        output.pixels = shown;
        ck_assert_int_eq(image_render_pixels(decoder, pixels, width, height, 3, &part, &output),
                         STATUS_OK);
        for (uint32_t y = 0; y < part.height; y++) {
            for (uint32_t x = 0; x < part.width; x++) {
                int64_t from_x = part.window_x + (int64_t)(part.flip ? part.width - 1 - x : x);
                int64_t from_y = part.window_y + (int64_t)y;
                bool inside = from_x >= 0 && from_x < across && from_y >= 0 && from_y < down;
                const uint8_t *got = shown + ((size_t)y * part.width + x) * 3;
                if (!inside && part.fill == IMAGE_FILL_ZERO) {
                    ck_assert(got[0] == 0 && got[1] == 0 && got[2] == 0);
                    continue;
                }
                from_x = reflect(from_x, across);
                from_y = reflect(from_y, down);
                ck_assert_mem_eq(got, whole + (size_t)(from_y * across + from_x) * 3, 3);
            }
        }
        free(pixels);
    }
    image_decoder_close(&decoder);
}
END_TEST

/* A window that the picture does not reach is black, in a decoder that has drawn nothing before. */
START_TEST(test_a_window_beside_the_picture_is_black)
{
    static const int32_t corners[][2] = {{0, 8}, {0, -8}, {8, 0}, {-8, 0}, {100, -100}};
    uint8_t *pixels = picture(10, 10, 0);

    for (size_t i = 0; i < sizeof(corners) / sizeof(corners[0]); i++) {
        image_decoder *decoder = check_open(NULL);
        uint8_t out[8 * 8 * 3];
        struct image_output output = {.format = IMAGE_U8, .pixels = out};
        struct image_view view;
        memset(out, 0xa5, sizeof(out));
        image_view_whole(10, 10, 8, &view);
        view.window_x = corners[i][0];
        view.window_y = corners[i][1];
        ck_assert_int_eq(image_render_pixels(decoder, pixels, 10, 10, 3, &view, &output),
                         STATUS_OK);
        for (size_t j = 0; j < sizeof(out); j++) {
            ck_assert_uint_eq(out[j], 0);
        }
        image_decoder_close(&decoder);
    }
    free(pixels);
}
END_TEST

START_TEST(test_floats_are_the_bytes_normalised)
{
    image_decoder *decoder = check_open(NULL);
    uint8_t *pixels = picture(50, 40, 0);
    static uint8_t bytes[32 * 32 * 3];
    static float floats[32 * 32 * 3];
    static const float means[2][3] = {{0.5f, 0.25f, 0.125f}, {0.485f, 0.456f, 0.406f}};
    static const float deviations[2][3] = {{0.25f, 0.5f, 1.0f}, {0.229f, 0.224f, 0.225f}};

    for (int set = 0; set < 2; set++) {
        for (int padded = 0; padded < 2; padded++) {
            struct image_output one = {.format = IMAGE_U8, .pixels = bytes};
            struct image_output other = {.format = IMAGE_F32, .pixels = floats};
            struct image_view view;
            memcpy(other.mean, means[set], sizeof(other.mean));
            memcpy(other.std, deviations[set], sizeof(other.std));
            image_view_whole(50, 40, 32, &view);
            view.window_x = padded ? -4 : 0;
            view.window_y = padded ? 3 : 0;
            ck_assert_int_eq(image_render_pixels(decoder, pixels, 50, 40, 3, &view, &one),
                             STATUS_OK);
            ck_assert_int_eq(image_render_pixels(decoder, pixels, 50, 40, 3, &view, &other),
                             STATUS_OK);
            for (size_t i = 0; i < 32 * 32 * 3; i++) {
                /* As torchvision's ToTensor and Normalize: each step rounded to float. */
                float unit = (float)bytes[i] / 255.0f;
                float shifted = unit - means[set][i % 3];
                ck_assert_float_eq(floats[i], shifted / deviations[set][i % 3]);
            }
            ck_assert(!padded || bytes[0] == 0);
        }
    }
    free(pixels);
    image_decoder_close(&decoder);
}
END_TEST

START_TEST(test_grey_is_repeated)
{
    image_decoder *decoder = check_open(NULL);
    uint8_t grey[30 * 20], rgb[30 * 20 * 3], one[16 * 16 * 3], other[16 * 16 * 3];
    struct image_output first = {.format = IMAGE_U8, .pixels = one};
    struct image_output second = {.format = IMAGE_U8, .pixels = other};
    struct image_view view;

    for (uint32_t i = 0; i < 600; i++) {
        grey[i] = (uint8_t)made_sample(i, 0, 0, 255);
        memset(rgb + 3 * (size_t)i, grey[i], 3);
    }
    image_view_whole(30, 20, 16, &view);
    ck_assert_int_eq(image_render_pixels(decoder, grey, 30, 20, 1, &view, &first), STATUS_OK);
    ck_assert_int_eq(image_render_pixels(decoder, rgb, 30, 20, 3, &view, &second), STATUS_OK);
    ck_assert_mem_eq(one, other, sizeof(one));
    image_decoder_close(&decoder);
}
END_TEST

START_TEST(test_a_view_that_does_not_fit_is_refused)
{
    static const struct image_view wrong[] = {
        {.crop_x = 10, .crop_width = 1, .crop_height = 1},
        {.crop_x = 5, .crop_width = 6, .crop_height = 1},
        {.crop_width = 0, .crop_height = 1},
        {.crop_width = 1, .crop_height = 11},
        {.crop_y = 0xffffffffu, .crop_width = 1, .crop_height = 2},
    };
    image_decoder *decoder = check_open(NULL);
    uint8_t pixels[10 * 10 * 3] = {0}, out[3];
    struct image_output output = {.format = IMAGE_U8, .pixels = out};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        struct image_view view = wrong[i];
        view.resize_width = view.resize_height = view.width = view.height = 1;
        ck_assert_int_eq(image_render_pixels(decoder, pixels, 10, 10, 3, &view, &output),
                         STATUS_INTERNAL);
    }
    image_decoder_close(&decoder);
}
END_TEST

/* --- The two versions ------------------------------------------------------------------------ */

static void render_with(const struct resample_kernels *kernels, const uint8_t *pixels,
                        uint32_t width, uint32_t height, const struct image_view *view,
                        uint8_t *out)
{
    struct resample resample;
    struct image_output output = {.format = IMAGE_U8, .pixels = out};

    resample_init(&resample);
    resample.kernels = kernels;
    ck_assert_int_eq(resample_begin(&resample, view, &output, width, height, 0), STATUS_OK);
    ck_assert_int_eq(resample_layout(&resample, 0, width), STATUS_OK);
    for (uint32_t y = resample.top; y < resample.bottom; y++) {
        if (width % 2 == 0) {
            resample_take(&resample, y, pixels + (size_t)y * width * 3);
        } else {
            uint8_t *row = resample_row(&resample, y);
            memcpy(row, pixels + (size_t)y * width * 3, (size_t)width * 3);
            resample_done(&resample, y);
        }
    }
    resample_finish(&resample);
    resample_fini(&resample);
}

START_TEST(test_versions_agree_bit_for_bit)
{
    const struct resample_kernels *fast = resample_find_avx2();
    struct rng rng;

    if (fast == NULL) {
        printf("SKIP: this processor has no AVX2\n");
        fflush(stdout);
        return;
    }
    ck_assert_str_eq(image_resample_target(), "avx2");
    rng_init(&rng, 4, RNG_TEST, 0, 0);
    for (int round = 0; round < 400; round++) {
        /* All lengths of filters: few and many taps, odd and even, in both directions. */
        uint32_t most = round % 8 == 0 ? 2000 : round % 8 == 1 ? 600 : 100;
        uint32_t width = 1 + rng_below(&rng, most), height = 1 + rng_below(&rng, most);
        uint8_t *pixels = picture(width, height, round % 3);
        struct image_view view = random_view(&rng, width, height, 50);
        uint8_t one[50 * 50 * 3], other[50 * 50 * 3];
        view.flip = rng_below(&rng, 2) != 0;
        render_with(fast, pixels, width, height, &view, one);
        render_with(&resample_kernels_c, pixels, width, height, &view, other);
        ck_assert_mem_eq(one, other, (size_t)view.width * view.height * 3);
        free(pixels);
    }
}
END_TEST

/* --- The ways to the output ------------------------------------------------------------------ */

enum delivery { DELIVER_ALL, DELIVER_TAKEN, DELIVER_OWN, DELIVERIES };

/* The view into memory that lies `offset` elements behind a cache line; false when a byte before or
 * after it changed. */
static bool deliver(const struct resample_kernels *kernels, enum delivery delivery,
                    const uint8_t *pixels, uint32_t width, uint32_t height,
                    const struct image_view *view, struct image_output *output, size_t offset)
{
    static _Alignas(64) uint8_t memory[64 + 80 * 80 * 3 * 4 + 2 * 256];
    size_t element = output->format == IMAGE_F32 ? sizeof(float) : 1;
    size_t bytes = (size_t)view->width * view->height * 3 * element;
    uint8_t *result = output->pixels, *at = memory + 64 + offset * element;
    struct resample resample;
    bool kept = true;

    memset(memory, 0x5a, sizeof(memory));
    output->pixels = at;
    resample_init(&resample);
    resample.kernels = kernels;
    ck_assert_int_eq(resample_begin(&resample, view, output, width, height, 0), STATUS_OK);
    ck_assert_int_eq(resample_layout(&resample, 0, width), STATUS_OK);
    if (delivery == DELIVER_ALL) {
        resample_take_all(&resample, pixels);
    }
    for (uint32_t y = resample.top; y < resample.bottom && delivery != DELIVER_ALL; y++) {
        const uint8_t *row = pixels + (size_t)y * width * 3;
        if (delivery == DELIVER_TAKEN) {
            resample_take(&resample, y, row);
        } else {
            memcpy(resample_row(&resample, y), row, (size_t)width * 3);
            resample_done(&resample, y);
        }
    }
    resample_finish(&resample);
    resample_publish(&resample);
    resample_fini(&resample);
    output->pixels = result;
    memcpy(result, at, bytes);
    for (const uint8_t *p = memory; p < memory + sizeof(memory); p++) {
        kept = kept && ((p >= at && p < at + bytes) || *p == 0x5a);
    }
    return kept;
}

/* A view of every sort: copied, cut, mirrored, padded either way, shrunk a little and much. */
static struct image_view view_of_sort(struct rng *rng, int sort, uint32_t width, uint32_t height)
{
    struct image_view view;

    image_view_whole(width, height, 1, &view);
    view.resize_width = view.width = width;
    view.resize_height = view.height = height;
    view.flip = sort % 2 == 1;
    switch (sort / 2) {
    case 0:
        break;
    case 1:
        view.crop_x = rng_below(rng, 2) != 0 ? width / 2 : 0;
        view.crop_y = height / 3;
        view.crop_height = height - view.crop_y;
        view.crop_width = width - view.crop_x;
        view.resize_width = view.width = view.crop_width;
        view.resize_height = view.height = view.crop_height;
        break;
    case 2:
    case 3:
        view.fill = sort / 2 == 2 ? IMAGE_FILL_ZERO : IMAGE_FILL_REFLECT;
        view.window_x = (int32_t)rng_below(rng, (width + 1) / 2) - (int32_t)(width / 4);
        view.window_y = (int32_t)rng_below(rng, (height + 1) / 2) - (int32_t)(height / 4);
        break;
    default:
        view.resize_width = view.width = 1 + rng_below(rng, sort / 2 == 4 ? 80 : 8);
        view.resize_height = view.height = 1 + rng_below(rng, sort / 2 == 4 ? 80 : 8);
        break;
    }
    return view;
}

START_TEST(test_every_way_to_the_output_gives_the_same_bytes)
{
    const struct resample_kernels *const versions[] = {&resample_kernels_c, resample_find_avx2()};
    static uint8_t expected[80 * 80 * 3 * 4], got[80 * 80 * 3 * 4];
    struct rng rng;

    rng_init(&rng, 5, RNG_TEST, 0, 0);
    for (int round = 0; round < 240; round++) {
        uint32_t width = 1 + rng_below(&rng, 80), height = 1 + rng_below(&rng, 80);
        uint8_t *pixels = picture(width, height, round % 3);
        struct image_view view = view_of_sort(&rng, round % 12, width, height);
        struct image_output output = {.format = round % 24 < 12 ? IMAGE_U8 : IMAGE_F32,
                                      .mean = {0.485f, 0.456f, 0.406f},
                                      .std = {0.229f, 0.224f, 0.225f}};
        size_t bytes =
            (size_t)view.width * view.height * 3 * (output.format == IMAGE_F32 ? sizeof(float) : 1);
        output.pixels = expected;
        ck_assert(deliver(versions[0], DELIVER_TAKEN, pixels, width, height, &view, &output, 0));
        output.pixels = got;
        for (int way = 0; way < 2 * 2 * DELIVERIES; way++) {
            const struct resample_kernels *version = versions[way % 2];
            output.streamed = way / 2 % 2 == 1;
            memset(got, 0xa5, bytes);
            if (version == NULL) {
                continue;
            }
            ck_assert_msg(deliver(version, (enum delivery)(way / 4), pixels, width, height, &view,
                                  &output, rng_below(&rng, 65)),
                          "round %d, way %d: written beside the output", round, way);
            ck_assert_msg(memcmp(got, expected, bytes) == 0, "round %d, way %d: other bytes", round,
                          way);
        }
        free(pixels);
    }
}
END_TEST

/* Each step rounded to float, whatever the mean and the deviation: where computing would round
 * otherwise the table is used, and for usual ones it is not needed. */
START_TEST(test_floats_are_rounded_step_by_step)
{
    static const float pairs[][2] = {{0.5f, 0.25f},        {0.485f, 0.229f},   {0.456f, 0.224f},
                                     {0.406f, 0.225f},     {0.4914f, 0.2023f}, {0.4822f, 0.1994f},
                                     {0.4465f, 0.2010f},   {0.1307f, 0.3081f}, {0.0f, 1.0f},
                                     {0.0f, 0.0039215686f}};
    static const float extreme[][2] = {{0.5f, 1e-38f}, {0.5f, 1e-42f}, {0.1f, 3e38f},
                                       {1e30f, 1e-9f}, {-0.0f, 1e38f}, {1e-41f, 0.3f}};
    size_t usual = sizeof(pairs) / sizeof(pairs[0]);
    uint8_t pixels[256 * 3];
    static float got[256 * 3];
    struct image_view view;
    struct rng rng;

    rng_init(&rng, 6, RNG_TEST, 0, 0);
    for (int i = 0; i < 256 * 3; i++) {
        pixels[i] = (uint8_t)(i / 3);
    }
    image_view_whole(256, 1, 1, &view);
    view.resize_width = view.width = 256;
    for (size_t i = 0; i < usual + 6 + 300; i++) {
        struct resample resample;
        struct image_output output = {.format = IMAGE_F32, .pixels = got, .streamed = i % 2 == 1};
        for (size_t c = 0; c < 3; c++) {
            const float *pair = i < usual ? pairs[i] : extreme[i < usual + 6 ? i - usual : 0];
            output.mean[c] = i < usual + 6 ? pair[0] : (float)rng_uniform_double(&rng);
            output.std[c] = i < usual + 6 ? pair[1] : 0.01f + (float)rng_uniform_double(&rng);
        }
        resample_init(&resample);
        ck_assert_int_eq(resample_begin(&resample, &view, &output, 256, 1, 0), STATUS_OK);
        ck_assert_int_eq(resample_layout(&resample, 0, 256), STATUS_OK);
        resample_take_all(&resample, pixels);
        resample_finish(&resample);
        resample_publish(&resample);
        for (size_t j = 0; j < 256 * 3; j++) {
            volatile float unit = (float)pixels[j] / 255.0f;
            volatile float shifted = unit - output.mean[j % 3];
            volatile float expected = shifted / output.std[j % 3];
            float wanted = expected;
            ck_assert_msg(memcmp(&got[j], &wanted, sizeof(wanted)) == 0,
                          "(%u / 255 - %g) / %g is %a, not %a", pixels[j],
                          (double)output.mean[j % 3], (double)output.std[j % 3], (double)wanted,
                          (double)got[j]);
        }
        ck_assert_msg(i >= usual || resample.floats.computed, "case %zu is looked up", i);
        resample_fini(&resample);
    }
}
END_TEST

/* Output memory of exactly its size, for sanitisers; sizes around the vectors' widths. */
START_TEST(test_nothing_is_written_beyond_the_output)
{
    image_decoder *decoder = check_open(NULL);
    uint8_t *pixels = picture(70, 70, 0);

    for (uint32_t size = 1; size <= 40; size++) {
        for (int format = IMAGE_U8; format <= IMAGE_F32; format++) {
            size_t bytes = (size_t)size * size * 3 * (format == IMAGE_U8 ? 1 : sizeof(float));
            uint8_t *memory = malloc(bytes + 64);
            struct image_output output = {
                .format = (enum image_format)format, .pixels = memory, .std = {1, 1, 1}};
            struct image_view view;
            ck_assert_ptr_nonnull(memory);
            memset(memory, 0x5a, bytes + 64);
            image_view_whole(70, 70, size, &view);
            ck_assert_int_eq(image_render_pixels(decoder, pixels, 70, 70, 3, &view, &output),
                             STATUS_OK);
            for (size_t i = 0; i < 64; i++) {
                ck_assert_uint_eq(memory[bytes + i], 0x5a);
            }
            free(memory);
            uint8_t *tight = malloc(bytes);
            ck_assert_ptr_nonnull(tight);
            output.pixels = tight;
            ck_assert_int_eq(image_render_pixels(decoder, pixels, 70, 70, 3, &view, &output),
                             STATUS_OK);
            free(tight);
        }
    }
    free(pixels);
    image_decoder_close(&decoder);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_within_one_of_the_exact_filter,
                                  test_rows_by_hand,
                                  test_a_flat_picture_stays_flat,
                                  test_windows_padding_and_flips,
                                  test_a_window_beside_the_picture_is_black,
                                  test_floats_are_the_bytes_normalised,
                                  test_grey_is_repeated,
                                  test_a_view_that_does_not_fit_is_refused,
                                  test_versions_agree_bit_for_bit,
                                  test_every_way_to_the_output_gives_the_same_bytes,
                                  test_floats_are_rounded_step_by_step,
                                  test_nothing_is_written_beyond_the_output};
    return check_run("resample", tests, sizeof tests / sizeof tests[0], 60);
}
