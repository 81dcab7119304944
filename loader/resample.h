/*
 * Antialiased triangle filter over rows of RGB bytes, in fixed point, rows in and rows out.
 *
 * The vertical pass comes first: it turns the source rows under the filter into one line with seven
 * fractional bits, the horizontal pass turns that line into one row of bytes. So an image costs two
 * multiplications a source byte whatever the ratio, and no image-sized intermediate exists. All
 * arithmetic up to bytes is integer, and floats are the entries of a table or computed to the same
 * bits: the versions in plain C and for AVX2 agree. A picture that is neither resized nor padded
 * goes from the caller's memory to the output in one pass.
 *
 * Internal to loader/. One struct resample belongs to one decoder and is used by one thread.
 */
#ifndef PINLINE_LOADER_RESAMPLE_H
#define PINLINE_LOADER_RESAMPLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "loader/image.h"

/* Fractional bits of the line between the passes: 255 << 7 still fits into int16_t. */
#define RESAMPLE_LINE_BITS 7
/* Up to so many taps the vertical pass may round each product to the line's precision. */
#define RESAMPLE_FEW_TAPS 8
/* Rows that a decoder may ask for before it says that the first of them is done. */
#define RESAMPLE_AHEAD 4
/* Three vectors of floats, beginning at any channel. */
#define RESAMPLE_PERIOD 26
/* Bytes that follow every row and line of our own, so that vector loads need no special end. */
#define RESAMPLE_SLACK 64

/* What an axis was built for; equal keys mean equal tables. */
struct resample_key {
    double box_start, box_end;     /* crop box, in pixels of the decoded picture */
    uint32_t size;                 /* pixels of the decoded picture along the axis */
    uint32_t resize, first, count; /* positions first .. first + count - 1 of `resize` */
    bool per_output;               /* horizontal: an entry an output pixel, fill and flip in it */
    int32_t window;
    enum image_fill fill;
    bool flip;
};

/*
 * Filter tables of one axis. Entry i reads source pixels start[i] .. start[i] + taps[i] - 1 with
 * weights[i * stride ..]; weights beyond taps[i] are zero and their sum is 1 << bits, or 0 for a
 * position that shows nothing (taps 0).
 */
struct resample_axis {
    struct resample_key key;
    bool built;
    bool straight; /* entry i is pixel low + i, no more */
    bool identity; /* every entry is one pixel with weight one, or nothing */
    /* Identity alone: the longest stretch of entries that are neighbouring pixels, from left to right
     * or, mirrored, from right to left. */
    uint32_t run_first, run_count;
    bool run_mirrored;
    bool few; /* vertical: at most RESAMPLE_FEW_TAPS taps, 15 bits, for vertical_few */
    uint32_t count;
    uint32_t stride; /* weights an entry: the most taps, rounded up to even */
    int bits;
    uint32_t low, high; /* source pixels that are read: low .. high - 1 */
    uint32_t most_taps;
    uint32_t *start;
    uint32_t *taps;
    uint16_t *weights; /* below 1 << 15, or 1 << 15 itself where bits is 15 */
    int16_t *pairs;    /* horizontal only: weights as the AVX2 version loads them */
    size_t entries_capacity, weights_capacity, pairs_capacity;
    double *scratch;
    size_t scratch_capacity;
};

/* Memory for `need` elements, 64-byte aligned and followed by slack, in place of `memory`, which
 * holds *capacity: it only grows, and contents are lost when it does. NULL when there is none. */
void *resample__grow(void *memory, size_t *capacity, size_t need, size_t element) MUST_USE;
/* STATUS_NO_MEMORY. */
enum status resample__no_memory(size_t count) MUST_USE;

/* The position of the resized picture that is seen at `position`, or -1 for nothing. */
int64_t resample__fill_position(int64_t position, uint32_t resize, enum image_fill fill);
/* Fills *axis for *key, unless it is already. STATUS_NO_MEMORY. */
enum status resample__build_axis(struct resample_axis *axis,
                                 const struct resample_key *key) MUST_USE;
void resample__axis_fini(struct resample_axis *axis);
size_t resample__axis_bytes(const struct resample_axis *axis);

/*
 * How bytes become floats: byte b of channel c becomes table[c][b]. The rest is for versions that
 * compute instead of looking up: `computed` tells that all 768 results were compared and are equal.
 */
struct resample_floats {
    bool built, computed;
    const struct resample_kernels *kernels; /* for which `computed` holds */
    float mean[3], std[3];
    float table[3][256];
    /* Element i is that of channel i % 3. */
    float means[RESAMPLE_PERIOD], stds[RESAMPLE_PERIOD], inverses[RESAMPLE_PERIOD];
};

/* The inner loops. `rows`: taps pointers to n bytes; `line`: n values. See
 * resample_plain.c for what they compute. */
struct resample_kernels {
    const char *name;
    void (*vertical_few)(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                         int16_t *line, size_t n);
    void (*vertical_many)(const uint8_t *const *rows, const uint16_t *weights, uint32_t taps,
                          int bits, int16_t *line, size_t n);
    /* line[0] is the red of source pixel `axis->low`. Writes 3 * axis->count bytes. */
    void (*horizontal)(const int16_t *line, const struct resample_axis *axis, uint8_t *out);
    /* Pixel x of `out` is pixel n - 1 - x of `from`. */
    void (*mirror)(const uint8_t *from, uint32_t n, uint8_t *out);
    /* n bytes, the first of them red, become n floats, or are copied. `streamed`: past the cache as
     * far as whole cache lines go; `fence` orders what was so written before what follows. */
    void (*normalise)(const struct resample_floats *floats, const uint8_t *from, size_t n,
                      float *out, bool streamed);
    void (*copy)(const uint8_t *from, size_t n, uint8_t *out, bool streamed);
    void (*fence)(void);
};
extern const struct resample_kernels resample_kernels_c;
/* NULL when this CPU or this build has none. */
const struct resample_kernels *resample_find_avx2(void);

struct resample {
    const struct resample_kernels *kernels;
    struct resample_axis horizontal, vertical;

    /* The job in hand. */
    struct image_view view;
    struct image_output output;
    uint32_t left, right, top, bottom; /* wanted part of the decoded picture */
    uint32_t origin, row_pixels;       /* columns that the decoder delivers */
    uint32_t next;                     /* next entry of the vertical axis */

    uint8_t *ring; /* ring_rows rows of ring_stride bytes */
    const uint8_t **rows;
    const uint8_t **window;
    size_t ring_rows; /* a power of two, at least RESAMPLE_AHEAD more than the filter needs */
    size_t ring_stride, ring_capacity, rows_capacity;
    bool direct; /* rows are output rows as they come: the decoder writes them there */
    int16_t *line;
    size_t line_capacity;
    uint8_t *narrow; /* one output row as bytes, before it becomes floats */
    size_t narrow_capacity;

    struct resample_floats floats;
};

void resample_init(struct resample *resample);
void resample_fini(struct resample *resample);
size_t resample_bytes(const struct resample *resample);

/*
 * Starts a picture of width x height that stands for a source 1 << shift times as large, of which
 * *view (in source pixels) is wanted. Sets left, right, top, bottom. STATUS_NO_MEMORY.
 */
enum status resample_begin(struct resample *resample, const struct image_view *view,
                           const struct image_output *output, uint32_t width, uint32_t height,
                           int shift) MUST_USE;

/* Delivered rows will hold columns origin .. origin + row_pixels - 1, left .. right - 1 among them.
 * STATUS_NO_MEMORY. */
enum status resample_layout(struct resample *resample, uint32_t origin,
                            uint32_t row_pixels) MUST_USE;

/* Where row y goes: 3 * row_pixels bytes. Up to RESAMPLE_AHEAD rows may be asked for at a time. */
uint8_t *resample_row(struct resample *resample, uint32_t y);
/* Row y lies there now. Rows come in order; those outside top .. bottom-1 are ignored. */
void resample_done(struct resample *resample, uint32_t y);
/* Row y lies at `pixels` and stays there until the picture is finished; no bytes follow it. */
void resample_take(struct resample *resample, uint32_t y, const uint8_t *pixels);
/* All rows lie at `pixels`, row 0 first, one after the other: in place of resample_take for each. */
void resample_take_all(struct resample *resample, const uint8_t *pixels);
/* Writes the rows that show nothing. After the last row that was wanted. */
void resample_finish(struct resample *resample);
/* Orders what was written before whatever this thread writes next. After a picture, finished or
 * not, before another thread is told of it. */
void resample_publish(const struct resample *resample);

#endif
