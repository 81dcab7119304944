#include "experiments/peer.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MOST_BYTES ((size_t)16 << 20)

/* Takes the first field of a line into `name`; returns what follows its comma, NULL when there is
 * none or the name is malformed or too long. */
static const char *take_name(const char *line, char *name, size_t bytes)
{
    const bool quoted = *line == '"';
    size_t used = 0;
    line += quoted;
    while (*line && (quoted ? *line != '"' || line[1] == '"' : *line != ',')) {
        line += quoted && *line == '"';
        if (used + 1 >= bytes) {
            return NULL;
        }
        name[used++] = *line++;
    }
    name[used] = '\0';
    line += quoted && *line == '"';
    return *line == ',' && used > 0 ? line + 1 : NULL;
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
    snprintf(peer->name, sizeof peer->name, "%s", name);
    return peer;
}

static enum status read_line(const char *path, int number, const char *line, struct peer_list *list)
{
    char name[sizeof list->peers->name];
    char *end = NULL;
    const char *value = take_name(line, name, sizeof name);
    if (!value) {
        return FAIL(STATUS_INVALID, "%s, line %d: not name,samples_per_s: \"%.60s\"", path, number,
                    line);
    }
    errno = 0;
    const double rate = strtod(value, &end);
    end += strspn(end, " \t");
    /* Further fields are somebody else's. */
    const bool is_number = end != value && (*end == '\0' || *end == ',');
    if (!is_number && number == 1) {
        return STATUS_OK;
    }
    if (!is_number || errno != 0 || !isfinite(rate) || rate <= 0) {
        return FAIL(STATUS_INVALID, "%s, line %d: \"%.60s\" is no rate above 0", path, number,
                    value);
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
    int number = 0;
    for (char *line = text; line;) {
        char *next = strchr(line, '\n');
        if (next) {
            *next++ = '\0';
        }
        line[strcspn(line, "\r")] = '\0';
        number++;
        if (line[strspn(line, " \t")] != '\0') {
            TRY(read_line(path, number, line, list));
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
