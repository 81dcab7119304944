#include "loader/augment.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define LARGEST_SIZE 4096
#define LARGEST_RESIZE 16384

void augment_settings_defaults(struct augment_settings *settings)
{
    memset(settings, 0, sizeof(*settings));
    settings->kind = AUGMENT_NONE;
    settings->padding = 4;
    settings->fill = IMAGE_FILL_ZERO;
    settings->scale_low = 0.08;
    settings->scale_high = 1.0;
    settings->ratio_low = 3.0 / 4.0;
    settings->ratio_high = 4.0 / 3.0;
}

enum status augment_settings_check(const struct augment_settings *settings)
{
    /* Comparisons are written so that a NaN fails them. */
    if (settings->size < 1 || settings->size > LARGEST_SIZE) {
        return FAIL(STATUS_USAGE, "--size must be 1 to %d, not %u", LARGEST_SIZE, settings->size);
    }
    if (settings->kind == AUGMENT_CENTRE && settings->resize != 0 &&
        (settings->resize < settings->size || settings->resize > LARGEST_RESIZE)) {
        return FAIL(STATUS_USAGE, "the side before the centre crop must be %u to %d, not %u",
                    settings->size, LARGEST_RESIZE, settings->resize);
    }
    if (settings->kind == AUGMENT_PADDED_CROP && settings->padding >= settings->size) {
        return FAIL(STATUS_USAGE, "a padding of %u is too much for images of %u pixels",
                    settings->padding, settings->size);
    }
    if (settings->kind == AUGMENT_RESIZED_CROP) {
        if (!(settings->scale_low > 0.0 && settings->scale_low <= settings->scale_high &&
              settings->scale_high <= 1.0)) {
            return FAIL(STATUS_USAGE,
                        "the crop's share of the area must be within 0 to 1, not "
                        "%g to %g",
                        settings->scale_low, settings->scale_high);
        }
        if (!(settings->ratio_low > 0.0 && settings->ratio_low <= settings->ratio_high &&
              isfinite(settings->ratio_high))) {
            return FAIL(STATUS_USAGE, "the crop's ratio must be above 0, not %g to %g",
                        settings->ratio_low, settings->ratio_high);
        }
    }
    if (!(settings->flip >= 0.0 && settings->flip <= 1.0)) {
        return FAIL(STATUS_USAGE, "the probability of a flip must be 0 to 1, not %g",
                    settings->flip);
    }
    return STATUS_OK;
}

bool augment_is_random(const struct augment_settings *settings)
{
    return settings->kind == AUGMENT_PADDED_CROP || settings->kind == AUGMENT_RESIZED_CROP ||
           (settings->flip > 0.0 && settings->flip < 1.0);
}

static double between(struct rng *rng, double low, double high)
{
    return low + (high - low) * rng_uniform_double(rng);
}

/* The shorter side becomes `resize`, the longer is cut down to a whole number, as torchvision's
 * Resize does; the window's corner is rounded to even, as its CenterCrop does. */
static void view_centre(const struct augment_settings *settings, uint32_t width, uint32_t height,
                        struct image_view *view)
{
    uint32_t size = settings->size;
    uint64_t side = settings->resize;

    if (side == 0) {
        side = ((uint64_t)size * 8 + 3) / 7;
    }
    uint64_t shorter = width < height ? width : height;
    uint64_t across = side * width / shorter, down = side * height / shorter;
    /* A strip so long that it would not fit is squashed to what does. */
    view->resize_width = (uint32_t)(across < LARGEST_RESIZE ? across : LARGEST_RESIZE);
    view->resize_height = (uint32_t)(down < LARGEST_RESIZE ? down : LARGEST_RESIZE);
    view->window_x = (int32_t)nearbyint((double)(view->resize_width - size) / 2.0);
    view->window_y = (int32_t)nearbyint((double)(view->resize_height - size) / 2.0);
}

static void view_resized_crop(const struct augment_settings *settings, uint32_t width,
                              uint32_t height, struct rng *rng, struct image_view *view)
{
    double area = (double)width * (double)height;
    double log_low = log(settings->ratio_low), log_high = log(settings->ratio_high);

    for (int attempt = 0; attempt < 10; attempt++) {
        double target = area * between(rng, settings->scale_low, settings->scale_high);
        double ratio = exp(between(rng, log_low, log_high));
        double across = nearbyint(sqrt(target * ratio));
        double down = nearbyint(sqrt(target / ratio));
        if (across >= 1.0 && across <= (double)width && down >= 1.0 && down <= (double)height) {
            view->crop_width = (uint32_t)across;
            view->crop_height = (uint32_t)down;
            view->crop_y = rng_below(rng, height - view->crop_height + 1);
            view->crop_x = rng_below(rng, width - view->crop_width + 1);
            return;
        }
    }
    double ratio = (double)width / (double)height;
    if (ratio < settings->ratio_low) {
        view->crop_height = (uint32_t)nearbyint((double)width / settings->ratio_low);
    } else if (ratio > settings->ratio_high) {
        view->crop_width = (uint32_t)nearbyint((double)height * settings->ratio_high);
    }
    view->crop_height = view->crop_height > height ? height : view->crop_height;
    view->crop_width = view->crop_width > width ? width : view->crop_width;
    view->crop_height = view->crop_height < 1 ? 1 : view->crop_height;
    view->crop_width = view->crop_width < 1 ? 1 : view->crop_width;
    view->crop_x = (width - view->crop_width) / 2;
    view->crop_y = (height - view->crop_height) / 2;
}

void augment_draw(const struct augment_settings *settings, uint32_t width, uint32_t height,
                  struct rng *rng, struct image_view *view)
{
    assert(width >= 1 && height >= 1 && settings->size >= 1);
    assert(rng != NULL || !augment_is_random(settings));
    image_view_whole(width, height, settings->size, view);
    switch (settings->kind) {
    case AUGMENT_NONE:
        break;
    case AUGMENT_CENTRE:
        view_centre(settings, width, height, view);
        break;
    case AUGMENT_PADDED_CROP:
        view->window_y = (int32_t)rng_below(rng, 2 * settings->padding + 1);
        view->window_x = (int32_t)rng_below(rng, 2 * settings->padding + 1);
        view->window_y -= (int32_t)settings->padding;
        view->window_x -= (int32_t)settings->padding;
        view->fill = settings->fill;
        break;
    case AUGMENT_RESIZED_CROP:
        view_resized_crop(settings, width, height, rng, view);
        break;
    }
    if (settings->flip >= 1.0) {
        view->flip = true;
    } else if (settings->flip > 0.0) {
        view->flip = rng_uniform_double(rng) < settings->flip;
    }
}
