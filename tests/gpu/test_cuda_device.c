/* The CUDA device apart from its operations: memory, streams, events, programs, plans, failures. */
#include <check.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "device/device.h"
#include "tests/support/skip.h"

static const char *missing;
static char missing_text[STATUS_MESSAGE_BYTES];

static void must(enum status status)
{
    if (status != STATUS_OK) {
        ck_abort_msg("%s\n%s", status_message(), status_trace_text());
    }
}

static struct device_settings defaults(void)
{
    struct device_settings settings;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_CUDA;
    settings.plan_candidates = 2;
    return settings;
}

static device *open_with(const struct device_settings *settings)
{
    device *dev = NULL;
    if (missing != NULL) {
        return NULL;
    }
    enum status status = device_open(settings, &dev);
    if (status == STATUS_NOT_FOUND) {
        snprintf(missing_text, sizeof missing_text, "%s", status_message());
        missing = missing_text;
        return NULL;
    }
    must(status);
    return dev;
}

#define OPEN(settings)                                                                             \
    device *dev = open_with((settings));                                                           \
    if (dev == NULL) {                                                                             \
        SKIP_TEST(missing);                                                                        \
    }

/* --- Opening -------------------------------------------------------------------------------- */

START_TEST(facts_and_wrong_index)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    struct device_facts facts;
    struct device_sample sample;
    must(device_read_facts(dev, &facts));
    ck_assert_int_eq(facts.kind, DEVICE_CUDA);
    ck_assert(facts.copies_are_real);
    ck_assert_int_gt((int)strlen(facts.name), 0);
    ck_assert_int_gt((int)strlen(facts.cudnn), 0);
    ck_assert_int_ge(facts.compute_major, 5);
    ck_assert(facts.memory_free > 0 && facts.memory_free <= facts.memory_total);
    device_read_sample(dev, &sample);
    if (sample.valid) {
        ck_assert_int_gt(sample.sm_clock_mhz, 0);
        ck_assert_int_le(sample.sm_clock_mhz, sample.sm_clock_max_mhz);
        ck_assert(sample.memory_used > 0 && sample.memory_used <= facts.memory_total * 2);
    }
    device_close(&dev);
    ck_assert_ptr_null(dev);

    settings.index = 1000;
    ck_assert_int_eq(device_open(&settings, &dev), STATUS_USAGE);
    ck_assert_ptr_null(dev);
    ck_assert_ptr_nonnull(strstr(status_message(), "1000"));
}
END_TEST

/* --- Memory --------------------------------------------------------------------------------- */

START_TEST(staging_memory)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    static const enum host_memory kinds[] = {HOST_MEMORY_PAGEABLE, HOST_MEMORY_REGISTERED,
                                             HOST_MEMORY_ALLOCATED};
    device_stream *stream = NULL;
    must(device_stream_create(dev, "test", &stream));
    const size_t bytes = ((size_t)3 << 20) + 5;
    device_buffer *buffer = NULL;
    must(device_buffer_create(dev, bytes, &buffer));
    ck_assert_uint_eq(device_buffer_bytes(buffer), bytes);
    unsigned char *back = malloc(bytes);
    ck_assert_ptr_nonnull(back);
    for (int i = 0; i < 3; i++) {
        struct host_buffer host = {0};
        must(device_host_buffer_create(dev, bytes, kinds[i], &host));
        ck_assert_uint_eq(host.bytes, bytes);
        ck_assert_uint_eq((uintptr_t)host.data % 4096, 0);
        ck_assert_int_eq(host.page_locked, kinds[i] != HOST_MEMORY_PAGEABLE);
        unsigned char *data = host.data;
        for (size_t j = 0; j < bytes; j++) {
            data[j] = (unsigned char)(j * 7 + (size_t)i);
        }
        memset(back, 0, bytes);
        must(device_copy_to_device(dev, stream, buffer, 0, data, bytes));
        must(device_copy_to_host(dev, stream, back, buffer, 0, bytes));
        must(device_stream_wait(dev, stream));
        ck_assert(memcmp(back, data, bytes) == 0);
        device_host_buffer_destroy(dev, &host);
        ck_assert_ptr_null(host.data);
        device_host_buffer_destroy(dev, &host);
    }
    free(back);
    device_buffer_destroy(dev, &buffer);
    device_stream_destroy(dev, &stream);
    device_close(&dev);
}
END_TEST

/* Too much of either memory is refused with both numbers, and the device goes on. */
START_TEST(too_much_memory)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    device_buffer *buffer = NULL;
    struct host_buffer host = {0};
    enum status status = device_buffer_create(dev, (size_t)1 << 50, &buffer);
    ck_assert_int_eq(status, STATUS_NO_MEMORY);
    ck_assert_ptr_null(buffer);
    ck_assert_ptr_nonnull(strstr(status_message(), "asked"));
    ck_assert_ptr_nonnull(strstr(status_message(), "free"));
    for (int kind = HOST_MEMORY_PAGEABLE; kind <= HOST_MEMORY_ALLOCATED; kind++) {
        status = device_host_buffer_create(dev, (size_t)1 << 46, (enum host_memory)kind, &host);
        ck_assert_msg(status == STATUS_NO_MEMORY || status == STATUS_LIMIT, "status %d",
                      (int)status);
        ck_assert_ptr_null(host.data);
        ck_assert_ptr_nonnull(strstr(status_message(), "GiB"));
    }
    must(device_buffer_create(dev, 1024, &buffer));
    device_buffer_destroy(dev, &buffer);
    must(device_synchronize(dev));
    device_close(&dev);
}
END_TEST

/* --- Streams -------------------------------------------------------------------------------- */

/* Work of one stream waits for an event of another: without the wait the second copy would overtake
 * the first, which follows 20 ms of delay. */
START_TEST(events_order_streams)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    device_stream *first = NULL;
    device_stream *second = NULL;
    device_event *done = NULL;
    device_event *from = NULL;
    device_event *to = NULL;
    device_program *delay = NULL;
    device_buffer *a = NULL;
    device_buffer *b = NULL;
    struct host_buffer host = {0};
    double seconds = 0;
    double ms = 0;
    bool complete = true;
    const size_t bytes = 1 << 16;
    must(device_stream_create(dev, "first", &first));
    must(device_stream_create(dev, "second", &second));
    must(device_event_create(dev, false, &done));
    must(device_event_create(dev, true, &from));
    must(device_event_create(dev, true, &to));
    must(device_delay_program_create(dev, 0.02, first, &delay, &seconds));
    ck_assert(seconds > 0.01 && seconds < 0.04);
    must(device_buffer_create(dev, bytes, &a));
    must(device_buffer_create(dev, bytes, &b));
    must(device_host_buffer_create(dev, 2 * bytes, HOST_MEMORY_REGISTERED, &host));
    unsigned char *data = host.data;
    memset(data, 1, bytes);
    must(device_copy_to_device(dev, first, a, 0, data, bytes));
    must(device_stream_wait(dev, first));
    memset(data, 2, bytes);
    memset(data + bytes, 9, bytes);

    must(device_event_record(dev, from, first));
    must(device_program_submit(dev, delay, first));
    must(device_copy_to_device(dev, first, a, 0, data, bytes));
    must(device_event_record(dev, done, first));
    must(device_event_record(dev, to, first));
    must(device_event_query(dev, done, &complete));
    ck_assert(!complete);
    must(device_event_await(dev, done, second));
    must(device_copy_on_device(dev, second, b, 0, a, 0, bytes));
    must(device_copy_to_host(dev, second, data + bytes, b, 0, bytes));
    must(device_stream_wait(dev, second));
    ck_assert_int_eq(data[bytes], 2);
    ck_assert_int_eq(data[2 * bytes - 1], 2);
    must(device_event_wait(dev, to));
    must(device_event_query(dev, done, &complete));
    ck_assert(complete);
    must(device_event_elapsed(dev, from, to, &ms));
    ck_assert_msg(ms > 10 && ms < 60, "a delay of 20 ms took %g ms", ms);

    must(device_zero(dev, second, b, 16, bytes - 32));
    must(device_copy_to_host(dev, second, data + bytes, b, 0, bytes));
    must(device_stream_wait(dev, second));
    ck_assert_int_eq(data[bytes + 15], 2);
    ck_assert_int_eq(data[bytes + 16], 0);
    ck_assert_int_eq(data[2 * bytes - 17], 0);
    ck_assert_int_eq(data[2 * bytes - 16], 2);

    device_program_destroy(dev, &delay);
    device_host_buffer_destroy(dev, &host);
    device_buffer_destroy(dev, &a);
    device_buffer_destroy(dev, &b);
    device_event_destroy(dev, &done);
    device_event_destroy(dev, &from);
    device_event_destroy(dev, &to);
    device_stream_destroy(dev, &first);
    device_stream_destroy(dev, &second);
    device_close(&dev);
}
END_TEST

/* Everything is taken down while the device works: closing waits, and nothing is left behind. */
START_TEST(early_close)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    device *keeper = dev;
    struct host_buffer host = {0};
    must(device_host_buffer_create(keeper, 1 << 20, HOST_MEMORY_REGISTERED, &host));
    for (int round = 0; round < 2; round++) {
        dev = open_with(&settings);
        device_stream *stream = NULL;
        device_event *event = NULL;
        device_program *delay = NULL;
        device_buffer *buffer = NULL;
        double seconds = 0;
        ck_assert_ptr_nonnull(dev);
        must(device_stream_create(dev, "test", &stream));
        must(device_event_create(dev, false, &event));
        must(device_delay_program_create(dev, 0.03, stream, &delay, &seconds));
        must(device_buffer_create(dev, 1 << 20, &buffer));
        must(device_program_submit(dev, delay, stream));
        must(device_copy_to_device(dev, stream, buffer, 0, host.data, 1 << 20));
        must(device_event_record(dev, event, stream));
        if (round == 0) {
            device_program_destroy(dev, &delay);
            device_buffer_destroy(dev, &buffer);
            device_event_destroy(dev, &event);
            device_stream_destroy(dev, &stream);
        }
        /* In the second round closing finds everything still there. */
        device_close(&dev);
        ck_assert_ptr_null(dev);
    }
    device_host_buffer_destroy(keeper, &host);
    must(device_synchronize(keeper));
    device_close(&keeper);
}
END_TEST

/* A call that fails poisons the device: the same message from then on, and closing still works. */
START_TEST(poison)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    device_event *from = NULL;
    device_event *to = NULL;
    device_stream *stream = NULL;
    double ms = 0;
    must(device_stream_create(dev, "test", &stream));
    must(device_event_create(dev, true, &from));
    must(device_event_create(dev, true, &to));
    /* Neither was recorded: the runtime refuses to compare them. */
    ck_assert_int_eq(device_event_elapsed(dev, from, to, &ms), STATUS_DEVICE);
    char message[STATUS_MESSAGE_BYTES];
    snprintf(message, sizeof message, "%s", status_message());
    ck_assert_ptr_nonnull(strstr(message, "cudaEventElapsedTime"));
    ck_assert_int_eq(device_synchronize(dev), STATUS_DEVICE);
    ck_assert_str_eq(status_message(), message);
    ck_assert_int_eq(device_event_record(dev, from, stream), STATUS_DEVICE);
    device_event_destroy(dev, &from);
    device_event_destroy(dev, &to);
    device_stream_destroy(dev, &stream);
    device_close(&dev);
    /* Another device in the same process is not concerned. */
    dev = open_with(&settings);
    ck_assert_ptr_nonnull(dev);
    must(device_synchronize(dev));
    device_close(&dev);
}
END_TEST

/* --- Programs and plans --------------------------------------------------------------------- */

/* A convolution with its buffers. */
struct layer {
    struct op_desc desc;
    device_buffer *x, *w, *y;
    size_t y_bytes;
};

static void layer_init(device *dev, device_stream *stream, struct layer *layer, int n, int size,
                       int channels, int window)
{
    *layer = (struct layer){.desc = {.kind = OP_CONV, .label = "layer"}};
    struct op_conv *conv = &layer->desc.u.conv;
    conv->x = (struct tensor){.dtype = DTYPE_F32, .n = n, .h = size, .w = size, .c = channels};
    conv->y = conv->x;
    conv->w =
        (struct tensor){.dtype = DTYPE_F32, .n = channels, .h = window, .w = window, .c = channels};
    conv->stride = 1;
    conv->pad = window / 2;
    struct tensor *tensors[] = {&conv->x, &conv->w, &conv->y};
    device_buffer **buffers[] = {&layer->x, &layer->w, &layer->y};
    for (int i = 0; i < 3; i++) {
        size_t bytes = tensor_bytes(tensors[i]);
        must(device_buffer_create(dev, bytes, buffers[i]));
        tensors[i]->buffer = *buffers[i];
        float *values = malloc(bytes);
        ck_assert_ptr_nonnull(values);
        for (size_t j = 0; j < bytes / sizeof(float); j++) {
            values[j] = i == 2 ? -1.0F : (float)((j * 37 + (size_t)i) % 101) / 101.0F - 0.5F;
        }
        must(device_copy_to_device(dev, stream, *buffers[i], 0, values, bytes));
        must(device_stream_wait(dev, stream));
        free(values);
    }
    layer->y_bytes = tensor_bytes(&conv->y);
}

static void layer_fini(device *dev, struct layer *layer)
{
    device_buffer_destroy(dev, &layer->x);
    device_buffer_destroy(dev, &layer->w);
    device_buffer_destroy(dev, &layer->y);
}

static float *fetch(device *dev, device_stream *stream, const struct layer *layer)
{
    float *values = malloc(layer->y_bytes);
    ck_assert_ptr_nonnull(values);
    must(device_copy_to_host(dev, stream, values, layer->y, 0, layer->y_bytes));
    must(device_stream_wait(dev, stream));
    return values;
}

/* An operation created after a program was captured may move the workspace: the program must not go
 * on with the old one. Captured or not, the results are the same bits. */
START_TEST(programs)
{
    float *results[3] = {NULL};
    size_t bytes = 0;
    /* The same plan in each round: another one may sum in another order. */
    char plans[] = "/tmp/pinline_programs_XXXXXX";
    int file = mkstemp(plans);
    ck_assert_int_ge(file, 0);
    close(file);
    unlink(plans);
    for (int round = 0; round < 3; round++) {
        struct device_settings settings = defaults();
        settings.capture = round != 0;
        settings.plan_cache = plans;
        OPEN(&settings);
        device_stream *stream = NULL;
        struct layer small;
        struct layer large;
        device_op *op = NULL;
        device_op *other = NULL;
        device_program *program = NULL;
        must(device_stream_create(dev, "test", &stream));
        layer_init(dev, stream, &small, 4, 16, 32, 3);
        must(device_op_create(dev, &small.desc, &op));
        must(device_program_create(dev, &op, 1, stream, &program));
        ck_assert_int_eq(device_program_is_captured(program), round != 0);
        if (round == 2) {
            layer_init(dev, stream, &large, 32, 64, 64, 7);
            must(device_op_create(dev, &large.desc, &other));
            must(device_op_submit(dev, other, stream));
        }
        must(device_program_submit(dev, program, stream));
        must(device_program_submit(dev, program, stream));
        results[round] = fetch(dev, stream, &small);
        bytes = small.y_bytes;
        device_program_destroy(dev, &program);
        device_op_destroy(dev, &op);
        if (round == 2) {
            device_op_destroy(dev, &other);
            layer_fini(dev, &large);
        }
        layer_fini(dev, &small);
        device_stream_destroy(dev, &stream);
        device_close(&dev);
    }
    unlink(plans);
    ck_assert(memcmp(results[0], results[1], bytes) == 0);
    ck_assert(memcmp(results[0], results[2], bytes) == 0);
    for (int i = 0; i < 3; i++) {
        free(results[i]);
    }
}
END_TEST

/* The list of plans as text; the caller frees. */
static char *plans_text(device *dev, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    ck_assert_ptr_nonnull(stream);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    device_write_plans(dev, &writer);
    fclose(stream);
    return text;
}

START_TEST(plans_are_remembered)
{
    char path[] = "/tmp/pinline_plans_XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    /* A file that is no list of plans is reported and replaced. */
    ck_assert_int_eq((int)write(file, "{nonsense", 9), 9);
    close(file);
    struct device_settings settings = defaults();
    settings.plan_cache = path;
    json_document *document = NULL;
    uint64_t hash = 0;
    size_t bytes = 0;
    char *text = NULL;
    for (int round = 0; round < 4; round++) {
        if (round == 2) {
            settings.plan_cache = NULL;
        }
        OPEN(&settings);
        device_stream *stream = NULL;
        struct layer layer;
        device_op *op = NULL;
        must(device_stream_create(dev, "test", &stream));
        layer_init(dev, stream, &layer, 4, 16, 32, 3);
        if (round == 2) {
            must(device_require_plans(dev, json_root(document), false));
        }
        if (round == 3) {
            /* None of these plans is for this operation. */
            struct layer stranger;
            layer_init(dev, stream, &stranger, 4, 16, 64, 3);
            must(device_require_plans(dev, json_root(document), false));
            ck_assert_int_eq(device_op_create(dev, &stranger.desc, &op), STATUS_MISMATCH);
            ck_assert_ptr_nonnull(strstr(status_message(), "--replan"));
            must(device_require_plans(dev, json_root(document), true));
            must(device_op_create(dev, &stranger.desc, &op));
            layer_fini(dev, &stranger);
        } else {
            must(device_op_create(dev, &layer.desc, &op));
            if (round == 0) {
                hash = device_plans_hash(dev);
                text = plans_text(dev, &bytes);
                must(json_parse(text, bytes, &document));
                ck_assert_int_eq(json_root(document)->kind, JSON_ARRAY);
                ck_assert_uint_ge(json_root(document)->count, 1);
            }
            ck_assert(device_plans_hash(dev) == hash);
        }
        device_op_destroy(dev, &op);
        layer_fini(dev, &layer);
        device_stream_destroy(dev, &stream);
        device_close(&dev);
    }
    void *cached = NULL;
    must(file_read(path, 1 << 20, &cached, &bytes));
    ck_assert_ptr_nonnull(strstr(cached, "\"machines\""));
    free(cached);
    free(text);
    json_document_destroy(&document);
    unlink(path);
}
END_TEST

/* Puts what is no engine's number in place of that of each of a text's plans. */
static void spoil_plans(char *text)
{
    int spoilt = 0;
    for (char *id = strstr(text, "\"plan\""); id != NULL; id = strstr(id, "\"plan\"")) {
        id = strchr(strchr(id, ':'), 'e') + 1;
        ck_assert(*id >= '0' && *id <= '9');
        *id = 'x';
        spoilt++;
    }
    ck_assert_int_ge(spoilt, 3);
}

enum { LAYERS = 3 };

/* Three layers of different sizes, run as a program; or the first that cannot be created. */
static void run_layers(device *dev, enum status expected, uint64_t *hash, float *results[LAYERS],
                       size_t bytes[LAYERS])
{
    device_stream *stream = NULL;
    struct layer layers[LAYERS];
    device_op *ops[LAYERS] = {NULL};
    device_program *program = NULL;
    must(device_stream_create(dev, "test", &stream));
    for (int i = 0; i < LAYERS; i++) {
        layer_init(dev, stream, &layers[i], 4, 16 << i, 32, 3);
        ck_assert_int_eq(device_op_create(dev, &layers[i].desc, &ops[i]), expected);
        if (expected != STATUS_OK) {
            ck_assert_ptr_nonnull(strstr(status_message(), "--replan"));
        }
    }
    if (expected == STATUS_OK) {
        must(device_program_create(dev, ops, LAYERS, stream, &program));
        must(device_program_submit(dev, program, stream));
    }
    *hash = device_plans_hash(dev);
    for (int i = 0; i < LAYERS; i++) {
        if (expected == STATUS_OK) {
            results[i] = fetch(dev, stream, &layers[i]);
            bytes[i] = layers[i].y_bytes;
        }
    }
    device_program_destroy(dev, &program);
    for (int i = 0; i < LAYERS; i++) {
        device_op_destroy(dev, &ops[i]);
        layer_fini(dev, &layers[i]);
    }
    device_stream_destroy(dev, &stream);
}

/* A remembered plan gives the same bits; one that cannot be built is replaced, and the list and the
 * file tell the new one, unless it was required. */
START_TEST(plans_that_fail_are_replaced)
{
    char path[] = "/tmp/pinline_plans_XXXXXX";
    int file = mkstemp(path);
    ck_assert_int_ge(file, 0);
    close(file);
    unlink(path);
    struct device_settings settings = defaults();
    settings.plan_cache = path;
    float *results[4][LAYERS] = {{NULL}};
    size_t bytes[LAYERS] = {0};
    uint64_t hashes[4] = {0};
    for (int round = 0; round < 4; round++) {
        OPEN(&settings);
        run_layers(dev, STATUS_OK, &hashes[round], results[round], bytes);
        size_t length = 0;
        char *list = plans_text(dev, &length);
        device_close(&dev);
        if (round == 1) {
            void *text = NULL;
            must(file_read(path, 1 << 20, &text, &length));
            spoil_plans(text);
            FILE *stream = fopen(path, "w");
            ck_assert_ptr_nonnull(stream);
            ck_assert_uint_eq(fwrite(text, 1, length, stream), length);
            fclose(stream);
            free(text);
        }
        ck_assert_msg(strstr(list, "\"ex") == NULL, "%s", list);
        free(list);
    }
    ck_assert(hashes[1] == hashes[0]);
    ck_assert(hashes[3] == hashes[2]);
    for (int i = 0; i < LAYERS; i++) {
        ck_assert(memcmp(results[0][i], results[1][i], bytes[i]) == 0);
        ck_assert(memcmp(results[2][i], results[3][i], bytes[i]) == 0);
        for (size_t j = 0; j < bytes[i] / sizeof(float); j++) {
            /* Sums of 288 products of at most a quarter, in another order at worst, in TF32 at worst. */
            ck_assert_float_eq_tol(results[0][i][j], results[2][i][j], 0.05F);
        }
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < LAYERS; i++) {
            free(results[round][i]);
        }
    }

    device *dev = open_with(&settings);
    ck_assert_ptr_nonnull(dev);
    run_layers(dev, STATUS_OK, &hashes[0], results[0], bytes);
    size_t length = 0;
    char *list = plans_text(dev, &length);
    device_close(&dev);
    spoil_plans(list);
    json_document *document = NULL;
    must(json_parse(list, length, &document));
    settings.plan_cache = NULL;
    dev = open_with(&settings);
    ck_assert_ptr_nonnull(dev);
    must(device_require_plans(dev, json_root(document), false));
    run_layers(dev, STATUS_MISMATCH, &hashes[0], NULL, NULL);
    device_close(&dev);
    for (int i = 0; i < LAYERS; i++) {
        free(results[0][i]);
    }
    json_document_destroy(&document);
    free(list);
    unlink(path);
}
END_TEST

static void count_line(void *context, bool problem, const char *text)
{
    int *lines = context;
    printf("    %s %s\n", problem ? "!" : " ", text);
    ++*lines;
}

START_TEST(doctor)
{
    struct device_settings settings = defaults();
    OPEN(&settings);
    device_close(&dev);
    int lines = 0;
    device_doctor(NULL, &settings, count_line, &lines);
    ck_assert_int_ge(lines, 6);
}
END_TEST

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "-v") == 0) {
        log_set_level(LOG_VERBOSE);
    }
    const TTest *const tests[] = {facts_and_wrong_index,
                                  staging_memory,
                                  too_much_memory,
                                  events_order_streams,
                                  early_close,
                                  poison,
                                  programs,
                                  plans_are_remembered,
                                  plans_that_fail_are_replaced,
                                  doctor};
    Suite *suite = suite_create("cuda device");
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        TCase *one = tcase_create(tests[i]->name);
        tcase_add_test(one, tests[i]);
        suite_add_tcase(suite, one);
    }
    SRunner *runner = srunner_create(suite);
    /* A CUDA context does not survive fork. */
    srunner_set_fork_status(runner, CK_NOFORK);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
