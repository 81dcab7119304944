#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"
#include "device/device_backend.h"

/* Long enough for the label and eleven tensors. */
#define DESCRIPTION_BYTES 1024

static enum status contradiction(const struct op_desc *desc, const char *what)
{
    char description[DESCRIPTION_BYTES];
    return FAIL(STATUS_INTERNAL, "%s: %s",
                device__describe_op(desc, description, sizeof description), what);
}

static bool present(const struct tensor *t)
{
    return t->buffer != NULL;
}

static bool same_shape(const struct tensor *a, const struct tensor *b)
{
    return a->n == b->n && a->h == b->h && a->w == b->w && a->c == b->c;
}

static bool is_vector(const struct tensor *t, int length)
{
    return t->n == 1 && t->h == 1 && t->w == 1 && t->c == length;
}

static bool is_matrix(const struct tensor *t, int rows, int columns)
{
    return t->n == rows && t->h == 1 && t->w == 1 && t->c == columns;
}

static bool holds_scalars(const struct tensor *t)
{
    return t->n == 1 && t->h == 1 && t->w == 1 &&
           (size_t)t->c >= sizeof(struct step_scalars) / sizeof(float);
}

/* Dimensions, type, place and room of one tensor. */
static enum status check_tensor(const struct op_desc *desc, const struct op_tensor *item)
{
    const struct tensor *t = item->tensor;
    char what[200];
    if (!present(t)) {
        if (!item->required) {
            return STATUS_OK;
        }
        snprintf(what, sizeof what, "tensor %s is missing", item->name);
        return contradiction(desc, what);
    }
    if ((unsigned)t->dtype > DTYPE_U8 || (item->dtypes & (1U << t->dtype)) == 0) {
        snprintf(what, sizeof what, "tensor %s cannot be %s", item->name,
                 device__dtype_name(t->dtype));
        return contradiction(desc, what);
    }
    size_t bytes = dtype_bytes(t->dtype);
    bool fits =
        t->n >= 1 && t->h >= 1 && t->w >= 1 && t->c >= 1 &&
        size_multiply(bytes, (size_t)t->n, &bytes) && size_multiply(bytes, (size_t)t->h, &bytes) &&
        size_multiply(bytes, (size_t)t->w, &bytes) && size_multiply(bytes, (size_t)t->c, &bytes);
    if (!fits) {
        snprintf(what, sizeof what, "tensor %s has a dimension below 1 or too many elements",
                 item->name);
        return contradiction(desc, what);
    }
    if (t->offset % 16 != 0) {
        snprintf(what, sizeof what, "tensor %s begins at byte %zu, which is no multiple of 16",
                 item->name, t->offset);
        return contradiction(desc, what);
    }
    if (t->offset > t->buffer->bytes || bytes > t->buffer->bytes - t->offset) {
        snprintf(what, sizeof what,
                 "tensor %s needs %zu bytes from byte %zu, and its buffer has %zu", item->name,
                 bytes, t->offset, t->buffer->bytes);
        return contradiction(desc, what);
    }
    return STATUS_OK;
}

/* Whether the output `written` of this operation may lie exactly where the input `read` lies. */
static bool may_alias(enum op_kind kind, const char *written, const char *read)
{
    switch (kind) {
    case OP_ADD:
    case OP_CAST:
        return true;
    case OP_RELU_BACKWARD:
        return strcmp(read, "dy") == 0;
    case OP_NORM_INFER:
        return true;
    case OP_NORM:
        return strcmp(written, "y") == 0 && strcmp(read, "residual") == 0;
    case OP_NORM_BACKWARD:
        return strcmp(written, "dresidual") == 0 && strcmp(read, "dy") == 0;
    default:
        return false;
    }
}

static enum status check_overlap(const struct op_desc *desc, const struct op_tensor *items,
                                 int count)
{
    for (int i = 0; i < count; i++) {
        const struct tensor *written = items[i].tensor;
        if ((items[i].access & OP_WRITES) == 0 || !present(written)) {
            continue;
        }
        for (int j = 0; j < count; j++) {
            const struct tensor *other = items[j].tensor;
            if (j == i || other->buffer != written->buffer ||
                written->offset >= other->offset + tensor_bytes(other) ||
                other->offset >= written->offset + tensor_bytes(written)) {
                continue;
            }
            bool exact = written->offset == other->offset &&
                         tensor_bytes(written) == tensor_bytes(other) &&
                         (items[j].access & OP_WRITES) == 0;
            if (!exact || !may_alias(desc->kind, items[i].name, items[j].name)) {
                char what[200];
                snprintf(what, sizeof what, "tensor %s overlaps %s", items[i].name, items[j].name);
                return contradiction(desc, what);
            }
        }
    }
    return STATUS_OK;
}

static enum status check_window(const struct op_desc *desc, const struct tensor *x, int window_h,
                                int window_w, int stride, int pad, const struct tensor *y)
{
    if (stride < 1 || pad < 0 || pad > INT_MAX / 4) {
        return contradiction(desc, "the stride must be at least 1 and the padding at least 0");
    }
    if (x->h > INT_MAX - 2 * pad || x->w > INT_MAX - 2 * pad || x->h + 2 * pad < window_h ||
        x->w + 2 * pad < window_w) {
        return contradiction(desc, "the window is larger than the padded input");
    }
    int h = (x->h + 2 * pad - window_h) / stride + 1;
    int w = (x->w + 2 * pad - window_w) / stride + 1;
    if (y->n != x->n || y->h != h || y->w != w) {
        char what[120];
        snprintf(what, sizeof what, "the output must be %dx%dx%d", x->n, h, w);
        return contradiction(desc, what);
    }
    return STATUS_OK;
}

static enum status check_conv(const struct op_desc *desc)
{
    const struct op_conv *u = &desc->u.conv;
    const struct tensor *x = desc->kind == OP_CONV_BACKWARD_DATA ? &u->dx : &u->x;
    const struct tensor *w = desc->kind == OP_CONV_BACKWARD_FILTER ? &u->dw : &u->w;
    const struct tensor *y = desc->kind == OP_CONV ? &u->y : &u->dy;
    if (w->c != x->c || w->n != y->c) {
        return contradiction(desc, "the filter's channels are not those of input and output");
    }
    TRY(check_window(desc, x, w->h, w->w, u->stride, u->pad, y));
    bool filter = desc->kind == OP_CONV_BACKWARD_FILTER;
    if (x->dtype != y->dtype || (w->dtype != x->dtype && !(filter && w->dtype == DTYPE_F32))) {
        return contradiction(desc, "the data types differ");
    }
    if (desc->kind == OP_CONV && present(&u->bias) && !is_vector(&u->bias, y->c)) {
        return contradiction(desc, "the bias is not one value an output channel");
    }
    return STATUS_OK;
}

static enum status check_norm(const struct op_desc *desc)
{
    const struct op_norm *u = &desc->u.norm;
    enum { WHOLE = 5, VECTORS = 8 };
    const struct tensor *whole[WHOLE] = {&u->residual, &u->y, &u->dy, &u->dx, &u->dresidual};
    const struct tensor *vectors[VECTORS] = {&u->scale,       &u->bias,       &u->running_mean,
                                             &u->running_var, &u->saved_mean, &u->saved_inv_std,
                                             &u->dscale,      &u->dbias};
    struct op_tensor items[OP_TENSORS_MAX];
    int count = device__op_tensors(desc, items);
    for (int i = 0; i < count; i++) {
        const struct tensor *t = items[i].tensor;
        for (int j = 0; j < WHOLE; j++) {
            if (t == whole[j] && present(t) && (!same_shape(t, &u->x) || t->dtype != u->x.dtype)) {
                return contradiction(desc, "a tensor differs from x in shape or type");
            }
        }
        for (int j = 0; j < VECTORS; j++) {
            if (t == vectors[j] && present(t) && !is_vector(t, u->x.c)) {
                return contradiction(desc, "a vector is not one value a channel of x");
            }
        }
    }
    if (!(u->epsilon > 0.0F)) {
        return contradiction(desc, "epsilon must be above 0");
    }
    if (desc->kind == OP_NORM) {
        if (!holds_scalars(&u->scalars)) {
            return contradiction(desc, "scalars is too short for the step's scalars");
        }
        if (tensor_elements(&u->x) == (size_t)u->x.c) {
            return contradiction(desc, "one value a channel has no variance to normalise by");
        }
    }
    return STATUS_OK;
}

static enum status check_pool(const struct op_desc *desc)
{
    const struct op_max_pool *u = &desc->u.pool;
    if (u->window < 1 || u->pad < 0 || 2 * (int64_t)u->pad > u->window) {
        return contradiction(desc, "the padding must be at most half the window");
    }
    if (u->x.c != u->y.c) {
        return contradiction(desc, "the output's channels are not those of the input");
    }
    TRY(check_window(desc, &u->x, u->window, u->window, u->stride, u->pad, &u->y));
    bool backward = desc->kind == OP_MAX_POOL_BACKWARD;
    if (u->x.dtype != u->y.dtype || (present(&u->index) && !same_shape(&u->index, &u->y)) ||
        (backward && (!same_shape(&u->dy, &u->y) || !same_shape(&u->dx, &u->x) ||
                      u->dy.dtype != u->y.dtype || u->dx.dtype != u->x.dtype))) {
        return contradiction(desc, "index and gradients must be shaped and typed as their values");
    }
    return STATUS_OK;
}

static enum status check_average(const struct op_desc *desc)
{
    const struct op_global_average *u = &desc->u.average;
    bool backward = desc->kind == OP_GLOBAL_AVERAGE_BACKWARD;
    const struct tensor *x = backward ? &u->dx : &u->x;
    const struct tensor *y = backward ? &u->dy : &u->y;
    if (!is_matrix(y, x->n, x->c)) {
        return contradiction(desc, "the average is not one value a channel of each image");
    }
    if (y->dtype != DTYPE_F32 && y->dtype != x->dtype) {
        return contradiction(desc, "the average is neither float32 nor of the maps' type");
    }
    return STATUS_OK;
}

static enum status check_linear(const struct op_desc *desc)
{
    const struct op_linear *u = &desc->u.linear;
    const struct tensor *x = desc->kind == OP_LINEAR_BACKWARD_DATA ? &u->dx : &u->x;
    const struct tensor *w = desc->kind == OP_LINEAR_BACKWARD_WEIGHTS ? &u->dw : &u->w;
    const struct tensor *y = desc->kind == OP_LINEAR ? &u->y : &u->dy;
    if (!is_matrix(x, x->n, w->c) || !is_matrix(w, y->c, w->c) || !is_matrix(y, x->n, y->c)) {
        return contradiction(desc, "rows and columns do not go together");
    }
    const struct tensor *bias = desc->kind == OP_LINEAR ? &u->bias : &u->db;
    if (desc->kind != OP_LINEAR_BACKWARD_DATA && present(bias) && !is_vector(bias, y->c)) {
        return contradiction(desc, "the bias is not one value an output");
    }
    return STATUS_OK;
}

static enum status check_update(const struct op_desc *desc)
{
    const struct op_update *u = &desc->u.update;
    int length = u->parameters.c;
    if (!is_vector(&u->parameters, length) || !is_vector(&u->gradient, length) ||
        !is_vector(&u->first, length) ||
        (desc->kind == OP_ADAMW && !is_vector(&u->second, length)) ||
        (present(&u->shadow) && !is_vector(&u->shadow, length))) {
        return contradiction(desc, "the region's vectors differ in length");
    }
    if (desc->kind == OP_SGD && present(&u->second)) {
        return contradiction(desc, "SGD has no second state");
    }
    if (!holds_scalars(&u->scalars)) {
        return contradiction(desc, "scalars is too short for the step's scalars");
    }
    return STATUS_OK;
}

static enum status check_shapes(const struct op_desc *desc)
{
    switch (desc->kind) {
    case OP_INGEST: {
        const struct tensor *from = &desc->u.ingest.from, *to = &desc->u.ingest.to;
        if (from->n != to->n || from->h != to->h || from->w != to->w || from->c != 3 || to->c < 3) {
            return contradiction(desc, "the input must be the same pixels with 3 channels or more");
        }
        return STATUS_OK;
    }
    case OP_CONV:
    case OP_CONV_BACKWARD_DATA:
    case OP_CONV_BACKWARD_FILTER:
        return check_conv(desc);
    case OP_BIAS_BACKWARD:
        if (!is_vector(&desc->u.bias.db, desc->u.bias.dy.c)) {
            return contradiction(desc, "db is not one value a channel of dy");
        }
        return STATUS_OK;
    case OP_NORM:
    case OP_NORM_INFER:
    case OP_NORM_BACKWARD:
        return check_norm(desc);
    case OP_RELU_BACKWARD: {
        const struct op_relu_backward *u = &desc->u.relu;
        if (!same_shape(&u->y, &u->dy) || !same_shape(&u->y, &u->dx) || u->y.dtype != u->dy.dtype ||
            u->y.dtype != u->dx.dtype) {
            return contradiction(desc, "the tensors differ in shape or type");
        }
        return STATUS_OK;
    }
    case OP_ADD: {
        const struct op_add *u = &desc->u.add;
        if (!same_shape(&u->y, &u->a) || !same_shape(&u->y, &u->b) || u->y.dtype != u->a.dtype ||
            u->y.dtype != u->b.dtype) {
            return contradiction(desc, "the tensors differ in shape or type");
        }
        return STATUS_OK;
    }
    case OP_MAX_POOL:
    case OP_MAX_POOL_BACKWARD:
        return check_pool(desc);
    case OP_GLOBAL_AVERAGE:
    case OP_GLOBAL_AVERAGE_BACKWARD:
        return check_average(desc);
    case OP_LINEAR:
    case OP_LINEAR_BACKWARD_DATA:
    case OP_LINEAR_BACKWARD_WEIGHTS:
        return check_linear(desc);
    case OP_SOFTMAX_LOSS: {
        const struct op_softmax_loss *u = &desc->u.loss;
        if (!is_matrix(&u->logits, u->logits.n, u->logits.c) ||
            !same_shape(&u->targets, &u->logits) || !is_vector(&u->loss, 1) ||
            (present(&u->dlogits) && !same_shape(&u->dlogits, &u->logits))) {
            return contradiction(desc, "targets and gradient must be shaped as the logits");
        }
        return STATUS_OK;
    }
    case OP_CAST: {
        const struct op_cast *u = &desc->u.cast;
        if (tensor_elements(&u->from) != tensor_elements(&u->to)) {
            return contradiction(desc, "the numbers of elements differ");
        }
        if (u->from.dtype != u->to.dtype &&
            (u->from.dtype == DTYPE_U8 || u->to.dtype == DTYPE_U8)) {
            return contradiction(desc, "bytes are not cast");
        }
        return STATUS_OK;
    }
    case OP_SGD:
    case OP_ADAMW:
        return check_update(desc);
    }
    return FAIL(STATUS_INTERNAL, "operation kind %d is unknown", (int)desc->kind);
}

enum status device__check_op(const struct op_desc *desc)
{
    struct op_tensor items[OP_TENSORS_MAX];
    int count = device__op_tensors(desc, items);
    for (int i = 0; i < count; i++) {
        TRY(check_tensor(desc, &items[i]));
    }
    TRY(check_shapes(desc));
    return check_overlap(desc, items, count);
}
