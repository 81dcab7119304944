#include "loader/resample.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Rows of our own begin off every vector boundary: libjpeg-turbo writes aligned rows past the cache
 * (movntdq), and reading them again at once would wait for memory. */
#define ROW_OFFSET 8

void resample_init(struct resample *resample)
{
    memset(resample, 0, sizeof(*resample));
    resample->kernels = resample_find_avx2();
    if (resample->kernels == NULL) {
        resample->kernels = &resample_kernels_c;
    }
}

void resample_fini(struct resample *resample)
{
    resample__axis_fini(&resample->horizontal);
    resample__axis_fini(&resample->vertical);
    free(resample->ring);
    free(resample->rows);
    free(resample->window);
    free(resample->line);
    free(resample->narrow);
    memset(resample, 0, sizeof(*resample));
}

size_t resample_bytes(const struct resample *resample)
{
    return resample__axis_bytes(&resample->horizontal) + resample__axis_bytes(&resample->vertical) +
           resample->ring_capacity + resample->rows_capacity * 2 * sizeof(uint8_t *) +
           resample->line_capacity * sizeof(int16_t) + resample->narrow_capacity;
}

/* Whether the version in use computes what the table holds, for every byte of every channel. */
static bool computes_table(const struct resample *resample)
{
    const struct resample_floats *floats = &resample->floats;
    uint8_t bytes[3 * 256];
    float computed[3 * 256], expected[3 * 256];

    for (int value = 0; value < 256; value++) {
        for (int channel = 0; channel < 3; channel++) {
            bytes[3 * value + channel] = (uint8_t)value;
            expected[3 * value + channel] = floats->table[channel][value];
        }
    }
    resample->kernels->normalise(floats, bytes, 3 * 256, computed, false);
    return memcmp(computed, expected, sizeof(expected)) == 0;
}

static void build_floats(struct resample *resample)
{
    const struct image_output *output = &resample->output;
    struct resample_floats *floats = &resample->floats;
    bool same = floats->built && floats->kernels == resample->kernels;

    for (int channel = 0; channel < 3; channel++) {
        same = same && floats->mean[channel] == output->mean[channel] &&
               floats->std[channel] == output->std[channel];
    }
    if (same) {
        return;
    }
    for (int channel = 0; channel < 3; channel++) {
        for (int value = 0; value < 256; value++) {
            float unit = (float)value / 255.0f;
            floats->table[channel][value] = (unit - output->mean[channel]) / output->std[channel];
        }
        floats->mean[channel] = output->mean[channel];
        floats->std[channel] = output->std[channel];
    }
    for (int i = 0; i < RESAMPLE_PERIOD; i++) {
        floats->means[i] = output->mean[i % 3];
        floats->stds[i] = output->std[i % 3];
        floats->inverses[i] = 1.0f / output->std[i % 3];
    }
    floats->kernels = resample->kernels;
    floats->computed = computes_table(resample);
    floats->built = true;
}

/* Whether every row of the window is one of the resized picture. */
static bool is_inside(const struct image_view *view)
{
    return view->window_y >= 0 &&
           (int64_t)view->window_y + view->height <= (int64_t)view->resize_height;
}

/* --- A picture ----------------------------------------------------------------------------- */

enum status resample_begin(struct resample *resample, const struct image_view *view,
                           const struct image_output *output, uint32_t width, uint32_t height,
                           int shift)
{
    double unit = 1.0 / (double)(1 << shift);
    int64_t first = INT64_MAX, last = -1;

    assert(view->crop_width >= 1 && view->crop_height >= 1);
    assert(view->resize_width >= 1 && view->resize_height >= 1);
    assert(view->width >= 1 && view->height >= 1);
    resample->view = *view;
    resample->output = *output;
    if (output->format == IMAGE_F32) {
        build_floats(resample);
        resample->narrow = resample__grow(resample->narrow, &resample->narrow_capacity,
                                          (size_t)view->width * 3, 1);
        if (resample->narrow == NULL) {
            return resample__no_memory(view->width);
        }
    }
    struct resample_key horizontal = {
        .box_start = (double)view->crop_x * unit,
        .box_end = ((double)view->crop_x + (double)view->crop_width) * unit,
        .size = width,
        .resize = view->resize_width,
        .first = 0,
        .count = view->width,
        .per_output = true,
        .window = view->window_x,
        .fill = view->fill,
        .flip = view->flip,
    };
    TRY(resample__build_axis(&resample->horizontal, &horizontal));

    if (is_inside(view)) {
        first = view->window_y;
        last = first + view->height - 1;
    } else {
        for (uint32_t y = 0; y < view->height; y++) {
            int64_t row = resample__fill_position((int64_t)view->window_y + y, view->resize_height,
                                                  view->fill);
            if (row >= 0) {
                first = row < first ? row : first;
                last = row > last ? row : last;
            }
        }
    }
    struct resample_key vertical = {
        .box_start = (double)view->crop_y * unit,
        .box_end = ((double)view->crop_y + (double)view->crop_height) * unit,
        .size = height,
        .resize = view->resize_height,
        .first = last < 0 ? 0 : (uint32_t)first,
        .count = last < 0 ? 0 : (uint32_t)(last - first + 1),
    };
    TRY(resample__build_axis(&resample->vertical, &vertical));
    resample->left = resample->horizontal.low;
    resample->right = resample->horizontal.high;
    resample->top = resample->vertical.low;
    resample->bottom = resample->vertical.high;
    resample->next = 0;
    return STATUS_OK;
}

/* The bytes of output row y, in the output itself where that holds bytes. */
static uint8_t *bytes_of_row(struct resample *resample, uint32_t y)
{
    if (resample->output.format == IMAGE_F32) {
        return resample->narrow;
    }
    return (uint8_t *)resample->output.pixels + (size_t)y * resample->view.width * 3;
}

/* n bytes go to the output from row y on, as they are or as floats. */
static void store(const struct resample *resample, const uint8_t *bytes, size_t n, uint32_t y)
{
    const struct image_output *output = &resample->output;
    size_t at = (size_t)y * resample->view.width * 3;

    if (output->format == IMAGE_U8) {
        resample->kernels->copy(bytes, n, (uint8_t *)output->pixels + at, output->streamed);
        return;
    }
    const struct resample_kernels *kernels =
        resample->floats.computed ? resample->kernels : &resample_kernels_c;
    kernels->normalise(&resample->floats, bytes, n, (float *)output->pixels + at, output->streamed);
}

/* Whether the output is the source from row `top` on, byte for byte or float for byte. */
static bool is_copy(const struct resample *resample)
{
    const struct image_view *view = &resample->view;

    return resample->vertical.straight && resample->horizontal.straight &&
           resample->left == resample->origin && resample->row_pixels == view->width &&
           is_inside(view);
}

/* Below so many bytes a row of our own and a copy of it cost less than libjpeg-turbo's writing past
 * the cache, which it does at aligned addresses: slots are aligned. */
#define DIRECT_ROW_BYTES 1024

/* Whether rows of the decoder are rows of the output, byte for byte. */
static bool is_direct(const struct resample *resample)
{
    const struct image_view *view = &resample->view;

    if (view->width * 3 < DIRECT_ROW_BYTES && (uintptr_t)resample->output.pixels % 16 == 0) {
        return false;
    }
    return resample->output.format == IMAGE_U8 && is_copy(resample);
}

enum status resample_layout(struct resample *resample, uint32_t origin, uint32_t row_pixels)
{
    size_t need = (size_t)resample->vertical.most_taps + RESAMPLE_AHEAD;
    size_t rows = 8;
    size_t stride = size_align((size_t)row_pixels * 3 + ROW_OFFSET + RESAMPLE_SLACK, 64);
    size_t bytes;

    assert(origin <= resample->left && origin + row_pixels >= resample->right);
    while (rows < need) {
        rows *= 2;
    }
    resample->origin = origin;
    resample->row_pixels = row_pixels;
    resample->ring_rows = rows;
    resample->ring_stride = stride;
    resample->direct = is_direct(resample);
    if (!size_multiply(rows, stride, &bytes)) {
        return resample__no_memory(rows);
    }
    resample->ring = resample__grow(resample->ring, &resample->ring_capacity, bytes, 1);
    if (resample->ring == NULL) {
        return resample__no_memory(bytes);
    }
    if (rows > resample->rows_capacity) {
        size_t held = resample->rows_capacity, looked_at = held;
        resample->rows_capacity = 0;
        resample->rows = resample__grow(resample->rows, &held, rows, sizeof(*resample->rows));
        resample->window =
            resample__grow(resample->window, &looked_at, rows, sizeof(*resample->window));
        if (resample->rows == NULL || resample->window == NULL) {
            return resample__no_memory(rows);
        }
        resample->rows_capacity = rows;
    }
    /* All entries are loaded with as many taps as the longest has, also at the right edge. */
    size_t line = (size_t)(resample->right - resample->left) + resample->horizontal.stride;
    resample->line = resample__grow(resample->line, &resample->line_capacity,
                                    line * 3 + RESAMPLE_SLACK, sizeof(*resample->line));
    if (resample->line == NULL) {
        return resample__no_memory(line);
    }
    return STATUS_OK;
}

uint8_t *resample_row(struct resample *resample, uint32_t y)
{
    if (resample->direct && y >= resample->top && y < resample->bottom) {
        uint32_t entry = y - resample->top;
        int64_t to = (int64_t)resample->vertical.key.first + entry - resample->view.window_y;
        return bytes_of_row(resample, (uint32_t)to);
    }
    return resample->ring + (y & (resample->ring_rows - 1)) * resample->ring_stride + ROW_OFFSET;
}

/* One row of the source under an axis that only picks pixels. `pixels` begins at axis->low. */
static void pick(const struct resample *resample, const uint8_t *pixels, uint8_t *out)
{
    const struct resample_axis *axis = &resample->horizontal;
    uint32_t run_end = axis->run_first + axis->run_count;

    for (uint32_t x = 0; x < axis->count; x++) {
        if (x == axis->run_first && axis->run_count > 0) {
            uint32_t first = axis->start[axis->run_mirrored ? run_end - 1 : x] - axis->low;
            if (axis->run_mirrored) {
                resample->kernels->mirror(pixels + (size_t)first * 3, axis->run_count,
                                          out + (size_t)x * 3);
            } else {
                memcpy(out + (size_t)x * 3, pixels + (size_t)first * 3,
                       (size_t)axis->run_count * 3);
            }
            x = run_end - 1;
            continue;
        }
        const uint8_t *from = pixels + (size_t)(axis->start[x] - axis->low) * 3;
        bool shown = axis->taps[x] != 0;
        out[3 * x] = shown ? from[0] : 0;
        out[3 * x + 1] = shown ? from[1] : 0;
        out[3 * x + 2] = shown ? from[2] : 0;
    }
}

/* Entry `entry` of the vertical axis: where its bytes lie, which is `out` unless they are a piece of
 * the source. */
static const uint8_t *compute_row(struct resample *resample, uint32_t entry, bool own_rows,
                                  uint8_t *out)
{
    const struct resample_axis *vertical = &resample->vertical;
    const struct resample_axis *horizontal = &resample->horizontal;
    uint32_t taps = vertical->taps[entry];
    size_t skip = (size_t)(resample->left - resample->origin) * 3;
    size_t n = (size_t)(resample->right - resample->left) * 3;

    for (uint32_t tap = 0; tap < taps; tap++) {
        uint32_t y = vertical->start[entry] + tap;
        resample->window[tap] = resample->rows[y & (resample->ring_rows - 1)] + skip;
    }
    if (vertical->identity && horizontal->identity) {
        if (horizontal->straight) {
            return resample->window[0];
        }
        pick(resample, resample->window[0], out);
        return out;
    }
    /* Rows of our own are followed by slack, so whole vectors can be taken. */
    if (own_rows) {
        n = size_align(n, 32);
    }
    const uint16_t *weights = vertical->weights + (size_t)entry * vertical->stride;
    if (vertical->few) {
        resample->kernels->vertical_few(resample->window, weights, taps, resample->line, n);
    } else {
        resample->kernels->vertical_many(resample->window, weights, taps, vertical->bits,
                                         resample->line, n);
    }
    resample->kernels->horizontal(resample->line, horizontal, out);
    return out;
}

/* Writes row `entry` wherever the window shows it: in its place, and mirrored at either edge. */
static void produce(struct resample *resample, uint32_t entry, bool own_rows)
{
    const struct image_view *view = &resample->view;
    int64_t row = (int64_t)resample->vertical.key.first + entry;
    int64_t last = (int64_t)view->resize_height - 1;
    int64_t places[3] = {row, -row, 2 * last - row};
    int count = view->fill == IMAGE_FILL_REFLECT ? 3 : 1;
    int64_t written = -1;
    const uint8_t *bytes = NULL;

    for (int i = 0; i < count; i++) {
        int64_t y = places[i] - view->window_y;
        if (y < 0 || y >= (int64_t)view->height || y == written) {
            continue;
        }
        uint8_t *to = bytes_of_row(resample, (uint32_t)y);
        if (written < 0) {
            bytes = compute_row(resample, entry, own_rows, to);
            written = y;
        }
        if (bytes != to || resample->output.format == IMAGE_F32) {
            store(resample, bytes, (size_t)view->width * 3, (uint32_t)y);
        }
    }
}

static void advance(struct resample *resample, uint32_t y, const uint8_t *pixels, bool own_rows)
{
    const struct resample_axis *vertical = &resample->vertical;

    if (y < resample->top || y >= resample->bottom) {
        return;
    }
    resample->rows[y & (resample->ring_rows - 1)] = pixels;
    while (resample->next < vertical->count &&
           vertical->start[resample->next] + vertical->taps[resample->next] <= y + 1) {
        produce(resample, resample->next, own_rows);
        resample->next++;
    }
}

void resample_done(struct resample *resample, uint32_t y)
{
    if (resample->direct) {
        resample->next += y >= resample->top && y < resample->bottom;
        return;
    }
    advance(resample, y, resample_row(resample, y), true);
}

void resample_take(struct resample *resample, uint32_t y, const uint8_t *pixels)
{
    assert(y >= resample->top && y < resample->bottom);
    advance(resample, y, pixels, false);
}

void resample_take_all(struct resample *resample, const uint8_t *pixels)
{
    size_t row_bytes = (size_t)resample->row_pixels * 3;

    if (is_copy(resample)) {
        store(resample, pixels + resample->top * row_bytes, resample->view.height * row_bytes, 0);
        resample->next = resample->vertical.count;
        return;
    }
    for (uint32_t y = resample->top; y < resample->bottom; y++) {
        resample_take(resample, y, pixels + y * row_bytes);
    }
}

void resample_publish(const struct resample *resample)
{
    if (resample->output.streamed) {
        resample->kernels->fence();
    }
}

void resample_finish(struct resample *resample)
{
    const struct image_view *view = &resample->view;

    assert(resample->next == resample->vertical.count);
    if (is_inside(view)) {
        return;
    }
    for (uint32_t y = 0; y < view->height; y++) {
        if (resample__fill_position((int64_t)view->window_y + y, view->resize_height, view->fill) <
            0) {
            uint8_t *bytes = bytes_of_row(resample, y);
            memset(bytes, 0, (size_t)view->width * 3);
            if (resample->output.format == IMAGE_F32) {
                store(resample, bytes, (size_t)view->width * 3, y);
            }
        }
    }
}
