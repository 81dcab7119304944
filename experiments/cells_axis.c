/* Axes: each cell at each value of an option of the job. */
#include "experiments/cells_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/job.h"
#include "trainer/job_options.h"
#include "trainer/options.h"

#define VALUE_BYTES sizeof((struct cell_change *)0)->value

/* Replaces each cell by one for each of `values` (separated by commas). */
enum status cells__multiply(struct cell_list *list, const char *option, const char *values)
{
    struct cell_list product;
    product.count = 0;
    for (size_t i = 0; i < list->count; i++) {
        for (const char *at = values; *at;) {
            size_t length = strcspn(at, ",");
            if (product.count == CELLS_MAX) {
                return FAIL(STATUS_USAGE,
                            "these axes make more than %d cells; name fewer values, or fewer "
                            "cells by --cells",
                            CELLS_MAX);
            }
            struct cell *cell = &product.cells[product.count++];
            *cell = list->cells[i];
            char value[VALUE_BYTES];
            snprintf(value, sizeof value, "%.*s", (int)length, at);
            /* That a cell is repeated stands at the end of its name. */
            const char *again = cell->repeats ? CELL_AGAIN : "";
            size_t used = strlen(cell->name) - strlen(again);
            int written = snprintf(cell->name + used, sizeof cell->name - used, " %s=%s%s", option,
                                   value, again);
            if (length >= sizeof value || written < 0 ||
                (size_t)written >= sizeof cell->name - used) {
                return FAIL(STATUS_USAGE, "the axis %s=%s is too long", option, values);
            }
            TRY(cells__add_change(cell, option, value));
            at += length + (at[length] == ',');
        }
    }
    *list = product;
    return STATUS_OK;
}

/* Options whose change would make cells that do not belong together, or no cells at all. */
static bool is_no_axis(const char *option)
{
    static const char *const names[] = {
        "weights", "data", "val-data", "device", "cuda-libs", "plan-candidates", "plan-cache"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], option) == 0) {
            return true;
        }
    }
    return false;
}

#define MOST_AXES 128

/* Every option that cells can differ in, NULL at the end: names as the table has them, since a cell
 * keeps the pointer. Those of a run (its files, evaluation, log) do nothing here. */
static void list_axes(const char **names)
{
    static struct settings scratch;
    struct option_binding bindings[16];
    const size_t count = job_bind_options(&scratch, bindings);
    size_t used = 0;
    for (size_t b = 0; b < count; b++) {
        const struct option_table *table = bindings[b].table;
        for (size_t i = 0; table != &options_run && i < table->count; i++) {
            if (!is_no_axis(table->options[i].name) && used + 1 < MOST_AXES) {
                names[used++] = table->options[i].name;
            }
        }
    }
    names[used] = NULL;
}

/* The option that an axis names; NULL, and what was meant perhaps, where there is none. */
static enum status find_option(const char *axis, size_t length, const char **option)
{
    const char *names[MOST_AXES];
    char given[64];
    list_axes(names);
    snprintf(given, sizeof given, "%.*s", (int)length, axis);
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(names[i], given) == 0) {
            *option = names[i];
            return STATUS_OK;
        }
    }
    const char *nearest = given[0] ? options_nearest(given, names) : NULL;
    return FAIL(STATUS_USAGE, "--axis: \"%s\" is no setting that cells can differ in%s%s%s", given,
                nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

/* The place, from 1, of an empty value; 0 where there is none. A comma at the end is one too many. */
static size_t find_empty(const char *values)
{
    size_t place = 1;
    for (const char *at = values;; place++) {
        const size_t length = strcspn(at, ",");
        if (length == 0) {
            return place;
        }
        if (at[length] == '\0') {
            return 0;
        }
        at += length + 1;
    }
}

/* A job that has this value of the option, as text. STATUS_USAGE: the option takes no such value. */
static enum status text_with(const char *option, const char *value, char **text)
{
    static struct settings scratch;
    struct option_binding bindings[16];
    settings_defaults(&scratch);
    const size_t count = job_bind_options(&scratch, bindings);
    TRY(options_set(bindings, count, option, value));
    TRY(job_settings_text(&scratch, text));
    return STATUS_OK;
}

/* Each value must be one that the option takes, and another setting than those before it, however it is
 * written: equal cells would be compared as if they differed. */
static enum status check_values(const char *option, const char *values)
{
    char *texts[CELLS_MAX] = {NULL};
    char written[CELLS_MAX][VALUE_BYTES];
    enum status status = STATUS_OK;
    size_t count = 0;
    for (const char *at = values; *at && count < CELLS_MAX && status == STATUS_OK; count++) {
        const size_t length = strcspn(at, ",");
        snprintf(written[count], VALUE_BYTES, "%.*s", (int)length, at);
        status = text_with(option, written[count], &texts[count]);
        for (size_t i = 0; i < count && status == STATUS_OK; i++) {
            if (strcmp(texts[i], texts[count]) == 0) {
                status = FAIL(STATUS_USAGE,
                              "--axis %s=%s: values %zu and %zu, \"%s\" and \"%s\", are the same "
                              "setting; name it once",
                              option, values, i + 1, count + 1, written[i], written[count]);
            }
        }
        at += length + (at[length] == ',');
    }
    for (size_t i = 0; i < count; i++) {
        free(texts[i]);
    }
    return status;
}

enum status cells__add_axis(struct cell_list *list, const char *axis)
{
    const size_t length = strcspn(axis, "=");
    const char *option = NULL;
    if (axis[length] != '=' || axis[length + 1] == '\0') {
        return FAIL(STATUS_USAGE,
                    "--axis takes OPTION=VALUE,VALUE,..., for instance "
                    "num-workers=1,2,4, not \"%s\"",
                    axis);
    }
    TRY(find_option(axis, length, &option));
    const char *values = axis + length + 1;
    const size_t empty = find_empty(values);
    if (empty > 0) {
        return FAIL(STATUS_USAGE,
                    "--axis %s=%s: value %zu is empty; take out a comma, or name a value there",
                    option, values, empty);
    }
    for (size_t i = 0; i < list->count; i++) {
        for (size_t c = 0; c < list->cells[i].change_count; c++) {
            if (strcmp(list->cells[i].changes[c].option, option) == 0) {
                return FAIL(STATUS_USAGE, "--axis: the cells differ in %s already; %s", option,
                            cells_is_flag(option) ? "choose them by --cells instead"
                                                  : "name all its values in one place");
            }
        }
    }
    TRY(check_values(option, values));
    TRY(cells__multiply(list, option, values));
    return STATUS_OK;
}
