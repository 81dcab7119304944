/*
 * Image files of each kind, made from numbers, with the pixels that they must decode to. All but
 * JPEG are written by hand, so nothing of the decoders under test goes into what is expected.
 * Failures of memory end the test.
 */
#ifndef PINLINE_TESTS_SUPPORT_MAKE_IMAGES_H
#define PINLINE_TESTS_SUPPORT_MAKE_IMAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file, and what it must become. Freed by made_image_free. */
struct made_image {
    uint8_t *bytes;
    size_t count;
    uint8_t *rgb; /* uint8_t [height][width][3]; NULL for JPEG, whose pixels are not exact */
    uint32_t width, height;
};
void made_image_free(struct made_image *image);

/* The value in 0 .. maximum at a place: looks random, the same everywhere. */
uint32_t made_sample(uint32_t x, uint32_t y, uint32_t channel, uint32_t maximum);
/* The same, but smooth over the picture, 0 .. 255, as JPEG wants it. */
uint8_t made_smooth(uint32_t x, uint32_t y, uint32_t channel);

/* --- PNG ----------------------------------------------------------------------------------- */

struct made_png {
    uint32_t width, height;
    int colour; /* 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha */
    int depth;  /* 1, 2, 4, 8, 16 */
    bool interlaced;
    bool transparency; /* a tRNS chunk; for palettes half of the entries are transparent */
    bool animated;     /* APNG of two frames, the first of which is the picture */
    bool apple;        /* a CgBI chunk in front, as iOS tools leave it */
    bool profile;      /* broken iCCP, gAMA, cHRM, bKGD, tIME: to be ignored */
    int orientation;   /* an eXIf chunk; 0 for none */
    size_t text_bytes; /* zTXt and iTXt that inflate to so much */
    size_t split;      /* bytes of each IDAT; 0 for one IDAT */
    uint32_t claim_width, claim_height; /* what the header says instead, if not 0 */
};
struct made_image make_png(const struct made_png *png);

/* The offset of the first chunk of that type (of its length field), 0 when there is none. */
size_t made_png_chunk(const struct made_image *image, const char *type);

/* --- JPEG ---------------------------------------------------------------------------------- */

enum made_jpeg_colour {
    MADE_JPEG_YCBCR,
    MADE_JPEG_GREY,
    MADE_JPEG_RGB,      /* Adobe's marker says: no transform */
    MADE_JPEG_CMYK,     /* inverted, with Adobe's marker */
    MADE_JPEG_YCCK,     /* the same, transformed */
    MADE_JPEG_BARE_CMYK /* inverted, without the marker */
};

struct made_jpeg {
    uint32_t width, height;
    enum made_jpeg_colour colour;
    int across, down; /* luma sampling factors: 2 2, 2 1, 1 1, 1 2, 4 1; 0 for 2 2 */
    bool progressive, arithmetic;
    int restart;     /* MCUs between restart markers, 0 for none */
    int quality;     /* 0 for 90 */
    int orientation; /* Exif, 0 for none */
    bool big_endian; /* byte order of Exif */
    bool flat;       /* one colour all over: made_smooth(0, 0, channel) */
    bool thumbnail;  /* an Exif thumbnail with end marker of its own */
};
/* Whether libjpeg was there to write with, and whether it can write arithmetic coding. Without it
 * the functions below must not be called. */
bool made_jpeg_available(void);
bool made_jpeg_arithmetic_available(void);
/* Whether this libjpeg can leave out a part of what it upsamples and converts in one pass. */
bool made_jpeg_merged_available(void);
struct made_image make_jpeg(const struct made_jpeg *jpeg);
/* The plainest decoder that libjpeg allows, for comparison: RGB, or CMYK as stored for four
 * components. Returns width * height * components bytes (malloc). */
uint8_t *made_jpeg_reference(const struct made_image *image, int *components);
/* The same at 1/2^shift of its size, rounded up, and with chroma repeated instead of interpolated. */
uint8_t *made_jpeg_reference_as(const struct made_image *image, int shift, bool plain_chroma,
                                int *components);
/* The offset of the first marker of that kind (of its 0xff), 0 when there is none. */
size_t made_jpeg_marker(const struct made_image *image, int marker);

/* --- Others -------------------------------------------------------------------------------- */

struct made_bmp {
    uint32_t width, height;
    int bits; /* 1, 4, 8, 16, 24, 32 */
    bool top_down;
    bool core;       /* OS/2's header of 12 bytes; not with 16 or 32 bits */
    bool masks;      /* 16 bits: 5 6 5; 32 bits: green, red, blue in unusual places */
    int colours;     /* palette entries stored, 0 for all; pixels stay below it */
    int compression; /* written into the header instead, if not 0 */
};
struct made_image make_bmp(const struct made_bmp *bmp);

struct made_gif {
    uint32_t width, height;                   /* of the picture */
    uint32_t x, y, frame_width, frame_height; /* of the frame; 0 0 0 0 for all of it */
    bool interlaced;
    bool local;      /* a local palette */
    int transparent; /* an index, -1 for none: it shows its colour all the same */
    bool animated;   /* a second frame follows */
};
struct made_image make_gif(const struct made_gif *gif);

struct made_tga {
    uint32_t width, height;
    int bits; /* 8 grey, 15, 16, 24, 32; 8 with `mapped` */
    bool mapped, packed, top_down;
};
struct made_image make_tga(const struct made_tga *tga);

/* RGB of 8 bits with `channels` channels, 3 to 5. */
struct made_image make_psd(uint32_t width, uint32_t height, int channels, bool packed);

/* P1 to P6, samples up to `maximum` (1 for P1 and P4). */
struct made_image make_pnm(uint32_t width, uint32_t height, int variant, uint32_t maximum);

/* The file compressed as gzip. */
struct made_image make_gzip(const struct made_image *inside);

#endif
