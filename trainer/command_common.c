#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"

enum status command_set_log_level(const struct settings *settings)
{
    if (settings->quiet && settings->verbose) {
        return FAIL(STATUS_USAGE, "--quiet and --verbose exclude each other");
    }
    log_set_level(settings->quiet ? LOG_QUIET : settings->verbose ? LOG_VERBOSE : LOG_NORMAL);
    return STATUS_OK;
}

enum status command_check_device(struct settings *settings)
{
    static char cuda_only[256];
    struct device_settings *wanted = &settings->device;
    const struct {
        const char *name;
        bool idle; /* on the host */
    } rules[] = {
        {"precision tf32", wanted->precision == PRECISION_TF32},
        {"no-deterministic", !wanted->deterministic},
        {"no-capture", !wanted->capture},
        {"spin", wanted->spin},
        {"workspace", options_was_given("workspace")},
        {"plan-candidates", options_was_given("plan-candidates")},
        {"plan-cache", options_was_given("plan-cache")},
        /* With auto it says where to look, and was of use even where nothing was found. */
        {"cuda-libs", wanted->kind == DEVICE_HOST && options_was_given("cuda-libs")},
    };
    size_t used = 0;
    wanted->cuda_only = NULL;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].idle) {
            continue;
        }
        if (wanted->kind == DEVICE_HOST) {
            return FAIL(STATUS_USAGE,
                        "--%s does nothing without --device cuda; leave it out, or give both",
                        rules[i].name);
        }
        used += (size_t)snprintf(cuda_only + used, sizeof cuda_only - used, "%s--%s",
                                 used > 0 ? ", " : "", rules[i].name);
        wanted->cuda_only = wanted->kind == DEVICE_AUTO ? cuda_only : NULL;
    }
    if (wanted->kind == DEVICE_CUDA &&
        (options_was_given("host-threads") || options_was_given("simulate"))) {
        return FAIL(STATUS_USAGE,
                    "--%s does nothing without --device host; leave it out, or give both",
                    options_was_given("simulate") ? "simulate" : "host-threads");
    }
    return STATUS_OK;
}

enum status command_refuse_unused(const struct settings *s, bool (*varies)(const char *option))
{
    const struct {
        const char *name;
        bool used;
        const char *option; /* whose other values would use it */
        const char *needs;
    } rules[] = {
        {"padding", s->loader.augment.kind == AUGMENT_PADDED_CROP, "augment", "--augment crop"},
        {"cache-bytes", s->loader.cache != CACHE_NONE, "cache",
         "--cache encoded or --cache decoded"},
        {"pin-how", s->loader.pin_memory != PIN_OFF, "pin-memory", "--pin-memory"},
        {"beta1", s->network.optimiser == OPTIMISER_ADAMW, "optimizer", "--optimizer adamw"},
        {"beta2", s->network.optimiser == OPTIMISER_ADAMW, "optimizer", "--optimizer adamw"},
        {"epsilon", s->network.optimiser == OPTIMISER_ADAMW, "optimizer", "--optimizer adamw"},
        {"momentum", s->network.optimiser == OPTIMISER_SGD, "optimizer", "--optimizer sgd"},
        {"step-epochs", s->optimiser.schedule == SCHEDULE_STEP, "schedule", "--schedule step"},
        {"step-factor", s->optimiser.schedule == SCHEDULE_STEP, "schedule", "--schedule step"},
        {"final-lr", s->optimiser.schedule == SCHEDULE_COSINE, "schedule", "--schedule cosine"},
        {"dump-count", s->dump_batches, "dump-batches", "--dump-batches"},
        {"replan", s->resume, "resume", "--resume"},
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (options_was_given(rules[i].name) && !rules[i].used &&
            !(varies && varies(rules[i].option))) {
            return FAIL(STATUS_USAGE, "--%s does nothing without %s; leave it out, or give both",
                        rules[i].name, rules[i].needs);
        }
    }
    if (options_was_given("val-fraction") && s->dataset.val_data) {
        return FAIL(STATUS_USAGE, "--val-fraction does nothing with --val-data; give one of them");
    }
    return STATUS_OK;
}

static enum status take_names(struct settings *settings, const struct checkpoint_model *model)
{
    if (!options_was_given("model")) {
        const char *found = NULL;
        for (size_t i = 0; network_model_names[i]; i++) {
            if (strcmp(network_model_names[i], model->model) == 0) {
                found = network_model_names[i];
            }
        }
        if (!found) {
            return FAIL(STATUS_UNSUPPORTED,
                        "%s holds weights of the model \"%s\", which this "
                        "program does not have",
                        settings->weights, model->model);
        }
        settings->network.model = found;
    }
    if (!options_was_given("stem")) {
        settings->network.stem = strcmp(model->stem, "small") == 0   ? STEM_SMALL
                                 : strcmp(model->stem, "large") == 0 ? STEM_LARGE
                                                                     : STEM_AUTO;
    }
    return STATUS_OK;
}

enum status command_take_model(struct settings *settings)
{
    struct checkpoint_model model;
    if (!settings->weights) {
        return FAIL(STATUS_USAGE, "--weights is missing: name the weights to use, for instance "
                                  "run/best.safetensors");
    }
    enum status status = checkpoint_read_model(settings->weights, &model);
    if (status == STATUS_OK && model.known) {
        status = take_names(settings, &model);
        if (!options_was_given("size") && model.size > 0) {
            settings->loader.size = model.size;
        }
        if (!options_was_given("mean")) {
            memcpy(settings->loader.mean, model.mean, sizeof model.mean);
        }
        if (!options_was_given("std")) {
            memcpy(settings->loader.deviation, model.deviation, sizeof model.deviation);
        }
        if (!options_was_given("augment")) {
            settings->loader.augment.kind = model.centre ? AUGMENT_CENTRE : AUGMENT_NONE;
        }
        if (!options_was_given("exif-orientation")) {
            settings->loader.image.exif_orientation = model.exif_orientation;
        }
        if (!options_was_given("exact-decode")) {
            settings->loader.image.exact_decode = model.exact_decode;
        }
    }
    checkpoint_model_close(&model);
    return status;
}

enum status command_open_as_divided(const struct dataset_settings *settings, dataset **train,
                                    dataset **val)
{
    struct dataset_settings whole = *settings;
    whole.val_fraction = 0;
    return dataset_open(&whole, train, val);
}

void command_print_json(void (*write)(void *context, struct json_writer *writer), void *context)
{
    struct json_writer writer;
    json_writer_init(&writer, stdout, true);
    write(context, &writer);
    putchar('\n');
}

void command_print_csv_text(FILE *out, const char *text)
{
    if (!strpbrk(text, ",\"\r\n")) {
        fputs(text, out);
        return;
    }
    putc('"', out);
    for (const char *c = text; *c; c++) {
        if (*c == '"') {
            putc('"', out);
        }
        putc(*c, out);
    }
    putc('"', out);
}
