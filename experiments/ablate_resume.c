/* Going on with an earlier result: what was fixed before its first round stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "experiments/ablate_internal.h"
#include "trainer/job.h"
#include "trainer/options.h"

#define PATH_BYTES 4096
#define MOST_RESULT_BYTES ((size_t)1 << 30)

static void write_value(void *context, struct json_writer *writer)
{
    const struct json_value *const *value = context;
    if (*value) {
        json_copy(writer, *value);
    }
}

/* The first setting in which two texts of a job differ, as it stands in the second. */
static void find_changed(const char *now, const char *then, char *text, size_t bytes)
{
    const char *line = then;
    size_t i = 0;
    while (now[i] && now[i] == then[i]) {
        i++;
        line = then[i - 1] == ',' && then[i] == '"' ? &then[i] : line;
    }
    line += strspn(line, "{");
    snprintf(text, bytes, "%.*s", (int)strcspn(line, ",}"), line);
}

static enum status check_same_job(const struct ablation *a, const struct json_value *root)
{
    const struct json_value *job = json_member(root, "job");
    char *now = NULL, *then = NULL;
    enum status status = job_settings_text(&a->job, &now);
    if (status == STATUS_OK) {
        status = job_json_text(write_value, &job, &then);
    }
    if (status == STATUS_OK && strcmp(now, then) != 0) {
        char changed[200];
        find_changed(now, then, changed, sizeof changed);
        status = FAIL(STATUS_INVALID,
                      "%s/result.json was measured with other settings (it has %s); give the same "
                      "flags, or --overwrite in place of --resume to begin anew",
                      a->settings->out, changed);
    }
    free(now);
    free(then);
    return status;
}

static enum status read_earlier(struct ablation *a)
{
    char path[PATH_BYTES];
    void *text = NULL;
    size_t bytes = 0;
    ablate_path(a->settings, "result.json", path, sizeof path);
    if (!file_exists(path)) {
        return FAIL(
            STATUS_NOT_FOUND,
            "--resume %s: there is no %s to go on with; name the folder of a result, or leave "
            "out --resume",
            a->settings->resume, path);
    }
    TRY(file_read(path, MOST_RESULT_BYTES, &text, &bytes));
    const enum status status = json_parse(text, bytes, &a->earlier);
    free(text);
    if (status != STATUS_OK) {
        status_prefix("%s is cut or no result; --overwrite in place of --resume begins anew", path);
    }
    return status;
}

/* Options that were given and would have no effect, since what was begun with others goes on. */
static enum status check_protocol(const struct ablate_settings *settings,
                                  const struct json_value *protocol)
{
    const struct {
        const char *name, *member;
        double now;
    } kept[] = {{"seconds", "seconds", settings->seconds},
                {"settle", "settle_s", settings->settle_s},
                {"matters", "matters", settings->matters}};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        const double then = json_member_double(protocol, kept[i].member, kept[i].now);
        if (options_was_given(kept[i].name) && then != kept[i].now) {
            return FAIL(STATUS_INVALID,
                        "%s/result.json was begun with --%s %g, and goes on with it: leave out "
                        "--%s %g, or give --overwrite in place of --resume to begin anew",
                        settings->out, kept[i].name, then, kept[i].name, kept[i].now);
        }
    }
    if (options_was_given("order-seed") && result_read_seed(protocol) != settings->order_seed) {
        return FAIL(STATUS_INVALID,
                    "%s/result.json was begun with another --order-seed, and goes "
                    "on with it: leave it out",
                    settings->out);
    }
    return STATUS_OK;
}

/* What was fixed before the first round stays as it was, whatever is asked for now. */
static enum status take_protocol(struct ablation *a, const struct json_value *root)
{
    const struct json_value *protocol = json_member(root, "protocol");
    struct ablate_settings *own = &a->own;
    const int64_t limit = json_member_int(json_member(root, "job"), "limit-samples", 0);
    a->rounds = (int)json_member_int(protocol, "rounds", 0);
    a->rounds_done = (int)json_member_int(protocol, "rounds_done", -1);
    a->epochs = (int)json_member_int(protocol, "epochs", 0);
    if (!a->found || !a->facts || a->rounds < 1 || a->rounds > RESULT_MAX_ROUNDS ||
        a->rounds_done < 0 || a->rounds_done > a->rounds || a->epochs < 1) {
        return FAIL(STATUS_INVALID,
                    "%s/result.json is no result of `pinline ablate` that can go on: it lacks its "
                    "protocol, ceilings or facts; --overwrite in place of --resume begins anew",
                    own->out);
    }
    TRY(check_protocol(own, protocol));
    if ((own->rounds > 0 && own->rounds != a->rounds) ||
        (own->epochs > 0 && own->epochs != a->epochs) ||
        (a->job.dataset.limit_samples > 0 && (int64_t)a->job.dataset.limit_samples != limit)) {
        return FAIL(STATUS_INVALID,
                    "the earlier result was planned for --rounds %d --epochs %d, and more of them "
                    "afterwards would not be the same experiment: leave --rounds, --epochs and "
                    "--limit-samples as they were, or begin a new one in another --out",
                    a->rounds, a->epochs);
    }
    if (json_member_double(protocol, "step_s", 0) != a->job.step_seconds ||
        json_member_bool(protocol, "forward_only", false) != a->job.forward_only) {
        return FAIL(STATUS_INVALID, "the earlier result was measured with another --job or "
                                    "--step-ms; give the same flags, or --overwrite to begin anew");
    }
    a->job.dataset.limit_samples = (size_t)limit;
    own->order_seed = result_read_seed(protocol);
    own->seconds = json_member_double(protocol, "seconds", own->seconds);
    own->settle_s = json_member_double(protocol, "settle_s", own->settle_s);
    own->matters = json_member_double(protocol, "matters", own->matters);
    own->budget_s = json_member_double(protocol, "budget_s", 0);
    own->command_line = json_member_string(root, "command", "");
    ablate__take_facts(a, limit);
    return STATUS_OK;
}

/* Predictions were written before the first round, and stay. */
static void take_predictions(struct ablation *a, const struct json_value *predictions)
{
    for (size_t i = 0; predictions && i < predictions->count; i++) {
        const struct json_value *value = &predictions->items[i];
        for (size_t c = 0; c < a->cells.count; c++) {
            if (strcmp(a->cells.cells[c].name, json_member_string(value, "cell", "")) == 0) {
                struct ablate_prediction *prediction = &a->predictions[c];
                prediction->samples_per_s = json_member_double(value, "samples_per_s", 0);
                prediction->formula = json_member_double(value, "formula_samples_per_s", 0);
                prediction->trivial = json_member_double(value, "trivial_samples_per_s", 0);
            }
        }
    }
}

static void take_spent(struct ablation *a, const struct json_value *rounds)
{
    for (size_t i = 0; rounds && i < rounds->count; i++) {
        const struct json_value *value = &rounds->items[i];
        const int64_t round = json_member_int(value, "round", -1);
        if (round >= 0 && round < a->rounds_done) {
            a->spent[round] =
                (struct ablate_spent){.known = true,
                                      .wall_s = json_member_double(value, "wall_s", 0),
                                      .start_s = json_member_double(value, "start_s", 0),
                                      .setup_s = json_member_double(value, "setup_s", 0),
                                      .settle_s = json_member_double(value, "settle_s", 0),
                                      .timed_s = json_member_double(value, "timed_s", 0)};
        }
    }
}

/* Warnings that planning wrote: the others are found again. */
static void take_warnings(struct ablation *a, const struct json_value *root)
{
    const struct json_value *warnings = json_member(root, "warnings");
    const int64_t planned = json_member_int(json_member(root, "protocol"), "planned_warnings", 0);
    for (size_t i = 0; warnings && i < warnings->count && (int64_t)i < planned; i++) {
        if (warnings->items[i].string) {
            ablate__note(&a->warnings, "%s", warnings->items[i].string);
        }
    }
    a->planned_warnings = a->warnings.count;
}

static enum status take_earlier_rounds(struct ablation *a, const struct json_value *cells)
{
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct json_value *cell = cells && c < cells->count ? &cells->items[c] : NULL;
        const struct json_value *runs = json_member(cell, "rounds");
        if (!runs || cells->count != a->cells.count ||
            strcmp(json_member_string(cell, "name", ""), a->cells.cells[c].name) != 0) {
            return FAIL(STATUS_INVALID,
                        "%s/result.json has other cells (\"%s\" where \"%s\" was asked for); give "
                        "the same --cells, --copy-stream, --axis and --again, or --overwrite in "
                        "place of --resume to begin anew",
                        a->settings->out, json_member_string(cell, "name", "none"),
                        a->cells.cells[c].name);
        }
        for (size_t i = 0; i < runs->count && i < (size_t)a->rounds_done; i++) {
            a->runs[i][c] = &runs->items[i];
        }
    }
    for (int round = 0; round < a->rounds_done; round++) {
        for (size_t c = 0; c < a->cells.count; c++) {
            if (!a->runs[round][c]) {
                return FAIL(STATUS_INVALID,
                            "%s/result.json lacks a run of round %d; --overwrite in place of "
                            "--resume begins anew",
                            a->settings->out, round + 1);
            }
        }
    }
    return STATUS_OK;
}

enum status ablate__go_on(struct ablation *a)
{
    TRY(read_earlier(a));
    const struct json_value *root = json_root(a->earlier);
    ablate__take_ceilings(a, root);
    TRY(take_protocol(a, root));
    TRY(check_same_job(a, root));
    snprintf(a->created, sizeof a->created, "%s", json_member_string(root, "created", ""));
    order_fill((int)a->cells.count, a->rounds, a->settings->order_seed, a->order);
    TRY(take_earlier_rounds(a, json_member(root, "cells")));
    ablate__predict(a);
    take_predictions(a, json_member(root, "predictions"));
    take_spent(a, json_member(root, "rounds"));
    take_warnings(a, root);
    log_info("going on after round %d of %d", a->rounds_done, a->rounds);
    return STATUS_OK;
}
