#include "experiments/peer.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MOST_BYTES ((size_t)16 << 20)

/* Which fields of a line are taken, from 0. */
struct columns {
    int name, rate;
};

/* Takes the field at `line` into `field`, cut to fit; returns what follows it (a comma or the end), or
 * NULL where its quotes do not close. */
static const char *take_field(const char *line, char *field, size_t bytes)
{
    const bool quoted = *line == '"';
    size_t used = 0;
    line += quoted;
    while (*line && (quoted ? *line != '"' || line[1] == '"' : *line != ',')) {
        line += quoted && *line == '"';
        if (used + 1 < bytes) {
            field[used++] = *line;
        }
        line++;
    }
    field[used] = '\0';
    if (quoted && *line != '"') {
        return NULL;
    }
    line += quoted;
    return *line == ',' || *line == '\0' ? line : NULL;
}

/* Takes field number `wanted` of a line; false where there is none. */
static bool take_column(const char *line, int wanted, char *field, size_t bytes)
{
    for (int i = 0;; i++) {
        line = take_field(line, field, bytes);
        if (!line || i == wanted) {
            return line != NULL;
        }
        if (*line++ == '\0') {
            return false;
        }
    }
}

/* A first line that names columns says where name and rate stand. */
static enum status read_header(const char *path, const char *line, struct columns *columns)
{
    char field[64];
    columns->name = columns->rate = -1;
    for (int i = 0; take_column(line, i, field, sizeof field); i++) {
        columns->name = strcmp(field, "name") == 0 ? i : columns->name;
        columns->rate = strcmp(field, "samples_per_s") == 0 ? i : columns->rate;
    }
    if (columns->name < 0 || columns->rate < 0) {
        return FAIL(STATUS_INVALID,
                    "%s, line 1: there is no column \"%s\"; wanted are name and "
                    "samples_per_s, not \"%.60s\"",
                    path, columns->name < 0 ? "name" : "samples_per_s", line);
    }
    return STATUS_OK;
}

static struct peer *find(struct peer_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->peers[i].name, name) == 0) {
            return &list->peers[i];
        }
    }
    if (list->count == PEER_MAX) {
        return NULL;
    }
    struct peer *peer = &list->peers[list->count++];
    snprintf(peer->name, sizeof peer->name, "%.*s", (int)sizeof peer->name - 1, name);
    return peer;
}

/* The whole of `text`, but for blanks, as a number; false where it is none. */
static bool read_number(const char *text, double *number)
{
    char *end = NULL;
    *number = strtod(text, &end);
    return end != text && end[strspn(end, " \t")] == '\0';
}

static enum status read_line(const char *path, int number, const char *line,
                             struct columns *columns, struct peer_list *list)
{
    char name[sizeof list->peers->name + 1], value[64];
    double rate;
    const bool has_rate = take_column(line, columns->rate, value, sizeof value);
    errno = 0;
    const bool is_number = has_rate && read_number(value, &rate);
    const bool out_of_range = errno != 0;
    if (!is_number && has_rate && number == 1) {
        return read_header(path, line, columns);
    }
    if (!has_rate || !take_column(line, columns->name, name, sizeof name) || name[0] == '\0' ||
        strlen(name) == sizeof name - 1) {
        return FAIL(STATUS_INVALID, "%s, line %d: not name,samples_per_s: \"%.60s\"", path, number,
                    line);
    }
    if (!is_number || out_of_range || !isfinite(rate) || rate <= 0) {
        return FAIL(STATUS_INVALID, "%s, line %d: \"%s\" is no rate above 0", path, number, value);
    }
    struct peer *peer = find(list, name);
    if (!peer || peer->count == PEER_MAX_RATES) {
        return FAIL(STATUS_INVALID, "%s, line %d: more than %d names, or %d rates of one", path,
                    number, PEER_MAX, PEER_MAX_RATES);
    }
    peer->rates[peer->count++] = rate;
    return STATUS_OK;
}

static enum status read_lines(const char *path, char *text, struct peer_list *list)
{
    static const char mark[] = "\xEF\xBB\xBF"; /* before UTF-8, as spreadsheets write it */
    struct columns columns = {.name = 0, .rate = 1};
    int number = 0;
    for (char *line = strncmp(text, mark, 3) == 0 ? text + 3 : text; line;) {
        char *next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        line[strcspn(line, "\r")] = '\0';
        number++;
        if (line[strspn(line, " \t")] != '\0') {
            TRY(read_line(path, number, line, &columns, list));
        }
        line = next;
    }
    return list->count > 0 ? STATUS_OK
                           : FAIL(STATUS_INVALID, "%s holds no line name,samples_per_s", path);
}

enum status peer_read(const char *path, struct peer_list *list)
{
    void *text = NULL;
    size_t bytes = 0;
    TRY(file_read(path, MOST_BYTES, &text, &bytes));
    list->peers = calloc(PEER_MAX, sizeof *list->peers);
    const enum status status = list->peers
                                   ? read_lines(path, text, list)
                                   : FAIL(STATUS_NO_MEMORY, "no memory for the rates of %s", path);
    free(text);
    return status;
}

void peer_free(struct peer_list *list)
{
    free(list->peers);
    memset(list, 0, sizeof *list);
}

void peer_write(const struct peer_list *list, struct json_writer *writer)
{
    json_begin_array(writer);
    for (size_t i = 0; i < list->count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "name", list->peers[i].name);
        json_key(writer, "rates");
        json_begin_array(writer);
        for (size_t r = 0; r < list->peers[i].count; r++) {
            json_double(writer, list->peers[i].rates[r]);
        }
        json_end_array(writer);
        json_end_object(writer);
    }
    json_end_array(writer);
}
