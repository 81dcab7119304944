#include "tests/support/trainer_set.h"

#include <check.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "data/synth.h"
#include "tests/support/data_files.h"

void trainer_set_begin(size_t train, size_t val, int size)
{
    struct synth_settings synth;
    data_files_begin();
    log_set_level(LOG_QUIET);
    synth_settings_defaults(&synth);
    synth.folder = data_files_path("images");
    synth.train_count = train;
    synth.val_count = val;
    synth.width = synth.height = size;
    ck_assert_msg(synth_write(&synth, NULL) == STATUS_OK, "%s", status_message());
}

void trainer_set_end(void)
{
    data_files_end();
}

const char *trainer_set_path(const char *name)
{
    return data_files_path(name);
}

void trainer_set_settings(struct settings *settings, int size, const char *out)
{
    settings_defaults(settings);
    settings->dataset.data = data_files_path("images");
    settings->out = data_files_path(out);
    settings->loader.size = size;
    settings->loader.batch_size = 8;
    settings->loader.num_workers = 1;
    settings->device.kind = DEVICE_HOST;
    settings->device.host_threads = 1;
    settings->epochs = 2;
    settings->log_every = 1;
    settings->quiet = true;
}

static void on_step(void *context, const struct train_step *step)
{
    struct seen_run *seen = context;
    ck_assert_uint_lt(step->step, TRAINER_SET_STEPS);
    seen->losses[step->step] = step->loss;
    seen->last_step = step->step;
    seen->steps++;
    if (seen->stop_at >= 0 && step->step == (uint64_t)seen->stop_at) {
        stop_set(SIGINT);
    }
}

void trainer_set_run(const struct settings *settings, int64_t stop_at, struct seen_run *seen)
{
    struct settings completed = *settings;
    const struct train_run_observer observer = {.context = seen, .step = on_step};
    memset(seen, 0, sizeof *seen);
    for (size_t i = 0; i < TRAINER_SET_STEPS; i++) {
        seen->losses[i] = NAN;
    }
    seen->stop_at = stop_at;
    ck_assert_msg(settings_complete(&completed) == STATUS_OK, "%s", status_message());
    seen->status = train_run(&completed, &observer, &seen->result);
    const struct checkpoint_position position = seen->result.position;
    const uint64_t hash = seen->result.weights_hash;
    const bool finished = seen->result.finished;
    const size_t epochs = seen->result.epoch_count;
    train_run_result_close(&seen->result);
    seen->result.position = position;
    seen->result.weights_hash = hash;
    seen->result.finished = finished;
    seen->result.epoch_count = epochs;
    stop_set(0);
}
