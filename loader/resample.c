#include "loader/resample.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"

/* Rows of our own begin off every vector boundary: libjpeg-turbo writes aligned rows past the cache
 * (movntdq), and reading them again at once would wait for memory. */
#define ROW_OFFSET 8

/* --- Memory -------------------------------------------------------------------------------- */

/* Makes *memory hold at least `need` elements; contents are lost when it grows. */
static bool reserve(void *memory, size_t *capacity, size_t need, size_t element)
{
    void **slot = memory;
    size_t bytes;

    if (need <= *capacity) {
        return true;
    }
    free(*slot);
    *slot = NULL;
    *capacity = 0;
    if (!size_multiply(need, element, &bytes) || !size_add(bytes, RESAMPLE_SLACK, &bytes) ||
        !size_add(bytes, 63, &bytes)) {
        return false;
    }
    bytes &= ~(size_t)63;
    *slot = aligned_alloc(64, bytes);
    if (*slot == NULL) {
        return false;
    }
    /* The slack is loaded, though multiplied by zero. */
    memset((unsigned char *)*slot + need * element, 0, bytes - need * element);
    *capacity = need;
    return true;
}

static enum status no_memory(size_t count)
{
    return FAIL(STATUS_NO_MEMORY, "no memory for %zu elements of a filter; use fewer workers",
                count);
}

static void axis_fini(struct resample_axis *axis)
{
    free(axis->start);
    free(axis->taps);
    free(axis->weights);
    free(axis->pairs);
    free(axis->scratch);
    memset(axis, 0, sizeof(*axis));
}

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
    axis_fini(&resample->horizontal);
    axis_fini(&resample->vertical);
    free(resample->ring);
    free(resample->rows);
    free(resample->window);
    free(resample->line);
    free(resample->narrow);
    memset(resample, 0, sizeof(*resample));
}

static size_t axis_bytes(const struct resample_axis *axis)
{
    return axis->entries_capacity * 2 * sizeof(uint32_t) +
           axis->weights_capacity * sizeof(uint16_t) + axis->pairs_capacity * sizeof(int16_t) +
           axis->scratch_capacity * sizeof(double);
}

size_t resample_bytes(const struct resample *resample)
{
    return axis_bytes(&resample->horizontal) + axis_bytes(&resample->vertical) +
           resample->ring_capacity + resample->rows_capacity * 2 * sizeof(uint8_t *) +
           resample->line_capacity * sizeof(int16_t) + resample->narrow_capacity;
}

/* --- Tables -------------------------------------------------------------------------------- */

/* The position of the resized picture that is seen at `position`, or -1 for nothing. */
static int64_t fill_position(int64_t position, uint32_t resize, enum image_fill fill)
{
    int64_t last = (int64_t)resize - 1;

    if (position >= 0 && position <= last) {
        return position;
    }
    if (fill == IMAGE_FILL_ZERO) {
        return -1;
    }
    position = position < 0 ? -position : 2 * last - position;
    assert(position >= 0 && position <= last);
    return position;
}

static bool keys_equal(const struct resample_key *a, const struct resample_key *b)
{
    return a->box_start == b->box_start && a->box_end == b->box_end && a->size == b->size &&
           a->resize == b->resize && a->first == b->first && a->count == b->count &&
           a->per_output == b->per_output && a->window == b->window && a->fill == b->fill &&
           a->flip == b->flip;
}

/* Weights as integers, by rounding their running sum: it ends at exactly 1 << bits, and over any
 * stretch of taps the error stays below one unit even where single weights are smaller than that. */
static void quantise(const double *exact, uint32_t taps, int bits, uint16_t *weights)
{
    double one = (double)((int32_t)1 << bits);
    double sum = 0.0;
    int32_t before = 0;

    for (uint32_t i = 0; i < taps; i++) {
        sum += exact[i];
        int32_t now = i + 1 == taps ? (int32_t)1 << bits : (int32_t)(sum * one + 0.5);
        weights[i] = (uint16_t)(now - before);
        before = now;
    }
}

/* The AVX2 version takes four outputs a b c d at a time as two registers, (a, c) and (b, d); for
 * each pair of taps a register holds the pair's weights four times in either half. */
static void expand_pairs(struct resample_axis *axis)
{
    uint32_t steps = axis->stride / 2;

    for (uint32_t x = 0; x + 4 <= axis->count; x += 4) {
        int16_t *group = axis->pairs + (size_t)x * steps * 8;
        for (uint32_t step = 0; step < steps; step++) {
            for (uint32_t lane = 0; lane < 4; lane++) {
                /* Order in memory: a, c, b, d. */
                uint32_t output = x + (lane == 1 ? 2 : lane == 2 ? 1 : lane);
                const uint16_t *pair = axis->weights + (size_t)output * axis->stride + step * 2;
                int16_t *to = group + ((size_t)step * 4 + lane) * 8;
                for (int i = 0; i < 8; i += 2) {
                    to[i] = (int16_t)pair[0];
                    to[i + 1] = (int16_t)pair[1];
                }
            }
        }
    }
}

/*
 * Centre, support and rounding of the bounds are those of Pillow's ImagingResample, of which
 * torchvision's antialiased bilinear filter is a copy: a triangle of half-width max(scale, 1).
 */
static enum status build_axis(struct resample_axis *axis, const struct resample_key *key)
{
    double scale = (key->box_end - key->box_start) / (double)key->resize;
    double support = scale > 1.0 ? scale : 1.0;
    double inverse = 1.0 / support;
    int64_t low_limit = (int64_t)floor(key->box_start);
    int64_t high_limit = (int64_t)ceil(key->box_end);
    int64_t low = INT64_MAX, high = 0;
    size_t stride = ((size_t)ceil(support) * 2 + 2) & ~(size_t)1;

    if (axis->built && keys_equal(&axis->key, key)) {
        return STATUS_OK;
    }
    axis->built = false;
    if (high_limit > (int64_t)key->size) {
        high_limit = (int64_t)key->size;
    }
    if (stride > (size_t)(high_limit - low_limit + 1)) {
        stride = (size_t)(high_limit - low_limit + 1) & ~(size_t)1;
        stride = stride < 2 ? 2 : stride;
    }
    axis->count = key->count;
    if (key->count > axis->entries_capacity) {
        size_t capacity = axis->entries_capacity;
        if (!reserve(&axis->start, &capacity, key->count, sizeof(*axis->start))) {
            axis->entries_capacity = 0;
            return no_memory(key->count);
        }
        capacity = axis->entries_capacity;
        if (!reserve(&axis->taps, &capacity, key->count, sizeof(*axis->taps))) {
            axis->entries_capacity = 0;
            return no_memory(key->count);
        }
        axis->entries_capacity = key->count;
    }
    size_t all;
    if (!size_multiply(key->count, stride, &all) ||
        !reserve(&axis->scratch, &axis->scratch_capacity, all, sizeof(double))) {
        return no_memory(key->count * stride);
    }
    axis->most_taps = 0;
    axis->identity = true;
    for (uint32_t i = 0; i < key->count; i++) {
        int64_t position = (int64_t)key->first + i;
        double *weights = axis->scratch + (size_t)i * stride;

        if (key->per_output) {
            position = (int64_t)key->window + (int64_t)(key->flip ? key->count - 1 - i : i);
            position = fill_position(position, key->resize, key->fill);
        }
        if (position < 0) {
            axis->start[i] = 0;
            axis->taps[i] = 0;
            continue;
        }
        double centre = key->box_start + ((double)position + 0.5) * scale;
        int64_t first = (int64_t)(centre - support + 0.5);
        int64_t end = (int64_t)(centre + support + 0.5);
        double sum = 0.0;
        first = first < low_limit ? low_limit : first;
        end = end > high_limit ? high_limit : end;
        uint32_t taps = 0;
        for (int64_t x = first; x < end; x++) {
            double distance = fabs(((double)x - centre + 0.5) * inverse);
            double weight = distance < 1.0 ? 1.0 - distance : 0.0;
            /* Zero weights at the ends are no taps. */
            if (weight == 0.0 && taps == 0) {
                first = x + 1;
                continue;
            }
            assert(taps < stride);
            weights[taps++] = weight;
            sum += weight;
        }
        while (taps > 1 && weights[taps - 1] == 0.0) {
            taps--;
        }
        if (taps == 0) {
            /* Only by rounding in a box narrower than a pixel: the pixel under the centre. */
            first = (int64_t)centre < high_limit ? (int64_t)centre : high_limit - 1;
            weights[taps++] = 1.0;
            sum = 1.0;
        }
        for (uint32_t tap = 0; tap < taps; tap++) {
            weights[tap] /= sum;
        }
        axis->start[i] = (uint32_t)first;
        axis->taps[i] = taps;
        axis->most_taps = taps > axis->most_taps ? taps : axis->most_taps;
        axis->identity = axis->identity && taps == 1;
        low = first < low ? first : low;
        high = first + (int64_t)taps > high ? first + (int64_t)taps : high;
    }
    if (axis->most_taps == 0) {
        /* The window shows nothing of the picture. */
        low = low_limit;
        high = low_limit + 1;
    }
    axis->low = (uint32_t)low;
    axis->high = (uint32_t)high;
    axis->straight = axis->most_taps == 1;
    for (uint32_t i = 0; i < key->count && axis->straight; i++) {
        axis->straight = axis->taps[i] == 1 && axis->start[i] == axis->low + i;
    }
    axis->stride = (axis->most_taps + 1) & ~1u;
    if (axis->stride == 0) {
        axis->stride = 2;
    }

    /* As many bits as keep a weight below 1 << 15 and sums below 1 << 31. A weight is at most 1, and
     * at most 2 / support where an edge cuts the triangle in half. The choice depends on the scale
     * alone, so that a part of a picture is the same whatever window it is seen through. */
    double largest = support > 2.0 ? 2.0 / support : 1.0;
    axis->few = !key->per_output && support <= (RESAMPLE_FEW_TAPS - 1) / 2.0;
    int most = key->per_output ? 16 : 22;
    axis->bits = axis->few ? 15 : 14;
    while (!axis->few && axis->bits < most && largest * (double)(1 << (axis->bits + 1)) < 32700.0) {
        axis->bits++;
    }
    if (!size_multiply(key->count, axis->stride, &all) ||
        !reserve(&axis->weights, &axis->weights_capacity, all, sizeof(uint16_t))) {
        return no_memory(all);
    }
    memset(axis->weights, 0, all * sizeof(uint16_t));
    for (uint32_t i = 0; i < key->count; i++) {
        if (axis->taps[i] == 0) {
            axis->start[i] = axis->low;
            continue;
        }
        quantise(axis->scratch + (size_t)i * stride, axis->taps[i], axis->bits,
                 axis->weights + (size_t)i * axis->stride);
    }
    if (key->per_output) {
        if (!reserve(&axis->pairs, &axis->pairs_capacity, all * 4, sizeof(int16_t))) {
            return no_memory(all * 4);
        }
        expand_pairs(axis);
    }
    axis->key = *key;
    axis->built = true;
    return STATUS_OK;
}

static void build_table(struct resample *resample)
{
    const struct image_output *output = &resample->output;

    if (resample->table_valid &&
        memcmp(resample->table_mean, output->mean, sizeof(output->mean)) == 0 &&
        memcmp(resample->table_std, output->std, sizeof(output->std)) == 0) {
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
        if (!reserve(&resample->narrow, &resample->narrow_capacity, (size_t)view->width * 3, 1)) {
            return no_memory(view->width);
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
    TRY(build_axis(&resample->horizontal, &horizontal));

    for (uint32_t y = 0; y < view->height; y++) {
        int64_t row = fill_position((int64_t)view->window_y + y, view->resize_height, view->fill);
        if (row >= 0) {
            first = row < first ? row : first;
            last = row > last ? row : last;
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
    TRY(build_axis(&resample->vertical, &vertical));
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

/* Below so many bytes a row of our own and a copy of it cost less than libjpeg-turbo's writing past the
 * cache, which it does at aligned addresses: slots are aligned. */
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
           resample->row_pixels == view->width && view->window_y >= 0 &&
           (int64_t)view->window_y + view->height <= view->resize_height;
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
    if (!size_multiply(rows, stride, &bytes) ||
        !reserve(&resample->ring, &resample->ring_capacity, bytes, 1)) {
        return no_memory(rows * stride);
    }
    if (rows > resample->rows_capacity) {
        size_t capacity = resample->rows_capacity;
        resample->rows_capacity = 0;
        size_t again = capacity;
        if (!reserve(&resample->rows, &capacity, rows, sizeof(*resample->rows)) ||
            !reserve(&resample->window, &again, rows, sizeof(*resample->window))) {
            return no_memory(rows);
        }
        resample->rows_capacity = rows;
    }
    /* All entries are loaded with as many taps as the longest has, also at the right edge. */
    size_t line = (size_t)(resample->right - resample->left) + resample->horizontal.stride;
    if (!reserve(&resample->line, &resample->line_capacity, line * 3 + RESAMPLE_SLACK,
                 sizeof(*resample->line))) {
        return no_memory(line);
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
    for (uint32_t y = 0; y < view->height; y++) {
        if (fill_position((int64_t)view->window_y + y, view->resize_height, view->fill) < 0) {
            memset(bytes_of_row(resample, y), 0, (size_t)view->width * 3);
            store_row(resample, y);
        }
    }
}

/* --- Inner loops in plain C ---------------------------------------------------------------- */

/* Each product is cut to the line's seven fractional bits; half a unit a tap makes up for the mean
 * of what is cut. With eight taps the error stays below 4 / 128 of a level. */
static void vertical_few_c(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                           int16_t *line, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t sum = taps / 2;
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += ((uint32_t)rows[tap][i] * weights[tap]) >> 8;
        }
        line[i] = (int16_t)sum;
    }
}

static void vertical_many_c(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                            int bits, int16_t *line, size_t n)
{
    int down = bits - RESAMPLE_LINE_BITS;

    for (size_t i = 0; i < n; i++) {
        int32_t sum = (int32_t)1 << (down - 1);
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += (int32_t)rows[tap][i] * (int32_t)weights[tap];
        }
        line[i] = (int16_t)(sum >> down);
    }
}

static void horizontal_c(const int16_t *line, const struct resample_axis *axis, uint8_t *out)
{
    int down = axis->bits + RESAMPLE_LINE_BITS;
    int32_t half = (int32_t)1 << (down - 1);

    for (uint32_t x = 0; x < axis->count; x++) {
        const int16_t *from = line + (size_t)(axis->start[x] - axis->low) * 3;
        const uint16_t *weights = axis->weights + (size_t)x * axis->stride;
        int32_t red = half, green = half, blue = half;
        for (uint32_t tap = 0; tap < axis->taps[x]; tap++) {
            int32_t weight = weights[tap];
            red += from[3 * tap] * weight;
            green += from[3 * tap + 1] * weight;
            blue += from[3 * tap + 2] * weight;
        }
        out[3 * x] = (uint8_t)(red >> down);
        out[3 * x + 1] = (uint8_t)(green >> down);
        out[3 * x + 2] = (uint8_t)(blue >> down);
    }
}

const struct resample_kernels resample_kernels_c = {
    .name = "c",
    .vertical_few = vertical_few_c,
    .vertical_many = vertical_many_c,
    .horizontal = horizontal_c,
};
