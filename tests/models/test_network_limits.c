/* What is refused at open, with messages that name the remedy; initial values; set and get. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/network_rig.h"

static device *dev;
static device_stream *stream;

static void open_device(void)
{
    struct device_settings wanted;
    device_settings_defaults(&wanted);
    wanted.kind = DEVICE_HOST;
    wanted.host_threads = 1;
    ck_assert_int_eq(device_open(&wanted, &dev), STATUS_OK);
    ck_assert_int_eq(device_stream_create(dev, "compute", &stream), STATUS_OK);
}

static void close_device(void)
{
    device_stream_destroy(dev, &stream);
    device_close(&dev);
}

static struct network_settings settings_of(const char *model, int size, int batch, int last)
{
    struct network_settings settings;
    network_settings_defaults(&settings);
    settings.model = model;
    settings.image_size = size;
    settings.train_batch = batch;
    settings.train_last_batch = last;
    return settings;
}

/* Each word must be in the message. */
static void refused(const struct network_settings *settings, enum status status,
                    const char *const words[3])
{
    network *net = NULL;
    const enum status got = network_open(dev, stream, settings, &net);
    ck_assert_ptr_null(net);
    ck_assert_msg(got == status, "%s instead of %s: %s", status_name(got), status_name(status),
                  status_message());
    for (int i = 0; i < 3; i++) {
        ck_assert_msg(strstr(status_message(), words[i]) != NULL, "\"%s\" not in \"%s\"", words[i],
                      status_message());
    }
}

static void accepted(const struct network_settings *settings)
{
    network *net = NULL;
    const enum status got = network_open(dev, stream, settings, &net);
    ck_assert_msg(got == STATUS_OK, "%s", status_message());
    network_close(&net);
}

#define WORDS(...)                                                                                 \
    (const char *const[3])                                                                         \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

START_TEST(test_unknown_model)
{
    open_device();
    struct network_settings settings = settings_of("resnet81", 32, 4, 0);
    refused(&settings, STATUS_USAGE, WORDS("resnet81", "smallcnn", "resnet18"));
    settings = settings_of("smallcnn", 32, 4, 0);
    settings.stem = STEM_LARGE;
    refused(&settings, STATUS_USAGE, WORDS("smallcnn", "--stem", "resnet18"));
    close_device();
}
END_TEST

/* Three halvings need 8 pixels, two need 4. */
START_TEST(test_image_too_small)
{
    open_device();
    struct network_settings settings = settings_of("resnet9", 7, 4, 0);
    refused(&settings, STATUS_USAGE, WORDS("7 pixels", "resnet9", "--size 8"));
    settings = settings_of("smallcnn", 3, 4, 0);
    refused(&settings, STATUS_USAGE, WORDS("3 pixels", "smallcnn", "--size 4"));
    settings = settings_of("resnet9", 8, 4, 0);
    accepted(&settings);
    settings = settings_of("smallcnn", 4, 4, 0);
    accepted(&settings);
    close_device();
}
END_TEST

/* At 4 pixels smallcnn's last maps are 1x1; at 8 they are 2x2 and one image is enough. */
START_TEST(test_batch_of_one)
{
    open_device();
    struct network_settings settings = settings_of("smallcnn", 4, 4, 1);
    refused(&settings, STATUS_USAGE, WORDS("last batch", "--drop-last", "--batch-size"));
    settings = settings_of("smallcnn", 4, 1, 0);
    refused(&settings, STATUS_USAGE, WORDS("--batch-size 1", "1x1", "batch of 2"));
    settings = settings_of("smallcnn", 8, 4, 1);
    accepted(&settings);
    settings = settings_of("smallcnn", 4, 4, 2);
    accepted(&settings);
    settings = settings_of("probe", 4, 1, 0); /* no batch norm */
    accepted(&settings);
    settings = settings_of("smallcnn", 4, 4, 1); /* nor is there training */
    settings.train = false;
    settings.eval_batch = 4;
    settings.eval_last_batch = 1;
    accepted(&settings);
    close_device();
}
END_TEST

START_TEST(test_values_out_of_range)
{
    open_device();
    struct network_settings settings = settings_of("smallcnn", 32, 0, 0);
    refused(&settings, STATUS_USAGE, WORDS("training batch", "0", "1 to"));
    settings = settings_of("smallcnn", 32, 4, 5);
    refused(&settings, STATUS_USAGE, WORDS("last training batch", "5", "0 to 4"));
    settings = settings_of("smallcnn", 32, 4, 0);
    settings.classes = 1;
    refused(&settings, STATUS_USAGE, WORDS("classes", "1", "2 to"));
    close_device();
}
END_TEST

/* More than any machine has. What is said to fit does fit: below the limit by the same arithmetic. */
START_TEST(test_out_of_memory_names_the_batch_that_fits)
{
    open_device();
    struct network_settings settings = settings_of("smallcnn", 1024, 65536, 0);
    refused(&settings, STATUS_NO_MEMORY, WORDS("MB", "smallcnn", "--batch-size"));
    const char *text = strstr(status_message(), "a batch of ");
    ck_assert_ptr_nonnull(text);
    const char *fits_text = strstr(text + 1, ": a batch of ");
    ck_assert_ptr_nonnull(fits_text);
    const long fits = strtol(fits_text + strlen(": a batch of "), NULL, 10);
    ck_assert_int_gt(fits, 0);
    ck_assert_int_lt(fits, 65536);
    struct device_facts facts;
    ck_assert_int_eq(device_read_facts(dev, &facts), STATUS_OK);
    /* The memory of one image, from a network small enough to be opened. */
    settings.image_size = 1024;
    settings.train_batch = 1;
    network *net;
    ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
    struct network_memory memory;
    network_read_memory(net, &memory);
    network_close(&net);
    const double wanted = (double)fits * (double)memory.activations;
    ck_assert_double_gt(wanted, 0.8 * (double)facts.memory_free);
    ck_assert_double_lt(wanted, 1.1 * (double)facts.memory_free);
    close_device();
}
END_TEST

/* --- Initial values --------------------------------------------------------------------------- */

struct moments {
    double mean, deviation, low, high;
};

static struct moments measure(network *net, const char *name)
{
    int index = 0;
    while (strcmp(network_parameter(net, index)->name, name) != 0) {
        index++;
        ck_assert_int_lt(index, network_parameter_count(net));
    }
    const size_t count = network_parameter(net, index)->elements;
    float *values = calloc(count, sizeof(float));
    ck_assert_ptr_nonnull(values);
    ck_assert_int_eq(network_get_parameter(net, index, values), STATUS_OK);
    struct moments m = {.low = values[0], .high = values[0]};
    for (size_t i = 0; i < count; i++) {
        m.mean += values[i] / (double)count;
        m.low = fmin(m.low, values[i]);
        m.high = fmax(m.high, values[i]);
    }
    for (size_t i = 0; i < count; i++) {
        m.deviation += (values[i] - m.mean) * (values[i] - m.mean) / (double)count;
    }
    m.deviation = sqrt(m.deviation);
    free(values);
    return m;
}

/* Uniform within 1 / sqrt(fan in): deviation bound / sqrt 3, nothing outside, nearly all inside. */
static void check_uniform(network *net, const char *name, double fan_in)
{
    const double bound = 1 / sqrt(fan_in);
    const struct moments m = measure(net, name);
    ck_assert_msg(fabs(m.deviation / (bound / sqrt(3)) - 1) < 0.06, "%s: %g", name, m.deviation);
    ck_assert_double_lt(fabs(m.mean), 0.1 * bound);
    ck_assert_double_lt(m.high, bound * (1 + 1e-6));
    ck_assert_double_gt(m.low, -bound * (1 + 1e-6));
    ck_assert_double_gt(m.high, 0.97 * bound);
}

static void check_normal(network *net, const char *name, double fan_out)
{
    const double deviation = sqrt(2 / fan_out);
    const struct moments m = measure(net, name);
    ck_assert_msg(fabs(m.deviation / deviation - 1) < 0.03, "%s: %g", name, m.deviation);
    ck_assert_double_lt(fabs(m.mean), 0.05 * deviation);
    ck_assert_double_gt(m.high, 3 * deviation);
}

static void check_constant(network *net, const char *name, double value)
{
    const struct moments m = measure(net, name);
    ck_assert_double_eq(m.low, value);
    ck_assert_double_eq(m.high, value);
}

static network *open_initialised(const char *model, int size)
{
    struct network_settings settings = settings_of(model, size, 2, 0);
    settings.classes = 100;
    network *net;
    ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
    ck_assert_int_eq(network_initialise(net, 1), STATUS_OK);
    return net;
}

START_TEST(test_initial_values)
{
    open_device();
    network *net = open_initialised("smallcnn", 32);
    check_uniform(net, "3.weight", 32 * 9);
    check_uniform(net, "17.weight", 128 * 9);
    check_uniform(net, "22.weight", 128);
    ck_assert_double_lt(measure(net, "22.bias").high, 1 / sqrt(128));
    ck_assert_double_gt(measure(net, "22.bias").deviation, 0.8 / sqrt(3 * 128));
    check_constant(net, "1.weight", 1);
    check_constant(net, "1.bias", 0);
    check_constant(net, "1.running_mean", 0);
    check_constant(net, "1.running_var", 1);
    network_close(&net);

    net = open_initialised("probe", 32);
    check_uniform(net, "0.weight", 27);
    ck_assert_double_gt(measure(net, "0.bias").deviation, 0.6 / sqrt(3 * 27));
    check_uniform(net, "4.weight", 32);
    network_close(&net);

    net = open_initialised("resnet9", 32);
    check_normal(net, "layer1.conv.weight", 128 * 9);
    check_normal(net, "res3.1.conv.weight", 512 * 9);
    check_normal(net, "head.weight", 100);
    network_close(&net);

    net = open_initialised("resnet18", 64);
    check_normal(net, "conv1.weight", 64 * 49);
    check_normal(net, "layer3.0.downsample.0.weight", 256);
    check_normal(net, "layer4.1.conv2.weight", 512 * 9);
    check_uniform(net, "fc.weight", 512);
    check_constant(net, "layer4.1.bn2.weight", 1);
    network_close(&net);
    close_device();
}
END_TEST

/* The same seed gives the same weights whatever the precision, the batch and earlier values. */
START_TEST(test_initial_values_are_a_function_of_the_seed)
{
    open_device();
    uint64_t hashes[4];
    for (int i = 0; i < 4; i++) {
        struct network_settings settings = settings_of("smallcnn", 32, 2 + i, 0);
        settings.precision = i == 1 ? PRECISION_BF16 : PRECISION_F32;
        network *net;
        ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
        if (i == 2) {
            ck_assert_int_eq(network_initialise(net, 5), STATUS_OK);
        }
        ck_assert_int_eq(network_initialise(net, i == 3 ? 8 : 7), STATUS_OK);
        ck_assert_int_eq(network_weights_hash(net, &hashes[i]), STATUS_OK);
        network_close(&net);
    }
    ck_assert_uint_eq(hashes[0], hashes[1]);
    ck_assert_uint_eq(hashes[0], hashes[2]);
    ck_assert_uint_ne(hashes[0], hashes[3]);
    close_device();
}
END_TEST

/* Every parameter and state comes back as it was put in, wherever its bytes lie. */
START_TEST(test_set_and_get)
{
    open_device();
    struct network_settings settings = settings_of("smallcnn", 32, 2, 0);
    settings.optimiser = OPTIMISER_ADAMW;
    settings.precision = _i == 0 ? PRECISION_F32 : PRECISION_BF16;
    network *net;
    ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
    ck_assert_int_eq(network_state_count(net), 2);
    const size_t most = 128 * 128 * 9;
    float *put = calloc(most, sizeof(float));
    float *got = calloc(most, sizeof(float));
    char *shifted = calloc(most * sizeof(float) + 1, 1);
    ck_assert(put != NULL && got != NULL && shifted != NULL);
    for (int pass = 0; pass < 2; pass++) {
        for (int i = 0; i < network_parameter_count(net); i++) {
            const struct parameter *p = network_parameter(net, i);
            if (p->kind == PARAMETER_COUNTER) {
                int64_t counter = 1000000000000 + i;
                if (pass == 0) {
                    ck_assert_int_eq(network_set_parameter(net, i, &counter), STATUS_OK);
                } else {
                    int64_t back = 0;
                    ck_assert_int_eq(network_get_parameter(net, i, &back), STATUS_OK);
                    ck_assert_int_eq(back, counter);
                }
                continue;
            }
            const int kinds = p->kind == PARAMETER_WEIGHT ? 3 : 1;
            for (int kind = 0; kind < kinds; kind++) {
                rig_random_floats((uint64_t)(i * 3 + kind), put, p->elements);
                memcpy(shifted + 1, put, p->elements * sizeof(float));
                if (pass == 0) {
                    ck_assert_int_eq(kind == 0 ? network_set_parameter(net, i, shifted + 1)
                                               : network_set_state(net, i, kind - 1, put),
                                     STATUS_OK);
                } else {
                    ck_assert_int_eq(kind == 0 ? network_get_parameter(net, i, got)
                                               : network_get_state(net, i, kind - 1, got),
                                     STATUS_OK);
                    ck_assert_msg(memcmp(put, got, p->elements * sizeof(float)) == 0, "%s",
                                  p->name);
                }
            }
        }
    }
    free(put);
    free(got);
    free(shifted);
    network_close(&net);
    close_device();
}
END_TEST

/* A batch of another size than announced is a mistake of the caller that is named. */
START_TEST(test_unknown_batch_size)
{
    open_device();
    const struct network_settings settings = settings_of("probe", 8, 4, 2);
    network *net;
    ck_assert_int_eq(network_open(dev, stream, &settings, &net), STATUS_OK);
    ck_assert_int_eq(network_prepare(net), STATUS_OK);
    ck_assert_int_eq(network_train(net, 3), STATUS_INTERNAL);
    ck_assert_int_eq(network_evaluate(net, 4), STATUS_INTERNAL);
    ck_assert_int_eq(network_ingest(net, true, 0, 4), STATUS_INTERNAL);
    network_close(&net);
    network_close(&net);
    close_device();
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, test_unknown_model);
    tcase_add_test(tests, test_image_too_small);
    tcase_add_test(tests, test_batch_of_one);
    tcase_add_test(tests, test_values_out_of_range);
    tcase_add_test(tests, test_out_of_memory_names_the_batch_that_fits);
    tcase_add_test(tests, test_initial_values);
    tcase_add_test(tests, test_initial_values_are_a_function_of_the_seed);
    tcase_add_loop_test(tests, test_set_and_get, 0, 2);
    tcase_add_test(tests, test_unknown_batch_size);
    return check_run_case("network_limits", tests);
}
