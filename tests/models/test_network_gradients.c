/* Losses, logits, gradients and running statistics of every model against the reference in double. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"
#include "tests/support/reference_net.h"

/* |a - b| / |b| in the Euclidean norm. */
static double distance(const float *a, const double *b, size_t count)
{
    double difference = 0, size = 0;
    for (size_t i = 0; i < count; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference) / (sqrt(size) + 1e-30);
}

static void to_double(const float *from, double *to, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        to[i] = from[i];
    }
}

/* n images from NHWC to NCHW. */
static double *to_planes(const float *pixels, int n, int size)
{
    double *planes = calloc((size_t)(n * size * size * 3), sizeof(double));
    ck_assert_ptr_nonnull(planes);
    for (int i = 0; i < n; i++) {
        for (int p = 0; p < size * size; p++) {
            for (int c = 0; c < 3; c++) {
                planes[(i * 3 + c) * size * size + p] = pixels[(i * size * size + p) * 3 + c];
            }
        }
    }
    return planes;
}

/* Every parameter of the network into the reference; there must be no other. */
static void copy_parameters(struct network_rig *rig, struct reference_net *reference)
{
    int copied = 0;
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        const struct parameter *info = network_parameter(rig->net, i);
        if (info->kind == PARAMETER_COUNTER) {
            continue;
        }
        struct reference_parameter *p = reference_find(reference, info->name);
        ck_assert_msg(p != NULL && p->count == info->elements, "%s", info->name);
        float *values = rig_parameter(rig, i);
        to_double(values, p->value, p->count);
        free(values);
        copied++;
    }
    ck_assert_int_eq(copied, reference->parameter_count);
}

struct comparison {
    const char *model;
    enum stem stem;
    int size, batch, last;
    enum precision precision;
    double loss_error, gradient_error; /* bounds */
};

/* Initial weights, and batch norms whose scales are not all one. */
static void set_weights(struct network_rig *rig)
{
    ck_assert_int_eq(network_initialise(rig->net, 3), STATUS_OK);
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        const struct parameter *info = network_parameter(rig->net, i);
        if (info->kind != PARAMETER_WEIGHT || info->dims != 1) {
            continue;
        }
        float *values = rig_parameter(rig, i);
        float *noise = calloc(info->elements, sizeof(float));
        ck_assert_ptr_nonnull(noise);
        rig_random_floats((uint64_t)i, noise, info->elements);
        for (size_t k = 0; k < info->elements; k++) {
            values[k] += 0.2F * noise[k];
        }
        ck_assert_int_eq(network_set_parameter(rig->net, i, values), STATUS_OK);
        free(noise);
        free(values);
    }
}

static void compare_step(struct network_rig *rig, const struct comparison *c, int n)
{
    const int classes = rig->settings.classes;
    const size_t count = (size_t)(n * c->size * c->size * 3);
    float *pixels = calloc(count, sizeof(float));
    float *targets = calloc((size_t)(n * classes), sizeof(float));
    double *wanted = calloc((size_t)(n * classes), sizeof(double));
    ck_assert(pixels != NULL && targets != NULL && wanted != NULL);
    rig_random_floats(11, pixels, count);
    rig_random_targets(12, targets, n, classes);
    to_double(targets, wanted, (size_t)(n * classes));
    double *planes = to_planes(pixels, n, c->size);
    struct reference_net *reference =
        reference_model(c->model, n, c->size, classes, c->stem == STEM_LARGE);
    copy_parameters(rig, reference);
    reference->bfloat16 = c->precision == PRECISION_BF16;

    const double loss = reference_forward(reference, planes, wanted, true);
    reference_backward(reference);
    const struct step_scalars scalars = rig_scalars();
    rig_step(rig, true, n, pixels, targets, &scalars);
    ck_assert_double_eq_tol(rig->loss, loss, c->loss_error * loss);
    ck_assert_double_lt(distance(rig->logits, reference_logits(reference), (size_t)(n * classes)),
                        c->loss_error * 10);
    double worst = 0;
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        const struct parameter *info = network_parameter(rig->net, i);
        if (info->kind == PARAMETER_COUNTER) {
            continue;
        }
        const struct reference_parameter *p = reference_find(reference, info->name);
        float *values =
            info->kind == PARAMETER_WEIGHT ? rig_gradient(rig, i) : rig_parameter(rig, i);
        const double error = distance(
            values, info->kind == PARAMETER_WEIGHT ? p->gradient : p->value, info->elements);
        ck_assert_msg(error < c->gradient_error, "%s %s: error %g", c->model, info->name, error);
        worst = error > worst ? error : worst;
        free(values);
    }
    printf("%s, %d images of %d: loss %.6f (%.1e), largest error of a gradient %.1e\n", c->model, n,
           c->size, loss, fabs(rig->loss - loss) / loss, worst);

    /* Evaluation with the statistics that this step left. */
    const double evaluated = reference_forward(reference, planes, wanted, false);
    rig_step(rig, false, n, pixels, targets, &scalars);
    ck_assert_double_eq_tol(rig->loss, evaluated, 3 * c->loss_error * evaluated);

    reference_destroy(reference);
    free(planes);
    free(wanted);
    free(targets);
    free(pixels);
}

static void compare(const struct comparison *c)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = c->model;
    settings.stem = c->stem;
    settings.image_size = c->size;
    settings.classes = 7;
    settings.precision = c->precision;
    settings.train_batch = settings.eval_batch = c->batch;
    settings.train_last_batch = settings.eval_last_batch = c->last;
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    set_weights(&rig);
    compare_step(&rig, c, c->batch);
    if (c->last > 0) {
        compare_step(&rig, c, c->last);
    }
    rig_close(&rig);
}

/* In float32 what is left is the rounding of sums, which grows with depth. */
START_TEST(test_smallcnn)
{
    compare(&(struct comparison){"smallcnn", STEM_AUTO, 12, 5, 3, PRECISION_F32, 2e-6, 2e-5});
    compare(&(struct comparison){"smallcnn", STEM_AUTO, 9, 2, 0, PRECISION_F32, 2e-6, 2e-5});
}
END_TEST

START_TEST(test_probe)
{
    compare(&(struct comparison){"probe", STEM_AUTO, 18, 6, 1, PRECISION_F32, 1e-6, 5e-6});
}
END_TEST

START_TEST(test_resnet9)
{
    RIG_SKIP_LONG();
    compare(&(struct comparison){"resnet9", STEM_AUTO, 16, 2, 0, PRECISION_F32, 5e-6, 5e-5});
}
END_TEST

START_TEST(test_resnet18_small_stem)
{
    RIG_SKIP_LONG();
    compare(&(struct comparison){"resnet18", STEM_SMALL, 9, 3, 2, PRECISION_F32, 5e-6, 5e-5});
}
END_TEST

START_TEST(test_resnet18_large_stem)
{
    RIG_SKIP_LONG();
    compare(&(struct comparison){"resnet18", STEM_LARGE, 33, 2, 0, PRECISION_F32, 5e-6, 5e-5});
}
END_TEST

/* The reference rounds where the network does. A sum that lies between two bfloat16 values may still
 * fall to the other side, and the maximum of a pool with it. */
START_TEST(test_bfloat16)
{
    RIG_SKIP_LONG();
    compare(&(struct comparison){"probe", STEM_AUTO, 18, 6, 1, PRECISION_BF16, 1e-6, 1e-5});
    compare(&(struct comparison){"smallcnn", STEM_AUTO, 12, 5, 3, PRECISION_BF16, 1e-5, 0.03});
    compare(&(struct comparison){"resnet9", STEM_AUTO, 8, 4, 0, PRECISION_BF16, 1e-5, 0.03});
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_smallcnn, test_probe, test_resnet9, test_resnet18_small_stem, test_resnet18_large_stem,
        test_bfloat16};
    return check_run("network_gradients", tests, sizeof tests / sizeof tests[0], 60);
}
