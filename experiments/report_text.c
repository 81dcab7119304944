/* The terminal's report. */
#include <math.h>
#include <string.h>

#include "experiments/report.h"
#include "experiments/report_internal.h"

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

static void print_answer(const struct result_view *view, FILE *out, int columns)
{
    const struct json_value *diagnosis = json_member(view->root, "diagnosis");
    char text[600], line[800];
    snprintf(line, sizeof line, "%s.", view->advice.text);
    wrap(out, line, columns, 0);
    snprintf(line, sizeof line, "%s.", json_member_string(diagnosis, "headline", ""));
    wrap(out, line, columns, 0);
    if (view->effect_count > 0) {
        fprintf(out, "\nWhat each is worth, in samples/s:\n");
    }
    for (size_t i = 0; i < view->effect_count; i++) {
        report__effect_text(&view->effects[i], view->matters, text, sizeof text);
        snprintf(line, sizeof line, "- %s%s", text,
                 view->effects[i].primary ? " [named beforehand]" : "");
        wrap(out, line, columns, 2);
    }
    report__check_text(view, text, sizeof text);
    if (text[0]) {
        snprintf(line, sizeof line, "- %s", text);
        wrap(out, line, columns, 2);
    }
    const struct json_value *advice = json_member(diagnosis, "advice");
    if (advice && advice->count > 0) {
        fprintf(out, "\nWhat else could be changed:\n");
    }
    for (size_t i = 0; advice && i < advice->count; i++) {
        const double factor = json_member_double(&advice->items[i], "factor", 0);
        const char *what = json_member_string(&advice->items[i], "what", "");
        if (factor > 0) {
            snprintf(line, sizeof line, "- x%.2f predicted: %s", factor, what);
        } else {
            snprintf(line, sizeof line, "- not measured: %s", what);
        }
        wrap(out, line, columns, 2);
    }
}

/* --- Tables --------------------------------------------------------------------------------- */

/* Columns left for names beside `taken` columns of figures, 8 at least. */
static int name_width(const struct result_view *view, int columns, int taken)
{
    int width = 8;
    for (size_t c = 0; c < view->cell_count; c++) {
        const int length = (int)strlen(view->cells[c].name);
        width = length > width ? length : width;
    }
    for (size_t i = 0; i < view->peer_count; i++) {
        const int length = (int)strlen(view->peers[i].name);
        width = length > width ? length : width;
    }
    const int most = columns - taken > 8 ? columns - taken : 8;
    return width < most ? width : most;
}

static int at_least(int width, int least)
{
    return width < least ? least : width;
}

/* A name that is too long has a line of its own. */
static void print_name(FILE *out, const char *name, int width)
{
    if ((int)strlen(name) > width) {
        fprintf(out, "%s\n%-*s", name, width, "");
    } else {
        fprintf(out, "%-*s", width, name);
    }
}

enum { CELL_FIGURES = 60, STAGE_FIGURES = 62 };

static void print_cells(const struct result_view *view, FILE *out, int columns)
{
    const int width = name_width(view, columns, CELL_FIGURES);
    const struct result_cell *first = &view->cells[0];
    const bool bounds = view->rounds == 0;
    fprintf(out, "\n%-*s %9s %9s %9s %8s %8s %6s %9s\n", width, "cell", "samples/s", "least",
            "most", "epoch s", "ms/batch", "ratio", bounds ? "predicted" : "predict.");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        char predicted[32] = "-";
        if (cell->predicted > 0) {
            snprintf(predicted, sizeof predicted, "%.0f", cell->predicted);
        }
        print_name(out, cell->name, width);
        if (bounds) {
            fprintf(out, " %9s %9s %9s %8s %8s %6s %9s %s\n", "-", "-", "-", "-", "-", "-",
                    predicted, cell->bound);
            continue;
        }
        const double batches = report__batches(view, cell);
        fprintf(out, " %9.0f %9.0f %9.0f %8.3f %8.3f %6.3f %9s\n", cell->median, cell->lowest,
                cell->highest, cell->epoch_median,
                batches > 0 ? 1e3 * report__wall(view, cell) / batches : 0,
                first->median > 0 ? cell->median / first->median : 0, predicted);
    }
    for (size_t i = 0; i < view->peer_count; i++) {
        const struct result_peer *peer = &view->peers[i];
        print_name(out, peer->name, width);
        fprintf(out, " %9.0f %9.0f %9.0f %8s %8s", peer->median, peer->lowest, peer->highest, "-",
                "-");
        if (first->median > 0) {
            fprintf(out, " %6.3f", peer->median / first->median);
        }
        fprintf(out, "\n");
    }
    if (view->peer_count > 0) {
        fprintf(out, "The last %zu line%s another program's, as --peer gave them.\n",
                view->peer_count, view->peer_count == 1 ? " is" : "s are");
    }
}

static void print_stages(const struct result_view *view, FILE *out, int columns)
{
    static const char *const host[] = {"wait_batch", "copy", "issue", "wait_device", "rest"};
    static const char *const on_device[] = {"compute", "copy", "hidden", "idle"};
    const int width = at_least(name_width(view, columns, STAGE_FIGURES), 14);
    if (view->rounds == 0) {
        return;
    }
    fprintf(out, "\n%-*s %-29s  %-23s\n", width, "% of wall time", "host's thread", "device");
    fprintf(out, "%-*s %5s %5s %5s %5s %5s  %5s %5s %5s %5s %5s\n", width, "cell", "batch", "copy",
            "issue", "GPU", "rest", "busy", "copy", "hid.", "idle", "call");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double wall = report__wall(view, cell), to_percent = wall > 0 ? 100 / wall : 0;
        const double taken = report__sum(view, cell, "counters", "copy_device_s");
        double h[5], d[4];
        for (size_t i = 0; i < 5; i++) {
            h[i] = to_percent * report__sum(view, cell, "host", host[i]);
        }
        for (size_t i = 0; i < 4; i++) {
            d[i] = to_percent * report__sum(view, cell, "device", on_device[i]);
        }
        print_name(out, cell->name, width);
        if (!report__is_timed(cell)) {
            fprintf(out, "  not measured\n");
            continue;
        }
        fprintf(out, " %5.1f %5.1f %5.1f %5.1f %5.1f  %5.1f %5.1f %5.1f %5.1f %5.2f\n", h[0], h[1],
                h[2], h[3], h[4], d[0], d[1], d[2], d[3],
                taken > 0 ? report__sum(view, cell, "counters", "copy_call_s") / taken : 0);
    }
    wrap(out,
         "batch, GPU: the host waits for them. copy: it issues the copy, or waits for it. hid.: "
         "copying while a step ran. call: time inside copy calls over time of copying.",
         columns, 0);
}

void report_text(const struct result_view *view, FILE *out, int columns)
{
    char text[700];
    print_list(out, json_member(view->root, "failures"), "FAILED: ", columns);
    print_answer(view, out, columns);
    print_cells(view, out, columns);
    print_stages(view, out, columns);
    fputc('\n', out);
    report__job_text(view, text, sizeof text);
    wrap(out, text, columns, 0);
    report__spent_text(view, text, sizeof text);
    if (text[0]) {
        wrap(out, text, columns, 0);
    }
    report__cost_text(view, text, sizeof text);
    wrap(out, text, columns, 0);
    wrap(out, report__bits_text(view), columns, 0);
    print_list(out, json_member(view->root, "warnings"), "warning: ", columns);
}
