/* The plots of the result's page: cells, stages, time lines. */
#include <math.h>
#include <string.h>

#include "base/statistics.h"
#include "experiments/report_internal.h"

/* --- Cells: every round a point, the mean's interval a bar ----------------------------------- */

/* 95 % interval of one cell's mean log rate; the cell's own spread, not that of a difference. */
static void interval(const struct result_view *view, const struct result_cell *cell, double *low,
                     double *high)
{
    double logs[RESULT_MAX_ROUNDS];
    for (size_t i = 0; i < view->rounds; i++) {
        logs[i] = log(cell->rates[i]);
    }
    const double mean = statistics_mean(logs, view->rounds);
    double half = 0;
    if (view->rounds >= 2) {
        half = statistics_t_quantile(0.975, (double)view->rounds - 1) *
               statistics_deviation(logs, view->rounds) / sqrt((double)view->rounds);
    }
    *low = exp(mean - half);
    *high = exp(mean + half);
}

void report__html_cells(const struct result_view *view, FILE *out)
{
    double lowest = INFINITY, highest = 0;
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        lowest = fmin(lowest, cell->lowest);
        highest = fmax(highest, cell->highest);
        if (cell->predicted > 0) {
            lowest = fmin(lowest, cell->predicted);
            highest = fmax(highest, cell->predicted);
        }
    }
    for (size_t i = 0; i < view->peer_count; i++) {
        lowest = fmin(lowest, view->peers[i].lowest);
        highest = fmax(highest, view->peers[i].highest);
    }
    const double margin = (highest - lowest) * 0.05 + highest * 0.001;
    const double begin = fmax(lowest - margin, 0), scale = 100 / (highest + margin - begin);
    fprintf(
        out,
        "<h2>Samples per second</h2><div class=\"key soft\"><span><i style=\"background:"
        "var(--c0)\"></i>a round</span><span><i style=\"background:var(--c2)\"></i>median and "
        "95&nbsp;%% interval</span><span><i style=\"background:var(--c1)\"></i>predicted before "
        "the first round</span><span>axis %.0f to %.0f</span></div>\n",
        begin, highest + margin);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        double low = 0, high = 0;
        char value[48];
        interval(view, cell, &low, &high);
        /* Of a wide interval only the part that the rounds themselves span is drawn. */
        low = fmax(low, begin);
        high = fmin(high, highest + margin);
        report__html_begin_row(out, cell->name);
        fprintf(out,
                "<line x1=\"0%%\" x2=\"100%%\" y1=\"13\" y2=\"13\" stroke=\"var(--line)\"/><rect "
                "x=\"%.3f%%\" width=\"%.3f%%\" y=\"9\" height=\"8\" fill=\"var(--c2)\" "
                "opacity=\".35\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"4\" y2=\"22\" "
                "stroke=\"var(--c2)\" stroke-width=\"2\"/>",
                (low - begin) * scale, fmax((high - low) * scale, 0.1),
                (cell->median - begin) * scale, (cell->median - begin) * scale);
        if (cell->predicted > 0) {
            fprintf(
                out,
                "<line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"2\" y2=\"24\" stroke=\"var(--c1)\" "
                "stroke-width=\"2\" stroke-dasharray=\"3 2\"><title>predicted %.0f</title></line>",
                (cell->predicted - begin) * scale, (cell->predicted - begin) * scale,
                cell->predicted);
        }
        for (size_t i = 0; i < view->rounds; i++) {
            fprintf(
                out,
                "<circle cx=\"%.3f%%\" cy=\"%.1f\" r=\"3\" fill=\"%s\" opacity=\".75\"><title>round "
                "%d: %.1f%s</title></circle>",
                (cell->rates[i] - begin) * scale, 10 + 6 * (double)(i % 2),
                cell->runs[i].marked ? "var(--bad)" : "var(--c0)", cell->runs[i].round + 1,
                cell->rates[i], cell->runs[i].marked ? " (marked)" : "");
        }
        snprintf(value, sizeof value, "%.0f", cell->median);
        report__html_end_row(out, value);
    }
    for (size_t i = 0; i < view->peer_count; i++) {
        const struct result_peer *peer = &view->peers[i];
        char value[48];
        report__html_begin_row(out, peer->name);
        fprintf(out,
                "<line x1=\"0%%\" x2=\"100%%\" y1=\"13\" y2=\"13\" stroke=\"var(--line)\"/><line "
                "x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"13\" y2=\"13\" stroke=\"var(--c4)\" "
                "stroke-width=\"6\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"4\" y2=\"22\" "
                "stroke=\"var(--c4)\" stroke-width=\"3\"/>",
                (peer->lowest - begin) * scale, (peer->highest - begin) * scale,
                (peer->median - begin) * scale, (peer->median - begin) * scale);
        snprintf(value, sizeof value, "%.0f", peer->median);
        report__html_end_row(out, value);
    }
    if (view->peer_count > 0) {
        fprintf(out, "<p class=\"soft\">Grey: another program's rates, as --peer gave them, from "
                     "the least to the most.</p>\n");
    }
}

/* --- Stages --------------------------------------------------------------------------------- */

struct part {
    const char *member, *label, *colour;
};

static void print_key(FILE *out, const struct part *parts, size_t count)
{
    fprintf(out, "<div class=\"key soft\">");
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "<span><i style=\"background:%s\"></i>%s</span>", parts[i].colour,
                parts[i].label);
    }
    fprintf(out, "</div>\n");
}

static void print_bars(const struct result_view *view, FILE *out, const char *group,
                       const struct part *parts, size_t count)
{
    print_key(out, parts, count);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double wall = report__wall(view, cell);
        const double batches = report__batches(view, cell);
        double at = 0;
        char value[48];
        report__html_begin_row(out, cell->name);
        if (!report__is_timed(cell)) {
            report__html_end_row(out, "not measured");
            continue;
        }
        for (size_t i = 0; i < count && wall > 0; i++) {
            const double seconds = report__sum(view, cell, group, parts[i].member);
            const double share = 100 * seconds / wall;
            fprintf(
                out,
                "<rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"4\" height=\"18\" fill=\"%s\"><title>%s: "
                "%.1f %% of wall time, %.3f ms a batch</title></rect>",
                at, fmax(share, 0), parts[i].colour, parts[i].label, share,
                batches > 0 ? 1e3 * seconds / batches : 0);
            at += share;
        }
        snprintf(value, sizeof value, "%.3f ms", batches > 0 ? 1e3 * wall / batches : 0);
        report__html_end_row(out, value);
    }
}

void report__html_stages(const struct result_view *view, FILE *out)
{
    static const struct part host[] = {{"wait_batch", "waiting for a batch", "var(--c1)"},
                                       {"copy", "issuing or waiting for the copy", "var(--c3)"},
                                       {"issue", "issuing the step", "var(--c0)"},
                                       {"wait_device", "waiting for the device", "var(--c2)"},
                                       {"rest", "the rest", "var(--c4)"}};
    static const struct part on_device[] = {{"compute", "compute", "var(--c2)"},
                                            {"bare", "copying without compute", "var(--c3)"},
                                            {"idle", "idle", "var(--line)"}};
    fprintf(out, "<h2>Where the host's thread spends a batch</h2>");
    print_bars(view, out, "host", host, sizeof host / sizeof host[0]);
    fprintf(out, "<h2>What the GPU does meanwhile</h2>");
    print_key(out, on_device, 3);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double span = report__sum(view, cell, "device", "span");
        const double compute = report__sum(view, cell, "device", "compute");
        const double copy = report__sum(view, cell, "device", "copy");
        const double hidden = report__sum(view, cell, "device", "hidden");
        const double to_percent = span > 0 ? 100 / span : 0;
        char value[48];
        report__html_begin_row(out, cell->name);
        if (!report__is_timed(cell)) {
            report__html_end_row(out, "not measured");
            continue;
        }
        fprintf(out,
                "<rect x=\"0%%\" width=\"100%%\" y=\"4\" height=\"18\" fill=\"var(--line)\"/><rect "
                "x=\"0%%\" width=\"%.3f%%\" y=\"4\" height=\"18\" fill=\"var(--c2)\"/><rect "
                "x=\"%.3f%%\" width=\"%.3f%%\" y=\"4\" height=\"18\" fill=\"var(--c3)\"/>",
                compute * to_percent, compute * to_percent, fmax(copy - hidden, 0) * to_percent);
        snprintf(value, sizeof value, "%.0f %% busy", compute * to_percent);
        report__html_end_row(out, value);
    }
    const char *separator = "";
    fprintf(out, "<p class=\"soft\">Device time by events in the streams. Of the copying, ");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double copy = report__sum(view, cell, "device", "copy");
        if (report__is_timed(cell)) {
            fprintf(out, "%s%.0f&nbsp;%% (", separator,
                    copy > 0 ? 100 * report__sum(view, cell, "device", "hidden") / copy : 0);
            report__html_text(out, cell->name);
            fprintf(out, ")");
            separator = ", ";
        }
    }
    fprintf(out, " ran while a step was running.</p>\n");
}

/* --- Time lines ----------------------------------------------------------------------------- */

static const struct json_value *timeline_of(const struct result_cell *cell)
{
    return cell->run_count ? json_member(cell->runs[0].object, "timeline") : NULL;
}

/* Place and colour of a bar. */
struct bar {
    const char *lane, *name, *colour;
    int y;
};
static const struct bar bars[] = {{"host", "wait for a batch", "var(--c1)", 2},
                                  {"host", "copy call", "var(--c3)", 2},
                                  {"host", "issue", "var(--c0)", 2},
                                  {"host", "wait for the device", "var(--c4)", 2},
                                  {"copy", "copy", "var(--c3)", 15},
                                  {"compute", "step", "var(--c2)", 28}};
enum { BARS = sizeof bars / sizeof bars[0] };

static void print_span(const struct json_value *span, double longest, FILE *out)
{
    const double from = json_member_double(span, "from", 0), to = json_member_double(span, "to", 0);
    for (size_t i = 0; i < BARS; i++) {
        if (strcmp(json_member_string(span, "lane", ""), bars[i].lane) == 0 &&
            strcmp(json_member_string(span, "name", ""), bars[i].name) == 0) {
            fprintf(out,
                    "<rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"%d\" height=\"10\" fill=\"%s\" "
                    "stroke=\"var(--page)\" stroke-width=\".5\"><title>%s %.3f ms</title></rect>",
                    100 * from / longest, fmax(100 * (to - from) / longest, 0.1), bars[i].y,
                    bars[i].colour, bars[i].name, 1e3 * (to - from));
        }
    }
}

void report__html_timelines(const struct result_view *view, FILE *out)
{
    double longest = 0;
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct json_value *spans = timeline_of(&view->cells[c]);
        for (size_t i = 0; spans && i < spans->count; i++) {
            longest = fmax(longest, json_member_double(&spans->items[i], "to", 0));
        }
    }
    if (longest <= 0) {
        return;
    }
    fprintf(out,
            "<h2>The first steps of an epoch</h2><p class=\"soft\">Three lanes: the host's thread, "
            "copies, steps. Gaps in the last are an idle GPU. The width is %.1f ms.</p><div "
            "class=\"key soft\">",
            longest * 1e3);
    for (size_t i = 0; i < BARS; i++) {
        fprintf(out, "<span><i style=\"background:%s\"></i>%s%s</span>", bars[i].colour,
                i < 4 ? "host: " : "", bars[i].name);
    }
    fprintf(out, "</div>\n<div class=\"lanes\">");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct json_value *spans = timeline_of(&view->cells[c]);
        report__html_begin_row(out, view->cells[c].name);
        for (size_t i = 0; spans && i < spans->count; i++) {
            print_span(&spans->items[i], longest, out);
        }
        report__html_end_row(out, "");
    }
    fprintf(out, "</div>\n");
}
