/* Decoding by libjpeg-turbo, row by row, at a reduced scale, with plain chroma and without the rows
 * and columns that nobody wants, where that saves time. */
#include "loader/image_internal.h"

#if PINLINE_HAVE_TURBO

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include <jerror.h>

/* Scans that a progressive file may have; each costs a pass over the picture. */
#define MOST_SCANS 100

/* Columns beside the wanted ones: smooth upsampling looks at the next column of chroma. */
#define MARGIN 2
/* A part that is narrower is decoded wider. Of fewer than two columns of chroma the library changes
 * its upsampling on the way, and not to the right one if it is merged with colour conversion. */
#define LEAST_COLUMNS 16
/* Rows that are not so many columns wider than what is wanted are decoded whole. */
#define SPARED_COLUMNS 64

/* The first version in which merged upsampling lets rows be skipped and columns be left out. */
#if defined(LIBJPEG_TURBO_VERSION_NUMBER) && LIBJPEG_TURBO_VERSION_NUMBER >= 2001000
#define HAVE_MERGED_PARTS 1
#else
#define HAVE_MERGED_PARTS 0
#endif

enum reason { REASON_LIBRARY, REASON_CUT, REASON_SCANS };

struct image_jpeg {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_source_mgr source;
    struct jpeg_progress_mgr progress;
    jmp_buf escape;
    enum reason reason;
    char message[JMSG_LENGTH_MAX];
    struct image_bytes file;
    struct image_buffer cmyk; /* one row */
    void *(*alloc_small)(j_common_ptr info, int pool, size_t bytes);
    int quantisers_used, codes_used;
    JQUANT_TBL quantisers[NUM_QUANT_TBLS];
    JHUFF_TBL codes[2 * NUM_HUFF_TBLS];
};

static struct image_jpeg *state_of(j_common_ptr info)
{
    return info->client_data;
}

static void on_error(j_common_ptr info)
{
    struct image_jpeg *state = state_of(info);

    state->reason = REASON_LIBRARY;
    info->err->format_message(info, state->message);
    longjmp(state->escape, 1);
}

/* The library goes on after damage, filling in grey, and calls that a warning. Here it is an end,
 * but for bytes between the segments and for odd but harmless headers. */
static void on_message(j_common_ptr info, int level)
{
    if (level >= 0) {
        return;
    }
    switch (info->err->msg_code) {
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_ARITH_BAD_CODE:
    case JWRN_MUST_RESYNC:
        on_error(info);
        break;
    default:
        break;
    }
}

static void on_output(j_common_ptr info)
{
    (void)info;
}

static void on_source(j_decompress_ptr info)
{
    (void)info;
}

/* The whole file is in memory, so a wish for more means that it is cut. */
static boolean on_empty(j_decompress_ptr info)
{
    struct image_jpeg *state = info->client_data;

    state->reason = REASON_CUT;
    longjmp(state->escape, 1);
}

static void on_skip(j_decompress_ptr info, long count)
{
    struct jpeg_source_mgr *source = info->src;

    if (count <= 0) {
        return;
    }
    if ((size_t)count > source->bytes_in_buffer) {
        (void)on_empty(info);
    }
    source->next_input_byte += count;
    source->bytes_in_buffer -= (size_t)count;
}

static void on_progress(j_common_ptr info)
{
    struct image_jpeg *state = state_of(info);

    if (state->info.input_scan_number > MOST_SCANS) {
        state->reason = REASON_SCANS;
        longjmp(state->escape, 1);
    }
}

static enum status fail_jpeg(const struct image_jpeg *state)
{
    const struct jpeg_error_mgr *errors = &state->errors;

    if (state->reason == REASON_CUT) {
        return FAIL(STATUS_INVALID, "JPEG data end early, after %zu bytes: the file is cut",
                    state->file.count);
    }
    if (state->reason == REASON_SCANS) {
        return FAIL(STATUS_LIMIT, "JPEG of more than %d scans", MOST_SCANS);
    }
    switch (errors->msg_code) {
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE:
        return FAIL(STATUS_NO_MEMORY, "no memory for this JPEG (%s); use fewer workers",
                    state->message);
#if JPEG_LIB_VERSION < 70
    case JERR_ARITH_NOTIMPL: /* libraries with the later interface have no such message */
#endif
    case JERR_NOT_COMPILED:
    case JERR_CONVERSION_NOTIMPL:
        return FAIL(STATUS_UNSUPPORTED, "this libjpeg-turbo cannot read it: %s", state->message);
    default:
        return FAIL(STATUS_INVALID, "damaged JPEG data: %s", state->message);
    }
}

/*
 * An object remembers the tables of its last file, and a file that lacks some would be decoded with
 * them: its pixels would depend on what came before. So each file begins without tables; their
 * memory is ours and used again, since the library only gives it back with the object.
 */
static void *alloc_small(j_common_ptr info, int pool, size_t bytes)
{
    struct image_jpeg *state = state_of(info);

    if (pool == JPOOL_PERMANENT && bytes == sizeof(JQUANT_TBL) &&
        state->quantisers_used < NUM_QUANT_TBLS) {
        return &state->quantisers[state->quantisers_used++];
    }
    if (pool == JPOOL_PERMANENT && bytes == sizeof(JHUFF_TBL) &&
        state->codes_used < 2 * NUM_HUFF_TBLS) {
        return &state->codes[state->codes_used++];
    }
    return state->alloc_small(info, pool, bytes);
}

static void forget_tables(struct image_jpeg *state)
{
    for (int i = 0; i < NUM_QUANT_TBLS; i++) {
        state->info.quant_tbl_ptrs[i] = NULL;
    }
    for (int i = 0; i < NUM_HUFF_TBLS; i++) {
        state->info.dc_huff_tbl_ptrs[i] = NULL;
        state->info.ac_huff_tbl_ptrs[i] = NULL;
    }
    state->quantisers_used = 0;
    state->codes_used = 0;
}

static enum status create_guarded(struct image_jpeg *state)
{
    if (setjmp(state->escape) != 0) {
        return FAIL(STATUS_NO_MEMORY, "cannot start libjpeg-turbo: %s", state->message);
    }
    jpeg_create_decompress(&state->info);
    return STATUS_OK;
}

static enum status open_jpeg(struct image_decoder *decoder)
{
    if (decoder->jpeg != NULL) {
        return STATUS_OK;
    }
    struct image_jpeg *state = calloc(1, sizeof(*state));
    if (state == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a JPEG decoder; use fewer workers");
    }
    decoder->jpeg = state;
    state->info.err = jpeg_std_error(&state->errors);
    state->errors.error_exit = on_error;
    state->errors.emit_message = on_message;
    state->errors.output_message = on_output;
    state->info.client_data = state;
    enum status status = create_guarded(state);
    if (status != STATUS_OK) {
        image__jpeg_close(&decoder->jpeg);
        return status;
    }
    state->source.init_source = on_source;
    state->source.fill_input_buffer = on_empty;
    state->source.skip_input_data = on_skip;
    state->source.resync_to_restart = jpeg_resync_to_restart;
    state->source.term_source = on_source;
    state->progress.progress_monitor = on_progress;
    state->alloc_small = state->info.mem->alloc_small;
    state->info.mem->alloc_small = alloc_small;
    state->info.src = &state->source;
    return STATUS_OK;
}

void image__jpeg_close(struct image_jpeg **jpeg)
{
    if (*jpeg != NULL) {
        jpeg_destroy_decompress(&(*jpeg)->info);
        free((*jpeg)->cmyk.bytes);
        free(*jpeg);
        *jpeg = NULL;
    }
}

#define TEXT_OF(token) #token
#define VERSION_TEXT(token) TEXT_OF(token)

const char *image__turbo_version(void)
{
    return VERSION_TEXT(LIBJPEG_TURBO_VERSION);
}

/* The library has fast transforms for 1/2, 1/4 and 1/8; other scales cost more than they save. */
static int choose_shift(const struct image_decoder *decoder, const struct image_sink *sink)
{
    const struct image_view *view = sink->view;
    int shift = 0;

    if (sink->resample == NULL || decoder->settings.exact_decode) {
        return 0;
    }
    while (shift < 3 && view->crop_width >> (shift + 1) >= view->resize_width &&
           view->crop_height >> (shift + 1) >= view->resize_height) {
        shift++;
    }
    return shift;
}

/*
 * Whether chroma is repeated instead of interpolated, which lets the library upsample it and convert
 * colours in one pass. Where the picture is made smaller afterwards, the filter smooths what that
 * leaves; the decoded picture must be 5/4 of the target in both directions. Only what the library
 * merges is asked for: by itself, plain upsampling saves nothing.
 */
static bool takes_plain_chroma(const struct image_decoder *decoder, const struct image_sink *sink,
                               int shift)
{
    const struct jpeg_decompress_struct *info = &decoder->jpeg->info;
    const struct image_view *view = sink->view;

    if (!HAVE_MERGED_PARTS || sink->resample == NULL || decoder->settings.exact_decode ||
        info->jpeg_color_space != JCS_YCbCr || info->num_components != 3) {
        return false;
    }
    const jpeg_component_info *luma = &info->comp_info[0];
    bool merged = luma->h_samp_factor == 2 && luma->v_samp_factor <= 2;
    for (int i = 1; i < 3; i++) {
        const jpeg_component_info *chroma = &info->comp_info[i];
        merged = merged && chroma->h_samp_factor == 1 && chroma->v_samp_factor == 1;
    }
    return merged && (uint64_t)view->crop_width * 4 >= (uint64_t)view->resize_width * 5 << shift &&
           (uint64_t)view->crop_height * 4 >= (uint64_t)view->resize_height * 5 << shift;
}

/* Ink is stored inverted, as Adobe's programs do; others hardly write such files. Products are
 * rounded as Pillow's conversion rounds them. */
static void cmyk_to_rgb(const uint8_t *cmyk, size_t pixels, uint8_t *rgb)
{
    for (size_t i = 0; i < pixels; i++) {
        uint32_t light = cmyk[4 * i + 3];
        for (int channel = 0; channel < 3; channel++) {
            uint32_t ink = 255u - cmyk[4 * i + (size_t)channel];
            uint32_t product = ink * light + 128;
            product = ((product >> 8) + product) >> 8;
            rgb[3 * i + (size_t)channel] = (uint8_t)(light - product);
        }
    }
}

/* Whether the library smooths over coefficients that a progressive file does not give in full. It
 * then looks far around each block, and a part of the picture would differ from the whole. */
static bool is_smoothed(const struct jpeg_decompress_struct *info)
{
    if (!info->progressive_mode || info->coef_bits == NULL) {
        return false;
    }
    for (int component = 0; component < info->num_components; component++) {
        for (int i = 0; i < DCTSIZE2; i++) {
            if (info->coef_bits[component][i] != 0) {
                return true;
            }
        }
    }
    return false;
}

/* Leaves out the columns that nobody wants, if they are many. */
static void crop_columns(struct jpeg_decompress_struct *info, const struct image_sink *sink,
                         JDIMENSION *origin, JDIMENSION *columns)
{
    JDIMENSION left = sink->left > MARGIN ? sink->left - MARGIN : 0;
    JDIMENSION right = sink->right + MARGIN;

    right = right < info->output_width ? right : info->output_width;
    if (right - left + SPARED_COLUMNS > info->output_width) {
        return;
    }
    if (right - left < LEAST_COLUMNS) {
        left = right > LEAST_COLUMNS ? right - LEAST_COLUMNS : 0;
        right = left + LEAST_COLUMNS;
    }
    *origin = left;
    *columns = right - left;
    jpeg_crop_scanline(info, origin, columns);
}

__attribute__((noinline)) static enum status read_jpeg(struct image_decoder *decoder,
                                                       struct image_sink *sink)
{
    struct image_jpeg *state = decoder->jpeg;
    struct jpeg_decompress_struct *info = &state->info;
    const struct image_header *header = &decoder->header;
    JDIMENSION origin, columns;

    state->source.next_input_byte = state->file.data;
    state->source.bytes_in_buffer = state->file.count;
    (void)jpeg_read_header(info, TRUE);
    /* Only many scans need watching, and the call for each row costs small pictures a percent. */
    info->progress = jpeg_has_multiple_scans(info) ? &state->progress : NULL;
    if (info->image_width != header->width || info->image_height != header->height ||
        info->num_components != header->facts.channels) {
        return FAIL(STATUS_INVALID, "JPEG with two frame headers");
    }
    bool cmyk = info->num_components == 4;
    int shift = choose_shift(decoder, sink);
    info->scale_num = 1;
    info->scale_denom = 1u << shift;
    info->out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    info->do_fancy_upsampling = !takes_plain_chroma(decoder, sink, shift);
    /* Merged upsampling makes no converter, and the library would write into that of the last file,
     * which is freed, when it skips rows. */
    info->cconvert = NULL;
    /* Coefficients of all components at full resolution, twice over. */
    info->mem->max_memory_to_use =
        (long)((header->width + 64u) * (uint64_t)(header->height + 64u) * 16u) + (32l << 20);
    (void)jpeg_start_decompress(info);
    TRY(image__sink_begin(sink, info->output_width, info->output_height, shift));
    bool partly = !is_smoothed(info);
    origin = 0;
    columns = info->output_width;
    if (partly) {
        crop_columns(info, sink, &origin, &columns);
    }
    TRY(image__sink_layout(sink, origin, columns));
    if (cmyk) {
        TRY(image__buffer_reserve(&state->cmyk, (size_t)columns * 4));
    }
    if (partly && sink->top > 0) {
        (void)jpeg_skip_scanlines(info, sink->top);
    }
    while (info->output_scanline < sink->bottom) {
        uint32_t y = info->output_scanline;
        uint32_t left = sink->bottom - y;
        uint32_t most = cmyk ? 1 : left < RESAMPLE_AHEAD ? left : RESAMPLE_AHEAD;
        JSAMPROW rows[RESAMPLE_AHEAD];
        for (uint32_t i = 0; i < most; i++) {
            rows[i] = cmyk ? state->cmyk.bytes : image__sink_row(sink, y + i);
        }
        JDIMENSION count = jpeg_read_scanlines(info, rows, most);
        for (uint32_t i = 0; i < count; i++) {
            if (cmyk) {
                cmyk_to_rgb(state->cmyk.bytes, columns, image__sink_row(sink, y + i));
            }
            image__sink_done(sink, y + i);
        }
    }
    if (info->output_scanline == info->output_height) {
        (void)jpeg_finish_decompress(info);
        return STATUS_OK;
    }
    size_t from = (size_t)(state->source.next_input_byte - state->file.data);
    from = from > 2 ? from - 2 : 0;
    if (!jpeg_input_complete(info) && !image__jpeg_ends(state->file, from)) {
        state->reason = REASON_CUT;
        return fail_jpeg(state);
    }
    return STATUS_OK;
}

/* The only function that is returned to by longjmp; nothing of it changes after setjmp. */
static enum status guard(struct image_decoder *decoder, struct image_sink *sink)
{
    if (setjmp(decoder->jpeg->escape) != 0) {
        return fail_jpeg(decoder->jpeg);
    }
    return read_jpeg(decoder, sink);
}

enum status image__decode_jpeg(struct image_decoder *decoder, struct image_bytes file,
                               struct image_sink *sink)
{
    TRY(open_jpeg(decoder));
    decoder->jpeg->file = file;
    forget_tables(decoder->jpeg);
    enum status status = guard(decoder, sink);
    jpeg_abort_decompress(&decoder->jpeg->info);
    return status;
}

#else

void image__jpeg_close(struct image_jpeg **jpeg)
{
    *jpeg = NULL;
}

const char *image__turbo_version(void)
{
    return "";
}

enum status image__decode_jpeg(struct image_decoder *decoder, struct image_bytes file,
                               struct image_sink *sink)
{
    (void)decoder;
    (void)file;
    (void)sink;
    return FAIL(STATUS_INTERNAL, "this build has no libjpeg-turbo");
}

#endif
