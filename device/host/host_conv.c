/*
 * Convolutions without a matrix of windows: with NHWC maps a row of a window is contiguous, so the
 * kernels read the windows where they lie, in a copy of one image that has its padding around it.
 * The gradient of the input is the convolution of dy, spread out by the stride, with the mirrored
 * filter. The gradient of the filter is summed over a fixed number of parts of the batch and these
 * are added in order.
 */
#include <assert.h>
#include <limits.h>
#include <string.h>

#include "base/size.h"
#include "device/host/host_internal.h"

/* Parts of a filter gradient, at most: by number and by memory. */
#define FILTER_PARTS_MAX 16
#define FILTER_PARTS_BYTES ((size_t)64 << 20)

/* Outputs of a filter gradient that are worked through for all filters while they stay in the
 * nearest cache. */
#define FILTER_PIXELS 96

/* How the maps are laid out for the kernels: image rows at `top` and columns at `left` of a field of
 * zeros, `spread` apart. */
struct field {
    const struct tensor *from;
    int top, left, spread;
    int h, w; /* of the field */
};

/* A convolution of a field with packed filters. */
struct plan {
    struct field field;
    const struct tensor *out;
    int window_h, window_w, stride;
};

static struct plan plan_of(const struct device_op *op)
{
    const struct op_conv *u = &op->desc.u.conv;
    if (op->desc.kind == OP_CONV_BACKWARD_DATA) {
        return (struct plan){
            .field = {.from = &u->dy,
                      .top = u->w.h - 1 - u->pad,
                      .left = u->w.w - 1 - u->pad,
                      .spread = u->stride,
                      .h = u->dx.h + u->w.h - 1,
                      .w = u->dx.w + u->w.w - 1},
            .out = &u->dx,
            .window_h = u->w.h,
            .window_w = u->w.w,
            .stride = 1,
        };
    }
    bool filter = op->desc.kind == OP_CONV_BACKWARD_FILTER;
    return (struct plan){
        .field = {.from = &u->x,
                  .top = u->pad,
                  .left = u->pad,
                  .spread = 1,
                  .h = u->x.h + 2 * u->pad,
                  .w = u->x.w + 2 * u->pad},
        .out = filter ? &u->dy : &u->y,
        .window_h = filter ? u->dw.h : u->w.h,
        .window_w = filter ? u->dw.w : u->w.w,
        .stride = u->stride,
    };
}

static size_t round_up(size_t value, size_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* Whether the maps serve as they lie. */
static bool is_plain(const struct field *field)
{
    return field->top == 0 && field->left == 0 && field->spread == 1 &&
           field->h == field->from->h && field->w == field->from->w;
}

static size_t field_elements(const struct field *field)
{
    return (size_t)field->h * (size_t)field->w * (size_t)field->from->c;
}

/* Bytes of one worker's field. */
static size_t field_bytes(const struct field *field)
{
    if (is_plain(field)) {
        return 0;
    }
    return round_up((field_elements(field) + HOST_LANES_MAX) * sizeof(float), 256);
}

/* One image as a field: in place, or copied to `room`. */
static const float *lay_field(const struct field *field, const float *image, float *room)
{
    if (is_plain(field)) {
        return image;
    }
    size_t channels = (size_t)field->from->c;
    size_t row_values = (size_t)field->w * channels;
    for (int h = 0; h < field->h; h++) {
        float *row = room + (size_t)h * row_values;
        int offset = h - field->top;
        int i = offset / field->spread;
        if (offset < 0 || offset % field->spread != 0 || i >= field->from->h) {
            memset(row, 0, row_values * sizeof *row);
            continue;
        }
        const float *from = image + (size_t)i * (size_t)field->from->w * channels;
        if (field->spread == 1) {
            /* Columns that the field has, of those that the image has. */
            int first = field->left < 0 ? -field->left : 0;
            int last =
                field->w - field->left < field->from->w ? field->w - field->left : field->from->w;
            size_t before = (size_t)(field->left + first) * channels;
            size_t values = last > first ? (size_t)(last - first) * channels : 0;
            if (values == 0) {
                before = 0;
            }
            memset(row, 0, before * sizeof *row);
            memcpy(row + before, from + (size_t)first * channels, values * sizeof *row);
            memset(row + before + values, 0, (row_values - before - values) * sizeof *row);
            continue;
        }
        memset(row, 0, row_values * sizeof *row);
        for (int j = 0; j < field->from->w; j++) {
            int w = field->left + j * field->spread;
            if (w >= 0 && w < field->w) {
                memcpy(row + (size_t)w * channels, from + (size_t)j * channels,
                       channels * sizeof *row);
            }
        }
    }
    return room;
}

/* --- Forward, and the gradient of the input ---------------------------------------------------- */

/* Scratch: packed filters, packed bias, one field a worker. */
struct layout {
    size_t blocks;       /* of output channels */
    size_t block_values; /* packed values of one block */
    size_t bias, fields, field_bytes, end;
};

static struct layout layout_of(const struct host_device *host, const struct plan *plan, bool bias)
{
    size_t lanes = (size_t)host->kernels->lanes;
    struct layout layout = {
        .blocks = round_up((size_t)plan->out->c, lanes) / lanes,
        .block_values =
            (size_t)plan->window_h * (size_t)plan->window_w * (size_t)plan->field.from->c * lanes,
        .field_bytes = field_bytes(&plan->field),
    };
    layout.bias = round_up(layout.blocks * layout.block_values * sizeof(float), 256);
    layout.fields = layout.bias + (bias ? round_up(layout.blocks * lanes * sizeof(float), 256) : 0);
    layout.end = layout.fields + (size_t)thread_pool_threads(host->pool) * layout.field_bytes;
    return layout;
}

static bool has_bias(const device_op *op)
{
    return op->desc.kind == OP_CONV && op->desc.u.conv.bias.buffer != NULL;
}

/* Block `part` of the filters: forward w[block * lanes + lane][r][s][c] at (r, s, c), lane; for the
 * gradient of the input w[k][R - 1 - r][S - 1 - s][block * lanes + lane] at (r, s, k), lane. */
static void pack_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_conv *u = &op->desc.u.conv;
    (void)worker;
    struct plan plan = plan_of(op);
    struct layout layout = layout_of(host, &plan, has_bias(op));
    size_t lanes = (size_t)host->kernels->lanes;
    size_t first = (size_t)part * lanes;
    size_t channels = (size_t)u->w.c, filters = (size_t)u->w.n;
    size_t taps = (size_t)u->w.h * (size_t)u->w.w;
    const float *w = host__f32(host, op, &u->w);
    float *packed = (float *)(void *)host__scratch(host, op) + (size_t)part * layout.block_values;
    if (op->desc.kind == OP_CONV) {
        size_t depth = taps * channels;
        size_t used = filters - first < lanes ? filters - first : lanes;
        memset(packed, 0, layout.block_values * sizeof *packed);
        for (size_t lane = 0; lane < used; lane++) {
            const float *from = w + (first + lane) * depth;
            for (size_t d = 0; d < depth; d++) {
                packed[d * lanes + lane] = from[d];
            }
        }
        if (has_bias(op)) {
            float *bias = (float *)(void *)(host__scratch(host, op) + layout.bias) + first;
            memset(bias, 0, lanes * sizeof *bias);
            memcpy(bias, host__f32(host, op, &u->bias) + first, used * sizeof *bias);
        }
        return;
    }
    size_t used = channels - first < lanes ? channels - first : lanes;
    for (size_t tap = 0; tap < taps; tap++) {
        for (size_t k = 0; k < filters; k++) {
            const float *from = w + (k * taps + (taps - 1 - tap)) * channels + first;
            memcpy(packed, from, used * sizeof *packed);
            memset(packed + used, 0, (lanes - used) * sizeof *packed);
            packed += lanes;
        }
    }
}

/* One image. */
static void convolve_part(struct host_device *host, const device_op *op, int part, int worker)
{
    struct plan plan = plan_of(op);
    struct layout layout = layout_of(host, &plan, has_bias(op));
    const struct tensor *in = plan.field.from, *out = plan.out;
    unsigned char *scratch = host__scratch(host, op);
    size_t lanes = (size_t)host->kernels->lanes;
    size_t in_values = (size_t)in->h * (size_t)in->w * (size_t)in->c;
    size_t out_row = (size_t)out->w * (size_t)out->c;
    const float *image = host__f32(host, op, in) + (size_t)part * in_values;
    float *room = (float *)(void *)(scratch + layout.fields + (size_t)worker * layout.field_bytes);
    const float *field = lay_field(&plan.field, image, room);
    float *y = host__f32(host, op, out) + (size_t)part * (size_t)out->h * out_row;
    const float *packed = (const float *)(const void *)scratch;
    const float *bias = (const float *)(const void *)(scratch + layout.bias);
    struct host_conv_row row = {
        .x_row = (size_t)plan.field.w * (size_t)in->c,
        .x_pixel = (size_t)plan.stride * (size_t)in->c,
        .y_pixel = (size_t)out->c,
        .rows = plan.window_h,
        .depth = plan.window_w * in->c,
        .pixels = out->w,
        .relu = op->desc.kind == OP_CONV && op->desc.u.conv.relu,
    };
    for (size_t block = 0; block < layout.blocks; block++) {
        size_t first = block * lanes;
        row.w = packed + block * layout.block_values;
        row.bias = has_bias(op) ? bias + first : NULL;
        row.lanes = (size_t)out->c - first < lanes ? out->c - (int)first : (int)lanes;
        for (int i = 0; i < out->h; i++) {
            row.x = field + (size_t)i * (size_t)plan.stride * row.x_row;
            row.y = y + (size_t)i * out_row + first;
            host->kernels->conv_row(&row);
        }
    }
}

static void convolve(struct host_device *host, const device_op *op)
{
    struct plan plan = plan_of(op);
    struct layout layout = layout_of(host, &plan, has_bias(op));
    host__parallel(host, op, (int)layout.blocks, pack_part);
    host__parallel(host, op, plan.out->n, convolve_part);
}

/* --- The gradient of the filter ----------------------------------------------------------------- */

/* Scratch: a sum of the filter for each part, with rows of windows rounded up to whole vectors, and
 * one field a worker. */
struct filter_layout {
    size_t depth;       /* values of a window's row: S * C */
    size_t round_depth; /* rounded up to the lanes */
    size_t filter_values, part_bytes;
    size_t fields, field_bytes, end;
};

static struct filter_layout filter_layout_of(const struct host_device *host, const device_op *op)
{
    const struct op_conv *u = &op->desc.u.conv;
    struct plan plan = plan_of(op);
    size_t lanes = (size_t)host->kernels->lanes;
    struct filter_layout layout = {.depth = (size_t)u->dw.w * (size_t)u->dw.c,
                                   .field_bytes = field_bytes(&plan.field)};
    layout.round_depth = round_up(layout.depth, lanes);
    layout.filter_values = (size_t)u->dw.h * layout.round_depth;
    layout.part_bytes = round_up((size_t)u->dw.n * layout.filter_values * sizeof(float), 256);
    layout.fields = (size_t)op->parts * layout.part_bytes;
    layout.end = layout.fields + (size_t)thread_pool_threads(host->pool) * layout.field_bytes;
    return layout;
}

/* Rows `from` to `to` of one image's outputs, into the part's sum of the filter. */
static void filter_rows(struct host_device *host, const struct op_conv *u,
                        const struct filter_layout *layout, const struct host_filter_block *origin,
                        float *sum)
{
    size_t lanes = (size_t)host->kernels->lanes;
    size_t window_row = origin->x_row / (size_t)u->stride;
    int step = host->kernels->filters;
    struct host_filter_block block = *origin;
    for (int k = 0; k < u->dw.n; k += step) {
        block.filters = u->dw.n - k < step ? u->dw.n - k : step;
        block.dy = origin->dy + k;
        for (int r = 0; r < u->dw.h; r++) {
            for (size_t d = 0; d < layout->round_depth; d += lanes) {
                block.x = origin->x + (size_t)r * window_row + d;
                block.dw =
                    sum + (size_t)k * layout->filter_values + (size_t)r * layout->round_depth + d;
                host->kernels->filter_block(&block);
            }
        }
    }
}

static void filter_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_conv *u = &op->desc.u.conv;
    struct plan plan = plan_of(op);
    struct filter_layout layout = filter_layout_of(host, op);
    unsigned char *scratch = host__scratch(host, op);
    float *sum = (float *)(void *)(scratch + (size_t)part * layout.part_bytes);
    float *room = (float *)(void *)(scratch + layout.fields + (size_t)worker * layout.field_bytes);
    size_t in_values = (size_t)u->x.h * (size_t)u->x.w * (size_t)u->x.c;
    size_t out_row = (size_t)u->dy.w * (size_t)u->dy.c;
    size_t begin = host__part_begin((size_t)u->x.n, op->parts, part);
    size_t end = host__part_begin((size_t)u->x.n, op->parts, part + 1);
    int rows = FILTER_PIXELS / u->dy.w > 0 ? FILTER_PIXELS / u->dy.w : 1;
    size_t field_row = (size_t)plan.field.w * (size_t)u->x.c;
    memset(sum, 0, (size_t)u->dw.n * layout.filter_values * sizeof *sum);
    for (size_t n = begin; n < end; n++) {
        const float *field =
            lay_field(&plan.field, host__f32(host, op, &u->x) + n * in_values, room);
        const float *dy = host__f32(host, op, &u->dy) + n * (size_t)u->dy.h * out_row;
        for (int i = 0; i < u->dy.h; i += rows) {
            struct host_filter_block origin = {
                .x = field + (size_t)i * (size_t)u->stride * field_row,
                .x_row = (size_t)u->stride * field_row,
                .x_pixel = (size_t)u->stride * (size_t)u->x.c,
                .dy = dy + (size_t)i * out_row,
                .dy_row = out_row,
                .dy_pixel = (size_t)u->dy.c,
                .dw_filter = layout.filter_values,
                .rows = u->dy.h - i < rows ? u->dy.h - i : rows,
                .pixels = u->dy.w,
            };
            filter_rows(host, u, &layout, &origin, sum);
        }
    }
}

/* Adds the parts, in order, for one filter. */
static void reduce_part(struct host_device *host, const device_op *op, int part, int worker)
{
    const struct op_conv *u = &op->desc.u.conv;
    (void)worker;
    struct filter_layout layout = filter_layout_of(host, op);
    size_t filters = (size_t)u->dw.n;
    int parts = host__parts(filters, layout.filter_values);
    size_t begin = host__part_begin(filters, parts, part);
    size_t end = host__part_begin(filters, parts, part + 1);
    const unsigned char *scratch = host__scratch(host, op);
    float *dw = host__f32(host, op, &u->dw);
    for (size_t k = begin; k < end; k++) {
        for (int r = 0; r < u->dw.h; r++) {
            float *to = dw + (k * (size_t)u->dw.h + (size_t)r) * layout.depth;
            size_t at = k * layout.filter_values + (size_t)r * layout.round_depth;
            memcpy(to, (const float *)(const void *)scratch + at, layout.depth * sizeof *to);
            for (int p = 1; p < op->parts; p++) {
                const float *sum =
                    (const float *)(const void *)(scratch + (size_t)p * layout.part_bytes);
                host->kernels->accumulate(to, sum + at, layout.depth);
            }
        }
    }
}

static void convolve_filter(struct host_device *host, const device_op *op)
{
    struct filter_layout layout = filter_layout_of(host, op);
    host__parallel(host, op, op->parts, filter_part);
    host__parallel(host, op, host__parts((size_t)op->desc.u.conv.dw.n, layout.filter_values),
                   reduce_part);
}

void host__plan_conv(struct host_device *host, device_op *op, size_t *scratch_bytes)
{
    const struct op_conv *u = &op->desc.u.conv;
    if (op->desc.kind == OP_CONV_BACKWARD_FILTER) {
        op->run = convolve_filter;
        struct filter_layout layout = filter_layout_of(host, op);
        size_t by_memory = FILTER_PARTS_BYTES / layout.part_bytes;
        size_t parts = by_memory < FILTER_PARTS_MAX ? by_memory : FILTER_PARTS_MAX;
        /* Two parts even of the largest filters: one would leave all but one processor idle. */
        parts = parts < 2 ? 2 : parts;
        op->parts = parts < (size_t)u->x.n ? (int)parts : u->x.n;
        *scratch_bytes = filter_layout_of(host, op).end;
        return;
    }
    struct plan plan = plan_of(op);
    op->run = convolve;
    *scratch_bytes = layout_of(host, &plan, has_bias(op)).end;
}
