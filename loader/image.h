/*
 * From the bytes of one file to the pixels in the slot: what a file is, how much of it is wanted,
 * and one call that decodes, crops, resizes, flips and converts it into the caller's memory.
 *
 * What is read: PNG (libpng, or stb_image for 8 bits and less), JPEG (libjpeg-turbo, or stb_image),
 * BMP, GIF (first frame), TGA, PSD (stb_image), PBM, PGM and PPM (a reader of this program). The
 * kind is told from the content, never from a name. What is known but not read (WebP, TIFF, HEIF
 * and others) is refused by its name.
 *
 * Pixels are what Pillow's convert("RGB") gives: palettes and 1, 2 and 4 bits expanded, grey
 * repeated, alpha and transparency dropped without blending, gamma and colour profiles ignored,
 * CMYK and YCCK JPEG converted under Adobe's inverted convention. 16 bits become 8 by their high
 * byte, grey too, which Pillow would clip to white.
 *
 * A file is good when all of its rows are there. A JPEG or PNG that ends early, a PNG chunk with a
 * wrong CRC and scan data that the decoder itself finds damaged are STATUS_INVALID; bytes that
 * follow the image or stand between JPEG markers are not a fault. Changed bits inside a JPEG scan
 * that still decode cannot be noticed by any decoder.
 *
 * Messages say what is wrong with the data; the caller puts the path in front (status_prefix).
 */
#ifndef PINLINE_LOADER_IMAGE_H
#define PINLINE_LOADER_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* --- Settings ------------------------------------------------------------------------------ */

enum image_library {
    IMAGE_LIBRARY_NONE = 0, /* ends a list */
    IMAGE_LIBRARY_TURBO,    /* libjpeg-turbo: JPEG */
    IMAGE_LIBRARY_LIBPNG,   /* libpng: PNG */
    IMAGE_LIBRARY_STB       /* stb_image: JPEG, PNG up to 8 bits, BMP, GIF, TGA, PSD */
};
#define IMAGE_LIBRARIES 3

/* Plain data; start from image_settings_defaults. Checked by image_decoder_open. */
struct image_settings {
    /* Order of preference, closed by IMAGE_LIBRARY_NONE where shorter: a file goes to the first
     * library that can read its kind. One that is left out is never called. PNM needs none of them.
     * Default turbo, libpng, stb (without turbo in a build that has no libjpeg-turbo). */
    enum image_library libraries[IMAGE_LIBRARIES];
    uint64_t max_pixels;     /* width times height, >= 1; default 178,956,970 (Pillow's limit) */
    uint32_t max_dimension;  /* width and height, each, 1 to 16,777,216; default 1,000,000 */
    uint64_t max_file_bytes; /* of one file, >= 1; default 536,870,912 */
    bool exif_orientation; /* turn the image as its EXIF tag says; default false, as torchvision */
    bool exact_decode;     /* JPEG at full scale and with smooth chroma whatever the target; default
                              * false: at 1/2, 1/4 or 1/8 where that still covers the target, and
                              * with chroma repeated, not interpolated, where the picture is 5/4 of
                              * the target or more in both directions */
};

void image_settings_defaults(struct image_settings *settings);

/*
 * Sets `libraries` from a list such as "turbo,libpng,stb" (no spaces, none twice, not empty).
 * STATUS_USAGE naming the word; STATUS_UNSUPPORTED for a library that this build lacks. *settings
 * is unchanged on failure.
 */
enum status image_settings_parse_libraries(struct image_settings *settings,
                                           const char *text) MUST_USE;

/* The list in that form, cut to `bytes`; returns `text`. 24 bytes are always enough. */
char *image_settings_libraries_text(const struct image_settings *settings, char *text,
                                    size_t bytes);

/* Names and versions of the libraries in this build, "libjpeg-turbo 2.1.5, libpng 1.6.39, stb_image"
 * (which does not tell its version), for doctor and run logs. Cut to `bytes`; returns `text`. */
char *image_libraries_versions(char *text, size_t bytes);

/* The instruction set that resampling uses on this machine: "avx2" or "c". */
const char *image_resample_target(void);

/* --- What a file is ------------------------------------------------------------------------ */

enum image_kind {
    IMAGE_UNKNOWN = 0,
    IMAGE_PNG,
    IMAGE_JPEG,
    IMAGE_BMP,
    IMAGE_GIF,
    IMAGE_TGA,
    IMAGE_PSD,
    IMAGE_PNM
};

/* "PNG", "JPEG", ...; "unknown" for IMAGE_UNKNOWN. Never NULL. */
const char *image_kind_name(enum image_kind kind);

enum image_colour {
    IMAGE_COLOUR_GREY,
    IMAGE_COLOUR_RGB,
    IMAGE_COLOUR_PALETTE,
    IMAGE_COLOUR_YCBCR,
    IMAGE_COLOUR_CMYK,
    IMAGE_COLOUR_YCCK
};

/* What the header tells. Nothing is decoded for it. */
struct image_facts {
    enum image_kind kind;
    uint32_t width, height; /* >= 1, of the picture as rendered: after the turn by EXIF, if on */
    int channels;           /* in the file, alpha included: 1 to 4; a palette counts as 1 */
    int bits;               /* a channel, or an index of the palette: 1 to 16 */
    enum image_colour colour;
    bool alpha;       /* an alpha channel or a transparent colour, which will be dropped */
    bool interlaced;  /* PNG, GIF */
    bool progressive; /* JPEG */
    bool arithmetic;  /* JPEG */
    bool animated;    /* APNG: only the default image is read */
    int orientation;  /* EXIF, 1 to 8; 1 when absent or senseless */
};

/* --- Which part goes where ----------------------------------------------------------------- */

enum image_fill {
    IMAGE_FILL_ZERO,   /* black: 0 before normalisation */
    IMAGE_FILL_REFLECT /* mirrored without repeating the edge, as in torchvision */
};

/*
 * The crop box of the source is resized to resize_width x resize_height, of which the output shows
 * the window of width x height at (window_x, window_y); where the window lies outside of the
 * resized picture, `fill` says what is seen. Then it is mirrored if `flip`. Only window pixels are
 * computed, and only source rows that they need are decoded where the format allows it. As in torchvision's
 * crop followed by resize, the filter never sees pixels outside the crop box.
 */
struct image_view {
    uint32_t crop_x, crop_y, crop_width, crop_height; /* inside the source, sizes >= 1 */
    uint32_t resize_width, resize_height;             /* 1 to 16,384 */
    int32_t window_x, window_y;
    uint32_t width, height; /* of the output, 1 to 16,384 */
    enum image_fill fill;   /* REFLECT reaches at most resize - 1 pixels beyond an edge */
    bool flip;              /* left and right change places, last of all */
};

/* The whole image squashed to size x size. */
void image_view_whole(uint32_t width, uint32_t height, uint32_t size, struct image_view *view);

/* --- Decoding ------------------------------------------------------------------------------ */

/*
 * One decoder a worker: the libraries' objects, scratch memory that only grows to what its images
 * need, and cached filter tables. Used by one thread at a time. Nothing is shared between decoders.
 */
typedef struct image_decoder image_decoder;

/* Copies *settings. STATUS_USAGE naming the field; STATUS_UNSUPPORTED for a library that the build
 * lacks; STATUS_NO_MEMORY. *out is NULL on failure. */
enum status image_decoder_open(const struct image_settings *settings, image_decoder **out) MUST_USE;

/* Frees everything; *decoder becomes NULL. Accepts NULL inside. */
void image_decoder_close(image_decoder **decoder);

/* Bytes of scratch memory held now (the libraries' own objects excluded), for memory accounting. */
size_t image_decoder_bytes(const image_decoder *decoder);

/*
 * Tells what `bytes` bytes at `data` are, from their header alone; applies the limits. A file that
 * passes may still be cut or damaged further on.
 * STATUS_INVALID (empty, cut within the header, broken header), STATUS_UNSUPPORTED (a known kind,
 * or a variant of PNG or JPEG, that is not read; the message names it), STATUS_LIMIT.
 */
enum status image_probe(image_decoder *decoder, const void *data, size_t bytes,
                        struct image_facts *facts) MUST_USE;

/* Where the pixels go, and as what. Rows without padding, R G B next to each other (HWC). */
enum image_format {
    IMAGE_U8, /* uint8_t [height][width][3] */
    IMAGE_F32 /* float [height][width][3], (x / 255 - mean[c]) / std[c] */
};
struct image_output {
    enum image_format format;
    void *pixels;  /* the caller's; IMAGE_F32 needs the alignment of float. Undefined on failure */
    float mean[3]; /* IMAGE_F32 alone, in units of 0 .. 1 */
    float std[3];  /* > 0 */
    /* A wish: write past the cache where that is possible, for memory that nobody reads soon. The
     * bytes are the same, and they are in memory for every thread that learns of them afterwards. */
    bool streamed;
};

/*
 * Decodes and renders a file by `view`, whose crop box must lie inside the image (draw it for the
 * facts of image_probe), otherwise STATUS_INTERNAL. The filter is the antialiased triangle
 * ("bilinear" of Pillow and of torchvision with antialias=True), within 1 of 255 of theirs for the
 * same decoded pixels (exact_decode).
 * The result depends on data, settings, view and format alone.
 * Statuses of image_probe; STATUS_INVALID for damaged or cut data; STATUS_NO_MEMORY.
 */
enum status image_render(image_decoder *decoder, const void *data, size_t bytes,
                         const struct image_view *view, const struct image_output *output) MUST_USE;

/*
 * The same from pixels that are decoded already: uint8_t [height][width][channels] without padding,
 * channels 1 (grey, repeated) or 3. For caches, packed sets, and raw data. STATUS_NO_MEMORY;
 * STATUS_INTERNAL for a crop box outside of the image.
 */
enum status image_render_pixels(image_decoder *decoder, const uint8_t *pixels, uint32_t width,
                                uint32_t height, int channels, const struct image_view *view,
                                const struct image_output *output) MUST_USE;

/*
 * The whole image, never scaled, as uint8_t [height][width][3] into `pixels`, which holds
 * `capacity` bytes: at least 3 * width * height of image_probe's facts, otherwise STATUS_LIMIT. *facts (may be
 * NULL) is filled. Statuses as image_render.
 */
enum status image_decode_rgb(image_decoder *decoder, const void *data, size_t bytes,
                             uint8_t *pixels, size_t capacity, struct image_facts *facts) MUST_USE;

#endif
