/* Work of one value at a time: pixels, ReLU, addition, conversion, bias gradient, updates. */
#include <stddef.h>
#include <string.h>

#include "device/cuda/cuda_op.h"

#define SCALAR(field) (offsetof(struct step_scalars, field) / sizeof(float))

/* --- Pixels --------------------------------------------------------------------------------- */

/* Copies small host values into memory of the operation's own. */
static enum status put(struct op_builder *builder, const void *values, size_t bytes, void **out)
{
    TRY(cuda__add_scratch(builder, bytes, out));
    if (*out != NULL) {
        CUDA_TRY(cudaMemcpyAsync(*out, values, bytes, cudaMemcpyHostToDevice,
                                 builder->dev->tune_stream));
        CUDA_TRY(cudaStreamSynchronize(builder->dev->tune_stream));
    }
    return STATUS_OK;
}

#define MAX_CHANNELS 64

/* Pixels that are handled as one row: enough to fill the tensor cores' tiles in the widening product,
 * and long runs of neighbouring memory in the scaling. */
#define ROW_PIXELS 32

static size_t count_pixels(const struct op_ingest *ingest)
{
    return (size_t)ingest->from.n * (size_t)ingest->from.h * (size_t)ingest->from.w;
}

/* to = pixels * scale + offset, where pixels have as many channels as `to` has. */
static enum status add_scaling(struct op_builder *builder, const struct op_ingest *ingest,
                               void *pixels)
{
    const size_t c = (size_t)ingest->to.c;
    const size_t count = count_pixels(ingest);
    const size_t row =
        count % ROW_PIXELS == 0 && c * ROW_PIXELS <= 2 * MAX_CHANNELS ? ROW_PIXELS : 1;
    float values[2][2 * MAX_CHANNELS] = {{0}};
    void *scales = NULL;
    for (size_t i = 0; i < row; i++) {
        memcpy(&values[0][i * c], ingest->scale, sizeof ingest->scale);
        memcpy(&values[1][i * c], ingest->offset, sizeof ingest->offset);
    }
    TRY(put(builder, values, sizeof values, &scales));
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        struct tensor vector = {.n = 1, .h = 1, .w = 1, .c = (int)(row * c)};
        struct tensor image = vector;
        image.n = (int)(count / row);
        int from = cuda__graph_at(graph, &image, ingest->from.dtype, pixels);
        int scale = cuda__graph_at(graph, &vector, DTYPE_F32, scales);
        int offset = cuda__graph_at(graph, &vector, DTYPE_F32,
                                    scales == NULL ? NULL : (float *)scales + 2 * MAX_CHANNELS);
        int to = cuda__graph_at(graph, &image, ingest->to.dtype, cuda_address(&ingest->to));
        int scaled = graph_virtual(graph, DTYPE_F32, to);
        graph_binary(graph, CUDNN_POINTWISE_MUL, from, scale, scaled);
        graph_binary(graph, CUDNN_POINTWISE_ADD, scaled, offset, to);
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

/*
 * Puts a zero behind every three channels by a product with a matrix of zeros and ones, which moves
 * bytes (and floats) exactly, whatever they mean: no cuDNN graph writes three channels into places
 * four apart, and a copy of rows of three bytes is far slower. *done is false where rows of
 * ROW_PIXELS pixels do not come out even.
 */
static enum status add_widening(struct op_builder *builder, const struct op_ingest *ingest,
                                void *wide, bool *done)
{
    const struct tensor *from = &ingest->from;
    size_t pixels = count_pixels(ingest);
    bool bytes = from->dtype == DTYPE_U8;
    size_t size = dtype_bytes(from->dtype);
    *done = false;
    if (pixels % ROW_PIXELS != 0 || pixels / ROW_PIXELS > INT32_MAX ||
        (!bytes && from->dtype != DTYPE_F32)) {
        return STATUS_OK;
    }
    static const float one = 1.0F;
    unsigned char matrix[(size_t)(3 * 4) * ROW_PIXELS * ROW_PIXELS * sizeof(float)] = {0};
    for (size_t i = 0; i < ROW_PIXELS; i++) {
        for (size_t c = 0; c < 3; c++) {
            size_t place = (4 * i + c) * (3 * ROW_PIXELS) + 3 * i + c;
            if (bytes) {
                matrix[place] = 1;
            } else {
                memcpy(matrix + place * size, &one, size);
            }
        }
    }
    void *selection = NULL;
    TRY(put(builder, matrix, (size_t)(3 * 4) * ROW_PIXELS * ROW_PIXELS * size, &selection));
    struct matmul product = {
        .type_ab = bytes ? CUDA_R_8I : CUDA_R_32F,
        .type_c = bytes ? CUDA_R_8I : CUDA_R_32F,
        .transpose_a = true,
        .exact = true,
        .m = 4 * ROW_PIXELS,
        .n = (int)(pixels / ROW_PIXELS),
        .k = 3 * ROW_PIXELS,
        .lda = 3 * ROW_PIXELS,
        .ldb = 3 * ROW_PIXELS,
        .ldc = 4 * ROW_PIXELS,
        .batch = 1,
        .alpha = 1.0F,
        .a = selection,
        .b = cuda_address(from),
        .c = wide,
    };
    return cuda__add_matmul(builder, &product, "/widen", done);
}

enum status cuda__build_ingest(struct op_builder *builder, const struct op_ingest *ingest)
{
    const struct tensor *from = &ingest->from;
    size_t pixels = count_pixels(ingest);
    size_t size = dtype_bytes(from->dtype);
    size_t channels = (size_t)ingest->to.c;
    if (channels == 3) {
        return add_scaling(builder, ingest, cuda_address(from));
    }
    if (channels > MAX_CHANNELS) {
        return FAIL(STATUS_UNSUPPORTED, "%s: pixels of %zu channels are over %d", builder->label,
                    channels, MAX_CHANNELS);
    }
    void *wide = NULL;
    bool done = false;
    /* Divided up by pixels: the zeros lie at other places for other channels or sizes of a value. */
    TRY(cuda__add_shared(builder, pixels * channels * size, channels * 16 + size, &wide));
    if (channels == 4) {
        TRY(add_widening(builder, ingest, wide, &done));
    }
    if (!done) {
        /* The copy leaves the padding as it is, which is zero from the start. */
        TRY(cuda__add_copy_rows(builder, cuda_address(from), wide, pixels, 3 * size,
                                channels * size));
    }
    return add_scaling(builder, ingest, wide);
}

/* --- Bias gradient -------------------------------------------------------------------------- */

enum status cuda__build_bias(struct op_builder *builder, const struct op_bias_backward *bias)
{
    const struct tensor *dy = &bias->dy;
    int area = dy->h * dy->w;
    bool done = false;
    /* The plans for this reduction are listed as deterministic and are not: over 200,704 rows of 32
     * their sums differ from run to run. Products with ones add in a fixed order. */
    if (builder->dev == NULL || !builder->dev->settings.deterministic || area > CUDA_ONES ||
        dy->n > CUDA_ONES) {
        cudnn_graph *graph = graph_create();
        if (graph != NULL) {
            int from = graph_tensor(graph, dy);
            graph_reduce(graph, CUDNN_REDUCE_TENSOR_ADD, from, graph_tensor(graph, &bias->db));
        }
        TRY(cuda__add_graph(builder, graph, "/reduce", &done));
        if (done) {
            return STATUS_OK;
        }
    }
    if (area > CUDA_ONES || dy->n > CUDA_ONES) {
        return FAIL(STATUS_UNSUPPORTED, "%s: cuDNN has no reduction of %d x %d x %d x %d",
                    builder->label, dy->n, dy->h, dy->w, dy->c);
    }
    /* The sum over each image, then over the images, as products with ones. */
    void *sums = NULL;
    TRY(cuda__add_scratch(builder, (size_t)dy->n * (size_t)dy->c * sizeof(float), &sums));
    struct matmul images = {
        .type_ab = dy->dtype == DTYPE_BF16 ? CUDA_R_16BF : CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .exact = true,
        .m = dy->c,
        .n = 1,
        .k = area,
        .lda = dy->c,
        .ldb = area,
        .ldc = dy->c,
        .batch = dy->n,
        .stride_a = (int64_t)area * dy->c,
        .stride_b = 0,
        .stride_c = dy->c,
        .alpha = 1.0F,
        .a = cuda_address(dy),
        .b = cuda__ones(builder, dy->dtype),
        .c = sums,
    };
    struct matmul all = {
        .type_ab = CUDA_R_32F,
        .type_c = CUDA_R_32F,
        .exact = true,
        .m = dy->c,
        .n = 1,
        .k = dy->n,
        .lda = dy->c,
        .ldb = dy->n,
        .ldc = dy->c,
        .batch = 1,
        .alpha = 1.0F,
        .a = sums,
        .b = cuda__ones(builder, DTYPE_F32),
        .c = cuda_address(&bias->db),
    };
    TRY(cuda__add_matmul(builder, &images, "/images", NULL));
    return cuda__add_matmul(builder, &all, "/all", NULL);
}

enum status cuda__build_relu(struct op_builder *builder, const struct op_relu_backward *relu)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int dy = graph_tensor(graph, &relu->dy);
        int y = graph_tensor(graph, &relu->y);
        graph_relu_backward(graph, dy, y, graph_tensor(graph, &relu->dx));
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

enum status cuda__build_add(struct op_builder *builder, const struct op_add *add)
{
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int a = graph_tensor(graph, &add->a);
        int b = graph_tensor(graph, &add->b);
        graph_binary(graph, CUDNN_POINTWISE_ADD, a, b, graph_tensor(graph, &add->y));
    }
    return cuda__add_graph(builder, graph, "", NULL);
}

/* --- Vectors -------------------------------------------------------------------------------- */

/* cuDNN has no plan for vectors of many millions as one dimension: those go as rows of ROW values, and
 * what is left over as a second graph. */
#define ROW 1024
#define LONGEST_VECTOR (1 << 23)

/* A stretch of `count` elements from element `first` on. */
struct stretch {
    size_t first, count;
    bool in_rows;
};

static int vector_part(cudnn_graph *graph, const struct tensor *vector, const struct stretch *part)
{
    char *start = cuda_address(vector);
    struct tensor like = {.n = 1, .h = 1, .w = 1, .c = (int)part->count};
    if (part->in_rows) {
        like.n = (int)(part->count / ROW);
        like.c = ROW;
    }
    return cuda__graph_at(graph, &like, vector->dtype,
                          start == NULL ? NULL : start + part->first * dtype_bytes(vector->dtype));
}

typedef cudnn_graph *(*part_function)(const void *context, const struct stretch *part);

static enum status add_parts(struct op_builder *builder, size_t count, part_function function,
                             const void *context)
{
    bool done = false;
    struct stretch whole = {0, count, false};
    if (count <= 2 * ROW) {
        return cuda__add_graph(builder, function(context, &whole), "", NULL);
    }
    if (count <= LONGEST_VECTOR) {
        TRY(cuda__add_graph(builder, function(context, &whole), "", &done));
    }
    if (done) {
        return STATUS_OK;
    }
    /* A rest of a few values has no plan either: it gets a row more. */
    struct stretch rows = {0, (count / ROW - 1) * ROW, true};
    struct stretch rest = {rows.count, count - rows.count, false};
    TRY(cuda__add_graph(builder, function(context, &rows), "/rows", NULL));
    return cuda__add_graph(builder, function(context, &rest), "/rest", NULL);
}

static cudnn_graph *cast_part(const void *context, const struct stretch *part)
{
    const struct op_cast *cast = context;
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        int from = vector_part(graph, &cast->from, part);
        graph_unary(graph, CUDNN_POINTWISE_IDENTITY, from, vector_part(graph, &cast->to, part));
    }
    return graph;
}

enum status cuda__build_cast(struct op_builder *builder, const struct op_cast *cast)
{
    return add_parts(builder, tensor_elements(&cast->from), cast_part, cast);
}

/* --- Updates -------------------------------------------------------------------------------- */

static int times(cudnn_graph *graph, int x, int factor)
{
    return graph_binary_virtual(graph, CUDNN_POINTWISE_MUL, x, factor);
}

static int plus(cudnn_graph *graph, int a, int b)
{
    return graph_binary_virtual(graph, CUDNN_POINTWISE_ADD, a, b);
}

/* Ends an update: parameters = old - change, and their bfloat16 shadow. */
static void finish_update(cudnn_graph *graph, const struct op_update *update,
                          const struct stretch *part, int old, int change)
{
    int parameters = vector_part(graph, &update->parameters, part);
    graph_binary(graph, CUDNN_POINTWISE_SUB, old, change, parameters);
    if (update->shadow.buffer != NULL) {
        graph_unary(graph, CUDNN_POINTWISE_IDENTITY, parameters,
                    vector_part(graph, &update->shadow, part));
    }
}

static cudnn_graph *sgd_part(const void *context, const struct stretch *part)
{
    const struct op_update *update = context;
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        const struct tensor *scalars = &update->scalars;
        int old = vector_part(graph, &update->parameters, part);
        int gradient = vector_part(graph, &update->gradient, part);
        int momentum = graph_scalar(graph, scalars, SCALAR(momentum));
        if (update->decays) {
            int decay = graph_scalar(graph, scalars, SCALAR(decay));
            gradient = plus(graph, times(graph, old, decay), gradient);
        }
        int velocity = vector_part(graph, &update->first, part);
        int carried = times(graph, vector_part(graph, &update->first, part), momentum);
        graph_binary(graph, CUDNN_POINTWISE_ADD, carried, gradient, velocity);
        int step =
            update->nesterov ? plus(graph, times(graph, velocity, momentum), gradient) : velocity;
        int rate = graph_scalar(graph, scalars, SCALAR(rate));
        finish_update(graph, update, part, old, times(graph, step, rate));
    }
    return graph;
}

enum status cuda__build_sgd(struct op_builder *builder, const struct op_update *update)
{
    return add_parts(builder, tensor_elements(&update->parameters), sgd_part, update);
}

static cudnn_graph *adamw_part(const void *context, const struct stretch *part)
{
    const struct op_update *update = context;
    cudnn_graph *graph = graph_create();
    if (graph != NULL) {
        const struct tensor *scalars = &update->scalars;
        int old = vector_part(graph, &update->parameters, part);
        int gradient = vector_part(graph, &update->gradient, part);
        int first = vector_part(graph, &update->first, part);
        int second = vector_part(graph, &update->second, part);
        int beta1 = graph_scalar(graph, scalars, SCALAR(beta1));
        int beta2 = graph_scalar(graph, scalars, SCALAR(beta2));
        int rest1 = graph_scalar(graph, scalars, SCALAR(one_minus_beta1));
        int rest2 = graph_scalar(graph, scalars, SCALAR(one_minus_beta2));
        graph_binary(graph, CUDNN_POINTWISE_ADD,
                     times(graph, vector_part(graph, &update->first, part), beta1),
                     times(graph, gradient, rest1), first);
        int square = times(graph, times(graph, gradient, gradient), rest2);
        graph_binary(graph, CUDNN_POINTWISE_ADD,
                     times(graph, vector_part(graph, &update->second, part), beta2), square,
                     second);
        int root = graph_unary_virtual(graph, CUDNN_POINTWISE_SQRT, second);
        int scaled = times(graph, root, graph_scalar(graph, scalars, SCALAR(second_scale)));
        int denominator = plus(graph, scaled, graph_scalar(graph, scalars, SCALAR(epsilon)));
        int ratio = graph_binary_virtual(graph, CUDNN_POINTWISE_DIV, first, denominator);
        int change = times(graph, ratio, graph_scalar(graph, scalars, SCALAR(step_size)));
        if (update->decays) {
            old = times(graph, old, graph_scalar(graph, scalars, SCALAR(decay_factor)));
        }
        finish_update(graph, update, part, old, change);
    }
    return graph;
}

enum status cuda__build_adamw(struct op_builder *builder, const struct op_update *update)
{
    return add_parts(builder, tensor_elements(&update->parameters), adamw_part, update);
}
