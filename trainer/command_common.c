#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"

void command_set_log_level(const struct settings *settings)
{
    log_set_level(settings->quiet ? LOG_QUIET : settings->verbose ? LOG_VERBOSE : LOG_NORMAL);
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
