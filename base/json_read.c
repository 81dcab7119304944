#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/json_internal.h"

#define BLOCK_BYTES 4096

/* Memory of a document: blocks that are only freed together. */
struct block {
    struct block *next;
    size_t used, room;
    max_align_t data[];
};

struct json_document {
    struct block *blocks;
    struct json_value root;
};

struct reader {
    const char *text;
    size_t bytes;
    size_t at;
    int depth;
    struct json_document *document;
};

/* Elements of an array or object while it is read. */
struct list {
    struct json_value *values;
    const char **names;
    size_t count, room;
};

static void *take(struct json_document *document, size_t bytes)
{
    const size_t unit = sizeof(max_align_t);
    if (bytes > SIZE_MAX / 2) {
        return NULL;
    }
    const size_t wanted = (bytes + unit - 1) / unit * unit;
    struct block *block = document->blocks;
    if (block == NULL || block->room - block->used < wanted) {
        const size_t room = wanted > BLOCK_BYTES ? wanted : BLOCK_BYTES;
        struct block *fresh = malloc(sizeof *fresh + room);
        if (fresh == NULL) {
            return NULL;
        }
        fresh->next = block;
        fresh->used = 0;
        fresh->room = room;
        document->blocks = fresh;
        block = fresh;
    }
    void *memory = (char *)block->data + block->used;
    block->used += wanted;
    return memory;
}

MUST_USE static enum status fail_memory(void)
{
    return FAIL(STATUS_NO_MEMORY, "no memory to read JSON");
}

MUST_USE static enum status fail_at(const struct reader *reader, size_t at, const char *what)
{
    size_t line = 1, column = 1;
    for (size_t i = 0; i < at && i < reader->bytes; i++) {
        column++;
        if (reader->text[i] == '\n') {
            line++;
            column = 1;
        }
    }
    return FAIL(STATUS_INVALID, "JSON: %s at line %zu, column %zu", what, line, column);
}

/* The next byte, 0 at the end (a zero byte in the text is no token either). */
static char peek(const struct reader *reader)
{
    return reader->at < reader->bytes ? reader->text[reader->at] : '\0';
}

static void skip_space(struct reader *reader)
{
    while (reader->at < reader->bytes) {
        const char byte = reader->text[reader->at];
        if (byte != ' ' && byte != '\t' && byte != '\n' && byte != '\r') {
            return;
        }
        reader->at++;
    }
}

static bool is_digit(char byte)
{
    return byte >= '0' && byte <= '9';
}

MUST_USE static enum status read_hex4(struct reader *reader, uint32_t *out)
{
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) {
        const char byte = peek(reader);
        uint32_t digit;
        if (is_digit(byte)) {
            digit = (uint32_t)(byte - '0');
        } else if (byte >= 'a' && byte <= 'f') {
            digit = (uint32_t)(byte - 'a') + 10;
        } else if (byte >= 'A' && byte <= 'F') {
            digit = (uint32_t)(byte - 'A') + 10;
        } else {
            return fail_at(reader, reader->at, "\\u needs four hexadecimal digits");
        }
        value = value << 4 | digit;
        reader->at++;
    }
    *out = value;
    return STATUS_OK;
}

/* After a backslash: one escape, appended to out. */
MUST_USE static enum status read_escape(struct reader *reader, char *out, size_t *length)
{
    static const char letters[] = "\"\\/bfnrt";
    static const char meanings[] = "\"\\/\b\f\n\r\t";
    const size_t begin = reader->at - 1;
    const char letter = peek(reader);
    const char *known = letter == '\0' ? NULL : strchr(letters, letter);
    if (known != NULL) {
        reader->at++;
        *out = meanings[known - letters];
        *length = 1;
        return STATUS_OK;
    }
    if (letter != 'u') {
        return fail_at(reader, begin, "unknown escape");
    }
    reader->at++;
    uint32_t code = 0;
    TRY(read_hex4(reader, &code));
    if (code >= 0xD800 && code <= 0xDBFF) {
        uint32_t low = 0;
        if (peek(reader) == '\\' && reader->at + 1 < reader->bytes &&
            reader->text[reader->at + 1] == 'u') {
            reader->at += 2;
            TRY(read_hex4(reader, &low));
        }
        if (low < 0xDC00 || low > 0xDFFF) {
            return fail_at(reader, begin, "half a surrogate pair");
        }
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code <= 0xDFFF) {
        return fail_at(reader, begin, "half a surrogate pair");
    } else if (code == 0) {
        return fail_at(reader, begin, "a zero character in a string");
    }
    *length = json__put_utf8(out, code);
    return STATUS_OK;
}

MUST_USE static enum status read_string(struct reader *reader, const char **out)
{
    if (peek(reader) != '"') {
        return fail_at(reader, reader->at, "a string was expected");
    }
    const size_t begin = reader->at++;
    /* Nothing grows when escapes are resolved, so the closing quote bounds the size. */
    size_t end = reader->at;
    while (end < reader->bytes && reader->text[end] != '"') {
        end += reader->text[end] == '\\' ? 2 : 1;
    }
    if (end >= reader->bytes) {
        return fail_at(reader, begin, "a string has no end");
    }
    char *text = take(reader->document, end - reader->at + 1);
    if (text == NULL) {
        return fail_memory();
    }
    size_t used = 0;
    while (reader->at < end) {
        const unsigned char byte = (unsigned char)reader->text[reader->at];
        size_t length = 0;
        if (byte == '\\') {
            reader->at++;
            TRY(read_escape(reader, text + used, &length));
        } else if (byte < 0x20) {
            return fail_at(reader, reader->at, "a control character in a string");
        } else {
            length = json__utf8_length((const unsigned char *)reader->text + reader->at,
                                       end - reader->at);
            if (length == 0) {
                return fail_at(reader, reader->at, "text that is not UTF-8");
            }
            memcpy(text + used, reader->text + reader->at, length);
            reader->at += length;
        }
        used += length;
    }
    text[used] = '\0';
    reader->at = end + 1;
    *out = text;
    return STATUS_OK;
}

MUST_USE static enum status read_number(struct reader *reader, struct json_value *value)
{
    const size_t begin = reader->at;
    bool whole = true;
    reader->at += peek(reader) == '-';
    if (peek(reader) == '0') {
        reader->at++;
    } else if (is_digit(peek(reader))) {
        while (is_digit(peek(reader))) {
            reader->at++;
        }
    } else {
        return fail_at(reader, begin, "a value was expected");
    }
    if (peek(reader) == '.') {
        whole = false;
        reader->at++;
        if (!is_digit(peek(reader))) {
            return fail_at(reader, reader->at, "a digit must follow the point");
        }
        while (is_digit(peek(reader))) {
            reader->at++;
        }
    }
    if (peek(reader) == 'e' || peek(reader) == 'E') {
        whole = false;
        reader->at++;
        reader->at += peek(reader) == '+' || peek(reader) == '-';
        if (!is_digit(peek(reader))) {
            return fail_at(reader, reader->at, "the exponent has no digit");
        }
        while (is_digit(peek(reader))) {
            reader->at++;
        }
    }
    /* strtod wants an end that the text need not have: the number may be its last byte. */
    char kept[64];
    const size_t length = reader->at - begin;
    char *copy = length < sizeof kept ? kept : malloc(length + 1);
    if (copy == NULL) {
        return fail_memory();
    }
    memcpy(copy, reader->text + begin, length);
    copy[length] = '\0';
    value->kind = JSON_NUMBER;
    value->number = strtod(copy, NULL);
    if (copy != kept) {
        free(copy);
    }
    if (!isfinite(value->number)) {
        return fail_at(reader, begin, "a number too large for a double");
    }
    if (whole) {
        /* By hand, so that all of int64_t is exact. */
        const bool negative = reader->text[begin] == '-';
        const uint64_t limit = negative ? (uint64_t)INT64_MAX + 1 : (uint64_t)INT64_MAX;
        uint64_t size = 0;
        bool fits = true;
        for (size_t i = begin + negative; i < reader->at && fits; i++) {
            const uint64_t digit = (uint64_t)(reader->text[i] - '0');
            fits = size <= (limit - digit) / 10;
            size = size * 10 + digit;
        }
        value->is_integer = fits;
        if (fits) {
            value->integer = negative ? (int64_t)(0 - size) : (int64_t)size;
        }
    } else if (fabs(value->number) < 0x1p53 && value->number == floor(value->number)) {
        value->is_integer = true;
        value->integer = (int64_t)value->number;
    }
    return STATUS_OK;
}

MUST_USE static enum status read_word(struct reader *reader, const char *word)
{
    const size_t length = strlen(word);
    if (reader->bytes - reader->at < length ||
        memcmp(reader->text + reader->at, word, length) != 0) {
        return fail_at(reader, reader->at, "a value was expected");
    }
    reader->at += length;
    return STATUS_OK;
}

MUST_USE static enum status list_grow(struct list *list, bool named)
{
    if (list->count < list->room) {
        return STATUS_OK;
    }
    const size_t room = list->room == 0 ? 8 : list->room * 2;
    struct json_value *values = reallocarray(list->values, room, sizeof *values);
    if (values == NULL) {
        return fail_memory();
    }
    list->values = values;
    if (named) {
        const char **names = reallocarray(list->names, room, sizeof *names);
        if (names == NULL) {
            return fail_memory();
        }
        list->names = names;
    }
    list->room = room;
    return STATUS_OK;
}

static int compare_names(const void *a, const void *b)
{
    const char *const *left = a;
    const char *const *right = b;
    return strcmp(*left, *right);
}

/* Moves the list into the document, and refuses equal names. */
MUST_USE static enum status list_finish(struct reader *reader, struct list *list, bool named,
                                        size_t begin, struct json_value *value)
{
    value->count = list->count;
    if (list->count == 0) {
        return STATUS_OK;
    }
    struct json_value *items = take(reader->document, list->count * sizeof *items);
    if (items == NULL) {
        return fail_memory();
    }
    memcpy(items, list->values, list->count * sizeof *items);
    value->items = items;
    if (!named) {
        return STATUS_OK;
    }
    const char **names = take(reader->document, list->count * sizeof *names);
    if (names == NULL) {
        return fail_memory();
    }
    memcpy(names, list->names, list->count * sizeof *names);
    value->names = names;
    qsort(list->names, list->count, sizeof *list->names, compare_names);
    for (size_t i = 1; i < list->count; i++) {
        if (strcmp(list->names[i - 1], list->names[i]) == 0) {
            return fail_at(reader, begin, "a name stands twice in the object that begins");
        }
    }
    return STATUS_OK;
}

MUST_USE static enum status read_value(struct reader *reader, struct json_value *value);

MUST_USE static enum status read_members(struct reader *reader, struct list *list, bool named)
{
    const char close = named ? '}' : ']';
    reader->at++;
    skip_space(reader);
    if (peek(reader) == close) {
        reader->at++;
        return STATUS_OK;
    }
    for (;;) {
        TRY(list_grow(list, named));
        if (named) {
            skip_space(reader);
            TRY(read_string(reader, &list->names[list->count]));
            skip_space(reader);
            if (peek(reader) != ':') {
                return fail_at(reader, reader->at, "':' was expected");
            }
            reader->at++;
        }
        TRY(read_value(reader, &list->values[list->count]));
        list->count++;
        skip_space(reader);
        if (peek(reader) == close) {
            reader->at++;
            return STATUS_OK;
        }
        if (peek(reader) != ',') {
            return fail_at(reader, reader->at,
                           named ? "',' or '}' was expected" : "',' or ']' was expected");
        }
        reader->at++;
    }
}

static enum status read_value(struct reader *reader, struct json_value *value)
{
    *value = (struct json_value){.kind = JSON_NULL};
    skip_space(reader);
    const char first = peek(reader);
    if (first == '{' || first == '[') {
        const size_t begin = reader->at;
        if (reader->depth == JSON_MAX_DEPTH) {
            return fail_at(reader, begin, "nested too deeply");
        }
        const bool named = first == '{';
        value->kind = named ? JSON_OBJECT : JSON_ARRAY;
        struct list list = {0};
        reader->depth++;
        enum status status = read_members(reader, &list, named);
        reader->depth--;
        if (status == STATUS_OK) {
            status = list_finish(reader, &list, named, begin, value);
        }
        free(list.values);
        free(list.names);
        return status;
    }
    if (first == '"') {
        value->kind = JSON_STRING;
        return read_string(reader, &value->string);
    }
    if (first == 't' || first == 'f') {
        value->kind = JSON_BOOL;
        value->boolean = first == 't';
        return read_word(reader, first == 't' ? "true" : "false");
    }
    if (first == 'n') {
        return read_word(reader, "null");
    }
    return read_number(reader, value);
}

enum status json_parse(const char *text, size_t bytes, json_document **out)
{
    *out = NULL;
    struct json_document *document = calloc(1, sizeof *document);
    if (document == NULL) {
        return fail_memory();
    }
    struct reader reader = {.text = text, .bytes = bytes, .document = document};
    enum status status = read_value(&reader, &document->root);
    if (status == STATUS_OK) {
        skip_space(&reader);
        if (reader.at != bytes) {
            status = fail_at(&reader, reader.at, "text after the end");
        }
    }
    if (status != STATUS_OK) {
        json_document_destroy(&document);
        return status;
    }
    *out = document;
    return STATUS_OK;
}

void json_document_destroy(json_document **document)
{
    if (*document == NULL) {
        return;
    }
    struct block *block = (*document)->blocks;
    while (block != NULL) {
        struct block *next = block->next;
        free(block);
        block = next;
    }
    free(*document);
    *document = NULL;
}

const struct json_value *json_root(const json_document *document)
{
    return &document->root;
}
