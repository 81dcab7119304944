/* Rates and scalars against values worked by hand. */
#include <math.h>

#include "tests/support/check_run.h"
#include "trainer/schedule.h"

static const struct optimiser_settings plain = {
    .rate = 0.4,
    .momentum = 0.9,
    .weight_decay = 0.01,
    .beta1 = 0.9,
    .beta2 = 0.99,
    .epsilon = 1e-8,
    .schedule = SCHEDULE_CONSTANT,
    .step_epochs = 2,
    .step_factor = 0.5,
};

static void assert_rates(const struct schedule_plan *plan, const double *rates, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ck_assert_double_eq_tol(schedule_rate(plan, i), rates[i], 1e-15);
    }
}

START_TEST(test_constant_with_warmup_rises_in_equal_steps)
{
    struct optimiser_settings o = plain;
    struct schedule_plan plan;
    o.warmup_epochs = 0.5; /* of 8 batches: 4 steps */
    schedule_init(&plan, &o, 3, 8);
    ck_assert_uint_eq(plan.warmup_steps, 4);
    ck_assert_uint_eq(plan.total_steps, 24);
    assert_rates(&plan, (const double[]){0.1, 0.2, 0.3, 0.4, 0.4, 0.4}, 6);
    ck_assert_double_eq_tol(schedule_rate(&plan, 1000), 0.4, 1e-15);
}
END_TEST

START_TEST(test_step_drops_at_epochs)
{
    struct optimiser_settings o = plain;
    struct schedule_plan plan;
    o.schedule = SCHEDULE_STEP;
    schedule_init(&plan, &o, 6, 2); /* drops at epochs 2 and 4: steps 4 and 8 */
    assert_rates(&plan,
                 (const double[]){0.4, 0.4, 0.4, 0.4, 0.2, 0.2, 0.2, 0.2, 0.1, 0.1, 0.1, 0.1}, 12);
}
END_TEST

START_TEST(test_cosine_goes_from_rate_to_final_rate)
{
    struct optimiser_settings o = plain;
    struct schedule_plan plan;
    o.schedule = SCHEDULE_COSINE;
    o.final_rate = 0.2;
    schedule_init(&plan, &o, 2, 2);
    /* cos of 0, 45, 90 and 135 degrees; the middle of 0.2 and 0.4 is 0.3. */
    const double half = sqrt(0.5);
    assert_rates(&plan, (const double[]){0.4, 0.3 + 0.1 * half, 0.3, 0.3 - 0.1 * half, 0.2, 0.2},
                 6);
}
END_TEST

START_TEST(test_one_cycle_rises_over_three_tenths_and_falls_to_nothing)
{
    struct optimiser_settings o = plain;
    struct schedule_plan plan;
    o.schedule = SCHEDULE_ONE_CYCLE;
    schedule_init(&plan, &o, 10, 1); /* 3 steps up, 7 down */
    assert_rates(&plan,
                 (const double[]){0.4 / 3, 0.8 / 3, 0.4, 0.4, 0.4 * 6 / 7, 0.4 * 5 / 7, 0.4 * 4 / 7,
                                  0.4 * 3 / 7, 0.4 * 2 / 7, 0.4 / 7, 0, 0},
                 12);
}
END_TEST

START_TEST(test_one_cycle_takes_a_given_warmup)
{
    struct optimiser_settings o = plain;
    struct schedule_plan plan;
    o.schedule = SCHEDULE_ONE_CYCLE;
    o.warmup_epochs = 2;
    schedule_init(&plan, &o, 4, 1);
    assert_rates(&plan, (const double[]){0.2, 0.4, 0.4, 0.2, 0}, 5);
    o.warmup_epochs = 4; /* all of it */
    schedule_init(&plan, &o, 4, 1);
    assert_rates(&plan, (const double[]){0.1, 0.2, 0.3, 0.4, 0}, 5);
}
END_TEST

START_TEST(test_scalars_hold_both_optimisers)
{
    struct schedule_plan plan;
    struct step_scalars s;
    schedule_init(&plan, &plain, 3, 8);
    schedule_fill(&plan, 1, &s); /* t = 2 */
    ck_assert_float_eq(s.rate, 0.4F);
    ck_assert_float_eq(s.momentum, 0.9F);
    ck_assert_float_eq(s.decay, 0.01F);
    ck_assert_float_eq(s.averaging, 0.1F);
    ck_assert_float_eq(s.beta1, 0.9F);
    ck_assert_float_eq(s.beta2, 0.99F);
    ck_assert_float_eq(s.one_minus_beta1, 0.1F);
    ck_assert_float_eq(s.one_minus_beta2, 0.01F);
    ck_assert_float_eq(s.epsilon, 1e-8F);
    /* 1 - 0.81 = 0.19; 1 - 0.9801 = 0.0199; 1 - 0.4 * 0.01 = 0.996. */
    ck_assert_float_eq_tol(s.step_size, (float)(0.4 / 0.19), 1e-6F);
    ck_assert_float_eq_tol(s.second_scale, (float)(1 / sqrt(0.0199)), 1e-5F);
    ck_assert_float_eq_tol(s.decay_factor, 0.996F, 1e-7F);
    for (int i = 0; i < 4; i++) {
        ck_assert_float_eq(s.reserved[i], 0);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_constant_with_warmup_rises_in_equal_steps,
        test_step_drops_at_epochs,
        test_cosine_goes_from_rate_to_final_rate,
        test_one_cycle_rises_over_three_tenths_and_falls_to_nothing,
        test_one_cycle_takes_a_given_warmup,
        test_scalars_hold_both_optimisers,
    };
    return check_run("schedule", tests, sizeof tests / sizeof tests[0], 0);
}
