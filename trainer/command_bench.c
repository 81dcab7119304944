/* pinline bench */
#include <assert.h>
#include <string.h>

#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

/* Tables of a job's options fill the first member. */
static struct all {
    struct settings settings;
    struct bench_settings bench;
} all;

#define FIELD(member) offsetof(struct all, bench.member)

static const struct option bench_options[] = {
    {.name = "steps",
     .kind = OPTION_INT,
     .offset = FIELD(steps),
     .low = 1,
     .high = 1000000,
     .metavar = "N",
     .help = "steps timed together"},
    {.name = "repeats",
     .kind = OPTION_INT,
     .offset = FIELD(repeats),
     .low = 1,
     .high = 10000,
     .metavar = "N",
     .help = "how often they are timed"},
    {.name = "classes",
     .kind = OPTION_INT,
     .offset = FIELD(classes),
     .low = 2,
     .high = 100000,
     .metavar = "N",
     .help = "classes of the network"},
    {.name = "seconds",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(seconds),
     .low = 0.01,
     .high = 3600,
     .metavar = "X",
     .help = "how long one measurement lasts at least"},
};
static const struct option_table options_bench = {
    .title = "Benchmark",
    .options = bench_options,
    .count = sizeof bench_options / sizeof bench_options[0],
};

/* --- Which benchmark uses what -------------------------------------------------------------- */

enum { STEP = 1, LOADER = 2, DECODE = 4 };

static const struct {
    const struct option_table *table;
    int users; /* of its options, except those below */
} sources[] = {
    {&options_bench, STEP},
    {&options_data, LOADER | DECODE},
    {&options_loading, LOADER},
    {&options_order, LOADER},
    {&options_images, STEP},
    {&options_decoding, LOADER | DECODE},
    {&options_augmentation, LOADER},
    {&options_device, STEP},
    {&options_model, STEP},
    {&options_optimiser, STEP},
    {&options_output, STEP | LOADER | DECODE},
};

static const struct {
    const char *name;
    int users; /* 0: bench does not have it */
} exceptions[] = {
    {"seconds", LOADER | DECODE},
    {"val-data", 0},
    {"batch-size", STEP | LOADER},
    {"seed", STEP | LOADER},
    {"allow-large-pinned", 0},
    {"size", STEP | LOADER | DECODE},
    {"augment", LOADER},
    {"decoders", LOADER}, /* decode takes each by itself */
    {"device", STEP | LOADER},
    {"cuda-libs", STEP | LOADER},
    {"weights", 0},
    /* A step takes as long at any rate: it is that of the schedule's top. */
    {"schedule", 0},
    {"warmup-epochs", 0},
    {"step-epochs", 0},
    {"step-factor", 0},
    {"final-lr", 0},
};

/* The options by who uses them, as --help shows them. Filled in by bind. */
#define MOST_OPTIONS 48
static struct group {
    const char *title;
    int users;
    struct option options[MOST_OPTIONS];
    struct option_table table;
} groups[] = {
    {.title = "Every benchmark", .users = STEP | LOADER | DECODE},
    {.title = "Benchmarks step and loader", .users = STEP | LOADER},
    {.title = "Benchmarks loader and decode", .users = LOADER | DECODE},
    {.title = "Benchmark step", .users = STEP},
    {.title = "Benchmark loader", .users = LOADER},
};
#define GROUPS (sizeof groups / sizeof groups[0])

static int users_of(const struct option *option, int users)
{
    for (size_t i = 0; i < sizeof exceptions / sizeof exceptions[0]; i++) {
        if (strcmp(option->name, exceptions[i].name) == 0) {
            return exceptions[i].users;
        }
    }
    return users;
}

static void fill_group(struct group *group)
{
    size_t count = 0;
    for (size_t s = 0; s < sizeof sources / sizeof sources[0]; s++) {
        const struct option_table *table = sources[s].table;
        for (size_t i = 0; i < table->count; i++) {
            if (users_of(&table->options[i], sources[s].users) == group->users) {
                assert(count < MOST_OPTIONS);
                group->options[count++] = table->options[i];
            }
        }
    }
    group->table = (struct option_table){group->title, group->options, count};
}

static size_t bind(struct option_binding *bindings)
{
    settings_defaults(&all.settings);
    all.bench = (struct bench_settings){.steps = 50, .repeats = 5, .classes = 10, .seconds = 2};
    for (size_t g = 0; g < GROUPS; g++) {
        fill_group(&groups[g]);
        bindings[g] = (struct option_binding){.table = &groups[g].table, .base = &all};
    }
    return GROUPS;
}

static enum status refuse_unused(const char *name, int user)
{
    for (size_t g = 0; g < GROUPS; g++) {
        for (size_t i = 0; i < groups[g].table.count && !(groups[g].users & user); i++) {
            const char *option = groups[g].options[i].name;
            if (options_was_given(option)) {
                return FAIL(STATUS_USAGE,
                            "bench %s does not use --%s; leave it out (`pinline help bench` lists "
                            "what each benchmark uses)",
                            name, option);
            }
        }
    }
    return STATUS_OK;
}

/* --- The command ---------------------------------------------------------------------------- */

static enum status run(char **operands, size_t operand_count)
{
    static const char *const names[] = {"step", "loader", "decode", NULL};
    static enum status (*const functions[])(
        const struct settings *, const struct bench_settings *) = {bench_step, bench_loader,
                                                                   bench_decode};
    static const int users[] = {STEP, LOADER, DECODE};
    (void)operand_count;
    TRY(command_set_log_level(&all.settings));
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(operands[0], names[i]) == 0) {
            TRY(refuse_unused(names[i], users[i]));
            TRY(command_check_device(&all.settings));
            TRY(settings_complete(&all.settings));
            return functions[i](&all.settings, &all.bench);
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
        "nothing, with 0, 1, 2, 4 and more workers unless --num-workers names a number; decode works\n"
        "from memory on one thread, with each library by itself. Each refuses what it does not use.",
    .bind = bind,
    .run = run,
};
