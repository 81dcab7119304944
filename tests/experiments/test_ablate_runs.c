/* What every run and result must keep, whatever the answer; what is refused; and what goes on. */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "experiments/result.h"
#include "tests/support/ablate_rig.h"
#include "tests/support/check_run.h"

/* Stages of the host's thread sum to wall time, and what is not accounted for is small: a fifth at
 * most, on a machine where this thread may lose the processor anywhere. */
START_TEST(test_accounting)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON "--simulate " COPY_20_MS "," COPY_1_MS
                                                      ",10 --rounds 2 --copy-stream both",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
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
        if (ablate_rig_times_mean_something()) {
            ck_assert_double_lt(json_member_double(host, "rest", 1), 0.2 * wall);
        }
        const struct json_value *counters = json_member(run_object, "counters");
        const bool blocking = strstr(view->cells[c].name, "both") == NULL &&
                              strstr(view->cells[c].name, "non_blocking") == NULL;
        ck_assert_int_eq(json_member_int(counters, "waits_copy", -1), blocking ? 8 : 0);
        ck_assert_int_eq(json_member_int(counters, "host_copies", -1), 0);
    }
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Every lane of the time line is there, each span within the epoch and after its beginning. */
START_TEST(test_timeline)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 1,5,10 --rounds 2 --cells default,both",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
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
    ablate_rig_clean_up();
}
END_TEST

/* Inference: nothing is trained, and the losses are the same bits. */
START_TEST(test_inference)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 10,50,1 --rounds 2 --cells default,both --job eval "
                                    "--limit-samples 300",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    const struct json_value *protocol = json_member(view->root, "protocol");
    ck_assert(json_member_bool(protocol, "forward_only", false));
    ck_assert_int_eq(json_member_int(protocol, "samples", 0), 300);
    ck_assert_int_eq(json_member_int(protocol, "batches", 0), 5);
    ck_assert_str_eq(view->cells[0].runs[0].loss_hash, view->cells[1].runs[1].loss_hash);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Cells with another arithmetic are held against themselves alone; an axis makes cells. */
START_TEST(test_axes)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 10,50,1 --rounds 2 --cells default,both "
                                    "--axis batch-size=32,64;num-workers=0,2 --order-seed "
                                    "18446744073709551615",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
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
    ablate_rig_clean_up();
}
END_TEST

/* Cells that are the same and nothing else: their difference is a check, and no effect. */
START_TEST(test_same_and_same)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 10,50,5 --rounds 6 --cells default,default",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->cell_count, 2);
    ck_assert_str_eq(view->cells[1].name, "default again");
    ck_assert_uint_eq(view->effect_count, 0);
    ck_assert_str_eq(view->check.name, "default again/default");
    ck_assert_int_eq(strncmp(view->advice.text, "An A/A run", 10), 0);
    ck_assert(view->advice.claims == effect_is_claimed(&view->check));
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Without the instrument the bits are the same, nothing but whole epochs is timed, and the cells are
 * compared as any others. */
START_TEST(test_instrument_left_out)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 10,50,5 --rounds 2 --cells both --axis timing=0,1",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
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
    ablate_rig_clean_up();
}
END_TEST

/* A round accounts for its time; the first of its cells fills the cache, and no other. */
START_TEST(test_round_accounts_for_its_time)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --data %s/set --device host --model probe --size 16 "
                       "--settle 0 --num-workers 1 --ceiling-seconds 0.05 --out %s/out "
                       "--simulate 10,50,20 --seconds 0.5 --rounds 2 --cells default,both,pin "
                       "--cache decoded --prefetch 2",
                       ablate_rig_folder, ablate_rig_folder),
        0);
    result *file = ablate_rig_open_result();
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
            if (ablate_rig_times_mean_something()) {
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
    ablate_rig_clean_up();
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
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    for (size_t i = 0; i < sizeof spoils / sizeof spoils[0]; i++) {
        ck_assert_int_eq(
            ablate_rig_run(ABLATE_RIG_COMMON
                           "--simulate 10,50,1 --rounds 2 --cells default,both --spoil %s",
                           ablate_rig_folder, ablate_rig_folder, spoils[i].how),
            5);
        result *file = ablate_rig_open_result();
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
    ablate_rig_clean_up();
}
END_TEST

/* Interrupted after its first round, the ablation goes on and ends as if it had not been. */
START_TEST(test_interrupt_and_resume)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const pid_t child = ablate_rig_run_beside(ABLATE_RIG_COMMON
                                              "--simulate 10,50,20 --rounds 6 --cells default,both",
                                              ablate_rig_folder, ablate_rig_folder);
    char path[512];
    snprintf(path, sizeof path, "%s/out/result.json", ablate_rig_folder);
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
    ck_assert_int_eq(ablate_rig_finish(child), 143);
    result *file = ablate_rig_open_result();
    const size_t before = result_read_view(file)->rounds;
    const double first_rate = result_read_view(file)->cells[0].rates[0];
    ck_assert(!result_read_view(file)->finished);
    result_close(&file);
    ck_assert_uint_lt(before, 6);
    /* Other flags are refused, and other numbers of rounds. */
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON "--simulate 10,50,21 --cells default,both",
                                    ablate_rig_folder, ablate_rig_folder),
                     1);
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON "--simulate 10,50,20 --cells default,pin",
                                    ablate_rig_folder, ablate_rig_folder),
                     1);
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON
                                    "--simulate 10,50,20 --cells default,both --rounds 8",
                                    ablate_rig_folder, ablate_rig_folder),
                     1);
    /* And another folder: a result's rounds stay together. */
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON
                                    "--simulate 10,50,20 --cells default,both --out %s",
                                    ablate_rig_folder, ablate_rig_folder, ablate_rig_folder),
                     2);
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON "--simulate 10,50,20 --cells default,both",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    file = ablate_rig_open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 6);
    ck_assert(result_read_view(file)->finished);
    ck_assert(result_read_view(file)->cells[0].rates[0] == first_rate);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

START_TEST(test_interrupted_ceilings)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const pid_t child = ablate_rig_run_beside("ablate --ceiling-seconds 20 " ABLATE_RIG_JOB
                                              "--out %s/out --simulate 10,50,20",
                                              ablate_rig_folder, ablate_rig_folder);
    clock_sleep_ns(1000000000);
    kill(child, SIGINT);
    const uint64_t asked = clock_now_ns();
    ck_assert_int_eq(ablate_rig_finish(child), 130);
    ck_assert_double_lt(clock_seconds(asked, clock_now_ns()), 10);
    char path[512];
    snprintf(path, sizeof path, "%s/out/result.json", ablate_rig_folder);
    ck_assert_int_ne(access(path, F_OK), 0);
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_GO_ON "--simulate 10,50,20", ablate_rig_folder,
                                    ablate_rig_folder),
                     1);
    ablate_rig_clean_up();
}
END_TEST

/* Predictions alone, and then the rounds in the same folder. */
START_TEST(test_predict_only_then_rounds)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    const char *const words = "ablate --ceiling-seconds 0.1 " ABLATE_RIG_JOB "--simulate 10,50,5 "
                              "--cells default,both --rounds 2 %s %s/out";
    ck_assert_int_eq(
        ablate_rig_run(words, ablate_rig_folder, "--predict-only --out", ablate_rig_folder), 0);
    result *file = ablate_rig_open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 0);
    ck_assert(!result_read_view(file)->finished);
    ck_assert_double_gt(result_read_view(file)->cells[1].predicted, 0);
    const double predicted = result_read_view(file)->cells[1].predicted;
    result_close(&file);
    /* Going on keeps what was predicted, to the last bit. */
    ck_assert_int_eq(ablate_rig_run(words, ablate_rig_folder, "--resume", ablate_rig_folder), 0);
    file = ablate_rig_open_result();
    ck_assert_uint_eq(result_read_view(file)->rounds, 2);
    ck_assert(result_read_view(file)->finished);
    ck_assert(result_read_view(file)->cells[1].predicted == predicted);
    result_close(&file);
    /* Rounds are not thrown away unasked; predictions are. */
    ck_assert_int_eq(ablate_rig_run(words, ablate_rig_folder, "--out", ablate_rig_folder), 2);
    ck_assert_int_eq(ablate_rig_run(words, ablate_rig_folder, "--overwrite --predict-only --out",
                                    ablate_rig_folder),
                     0);
    ck_assert_int_eq(ablate_rig_run(words, ablate_rig_folder, "--out", ablate_rig_folder), 0);
    ablate_rig_clean_up();
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
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        const int code =
            ablate_rig_run("ablate --quiet --data %s/set --device host --out %s/none %s",
                           ablate_rig_folder, ablate_rig_folder, refused[i].words);
        ck_assert_msg(code == refused[i].code, "%s: %d", refused[i].words, code);
    }
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --data %s/set --device host --model probe --step-ms 5",
                       ablate_rig_folder),
        2);
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --device host --out %s/none", ablate_rig_folder), 2);
    ck_assert_int_eq(ablate_rig_run("ablate --quiet --data %s/absent --device host --out %s/none",
                                    ablate_rig_folder, ablate_rig_folder),
                     1);
    /* A folder that cannot be made. */
    ck_assert_int_eq(ablate_rig_run("ablate --quiet --data %s/set --device host --out /proc/none",
                                    ablate_rig_folder),
                     1);
    ablate_rig_clean_up();
}
END_TEST

START_TEST(test_compare_and_formats)
{
    if (!ablate_rig_prepare()) {
        SKIP_TEST("PINLINE does not name the program");
    }
    ck_assert_int_eq(
        ablate_rig_run(ABLATE_RIG_COMMON
                       "--simulate 10,50,5 --rounds 2 --cells default,both --trace %s/trace.json",
                       ablate_rig_folder, ablate_rig_folder, ablate_rig_folder),
        0);
    ck_assert_int_eq(ablate_rig_run("compare %s/out/result.json %s/out/result.json",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    ck_assert_int_eq(ablate_rig_run("compare %s/out/result.json %s/out/rounds.csv",
                                    ablate_rig_folder, ablate_rig_folder),
                     1);
    static const char *const names[] = {"out/report.html", "out/report.md", "out/rounds.csv",
                                        "trace.json"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[512];
        snprintf(path, sizeof path, "%s/%s", ablate_rig_folder, names[i]);
        ck_assert_msg(access(path, R_OK) == 0, "%s is missing", names[i]);
    }
    /* An earlier result is not replaced unasked. */
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --data %s/set --device host --model probe --out %s/out "
                       "--rounds 2 --epochs 1",
                       ablate_rig_folder, ablate_rig_folder),
        2);
    ablate_rig_clean_up();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_accounting,
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
    return check_run("ablate_runs", tests, sizeof tests / sizeof tests[0], 150);
}
