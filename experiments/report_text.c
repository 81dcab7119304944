/* The terminal's report, the rounds as CSV, and what reports share. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/report.h"
#include "experiments/report_internal.h"

double report__percent(double ratio)
{
    return (ratio - 1) * 100;
}

double report__sum(const struct result_view *view, const struct result_cell *cell,
                   const char *group, const char *name)
{
    double sum = 0;
    for (size_t i = 0; i < view->rounds; i++) {
        sum += json_member_double(json_member(cell->runs[i].object, group), name, 0);
    }
    return sum;
}

double report__wall(const struct result_view *view, const struct result_cell *cell)
{
    double sum = 0;
    for (size_t i = 0; i < view->rounds; i++) {
        const struct json_value *epochs = json_member(cell->runs[i].object, "epoch_s");
        for (size_t k = 0; epochs && k < epochs->count; k++) {
            sum += epochs->items[k].number;
        }
    }
    return sum;
}

double report__batches(const struct result_view *view, const struct result_cell *cell)
{
    return report__sum(view, cell, "counters", "batches");
}

const struct effect *report__best(const struct result_view *view)
{
    /* The ladder: each step is kept only when it is worth it. */
    static const char *const ladder[] = {"both+stream/both", "both/default", "pin/default"};
    for (size_t i = 0; i < sizeof ladder / sizeof ladder[0]; i++) {
        const struct effect *effect = result_find_effect(view, ladder[i]);
        if (effect && effect->verdict == VERDICT_WORTH_IT) {
            return effect;
        }
    }
    return NULL;
}

/* Writes `text` broken at spaces, later lines indented. */
static void wrap(FILE *out, const char *text, int columns, int indent)
{
    int at = 0;
    while (*text) {
        const int word = (int)strcspn(text, " ");
        if (at > indent && at + 1 + word > columns) {
            fprintf(out, "\n%*s", indent, "");
            at = indent;
        } else if (at > 0 && at != indent) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", word, text);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_list(FILE *out, const struct json_value *list, const char *prefix, int columns)
{
    char line[600];
    for (size_t i = 0; list && i < list->count; i++) {
        snprintf(line, sizeof line, "%s%s", prefix,
                 list->items[i].string ? list->items[i].string : "");
        wrap(out, line, columns, 2);
    }
}

void report__effect_text(const struct effect *effect, double matters, char *text, size_t bytes)
{
    const double low = report__percent(effect->ratio.low);
    const double high = report__percent(effect->ratio.high);
    size_t used = (size_t)snprintf(text, bytes, "%s: %+.1f %% (%+.1f to %+.1f, %.4g %% interval)",
                                   effect->name, report__percent(effect->ratio.ratio), low, high,
                                   100 * effect->confidence);
    if (used >= bytes) {
        return;
    }
    used += (size_t)snprintf(text + used, bytes - used, ", %s", verdict_text(effect->verdict));
    if (effect->verdict != VERDICT_UNDECIDED || used >= bytes) {
        return;
    }
    if (effect->tests_disagree) {
        used +=
            (size_t)snprintf(text + used, bytes - used, " (t test and sign-flip test disagree)");
    } else {
        used += (size_t)snprintf(text + used, bytes - used,
                                 ": up to %+.1f %% may be hidden where %+.3g %% matter", high,
                                 100 * matters);
    }
    if (effect->rounds_high > 0 && used < bytes) {
        snprintf(text + used, bytes - used, "; %d to %d rounds would probably settle it",
                 effect->rounds_low, effect->rounds_high);
    } else if (used < bytes) {
        snprintf(text + used, bytes - used, "; more rounds would probably not settle it");
    }
}

static void print_answer(const struct result_view *view, FILE *out, int columns)
{
    const struct json_value *diagnosis = json_member(view->root, "diagnosis");
    char line[600];
    snprintf(line, sizeof line, "%s.", json_member_string(diagnosis, "headline", ""));
    wrap(out, line, columns, 0);
    for (size_t i = 0; i < view->effect_count; i++) {
        char text[500];
        report__effect_text(&view->effects[i], view->matters, text, sizeof text);
        snprintf(line, sizeof line, "- %s%s", text,
                 view->effects[i].primary ? " [the primary effect]" : "");
        wrap(out, line, columns, 2);
    }
    const struct json_value *advice = json_member(diagnosis, "advice");
    for (size_t i = 0; advice && i < advice->count; i++) {
        const double factor = json_member_double(&advice->items[i], "factor", 0);
        const char *what = json_member_string(&advice->items[i], "what", "");
        if (factor > 0) {
            snprintf(line, sizeof line, "> x%.2f predicted: %s", factor, what);
        } else {
            snprintf(line, sizeof line, "> try: %s", what);
        }
        wrap(out, line, columns, 2);
    }
}

static int name_width(const struct result_view *view)
{
    size_t width = 12;
    for (size_t c = 0; c < view->cell_count; c++) {
        const size_t length = strlen(view->cells[c].name);
        width = length > width ? length : width;
    }
    return (int)width;
}

static void print_cells(const struct result_view *view, FILE *out)
{
    const int width = name_width(view);
    const struct result_cell *first = &view->cells[0];
    fprintf(out, "\n%-*s %11s %20s %9s %9s %9s %11s\n", width, "cell", "samples/s", "min - max",
            "epoch s", "ms/batch", "/first", "predicted");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        char range[48], predicted[32] = "";
        snprintf(range, sizeof range, "%.0f - %.0f", cell->lowest, cell->highest);
        if (cell->predicted > 0) {
            snprintf(predicted, sizeof predicted, "%.0f", cell->predicted);
        }
        if (view->rounds == 0) {
            fprintf(out, "%-*s %11s %20s %9s %9s %9s %11s  %s\n", width, cell->name, "", "", "", "",
                    "", predicted, cell->bound);
            continue;
        }
        const double batches = report__batches(view, cell);
        fprintf(out, "%-*s %11.0f %20s %9.3f %9.3f %9.3f %11s\n", width, cell->name, cell->median,
                range, cell->epoch_median,
                batches > 0 ? 1e3 * report__wall(view, cell) / batches : 0,
                first->median > 0 ? cell->median / first->median : 0, predicted);
    }
}

static void print_stages(const struct result_view *view, FILE *out)
{
    const int width = name_width(view);
    if (view->rounds == 0) {
        return;
    }
    fprintf(
        out, "\n%-*s %s\n%-*s %7s %7s %7s %7s %7s | %7s %7s %7s %7s | %9s\n", width, "",
        "share of wall time, host's thread            device                          copy calls",
        width, "cell", "batch", "copy", "issue", "device", "rest", "compute", "copy", "hidden",
        "idle", "held host");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double wall = report__wall(view, cell), to_percent = wall > 0 ? 100 / wall : 0;
        static const char *const host[] = {"wait_batch", "copy", "issue", "wait_device", "rest"};
        static const char *const device_parts[] = {"compute", "copy", "hidden", "idle"};
        fprintf(out, "%-*s", width, cell->name);
        for (size_t i = 0; i < 5; i++) {
            fprintf(out, " %6.1f%%", to_percent * report__sum(view, cell, "host", host[i]));
        }
        fprintf(out, " |");
        for (size_t i = 0; i < 4; i++) {
            fprintf(out, " %6.1f%%",
                    to_percent * report__sum(view, cell, "device", device_parts[i]));
        }
        const double taken = report__sum(view, cell, "counters", "copy_device_s");
        fprintf(out, " | %8.0f%%\n",
                taken > 0 ? 100 * report__sum(view, cell, "counters", "copy_call_s") / taken : 0);
    }
}

static void print_costs(const struct result_view *view, FILE *out)
{
    for (size_t c = 0; c < view->cell_count && view->rounds > 0; c++) {
        const struct json_value *run = view->cells[c].runs[0].object;
        if (json_member_bool(run, "page_locked", false)) {
            fprintf(out, "\nPage-locking takes %.1f ms and %.1f MB.\n",
                    1e3 * json_member_double(run, "lock_s", 0),
                    json_member_double(run, "slots_bytes", 0) / 1e6);
            return;
        }
    }
}

void report_text(const struct result_view *view, FILE *out, int columns)
{
    const struct json_value *protocol = json_member(view->root, "protocol");
    print_list(out, json_member(view->root, "failures"), "FAILED: ", columns);
    print_answer(view, out, columns);
    print_cells(view, out);
    print_stages(view, out);
    print_costs(view, out);
    if (view->rounds > 0) {
        fprintf(
            out,
            "%zu rounds of %lld epochs, %lld samples in %lld batches of %.2f MB; medians; order "
            "seed %lld\n",
            view->rounds, (long long)json_member_int(protocol, "epochs", 0),
            (long long)json_member_int(protocol, "samples", 0),
            (long long)json_member_int(protocol, "batches", 0),
            json_member_double(protocol, "batch_bytes", 0) / 1e6,
            (long long)json_member_int(protocol, "seed", 0));
        if (view->failures == 0) {
            fprintf(out, "The losses of all steps and the final weights are the same bits in every "
                         "cell that does not change the arithmetic.\n");
        }
    }
    print_list(out, json_member(view->root, "warnings"), "warning: ", columns);
}

void report_csv(const struct result_view *view, FILE *out)
{
    static const char *const groups[][2] = {{"host", "wait_batch"},
                                            {"host", "copy"},
                                            {"host", "issue"},
                                            {"host", "wait_device"},
                                            {"host", "rest"},
                                            {"device", "span"},
                                            {"device", "compute"},
                                            {"device", "copy"},
                                            {"device", "hidden"},
                                            {"device", "idle"},
                                            {"counters", "copy_call_s"},
                                            {"counters", "copy_device_s"},
                                            {"counters", "waits_copy"},
                                            {"cpu", "main_s"},
                                            {"cpu", "workers_s"}};
    enum { GROUPS = sizeof groups / sizeof groups[0] };
    fprintf(out,
            "round,place,cell,samples_per_s,epoch_s,loss_hash,weights_hash,page_locked,marked");
    for (size_t g = 0; g < GROUPS; g++) {
        fprintf(out, ",%s_%s", groups[g][0], groups[g][1]);
    }
    fputc('\n', out);
    for (size_t i = 0; i < view->rounds; i++) {
        for (size_t c = 0; c < view->cell_count; c++) {
            const struct result_run *run = &view->cells[c].runs[i];
            const struct json_value *epochs = json_member(run->object, "epoch_s");
            double seconds = 0;
            for (size_t k = 0; epochs && k < epochs->count; k++) {
                seconds += epochs->items[k].number / (double)epochs->count;
            }
            fprintf(out, "%d,%d,\"%s\",%.6g,%.9g,%s,%s,%d,%d", run->round, run->place,
                    view->cells[c].name, run->samples_per_s, seconds, run->loss_hash,
                    run->weights_hash, json_member_bool(run->object, "page_locked", false),
                    run->marked);
            for (size_t g = 0; g < GROUPS; g++) {
                fprintf(
                    out, ",%.9g",
                    json_member_double(json_member(run->object, groups[g][0]), groups[g][1], 0));
            }
            fputc('\n', out);
        }
    }
}
