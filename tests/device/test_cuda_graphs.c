/*
 * Every graph that the CUDA device builds for the networks' operations is finished as far as cuDNN
 * goes without a GPU: shapes, strides, types and attributes are cuDNN's own to refuse. Skipped where
 * the CUDA device is not built.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "device/device_backend.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

typedef enum status (*check_function)(const struct op_desc *desc, int *finished, int *refused,
                                      struct status_report *why);

static char why_not[512];

/* The plugin lies in the folder above this program. */
static check_function find_check(void)
{
    char path[PATH_MAX];
#if defined(__SANITIZE_THREAD__)
    /* Opening cuDNN's libraries makes the sanitizer find OpenBLAS twice, and it ends the process. One
     * thread alone is at work here. */
    snprintf(why_not, sizeof why_not, "the thread sanitizer cannot open CUDA's libraries");
    return NULL;
#endif
    ssize_t length = readlink("/proc/self/exe", path, sizeof path - 32);
    if (length <= 0) {
        return NULL;
    }
    path[length] = '\0';
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        ck_assert_ptr_nonnull(slash);
        *slash = '\0';
    }
    char plugin[PATH_MAX + 32];
    snprintf(plugin, sizeof plugin, "%s/pinline_cuda.so", path);
    if (access(plugin, R_OK) != 0) {
        snprintf(why_not, sizeof why_not, "the CUDA device is not built here (%.300s)", plugin);
        return NULL;
    }
    void *library = dlopen(plugin, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        snprintf(why_not, sizeof why_not, "%.500s", dlerror());
        /* Only a library of CUDA's own may be missing. */
        ck_assert_msg(strstr(why_not, "cannot open shared object file") != NULL, "%s", why_not);
        return NULL;
    }
    check_function check = NULL;
    void *symbol = dlsym(library, "pinline_cuda_check_op");
    memcpy(&check, &symbol, sizeof check);
    ck_assert_ptr_nonnull(symbol);
    return check;
}

#define FIND()                                                                                     \
    check_function check = find_check();                                                           \
    if (check == NULL) {                                                                           \
        SKIP_TEST(why_not);                                                                        \
    }

/* Stands for device memory that is never touched. */
static struct {
    struct device_buffer buffer;
    void *nothing[8];
} memory = {.buffer = {(size_t)1 << 40}};

static struct tensor tensor(enum dtype dtype, int n, int h, int w, int c)
{
    return (struct tensor){
        .buffer = &memory.buffer, .dtype = dtype, .n = n, .h = h, .w = w, .c = c};
}

static struct tensor vector(int c)
{
    return tensor(DTYPE_F32, 1, 1, 1, c);
}

static struct tensor scalars(void)
{
    return vector((int)(sizeof(struct step_scalars) / sizeof(float)));
}

static int finished_graphs;

static void finish(check_function check, const struct op_desc *desc)
{
    int finished = 0;
    int refused = 0;
    struct status_report why = {0};
    enum status status = check(desc, &finished, &refused, &why);
    ck_assert_msg(status == STATUS_OK, "%s: %s", desc->label, status_message());
    ck_assert_msg(refused == 0, "%s: %d graphs refused, the first: %s", desc->label, refused,
                  why.message);
    finished_graphs += finished;
}

/* --- The networks' layers ------------------------------------------------------------------- */

static void conv(check_function check, enum dtype data, int n, int size, int c, int k, int window,
                 int stride, bool bias)
{
    int pad = window / 2;
    int out = (size + 2 * pad - window) / stride + 1;
    char label[96];
    snprintf(label, sizeof label, "conv %d/%d %d %d>%d", window, stride, size, c, k);
    struct op_desc desc = {.kind = OP_CONV, .label = label};
    desc.u.conv = (struct op_conv){.x = tensor(data, n, size, size, c),
                                   .w = tensor(data, k, window, window, c),
                                   .y = tensor(data, n, out, out, k),
                                   .dx = tensor(data, n, size, size, c),
                                   .dw = tensor(data, k, window, window, c),
                                   .dy = tensor(data, n, out, out, k),
                                   .stride = stride,
                                   .pad = pad,
                                   .relu = bias};
    if (bias) {
        desc.u.conv.bias = vector(k);
    }
    finish(check, &desc);
    desc.u.conv.relu = false;
    desc.u.conv.bias = (struct tensor){0};
    desc.kind = OP_CONV_BACKWARD_DATA;
    finish(check, &desc);
    desc.kind = OP_CONV_BACKWARD_FILTER;
    finish(check, &desc);
    desc.u.conv.dw.dtype = DTYPE_F32;
    finish(check, &desc);
    desc = (struct op_desc){.kind = OP_BIAS_BACKWARD, .label = label};
    desc.u.bias = (struct op_bias_backward){.dy = tensor(data, n, out, out, k), .db = vector(k)};
    finish(check, &desc);
}

static void norm(check_function check, enum dtype data, int n, int size, int c, bool residual,
                 bool relu)
{
    char label[96];
    snprintf(label, sizeof label, "norm %d %d%s%s", size, c, residual ? " + add" : "",
             relu ? " + relu" : "");
    struct op_desc desc = {.kind = OP_NORM, .label = label};
    struct tensor map = tensor(data, n, size, size, c);
    desc.u.norm = (struct op_norm){.x = map,
                                   .y = map,
                                   .scale = vector(c),
                                   .bias = vector(c),
                                   .running_mean = vector(c),
                                   .running_var = vector(c),
                                   .saved_mean = vector(c),
                                   .saved_inv_std = vector(c),
                                   .scalars = scalars(),
                                   .dy = map,
                                   .dx = map,
                                   .dscale = vector(c),
                                   .dbias = vector(c),
                                   .epsilon = 1e-5F,
                                   .relu = relu};
    if (residual) {
        desc.u.norm.residual = map;
        desc.u.norm.dresidual = map;
    }
    finish(check, &desc);
    desc.kind = OP_NORM_INFER;
    finish(check, &desc);
    desc.kind = OP_NORM_BACKWARD;
    finish(check, &desc);
}

static void pool(check_function check, enum dtype data, int n, int size, int c, int window,
                 int stride, int pad)
{
    int out = (size + 2 * pad - window) / stride + 1;
    char label[96];
    snprintf(label, sizeof label, "pool %d/%d %d %d", window, stride, size, c);
    struct op_desc desc = {.kind = OP_MAX_POOL, .label = label};
    desc.u.pool = (struct op_max_pool){.x = tensor(data, n, size, size, c),
                                       .y = tensor(data, n, out, out, c),
                                       .index = tensor(DTYPE_U8, n, out, out, c),
                                       .dy = tensor(data, n, out, out, c),
                                       .dx = tensor(data, n, size, size, c),
                                       .window = window,
                                       .stride = stride,
                                       .pad = pad};
    finish(check, &desc);
    desc.kind = OP_MAX_POOL_BACKWARD;
    finish(check, &desc);
    desc.u.pool.index = (struct tensor){0};
    finish(check, &desc);
    desc.kind = OP_MAX_POOL;
    finish(check, &desc);
}

static void ends(check_function check, enum dtype data, int n, int input, int size, int c,
                 int classes, int parameters)
{
    struct op_desc desc = {.kind = OP_INGEST, .label = "pixels"};
    desc.u.ingest = (struct op_ingest){.from = tensor(DTYPE_U8, n, input, input, 3),
                                       .to = tensor(data, n, input, input, 4),
                                       .scale = {1, 1, 1}};
    finish(check, &desc);
    desc.u.ingest.from.dtype = DTYPE_F32;
    finish(check, &desc);

    for (int wide = 0; wide < 2; wide++) {
        struct tensor vectors = tensor(wide ? DTYPE_F32 : data, n, 1, 1, c);
        desc = (struct op_desc){.kind = OP_GLOBAL_AVERAGE, .label = "average"};
        desc.u.average = (struct op_global_average){.x = tensor(data, n, size, size, c),
                                                    .y = vectors,
                                                    .dy = vectors,
                                                    .dx = tensor(data, n, size, size, c)};
        finish(check, &desc);
        desc.kind = OP_GLOBAL_AVERAGE_BACKWARD;
        finish(check, &desc);
    }

    struct tensor logits = tensor(DTYPE_F32, n, 1, 1, classes);
    desc = (struct op_desc){.kind = OP_SOFTMAX_LOSS, .label = "loss"};
    desc.u.loss = (struct op_softmax_loss){
        .logits = logits, .targets = logits, .loss = vector(1), .dlogits = logits};
    finish(check, &desc);

    struct tensor map = tensor(data, n, size, size, c);
    desc = (struct op_desc){.kind = OP_RELU_BACKWARD, .label = "relu"};
    desc.u.relu = (struct op_relu_backward){.y = map, .dy = map, .dx = map};
    finish(check, &desc);
    desc = (struct op_desc){.kind = OP_ADD, .label = "add"};
    desc.u.add = (struct op_add){.a = map, .b = map, .y = map};
    finish(check, &desc);
    desc = (struct op_desc){.kind = OP_CAST, .label = "cast"};
    desc.u.cast =
        (struct op_cast){.from = vector(parameters), .to = tensor(DTYPE_BF16, 1, 1, 1, parameters)};
    finish(check, &desc);

    for (int kind = 0; kind < 3; kind++) {
        desc = (struct op_desc){.kind = kind == 2 ? OP_ADAMW : OP_SGD, .label = "update"};
        desc.u.update = (struct op_update){.parameters = vector(parameters),
                                           .gradient = tensor(data, 1, 1, 1, parameters),
                                           .first = vector(parameters),
                                           .scalars = scalars(),
                                           .decays = true,
                                           .nesterov = kind == 1};
        if (kind == 2) {
            desc.u.update.second = vector(parameters);
        }
        if (data == DTYPE_BF16) {
            desc.u.update.shadow = tensor(DTYPE_BF16, 1, 1, 1, parameters);
        }
        finish(check, &desc);
    }
}

#define TYPES(i) ((i) == 0 ? DTYPE_F32 : DTYPE_BF16)

START_TEST(smallcnn)
{
    FIND();
    static const int batches[] = {512, 17};
    for (int i = 0; i < 4; i++) {
        enum dtype data = TYPES(i / 2);
        int n = batches[i % 2];
        for (int size = 32; size <= 224; size += 192) {
            conv(check, data, n, size, 4, 32, 3, 1, false);
            conv(check, data, n, size, 32, 32, 3, 1, false);
            norm(check, data, n, size, 32, false, true);
            pool(check, data, n, size, 32, 2, 2, 0);
            conv(check, data, n, size / 2, 32, 64, 3, 1, false);
            norm(check, data, n, size / 2, 64, false, true);
            conv(check, data, n, size / 4, 64, 128, 3, 1, false);
            norm(check, data, n, size / 4, 128, false, true);
            ends(check, data, n, size, size / 4, 128, 10, 287008);
        }
    }
    ck_assert_int_gt(finished_graphs, 100);
}
END_TEST

START_TEST(resnet9)
{
    FIND();
    for (int i = 0; i < 2; i++) {
        enum dtype data = TYPES(i);
        conv(check, data, 128, 32, 4, 64, 3, 1, false);
        conv(check, data, 128, 32, 64, 128, 3, 1, false);
        pool(check, data, 128, 32, 128, 2, 2, 0);
        conv(check, data, 128, 4, 512, 512, 3, 1, false);
        norm(check, data, 128, 4, 512, true, true);
        pool(check, data, 128, 4, 512, 4, 4, 0);
        ends(check, data, 128, 32, 4, 512, 10, 6573120);
    }
    ck_assert_int_gt(finished_graphs, 50);
}
END_TEST

START_TEST(resnet18)
{
    FIND();
    for (int i = 0; i < 2; i++) {
        enum dtype data = TYPES(i);
        conv(check, data, 64, 224, 4, 64, 7, 2, false);
        norm(check, data, 64, 112, 64, false, true);
        pool(check, data, 64, 112, 64, 3, 2, 1);
        for (int c = 64, size = 56; c <= 512; c *= 2, size /= 2) {
            conv(check, data, 64, size, c, c, 3, 1, false);
            norm(check, data, 64, size, c, true, true);
            norm(check, data, 64, size, c, false, false);
            if (c < 512) {
                conv(check, data, 64, size, c, 2 * c, 3, 2, false);
                conv(check, data, 64, size, c, 2 * c, 1, 2, false);
            }
        }
        ends(check, data, 64, 224, 7, 512, 1000, 11689512);
    }
    ck_assert_int_gt(finished_graphs, 80);
}
END_TEST

START_TEST(probe)
{
    FIND();
    for (int i = 0; i < 2; i++) {
        struct op_desc desc = {.kind = OP_CONV, .label = "conv + bias + relu"};
        enum dtype data = TYPES(i);
        desc.u.conv = (struct op_conv){.x = tensor(data, 64, 224, 224, 4),
                                       .w = tensor(data, 32, 3, 3, 4),
                                       .bias = vector(32),
                                       .y = tensor(data, 64, 56, 56, 32),
                                       .stride = 4,
                                       .pad = 1,
                                       .relu = true};
        finish(check, &desc);
    }
}
END_TEST

/* The builder itself refuses what cuDNN would let pass. */
START_TEST(contradictions)
{
    FIND();
    struct op_desc desc = {.kind = OP_CONV, .label = "wrong"};
    desc.u.conv = (struct op_conv){.x = tensor(DTYPE_F32, 2, 8, 8, 4),
                                   .w = tensor(DTYPE_F32, 8, 3, 3, 4),
                                   .y = tensor(DTYPE_F32, 2, 7, 8, 8),
                                   .stride = 1,
                                   .pad = 1};
    int finished = 0;
    int refused = 0;
    struct status_report why = {0};
    ck_assert_int_eq(check(&desc, &finished, &refused, &why), STATUS_INTERNAL);
    ck_assert_ptr_nonnull(strstr(status_message(), "does not give"));
    desc.u.conv.y = tensor(DTYPE_F32, 2, 8, 8, 0);
    ck_assert_int_eq(check(&desc, &finished, &refused, &why), STATUS_INTERNAL);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {smallcnn, resnet9, resnet18, probe, contradictions};
    return check_run("cuda graphs", tests, sizeof tests / sizeof tests[0], 120);
}
