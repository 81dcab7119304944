/* Prediction of files against evaluation of the same files as a set. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "data/synth.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"
#include "tests/support/trainer_set.h"
#include "trainer/checkpoint.h"
#include "trainer/evaluate.h"
#include "trainer/job.h"
#include "trainer/predictor.h"

enum { SIZE = 12, VAL = 40 };

START_TEST(test_top_is_ordered_and_stable)
{
    const float probabilities[] = {0.1F, 0.3F, 0.1F, 0.3F, 0.2F};
    int order[5];
    predictor_top(probabilities, 5, 5, order);
    const int wanted[] = {1, 3, 4, 0, 2};
    ck_assert_mem_eq(order, wanted, sizeof wanted);
    predictor_top(probabilities, 5, 2, order);
    ck_assert_int_eq(order[0], 1);
    ck_assert_int_eq(order[1], 3);
}
END_TEST

START_TEST(test_files_are_predicted_as_the_set_is_evaluated)
{
    static struct seen_run seen;
    static uint32_t confusion[SYNTH_CLASSES * SYNTH_CLASSES];
    struct settings settings;
    struct job job;
    evaluator *e;
    struct evaluation evaluation;
    predictor *p;
    struct prediction results[2];
    double loss = 0;
    trainer_set_begin(60, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_OK, "%s", status_message());
    settings.weights = trainer_set_path("run/last.safetensors");
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_int_eq(job_open(&settings, JOB_EVALUATE, NULL, NULL, &job), STATUS_OK);
    ck_assert_int_eq(evaluator_open(&job, &e), STATUS_OK);
    ck_assert_int_eq(evaluator_run(e, &evaluation), STATUS_OK);
    ck_assert_msg(predictor_open(&settings, SYNTH_CLASSES, 2, &p) == STATUS_OK, "%s",
                  status_message());
    data_files_write("broken.png", "no image", 8);
    const char *broken = trainer_set_path("broken.png");
    for (size_t sample = 0; sample < VAL; sample++) {
        struct sample_location location;
        char path[4096];
        dataset_locate(job.val_set, sample, path, sizeof path, &location);
        /* A file that cannot be used stands before each, and harms none. */
        const char *const paths[] = {broken, location.path};
        ck_assert_int_eq(predictor_run(p, paths, 2, results), STATUS_OK);
        ck_assert_int_ne(results[0].failure.status, STATUS_OK);
        ck_assert_ptr_nonnull(strstr(results[0].failure.message, "broken.png"));
        ck_assert_int_eq(results[1].failure.status, STATUS_OK);
        double sum = 0;
        int top;
        for (int c = 0; c < SYNTH_CLASSES; c++) {
            sum += (double)results[1].probabilities[c];
        }
        ck_assert_double_eq_tol(sum, 1, 1e-6);
        predictor_top(results[1].probabilities, SYNTH_CLASSES, 1, &top);
        const int label = dataset_label(job.val_set, sample);
        confusion[label * SYNTH_CLASSES + top]++;
        loss -= log((double)results[1].probabilities[label]) / VAL;
    }
    ck_assert_mem_eq(confusion, evaluation.confusion, sizeof confusion);
    ck_assert_double_eq_tol(loss, evaluation.loss, 1e-5);
    predictor_close(&p);
    evaluator_close(&e);
    job_close(&job);
    trainer_set_end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_top_is_ordered_and_stable,
                                  test_files_are_predicted_as_the_set_is_evaluated};
    return check_run("predictor", tests, sizeof tests / sizeof tests[0], 60);
}
