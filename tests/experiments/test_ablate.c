/* The whole method on jobs whose answer is known. Each job is slow enough for sleeping to decide, not this
 * machine's load. */
#include <string.h>

#include "base/system.h"
#include "experiments/result.h"
#include "tests/support/ablate_rig.h"
#include "tests/support/check_run.h"

/* Copying takes 30 ms pageable and 1 ms page-locked, the step 12 ms: default 42, pin 13, both 13,
 * with a stream of its own 12. */
START_TEST(test_copy_bound)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON "--simulate " COPY_30_MS "," COPY_1_MS
                                                      ",12 --rounds 6",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_uint_eq(view->rounds, 6);
    ck_assert_uint_eq(view->cell_count, 6);
    ck_assert_int_eq(ablate_rig_verdict_of(view, "both/default"), VERDICT_WORTH_IT);
    ck_assert_int_eq(ablate_rig_verdict_of(view, "pin/default"), VERDICT_WORTH_IT);
    ck_assert_int_ne(ablate_rig_verdict_of(view, "non_blocking/default"), VERDICT_WORTH_IT);
    /* 42 to 13 ms. */
    ablate_rig_check_ratio(view, "both", "default", 2.7, 4);
    ablate_rig_check_ratio(view, "non_blocking", "default", 0.85, 1.2);
    ablate_rig_check_ratio(view, "both+stream", "both", 0.93, 1.25);
    ck_assert_ptr_nonnull(view->check.name);
    ablate_rig_check_ratio(view, "default again", "default", 0.85, 1.2);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "bound"), "copy");
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "best_bound"), "compute");
    ck_assert(view->advice.claims);
    ck_assert_int_eq(strncmp(view->advice.text, "Set --pin-memory --non-blocking", 31), 0);
    for (size_t c = 0; c < view->cell_count; c++) {
        const struct result_cell *cell = &view->cells[c];
        ck_assert_str_eq(cell->runs[0].weights_hash, view->cells[0].runs[0].weights_hash);
        ck_assert_str_eq(cell->runs[5].loss_hash, view->cells[0].runs[0].loss_hash);
    }
    ablate_rig_check_predictions(view, 0.3);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Copies are nothing beside a step of 40 ms. */
START_TEST(test_compute_bound)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(
        ablate_rig_run(ABLATE_RIG_COMMON
                       "--simulate 10,50,40 --rounds 6 --cells default,both,both+stream",
                       ablate_rig_folder, ablate_rig_folder),
        0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ablate_rig_check_ratio(view, "both", "default", 0.95, 1.25);
    /* Neither waits for its copies, so that load does not tell them apart. */
    ablate_rig_check_ratio(view, "both+stream", "both", 0.95, 1.05);
    ck_assert_int_ne(ablate_rig_verdict_of(view, "both+stream/both"), VERDICT_WORTH_IT);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "bound"), "compute");
    ablate_rig_check_predictions(view, 0.25);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Copy and step of 40 ms each: one after the other 80, beside each other 40, whichever of the two is
 * longer by chance. */
START_TEST(test_balanced)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate " COPY_40_MS "," COPY_40_MS
                                    ",40 --rounds 2 --cells default,both,both+stream",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "bound"), "copy + compute");
    ablate_rig_check_ratio(view, "both", "default", 0.93, 1.3);
    /* 8 x 80 ms against 9 x 40: the first copy has no step before it. */
    ablate_rig_check_ratio(view, "both+stream", "both", 1.5, 2);
    ablate_rig_check_predictions(view, 0.3);
    /* Too few rounds for a verdict. */
    ck_assert_int_eq(ablate_rig_verdict_of(view, "both/default"), VERDICT_NONE);
    ck_assert(!view->advice.claims);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Page-locked memory makes the step of 20 ms 30 ms longer: it costs, and the report says so. */
START_TEST(test_pinning_hurts)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(ablate_rig_run(ABLATE_RIG_COMMON
                                    "--simulate 10,50,20,0,30 --rounds 6 --cells default,both",
                                    ablate_rig_folder, ablate_rig_folder),
                     0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_int_eq(ablate_rig_verdict_of(view, "both/default"), VERDICT_COSTS);
    /* 20 to 50 ms. */
    ablate_rig_check_ratio(view, "both", "default", 0.38, 0.55);
    ck_assert_int_eq(strncmp(view->advice.text, "Leave", 5), 0);
    /* The step is measured beside both kinds of slot. */
    ablate_rig_check_predictions(view, 0.25);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Large images and a step of next to nothing: whatever the flags, the decoder decides. */
START_TEST(test_loader_bound)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(ablate_rig_run("synth %s/large --images 96 --val-images 10 --size 192 --quiet",
                                    ablate_rig_folder),
                     0);
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --data %s/large --device host --model probe --settle 0.05 "
                       "--ceiling-seconds 0.1 --num-workers 1 --epochs 1 --rounds 2 --size 16 "
                       "--batch-size 16 --prefetch 2 "
                       "--cells default,both --simulate 10,50,0.01 --overwrite --out %s/out",
                       ablate_rig_folder, ablate_rig_folder),
        0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "bound"), "loader");
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "best_bound"), "loader");
    ck_assert_int_eq(ablate_rig_verdict_of(view, "both/default"), VERDICT_NONE);
    const struct json_value *advice = json_member(json_member(view->root, "diagnosis"), "advice");
    bool cache = false;
    for (size_t i = 0; i < advice->count; i++) {
        cache = cache || strstr(json_member_string(&advice->items[i], "what", ""), "--cache");
    }
    ck_assert_msg(cache, "the advice does not name the cache");
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

/* Without workers decoding, some 7 ms a batch, follows the copies of 10 and 2 ms wherever the host waits for
 * them, and is beside the step of 2 ms alone: 17 and 9 ms. A prediction that took the copies' calls for
 * decoding, and let both overlap, would be 21 for default and 7.6 for pin. Decoding is real work here, and a
 * machine that is disturbed while its parts are timed, or later, departs from any prediction: a wrong one is
 * wrong three times. */
START_TEST(test_without_workers)
{
    bool hold = false;
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(ablate_rig_run("synth %s/large --images 96 --val-images 10 --size 192 --quiet",
                                    ablate_rig_folder),
                     0);
    for (int tries = 0; tries < 3 && !hold; tries++) {
        ck_assert_int_eq(
            ablate_rig_run(
                "ablate --quiet --data %s/large --device host --model probe --settle 0.05 "
                "--ceiling-seconds 0.3 --num-workers 0 --epochs 6 --rounds 3 --size 16 "
                "--batch-size 16 --prefetch 2 --cells default,pin,both,both+stream "
                "--simulate 0.0013,0.0065,2 --overwrite --out %s/out",
                ablate_rig_folder, ablate_rig_folder),
            0);
        hold = ablate_rig_predictions_hold(0.1);
    }
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    ablate_rig_check_predictions(view, 0.1);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "best_bound"), "loader");
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
    ablate_rig_clean_up();
}
END_TEST

/* A step of 30 ms in place of the model's, which takes no time here. */
START_TEST(test_emulated_step)
{
    ABLATE_RIG_TIMED();
    ck_assert_int_eq(
        ablate_rig_run("ablate --quiet --data %s/set --device host --settle 0.05 --num-workers 1 "
                       "--prefetch 4 --epochs 1 --out %s/out --ceiling-seconds 0.1 --rounds 2 "
                       "--cells default,both --step-ms 30 --batch-bytes 48K --simulate 10,50,0",
                       ablate_rig_folder, ablate_rig_folder),
        0);
    result *file = ablate_rig_open_result();
    const struct result_view *view = result_read_view(file);
    for (size_t c = 0; c < view->cell_count; c++) {
        ck_assert_double_eq_tol(64 / view->cells[c].highest, 0.030, 0.008);
    }
    ablate_rig_check_predictions(view, 0.2);
    ck_assert_str_eq(ablate_rig_diagnosis_of(view, "bound"), "compute");
    ck_assert_int_eq(json_member_int(json_member(view->root, "job"), "size", 0), 16);
    result_close(&file);
    ablate_rig_clean_up();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_copy_bound,    test_compute_bound, test_balanced,
                                  test_pinning_hurts, test_loader_bound,  test_without_workers,
                                  test_emulated_step};
    return check_run("ablate", tests, sizeof tests / sizeof tests[0], 150);
}
