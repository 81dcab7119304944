#include "trainer/settings.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "trainer/verify.h"

void settings_defaults(struct settings *settings)
{
    memset(settings, 0, sizeof *settings);
    settings->dataset.val_fraction = 0.1;
    loader_settings_defaults(&settings->loader);
    device_settings_defaults(&settings->device);
    network_settings_defaults(&settings->network);
    settings->optimiser = (struct optimiser_settings){
        .momentum = 0.9,
        .weight_decay = 5e-4,
        .beta1 = 0.9,
        .beta2 = 0.999,
        .epsilon = 1e-8,
        .schedule = SCHEDULE_ONE_CYCLE,
        .step_epochs = 30,
        .step_factor = 0.1,
    };
    settings->epochs = 10;
    settings->eval_every = 1;
    settings->log_every = 50;
    settings->out = "run";
    settings->dump_count = 8;
    settings->top_k = 5;
    settings->timing = true;
}

/* Plans are looked for once on a machine, where the user has a home. */
static void choose_plan_cache(struct settings *settings)
{
    static char path[PATH_MAX];
    const char *caches = getenv("XDG_CACHE_HOME");
    const char *home = getenv("HOME");
    if (settings->device.plan_cache || settings->device.kind == DEVICE_HOST) {
        return;
    }
    char folder[PATH_MAX - 16];
    int length = -1;
    if (caches && caches[0] == '/') {
        length = snprintf(folder, sizeof folder, "%s/pinline", caches);
    } else if (home && home[0] == '/') {
        length = snprintf(folder, sizeof folder, "%s/.cache/pinline", home);
    }
    if (length < 0 || (size_t)length >= sizeof folder) {
        return;
    }
    if (file_make_folder(folder) != STATUS_OK) {
        status_clear();
        return;
    }
    snprintf(path, sizeof path, "%s/plans.json", folder);
    settings->device.plan_cache = path;
}

double settings_default_rate(enum optimiser optimiser)
{
    return optimiser == OPTIMISER_SGD ? 0.05 : 0.001;
}

enum status settings_complete(struct settings *settings)
{
    if (settings->resume && settings->weights) {
        return FAIL(STATUS_USAGE, "--resume and --weights exclude each other: a resumed run has "
                                  "its own weights");
    }
    if (settings->resume && settings->overwrite) {
        return FAIL(STATUS_USAGE, "--resume and --overwrite exclude each other: resuming goes on "
                                  "in the run's folder");
    }
    if (settings->network.nesterov &&
        (settings->network.optimiser != OPTIMISER_SGD || settings->optimiser.momentum == 0)) {
        return FAIL(STATUS_USAGE, "--nesterov needs --optimizer sgd with a --momentum above 0");
    }
    if (settings->optimiser.rate == 0) {
        settings->optimiser.rate = settings_default_rate(settings->network.optimiser);
    }
    if (settings->optimiser.schedule == SCHEDULE_COSINE &&
        settings->optimiser.final_rate > settings->optimiser.rate) {
        return FAIL(STATUS_USAGE, "--final-lr %g is above --lr %g; lower it",
                    settings->optimiser.final_rate, settings->optimiser.rate);
    }
    if (settings->optimiser.warmup_epochs > settings->epochs) {
        return FAIL(STATUS_USAGE, "--warmup-epochs %g is more than --epochs %d; lower it",
                    settings->optimiser.warmup_epochs, settings->epochs);
    }
    choose_plan_cache(settings);
    settings->loader.seed = settings->seed;
    settings->loader.timing = settings->timing;
    settings->loader.keep_shadows = settings->verify_batches ? VERIFY_DEPTH : 0;
    settings->loader.augment.size = (uint32_t)settings->loader.size;
    settings->loader.augment.flip = settings->flip ? 0.5 : 0;
    settings->network.precision = settings->device.precision;
    settings->network.image_size = settings->loader.size;
    if (settings->eval_batch == 0) {
        settings->eval_batch = settings->loader.batch_size;
    }
    return STATUS_OK;
}
