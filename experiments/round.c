#include "experiments/round.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/stop.h"
#include "experiments/cells.h"
#include "experiments/request.h"
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

/* --- Sums over the timed epochs ------------------------------------------------------------- */

struct totals {
    struct train_host_time host;
    struct train_device_time on_device;
    struct loader_counters counters;
    double seconds;
    uint64_t samples, loss_hash, host_cpu_ns, process_cpu_ns;
    double *epoch_s;
    size_t epochs;
};

static void add_epoch(struct totals *totals, const struct train_epoch *epoch)
{
    totals->host.wait_batch += epoch->host.wait_batch;
    totals->host.copy += epoch->host.copy;
    totals->host.issue += epoch->host.issue;
    totals->host.wait_device += epoch->host.wait_device;
    totals->host.rest += epoch->host.rest;
    totals->on_device.span += epoch->device.span;
    totals->on_device.compute += epoch->device.compute;
    totals->on_device.copy += epoch->device.copy;
    totals->on_device.hidden += epoch->device.hidden;
    totals->on_device.idle += epoch->device.idle;
    totals->counters.waits_copy += epoch->counters.waits_copy;
    totals->counters.wait_copy_ns += epoch->counters.wait_copy_ns;
    totals->counters.copy_call_ns += epoch->counters.copy_call_ns;
    totals->counters.copy_bytes += epoch->counters.copy_bytes;
    totals->counters.copies += epoch->counters.copies;
    totals->counters.copy_device_ms += epoch->counters.copy_device_ms;
    totals->counters.batches += epoch->counters.batches;
    totals->counters.bytes_copied_on_host += epoch->counters.bytes_copied_on_host;
    totals->counters.worker_cpu_ns += epoch->counters.worker_cpu_ns;
    totals->counters.read_ns += epoch->counters.read_ns;
    totals->counters.decode_ns += epoch->counters.decode_ns;
    totals->counters.bytes_read += epoch->counters.bytes_read;
    totals->counters.cache_hits += epoch->counters.cache_hits;
    totals->seconds += epoch->seconds;
    totals->samples += epoch->samples;
    totals->host_cpu_ns += epoch->host_cpu_ns;
    totals->loss_hash =
        hash_bytes(totals->loss_hash, epoch->losses, epoch->steps * sizeof *epoch->losses);
    totals->epoch_s[totals->epochs++] = epoch->seconds;
}

static void write_totals(const struct totals *totals, struct json_writer *writer)
{
    json_key_double(writer, "samples_per_s", (double)totals->samples / totals->seconds);
    json_key(writer, "epoch_s");
    json_begin_array(writer);
    for (size_t i = 0; i < totals->epochs; i++) {
        json_double(writer, totals->epoch_s[i]);
    }
    json_end_array(writer);
    json_key(writer, "loss_hash");
    json_hex64(writer, totals->loss_hash);
    json_key(writer, "host");
    json_begin_object(writer);
    json_key_double(writer, "wait_batch", totals->host.wait_batch);
    json_key_double(writer, "copy", totals->host.copy);
    json_key_double(writer, "issue", totals->host.issue);
    json_key_double(writer, "wait_device", totals->host.wait_device);
    json_key_double(writer, "rest", totals->host.rest);
    json_end_object(writer);
    json_key(writer, "device");
    json_begin_object(writer);
    json_key_double(writer, "span", totals->on_device.span);
    json_key_double(writer, "compute", totals->on_device.compute);
    json_key_double(writer, "copy", totals->on_device.copy);
    json_key_double(writer, "hidden", totals->on_device.hidden);
    json_key_double(writer, "idle", totals->on_device.idle);
    json_end_object(writer);
    json_key(writer, "counters");
    json_begin_object(writer);
    json_key_int(writer, "batches", (int64_t)totals->counters.batches);
    json_key_int(writer, "waits_copy", (int64_t)totals->counters.waits_copy);
    json_key_double(writer, "wait_copy_s", (double)totals->counters.wait_copy_ns * 1e-9);
    json_key_double(writer, "copy_call_s", (double)totals->counters.copy_call_ns * 1e-9);
    json_key_double(writer, "copy_device_s", totals->counters.copy_device_ms * 1e-3);
    json_key_int(writer, "copy_bytes", (int64_t)totals->counters.copy_bytes);
    json_key_int(writer, "copies", (int64_t)totals->counters.copies);
    json_key_int(writer, "host_copies", (int64_t)totals->counters.bytes_copied_on_host);
    json_key_int(writer, "bytes_read", (int64_t)totals->counters.bytes_read);
    json_key_int(writer, "cache_hits", (int64_t)totals->counters.cache_hits);
    json_end_object(writer);
    json_key(writer, "cpu");
    json_begin_object(writer);
    json_key_double(writer, "main_s", (double)totals->host_cpu_ns * 1e-9);
    json_key_double(writer, "workers_s", (double)totals->counters.worker_cpu_ns * 1e-9);
    json_key_double(writer, "process_s", (double)totals->process_cpu_ns * 1e-9);
    json_key_double(writer, "read_s", (double)totals->counters.read_ns * 1e-9);
    json_key_double(writer, "decode_s", (double)totals->counters.decode_ns * 1e-9);
    json_end_object(writer);
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

/* Untimed steps in the cell's own settings: two rings at least, and `settle_s` seconds; with a cache,
 * which is empty in a loader that was just opened, a whole epoch. */
static enum status settle(struct round *round, struct job *job, train_loop *loop)
{
    const uint64_t from = clock_now_ns();
    uint32_t chunk = 2 * (uint32_t)job->train_layout.slots;
    struct train_epoch epoch;
    if (job->settings.loader.cache != CACHE_NONE) {
        chunk = 0;
    }
    do {
        TRY(train_loop_epoch(loop, 0, 0, chunk, &epoch));
        chunk = chunk > 0 && chunk < job->train_layout.batches / 2 ? 2 * chunk : 0;
    } while (clock_seconds(from, clock_now_ns()) < round->settle_s);
    return STATUS_OK;
}

static enum status run_epochs(struct round *round, train_loop *loop, struct totals *totals)
{
    const uint64_t cpu = clock_process_cpu_ns();
    totals->loss_hash = HASH_START;
    for (int64_t e = 0; e < round->epochs; e++) {
        struct train_epoch epoch;
        TRY(train_loop_epoch(loop, (uint32_t)e, 0, 0, &epoch));
        add_epoch(totals, &epoch);
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

static void write_run(const struct settings *settings, const struct job *job,
                      const struct totals *totals, const watch *seen, const struct timeline *line,
                      uint64_t weights_hash, uint64_t plans_hash, struct json_writer *writer)
{
    struct loader_staging staging;
    char doubt[512];
    struct settings copy = *settings;
    struct option_binding bindings[16];
    const size_t count = job_bind_options(&copy, bindings);
    loader_read_staging(job->train_loader, &staging);
    json_key(writer, "settings");
    options_write(bindings, count, true, writer);
    write_totals(totals, writer);
    json_key(writer, "weights_hash");
    json_hex64(writer, weights_hash);
    json_key(writer, "plans_hash");
    json_hex64(writer, plans_hash);
    struct loader_counters now;
    loader_read_counters(job->train_loader, &now);
    json_key_int(writer, "cache_images", (int64_t)now.cache_images);
    json_key_bool(writer, "page_locked", staging.page_locked);
    json_key_double(writer, "lock_s", staging.lock_seconds);
    json_key_int(writer, "slots_bytes", (int64_t)staging.host_bytes);
    json_key_string(writer, "marked", watch_describe(seen, doubt, sizeof doubt));
    json_key(writer, "watch");
    watch_write(seen, writer);
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

static enum status time_cell(struct round *round, const struct cell *cell,
                             const struct settings *settings, struct job *job, train_loop *loop,
                             struct timeline *line, uint64_t plans_hash, struct json_writer *writer)
{
    struct loader_staging staging;
    loader_read_staging(job->train_loader, &staging);
    TRY(check_locked(settings, &staging));
    TRY(settle(round, job, loop));
    TRY(job_reset_weights(job));
    if (is_spoiled(round, cell, "weights")) {
        TRY(spoil_weights(job));
    }
    struct totals totals = {.epoch_s = calloc((size_t)round->epochs, sizeof(double))};
    watch *seen = NULL;
    if (!totals.epoch_s) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the times of %lld epochs",
                    (long long)round->epochs);
    }
    line->count = 0;
    line->steps_left = round->timeline_steps;
    enum status status = watch_open(job->dev, WATCH_PERIOD_S, &seen);
    if (status == STATUS_OK) {
        status = run_epochs(round, loop, &totals);
        watch_stop(seen);
    }
    uint64_t weights_hash = 0;
    if (status == STATUS_OK) {
        status = network_weights_hash(job->net, &weights_hash);
    }
    if (status == STATUS_OK) {
        write_run(settings, job, &totals, seen, line, weights_hash, plans_hash, writer);
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

static enum status run_cell(struct round *round, const struct cell *cell,
                            struct json_writer *writer)
{
    struct settings settings;
    struct job job = {0};
    train_loop *loop = NULL;
    static struct timeline line;
    uint64_t plans_hash = 0;
    TRY(cells_settings(&round->request.job, cell, &settings));
    settings.replan = round->other_plans && cell->arithmetic;
    if (is_spoiled(round, cell, "workers")) {
        settings.loader.num_workers++;
    }
    /* What is recorded stays as it was: only the bits can tell. */
    struct settings opened = settings;
    if (is_spoiled(round, cell, "batches")) {
        opened.loader.mean[0] += 0.01F;
    }
    TRY(open_shared(round, &settings));
    const struct train_hooks hooks = {.context = &line, .seen = note_step};
    enum status status =
        job_open(&opened, JOB_TRAIN_ALONE, &round->parts, round->request.plans, &job);
    if (status == STATUS_OK) {
        status = note_plans(round, &plans_hash);
    }
    if (status == STATUS_OK) {
        status = train_loop_open(&job, &hooks, &loop);
    }
    if (status == STATUS_OK) {
        status = time_cell(round, cell, &settings, &job, loop, &line, plans_hash, writer);
    }
    if (status == STATUS_OK) {
        status = device_synchronize(job.dev);
    }
    train_loop_close(&loop);
    job_close(&job);
    return status;
}

static void close_shared(struct round *round)
{
    dataset_close(&round->train_set);
    dataset_close(&round->parts.val_set);
    device_close(&round->dev);
    for (size_t i = 0; i < round->list_count; i++) {
        json_document_destroy(&round->plan_lists[i]);
    }
}

static enum status run_order(struct round *round, const struct json_value *order,
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
        const enum status status = run_cell(round, cell, writer);
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
    memset(&round, 0, sizeof round);
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
    enum status status = run_order(&round, order, answer);
    if (status == STATUS_OK) {
        json_end_array(answer);
        write_plans(&round, answer);
        json_end_object(answer);
    }
    close_shared(&round);
    return status;
}
