#include <assert.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_internal.h"

void json_writer_init(struct json_writer *writer, FILE *stream, bool pretty)
{
    memset(writer, 0, sizeof *writer);
    writer->stream = stream;
    writer->pretty = pretty;
}

static void new_line(struct json_writer *writer)
{
    fputc('\n', writer->stream);
    for (int i = 0; i < writer->depth; i++) {
        fputs("  ", writer->stream);
    }
}

/* What stands in front of an element or a member's name. */
static void separate(struct json_writer *writer)
{
    if (writer->depth == 0) {
        return;
    }
    bool *needs_comma = &writer->needs_comma[writer->depth - 1];
    if (*needs_comma) {
        fputc(',', writer->stream);
    }
    *needs_comma = true;
    if (writer->pretty) {
        new_line(writer);
    }
}

/* What stands in front of a value: nothing after a key. */
static void before_value(struct json_writer *writer)
{
    if (writer->after_key) {
        writer->after_key = false;
        return;
    }
    assert(writer->depth == 0 || !writer->is_object[writer->depth - 1]);
    separate(writer);
}

static void begin(struct json_writer *writer, bool object)
{
    before_value(writer);
    assert(writer->depth < JSON_MAX_DEPTH);
    writer->is_object[writer->depth] = object;
    writer->needs_comma[writer->depth] = false;
    writer->depth++;
    fputc(object ? '{' : '[', writer->stream);
}

static void end(struct json_writer *writer, bool object)
{
    assert(writer->depth > 0 && !writer->after_key);
    assert(writer->is_object[writer->depth - 1] == object);
    writer->depth--;
    if (writer->pretty && writer->needs_comma[writer->depth]) {
        new_line(writer);
    }
    fputc(object ? '}' : ']', writer->stream);
}

void json_begin_object(struct json_writer *writer)
{
    begin(writer, true);
}

void json_end_object(struct json_writer *writer)
{
    end(writer, true);
}

void json_begin_array(struct json_writer *writer)
{
    begin(writer, false);
}

void json_end_array(struct json_writer *writer)
{
    end(writer, false);
}

static void write_quoted(FILE *stream, const char *text)
{
    const unsigned char *at = (const unsigned char *)text;
    size_t left = strlen(text);
    fputc('"', stream);
    while (left > 0) {
        const size_t length = json__utf8_length(at, left);
        if (length == 0) {
            fputs("\xEF\xBF\xBD", stream); /* U+FFFD */
            at++;
            left--;
            continue;
        }
        if (*at == '"' || *at == '\\') {
            fprintf(stream, "\\%c", *at);
        } else if (*at == '\n') {
            fputs("\\n", stream);
        } else if (*at == '\t') {
            fputs("\\t", stream);
        } else if (*at < 0x20) {
            fprintf(stream, "\\u%04x", *at);
        } else {
            fwrite(at, 1, length, stream);
        }
        at += length;
        left -= length;
    }
    fputc('"', stream);
}

void json_key(struct json_writer *writer, const char *key)
{
    assert(writer->depth > 0 && writer->is_object[writer->depth - 1] && !writer->after_key);
    separate(writer);
    write_quoted(writer->stream, key);
    fputs(writer->pretty ? ": " : ":", writer->stream);
    writer->after_key = true;
}

void json_string(struct json_writer *writer, const char *text)
{
    if (text == NULL) {
        json_null(writer);
        return;
    }
    before_value(writer);
    write_quoted(writer->stream, text);
}

void json_int(struct json_writer *writer, int64_t value)
{
    before_value(writer);
    fprintf(writer->stream, "%" PRId64, value);
}

void json_uint(struct json_writer *writer, uint64_t value)
{
    before_value(writer);
    fprintf(writer->stream, "%" PRIu64, value);
}

void json_double(struct json_writer *writer, double value)
{
    if (!isfinite(value)) {
        json_null(writer);
        return;
    }
    before_value(writer);
    /* A decimal of up to 15 digits survives the way to a double and back, and %g drops its trailing
     * zeros, so 15 finds every short one; only subnormal numbers carry fewer digits than that. */
    char text[40];
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    do {
        snprintf(text, sizeof text, "%.*g", digits, value);
    } while (strtod(text, NULL) != value && ++digits <= 17);
    fputs(text, writer->stream);
}

void json_bool(struct json_writer *writer, bool value)
{
    before_value(writer);
    fputs(value ? "true" : "false", writer->stream);
}

void json_null(struct json_writer *writer)
{
    before_value(writer);
    fputs("null", writer->stream);
}

void json_hex64(struct json_writer *writer, uint64_t value)
{
    before_value(writer);
    fprintf(writer->stream, "\"%016" PRIx64 "\"", value);
}

void json_key_string(struct json_writer *writer, const char *key, const char *text)
{
    json_key(writer, key);
    json_string(writer, text);
}

void json_key_int(struct json_writer *writer, const char *key, int64_t value)
{
    json_key(writer, key);
    json_int(writer, value);
}

void json_key_double(struct json_writer *writer, const char *key, double value)
{
    json_key(writer, key);
    json_double(writer, value);
}

void json_key_bool(struct json_writer *writer, const char *key, bool value)
{
    json_key(writer, key);
    json_bool(writer, value);
}

void json_copy(struct json_writer *writer, const struct json_value *value)
{
    switch (value->kind) {
    case JSON_NULL:
        json_null(writer);
        break;
    case JSON_BOOL:
        json_bool(writer, value->boolean);
        break;
    case JSON_NUMBER:
        if (value->is_integer) {
            json_int(writer, value->integer);
        } else {
            json_double(writer, value->number);
        }
        break;
    case JSON_STRING:
        json_string(writer, value->string);
        break;
    case JSON_ARRAY:
        json_begin_array(writer);
        for (size_t i = 0; i < value->count; i++) {
            json_copy(writer, &value->items[i]);
        }
        json_end_array(writer);
        break;
    case JSON_OBJECT:
        json_begin_object(writer);
        for (size_t i = 0; i < value->count; i++) {
            json_key(writer, value->names[i]);
            json_copy(writer, &value->items[i]);
        }
        json_end_object(writer);
        break;
    }
}
