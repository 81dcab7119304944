/* The result as Markdown. */
#include <string.h>

#include "experiments/report.h"
#include "experiments/report_internal.h"

/* Names may hold characters that Markdown takes for its own. */
static void print_cell_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (strchr("|\\<*_`[", *text)) {
            fputc('\\', out);
        }
        fputc(*text, out);
    }
}

static void print_list(FILE *out, const struct json_value *list, const char *prefix)
{
    for (size_t i = 0; list && i < list->count; i++) {
        if (list->items[i].string) {
            fprintf(out, "%s%s\n", prefix, list->items[i].string);
        }
    }
}

static void print_table(const struct result_view *view, FILE *out)
{
    fprintf(out,
            "\n| cell | samples/s | min | max | epoch s | ms/batch | to first | predicted | bound "
            "|\n|---|---|---|---|---|---|---|---|---|\n");
    const double first = view->cells[0].median;
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        const double batches = report__batches(view, cell);
        fprintf(out, "| ");
        print_cell_text(out, cell->name);
        fprintf(out, " | %.0f | %.0f | %.0f | %.3f | %.3f | %.3f |", cell->median, cell->lowest,
                cell->highest, cell->epoch_median,
                batches > 0 ? 1e3 * report__wall(view, cell) / batches : 0,
                first > 0 ? cell->median / first : 0);
        if (cell->predicted > 0) {
            fprintf(out, " %.0f | %s |\n", cell->predicted, cell->bound);
        } else {
            fprintf(out, " | |\n");
        }
    }
}

static void print_peers(const struct result_view *view, FILE *out)
{
    for (size_t i = 0; i < view->peer_count; i++) {
        const struct result_peer *peer = &view->peers[i];
        const double first = view->cells[0].median;
        fprintf(out, "| ");
        print_cell_text(out, peer->name);
        fprintf(out, " (--peer) | %.0f | %.0f | %.0f | | |", peer->median, peer->lowest,
                peer->highest);
        if (first > 0) {
            fprintf(out, " %.3f", peer->median / first);
        }
        fprintf(out, " | | |\n");
    }
}

static void print_machine(const struct result_view *view, FILE *out)
{
    const struct json_value *machine = json_member(view->root, "machine");
    const struct json_value *device_facts = json_member(view->root, "device");
    char text[700];
    report__job_text(view, text, sizeof text);
    fprintf(out, "\n%s\n", text);
    report__spent_text(view, text, sizeof text);
    fprintf(out, "%s%s", text, text[0] ? " " : "");
    report__cost_text(view, text, sizeof text);
    fprintf(out, "%s %s\n\n", text, report__bits_text(view));
    if (strcmp(json_member_string(device_facts, "kind", ""), "host") != 0) {
        fprintf(out, "Driver %s, CUDA %s, cuDNN %s; ",
                json_member_string(device_facts, "driver", "-"),
                json_member_string(device_facts, "runtime", "-"),
                json_member_string(device_facts, "cudnn", "-"));
    }
    fprintf(out, "%s, %lld CPUs allowed; pinline %s.\n\n    %s\n\n",
            json_member_string(machine, "cpu", "-"),
            (long long)json_member_int(machine, "cpus_allowed", 0),
            json_member_string(view->root, "pinline", ""),
            json_member_string(view->root, "command", ""));
}

void report_markdown(const struct result_view *view, FILE *out)
{
    const struct json_value *diagnosis = json_member(view->root, "diagnosis");
    char text[600];
    print_list(out, json_member(view->root, "failures"), "**FAILED:** ");
    fprintf(out, "**%s.**\n\n%s.\n\n", view->advice.text,
            json_member_string(diagnosis, "headline", ""));
    for (size_t i = 0; i < view->effect_count; i++) {
        report__effect_text(&view->effects[i], view->matters, text, sizeof text);
        fprintf(out, "- %s%s\n", text, view->effects[i].primary ? " (named beforehand)" : "");
    }
    report__check_text(view, text, sizeof text);
    if (text[0]) {
        fprintf(out, "- %s\n", text);
    }
    const struct json_value *advice = json_member(diagnosis, "advice");
    if (advice && advice->count > 0) {
        fprintf(out, "\nWhat else could be changed:\n\n");
    }
    for (size_t i = 0; advice && i < advice->count; i++) {
        const double factor = json_member_double(&advice->items[i], "factor", 0);
        const char *what = json_member_string(&advice->items[i], "what", "");
        if (factor > 0) {
            fprintf(out, "- predicted x%.2f: %s\n", factor, what);
        } else {
            fprintf(out, "- not measured: %s\n", what);
        }
    }
    print_table(view, out);
    print_peers(view, out);
    print_machine(view, out);
    print_list(out, json_member(view->root, "warnings"), "- warning: ");
}

/* --- Trace ---------------------------------------------------------------------------------- */

/* Trace Event Format: complete events ("X") with times in microseconds; a process a cell, a thread a
 * lane. */
void report_trace(const struct result_view *view, FILE *out)
{
    static const char *const lanes[] = {"host", "copy", "compute"};
    struct json_writer writer;
    json_writer_init(&writer, out, false);
    json_begin_object(&writer);
    json_key_string(&writer, "displayTimeUnit", "ms");
    json_key(&writer, "traceEvents");
    json_begin_array(&writer);
    for (size_t c = 0; c < view->cell_count; c++) {
        json_begin_object(&writer);
        json_key_string(&writer, "ph", "M");
        json_key_string(&writer, "name", "process_name");
        json_key_int(&writer, "pid", (int64_t)c + 1);
        json_key(&writer, "args");
        json_begin_object(&writer);
        json_key_string(&writer, "name", view->cells[c].name);
        json_end_object(&writer);
        json_end_object(&writer);
        const struct json_value *spans =
            view->cells[c].run_count > 0 ? json_member(view->cells[c].runs[0].object, "timeline")
                                         : NULL;
        for (size_t i = 0; spans && i < spans->count; i++) {
            const char *lane = json_member_string(&spans->items[i], "lane", "");
            int64_t thread = 1;
            for (size_t k = 0; k < sizeof lanes / sizeof lanes[0]; k++) {
                thread = strcmp(lanes[k], lane) == 0 ? (int64_t)k + 1 : thread;
            }
            const double from = json_member_double(&spans->items[i], "from", 0);
            const double to = json_member_double(&spans->items[i], "to", 0);
            json_begin_object(&writer);
            json_key_string(&writer, "ph", "X");
            json_key_string(&writer, "name", json_member_string(&spans->items[i], "name", ""));
            json_key_string(&writer, "cat", lane);
            json_key_int(&writer, "pid", (int64_t)c + 1);
            json_key_int(&writer, "tid", thread);
            json_key_double(&writer, "ts", from * 1e6);
            json_key_double(&writer, "dur", (to - from) * 1e6);
            json_end_object(&writer);
        }
    }
    json_end_array(&writer);
    json_end_object(&writer);
    fputc('\n', out);
}
