/* The reference itself: a hand-worked convolution, and its gradients against finite differences. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "tests/support/check_run.h"
#include "tests/support/reference_net.h"

static void fill(struct rng *rng, double *values, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = rng_normal(rng);
    }
}

/* 3x3 window over a 3x3 map of ones with padding 1 counts the places inside: 4 in the corners, 6 at
 * the edges, 9 in the middle; with stride 2 the corners remain. */
START_TEST(test_padding_and_stride_by_hand)
{
    static const double expected[9] = {4, 6, 4, 6, 9, 6, 4, 6, 4};
    struct reference_net *net = reference_create(1, 1, 3, 3);
    const int all = reference_net_conv(net, 0, "a", 1, 3, 1, 1, false);
    const int corners = reference_net_conv(net, 0, "b", 1, 3, 2, 1, true);
    reference_net_linear(net, corners, "c", 2, false, 1);
    for (int i = 0; i < 9; i++) {
        reference_find(net, "a.weight")->value[i] = 1;
        reference_find(net, "b.weight")->value[i] = 1;
    }
    reference_find(net, "b.bias")->value[0] = 10;
    static const double ones[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
    static const double target[2] = {0.5, 0.5};
    const double loss = reference_forward(net, ones, target, false);
    ck_assert_double_eq_tol(loss, log(2), 1e-15);
    for (int i = 0; i < 9; i++) {
        ck_assert_double_eq(net->nodes[all].value[i], expected[i]);
    }
    ck_assert_int_eq(net->nodes[corners].h, 2);
    for (int i = 0; i < 4; i++) {
        ck_assert_double_eq(net->nodes[corners].value[i], 14);
    }
    reference_destroy(net);
}
END_TEST

/* Every kind of node, odd sizes, a value that is read twice. */
static struct reference_net *make_mixed(void)
{
    struct reference_net *net = reference_create(3, 2, 7, 7);
    int x = reference_net_conv(net, 0, "conv1", 3, 3, 2, 1, true);
    x = reference_relu(net, reference_norm(net, x, "norm1"));
    int y = reference_norm(net, reference_net_conv(net, x, "conv2", 3, 3, 1, 1, false), "norm2");
    x = reference_relu(net, reference_net_add(net, y, x));
    x = reference_pool(net, x, 3, 2, 1);
    y = reference_net_conv(net, x, "conv3", 4, 1, 1, 0, true);
    x = reference_average(net, y);
    reference_net_linear(net, x, "fc", 3, true, 0.5);
    return net;
}

START_TEST(test_gradients_by_finite_differences)
{
    struct reference_net *net = make_mixed();
    struct rng rng;
    rng_init(&rng, 5, RNG_TEST, 0, 0);
    double input[3 * 2 * 7 * 7];
    static const double targets[9] = {0.3, 0, 0, 0.1, 0.1, 0.1, 0, 0, 0};
    fill(&rng, input, sizeof input / sizeof input[0]);
    for (int i = 0; i < net->parameter_count; i++) {
        if (net->parameters[i].gradient != NULL) {
            fill(&rng, net->parameters[i].value, net->parameters[i].count);
        }
    }
    reference_forward(net, input, targets, true);
    reference_backward(net);
    const double step = 1e-6;
    int compared = 0;
    for (int i = 0; i < net->parameter_count; i++) {
        struct reference_parameter *p = &net->parameters[i];
        for (size_t k = 0; p->gradient != NULL && k < p->count; k++) {
            const double kept = p->value[k];
            p->value[k] = kept + step;
            const double above = reference_forward(net, input, targets, true);
            p->value[k] = kept - step;
            const double below = reference_forward(net, input, targets, true);
            p->value[k] = kept;
            ck_assert_double_eq_tol(p->gradient[k], (above - below) / (2 * step), 2e-8);
            compared++;
        }
    }
    /* 3*2*9+3, 6, 3*3*9, 6, 4*3+4, 3*4+3 */
    ck_assert_int_eq(compared, 57 + 6 + 81 + 6 + 16 + 15);
    reference_destroy(net);
}
END_TEST

/* Two values, 1 and 3: mean 2, variance 1, unbiased variance 2. */
START_TEST(test_running_statistics_by_hand)
{
    struct reference_net *net = reference_create(2, 1, 1, 1);
    reference_net_linear(net, reference_norm(net, 0, "n"), "fc", 2, false, 1);
    reference_find(net, "n.running_var")->value[0] = 1;
    static const double input[2] = {1, 3};
    static const double targets[4] = {0.5, 0, 0, 0.5};
    reference_forward(net, input, targets, true);
    ck_assert_double_eq_tol(reference_find(net, "n.running_mean")->value[0], 0.2, 1e-15);
    ck_assert_double_eq_tol(reference_find(net, "n.running_var")->value[0], 1.1, 1e-15);
    reference_destroy(net);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_padding_and_stride_by_hand,
                                  test_gradients_by_finite_differences,
                                  test_running_statistics_by_hand};
    return check_run("reference_net", tests, sizeof tests / sizeof tests[0], 0);
}
