#include "experiments/request.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "trainer/job.h"
#include "trainer/job_options.h"

static enum status read_cell(const struct json_value *value, struct cell *cell)
{
    const struct json_value *changes = json_member(value, "changes");
    const char *name = json_member_string(value, "name", NULL);
    memset(cell, 0, sizeof *cell);
    if (!name || !changes || changes->kind != JSON_ARRAY || changes->count > CELL_MAX_CHANGES) {
        return FAIL(STATUS_INVALID, "a cell of the request is not understood");
    }
    snprintf(cell->name, sizeof cell->name, "%s", name);
    cell->repeats = json_member_bool(value, "repeats", false);
    cell->arithmetic = json_member_bool(value, "arithmetic", false);
    for (size_t i = 0; i < changes->count; i++) {
        const struct json_value *change = &changes->items[i];
        if (change->kind != JSON_ARRAY || change->count != 2 ||
            change->items[0].kind != JSON_STRING || change->items[1].kind != JSON_STRING) {
            return FAIL(STATUS_INVALID, "a change of cell \"%s\" is not understood", name);
        }
        cell->changes[i].option = change->items[0].string;
        snprintf(cell->changes[i].value, sizeof cell->changes[i].value, "%s",
                 change->items[1].string);
    }
    cell->change_count = changes->count;
    return STATUS_OK;
}

enum status request_read(const struct json_value *root, struct request *request)
{
    memset(request, 0, sizeof *request);
    request->root = root;
    settings_defaults(&request->job);
    struct option_binding bindings[16];
    size_t count = job_bind_options(&request->job, bindings);
    TRY(options_read(bindings, count, json_member(root, "job")));
    request->job.step_seconds = json_member_double(root, "step_s", 0);
    request->job.forward_only = json_member_bool(root, "eval", false);
    request->job.device.cuda_only = json_member_string(root, "cuda_only", NULL);
    const struct json_value *plans = json_member(root, "plans");
    request->plans = plans && plans->kind == JSON_ARRAY ? plans : NULL;
    const struct json_value *cells = json_member(root, "cells");
    for (size_t i = 0; cells && i < cells->count && i < CELLS_MAX; i++) {
        TRY(read_cell(&cells->items[i], &request->cells.cells[i]));
        request->cells.count++;
    }
    return STATUS_OK;
}

void request_write_job(const struct settings *job, struct json_writer *writer)
{
    json_key_double(writer, "step_s", job->step_seconds);
    json_key_bool(writer, "eval", job->forward_only);
    json_key_string(writer, "cuda_only", job->device.cuda_only);
    json_key_int(writer, "log", log_get_level());
    json_key(writer, "job");
    job_write_settings(job, writer);
}

void request_write_cells(const struct cell_list *cells, struct json_writer *writer)
{
    json_key(writer, "cells");
    json_begin_array(writer);
    for (size_t i = 0; i < cells->count; i++) {
        const struct cell *cell = &cells->cells[i];
        json_begin_object(writer);
        json_key_string(writer, "name", cell->name);
        json_key_bool(writer, "repeats", cell->repeats);
        json_key_bool(writer, "arithmetic", cell->arithmetic);
        json_key(writer, "changes");
        json_begin_array(writer);
        for (size_t c = 0; c < cell->change_count; c++) {
            json_begin_array(writer);
            json_string(writer, cell->changes[c].option);
            json_string(writer, cell->changes[c].value);
            json_end_array(writer);
        }
        json_end_array(writer);
        json_end_object(writer);
    }
    json_end_array(writer);
}

void request_shared_text(const struct settings *settings, char *text, size_t bytes)
{
    struct settings copy = *settings;
    const struct option_binding bindings[] = {{&options_data, &copy}, {&options_device, &copy}};
    text[0] = '\0';
    FILE *stream = fmemopen(text, bytes, "w");
    if (!stream) {
        return; /* nothing is shared then */
    }
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    options_write(bindings, 2, false, &writer);
    fclose(stream);
}
