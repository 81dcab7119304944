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

static void build_table(struct resample *resample)
{
    const struct image_output *output = &resample->output;
    bool same = resample->table_valid;

    for (int channel = 0; channel < 3; channel++) {
        same = same && resample->table_mean[channel] == output->mean[channel] &&
               resample->table_std[channel] == output->std[channel];
    }
    if (same) {
        return;
    }
    for (int channel = 0; channel < 3; channel++) {
        for (int value = 0; value < 256; value++) {
            float unit = (float)value / 255.0f;
            resample->table[channel][value] = (unit - output->mean[channel]) / output->std[channel];
        }
        resample->table_mean[channel] = output->mean[channel];
        resample->table_std[channel] = output->std[channel];
    }
    resample->table_valid = true;
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
        build_table(resample);
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
    return resample->output.format == IMAGE_U8 && resample->vertical.straight &&
           resample->horizontal.straight && resample->origin == resample->left &&
           resample->row_pixels == view->width && is_inside(view);
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

static void store_row(struct resample *resample, uint32_t y)
{
    if (resample->output.format == IMAGE_F32) {
        size_t width = resample->view.width;
        const uint8_t *from = resample->narrow;
        float *to = (float *)resample->output.pixels + (size_t)y * width * 3;
        for (size_t x = 0; x < width; x++) {
            to[3 * x] = resample->table[0][from[3 * x]];
            to[3 * x + 1] = resample->table[1][from[3 * x + 1]];
            to[3 * x + 2] = resample->table[2][from[3 * x + 2]];
        }
    }
}

/* One row of the source under an axis that only picks pixels. `pixels` begins at axis->low. */
static void pick(const uint8_t *pixels, const struct resample_axis *axis, uint8_t *out)
{
    if (axis->straight) {
        memcpy(out, pixels, (size_t)axis->count * 3);
        return;
    }
    for (uint32_t x = 0; x < axis->count; x++) {
        const uint8_t *from = pixels + (size_t)(axis->start[x] - axis->low) * 3;
        bool shown = axis->taps[x] != 0;
        out[3 * x] = shown ? from[0] : 0;
        out[3 * x + 1] = shown ? from[1] : 0;
        out[3 * x + 2] = shown ? from[2] : 0;
    }
}

/* Computes entry `entry` of the vertical axis into `out`. */
static void compute_row(struct resample *resample, uint32_t entry, bool own_rows, uint8_t *out)
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
        pick(resample->window[0], horizontal, out);
        return;
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
}

/* Writes row `entry` wherever the window shows it: in its place, and mirrored at either edge. */
static void produce(struct resample *resample, uint32_t entry, bool own_rows)
{
    const struct image_view *view = &resample->view;
    int64_t row = (int64_t)resample->vertical.key.first + entry;
    int64_t last = (int64_t)view->resize_height - 1;
    int64_t places[3] = {row, -row, 2 * last - row};
    int count = view->fill == IMAGE_FILL_REFLECT ? 3 : 1;
    size_t row_bytes =
        (size_t)view->width * 3 * (resample->output.format == IMAGE_F32 ? sizeof(float) : 1);
    int64_t written = -1;

    for (int i = 0; i < count; i++) {
        int64_t y = places[i] - view->window_y;
        if (y < 0 || y >= (int64_t)view->height || y == written) {
            continue;
        }
        if (written < 0) {
            compute_row(resample, entry, own_rows, bytes_of_row(resample, (uint32_t)y));
            store_row(resample, (uint32_t)y);
            written = y;
        } else {
            memcpy((uint8_t *)resample->output.pixels + (size_t)y * row_bytes,
                   (uint8_t *)resample->output.pixels + (size_t)written * row_bytes, row_bytes);
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
            memset(bytes_of_row(resample, y), 0, (size_t)view->width * 3);
            store_row(resample, y);
        }
    }
}
