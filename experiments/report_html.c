/*
 * The result as one page. Plots are rows of SVG whose coordinates are shares of the width, so that
 * marks and text keep their size on a phone. Nothing is fetched and nothing needs a script.
 */
#include <math.h>
#include <string.h>

#include "experiments/report.h"
#include "experiments/report_internal.h"

static const char style[] =
    ":root{color-scheme:light dark;--ink:#1b1f24;--soft:#59636e;--line:#d1d9e0;--page:#fff;"
    "--panel:#f6f8fa;--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#9a9fa6;--bad:#cf222e}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;"
    "--page:#0d1117;--panel:#151b23;--c0:#58a6ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;"
    "--c4:#6e7681;--bad:#ff7b72}}"
    "*{box-sizing:border-box}body{margin:0 auto;padding:1rem;max-width:64rem;background:var(--page);"
    "color:var(--ink);font:16px/1.5 system-ui,sans-serif}h1{font-size:1.4rem;margin:.2rem 0 .8rem}"
    "h2{font-size:1.1rem;margin:2rem 0 .5rem}p{margin:.4rem 0}.soft{color:var(--soft);"
    "font-size:.875rem}.bad{color:var(--bad);font-weight:600}.lead{font-size:1.05rem}"
    "ul{padding-left:1.2rem;margin:.4rem 0}.wide{overflow-x:auto}table{border-collapse:collapse;"
    "font-variant-numeric:tabular-nums;font-size:.875rem;width:100%}th,td{padding:.3rem .6rem;"
    "border-bottom:1px solid var(--line);text-align:right;white-space:nowrap}th:first-child,"
    "td:first-child{text-align:left}.row{display:grid;grid-template-columns:9.5rem 1fr 6.5rem;"
    "gap:.6rem;align-items:center;min-height:1.9rem}.row span:last-child{text-align:right;"
    "font-variant-numeric:tabular-nums}.row svg{width:100%;height:26px;display:block}"
    ".lanes .row svg{height:40px}.row span:last-child{font-size:.875rem}"
    ".name{overflow-wrap:anywhere;font-size:.875rem}.key{display:flex;flex-wrap:wrap;gap:.2rem 1rem;"
    "margin:.4rem 0}.key i{display:inline-block;width:.8rem;height:.8rem;border-radius:2px;"
    "margin-right:.35rem;vertical-align:-.05rem}details{margin:.6rem 0}summary{cursor:pointer}"
    ".long{white-space:normal;overflow-wrap:anywhere}code,pre{font-size:.8125rem;overflow-wrap:anywhere;white-space:pre-wrap}pre{background:"
    "var(--panel);padding:.6rem;border-radius:6px}@media(max-width:40rem){.row{grid-template-columns:"
    "1fr auto;margin-bottom:.7rem;gap:.1rem .6rem}.row svg{grid-column:1/3;grid-row:2}}";

static void escape(FILE *out, const char *text)
{
    for (; text && *text; text++) {
        switch (*text) {
        case '&':
            fputs("&amp;", out);
            break;
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        default:
            fputc(*text, out);
        }
    }
}

static void begin_row(FILE *out, const char *name)
{
    fprintf(out, "<div class=\"row\"><span class=\"name\">");
    escape(out, name);
    fprintf(out, "</span><svg role=\"img\">");
}

static void end_row(FILE *out, const char *value)
{
    fprintf(out, "</svg><span>%s</span></div>\n", value);
}

static void print_list(FILE *out, const struct json_value *list, const char *css)
{
    if (!list || list->count == 0) {
        return;
    }
    fprintf(out, "<ul class=\"%s\">", css);
    for (size_t i = 0; i < list->count; i++) {
        fprintf(out, "<li>");
        escape(out, list->items[i].string);
        fprintf(out, "</li>");
    }
    fprintf(out, "</ul>\n");
}

/* --- The answer ----------------------------------------------------------------------------- */

/* An axis of gains around no difference, as shares. Intervals that go far beyond the effects
 * themselves are cut at its ends. */
struct axis {
    double left, right, matters;
};

static double axis_place(const struct axis *axis, double ratio)
{
    const double at = fmin(fmax(ratio - 1, -axis->left), axis->right);
    return 100 * (at + axis->left) / (axis->left + axis->right);
}

/* An effect as a point and its interval, with what does not matter shaded. */
static void print_effect(const struct effect *effect, const struct axis *axis, FILE *out)
{
    const double zero = axis_place(axis, 1);
    const double at = axis_place(axis, effect->ratio.ratio);
    const char *colour = effect->verdict == VERDICT_WORTH_IT ? "var(--c2)"
                         : effect->verdict == VERDICT_COSTS  ? "var(--bad)"
                                                             : "var(--soft)";
    char value[48];
    begin_row(out, effect->name);
    fprintf(out,
            "<rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"0\" height=\"26\" fill=\"var(--line)\" "
            "opacity=\".5\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"26\" "
            "stroke=\"var(--soft)\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"13\" y2=\"13\" "
            "stroke=\"%s\" stroke-width=\"3\"/><circle cx=\"%.3f%%\" cy=\"13\" r=\"5\" "
            "fill=\"%s\"/>",
            zero, axis_place(axis, 1 + axis->matters) - zero, zero, zero,
            axis_place(axis, effect->ratio.low), axis_place(axis, effect->ratio.high), colour, at,
            colour);
    snprintf(value, sizeof value, "%+.1f&nbsp;%%", report__percent(effect->ratio.ratio));
    end_row(out, value);
}

static void print_effects(const struct result_view *view, FILE *out)
{
    struct axis axis = {.right = 2 * view->matters, .matters = view->matters};
    char text[600];
    for (size_t i = 0; i < view->effect_count; i++) {
        axis.right = fmax(axis.right, 1.5 * fabs(view->effects[i].ratio.ratio - 1));
    }
    axis.left = axis.right * 0.1;
    for (size_t i = 0; i < view->effect_count; i++) {
        axis.left = fmax(axis.left, fmin(1 - view->effects[i].ratio.low, axis.right));
    }
    fprintf(out,
            "<h2>What each is worth, in samples per second</h2><p class=\"soft\">Points are mean "
            "ratios over rounds, lines their intervals, from %+.0f to %+.0f&nbsp;%%; the shaded "
            "part is less than the %.3g&nbsp;%% that matter.</p>\n",
            -100 * axis.left, 100 * axis.right, 100 * view->matters);
    for (size_t i = 0; i < view->effect_count; i++) {
        print_effect(&view->effects[i], &axis, out);
    }
    if (view->check.name) {
        print_effect(&view->check, &axis, out);
    }
    fprintf(out, "<ul>");
    for (size_t i = 0; i < view->effect_count; i++) {
        report__effect_text(&view->effects[i], view->matters, text, sizeof text);
        fprintf(out, "<li>");
        escape(out, text);
        fprintf(out, "%s</li>", view->effects[i].primary ? " <b>(named beforehand)</b>" : "");
    }
    report__check_text(view, text, sizeof text);
    if (text[0]) {
        fprintf(out, "<li>");
        escape(out, text);
        fprintf(out, "</li>");
    }
    fprintf(out, "</ul>\n");
}

static void print_answer(const struct result_view *view, FILE *out)
{
    const struct json_value *diagnosis = json_member(view->root, "diagnosis");
    print_list(out, json_member(view->root, "failures"), "bad");
    fprintf(out, "<p class=\"lead\"><b>");
    escape(out, view->advice.text);
    fprintf(out, ".</b></p>\n<p>");
    escape(out, json_member_string(diagnosis, "headline", ""));
    fprintf(out, ".</p>\n");
    if (view->effect_count > 0) {
        print_effects(view, out);
    }
    const struct json_value *advice = json_member(diagnosis, "advice");
    if (advice && advice->count > 0) {
        fprintf(out, "<h2>What else could be changed</h2><ul>");
        for (size_t i = 0; i < advice->count; i++) {
            const double factor = json_member_double(&advice->items[i], "factor", 0);
            fprintf(out, "<li>");
            escape(out, json_member_string(&advice->items[i], "what", ""));
            if (factor > 0) {
                fprintf(out, ": <b>&times;%.2f</b> predicted", factor);
            } else {
                fprintf(out, " (not measured)");
            }
            fprintf(out, "</li>");
        }
        fprintf(out, "</ul>\n");
    }
}

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

static void print_cells(const struct result_view *view, FILE *out)
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
        begin_row(out, cell->name);
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
        end_row(out, value);
    }
    for (size_t i = 0; i < view->peer_count; i++) {
        const struct result_peer *peer = &view->peers[i];
        char value[48];
        begin_row(out, peer->name);
        fprintf(out,
                "<line x1=\"0%%\" x2=\"100%%\" y1=\"13\" y2=\"13\" stroke=\"var(--line)\"/><line "
                "x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"13\" y2=\"13\" stroke=\"var(--c4)\" "
                "stroke-width=\"6\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"4\" y2=\"22\" "
                "stroke=\"var(--c4)\" stroke-width=\"3\"/>",
                (peer->lowest - begin) * scale, (peer->highest - begin) * scale,
                (peer->median - begin) * scale, (peer->median - begin) * scale);
        snprintf(value, sizeof value, "%.0f", peer->median);
        end_row(out, value);
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
        begin_row(out, cell->name);
        if (!report__is_timed(cell)) {
            end_row(out, "not measured");
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
        end_row(out, value);
    }
}

static void print_stages(const struct result_view *view, FILE *out)
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
        begin_row(out, cell->name);
        if (!report__is_timed(cell)) {
            end_row(out, "not measured");
            continue;
        }
        fprintf(out,
                "<rect x=\"0%%\" width=\"100%%\" y=\"4\" height=\"18\" fill=\"var(--line)\"/><rect "
                "x=\"0%%\" width=\"%.3f%%\" y=\"4\" height=\"18\" fill=\"var(--c2)\"/><rect "
                "x=\"%.3f%%\" width=\"%.3f%%\" y=\"4\" height=\"18\" fill=\"var(--c3)\"/>",
                compute * to_percent, compute * to_percent, fmax(copy - hidden, 0) * to_percent);
        snprintf(value, sizeof value, "%.0f %% busy", compute * to_percent);
        end_row(out, value);
    }
    const char *separator = "";
    fprintf(out, "<p class=\"soft\">Device time by events in the streams. Of the copying, ");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double copy = report__sum(view, cell, "device", "copy");
        if (report__is_timed(cell)) {
            fprintf(out, "%s%.0f&nbsp;%% (", separator,
                    copy > 0 ? 100 * report__sum(view, cell, "device", "hidden") / copy : 0);
            escape(out, cell->name);
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

static void print_timelines(const struct result_view *view, FILE *out)
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
        begin_row(out, view->cells[c].name);
        for (size_t i = 0; spans && i < spans->count; i++) {
            print_span(&spans->items[i], longest, out);
        }
        end_row(out, "");
    }
    fprintf(out, "</div>\n");
}

/* --- Tables --------------------------------------------------------------------------------- */

static void print_table(const struct result_view *view, FILE *out)
{
    const double first = view->cells[0].median;
    fprintf(out,
            "<h2>All figures</h2><div class=\"wide\"><table><tr><th>cell</th><th>samples/s</th><th>"
            "min</th><th>max</th><th>epoch s</th><th>ms/batch</th><th>to first</th><th>predicted"
            "</th><th>off by</th><th>trivial</th><th>bound</th></tr>\n");
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double batches = report__batches(view, cell);
        fprintf(out, "<tr><td>");
        escape(out, cell->name);
        fprintf(
            out,
            "</td><td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td>",
            cell->median, cell->lowest, cell->highest, cell->epoch_median,
            batches > 0 ? 1e3 * report__wall(view, cell) / batches : 0,
            first > 0 ? cell->median / first : 0);
        if (cell->predicted > 0 && cell->median > 0) {
            fprintf(out, "<td>%.0f</td><td>%+.1f&nbsp;%%</td><td>%.0f</td><td>", cell->predicted,
                    report__percent(cell->predicted / cell->median), cell->predicted_trivial);
            escape(out, cell->bound);
            fprintf(out, "</td></tr>\n");
        } else {
            fprintf(out, "<td></td><td></td><td></td><td></td></tr>\n");
        }
    }
    fprintf(out, "</table></div>\n");
}

static void print_members(FILE *out, const struct json_value *object, const char *prefix, int depth)
{
    for (size_t i = 0; i < object->count; i++) {
        const struct json_value *value = &object->items[i];
        char name[200];
        snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? " " : "", object->names[i]);
        if (value->kind == JSON_OBJECT && depth < 3) {
            print_members(out, value, name, depth + 1);
            continue;
        }
        fprintf(out, "<tr><td>");
        escape(out, name);
        fprintf(out, "</td><td class=\"long\">");
        if (value->kind == JSON_STRING) {
            escape(out, value->string);
        } else if (value->kind == JSON_NUMBER) {
            fprintf(out, "%.10g", value->number);
        } else if (value->kind == JSON_BOOL) {
            fprintf(out, "%s", value->boolean ? "yes" : "no");
        } else if (value->kind != JSON_NULL) {
            fprintf(out, "(%zu entries)", value->count);
        }
        fprintf(out, "</td></tr>");
    }
}

static void print_object(const struct result_view *view, FILE *out, const char *member,
                         const char *title)
{
    const struct json_value *object = json_member(view->root, member);
    if (!object || object->kind != JSON_OBJECT) {
        return;
    }
    fprintf(out, "<details><summary>%s</summary><div class=\"wide\"><table>", title);
    print_members(out, object, "", 0);
    fprintf(out, "</table></div></details>\n");
}

void report_html(const struct result_view *view, FILE *out)
{
    char text[700];
    fprintf(
        out,
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
        "content=\"width=device-width,initial-scale=1\"/><title>pinline ablation</title><style>%s"
        "</style></head>\n<body><h1>What feeding this GPU differently is worth</h1>\n",
        style);
    print_answer(view, out);
    if (view->rounds > 0) {
        print_cells(view, out);
        print_stages(view, out);
        print_timelines(view, out);
    }
    print_table(view, out);
    print_list(out, json_member(view->root, "warnings"), "soft");
    fprintf(out, "<p class=\"soft\">");
    report__job_text(view, text, sizeof text);
    escape(out, text);
    fprintf(out, " ");
    report__spent_text(view, text, sizeof text);
    escape(out, text);
    fprintf(out, " ");
    report__cost_text(view, text, sizeof text);
    escape(out, text);
    fprintf(out, " %s ", report__bits_text(view));
    escape(out, json_member_string(view->root, "created", ""));
    fprintf(out, "</p><pre>");
    escape(out, json_member_string(view->root, "command", ""));
    fprintf(out, "</pre>\n");
    print_object(view, out, "machine", "Machine");
    print_object(view, out, "device", "Device");
    print_object(view, out, "data", "Data");
    print_object(view, out, "protocol", "Protocol");
    print_object(view, out, "ceilings", "What each part reaches alone (seconds a batch)");
    print_object(view, out, "job", "Settings of the job");
    fprintf(out, "</body></html>\n");
}
