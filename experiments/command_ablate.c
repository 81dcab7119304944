/* pinline ablate */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "experiments/ablate.h"
#include "experiments/experiment_commands.h"
#include "experiments/report.h"
#include "experiments/round.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

#define PATH_BYTES 4096

static struct ablate_settings settings;
/* Options that name one of the job's values or both of them. */
static int transfer_choice, staging_choice, job_choice;

static const char *const stream_names[] = {"compute", "dedicated", "both", NULL};
static const char *const transfer_names[] = {"u8", "f32", "both", NULL};
static const char *const staging_names[] = {"slot", "thread", "both", NULL};
static const char *const job_names[] = {"train", "eval", NULL};

/* Several axes may stand in one value, separated by semicolons, as write_axis writes them. */
static enum status parse_axis(void *field, const char *text)
{
    const char **axes = field;
    char *copy = strdup(text);
    if (!copy) {
        return FAIL(STATUS_NO_MEMORY, "no memory for --axis");
    }
    int used = 0;
    while (used < CELLS_MAX_AXES - 1 && axes[used]) {
        used++;
    }
    for (char *axis = strtok(copy, ";"); axis; axis = strtok(NULL, ";")) {
        if (used == CELLS_MAX_AXES - 1) {
            free(copy);
            return FAIL(STATUS_USAGE, "at most %d axes", CELLS_MAX_AXES - 1);
        }
        axes[used++] = axis; /* kept as long as the process, as the command line is */
    }
    return STATUS_OK;
}

static void write_axis(const void *field, struct json_writer *writer)
{
    const char *const *axes = field;
    char text[2048] = "";
    for (size_t i = 0, at = 0; i < CELLS_MAX_AXES && axes[i] && at < sizeof text; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%s", i ? ";" : "", axes[i]);
    }
    json_string(writer, axes[0] ? text : NULL);
}

/* "90", "90s", "5m", "1h". */
static enum status parse_duration(void *field, const char *text)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    const double unit = *end == '\0' || strcmp(end, "s") == 0 ? 1
                        : strcmp(end, "m") == 0               ? 60
                        : strcmp(end, "h") == 0               ? 3600
                                                              : 0;
    if (end == text || errno || unit == 0 || !(number > 0 && number < 1e7)) {
        return FAIL(STATUS_USAGE, "--budget takes a time such as 90s, 5m or 1h, not \"%s\"", text);
    }
    *(double *)field = number * unit;
    return STATUS_OK;
}

static void write_seconds(const void *field, struct json_writer *writer)
{
    json_double(writer, *(const double *)field);
}

/* "2%" or "0.02". */
static enum status parse_share(void *field, const char *text)
{
    char *end;
    errno = 0;
    double number = strtod(text, &end);
    if (*end == '%') {
        number /= 100;
        end++;
    }
    if (end == text || errno || *end != '\0' || !(number > 0 && number <= 1)) {
        return FAIL(STATUS_USAGE, "--matters takes a share such as 2%% or 0.02, not \"%s\"", text);
    }
    *(double *)field = number;
    return STATUS_OK;
}

#define FIELD(member) offsetof(struct ablate_settings, member)
static const struct option cell_options[] = {
    {.name = "cells",
     .kind = OPTION_TEXT,
     .offset = FIELD(cells.names),
     .metavar = "LIST",
     .help = "cells to run: default, pin, non_blocking, both, both+stream, default/s, pin/s, "
             "non_blocking/s; a name that stands twice is a check on the method (default,default "
             "is an A/A run); without it the first five and default once more"},
    {.name = "again",
     .kind = OPTION_SWITCH,
     .offset = FIELD(cells.again),
     .help =
         "run the first cell once more, as a check on the method, whatever the other cells are"},
    {.name = "copy-stream",
     .kind = OPTION_CHOICE,
     .offset = FIELD(cells.streams),
     .choices = stream_names,
     .help = "the stream of the four cells; both runs all eight"},
    {.name = "axis",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(cells.axes),
     .metavar = "OPTION=V,V",
     .help = "run the cells at each value of any option of a job, for instance num-workers=1,2,4; "
             "may be repeated",
     .repeats = true,
     .parse = parse_axis,
     .write = write_axis},
};
static const struct option_table options_cells = {"Cells", cell_options,
                                                  sizeof cell_options / sizeof cell_options[0]};

static const struct option choice_transfer[] = {{.name = "transfer",
                                                 .kind = OPTION_CHOICE,
                                                 .choices = transfer_names,
                                                 .help = "what crosses the bus in every cell; both "
                                                         "runs each cell with either"}};
static const struct option choice_staging[] = {{.name = "staging",
                                                .kind = OPTION_CHOICE,
                                                .choices = staging_names,
                                                .help = "who fills the slots in every cell; both "
                                                        "tells the copying thread from "
                                                        "page-locking"}};
static const struct option choice_job[] = {{.name = "job",
                                            .kind = OPTION_CHOICE,
                                            .choices = job_names,
                                            .help = "training steps, or inference in batches: "
                                                    "forward alone, results read back"}};
static const struct option_table options_kind = {"Job", choice_job, 1};
static const struct option_table options_transfer = {"Transfer", choice_transfer, 1};
static const struct option_table options_thread = {"Staging", choice_staging, 1};

static const struct option emulation_options[] = {
    {.name = "step-ms",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(step_ms),
     .low = 0,
     .high = 60000,
     .metavar = "MS",
     .help = "keep the device busy for so long in place of each step: what the flags are worth for "
             "a model that is not ours; 0 means the model's own step"},
    {.name = "batch-bytes",
     .kind = OPTION_BYTES,
     .offset = FIELD(batch_bytes),
     .metavar = "BYTES",
     .help = "choose the image size so that the pixels of a batch are about so many bytes; 0 means "
             "--size"},
};
static const struct option_table options_emulation = {"Models that are not ours", emulation_options,
                                                      sizeof emulation_options /
                                                          sizeof emulation_options[0]};

static const struct option protocol_options[] = {
    {.name = "rounds",
     .kind = OPTION_INT,
     .offset = FIELD(rounds),
     .low = 0,
     .high = 256,
     .metavar = "N",
     .help = "fresh processes that run every cell once; 0 means as many as cells, 6 at least, "
             "in whole squares where the number of cells is even; below 6 there is no verdict"},
    {.name = "epochs",
     .kind = OPTION_INT,
     .offset = FIELD(epochs),
     .high = 100000,
     .metavar = "N",
     .help = "epochs timed for each cell; 0 means so many that the fastest takes --seconds"},
    {.name = "seconds",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(seconds),
     .low = 0.001,
     .high = 86400,
     .metavar = "SECONDS",
     .help = "for which the fastest cell is timed, in whole epochs; below 5 rates spread more"},
    {.name = "budget",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(budget_s),
     .metavar = "TIME",
     .help = "fit rounds and epochs to a time such as 5m, and say what that costs in certainty",
     .parse = parse_duration,
     .write = write_seconds},
    {.name = "settle",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(settle_s),
     .high = 3600,
     .metavar = "SECONDS",
     .help = "untimed steps before each cell, two rings at least"},
    {.name = "ceiling-seconds",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(ceiling_s),
     .low = 0.01,
     .high = 3600,
     .metavar = "SECONDS",
     .help = "time for each part that is measured alone"},
    {.name = "matters",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(matters),
     .metavar = "SHARE",
     .help = "gain below which a flag is not worth it",
     .parse = parse_share,
     .write = write_seconds},
    {.name = "order-seed",
     .kind = OPTION_SEED,
     .offset = FIELD(order_seed),
     .metavar = "N",
     .help = "shuffles the order of cells"},
    {.name = "predict-only",
     .kind = OPTION_SWITCH,
     .offset = FIELD(predict_only),
     .help = "measure each part alone and predict the cells, without rounds"},
    {.name = "spoil",
     .kind = OPTION_TEXT,
     .offset = FIELD(spoil),
     .metavar = "CELL[:WHAT]",
     .help = "spoil a cell on purpose, to see that the comparison finds it: its weights by a bit, "
             "its batches, or its number of workers"},
};
static const struct option_table options_protocol = {
    "Protocol", protocol_options, sizeof protocol_options / sizeof protocol_options[0]};

static const struct option result_options[] = {
    {.name = "out",
     .short_name = "o",
     .kind = OPTION_TEXT,
     .offset = FIELD(out),
     .metavar = "DIR",
     .help = "folder for result.json, rounds.csv, report.md and report.html"},
    {.name = "overwrite",
     .kind = OPTION_SWITCH,
     .offset = FIELD(overwrite),
     .help = "replace an earlier result in the same folder"},
    {.name = "resume",
     .kind = OPTION_TEXT,
     .offset = FIELD(resume),
     .metavar = "PATH",
     .help = "go on with the rounds of an interrupted result: its folder, or its result.json"},
    {.name = "peer",
     .kind = OPTION_TEXT,
     .offset = FIELD(peer),
     .metavar = "FILE",
     .help = "another program's rates (lines of name,samples_per_s) to show beside the cells"},
    {.name = "trace",
     .kind = OPTION_TEXT,
     .offset = FIELD(trace),
     .metavar = "FILE",
     .help = "write the time lines for ui.perfetto.dev"},
};
static const struct option_table options_result = {
    "Result", result_options, sizeof result_options / sizeof result_options[0]};

static size_t bind(struct option_binding *bindings)
{
    ablate_settings_defaults(&settings);
    transfer_choice = staging_choice = job_choice = 0;
    const struct option_binding all[] = {
        {&options_cells, &settings},         {&options_transfer, &transfer_choice},
        {&options_thread, &staging_choice},  {&options_kind, &job_choice},
        {&options_emulation, &settings},     {&options_protocol, &settings},
        {&options_result, &settings},        {&options_measuring, &settings.job},
        {&options_data, &settings.job},      {&options_loading, &settings.job},
        {&options_order, &settings.job},     {&options_images, &settings.job},
        {&options_decoding, &settings.job},  {&options_augmentation, &settings.job},
        {&options_device, &settings.job},    {&options_model, &settings.job},
        {&options_optimiser, &settings.job}, {&options_output, &settings.job},
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
    } else if (status == STATUS_OK && !settings.job.quiet) {
        report_text(view, stdout, terminal_columns());
        printf("\nAll of it: %s/result.json, report.html, report.md, rounds.csv\n", settings.out);
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
    size_t used = (size_t)snprintf(text, sizeof text, "--job %s --transfer %s --staging %s%s%s%s",
                                   job_names[job_choice], transfer_names[transfer_choice],
                                   staging_names[staging_choice], streams[settings.cells.streams],
                                   settings.cells.names ? " --cells " : "",
                                   settings.cells.names ? settings.cells.names : "");
    used += (size_t)snprintf(text + used, sizeof text - used, "%s",
                             settings.cells.again ? " --again" : "");
    for (size_t i = 0; i < CELLS_MAX_AXES && settings.cells.axes[i] && used < sizeof text; i++) {
        used +=
            (size_t)snprintf(text + used, sizeof text - used, " --axis %s", settings.cells.axes[i]);
    }
    return text;
}

static enum status take_emulation(void)
{
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

static enum status run(char **operands, size_t operand_count)
{
    (void)operands;
    (void)operand_count;
    command_set_log_level(&settings.job);
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
    if (settings.resume) {
        TRY(take_resumed());
    }
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
