/*
 * The result as one page. Plots are rows of SVG whose coordinates are shares of the width, so that
 * marks and text keep their size on a phone. Nothing is fetched and nothing needs a script. The plots
 * of cells, stages and time lines are in report_plots.c.
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

void report__html_text(FILE *out, const char *text)
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

void report__html_begin_row(FILE *out, const char *name)
{
    fprintf(out, "<div class=\"row\"><span class=\"name\">");
    report__html_text(out, name);
    fprintf(out, "</span><svg role=\"img\">");
}

void report__html_end_row(FILE *out, const char *value)
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
        report__html_text(out, list->items[i].string);
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
    report__html_begin_row(out, effect->name);
    fprintf(out,
            "<rect x=\"%.3f%%\" width=\"%.3f%%\" y=\"0\" height=\"26\" fill=\"var(--line)\" "
            "opacity=\".5\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"0\" y2=\"26\" "
            "stroke=\"var(--soft)\"/><line x1=\"%.3f%%\" x2=\"%.3f%%\" y1=\"13\" y2=\"13\" "
            "stroke=\"%s\" stroke-width=\"3\"/><circle cx=\"%.3f%%\" cy=\"13\" r=\"5\" "
            "fill=\"%s\"/>",
            zero, axis_place(axis, 1 + axis->matters) - zero, zero, zero,
            axis_place(axis, effect->ratio.low), axis_place(axis, effect->ratio.high), colour, at,
            colour);
    if (effect->ratio.low < 1 - axis->left) {
        fprintf(out, "<text x=\"0\" y=\"19\" font-size=\"20\" fill=\"%s\">&#8249;</text>", colour);
    }
    if (effect->ratio.high > 1 + axis->right) {
        fprintf(out,
                "<text x=\"100%%\" y=\"19\" font-size=\"20\" text-anchor=\"end\" "
                "fill=\"%s\">&#8250;</text>",
                colour);
    }
    snprintf(value, sizeof value, "%+.1f&nbsp;%%", report__percent(effect->ratio.ratio));
    report__html_end_row(out, value);
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
    fprintf(
        out,
        "<h2>What each is worth, in samples per second</h2><p class=\"soft\">Points are mean "
        "ratios over rounds, lines their intervals, from %+.0f to %+.0f&nbsp;%%, with &#8249; or "
        "&#8250; where one goes on; the shaded "
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
        report__html_text(out, text);
        fprintf(out, "%s</li>", view->effects[i].primary ? " <b>(named beforehand)</b>" : "");
    }
    report__check_text(view, text, sizeof text);
    if (text[0]) {
        fprintf(out, "<li>");
        report__html_text(out, text);
        fprintf(out, "</li>");
    }
    fprintf(out, "</ul>\n");
}

static void print_answer(const struct result_view *view, FILE *out)
{
    const struct json_value *diagnosis = json_member(view->root, "diagnosis");
    print_list(out, json_member(view->root, "failures"), "bad");
    fprintf(out, "<p class=\"lead\"><b>");
    report__html_text(out, view->advice.text);
    fprintf(out, ".</b></p>\n<p>");
    report__html_text(out, json_member_string(diagnosis, "headline", ""));
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
            report__html_text(out, json_member_string(&advice->items[i], "what", ""));
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
        report__html_text(out, cell->name);
        fprintf(
            out,
            "</td><td>%.0f</td><td>%.0f</td><td>%.0f</td><td>%.3f</td><td>%.3f</td><td>%.3f</td>",
            cell->median, cell->lowest, cell->highest, cell->epoch_median,
            batches > 0 ? 1e3 * report__wall(view, cell) / batches : 0,
            first > 0 ? cell->median / first : 0);
        if (cell->predicted > 0 && cell->median > 0) {
            fprintf(out, "<td>%.0f</td><td>%+.1f&nbsp;%%</td><td>%.0f</td><td>", cell->predicted,
                    report__percent(cell->predicted / cell->median), cell->predicted_trivial);
            report__html_text(out, cell->bound);
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
        report__html_text(out, name);
        fprintf(out, "</td><td class=\"long\">");
        if (value->kind == JSON_STRING) {
            report__html_text(out, value->string);
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
        report__html_cells(view, out);
        report__html_stages(view, out);
        report__html_timelines(view, out);
    }
    print_table(view, out);
    print_list(out, json_member(view->root, "warnings"), "soft");
    fprintf(out, "<p class=\"soft\">");
    report__job_text(view, text, sizeof text);
    report__html_text(out, text);
    fprintf(out, " ");
    report__spent_text(view, text, sizeof text);
    report__html_text(out, text);
    fprintf(out, " ");
    report__cost_text(view, text, sizeof text);
    report__html_text(out, text);
    fprintf(out, " %s ", report__bits_text(view));
    report__html_text(out, json_member_string(view->root, "created", ""));
    fprintf(out, "</p><pre>");
    report__html_text(out, json_member_string(view->root, "command", ""));
    fprintf(out, "</pre>\n");
    print_object(view, out, "machine", "Machine");
    print_object(view, out, "device", "Device");
    print_object(view, out, "data", "Data");
    print_object(view, out, "protocol", "Protocol");
    print_object(view, out, "ceilings", "What each part reaches alone (seconds a batch)");
    print_object(view, out, "job", "Settings of the job");
    fprintf(out, "</body></html>\n");
}
