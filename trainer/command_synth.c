/* pinline synth */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/system.h"
#include "data/synth.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

static struct {
    struct synth_settings synth;
    int size; /* edge, where width or height is not given */
    int width, height;
} wanted;
static struct settings settings; /* of the output */

#define FIELD(member) offsetof(__typeof__(wanted), member)

static const char *const format_names[] = {"png", "jpeg", "mixed", NULL};

static const struct option synth_options[] = {
    {.name = "images",
     .kind = OPTION_COUNT,
     .offset = FIELD(synth.train_count),
     .metavar = "N",
     .help = "images for training, in DIR/train"},
    {.name = "val-images",
     .kind = OPTION_COUNT,
     .offset = FIELD(synth.val_count),
     .metavar = "N",
     .help = "images for validation, in DIR/val; 0 makes none"},
    {.name = "size",
     .kind = OPTION_INT,
     .offset = FIELD(size),
     .low = 8,
     .high = 8192,
     .metavar = "N",
     .help = "width and height in pixels"},
    {.name = "width",
     .kind = OPTION_INT,
     .offset = FIELD(width),
     .high = 8192,
     .metavar = "N",
     .help = "width in pixels; 0 means --size"},
    {.name = "height",
     .kind = OPTION_INT,
     .offset = FIELD(height),
     .high = 8192,
     .metavar = "N",
     .help = "height in pixels; 0 means --size"},
    {.name = "format",
     .kind = OPTION_CHOICE,
     .offset = FIELD(synth.format),
     .choices = format_names,
     .help = "of the files; mixed is half of each"},
    {.name = "quality",
     .kind = OPTION_INT,
     .offset = FIELD(synth.jpeg_quality),
     .low = 1,
     .high = 100,
     .metavar = "N",
     .help = "of JPEG files"},
    {.name = "seed",
     .kind = OPTION_SEED,
     .offset = FIELD(synth.seed),
     .metavar = "N",
     .help = "the same seed makes the same pixels on every machine"},
    {.name = "num-workers",
     .short_name = "j",
     .kind = OPTION_INT,
     .offset = FIELD(synth.threads),
     .low = 1,
     .high = 1024,
     .metavar = "N",
     .help = "threads that make images; the default is the CPUs allowed"},
    {.name = "overwrite",
     .kind = OPTION_SWITCH,
     .offset = FIELD(synth.overwrite),
     .help = "replace a set that was made before"},
};
static const struct option_table options_synth = {
    .title = "Images",
    .options = synth_options,
    .count = sizeof synth_options / sizeof synth_options[0],
};

static size_t bind(struct option_binding *bindings)
{
    struct system_facts facts;
    system_read_facts(&facts);
    memset(&wanted, 0, sizeof wanted);
    synth_settings_defaults(&wanted.synth);
    wanted.size = wanted.synth.width;
    wanted.synth.threads = facts.cpus_allowed;
    settings_defaults(&settings);
    bindings[0] = (struct option_binding){.table = &options_synth, .base = &wanted};
    bindings[1] = (struct option_binding){.table = &options_output, .base = &settings};
    return 2;
}

static void write_result(void *context, struct json_writer *writer)
{
    const struct synth_result *result = context;
    json_begin_object(writer);
    json_key_string(writer, "folder", wanted.synth.folder);
    json_key_int(writer, "files", (int64_t)result->files);
    json_key_int(writer, "bytes", (int64_t)result->bytes);
    json_key_int(writer, "classes", SYNTH_CLASSES);
    json_end_object(writer);
}

static enum status run(char **operands, size_t operand_count)
{
    struct synth_result result;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    wanted.synth.folder = operands[0];
    wanted.synth.width = wanted.width > 0 ? wanted.width : wanted.size;
    wanted.synth.height = wanted.height > 0 ? wanted.height : wanted.size;
    TRY(synth_write(&wanted.synth, &result));
    if (settings.json) {
        command_print_json(write_result, &result);
    } else {
        log_info("%s: %zu images of %d classes, %dx%d, %.1f MB", wanted.synth.folder, result.files,
                 SYNTH_CLASSES, wanted.synth.width, wanted.synth.height,
                 (double)result.bytes / 1e6);
    }
    return STATUS_OK;
}

const struct command command_synth = {
    .name = "synth",
    .summary = "make a labelled set of images to try things on",
    .operands = "DIR",
    .operands_min = 1,
    .operands_max = 1,
    .details =
        "Examples:\n"
        "  pinline synth images\n"
        "  pinline synth big --images 20000 --size 256 --format jpeg\n"
        "\n"
        "Writes DIR/train/<class>/ and DIR/val/<class>/: ten things that a person can name,\n"
        "before textured backgrounds. The pixels depend on the options alone.",
    .bind = bind,
    .run = run,
};
