/* Values of options: from text to the field that an option fills, and to JSON and back. */
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/options_internal.h"

/* Three numbers of nine digits. */
#define NUMBERS_BYTES 64

/* --- From text -------------------------------------------------------------------------------- */

/* "a, b or c" */
static void list_choices(const char *const *choices, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (size_t i = 0; choices[i] && used < bytes; i++) {
        const char *separator = i == 0 ? "" : choices[i + 1] ? ", " : " or ";
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", separator, choices[i]);
    }
}

static bool parse_whole(const char *text, int64_t *value)
{
    if (!isdigit((unsigned char)text[0]) && !(text[0] == '-' && isdigit((unsigned char)text[1]))) {
        return false;
    }
    char *end;
    errno = 0;
    long long parsed = strtoll(text, &end, 10);
    *value = parsed;
    return errno == 0 && *end == '\0';
}

static bool parse_unsigned(const char *text, uint64_t *value, const char **end)
{
    if (!isdigit((unsigned char)text[0])) {
        return false;
    }
    char *stop;
    errno = 0;
    *value = strtoull(text, &stop, 10);
    *end = stop;
    return errno == 0;
}

static bool parse_real(const char *text, double *value)
{
    const char *first = text[0] == '-' || text[0] == '+' ? text + 1 : text;
    if (!isdigit((unsigned char)first[0]) && first[0] != '.') {
        return false; /* neither "inf", "nan" nor white space is a number here */
    }
    char *end;
    errno = 0;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value) && !strpbrk(text, "xXpP");
}

static bool parse_bytes(const char *text, size_t *value)
{
    uint64_t number;
    const char *unit;
    if (!parse_unsigned(text, &number, &unit)) {
        return false;
    }
    static const struct {
        const char *name;
        unsigned shift;
    } units[] = {{"", 0},     {"K", 10}, {"KiB", 10}, {"k", 10}, {"M", 20},
                 {"MiB", 20}, {"G", 30}, {"GiB", 30}, {"T", 40}, {"TiB", 40}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(unit, units[i].name) == 0) {
            if (number > (SIZE_MAX >> units[i].shift)) {
                return false;
            }
            *value = (size_t)number << units[i].shift;
            return true;
        }
    }
    return false;
}

static enum status fail_range(const struct option *option, const char *kind, const char *text)
{
    if (option->low == 0 && option->high == 0) {
        return FAIL(STATUS_USAGE, "--%s takes %s, not \"%s\"", option->name, kind, text);
    }
    if (option->high >= 1e15) {
        return FAIL(STATUS_USAGE, "--%s takes %s of at least %.10g, not \"%s\"", option->name, kind,
                    option->low, text);
    }
    return FAIL(STATUS_USAGE, "--%s takes %s from %.10g to %.10g, not \"%s\"", option->name, kind,
                option->low, option->high, text);
}

static bool in_range(const struct option *option, double value)
{
    return (option->low == 0 && option->high == 0) ||
           (value >= option->low && value <= option->high);
}

static enum status set_float3(const struct option *option, float *field, const char *text)
{
    char copy[96];
    int count = 0;
    double values[3];
    snprintf(copy, sizeof copy, "%s", text);
    bool good = strlen(text) < sizeof copy;
    for (char *at = copy; good && at;) {
        char *comma = strchr(at, ',');
        if (comma) {
            *comma = '\0';
        }
        good = count < 3 && parse_real(at, &values[count]) && in_range(option, values[count]);
        count++;
        at = comma ? comma + 1 : NULL;
    }
    if (!good || (count != 1 && count != 3)) {
        return fail_range(option, "one number, or three with commas,", text);
    }
    for (int c = 0; c < 3; c++) {
        field[c] = (float)values[count == 3 ? c : 0];
    }
    return STATUS_OK;
}

enum status options__set_text(const struct option *option, void *base, const char *text)
{
    void *field = (char *)base + option->offset;
    int64_t whole;
    uint64_t bits;
    double real;
    const char *end;
    switch (option->kind) {
    case OPTION_SWITCH:
        if (strcmp(text, "true") == 0 || strcmp(text, "1") == 0) {
            *(bool *)field = true;
        } else if (strcmp(text, "false") == 0 || strcmp(text, "0") == 0) {
            *(bool *)field = false;
        } else {
            return FAIL(STATUS_USAGE, "--%s is a switch; it takes true or false, not \"%s\"",
                        option->name, text);
        }
        return STATUS_OK;
    case OPTION_INT:
        if (!parse_whole(text, &whole) || whole < INT32_MIN || whole > INT32_MAX ||
            !in_range(option, (double)whole)) {
            return fail_range(option, "a whole number", text);
        }
        *(int *)field = (int)whole;
        return STATUS_OK;
    case OPTION_LONG:
        if (!parse_whole(text, &whole) || !in_range(option, (double)whole)) {
            return fail_range(option, "a whole number", text);
        }
        *(int64_t *)field = whole;
        return STATUS_OK;
    case OPTION_SEED:
    case OPTION_COUNT:
        if (!parse_unsigned(text, &bits, &end) || *end != '\0') {
            return FAIL(STATUS_USAGE, "--%s takes a whole number of at least 0, not \"%s\"",
                        option->name, text);
        }
        if (option->kind == OPTION_SEED) {
            *(uint64_t *)field = bits;
        } else {
            *(size_t *)field = (size_t)bits;
        }
        return STATUS_OK;
    case OPTION_BYTES:
        if (!parse_bytes(text, (size_t *)field)) {
            return FAIL(STATUS_USAGE,
                        "--%s takes a number of bytes such as 500000, 64KiB, 512M or 2GiB, not "
                        "\"%s\"",
                        option->name, text);
        }
        return STATUS_OK;
    case OPTION_DOUBLE:
        if (!parse_real(text, &real) || !in_range(option, real)) {
            return fail_range(option, "a number", text);
        }
        *(double *)field = real;
        return STATUS_OK;
    case OPTION_TEXT:
        if (text[0] == '\0') {
            return FAIL(STATUS_USAGE, "--%s needs a value that is not empty: %s", option->name,
                        option->help);
        }
        *(const char **)field = text;
        return STATUS_OK;
    case OPTION_CHOICE:
        for (int i = 0; option->choices[i]; i++) {
            if (strcmp(option->choices[i], text) == 0) {
                *(int *)field = i;
                return STATUS_OK;
            }
        }
        {
            char accepted[256];
            list_choices(option->choices, accepted, sizeof accepted);
            return FAIL(STATUS_USAGE, "--%s takes %s, not \"%s\"", option->name, accepted, text);
        }
    case OPTION_FLOAT3:
        return set_float3(option, field, text);
    case OPTION_CUSTOM:
        return option->parse(field, text);
    }
    return FAIL(STATUS_INTERNAL, "option --%s has no kind", option->name);
}

/* --- To JSON and back ------------------------------------------------------------------------ */

/* Readers hold numbers as int64 or double; what neither holds exactly is written as text. */
static void write_unsigned(struct json_writer *writer, uint64_t value)
{
    if (value <= INT64_MAX) {
        json_uint(writer, value);
    } else {
        char text[32];
        snprintf(text, sizeof text, "%llu", (unsigned long long)value);
        json_string(writer, text);
    }
}

static void write_value(const struct option *option, const void *base, struct json_writer *writer)
{
    const void *field = (const char *)base + option->offset;
    switch (option->kind) {
    case OPTION_SWITCH:
        json_bool(writer, *(const bool *)field);
        break;
    case OPTION_INT:
        json_int(writer, *(const int *)field);
        break;
    case OPTION_LONG:
        json_int(writer, *(const int64_t *)field);
        break;
    case OPTION_SEED:
        write_unsigned(writer, *(const uint64_t *)field);
        break;
    case OPTION_COUNT:
    case OPTION_BYTES:
        write_unsigned(writer, *(const size_t *)field);
        break;
    case OPTION_DOUBLE:
        json_double(writer, *(const double *)field);
        break;
    case OPTION_TEXT:
        json_string(writer, *(const char *const *)field);
        break;
    case OPTION_CHOICE:
        json_string(writer, option->choices[*(const int *)field]);
        break;
    case OPTION_FLOAT3:
        json_begin_array(writer);
        for (int c = 0; c < 3; c++) {
            /* Nine digits are enough for any float and show 0.1 as such. */
            char digits[32];
            snprintf(digits, sizeof digits, "%.7g", (double)((const float *)field)[c]);
            json_double(writer, strtod(digits, NULL));
        }
        json_end_array(writer);
        break;
    case OPTION_CUSTOM:
        option->write(field, writer);
        break;
    }
}

void options_write(const struct option_binding *bindings, size_t binding_count, bool compared_only,
                   struct json_writer *writer)
{
    json_begin_object(writer);
    for (size_t b = 0; b < binding_count; b++) {
        for (size_t i = 0; i < bindings[b].table->count; i++) {
            const struct option *option = &bindings[b].table->options[i];
            if (!(compared_only && option->not_compared)) {
                json_key(writer, option->name);
                write_value(option, bindings[b].base, writer);
            }
        }
    }
    json_end_object(writer);
}

/* Texts that settings point to, kept as long as the process: the document that they come from may go
 * before the settings do. NULL when memory is exhausted. */
static const char *keep_text(const char *text)
{
    static struct kept {
        struct kept *next;
        char text[];
    } * kept_texts;
    const size_t bytes = strlen(text) + 1;
    struct kept *kept = malloc(sizeof *kept + bytes);
    if (!kept) {
        return NULL;
    }
    memcpy(kept->text, text, bytes);
    kept->next = kept_texts;
    kept_texts = kept;
    return kept->text;
}

static enum status read_value(const struct option *option, void *base,
                              const struct json_value *value)
{
    char text[NUMBERS_BYTES];
    if (value->kind == JSON_NULL && option->kind == OPTION_TEXT) {
        *(const char **)((char *)base + option->offset) = NULL;
        return STATUS_OK;
    }
    if (value->kind == JSON_STRING) {
        const char *copy = option->kind == OPTION_TEXT ? keep_text(value->string) : value->string;
        if (!copy) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the value of \"%s\"", option->name);
        }
        return options__set_text(option, base, copy);
    }
    if (value->kind == JSON_BOOL) {
        return options__set_text(option, base, value->boolean ? "true" : "false");
    }
    if (value->kind == JSON_NUMBER) {
        if (value->is_integer) {
            snprintf(text, sizeof text, "%lld", (long long)value->integer);
        } else {
            snprintf(text, sizeof text, "%.17g", value->number);
        }
        return options__set_text(option, base, text);
    }
    if (value->kind == JSON_ARRAY && value->count == 3) {
        snprintf(text, sizeof text, "%.9g,%.9g,%.9g", value->items[0].number,
                 value->items[1].number, value->items[2].number);
        return options__set_text(option, base, text);
    }
    return FAIL(STATUS_INVALID, "the value of \"%s\" has the wrong type", option->name);
}

enum status options_read(const struct option_binding *bindings, size_t binding_count,
                         const struct json_value *object)
{
    if (!object || object->kind != JSON_OBJECT) {
        return FAIL(STATUS_INVALID, "settings are missing or no object");
    }
    for (size_t i = 0; i < object->count; i++) {
        void *base = NULL;
        const char *name = object->names[i];
        const struct option *option =
            options__find(bindings, binding_count, name, strlen(name), &base);
        if (!option) {
            return FAIL(STATUS_INVALID, "unknown setting \"%s\": written by another version?",
                        name);
        }
        if (read_value(option, base, &object->items[i]) != STATUS_OK) {
            status_prefix("recorded setting");
            return STATUS_INVALID;
        }
    }
    return STATUS_OK;
}
