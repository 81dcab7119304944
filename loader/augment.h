/*
 * Which part of an image is shown, drawn at random or not. A view is a pure function of settings,
 * dimensions and the state of the generator, so it depends neither on threads nor on order.
 * Thread-safe; no state.
 */
#ifndef PINLINE_LOADER_AUGMENT_H
#define PINLINE_LOADER_AUGMENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/rng.h"
#include "base/status.h"
#include "loader/image.h"

enum augment_kind {
    AUGMENT_NONE,        /* the whole image squashed to size x size */
    AUGMENT_CENTRE,      /* shorter side resized to `resize`, then the middle size x size */
    AUGMENT_PADDED_CROP, /* squashed to size x size, `padding` pixels around, size x size of it */
    AUGMENT_RESIZED_CROP /* a box of random area and aspect ratio, resized to size x size */
};

/* Plain data; start from augment_settings_defaults. */
struct augment_settings {
    enum augment_kind kind; /* default AUGMENT_NONE */
    uint32_t size;          /* of the output, 1 to 4,096; no default: 0 is refused */
    uint32_t resize;  /* CENTRE: `size` to 16,384, or 0 for 8/7 of size (256 for 224); default 0 */
    uint32_t padding; /* PADDED_CROP: pixels a side, 0 to size - 1; default 4 */
    enum image_fill fill; /* PADDED_CROP: default IMAGE_FILL_ZERO, as torchvision's RandomCrop */
    double scale_low;     /* RESIZED_CROP: share of the area, 0 < low <= high <= 1; default 0.08 */
    double scale_high;    /* default 1 */
    double ratio_low;     /* RESIZED_CROP: width / height, 0 < low <= high; default 3/4 */
    double ratio_high;    /* default 4/3 */
    double flip;          /* probability of mirroring left and right, 0 to 1; default 0 */
};

void augment_settings_defaults(struct augment_settings *settings);

/* STATUS_USAGE naming the field that is out of its range. */
enum status augment_settings_check(const struct augment_settings *settings) MUST_USE;

/*
 * Draws the view for an image of width x height (each >= 1), from checked settings. RESIZED_CROP is
 * torchvision's RandomResizedCrop: ten tries, then the largest centred box within the ratios. The
 * crop is drawn first, the flip last; kinds without chance take no numbers, nor does a flip
 * probability of 0 or 1. `rng` may be NULL when nothing is drawn.
 */
void augment_draw(const struct augment_settings *settings, uint32_t width, uint32_t height,
                  struct rng *rng, struct image_view *view);

/* Whether augment_draw takes random numbers under these settings. */
bool augment_is_random(const struct augment_settings *settings);

#endif
