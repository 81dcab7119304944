#include "experiments/result.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

#define MOST_BYTES ((size_t)1 << 30)

struct result {
    json_document *document;
    struct result_view view;
    struct result_cell *cells;
    struct effect effects[VERDICT_MAX_EFFECTS];
    char names[VERDICT_MAX_EFFECTS][200];
};

static enum status read_run(const struct json_value *value, struct result_run *run)
{
    run->object = value;
    run->round = (int)json_member_int(value, "round", -1);
    run->place = (int)json_member_int(value, "place", -1);
    run->samples_per_s = json_member_double(value, "samples_per_s", 0);
    run->loss_hash = json_member_string(value, "loss_hash", NULL);
    run->weights_hash = json_member_string(value, "weights_hash", NULL);
    run->marked = json_member_string(value, "marked", "")[0] != '\0';
    if (run->round < 0 || !(run->samples_per_s > 0) || !run->loss_hash || !run->weights_hash) {
        return FAIL(STATUS_INVALID, "a run lacks round, samples_per_s or its hashes");
    }
    return STATUS_OK;
}

static void summarise(struct result_cell *cell, size_t rounds)
{
    double epochs[RESULT_MAX_ROUNDS];
    size_t epoch_count = 0;
    for (size_t i = 0; i < rounds; i++) {
        cell->rates[i] = cell->runs[i].samples_per_s;
        const struct json_value *times = json_member(cell->runs[i].object, "epoch_s");
        double sum = 0;
        for (size_t k = 0; times && k < times->count; k++) {
            sum += times->items[k].number;
        }
        if (times && times->count > 0) {
            epochs[epoch_count++] = sum / (double)times->count;
        }
    }
    if (rounds > 0) {
        cell->median = statistics_median(cell->rates, rounds);
        cell->lowest = statistics_quantile(cell->rates, rounds, 0);
        cell->highest = statistics_quantile(cell->rates, rounds, 1);
    }
    if (epoch_count > 0) {
        cell->epoch_median = statistics_median(epochs, epoch_count);
        cell->epoch_lowest = statistics_quantile(epochs, epoch_count, 0);
        cell->epoch_highest = statistics_quantile(epochs, epoch_count, 1);
    }
}

static enum status read_cell(const struct json_value *value, struct result_cell *cell)
{
    const struct json_value *rounds = json_member(value, "rounds");
    cell->name = json_member_string(value, "name", NULL);
    cell->settings = json_member(value, "settings");
    cell->bound = "";
    if (!cell->name || !rounds || rounds->kind != JSON_ARRAY || rounds->count > RESULT_MAX_ROUNDS) {
        return FAIL(STATUS_INVALID, "a cell lacks its name or its rounds");
    }
    for (size_t i = 0; i < rounds->count; i++) {
        if (read_run(&rounds->items[i], &cell->runs[i]) != STATUS_OK) {
            status_prefix("cell \"%s\"", cell->name);
            return STATUS_INVALID;
        }
    }
    cell->run_count = rounds->count;
    return STATUS_OK;
}

static void read_predictions(const struct json_value *root, struct result *file)
{
    const struct json_value *predictions = json_member(root, "predictions");
    for (size_t i = 0; predictions && i < predictions->count; i++) {
        const struct json_value *value = &predictions->items[i];
        for (size_t c = 0; c < file->view.cell_count; c++) {
            struct result_cell *cell = &file->cells[c];
            if (strcmp(cell->name, json_member_string(value, "cell", "")) == 0) {
                cell->predicted = json_member_double(value, "samples_per_s", 0);
                cell->predicted_formula = json_member_double(value, "formula_samples_per_s", 0);
                cell->predicted_trivial = json_member_double(value, "trivial_samples_per_s", 0);
                cell->bound = json_member_string(value, "bound", "");
            }
        }
    }
}

/* --- Effects -------------------------------------------------------------------------------- */

static struct effect *add_effect(struct result *file, const char *a, const char *b)
{
    const struct result_cell *over = result_find_cell(&file->view, a);
    const struct result_cell *under = result_find_cell(&file->view, b);
    if (!over || !under || file->view.effect_count == VERDICT_MAX_EFFECTS) {
        return NULL;
    }
    const size_t i = file->view.effect_count++;
    snprintf(file->names[i], sizeof file->names[i], "%s/%s", a, b);
    file->effects[i] = (struct effect){.name = file->names[i], .a = over->rates, .b = under->rates};
    return &file->effects[i];
}

/* The cells of a comparison without the article's names: each against the first. */
static void add_against_first(struct result *file)
{
    for (size_t c = 1; c < file->view.cell_count; c++) {
        struct effect *effect = add_effect(file, file->cells[c].name, file->cells[0].name);
        if (effect && file->view.effect_count == 1) {
            effect->primary = true;
        }
    }
}

static void add_effects(struct result *file)
{
    struct effect *primary = add_effect(file, "both", "default");
    if (!primary) {
        add_against_first(file);
        return;
    }
    primary->primary = true;
    add_effect(file, "pin", "default");
    add_effect(file, "non_blocking", "default");
    struct effect *interaction = add_effect(file, "both", "pin");
    const struct result_cell *none = result_find_cell(&file->view, "default");
    const struct result_cell *only = result_find_cell(&file->view, "non_blocking");
    if (interaction && only) {
        interaction->name = "interaction";
        interaction->a2 = none->rates;
        interaction->b2 = only->rates;
    }
    add_effect(file, "both+stream", "both");
}

static enum status read_all(struct result *file)
{
    const struct json_value *root = json_root(file->document);
    const struct json_value *cells = json_member(root, "cells");
    if (strcmp(json_member_string(root, "kind", ""), "ablation") != 0 || !cells ||
        cells->kind != JSON_ARRAY || cells->count < 1 || cells->count > RESULT_MAX_CELLS) {
        return FAIL(STATUS_INVALID, "this is no result of `pinline ablate`");
    }
    file->cells = calloc(cells->count, sizeof *file->cells);
    if (!file->cells) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu cells", cells->count);
    }
    struct result_view *view = &file->view;
    view->root = root;
    view->cells = file->cells;
    view->effects = file->effects;
    view->finished = json_member_bool(root, "finished", false);
    view->matters = json_member_double(json_member(root, "protocol"), "matters", 0.02);
    const struct json_value *failures = json_member(root, "failures");
    view->failures = failures ? failures->count : 0;
    view->rounds = RESULT_MAX_ROUNDS;
    for (size_t c = 0; c < cells->count; c++) {
        TRY(read_cell(&cells->items[c], &file->cells[c]));
        view->cell_count++;
        view->rounds =
            file->cells[c].run_count < view->rounds ? file->cells[c].run_count : view->rounds;
    }
    for (size_t c = 0; c < view->cell_count; c++) {
        summarise(&file->cells[c], view->rounds);
    }
    read_predictions(root, file);
    if (view->rounds >= 2) {
        add_effects(file);
        verdict_decide(file->effects, view->effect_count, view->rounds, view->matters);
    }
    return STATUS_OK;
}

enum status result_open(const char *path, result **out)
{
    void *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    TRY(file_read(path, MOST_BYTES, &text, &bytes));
    struct result *file = calloc(1, sizeof *file);
    enum status status = file ? json_parse(text, bytes, &file->document)
                              : FAIL(STATUS_NO_MEMORY, "no memory for a result");
    free(text);
    if (status == STATUS_OK) {
        status = read_all(file);
    }
    if (status != STATUS_OK) {
        status_prefix("%s", path);
        result_close(&file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

void result_close(result **handle)
{
    struct result *file = *handle;
    if (!file) {
        return;
    }
    json_document_destroy(&file->document);
    free(file->cells);
    free(file);
    *handle = NULL;
}

const struct result_view *result_read_view(const result *file)
{
    return &file->view;
}

const struct result_cell *result_find_cell(const struct result_view *view, const char *name)
{
    for (size_t c = 0; c < view->cell_count; c++) {
        if (strcmp(view->cells[c].name, name) == 0) {
            return &view->cells[c];
        }
    }
    return NULL;
}

const struct effect *result_find_effect(const struct result_view *view, const char *name)
{
    for (size_t i = 0; i < view->effect_count; i++) {
        if (strcmp(view->effects[i].name, name) == 0) {
            return &view->effects[i];
        }
    }
    return NULL;
}
