#include "experiments/result_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "experiments/cells.h"

#define MOST_BYTES ((size_t)1 << 30)

struct result {
    json_document *document;
    struct result_view view;
    struct result_cell *cells;
    struct effect effects[VERDICT_MAX_EFFECTS];
    char names[VERDICT_MAX_EFFECTS + 1][240];
    struct result_peer *peers;
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
    cell->repeats = json_member_bool(value, "repeats", false);
    cell->bound = "";
    if (!cell->name || !rounds || rounds->kind != JSON_ARRAY || rounds->count > RESULT_MAX_ROUNDS) {
        return FAIL(STATUS_INVALID, "a cell lacks its name or its rounds");
    }
    for (size_t i = 0; i < rounds->count; i++) {
        if (read_run(&rounds->items[i], &cell->runs[i]) != STATUS_OK) {
            status_prefix("cell \"%s\"", cell->name);
            return STATUS_INVALID;
        }
        if (cell->runs[i].round != (int)i) {
            return FAIL(
                STATUS_INVALID,
                "cell \"%s\": its rounds are not 0, 1, 2 and so on, so they cannot be paired",
                cell->name);
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

/* A cell's name is that of a known cell, and after a space what the axes made of it. */
static size_t base_length(const char *name)
{
    return strcspn(name, " ");
}

static const char *axes_of(const char *name)
{
    const char *space = strchr(name, ' ');
    return space ? space + 1 : "";
}

/* The cell `base` under the axes' values `axes`; repeated cells are passed over. */
static const struct result_cell *find_under(const struct result_view *view, const char *base,
                                            const char *axes)
{
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        if (!cell->repeats && base_length(cell->name) == strlen(base) &&
            memcmp(cell->name, base, strlen(base)) == 0 && strcmp(axes_of(cell->name), axes) == 0) {
            return cell;
        }
    }
    return NULL;
}

static struct effect *add_effect(struct result *file, const struct result_cell *over,
                                 const struct result_cell *under, const char *name,
                                 const char *axes)
{
    if (!over || !under || over == under || file->view.effect_count == VERDICT_MAX_EFFECTS) {
        return NULL;
    }
    const size_t i = file->view.effect_count++;
    snprintf(file->names[i], sizeof file->names[i], "%s%s%s", name, axes[0] ? " at " : "", axes);
    file->effects[i] = (struct effect){.name = file->names[i], .a = over->rates, .b = under->rates};
    return &file->effects[i];
}

/* What the flags bring among the cells of one value of the axes. */
static void add_family(struct result *file, const char *axes)
{
    static const char *const names[] = {"default", "pin", "non_blocking", "both", "both+stream"};
    const struct result_cell *cells[5];
    for (size_t i = 0; i < 5; i++) {
        cells[i] = find_under(&file->view, names[i], axes);
    }
    const struct result_cell *none = cells[0], *pin = cells[1], *only = cells[2], *both = cells[3],
                             *stream = cells[4];
    add_effect(file, both, none, "both/default", axes);
    add_effect(file, pin, none, "pin/default", axes);
    add_effect(file, only, none, "non_blocking/default", axes);
    if (both && none && pin && only) {
        struct effect *interaction = add_effect(file, both, pin, "interaction", axes);
        if (interaction) {
            interaction->interaction = true;
            interaction->a2 = none->rates;
            interaction->b2 = only->rates;
        }
    }
    add_effect(file, stream, both, "both+stream/both", axes);
    if (!both) {
        add_effect(file, stream, none, "both+stream/default", axes);
    }
    if (!none) {
        const struct result_cell *plain = find_under(&file->view, "default/s", axes);
        add_effect(file, stream, plain, "both+stream / default/s", axes);
        add_effect(file, find_under(&file->view, "pin/s", axes), plain, "pin/s / default/s", axes);
        add_effect(file, find_under(&file->view, "non_blocking/s", axes), plain,
                   "non_blocking/s / default/s", axes);
    }
}

/* What a value of the axes brings against the first, in each cell of the flags. */
static void add_between(struct result *file)
{
    const struct result_view *view = &file->view;
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const char *axes = axes_of(cell->name);
        if (cell->repeats || axes[0] == '\0') {
            continue;
        }
        for (size_t first = 0; first < c; first++) {
            const struct result_cell *other = &view->cells[first];
            if (!other->repeats && base_length(other->name) == base_length(cell->name) &&
                memcmp(other->name, cell->name, base_length(cell->name)) == 0) {
                char name[220];
                snprintf(name, sizeof name, "%.*s: %.80s against %.80s",
                         (int)base_length(cell->name), cell->name, axes, axes_of(other->name));
                add_effect(file, cell, other, name, "");
                break;
            }
        }
    }
}

static bool is_first_of_axes(const struct result_view *view, size_t c)
{
    for (size_t i = 0; i < c; i++) {
        if (!view->cells[i].repeats &&
            strcmp(axes_of(view->cells[i].name), axes_of(view->cells[c].name)) == 0) {
            return false;
        }
    }
    return !view->cells[c].repeats;
}

/* The cell that `again` repeats: its name without the last word. */
static const struct result_cell *find_repeated(const struct result_view *view,
                                               const struct result_cell *again)
{
    const size_t length = strlen(again->name), suffix = strlen(CELL_AGAIN);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        if (length == strlen(cell->name) + suffix &&
            memcmp(cell->name, again->name, length - suffix) == 0) {
            return cell;
        }
    }
    return NULL;
}

static void add_check(struct result *file)
{
    struct result_view *view = &file->view;
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *again = &view->cells[c];
        const struct result_cell *first = again->repeats ? find_repeated(view, again) : NULL;
        if (first && !view->check.name) {
            char *name = file->names[VERDICT_MAX_EFFECTS];
            snprintf(name, sizeof file->names[0], "%.100s/%.100s", again->name, first->name);
            view->check = (struct effect){
                .name = name, .primary = true, .a = again->rates, .b = first->rates};
            verdict_decide(&view->check, 1, view->rounds, view->matters);
        }
    }
}

static void add_effects(struct result *file)
{
    struct result_view *view = &file->view;
    for (size_t c = 0; c < view->cell_count; c++) {
        if (is_first_of_axes(view, c)) {
            add_family(file, axes_of(view->cells[c].name));
        }
    }
    add_between(file);
    /* Cells of names that are not known here. */
    for (size_t c = 1; c < view->cell_count && view->effect_count == 0; c++) {
        if (view->cells[c].repeats) {
            continue;
        }
        char name[200];
        snprintf(name, sizeof name, "%.90s/%.90s", view->cells[c].name, view->cells[0].name);
        add_effect(file, &view->cells[c], &view->cells[0], name, "");
    }
    if (view->effect_count > 0) {
        file->effects[0].primary = true;
    }
}

static enum status read_peers(struct result *file, const struct json_value *list)
{
    if (!list || list->kind != JSON_ARRAY || list->count == 0) {
        return STATUS_OK;
    }
    file->peers = calloc(list->count, sizeof *file->peers);
    if (!file->peers) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %zu peers", list->count);
    }
    file->view.peers = file->peers;
    for (size_t i = 0; i < list->count; i++) {
        const struct json_value *rates = json_member(&list->items[i], "rates");
        double values[RESULT_MAX_ROUNDS];
        size_t count = 0;
        for (size_t r = 0; rates && r < rates->count && count < RESULT_MAX_ROUNDS; r++) {
            values[count++] = rates->items[r].number;
        }
        const char *name = json_member_string(&list->items[i], "name", NULL);
        if (!name || count == 0) {
            return FAIL(STATUS_INVALID, "a peer lacks its name or its rates");
        }
        file->view.peers[file->view.peer_count++] =
            (struct result_peer){.name = name,
                                 .rounds = count,
                                 .median = statistics_median(values, count),
                                 .lowest = statistics_quantile(values, count, 0),
                                 .highest = statistics_quantile(values, count, 1)};
    }
    return STATUS_OK;
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
    if (!failures || failures->kind != JSON_ARRAY || !(view->matters > 0)) {
        return FAIL(STATUS_INVALID, "the result lacks its list of failures, or what matters");
    }
    view->failures = failures->count;
    view->rounds = RESULT_MAX_ROUNDS;
    for (size_t c = 0; c < cells->count; c++) {
        TRY(read_cell(&cells->items[c], &file->cells[c]));
        if (result_find_cell(view, file->cells[c].name)) {
            return FAIL(STATUS_INVALID, "cell \"%s\" is there twice", file->cells[c].name);
        }
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
        if (view->effect_count > 0) {
            verdict_decide(file->effects, view->effect_count, view->rounds, view->matters);
        }
        add_check(file);
    }
    TRY(read_peers(file, json_member(root, "peer")));
    result__advise(view, &view->advice);
    return STATUS_OK;
}

static enum status open_file(const char *path, result **out)
{
    void *text = NULL;
    size_t bytes = 0;
    *out = NULL;
    TRY(file_read(path, MOST_BYTES, &text, &bytes));
    struct result *file = calloc(1, sizeof *file);
    enum status status = file ? json_parse(text, bytes, &file->document)
                              : FAIL(STATUS_NO_MEMORY, "no memory for a result");
    free(text);
    if (status == STATUS_INVALID) {
        status_prefix("%s is cut, or no result of `pinline ablate`", path);
    } else if (status == STATUS_OK) {
        status = read_all(file);
        if (status != STATUS_OK) {
            status_prefix("%s", path);
        }
    }
    if (status != STATUS_OK) {
        result_close(&file);
        return status;
    }
    *out = file;
    return STATUS_OK;
}

enum status result_open(const char *path, result **out)
{
    *out = NULL;
    if (!file_is_folder(path)) {
        return open_file(path, out);
    }
    char *inside = file_join(path, "result.json");
    if (!inside) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path");
    }
    const enum status status =
        file_exists(inside)
            ? open_file(inside, out)
            : FAIL(
                  STATUS_NOT_FOUND,
                  "the folder %s holds no result.json: name the folder that `pinline ablate` wrote "
                  "(its --out), or the file itself",
                  path);
    free(inside);
    return status;
}

void result_close(result **handle)
{
    struct result *file = *handle;
    if (!file) {
        return;
    }
    json_document_destroy(&file->document);
    free(file->cells);
    free(file->peers);
    free(file);
    *handle = NULL;
}

void result_write_seed(struct json_writer *writer, uint64_t seed)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)seed);
    json_key(writer, "seed");
    if (seed <= INT64_MAX) {
        json_uint(writer, seed);
    } else {
        json_string(writer, text);
    }
}

uint64_t result_read_seed(const struct json_value *protocol)
{
    const char *text = json_member_string(protocol, "seed", NULL);
    return text ? strtoull(text, NULL, 10) : (uint64_t)json_member_int(protocol, "seed", 1);
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
