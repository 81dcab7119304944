/* The dispatch, the checks of descriptions, the poisoned state, plans, and the missing plugin. */
#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "device/device_backend.h"
#include "tests/support/check_run.h"

#define MUST(expression)                                                                           \
    do {                                                                                           \
        if ((expression) != STATUS_OK) {                                                           \
            ck_abort_msg("%s: %s", #expression, status_message());                                 \
        }                                                                                          \
    } while (0)

static device *open_host(void)
{
    struct device_settings settings;
    device *dev = NULL;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_HOST;
    settings.host_threads = 1;
    MUST(device_open(&settings, &dev));
    return dev;
}

/* --- Opening ----------------------------------------------------------------------------------- */

START_TEST(defaults_are_as_documented)
{
    struct device_settings s;
    device_settings_defaults(&s);
    ck_assert_int_eq(s.kind, DEVICE_AUTO);
    ck_assert_int_eq(s.index, 0);
    ck_assert_int_eq(s.precision, PRECISION_F32);
    ck_assert(s.deterministic && s.capture && !s.spin);
    ck_assert_uint_eq(s.workspace_limit, (size_t)1 << 30);
    ck_assert_int_eq(s.plan_candidates, 8);
    ck_assert_ptr_null(s.plan_cache);
    ck_assert_ptr_null(s.cuda_libs);
    ck_assert_int_eq(s.host_threads, 0);
    ck_assert_int_eq(s.host_mode, HOST_IMMEDIATE);
    ck_assert_uint_eq(dtype_bytes(DTYPE_F32), 4);
    ck_assert_uint_eq(dtype_bytes(DTYPE_BF16), 2);
    ck_assert_uint_eq(dtype_bytes(DTYPE_U8), 1);
    struct tensor t = {NULL, 0, DTYPE_BF16, 2, 3, 5, 7};
    ck_assert_uint_eq(tensor_elements(&t), 210);
    ck_assert_uint_eq(tensor_bytes(&t), 420);
}
END_TEST

START_TEST(wrong_settings_are_refused)
{
    struct device_settings good, s;
    device *dev = NULL;
    device_settings_defaults(&good);
    good.kind = DEVICE_HOST;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        s = good;                                                                                  \
        change;                                                                                    \
        ck_assert_int_eq(device_open(&s, &dev), STATUS_USAGE);                                     \
        ck_assert_ptr_null(dev);                                                                   \
    } while (0)
    REFUSED(s.index = -1);
    REFUSED(s.plan_candidates = 0);
    REFUSED(s.plan_candidates = 65);
    REFUSED(s.host_threads = -1);
    REFUSED(s.host_threads = 1025);
    REFUSED(s.precision = (enum precision)3);
    REFUSED(s.kind = (enum device_kind)7);
    REFUSED(s.host_mode = (enum host_mode)3);
    REFUSED(s.host_mode = HOST_SIMULATED; s.simulated.locked_bytes_per_s = 0);
    REFUSED(s.host_mode = HOST_SIMULATED; s.simulated.pageable_bytes_per_s = NAN);
    REFUSED(s.host_mode = HOST_SIMULATED; s.simulated.step_s = -1);
#undef REFUSED
    device_close(&dev);
    ck_assert_ptr_null(dev);
}
END_TEST

START_TEST(facts_of_the_host)
{
    device *dev = open_host();
    struct device_facts facts;
    struct device_sample sample = {.valid = true};
    MUST(device_read_facts(dev, &facts));
    ck_assert_int_eq(facts.kind, DEVICE_HOST);
    ck_assert(!facts.copies_are_real);
    ck_assert_ptr_nonnull(strstr(facts.name, "host"));
    ck_assert_ptr_nonnull(strstr(facts.name, "1 thread"));
    ck_assert_ptr_nonnull(strstr(facts.blas, "OpenBLAS"));
    ck_assert_uint_gt(facts.memory_total, 0);
    ck_assert_uint_le(facts.memory_free, facts.memory_total);
    device_read_sample(dev, &sample);
    ck_assert(!sample.valid);
    ck_assert_int_eq(sample.other_processes, -1);
    device_close(&dev);
}
END_TEST

/* More than any machine has: refused with the size and what to do. */
START_TEST(too_much_memory_is_refused)
{
    device *dev = open_host();
    device_buffer *buffer = NULL;
    struct host_buffer staging;
    ck_assert_int_eq(device_buffer_create(dev, (size_t)1 << 62, &buffer), STATUS_NO_MEMORY);
    ck_assert_ptr_null(buffer);
    ck_assert_ptr_nonnull(strstr(status_message(), "4611686018427387904"));
    ck_assert_int_eq(device_buffer_create(dev, SIZE_MAX - 10, &buffer), STATUS_NO_MEMORY);
    ck_assert_int_eq(device_buffer_create(dev, 0, &buffer), STATUS_INTERNAL);
    ck_assert_int_eq(
        device_host_buffer_create(dev, (size_t)1 << 50, HOST_MEMORY_REGISTERED, &staging),
        STATUS_NO_MEMORY);
    ck_assert_ptr_null(staging.data);
    ck_assert_int_eq(device_host_buffer_create(dev, SIZE_MAX, HOST_MEMORY_PAGEABLE, &staging),
                     STATUS_NO_MEMORY);
    device_host_buffer_destroy(dev, &staging);
    device_close(&dev);
}
END_TEST

/* --- The CUDA device that is not there ---------------------------------------------------------- */

struct lines {
    int count, problems;
    char text[16][1024];
};

static void keep_line(void *context, bool problem, const char *text)
{
    struct lines *lines = context;
    ck_assert_int_lt(lines->count, 16);
    snprintf(lines->text[lines->count], sizeof lines->text[0], "%s", text);
    lines->problems += problem ? 1 : 0;
    lines->count++;
}

/* Runs where no plugin lies beside the program. */
START_TEST(without_a_plugin)
{
    struct device_settings s;
    device *dev = NULL;
    device_settings_defaults(&s);
    s.kind = DEVICE_CUDA;
    ck_assert_int_eq(device_open(&s, &dev), STATUS_NOT_FOUND);
    ck_assert_ptr_null(dev);
    const char *message = status_message();
    ck_assert_ptr_null(strchr(message, '\n'));
    ck_assert_ptr_nonnull(strstr(message, "pinline_cuda.so"));
    ck_assert_ptr_nonnull(strstr(message, "lib/pinline"));
    ck_assert_ptr_nonnull(strstr(message, "--device host"));

    struct lines lines = {0};
    device_doctor(NULL, &s, keep_line, &lines);
    ck_assert_int_ge(lines.count, 2);
    ck_assert_int_eq(lines.problems, 1);
    ck_assert_ptr_nonnull(strstr(lines.text[lines.count - 1], "pinline_cuda.so"));

    /* Automatic: the host, and one line that says why. */
    s.kind = DEVICE_AUTO;
    s.host_threads = 1;
    int saved = dup(STDERR_FILENO), log[2];
    char text[4096] = "";
    ck_assert_int_eq(pipe(log), 0);
    ck_assert_int_ge(dup2(log[1], STDERR_FILENO), 0);
    enum status status = device_open(&s, &dev);
    ck_assert_int_ge(dup2(saved, STDERR_FILENO), 0);
    close(log[1]);
    ssize_t length = read(log[0], text, sizeof text - 1);
    close(log[0]);
    close(saved);
    ck_assert_int_eq(status, STATUS_OK);
    ck_assert_int_gt(length, 0);
    ck_assert_ptr_nonnull(strstr(text, "CPU"));
    ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
    struct device_facts facts;
    MUST(device_read_facts(dev, &facts));
    ck_assert_int_eq(facts.kind, DEVICE_HOST);
    device_close(&dev);
}
END_TEST

/* This build may have a plugin, which lies beside the program: a copy of the program in a folder of
 * its own has none. */
START_TEST(missing_plugin_is_one_clear_line)
{
    char folder[] = "/tmp/pinline-test-XXXXXX";
    char command[3 * 64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(command, sizeof command, "cp /proc/%ld/exe %s/copy && %s/copy missing", (long)getpid(),
             folder, folder);
    int result = system(command);
    snprintf(command, sizeof command, "rm -r %s", folder);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(result, 0);
}
END_TEST

START_TEST(doctor_of_an_open_host)
{
    device *dev = open_host();
    struct lines lines = {0};
    device_doctor(dev, NULL, keep_line, &lines);
    ck_assert_int_ge(lines.count, 1);
    ck_assert_int_eq(lines.problems, 0);
    ck_assert_ptr_nonnull(strstr(lines.text[0], "host"));
    device_close(&dev);
}
END_TEST

/* --- The poisoned state -------------------------------------------------------------------------- */

/* A device that fails once, at the second wait for a stream, and counts what still reaches it. */
struct fake {
    struct device base;
    int waits, calls, destroyed;
};

static enum status fake_wait(device *dev, device_stream *stream)
{
    struct fake *fake = (struct fake *)(void *)dev;
    (void)stream;
    fake->calls++;
    if (++fake->waits == 2) {
        return FAIL(STATUS_DEVICE, "the fake device fell over");
    }
    return STATUS_OK;
}

static enum status fake_buffer(device *dev, size_t bytes, device_buffer **out)
{
    struct fake *fake = (struct fake *)(void *)dev;
    (void)out;
    fake->calls++;
    return FAIL(STATUS_NO_MEMORY, "%zu bytes", bytes);
}

static void fake_destroy(device *dev, device_stream *stream)
{
    (void)stream;
    ((struct fake *)(void *)dev)->destroyed++;
}

static void fake_close(device *dev)
{
    ((struct fake *)(void *)dev)->destroyed++;
}

START_TEST(a_device_failure_poisons)
{
    static const struct device_backend backend = {.name = "fake",
                                                  .close = fake_close,
                                                  .stream_wait = fake_wait,
                                                  .stream_destroy = fake_destroy,
                                                  .buffer_create = fake_buffer};
    struct fake fake = {.base = {.backend = &backend}};
    device *dev = &fake.base;
    char place;
    device_stream *stream = (device_stream *)(void *)&place;
    device_buffer *buffer = NULL;
    bool complete = true;
    MUST(device_stream_wait(dev, stream));
    /* Other failures do not poison. */
    ck_assert_int_eq(device_buffer_create(dev, 8, &buffer), STATUS_NO_MEMORY);
    ck_assert_int_eq(fake.base.poison.status, STATUS_OK);
    ck_assert_int_eq(device_stream_wait(dev, stream), STATUS_DEVICE);
    int calls = fake.calls;
    status_clear();
    ck_assert_int_eq(device_stream_wait(dev, stream), STATUS_DEVICE);
    ck_assert_str_eq(status_message(), "the fake device fell over");
    ck_assert_int_eq(device_buffer_create(dev, 8, &buffer), STATUS_DEVICE);
    ck_assert_str_eq(status_message(), "the fake device fell over");
    ck_assert_int_eq(device_synchronize(dev), STATUS_DEVICE);
    ck_assert_int_eq(device_event_query(dev, NULL, &complete), STATUS_DEVICE);
    ck_assert(!complete);
    ck_assert_int_eq(fake.calls, calls);
    device_stream_destroy(dev, &stream);
    ck_assert_ptr_null(stream);
    device_close(&dev);
    ck_assert_int_eq(fake.destroyed, 2);
}
END_TEST

/* --- Descriptions ------------------------------------------------------------------------------- */

static device_buffer big = {.bytes = 1 << 20};

static struct tensor at(size_t offset, int n, int h, int w, int c)
{
    return (struct tensor){&big, offset, DTYPE_F32, n, h, w, c};
}

static void refused(const struct op_desc *desc, const char *word)
{
    ck_assert_int_eq(device__check_op(desc), STATUS_INTERNAL);
    if (strstr(status_message(), word) == NULL) {
        ck_abort_msg("\"%s\" does not say \"%s\"", status_message(), word);
    }
}

static struct op_desc good_conv(void)
{
    struct op_desc desc = {.kind = OP_CONV, .label = "conv7"};
    desc.u.conv = (struct op_conv){.x = at(0, 2, 8, 9, 3),
                                   .w = at(16384, 5, 3, 3, 3),
                                   .y = at(32768, 2, 4, 5, 5),
                                   .stride = 2,
                                   .pad = 1};
    return desc;
}

START_TEST(check_refuses_wrong_convolutions)
{
    struct op_desc desc = good_conv();
    MUST(device__check_op(&desc));
    desc.u.conv.w.c = 4;
    refused(&desc, "conv7: x 2x8x9x3 f32, w 5x3x3x4 f32, y 2x4x5x5 f32");
    desc = good_conv();
    desc.u.conv.y.h = 5;
    refused(&desc, "2x4x5");
    desc = good_conv();
    desc.u.conv.y.n = 1;
    refused(&desc, "output");
    desc = good_conv();
    desc.u.conv.stride = 0;
    refused(&desc, "stride");
    desc = good_conv();
    desc.u.conv.pad = -1;
    refused(&desc, "padding");
    desc = good_conv();
    desc.u.conv.x.buffer = NULL;
    refused(&desc, "x is missing");
    desc = good_conv();
    desc.u.conv.x.dtype = DTYPE_U8;
    refused(&desc, "cannot be u8");
    desc = good_conv();
    desc.u.conv.x.dtype = DTYPE_BF16;
    refused(&desc, "types differ");
    desc = good_conv();
    desc.u.conv.bias = at(65536, 1, 1, 1, 4);
    refused(&desc, "bias");
    desc = good_conv();
    desc.u.conv.y.offset = 1700;
    refused(&desc, "multiple of 16");
    desc = good_conv();
    desc.u.conv.y.offset = 1024;
    refused(&desc, "y overlaps x");
    desc = good_conv();
    desc.u.conv.y.offset = (1 << 20) - 16;
    refused(&desc, "buffer has 1048576");
    desc = good_conv();
    desc.u.conv.x.n = 0;
    refused(&desc, "below 1");
    desc = good_conv();
    desc.u.conv.x.n = desc.u.conv.x.h = desc.u.conv.x.w = desc.u.conv.x.c = 2147483647;
    refused(&desc, "too many");
    desc = good_conv();
    desc.u.conv.w.h = 11;
    refused(&desc, "window");
    /* Of a filter's gradient float32 may be asked for beside bfloat16 maps. */
    desc.kind = OP_CONV_BACKWARD_FILTER;
    desc.u.conv = (struct op_conv){.x = at(0, 2, 8, 9, 3),
                                   .dw = at(16384, 5, 3, 3, 3),
                                   .dy = at(32768, 2, 4, 5, 5),
                                   .stride = 2,
                                   .pad = 1};
    desc.u.conv.x.dtype = desc.u.conv.dy.dtype = DTYPE_BF16;
    MUST(device__check_op(&desc));
}
END_TEST

START_TEST(check_refuses_other_contradictions)
{
    struct op_desc desc = {.kind = OP_ADD, .label = "sum"};
    desc.u.add = (struct op_add){at(0, 1, 2, 2, 4), at(64, 1, 2, 2, 4), at(0, 1, 2, 2, 4)};
    MUST(device__check_op(&desc));
    desc.u.add.y = at(32, 1, 2, 2, 4);
    refused(&desc, "y overlaps a");
    desc.u.add.y = at(128, 1, 2, 4, 2);
    refused(&desc, "differ");

    desc = (struct op_desc){.kind = OP_RELU_BACKWARD};
    desc.u.relu =
        (struct op_relu_backward){at(0, 1, 1, 1, 4), at(16, 1, 1, 1, 4), at(0, 1, 1, 1, 4)};
    refused(&desc, "dx overlaps y");

    desc = (struct op_desc){.kind = OP_MAX_POOL};
    desc.u.pool = (struct op_max_pool){
        .x = at(0, 1, 4, 4, 2), .y = at(256, 1, 2, 2, 2), .window = 2, .stride = 2};
    MUST(device__check_op(&desc));
    desc.u.pool.pad = 2;
    refused(&desc, "half the window");
    desc.u.pool.pad = 0;
    desc.u.pool.y.c = 3;
    refused(&desc, "channels");

    desc = (struct op_desc){.kind = OP_NORM};
    desc.u.norm = (struct op_norm){.x = at(0, 2, 1, 1, 4),
                                   .y = at(64, 2, 1, 1, 4),
                                   .scale = at(128, 1, 1, 1, 4),
                                   .bias = at(144, 1, 1, 1, 4),
                                   .running_mean = at(160, 1, 1, 1, 4),
                                   .running_var = at(176, 1, 1, 1, 4),
                                   .saved_mean = at(192, 1, 1, 1, 4),
                                   .saved_inv_std = at(208, 1, 1, 1, 4),
                                   .scalars = at(256, 1, 1, 1, 16),
                                   .epsilon = 1e-5F};
    MUST(device__check_op(&desc));
    desc.u.norm.bias.c = 3;
    refused(&desc, "vector");
    desc.u.norm.bias.c = 4;
    desc.u.norm.epsilon = 0.0F;
    refused(&desc, "epsilon");
    desc.u.norm.epsilon = 1e-5F;
    desc.u.norm.scalars.c = 15;
    refused(&desc, "scalars");
    desc.u.norm.scalars.c = 16;
    desc.u.norm.x.n = desc.u.norm.y.n = 1;
    refused(&desc, "no variance");

    desc = (struct op_desc){.kind = OP_NORM_BACKWARD};
    desc.u.norm = (struct op_norm){.x = at(0, 2, 1, 1, 4),
                                   .dy = at(64, 2, 1, 1, 4),
                                   .dx = at(512, 2, 1, 1, 4),
                                   .dresidual = at(64, 2, 1, 1, 4),
                                   .scale = at(128, 1, 1, 1, 4),
                                   .saved_mean = at(192, 1, 1, 1, 4),
                                   .saved_inv_std = at(208, 1, 1, 1, 4),
                                   .dscale = at(224, 1, 1, 1, 4),
                                   .dbias = at(240, 1, 1, 1, 4),
                                   .epsilon = 1e-5F};
    MUST(device__check_op(&desc));
    desc.u.norm.relu = true;
    refused(&desc, "y is missing");
    desc.u.norm.relu = false;
    desc.u.norm.dx = desc.u.norm.dy;
    refused(&desc, "dx overlaps dy");

    desc = (struct op_desc){.kind = OP_LINEAR};
    desc.u.linear = (struct op_linear){
        .x = at(0, 3, 1, 1, 8), .w = at(128, 5, 1, 1, 8), .y = at(512, 3, 1, 1, 5)};
    MUST(device__check_op(&desc));
    desc.u.linear.y.c = 6;
    refused(&desc, "rows and columns");

    desc = (struct op_desc){.kind = OP_SGD};
    desc.u.update = (struct op_update){.parameters = at(0, 1, 1, 1, 8),
                                       .gradient = at(32, 1, 1, 1, 8),
                                       .first = at(64, 1, 1, 1, 8),
                                       .scalars = at(128, 1, 1, 1, 16)};
    MUST(device__check_op(&desc));
    desc.u.update.second = at(96, 1, 1, 1, 8);
    refused(&desc, "second");
    desc.kind = OP_ADAMW;
    MUST(device__check_op(&desc));
    desc.u.update.gradient.c = 7;
    refused(&desc, "length");

    desc = (struct op_desc){.kind = (enum op_kind)99};
    refused(&desc, "99");
    char text[64];
    desc = good_conv();
    ck_assert_str_eq(device__describe_op(&desc, text, sizeof text),
                     "conv7: x 2x8x9x3 f32, w 5x3x3x3 f32, y 2x4x5x5 f32");
    ck_assert_str_eq(device__describe_op(&desc, text, 12), "conv7: x 2x");
}
END_TEST

/* A refused description leaves no operation, and the device goes on. */
START_TEST(refused_operation_leaves_nothing)
{
    device *dev = open_host();
    device_op *op = NULL;
    struct op_desc desc = good_conv();
    desc.u.conv.w.c = 4;
    ck_assert_int_eq(device_op_create(dev, &desc, &op), STATUS_INTERNAL);
    ck_assert_ptr_null(op);
    ck_assert_uint_eq(device_plans_hash(dev), UINT64_C(14695981039346656037));
    MUST(device_synchronize(dev));
    device_close(&dev);
}
END_TEST

/* --- Plans -------------------------------------------------------------------------------------- */

static void create_add(device *dev, device_buffer *buffer, const char *label, enum status want)
{
    struct op_desc desc = {.kind = OP_ADD, .label = label};
    struct tensor t = {buffer, 0, DTYPE_F32, 1, 1, 1, 4};
    desc.u.add = (struct op_add){t, t, t};
    device_op *op = NULL;
    ck_assert_int_eq(device_op_create(dev, &desc, &op), want);
    device_op_destroy(dev, &op);
}

START_TEST(plans_are_written_and_required)
{
    device *dev = open_host(), *again = open_host();
    device_buffer *buffer = NULL, *other = NULL;
    MUST(device_buffer_create(dev, 64, &buffer));
    MUST(device_buffer_create(again, 64, &other));
    create_add(dev, buffer, "one", STATUS_OK);
    create_add(dev, buffer, "two", STATUS_OK);
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(stream);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    device_write_plans(dev, &writer);
    fclose(stream);
    json_document *document = NULL;
    MUST(json_parse(text, bytes, &document));
    const struct json_value *plans = json_root(document);
    ck_assert_int_eq(plans->kind, JSON_ARRAY);
    ck_assert_uint_eq(plans->count, 2);
    ck_assert_str_eq(json_member_string(&plans->items[1], "op", ""), "two");
    ck_assert_ptr_nonnull(strstr(json_member_string(&plans->items[1], "plan", ""), "host/"));

    /* The same operations on another device of the same build: the same hash, and accepted. */
    MUST(device_require_plans(again, plans, false));
    create_add(again, other, "one", STATUS_OK);
    ck_assert_uint_ne(device_plans_hash(again), device_plans_hash(dev));
    create_add(again, other, "two", STATUS_OK);
    ck_assert_uint_eq(device_plans_hash(again), device_plans_hash(dev));
    /* Requiring them again begins the list anew: the same operations, the same hash. */
    MUST(device_require_plans(again, plans, false));
    create_add(again, other, "one", STATUS_OK);
    create_add(again, other, "two", STATUS_OK);
    ck_assert_uint_eq(device_plans_hash(again), device_plans_hash(dev));
    /* One that was not there is free. */
    create_add(again, other, "three", STATUS_OK);
    json_document_destroy(&document);

    /* Plans of another device. */
    static const char foreign[] = "[{\"op\": \"one\", \"plan\": \"cuda/7\", \"ms\": 0.5}]";
    MUST(json_parse(foreign, strlen(foreign), &document));
    MUST(device_require_plans(again, json_root(document), false));
    create_add(again, other, "one", STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(status_message(), "one"));
    ck_assert_ptr_nonnull(strstr(status_message(), "--replan"));
    MUST(device_require_plans(again, json_root(document), true));
    create_add(again, other, "one", STATUS_OK);
    json_document_destroy(&document);
    static const char object[] = "{}";
    MUST(json_parse(object, strlen(object), &document));
    ck_assert_int_eq(device_require_plans(again, json_root(document), false), STATUS_INVALID);
    json_document_destroy(&document);
    free(text);
    device_close(&dev);
    device_close(&again);
}
END_TEST

static void add_tests(Suite *suite)
{
    TCase *opening = tcase_create("opening");
    TCase *state = tcase_create("state");
    TCase *descriptions = tcase_create("descriptions");
    tcase_add_test(opening, defaults_are_as_documented);
    tcase_add_test(opening, wrong_settings_are_refused);
    tcase_add_test(opening, facts_of_the_host);
    tcase_add_test(opening, too_much_memory_is_refused);
    tcase_add_test(opening, missing_plugin_is_one_clear_line);
    tcase_add_test(opening, doctor_of_an_open_host);
    tcase_add_test(state, a_device_failure_poisons);
    tcase_add_test(state, plans_are_written_and_required);
    tcase_add_test(descriptions, check_refuses_wrong_convolutions);
    tcase_add_test(descriptions, check_refuses_other_contradictions);
    tcase_add_test(descriptions, refused_operation_leaves_nothing);
    suite_add_tcase(suite, opening);
    suite_add_tcase(suite, state);
    suite_add_tcase(suite, descriptions);
}

static void add_test_of_the_copy(Suite *suite)
{
    TCase *alone = tcase_create("without a plugin");
    tcase_add_test(alone, without_a_plugin);
    suite_add_tcase(suite, alone);
}

int main(int count, char **arguments)
{
    Suite *suite = suite_create("device");
    if (count == 2 && strcmp(arguments[1], "missing") == 0) {
        add_test_of_the_copy(suite);
    } else {
        add_tests(suite);
    }
    return check_run_suite(suite);
}
