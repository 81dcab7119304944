/* Filter tables of one axis: which source pixels an output pixel takes, and with which weights. */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "loader/resample.h"

void *resample__grow(void *memory, size_t *capacity, size_t need, size_t element)
{
    size_t bytes;

    need = need == 0 ? 1 : need;
    if (need <= *capacity) {
        return memory;
    }
    free(memory);
    *capacity = 0;
    if (!size_multiply(need, element, &bytes) || !size_add(bytes, RESAMPLE_SLACK + 63, &bytes)) {
        return NULL;
    }
    bytes &= ~(size_t)63;
    memory = aligned_alloc(64, bytes);
    if (memory != NULL) {
        /* What lies behind a row is loaded too, though multiplied by zero. */
        memset(memory, 0, bytes);
        *capacity = need;
    }
    return memory;
}

enum status resample__no_memory(size_t count)
{
    return FAIL(STATUS_NO_MEMORY, "no memory for %zu elements of a filter; use fewer workers",
                count);
}

void resample__axis_fini(struct resample_axis *axis)
{
    free(axis->start);
    free(axis->taps);
    free(axis->weights);
    free(axis->pairs);
    free(axis->scratch);
    memset(axis, 0, sizeof(*axis));
}

size_t resample__axis_bytes(const struct resample_axis *axis)
{
    return axis->entries_capacity * 2 * sizeof(uint32_t) +
           axis->weights_capacity * sizeof(uint16_t) + axis->pairs_capacity * sizeof(int16_t) +
           axis->scratch_capacity * sizeof(double);
}

int64_t resample__fill_position(int64_t position, uint32_t resize, enum image_fill fill)
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

/* Where a row can be copied, or mirrored, in one piece. */
static void find_run(struct resample_axis *axis)
{
    uint32_t first = 0;

    axis->run_first = axis->run_count = 0;
    axis->run_mirrored = false;
    while (first < axis->count) {
        if (axis->taps[first] != 1) {
            first++;
            continue;
        }
        uint32_t end = first + 1;
        uint32_t step = 1;
        while (end < axis->count && axis->taps[end] == 1) {
            uint32_t between = axis->start[end] - axis->start[end - 1];
            if (end == first + 1 && between == UINT32_MAX) {
                step = UINT32_MAX;
            }
            if (between != step) {
                break;
            }
            end++;
        }
        if (end - first > axis->run_count) {
            axis->run_first = first;
            axis->run_count = end - first;
            axis->run_mirrored = step != 1;
        }
        first = end;
    }
}

/*
 * Centre, support and rounding of the bounds are those of Pillow's ImagingResample, of which
 * torchvision's antialiased bilinear filter is a copy: a triangle of half-width max(scale, 1).
 */
enum status resample__build_axis(struct resample_axis *axis, const struct resample_key *key)
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
        size_t starts = axis->entries_capacity, taps = starts;
        axis->entries_capacity = 0;
        axis->start = resample__grow(axis->start, &starts, key->count, sizeof(*axis->start));
        axis->taps = resample__grow(axis->taps, &taps, key->count, sizeof(*axis->taps));
        if (axis->start == NULL || axis->taps == NULL) {
            return resample__no_memory(key->count);
        }
        axis->entries_capacity = key->count;
    }
    size_t all;
    if (!size_multiply(key->count, stride, &all)) {
        return resample__no_memory(key->count);
    }
    axis->scratch = resample__grow(axis->scratch, &axis->scratch_capacity, all, sizeof(double));
    if (axis->scratch == NULL) {
        return resample__no_memory(all);
    }
    axis->most_taps = 0;
    axis->identity = true;
    for (uint32_t i = 0; i < key->count; i++) {
        int64_t position = (int64_t)key->first + i;
        double *weights = axis->scratch + (size_t)i * stride;

        if (key->per_output) {
            position = (int64_t)key->window + (int64_t)(key->flip ? key->count - 1 - i : i);
            position = resample__fill_position(position, key->resize, key->fill);
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
    if (axis->identity) {
        find_run(axis);
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
    all = (size_t)key->count * axis->stride;
    axis->weights = resample__grow(axis->weights, &axis->weights_capacity, all, sizeof(uint16_t));
    if (axis->weights == NULL) {
        return resample__no_memory(all);
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
        axis->pairs = resample__grow(axis->pairs, &axis->pairs_capacity, all * 4, sizeof(int16_t));
        if (axis->pairs == NULL) {
            return resample__no_memory(all * 4);
        }
        expand_pairs(axis);
    }
    axis->key = *key;
    axis->built = true;
    return STATUS_OK;
}
