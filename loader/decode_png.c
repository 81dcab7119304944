/* Decoding by libpng, row by row. */
#include <png.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "loader/image_internal.h"

/* libpng cannot use its object for a second file, so objects come and go for each; their memory
 * comes from here and is taken back at once, which also makes a jump out of libpng lose nothing. */
#define ARENA_BYTES ((size_t)256 << 10)
#define ARENA_ALIGNMENT 16

/* An allocation that did not fit into the arena. */
struct extra {
    struct extra *next;
    struct extra *previous;
    size_t bytes;
    size_t padding; /* keeps what follows aligned */
};

struct image_png {
    uint8_t *arena;
    size_t used;
    struct extra *extras;
    size_t extra_bytes, extra_limit;
    struct image_bytes file; /* what libpng reads: the file, or the same with its rows stored */
    bool stored;
    size_t at;
    bool cut;
    struct libdeflate_decompressor *inflater; /* NULL where there is none */
    jmp_buf escape;
    char message[160];
};

static void *arena_malloc(png_structp png, png_alloc_size_t bytes)
{
    struct image_png *state = png_get_mem_ptr(png);
    size_t need = size_align(bytes, ARENA_ALIGNMENT);

    if (bytes <= ARENA_BYTES && need <= ARENA_BYTES - state->used) {
        void *memory = state->arena + state->used;
        state->used += need;
        return memory;
    }
    if (bytes > state->extra_limit - state->extra_bytes) {
        return NULL;
    }
    struct extra *extra = malloc(sizeof(*extra) + bytes);
    if (extra == NULL) {
        return NULL;
    }
    extra->bytes = bytes;
    extra->previous = NULL;
    extra->next = state->extras;
    if (extra->next != NULL) {
        extra->next->previous = extra;
    }
    state->extras = extra;
    state->extra_bytes += bytes;
    return extra + 1;
}

static void arena_free(png_structp png, void *memory)
{
    struct image_png *state = png_get_mem_ptr(png);
    uint8_t *byte = memory;

    if (memory == NULL || (byte >= state->arena && byte < state->arena + ARENA_BYTES)) {
        return;
    }
    struct extra *extra = (struct extra *)memory - 1;
    if (extra->next != NULL) {
        extra->next->previous = extra->previous;
    }
    if (extra->previous != NULL) {
        extra->previous->next = extra->next;
    } else {
        state->extras = extra->next;
    }
    state->extra_bytes -= extra->bytes;
    free(extra);
}

static void arena_reset(struct image_png *state)
{
    while (state->extras != NULL) {
        struct extra *next = state->extras->next;
        free(state->extras);
        state->extras = next;
    }
    state->extra_bytes = 0;
    state->used = 0;
}

static void on_read(png_structp png, png_bytep to, size_t count)
{
    struct image_png *state = png_get_io_ptr(png);

    if (state->file.count - state->at < count) {
        state->cut = true;
        png_error(png, "the data end early");
    }
    memcpy(to, state->file.data + state->at, count);
    state->at += count;
}

static void on_error(png_structp png, png_const_charp message)
{
    struct image_png *state = png_get_error_ptr(png);
    size_t length = strlen(message);

    length = length < sizeof(state->message) ? length : sizeof(state->message) - 1;
    memcpy(state->message, message, length);
    state->message[length] = '\0';
    longjmp(state->escape, 1);
}

static void on_warning(png_structp png, png_const_charp message)
{
    /* Warnings are about chunks that are not used. */
    (void)png;
    (void)message;
}

static enum status open_png(struct image_decoder *decoder)
{
    if (decoder->png != NULL) {
        return STATUS_OK;
    }
    struct image_png *state = calloc(1, sizeof(*state));
    if (state != NULL) {
        state->arena = aligned_alloc(64, ARENA_BYTES);
    }
    if (state == NULL || state->arena == NULL) {
        free(state);
        return FAIL(STATUS_NO_MEMORY, "no memory for a PNG decoder; use fewer workers");
    }
    state->inflater = image__open_inflater();
    decoder->png = state;
    return STATUS_OK;
}

void image__png_close(struct image_png **png)
{
    if (*png != NULL) {
        arena_reset(*png);
        image__close_inflater((*png)->inflater);
        free((*png)->arena);
        free(*png);
        *png = NULL;
    }
}

size_t image__png_bytes(const struct image_png *png)
{
    return png == NULL ? 0 : sizeof(*png) + ARENA_BYTES;
}

const char *image__libpng_version(void)
{
    return png_get_libpng_ver(NULL);
}

/* Everything becomes RGB of 8 bits. Chunks that are not needed for it are passed over unread: text
 * that would inflate to hundreds of megabytes, profiles, and the transparency that is dropped. */
static void set_up(png_structp png, const struct image_decoder *decoder)
{
    png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_user_limits(png, decoder->settings.max_dimension, decoder->settings.max_dimension);
    png_set_chunk_cache_max(png, 8);
    png_set_benign_errors(png, 1);
    /* What was checked already: image__check_png, image__store_png. */
    png_set_crc_action(png, PNG_CRC_QUIET_USE, PNG_CRC_NO_CHANGE);
#ifdef PNG_IGNORE_ADLER32
    if (decoder->png->stored) {
        png_set_option(png, PNG_IGNORE_ADLER32, PNG_OPTION_ON);
    }
#endif
}

static void set_transforms(png_structp png, png_infop info)
{
    png_set_expand(png);
    png_set_strip_16(png);
    png_set_strip_alpha(png);
    png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
}

/* Rows in order, and no further than the sink wants. */
static void read_rows(png_structp png, struct image_sink *sink, uint32_t height)
{
    uint32_t end = sink->bottom;

    for (uint32_t y = 0; y < end; y++) {
        png_read_row(png, image__sink_row(sink, y), NULL);
        image__sink_done(sink, y);
    }
    if (end == height) {
        png_read_end(png, NULL);
    }
}

/* Every pass goes over the whole picture, so it must be held. */
static enum status read_interlaced(png_structp png, struct image_decoder *decoder,
                                   struct image_sink *sink)
{
    uint32_t width = decoder->header.width, height = decoder->header.height;
    size_t stride = (size_t)width * 3;
    size_t bytes;

    if (!size_multiply(stride, height, &bytes)) {
        return FAIL(STATUS_LIMIT, "PNG of %u x %u pixels is too large", width, height);
    }
    TRY(image__buffer_reserve(&decoder->pixels, bytes));
    for (int pass = 0; pass < 7; pass++) {
        for (uint32_t y = 0; y < height; y++) {
            png_read_row(png, decoder->pixels.bytes + y * stride, NULL);
        }
    }
    png_read_end(png, NULL);
    for (uint32_t y = sink->top; y < sink->bottom; y++) {
        memcpy(image__sink_row(sink, y), decoder->pixels.bytes + y * stride, stride);
        image__sink_done(sink, y);
    }
    return STATUS_OK;
}

__attribute__((noinline)) static enum status
read_png(png_structp png, png_infop info, struct image_decoder *decoder, struct image_sink *sink)
{
    const struct image_header *header = &decoder->header;

    set_up(png, decoder);
    png_set_read_fn(png, decoder->png, on_read);
    png_read_info(png, info);
    if (png_get_image_width(png, info) != header->width ||
        png_get_image_height(png, info) != header->height) {
        return FAIL(STATUS_INVALID, "PNG with two headers");
    }
    set_transforms(png, info);
    if (png_get_rowbytes(png, info) != (size_t)header->width * 3) {
        return FAIL(STATUS_INTERNAL, "libpng gives rows of %zu bytes for %u pixels",
                    (size_t)png_get_rowbytes(png, info), header->width);
    }
    TRY(image__sink_layout(sink, 0, header->width));
    if (header->facts.interlaced) {
        return read_interlaced(png, decoder, sink);
    }
    read_rows(png, sink, header->height);
    return STATUS_OK;
}

static enum status fail_png(const struct image_png *state)
{
    if (state->cut) {
        return FAIL(STATUS_INVALID, "PNG data end early, after %zu bytes: the file is cut",
                    state->file.count);
    }
    if (strcmp(state->message, "Out of memory") == 0 ||
        strcmp(state->message, "insufficient memory") == 0) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a row of this PNG; use fewer workers");
    }
    return FAIL(STATUS_INVALID, "damaged PNG data: %s", state->message);
}

/* The only function that is returned to by longjmp; nothing of it changes after setjmp. */
static enum status guard(png_structp png, png_infop info, struct image_decoder *decoder,
                         struct image_sink *sink)
{
    if (setjmp(decoder->png->escape) != 0) {
        return fail_png(decoder->png);
    }
    return read_png(png, info, decoder, sink);
}

enum status image__decode_png(struct image_decoder *decoder, struct image_bytes file,
                              struct image_sink *sink)
{
    enum status status;

    TRY(open_png(decoder));
    struct image_png *state = decoder->png;
    /* All of the file, however few of its rows are wanted. */
    TRY(image__check_png(file, NULL, NULL));
    TRY(image__sink_begin(sink, decoder->header.width, decoder->header.height, 0));
    TRY(image__store_png(file, &decoder->header, state->inflater, &decoder->file, &state->file));
    state->stored = state->file.data != NULL;
    if (!state->stored) {
        state->file = file;
    }
    state->at = 0;
    state->cut = false;
    state->message[0] = '\0';
    /* Rows of up to 8 bytes a pixel, several of them, and what libpng needs besides. */
    state->extra_limit = ((size_t)decoder->header.width + 64) * 64 + ((size_t)4 << 20);
    png_structp png = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, state, on_error, on_warning,
                                               state, arena_malloc, arena_free);
    png_infop info = png == NULL ? NULL : png_create_info_struct(png);
    if (info == NULL) {
        png_destroy_read_struct(&png, NULL, NULL);
        arena_reset(state);
        return FAIL(STATUS_NO_MEMORY, "no memory for a PNG decoder; use fewer workers");
    }
    status = guard(png, info, decoder, sink);
    png_destroy_read_struct(&png, &info, NULL);
    arena_reset(state);
    return status;
}
