#include "experiments/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/stop.h"
#include "experiments/cells.h"
#include "experiments/request.h"
#include "experiments/round_totals.h"
#include "experiments/watch.h"
#include "trainer/job.h"
#include "trainer/train_loop.h"

#define WATCH_PERIOD_S 0.25
#define MAX_TIMELINE 512
#define MAX_EPOCHS 100000
#define MOST_PLANS 4096

/* What the cells of a round share. */
struct round {
    struct request request;
    struct job_parts parts; /* the open device and sets */
    device *dev;
    dataset *train_set;
    char opened_for[4096]; /* settings of `dev` and `train_set`, as text */
    bool other_plans;      /* cells that compute something else may choose plans of their own */
    /* Lists of plans as the device had them after each cell was opened; what is in them. */
    json_document *plan_lists[CELLS_MAX];
    const struct json_value *plans[MOST_PLANS];
    size_t list_count, plan_count;
    loader_cache *cache; /* images that the cell before kept: decoded once a round */
    double settle_s;
    int64_t epochs, timeline_steps;
    const char
        *spoil; /* test of the method: a cell, and after a colon how it is spoiled on purpose */
};

/* One bar of a time line. */
struct span {
    const char *lane, *name;
    double from, to;
};
struct timeline {
    struct span spans[MAX_TIMELINE];
    size_t count;
    int64_t steps_left;
};

static void add_span(struct timeline *line, const char *lane, const char *name, double from,
                     double to)
{
    if (line->count < MAX_TIMELINE && to > from) {
        line->spans[line->count++] = (struct span){lane, name, from, to};
    }
}

static enum status note_step(void *context, const struct train_step *step)
{
    struct timeline *line = context;
    if (line->steps_left > 0) {
        line->steps_left--;
        add_span(line, "host", "wait for the device", step->host_begin, step->host_free);
        add_span(line, "host", "wait for a batch", step->host_free, step->host_batch);
        add_span(line, "host", "copy call", step->host_batch, step->host_copied);
        add_span(line, "host", "issue", step->host_copied, step->host_issued);
        add_span(line, "copy", "copy", step->copy_begin, step->copy_end);
        add_span(line, "compute", "step", step->begin, step->end);
    }
    return STATUS_OK;
}

/* Where the time of a run, or of all runs of a round, goes beside what is timed. */
struct spent {
    double
        setup_s; /* opening the cell's slots, streams, network and operations; in a round also the
                        device and the sets */
    double settle_s; /* untimed steps, and the weights of the beginning again */
    double timed_s;
};

static double lap(uint64_t *from_ns)
{
    const uint64_t now = clock_now_ns();
    const double seconds = clock_seconds(*from_ns, now);
    *from_ns = now;
    return seconds;
}

static void write_spent(const struct spent *spent, struct json_writer *writer)
{
    json_key_double(writer, "setup_s", spent->setup_s);
    json_key_double(writer, "settle_s", spent->settle_s);
    json_key_double(writer, "timed_s", spent->timed_s);
}

/* --- Plans ---------------------------------------------------------------------------------- */

static bool same_plan(const struct json_value *a, const struct json_value *b)
{
    static const char *const members[] = {"op", "plan", "graph"};
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (strcmp(json_member_string(a, members[i], ""), json_member_string(b, members[i], "")) !=
            0) {
            return false;
        }
    }
    return true;
}

static void keep_plan(struct round *round, const struct json_value *plan)
{
    for (size_t i = 0; i < round->plan_count; i++) {
        if (same_plan(round->plans[i], plan)) {
            return;
        }
    }
    if (round->plan_count < MOST_PLANS) {
        round->plans[round->plan_count++] = plan;
    }
}

/* The plans that the cell just opened uses: opening it with required plans began the device's list
 * anew. *hash tells two such lists apart. */
static enum status note_plans(struct round *round, uint64_t *hash)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *memory = open_memstream(&text, &bytes);
    if (!memory || round->list_count == CELLS_MAX) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the list of plans");
    }
    struct json_writer writer;
    json_writer_init(&writer, memory, false);
    device_write_plans(round->dev, &writer);
    fclose(memory);
    json_document **list = &round->plan_lists[round->list_count];
    const enum status status = json_parse(text, bytes, list);
    free(text);
    TRY(status);
    round->list_count++;
    const struct json_value *plans = json_root(*list);
    *hash = HASH_START;
    for (size_t i = 0; i < plans->count; i++) {
        const struct json_value *plan = &plans->items[i];
        *hash = hash_text(hash_text(*hash, json_member_string(plan, "op", "")), "\n");
        *hash = hash_text(hash_text(*hash, json_member_string(plan, "plan", "")), "\n");
        keep_plan(round, plan);
    }
    return STATUS_OK;
}

static void write_plans(const struct round *round, struct json_writer *writer)
{
    json_key(writer, "plans");
    json_begin_array(writer);
    for (size_t i = 0; i < round->plan_count; i++) {
        json_copy(writer, round->plans[i]);
    }
    json_end_array(writer);
}

/* --- One cell ------------------------------------------------------------------------------- */

/* Untimed steps in the cell's own settings: two rings at least, and `settle_s` seconds; with a cache
 * that no cell of this round has filled, a whole epoch. */
static enum status settle(struct round *round, struct job *job, train_loop *loop)
{
    const uint64_t from = clock_now_ns();
    uint32_t chunk = 2 * (uint32_t)job->train_layout.slots;
    struct train_epoch epoch;
    struct loader_counters now;
    loader_read_counters(job->train_loader, &now);
    if (job->settings.loader.cache != CACHE_NONE && now.cache_images == 0) {
        chunk = 0;
    }
    do {
        TRY(train_loop_epoch(loop, 0, 0, chunk, &epoch));
        chunk = chunk > 0 && chunk < job->train_layout.batches / 2 ? 2 * chunk : 0;
    } while (clock_seconds(from, clock_now_ns()) < round->settle_s);
    return STATUS_OK;
}

static enum status run_epochs(struct round *round, train_loop *loop, struct round_totals *totals)
{
    const uint64_t cpu = clock_process_cpu_ns();
    totals->loss_hash = HASH_START;
    for (int64_t e = 0; e < round->epochs; e++) {
        struct train_epoch epoch;
        TRY(train_loop_epoch(loop, (uint32_t)e, 0, 0, &epoch));
        round_totals_add(totals, &epoch);
    }
    totals->process_cpu_ns = clock_process_cpu_ns() - cpu;
    return STATUS_OK;
}

/* Changes one weight by one bit's worth, to prove that the comparison sees it. */
static enum status spoil_weights(struct job *job)
{
    const struct parameter *parameter = network_parameter(job->net, 0);
    float *values = malloc(parameter->elements * sizeof *values);
    if (!values) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a parameter");
    }
    enum status status = network_get_parameter(job->net, 0, values);
    if (status == STATUS_OK) {
        values[0] *= 1.0000002f;
        status = network_set_parameter(job->net, 0, values);
    }
    free(values);
    return status;
}

/* Whether this cell is to be spoiled in that way; without one, it is its weights. */
static bool is_spoiled(const struct round *round, const struct cell *cell, const char *how)
{
    const size_t length = strlen(cell->name);
    if (strncmp(round->spoil, cell->name, length) != 0) {
        return false;
    }
    const char *rest = round->spoil + length;
    return *rest == ':' ? strcmp(rest + 1, how) == 0 : *rest == '\0' && strcmp(how, "weights") == 0;
}

static enum status check_locked(const struct settings *settings,
                                const struct loader_staging *staging)
{
    bool wanted = settings->loader.pin_memory == PIN_ON;
    if (staging->page_locked != wanted) {
        return FAIL(STATUS_MISMATCH, "the slots should be %s and the runtime says that they are %s",
                    wanted ? "page-locked" : "pageable",
                    staging->page_locked ? "page-locked" : "pageable");
    }
    return STATUS_OK;
}

/* A cell under way in a round. */
struct cell_run {
    const struct cell *cell;
    const struct settings *settings; /* as recorded */
    struct job *job;
    train_loop *loop;
    struct timeline *line;
    struct spent spent;
    uint64_t lap_ns; /* since when the time is not accounted for */
    uint64_t plans_hash;
};

static void write_run(const struct cell_run *run, const struct round_totals *totals,
                      const watch *seen, uint64_t weights_hash, struct json_writer *writer)
{
    const struct settings *settings = run->settings;
    const struct job *job = run->job;
    const struct timeline *line = run->line;
    struct loader_staging staging;
    char doubt[512];
    struct settings copy = *settings;
    struct option_binding bindings[16];
    const size_t count = job_bind_options(&copy, bindings);
    loader_read_staging(job->train_loader, &staging);
    json_key(writer, "settings");
    options_write(bindings, count, true, writer);
    json_key_bool(writer, "timing", settings->timing);
    round_totals_write(totals, settings->timing, writer);
    json_key(writer, "weights_hash");
    json_hex64(writer, weights_hash);
    json_key(writer, "plans_hash");
    json_hex64(writer, run->plans_hash);
    json_key(writer, "data_fingerprint");
    json_hex64(writer, job->train_fingerprint);
    write_spent(&run->spent, writer);
    struct loader_counters now;
    loader_read_counters(job->train_loader, &now);
    json_key_int(writer, "cache_images", (int64_t)now.cache_images);
    json_key_bool(writer, "page_locked", staging.page_locked);
    json_key_double(writer, "lock_s", staging.lock_seconds);
    json_key_int(writer, "slots_bytes", (int64_t)staging.host_bytes);
    json_key_string(writer, "marked", seen ? watch_describe(seen, doubt, sizeof doubt) : "");
    if (seen) {
        json_key(writer, "watch");
        watch_write(seen, writer);
    }
    json_key(writer, "timeline");
    json_begin_array(writer);
    for (size_t i = 0; i < line->count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "lane", line->spans[i].lane);
        json_key_string(writer, "name", line->spans[i].name);
        json_key_double(writer, "from", line->spans[i].from);
        json_key_double(writer, "to", line->spans[i].to);
        json_end_object(writer);
    }
    json_end_array(writer);
}

static enum status prepare_cell(struct round *round, struct cell_run *run)
{
    struct loader_staging staging;
    loader_read_staging(run->job->train_loader, &staging);
    TRY(check_locked(run->settings, &staging));
    TRY(settle(round, run->job, run->loop));
    TRY(job_reset_weights(run->job));
    if (is_spoiled(round, run->cell, "weights")) {
        TRY(spoil_weights(run->job));
    }
    run->line->count = 0;
    run->line->steps_left = run->settings->timing ? round->timeline_steps : 0;
    return STATUS_OK;
}

static enum status time_cell(struct round *round, struct cell_run *run, struct json_writer *writer)
{
    TRY(prepare_cell(round, run));
    struct round_totals totals = {.epoch_s = calloc((size_t)round->epochs, sizeof(double))};
    watch *seen = NULL;
    enum status status = STATUS_OK;
    if (!totals.epoch_s) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the times of %lld epochs",
                    (long long)round->epochs);
    }
    if (run->settings->timing) {
        status = watch_open(run->job->dev, WATCH_PERIOD_S, &seen);
    }
    run->spent.settle_s = lap(&run->lap_ns);
    if (status == STATUS_OK) {
        status = run_epochs(round, run->loop, &totals);
    }
    run->spent.timed_s = totals.seconds;
    if (seen) {
        watch_stop(seen);
    }
    uint64_t weights_hash = 0;
    if (status == STATUS_OK) {
        status = network_weights_hash(run->job->net, &weights_hash);
    }
    if (status == STATUS_OK) {
        write_run(run, &totals, seen, weights_hash, writer);
    }
    watch_close(&seen);
    free(totals.epoch_s);
    return status;
}

/* The device and the sets stay open from cell to cell unless a cell changes what they depend on. */
static enum status open_shared(struct round *round, const struct settings *settings)
{
    char text[sizeof round->opened_for];
    request_shared_text(settings, text, sizeof text);
    if (round->dev && strcmp(text, round->opened_for) == 0) {
        return STATUS_OK;
    }
    loader_cache_destroy(&round->cache);
    dataset_close(&round->train_set);
    dataset_close(&round->parts.val_set);
    device_close(&round->dev);
    TRY(device_open(&settings->device, &round->dev));
    TRY(dataset_open(&settings->dataset, &round->train_set, &round->parts.val_set));
    round->parts.dev = round->dev;
    round->parts.train_set = round->train_set;
    memcpy(round->opened_for, text, sizeof text);
    return STATUS_OK;
}

static enum status open_cell(struct round *round, const struct settings *settings,
                             struct cell_run *run)
{
    static struct timeline line;
    const struct train_hooks hooks = {.context = &line, .seen = note_step};
    struct settings opened = *settings;
    /* What is recorded stays as it was: only the bits can tell. */
    if (is_spoiled(round, run->cell, "batches")) {
        opened.loader.mean[0] += 0.01F;
    }
    TRY(open_shared(round, settings));
    TRY(job_open(&opened, JOB_TRAIN_ALONE, &round->parts, round->request.plans, run->job));
    loader_give_cache(run->job->train_loader, &round->cache);
    TRY(note_plans(round, &run->plans_hash));
    TRY(train_loop_open(run->job, &hooks, &run->loop));
    run->line = &line;
    run->spent.setup_s = lap(&run->lap_ns);
    return STATUS_OK;
}

static enum status run_cell(struct round *round, const struct cell *cell, struct spent *sum,
                            struct json_writer *writer)
{
    struct settings settings;
    struct job job = {0};
    struct cell_run run = {
        .cell = cell, .settings = &settings, .job = &job, .lap_ns = clock_now_ns()};
    TRY(cells_settings(&round->request.job, cell, &settings));
    settings.replan = round->other_plans && cell->arithmetic;
    if (is_spoiled(round, cell, "workers")) {
        settings.loader.num_workers++;
    }
    enum status status = open_cell(round, &settings, &run);
    if (status == STATUS_OK) {
        status = time_cell(round, &run, writer);
    }
    if (status == STATUS_OK) {
        status = device_synchronize(job.dev);
    }
    train_loop_close(&run.loop);
    if (job.train_loader) {
        loader_close_keeping(&job.train_loader, &round->cache);
    }
    job_close(&job);
    sum->setup_s += run.spent.setup_s;
    sum->settle_s += run.spent.settle_s;
    sum->timed_s += run.spent.timed_s;
    return status;
}

static void close_shared(struct round *round)
{
    loader_cache_destroy(&round->cache);
    dataset_close(&round->train_set);
    dataset_close(&round->parts.val_set);
    device_close(&round->dev);
    for (size_t i = 0; i < round->list_count; i++) {
        json_document_destroy(&round->plan_lists[i]);
    }
}

static enum status run_order(struct round *round, const struct json_value *order, struct spent *sum,
                             struct json_writer *writer)
{
    for (size_t place = 0; place < order->count; place++) {
        const int64_t index = order->items[place].integer;
        if (index < 0 || (size_t)index >= round->request.cells.count) {
            return FAIL(STATUS_INVALID, "the request's order names cell %lld", (long long)index);
        }
        const struct cell *cell = &round->request.cells.cells[index];
        TRY(stop_check());
        log_verbose("cell %s", cell->name);
        json_begin_object(writer);
        json_key_string(writer, "cell", cell->name);
        json_key_int(writer, "place", (int64_t)place);
        const enum status status = run_cell(round, cell, sum, writer);
        if (status != STATUS_OK) {
            status_prefix("cell \"%s\"", cell->name);
            return status;
        }
        json_end_object(writer);
    }
    return STATUS_OK;
}

enum status round_run(const struct json_value *root, struct json_writer *answer)
{
    static struct round round;
    struct spent sum = {0};
    memset(&round, 0, sizeof round);
    const uint64_t begin_ns = clock_now_ns();
    TRY(request_read(root, &round.request));
    const struct json_value *order = json_member(root, "order");
    round.epochs = json_member_int(root, "epochs", 0);
    round.settle_s = json_member_double(root, "settle_s", 1);
    round.timeline_steps = json_member_int(root, "timeline_steps", 0);
    round.spoil = json_member_string(root, "spoil", "");
    round.other_plans = json_member_bool(root, "other_plans", false);
    if (!order || order->kind != JSON_ARRAY || round.epochs < 1 || round.epochs > MAX_EPOCHS) {
        return FAIL(STATUS_INVALID, "the request of a round is not understood");
    }
    json_begin_object(answer);
    json_key(answer, "runs");
    json_begin_array(answer);
    enum status status = run_order(&round, order, &sum, answer);
    if (status == STATUS_OK) {
        json_end_array(answer);
        write_plans(&round, answer);
    }
    close_shared(&round);
    if (status == STATUS_OK) {
        write_spent(&sum, answer);
        json_key_double(answer, "inside_s", clock_seconds(begin_ns, clock_now_ns()));
        json_end_object(answer);
    }
    return status;
}
