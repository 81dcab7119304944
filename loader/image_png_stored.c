/* A PNG whose pixels are no longer compressed. */
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

#if PINLINE_HAVE_DEFLATE
#include <libdeflate.h>

/* A deflate block that is stored as it is: five bytes, then the data (RFC 1951, 3.2.4). */
#define BLOCK_OVERHEAD 5
#define BLOCK_MOST 65535
#define HEAD_BYTES 2 /* of a zlib stream (RFC 1950), which ends with four bytes of checksum */
#define TAIL_BYTES 4
/* Larger pictures are left to libpng: a worker should not hold one several times. */
#define STORED_MOST ((size_t)16 << 20)

/* The chunks of image data: consecutive, from byte `from` to `to`, with `bytes` bytes of stream. */
struct data {
    size_t from, to, bytes;
};

/* Of a file whose chunks are known to be whole. False when image data lie in two places. */
static bool find_data(struct image_bytes file, struct data *data)
{
    size_t at = PNG_SIGNATURE_BYTES;

    *data = (struct data){0, 0, 0};
    for (;;) {
        const uint8_t *chunk = file.data + at;
        size_t length = image__be32(chunk);
        size_t next = at + PNG_CHUNK_OVERHEAD + length;
        if (memcmp(chunk + 4, "IDAT", 4) == 0) {
            if (data->to != 0 && data->to != at) {
                return false;
            }
            data->from = data->to == 0 ? at : data->from;
            data->to = next;
            data->bytes += length;
        } else if (memcmp(chunk + 4, "IEND", 4) == 0) {
            return data->to != 0;
        }
        at = next;
    }
}

/* The stream in one piece: where it is, or put together in `room`. */
static const uint8_t *join(struct image_bytes file, const struct data *data, uint8_t *room)
{
    uint8_t *to = room;

    if (data->to - data->from == data->bytes + PNG_CHUNK_OVERHEAD) {
        return file.data + data->from + 8;
    }
    for (size_t at = data->from; at < data->to;) {
        size_t length = image__be32(file.data + at);
        memcpy(to, file.data + at + 8, length);
        to += length;
        at += PNG_CHUNK_OVERHEAD + length;
    }
    return room;
}

static size_t block_count(size_t bytes)
{
    return (bytes + BLOCK_MOST - 1) / BLOCK_MOST;
}

/* One chunk of stored data; `pixels` may lie where it goes, so far behind that nothing is overwritten
 * before it was moved. */
static uint8_t *put_data(uint8_t *to, const uint8_t *pixels, size_t bytes)
{
    uint32_t checksum = libdeflate_adler32(1, pixels, bytes);
    size_t stream = HEAD_BYTES + block_count(bytes) * BLOCK_OVERHEAD + bytes + TAIL_BYTES;

    to = image__put_be32(to, (uint32_t)stream);
    memcpy(to, "IDAT\x78\x01", 4 + HEAD_BYTES);
    to += 4 + HEAD_BYTES;
    for (size_t done = 0; done < bytes;) {
        uint16_t length = (uint16_t)(bytes - done < BLOCK_MOST ? bytes - done : BLOCK_MOST);
        uint16_t inverse = (uint16_t)~length;
        to[0] = done + length == bytes; /* the last block */
        to[1] = (uint8_t)length;
        to[2] = (uint8_t)(length >> 8);
        to[3] = (uint8_t)inverse;
        to[4] = (uint8_t)(inverse >> 8);
        memmove(to + BLOCK_OVERHEAD, pixels + done, length);
        to += BLOCK_OVERHEAD + length;
        done += length;
    }
    to = image__put_be32(to, checksum);
    return image__put_be32(to, 0); /* the CRC, which nobody reads */
}

/* Bytes of the inflated data: a filter byte and the samples of each row; 0 when that is not to be
 * held in memory. */
static size_t inflated_bytes(const struct image_header *header)
{
    size_t samples = (size_t)header->facts.channels * (size_t)header->facts.bits;
    size_t row = ((size_t)header->width * samples + 7) / 8 + 1;
    size_t bytes = 0;

    return size_multiply(row, header->height, &bytes) && bytes <= STORED_MOST ? bytes : 0;
}

enum status image__store_png(struct image_bytes file, const struct image_header *header,
                             struct libdeflate_decompressor *inflater, struct image_buffer *copy,
                             struct image_bytes *stored)
{
    size_t bytes = inflated_bytes(header);
    struct data data;

    *stored = (struct image_bytes){NULL, 0};
    if (inflater == NULL || header->facts.interlaced || bytes == 0 || file.count > STORED_MOST) {
        return STATUS_OK;
    }
    if (!find_data(file, &data)) {
        return STATUS_OK;
    }
    size_t overhead =
        PNG_CHUNK_OVERHEAD + HEAD_BYTES + block_count(bytes) * BLOCK_OVERHEAD + TAIL_BYTES;
    size_t rest = file.count - (data.to - data.from);
    TRY(image__buffer_reserve(copy, rest + overhead + bytes + data.bytes));
    uint8_t *to = copy->bytes + data.from;
    uint8_t *pixels = to + overhead;
    const uint8_t *stream = join(file, &data, pixels + bytes);
    size_t taken = 0;
    size_t given = 0;
    if (libdeflate_zlib_decompress_ex(inflater, stream, data.bytes, pixels, bytes, &taken,
                                      &given) != LIBDEFLATE_SUCCESS ||
        taken != data.bytes || given != bytes) {
        return STATUS_OK;
    }
    memcpy(copy->bytes, file.data, data.from);
    to = put_data(to, pixels, bytes);
    memcpy(to, file.data + data.to, file.count - data.to);
    *stored = (struct image_bytes){copy->bytes, (size_t)(to - copy->bytes) + file.count - data.to};
    return STATUS_OK;
}

struct libdeflate_decompressor *image__open_inflater(void)
{
    return libdeflate_alloc_decompressor();
}

void image__close_inflater(struct libdeflate_decompressor *inflater)
{
    if (inflater != NULL) {
        libdeflate_free_decompressor(inflater);
    }
}

uint32_t image__png_crc(const uint8_t *bytes, size_t count)
{
    return libdeflate_crc32(0, bytes, count);
}

const char *image__deflate_version(void)
{
    return "libdeflate " LIBDEFLATE_VERSION_STRING;
}

#else
#include <zlib.h>

enum status image__store_png(struct image_bytes file, const struct image_header *header,
                             struct libdeflate_decompressor *inflater, struct image_buffer *copy,
                             struct image_bytes *stored)
{
    (void)file;
    (void)header;
    (void)inflater;
    (void)copy;
    *stored = (struct image_bytes){NULL, 0};
    return STATUS_OK;
}

struct libdeflate_decompressor *image__open_inflater(void)
{
    return NULL;
}

void image__close_inflater(struct libdeflate_decompressor *inflater)
{
    (void)inflater;
}

/* Chunks have less than 2^31 bytes. */
uint32_t image__png_crc(const uint8_t *bytes, size_t count)
{
    return (uint32_t)crc32(0, bytes, (uInt)count);
}

const char *image__deflate_version(void)
{
    return "";
}
#endif
