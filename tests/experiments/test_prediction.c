/* The formulas against the measured example of the guide (an H200: 38.5 MB a batch, a step of 5.2
 * ms), hand-worked pipelines, and the simulation against the formulas where both must agree. */
#include "experiments/prediction.h"

#include <math.h>

#include "tests/support/check_run.h"

static const struct predict_cell cell_default = {false, false, false};
static const struct predict_cell cell_pin = {true, false, false};
static const struct predict_cell cell_non_blocking = {false, true, false};
static const struct predict_cell cell_both = {true, true, false};
static const struct predict_cell dedicated_default = {false, false, true};
static const struct predict_cell dedicated_pin = {true, false, true};
static const struct predict_cell dedicated_both = {true, true, true};

/* Copy-bound: 9 ms pageable, 0.7 ms page-locked, a step of 5.2 ms. */
static struct predict_ceilings copy_bound(void)
{
    return (struct predict_ceilings){.loader_s = 0.001,
                                     .loader_quiet_s = 0.001,
                                     .step_s = 0.0052,
                                     .issue_s = 0.0001,
                                     .copy_pageable_s = 0.009,
                                     .copy_locked_s = 0.0007,
                                     .pageable_drains = true,
                                     .slots = 8,
                                     .batches = 400};
}

static void check_formula(const struct predict_ceilings *in, const struct predict_cell *cell,
                          double seconds, enum predict_bound bound)
{
    enum predict_bound found;
    ck_assert_double_eq_tol(predict_formula(in, cell, &found), seconds, 1e-12);
    ck_assert_int_eq(found, bound);
}

START_TEST(test_formulas)
{
    struct predict_ceilings in = copy_bound();
    check_formula(&in, &cell_default, 0.0142, PREDICT_SERIAL);
    check_formula(&in, &cell_pin, 0.0059, PREDICT_SERIAL);
    check_formula(&in, &cell_non_blocking, 0.0142, PREDICT_SERIAL);
    check_formula(&in, &cell_both, 0.0059, PREDICT_SERIAL);
    check_formula(&in, &dedicated_default, 0.0091, PREDICT_COPY);
    check_formula(&in, &dedicated_pin, 0.0052, PREDICT_COMPUTE);
    check_formula(&in, &dedicated_both, 0.0052, PREDICT_COMPUTE);
    in.pageable_drains = false;
    check_formula(&in, &cell_non_blocking, 0.0142, PREDICT_SERIAL);
    in.wake_s = 0.0003;
    check_formula(&in, &cell_default, 0.0145, PREDICT_SERIAL);
    check_formula(&in, &cell_non_blocking, 0.0142, PREDICT_SERIAL);
    in.loader_s = 0.02;
    check_formula(&in, &cell_default, 0.02, PREDICT_LOADER);
    check_formula(&in, &dedicated_both, 0.02, PREDICT_LOADER);
    in = copy_bound();
    in.issue_s = 0.03;
    check_formula(&in, &cell_both, 0.03, PREDICT_HOST);
    ck_assert_double_eq_tol(predict_trivial(&in), 0.0052, 1e-12);
    /* It knows no copies, nor what they cost the loader. */
    in.loader_s = 0.01;
    in.loader_quiet_s = 0.006;
    ck_assert_double_eq_tol(predict_trivial(&in), 0.006, 1e-12);
}
END_TEST

/* One slot, no spread, everything by hand. Decoding 2, copy 1, step 3 ms: with a single slot the
 * loader waits for the copy, and decoding of a batch overlaps only with the step before it. */
START_TEST(test_by_hand)
{
    struct predict_ceilings in = {.loader_s = 2,
                                  .step_s = 3,
                                  .copy_pageable_s = 1,
                                  .copy_locked_s = 1,
                                  .pageable_drains = true,
                                  .slots = 1,
                                  .batches = 3};
    /* Batch 1: decoded at 2, copied at 3, done at 6. Batch 2: decoded at 5, copied from 6 to 7, done
     * at 10. Batch 3: decoded at 9, copied from 10 to 11, done at 14. */
    ck_assert_double_eq_tol(predict_simulate(&in, &cell_default, 1, 1), 14.0 / 3, 1e-12);
    /* Dedicated: batch 2 is decoded at 5 and copied at 6, when the step is done too: 9. Batch 3 is
     * decoded at 8, copied at 9: 12. */
    ck_assert_double_eq_tol(predict_simulate(&in, &dedicated_both, 1, 1), 12.0 / 3, 1e-12);
}
END_TEST

static const struct predict_cell dedicated_non_blocking = {false, true, true};

/* Decoding 2, issuing 0.1 ms; 9 ms to copy from pageable memory, 0.7 page-locked, whose call takes 0.05;
 * a step of 5.2. */
START_TEST(test_formulas_without_workers)
{
    struct predict_ceilings in = copy_bound();
    in.no_workers = true;
    in.loader_s = 0.002;
    in.wake_s = 0.0003;
    in.call_pageable_s = 0.009;
    in.call_locked_s = 0.00005;
    /* Decoding and issuing fit beside the step. */
    check_formula(&in, &cell_default, 0.0145, PREDICT_SERIAL);
    check_formula(&in, &cell_pin, 0.0062, PREDICT_SERIAL);
    check_formula(&in, &cell_both, 0.0059, PREDICT_SERIAL);
    /* The caller stages a pageable copy, so that it decodes nothing meanwhile. */
    check_formula(&in, &dedicated_default, 0.0111, PREDICT_COPY);
    check_formula(&in, &dedicated_non_blocking, 0.0111, PREDICT_COPY);
    check_formula(&in, &dedicated_pin, 0.0052, PREDICT_COMPUTE);
    check_formula(&in, &dedicated_both, 0.0052, PREDICT_COMPUTE);
    /* Decoding that takes 12 ms outlasts the step, and adds to every copy that is waited for. */
    in.loader_s = 0.012;
    check_formula(&in, &cell_default, 0.0214, PREDICT_LOADER);
    check_formula(&in, &cell_pin, 0.0131, PREDICT_LOADER);
    check_formula(&in, &cell_both, 0.01215, PREDICT_LOADER);
    check_formula(&in, &dedicated_default, 0.0211, PREDICT_LOADER);
    check_formula(&in, &dedicated_pin, 0.0131, PREDICT_LOADER);
    check_formula(&in, &dedicated_both, 0.01215, PREDICT_LOADER);
    in.pageable_drains = false;
    check_formula(&in, &cell_non_blocking, 0.0211, PREDICT_LOADER);
    /* Two slots, two steps under way: each waits for the end of the one before the last. */
    in.slots = 2;
    in.copy_locked_s = 0.007;
    check_formula(&in, &dedicated_both, 0.01215, PREDICT_LOADER);
    in.step_s = 0.009;
    check_formula(&in, &dedicated_both, 0.014025, PREDICT_LOADER);
    in.issue_s = 0.03;
    check_formula(&in, &cell_both, 0.04205, PREDICT_HOST);
    /* What knows no copies is as before. */
    in.loader_quiet_s = 0.012;
    ck_assert_double_eq_tol(predict_trivial(&in), 0.012, 1e-12);
}
END_TEST

/* The first job by hand without workers. Batch 1: decoded at 2, copied at 3, its step done at 6. Batch 2:
 * decoded from 3 to 5, copied from 6 to 7, done at 10. Batch 3: decoded from 7 to 9, copied from 10 to 11,
 * done at 14. Decoding of 5 does not fit: 5, 6, 9; from 6 to 11, 12, 15; from 12 to 17, 18, 21. */
START_TEST(test_by_hand_without_workers)
{
    struct predict_ceilings in = {.loader_s = 2,
                                  .step_s = 3,
                                  .copy_pageable_s = 1,
                                  .copy_locked_s = 1,
                                  .pageable_drains = true,
                                  .no_workers = true,
                                  .slots = 2,
                                  .batches = 3};
    ck_assert_double_eq_tol(predict_simulate(&in, &cell_default, 1, 1), 14.0 / 3, 1e-12);
    in.loader_s = 5;
    ck_assert_double_eq_tol(predict_simulate(&in, &cell_default, 1, 1), 21.0 / 3, 1e-12);
    /* Workers decode the next batches meanwhile: 5, 6, 9; 10, 11, 14; 15, 16, 19. */
    in.no_workers = false;
    ck_assert_double_eq_tol(predict_simulate(&in, &cell_default, 1, 1), 19.0 / 3, 1e-12);
}
END_TEST

START_TEST(test_simulation_agrees_with_formulas)
{
    static const struct predict_cell cells[] = {
        {false, false, false}, {true, false, false}, {false, true, false}, {true, true, false},
        {false, false, true},  {true, false, true},  {false, true, true},  {true, true, true}};
    /* Loader-bound, copy-bound, compute-bound and host-bound jobs without spread. */
    struct predict_ceilings jobs[4] = {copy_bound(), copy_bound(), copy_bound(), copy_bound()};
    jobs[0].loader_s = 0.03;
    jobs[2].step_s = 0.05;
    jobs[3].issue_s = 0.02;
    for (int run = 0; run < 8; run++) {
        const int job = run % 4;
        jobs[job].batches = 5000;
        jobs[job].no_workers = run >= 4;
        for (int c = 0; c < 8; c++) {
            enum predict_bound bound;
            double formula = predict_formula(&jobs[job], &cells[c], &bound);
            double simulated = predict_simulate(&jobs[job], &cells[c], 1, 7);
            ck_assert_msg(fabs(simulated / formula - 1) < 0.01, "run %d cell %d: %g against %g",
                          run, c, simulated, formula);
        }
    }
}
END_TEST

START_TEST(test_spread_costs_where_stages_are_balanced)
{
    struct predict_ceilings in = copy_bound();
    in.loader_s = in.step_s;
    in.slots = 2;
    double even = predict_simulate(&in, &dedicated_both, 3, 5);
    in.loader_spread = 0.5;
    double uneven = predict_simulate(&in, &dedicated_both, 3, 5);
    ck_assert_double_gt(uneven, even * 1.02);
    ck_assert(uneven == predict_simulate(&in, &dedicated_both, 3, 5));
    in.slots = 64;
    ck_assert_double_lt(predict_simulate(&in, &dedicated_both, 3, 5), uneven);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_formulas,
                                  test_formulas_without_workers,
                                  test_by_hand,
                                  test_by_hand_without_workers,
                                  test_simulation_agrees_with_formulas,
                                  test_spread_costs_where_stages_are_balanced};
    return check_run("prediction", tests, sizeof tests / sizeof tests[0], 0);
}
