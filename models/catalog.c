#include "models/catalog.h"

#include <stdio.h>
#include <string.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

const char *const network_model_names[] = {"smallcnn", "resnet9", "resnet18", "probe", NULL};

/* A convolution that keeps the size (at stride 1), its batch norm and ReLU. */
#define CONV_NORM_RELU(conv, norm, outputs, size, step)                                            \
    {                                                                                              \
        .kind = LAYER_CONV_NORM, .name = (conv), .norm_name = (norm), .channels = (outputs),       \
        .window = (size), .stride = (step), .pad = (size) / 2, .relu = true                        \
    }
#define MAX_POOL(label, size, step, border)                                                        \
    {                                                                                              \
        .kind = LAYER_MAX_POOL, .name = (label), .window = (size), .stride = (step),               \
        .pad = (border)                                                                            \
    }

static const struct layer smallcnn_layers[] = {
    CONV_NORM_RELU("0", "1", 32, 3, 1),
    CONV_NORM_RELU("3", "4", 32, 3, 1),
    MAX_POOL("6", 2, 2, 0),
    CONV_NORM_RELU("7", "8", 64, 3, 1),
    CONV_NORM_RELU("10", "11", 64, 3, 1),
    MAX_POOL("13", 2, 2, 0),
    CONV_NORM_RELU("14", "15", 128, 3, 1),
    CONV_NORM_RELU("17", "18", 128, 3, 1),
    {.kind = LAYER_GLOBAL_AVERAGE, .name = "20"},
    {.kind = LAYER_LINEAR, .name = "22", .bias = true, .factor = 1.0F},
};

static const struct layer probe_layers[] = {
    {.kind = LAYER_CONV,
     .name = "0",
     .channels = 32,
     .window = 3,
     .stride = 4,
     .pad = 1,
     .relu = true},
    {.kind = LAYER_GLOBAL_AVERAGE, .name = "2"},
    {.kind = LAYER_LINEAR, .name = "4", .bias = true, .factor = 1.0F},
};

#define RESNET9_CONV(label, outputs) CONV_NORM_RELU(label ".conv", label ".bn", outputs, 3, 1)
/* x + f(g(x)), both f and g with their own ReLU and none after the sum. */
#define RESNET9_RESIDUAL(label, outputs)                                                           \
    RESNET9_CONV(label ".0", outputs), RESNET9_CONV(label ".1", outputs),                          \
    {                                                                                              \
        .kind = LAYER_ADD, .name = label, .residual = 3                                            \
    }

static const struct layer resnet9_layers[] = {
    RESNET9_CONV("prep", 64),
    RESNET9_CONV("layer1", 128),
    MAX_POOL("layer1.pool", 2, 2, 0),
    RESNET9_RESIDUAL("res1", 128),
    RESNET9_CONV("layer2", 256),
    MAX_POOL("layer2.pool", 2, 2, 0),
    RESNET9_CONV("layer3", 512),
    MAX_POOL("layer3.pool", 2, 2, 0),
    RESNET9_RESIDUAL("res3", 512),
    {.kind = LAYER_GLOBAL_MAX, .name = "pool"},
    {.kind = LAYER_LINEAR, .name = "head", .factor = 0.125F},
};

/* torchvision's basic block: the second convolution takes the block's input as residual. */
#define BASIC_BLOCK(label, outputs)                                                                \
    CONV_NORM_RELU(label ".conv1", label ".bn1", outputs, 3, 1),                                   \
    {                                                                                              \
        .kind = LAYER_CONV_NORM, .name = label ".conv2", .norm_name = label ".bn2",                \
        .channels = (outputs), .window = 3, .stride = 1, .pad = 1, .relu = true, .residual = 2     \
    }
/* The same with the residual halved by a 1x1 convolution, which PyTorch lists last. */
#define HALVING_BLOCK(label, outputs)                                                              \
    CONV_NORM_RELU(label ".conv1", label ".bn1", outputs, 3, 2),                                   \
        {.kind = LAYER_CONV_NORM,                                                                  \
         .name = label ".downsample.0",                                                            \
         .norm_name = label ".downsample.1",                                                       \
         .channels = (outputs),                                                                    \
         .window = 1,                                                                              \
         .stride = 2,                                                                              \
         .pad = 0,                                                                                 \
         .from = 2,                                                                                \
         .follows_next = true},                                                                    \
    {                                                                                              \
        .kind = LAYER_CONV_NORM, .name = label ".conv2", .norm_name = label ".bn2",                \
        .channels = (outputs), .window = 3, .stride = 1, .pad = 1, .relu = true, .from = 2,        \
        .residual = 1                                                                              \
    }
#define RESNET18_BODY                                                                              \
    BASIC_BLOCK("layer1.0", 64), BASIC_BLOCK("layer1.1", 64), HALVING_BLOCK("layer2.0", 128),      \
        BASIC_BLOCK("layer2.1", 128), HALVING_BLOCK("layer3.0", 256),                              \
        BASIC_BLOCK("layer3.1", 256), HALVING_BLOCK("layer4.0", 512),                              \
        BASIC_BLOCK("layer4.1", 512), {.kind = LAYER_GLOBAL_AVERAGE, .name = "avgpool"},           \
    {                                                                                              \
        .kind = LAYER_LINEAR, .name = "fc", .bias = true, .factor = 1.0F                           \
    }

static const struct layer resnet18_large_layers[] = {
    CONV_NORM_RELU("conv1", "bn1", 64, 7, 2),
    MAX_POOL("maxpool", 3, 2, 1),
    RESNET18_BODY,
};
static const struct layer resnet18_small_layers[] = {
    CONV_NORM_RELU("conv1", "bn1", 64, 3, 1),
    RESNET18_BODY,
};

static const struct model models[] = {
    {"smallcnn", INITIALISE_DEFAULT, smallcnn_layers, COUNT(smallcnn_layers)},
    {"resnet9", INITIALISE_FAN_OUT, resnet9_layers, COUNT(resnet9_layers)},
    {"probe", INITIALISE_DEFAULT, probe_layers, COUNT(probe_layers)},
};
static const struct model resnet18_large = {"resnet18", INITIALISE_TORCHVISION,
                                            resnet18_large_layers, COUNT(resnet18_large_layers)};
static const struct model resnet18_small = {"resnet18", INITIALISE_TORCHVISION,
                                            resnet18_small_layers, COUNT(resnet18_small_layers)};

/* torchvision's stem halves twice; below this size too little of the image would be left. */
static const int large_stem_from = 64;

enum status model_find(const char *name, enum stem stem, int image_size, const struct model **out)
{
    *out = NULL;
    if (name != NULL && strcmp(name, "resnet18") == 0) {
        const bool large =
            stem == STEM_LARGE || (stem == STEM_AUTO && image_size >= large_stem_from);
        *out = large ? &resnet18_large : &resnet18_small;
        return STATUS_OK;
    }
    for (int i = 0; i < COUNT(models); i++) {
        if (name != NULL && strcmp(name, models[i].name) == 0) {
            if (stem != STEM_AUTO) {
                return FAIL(STATUS_USAGE,
                            "model %s has one kind of stem: leave --stem out, or take resnet18",
                            name);
            }
            *out = &models[i];
            return STATUS_OK;
        }
    }
    return FAIL(STATUS_USAGE, "unknown model '%s': it is one of smallcnn, resnet9, resnet18, probe",
                name == NULL ? "" : name);
}
