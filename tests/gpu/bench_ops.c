/*
 * Times every operation of a training step inside one captured program of 20 runs, over copies of its
 * buffers that together exceed the GPU's cache several times. Usage:
 *   bench_ops [f32|tf32|bf16] [smallcnn-32|smallcnn-224|resnet18-224|first|all] [batch] [file of plans] [v]
 * Prints one line an operation: microseconds, and GB/s counting each tensor read or written once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "device/device.h"

#define RUNS 20
#define CACHE_BYTES ((size_t)256 << 20)

static device *dev;
static device_stream *stream;
static enum dtype data;
static double total_us;

static void must(enum status status)
{
    if (status != STATUS_OK) {
        fprintf(stderr, "%s\n%s", status_message(), status_trace_text());
        exit(1);
    }
}

/* --- One operation -------------------------------------------------------------------------- */

#define MAX_TENSORS 24

struct bound {
    struct tensor *tensors[MAX_TENSORS]; /* places in the description that need a buffer */
    int count;
};

static void bind(struct bound *bound, struct tensor *place, enum dtype dtype, int n, int h, int w,
                 int c)
{
    *place = (struct tensor){.dtype = dtype, .n = n, .h = h, .w = w, .c = c};
    bound->tensors[bound->count++] = place;
}

static void vector(struct bound *bound, struct tensor *place, int c)
{
    bind(bound, place, DTYPE_F32, 1, 1, 1, c);
}

/* Times the operation that `desc` describes, whose tensors `bound` lists, `times` of which are in a
 * step. */
static void measure(struct op_desc *desc, const struct bound *bound, int times)
{
    size_t bytes = 0;
    for (int i = 0; i < bound->count; i++) {
        bytes += tensor_bytes(bound->tensors[i]);
    }
    int copies = bytes * RUNS > CACHE_BYTES ? (int)(CACHE_BYTES / (bytes + 1)) + 2 : RUNS;
    copies = copies > RUNS ? RUNS : copies;
    device_op *ops[RUNS] = {NULL};
    device_op *order[RUNS];
    device_buffer *buffers[RUNS][MAX_TENSORS] = {{NULL}};
    for (int copy = 0; copy < copies; copy++) {
        for (int i = 0; i < bound->count; i++) {
            must(device_buffer_create(dev, tensor_bytes(bound->tensors[i]), &buffers[copy][i]));
            must(device_zero(dev, stream, buffers[copy][i], 0, tensor_bytes(bound->tensors[i])));
            bound->tensors[i]->buffer = buffers[copy][i];
        }
        enum status status = device_op_create(dev, desc, &ops[copy]);
        if (status != STATUS_OK) {
            printf("%-34s FAILED: %s\n", desc->label, status_message());
            return;
        }
    }
    for (int i = 0; i < RUNS; i++) {
        order[i] = ops[i % copies];
    }
    device_program *program = NULL;
    device_event *from = NULL;
    device_event *to = NULL;
    double best = 1e9;
    must(device_program_create(dev, order, RUNS, stream, &program));
    must(device_event_create(dev, true, &from));
    must(device_event_create(dev, true, &to));
    for (int i = 0; i < 4; i++) {
        double ms = 0;
        must(device_event_record(dev, from, stream));
        must(device_program_submit(dev, program, stream));
        must(device_event_record(dev, to, stream));
        must(device_event_wait(dev, to));
        must(device_event_elapsed(dev, from, to, &ms));
        best = i > 0 && ms < best ? ms : best;
    }
    double us = best * 1e3 / RUNS;
    total_us += us * times;
    printf("%-34s %9.2f us  x %2d  %7.0f GB/s%s\n", desc->label, us, times,
           (double)bytes / us / 1e3, device_program_is_captured(program) ? "" : "  not captured");
    fflush(stdout);
    device_program_destroy(dev, &program);
    device_event_destroy(dev, &from);
    device_event_destroy(dev, &to);
    for (int copy = 0; copy < copies; copy++) {
        device_op_destroy(dev, &ops[copy]);
        for (int i = 0; i < bound->count; i++) {
            device_buffer_destroy(dev, &buffers[copy][i]);
        }
    }
}

/* --- Kinds ---------------------------------------------------------------------------------- */

static void conv(int n, int h, int w, int c, int k, int window, int stride, bool first, int times)
{
    int pad = window / 2;
    int ho = (h + 2 * pad - window) / stride + 1;
    int wo = (w + 2 * pad - window) / stride + 1;
    static const enum op_kind kinds[] = {OP_CONV, OP_CONV_BACKWARD_FILTER, OP_CONV_BACKWARD_DATA};
    static const char *const names[] = {"forward", "filter", "data"};
    for (int i = 0; i < (first ? 2 : 3); i++) {
        char label[96];
        snprintf(label, sizeof label, "conv%d/%d %dx%d %d>%d %s", window, stride, h, w, c, k,
                 names[i]);
        struct op_desc desc = {.kind = kinds[i], .label = label};
        struct bound bound = {.count = 0};
        struct op_conv *u = &desc.u.conv;
        u->stride = stride;
        u->pad = pad;
        bind(&bound, i == 2 ? &u->dx : &u->x, data, n, h, w, c);
        bind(&bound, i == 1 ? &u->dw : &u->w, data, k, window, window, c);
        bind(&bound, i == 0 ? &u->y : &u->dy, data, n, ho, wo, k);
        measure(&desc, &bound, times);
    }
}

static void norm(int n, int h, int w, int c, bool residual, bool relu, int times)
{
    /* The forward operation stays while the backward one is timed, as in a step. */
    for (int i = 0; i < 2; i++) {
        char label[96];
        snprintf(label, sizeof label, "norm%s%s %dx%dx%d %s", residual ? "+add" : "",
                 relu ? "+relu" : "", h, w, c, i == 0 ? "forward" : "backward");
        struct op_desc desc = {.kind = i == 0 ? OP_NORM : OP_NORM_BACKWARD, .label = label};
        struct bound bound = {.count = 0};
        struct op_norm *u = &desc.u.norm;
        u->relu = relu;
        u->epsilon = 1e-5F;
        bind(&bound, &u->x, data, n, h, w, c);
        bind(&bound, &u->y, data, n, h, w, c);
        vector(&bound, &u->scale, c);
        vector(&bound, &u->bias, c);
        vector(&bound, &u->saved_mean, c);
        vector(&bound, &u->saved_inv_std, c);
        if (i == 0) {
            vector(&bound, &u->running_mean, c);
            vector(&bound, &u->running_var, c);
            vector(&bound, &u->scalars, (int)(sizeof(struct step_scalars) / sizeof(float)));
            if (residual) {
                bind(&bound, &u->residual, data, n, h, w, c);
            }
        } else {
            bind(&bound, &u->dy, data, n, h, w, c);
            bind(&bound, &u->dx, data, n, h, w, c);
            vector(&bound, &u->dscale, c);
            vector(&bound, &u->dbias, c);
            if (residual) {
                bind(&bound, &u->dresidual, data, n, h, w, c);
            }
        }
        measure(&desc, &bound, times);
    }
}

static void pool(int n, int h, int w, int c, int window, int stride, int pad)
{
    int ho = (h + 2 * pad - window) / stride + 1;
    int wo = (w + 2 * pad - window) / stride + 1;
    for (int i = 0; i < 2; i++) {
        char label[96];
        snprintf(label, sizeof label, "max pool%d/%d %dx%dx%d %s", window, stride, h, w, c,
                 i == 0 ? "forward" : "backward");
        struct op_desc desc = {.kind = i == 0 ? OP_MAX_POOL : OP_MAX_POOL_BACKWARD, .label = label};
        struct bound bound = {.count = 0};
        struct op_max_pool *u = &desc.u.pool;
        u->window = window;
        u->stride = stride;
        u->pad = pad;
        bind(&bound, &u->index, DTYPE_U8, n, ho, wo, c);
        if (i == 0) {
            bind(&bound, &u->x, data, n, h, w, c);
            bind(&bound, &u->y, data, n, ho, wo, c);
        } else {
            bind(&bound, &u->x, data, n, h, w, c);
            bind(&bound, &u->y, data, n, ho, wo, c);
            bind(&bound, &u->dx, data, n, h, w, c);
            bind(&bound, &u->dy, data, n, ho, wo, c);
        }
        measure(&desc, &bound, 1);
    }
}

static void ends(int n, int size, int h, int w, int c, int classes, int parameters)
{
    struct bound bound = {.count = 0};
    struct op_desc desc = {.kind = OP_INGEST, .label = "pixels"};
    bind(&bound, &desc.u.ingest.from, DTYPE_U8, n, size, size, 3);
    bind(&bound, &desc.u.ingest.to, data, n, size, size, 4);
    measure(&desc, &bound, 1);
    bound.count = 0;
    desc = (struct op_desc){.kind = OP_INGEST, .label = "pixels, uneven (not in the sum)"};
    bind(&bound, &desc.u.ingest.from, DTYPE_U8, n - 1, size - 1, size - 1, 3);
    bind(&bound, &desc.u.ingest.to, data, n - 1, size - 1, size - 1, 4);
    measure(&desc, &bound, 0);
    bound.count = 0;
    desc = (struct op_desc){.kind = OP_INGEST, .label = "pixels of floats (not in the sum)"};
    bind(&bound, &desc.u.ingest.from, DTYPE_F32, n, size, size, 3);
    bind(&bound, &desc.u.ingest.to, data, n, size, size, 4);
    measure(&desc, &bound, 0);

    bound.count = 0;
    desc = (struct op_desc){.kind = OP_GLOBAL_AVERAGE, .label = "average forward"};
    bind(&bound, &desc.u.average.x, data, n, h, w, c);
    bind(&bound, &desc.u.average.y, DTYPE_F32, n, 1, 1, c);
    measure(&desc, &bound, 1);
    bound.count = 0;
    desc = (struct op_desc){.kind = OP_GLOBAL_AVERAGE_BACKWARD, .label = "average backward"};
    bind(&bound, &desc.u.average.dx, data, n, h, w, c);
    bind(&bound, &desc.u.average.dy, DTYPE_F32, n, 1, 1, c);
    measure(&desc, &bound, 1);

    static const enum op_kind kinds[] = {OP_LINEAR, OP_LINEAR_BACKWARD_DATA,
                                         OP_LINEAR_BACKWARD_WEIGHTS};
    static const char *const names[] = {"linear forward", "linear data", "linear weights"};
    for (int i = 0; i < 3; i++) {
        bound.count = 0;
        desc = (struct op_desc){.kind = kinds[i], .label = names[i]};
        struct op_linear *u = &desc.u.linear;
        u->factor = 1;
        bind(&bound, i == 1 ? &u->dx : &u->x, DTYPE_F32, n, 1, 1, c);
        bind(&bound, i == 2 ? &u->dw : &u->w, DTYPE_F32, classes, 1, 1, c);
        bind(&bound, i == 0 ? &u->y : &u->dy, DTYPE_F32, n, 1, 1, classes);
        if (i != 1) {
            bind(&bound, i == 0 ? &u->bias : &u->db, DTYPE_F32, 1, 1, 1, classes);
        }
        measure(&desc, &bound, 1);
    }
    bound.count = 0;
    desc = (struct op_desc){.kind = OP_SOFTMAX_LOSS, .label = "loss"};
    bind(&bound, &desc.u.loss.logits, DTYPE_F32, n, 1, 1, classes);
    bind(&bound, &desc.u.loss.targets, DTYPE_F32, n, 1, 1, classes);
    bind(&bound, &desc.u.loss.dlogits, DTYPE_F32, n, 1, 1, classes);
    vector(&bound, &desc.u.loss.loss, 1);
    measure(&desc, &bound, 1);

    for (int i = 0; i < 2; i++) {
        bound.count = 0;
        desc = (struct op_desc){.kind = i == 0 ? OP_SGD : OP_ADAMW,
                                .label = i == 0 ? "sgd" : "adamw (not in the sum)"};
        struct op_update *u = &desc.u.update;
        u->decays = true;
        vector(&bound, &u->parameters, parameters);
        bind(&bound, &u->gradient, data, 1, 1, 1, parameters);
        vector(&bound, &u->first, parameters);
        if (i == 1) {
            vector(&bound, &u->second, parameters);
        }
        vector(&bound, &u->scalars, (int)(sizeof(struct step_scalars) / sizeof(float)));
        if (data == DTYPE_BF16) {
            bind(&bound, &u->shadow, DTYPE_BF16, 1, 1, 1, parameters);
        }
        measure(&desc, &bound, 1 - i);
    }
}

static void smallcnn(int n, int size)
{
    conv(n, size, size, 4, 32, 3, 1, true, 1);
    norm(n, size, size, 32, false, true, 2);
    conv(n, size, size, 32, 32, 3, 1, false, 1);
    pool(n, size, size, 32, 2, 2, 0);
    conv(n, size / 2, size / 2, 32, 64, 3, 1, false, 1);
    norm(n, size / 2, size / 2, 64, false, true, 2);
    conv(n, size / 2, size / 2, 64, 64, 3, 1, false, 1);
    pool(n, size / 2, size / 2, 64, 2, 2, 0);
    conv(n, size / 4, size / 4, 64, 128, 3, 1, false, 1);
    norm(n, size / 4, size / 4, 128, false, true, 2);
    conv(n, size / 4, size / 4, 128, 128, 3, 1, false, 1);
    ends(n, size, size / 4, size / 4, 128, 10, 287000);
}

static void resnet18(int n)
{
    conv(n, 224, 224, 4, 64, 7, 2, true, 1);
    norm(n, 112, 112, 64, false, true, 1);
    pool(n, 112, 112, 64, 3, 2, 1);
    static const int channels[] = {64, 128, 256, 512};
    for (int i = 0; i < 4; i++) {
        int c = channels[i];
        int size = 56 >> i;
        if (i > 0) {
            conv(n, size * 2, size * 2, c / 2, c, 3, 2, false, 1);
            conv(n, size * 2, size * 2, c / 2, c, 1, 2, false, 1);
            norm(n, size, size, c, false, false, 1);
        }
        conv(n, size, size, c, c, 3, 1, false, i == 0 ? 4 : 3);
        norm(n, size, size, c, false, true, 2);
        norm(n, size, size, c, true, true, 2);
    }
    ends(n, 224, 7, 7, 512, 1000, 11690000);
}

/* The first convolutions with three channels, and padded to four and eight: what padding is worth. */
static void first_layers(int n)
{
    for (int c = 3; c <= 8; c += c == 3 ? 1 : 4) {
        conv(n, 224, 224, c, 64, 7, 2, true, 1);
        conv(n, 224, 224, c, 32, 3, 1, true, 1);
        conv(n * 8, 32, 32, c, 32, 3, 1, true, 1);
    }
}

int main(int argc, char **argv)
{
    const char *precision = argc > 1 ? argv[1] : "bf16";
    const char *what = argc > 2 ? argv[2] : "all";
    int batch = argc > 3 ? atoi(argv[3]) : 0;
    bool all = strcmp(what, "all") == 0;
    struct device_settings settings;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_CUDA;
    settings.precision = strcmp(precision, "bf16") == 0   ? PRECISION_BF16
                         : strcmp(precision, "tf32") == 0 ? PRECISION_TF32
                                                          : PRECISION_F32;
    settings.plan_cache = argc > 4 && argv[4][0] != '-' ? argv[4] : NULL;
    if (argc > 5) {
        log_set_level(LOG_VERBOSE);
    }
    data = settings.precision == PRECISION_BF16 ? DTYPE_BF16 : DTYPE_F32;
    must(device_open(&settings, &dev));
    must(device_stream_create(dev, "bench", &stream));
    static const char *const names[] = {"smallcnn-32", "smallcnn-224", "resnet18-224", "first"};
    for (int i = 0; i < 4; i++) {
        if (!all && strcmp(what, names[i]) != 0) {
            continue;
        }
        int n = batch > 0 ? batch : i == 0 ? 512 : 64;
        total_us = 0;
        uint64_t start = clock_now_ns();
        printf("== %s, %s, batch %d\n", names[i], precision, n);
        if (i < 2) {
            smallcnn(n, i == 0 ? 32 : 224);
        } else if (i == 2) {
            resnet18(n);
        } else {
            first_layers(n);
        }
        printf(
            "== %s, %s, batch %d: %.3f ms a step as the sum of its operations; %.1f s to measure\n",
            names[i], precision, n, total_us / 1e3, clock_seconds(start, clock_now_ns()));
    }
    device_stream_destroy(dev, &stream);
    device_close(&dev);
    return 0;
}
