/* Names, shapes and counts of each model's parameters, written by hand. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"

static device *dev;
static device_stream *stream;

static network *open_model(const char *model, enum stem stem, int size, int classes)
{
    struct device_settings wanted;
    device_settings_defaults(&wanted);
    wanted.kind = DEVICE_HOST;
    wanted.host_threads = 1;
    ck_assert_int_eq(device_open(&wanted, &dev), STATUS_OK);
    ck_assert_int_eq(device_stream_create(dev, "compute", &stream), STATUS_OK);
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = model;
    settings.stem = stem;
    settings.image_size = size;
    settings.classes = classes;
    settings.train = false;
    settings.train_batch = 0;
    settings.eval_batch = 1;
    network *net;
    ck_assert_msg(network_open(dev, stream, &settings, &net) == STATUS_OK, "%s", status_message());
    return net;
}

static void close_model(network *net)
{
    network_close(&net);
    device_stream_destroy(dev, &stream);
    device_close(&dev);
}

struct expected {
    const char *name;
    int dims;
    int64_t shape[4];
};

static void check_next(const network *net, int *index, const char *name, int dims,
                       const int64_t *shape, enum parameter_kind kind)
{
    ck_assert_int_lt(*index, network_parameter_count(net));
    const struct parameter *p = network_parameter(net, (*index)++);
    ck_assert_str_eq(p->name, name);
    ck_assert_int_eq(p->kind, kind);
    ck_assert_int_eq(p->dims, dims);
    size_t elements = 1;
    for (int d = 0; d < dims; d++) {
        ck_assert_int_eq(p->shape[d], shape[d]);
        elements *= (size_t)shape[d];
    }
    ck_assert_uint_eq(p->elements, elements);
    /* Weight decay spares batch norm and biases. */
    ck_assert(p->decays == (kind == PARAMETER_WEIGHT && dims >= 2));
}

/* A batch norm has five entries in this order. */
static void check_norm(const network *net, int *index, const char *prefix, int64_t channels)
{
    static const char *const suffixes[] = {"weight", "bias", "running_mean", "running_var"};
    char name[64];
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "%s.%s", prefix, suffixes[i]);
        check_next(net, index, name, 1, &channels, i < 2 ? PARAMETER_WEIGHT : PARAMETER_RUNNING);
    }
    snprintf(name, sizeof name, "%s.num_batches_tracked", prefix);
    check_next(net, index, name, 0, NULL, PARAMETER_COUNTER);
}

static void check_conv(const network *net, int *index, const char *prefix, int64_t outputs,
                       int64_t inputs, int64_t window)
{
    char name[96];
    snprintf(name, sizeof name, "%s.weight", prefix);
    const int64_t shape[4] = {outputs, inputs, window, window};
    check_next(net, index, name, 4, shape, PARAMETER_WEIGHT);
}

static size_t trained(const network *net)
{
    size_t sum = 0;
    for (int i = 0; i < network_parameter_count(net); i++) {
        const struct parameter *p = network_parameter(net, i);
        sum += p->kind == PARAMETER_WEIGHT ? p->elements : 0;
    }
    return sum;
}

START_TEST(test_smallcnn)
{
    static const struct {
        const char *conv, *norm;
        int64_t outputs, inputs;
    } blocks[] = {{"0", "1", 32, 3},    {"3", "4", 32, 32},    {"7", "8", 64, 32},
                  {"10", "11", 64, 64}, {"14", "15", 128, 64}, {"17", "18", 128, 128}};
    network *net = open_model("smallcnn", STEM_AUTO, 32, 10);
    int index = 0;
    for (int i = 0; i < 6; i++) {
        check_conv(net, &index, blocks[i].conv, blocks[i].outputs, blocks[i].inputs, 3);
        check_norm(net, &index, blocks[i].norm, blocks[i].outputs);
    }
    check_next(net, &index, "22.weight", 2, (const int64_t[]){10, 128}, PARAMETER_WEIGHT);
    check_next(net, &index, "22.bias", 1, (const int64_t[]){10}, PARAMETER_WEIGHT);
    ck_assert_int_eq(index, network_parameter_count(net));
    /* 864 + 9216 + 18432 + 36864 + 73728 + 147456, 2 (32 + 32 + 64 + 64 + 128 + 128), 1290 */
    ck_assert_uint_eq(trained(net), 286560 + 896 + 1290);
    close_model(net);
}
END_TEST

START_TEST(test_probe)
{
    network *net = open_model("probe", STEM_AUTO, 224, 10);
    int index = 0;
    check_conv(net, &index, "0", 32, 3, 3);
    check_next(net, &index, "0.bias", 1, (const int64_t[]){32}, PARAMETER_WEIGHT);
    check_next(net, &index, "4.weight", 2, (const int64_t[]){10, 32}, PARAMETER_WEIGHT);
    check_next(net, &index, "4.bias", 1, (const int64_t[]){10}, PARAMETER_WEIGHT);
    ck_assert_int_eq(index, network_parameter_count(net));
    ck_assert_uint_eq(trained(net), 864 + 32 + 320 + 10);
    close_model(net);
}
END_TEST

START_TEST(test_resnet9)
{
    static const struct {
        const char *name;
        int64_t outputs, inputs;
    } blocks[] = {{"prep", 64, 3},      {"layer1", 128, 64},  {"res1.0", 128, 128},
                  {"res1.1", 128, 128}, {"layer2", 256, 128}, {"layer3", 512, 256},
                  {"res3.0", 512, 512}, {"res3.1", 512, 512}};
    network *net = open_model("resnet9", STEM_AUTO, 32, 10);
    int index = 0;
    for (int i = 0; i < 8; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s.conv", blocks[i].name);
        check_conv(net, &index, name, blocks[i].outputs, blocks[i].inputs, 3);
        snprintf(name, sizeof name, "%s.bn", blocks[i].name);
        check_norm(net, &index, name, blocks[i].outputs);
    }
    check_next(net, &index, "head.weight", 2, (const int64_t[]){10, 512}, PARAMETER_WEIGHT);
    ck_assert_int_eq(index, network_parameter_count(net));
    /* 9 (192 + 8192 + 2 16384 + 32768 + 131072 + 2 262144) + 2 (64 + 3 128 + 256 + 3 512) + 5120 */
    ck_assert_uint_eq(trained(net), 6563520 + 4480 + 5120);
    close_model(net);
}
END_TEST

static void check_resnet18(enum stem stem, int size, int64_t window, size_t total)
{
    network *net = open_model("resnet18", stem, size, 10);
    int index = 0;
    check_conv(net, &index, "conv1", 64, 3, window);
    check_norm(net, &index, "bn1", 64);
    int64_t inputs = 64;
    for (int stage = 1; stage <= 4; stage++) {
        const int64_t outputs = INT64_C(32) << stage;
        for (int block = 0; block < 2; block++) {
            char name[64];
            snprintf(name, sizeof name, "layer%d.%d.conv1", stage, block);
            check_conv(net, &index, name, outputs, inputs, 3);
            snprintf(name, sizeof name, "layer%d.%d.bn1", stage, block);
            check_norm(net, &index, name, outputs);
            snprintf(name, sizeof name, "layer%d.%d.conv2", stage, block);
            check_conv(net, &index, name, outputs, outputs, 3);
            snprintf(name, sizeof name, "layer%d.%d.bn2", stage, block);
            check_norm(net, &index, name, outputs);
            if (stage > 1 && block == 0) {
                snprintf(name, sizeof name, "layer%d.0.downsample.0", stage);
                check_conv(net, &index, name, outputs, inputs, 1);
                snprintf(name, sizeof name, "layer%d.0.downsample.1", stage);
                check_norm(net, &index, name, outputs);
            }
            inputs = outputs;
        }
    }
    check_next(net, &index, "fc.weight", 2, (const int64_t[]){10, 512}, PARAMETER_WEIGHT);
    check_next(net, &index, "fc.bias", 1, (const int64_t[]){10}, PARAMETER_WEIGHT);
    ck_assert_int_eq(index, network_parameter_count(net));
    ck_assert_int_eq(index, 122);
    ck_assert_uint_eq(trained(net), total);
    close_model(net);
}

START_TEST(test_resnet18)
{
    /* torchvision's count with 10 classes; a 3x3 stem has 64 * 3 * (49 - 9) weights less. */
    check_resnet18(STEM_AUTO, 64, 7, 11181642);
    check_resnet18(STEM_LARGE, 32, 7, 11181642);
    check_resnet18(STEM_AUTO, 63, 3, 11181642 - 7680);
    check_resnet18(STEM_SMALL, 64, 3, 11181642 - 7680);
}
END_TEST

START_TEST(test_names_of_models)
{
    int count = 0;
    for (; network_model_names[count] != NULL; count++) {
        network *net = open_model(network_model_names[count], STEM_AUTO, 32, 2);
        close_model(net);
    }
    ck_assert_int_eq(count, 4);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_smallcnn, test_probe, test_resnet9, test_resnet18,
                                  test_names_of_models};
    return check_run("network_tables", tests, sizeof tests / sizeof tests[0], 0);
}
