#include "experiments/ablate_internal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "experiments/request.h"
#include "experiments/round.h"
#include "trainer/job.h"

#define PATH_BYTES 4096
#define MOST_RESULT_BYTES ((size_t)1 << 30)

void ablate_settings_defaults(struct ablate_settings *settings)
{
    memset(settings, 0, sizeof *settings);
    settings_defaults(&settings->job);
    /* Every epoch begins and ends by itself, as the article's do. */
    settings->job.loader.prefetch_epochs = false;
    settings->seconds = 5;
    settings->settle_s = 1;
    settings->ceiling_s = 1;
    settings->matters = 0.02;
    settings->order_seed = 1;
    settings->out = "ablation";
    settings->timeline_steps = 12;
}

char *ablate_path(const struct ablate_settings *settings, const char *name, char *text,
                  size_t bytes)
{
    snprintf(text, bytes, "%s/%s", settings->out, name);
    return text;
}

void ablate__note(struct ablate_notes *notes, const char *format, ...)
{
    if (notes->count == ABLATE_MAX_NOTES) {
        return;
    }
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(notes->text[notes->count++], ABLATE_NOTE_BYTES, format, arguments);
    va_end(arguments);
}

enum status ablate_apply_emulation(struct ablate_settings *settings)
{
    struct settings *job = &settings->job;
    job->step_seconds = settings->step_ms * 1e-3;
    if (job->step_seconds > 0) {
        job->network.model = "probe";
    }
    if (settings->batch_bytes <= 0) {
        return STATUS_OK;
    }
    const double pixel = (job->loader.transfer == TRANSFER_F32 ? 4 : 1) * 3.0;
    const double images = job->loader.batch_size;
    const double size = round(sqrt((double)settings->batch_bytes / images / pixel));
    const double edge = size < 4 ? 4 : size > 4096 ? 4096 : size;
    const double bytes = images * pixel * edge * edge;
    if (fabs(bytes / (double)settings->batch_bytes - 1) > 0.1) {
        return FAIL(STATUS_USAGE,
                    "--batch-bytes %lld: with --batch-size %d the nearest batch is %.0f bytes "
                    "(images of %.0f pixels a side; sizes go from 4 to 4096): change --batch-size, "
                    "or --transfer",
                    (long long)settings->batch_bytes, job->loader.batch_size, bytes, edge);
    }
    job->loader.size = (int)edge;
    return STATUS_OK;
}

/* --- Asking the children -------------------------------------------------------------------- */

/* The job on the device that the ceilings were measured on, so that no round looks for another. */
static struct settings resolved_job(const struct ablation *a)
{
    const json_document *known = a->ceilings ? a->ceilings : a->earlier;
    const char *kind =
        json_member_string(json_member(known ? json_root(known) : NULL, "device"), "kind", "");
    struct settings job = a->job;
    if (job.device.kind == DEVICE_AUTO && kind[0]) {
        job.device.kind = strcmp(kind, "cuda") == 0 ? DEVICE_CUDA : DEVICE_HOST;
    }
    return job;
}

static enum status ask(const struct ablation *a, const char *mode,
                       void (*write)(const struct ablation *a, int round,
                                     struct json_writer *writer),
                       int round, json_document **answer)
{
    char path[PATH_BYTES];
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a request");
    }
    struct json_writer writer;
    json_writer_init(&writer, memory, false);
    json_begin_object(&writer);
    write(a, round, &writer);
    json_key(&writer, "plans");
    if (a->plans) {
        json_copy(&writer, a->plans);
    } else {
        json_null(&writer);
    }
    const struct settings job = resolved_job(a);
    request_write_job(&job, &writer);
    json_end_object(&writer);
    fclose(memory);
    const enum status status = round_spawn(
        mode, text, bytes, ablate_path(a->settings, "result.json", path, sizeof path), answer);
    free(text);
    return status;
}

static void write_ceilings_request(const struct ablation *a, int round, struct json_writer *writer)
{
    (void)round;
    json_key_double(writer, "seconds", a->settings->ceiling_s);
}

static void write_round_request(const struct ablation *a, int round, struct json_writer *writer)
{
    json_key_int(writer, "round", round);
    json_key_int(writer, "epochs", a->epochs);
    json_key_double(writer, "settle_s", a->settings->settle_s);
    json_key_int(writer, "timeline_steps", round == 0 ? a->settings->timeline_steps : 0);
    json_key_string(writer, "spoil", a->settings->spoil ? a->settings->spoil : "");
    json_key_bool(writer, "other_plans", round == 0);
    json_key(writer, "order");
    json_begin_array(writer);
    for (size_t place = 0; place < a->cells.count; place++) {
        json_int(writer, a->order[(size_t)round * a->cells.count + place]);
    }
    json_end_array(writer);
    request_write_cells(&a->cells, writer);
}

static void take_plans(struct ablation *a, const struct json_value *root)
{
    const struct json_value *plans = json_member(root, "plans");
    a->plans = plans && plans->kind == JSON_ARRAY && plans->count > 0 ? plans : NULL;
}

bool ablate__has_arithmetic(const struct ablation *a)
{
    for (size_t c = 0; c < a->cells.count; c++) {
        if (a->cells.cells[c].arithmetic) {
            return true;
        }
    }
    return false;
}

/* --- Rounds --------------------------------------------------------------------------------- */

static enum status keep_runs(struct ablation *a, int round)
{
    const struct json_value *runs = json_member(json_root(a->answers[round]), "runs");
    for (size_t i = 0; runs && i < runs->count; i++) {
        const char *name = json_member_string(&runs->items[i], "cell", "");
        for (size_t c = 0; c < a->cells.count; c++) {
            if (strcmp(a->cells.cells[c].name, name) == 0) {
                a->runs[round][c] = &runs->items[i];
            }
        }
    }
    for (size_t c = 0; c < a->cells.count; c++) {
        if (!a->runs[round][c]) {
            return FAIL(STATUS_INTERNAL, "round %d came back without cell \"%s\"", round + 1,
                        a->cells.cells[c].name);
        }
    }
    return STATUS_OK;
}

/* Images that came, went or changed their size since the first round make another experiment. */
static enum status check_data(const struct ablation *a, int round)
{
    for (size_t c = 0; c < a->cells.count; c++) {
        const char *first = json_member_string(a->runs[0][c], "data_fingerprint", "");
        const char *now = json_member_string(a->runs[round][c], "data_fingerprint", "");
        if (first[0] && strcmp(first, now) != 0) {
            return FAIL(STATUS_INVALID,
                        "the images of --data %s changed since round 1 (names, classes or sizes): "
                        "put them back as they were, or begin a new result with --overwrite",
                        a->job.dataset.data);
        }
    }
    return STATUS_OK;
}

/* What the round's process does not know of is its own start and end. */
static void keep_spent(struct ablation *a, int round, double wall_s)
{
    const struct json_value *root = json_root(a->answers[round]);
    a->spent[round] =
        (struct ablate_spent){.known = true,
                              .wall_s = wall_s,
                              .start_s = wall_s - json_member_double(root, "inside_s", 0),
                              .setup_s = json_member_double(root, "setup_s", 0),
                              .settle_s = json_member_double(root, "settle_s", 0),
                              .timed_s = json_member_double(root, "timed_s", 0)};
}

static void log_round(const struct ablation *a, int round)
{
    const struct ablate_spent *spent = &a->spent[round];
    char line[512];
    size_t used = 0;
    line[0] = '\0';
    for (size_t c = 0; c < a->cells.count && used < sizeof line; c++) {
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s %.0f", c ? ", " : "",
                                 a->cells.cells[c].name,
                                 json_member_double(a->runs[round][c], "samples_per_s", 0));
    }
    log_info("round %d of %d (%.1f s, of which %.1f timed): %s samples/s", round + 1, a->rounds,
             spent->wall_s, spent->timed_s, line);
}

static enum status run_rounds(struct ablation *a)
{
    while (a->rounds_done < a->rounds) {
        const int round = a->rounds_done;
        const uint64_t from = clock_now_ns();
        char progress[96];
        snprintf(progress, sizeof progress, "round %d of %d: %zu cells", round + 1, a->rounds,
                 a->cells.count);
        log_progress(progress);
        enum status status = ask(a, "round", write_round_request, round, &a->answers[round]);
        log_progress(NULL);
        if (status == STATUS_OK) {
            TRY(keep_runs(a, round));
            status = check_data(a, round);
        }
        if (status != STATUS_OK && status != STATUS_MISMATCH) {
            status_prefix("%d of %d rounds are in %s/result.json (--resume %s goes on)", round,
                          a->rounds, a->settings->out, a->settings->out);
        }
        TRY(status);
        a->rounds_done++;
        if (round == 0 && ablate__has_arithmetic(a)) {
            /* From now on every cell must find its plans among these. */
            take_plans(a, json_root(a->answers[0]));
        }
        keep_spent(a, round, clock_seconds(from, clock_now_ns()));
        log_round(a, round);
        const enum status written = ablate__write(a);
        if (written != STATUS_OK) {
            status_prefix("round %d was measured and could not be kept; what was written before it "
                          "stays, and --resume %s goes on from there",
                          round + 1, a->settings->out);
        }
        TRY(written);
    }
    return STATUS_OK;
}

/* --- Beginning ----------------------------------------------------------------------------- */

void ablate__take_ceilings(struct ablation *a, const struct json_value *root)
{
    a->found = json_member(root, "ceilings");
    a->facts = json_member(root, "facts");
    take_plans(a, root);
}

void ablate__take_facts(struct ablation *a, int64_t limit)
{
    const int64_t batch = a->job.loader.batch_size;
    a->batches = json_member_int(a->facts, "batches", 1);
    a->samples = json_member_int(a->facts, "samples", 1);
    if (limit > 0 && limit < a->samples) {
        a->samples = limit;
        a->batches = a->job.loader.drop_last ? limit / batch : (limit + batch - 1) / batch;
    }
    a->batches = a->batches > 0 ? a->batches : 1;
    a->samples = a->samples > 0 ? a->samples : 1;
}

/* A result without a round holds predictions alone, and nothing is lost with it. */
static bool holds_no_round(const char *path)
{
    void *text = NULL;
    size_t bytes = 0;
    json_document *document = NULL;
    bool none = false;
    if (file_read(path, MOST_RESULT_BYTES, &text, &bytes) == STATUS_OK &&
        json_parse(text, bytes, &document) == STATUS_OK) {
        const struct json_value *root = json_root(document);
        none = strcmp(json_member_string(root, "kind", ""), "ablation") == 0 &&
               json_member_int(json_member(root, "protocol"), "rounds_done", -1) == 0;
    } else {
        status_clear();
    }
    json_document_destroy(&document);
    free(text);
    return none;
}

/* An axis that the host device has no use for makes cells that are all the same. */
static enum status check_axes(const struct ablation *a, bool on_host)
{
    static const char *const cuda_only[] = {"deterministic", "capture", "spin", "workspace"};
    for (size_t c = 0; on_host && c < a->cells.count; c++) {
        for (size_t i = 0; i < a->cells.cells[c].change_count; i++) {
            const struct cell_change *change = &a->cells.cells[c].changes[i];
            bool idle =
                strcmp(change->option, "precision") == 0 && strcmp(change->value, "tf32") == 0;
            for (size_t n = 0; n < sizeof cuda_only / sizeof cuda_only[0]; n++) {
                idle = idle || strcmp(change->option, cuda_only[n]) == 0;
            }
            if (idle) {
                return FAIL(STATUS_USAGE,
                            "--axis %s=%s has no effect on the CPU: take another axis, or a GPU by "
                            "--device cuda",
                            change->option, change->value);
            }
        }
    }
    return STATUS_OK;
}

static enum status begin(struct ablation *a)
{
    char path[PATH_BYTES];
    ablate_path(a->settings, "result.json", path, sizeof path);
    if (file_exists(path) && !a->settings->overwrite) {
        if (!holds_no_round(path)) {
            return FAIL(STATUS_USAGE,
                        "%s holds the result of an earlier ablation; give --resume %s to go on "
                        "with it, --overwrite to replace it, or another --out",
                        path, a->settings->out);
        }
        log_info("replacing the predictions in %s (--resume %s would keep them)", path,
                 a->settings->out);
    }
    TRY(file_make_folder(a->settings->out));
    clock_wall_text(a->created, sizeof a->created);
    log_progress("measuring what each part reaches alone");
    const enum status status = ask(a, "ceilings", write_ceilings_request, 0, &a->ceilings);
    log_progress(NULL);
    if (status == STATUS_INTERRUPTED) {
        status_prefix("stopped while measuring the parts alone; nothing is kept");
    }
    TRY(status);
    ablate__take_ceilings(a, json_root(a->ceilings));
    if (!a->found || !a->facts) {
        return FAIL(STATUS_INTERNAL, "the ceilings came back empty");
    }
    TRY(check_axes(a, resolved_job(a).device.kind == DEVICE_HOST));
    ablate__take_facts(a, 0);
    TRY(ablate__plan(a));
    order_fill((int)a->cells.count, a->rounds, a->settings->order_seed, a->order);
    return STATUS_OK;
}

static enum status run(struct ablation *a)
{
    const struct ablate_settings *settings = a->settings;
    a->job = settings->job;
    TRY(cells_choose(&settings->cells, &a->cells));
    TRY(cells_adopt(&a->cells, &a->job));
    TRY(cells_choose_rates(&a->cells, &a->job));
    TRY(cells_complete(&a->job));
    TRY(cells_check(&a->cells, &a->job));
    if (a->job.loader.pin_memory == PIN_AUTO) {
        return FAIL(STATUS_USAGE, "--pin-memory auto may fall back in silence, so cells do not "
                                  "take it");
    }
    if (settings->peer) {
        TRY(peer_read(settings->peer, &a->peers));
    }
    TRY(check_axes(a, a->job.device.kind == DEVICE_HOST));
    if (settings->resume) {
        TRY(ablate__go_on(a));
    } else {
        TRY(begin(a));
        ablate__predict(a);
    }
    /* The predictions are on disk before the first round. */
    TRY(ablate__write(a));
    if (settings->predict_only) {
        return STATUS_OK;
    }
    TRY(run_rounds(a));
    if (a->failures.count > 0) {
        return FAIL(STATUS_MISMATCH, "%s", a->failures.text[0]);
    }
    return STATUS_OK;
}

enum status ablate_run(const struct ablate_settings *settings)
{
    struct ablation *a = calloc(1, sizeof *a);
    if (!a) {
        return FAIL(STATUS_NO_MEMORY, "no memory for an ablation");
    }
    a->own = *settings;
    a->settings = &a->own;
    const enum status status = run(a);
    peer_free(&a->peers);
    for (int round = 0; round < RESULT_MAX_ROUNDS; round++) {
        json_document_destroy(&a->answers[round]);
    }
    json_document_destroy(&a->earlier);
    json_document_destroy(&a->ceilings);
    free(a);
    return status;
}
