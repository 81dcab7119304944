/* Training: the update rules against hand-worked values, a small set learned by heart, the same bits
 * every time, batches of two sizes, and what preparing and evaluating leave alone. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"

/* --- Update rules ----------------------------------------------------------------------------- */

/*
 * The probe on one black image, two classes, the first one wanted. Convolution weights are zero, its
 * biases u, head weights +w and -w, head biases +b and -b. So with 32 channels the logits are
 * z = b + 32 w u and -z; p = 1 / (1 + exp(-2 z)) is the first class's probability and g = p - 1 the
 * gradient of z for the first logit, -g for the second. By the chain rule
 *     db = g,  dw = g u,  du = g w + (-g) (-w) = 2 g w,
 * the other signs mirror them, and the convolution's weights see black pixels: gradient zero. Each
 * rule is then three recurrences of single numbers.
 */
struct scalar_parameter {
    double value, first, second;
};
struct scalar_probe {
    struct scalar_parameter u, w, b;
};

struct rule {
    enum optimiser optimiser;
    bool nesterov, decay_all;
    double rate, momentum, decay, beta1, beta2, epsilon;
};

static void update_scalar(const struct rule *rule, struct scalar_parameter *p, double g,
                          bool decays, int step)
{
    if (rule->optimiser == OPTIMISER_SGD) {
        g += decays ? rule->decay * p->value : 0;
        p->first = rule->momentum * p->first + g;
        p->value -= rule->rate * (rule->nesterov ? g + rule->momentum * p->first : p->first);
        return;
    }
    p->value *= decays ? 1 - rule->rate * rule->decay : 1;
    p->first = rule->beta1 * p->first + (1 - rule->beta1) * g;
    p->second = rule->beta2 * p->second + (1 - rule->beta2) * g * g;
    const double mean = p->first / (1 - pow(rule->beta1, step));
    const double square = p->second / (1 - pow(rule->beta2, step));
    p->value -= rule->rate * mean / (sqrt(square) + rule->epsilon);
}

static void step_scalar(const struct rule *rule, struct scalar_probe *probe, int step)
{
    const double z = probe->b.value + 32 * probe->w.value * probe->u.value;
    const double g = 1 / (1 + exp(-2 * z)) - 1;
    const double du = 2 * g * probe->w.value;
    const double dw = g * probe->u.value;
    update_scalar(rule, &probe->u, du, rule->decay_all, step);
    update_scalar(rule, &probe->w, dw, true, step);
    update_scalar(rule, &probe->b, g, rule->decay_all, step);
}

static struct step_scalars scalars_of(const struct rule *rule, int step)
{
    struct step_scalars scalars = rig_scalars();
    scalars.rate = (float)rule->rate;
    scalars.momentum = (float)rule->momentum;
    scalars.decay = (float)rule->decay;
    scalars.beta1 = (float)rule->beta1;
    scalars.beta2 = (float)rule->beta2;
    scalars.one_minus_beta1 = (float)(1 - rule->beta1);
    scalars.one_minus_beta2 = (float)(1 - rule->beta2);
    scalars.step_size = (float)(rule->rate / (1 - pow(rule->beta1, step)));
    scalars.second_scale = (float)(1 / sqrt(1 - pow(rule->beta2, step)));
    scalars.epsilon = (float)rule->epsilon;
    scalars.decay_factor = (float)(1 - rule->rate * rule->decay);
    return scalars;
}

/* All values are `first` in the first half and `sign` times that in the second. */
static void check_values(struct network_rig *rig, const char *name, double value, double sign)
{
    const int index = rig_index(rig, name);
    const size_t count = network_parameter(rig->net, index)->elements;
    float *values = rig_parameter(rig, index);
    for (size_t i = 0; i < count; i++) {
        const double wanted = i < count / 2 ? value : sign * value;
        ck_assert_double_eq_tol(values[i], wanted, 2e-6 * (fabs(wanted) + 0.1));
    }
    free(values);
}

static void check_state(struct network_rig *rig, const char *name, int which, double value)
{
    const int index = rig_index(rig, name);
    float *values = calloc(network_parameter(rig->net, index)->elements, sizeof(float));
    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(network_get_state(rig->net, index, which, values), STATUS_OK);
    ck_assert_double_eq_tol(values[0], value, 2e-6 * (fabs(value) + 0.1));
    free(values);
}

static void check_rule(const struct rule *rule, enum precision precision)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = "probe";
    settings.classes = 2;
    settings.image_size = 8;
    settings.precision = precision;
    settings.train_batch = 1;
    settings.optimiser = rule->optimiser;
    settings.nesterov = rule->nesterov;
    settings.decay_all = rule->decay_all;
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    ck_assert_int_eq(network_state_count(rig.net), rule->optimiser == OPTIMISER_SGD ? 1 : 2);
    rig_fill(&rig, "0.bias", 1);
    const float black[8 * 8 * 3] = {0};
    const float target[2] = {1, 0};
    struct scalar_probe probe = {.u = {.value = 1}};
    for (int step = 1; step <= 6; step++) {
        const struct step_scalars scalars = scalars_of(rule, step);
        rig_step(&rig, true, 1, black, target, &scalars);
        if (step == 1) {
            ck_assert_double_eq_tol(rig.loss, log(2), 1e-6);
        }
        step_scalar(rule, &probe, step);
        check_values(&rig, "0.weight", 0, 1);
        check_values(&rig, "0.bias", probe.u.value, 1);
        check_values(&rig, "4.weight", probe.w.value, -1);
        check_values(&rig, "4.bias", probe.b.value, -1);
    }
    check_state(&rig, "0.bias", 0, probe.u.first);
    check_state(&rig, "4.weight", 0, probe.w.first);
    if (rule->optimiser == OPTIMISER_ADAMW) {
        check_state(&rig, "4.weight", 1, probe.w.second);
    }
    rig_close(&rig);
}

START_TEST(test_sgd)
{
    check_rule(&(struct rule){.rate = 0.02, .momentum = 0.9, .decay = 0.1}, PRECISION_F32);
    check_rule(&(struct rule){.rate = 0.02, .momentum = 0.9, .decay = 0.1, .decay_all = true},
               PRECISION_F32);
}
END_TEST

START_TEST(test_nesterov)
{
    check_rule(&(struct rule){.rate = 0.02, .momentum = 0.9, .decay = 0.1, .nesterov = true},
               PRECISION_F32);
}
END_TEST

START_TEST(test_adamw)
{
    const struct rule rule = {.optimiser = OPTIMISER_ADAMW,
                              .rate = 0.02,
                              .decay = 0.1,
                              .beta1 = 0.9,
                              .beta2 = 0.999,
                              .epsilon = 1e-8};
    check_rule(&rule, PRECISION_F32);
    struct rule all = rule;
    all.decay_all = true;
    check_rule(&all, PRECISION_F32);
}
END_TEST

/* The first step in numbers: p = 1/2, g = -1/2, so w = b = 0.1 * 0.5 and u stays. */
START_TEST(test_first_step_in_numbers)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = "probe";
    settings.classes = 2;
    settings.image_size = 8;
    settings.train_batch = 1;
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    rig_fill(&rig, "0.bias", 1);
    const float black[8 * 8 * 3] = {0};
    const float target[2] = {1, 0};
    struct step_scalars scalars = rig_scalars();
    scalars.rate = 0.1F;
    rig_step(&rig, true, 1, black, target, &scalars);
    check_values(&rig, "4.weight", 0.05, -1);
    check_values(&rig, "4.bias", 0.05, -1);
    check_values(&rig, "0.bias", 1, 1);
    /* z = 0.05 + 32 * 0.05 = 1.65; loss = log(1 + exp(-3.3)) = 0.036219... */
    rig_step(&rig, true, 1, black, target, &scalars);
    ck_assert_double_eq_tol(rig.loss, 0.03622, 1e-5);
    ck_assert_double_eq_tol(rig.logits[0], 1.65, 1e-5);
    ck_assert_double_eq_tol(rig.logits[1], -1.65, 1e-5);
    rig_close(&rig);
}
END_TEST

/* --- Learning --------------------------------------------------------------------------------- */

struct small_set {
    uint8_t pixels[16 * 16 * 16 * 3];
    float targets[16 * 4];
};

static void make_set(struct small_set *set)
{
    rig_random_bytes(21, set->pixels, sizeof set->pixels);
    rig_random_targets(22, set->targets, 16, 4);
}

static struct network_settings small_settings(const char *model, enum precision precision)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = model;
    settings.classes = 4;
    settings.image_size = 16;
    settings.precision = precision;
    settings.train_batch = settings.eval_batch = 16;
    return settings;
}

static void learn_by_heart(const char *model, int size, enum precision precision)
{
    struct network_settings settings = small_settings(model, precision);
    settings.image_size = size; /* the set has pixels enough for 16 and less */
    static struct small_set set;
    make_set(&set);
    struct network_rig rig;
    rig_open(&rig, &settings, false);
    ck_assert_int_eq(network_initialise(rig.net, 1), STATUS_OK);
    struct step_scalars scalars = rig_scalars();
    scalars.rate = 0.05F;
    scalars.momentum = 0.9F;
    int steps = 0;
    float first = 0;
    do {
        rig_step(&rig, true, 16, set.pixels, set.targets, &scalars);
        first = steps == 0 ? rig.loss : first;
        ck_assert(isfinite(rig.loss));
    } while (rig.loss >= 1e-3F && ++steps < 200);
    ck_assert_msg(rig.loss < 1e-3F, "%s: loss %g after %d steps", model, rig.loss, steps);
    ck_assert_double_gt(first, 0.5);

    /* num_batches_tracked counts steps of training alone. */
    rig_step(&rig, false, 16, set.pixels, set.targets, &scalars);
    for (int i = 0; i < network_parameter_count(rig.net); i++) {
        if (network_parameter(rig.net, i)->kind == PARAMETER_COUNTER) {
            int64_t counter;
            ck_assert_int_eq(network_get_parameter(rig.net, i, &counter), STATUS_OK);
            ck_assert_int_eq(counter, steps + 1);
        }
    }
    rig_close(&rig);
}

START_TEST(test_smallcnn_learns_16_images)
{
    RIG_SKIP_LONG();
    learn_by_heart("smallcnn", 16, PRECISION_F32);
    learn_by_heart("smallcnn", 16, PRECISION_BF16);
}
END_TEST

START_TEST(test_resnets_learn_16_images)
{
    RIG_SKIP_LONG();
    learn_by_heart("resnet9", 8, PRECISION_F32);
    learn_by_heart("resnet18", 8, PRECISION_F32);
}
END_TEST

/* --- The same bits ---------------------------------------------------------------------------- */

static uint64_t hash_after(const struct network_settings *settings, uint64_t seed, int steps,
                           bool evaluate_between)
{
    static struct small_set set;
    make_set(&set);
    struct network_rig rig;
    rig_open(&rig, settings, false);
    ck_assert_int_eq(network_initialise(rig.net, seed), STATUS_OK);
    struct step_scalars scalars = rig_scalars();
    scalars.rate = 0.1F;
    scalars.momentum = 0.9F;
    scalars.decay = 5e-4F;
    for (int i = 0; i < steps; i++) {
        rig_step(&rig, true, 16, set.pixels, set.targets, &scalars);
        if (evaluate_between) {
            rig_step(&rig, false, 16, set.pixels, set.targets, &scalars);
        }
    }
    uint64_t hash;
    ck_assert_int_eq(network_weights_hash(rig.net, &hash), STATUS_OK);
    rig_close(&rig);
    return hash;
}

START_TEST(test_same_bits)
{
    RIG_SKIP_LONG();
    const struct network_settings settings = small_settings("smallcnn", PRECISION_F32);
    const uint64_t hash = hash_after(&settings, 1, 5, false);
    ck_assert_uint_eq(hash_after(&settings, 1, 5, false), hash);
    /* Evaluation changes no weight and no statistic. */
    ck_assert_uint_eq(hash_after(&settings, 1, 5, true), hash);
    ck_assert_uint_ne(hash_after(&settings, 1, 4, false), hash);
    ck_assert_uint_ne(hash_after(&settings, 2, 5, false), hash);
}
END_TEST

/* Preparing may run the programs once; weights, statistics and optimiser state must not show it. */
START_TEST(test_prepare_keeps_weights)
{
    const struct network_settings settings = small_settings("smallcnn", PRECISION_BF16);
    struct device_settings wanted;
    device_settings_defaults(&wanted);
    wanted.kind = DEVICE_HOST;
    wanted.host_threads = 1;
    device *dev;
    device_stream *stream;
    network *net;
    ck_assert_int_eq(device_open(&wanted, &dev), STATUS_OK);
    ck_assert_int_eq(device_stream_create(dev, "compute", &stream), STATUS_OK);
    ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
    ck_assert_int_eq(network_initialise(net, 9), STATUS_OK);
    uint64_t before, after;
    ck_assert_int_eq(network_weights_hash(net, &before), STATUS_OK);
    float state[32 * 3 * 9];
    for (int i = 0; i < 32 * 3 * 9; i++) {
        state[i] = (float)i;
    }
    ck_assert_int_eq(network_set_state(net, 0, 0, state), STATUS_OK);
    ck_assert_int_eq(network_prepare(net), STATUS_OK);
    ck_assert_int_eq(network_weights_hash(net, &after), STATUS_OK);
    ck_assert_uint_eq(after, before);
    ck_assert_int_eq(network_get_state(net, 0, 0, state), STATUS_OK);
    for (int i = 0; i < 32 * 3 * 9; i++) {
        ck_assert_double_eq(state[i], i);
    }
    network_close(&net);
    device_stream_destroy(dev, &stream);
    device_close(&dev);
}
END_TEST

/* A network of batches of 16 and 3 gives for 3 images what a network of batches of 3 gives. */
START_TEST(test_partial_batch_is_the_same_images_alone)
{
    static struct small_set set;
    make_set(&set);
    struct network_settings settings = small_settings("smallcnn", PRECISION_F32);
    settings.train_last_batch = settings.eval_last_batch = 3;
    struct network_settings alone_settings = settings;
    alone_settings.train_batch = alone_settings.eval_batch = 3;
    struct network_rig both, alone;
    rig_open(&both, &settings, false);
    rig_open(&alone, &alone_settings, false);
    ck_assert_int_eq(network_initialise(both.net, 4), STATUS_OK);
    ck_assert_int_eq(network_initialise(alone.net, 4), STATUS_OK);
    /* A whole batch before, without an update, leaves its values everywhere in memory. */
    struct step_scalars scalars = rig_scalars();
    scalars.averaging = 0;
    rig_step(&both, true, 16, set.pixels, set.targets, &scalars);
    scalars.averaging = 0.1F;
    rig_step(&both, true, 3, set.pixels, set.targets, &scalars);
    rig_step(&alone, true, 3, set.pixels, set.targets, &scalars);
    ck_assert_double_eq(both.loss, alone.loss);
    for (int i = 0; i < network_parameter_count(both.net); i++) {
        const struct parameter *p = network_parameter(both.net, i);
        if (p->kind == PARAMETER_COUNTER) {
            continue;
        }
        const bool weight = p->kind == PARAMETER_WEIGHT;
        float *a = weight ? rig_gradient(&both, i) : rig_parameter(&both, i);
        float *b = weight ? rig_gradient(&alone, i) : rig_parameter(&alone, i);
        ck_assert_msg(memcmp(a, b, p->elements * sizeof(float)) == 0, "%s", p->name);
        free(a);
        free(b);
    }
    rig_step(&both, false, 3, set.pixels, set.targets, &scalars);
    rig_step(&alone, false, 3, set.pixels, set.targets, &scalars);
    ck_assert_double_eq(both.loss, alone.loss);
    ck_assert_mem_eq(both.logits, alone.logits, 3 * 4 * sizeof(float));
    rig_close(&both);
    rig_close(&alone);
}
END_TEST

/* Images without a target row give no gradient: the rest counts as if it were alone, as far as batch
 * norm lets it. The probe has none, so it is exact up to the order of sums. */
START_TEST(test_images_without_target_give_no_gradient)
{
    static struct small_set set;
    make_set(&set);
    struct network_settings settings = small_settings("probe", PRECISION_F32);
    settings.train_last_batch = 9;
    struct network_rig rig;
    rig_open(&rig, &settings, false);
    ck_assert_int_eq(network_initialise(rig.net, 4), STATUS_OK);
    const struct step_scalars scalars = rig_scalars();
    rig_step(&rig, true, 9, set.pixels, set.targets, &scalars);
    const float loss = rig.loss;
    float *alone = rig_gradient(&rig, 0);
    memset(set.targets + 9 * 4, 0, 7 * 4 * sizeof(float));
    rig_step(&rig, true, 16, set.pixels, set.targets, &scalars);
    float *masked = rig_gradient(&rig, 0);
    ck_assert_double_eq_tol(rig.loss, loss, 1e-6);
    for (size_t i = 0; i < network_parameter(rig.net, 0)->elements; i++) {
        ck_assert_double_eq_tol(masked[i], alone[i], 1e-6);
    }
    free(alone);
    free(masked);
    rig_close(&rig);
}
END_TEST

/* Pixels as bytes and as floats that were normalised beforehand are the same input; the padded
 * channel is zero. */
START_TEST(test_input_of_both_kinds)
{
    static struct small_set set;
    make_set(&set);
    const struct network_settings settings = small_settings("probe", PRECISION_F32);
    static float floats[16 * 16 * 16 * 3];
    for (size_t i = 0; i < sizeof set.pixels; i++) {
        floats[i] = (set.pixels[i] / 255.0F - 0.5F) / 0.25F;
    }
    const struct step_scalars scalars = rig_scalars();
    for (int kind = 0; kind < 2; kind++) {
        struct network_rig rig;
        rig_open(&rig, &settings, kind == 1);
        rig_step(&rig, false, 16, kind == 1 ? (const void *)floats : set.pixels, set.targets,
                 &scalars);
        const struct tensor input = network_input(rig.net, 16);
        ck_assert_int_eq(input.c, 4);
        ck_assert_uint_eq(tensor_elements(&input), 16 * 16 * 16 * 4);
        float *values = calloc(tensor_elements(&input), sizeof(float));
        ck_assert_ptr_nonnull(values);
        ck_assert_int_eq(device_copy_to_host(rig.dev, rig.stream, values, input.buffer,
                                             input.offset, tensor_bytes(&input)),
                         STATUS_OK);
        ck_assert_int_eq(device_stream_wait(rig.dev, rig.stream), STATUS_OK);
        for (size_t i = 0; i < sizeof set.pixels / 3; i++) {
            for (size_t c = 0; c < 3; c++) {
                ck_assert_double_eq_tol(values[i * 4 + c], floats[i * 3 + c], 1e-6);
            }
            ck_assert_double_eq(values[i * 4 + 3], 0);
        }
        free(values);
        rig_close(&rig);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_sgd,
                                  test_nesterov,
                                  test_adamw,
                                  test_first_step_in_numbers,
                                  test_smallcnn_learns_16_images,
                                  test_resnets_learn_16_images,
                                  test_same_bits,
                                  test_prepare_keeps_weights,
                                  test_partial_batch_is_the_same_images_alone,
                                  test_images_without_target_give_no_gradient,
                                  test_input_of_both_kinds};
    return check_run("network_training", tests, sizeof tests / sizeof tests[0], 60);
}
