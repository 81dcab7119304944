/*
 * Made images with labels: ten things that a person can name (circle, square, heart, ...) before
 * textured, noisy backgrounds, varied in place, size, turn, colour and contrast. A small network
 * learns them well, but not in one epoch; the files are about as large as those of photographs.
 *
 * The pixels are a pure function of (seed, width, height, split, index) and the same on every
 * machine; bytes of files also depend on the versions of the encoding libraries.
 */
#ifndef PINLINE_DATA_SYNTH_H
#define PINLINE_DATA_SYNTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define SYNTH_CLASSES 10

enum synth_format {
    SYNTH_PNG = 0,
    SYNTH_JPEG, /* needs libjpeg-turbo in the build */
    SYNTH_MIXED /* half of each class as PNG, half as JPEG */
};

enum synth_split { SYNTH_TRAIN = 0, SYNTH_VAL = 1 };

/* Plain data; start from synth_settings_defaults. Checked by synth_write. */
struct synth_settings {
    const char *folder; /* DIR; required */
    size_t train_count; /* images of DIR/train, 10 to 99,999,999; default 4000 */
    size_t val_count;   /* images of DIR/val, 0 (no DIR/val) or 10 to 99,999,999; default 1000 */
    int width, height;  /* pixels, 8 to 8192 each; default 32 x 32 */
    enum synth_format format; /* default PNG */
    int jpeg_quality;         /* 1 to 100; default 90 */
    uint64_t seed;            /* default 0 */
    int threads;              /* 1 to 1024; default 1 */
    bool overwrite;           /* replace an earlier made set; default false */
};
void synth_settings_defaults(struct synth_settings *settings);

/* "circle", ... in the order of the classes, which is that of bytes: 0 <= class_id < SYNTH_CLASSES.
 * Image `index` of a split has class index % SYNTH_CLASSES. */
const char *synth_class_name(int class_id);

/* What was written. */
struct synth_result {
    size_t files;
    uint64_t bytes;
};

/*
 * Writes DIR/train/<class>/<index>.png (or .jpg) and DIR/val/... ; folders are made. A folder that
 * holds anything is refused unless `overwrite`, which removes the images of an earlier made set and
 * nothing else; where train/ or val/ hold anything else it is refused too. An interrupted run leaves
 * what it has written. *result (may be NULL) is filled on success.
 * STATUS_USAGE names the field; STATUS_INVALID: the folder is not empty, or is a file;
 * STATUS_UNSUPPORTED: JPEG in a build without libjpeg-turbo; STATUS_IO names the file;
 * STATUS_NO_MEMORY, STATUS_LIMIT (threads), STATUS_INTERRUPTED.
 */
enum status synth_write(const struct synth_settings *settings,
                        struct synth_result *result) MUST_USE;

/* The pixels of one image into rgb[height][width][3]. Reads seed, width and height alone.
 * Thread-safe. */
void synth_render(const struct synth_settings *settings, enum synth_split split, size_t index,
                  uint8_t *rgb);

#endif
