/* The models written down a second time, from their published descriptions: PyTorch's module names,
 * torchvision's basic blocks. */
#include <stdio.h>
#include <string.h>

#include "tests/support/reference_net.h"

static int conv_norm(struct reference_net *net, int x, const char *conv, const char *norm,
                     int outputs, int window, int stride)
{
    const int y = reference_net_conv(net, x, conv, outputs, window, stride, window / 2, false);
    return reference_norm(net, y, norm);
}

static void build_smallcnn(struct reference_net *net, int classes)
{
    static const struct {
        const char *conv, *norm;
        int outputs;
        bool pool;
    } blocks[] = {{"0", "1", 32, false},  {"3", "4", 32, true},     {"7", "8", 64, false},
                  {"10", "11", 64, true}, {"14", "15", 128, false}, {"17", "18", 128, false}};
    int x = 0;
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        x = conv_norm(net, x, blocks[i].conv, blocks[i].norm, blocks[i].outputs, 3, 1);
        x = reference_relu(net, x);
        if (blocks[i].pool) {
            x = reference_pool(net, x, 2, 2, 0);
        }
    }
    reference_net_linear(net, reference_average(net, x), "22", classes, true, 1);
}

static void build_probe(struct reference_net *net, int classes)
{
    int x = reference_net_conv(net, 0, "0", 32, 3, 4, 1, true);
    x = reference_relu(net, x);
    reference_net_linear(net, reference_average(net, x), "4", classes, true, 1);
}

static int resnet9_conv(struct reference_net *net, int x, const char *name, int outputs)
{
    char conv[32], norm[32];
    snprintf(conv, sizeof conv, "%s.conv", name);
    snprintf(norm, sizeof norm, "%s.bn", name);
    return reference_relu(net, conv_norm(net, x, conv, norm, outputs, 3, 1));
}

static void build_resnet9(struct reference_net *net, int classes)
{
    int x = resnet9_conv(net, 0, "prep", 64);
    x = reference_pool(net, resnet9_conv(net, x, "layer1", 128), 2, 2, 0);
    int y = resnet9_conv(net, resnet9_conv(net, x, "res1.0", 128), "res1.1", 128);
    x = reference_net_add(net, x, y);
    x = reference_pool(net, resnet9_conv(net, x, "layer2", 256), 2, 2, 0);
    x = reference_pool(net, resnet9_conv(net, x, "layer3", 512), 2, 2, 0);
    y = resnet9_conv(net, resnet9_conv(net, x, "res3.0", 512), "res3.1", 512);
    x = reference_net_add(net, x, y);
    x = reference_pool(net, x, net->nodes[x].h, net->nodes[x].h, 0);
    reference_net_linear(net, x, "head", classes, false, 0.125);
}

static int basic_block(struct reference_net *net, int x, const char *name, int outputs, int stride)
{
    char a[48], b[48];
    snprintf(a, sizeof a, "%s.conv1", name);
    snprintf(b, sizeof b, "%s.bn1", name);
    int y = reference_relu(net, conv_norm(net, x, a, b, outputs, 3, stride));
    snprintf(a, sizeof a, "%s.conv2", name);
    snprintf(b, sizeof b, "%s.bn2", name);
    y = conv_norm(net, y, a, b, outputs, 3, 1);
    if (stride != 1) {
        snprintf(a, sizeof a, "%s.downsample.0", name);
        snprintf(b, sizeof b, "%s.downsample.1", name);
        x = conv_norm(net, x, a, b, outputs, 1, stride);
    }
    return reference_relu(net, reference_net_add(net, y, x));
}

static void build_resnet18(struct reference_net *net, int classes, bool large_stem)
{
    int x = conv_norm(net, 0, "conv1", "bn1", 64, large_stem ? 7 : 3, large_stem ? 2 : 1);
    x = reference_relu(net, x);
    if (large_stem) {
        x = reference_pool(net, x, 3, 2, 1);
    }
    for (int stage = 1; stage <= 4; stage++) {
        for (int block = 0; block < 2; block++) {
            char name[32];
            snprintf(name, sizeof name, "layer%d.%d", stage, block);
            x = basic_block(net, x, name, 32 << stage, stage > 1 && block == 0 ? 2 : 1);
        }
    }
    reference_net_linear(net, reference_average(net, x), "fc", classes, true, 1);
}

struct reference_net *reference_model(const char *model, int n, int size, int classes,
                                      bool large_stem)
{
    struct reference_net *net = reference_create(n, 3, size, size);
    if (strcmp(model, "smallcnn") == 0) {
        build_smallcnn(net, classes);
    } else if (strcmp(model, "probe") == 0) {
        build_probe(net, classes);
    } else if (strcmp(model, "resnet9") == 0) {
        build_resnet9(net, classes);
    } else if (strcmp(model, "resnet18") == 0) {
        build_resnet18(net, classes, large_stem);
    } else {
        reference_destroy(net);
        return NULL;
    }
    return net;
}
