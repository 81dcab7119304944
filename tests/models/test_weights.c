/* Weights files against networks: what fits is loaded, what does not is refused with every reason. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/weights.h"
#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"

static char path[64];

static struct network_settings probe_settings(int classes)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = "probe";
    settings.classes = classes;
    settings.image_size = 8;
    settings.train_batch = 2;
    return settings;
}

/* The probe's four tensors with 3 classes, all values 0.5. */
#define PROBE_ENTRIES 4
static float values[32 * 27];

static void make_entries(struct safetensors_entry entries[PROBE_ENTRIES], int classes)
{
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        values[i] = 0.5F;
    }
    const struct safetensors_entry made[PROBE_ENTRIES] = {
        {"0.weight", SAFETENSORS_F32, 4, {32, 3, 3, 3}, values, 32 * 27 * 4},
        {"0.bias", SAFETENSORS_F32, 1, {32}, values, 32 * 4},
        {"4.weight", SAFETENSORS_F32, 2, {classes, 32}, values, (size_t)classes * 32 * 4},
        {"4.bias", SAFETENSORS_F32, 1, {classes}, values, (size_t)classes * 4},
    };
    memcpy(entries, made, sizeof made);
}

static enum status load(struct network_rig *rig, const struct safetensors_entry *entries,
                        size_t count)
{
    snprintf(path, sizeof path, "/tmp/pinline-weights-%ld.safetensors", (long)getpid());
    ck_assert_int_eq(safetensors_write(path, entries, count, NULL, 0), STATUS_OK);
    safetensors *file;
    ck_assert_int_eq(safetensors_open(path, &file), STATUS_OK);
    const enum status status = weights_load(path, rig->settings.model, file, rig->net);
    safetensors_close(&file);
    unlink(path);
    return status;
}

static void says(const char *part)
{
    ck_assert_msg(strstr(status_message(), part) != NULL, "\"%s\" not in \"%s\"", part,
                  status_message());
}

START_TEST(test_what_fits_is_loaded)
{
    const struct network_settings settings = probe_settings(3);
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    struct safetensors_entry entries[PROBE_ENTRIES];
    make_entries(entries, 3);
    ck_assert_int_eq(load(&rig, entries, PROBE_ENTRIES), STATUS_OK);
    for (int i = 0; i < PROBE_ENTRIES; i++) {
        float *got = rig_parameter(&rig, i);
        for (size_t k = 0; k < network_parameter(rig.net, i)->elements; k++) {
            ck_assert_double_eq(got[k], 0.5);
        }
        free(got);
    }
    rig_close(&rig);
}
END_TEST

START_TEST(test_other_number_of_classes)
{
    const struct network_settings settings = probe_settings(5);
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    struct safetensors_entry entries[PROBE_ENTRIES];
    make_entries(entries, 3);
    ck_assert_int_eq(load(&rig, entries, PROBE_ENTRIES), STATUS_MISMATCH);
    says("3 classes");
    says("5");
    rig_close(&rig);
}
END_TEST

START_TEST(test_every_difference_is_named)
{
    const struct network_settings settings = probe_settings(3);
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    ck_assert_int_eq(network_initialise(rig.net, 1), STATUS_OK);
    uint64_t before, after;
    ck_assert_int_eq(network_weights_hash(rig.net, &before), STATUS_OK);
    struct safetensors_entry entries[PROBE_ENTRIES];
    make_entries(entries, 3);
    entries[0].name = "0.weights";
    entries[1].shape[0] = 16;
    entries[1].bytes = 16 * 4;
    entries[3].dtype = SAFETENSORS_I32;
    ck_assert_int_eq(load(&rig, entries, PROBE_ENTRIES), STATUS_MISMATCH);
    says("0.weight is missing");
    says("0.weights is unexpected");
    says("0.bias is [16] instead of [32]");
    says("4.bias is not stored as F32");
    says("probe");
    says(path);
    ck_assert_int_eq(network_weights_hash(rig.net, &after), STATUS_OK);
    ck_assert_uint_eq(after, before);
    rig_close(&rig);
}
END_TEST

/* An empty file for a network of 122 names: the list is cut and the rest counted. */
START_TEST(test_long_lists_are_cut)
{
    struct network_settings settings = probe_settings(3);
    settings.model = "resnet18";
    settings.image_size = 32;
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    ck_assert_int_eq(load(&rig, NULL, 0), STATUS_MISMATCH);
    says("conv1.weight is missing");
    says(" more");
    says("another model");
    rig_close(&rig);
}
END_TEST

START_TEST(test_values_that_are_not_finite)
{
    const struct network_settings settings = probe_settings(3);
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    ck_assert_int_eq(network_initialise(rig.net, 1), STATUS_OK);
    uint64_t before, after;
    ck_assert_int_eq(network_weights_hash(rig.net, &before), STATUS_OK);
    struct safetensors_entry entries[PROBE_ENTRIES];
    make_entries(entries, 3);
    values[700] = NAN; /* of the convolution alone */
    ck_assert_int_eq(load(&rig, entries, PROBE_ENTRIES), STATUS_INVALID);
    says("0.weight holds a value that is not finite");
    ck_assert_int_eq(network_weights_hash(rig.net, &after), STATUS_OK);
    ck_assert_uint_eq(after, before);
    rig_close(&rig);
}
END_TEST

/* A file of PyTorch's before it counted batches, or one that left the counts out. */
START_TEST(test_counters_may_be_absent)
{
    struct network_settings settings = probe_settings(3);
    settings.model = "smallcnn";
    struct network_rig rig;
    rig_open(&rig, &settings, true);
    const int counter = rig_index(&rig, "1.num_batches_tracked");
    const int64_t some = 17;
    int64_t count = -1;
    ck_assert_int_eq(network_set_parameter(rig.net, counter, &some), STATUS_OK);
    struct safetensors_entry entries[64];
    static float zeros[128 * 128 * 9];
    size_t entry_count = 0;
    for (int i = 0; i < network_parameter_count(rig.net); i++) {
        const struct parameter *p = network_parameter(rig.net, i);
        if (p->kind != PARAMETER_COUNTER) {
            struct safetensors_entry *entry = &entries[entry_count++];
            *entry = (struct safetensors_entry){
                p->name, SAFETENSORS_F32, p->dims, {0}, zeros, p->elements * sizeof(float)};
            memcpy(entry->shape, p->shape, sizeof p->shape);
        }
    }
    ck_assert_int_eq(load(&rig, entries, entry_count), STATUS_OK);
    ck_assert_int_eq(network_get_parameter(rig.net, counter, &count), STATUS_OK);
    ck_assert_int_eq(count, 0);
    rig_close(&rig);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_what_fits_is_loaded,        test_other_number_of_classes,
                                  test_every_difference_is_named,  test_long_lists_are_cut,
                                  test_values_that_are_not_finite, test_counters_may_be_absent};
    return check_run("weights", tests, sizeof tests / sizeof tests[0], 60);
}
