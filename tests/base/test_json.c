/* The writer's text, the reader's values and refusals, and that one understands the other. */
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "tests/support/check_run.h"

/* A writer into memory. */
struct sink {
    char *text;
    size_t bytes;
    FILE *stream;
    struct json_writer writer;
};

static void sink_open(struct sink *sink, bool pretty)
{
    sink->stream = open_memstream(&sink->text, &sink->bytes);
    ck_assert_ptr_nonnull(sink->stream);
    json_writer_init(&sink->writer, sink->stream, pretty);
}

static void sink_expect(struct sink *sink, const char *text)
{
    ck_assert_int_eq(fclose(sink->stream), 0);
    ck_assert_str_eq(sink->text, text);
    free(sink->text);
}

static void write_sample(struct json_writer *writer)
{
    json_begin_object(writer);
    json_key_string(writer, "name", "a \"b\"\n\t\\ \x01");
    json_key_int(writer, "least", INT64_MIN);
    json_key(writer, "most");
    json_uint(writer, UINT64_MAX);
    json_key_double(writer, "tenth", 0.1);
    json_key_bool(writer, "yes", true);
    json_key(writer, "list");
    json_begin_array(writer);
    json_null(writer);
    json_begin_array(writer);
    json_end_array(writer);
    json_begin_object(writer);
    json_end_object(writer);
    json_hex64(writer, 0x1234);
    json_string(writer, NULL);
    json_end_array(writer);
    json_end_object(writer);
}

START_TEST(test_write_compact)
{
    struct sink sink;
    sink_open(&sink, false);
    write_sample(&sink.writer);
    sink_expect(&sink, "{\"name\":\"a \\\"b\\\"\\n\\t\\\\ \\u0001\",\"least\":-9223372036854775808,"
                       "\"most\":18446744073709551615,\"tenth\":0.1,\"yes\":true,"
                       "\"list\":[null,[],{},\"0000000000001234\",null]}");
}
END_TEST

START_TEST(test_write_pretty)
{
    struct sink sink;
    sink_open(&sink, true);
    json_begin_object(&sink.writer);
    json_key(&sink.writer, "a");
    json_begin_array(&sink.writer);
    json_int(&sink.writer, 1);
    json_int(&sink.writer, 2);
    json_end_array(&sink.writer);
    json_key(&sink.writer, "b");
    json_begin_object(&sink.writer);
    json_end_object(&sink.writer);
    json_end_object(&sink.writer);
    sink_expect(&sink, "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
}
END_TEST

START_TEST(test_write_bad_utf8_and_no_numbers)
{
    struct sink sink;
    sink_open(&sink, false);
    json_begin_array(&sink.writer);
    /* A lone continuation byte, a cut sequence, an overlong slash, a surrogate, a good character. */
    json_string(&sink.writer, "\x80|\xE2\x82|\xC0\xAF|\xED\xA0\x80|\xE2\x82\xAC");
    json_double(&sink.writer, NAN);
    json_double(&sink.writer, INFINITY);
    json_double(&sink.writer, -INFINITY);
    json_end_array(&sink.writer);
#define BAD "\xEF\xBF\xBD"
    sink_expect(&sink, "[\"" BAD "|" BAD BAD "|" BAD BAD "|" BAD BAD BAD
                       "|\xE2\x82\xAC\",null,null,null]");
}
END_TEST

START_TEST(test_several_documents_on_a_stream)
{
    struct sink sink;
    sink_open(&sink, false);
    for (int i = 0; i < 2; i++) {
        json_begin_object(&sink.writer);
        json_key_int(&sink.writer, "i", i);
        json_end_object(&sink.writer);
        fputc('\n', sink.stream);
    }
    sink_expect(&sink, "{\"i\":0}\n{\"i\":1}\n");
}
END_TEST

static json_document *parse(const char *text)
{
    json_document *document = NULL;
    const enum status status = json_parse(text, strlen(text), &document);
    ck_assert_msg(status == STATUS_OK, "%s: %s", text, status_message());
    return document;
}

/* Writes one double and reads it back; returns the digits' length. */
static size_t round_trip(double value)
{
    struct sink sink;
    sink_open(&sink, false);
    json_double(&sink.writer, value);
    ck_assert_int_eq(fclose(sink.stream), 0);
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(sink.text, sink.bytes, &document), STATUS_OK);
    const struct json_value *root = json_root(document);
    ck_assert_int_eq(root->kind, JSON_NUMBER);
    ck_assert_msg(memcmp(&root->number, &value, sizeof value) == 0, "%.17g was written as %s",
                  value, sink.text);
    const size_t length = sink.bytes;
    json_document_destroy(&document);
    free(sink.text);
    return length;
}

START_TEST(test_doubles_survive)
{
    const double fixed[] = {0.0,     -0.0,    1.0,          -1.0,     0.1,           1.0 / 3,
                            DBL_MAX, DBL_MIN, DBL_TRUE_MIN, 0x1p53,   0x1p53 + 2,    1e21,
                            1e22,    1e23,    DBL_EPSILON,  123456.7, 5.00000000001, 1e-7};
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        round_trip(fixed[i]);
    }
    ck_assert_uint_eq(round_trip(0.3), 3);
    ck_assert_uint_eq(round_trip(1e100), 6);        /* 1e+100 */
    ck_assert_uint_eq(round_trip(DBL_TRUE_MIN), 6); /* 5e-324 */
    ck_assert_uint_eq(round_trip(0.1 + 0.2), 19);   /* 0.30000000000000004 */
    struct rng rng;
    rng_init(&rng, 1, RNG_TEST, 0, 0);
    for (int i = 0; i < 20000; i++) {
        const uint64_t bits = (uint64_t)rng_u32(&rng) << 32 | rng_u32(&rng);
        double value;
        memcpy(&value, &bits, sizeof value);
        if (isfinite(value)) {
            round_trip(value);
        }
    }
}
END_TEST

START_TEST(test_read_values)
{
    json_document *document =
        parse(" {\"a\": [1, -2.5e1, true, false, null, \"\\u00e4\\ud83d\\ude00\\/\\n\"], "
              "\"b\" : {\"c\":\"x\"}, \"\": 3}\n");
    const struct json_value *root = json_root(document);
    ck_assert_int_eq(root->kind, JSON_OBJECT);
    ck_assert_uint_eq(root->count, 3);
    ck_assert_str_eq(root->names[0], "a");
    ck_assert_str_eq(root->names[1], "b");
    ck_assert_str_eq(root->names[2], "");
    const struct json_value *list = json_member(root, "a");
    ck_assert_int_eq(list->kind, JSON_ARRAY);
    ck_assert_uint_eq(list->count, 6);
    ck_assert(list->items[0].is_integer && list->items[0].integer == 1);
    ck_assert_double_eq(list->items[1].number, -25.0);
    ck_assert(list->items[1].is_integer && list->items[1].integer == -25);
    ck_assert(list->items[2].kind == JSON_BOOL && list->items[2].boolean);
    ck_assert(list->items[3].kind == JSON_BOOL && !list->items[3].boolean);
    ck_assert_int_eq(list->items[4].kind, JSON_NULL);
    ck_assert_str_eq(list->items[5].string, "\xC3\xA4\xF0\x9F\x98\x80/\n");
    ck_assert_str_eq(json_member_string(json_member(root, "b"), "c", "?"), "x");
    ck_assert_int_eq(json_member_int(root, "", 0), 3);
    json_document_destroy(&document);
    ck_assert_ptr_null(document);
    json_document_destroy(&document);
}
END_TEST

START_TEST(test_members_and_fallbacks)
{
    json_document *document = parse("{\"i\":7,\"d\":0.5,\"s\":\"t\",\"b\":true,\"n\":null}");
    const struct json_value *root = json_root(document);
    ck_assert_int_eq(json_member_int(root, "i", -1), 7);
    ck_assert_int_eq(json_member_int(root, "d", -1), -1);
    ck_assert_int_eq(json_member_int(root, "absent", -1), -1);
    ck_assert_double_eq(json_member_double(root, "i", -1), 7);
    ck_assert_double_eq(json_member_double(root, "d", -1), 0.5);
    ck_assert_double_eq(json_member_double(root, "s", -1), -1);
    ck_assert_str_eq(json_member_string(root, "s", "f"), "t");
    ck_assert_str_eq(json_member_string(root, "i", "f"), "f");
    ck_assert(json_member_bool(root, "b", false));
    ck_assert(json_member_bool(root, "n", true));
    ck_assert_ptr_null(json_member(NULL, "i"));
    ck_assert_ptr_null(json_member(json_member(root, "i"), "i"));
    json_document_destroy(&document);
}
END_TEST

START_TEST(test_integers_are_exact)
{
    const struct {
        const char *text;
        bool is_integer;
        int64_t integer;
    } rows[] = {
        {"9223372036854775807", true, INT64_MAX},
        {"-9223372036854775808", true, INT64_MIN},
        {"9223372036854775808", false, 0},
        {"-9223372036854775809", false, 0},
        {"9007199254740993", true, INT64_C(9007199254740993)},
        {"18446744073709551615", false, 0},
        {"0", true, 0},
        {"-0", true, 0},
        {"1.0", true, 1},
        {"1.5", false, 0},
        {"1e3", true, 1000},
        {"1e300", false, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_document *document = parse(rows[i].text);
        const struct json_value *root = json_root(document);
        ck_assert_msg(root->is_integer == rows[i].is_integer, "%s", rows[i].text);
        if (rows[i].is_integer) {
            ck_assert_int_eq(root->integer, rows[i].integer);
        }
        ck_assert_double_eq(root->number, strtod(rows[i].text, NULL));
        json_document_destroy(&document);
    }
}
END_TEST

START_TEST(test_refusals)
{
    const char *const rows[] = {
        "",
        " ",
        "{",
        "[",
        "[1",
        "[1,",
        "[1,]",
        "[,1]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{a:1}",
        "{'a':1}",
        "{\"a\":1 \"b\":2}",
        "1 2",
        "[1] x",
        "tru",
        "nul",
        "True",
        "NaN",
        "Infinity",
        "-",
        "+1",
        "01",
        "1.",
        ".5",
        "1e",
        "1e+",
        "0x10",
        "1e999",
        "-1e999",
        "\"",
        "\"abc",
        "\"\\",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\\ud800\"",
        "\"\\ud800\\u0041\"",
        "\"\\udc00\"",
        "\"\\u0000\"",
        "\"a\nb\"",
        "\"\x80\"",
        "\"\xC0\xAF\"",
        "\"\xED\xA0\x80\"",
        "\"\xF4\x90\x80\x80\"",
        "{\"a\":1,\"b\":2,\"a\":3}",
        "[1}",
        "{\"a\":1]",
        "/* */ 1",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        json_document *document = (json_document *)&document;
        const enum status status = json_parse(rows[i], strlen(rows[i]), &document);
        ck_assert_msg(status == STATUS_INVALID, "accepted: %s", rows[i]);
        ck_assert_ptr_null(document);
        ck_assert_ptr_nonnull(strstr(status_message(), "line"));
    }
    json_document *document;
    ck_assert_int_eq(json_parse("[1]\0", 4, &document), STATUS_INVALID);
    ck_assert_int_eq(json_parse("{\"a\": 1,\n  \"b\": x}", 18, &document), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(status_message(), "line 2, column 8"));
}
END_TEST

START_TEST(test_depth)
{
    char text[2 * JSON_MAX_DEPTH + 3];
    memset(text, '[', JSON_MAX_DEPTH);
    memset(text + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    text[2 * JSON_MAX_DEPTH] = '\0';
    json_document *document = parse(text);
    json_document_destroy(&document);
    memset(text, '[', JSON_MAX_DEPTH + 1);
    memset(text + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    ck_assert_int_eq(json_parse(text, sizeof text - 1, &document), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(status_message(), "deep"));
}
END_TEST

/* Nothing past `bytes` is looked at, and a cut document is never accepted: each prefix lies at the
 * end of an allocation of its own, where the address sanitizer watches. */
START_TEST(test_every_cut_is_refused)
{
    struct sink sink;
    sink_open(&sink, true);
    write_sample(&sink.writer);
    ck_assert_int_eq(fclose(sink.stream), 0);
    for (size_t bytes = 0; bytes < sink.bytes; bytes++) {
        char *prefix = malloc(bytes + (bytes == 0));
        ck_assert_ptr_nonnull(prefix);
        memcpy(prefix, sink.text, bytes);
        json_document *document;
        ck_assert_int_eq(json_parse(prefix, bytes, &document), STATUS_INVALID);
        free(prefix);
    }
    free(sink.text);
}
END_TEST

START_TEST(test_many_members)
{
    struct sink sink;
    sink_open(&sink, false);
    json_begin_object(&sink.writer);
    for (int i = 0; i < 20000; i++) {
        char name[32];
        snprintf(name, sizeof name, "layer.%d.weight", i);
        json_key_int(&sink.writer, name, i);
    }
    json_end_object(&sink.writer);
    ck_assert_int_eq(fclose(sink.stream), 0);
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(sink.text, sink.bytes, &document), STATUS_OK);
    ck_assert_uint_eq(json_root(document)->count, 20000);
    ck_assert_int_eq(json_member_int(json_root(document), "layer.19999.weight", -1), 19999);
    json_document_destroy(&document);
    free(sink.text);
}
END_TEST

START_TEST(test_copy)
{
    const char *const text = "{\"a\":[1,-2.5,true,null,\"x\\n\"],\"b\":{},\"c\":9007199254740993}";
    struct sink sink;
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(text, strlen(text), &document), STATUS_OK);
    sink_open(&sink, false);
    json_copy(&sink.writer, json_root(document));
    sink_expect(&sink, text);
    json_document_destroy(&document);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_copy,
        test_write_compact,
        test_write_pretty,
        test_write_bad_utf8_and_no_numbers,
        test_several_documents_on_a_stream,
        test_doubles_survive,
        test_read_values,
        test_members_and_fallbacks,
        test_integers_are_exact,
        test_refusals,
        test_depth,
        test_every_cut_is_refused,
        test_many_members,
    };
    return check_run("json", tests, sizeof tests / sizeof tests[0], 0);
}
