/* Extents of the values and the table of parameters: everything that needs no device. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/size.h"
#include "models/network_internal.h"

/* Parameters begin at multiples of this many elements, so that every place is aligned for float32
 * and for bfloat16 alike. */
#define PARAMETER_ALIGNMENT 128

static int output_edge(int edge, const struct layer *layer)
{
    const int room = edge + 2 * layer->pad - layer->window;
    return room < 0 ? 0 : room / layer->stride + 1;
}

/* The smallest image with which every layer has something to read. */
static int smallest_image(const struct model *model)
{
    for (int size = 1;; size++) {
        int edge = size;
        int edges[NETWORK_MAX_LAYERS + 1] = {size};
        for (int i = 0; i < model->count && edge > 0; i++) {
            const struct layer *layer = &model->layers[i];
            edge = edges[network__input_layer(i, layer->from)];
            if (layer->kind == LAYER_CONV_NORM || layer->kind == LAYER_CONV ||
                layer->kind == LAYER_MAX_POOL) {
                edge = output_edge(edge, layer);
            }
            edges[i + 1] = edge;
        }
        if (edge > 0) {
            return size;
        }
    }
}

static enum status find_extents(struct network *net)
{
    const struct network_settings *settings = &net->settings;
    net->extents[0] =
        (struct extent){settings->image_size, settings->image_size, NETWORK_INPUT_CHANNELS};
    for (int i = 0; i < net->model->count; i++) {
        const struct layer *layer = &net->model->layers[i];
        const struct extent in = net->extents[network__input_layer(i, layer->from)];
        struct extent out = in;
        switch (layer->kind) {
        case LAYER_CONV_NORM:
        case LAYER_CONV:
            out.c = layer->channels;
            out.h = output_edge(in.h, layer);
            out.w = output_edge(in.w, layer);
            break;
        case LAYER_MAX_POOL:
            out.h = output_edge(in.h, layer);
            out.w = output_edge(in.w, layer);
            break;
        case LAYER_ADD:
            break;
        case LAYER_GLOBAL_AVERAGE:
        case LAYER_GLOBAL_MAX:
            out.h = out.w = 1;
            break;
        case LAYER_LINEAR:
            out.c = settings->classes;
            break;
        }
        if (out.h < 1 || out.w < 1) {
            return FAIL(STATUS_USAGE,
                        "images of %d pixels are too small for %s: give --size %d or more",
                        settings->image_size, net->model->name, smallest_image(net->model));
        }
        net->extents[i + 1] = out;
    }
    return STATUS_OK;
}

/* A batch norm over one value for each channel divides by zero degrees of freedom. */
static enum status check_single_values(const struct network *net)
{
    const struct network_settings *settings = &net->settings;
    if (!settings->train) {
        return STATUS_OK;
    }
    for (int i = 0; i < net->model->count; i++) {
        const struct extent out = net->extents[i + 1];
        if (net->model->layers[i].kind != LAYER_CONV_NORM || out.h * out.w != 1) {
            continue;
        }
        if (settings->train_batch == 1) {
            return FAIL(STATUS_USAGE,
                        "%s cannot train with --batch-size 1 at --size %d: its maps shrink to 1x1 "
                        "and batch norm needs two values: take a batch of 2 or more",
                        net->model->name, settings->image_size);
        }
        if (settings->train_last_batch == 1) {
            return FAIL(STATUS_USAGE,
                        "the last batch has one image, and batch norm cannot train on it because "
                        "the maps of %s shrink to 1x1 at --size %d: give --drop-last or another "
                        "--batch-size",
                        net->model->name, settings->image_size);
        }
    }
    return STATUS_OK;
}

/* Adds a parameter to the table; memory is there. */
static struct placed_parameter *add(struct network *net, int layer, enum role role,
                                    const char *prefix, const char *suffix)
{
    const int number = net->parameter_count++;
    struct placed_parameter *parameter = &net->parameters[number];
    *parameter = (struct placed_parameter){.role = role, .layer = layer, .region = -1};
    const int length = snprintf(parameter->name, sizeof(parameter->name), "%s.%s", prefix, suffix);
    assert(length > 0 && (size_t)length < sizeof(parameter->name));
    (void)length;
    parameter->info.name = parameter->name;
    parameter->info.kind = PARAMETER_WEIGHT;
    net->by_role[layer][role] = number;
    return parameter;
}

static void add_vector(struct network *net, int layer, enum role role, const char *prefix,
                       const char *suffix, int length)
{
    struct placed_parameter *parameter = add(net, layer, role, prefix, suffix);
    parameter->info.dims = 1;
    parameter->info.shape[0] = length;
    parameter->info.elements = parameter->placed = (size_t)length;
    parameter->n = parameter->h = parameter->w = 1;
    parameter->c = length;
    parameter->info.decays = net->settings.decay_all;
    if (role == ROLE_MEAN || role == ROLE_VARIANCE) {
        parameter->info.kind = PARAMETER_RUNNING;
        parameter->info.decays = false;
    }
}

static void add_convolution(struct network *net, int index, const struct layer *layer)
{
    const struct extent in = net->extents[network__input_layer(index, layer->from)];
    /* The image's padded channel exists on the device alone. */
    const int inputs = network__input_layer(index, layer->from) == 0 ? 3 : in.c;
    struct placed_parameter *parameter = add(net, index, ROLE_CONV, layer->name, "weight");
    parameter->info.dims = 4;
    const int64_t shape[4] = {layer->channels, inputs, layer->window, layer->window};
    memcpy(parameter->info.shape, shape, sizeof(shape));
    const size_t window = (size_t)layer->window * (size_t)layer->window;
    parameter->info.elements = (size_t)layer->channels * (size_t)inputs * window;
    parameter->info.decays = true;
    parameter->n = layer->channels;
    parameter->h = parameter->w = layer->window;
    parameter->c = in.c;
    parameter->placed = (size_t)layer->channels * (size_t)in.c * window;
    parameter->fan_in = inputs * (int)window;
    parameter->fan_out = layer->channels * (int)window;
}

static void add_layer(struct network *net, int index)
{
    const struct layer *layer = &net->model->layers[index];
    const int channels = net->extents[index + 1].c;
    switch (layer->kind) {
    case LAYER_CONV_NORM:
        add_convolution(net, index, layer);
        add_vector(net, index, ROLE_SCALE, layer->norm_name, "weight", channels);
        add_vector(net, index, ROLE_SHIFT, layer->norm_name, "bias", channels);
        add_vector(net, index, ROLE_MEAN, layer->norm_name, "running_mean", channels);
        add_vector(net, index, ROLE_VARIANCE, layer->norm_name, "running_var", channels);
        struct placed_parameter *counter =
            add(net, index, ROLE_COUNTER, layer->norm_name, "num_batches_tracked");
        counter->info.kind = PARAMETER_COUNTER;
        counter->info.elements = 1;
        break;
    case LAYER_CONV: {
        add_convolution(net, index, layer);
        const int fan_in = net->parameters[net->by_role[index][ROLE_CONV]].fan_in;
        add_vector(net, index, ROLE_CONV_BIAS, layer->name, "bias", channels);
        net->parameters[net->by_role[index][ROLE_CONV_BIAS]].fan_in = fan_in;
        break;
    }
    case LAYER_LINEAR: {
        const int inputs = net->extents[network__input_layer(index, layer->from)].c;
        struct placed_parameter *weight = add(net, index, ROLE_LINEAR, layer->name, "weight");
        weight->info.dims = 2;
        weight->info.shape[0] = channels;
        weight->info.shape[1] = inputs;
        weight->info.elements = weight->placed = (size_t)channels * (size_t)inputs;
        weight->info.decays = true;
        weight->n = channels;
        weight->h = weight->w = 1;
        weight->c = inputs;
        weight->fan_in = inputs;
        weight->fan_out = channels;
        if (layer->bias) {
            add_vector(net, index, ROLE_LINEAR_BIAS, layer->name, "bias", channels);
            net->parameters[net->by_role[index][ROLE_LINEAR_BIAS]].fan_in = inputs;
        }
        break;
    }
    case LAYER_MAX_POOL:
    case LAYER_ADD:
    case LAYER_GLOBAL_AVERAGE:
    case LAYER_GLOBAL_MAX:
        break;
    }
}

static int region_of(const struct network *net, const struct placed_parameter *parameter)
{
    if (parameter->info.kind != PARAMETER_WEIGHT) {
        return -1;
    }
    if (parameter->role == ROLE_CONV && network__data_dtype(net) == DTYPE_BF16) {
        return REGION_CONV_BF16;
    }
    return parameter->info.decays ? REGION_DECAYS : REGION_PLAIN;
}

/* Regions one after another, then what is not trained. The convolutions' region comes first, so a
 * shadow's place is half its parameter's. */
static void place_parameters(struct network *net)
{
    size_t elements = 0;
    size_t gradient = 0;
    for (int region = 0; region < REGION_COUNT; region++) {
        struct region *place = &net->regions[region];
        place->decays = region != REGION_PLAIN;
        place->gradient_dtype = region == REGION_CONV_BF16 ? DTYPE_BF16 : DTYPE_F32;
        place->offset = elements * sizeof(float);
        place->gradient = gradient;
        const size_t begin = elements;
        const size_t width = dtype_bytes(place->gradient_dtype);
        for (int i = 0; i < net->parameter_count; i++) {
            struct placed_parameter *parameter = &net->parameters[i];
            if (region_of(net, parameter) != region) {
                continue;
            }
            parameter->region = region;
            parameter->offset = elements * sizeof(float);
            parameter->shadow = elements * sizeof(uint16_t);
            parameter->gradient = place->gradient + (elements - begin) * width;
            elements += size_align(parameter->placed, PARAMETER_ALIGNMENT);
        }
        place->elements = elements - begin;
        gradient += place->elements * width;
    }
    net->trained_bytes = elements * sizeof(float);
    net->gradient_bytes = gradient;
    net->shadow_bytes = net->regions[REGION_CONV_BF16].elements * sizeof(uint16_t);
    for (int i = 0; i < net->parameter_count; i++) {
        struct placed_parameter *parameter = &net->parameters[i];
        if (parameter->info.kind == PARAMETER_RUNNING) {
            parameter->offset = elements * sizeof(float);
            elements += size_align(parameter->placed, PARAMETER_ALIGNMENT);
        }
    }
    net->parameter_bytes = elements * sizeof(float);
}

enum status network__lay_out(struct network *net)
{
    const struct model *model = net->model;
    assert(model->count <= NETWORK_MAX_LAYERS &&
           model->layers[model->count - 1].kind == LAYER_LINEAR);
    memset(net->by_role, 0xff, sizeof(net->by_role));
    TRY(find_extents(net));
    TRY(check_single_values(net));
    net->parameters = calloc((size_t)model->count * NETWORK_ROLES, sizeof(*net->parameters));
    if (net->parameters == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the table of parameters of %s", model->name);
    }
    for (int i = 0; i < model->count; i++) {
        if (model->layers[i].follows_next) {
            assert(i + 1 < model->count);
            add_layer(net, i + 1);
            add_layer(net, i);
            i++;
        } else {
            add_layer(net, i);
        }
    }
    place_parameters(net);
    size_t largest = 0;
    for (int i = 0; i < net->parameter_count; i++) {
        const size_t placed = net->parameters[i].placed;
        largest = placed > largest ? placed : largest;
    }
    net->scratch = calloc(largest, sizeof(float));
    net->file_values = calloc(largest, sizeof(float));
    if (net->scratch == NULL || net->file_values == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu values of a parameter", largest);
    }
    return STATUS_OK;
}
