#include "tests/support/ablate_rig.h"

#include <check.h>
#include <fcntl.h>
#include <math.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/system.h"

extern char **environ;

enum { MOST_ARGUMENTS = 48 };

char ablate_rig_folder[] = "/tmp/pinline-ablate-XXXXXX";
static char program[4096];

static pid_t start(char *const *arguments)
{
    posix_spawn_file_actions_t quiet;
    pid_t child = 0;
    posix_spawn_file_actions_init(&quiet);
    posix_spawn_file_actions_addopen(&quiet, 1, "/dev/null", O_WRONLY, 0);
    ck_assert_int_eq(posix_spawn(&child, program, &quiet, NULL, arguments, environ), 0);
    posix_spawn_file_actions_destroy(&quiet);
    return child;
}

int ablate_rig_finish(pid_t child)
{
    int outcome = 0;
    ck_assert_int_eq(waitpid(child, &outcome, 0), child);
    return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : 128 + WTERMSIG(outcome);
}

/* Runs the program with words separated by spaces; none of them holds one. */
static pid_t PRINTF_LIKE(1, 0) start_line(const char *format, va_list values)
{
    static char line[4096];
    char *arguments[MOST_ARGUMENTS];
    int count = 0;
    vsnprintf(line, sizeof line, format, values);
    arguments[count++] = program;
    for (char *word = strtok(line, " "); word && count < MOST_ARGUMENTS - 1;
         word = strtok(NULL, " ")) {
        arguments[count++] = word;
    }
    arguments[count] = NULL;
    return start(arguments);
}

int ablate_rig_run(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const pid_t child = start_line(format, values);
    va_end(values);
    return ablate_rig_finish(child);
}

pid_t ablate_rig_run_beside(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const pid_t child = start_line(format, values);
    va_end(values);
    return child;
}

bool ablate_rig_prepare(void)
{
    const char *path = getenv("PINLINE");
    if (!path || access(path, X_OK) != 0) {
        return false;
    }
    snprintf(program, sizeof program, "%s", path);
    ck_assert_ptr_nonnull(mkdtemp(ablate_rig_folder));
    ck_assert_int_eq(ablate_rig_run("synth %s/set --images 512 --val-images 20 --size 16 --quiet",
                                    ablate_rig_folder),
                     0);
    return true;
}

bool ablate_rig_times_mean_something(void)
{
    const char *mode = getenv("MODE");
    double load = 0;
    struct system_facts facts;
    system_read_facts(&facts);
    /* Where others want every CPU twice over, nothing that waits is woken in time. */
    const bool busy = getloadavg(&load, 1) == 1 && load > 2.0 * facts.cpus_allowed;
    return !busy && (!mode || strcmp(mode, "release") == 0);
}

result *ablate_rig_open_result(void)
{
    char path[512];
    result *file = NULL;
    snprintf(path, sizeof path, "%s/out/result.json", ablate_rig_folder);
    ck_assert_msg(result_open(path, &file) == STATUS_OK, "%s", status_message());
    return file;
}

void ablate_rig_clean_up(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s", ablate_rig_folder);
    ck_assert_int_eq(system(command), 0);
}

enum verdict ablate_rig_verdict_of(const struct result_view *view, const char *name)
{
    const struct effect *effect = result_find_effect(view, name);
    ck_assert_msg(effect != NULL, "no effect %s", name);
    return effect->verdict;
}

double ablate_rig_best_ratio(const struct result_view *view, const char *a, const char *b)
{
    const struct result_cell *over = result_find_cell(view, a), *under = result_find_cell(view, b);
    ck_assert(over && under && view->rounds > 0);
    return over->highest / under->highest;
}

void ablate_rig_check_ratio(const struct result_view *view, const char *a, const char *b,
                            double least, double most)
{
    const double ratio = ablate_rig_best_ratio(view, a, b);
    ck_assert_msg(ratio >= least && ratio <= most, "%s/%s is %.3f, not %.3f to %.3f", a, b, ratio,
                  least, most);
}

const char *ablate_rig_diagnosis_of(const struct result_view *view, const char *member)
{
    return json_member_string(json_member(view->root, "diagnosis"), member, "");
}

static const struct result_cell *find_mispredicted(const struct result_view *view, double tolerance)
{
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        if (!(fabs(cell->predicted / cell->highest - 1) < tolerance)) {
            return cell;
        }
    }
    return NULL;
}

bool ablate_rig_predictions_hold(double tolerance)
{
    result *file = ablate_rig_open_result();
    const bool hold = find_mispredicted(result_read_view(file), tolerance) == NULL;
    result_close(&file);
    return hold;
}

void ablate_rig_check_predictions(const struct result_view *view, double tolerance)
{
    const struct result_cell *cell = find_mispredicted(view, tolerance);
    ck_assert_msg(cell == NULL, "%s: %g predicted, %g found", cell ? cell->name : "",
                  cell ? cell->predicted : 0, cell ? cell->highest : 0);
}
