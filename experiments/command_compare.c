/* pinline compare */
#include "experiments/experiment_commands.h"
#include "experiments/report.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"

static struct settings settings;

/* There is no JSON of a comparison: both results are JSON. */
static size_t bind(struct option_binding *bindings)
{
    static const char *const names[] = {"quiet", "verbose", NULL};
    static struct option options[sizeof names / sizeof names[0]];
    static struct option_table table;
    options_pick(&options_output, names, options, &table);
    settings_defaults(&settings);
    bindings[0] = (struct option_binding){.table = &table, .base = &settings};
    return 1;
}

static enum status run(char **operands, size_t operand_count)
{
    result *a = NULL, *b = NULL;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    enum status status = result_open(operands[0], &a);
    if (status == STATUS_OK) {
        status = result_open(operands[1], &b);
    }
    if (status == STATUS_OK) {
        report_compare(result_read_view(a), result_read_view(b), operands[0], operands[1], stdout);
    }
    result_close(&a);
    result_close(&b);
    return status;
}

const struct command command_compare = {
    .name = "compare",
    .summary = "put two results of `pinline ablate` side by side",
    .operands = "A B",
    .operands_min = 2,
    .operands_max = 2,
    .bind = bind,
    .run = run,
    .details =
        "Examples:\n"
        "  pinline compare ablation other\n"
        "  pinline compare ablation/result.json other/result.json\n"
        "\n"
        "A and B are folders that ablate wrote (its --out), or the result.json in them. Shown are the\n"
        "differences of each common cell with intervals, verdicts that differ, and every setting\n"
        "and machine fact that is not the same in both.",
};
