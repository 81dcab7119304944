#include "tests/support/fuzz_image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "loader/image.h"

/* Larger claims are refused, so that a fuzzer's time goes into files and not into pixels. */
#define MOST_PIXELS (1 << 18)
#define SIDE 24

static uint8_t whole[MOST_PIXELS * 3], again[MOST_PIXELS * 3];

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "fuzz_image: %s (%s)\n", what, status_message());
        abort();
    }
}

static image_decoder *open_decoder(const char *order, bool exact)
{
    struct image_settings settings;
    image_decoder *decoder = NULL;

    image_settings_defaults(&settings);
    settings.max_pixels = MOST_PIXELS;
    settings.max_dimension = 4096;
    settings.exact_decode = exact;
    settings.exif_orientation = !exact;
    if (image_settings_parse_libraries(&settings, order) != STATUS_OK) {
        return NULL; /* a library that this build lacks */
    }
    must(image_decoder_open(&settings, &decoder) == STATUS_OK, "a decoder does not open");
    return decoder;
}

/* A part of the picture that depends on the bytes: crop, size, window, fill and flip. */
static void choose_view(const uint8_t *data, size_t bytes, const struct image_facts *facts,
                        struct image_view *view)
{
    uint32_t seed = (uint32_t)crc32(0, data, (uInt)bytes);

    image_view_whole(facts->width, facts->height, SIDE, view);
    view->crop_x = seed % facts->width;
    view->crop_y = (seed >> 5) % facts->height;
    view->crop_width = 1 + (seed >> 9) % (facts->width - view->crop_x);
    view->crop_height = 1 + (seed >> 13) % (facts->height - view->crop_y);
    view->window_x = (int32_t)(seed >> 17 & 7u) - 4;
    view->window_y = (int32_t)(seed >> 20 & 7u) - 4;
    view->fill = (seed >> 23 & 1u) != 0 ? IMAGE_FILL_REFLECT : IMAGE_FILL_ZERO;
    view->flip = (seed >> 24 & 1u) != 0;
}

static void with_decoder(image_decoder *decoder, const uint8_t *data, size_t bytes, bool exact)
{
    static uint8_t part[SIDE * SIDE * 3], reference[SIDE * SIDE * 3];
    static float floats[SIDE * SIDE * 3];
    struct image_output output = {.format = IMAGE_U8, .pixels = part};
    struct image_output other = {.format = IMAGE_U8, .pixels = reference};
    struct image_output normal = {
        .format = IMAGE_F32, .pixels = floats, .mean = {0.5f, 0.5f, 0.5f}, .std = {1, 1, 1}};
    struct image_facts facts;
    struct image_view view;

    enum status probed = image_probe(decoder, data, bytes, &facts);
    if (probed != STATUS_OK) {
        must(status_message()[0] != '\0', "a failure without a message");
        must(image_decode_rgb(decoder, data, bytes, whole, sizeof(whole), NULL) != STATUS_OK,
             "refused by its header, and decoded");
        return;
    }
    must((uint64_t)facts.width * facts.height <= MOST_PIXELS, "a limit does not hold");
    enum status first = image_decode_rgb(decoder, data, bytes, whole, sizeof(whole), NULL);
    enum status second = image_decode_rgb(decoder, data, bytes, again, sizeof(again), NULL);
    size_t count = (size_t)facts.width * facts.height * 3;
    must(first == second, "another status the second time");
    must(first != STATUS_OK || memcmp(whole, again, count) == 0, "other pixels the second time");
    must(first == STATUS_OK || status_message()[0] != '\0', "a failure without a message");

    image_view_whole(facts.width, facts.height, SIDE, &view);
    enum status rendered = image_render(decoder, data, bytes, &view, &normal);
    must((rendered == STATUS_OK) == (first == STATUS_OK), "decoded whole but not rendered whole");
    choose_view(data, bytes, &facts, &view);
    rendered = image_render(decoder, data, bytes, &view, &output);
    must(first != STATUS_OK || rendered == STATUS_OK, "decoded whole but not in part");
    if (first == STATUS_OK && exact) {
        must(image_render_pixels(decoder, whole, facts.width, facts.height, 3, &view, &other) ==
                 STATUS_OK,
             "pixels are not rendered");
        must(memcmp(part, reference, sizeof(part)) == 0, "a part differs from the whole");
    }
}

/* The decoders live on from file to file, as those of a worker do. */
struct pair {
    char order[32];
    image_decoder *exact, *fast;
};

static struct pair *find_pair(const char *order, size_t length)
{
    static struct pair pairs[8];
    int i = 0;

    while (pairs[i].order[0] != '\0' &&
           (strlen(pairs[i].order) != length || memcmp(pairs[i].order, order, length) != 0)) {
        i++;
        must(i < 8, "too many orders");
    }
    if (pairs[i].order[0] == '\0') {
        must(length < sizeof(pairs[i].order), "an order is too long");
        memcpy(pairs[i].order, order, length);
        pairs[i].exact = open_decoder(pairs[i].order, true);
        pairs[i].fast = open_decoder(pairs[i].order, false);
    }
    return &pairs[i];
}

void fuzz_image(const uint8_t *data, size_t bytes, const char *orders)
{
    while (*orders != '\0') {
        size_t length = strcspn(orders, " ");
        struct pair *pair = find_pair(orders, length);
        if (pair->exact != NULL) {
            with_decoder(pair->exact, data, bytes, true);
            with_decoder(pair->fast, data, bytes, false);
        }
        orders += length + (orders[length] == ' ');
    }
}

void fuzz_image_mend_png(uint8_t *data, size_t bytes)
{
    size_t at = 8;

    while (bytes >= 12 && at <= bytes - 12) {
        size_t length = (size_t)data[at] << 24 | (size_t)data[at + 1] << 16 |
                        (size_t)data[at + 2] << 8 | data[at + 3];
        if (length > bytes - 12 - at) {
            return;
        }
        uint32_t crc = (uint32_t)crc32(0, data + at + 4, (uInt)length + 4);
        for (int i = 0; i < 4; i++) {
            data[at + 8 + length + (size_t)i] = (uint8_t)(crc >> (24 - 8 * i));
        }
        at += 12 + length;
    }
}
