/* What the reports share, and the rounds as CSV. */
#include <math.h>
#include <string.h>

#include "experiments/cells.h"
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

bool report__is_timed(const struct result_cell *cell)
{
    return cell->run_count == 0 || json_member_bool(cell->runs[0].object, "timing", true);
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

/* A percentage that stays readable where two rounds say next to nothing. */
static char *percent_text(double ratio, char *text, size_t bytes)
{
    const double percent = report__percent(ratio);
    if (percent > 999) {
        snprintf(text, bytes, "over +999");
    } else {
        snprintf(text, bytes, "%+.1f", percent);
    }
    return text;
}

/* How sure an effect is: of a gain the verdict, of an interaction what it means. */
static const char *judgement(const struct effect *effect)
{
    if (!effect->interaction || effect->verdict == VERDICT_NONE) {
        return verdict_text(effect->verdict);
    }
    if (!effect_is_claimed(effect)) {
        return "not shown: the two flags may bring the same together as one after the other";
    }
    return effect->ratio.low > 1 ? "together the two flags bring more than one after the other"
                                 : "together the two flags bring less than one after the other";
}

void report__rounds_text(const struct effect *effect, char *text, size_t bytes)
{
    if (effect->rounds_high == 0) {
        snprintf(text, bytes, "more rounds would probably not settle it");
    } else if (effect->rounds_low > RESULT_MAX_ROUNDS) {
        snprintf(text, bytes, "the %d rounds of one result would probably not settle it",
                 RESULT_MAX_ROUNDS);
    } else if (effect->rounds_high > RESULT_MAX_ROUNDS) {
        snprintf(text, bytes,
                 "%d rounds may settle it, or more than the %d of one result be needed",
                 effect->rounds_low, RESULT_MAX_ROUNDS);
    } else {
        snprintf(text, bytes, "%d to %d rounds would probably settle it", effect->rounds_low,
                 effect->rounds_high);
    }
}

void report__effect_text(const struct effect *effect, double matters, char *text, size_t bytes)
{
    char low[32], high[32], middle[32];
    size_t used =
        (size_t)snprintf(text, bytes, "%s: %s %% (%.4g %% interval %s to %s), %s", effect->name,
                         percent_text(effect->ratio.ratio, middle, sizeof middle),
                         100 * effect->confidence, percent_text(effect->ratio.low, low, sizeof low),
                         percent_text(effect->ratio.high, high, sizeof high), judgement(effect));
    if (effect->interaction || effect->verdict != VERDICT_UNDECIDED || used >= bytes) {
        return;
    }
    if (effect->tests_disagree) {
        used +=
            (size_t)snprintf(text + used, bytes - used, " (t test and sign-flip test disagree)");
    } else {
        used += (size_t)snprintf(text + used, bytes - used,
                                 ": as much as %s %% may be hidden where %.3g %% matter", high,
                                 100 * matters);
    }
    if (used < bytes) {
        char rounds[120];
        report__rounds_text(effect, rounds, sizeof rounds);
        snprintf(text + used, bytes - used, "; %s", rounds);
    }
}

void report__check_text(const struct result_view *view, char *text, size_t bytes)
{
    const struct effect *check = &view->check;
    text[0] = '\0';
    if (!check->name) {
        return;
    }
    char low[32], high[32], middle[32];
    const char *meaning =
        view->rounds < VERDICT_MIN_ROUNDS ? "too few rounds to say more"
        : effect_is_claimed(check)
            ? "they differ although they are the same: something else moves these "
              "rates, so distrust effects of this size"
            : "no difference is claimed between what is the same";
    snprintf(text, bytes, "a check on the method, %s: %s %% (95 %% interval %s to %s), %s",
             check->name, percent_text(check->ratio.ratio, middle, sizeof middle),
             percent_text(check->ratio.low, low, sizeof low),
             percent_text(check->ratio.high, high, sizeof high), meaning);
}

/* Whether cells differ in more than their flags: then what is said of the job is one cell's. */
static bool has_axes(const struct result_view *view)
{
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct json_value *settings = view->cells[c].settings;
        for (size_t i = 0; settings && i < settings->count; i++) {
            if (!cells_is_flag(settings->names[i])) {
                return true;
            }
        }
    }
    return false;
}

void report__job_text(const struct result_view *view, char *text, size_t bytes)
{
    const struct json_value *protocol = json_member(view->root, "protocol");
    const struct json_value *job = json_member(view->root, "job");
    const struct json_value *on = json_member(view->root, "device");
    const double step_s = json_member_double(protocol, "step_s", 0);
    const int64_t epochs = json_member_int(protocol, "epochs", 0);
    char what[120], of_cell[200] = ",";
    const char *cell = json_member_string(json_member(view->root, "diagnosis"), "cell", "");
    if (cell[0] && has_axes(view)) {
        snprintf(of_cell, sizeof of_cell, " in cell \"%s\", and as their names say in the others;",
                 cell);
    }
    if (step_s > 0) {
        snprintf(what, sizeof what, "an emulated step of %.3g ms", step_s * 1e3);
    } else {
        snprintf(what, sizeof what, "%s of %s", //
                 json_member_bool(protocol, "forward_only", false) ? "inference" : "training",
                 json_member_string(job, "model", "a model"));
    }
    snprintf(text, bytes,
             "%zu round%s of %lld epoch%s a cell: %s, %lld samples of %lld pixels a side in %lld "
             "batches of %.2f MB, --num-workers %lld%s on %s; medians; order seed %llu.",
             view->rounds, view->rounds == 1 ? "" : "s", (long long)epochs, epochs == 1 ? "" : "s",
             what, (long long)json_member_int(protocol, "samples", 0),
             (long long)json_member_int(job, "size", 0),
             (long long)json_member_int(protocol, "batches", 0),
             json_member_double(protocol, "batch_bytes", 0) / 1e6,
             (long long)json_member_int(job, "num-workers", 0), of_cell,
             json_member_string(on, "name", "an unknown device"),
             (unsigned long long)result_read_seed(protocol));
}

const char *report__bits_text(const struct result_view *view)
{
    if (view->rounds == 0 || view->failures > 0) {
        return "";
    }
    if (json_member_double(json_member(view->root, "protocol"), "step_s", 0) > 0) {
        return "An emulated step computes nothing, so there were no bits to compare.";
    }
    return "The losses of all steps and the final weights are the same bits in every cell that does "
           "not change the arithmetic.";
}

void report__spent_text(const struct result_view *view, char *text, size_t bytes)
{
    static const char *const names[] = {"wall_s", "start_s", "setup_s", "settle_s", "timed_s"};
    const struct json_value *rounds = json_member(view->root, "rounds");
    double mean[5] = {0};
    text[0] = '\0';
    if (!rounds || rounds->kind != JSON_ARRAY || rounds->count == 0) {
        return;
    }
    for (size_t r = 0; r < rounds->count; r++) {
        for (size_t i = 0; i < 5; i++) {
            mean[i] += json_member_double(&rounds->items[r], names[i], 0) / (double)rounds->count;
        }
    }
    snprintf(
        text, bytes,
        "A round took %.1f s: %.1f s to start and end its process, %.1f s setting up %zu cells, "
        "%.1f s settling, %.1f s timed, %.1f s the rest.",
        mean[0], mean[1], mean[2], view->cell_count, mean[3], mean[4],
        mean[0] - mean[1] - mean[2] - mean[3] - mean[4]);
}

void report__cost_text(const struct result_view *view, char *text, size_t bytes)
{
    const double mb = 1e6;
    double resident = 0, gpu = 0;
    size_t used = 0;
    text[0] = '\0';
    for (size_t c = 0; c < view->cell_count && view->rounds > 0; c++) {
        const struct result_run *run = &view->cells[c].runs[0];
        const struct json_value *seen = json_member(run->object, "watch");
        resident = fmax(resident, json_member_double(seen, "resident_max", 0));
        gpu = fmax(gpu, json_member_double(seen, "gpu_memory_max", 0));
        if (used == 0 && json_member_bool(run->object, "page_locked", false)) {
            const bool one_of_many = has_axes(view);
            used = (size_t)snprintf(
                text, bytes, "Page-locking takes %.1f ms and %.1f MB at open%s%s%s. ",
                1e3 * json_member_double(run->object, "lock_s", 0),
                json_member_double(run->object, "slots_bytes", 0) / mb,
                one_of_many ? " in cell \"" : "", one_of_many ? view->cells[c].name : "",
                one_of_many ? "\"" : "");
        }
    }
    if (resident > 0 && used < bytes) {
        used += (size_t)snprintf(text + used, bytes - used, "The process held %.0f MB of memory",
                                 resident / mb);
        if (gpu > 0 && used < bytes) {
            used += (size_t)snprintf(text + used, bytes - used, ", the GPU %.0f MB", gpu / mb);
        }
        if (used < bytes) {
            snprintf(text + used, bytes - used, " at most.");
        }
    }
}

/* A field of CSV (RFC 4180): quotes are doubled. */
static void print_quoted(FILE *out, const char *text)
{
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '"') {
            fputc('"', out);
        }
        fputc(*text, out);
    }
    fputc('"', out);
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
            fprintf(out, "%d,%d,", run->round, run->place);
            print_quoted(out, view->cells[c].name);
            fprintf(out, ",%.6g,%.9g,%s,%s,%d,%d", run->samples_per_s, seconds, run->loss_hash,
                    run->weights_hash, json_member_bool(run->object, "page_locked", false),
                    run->marked);
            for (size_t g = 0; g < GROUPS; g++) {
                const struct json_value *figure =
                    json_member(json_member(run->object, groups[g][0]), groups[g][1]);
                /* What was not measured is no zero. */
                if (figure && figure->kind == JSON_NUMBER) {
                    fprintf(out, ",%.9g", figure->number);
                } else {
                    fputc(',', out);
                }
            }
            fputc('\n', out);
        }
    }
}
