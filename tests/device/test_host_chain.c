/* A small network of the host device against finite differences, and the same bits of every operation for
 * any number of threads. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/host_variant.h"
#include "tests/support/op_cases.h"

/* --- A small network -------------------------------------------------------------------------- */

/* conv 3 > 6, norm, ReLU; conv 6 > 6, norm, + what came before, ReLU; pool; average; linear; loss. */
#define CHAIN_N 5
#define CHAIN_SIZE 6
#define CHAIN_C 6
#define CHAIN_CLASSES 4
#define CHAIN_EPSILON 1e-3F

enum { W1, S1, B1, W2, S2, B2, W3, B3, CHAIN_PARAMETERS };

struct chain {
    struct bench_tensor *x, *targets, *scalars, *unused;
    struct bench_tensor *p[CHAIN_PARAMETERS], *g[CHAIN_PARAMETERS];
    struct bench_tensor *loss;
};

static const struct reference_shape image_shape = {CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, 3};
static const struct reference_shape map_shape = {CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, CHAIN_C};
static const struct reference_shape pool_shape = {CHAIN_N, CHAIN_SIZE / 2, CHAIN_SIZE / 2, CHAIN_C};

#define MAP_VALUES (CHAIN_N * CHAIN_SIZE * CHAIN_SIZE * CHAIN_C)

/* The loss in double, forward alone: what finite differences are taken of. */
static double chain_loss(const struct chain *c)
{
    static double conv[MAP_VALUES], first[MAP_VALUES], second[MAP_VALUES], pooled[MAP_VALUES];
    double average[CHAIN_N * CHAIN_C], logits[CHAIN_N * CHAIN_CLASSES];
    double running[CHAIN_C] = {0}, saved[2][CHAIN_C];
    struct reference_norm norm = {.scale = c->p[S1]->values,
                                  .bias = c->p[B1]->values,
                                  .running_mean = running,
                                  .running_var = running,
                                  .saved_mean = saved[0],
                                  .saved_inv_std = saved[1],
                                  .epsilon = (double)CHAIN_EPSILON,
                                  .relu = true};
    reference_conv(c->x->values, image_shape, c->p[W1]->values,
                   (struct reference_shape){CHAIN_C, 3, 3, 3}, NULL, 1, 1, false, conv, map_shape);
    reference_norm_train(conv, NULL, map_shape, &norm, first);
    reference_conv(first, map_shape, c->p[W2]->values,
                   (struct reference_shape){CHAIN_C, 3, 3, CHAIN_C}, NULL, 1, 1, false, conv,
                   map_shape);
    norm.scale = c->p[S2]->values;
    norm.bias = c->p[B2]->values;
    reference_norm_train(conv, first, map_shape, &norm, second);
    reference_max_pool(second, map_shape, 2, 2, 0, pooled, pool_shape);
    reference_global_average(pooled, pool_shape, average);
    reference_linear(average, c->p[W3]->values, c->p[B3]->values, 1.0, CHAIN_N, CHAIN_C,
                     CHAIN_CLASSES, logits);
    return reference_softmax_loss(logits, c->targets->values, CHAIN_N, CHAIN_CLASSES, NULL);
}

static void make_chain(struct op_bench *b, struct chain *c)
{
    static const int shapes[CHAIN_PARAMETERS][4] = {{CHAIN_C, 3, 3, 3},
                                                    {1, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {CHAIN_C, 3, 3, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_C},
                                                    {CHAIN_CLASSES, 1, 1, CHAIN_C},
                                                    {1, 1, 1, CHAIN_CLASSES}};
    c->x = op_bench_tensor(b, DTYPE_F32, CHAIN_N, CHAIN_SIZE, CHAIN_SIZE, 3, 1.0);
    c->targets = op_bench_tensor(b, DTYPE_F32, CHAIN_N, 1, 1, CHAIN_CLASSES, 1.0);
    for (size_t i = 0; i < c->targets->count; i++) {
        size_t label = i / CHAIN_CLASSES % CHAIN_CLASSES;
        c->targets->values[i] = (i % CHAIN_CLASSES == label ? 0.875 : 0.03125) / CHAIN_N;
    }
    op_bench_upload(b, c->targets);
    for (int i = 0; i < CHAIN_PARAMETERS; i++) {
        const int *s = shapes[i];
        c->p[i] = op_bench_tensor(b, DTYPE_F32, s[0], s[1], s[2], s[3], 0.5);
        c->g[i] = op_bench_tensor(b, DTYPE_F32, s[0], s[1], s[2], s[3], 0.0);
    }
    c->loss = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 1, 0.0);
    /* Averaging 0: the running values are not looked at. */
    c->scalars = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 16, 1.0);
    memset(c->scalars->values, 0, 16 * sizeof(double));
    op_bench_upload(b, c->scalars);
    c->unused = op_bench_tensor(b, DTYPE_F32, 1, 1, 1, 4 * CHAIN_C, 1.0);
}

/* A vector inside `storage`, which is larger: tensors may share a buffer. */
static struct tensor part_of_buffer(const struct bench_tensor *storage, size_t offset)
{
    struct tensor tensor = storage->tensor;
    tensor.offset += offset;
    tensor.c = CHAIN_C;
    return tensor;
}

/* The network on the device, forward and backward, from the operations alone. */
static void run_chain(struct op_bench *b, const struct chain *c)
{
    device_buffer *buffer = NULL;
    const size_t map_bytes = MAP_VALUES * sizeof(float);
    MUST(device_buffer_create(b->dev, 16 * map_bytes, &buffer));
    struct tensor maps[12];
    for (size_t i = 0; i < 12; i++) {
        maps[i] = (struct tensor){buffer,     i * map_bytes, DTYPE_F32, CHAIN_N,
                                  CHAIN_SIZE, CHAIN_SIZE,    CHAIN_C};
    }
    struct tensor conv1 = maps[0], first = maps[1], conv2 = maps[2], second = maps[3];
    struct tensor pooled = maps[4], dpooled = maps[5], dsecond = maps[6], dconv2 = maps[7];
    struct tensor dshort = maps[8], dfirst = maps[9], dconv1 = maps[10], small = maps[11];
    pooled.h = pooled.w = dpooled.h = dpooled.w = CHAIN_SIZE / 2;
    struct tensor average = small, daverage = small, logits = small, dlogits = small, saved = small;
    average.h = average.w = 1;
    daverage = average;
    daverage.offset += 512;
    logits = average;
    logits.offset += 1024;
    logits.c = CHAIN_CLASSES;
    dlogits = logits;
    dlogits.offset += 512;
    saved.n = saved.h = saved.w = 1;
    saved.offset += 2048;
    struct tensor saved1[2] = {saved, saved}, saved2[2] = {saved, saved};
    saved1[1].offset += 64;
    saved2[0].offset += 128;
    saved2[1].offset += 192;
    struct op_norm norm1 = {.x = conv1,
                            .y = first,
                            .scale = c->p[S1]->tensor,
                            .bias = c->p[B1]->tensor,
                            .running_mean = part_of_buffer(c->unused, 0),
                            .running_var = part_of_buffer(c->unused, 32),
                            .saved_mean = saved1[0],
                            .saved_inv_std = saved1[1],
                            .scalars = c->scalars->tensor,
                            .dy = dfirst,
                            .dx = dconv1,
                            .dscale = c->g[S1]->tensor,
                            .dbias = c->g[B1]->tensor,
                            .epsilon = CHAIN_EPSILON,
                            .relu = true};
    struct op_norm norm2 = norm1;
    norm2.x = conv2;
    norm2.residual = first;
    norm2.y = second;
    norm2.scale = c->p[S2]->tensor;
    norm2.bias = c->p[B2]->tensor;
    norm2.saved_mean = saved2[0];
    norm2.saved_inv_std = saved2[1];
    norm2.dy = dsecond;
    norm2.dx = dconv2;
    norm2.dresidual = dshort;
    norm2.dscale = c->g[S2]->tensor;
    norm2.dbias = c->g[B2]->tensor;
    struct op_max_pool pool = {
        .x = second, .y = pooled, .dy = dpooled, .dx = dsecond, .window = 2, .stride = 2};
    struct op_linear linear = {.x = average,
                               .w = c->p[W3]->tensor,
                               .bias = c->p[B3]->tensor,
                               .y = logits,
                               .dx = daverage,
                               .dw = c->g[W3]->tensor,
                               .db = c->g[B3]->tensor,
                               .dy = dlogits,
                               .factor = 1.0F};
    struct op_conv both1 = {.x = c->x->tensor,
                            .w = c->p[W1]->tensor,
                            .y = conv1,
                            .dw = c->g[W1]->tensor,
                            .dy = dconv1,
                            .stride = 1,
                            .pad = 1};
    struct op_conv both2 = {.x = first,
                            .w = c->p[W2]->tensor,
                            .y = conv2,
                            .dx = dfirst,
                            .dw = c->g[W2]->tensor,
                            .dy = dconv2,
                            .stride = 1,
                            .pad = 1};
    const struct op_desc descs[] = {
        {.kind = OP_CONV, .u.conv = both1},
        {.kind = OP_NORM, .u.norm = norm1},
        {.kind = OP_CONV, .u.conv = both2},
        {.kind = OP_NORM, .u.norm = norm2},
        {.kind = OP_MAX_POOL, .u.pool = pool},
        {.kind = OP_GLOBAL_AVERAGE, .u.average = {.x = pooled, .y = average}},
        {.kind = OP_LINEAR, .u.linear = linear},
        {.kind = OP_SOFTMAX_LOSS,
         .u.loss = {.logits = logits,
                    .targets = c->targets->tensor,
                    .loss = c->loss->tensor,
                    .dlogits = dlogits}},
        {.kind = OP_LINEAR_BACKWARD_WEIGHTS, .u.linear = linear},
        {.kind = OP_LINEAR_BACKWARD_DATA, .u.linear = linear},
        {.kind = OP_GLOBAL_AVERAGE_BACKWARD, .u.average = {.dy = daverage, .dx = dpooled}},
        {.kind = OP_MAX_POOL_BACKWARD, .u.pool = pool},
        {.kind = OP_NORM_BACKWARD, .u.norm = norm2},
        {.kind = OP_CONV_BACKWARD_FILTER, .u.conv = both2},
        {.kind = OP_CONV_BACKWARD_DATA, .u.conv = both2},
        {.kind = OP_ADD, .u.add = {.a = dfirst, .b = dshort, .y = dfirst}},
        {.kind = OP_NORM_BACKWARD, .u.norm = norm1},
        {.kind = OP_CONV_BACKWARD_FILTER, .u.conv = both1},
    };
    for (size_t i = 0; i < sizeof descs / sizeof *descs; i++) {
        op_bench_run(b, &descs[i]);
    }
    device_buffer_destroy(b->dev, &buffer);
}

/* Every parameter's gradient against central differences of the loss in double. Differences over
 * 1e-5 are right to about 1e-9; the device's float32 is what is off. */
START_TEST(chain_against_finite_differences)
{
    struct op_bench b;
    if (!host_variant_open(2 * _i, &b)) {
        return;
    }
    struct chain c;
    make_chain(&b, &c);
    run_chain(&b, &c);
    double loss = chain_loss(&c);
    op_bench_compare(&b, c.loss, &loss, "chain: loss");
    b.relative = 1e-4;
    b.absolute = 1e-5;
    for (int i = 0; i < CHAIN_PARAMETERS; i++) {
        double *want = calloc(c.p[i]->count, sizeof *want);
        ck_assert_ptr_nonnull(want);
        for (size_t j = 0; j < c.p[i]->count; j++) {
            const double step = 1e-5;
            double value = c.p[i]->values[j];
            c.p[i]->values[j] = value + step;
            double above = chain_loss(&c);
            c.p[i]->values[j] = value - step;
            double below = chain_loss(&c);
            c.p[i]->values[j] = value;
            want[j] = (above - below) / (2.0 * step);
        }
        char what[64];
        snprintf(what, sizeof what, "chain: gradient of parameter %d", i);
        op_bench_compare(&b, c.g[i], want, what);
        free(want);
    }
    host_variant_close(&b);
}
END_TEST

/* --- The same bits ---------------------------------------------------------------------------- */

/* Every byte of a tensor's buffer, added to a simple hash. */
static uint64_t hash_tensor(struct op_bench *b, const struct tensor *tensor, uint64_t hash)
{
    size_t bytes = tensor_bytes(tensor);
    unsigned char *data = malloc(bytes);
    ck_assert_ptr_nonnull(data);
    MUST(device_copy_to_host(b->dev, b->stream, data, tensor->buffer, tensor->offset, bytes));
    MUST(device_stream_wait(b->dev, b->stream));
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ data[i]) * UINT64_C(1099511628211);
    }
    free(data);
    return hash;
}

/* Shapes large enough to be cut into many parts. */
static uint64_t bits_of(enum dtype dtype, int threads)
{
    struct op_bench b;
    device *dev = host_variant_open_device("generic", threads);
    op_bench_init(&b, dev, dtype, 1e-5, 1e-5, 77);
    uint64_t hash = UINT64_C(14695981039346656037);
    struct bench_tensor *x = op_bench_tensor(&b, dtype, 19, 12, 12, 24, 1.0);
    struct bench_tensor *w = op_bench_tensor(&b, dtype, 40, 3, 3, 24, 0.3);
    struct bench_tensor *y = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *z = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *dx = op_bench_tensor(&b, dtype, 19, 12, 12, 24, 0.0);
    struct bench_tensor *dw = op_bench_tensor(&b, dtype, 40, 3, 3, 24, 0.0);
    struct bench_tensor *dy = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 0.0);
    struct bench_tensor *dz = op_bench_tensor(&b, dtype, 19, 12, 12, 40, 1.0);
    struct bench_tensor *v = op_bench_tensor(&b, DTYPE_F32, 1, 1, 1, 40, 1.0);
    struct bench_tensor *vectors[8];
    for (int i = 0; i < 8; i++) {
        vectors[i] = op_bench_tensor(&b, DTYPE_F32, 1, 1, 1, 40, 1.0);
    }
    struct op_desc desc = {.kind = OP_CONV};
    desc.u.conv = (struct op_conv){.x = x->tensor,
                                   .w = w->tensor,
                                   .y = y->tensor,
                                   .dx = dx->tensor,
                                   .dw = dw->tensor,
                                   .dy = dy->tensor,
                                   .stride = 1,
                                   .pad = 1};
    op_bench_run(&b, &desc);
    struct op_desc norm = {.kind = OP_NORM};
    norm.u.norm = (struct op_norm){.x = y->tensor,
                                   .y = z->tensor,
                                   .scale = vectors[0]->tensor,
                                   .bias = vectors[1]->tensor,
                                   .running_mean = vectors[2]->tensor,
                                   .running_var = vectors[3]->tensor,
                                   .saved_mean = vectors[4]->tensor,
                                   .saved_inv_std = vectors[5]->tensor,
                                   .scalars = v->tensor,
                                   .dy = dz->tensor,
                                   .dx = dy->tensor,
                                   .dscale = vectors[6]->tensor,
                                   .dbias = vectors[7]->tensor,
                                   .epsilon = 1e-5F,
                                   .relu = true};
    op_bench_run(&b, &norm);
    norm.kind = OP_NORM_BACKWARD;
    op_bench_run(&b, &norm);
    desc.kind = OP_CONV_BACKWARD_FILTER;
    op_bench_run(&b, &desc);
    desc.kind = OP_CONV_BACKWARD_DATA;
    op_bench_run(&b, &desc);
    struct op_desc bias = {.kind = OP_BIAS_BACKWARD};
    bias.u.bias = (struct op_bias_backward){.dy = dy->tensor, .db = v->tensor};
    op_bench_run(&b, &bias);
    const struct bench_tensor *results[] = {y, z, dx, dw, dy, v};
    for (size_t i = 0; i < sizeof results / sizeof *results; i++) {
        hash = hash_tensor(&b, &results[i]->tensor, hash);
    }
    for (int i = 0; i < 8; i++) {
        hash = hash_tensor(&b, &vectors[i]->tensor, hash);
    }
    op_bench_fini(&b);
    device_close(&dev);
    return hash;
}

START_TEST(bits_do_not_depend_on_threads)
{
    enum dtype dtype = _i == 0 ? DTYPE_F32 : DTYPE_BF16;
    uint64_t one = bits_of(dtype, 1);
    ck_assert_uint_eq(one, bits_of(dtype, 1));
    ck_assert_uint_eq(one, bits_of(dtype, 2));
    ck_assert_uint_eq(one, bits_of(dtype, 5));
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("whole chains");
    tcase_set_timeout(tests, 60);
    tcase_add_loop_test(tests, chain_against_finite_differences, 0, HOST_VARIANT_KERNELS);
    tcase_add_loop_test(tests, bits_do_not_depend_on_threads, 0, 2);
    return check_run_case("host_chain", tests);
}
