#include "trainer/train_run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/system.h"
#include "trainer/evaluate.h"
#include "trainer/job.h"
#include "trainer/progress.h"
#include "trainer/run_log.h"

struct run {
    const struct settings *settings;
    const struct train_run_observer *observer;
    struct train_run_result *result;
    checkpoint *resumed;
    struct job_parts sets;
    struct job job;
    struct run_log log;
    struct progress progress;
    train_loop *loop;
    evaluator *evaluate;
    struct checkpoint_position position;
};

/* --- Between steps -------------------------------------------------------------------------- */

static enum status on_step(void *context, const struct train_step *step)
{
    struct run *run = context;
    const int every = run->settings->log_every;
    progress_step(&run->progress, run->loop, step);
    if (run->observer && run->observer->step) {
        run->observer->step(run->observer->context, step);
    }
    if (every > 0 && step->step % (uint64_t)every == 0) {
        TRY(run_log_step(&run->log, step));
    }
    return STATUS_OK;
}

static enum status save(struct run *run)
{
    TRY(checkpoint_save(&run->job, run->settings->out, &run->position));
    return STATUS_OK;
}

static enum status on_pause(void *context, uint32_t epoch, uint32_t next_batch)
{
    struct run *run = context;
    char name[32];
    run->position.epoch = epoch;
    run->position.batch = next_batch;
    snprintf(name, sizeof name, "step-%llu",
             (unsigned long long)epoch * run->job.train_layout.batches + next_batch);
    TRY(save(run));
    TRY(checkpoint_save_weights(&run->job, run->settings->out, name, &run->position));
    return STATUS_OK;
}

/* --- Epochs --------------------------------------------------------------------------------- */

static enum status keep_epoch(struct run *run, const struct train_epoch *epoch,
                              const struct evaluation *evaluation)
{
    struct train_run_result *result = run->result;
    struct train_run_epoch *grown =
        realloc(result->epochs, (result->epoch_count + 1) * sizeof *grown);
    if (!grown) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the result of an epoch");
    }
    result->epochs = grown;
    struct train_run_epoch *kept = &grown[result->epoch_count++];
    memset(kept, 0, sizeof *kept);
    kept->train = *epoch;
    kept->train.losses = NULL;
    if (evaluation) {
        kept->evaluated = true;
        kept->accuracy1 = evaluation->accuracy1;
        kept->accuracy5 = evaluation->accuracy5;
        kept->loss = evaluation->loss;
    }
    return STATUS_OK;
}

static bool evaluation_is_due(const struct run *run, uint32_t epoch)
{
    const uint32_t every = (uint32_t)run->settings->eval_every;
    return run->evaluate &&
           ((epoch + 1) % every == 0 || epoch + 1 == (uint32_t)run->settings->epochs);
}

/* A cache that cannot hold the set leaves the rest to be read in every epoch. */
static void warn_of_cache(const struct run *run, const struct train_epoch *epoch)
{
    const struct loader_counters *counters = &epoch->counters;
    const struct loader_settings *loading = &run->job.settings.loader;
    const size_t images = dataset_count(run->job.train_set);
    const bool saw_all = epoch->first_batch == 0 && !loading->drop_last;
    if (loading->cache != CACHE_NONE && run->result->epoch_count == 0 && saw_all &&
        counters->cache_images + counters->bad_images < images) {
        log_warn("--cache holds %llu of %zu images (%.1f MB of %.1f MB); the others are read in "
                 "every epoch: raise --cache-bytes if there is memory for it",
                 (unsigned long long)counters->cache_images, images,
                 (double)counters->cache_bytes / 1e6, (double)counters->cache_limit / 1e6);
    }
}

/* The epoch's last batch has been trained. */
static enum status finish_epoch(struct run *run, const struct train_epoch *epoch)
{
    struct evaluation evaluation;
    const bool due = evaluation_is_due(run, epoch->epoch);
    if (due) {
        TRY(evaluator_run(run->evaluate, &evaluation));
        if (evaluation.accuracy1 > run->position.best_accuracy) {
            run->position.best_accuracy = evaluation.accuracy1;
            run->position.best_epoch = epoch->epoch;
            TRY(checkpoint_save_weights(&run->job, run->settings->out, "best", &run->position));
        }
    }
    progress_end_epoch(&run->progress, epoch, due ? &evaluation : NULL);
    warn_of_cache(run, epoch);
    TRY(run_log_epoch(&run->log, &run->job, epoch, due ? &evaluation : NULL));
    TRY(keep_epoch(run, epoch, due ? &evaluation : NULL));
    run->position.epoch = epoch->epoch + 1;
    run->position.batch = 0;
    return save(run);
}

/* The batch before which --max-steps ends the epoch; 0: it does not. */
static uint32_t last_batch_of(const struct run *run, uint32_t epoch, bool *reached)
{
    const uint64_t batches = run->job.train_layout.batches;
    const uint64_t most = (uint64_t)run->settings->max_steps;
    const uint64_t begin = epoch * batches;
    *reached = most > 0 && most <= begin + (epoch == run->position.epoch ? run->position.batch : 0);
    return most > 0 && most < begin + batches ? (uint32_t)(most - begin) : 0;
}

static enum status run_epoch(struct run *run, uint32_t end_batch)
{
    struct train_epoch epoch;
    const uint32_t batches = run->job.train_layout.batches;
    memset(&epoch, 0, sizeof epoch);
    epoch.epoch = run->position.epoch;
    epoch.loss = NAN; /* of an epoch whose steps were all before a resumption */
    progress_begin_epoch(&run->progress, run->position.epoch, run->position.batch);
    if (run->position.batch < batches) {
        const enum status status = train_loop_epoch(run->loop, run->position.epoch,
                                                    run->position.batch, end_batch, &epoch);
        if (status == STATUS_OK && run->position.batch == 0 && epoch.steps == 0) {
            return FAIL(STATUS_INVALID,
                        "no step could be trained: none of the %llu images of epoch %u could be "
                        "read; `pinline check DIR` says why of each",
                        (unsigned long long)epoch.counters.images, epoch.epoch + 1);
        }
        run->position.batch = epoch.next_batch;
        run->position.seconds += epoch.seconds;
        TRY(status);
    }
    if (run->position.batch < batches) {
        progress_end_epoch(&run->progress, &epoch, NULL);
        TRY(run_log_epoch(&run->log, &run->job, &epoch, NULL));
        TRY(keep_epoch(run, &epoch, NULL));
        return save(run);
    }
    return finish_epoch(run, &epoch);
}

static enum status run_epochs(struct run *run)
{
    while (run->position.epoch < (uint32_t)run->settings->epochs) {
        bool reached;
        TRY(stop_check());
        const uint32_t end = last_batch_of(run, run->position.epoch, &reached);
        if (reached) {
            log_info("--max-steps %lld reached", (long long)run->settings->max_steps);
            break;
        }
        const uint32_t epoch = run->position.epoch;
        TRY(run_epoch(run, end));
        if (run->position.epoch == epoch) {
            log_info("--max-steps %lld reached", (long long)run->settings->max_steps);
            break;
        }
    }
    return train_loop_finish(run->loop);
}

/* --- Beginning ------------------------------------------------------------------------------ */

static enum status open_resumed(struct run *run)
{
    run->position.best_accuracy = -1;
    if (run->settings->resume) {
        TRY(checkpoint_open(run->settings->resume, &run->resumed));
        TRY(checkpoint_check_settings(run->resumed, run->settings));
        checkpoint_read_position(run->resumed, &run->position);
        /* In a folder without the best weights so far, the best are sought anew. */
        char *best = file_join(run->settings->out, "best.safetensors");
        if (!best) {
            return FAIL(STATUS_NO_MEMORY, "no memory for a path in %s", run->settings->out);
        }
        if (!file_exists(best)) {
            run->position.best_accuracy = -1;
        }
        free(best);
    }
    return STATUS_OK;
}

/* Sets are opened first: whether their data is that of the checkpoint is known at once, while
 * planning the network may take long. */
static enum status open_sets(struct run *run)
{
    const struct dataset_settings *wanted = &run->settings->dataset;
    if (!wanted->data) {
        return FAIL(STATUS_USAGE,
                    "--data is missing: name a folder that holds one folder of images "
                    "for each class (`pinline synth DIR` makes one)");
    }
    TRY(dataset_open(wanted, &run->sets.train_set, &run->sets.val_set));
    if (run->resumed) {
        TRY(checkpoint_check_data(run->resumed, run->sets.train_set));
    }
    return STATUS_OK;
}

/* More threads than CPUs are allowed, and hardly ever meant. */
static void warn_of_threads(const struct settings *settings)
{
    struct system_facts machine;
    system_read_facts(&machine);
    if (settings->loader.num_workers > machine.cpus_allowed) {
        log_warn(
            "--num-workers %d is more than the %d CPUs allowed to this process: they take turns",
            settings->loader.num_workers, machine.cpus_allowed);
    }
    if (settings->device.host_threads > machine.cpus_allowed) {
        log_warn(
            "--host-threads %d is more than the %d CPUs allowed to this process: they take turns",
            settings->device.host_threads, machine.cpus_allowed);
    }
}

static void say_what_runs(const struct run *run, const struct device_facts *facts)
{
    const struct job *job = &run->job;
    const struct loader_settings *loading = &job->settings.loader;
    struct loader_staging staging;
    struct network_memory memory;
    loader_read_staging(job->train_loader, &staging);
    network_read_memory(job->net, &memory);
    log_info("%s on %s: %zu images of %d classes, %u batches of %d an epoch, %zu images for "
             "validation",
             job->settings.network.model, facts->name, dataset_count(job->train_set),
             dataset_class_count(job->train_set), job->train_layout.batches, loading->batch_size,
             job->val_set ? dataset_count(job->val_set) : (size_t)0);
    log_info("%d worker%s, %d slots of %.2f MB in %s memory (%.1f MB%s), copies %s on %s",
             loading->num_workers, loading->num_workers == 1 ? "" : "s", job->train_layout.slots,
             (double)job->train_layout.slot_bytes / 1e6,
             staging.page_locked ? "page-locked" : "pageable", (double)staging.host_bytes / 1e6,
             staging.page_locked ? " locked" : "",
             loading->non_blocking ? "issued without waiting" : "waited for",
             loading->copy_stream == COPY_STREAM_DEDICATED ? "a stream of their own"
                                                           : "the stream of the kernels");
    warn_of_threads(&job->settings);
    if (staging.fell_back) {
        log_warn("--pin-memory auto took pageable memory: %s", staging.note);
    }
    log_verbose(
        "device memory: parameters %.1f MB, gradients %.1f MB, optimiser %.1f MB, activations "
        "%.1f MB, slots %.1f MB",
        (double)memory.parameters / 1e6, (double)memory.gradients / 1e6, (double)memory.state / 1e6,
        (double)memory.activations / 1e6, (double)staging.device_bytes / 1e6);
    if (!facts->copies_are_real) {
        log_info("this is the host device: --pin-memory, --non-blocking and --copy-stream change "
                 "memory and the order of waiting here, not speed");
    }
}

/* Evaluation belongs to the job where there is a set and a wish for it. */
static enum job_use use_of(const struct run *run)
{
    return run->sets.val_set && run->settings->eval_every > 0 ? JOB_TRAIN : JOB_TRAIN_ALONE;
}

static enum status check_folder(const struct settings *settings)
{
    TRY(dataset_check_output(&settings->dataset, "--out", settings->out));
    TRY(run_log_check(settings));
    TRY(file_make_folder(settings->out));
    if (access(settings->out, W_OK) != 0) {
        return FAIL(STATUS_IO, "--out %s cannot be written to; choose another folder",
                    settings->out);
    }
    return STATUS_OK;
}

static enum status open_run(struct run *run)
{
    const struct settings *settings = run->settings;
    const struct train_hooks hooks = {.context = run,
                                      .seen = on_step,
                                      .pause = on_pause,
                                      .pause_every = (uint64_t)settings->save_every};
    struct device_facts facts;
    TRY(open_resumed(run));
    TRY(open_sets(run));
    TRY(check_folder(settings));
    TRY(job_open(settings, use_of(run), &run->sets,
                 run->resumed ? checkpoint_plans(run->resumed) : NULL, &run->job));
    const uint64_t most_saves = settings->save_every > 0
                                    ? run->job.schedule.total_steps / (uint64_t)settings->save_every
                                    : 0;
    TRY(checkpoint_check_space(&run->job, settings->out, most_saves));
    if (run->resumed) {
        TRY(checkpoint_restore(run->resumed, &run->job));
    }
    TRY(train_loop_open(&run->job, &hooks, &run->loop));
    if (run->job.val_set) {
        TRY(evaluator_open(&run->job, &run->evaluate));
    }
    TRY(run_log_open(&run->log, settings, run->position.epoch));
    TRY(run_log_start(&run->log, &run->job, settings->resume, run->position.epoch,
                      run->position.batch));
    TRY(device_read_facts(run->job.dev, &facts));
    progress_init(&run->progress, &run->job, facts.copies_are_real);
    say_what_runs(run, &facts);
    if (run->resumed) {
        log_info("going on with epoch %u, batch %u of %u", run->position.epoch + 1,
                 run->position.batch, run->job.train_layout.batches);
    }
    return STATUS_OK;
}

/* --- End ------------------------------------------------------------------------------------ */

/* Whether the weights that are in the device are those of run->position. */
static bool is_worth_saving(enum status status)
{
    return status != STATUS_DIVERGED && status != STATUS_MISMATCH && status != STATUS_DEVICE &&
           status != STATUS_INTERNAL;
}

/* After a failure: saves what can be saved and puts that into the message. */
static enum status save_after(struct run *run, enum status status)
{
    struct status_report report;
    if (!is_worth_saving(status)) {
        return status;
    }
    status_save(&report, status);
    const enum status saved = save(run);
    if (saved != STATUS_OK) {
        log_warn("the state could not be saved: %s", status_message());
        return status_restore(&report);
    }
    const enum status restored = status_restore(&report);
    return FAIL(restored,
                "%s; the state before step %llu is saved: go on with --resume "
                "%s/last.safetensors",
                report.message,
                (unsigned long long)run->position.epoch * run->job.train_layout.batches +
                    run->position.batch,
                run->settings->out);
}

/* Finding, not name: whether a copy call returns before the copy is done. */
static void say_what_copies_did(const struct run *run)
{
    const struct train_run_result *result = run->result;
    double call = 0, took = 0, hidden = 0, busy = 0;
    uint64_t copies = 0, waits = 0;
    for (size_t i = 0; i < result->epoch_count; i++) {
        const struct train_epoch *epoch = &result->epochs[i].train;
        call += (double)epoch->counters.copy_call_ns * 1e-6;
        took += epoch->device.copy * 1e3;
        hidden += epoch->device.hidden;
        busy += epoch->device.copy;
        copies += epoch->counters.copies;
        waits += epoch->counters.waits_copy;
    }
    struct device_facts facts;
    if (copies == 0 || device_read_facts(run->job.dev, &facts) != STATUS_OK ||
        !facts.copies_are_real) {
        return;
    }
    log_info("a copy took %.3f ms and its call kept the host for %.3f ms; the host waited for %.2f "
             "copies a step; %.0f %% of copying was hidden behind computing",
             took / (double)copies, call / (double)copies, (double)waits / (double)copies,
             busy > 0 ? 100 * hidden / busy : 0);
}

static enum status end_log(struct run *run, enum status status)
{
    struct json_writer writer;
    if (!run->log.log) {
        return STATUS_OK;
    }
    TRY(run_log_bad_images(&run->log, &run->job));
    run_log_begin(&run->log, "end", &writer);
    json_key_string(&writer, "status", status_name(status));
    json_key_string(&writer, "message", status == STATUS_OK ? NULL : status_message());
    json_key_int(&writer, "epoch", (int64_t)run->position.epoch + 1);
    json_key_int(&writer, "batch", run->position.batch);
    json_key_double(&writer, "train_seconds", run->position.seconds);
    json_key_int(&writer, "verified_batches",
                 run->loop ? (int64_t)train_loop_verified(run->loop) : 0);
    json_key(&writer, "weights_hash");
    if (run->result->finished) {
        json_hex64(&writer, run->result->weights_hash);
    } else {
        json_null(&writer);
    }
    return run_log_end(&run->log, &writer);
}

static enum status finish_run(struct run *run)
{
    char duration[32];
    const struct settings *settings = run->settings;
    TRY(network_weights_hash(run->job.net, &run->result->weights_hash));
    run->result->finished = true;
    say_what_copies_did(run);
    if (settings->verify_batches) {
        log_info("--verify-batches: %llu batches were read as they were decoded",
                 (unsigned long long)train_loop_verified(run->loop));
    }
    progress_duration_text(run->position.seconds, duration, sizeof duration);
    if (run->position.best_accuracy >= 0) {
        log_info("done after %s of training: %s/best.safetensors has a validation accuracy of %.2f "
                 "%% (epoch %u), %s/last.safetensors is the end",
                 duration, settings->out, run->position.best_accuracy * 100,
                 run->position.best_epoch + 1, settings->out);
    } else {
        log_info("done after %s of training: %s/last.safetensors", duration, settings->out);
    }
    return STATUS_OK;
}

static void close_run(struct run *run)
{
    train_loop_close(&run->loop);
    evaluator_close(&run->evaluate);
    run_log_close(&run->log);
    job_close(&run->job);
    dataset_close(&run->sets.train_set);
    dataset_close(&run->sets.val_set);
    checkpoint_close(&run->resumed);
}

enum status train_run(const struct settings *settings, const struct train_run_observer *observer,
                      struct train_run_result *result)
{
    struct run run;
    memset(&run, 0, sizeof run);
    memset(result, 0, sizeof *result);
    run.settings = settings;
    run.observer = observer;
    run.result = result;
    enum status status = open_run(&run);
    if (status == STATUS_OK) {
        status = run_epochs(&run);
        progress_end(&run.progress);
        status = status == STATUS_OK ? finish_run(&run) : save_after(&run, status);
        result->position = run.position;
    }
    struct status_report report;
    status_save(&report, status);
    const enum status logged = end_log(&run, status);
    close_run(&run);
    if (status != STATUS_OK) {
        return status_restore(&report);
    }
    return logged;
}
