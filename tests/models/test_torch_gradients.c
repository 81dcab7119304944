/* One step of each model beside the same step in PyTorch, where Python has it. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"

#define MAX_ENTRIES 512
#define CLASSES 7

static const char script[] = "tests/models/torch_gradients.py";

/* A Python that has torch, NULL when there is none. */
static const char *find_python(void)
{
    static const char *const pythons[] = {"python3", "/usr/bin/python3"};
    for (size_t i = 0; i < sizeof pythons / sizeof pythons[0]; i++) {
        char command[128];
        snprintf(command, sizeof command, "%s -c 'import torch' >/dev/null 2>&1", pythons[i]);
        if (system(command) == 0) {
            return pythons[i];
        }
    }
    return NULL;
}

static struct safetensors_entry entries[MAX_ENTRIES];
static char names[MAX_ENTRIES][96];
static size_t entry_count;

/* Takes `data`, which the end of the test frees. */
static void add(const char *prefix, const char *name, enum safetensors_dtype dtype, int dims,
                const int64_t *shape, void *data)
{
    ck_assert_uint_lt(entry_count, MAX_ENTRIES);
    struct safetensors_entry *entry = &entries[entry_count];
    snprintf(names[entry_count], sizeof names[0], "%s%s", prefix, name);
    *entry = (struct safetensors_entry){
        .name = names[entry_count], .dtype = dtype, .dims = dims, .data = data};
    entry->bytes = dtype == SAFETENSORS_I64 ? 8 : 4;
    for (int d = 0; d < dims; d++) {
        entry->shape[d] = shape[d];
        entry->bytes *= (size_t)shape[d];
    }
    entry_count++;
}

static void add_parameters(struct network_rig *rig)
{
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        const struct parameter *p = network_parameter(rig->net, i);
        const bool counter = p->kind == PARAMETER_COUNTER;
        void *values = calloc(p->elements, counter ? sizeof(int64_t) : sizeof(float));
        ck_assert_ptr_nonnull(values);
        ck_assert_int_eq(network_get_parameter(rig->net, i, values), STATUS_OK);
        add("", p->name, counter ? SAFETENSORS_I64 : SAFETENSORS_F32, p->dims, p->shape, values);
    }
}

static void add_results(struct network_rig *rig)
{
    for (int i = 0; i < network_parameter_count(rig->net); i++) {
        const struct parameter *p = network_parameter(rig->net, i);
        if (p->kind == PARAMETER_WEIGHT) {
            add("gradient.", p->name, SAFETENSORS_F32, p->dims, p->shape, rig_gradient(rig, i));
        } else if (p->kind == PARAMETER_RUNNING) {
            add("after.", p->name, SAFETENSORS_F32, p->dims, p->shape, rig_parameter(rig, i));
        }
    }
}

static void compare(const char *python, const char *model, enum stem stem, int size, int n)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = model;
    settings.stem = stem;
    settings.classes = CLASSES;
    settings.image_size = size;
    settings.train_batch = n;
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    ck_assert_int_eq(network_initialise(rig.net, 6), STATUS_OK);
    const int64_t pixel_shape[4] = {n, size, size, 3};
    const int64_t target_shape[2] = {n, CLASSES};
    const size_t pixel_count = (size_t)n * (size_t)size * (size_t)size * 3;
    float *pixels = calloc(pixel_count, sizeof(float));
    float *targets = calloc((size_t)n * CLASSES, sizeof(float));
    float *loss = calloc(1, sizeof(float));
    ck_assert(pixels != NULL && targets != NULL && loss != NULL);
    rig_random_floats(31, pixels, pixel_count);
    rig_random_targets(32, targets, n, CLASSES);

    entry_count = 0;
    add_parameters(&rig);
    const struct step_scalars scalars = rig_scalars();
    rig_step(&rig, true, n, pixels, targets, &scalars);
    *loss = rig.loss;
    add_results(&rig);
    add("step.", "pixels", SAFETENSORS_F32, 4, pixel_shape, pixels);
    add("step.", "targets", SAFETENSORS_F32, 2, target_shape, targets);
    add("step.", "loss", SAFETENSORS_F32, 0, NULL, loss);
    const struct safetensors_metadata metadata[] = {
        {"model", model}, {"stem", stem == STEM_LARGE ? "large" : "small"}, {"bound", "2e-5"}};
    char path[64];
    snprintf(path, sizeof path, "/tmp/pinline-torch-%ld.safetensors", (long)getpid());
    ck_assert_int_eq(safetensors_write(path, entries, entry_count, metadata, 3), STATUS_OK);
    char command[256];
    snprintf(command, sizeof command, "%s %s %s", python, script, path);
    const int result = system(command);
    unlink(path);
    for (size_t i = 0; i < entry_count; i++) {
        union {
            const void *in;
            void *out;
        } data = {.in = entries[i].data};
        free(data.out);
    }
    rig_close(&rig);
    ck_assert_msg(result == 0, "%s differs from PyTorch", model);
}

START_TEST(test_gradients_of_pytorch)
{
    RIG_SKIP_LONG();
    const char *python = find_python();
    if (python == NULL) {
        SKIP_TEST("Python has no torch");
    }
    if (access(script, R_OK) != 0) {
        SKIP_TEST("not started from the top of the tree");
    }
    compare(python, "smallcnn", STEM_AUTO, 32, 8);
    compare(python, "probe", STEM_AUTO, 30, 8);
    compare(python, "resnet9", STEM_AUTO, 32, 4);
    compare(python, "resnet9", STEM_AUTO, 72, 2); /* 9x9 maps: their maximum takes two stages */
    compare(python, "resnet18", STEM_SMALL, 32, 4);
    compare(python, "resnet18", STEM_LARGE, 64, 4);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_gradients_of_pytorch};
    return check_run("torch_gradients", tests, sizeof tests / sizeof tests[0], 120);
}
