/* Layout of a packed file, for the files of data/ alone. data/README.md describes it. */
#ifndef PINLINE_DATA_PACKED_INTERNAL_H
#define PINLINE_DATA_PACKED_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

#define PACKED_MAGIC "PINLPACK"
#define PACKED_VERSION 1
#define PACKED_HEADER_BYTES 128
#define PACKED_ENTRY_BYTES 32
#define PACKED_ALIGNMENT 16
#define PACKED_ENCODED 1
#define PACKED_PIXELS 2

/* Offsets of the header's fields; all numbers are little-endian. */
enum packed_field {
    PACKED_AT_MAGIC = 0,
    PACKED_AT_VERSION = 8,
    PACKED_AT_HEADER_BYTES = 12,
    PACKED_AT_FILE_BYTES = 16,
    PACKED_AT_TRAIN_COUNT = 24,
    PACKED_AT_VAL_COUNT = 32,
    PACKED_AT_CLASS_COUNT = 40,
    PACKED_AT_CONTENT = 44,
    PACKED_AT_WIDTH = 48,
    PACKED_AT_HEIGHT = 52,
    PACKED_AT_INDEX = 56,
    PACKED_AT_NAMES = 64,
    PACKED_AT_NAMES_BYTES = 72,
    PACKED_AT_TABLE_CRC = 80,
    PACKED_AT_HEADER_CRC = 124
};

/* Offsets within one entry of the index. */
enum packed_entry_field {
    PACKED_ENTRY_DATA = 0,
    PACKED_ENTRY_NAME = 8,
    PACKED_ENTRY_SIZE = 16,
    PACKED_ENTRY_LABEL = 20,
    PACKED_ENTRY_CRC = 24,
    PACKED_ENTRY_ZERO = 28
};

static inline uint32_t packed_get32(const uint8_t *at)
{
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static inline uint64_t packed_get64(const uint8_t *at)
{
    return (uint64_t)packed_get32(at) | (uint64_t)packed_get32(at + 4) << 32;
}

static inline void packed_put32(uint8_t *at, uint32_t value)
{
    for (int i = 0; i < 4; i++) {
        at[i] = (uint8_t)(value >> (8 * i));
    }
}

static inline void packed_put64(uint8_t *at, uint64_t value)
{
    packed_put32(at, (uint32_t)value);
    packed_put32(at + 4, (uint32_t)(value >> 32));
}

#endif
