/* pinline train */
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"
#include "trainer/train_run.h"

static struct settings settings;

static size_t bind(struct option_binding *bindings)
{
    static const struct option_table *const tables[] = {
        &options_data,   &options_loading,   &options_order,        &options_staging,
        &options_images, &options_decoding,  &options_augmentation, &options_device,
        &options_model,  &options_optimiser, &options_run,          &options_output,
    };
    settings_defaults(&settings);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        bindings[i] = (struct option_binding){.table = tables[i], .base = &settings};
    }
    return sizeof tables / sizeof tables[0];
}

/* Options that say how to resume, not what the run was. */
static bool is_taken_from_command_line(const char *name)
{
    static const char *const names[] = {
        "resume",  "overwrite",    "replan",     "out",
        "weights", "dump-batches", "dump-count", "max-steps",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return options_was_given(name);
}

/* Everything that the command line does not say is as it was in the run that goes on. */
static enum status take_recorded(const struct json_value *recorded)
{
    struct option_binding bindings[16];
    const size_t count = job_bind_options(&settings, bindings);
    for (size_t i = 0; recorded && i < recorded->count; i++) {
        if (is_taken_from_command_line(recorded->names[i])) {
            continue;
        }
        const struct json_value one = {.kind = JSON_OBJECT,
                                       .count = 1,
                                       .items = &recorded->items[i],
                                       .names = &recorded->names[i]};
        TRY(options_read(bindings, count, &one));
    }
    return STATUS_OK;
}

/* The run's folder is that of the checkpoint unless --out names another. */
static enum status take_folder(void)
{
    static char *folder;
    if (options_was_given("out")) {
        return STATUS_OK;
    }
    free(folder);
    folder = file_folder(settings.resume);
    if (!folder) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path");
    }
    settings.out = folder;
    return STATUS_OK;
}

static enum status take_resumed(void)
{
    checkpoint *from;
    TRY(take_folder());
    TRY(checkpoint_open(settings.resume, &from));
    const enum status status = take_recorded(checkpoint_settings(from));
    checkpoint_close(&from);
    return status;
}

/* A file that is written at the end is tried at the beginning. */
static enum status try_dump(void)
{
    struct file_writer file;
    if (settings.dump_batches) {
        TRY(file_writer_open(&file, settings.dump_batches));
        file_writer_abort(&file);
    }
    return STATUS_OK;
}

static void write_result(void *context, struct json_writer *writer)
{
    train_run_write(context, &settings, writer);
}

static enum status run(char **operands, size_t operand_count)
{
    struct train_run_result result;
    (void)operands;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    if (settings.resume) {
        TRY(take_resumed());
    }
    TRY(settings_complete(&settings));
    TRY(command_refuse_unused(&settings, NULL));
    TRY(command_check_device(&settings));
    TRY(try_dump());
    const enum status status = train_run(&settings, NULL, &result);
    struct status_report report;
    status_save(&report, status);
    if (settings.json && (status == STATUS_OK || status == STATUS_INTERRUPTED)) {
        command_print_json(write_result, &result);
    }
    train_run_result_close(&result);
    return status_restore(&report);
}

const struct command command_train = {
    .name = "train",
    .summary = "train a classifier from image files",
    .details =
        "Examples:\n"
        "  pinline train --data images --model smallcnn --epochs 10\n"
        "  pinline train --data images --model resnet18 --size 224 --augment rrc --flip \\\n"
        "      --pin-memory --non-blocking --precision bf16\n"
        "  pinline train --resume run/last.safetensors\n"
        "\n"
        "The folder --out gets settings.json, log.jsonl, metrics.csv, last.safetensors and\n"
        "best.safetensors (weights under PyTorch's names) and last.state.safetensors (what resuming\n"
        "needs). A resumed run takes every setting that is not given from the run that it goes on\n"
        "with, and gives the same bits as one that was never stopped.\n"
        "\n"
        "Ctrl-C and SIGTERM save the state before the unfinished step; a second one ends at once.\n"
        "\n"
        "Exit codes: 0 done; 1 a file or the system; 2 usage; 3 the GPU or its libraries; 4 a loss\n"
        "that is not finite; 5 batches that are not what was decoded, or a checkpoint that does not\n"
        "fit; 130 and 143 stopped.",
    .bind = bind,
    .run = run,
};
