/*
 * JSON (RFC 8259): a writer onto a stdio stream or into memory, and a reader for the files that this
 * program wrote, safetensors headers among them.
 */
#ifndef PINLINE_BASE_JSON_H
#define PINLINE_BASE_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

/* --- Writing ------------------------------------------------------------------------------- */

#define JSON_MAX_DEPTH 32

/* Plain data, caller's memory. Commas, quoting and indentation are the writer's work; the order of
 * calls must be that of a valid document (asserted). No newline follows the last bracket, and after
 * it another document may begin: the caller writes what stands between. Errors of the stream are
 * left to the stream (ferror, or file_writer_commit). */
struct json_writer {
    FILE *stream;
    int depth;
    bool pretty; /* two spaces a level, otherwise one line */
    bool is_object[JSON_MAX_DEPTH];
    bool needs_comma[JSON_MAX_DEPTH];
    bool after_key;
};

void json_writer_init(struct json_writer *writer, FILE *stream, bool pretty);
void json_begin_object(struct json_writer *writer);
void json_end_object(struct json_writer *writer);
void json_begin_array(struct json_writer *writer);
void json_end_array(struct json_writer *writer);
void json_key(struct json_writer *writer, const char *key);
/* NULL is written as null. Bytes that are not UTF-8 become U+FFFD. */
void json_string(struct json_writer *writer, const char *text);
void json_int(struct json_writer *writer, int64_t value);
void json_uint(struct json_writer *writer, uint64_t value);
/* Shortest text that reads back as the same double; NaN and infinities are written as null. */
void json_double(struct json_writer *writer, double value);
void json_bool(struct json_writer *writer, bool value);
void json_null(struct json_writer *writer);
/* 16 hexadecimal digits as a string: hashes and other 64-bit values that doubles cannot hold. */
void json_hex64(struct json_writer *writer, uint64_t value);

/* key and value in one call. */
void json_key_string(struct json_writer *writer, const char *key, const char *text);
void json_key_int(struct json_writer *writer, const char *key, int64_t value);
void json_key_double(struct json_writer *writer, const char *key, double value);
void json_key_bool(struct json_writer *writer, const char *key, bool value);

/* --- Reading ------------------------------------------------------------------------------- */

enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* A parsed value. Owned by its document; read-only; freed with it. */
struct json_value {
    enum json_kind kind;
    bool boolean;
    double number;
    int64_t integer;    /* the number, when is_integer */
    bool is_integer;    /* written without '.' and 'e' and within int64_t, or integral below 2^53 */
    const char *string; /* UTF-8, zero-terminated; escapes resolved */
    size_t count;       /* elements or members */
    const struct json_value *items; /* array elements, or the members' values */
    const char *const *names;       /* the members' names, in file order */
};

typedef struct json_document json_document;

/* Parses `bytes` bytes of text. Depth over JSON_MAX_DEPTH, trailing text, duplicate names, text that
 * is not UTF-8, "\u0000" and numbers beyond a double are refused. *out is NULL on failure.
 * STATUS_INVALID with line and column, STATUS_NO_MEMORY. */
enum status json_parse(const char *text, size_t bytes, json_document **out) MUST_USE;
void json_document_destroy(json_document **document);
const struct json_value *json_root(const json_document *document);

/* The member `name` of an object, NULL when absent or when `object` is NULL or no object. */
const struct json_value *json_member(const struct json_value *object, const char *name);

/* Writes a parsed value again, members in their order. */
void json_copy(struct json_writer *writer, const struct json_value *value);

/* Member as a value of the wanted kind, or the fallback when absent or of another kind. */
double json_member_double(const struct json_value *object, const char *name, double fallback);
int64_t json_member_int(const struct json_value *object, const char *name, int64_t fallback);
const char *json_member_string(const struct json_value *object, const char *name,
                               const char *fallback);
bool json_member_bool(const struct json_value *object, const char *name, bool fallback);

#endif
