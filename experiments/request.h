/* What a child process of an experiment is asked to do, read from the parent's JSON. */
#ifndef PINLINE_EXPERIMENTS_REQUEST_H
#define PINLINE_EXPERIMENTS_REQUEST_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"
#include "experiments/cells.h"
#include "trainer/settings.h"

struct request {
    struct settings job;            /* not yet completed: cells may still change it */
    struct cell_list cells;         /* empty when the request has none */
    const struct json_value *plans; /* required plans, NULL: any */
    const struct json_value *root;
};

/* Fills *request from the document, which must outlive it. STATUS_INVALID. */
enum status request_read(const struct json_value *root, struct request *request) MUST_USE;

/* Writes "step_s", "eval", "cuda_only", "log" (this process's level, which the child takes over) and
 * "job", and "cells", as members of an open object. */
void request_write_job(const struct settings *job, struct json_writer *writer);
void request_write_cells(const struct cell_list *cells, struct json_writer *writer);

/* Text that is equal for two settings when both can share an open device and open sets. */
void request_shared_text(const struct settings *settings, char *text, size_t bytes);

#endif
