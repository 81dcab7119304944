/* Evaluation: rows of logits by hand, and a pass over a set against its own confusion matrix. */
#include <math.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/trainer_set.h"
#include "trainer/evaluate.h"
#include "trainer/job.h"

START_TEST(test_row_of_logits)
{
    int before, predicted;
    /* softmax of (0, ln 2, ln 5) is 1/8, 2/8, 5/8. */
    const float row[] = {0, logf(2), logf(5)};
    ck_assert_double_eq_tol(evaluate_row(row, 3, 0, &before, &predicted), log(8), 1e-6);
    ck_assert_int_eq(before, 2);
    ck_assert_int_eq(predicted, 2);
    ck_assert_double_eq_tol(evaluate_row(row, 3, 2, &before, &predicted), log(8.0 / 5), 1e-6);
    ck_assert_int_eq(before, 0);
    /* Equals stand in the order of the classes. */
    const float equal[] = {1, 1, 1, 1};
    ck_assert_double_eq_tol(evaluate_row(equal, 4, 2, &before, &predicted), log(4), 1e-12);
    ck_assert_int_eq(before, 2);
    ck_assert_int_eq(predicted, 0);
    /* Large values do not overflow. */
    const float large[] = {1000, 990};
    ck_assert_double_eq_tol(evaluate_row(large, 2, 1, &before, &predicted), 10 + log1p(exp(-10)),
                            1e-9);
    const float broken[] = {NAN, 1};
    ck_assert(!isfinite(evaluate_row(broken, 2, 0, &before, &predicted)));
}
END_TEST

START_TEST(test_tables_agree_with_each_other)
{
    struct settings settings;
    struct job job;
    evaluator *e;
    struct evaluation first, second;
    static uint32_t confusion[100];
    trainer_set_begin(20, 50, 8);
    trainer_set_settings(&settings, 8, "run");
    settings.eval_batch = 7; /* 7 batches and one of 1 */
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_msg(job_open(&settings, JOB_EVALUATE, NULL, NULL, &job) == STATUS_OK, "%s",
                  status_message());
    ck_assert_ptr_null(job.train_set);
    ck_assert_int_eq(evaluator_open(&job, &e), STATUS_OK);
    ck_assert_msg(evaluator_run(e, &first) == STATUS_OK, "%s", status_message());
    ck_assert_uint_eq(first.samples, 50);
    ck_assert_int_eq(first.classes, 10);
    uint64_t diagonal = 0;
    for (int row = 0; row < 10; row++) {
        uint64_t across = 0, down = 0;
        for (int c = 0; c < 10; c++) {
            across += first.confusion[row * 10 + c];
            down += first.confusion[c * 10 + row];
        }
        ck_assert_uint_eq(across, 5); /* the set has five of each */
        ck_assert_uint_eq(first.class_samples[row], 5);
        ck_assert_uint_eq(down, first.class_predicted[row]);
        ck_assert_uint_eq(first.confusion[row * 10 + row], first.class_correct[row]);
        diagonal += first.class_correct[row];
    }
    ck_assert_uint_eq(diagonal, first.correct1);
    ck_assert_uint_le(first.correct1, first.correct5);
    ck_assert_double_eq(first.accuracy1, (double)first.correct1 / 50);
    /* Untrained: not far from guessing. */
    ck_assert_double_gt(first.loss, 1);
    ck_assert_double_lt(first.loss, 10);
    memcpy(confusion, first.confusion, sizeof confusion);
    const double loss = first.loss;
    ck_assert_int_eq(evaluator_run(e, &second), STATUS_OK);
    ck_assert_double_eq(second.loss, loss);
    ck_assert_mem_eq(second.confusion, confusion, sizeof confusion);
    evaluator_close(&e);
    job_close(&job);
    /* Another batch size gives the same numbers. */
    settings.eval_batch = 50;
    ck_assert_int_eq(job_open(&settings, JOB_EVALUATE, NULL, NULL, &job), STATUS_OK);
    ck_assert_int_eq(evaluator_open(&job, &e), STATUS_OK);
    ck_assert_int_eq(evaluator_run(e, &second), STATUS_OK);
    ck_assert_double_eq_tol(second.loss, loss, 1e-6);
    evaluator_close(&e);
    job_close(&job);
    trainer_set_end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_row_of_logits, test_tables_agree_with_each_other};
    return check_run("evaluate", tests, sizeof tests / sizeof tests[0], 60);
}
