/* Parsing, ranges, messages, and the round trip through JSON, on a table of the test's own and on
 * every option of a training job. */
#include "trainer/options.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "trainer/job_options.h"
#include "trainer/settings.h"

struct values {
    bool on;
    int whole;
    int64_t large;
    uint64_t seed;
    size_t count, bytes;
    double real;
    const char *text;
    int mode;
    float three[3];
};

static const char *const mode_names[] = {"off", "on", "auto", NULL};
#define AT(member) offsetof(struct values, member)
static const struct option test_options[] = {
    {.name = "on", .kind = OPTION_SWITCH, .offset = AT(on), .help = "a switch"},
    {.name = "whole",
     .short_name = "w",
     .kind = OPTION_INT,
     .offset = AT(whole),
     .low = 1,
     .high = 9,
     .metavar = "N",
     .help = "a number"},
    {.name = "large", .kind = OPTION_LONG, .offset = AT(large), .metavar = "N", .help = "a number"},
    {.name = "seed", .kind = OPTION_SEED, .offset = AT(seed), .metavar = "N", .help = "bits"},
    {.name = "count", .kind = OPTION_COUNT, .offset = AT(count), .metavar = "N", .help = "a count"},
    {.name = "bytes", .kind = OPTION_BYTES, .offset = AT(bytes), .metavar = "N", .help = "bytes"},
    {.name = "real",
     .kind = OPTION_DOUBLE,
     .offset = AT(real),
     .low = 0,
     .high = 0.5,
     .metavar = "X",
     .help = "a real number"},
    {.name = "text",
     .kind = OPTION_TEXT,
     .offset = AT(text),
     .metavar = "DIR",
     .help = "a folder",
     .not_compared = true},
    {.name = "mode",
     .kind = OPTION_CHOICE,
     .offset = AT(mode),
     .choices = mode_names,
     .bare = 1,
     .help = "a choice"},
    {.name = "three",
     .kind = OPTION_FLOAT3,
     .offset = AT(three),
     .low = -1,
     .high = 2,
     .metavar = "R,G,B",
     .help = "three numbers"},
};
static const struct option_table table = {"Test", test_options,
                                          sizeof test_options / sizeof test_options[0]};
static struct values values;

static size_t bind_test(struct option_binding *bindings)
{
    memset(&values, 0, sizeof values);
    bindings[0] = (struct option_binding){&table, &values};
    return 1;
}

static const struct command command = {.name = "test",
                                       .summary = "A command",
                                       .operands = "FILE...",
                                       .operands_min = 0,
                                       .operands_max = 2,
                                       .bind = bind_test};

/* Parses words separated by '|'. The operands stay in `operands`. */
static char line_copy[512];
static char *operands[32];
static size_t operand_count;
static enum status parse(const char *line)
{
    struct option_binding bindings[1];
    bind_test(bindings);
    snprintf(line_copy, sizeof line_copy, "%s", line);
    int argc = 0;
    for (char *word = strtok(line_copy, "|"); word; word = strtok(NULL, "|")) {
        operands[argc++] = word;
    }
    return options_parse(&command, bindings, 1, operands, argc, &operand_count);
}

START_TEST(test_every_form)
{
    ck_assert_int_eq(parse("--on|-w|7|--large=-9000000000|--seed|18446744073709551615|--bytes|"
                           "64KiB|--real|0.25|--text|a b|--mode|auto|--three|0.1,0.2,-0.5|x|--|-y"),
                     STATUS_OK);
    ck_assert(values.on);
    ck_assert_int_eq(values.whole, 7);
    ck_assert_int_eq(values.large, -9000000000);
    ck_assert_uint_eq(values.seed, UINT64_MAX);
    ck_assert_uint_eq(values.bytes, 65536);
    ck_assert(values.real == 0.25);
    ck_assert_str_eq(values.text, "a b");
    ck_assert_int_eq(values.mode, 2);
    ck_assert(values.three[0] == 0.1f && values.three[1] == 0.2f && values.three[2] == -0.5f);
    ck_assert_uint_eq(operand_count, 2);
    ck_assert_str_eq(operands[0], "x");
    ck_assert_str_eq(operands[1], "-y");
    ck_assert(options_was_given("whole"));
    ck_assert(!options_was_given("count"));
}
END_TEST

START_TEST(test_bare_and_negated)
{
    ck_assert_int_eq(parse("--mode|file"), STATUS_OK);
    ck_assert_int_eq(values.mode, 1);
    ck_assert_uint_eq(operand_count, 1);
    ck_assert_int_eq(parse("--no-mode|--no-on"), STATUS_OK);
    ck_assert_int_eq(values.mode, 0);
    ck_assert_int_eq(parse("--three|0.5"), STATUS_OK);
    ck_assert(values.three[0] == 0.5f && values.three[1] == 0.5f && values.three[2] == 0.5f);
    ck_assert_int_eq(parse("--on=false"), STATUS_OK);
    ck_assert(!values.on);
}
END_TEST

/* Each wrong line, and what its message must contain. */
static const char *const wrong[][2] = {
    {"--whole|0", "1 to 9"},
    {"--whole|10", "1 to 9"},
    {"--whole|3x", "\"3x\""},
    {"--whole| 3", "\" 3\""},
    {"--whole|", "needs a value"},
    {"--whole|99999999999999999999", "99999999999999999999"},
    {"--large|1e3", "1e3"},
    {"--seed|-1", "-1"},
    {"--seed|18446744073709551616", "18446744073709551616"},
    {"--count|1.5", "1.5"},
    {"--bytes|5X", "64KiB"},
    {"--bytes|99999999999G", "99999999999G"},
    {"--real|0.6", "0 to 0.5"},
    {"--real|nan", "nan"},
    {"--real|inf", "inf"},
    {"--real|0x1p-2", "0x1p-2"},
    {"--real|abc", "abc"},
    {"--mode=maybe", "off, on or auto"},
    {"--three|1,2", "1,2"},
    {"--three|1,2,9", "1,2,9"},
    {"--three|1,,2", "1,,2"},
    {"--on=perhaps", "perhaps"},
    {"--whol|3", "--whole"},
    {"--mod", "--mode"},
    {"--no-ono", "--no-on"},
    {"--no-whole", "--no-whole"},
    {"-x", "-x"},
    {"--zzzzzzzz", "pinline help test"},
    {"--whole|3|--whole|4", "twice"},
    {"--on|--no-on", "twice"},
    {"a|b|c", "\"c\""},
};

START_TEST(test_wrong)
{
    ck_assert_msg(parse(wrong[_i][0]) == STATUS_USAGE, "\"%s\" was accepted", wrong[_i][0]);
    ck_assert_msg(strstr(status_message(), wrong[_i][1]), "\"%s\" says: %s", wrong[_i][0],
                  status_message());
}
END_TEST

START_TEST(test_operands_missing)
{
    struct command needs = command;
    struct option_binding bindings[1];
    bind_test(bindings);
    needs.operands_min = 1;
    ck_assert_int_eq(options_parse(&needs, bindings, 1, operands, 0, &operand_count), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "FILE..."));
}
END_TEST

static char *write_settings(const struct option_binding *bindings, size_t count, bool compared)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(stream);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    options_write(bindings, count, compared, &writer);
    fclose(stream);
    return text;
}

static void read_settings(const struct option_binding *bindings, size_t count, const char *text)
{
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(text, strlen(text), &document), STATUS_OK);
    enum status status = options_read(bindings, count, json_root(document));
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
    json_document_destroy(&document);
}

START_TEST(test_round_trip)
{
    ck_assert_int_eq(parse("--on|--whole|7|--large=-9000000000|--seed|18446744073709551615|--bytes|"
                           "5|--real|0.1|--text|a\"b\\|--mode|auto|--three|0.1,0.2,-0.5"),
                     STATUS_OK);
    struct option_binding binding = {&table, &values};
    struct values before = values;
    char *text = write_settings(&binding, 1, false);
    memset(&values, 0, sizeof values);
    read_settings(&binding, 1, text);
    ck_assert_str_eq(values.text, before.text);
    values.text = before.text;
    ck_assert_mem_eq(&values, &before, sizeof values);
    char *compared = write_settings(&binding, 1, true);
    ck_assert_ptr_null(strstr(compared, "\"text\""));
    ck_assert_ptr_nonnull(strstr(compared, "\"whole\""));
    free(text);
    free(compared);
}
END_TEST

START_TEST(test_read_refuses)
{
    static const char *const documents[] = {"{\"unknown\": 1}", "{\"whole\": 0}",
                                            "{\"whole\": true}", "[1]", "{\"three\": [1, 2]}"};
    json_document *document = NULL;
    struct option_binding binding = {&table, &values};
    ck_assert_int_eq(json_parse(documents[_i], strlen(documents[_i]), &document), STATUS_OK);
    ck_assert_int_eq(options_read(&binding, 1, json_root(document)), STATUS_INVALID);
    json_document_destroy(&document);
}
END_TEST

static const struct option_table *const job_tables[] = {
    &options_data,     &options_loading,      &options_order,  &options_staging, &options_images,
    &options_decoding, &options_augmentation, &options_device, &options_model,   &options_optimiser,
    &options_run,      &options_predict,      &options_output};
enum { JOB_TABLES = sizeof job_tables / sizeof job_tables[0] };

START_TEST(test_job_settings_round_trip)
{
    struct settings a, b;
    struct option_binding of_a[JOB_TABLES], of_b[JOB_TABLES];
    settings_defaults(&a);
    memset(&b, 0, sizeof b);
    for (size_t i = 0; i < JOB_TABLES; i++) {
        of_a[i] = (struct option_binding){job_tables[i], &a};
        of_b[i] = (struct option_binding){job_tables[i], &b};
    }
    ck_assert_int_eq(options_set(of_a, JOB_TABLES, "device", "cuda:3"), STATUS_OK);
    ck_assert_int_eq(options_set(of_a, JOB_TABLES, "model", "resnet18"), STATUS_OK);
    ck_assert_int_eq(options_set(of_a, JOB_TABLES, "mean", "0.485,0.456,0.406"), STATUS_OK);
    ck_assert_int_eq(options_set(of_a, JOB_TABLES, "decoders", "libpng,stb"), STATUS_OK);
    char *written = write_settings(of_a, JOB_TABLES, false);
    read_settings(of_b, JOB_TABLES, written);
    char *again = write_settings(of_b, JOB_TABLES, false);
    ck_assert_str_eq(written, again);
    ck_assert_int_eq(b.device.index, 3);
    ck_assert(b.loader.mean[1] == 0.456f);
    free(written);
    free(again);
}
END_TEST

START_TEST(test_job_tables_are_sound)
{
    for (size_t t = 0; t < JOB_TABLES; t++) {
        for (size_t i = 0; i < job_tables[t]->count; i++) {
            const struct option *option = &job_tables[t]->options[i];
            size_t length = strlen(option->help);
            ck_assert_msg(length > 8 && option->help[length - 1] != '.', "help of --%s",
                          option->name);
            ck_assert_msg((option->kind == OPTION_SWITCH || option->kind == OPTION_CHOICE) ==
                              (option->metavar == NULL),
                          "metavar of --%s", option->name);
            ck_assert_msg(strncmp(option->name, "no-", 3) != 0, "--%s reads as a negation",
                          option->name);
            for (size_t u = 0; u < JOB_TABLES; u++) {
                for (size_t j = 0; j < job_tables[u]->count; j++) {
                    ck_assert_msg((u == t && j == i) ||
                                      strcmp(job_tables[u]->options[j].name, option->name) != 0,
                                  "--%s stands twice", option->name);
                }
            }
        }
    }
}
END_TEST

START_TEST(test_settings_complete)
{
    struct settings settings;
    settings_defaults(&settings);
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert(settings.optimiser.rate == 0.05);
    ck_assert_int_eq(settings.eval_batch, settings.loader.batch_size);
    settings_defaults(&settings);
    settings.network.optimiser = OPTIMISER_ADAMW;
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert(settings.optimiser.rate == 0.001);
    settings_defaults(&settings);
    settings.resume = "a";
    settings.weights = "b";
    ck_assert_int_eq(settings_complete(&settings), STATUS_USAGE);
    settings_defaults(&settings);
    settings.network.nesterov = true;
    settings.optimiser.momentum = 0;
    ck_assert_int_eq(settings_complete(&settings), STATUS_USAGE);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("options");
    tcase_add_test(tests, test_every_form);
    tcase_add_test(tests, test_bare_and_negated);
    tcase_add_loop_test(tests, test_wrong, 0, (int)(sizeof wrong / sizeof wrong[0]));
    tcase_add_test(tests, test_operands_missing);
    tcase_add_test(tests, test_round_trip);
    tcase_add_loop_test(tests, test_read_refuses, 0, 5);
    tcase_add_test(tests, test_job_settings_round_trip);
    tcase_add_test(tests, test_job_tables_are_sound);
    tcase_add_test(tests, test_settings_complete);
    return check_run_case("options", tests);
}
