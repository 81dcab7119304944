#include "tests/support/reference_net.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EPSILON 1e-5

static void *allocate(size_t count, size_t bytes)
{
    void *memory = calloc(count, bytes);
    if (memory == NULL) {
        abort();
    }
    return memory;
}

static size_t image_size(const struct reference_node *node)
{
    return (size_t)node->c * (size_t)node->h * (size_t)node->w;
}

static int new_node(struct reference_net *net, enum reference_kind kind, int a, int c, int h, int w)
{
    if (net->node_count == REFERENCE_MAX || c < 1 || h < 1 || w < 1) {
        abort();
    }
    struct reference_node *node = &net->nodes[net->node_count];
    *node = (struct reference_node){.kind = kind,
                                    .a = a,
                                    .b = -1,
                                    .c = c,
                                    .h = h,
                                    .w = w,
                                    .weight = -1,
                                    .bias = -1,
                                    .mean = -1,
                                    .variance = -1};
    const size_t count = (size_t)net->n * image_size(node);
    node->value = allocate(count, sizeof(double));
    node->gradient = allocate(count, sizeof(double));
    return net->node_count++;
}

static int new_parameter(struct reference_net *net, const char *prefix, const char *suffix,
                         size_t count, bool trained)
{
    if (net->parameter_count == REFERENCE_MAX) {
        abort();
    }
    struct reference_parameter *parameter = &net->parameters[net->parameter_count];
    snprintf(parameter->name, sizeof(parameter->name), "%s.%s", prefix, suffix);
    parameter->count = count;
    parameter->value = allocate(count, sizeof(double));
    parameter->gradient = trained ? allocate(count, sizeof(double)) : NULL;
    return net->parameter_count++;
}

struct reference_net *reference_create(int n, int c, int h, int w)
{
    struct reference_net *net = allocate(1, sizeof(*net));
    net->n = n;
    net->averaging = 0.1;
    new_node(net, REFERENCE_INPUT, -1, c, h, w);
    return net;
}

void reference_destroy(struct reference_net *net)
{
    for (int i = 0; i < net->node_count; i++) {
        free(net->nodes[i].value);
        free(net->nodes[i].gradient);
        free(net->nodes[i].batch_mean);
        free(net->nodes[i].batch_variance);
        free(net->nodes[i].place);
    }
    for (int i = 0; i < net->parameter_count; i++) {
        free(net->parameters[i].value);
        free(net->parameters[i].gradient);
    }
    free(net);
}

int reference_net_conv(struct reference_net *net, int x, const char *prefix, int outputs,
                       int window, int stride, int pad, bool bias)
{
    const struct reference_node *in = &net->nodes[x];
    const int inputs = in->c;
    const int node =
        new_node(net, REFERENCE_CONV, x, outputs, (in->h + 2 * pad - window) / stride + 1,
                 (in->w + 2 * pad - window) / stride + 1);
    net->nodes[node].window = window;
    net->nodes[node].stride = stride;
    net->nodes[node].pad = pad;
    net->nodes[node].weight = new_parameter(
        net, prefix, "weight", (size_t)outputs * (size_t)inputs * (size_t)(window * window), true);
    if (bias) {
        net->nodes[node].bias = new_parameter(net, prefix, "bias", (size_t)outputs, true);
    }
    return node;
}

int reference_norm(struct reference_net *net, int x, const char *prefix)
{
    const struct reference_node *in = &net->nodes[x];
    const size_t channels = (size_t)in->c;
    const int node = new_node(net, REFERENCE_NORM, x, in->c, in->h, in->w);
    struct reference_node *norm = &net->nodes[node];
    norm->weight = new_parameter(net, prefix, "weight", channels, true);
    norm->bias = new_parameter(net, prefix, "bias", channels, true);
    norm->mean = new_parameter(net, prefix, "running_mean", channels, false);
    norm->variance = new_parameter(net, prefix, "running_var", channels, false);
    norm->batch_mean = allocate(channels, sizeof(double));
    norm->batch_variance = allocate(channels, sizeof(double));
    return node;
}

int reference_relu(struct reference_net *net, int x)
{
    const struct reference_node *in = &net->nodes[x];
    return new_node(net, REFERENCE_RELU, x, in->c, in->h, in->w);
}

int reference_pool(struct reference_net *net, int x, int window, int stride, int pad)
{
    const struct reference_node *in = &net->nodes[x];
    const int node =
        new_node(net, REFERENCE_POOL, x, in->c, (in->h + 2 * pad - window) / stride + 1,
                 (in->w + 2 * pad - window) / stride + 1);
    struct reference_node *pool = &net->nodes[node];
    pool->window = window;
    pool->stride = stride;
    pool->pad = pad;
    pool->place = allocate((size_t)net->n * image_size(pool), sizeof(int));
    return node;
}

int reference_net_add(struct reference_net *net, int a, int b)
{
    const struct reference_node *in = &net->nodes[a];
    const int node = new_node(net, REFERENCE_ADD, a, in->c, in->h, in->w);
    net->nodes[node].b = b;
    return node;
}

int reference_average(struct reference_net *net, int x)
{
    return new_node(net, REFERENCE_AVERAGE, x, net->nodes[x].c, 1, 1);
}

int reference_net_linear(struct reference_net *net, int x, const char *prefix, int outputs,
                         bool bias, double factor)
{
    const size_t inputs = image_size(&net->nodes[x]);
    const int node = new_node(net, REFERENCE_LINEAR, x, outputs, 1, 1);
    net->nodes[node].factor = factor;
    net->nodes[node].weight = new_parameter(net, prefix, "weight", (size_t)outputs * inputs, true);
    if (bias) {
        net->nodes[node].bias = new_parameter(net, prefix, "bias", (size_t)outputs, true);
    }
    return node;
}

struct reference_parameter *reference_find(struct reference_net *net, const char *name)
{
    for (int i = 0; i < net->parameter_count; i++) {
        if (strcmp(net->parameters[i].name, name) == 0) {
            return &net->parameters[i];
        }
    }
    return NULL;
}

/* --- Forward -------------------------------------------------------------------------------- */

static size_t at(const struct reference_node *node, int n, int c, int y, int x)
{
    return (((size_t)n * (size_t)node->c + (size_t)c) * (size_t)node->h + (size_t)y) *
               (size_t)node->w +
           (size_t)x;
}

/* To 8 significant bits, halves to even: nearbyint rounds so by default. */
static double to_bfloat16(double value)
{
    int exponent;
    const double fraction = frexp(value, &exponent);
    return ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static void round_all(const struct reference_net *net, double *values, size_t count)
{
    for (size_t i = 0; net->bfloat16 && i < count; i++) {
        values[i] = to_bfloat16(values[i]);
    }
}

/* The head, from the global average or the linear layer on, is float32. */
static bool is_head(const struct reference_node *node)
{
    return node->kind == REFERENCE_AVERAGE || node->kind == REFERENCE_LINEAR;
}

/* A row of products of a convolution: `count` output elements from `out` on, each with the input
 * element `stride` after the one before, all with the same weight. */
struct product_row {
    struct reference_node *node, *in;
    struct reference_parameter *weight;
    size_t out, from, place, stride, count;
};
typedef void (*visitor)(const struct product_row *row);

/* The products of one weight, number `place`, in one image and one output channel. */
static void each_row(struct product_row *row, int n, int k, int c, int r, int s, visitor visit)
{
    const struct reference_node *node = row->node, *in = row->in;
    /* Outputs x with 0 <= x stride + s - pad < w. */
    int first = 0, count = 0;
    while (first < node->w && first * node->stride + s - node->pad < 0) {
        first++;
    }
    while (first + count < node->w && (first + count) * node->stride + s - node->pad < in->w) {
        count++;
    }
    row->count = (size_t)count;
    for (int y = 0; count > 0 && y < node->h; y++) {
        const int from = y * node->stride + r - node->pad;
        if (from >= 0 && from < in->h) {
            row->out = at(node, n, k, y, first);
            row->from = at(in, n, c, from, first * node->stride + s - node->pad);
            visit(row);
        }
    }
}

static void each_product(struct reference_net *net, struct reference_node *node, visitor visit)
{
    struct product_row row = {.node = node,
                              .in = &net->nodes[node->a],
                              .weight = &net->parameters[node->weight],
                              .stride = (size_t)node->stride};
    for (int n = 0; n < net->n; n++) {
        row.place = 0;
        for (int k = 0; k < node->c; k++) {
            for (int c = 0; c < row.in->c; c++) {
                for (int tap = 0; tap < node->window * node->window; tap++) {
                    each_row(&row, n, k, c, tap / node->window, tap % node->window, visit);
                    row.place++;
                }
            }
        }
    }
}

static void multiply(const struct product_row *row)
{
    double *out = &row->node->value[row->out];
    const double *from = &row->in->value[row->from];
    const double weight = row->weight->value[row->place];
    for (size_t i = 0; i < row->count; i++) {
        out[i] += from[i * row->stride] * weight;
    }
}

static void multiply_back(const struct product_row *row)
{
    const double *out = &row->node->gradient[row->out];
    const double *from = &row->in->value[row->from];
    double *gradient = &row->in->gradient[row->from];
    const double weight = row->weight->value[row->place];
    double sum = 0;
    for (size_t i = 0; i < row->count; i++) {
        gradient[i * row->stride] += out[i] * weight;
        sum += out[i] * from[i * row->stride];
    }
    row->weight->gradient[row->place] += sum;
}

static void conv_forward(struct reference_net *net, struct reference_node *node)
{
    const size_t map = (size_t)node->h * (size_t)node->w;
    for (size_t i = 0; i < (size_t)net->n * image_size(node); i++) {
        node->value[i] =
            node->bias < 0 ? 0 : net->parameters[node->bias].value[i / map % (size_t)node->c];
    }
    each_product(net, node, multiply);
}

static void conv_backward(struct reference_net *net, struct reference_node *node)
{
    const size_t map = (size_t)node->h * (size_t)node->w;
    for (size_t i = 0; node->bias >= 0 && i < (size_t)net->n * image_size(node); i++) {
        net->parameters[node->bias].gradient[i / map % (size_t)node->c] += node->gradient[i];
    }
    each_product(net, node, multiply_back);
}

static void norm_forward(struct reference_net *net, struct reference_node *node, bool training)
{
    const struct reference_node *in = &net->nodes[node->a];
    const double count = (double)net->n * node->h * node->w;
    for (int c = 0; c < node->c; c++) {
        double *running_mean = &net->parameters[node->mean].value[c];
        double *running_variance = &net->parameters[node->variance].value[c];
        double mean = *running_mean, variance = *running_variance;
        if (training) {
            double sum = 0, squares = 0;
            for (int n = 0; n < net->n; n++) {
                for (int i = 0; i < node->h * node->w; i++) {
                    sum += in->value[at(in, n, c, 0, 0) + (size_t)i];
                }
            }
            mean = sum / count;
            for (int n = 0; n < net->n; n++) {
                for (int i = 0; i < node->h * node->w; i++) {
                    const double d = in->value[at(in, n, c, 0, 0) + (size_t)i] - mean;
                    squares += d * d;
                }
            }
            variance = squares / count;
            *running_mean += net->averaging * (mean - *running_mean);
            *running_variance += net->averaging * (squares / (count - 1) - *running_variance);
        }
        node->batch_mean[c] = mean;
        node->batch_variance[c] = variance;
        for (int n = 0; n < net->n; n++) {
            for (int i = 0; i < node->h * node->w; i++) {
                const size_t place = at(in, n, c, 0, 0) + (size_t)i;
                node->value[place] = (in->value[place] - mean) / sqrt(variance + EPSILON) *
                                         net->parameters[node->weight].value[c] +
                                     net->parameters[node->bias].value[c];
            }
        }
    }
}

/* From d mean and d variance by the chain rule, term by term. */
static void norm_backward(struct reference_net *net, struct reference_node *node)
{
    struct reference_node *in = &net->nodes[node->a];
    const double count = (double)net->n * node->h * node->w;
    for (int c = 0; c < node->c; c++) {
        const double scale = net->parameters[node->weight].value[c];
        const double mean = node->batch_mean[c];
        const double deviation = sqrt(node->batch_variance[c] + EPSILON);
        double d_mean = 0, d_variance = 0;
        for (int n = 0; n < net->n; n++) {
            for (int i = 0; i < node->h * node->w; i++) {
                const size_t place = at(in, n, c, 0, 0) + (size_t)i;
                const double g = node->gradient[place];
                const double centred = in->value[place] - mean;
                net->parameters[node->weight].gradient[c] += g * centred / deviation;
                net->parameters[node->bias].gradient[c] += g;
                d_variance += g * scale * centred * -0.5 / (deviation * deviation * deviation);
                d_mean += -g * scale / deviation;
            }
        }
        for (int n = 0; n < net->n; n++) {
            for (int i = 0; i < node->h * node->w; i++) {
                const size_t place = at(in, n, c, 0, 0) + (size_t)i;
                in->gradient[place] += node->gradient[place] * scale / deviation + d_mean / count +
                                       d_variance * 2 * (in->value[place] - mean) / count;
            }
        }
    }
}

static void pool_forward(struct reference_net *net, struct reference_node *node)
{
    const struct reference_node *in = &net->nodes[node->a];
    for (int n = 0; n < net->n; n++) {
        for (int c = 0; c < node->c; c++) {
            for (int y = 0; y < node->h; y++) {
                for (int x = 0; x < node->w; x++) {
                    double best = -INFINITY;
                    int place = -1;
                    for (int k = 0; k < node->window * node->window; k++) {
                        const int row = y * node->stride + k / node->window - node->pad;
                        const int column = x * node->stride + k % node->window - node->pad;
                        if (row < 0 || row >= in->h || column < 0 || column >= in->w) {
                            continue;
                        }
                        const size_t from = at(in, n, c, row, column);
                        if (in->value[from] > best) {
                            best = in->value[from];
                            place = (int)from;
                        }
                    }
                    node->value[at(node, n, c, y, x)] = best;
                    node->place[at(node, n, c, y, x)] = place;
                }
            }
        }
    }
}

static void linear(struct reference_net *net, struct reference_node *node, bool backward)
{
    struct reference_node *in = &net->nodes[node->a];
    struct reference_parameter *weight = &net->parameters[node->weight];
    struct reference_parameter *bias = node->bias < 0 ? NULL : &net->parameters[node->bias];
    const size_t inputs = image_size(in);
    for (size_t n = 0; n < (size_t)net->n; n++) {
        for (size_t o = 0; o < (size_t)node->c; o++) {
            const size_t out = n * (size_t)node->c + o;
            double sum = 0;
            for (size_t i = 0; i < inputs; i++) {
                double *w = &weight->value[o * inputs + i];
                if (backward) {
                    const double g = node->factor * node->gradient[out];
                    weight->gradient[o * inputs + i] += g * in->value[n * inputs + i];
                    in->gradient[n * inputs + i] += g * *w;
                }
                sum += in->value[n * inputs + i] * *w;
            }
            if (backward && bias != NULL) {
                bias->gradient[o] += node->gradient[out];
            }
            if (!backward) {
                node->value[out] = node->factor * sum + (bias != NULL ? bias->value[o] : 0);
            }
        }
    }
}

static void forward_node(struct reference_net *net, struct reference_node *node, bool training)
{
    if (node->a < 0) {
        return; /* the input */
    }
    const double *a = net->nodes[node->a].value;
    const size_t count = (size_t)net->n * image_size(node);
    switch (node->kind) {
    case REFERENCE_INPUT:
        break;
    case REFERENCE_CONV:
        conv_forward(net, node);
        break;
    case REFERENCE_NORM:
        norm_forward(net, node, training);
        break;
    case REFERENCE_RELU:
        for (size_t i = 0; i < count; i++) {
            node->value[i] = a[i] > 0 ? a[i] : 0;
        }
        break;
    case REFERENCE_POOL:
        pool_forward(net, node);
        break;
    case REFERENCE_ADD:
        for (size_t i = 0; i < count; i++) {
            node->value[i] = a[i] + net->nodes[node->b].value[i];
        }
        break;
    case REFERENCE_AVERAGE: {
        const size_t map = (size_t)net->nodes[node->a].h * (size_t)net->nodes[node->a].w;
        for (size_t i = 0; i < count; i++) {
            double sum = 0;
            for (size_t k = 0; k < map; k++) {
                sum += a[i * map + k];
            }
            node->value[i] = sum / (double)map;
        }
        break;
    }
    case REFERENCE_LINEAR:
        linear(net, node, false);
        break;
    }
}

static void backward_node(struct reference_net *net, struct reference_node *node)
{
    if (node->a < 0) {
        return; /* the input */
    }
    double *da = net->nodes[node->a].gradient;
    const size_t count = (size_t)net->n * image_size(node);
    switch (node->kind) {
    case REFERENCE_INPUT:
        break;
    case REFERENCE_CONV:
        conv_backward(net, node);
        break;
    case REFERENCE_NORM:
        norm_backward(net, node);
        break;
    case REFERENCE_RELU:
        for (size_t i = 0; i < count; i++) {
            da[i] += node->value[i] > 0 ? node->gradient[i] : 0;
        }
        break;
    case REFERENCE_POOL:
        for (size_t i = 0; i < count; i++) {
            da[node->place[i]] += node->gradient[i];
        }
        break;
    case REFERENCE_ADD:
        for (size_t i = 0; i < count; i++) {
            da[i] += node->gradient[i];
            net->nodes[node->b].gradient[i] += node->gradient[i];
        }
        break;
    case REFERENCE_AVERAGE: {
        const size_t map = (size_t)net->nodes[node->a].h * (size_t)net->nodes[node->a].w;
        for (size_t i = 0; i < count * map; i++) {
            da[i] += node->gradient[i / map] / (double)map;
        }
        break;
    }
    case REFERENCE_LINEAR:
        linear(net, node, true);
        break;
    }
}

const double *reference_logits(const struct reference_net *net)
{
    return net->nodes[net->node_count - 1].value;
}

/* Probabilities of one row. */
static void softmax(const double *logits, int classes, double *probabilities)
{
    double most = logits[0], sum = 0;
    for (int c = 1; c < classes; c++) {
        most = fmax(most, logits[c]);
    }
    for (int c = 0; c < classes; c++) {
        sum += exp(logits[c] - most);
    }
    for (int c = 0; c < classes; c++) {
        probabilities[c] = exp(logits[c] - most) / sum;
    }
}

double reference_forward(struct reference_net *net, const double *input, const double *targets,
                         bool training)
{
    struct reference_node *first = &net->nodes[0];
    memcpy(first->value, input, (size_t)net->n * image_size(first) * sizeof(double));
    net->targets = targets;
    for (int i = 0; i < net->node_count; i++) {
        struct reference_node *node = &net->nodes[i];
        if (node->kind == REFERENCE_CONV) {
            round_all(net, net->parameters[node->weight].value,
                      net->parameters[node->weight].count);
        }
        forward_node(net, node, training);
        if (!is_head(node)) {
            round_all(net, node->value, (size_t)net->n * image_size(node));
        }
    }
    const int classes = net->nodes[net->node_count - 1].c;
    double *p = allocate((size_t)classes, sizeof(double));
    double loss = 0;
    for (int n = 0; n < net->n; n++) {
        softmax(&reference_logits(net)[n * classes], classes, p);
        for (int c = 0; c < classes; c++) {
            loss -= targets[n * classes + c] * log(p[c]);
        }
    }
    free(p);
    return loss;
}

void reference_backward(struct reference_net *net)
{
    for (int i = 0; i < net->node_count; i++) {
        memset(net->nodes[i].gradient, 0,
               (size_t)net->n * image_size(&net->nodes[i]) * sizeof(double));
    }
    for (int i = 0; i < net->parameter_count; i++) {
        if (net->parameters[i].gradient != NULL) {
            memset(net->parameters[i].gradient, 0, net->parameters[i].count * sizeof(double));
        }
    }
    struct reference_node *last = &net->nodes[net->node_count - 1];
    for (int n = 0; n < net->n; n++) {
        const double *target = &net->targets[n * last->c];
        double *gradient = &last->gradient[n * last->c];
        double sum = 0;
        softmax(&last->value[n * last->c], last->c, gradient);
        for (int c = 0; c < last->c; c++) {
            sum += target[c];
        }
        for (int c = 0; c < last->c; c++) {
            gradient[c] = gradient[c] * sum - target[c];
        }
    }
    for (int i = net->node_count - 1; i > 0; i--) {
        struct reference_node *node = &net->nodes[i];
        backward_node(net, node);
        if (node->kind == REFERENCE_CONV) {
            round_all(net, net->parameters[node->weight].gradient,
                      net->parameters[node->weight].count);
        }
        if (node->kind != REFERENCE_LINEAR) {
            struct reference_node *in = &net->nodes[node->a];
            round_all(net, in->gradient, (size_t)net->n * image_size(in));
        }
    }
}
