/* Epochs of a job: what experiments rely on, the check of batches, and dumps. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/stop.h"
#include "data/synth.h"
#include "models/safetensors.h"
#include "tests/support/check_run.h"
#include "tests/support/trainer_set.h"
#include "trainer/dump.h"
#include "trainer/job.h"
#include "trainer/train_loop.h"
#include "trainer/verify.h"

enum { SIZE = 8, IMAGES = 36, BATCHES = 5 };

static void open_job(struct settings *settings, const struct job_parts *parts, struct job *job)
{
    ck_assert_int_eq(settings_complete(settings), STATUS_OK);
    ck_assert_msg(job_open(settings, JOB_TRAIN_ALONE, parts, NULL, job) == STATUS_OK, "%s",
                  status_message());
}

struct outcome {
    uint64_t loss_hash, weights_hash;
    float losses[BATCHES];
    struct train_epoch epoch;
};

static void run_epoch(struct job *job, train_loop *loop, uint32_t epoch, struct outcome *outcome)
{
    ck_assert_msg(train_loop_epoch(loop, epoch, 0, 0, &outcome->epoch) == STATUS_OK, "%s",
                  status_message());
    ck_assert_uint_eq(outcome->epoch.steps, BATCHES);
    ck_assert_uint_eq(outcome->epoch.samples, IMAGES);
    ck_assert_uint_eq(outcome->epoch.next_batch, BATCHES);
    memcpy(outcome->losses, outcome->epoch.losses, sizeof outcome->losses);
    outcome->loss_hash = outcome->epoch.loss_hash;
    ck_assert_int_eq(network_weights_hash(job->net, &outcome->weights_hash), STATUS_OK);
}

/* A cell after another with lent sets and device: same weights, same bits, whatever the flags. */
START_TEST(test_cells_over_lent_parts_give_the_same_bits)
{
    struct settings settings;
    struct job_parts parts;
    struct job job;
    train_loop *loop;
    struct outcome first, again;
    memset(&parts, 0, sizeof parts);
    trainer_set_begin(IMAGES, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_int_eq(dataset_open(&settings.dataset, &parts.train_set, NULL), STATUS_OK);
    ck_assert_int_eq(device_open(&settings.device, &parts.dev), STATUS_OK);
    for (int cell = 0; cell < 8; cell++) {
        settings.loader.pin_memory = cell & 1 ? PIN_ON : PIN_OFF;
        settings.loader.non_blocking = (cell & 2) != 0;
        settings.loader.copy_stream = cell & 4 ? COPY_STREAM_DEDICATED : COPY_STREAM_COMPUTE;
        settings.loader.num_workers = cell % 3;
        open_job(&settings, &parts, &job);
        ck_assert_ptr_eq(job.dev, parts.dev);
        ck_assert_int_eq(train_loop_open(&job, NULL, &loop), STATUS_OK);
        run_epoch(&job, loop, 0, cell == 0 ? &first : &again);
        if (cell > 0) {
            ck_assert_uint_eq(again.loss_hash, first.loss_hash);
            ck_assert_uint_eq(again.weights_hash, first.weights_hash);
        }
        /* Blocking cells wait for each copy once, the others never. */
        const struct outcome *now = cell == 0 ? &first : &again;
        ck_assert_uint_eq(now->epoch.counters.waits_copy, cell & 2 ? 0 : BATCHES);
        ck_assert_uint_eq(now->epoch.counters.copies, BATCHES);
        /* The weights of the beginning again, and the same epoch once more. */
        ck_assert_int_eq(job_reset_weights(&job), STATUS_OK);
        run_epoch(&job, loop, 0, &again);
        ck_assert_uint_eq(again.weights_hash, first.weights_hash);
        /* Going on instead gives others. */
        run_epoch(&job, loop, 1, &again);
        ck_assert_uint_ne(again.weights_hash, first.weights_hash);
        train_loop_close(&loop);
        job_close(&job);
    }
    device_close(&parts.dev);
    dataset_close(&parts.train_set);
    trainer_set_end();
}
END_TEST

START_TEST(test_deferred_streams_give_the_same_bits)
{
    struct settings settings;
    struct job job;
    train_loop *loop;
    struct outcome now, later;
    trainer_set_begin(IMAGES, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    settings.verify_batches = true;
    for (int mode = 0; mode < 2; mode++) {
        settings.device.host_mode = mode == 0 ? HOST_IMMEDIATE : HOST_DEFERRED;
        settings.loader.non_blocking = true;
        settings.loader.prefetch = mode == 0 ? 0 : 2;
        open_job(&settings, NULL, &job);
        ck_assert_int_eq(train_loop_open(&job, NULL, &loop), STATUS_OK);
        run_epoch(&job, loop, 0, mode == 0 ? &now : &later);
        ck_assert_uint_eq(train_loop_verified(loop), BATCHES);
        train_loop_close(&loop);
        job_close(&job);
    }
    ck_assert_uint_eq(now.loss_hash, later.loss_hash);
    ck_assert_uint_eq(now.weights_hash, later.weights_hash);
    trainer_set_end();
}
END_TEST

/* --- Hooks ---------------------------------------------------------------------------------- */

struct heard {
    int seen, pauses;
    uint64_t next_step;
    uint32_t paused_at[8];
    int stop_at;
    const struct job *job;
};

static enum status on_seen(void *context, const struct train_step *step)
{
    struct heard *heard = context;
    ck_assert_uint_eq(step->step, heard->next_step);
    ck_assert_int_eq(step->n, step->batch == BATCHES - 1 ? IMAGES % 8 : 8);
    ck_assert_double_eq(step->rate, schedule_rate(&heard->job->schedule, step->step));
    ck_assert_double_le(step->copy_begin, step->copy_end);
    ck_assert_double_le(step->copy_end, step->begin + 1e-9);
    ck_assert_double_le(step->begin, step->end);
    heard->next_step++;
    heard->seen++;
    if (heard->seen == heard->stop_at) {
        stop_set(SIGINT);
    }
    return STATUS_OK;
}

static enum status on_pause(void *context, uint32_t epoch, uint32_t next_batch)
{
    struct heard *heard = context;
    ck_assert_uint_eq((uint64_t)epoch * BATCHES + next_batch, heard->next_step);
    heard->paused_at[heard->pauses++] = next_batch;
    return STATUS_OK;
}

START_TEST(test_hooks_hear_every_step_and_pause)
{
    struct settings settings;
    struct job job;
    train_loop *loop;
    struct heard heard = {.job = &job};
    const struct train_hooks hooks = {
        .context = &heard, .seen = on_seen, .pause = on_pause, .pause_every = 2};
    struct train_epoch epoch;
    trainer_set_begin(IMAGES, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    open_job(&settings, NULL, &job);
    ck_assert_int_eq(train_loop_open(&job, &hooks, &loop), STATUS_OK);
    ck_assert_int_eq(train_loop_epoch(loop, 0, 0, 0, &epoch), STATUS_OK);
    ck_assert_int_eq(heard.seen, BATCHES);
    ck_assert_int_eq(heard.pauses, 2);
    ck_assert_uint_eq(heard.paused_at[0], 2);
    ck_assert_uint_eq(heard.paused_at[1], 4);
    /* A range of batches of the next epoch, then the rest of it. */
    ck_assert_int_eq(train_loop_epoch(loop, 1, 0, 2, &epoch), STATUS_OK);
    ck_assert_uint_eq(epoch.next_batch, 2);
    ck_assert_int_eq(train_loop_epoch(loop, 1, 2, 0, &epoch), STATUS_OK);
    ck_assert_uint_eq(epoch.next_batch, BATCHES);
    ck_assert_uint_eq(epoch.steps, BATCHES - 2);
    ck_assert_int_eq(heard.seen, 2 * BATCHES);
    /* A stop ends it before the next batch; another epoch can follow. */
    heard.stop_at = 2 * BATCHES + 2;
    ck_assert_int_eq(train_loop_epoch(loop, 2, 0, 0, &epoch), STATUS_INTERRUPTED);
    stop_set(0);
    ck_assert_uint_eq(epoch.next_batch, 2);
    ck_assert_int_eq(train_loop_epoch(loop, 2, 2, 0, &epoch), STATUS_OK);
    train_loop_close(&loop);
    job_close(&job);
    trainer_set_end();
}
END_TEST

/* --- The check of batches ------------------------------------------------------------------- */

/* Reads the first batch, changes one value of the input behind the check's back when `fault`, and
 * compares. */
static enum status verify_one(struct job *job, bool fault)
{
    verifier *v;
    struct batch *batch;
    const float wrong = 0.125F;
    ck_assert_int_eq(verifier_open(job, &v), STATUS_OK);
    ck_assert_int_eq(loader_begin_epoch(job->train_loader, 0, 0), STATUS_OK);
    ck_assert_int_eq(loader_next(job->train_loader, &batch), STATUS_OK);
    ck_assert_int_eq(loader_upload(job->train_loader, batch), STATUS_OK);
    ck_assert_int_eq(network_ingest(job->net, true, batch->slot, batch->n), STATUS_OK);
    const struct tensor input = network_input(job->net, batch->n);
    if (fault) {
        /* Image 3, row 1, column 2, channel 1. */
        const size_t at = (((size_t)3 * SIZE + 1) * SIZE + 2) * (size_t)input.c + 1;
        ck_assert_int_eq(device_copy_to_device(job->dev, job->compute, input.buffer,
                                               input.offset + at * sizeof wrong, &wrong,
                                               sizeof wrong),
                         STATUS_OK);
    }
    ck_assert_int_eq(verifier_submit(v, batch, 17), STATUS_OK);
    ck_assert_int_eq(loader_release(job->train_loader, &batch), STATUS_OK);
    ck_assert_int_eq(device_synchronize(job->dev), STATUS_OK);
    const enum status status = verifier_check(v);
    verifier_close(&v);
    ck_assert_int_eq(loader_cancel_epoch(job->train_loader), STATUS_OK);
    return status;
}

START_TEST(test_verify_names_the_place_of_a_wrong_pixel)
{
    struct settings settings;
    struct job job;
    trainer_set_begin(IMAGES, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    settings.verify_batches = true;
    for (int transfer = 0; transfer < 2; transfer++) {
        settings.loader.transfer = transfer == 0 ? TRANSFER_U8 : TRANSFER_F32;
        open_job(&settings, NULL, &job);
        ck_assert_msg(verify_one(&job, false) == STATUS_OK, "%s", status_message());
        ck_assert_int_eq(verify_one(&job, true), STATUS_MISMATCH);
        ck_assert_msg(strstr(status_message(), "step 17 ") != NULL, "%s", status_message());
        ck_assert_msg(strstr(status_message(), "place 3, ") != NULL, "%s", status_message());
        ck_assert_msg(strstr(status_message(), "row 1, column 2, channel 1") != NULL, "%s",
                      status_message());
        ck_assert_msg(strstr(status_message(), ".png") != NULL, "%s", status_message());
        job_close(&job);
    }
    trainer_set_end();
}
END_TEST

/* --- Dumps ---------------------------------------------------------------------------------- */

/* The images are PNG of the network's size, so the pixels are known without decoding. */
static void assert_planes(const struct job *job, const float *planes, size_t sample)
{
    char name[256];
    uint8_t rgb[SIZE * SIZE * 3];
    struct synth_settings synth;
    dataset_sample_name(job->train_set, sample, name, sizeof name);
    const char *number = strrchr(name, '/');
    ck_assert_ptr_nonnull(number);
    synth_settings_defaults(&synth);
    synth.width = synth.height = SIZE;
    synth_render(&synth, SYNTH_TRAIN, (size_t)strtoul(number + 1, NULL, 10), rgb);
    for (int pixel = 0; pixel < SIZE * SIZE; pixel++) {
        for (int c = 0; c < 3; c++) {
            const double wanted = (rgb[pixel * 3 + c] / 255.0 - 0.5) / 0.25;
            ck_assert_double_eq_tol((double)planes[c * SIZE * SIZE + pixel], wanted, 1e-5);
        }
    }
}

START_TEST(test_dump_holds_what_the_network_gets)
{
    struct settings settings;
    struct job job;
    train_loop *loop;
    struct train_epoch epoch;
    safetensors *file;
    trainer_set_begin(IMAGES, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    settings.loader.label_smoothing = 0.1;
    settings.dump_batches = trainer_set_path("batches.safetensors");
    settings.dump_count = 2 + BATCHES; /* goes on into the second epoch */
    open_job(&settings, NULL, &job);
    ck_assert_int_eq(train_loop_open(&job, NULL, &loop), STATUS_OK);
    ck_assert_int_eq(train_loop_epoch(loop, 0, 0, 0, &epoch), STATUS_OK);
    ck_assert_int_eq(train_loop_epoch(loop, 1, 0, 0, &epoch), STATUS_OK);
    ck_assert_int_eq(train_loop_finish(loop), STATUS_OK);
    ck_assert_msg(safetensors_open(settings.dump_batches, &file) == STATUS_OK, "%s",
                  status_message());
    ck_assert_uint_eq(safetensors_count(file), (size_t)settings.dump_count * 4);
    for (int i = 0; i < settings.dump_count; i++) {
        char name[32];
        const int n = i == BATCHES - 1 ? IMAGES % 8 : 8;
        snprintf(name, sizeof name, "%d.pixels", i);
        const struct safetensors_entry *pixels = safetensors_find(file, name);
        snprintf(name, sizeof name, "%d.labels", i);
        const struct safetensors_entry *labels = safetensors_find(file, name);
        snprintf(name, sizeof name, "%d.samples", i);
        const struct safetensors_entry *samples = safetensors_find(file, name);
        snprintf(name, sizeof name, "%d.targets", i);
        const struct safetensors_entry *targets = safetensors_find(file, name);
        ck_assert(pixels && labels && samples && targets);
        ck_assert_int_eq(pixels->shape[0], n);
        ck_assert_int_eq(pixels->shape[1], 3);
        ck_assert_int_eq(pixels->shape[2], SIZE);
        ck_assert_int_eq(targets->shape[1], SYNTH_CLASSES);
        for (int image = 0; image < n; image++) {
            const int64_t sample = ((const int64_t *)samples->data)[image];
            const int64_t label = ((const int64_t *)labels->data)[image];
            ck_assert_int_eq(label, dataset_label(job.train_set, (size_t)sample));
            assert_planes(&job, (const float *)pixels->data + image * 3 * SIZE * SIZE,
                          (size_t)sample);
            for (int c = 0; c < SYNTH_CLASSES; c++) {
                const double wanted = (c == label ? 0.9 + 0.01 : 0.01) / n;
                ck_assert_double_eq_tol(
                    (double)((const float *)targets->data)[image * SYNTH_CLASSES + c], wanted,
                    1e-7);
            }
        }
    }
    safetensors_close(&file);
    train_loop_close(&loop);
    job_close(&job);
    trainer_set_end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_cells_over_lent_parts_give_the_same_bits, test_deferred_streams_give_the_same_bits,
        test_hooks_hear_every_step_and_pause,          test_verify_names_the_place_of_a_wrong_pixel,
        test_dump_holds_what_the_network_gets,
    };
    return check_run("train_loop", tests, sizeof tests / sizeof tests[0], 60);
}
