/*
 * The safetensors file format (8-byte little-endian header length, JSON header, raw little-endian
 * data; https://github.com/huggingface/safetensors): all that is needed to exchange weights with
 * PyTorch. No pickling, no code in files.
 */
#ifndef PINLINE_MODELS_SAFETENSORS_H
#define PINLINE_MODELS_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

enum safetensors_dtype {
    SAFETENSORS_F32,
    SAFETENSORS_BF16,
    SAFETENSORS_F16,
    SAFETENSORS_U8,
    SAFETENSORS_I32,
    SAFETENSORS_I64
};

struct safetensors_entry {
    const char *name;
    enum safetensors_dtype dtype;
    int dims; /* 0 to 8 */
    int64_t shape[8];
    const void *data; /* little-endian; for reading: inside the mapped file */
    size_t bytes;
};

/* Pairs of metadata strings. */
struct safetensors_metadata {
    const char *key, *value;
};

/* Writes the entries in order, aside, synced and renamed. STATUS_IO, STATUS_NO_MEMORY. */
enum status safetensors_write(const char *path, const struct safetensors_entry *entries,
                              size_t count, const struct safetensors_metadata *metadata,
                              size_t metadata_count) MUST_USE;

typedef struct safetensors safetensors;

/* Opens and checks a file whole: header, offsets without gaps or overlaps, sizes against shapes, file
 * length. STATUS_INVALID says what is wrong ("cut after 1,024 of 4,096 bytes"). */
enum status safetensors_open(const char *path, safetensors **out) MUST_USE;
void safetensors_close(safetensors **file);
size_t safetensors_count(const safetensors *file);
const struct safetensors_entry *safetensors_at(const safetensors *file, size_t index);
/* NULL when absent. */
const struct safetensors_entry *safetensors_find(const safetensors *file, const char *name);
const char *safetensors_metadata_value(const safetensors *file, const char *key);

#endif
