/* The inner loops of resample.c in plain C. */
#include <assert.h>
#include <string.h>

#include "loader/resample.h"

/* Blocks of a fixed length let compilers vectorise the loops over them at any level. */
#define BLOCK 32

/* Each product is cut to the line's seven fractional bits; half a unit a tap makes up for the mean
 * of what is cut. With eight taps the error stays below 4 / 128 of a level. */
static void vertical_few_c(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                           int16_t *line, size_t n)
{
    size_t at = 0;

    for (; at + BLOCK <= n; at += BLOCK) {
        uint16_t sums[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            sums[i] = (uint16_t)(taps / 2);
        }
        for (uint32_t tap = 0; tap < taps; tap++) {
            const uint8_t *row = rows[tap] + at;
            uint32_t weight = weights[tap];
            for (int i = 0; i < BLOCK; i++) {
                sums[i] = (uint16_t)(sums[i] + (row[i] * weight >> 8));
            }
        }
        memcpy(line + at, sums, sizeof(sums));
    }
    for (; at < n; at++) {
        uint32_t sum = taps / 2;
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += (uint32_t)rows[tap][at] * weights[tap] >> 8;
        }
        line[at] = (int16_t)sum;
    }
}

static void vertical_many_c(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                            int bits, int16_t *line, size_t n)
{
    int down = bits - RESAMPLE_LINE_BITS;
    int32_t half = (int32_t)1 << (down - 1);
    size_t at = 0;

    for (; at + BLOCK <= n; at += BLOCK) {
        int32_t sums[BLOCK];
        for (int i = 0; i < BLOCK; i++) {
            sums[i] = half;
        }
        for (uint32_t tap = 0; tap < taps; tap++) {
            const uint8_t *row = rows[tap] + at;
            int32_t weight = weights[tap];
            for (int i = 0; i < BLOCK; i++) {
                sums[i] += row[i] * weight;
            }
        }
        for (int i = 0; i < BLOCK; i++) {
            line[at + (size_t)i] = (int16_t)(sums[i] >> down);
        }
    }
    for (; at < n; at++) {
        int32_t sum = half;
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += (int32_t)rows[tap][at] * (int32_t)weights[tap];
        }
        line[at] = (int16_t)(sum >> down);
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

static void mirror_c(const uint8_t *from, uint32_t n, uint8_t *out)
{
    const uint8_t *last = from + (size_t)(n - 1) * 3;

    for (size_t x = 0; x < n; x++) {
        out[3 * x] = last[0];
        out[3 * x + 1] = last[1];
        out[3 * x + 2] = last[2];
        last -= 3;
    }
}

static void normalise_c(const struct resample_floats *floats, const uint8_t *from, size_t n,
                        float *out, bool streamed)
{
    (void)streamed;
    assert(n % 3 == 0);
    for (size_t i = 0; i < n; i += 3) {
        out[i] = floats->table[0][from[i]];
        out[i + 1] = floats->table[1][from[i + 1]];
        out[i + 2] = floats->table[2][from[i + 2]];
    }
}

static void copy_c(const uint8_t *from, size_t n, uint8_t *out, bool streamed)
{
    (void)streamed;
    memcpy(out, from, n);
}

/* Nothing passes the cache. */
static void fence_c(void)
{
}

const struct resample_kernels resample_kernels_c = {
    .name = "c",
    .vertical_few = vertical_few_c,
    .vertical_many = vertical_many_c,
    .horizontal = horizontal_c,
    .mirror = mirror_c,
    .normalise = normalise_c,
    .copy = copy_c,
    .fence = fence_c,
};
