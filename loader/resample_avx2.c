/* The inner loops of resample.c for AVX2: the same integer arithmetic on more values at a time. */
#include "loader/resample.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <string.h>

#define AVX2 __attribute__((target("avx2")))
#define AVX2_INLINE __attribute__((target("avx2"), always_inline)) static inline

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

static const struct resample_kernels kernels_avx2 = {
    .name = "avx2",
    .vertical_few = vertical_few_avx2,
    .vertical_many = vertical_many_avx2,
    .horizontal = horizontal_avx2,
};

const struct resample_kernels *resample_find_avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &kernels_avx2 : NULL;
}

#else

const struct resample_kernels *resample_find_avx2(void)
{
    return NULL;
}

#endif
