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
#include "base/system.h"
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

/* Eight batches of 64 images of 16 x 16 bytes, 0.052 MB with their targets. */
#define JOB                                                                                        \
    "--quiet --data %s/set --device host --model probe --size 16 --settle 0.05 --num-workers 1 "   \
    "--prefetch 2 --epochs 1 "
#define COMMON "ablate --ceiling-seconds 0.1 --overwrite " JOB "--out %s/out "
#define GO_ON "ablate " JOB "--resume %s/out/result.json "
/* Gigabytes a second at which such a batch takes so many milliseconds. */
#define COPY_1_MS "0.052"
#define COPY_20_MS "0.0026"
#define COPY_30_MS "0.00173"
#define COPY_40_MS "0.0013"

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
    double load = 0;
    struct system_facts facts;
    system_read_facts(&facts);
    /* Where others want every CPU twice over, nothing that waits is woken in time. */
    const bool busy = getloadavg(&load, 1) == 1 && load > 2.0 * facts.cpus_allowed;
    return !busy && (!mode || strcmp(mode, "release") == 0);
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

/*
 * One cell's best rate to another's: where this machine's load strikes a round, others stay. What is
 * left of the load is on the side of the cells that wait for each copy: their host wakes late once a
 * batch, which is time that the simulated device does not have. Tolerances leave room for that on one
 * side, and none for a copy or a step that is hidden where it must not be, or not hidden where it must.
 */
static double best_ratio(const struct result_view *view, const char *a, const char *b)
{
    const struct result_cell *over = result_find_cell(view, a), *under = result_find_cell(view, b);
    ck_assert(over && under && view->rounds > 0);
    return over->highest / under->highest;
}

static void check_ratio(const struct result_view *view, const char *a, const char *b, double least,
                        double most)
{
    const double ratio = best_ratio(view, a, b);
    ck_assert_msg(ratio >= least && ratio <= most, "%s/%s is %.3f, not %.3f to %.3f", a, b, ratio,
                  least, most);
}

static const char *diagnosis_of(const struct result_view *view, const char *member)
{
    return json_member_string(json_member(view->root, "diagnosis"), member, "");
}

static void check_predictions(const struct result_view *view, double tolerance)
{
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        ck_assert_msg(fabs(cell->predicted / cell->highest - 1) < tolerance,
                      "%s: %g predicted, %g found", cell->name, cell->predicted, cell->highest);
    }
}

#define TIMED_TEST()                                                                               \
    do {                                                                                           \
        if (!times_mean_something()) {                                                             \
            SKIP_TEST("times mean nothing in this build, or on a machine as busy as this");        \
        }                                                                                          \
        if (!prepare()) {                                                                          \
            SKIP_TEST("PINLINE does not name the program");                                        \
        }                                                                                          \
    } while (0)

/* --- Jobs whose answer is known ------------------------------------------------------------- */

/* Copying takes 30 ms pageable and 1 ms page-locked, the step 12 ms: default 42, pin 13, both 13,
 * with a stream of its own 12. */
START_TEST(test_copy_bound)
{
    TIMED_TEST();
    ck_assert_int_eq(
        run(COMMON "--simulate " COPY_30_MS "," COPY_1_MS ",12 --rounds 6", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->rounds, 6);
    ck_assert_uint_eq(view->cell_count, 6);
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_WORTH_IT);
    ck_assert_int_eq(verdict_of(view, "pin/default"), VERDICT_WORTH_IT);
    ck_assert_int_ne(verdict_of(view, "non_blocking/default"), VERDICT_WORTH_IT);
    /* 42 to 13 ms. */
    check_ratio(view, "both", "default", 2.7, 4);
    check_ratio(view, "non_blocking", "default", 0.85, 1.2);
    check_ratio(view, "both+stream", "both", 0.93, 1.25);
    ck_assert_ptr_nonnull(view->check.name);
    check_ratio(view, "default again", "default", 0.85, 1.2);
    ck_assert_str_eq(diagnosis_of(view, "bound"), "copy");
    ck_assert_str_eq(diagnosis_of(view, "best_bound"), "compute");
    ck_assert(view->advice.claims);
    ck_assert_int_eq(strncmp(view->advice.text, "Set --pin-memory --non-blocking", 31), 0);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        ck_assert_str_eq(cell->runs[0].weights_hash, view->cells[0].runs[0].weights_hash);
        ck_assert_str_eq(cell->runs[5].loss_hash, view->cells[0].runs[0].loss_hash);
    }
    check_predictions(view, 0.3);
    result_close(&file);
    clean_up();
}
END_TEST

/* Copies are nothing beside a step of 40 ms. */
START_TEST(test_compute_bound)
{
    TIMED_TEST();
    ck_assert_int_eq(run(COMMON "--simulate 10,50,40 --rounds 6 --cells default,both,both+stream",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    check_ratio(view, "both", "default", 0.95, 1.25);
    /* Neither waits for its copies, so that load does not tell them apart. */
    check_ratio(view, "both+stream", "both", 0.95, 1.05);
    ck_assert_int_ne(verdict_of(view, "both+stream/both"), VERDICT_WORTH_IT);
    ck_assert_str_eq(diagnosis_of(view, "bound"), "compute");
    check_predictions(view, 0.25);
    result_close(&file);
    clean_up();
}
END_TEST

/* Copy and step of 40 ms each: one after the other 80, beside each other 40, whichever of the two is
 * longer by chance. */
START_TEST(test_balanced)
{
    TIMED_TEST();
    ck_assert_int_eq(run(COMMON "--simulate " COPY_40_MS "," COPY_40_MS
                                ",40 --rounds 2 --cells default,both,both+stream",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_str_eq(diagnosis_of(view, "bound"), "copy + compute");
    check_ratio(view, "both", "default", 0.93, 1.3);
    /* 8 x 80 ms against 9 x 40: the first copy has no step before it. */
    check_ratio(view, "both+stream", "both", 1.5, 2);
    check_predictions(view, 0.3);
    /* Too few rounds for a verdict. */
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_NONE);
    ck_assert(!view->advice.claims);
    result_close(&file);
    clean_up();
}
END_TEST

/* Page-locked memory makes the step of 20 ms 30 ms longer: it costs, and the report says so. */
START_TEST(test_pinning_hurts)
{
    TIMED_TEST();
    ck_assert_int_eq(
        run(COMMON "--simulate 10,50,20,0,30 --rounds 6 --cells default,both", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_int_eq(verdict_of(view, "both/default"), VERDICT_COSTS);
    /* 20 to 50 ms. */
    check_ratio(view, "both", "default", 0.38, 0.55);
    ck_assert_int_eq(strncmp(view->advice.text, "Leave", 5), 0);
    /* The step is measured beside both kinds of slot. */
    check_predictions(view, 0.25);
    result_close(&file);
    clean_up();
}
END_TEST

/* Large images and a step of next to nothing: whatever the flags, the decoder decides. */
START_TEST(test_loader_bound)
{
    TIMED_TEST();
    ck_assert_int_eq(run("synth %s/large --images 96 --val-images 10 --size 192 --quiet", folder),
                     0);
    ck_assert_int_eq(run("ablate --quiet --data %s/large --device host --model probe --settle 0.05 "
                         "--ceiling-seconds 0.1 --num-workers 1 --epochs 1 --rounds 2 --size 16 "
                         "--batch-size 16 --prefetch 2 "
                         "--cells default,both --simulate 10,50,0.01 --overwrite --out %s/out",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_str_eq(diagnosis_of(view, "bound"), "loader");
    ck_assert_str_eq(diagnosis_of(view, "best_bound"), "loader");
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

/* Without workers decoding, some 7 ms a batch, follows the copies of 10 and 2 ms wherever the host waits for
 * them, and is beside the step of 2 ms alone: 17 and 9 ms. A prediction that took the copies' calls for
 * decoding, and let both overlap, would be 21 for default and 7.6 for pin. */
START_TEST(test_without_workers)
{
    TIMED_TEST();
    ck_assert_int_eq(run("synth %s/large --images 96 --val-images 10 --size 192 --quiet", folder),
                     0);
    ck_assert_int_eq(run("ablate --quiet --data %s/large --device host --model probe --settle 0.05 "
                         "--ceiling-seconds 0.3 --num-workers 0 --epochs 6 --rounds 3 --size 16 "
                         "--batch-size 16 --prefetch 2 --cells default,pin,both,both+stream "
                         "--simulate 0.0013,0.0065,2 --overwrite --out %s/out",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    check_predictions(view, 0.1);
    ck_assert_str_eq(diagnosis_of(view, "best_bound"), "loader");
    const struct json_value *advice = json_member(json_member(view->root, "diagnosis"), "advice");
    struct system_facts facts;
    system_read_facts(&facts);
    bool workers = facts.cpus_allowed < 4; /* one alone would decode no faster */
    for (size_t i = 0; i < advice->count; i++) {
        const char *what = json_member_string(&advice->items[i], "what", "");
        workers = workers || strstr(what, "instead of 0");
    }
    ck_assert_msg(workers, "the advice does not name workers");
    result_close(&file);
    clean_up();
}
END_TEST

/* A step of 30 ms in place of the model's, which takes no time here. */
START_TEST(test_emulated_step)
{
    TIMED_TEST();
    ck_assert_int_eq(run("ablate --quiet --data %s/set --device host --settle 0.05 --num-workers 1 "
                         "--prefetch 4 --epochs 1 --out %s/out --ceiling-seconds 0.1 --rounds 2 "
                         "--cells default,both --step-ms 30 --batch-bytes 48K --simulate 10,50,0",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    for (size_t c = 0; c < view->cell_count; c++) {
        ck_assert_double_eq_tol(64 / view->cells[c].highest, 0.030, 0.008);
    }
    check_predictions(view, 0.2);
    ck_assert_str_eq(diagnosis_of(view, "bound"), "compute");
    ck_assert_int_eq(json_member_int(json_member(view->root, "job"), "size", 0), 16);
    result_close(&file);
    clean_up();
}
END_TEST

/* --- What every run must keep --------------------------------------------------------------- */

/* Stages of the host's thread sum to wall time, and what is not accounted for is small: a fifth at
 * most, on a machine where this thread may lose the processor anywhere. */
START_TEST(test_accounting)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate " COPY_20_MS "," COPY_1_MS
                                ",10 --rounds 2 --copy-stream both",
                         folder, folder),
                     0);
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
        if (times_mean_something()) {
            ck_assert_double_lt(json_member_double(host, "rest", 1), 0.2 * wall);
        }
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

/* Every lane of the time line is there, each span within the epoch and after its beginning. */
START_TEST(test_timeline)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        run(COMMON "--simulate 1,5,10 --rounds 2 --cells default,both", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct json_value *run_object = view->cells[c].runs[0].object;
        const struct json_value *spans = json_member(run_object, "timeline");
        const double wall = json_member(run_object, "epoch_s")->items[0].number;
        int host = 0, copies = 0, steps = 0;
        for (size_t i = 0; i < spans->count; i++) {
            const char *lane = json_member_string(&spans->items[i], "lane", "");
            const double from = json_member_double(&spans->items[i], "from", -1);
            const double to = json_member_double(&spans->items[i], "to", -1);
            host += strcmp(lane, "host") == 0;
            copies += strcmp(lane, "copy") == 0;
            steps += strcmp(lane, "compute") == 0;
            ck_assert(from >= 0 && to > from && to <= 1.2 * wall + 0.05);
        }
        ck_assert_int_eq(steps, 8);
        ck_assert_int_eq(copies, 8);
        ck_assert_int_ge(host, 16);
        /* Only the first round draws one. */
        ck_assert_uint_eq(json_member(view->cells[c].runs[1].object, "timeline")->count, 0);
    }
    result_close(&file);
    clean_up();
}
END_TEST

/* Inference: nothing is trained, and the losses are the same bits. */
START_TEST(test_inference)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 10,50,1 --rounds 2 --cells default,both --job eval "
                                "--limit-samples 300",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    const struct json_value *protocol = json_member(view->root, "protocol");
    ck_assert(json_member_bool(protocol, "forward_only", false));
    ck_assert_int_eq(json_member_int(protocol, "samples", 0), 300);
    ck_assert_int_eq(json_member_int(protocol, "batches", 0), 5);
    ck_assert_str_eq(view->cells[0].runs[0].loss_hash, view->cells[1].runs[1].loss_hash);
    result_close(&file);
    clean_up();
}
END_TEST

/* Cells with another arithmetic are held against themselves alone; an axis makes cells. */
START_TEST(test_axes)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON "--simulate 10,50,1 --rounds 2 --cells default,both "
                                "--axis batch-size=32,64;num-workers=0,2 --order-seed "
                                "18446744073709551615",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    const struct json_value *protocol = json_member(view->root, "protocol");
    ck_assert_uint_eq(view->cell_count, 8);
    ck_assert_uint_eq(view->failures, 0);
    ck_assert_ptr_nonnull(result_find_cell(view, "both batch-size=32 num-workers=2"));
    ck_assert_ptr_nonnull(strstr(json_member_string(protocol, "request", ""),
                                 "--cells default,both --axis batch-size=32,64 --axis "
                                 "num-workers=0,2"));
    ck_assert(result_read_seed(protocol) == UINT64_MAX);
    result_close(&file);
    clean_up();
}
END_TEST

/* Cells that are the same and nothing else: their difference is a check, and no effect. */
START_TEST(test_same_and_same)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        run(COMMON "--simulate 10,50,5 --rounds 6 --cells default,default", folder, folder), 0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->cell_count, 2);
    ck_assert_str_eq(view->cells[1].name, "default again");
    ck_assert_uint_eq(view->effect_count, 0);
    ck_assert_str_eq(view->check.name, "default again/default");
    ck_assert_int_eq(strncmp(view->advice.text, "An A/A run", 10), 0);
    ck_assert(view->advice.claims == effect_is_claimed(&view->check));
    result_close(&file);
    clean_up();
}
END_TEST

/* Without the instrument the bits are the same, nothing but whole epochs is timed, and the cells are
 * compared as any others. */
START_TEST(test_instrument_left_out)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        run(COMMON "--simulate 10,50,5 --rounds 2 --cells both --axis timing=0,1", folder, folder),
        0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->failures, 0);
    const struct result_cell *off = result_find_cell(view, "both timing=0");
    const struct result_cell *on = result_find_cell(view, "both timing=1");
    ck_assert(off && on);
    ck_assert_ptr_nonnull(result_find_effect(view, "both: timing=1 against timing=0"));
    ck_assert_str_eq(off->runs[0].weights_hash, on->runs[0].weights_hash);
    ck_assert_double_gt(off->predicted, 0);
    static const char *const left_out[] = {"host", "device", "watch"};
    for (size_t i = 0; i < sizeof left_out / sizeof left_out[0]; i++) {
        ck_assert_ptr_null(json_member(off->runs[0].object, left_out[i]));
        ck_assert_ptr_nonnull(json_member(on->runs[0].object, left_out[i]));
    }
    const struct json_value *counters = json_member(off->runs[0].object, "counters");
    ck_assert_int_eq(json_member_int(counters, "batches", 0), 8);
    ck_assert_ptr_null(json_member(counters, "copy_device_s"));
    ck_assert_uint_eq(json_member(off->runs[0].object, "timeline")->count, 0);
    ck_assert_uint_gt(json_member(on->runs[0].object, "timeline")->count, 0);
    result_close(&file);
    clean_up();
}
END_TEST

/* A round accounts for its time; the first of its cells fills the cache, and no other. */
START_TEST(test_round_accounts_for_its_time)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run("ablate --quiet --data %s/set --device host --model probe --size 16 "
                         "--settle 0 --num-workers 1 --ceiling-seconds 0.05 --out %s/out "
                         "--simulate 10,50,20 --seconds 0.5 --rounds 2 --cells default,both,pin "
                         "--cache decoded --prefetch 2",
                         folder, folder),
                     0);
    result *file = open_result();
    const struct result_view *view = result_read_view(file);
    const struct json_value *protocol = json_member(view->root, "protocol");
    const struct json_value *rounds = json_member(view->root, "rounds");
    /* Eight batches of 20 ms an epoch: four of them, or three where the step was found longer. */
    ck_assert_int_ge(json_member_int(protocol, "epochs", 0), 3);
    ck_assert_int_le(json_member_int(protocol, "epochs", 0), 4);
    ck_assert_uint_eq(rounds->count, 2);
    for (size_t r = 0; r < 2; r++) {
        const struct json_value *whole = &rounds->items[r];
        double setup = 0, settle = 0, timed = 0;
        for (size_t c = 0; c < 3; c++) {
            const struct result_run *of_cell = &view->cells[c].runs[r];
            const double epochs_s = json_member_double(of_cell->object, "timed_s", 0);
            const double settle_s = json_member_double(of_cell->object, "settle_s", 0);
            setup += json_member_double(of_cell->object, "setup_s", 0);
            settle += settle_s;
            timed += epochs_s;
            ck_assert_double_gt(epochs_s, 0.4);
            ck_assert_int_eq(json_member_int(of_cell->object, "cache_images", 0), 512);
            ck_assert_int_eq(
                json_member_int(json_member(of_cell->object, "counters"), "bytes_read", -1), 0);
            /* An epoch to fill the cache, or two rings of two batches. */
            const int batches = of_cell->place == 0 ? 8 : 4;
            ck_assert_double_ge(settle_s, batches * 0.02);
            if (times_mean_something()) {
                ck_assert_double_lt(settle_s, of_cell->place == 0 ? 1 : 0.155);
            }
        }
        ck_assert_double_eq_tol(json_member_double(whole, "setup_s", 0), setup, 1e-9);
        ck_assert_double_eq_tol(json_member_double(whole, "settle_s", 0), settle, 1e-9);
        ck_assert_double_eq_tol(json_member_double(whole, "timed_s", 0), timed, 1e-9);
        const double start = json_member_double(whole, "start_s", -1);
        ck_assert_double_ge(start, 0);
        ck_assert_double_ge(json_member_double(whole, "wall_s", 0), start + setup + settle + timed);
    }
    result_close(&file);
    clean_up();
}
END_TEST

static const struct {
    const char *how, *says;
} spoils[] = {{"both", "weights of cell \"both\""},
              {"both:batches", "losses of cell \"both\""},
              {"both:workers", "num-workers"}};

/* One weight of one cell changed by its last bit, its batches, a setting that nobody named: caught,
 * named, and the exit status says so. */
START_TEST(test_spoiled_cell_is_caught)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        ck_assert_int_eq(run(COMMON "--simulate 10,50,1 --rounds 2 --cells default,both --spoil %s",
                             folder, folder, spoils[i].how),
                         5);
        result *file = open_result();
        const struct result_view *view = result_read_view(file);
        const struct json_value *failures = json_member(view->root, "failures");
        bool named = false;
        for (size_t f = 0; f < failures->count; f++) {
            named = named || (strstr(failures->items[f].string, spoils[i].says) &&
                              strstr(failures->items[f].string, "\"both\""));
        }
        ck_assert_msg(named, "%s: \"%s\"", spoils[i].how,
                      failures->count ? failures->items[0].string : "nothing");
        ck_assert(!view->advice.claims);
        result_close(&file);
    }
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
    /* Other flags are refused, and other numbers of rounds. */
    ck_assert_int_eq(run(GO_ON "--simulate 10,50,21 --cells default,both", folder, folder), 1);
    ck_assert_int_eq(run(GO_ON "--simulate 10,50,20 --cells default,pin", folder, folder), 1);
    ck_assert_int_eq(
        run(GO_ON "--simulate 10,50,20 --cells default,both --rounds 8", folder, folder), 1);
    /* And another folder: a result's rounds stay together. */
    ck_assert_int_eq(
        run(GO_ON "--simulate 10,50,20 --cells default,both --out %s", folder, folder, folder), 2);
    ck_assert_int_eq(run(GO_ON "--simulate 10,50,20 --cells default,both", folder, folder), 0);
    file = open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 6);
    ck_assert(result_read_view(file)->finished);
    ck_assert(result_read_view(file)->cells[0].rates[0] == first_rate);
    result_close(&file);
    clean_up();
}
END_TEST

START_TEST(test_interrupted_ceilings)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const pid_t child = run_beside(
        "ablate --ceiling-seconds 20 " JOB "--out %s/out --simulate 10,50,20", folder, folder);
    clock_sleep_ns(1000000000);
    kill(child, SIGINT);
    const uint64_t asked = clock_now_ns();
    ck_assert_int_eq(finish(child), 130);
    ck_assert_double_lt(clock_seconds(asked, clock_now_ns()), 10);
    char path[512];
    snprintf(path, sizeof path, "%s/out/result.json", folder);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(run(GO_ON "--simulate 10,50,20", folder, folder), 1);
    clean_up();
}
END_TEST

/* Predictions alone, and then the rounds in the same folder. */
START_TEST(test_predict_only_then_rounds)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const char *const words = "ablate --ceiling-seconds 0.1 " JOB "--simulate 10,50,5 "
                              "--cells default,both --rounds 2 %s %s/out";
    ck_assert_int_eq(run(words, folder, "--predict-only --out", folder), 0);
    result *file = open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 0);
    ck_assert(!result_read_view(file)->finished);
    ck_assert_double_gt(result_read_view(file)->cells[1].predicted, 0);
    const double predicted = result_read_view(file)->cells[1].predicted;
    result_close(&file);
    /* Going on keeps what was predicted, to the last bit. */
    ck_assert_int_eq(run(words, folder, "--resume", folder), 0);
    file = open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 2);
    ck_assert(result_read_view(file)->finished);
    ck_assert(result_read_view(file)->cells[1].predicted == predicted);
    result_close(&file);
    /* Rounds are not thrown away unasked; predictions are. */
    ck_assert_int_eq(run(words, folder, "--out", folder), 2);
    ck_assert_int_eq(run(words, folder, "--overwrite --predict-only --out", folder), 0);
    ck_assert_int_eq(run(words, folder, "--out", folder), 0);
    clean_up();
}
END_TEST

static const struct {
    const char *words;
    int code;
} refused[] = {
    {"--resume none --predict-only", 2},
    {"--resume none --overwrite", 2},
    {"--pin-memory auto", 2},
    {"--axis nonsense=1", 2},
    {"--axis num-workers=fast", 2},
    {"--axis pin-memory=on,off", 2},
    {"--cells default", 2},
    {"--cells default,default,default", 2},
    {"--seconds 0", 2},
    {"--budget never", 2},
    {"--matters 0", 2},
    {"--step-ms 5 --batch-bytes 10", 2},
    {"--job fly", 2},
    {"--peer /nonexistent/peer.csv", 1},
};

START_TEST(test_refused)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const int code = run("ablate --quiet --data %s/set --device host --out %s/none %s", folder,
                             folder, refused[i].words);
        ck_assert_msg(code == refused[i].code, "%s: %d", refused[i].words, code);
    }
    ck_assert_int_eq(
        run("ablate --quiet --data %s/set --device host --model probe --step-ms 5", folder), 2);
    ck_assert_int_eq(run("ablate --quiet --device host --out %s/none", folder), 2);
    ck_assert_int_eq(
        run("ablate --quiet --data %s/absent --device host --out %s/none", folder, folder), 1);
    /* A folder that cannot be made. */
    ck_assert_int_eq(run("ablate --quiet --data %s/set --device host --out /proc/none", folder), 1);
    clean_up();
}
END_TEST

START_TEST(test_compare_and_formats)
{
    if (!prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(run(COMMON
                         "--simulate 10,50,5 --rounds 2 --cells default,both --trace %s/trace.json",
                         folder, folder, folder),
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
    const TTest *const tests[] = {test_copy_bound,
                                  test_compute_bound,
                                  test_balanced,
                                  test_pinning_hurts,
                                  test_loader_bound,
                                  test_without_workers,
                                  test_emulated_step,
                                  test_accounting,
                                  test_timeline,
                                  test_inference,
                                  test_axes,
                                  test_same_and_same,
                                  test_instrument_left_out,
                                  test_round_accounts_for_its_time,
                                  test_spoiled_cell_is_caught,
                                  test_interrupt_and_resume,
                                  test_interrupted_ceilings,
                                  test_predict_only_then_rounds,
                                  test_refused,
                                  test_compare_and_formats};
    return check_run("ablate", tests, sizeof tests / sizeof tests[0], 150);
}
