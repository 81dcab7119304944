/*
 * What the files of the image module share: the decoder's state, the header that a probe fills, and
 * the sink into which every decoder puts its rows. Internal to loader/.
 */
#ifndef PINLINE_LOADER_IMAGE_INTERNAL_H
#define PINLINE_LOADER_IMAGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "loader/image.h"
#include "loader/resample.h"

/* Bytes in hand. */
struct image_bytes {
    const uint8_t *data;
    size_t count;
};

static inline uint32_t image__be16(const uint8_t *p)
{
    return (uint32_t)p[0] << 8 | p[1];
}
static inline uint32_t image__be32(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}
/* Returns what lies behind the four bytes. */
static inline uint8_t *image__put_be32(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 24);
    to[1] = (uint8_t)(value >> 16);
    to[2] = (uint8_t)(value >> 8);
    to[3] = (uint8_t)value;
    return to + 4;
}
static inline uint32_t image__le16(const uint8_t *p)
{
    return (uint32_t)p[1] << 8 | p[0];
}
static inline uint32_t image__le32(const uint8_t *p)
{
    return (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 | (uint32_t)p[1] << 8 | p[0];
}

/* The facts, and what only the decoders want to know. */
struct image_header {
    struct image_facts facts;
    uint32_t width, height; /* as stored, before the turn by EXIF */
    size_t body;            /* offset of the first scan or of the samples; PNG, GIF: unused */
    int adobe_transform;    /* JPEG: of the Adobe marker, -1 without one */
    bool tables_missing;    /* JPEG: a quantisation table is not there before the first scan */
    uint32_t maximum;       /* PNM: the largest sample */
    int variant;            /* PNM: the digit of its magic */
};

/* Memory that only grows. */
struct image_buffer {
    uint8_t *bytes;
    size_t capacity;
};
/* Checks every field. STATUS_USAGE, STATUS_UNSUPPORTED. */
enum status image__check_settings(const struct image_settings *settings) MUST_USE;

/* STATUS_NO_MEMORY naming the bytes. Contents are lost when it grows. */
enum status image__buffer_reserve(struct image_buffer *buffer, size_t bytes) MUST_USE;

/*
 * Takes the rows of one picture in order. A decoder calls begin with the size of the picture that
 * it will deliver, then may look at left .. bottom to learn what is wanted, calls layout with the
 * columns that its rows will hold, and then row and done (or take) for every row from top to
 * bottom - 1 at least; rows above and below are accepted and ignored. Up to RESAMPLE_AHEAD rows may
 * be asked for at a time.
 */
struct image_sink {
    struct resample *resample; /* NULL: whole rows into `whole` */
    const struct image_view *view;
    const struct image_output *output;
    uint8_t *whole;
    size_t whole_stride;
    uint32_t left, right, top, bottom;
};

/* width x height stand for a source 1 << shift times as large. STATUS_NO_MEMORY. */
enum status image__sink_begin(struct image_sink *sink, uint32_t width, uint32_t height,
                              int shift) MUST_USE;
enum status image__sink_layout(struct image_sink *sink, uint32_t origin,
                               uint32_t row_pixels) MUST_USE;
uint8_t *image__sink_row(struct image_sink *sink, uint32_t y);
void image__sink_done(struct image_sink *sink, uint32_t y);

struct image_png;  /* decode_png.c */
struct image_jpeg; /* decode_jpeg.c */

struct image_decoder {
    struct image_settings settings;
    struct image_header header; /* of the file in hand */
    struct resample resample;
    struct image_buffer pixels; /* of an interlaced PNG, which has no rows in order */
    struct image_buffer whole;  /* a whole picture, before it is turned */
    struct image_buffer turned; /* the same, turned as Exif says */
    struct image_buffer file;   /* a file as stb_image shall see it */
    struct image_png *png;      /* made when the first PNG comes */
    struct image_jpeg *jpeg;
};

/* Gives back what only a huge picture needed. */
void image__trim(struct image_decoder *decoder);

/* --- sniff.c: kinds by content --------------------------------------------------------------- */

/* The kind that is read, or IMAGE_UNKNOWN. */
enum image_kind image__sniff(struct image_bytes file);
/* Fails with a message that says what the data are instead: STATUS_INVALID for an empty file and
 * for what is no image at all, STATUS_UNSUPPORTED for other kinds of images. */
enum status image__fail_unknown(struct image_bytes file) MUST_USE;

/* --- image_*.c: headers ---------------------------------------------------------------------- */

/* Each fills *header from the file of its kind; they leave limits to the caller. STATUS_INVALID,
 * STATUS_UNSUPPORTED. */
enum status image__probe_png(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_jpeg(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_bmp(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_gif(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_tga(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_psd(struct image_bytes file, struct image_header *header) MUST_USE;
enum status image__probe_pnm(struct image_bytes file, struct image_header *header) MUST_USE;

/* Whether the bytes look like a TGA header, which has no magic number. */
bool image__looks_like_tga(struct image_bytes file);

/* The orientation (1 to 8) in a TIFF structure as Exif holds it; 1 when absent or senseless. */
int image__exif_orientation(struct image_bytes tiff);
/* Whether an orientation exchanges width and height. */
static inline bool image__orientation_transposes(int orientation)
{
    return orientation >= 5;
}
/* Turns width x height RGB pixels upright; `to` holds as many bytes. */
void image__orient(const uint8_t *from, uint32_t width, uint32_t height, int orientation,
                   uint8_t *to);

/* Recognises, checks limits and header; fills decoder->header and *library (NONE for PNM). */
enum status image__probe(struct image_decoder *decoder, struct image_bytes file,
                         enum image_library *library) MUST_USE;

#define PNG_SIGNATURE_BYTES 8
#define PNG_CHUNK_OVERHEAD 12 /* length, type, CRC */

/* Checks structure and CRC of every chunk up to IEND. With `copy`, also writes a file of IHDR, PLTE
 * (with all 256 entries), IDAT and IEND alone into it, its length into *copied. */
enum status image__check_png(struct image_bytes file, struct image_buffer *copy,
                             size_t *copied) MUST_USE;
/* --- image_png_stored.c: PNG data inflated beforehand ----------------------------------------- */

struct libdeflate_decompressor;
/*
 * The same PNG, which image__check_png passed, with its data uncompressed, in *copy, which *stored
 * points into. libpng has zlib
 * inflate row by row; libdeflate does all of it at once, several times as fast. Checksum and length of
 * the compressed stream are checked here; the result has a wrong CRC. stored->data is NULL, without a
 * failure, where `inflater` is NULL, the picture is interlaced or large, or the stream is not as
 * it should be: the file itself is to be decoded, by which it is found what is wrong. STATUS_NO_MEMORY.
 */
enum status image__store_png(struct image_bytes file, const struct image_header *header,
                             struct libdeflate_decompressor *inflater, struct image_buffer *copy,
                             struct image_bytes *stored) MUST_USE;
/* NULL where the build lacks it or there is no memory; closing accepts NULL. */
struct libdeflate_decompressor *image__open_inflater(void);
void image__close_inflater(struct libdeflate_decompressor *inflater);
/* CRC-32 as PNG has it. */
uint32_t image__png_crc(const uint8_t *bytes, size_t count);
const char *image__deflate_version(void);

/* Whether an end-of-image marker follows at or after `from`. */
bool image__jpeg_ends(struct image_bytes file, size_t from);
/* How many scans begin at or after `from`, counted up to `most`. */
int image__jpeg_scans(struct image_bytes file, size_t from, int most);

/*
 * What stb_image shall see of a file: the same samples in the plainest container of that kind, so
 * that nothing it is careless about reaches it. *plain points into `buffer` or is the file itself.
 * STATUS_INVALID when rows are missing, STATUS_NO_MEMORY.
 */
enum status image__plain_bmp(struct image_bytes file, const struct image_header *header,
                             struct image_buffer *buffer, struct image_bytes *plain) MUST_USE;
enum status image__plain_tga(struct image_bytes file, const struct image_header *header,
                             struct image_bytes *plain) MUST_USE;
enum status image__plain_psd(struct image_bytes file, const struct image_header *header,
                             struct image_buffer *buffer, struct image_bytes *plain) MUST_USE;
/* The frame of a GIF alone, and where it lies on the picture, whose other pixels are `rest`. */
struct image_gif_frame {
    uint32_t x, y, width, height;
    uint8_t rest[3];
};
enum status image__plain_gif(struct image_bytes file, struct image_buffer *buffer,
                             struct image_bytes *plain, struct image_gif_frame *frame) MUST_USE;

/* --- decode_*.c: pixels ---------------------------------------------------------------------- */

/* Each puts the picture of decoder->header into *sink. STATUS_INVALID, STATUS_LIMIT,
 * STATUS_NO_MEMORY. */
enum status image__decode_png(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink) MUST_USE;
enum status image__decode_jpeg(struct image_decoder *decoder, struct image_bytes file,
                               struct image_sink *sink) MUST_USE;
enum status image__decode_stb(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink) MUST_USE;
enum status image__decode_pnm(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink) MUST_USE;

/* NULL inside is accepted. */
void image__png_close(struct image_png **png);
void image__jpeg_close(struct image_jpeg **jpeg);
size_t image__png_bytes(const struct image_png *png);

/* Versions as text; "" when the build lacks the library. */
const char *image__turbo_version(void);
const char *image__libpng_version(void);

#endif
