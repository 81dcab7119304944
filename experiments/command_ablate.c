/* pinline ablate */
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "experiments/ablate.h"
#include "experiments/ablate_options_internal.h"
#include "experiments/experiment_commands.h"
#include "experiments/report.h"
#include "experiments/round.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

#define PATH_BYTES 4096

static struct ablate_settings settings;
/* Options that name one of the job's values or both of them. */
static int transfer_choice, staging_choice, job_choice;

static size_t bind(struct option_binding *bindings)
{
    ablate_settings_defaults(&settings);
    transfer_choice = staging_choice = job_choice = 0;
    const struct option_binding all[] = {
        {&ablate__options_cells, &settings},
        {&ablate__options_transfer, &transfer_choice},
        {&ablate__options_staging, &staging_choice},
        {&ablate__options_job, &job_choice},
        {&ablate__options_emulation, &settings},
        {&ablate__options_protocol, &settings},
        {&ablate__options_result, &settings},
        {&options_measuring, &settings.job},
        {&options_data, &settings.job},
        {&options_loading, &settings.job},
        {&options_order, &settings.job},
        {&options_images, &settings.job},
        {&options_decoding, &settings.job},
        {&options_augmentation, &settings.job},
        {&options_device, &settings.job},
        {&options_model, &settings.job},
        {&options_optimiser, &settings.job},
        {&options_output, &settings.job},
    };
    _Static_assert(sizeof all / sizeof all[0] <= OPTIONS_MOST_TABLES, "room for every table");
    memcpy(bindings, all, sizeof all);
    return sizeof all / sizeof all[0];
}

/* --- Reports -------------------------------------------------------------------------------- */

typedef void (*report_function)(const struct result_view *view, FILE *out);

static enum status write_report(const char *path, report_function report,
                                const struct result_view *view)
{
    struct file_writer file;
    TRY(file_writer_open(&file, path));
    report(view, file.stream);
    TRY(file_writer_commit(&file));
    return STATUS_OK;
}

static enum status write_reports(const struct result_view *view)
{
    static const struct {
        const char *name;
        report_function report;
    } reports[] = {
        {"rounds.csv", report_csv}, {"report.md", report_markdown}, {"report.html", report_html}};
    char path[PATH_BYTES];
    for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
        ablate_path(&settings, reports[i].name, path, sizeof path);
        TRY(write_report(path, reports[i].report, view));
    }
    if (settings.trace) {
        TRY(write_report(settings.trace, report_trace, view));
    }
    return STATUS_OK;
}

/* 100 where it fits or is read by nobody's eyes, less on a narrower terminal. */
static int terminal_columns(void)
{
    struct winsize size;
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_col >= 100) {
        return 100;
    }
    return size.ws_col < 80 ? 80 : size.ws_col;
}

static enum status print_result(void)
{
    char path[PATH_BYTES];
    result *file = NULL;
    ablate_path(&settings, "result.json", path, sizeof path);
    TRY(result_open(path, &file));
    const struct result_view *view = result_read_view(file);
    enum status status = write_reports(view);
    if (status == STATUS_OK && settings.job.json) {
        struct json_writer writer;
        json_writer_init(&writer, stdout, true);
        json_copy(&writer, view->root);
        putchar('\n');
    } else if (status == STATUS_OK) {
        report_text(view, stdout, terminal_columns());
    }
    if (status == STATUS_OK) {
        log_info("all of it: %s/result.json, report.html, report.md, rounds.csv", settings.out);
    }
    result_close(&file);
    return status;
}

/* The words of this process, for the record; "" where the system does not tell. */
static const char *command_line(void)
{
    static char text[4096];
    FILE *file = fopen("/proc/self/cmdline", "r");
    const size_t bytes = file ? fread(text, 1, sizeof text - 1, file) : 0;
    for (size_t i = 0; i + 1 < bytes; i++) {
        text[i] = text[i] == '\0' ? ' ' : text[i];
    }
    if (file) {
        fclose(file);
    }
    return text;
}

/* The options that chose the cells, as words that choose them again. */
static const char *request_text(void)
{
    static char text[3000];
    static const char *const streams[] = {"", " --copy-stream dedicated", " --copy-stream both"};
    size_t used = (size_t)snprintf(
        text, sizeof text, "--job %s --transfer %s --staging %s%s%s%s",
        ablate__job_names[job_choice], ablate__transfer_names[transfer_choice],
        ablate__staging_names[staging_choice], streams[settings.cells.streams],
        settings.cells.names ? " --cells " : "", settings.cells.names ? settings.cells.names : "");
    used += (size_t)snprintf(text + used, sizeof text - used, "%s",
                             settings.cells.again ? " --again" : "");
    for (size_t i = 0; i < CELLS_MAX_AXES && settings.cells.axes[i] && used < sizeof text; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " --axis %s", settings.cells.axes[i]);
    }
    return text;
}

static bool has_axis(const char *option)
{
    const size_t length = strlen(option);
    for (size_t i = 0; i < CELLS_MAX_AXES && settings.cells.axes[i]; i++) {
        if (strncmp(settings.cells.axes[i], option, length) == 0 &&
            settings.cells.axes[i][length] == '=') {
            return true;
        }
    }
    return false;
}

static enum status take_emulation(void)
{
    static const char *const sizing[] = {"size", "batch-size", "transfer"};
    for (size_t i = 0; i < sizeof sizing / sizeof sizing[0] && settings.batch_bytes > 0; i++) {
        if (has_axis(sizing[i])) {
            return FAIL(
                STATUS_USAGE,
                "--batch-bytes makes every batch so large, and with --axis %s=... they would "
                "differ: leave one of them out",
                sizing[i]);
        }
    }
    if (settings.step_ms > 0 && has_axis("model")) {
        return FAIL(STATUS_USAGE,
                    "--step-ms stands for a model that is not ours: leave out --axis model=...");
    }
    if (settings.step_ms > 0 && options_was_given("model")) {
        return FAIL(STATUS_USAGE,
                    "--step-ms stands for a model that is not ours: leave out --model");
    }
    if (settings.batch_bytes > 0 && options_was_given("size")) {
        return FAIL(STATUS_USAGE, "--batch-bytes chooses the size of the images: leave out --size");
    }
    if (settings.batch_bytes > 0 && transfer_choice == 2) {
        return FAIL(STATUS_USAGE, "--batch-bytes needs one --transfer: u8 or f32");
    }
    return ablate_apply_emulation(&settings);
}

/* The result's folder is that which goes on, and no other: the rounds of one result stay together. */
static enum status take_resumed(void)
{
    static char *folder;
    struct stat resumed, named;
    free(folder);
    folder = strcmp(file_name(settings.resume), "result.json") == 0 ? file_folder(settings.resume)
                                                                    : strdup(settings.resume);
    if (!folder) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path");
    }
    if (options_was_given("out") &&
        (stat(folder, &resumed) != 0 || stat(settings.out, &named) != 0 ||
         resumed.st_dev != named.st_dev || resumed.st_ino != named.st_ino)) {
        return FAIL(STATUS_USAGE,
                    "--resume %s goes on in that result's folder, not in --out %s: leave "
                    "out --out",
                    settings.resume, settings.out);
    }
    settings.out = folder;
    return STATUS_OK;
}

/* What would be found at the end, or never. */
static enum status check_trace(void)
{
    const bool timed = settings.job.timing || has_axis("timing");
    if (settings.trace && !timed) {
        return FAIL(STATUS_USAGE, "--trace shows the times of steps and copies, and --no-timing "
                                  "takes none: leave one of them out");
    }
    if (settings.trace && settings.predict_only) {
        return FAIL(STATUS_USAGE,
                    "--trace shows a round, and --predict-only runs none: leave one of "
                    "them out");
    }
    return STATUS_OK;
}

/* What is written at the end is tried at the beginning. The result's own folder is made later. */
static enum status try_trace(void)
{
    struct stat found;
    struct file_writer file;
    char *folder = settings.trace ? file_folder(settings.trace) : NULL;
    enum status status = STATUS_OK;
    if (folder && stat(folder, &found) == 0 && S_ISDIR(found.st_mode)) {
        status = file_writer_open(&file, settings.trace);
        if (status == STATUS_OK) {
            file_writer_abort(&file);
        }
    } else if (folder && strcmp(folder, settings.out) != 0) {
        status = FAIL(STATUS_NOT_FOUND,
                      "--trace %s: there is no folder %s; make it, or name another file",
                      settings.trace, folder);
    }
    free(folder);
    return status;
}

static enum status run(char **operands, size_t operand_count)
{
    (void)operands;
    (void)operand_count;
    TRY(command_set_log_level(&settings.job));
    settings.command_line = command_line();
    settings.request = request_text();
    settings.cells.both_transfers = transfer_choice == 2;
    settings.cells.both_stagings = staging_choice == 2;
    settings.job.loader.transfer = transfer_choice == 1 ? TRANSFER_F32 : TRANSFER_U8;
    settings.job.loader.staging = staging_choice == 1 ? STAGING_THREAD : STAGING_SLOT;
    settings.job.forward_only = job_choice == 1;
    if (!settings.job.dataset.data) {
        return FAIL(STATUS_USAGE, "--data is missing: name a folder of images in class folders "
                                  "(`pinline synth DIR` makes one)");
    }
    if (settings.resume && settings.overwrite) {
        return FAIL(STATUS_USAGE, "--resume and --overwrite exclude each other");
    }
    if (settings.resume && settings.predict_only) {
        return FAIL(STATUS_USAGE, "--resume goes on with rounds, and --predict-only runs none");
    }
    if (settings.epochs > 0 && options_was_given("seconds")) {
        return FAIL(STATUS_USAGE, "--epochs is the number of epochs that --seconds would choose: "
                                  "leave one of them out");
    }
    TRY(check_trace());
    if (settings.resume) {
        TRY(take_resumed());
    }
    TRY(dataset_check_output(&settings.job.dataset, settings.resume ? "--resume" : "--out",
                             settings.out));
    TRY(try_trace());
    TRY(command_refuse_unused(&settings.job, has_axis));
    TRY(command_check_device(&settings.job));
    TRY(take_emulation());
    const enum status status = ablate_run(&settings);
    if (status == STATUS_OK || status == STATUS_MISMATCH) {
        struct status_report report;
        status_save(&report, status);
        TRY(print_result());
        return status_restore(&report);
    }
    return status;
}

const struct command command_ablate = {
    .name = "ablate",
    .summary = "measure what --pin-memory, --non-blocking and other settings are worth for a job",
    .operands_max = 0,
    .bind = bind,
    .run = run,
    .details =
        "Runs the same training in several cells that differ in the named settings alone, in\n"
        "rounds of fresh processes, and says what each setting is worth, how sure that is,\n"
        "and what bounds the job. Exit status 5 when the cells did not compute the same.\n\n"
        "  pinline ablate --data DIR --model smallcnn --size 224\n"
        "  pinline ablate --data DIR --copy-stream both --budget 10m\n"
        "  pinline ablate --data DIR --cells default,both --axis num-workers=1,2,4\n"
        "  pinline ablate --data DIR --step-ms 35 --batch-bytes 38500000 --transfer f32\n"
        "  pinline ablate --data DIR --model smallcnn --size 224 --resume ablation\n\n"
        "--resume wants the flags that the result was begun with, and goes on in its folder.\n"
        "With --step-ms the steps compute nothing, so there are no bits to compare; images are\n"
        "read, decoded, copied and normalised as always. --batch-bytes makes the images larger or\n"
        "smaller instead of padding the copy, so that every byte that crosses the bus was written\n"
        "by a decoder, as in the job that it stands for.",
};

/* --- The child ------------------------------------------------------------------------------ */

static size_t bind_nothing(struct option_binding *bindings)
{
    (void)bindings;
    return 0;
}

static enum status run_child(char **operands, size_t operand_count)
{
    (void)operand_count;
    return round_child(operands[0], operands[1], operands[2]);
}

const struct command command_ablate_child = {
    .name = "ablate-child",
    .summary = "A round of an ablation",
    .operands = "MODE REQUEST ANSWER",
    .operands_min = 3,
    .operands_max = 3,
    .bind = bind_nothing,
    .run = run_child,
};
