/* pinline compare */
#include "experiments/experiment_commands.h"
#include "experiments/report.h"

static size_t bind(struct option_binding *bindings)
{
    (void)bindings;
    return 0;
}

static enum status run(char **operands, size_t operand_count)
{
    result *a = NULL, *b = NULL;
    (void)operand_count;
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
    .operands = "A.json B.json",
    .operands_min = 2,
    .operands_max = 2,
    .bind = bind,
    .run = run,
    .details =
        "Differences of each common cell with intervals, verdicts that differ, and every setting\n"
        "and machine fact that is not the same in both.",
};
