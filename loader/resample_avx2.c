/* The inner loops of resample.c for AVX2 with FMA: the same results, more values at a time. */
#include "loader/resample.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline
#define AVX2_FMA __attribute__((target("avx2,fma")))
#define AVX2_FMA_INLINE __attribute__((target("avx2,fma"), always_inline)) static inline

AVX2_INLINE __m256i load256(const void *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

AVX2_INLINE __m128i load128(const void *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

/* Bytes become the high halves of 16-bit words, so that the high half of a product with a 15-bit
 * weight has seven fractional bits. */
AVX2_INLINE void vertical_few_taps(const uint8_t *const *rows, const uint16_t *weights,
                                   uint32_t taps, int16_t *line, size_t blocks)
{
    const __m256i zero = _mm256_setzero_si256();
    const __m256i half = _mm256_set1_epi16((short)(taps / 2));
    __m256i weight[RESAMPLE_FEW_TAPS];

    for (uint32_t tap = 0; tap < taps; tap++) {
        weight[tap] = _mm256_set1_epi16((short)weights[tap]);
    }
    for (size_t block = 0; block < blocks; block++) {
        __m256i low = half, high = half;
        for (uint32_t tap = 0; tap < taps; tap++) {
            __m256i bytes = load256(rows[tap] + block * 32);
            low = _mm256_add_epi16(
                low, _mm256_mulhi_epu16(_mm256_unpacklo_epi8(zero, bytes), weight[tap]));
            high = _mm256_add_epi16(
                high, _mm256_mulhi_epu16(_mm256_unpackhi_epi8(zero, bytes), weight[tap]));
        }
        _mm256_storeu_si256((__m256i *)(line + block * 32),
                            _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(line + block * 32 + 16),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
}

static void finish_few(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                       int16_t *line, size_t from, size_t n)
{
    for (size_t i = from; i < n; i++) {
        uint32_t sum = taps / 2;
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += ((uint32_t)rows[tap][i] * weights[tap]) >> 8;
        }
        line[i] = (int16_t)sum;
    }
}

/* A loop for each number of taps keeps the weights in registers. */
AVX2 static void vertical_few_avx2(const uint8_t *const *rows, const uint16_t *weights,
                                   uint32_t taps, int16_t *line, size_t n)
{
    size_t blocks = n / 32;

    switch (taps) {
    case 1:
        vertical_few_taps(rows, weights, 1, line, blocks);
        break;
    case 2:
        vertical_few_taps(rows, weights, 2, line, blocks);
        break;
    case 3:
        vertical_few_taps(rows, weights, 3, line, blocks);
        break;
    case 4:
        vertical_few_taps(rows, weights, 4, line, blocks);
        break;
    case 5:
        vertical_few_taps(rows, weights, 5, line, blocks);
        break;
    case 6:
        vertical_few_taps(rows, weights, 6, line, blocks);
        break;
    case 7:
        vertical_few_taps(rows, weights, 7, line, blocks);
        break;
    default:
        vertical_few_taps(rows, weights, 8, line, blocks);
        break;
    }
    finish_few(rows, weights, taps, line, blocks * 32, n);
}

AVX2 static void vertical_many_avx2(const uint8_t *const *rows, const uint16_t *weights,
                                    uint32_t taps, int bits, int16_t *line, size_t n)
{
    const __m256i zero = _mm256_setzero_si256();
    int down = bits - RESAMPLE_LINE_BITS;
    const __m256i half = _mm256_set1_epi32((int)1 << (down - 1));
    const __m128i count = _mm_cvtsi32_si128(down);
    size_t blocks = n / 32;

    for (size_t block = 0; block < blocks; block++) {
        __m256i sum0 = half, sum1 = half, sum2 = half, sum3 = half;
        for (uint32_t tap = 0; tap < taps; tap += 2) {
            bool both = tap + 1 < taps;
            __m256i first = load256(rows[tap] + block * 32);
            __m256i second = both ? load256(rows[tap + 1] + block * 32) : zero;
            uint32_t pair = weights[tap] | (both ? (uint32_t)weights[tap + 1] << 16 : 0);
            __m256i weight = _mm256_set1_epi32((int)pair);
            __m256i low = _mm256_unpacklo_epi8(first, second);
            __m256i high = _mm256_unpackhi_epi8(first, second);
            sum0 =
                _mm256_add_epi32(sum0, _mm256_madd_epi16(_mm256_unpacklo_epi8(low, zero), weight));
            sum1 =
                _mm256_add_epi32(sum1, _mm256_madd_epi16(_mm256_unpackhi_epi8(low, zero), weight));
            sum2 =
                _mm256_add_epi32(sum2, _mm256_madd_epi16(_mm256_unpacklo_epi8(high, zero), weight));
            sum3 =
                _mm256_add_epi32(sum3, _mm256_madd_epi16(_mm256_unpackhi_epi8(high, zero), weight));
        }
        __m256i low =
            _mm256_packs_epi32(_mm256_sra_epi32(sum0, count), _mm256_sra_epi32(sum1, count));
        __m256i high =
            _mm256_packs_epi32(_mm256_sra_epi32(sum2, count), _mm256_sra_epi32(sum3, count));
        _mm256_storeu_si256((__m256i *)(line + block * 32),
                            _mm256_permute2x128_si256(low, high, 0x20));
        _mm256_storeu_si256((__m256i *)(line + block * 32 + 16),
                            _mm256_permute2x128_si256(low, high, 0x31));
    }
    for (size_t i = blocks * 32; i < n; i++) {
        int32_t sum = (int32_t)1 << (down - 1);
        for (uint32_t tap = 0; tap < taps; tap++) {
            sum += (int32_t)rows[tap][i] * (int32_t)weights[tap];
        }
        line[i] = (int16_t)(sum >> down);
    }
}

/* Two outputs, one a half: the pair of taps r0 g0 b0 r1 g1 b1 becomes r0 r1 g0 g1 b0 b1. */
AVX2_INLINE __m256i two_outputs(const int16_t *one, const int16_t *other, const int16_t *weights)
{
    const __m256i order = _mm256_setr_epi8(0, 1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1, 0,
                                           1, 6, 7, 2, 3, 8, 9, 4, 5, 10, 11, -1, -1, -1, -1);
    __m256i taps = _mm256_inserti128_si256(_mm256_castsi128_si256(load128(one)), load128(other), 1);

    return _mm256_madd_epi16(_mm256_shuffle_epi8(taps, order), load256(weights));
}

AVX2_INLINE void horizontal_steps(const int16_t *line, const struct resample_axis *axis,
                                  uint32_t steps, uint8_t *out)
{
    int down = axis->bits + RESAMPLE_LINE_BITS;
    const __m256i half = _mm256_set1_epi32((int)1 << (down - 1));
    const __m128i count = _mm_cvtsi32_si128(down);
    const __m256i squeeze =
        _mm256_setr_epi8(0, 1, 2, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 2, 4, 5, 6,
                         -1, -1, -1, -1, -1, -1, -1, -1, -1, -1);
    const int16_t *weights = axis->pairs;

    for (uint32_t x = 0; x + 4 <= axis->count; x += 4) {
        const int16_t *a = line + (size_t)(axis->start[x] - axis->low) * 3;
        const int16_t *b = line + (size_t)(axis->start[x + 1] - axis->low) * 3;
        const int16_t *c = line + (size_t)(axis->start[x + 2] - axis->low) * 3;
        const int16_t *d = line + (size_t)(axis->start[x + 3] - axis->low) * 3;
        __m256i ac = half, bd = half;
        for (uint32_t step = 0; step < steps; step++) {
            ac = _mm256_add_epi32(ac, two_outputs(a + step * 6, c + step * 6, weights));
            bd = _mm256_add_epi32(bd, two_outputs(b + step * 6, d + step * 6, weights + 16));
            weights += 32;
        }
        __m256i words =
            _mm256_packs_epi32(_mm256_sra_epi32(ac, count), _mm256_sra_epi32(bd, count));
        __m256i bytes = _mm256_shuffle_epi8(_mm256_packus_epi16(words, words), squeeze);
        uint64_t first = (uint64_t)_mm_cvtsi128_si64(_mm256_castsi256_si128(bytes));
        uint64_t second = (uint64_t)_mm_cvtsi128_si64(_mm256_extracti128_si256(bytes, 1));
        memcpy(out + (size_t)x * 3, &first, 6);
        memcpy(out + (size_t)x * 3 + 6, &second, 6);
    }
}

AVX2 static void horizontal_avx2(const int16_t *line, const struct resample_axis *axis,
                                 uint8_t *out)
{
    uint32_t steps = axis->stride / 2;

    switch (steps) {
    case 1:
        horizontal_steps(line, axis, 1, out);
        break;
    case 2:
        horizontal_steps(line, axis, 2, out);
        break;
    case 3:
        horizontal_steps(line, axis, 3, out);
        break;
    default:
        horizontal_steps(line, axis, steps, out);
        break;
    }
    uint32_t rest = axis->count & 3u;
    if (rest != 0) {
        struct resample_axis tail = *axis;
        uint32_t from = axis->count - rest;
        tail.count = rest;
        tail.start += from;
        tail.taps += from;
        tail.weights += (size_t)from * axis->stride;
        resample_kernels_c.horizontal(line, &tail, out + (size_t)from * 3);
    }
}

/* --- Towards the output ------------------------------------------------------------------------ */

#define LINE ((size_t)64)

/* Five pixels at a time. A load takes a byte of the pixel to the right and a store one of the pixel
 * to the right, so the first and the last pixels are moved one by one. */
AVX2 static void mirror_avx2(const uint8_t *from, uint32_t n, uint8_t *out)
{
    const __m128i order = _mm_setr_epi8(12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2, -1);
    uint32_t x = 0;

    if (n > 0) {
        memcpy(out, from + (size_t)(n - 1) * 3, 3);
        x = 1;
    }
    for (; x + 5 < n; x += 5) {
        __m128i pixels = load128(from + (size_t)(n - 5 - x) * 3);
        _mm_storeu_si128((__m128i *)(out + (size_t)x * 3), _mm_shuffle_epi8(pixels, order));
    }
    for (; x < n; x++) {
        memcpy(out + (size_t)x * 3, from + (size_t)(n - 1 - x) * 3, 3);
    }
}

/* Correctly rounded quotients without a division: the remainder of a first guess is exact, and with
 * the nearest reciprocal one correction is enough. Where that fails, for extreme divisors, the
 * comparison with the table tells. */
AVX2_FMA_INLINE __m256 divide(__m256 value, __m256 divisor, __m256 inverse)
{
    __m256 guess = _mm256_mul_ps(value, inverse);
    __m256 rest = _mm256_fnmadd_ps(guess, divisor, value);

    return _mm256_fmadd_ps(rest, inverse, guess);
}

AVX2_FMA_INLINE __m256 normalise_eight(const uint8_t *from, __m256 mean, __m256 std, __m256 inverse)
{
    const __m256 full = _mm256_set1_ps(255.0f);
    const __m256 full_inverse = _mm256_set1_ps(1.0f / 255.0f);
    __m256i bytes = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from));
    __m256 unit = divide(_mm256_cvtepi32_ps(bytes), full, full_inverse);

    return divide(_mm256_sub_ps(unit, mean), std, inverse);
}

AVX2_INLINE void put(float *to, __m256 value, bool streamed)
{
    if (streamed) {
        _mm256_stream_ps(to, value);
    } else {
        _mm256_storeu_ps(to, value);
    }
}

/* `vectors` times eight values, the first of channel `channel`. */
AVX2_FMA_INLINE void normalise_vectors(const struct resample_floats *floats, const uint8_t *from,
                                       size_t vectors, size_t channel, float *out, bool streamed)
{
    const float *means = floats->means + channel;
    const float *stds = floats->stds + channel;
    const float *inverses = floats->inverses + channel;
    __m256 mean[3], std[3], inverse[3];
    size_t v = 0;

    for (int i = 0; i < 3; i++) {
        mean[i] = _mm256_loadu_ps(means + 8 * i);
        std[i] = _mm256_loadu_ps(stds + 8 * i);
        inverse[i] = _mm256_loadu_ps(inverses + 8 * i);
    }
    for (; v + 3 <= vectors; v += 3) {
        for (size_t i = 0; i < 3; i++) {
            put(out + (v + i) * 8, normalise_eight(from + (v + i) * 8, mean[i], std[i], inverse[i]),
                streamed);
        }
    }
    for (size_t i = 0; v + i < vectors; i++) {
        put(out + (v + i) * 8, normalise_eight(from + (v + i) * 8, mean[i], std[i], inverse[i]),
            streamed);
    }
}

/* How many elements lie before the next cache line, at most n. */
static size_t before_line(const void *memory, size_t size, size_t n)
{
    size_t bytes = (size_t)(-(uintptr_t)memory) % LINE;

    return bytes / size < n ? bytes / size : n;
}

AVX2_FMA static void normalise_avx2(const struct resample_floats *floats, const uint8_t *from,
                                    size_t n, float *out, bool streamed)
{
    /* A line is written past the cache as a whole or not at all. */
    size_t head = streamed ? before_line(out, sizeof *out, n) : 0;
    size_t middle = streamed ? (n - head) / 16 * 16 : n / 8 * 8;

    for (size_t i = 0; i < head; i++) {
        out[i] = floats->table[i % 3][from[i]];
    }
    if (streamed) {
        normalise_vectors(floats, from + head, middle / 8, head % 3, out + head, true);
    } else {
        normalise_vectors(floats, from, middle / 8, 0, out, false);
    }
    for (size_t i = head + middle; i < n; i++) {
        out[i] = floats->table[i % 3][from[i]];
    }
}

AVX2 static void copy_avx2(const uint8_t *from, size_t n, uint8_t *out, bool streamed)
{
    if (!streamed) {
        memcpy(out, from, n);
        return;
    }
    size_t head = before_line(out, 1, n);
    size_t middle = (n - head) / LINE * LINE;
    memcpy(out, from, head);
    for (size_t i = head; i < head + middle; i += LINE) {
        __m256i low = load256(from + i), high = load256(from + i + 32);
        _mm256_stream_si256((__m256i *)(out + i), low);
        _mm256_stream_si256((__m256i *)(out + i + 32), high);
    }
    memcpy(out + head + middle, from + head + middle, n - head - middle);
}

static void fence_avx2(void)
{
    _mm_sfence();
}

static const struct resample_kernels kernels_avx2 = {
    .name = "avx2",
    .vertical_few = vertical_few_avx2,
    .vertical_many = vertical_many_avx2,
    .horizontal = horizontal_avx2,
    .mirror = mirror_avx2,
    .normalise = normalise_avx2,
    .copy = copy_avx2,
    .fence = fence_avx2,
};

const struct resample_kernels *resample_find_avx2(void)
{
    bool supported = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");

    return supported ? &kernels_avx2 : NULL;
}

#else

const struct resample_kernels *resample_find_avx2(void)
{
    return NULL;
}

#endif
