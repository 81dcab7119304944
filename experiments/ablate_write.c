/* The result file. */
#include <string.h>

#include "base/file.h"
#include "experiments/ablate_internal.h"
#include "trainer/job.h"

const struct json_value *ablate__from_ceilings(const struct ablation *a, const char *name)
{
    return json_member(json_root(a->ceilings ? a->ceilings : a->earlier), name);
}

static void copy_member(struct json_writer *writer, const char *name,
                        const struct json_value *value)
{
    json_key(writer, name);
    if (value) {
        json_copy(writer, value);
    } else {
        json_null(writer);
    }
}

static void write_notes(struct json_writer *writer, const char *name,
                        const struct ablate_notes *notes)
{
    json_key(writer, name);
    json_begin_array(writer);
    for (size_t i = 0; i < notes->count; i++) {
        json_string(writer, notes->text[i]);
    }
    json_end_array(writer);
}

static void write_protocol(const struct ablation *a, struct json_writer *writer)
{
    const struct ablate_settings *settings = a->settings;
    json_key(writer, "protocol");
    json_begin_object(writer);
    result_write_seed(writer, settings->order_seed);
    json_key_int(writer, "rounds", a->rounds);
    json_key_int(writer, "rounds_done", a->rounds_done);
    json_key_int(writer, "epochs", a->epochs);
    json_key_double(writer, "seconds", settings->seconds);
    json_key_double(writer, "settle_s", settings->settle_s);
    json_key_double(writer, "matters", settings->matters);
    json_key_double(writer, "budget_s", settings->budget_s);
    json_key_double(writer, "step_s", a->job.step_seconds);
    json_key_bool(writer, "forward_only", a->job.forward_only);
    json_key_string(writer, "request", settings->request);
    json_key_int(writer, "planned_warnings", (int64_t)a->planned_warnings);
    json_key_int(writer, "limit_samples", (int64_t)a->job.dataset.limit_samples);
    json_key_int(writer, "imbalance", order_imbalance(a->order, (int)a->cells.count, a->rounds));
    json_key_int(writer, "batches", a->batches);
    json_key_int(writer, "samples", a->samples);
    static const char *const facts[] = {"batch_bytes", "slots", "working_set_bytes",
                                        "last_level_cache_bytes"};
    for (size_t i = 0; i < sizeof facts / sizeof facts[0]; i++) {
        json_key_int(writer, facts[i], json_member_int(a->facts, facts[i], 0));
    }
    copy_member(writer, "plans_hash",
                a->ceilings ? ablate__from_ceilings(a, "plans_hash")
                            : json_member(ablate__from_ceilings(a, "protocol"), "plans_hash"));
    json_key(writer, "order");
    json_begin_array(writer);
    for (int round = 0; round < a->rounds; round++) {
        json_begin_array(writer);
        for (size_t place = 0; place < a->cells.count; place++) {
            const int cell = a->order[(size_t)round * a->cells.count + place];
            json_string(writer, a->cells.cells[cell].name);
        }
        json_end_array(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}

static void write_spent(const struct ablation *a, struct json_writer *writer)
{
    json_key(writer, "rounds");
    json_begin_array(writer);
    for (int round = 0; round < a->rounds_done; round++) {
        const struct ablate_spent *spent = &a->spent[round];
        if (spent->known) {
            json_begin_object(writer);
            json_key_int(writer, "round", round);
            json_key_double(writer, "wall_s", spent->wall_s);
            json_key_double(writer, "start_s", spent->start_s);
            json_key_double(writer, "setup_s", spent->setup_s);
            json_key_double(writer, "settle_s", spent->settle_s);
            json_key_double(writer, "timed_s", spent->timed_s);
            json_end_object(writer);
        }
    }
    json_end_array(writer);
}

static void write_predictions(const struct ablation *a, struct json_writer *writer)
{
    json_key(writer, "predictions");
    json_begin_array(writer);
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct ablate_prediction *prediction = &a->predictions[c];
        if (prediction->known) {
            json_begin_object(writer);
            json_key_string(writer, "cell", a->cells.cells[c].name);
            json_key_double(writer, "samples_per_s", prediction->samples_per_s);
            json_key_double(writer, "formula_samples_per_s", prediction->formula);
            json_key_double(writer, "trivial_samples_per_s", prediction->trivial);
            json_key_string(writer, "bound", predict_bound_text(prediction->bound));
            json_end_object(writer);
        }
    }
    json_end_array(writer);
}

static void write_cells(const struct ablation *a, struct json_writer *writer)
{
    json_key(writer, "cells");
    json_begin_array(writer);
    for (size_t c = 0; c < a->cells.count; c++) {
        const struct cell *cell = &a->cells.cells[c];
        json_begin_object(writer);
        json_key_string(writer, "name", cell->name);
        json_key_bool(writer, "repeats", cell->repeats);
        json_key_bool(writer, "arithmetic", cell->arithmetic);
        json_key(writer, "settings");
        json_begin_object(writer);
        for (size_t i = 0; i < cell->change_count; i++) {
            json_key_string(writer, cell->changes[i].option, cell->changes[i].value);
        }
        json_end_object(writer);
        json_key(writer, "rounds");
        json_begin_array(writer);
        for (int round = 0; round < a->rounds_done; round++) {
            json_begin_object(writer);
            json_key_int(writer, "round", round);
            const struct json_value *run = a->runs[round][c];
            for (size_t i = 0; i < run->count; i++) {
                if (strcmp(run->names[i], "round") != 0) {
                    copy_member(writer, run->names[i], &run->items[i]);
                }
            }
            json_end_object(writer);
        }
        json_end_array(writer);
        json_end_object(writer);
    }
    json_end_array(writer);
}

static void write_result(const struct ablation *a, struct json_writer *writer)
{
    json_begin_object(writer);
    json_key_string(writer, "pinline", PINLINE_VERSION);
    json_key_string(writer, "kind", "ablation");
    json_key_string(writer, "created", a->created);
    json_key_string(writer, "command", a->settings->command_line);
    json_key_bool(writer, "finished", a->rounds_done == a->rounds);
    write_notes(writer, "failures", &a->failures);
    ablate__write_diagnosis(a, writer);
    write_notes(writer, "warnings", &a->warnings);
    copy_member(writer, "machine", ablate__from_ceilings(a, "machine"));
    copy_member(writer, "device", ablate__from_ceilings(a, "device"));
    copy_member(writer, "data", ablate__from_ceilings(a, "data"));
    copy_member(writer, "memory", ablate__from_ceilings(a, "memory"));
    json_key(writer, "job");
    job_write_settings(&a->job, writer);
    write_protocol(a, writer);
    copy_member(writer, "ceilings", a->found);
    copy_member(writer, "facts", a->facts);
    copy_member(writer, "plans", a->plans);
    write_predictions(a, writer);
    write_spent(a, writer);
    write_cells(a, writer);
    if (a->peers.count > 0) {
        json_key(writer, "peer");
        peer_write(&a->peers, writer);
    } else if (json_member(a->earlier ? json_root(a->earlier) : NULL, "peer")) {
        copy_member(writer, "peer", json_member(json_root(a->earlier), "peer"));
    }
    json_end_object(writer);
}

enum status ablate__write(struct ablation *a)
{
    char path[4096];
    struct file_writer file;
    ablate__check(a);
    TRY(file_writer_open(&file, ablate_path(a->settings, "result.json", path, sizeof path)));
    struct json_writer writer;
    json_writer_init(&writer, file.stream, true);
    write_result(a, &writer);
    fputc('\n', file.stream);
    TRY(file_writer_commit(&file));
    return STATUS_OK;
}
