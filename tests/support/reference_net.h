/*
 * Small networks computed in double, in the plainest way: NCHW activations, OIHW weights, loops from
 * the definitions. It shares no code and no layout with the networks that it checks.
 *
 * A network is built node by node; each function returns the number of its node. What cannot be done
 * ends the test by abort.
 */
#ifndef PINLINE_TESTS_SUPPORT_REFERENCE_NET_H
#define PINLINE_TESTS_SUPPORT_REFERENCE_NET_H

#include <stdbool.h>
#include <stddef.h>

#define REFERENCE_MAX 128

enum reference_kind {
    REFERENCE_INPUT,
    REFERENCE_CONV,
    REFERENCE_NORM,
    REFERENCE_RELU,
    REFERENCE_POOL,
    REFERENCE_ADD,
    REFERENCE_AVERAGE,
    REFERENCE_LINEAR
};

struct reference_parameter {
    char name[64];
    size_t count;
    double *value, *gradient; /* gradient NULL: a running statistic */
};

struct reference_node {
    enum reference_kind kind;
    int a, b;    /* the nodes that it reads */
    int c, h, w; /* of each image */
    int window, stride, pad;
    int weight, bias, mean, variance; /* parameters, -1 none */
    double factor;
    double *value, *gradient; /* n x c x h x w */
    double *batch_mean, *batch_variance;
    int *place; /* of a pool: which input element was the maximum */
};

struct reference_net {
    int n;
    struct reference_node nodes[REFERENCE_MAX];
    int node_count;
    struct reference_parameter parameters[REFERENCE_MAX];
    int parameter_count;
    const double *targets; /* n x classes of the last forward */
    double averaging;      /* of running statistics, 0.1 */
    bool
        bfloat16; /* what bfloat16 networks keep in that type is rounded to it: convolutions' weights
                      and their gradients, activations up to the head and their gradients */
};

struct reference_net *reference_create(int n, int c, int h, int w);
void reference_destroy(struct reference_net *net);

/* PREFIX.weight and, with `bias`, PREFIX.bias. */
int reference_net_conv(struct reference_net *net, int x, const char *prefix, int outputs,
                       int window, int stride, int pad, bool bias);
/* PREFIX.weight, .bias, .running_mean, .running_var; epsilon 1e-5. */
int reference_norm(struct reference_net *net, int x, const char *prefix);
int reference_relu(struct reference_net *net, int x);
int reference_pool(struct reference_net *net, int x, int window, int stride, int pad);
int reference_net_add(struct reference_net *net, int a, int b);
int reference_average(struct reference_net *net, int x);
int reference_net_linear(struct reference_net *net, int x, const char *prefix, int outputs,
                         bool bias, double factor);

/* NULL when there is none. */
struct reference_parameter *reference_find(struct reference_net *net, const char *name);

/* Loss -sum targets log softmax of the last node. `input` is n x c x h x w; `targets`, n x classes,
 * is kept until backward. In training, running statistics move. */
double reference_forward(struct reference_net *net, const double *input, const double *targets,
                         bool training);
/* The last node's values, n x classes. */
const double *reference_logits(const struct reference_net *net);
/* After a training forward: fills in all gradients. */
void reference_backward(struct reference_net *net);

/* The models of the catalog, written down a second time. NULL when the name is unknown. */
struct reference_net *reference_model(const char *model, int n, int size, int classes,
                                      bool large_stem);

#endif
