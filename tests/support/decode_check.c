#include "tests/support/decode_check.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

image_decoder *check_open(const char *order)
{
    struct image_settings settings;
    image_decoder *decoder = NULL;

    image_settings_defaults(&settings);
    settings.exact_decode = true;
    if (order != NULL) {
        ck_assert_int_eq(image_settings_parse_libraries(&settings, order), STATUS_OK);
    }
    ck_assert_int_eq(image_decoder_open(&settings, &decoder), STATUS_OK);
    return decoder;
}

/* A copy in memory of exactly its size. */
static uint8_t *tight(const struct made_image *image)
{
    uint8_t *copy = malloc(image->count == 0 ? 1 : image->count);
    ck_assert_ptr_nonnull(copy);
    if (image->count > 0) {
        memcpy(copy, image->bytes, image->count);
    }
    return copy;
}

static void compare(const char *what, const uint8_t *got, const struct made_image *image)
{
    size_t count = (size_t)image->width * image->height * 3;

    for (size_t i = 0; i < count; i++) {
        ck_assert_msg(got[i] == image->rgb[i], "%s: channel %zu of pixel (%zu, %zu) is %u, not %u",
                      what, i % 3, i / 3 % image->width, i / 3 / image->width, got[i],
                      image->rgb[i]);
    }
}

void check_pixels(const char *order, const struct made_image *image, const char *what)
{
    image_decoder *decoder = check_open(order);
    uint8_t *file = tight(image);
    size_t count = (size_t)image->width * image->height * 3;
    uint8_t *pixels = malloc(count);
    struct image_facts facts = {0};
    struct image_view view;
    struct image_output output = {.format = IMAGE_U8, .pixels = pixels};

    ck_assert_ptr_nonnull(pixels);
    enum status status = image_decode_rgb(decoder, file, image->count, pixels, count, &facts);
    ck_assert_msg(status == STATUS_OK, "%s: %s", what, status_message());
    ck_assert_uint_eq(facts.width, image->width);
    ck_assert_uint_eq(facts.height, image->height);
    compare(what, pixels, image);

    memset(pixels, 0xa5, count);
    image_view_whole(image->width, image->height, 1, &view);
    view.resize_width = view.width = image->width;
    view.resize_height = view.height = image->height;
    status = image_render(decoder, file, image->count, &view, &output);
    ck_assert_msg(status == STATUS_OK, "%s: %s", what, status_message());
    compare(what, pixels, image);
    free(pixels);
    free(file);
    image_decoder_close(&decoder);
    ck_assert_ptr_null(decoder);
}

static void must_still_work(image_decoder *decoder)
{
    struct made_png png = {.width = 5, .height = 4, .colour = 2, .depth = 8};
    struct made_image good = make_png(&png);
    uint8_t pixels[5 * 4 * 3];

    enum status status =
        image_decode_rgb(decoder, good.bytes, good.count, pixels, sizeof(pixels), NULL);
    ck_assert_msg(status == STATUS_OK, "after a bad file: %s", status_message());
    compare("after a bad file", pixels, &good);
    made_image_free(&good);
}

void check_refused(const char *order, const struct made_image *image, enum status status,
                   const char *text)
{
    image_decoder *decoder = check_open(order);
    uint8_t *file = tight(image);
    size_t capacity = (size_t)image->width * image->height * 3 + 4096;
    uint8_t *pixels = malloc(capacity);
    uint8_t small[3];
    struct image_facts facts;
    struct image_view view;
    struct image_output output = {.format = IMAGE_U8, .pixels = small};

    ck_assert_ptr_nonnull(pixels);
    /* Twice: a failure must leave nothing behind. */
    for (int round = 0; round < 2; round++) {
        enum status got = image_decode_rgb(decoder, file, image->count, pixels, capacity, NULL);
        ck_assert_msg(got == status, "%s instead of %s: %s", status_name(got), status_name(status),
                      got == STATUS_OK ? "" : status_message());
        ck_assert_msg(strstr(status_message(), text) != NULL, "'%s' is not in '%s'", text,
                      status_message());
        if (image_probe(decoder, file, image->count, &facts) == STATUS_OK) {
            /* The last row alone wants all rows before it. */
            image_view_whole(facts.width, facts.height, 1, &view);
            got = image_render(decoder, file, image->count, &view, &output);
            ck_assert_int_eq(got, status);
        }
        if (order == NULL || strstr(order, "stb") != NULL || strstr(order, "png") != NULL) {
            must_still_work(decoder);
        }
    }
    free(pixels);
    free(file);
    image_decoder_close(&decoder);
}

struct made_image check_cut(const struct made_image *image, size_t count)
{
    struct made_image cut = {.count = count, .width = image->width, .height = image->height};

    cut.bytes = malloc(count == 0 ? 1 : count);
    ck_assert_ptr_nonnull(cut.bytes);
    ck_assert_uint_le(count, image->count);
    memcpy(cut.bytes, image->bytes, count);
    return cut;
}

struct image_facts check_facts(const struct made_image *image, bool exif_orientation)
{
    struct image_settings settings;
    image_decoder *decoder = NULL;
    struct image_facts facts = {0};

    image_settings_defaults(&settings);
    settings.exif_orientation = exif_orientation;
    ck_assert_int_eq(image_decoder_open(&settings, &decoder), STATUS_OK);
    enum status status = image_probe(decoder, image->bytes, image->count, &facts);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
    image_decoder_close(&decoder);
    return facts;
}
