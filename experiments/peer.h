/*
 * Rates of another program, to show beside the cells: a CSV file of lines "name,samples_per_s". Lines
 * of one name are its rounds. Fields may be quoted as in CSV; a first line whose second field is
 * no number is a header, which names these two columns, in any place among others; empty lines are
 * passed over.
 */
#ifndef PINLINE_EXPERIMENTS_PEER_H
#define PINLINE_EXPERIMENTS_PEER_H

#include <stddef.h>

#include "base/json.h"
#include "base/status.h"

#define PEER_MAX 64
#define PEER_MAX_RATES 256

struct peer {
    char name[96];
    double rates[PEER_MAX_RATES];
    size_t count;
};
struct peer_list {
    struct peer *peers; /* PEER_MAX of them, or NULL */
    size_t count;
};

/* Fills *list (all zero before). STATUS_INVALID names the line; STATUS_NOT_FOUND, STATUS_IO,
 * STATUS_NO_MEMORY. */
enum status peer_read(const char *path, struct peer_list *list) MUST_USE;
void peer_free(struct peer_list *list);

/* Writes the array of result.h's "peer". */
void peer_write(const struct peer_list *list, struct json_writer *writer);

#endif
