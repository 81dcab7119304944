/* The options that `pinline ablate` alone has. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "experiments/ablate.h"
#include "experiments/ablate_options_internal.h"

static const char *const stream_names[] = {"compute", "dedicated", "both", NULL};
const char *const ablate__transfer_names[] = {"u8", "f32", "both", NULL};
const char *const ablate__staging_names[] = {"slot", "thread", "both", NULL};
const char *const ablate__job_names[] = {"train", "eval", NULL};

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
    const int before = used;
    for (char *axis = strtok(copy, ";"); axis; axis = strtok(NULL, ";")) {
        if (used == CELLS_MAX_AXES - 1) {
            free(copy);
            return FAIL(STATUS_USAGE, "at most %d axes", CELLS_MAX_AXES - 1);
        }
        axes[used++] = axis; /* kept as long as the process, as the command line is */
    }
    if (used == before) {
        free(copy);
        return FAIL(STATUS_USAGE, "--axis takes OPTION=VALUE,VALUE,..., for instance "
                                  "num-workers=1,2,4, and is empty here");
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
const struct option_table ablate__options_cells = {"Cells", cell_options,
                                                   sizeof cell_options / sizeof cell_options[0]};

static const struct option choice_transfer[] = {{.name = "transfer",
                                                 .kind = OPTION_CHOICE,
                                                 .choices = ablate__transfer_names,
                                                 .help = "what crosses the bus in every cell; both "
                                                         "runs each cell with either"}};
static const struct option choice_staging[] = {{.name = "staging",
                                                .kind = OPTION_CHOICE,
                                                .choices = ablate__staging_names,
                                                .help = "who fills the slots in every cell; both "
                                                        "tells the copying thread from "
                                                        "page-locking"}};
static const struct option choice_job[] = {{.name = "job",
                                            .kind = OPTION_CHOICE,
                                            .choices = ablate__job_names,
                                            .help = "training steps, or inference in batches: "
                                                    "forward alone, results read back"}};
const struct option_table ablate__options_job = {"Job", choice_job, 1};
const struct option_table ablate__options_transfer = {"Transfer", choice_transfer, 1};
const struct option_table ablate__options_staging = {"Staging", choice_staging, 1};

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
const struct option_table ablate__options_emulation = {
    "Models that are not ours", emulation_options,
    sizeof emulation_options / sizeof emulation_options[0]};

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
const struct option_table ablate__options_protocol = {
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
const struct option_table ablate__options_result = {
    "Result", result_options, sizeof result_options / sizeof result_options[0]};
