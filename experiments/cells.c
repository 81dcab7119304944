#include "experiments/cells_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trainer/job.h"
#include "trainer/job_options.h"
#include "trainer/options.h"

struct known_cell {
    const char *name;
    const char *pin, *non_blocking, *stream;
};

static const struct known_cell known[] = {
    {"default", "off", "false", "compute"},         {"pin", "on", "false", "compute"},
    {"non_blocking", "off", "true", "compute"},     {"both", "on", "true", "compute"},
    {"default/s", "off", "false", "dedicated"},     {"pin/s", "on", "false", "dedicated"},
    {"non_blocking/s", "off", "true", "dedicated"}, {"both+stream", "on", "true", "dedicated"},
};
enum { KNOWN = sizeof known / sizeof known[0] };

static const char *const names_usual[] = {"default", "pin",         "non_blocking",
                                          "both",    "both+stream", NULL};
static const char *const names_eight[] = {"default",        "pin",         "non_blocking",
                                          "both",           "default/s",   "pin/s",
                                          "non_blocking/s", "both+stream", NULL};
static const char *const names_dedicated[] = {"default/s", "pin/s", "non_blocking/s", "both+stream",
                                              NULL};
static const char *const names_axes[] = {"default", "both+stream", NULL};

/* Options that change what is computed, not when. */
static bool changes_arithmetic(const char *option)
{
    static const char *const names[] = {"transfer",
                                        "precision",
                                        "batch-size",
                                        "size",
                                        "augment",
                                        "exact-decode",
                                        "decoders",
                                        "model",
                                        "seed",
                                        "shuffle",
                                        "drop-last",
                                        "deterministic",
                                        "mean",
                                        "std",
                                        "flip",
                                        "label-smoothing",
                                        "padding",
                                        "stem",
                                        "limit-samples",
                                        "data",
                                        "optimizer",
                                        "lr",
                                        "momentum",
                                        "weight-decay",
                                        "plan-candidates",
                                        "workspace",
                                        "schedule",
                                        "warmup-epochs",
                                        "step-epochs",
                                        "step-factor",
                                        "final-lr",
                                        "nesterov",
                                        "decay-all",
                                        "beta1",
                                        "beta2",
                                        "epsilon",
                                        "val-fraction",
                                        "exif-orientation"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], option) == 0) {
            return true;
        }
    }
    return false;
}

enum status cells__add_change(struct cell *cell, const char *option, const char *value)
{
    if (cell->change_count == CELL_MAX_CHANGES) {
        return FAIL(STATUS_USAGE, "cell \"%s\" changes more than %d options", cell->name,
                    CELL_MAX_CHANGES);
    }
    struct cell_change *change = &cell->changes[cell->change_count++];
    change->option = option;
    if (strlen(value) >= sizeof change->value) {
        return FAIL(STATUS_USAGE, "the value \"%s\" of --%s is too long", value, option);
    }
    snprintf(change->value, sizeof change->value, "%s", value);
    cell->arithmetic = cell->arithmetic || changes_arithmetic(option);
    return STATUS_OK;
}

static const struct cell *find_cell(const struct cell_list *list, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        if (strcmp(list->cells[i].name, name) == 0) {
            return &list->cells[i];
        }
    }
    return NULL;
}

static enum status add_cell(struct cell_list *list, const struct cell *cell)
{
    if (find_cell(list, cell->name)) {
        return FAIL(STATUS_USAGE, "cell \"%s\" is asked for twice", cell->name);
    }
    if (list->count == CELLS_MAX) {
        return FAIL(STATUS_USAGE, "more than %d cells", CELLS_MAX);
    }
    list->cells[list->count++] = *cell;
    return STATUS_OK;
}

/* The same cell once more, as a check on the method. */
static enum status add_again(struct cell_list *list, const struct cell *first)
{
    struct cell again = *first;
    again.repeats = true;
    const size_t used = strlen(again.name);
    if (used + sizeof CELL_AGAIN > sizeof again.name) {
        return FAIL(STATUS_USAGE, "the name of cell \"%s\" is too long to repeat it", first->name);
    }
    memcpy(again.name + used, CELL_AGAIN, sizeof CELL_AGAIN);
    return add_cell(list, &again);
}

static enum status make_known(const struct known_cell *from, struct cell *cell)
{
    memset(cell, 0, sizeof *cell);
    snprintf(cell->name, sizeof cell->name, "%s", from->name);
    TRY(cells__add_change(cell, "pin-memory", from->pin));
    TRY(cells__add_change(cell, "non-blocking", from->non_blocking));
    return cells__add_change(cell, "copy-stream", from->stream);
}

/* A name, and a name that stands there already or ends so, for the second time. */
static enum status add_known(struct cell_list *list, const char *name, size_t length)
{
    const size_t suffix = strlen(CELL_AGAIN);
    const bool again = length > suffix && memcmp(name + length - suffix, CELL_AGAIN, suffix) == 0;
    const size_t base = again ? length - suffix : length;
    for (size_t i = 0; i < KNOWN; i++) {
        if (strlen(known[i].name) == base && memcmp(known[i].name, name, base) == 0) {
            struct cell cell;
            TRY(make_known(&known[i], &cell));
            return again || find_cell(list, cell.name) ? add_again(list, &cell)
                                                       : add_cell(list, &cell);
        }
    }
    return FAIL(STATUS_USAGE,
                "there is no cell \"%.*s\"; known are default, pin, non_blocking, both, default/s, "
                "pin/s, non_blocking/s and both+stream, each also with \" again\"",
                (int)length, name);
}

static enum status add_names(struct cell_list *list, const char *const *names)
{
    for (size_t i = 0; names[i]; i++) {
        TRY(add_known(list, names[i], strlen(names[i])));
    }
    return STATUS_OK;
}

/* A repeated cell without the one that it repeats would be no check. */
static enum status check_repeated(const struct cell_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        char name[sizeof list->cells->name];
        snprintf(name, sizeof name, "%s", list->cells[i].name);
        name[strlen(name) - (list->cells[i].repeats ? strlen(CELL_AGAIN) : 0)] = '\0';
        if (!find_cell(list, name)) {
            return FAIL(STATUS_USAGE, "cell \"%s\" repeats \"%s\", which is not among the cells",
                        list->cells[i].name, name);
        }
    }
    return STATUS_OK;
}

static enum status add_named(struct cell_list *list, const char *names)
{
    /* A comma at the end is followed by a name as well, an empty one. */
    for (bool more = true; more;) {
        const size_t length = strcspn(names, ",");
        TRY(add_known(list, names, length));
        more = names[length] == ',';
        names += length + more;
    }
    return check_repeated(list);
}

enum status cells_choose(const struct cells_request *request, struct cell_list *list)
{
    list->count = 0;
    bool usual = !request->names && !request->axes[0] && request->streams == CELLS_STREAM_COMPUTE;
    if (request->names) {
        TRY(add_named(list, request->names));
    } else if (request->streams == CELLS_STREAM_BOTH) {
        TRY(add_names(list, names_eight));
    } else if (request->streams == CELLS_STREAM_DEDICATED) {
        TRY(add_names(list, names_dedicated));
    } else {
        TRY(add_names(list, usual ? names_usual : names_axes));
    }
    if (request->both_transfers) {
        TRY(cells__multiply(list, "transfer", "u8,f32"));
    }
    if (request->both_stagings) {
        TRY(cells__multiply(list, "staging", "slot,thread"));
    }
    for (size_t i = 0; i < CELLS_MAX_AXES && request->axes[i]; i++) {
        TRY(cells__add_axis(list, request->axes[i]));
    }
    if (usual || request->again) {
        TRY(add_again(list, &list->cells[0]));
    }
    for (size_t i = 0; i < list->count; i++) {
        if (find_cell(list, list->cells[i].name) != &list->cells[i]) {
            return FAIL(STATUS_USAGE, "cell \"%s\" is asked for twice", list->cells[i].name);
        }
    }
    if (list->count < 2) {
        return FAIL(STATUS_USAGE, "an ablation needs two cells at least");
    }
    return STATUS_OK;
}

/* Words of its own for what a cell's --epochs would be mistaken for. */
enum status cells_complete(struct settings *job)
{
    if (job->optimiser.warmup_epochs > job->epochs) {
        return FAIL(
            STATUS_USAGE,
            "--warmup-epochs %g: every cell follows the schedule of a training of %d epochs, "
            "however many of them --epochs times; take %d at most",
            job->optimiser.warmup_epochs, job->epochs, job->epochs);
    }
    TRY(settings_complete(job));
    return STATUS_OK;
}

enum status cells_settings(const struct settings *job, const struct cell *cell,
                           struct settings *out)
{
    *out = *job;
    struct option_binding bindings[16];
    size_t count = job_bind_options(out, bindings);
    for (size_t i = 0; i < cell->change_count; i++) {
        TRY(options_set(bindings, count, cell->changes[i].option, cell->changes[i].value));
    }
    TRY(cells_complete(out));
    return STATUS_OK;
}

bool cells_is_flag(const char *option)
{
    static const char *const names[] = {"pin-memory", "non-blocking", "copy-stream"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(names[i], option) == 0) {
            return true;
        }
    }
    return false;
}

/* One option of a job as a cell has it. */
static enum status change_job(struct settings *job, const struct cell_change *change)
{
    struct option_binding bindings[16];
    const size_t count = job_bind_options(job, bindings);
    return options_set(bindings, count, change->option, change->value);
}

/* Whether the job's value of the option that each cell's change `i` names is that of some cell. */
static enum status has_own_value(const struct cell_list *list, size_t i, const struct settings *job,
                                 bool *found)
{
    char *own = NULL;
    *found = false;
    TRY(job_settings_text(job, &own));
    enum status status = STATUS_OK;
    for (size_t c = 0; c < list->count && !*found && status == STATUS_OK; c++) {
        struct settings changed = *job;
        char *text = NULL;
        status = change_job(&changed, &list->cells[c].changes[i]);
        if (status == STATUS_OK) {
            status = job_settings_text(&changed, &text);
        }
        *found = status == STATUS_OK && strcmp(own, text) == 0;
        free(text);
    }
    free(own);
    return status;
}

enum status cells_adopt(const struct cell_list *list, struct settings *job)
{
    /* Axes give every cell the same options, in the same order. */
    const struct cell *first = &list->cells[0];
    for (size_t i = 0; i < first->change_count; i++) {
        bool found = false;
        if (cells_is_flag(first->changes[i].option)) {
            continue;
        }
        TRY(has_own_value(list, i, job, &found));
        if (!found) {
            TRY(change_job(job, &first->changes[i]));
        }
    }
    return STATUS_OK;
}

/* The cell's change of an option, NULL where it leaves it. */
static const struct cell_change *find_change(const struct cell *cell, const char *option)
{
    for (size_t i = 0; i < cell->change_count; i++) {
        if (strcmp(cell->changes[i].option, option) == 0) {
            return &cell->changes[i];
        }
    }
    return NULL;
}

enum status cells_choose_rates(struct cell_list *list, const struct settings *job)
{
    for (size_t c = 0; c < list->count && job->optimiser.rate == 0; c++) {
        struct cell *cell = &list->cells[c];
        const struct cell_change *change = find_change(cell, "optimizer");
        if (change && !find_change(cell, "lr")) {
            struct settings changed = *job;
            char rate[32];
            TRY(change_job(&changed, change));
            snprintf(rate, sizeof rate, "%g", settings_default_rate(changed.network.optimiser));
            TRY(cells__add_change(cell, "lr", rate));
        }
    }
    return STATUS_OK;
}

enum status cells_check(const struct cell_list *list, const struct settings *job)
{
    static struct settings scratch;
    for (size_t i = 0; i < list->count; i++) {
        const enum status status = cells_settings(job, &list->cells[i], &scratch);
        if (status != STATUS_OK) {
            status_prefix("cell \"%s\"", list->cells[i].name);
            return status;
        }
    }
    return STATUS_OK;
}

static void value_text(const struct json_value *value, char *text, size_t bytes)
{
    if (!value) {
        snprintf(text, bytes, "absent");
    } else if (value->kind == JSON_STRING) {
        snprintf(text, bytes, "%s", value->string);
    } else if (value->kind == JSON_NUMBER) {
        snprintf(text, bytes, "%.17g", value->number);
    } else if (value->kind == JSON_BOOL) {
        snprintf(text, bytes, "%s", value->boolean ? "true" : "false");
    } else if (value->kind == JSON_ARRAY) {
        size_t used = 0;
        text[0] = '\0';
        for (size_t i = 0; i < value->count && used < bytes; i++) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%.9g", i ? "," : "",
                                     value->items[i].number);
        }
    } else {
        snprintf(text, bytes, "null");
    }
}

static enum status check_one_side(const struct cell *a, const struct json_value *settings_a,
                                  const struct cell *b, const struct json_value *settings_b)
{
    for (size_t i = 0; i < settings_a->count; i++) {
        const char *name = settings_a->names[i];
        char text_a[256], text_b[256];
        value_text(&settings_a->items[i], text_a, sizeof text_a);
        value_text(json_member(settings_b, name), text_b, sizeof text_b);
        if (strcmp(text_a, text_b) != 0 && !find_change(a, name) && !find_change(b, name)) {
            return FAIL(STATUS_MISMATCH,
                        "cells \"%s\" and \"%s\" differ in %s too (%s against %s): they cannot be "
                        "compared",
                        a->name, b->name, name, text_a, text_b);
        }
    }
    return STATUS_OK;
}

enum status cells_check_equal(const struct cell *a, const struct json_value *settings_a,
                              const struct cell *b, const struct json_value *settings_b)
{
    TRY(check_one_side(a, settings_a, b, settings_b));
    TRY(check_one_side(b, settings_b, a, settings_a));
    return STATUS_OK;
}

struct predict_cell cells_prediction(const struct settings *settings)
{
    return (struct predict_cell){.pin = settings->loader.pin_memory != PIN_OFF,
                                 .non_blocking = settings->loader.non_blocking,
                                 .dedicated =
                                     settings->loader.copy_stream == COPY_STREAM_DEDICATED};
}
