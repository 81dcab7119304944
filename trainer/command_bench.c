/* pinline bench */
#include <string.h>

#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

static struct settings settings;
static struct bench_settings bench;

#define FIELD(member) offsetof(struct bench_settings, member)

static const struct option bench_options[] = {
    {.name = "steps",
     .kind = OPTION_INT,
     .offset = FIELD(steps),
     .low = 1,
     .high = 1000000,
     .metavar = "N",
     .help = "step: steps timed together"},
    {.name = "repeats",
     .kind = OPTION_INT,
     .offset = FIELD(repeats),
     .low = 1,
     .high = 10000,
     .metavar = "N",
     .help = "step: how often they are timed"},
    {.name = "classes",
     .kind = OPTION_INT,
     .offset = FIELD(classes),
     .low = 2,
     .high = 100000,
     .metavar = "N",
     .help = "step: classes of the network"},
    {.name = "seconds",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(seconds),
     .low = 0.01,
     .high = 3600,
     .metavar = "X",
     .help = "loader and decode: how long one measurement lasts at least"},
};
static const struct option_table options_bench = {
    .title = "Benchmark",
    .options = bench_options,
    .count = sizeof bench_options / sizeof bench_options[0],
};

static size_t bind(struct option_binding *bindings)
{
    static const struct option_table *const tables[] = {
        &options_data,      &options_loading,      &options_order,  &options_images,
        &options_decoding,  &options_augmentation, &options_device, &options_model,
        &options_optimiser, &options_output,
    };
    const size_t count = sizeof tables / sizeof tables[0];
    settings_defaults(&settings);
    bench = (struct bench_settings){.steps = 50, .repeats = 5, .classes = 10, .seconds = 2};
    bindings[0] = (struct option_binding){.table = &options_bench, .base = &bench};
    for (size_t i = 0; i < count; i++) {
        bindings[i + 1] = (struct option_binding){.table = tables[i], .base = &settings};
    }
    return count + 1;
}

static enum status run(char **operands, size_t operand_count)
{
    static const char *const names[] = {"step", "loader", "decode", NULL};
    static enum status (*const functions[])(
        const struct settings *, const struct bench_settings *) = {bench_step, bench_loader,
                                                                   bench_decode};
    (void)operand_count;
    command_set_log_level(&settings);
    TRY(command_check_device(&settings));
    TRY(settings_complete(&settings));
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(operands[0], names[i]) == 0) {
            return functions[i](&settings, &bench);
        }
    }
    const char *nearest = options_nearest(operands[0], names);
    return FAIL(
        STATUS_USAGE, "there is no benchmark \"%s\"; known are step, loader and decode%s%s%s",
        operands[0], nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

const struct command command_bench = {
    .name = "bench",
    .summary = "measure the step, the loader or the decoders alone",
    .operands = "step|loader|decode",
    .operands_min = 1,
    .operands_max = 1,
    .details =
        "Examples:\n"
        "  pinline bench step --model smallcnn --size 32 --batch-size 512 --precision bf16\n"
        "  pinline bench loader --data images --size 224\n"
        "  pinline bench decode --data images --size 224\n"
        "\n"
        "step keeps one batch on the device and needs no images; loader fills slots and trains\n"
        "nothing; decode works from memory on one thread, with each library by itself.",
    .bind = bind,
    .run = run,
};
