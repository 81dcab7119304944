/*
 * The whole method on jobs whose answer is known: the program itself, on the host device with a
 * simulated bus and step. Each job is slow enough for sleeping to decide, not this machine's load.
 * The program is $PINLINE.
 */
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "experiments/result.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

extern char **environ;

enum { MOST_ARGUMENTS = 48 };
static char folder[] = "/tmp/pinline-ablate-XXXXXX";
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

static int finish(pid_t child)
{
    int outcome = 0;
    ck_assert_int_eq(waitpid(child, &outcome, 0), child);
    return WIFEXITED(outcome) ? WEXITSTATUS(outcome) : 128 + WTERMSIG(outcome);
}

/* Runs the program with words separated by spaces; none of them holds one. */
static pid_t start_line(const char *format, va_list values)
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

static int PRINTF_LIKE(1, 2) run(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const pid_t child = start_line(format, values);
    va_end(values);
    return finish(child);
}

static pid_t PRINTF_LIKE(1, 2) run_beside(const char *format, ...)
{
    va_list values;
    va_start(values, format);
    const pid_t child = start_line(format, values);
    va_end(values);
    return child;
}

#define COMMON                                                                                      \
    "ablate --quiet --data %s/set --device host --model probe --settle 0.05 --ceiling-seconds 0.2 " \
    "--num-workers 1 --prefetch 4 --epochs 1 --overwrite --out %s/out "

static bool prepare(void)
{
    const char *path = getenv("PINLINE");
    if (!path || access(path, X_OK) != 0) {
        return false;
    }
    snprintf(program, sizeof program, "%s", path);
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(run("synth %s/set --images 512 --val-images 20 --size 16 --quiet", folder), 0);
    return true;
}

/* Sanitizers slow the arithmetic down, so that a step takes longer than its simulated length. */
static bool times_mean_something(void)
{
    const char *mode = getenv("MODE");
    return !mode || strcmp(mode, "release") == 0;
}

static result *open_result(void)
{
    char path[512];
    result *file = NULL;
    snprintf(path, sizeof path, "%s/out/result.json", folder);
    ck_assert_msg(result_open(path, &file) == STATUS_OK, "%s", status_message());
    return file;
}

static void clean_up(void)
{
    char command[512];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static enum verdict verdict_of(const struct result_view *view, const char *name)
{
    const struct effect *effect = result_find_effect(view, name);
    ck_assert_msg(effect != NULL, "no effect %s", name);
    return effect->verdict;
}

static double ratio_of(const struct result_view *view, const char *name)
{
    const struct effect *effect = result_find_effect(view, name);
    ck_assert_msg(effect != NULL, "no effect %s", name);
    return effect->ratio.ratio;
}

static const char *bound_of(const struct result_view *view)
{
    return json_member_string(json_member(view->root, "diagnosis"), "bound", "");
}

/* A batch of 64 images of 16 x 16 x 3 bytes is 0.052 MB with its targets. */

/* Copying takes 20 ms pageable and 1 ms page-locked, the step 20 ms: default 40, pin 21, both 21. */
START_TEST(test_copy_bound)
{
    if (!times_mean_something()) {
        SKIP_TEST("times mean nothing in this build");
    }
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 0.0026,0.052,20 --rounds 6", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->rounds, 6);
    ck_assert_uint_eq(view->cell_count, 6);
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_WORTH_IT);
    ck_assert_int_eq(verdict_of(view, "pin/default"), VERDICT_WORTH_IT);
    ck_assert_int_ne(verdict_of(view, "non_blocking/default"), VERDICT_WORTH_IT);
    ck_assert_double_eq_tol(ratio_of(view, "both/default"), 40.0 / 21, 0.25);
    /* 8 batches of an epoch begin with one that nothing hides: of the steady 21/20 about 1.04 stay. */
    ck_assert_double_lt(fabs(ratio_of(view, "both+stream/both") - 1.04), 0.08);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        ck_assert_str_eq(cell->runs[0].weights_hash, view->cells[0].runs[0].weights_hash);
        ck_assert_str_eq(cell->runs[5].loss_hash, view->cells[0].runs[0].loss_hash);
        ck_assert_msg(fabs(cell->predicted / cell->median - 1) < 0.25, "%s: %g predicted, %g found",
                      cell->name, cell->predicted, cell->median);
    }
    result_close(&file);
    clean_up();
}
END_TEST

/* Copies are nothing beside a step of 40 ms. */
START_TEST(test_compute_bound)
{
    if (!times_mean_something()) {
        SKIP_TEST("times mean nothing in this build");
    }
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 10,50,40 --rounds 6", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_int_ne(verdict_of(view, "both/default"), VERDICT_WORTH_IT);
    ck_assert_int_ne(verdict_of(view, "both/default"), VERDICT_COSTS);
    ck_assert_double_eq_tol(ratio_of(view, "both/default"), 1, 0.03);
    ck_assert_str_eq(bound_of(view), "compute");
    result_close(&file);
    clean_up();
}
END_TEST

/* Page-locked memory makes the step 15 ms longer: it costs, and the report says so. */
START_TEST(test_pinning_hurts)
{
    if (!times_mean_something()) {
        SKIP_TEST("times mean nothing in this build");
    }
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 10,50,40,0,15 --rounds 6", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_COSTS);
    ck_assert_double_eq_tol(ratio_of(view, "both/default"), 40.0 / 55, 0.05);
    result_close(&file);
    clean_up();
}
END_TEST

/* Large images and a step of next to nothing: whatever the flags, the decoder decides. */
START_TEST(test_loader_bound)
{
    if (!times_mean_something()) {
        SKIP_TEST("times mean nothing in this build");
    }
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run("synth %s/large --images 192 --val-images 10 --size 256 --quiet", folder),
                     0);
    ck_assert_int_eq(run("ablate --quiet --data %s/large --device host --model probe --settle 0.05 "
                         "--ceiling-seconds 0.2 --num-workers 1 --epochs 1 --rounds 2 --size 16 "
                         "--cells default,both --simulate 10,50,0.01 --overwrite --out %s/out",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_str_eq(bound_of(view), "loader");
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_NONE);
    const struct json_value *advice = json_member(json_member(view->root, "diagnosis"), "advice");
    bool cache = false;
    for (size_t i = 0; i < advice->count; i++) {
        cache = cache || strstr(json_member_string(&advice->items[i], "what", ""), "--cache");
    }
    ck_assert_msg(cache, "the advice does not name the cache");
    result_close(&file);
    clean_up();
}
END_TEST

/* Stages of the host's thread sum to wall time, and what is not accounted for is small. */
START_TEST(test_accounting)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        run(COMMON "--simulate 0.0052,0.052,20 --rounds 2 --copy-stream both", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->cell_count, 8);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct json_value *run_object = view->cells[c].runs[0].object;
        const struct json_value *host = json_member(run_object, "host");
        double sum = 0;
        for (size_t i = 0; i < host->count; i++) {
            sum += host->items[i].number;
        }
        const double wall = json_member(run_object, "epoch_s")->items[0].number;
        ck_assert_double_eq_tol(sum, wall, 1e-6);
        ck_assert_double_lt(json_member_double(host, "rest", 1), 0.05 * wall);
        const struct json_value *counters = json_member(run_object, "counters");
        const bool blocking = strstr(view->cells[c].name, "both") == NULL &&
                              strstr(view->cells[c].name, "non_blocking") == NULL;
        ck_assert_int_eq(json_member_int(counters, "waits_copy", -1), blocking ? 8 : 0);
        ck_assert_int_eq(json_member_int(counters, "host_copies", -1), 0);
    }
    result_close(&file);
    clean_up();
}
END_TEST

/* One weight of one cell changed by its last bit: named, and the exit status says so. */
START_TEST(test_spoiled_cell_is_caught)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 10,50,1 --rounds 2 --cells default,both --spoil both",
                         folder, folder),
                     5);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_ge(view->failures, 1);
    const struct json_value *failures = json_member(view->root, "failures");
    ck_assert_ptr_nonnull(strstr(failures->items[0].string, "\"both\""));
    result_close(&file);
    clean_up();
}
END_TEST

/* Interrupted after its first round, the ablation goes on and ends as if it had not been. */
START_TEST(test_interrupt_and_resume)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const pid_t child =
        run_beside(COMMON "--simulate 10,50,20 --rounds 6 --cells default,both", folder, folder);
    char path[512];
    snprintf(path, sizeof path, "%s/out/result.json", folder);
    bool begun = false;
    for (int i = 0; i < 2000 && !begun; i++) {
        clock_sleep_ns(20000000);
        result *file = NULL;
        if (access(path, R_OK) == 0 && result_open(path, &file) == STATUS_OK) {
            begun = result_read_view(file)->rounds >= 1;
            result_close(&file);
        }
    }
    ck_assert_msg(begun, "no round was finished");
    kill(child, SIGTERM);
    ck_assert_int_eq(finish(child), 143);
    result *file = open_result();
    const size_t before = result_read_view(file)->rounds;
    const double first_rate = result_read_view(file)->cells[0].rates[0];
    ck_assert(!result_read_view(file)->finished);
    result_close(&file);
    ck_assert_uint_lt(before, 6);
    /* Other flags are refused. */
    ck_assert_int_ne(run("ablate --quiet --data %s/set --device host --model probe --settle 0.05 "
                         "--num-workers 2 --prefetch 4 --epochs 1 --resume --out %s/out --simulate "
                         "10,50,20 --cells default,both",
                         folder, folder),
                     0);
    ck_assert_int_eq(run("ablate --quiet --data %s/set --device host --model probe --settle 0.05 "
                         "--num-workers 1 --prefetch 4 --epochs 1 --resume --out %s/out --simulate "
                         "10,50,20 --cells default,both",
                         folder, folder),
                     0);
    file = open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 6);
    ck_assert(result_read_view(file)->finished);
    ck_assert(result_read_view(file)->cells[0].rates[0] == first_rate);
    result_close(&file);
    clean_up();
}
END_TEST

START_TEST(test_compare_and_formats)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        run(COMMON "--simulate 10,50,5 --rounds 2 --trace %s/trace.json", folder, folder, folder),
        0);
    ck_assert_int_eq(run("compare %s/out/result.json %s/out/result.json", folder, folder), 0);
    ck_assert_int_eq(run("compare %s/out/result.json %s/out/rounds.csv", folder, folder), 1);
    static const char *const names[] = {"out/report.html", "out/report.md", "out/rounds.csv",
                                        "trace.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        ck_assert_msg(access(path, R_OK) == 0, "%s is missing", names[i]);
    }
    /* An earlier result is not replaced unasked. */
    ck_assert_int_eq(run("ablate --quiet --data %s/set --device host --model probe --out %s/out "
                         "--rounds 2 --epochs 1",
                         folder, folder),
                     2);
    clean_up();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_copy_bound,           test_compute_bound,
                                  test_pinning_hurts,        test_loader_bound,
                                  test_accounting,           test_spoiled_cell_is_caught,
                                  test_interrupt_and_resume, test_compare_and_formats};
    return check_run("ablate", tests, sizeof tests / sizeof tests[0], 150);
}
