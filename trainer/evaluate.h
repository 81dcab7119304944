/*
 * Evaluation over a job's validation set: top-1, top-5, loss, a table of the classes and the
 * confusion matrix. Called by the device's thread alone.
 *
 * The loss is the mean cross entropy of the true labels, computed in double from the logits, so it
 * depends neither on the batch size nor on label smoothing. The predicted class is the one with the
 * largest logit, the first of equals; a sample counts for top-5 when fewer than min(5, classes)
 * classes stand before its own. Images that were replaced under --on-bad-image skip do not count.
 */
#ifndef PINLINE_TRAINER_EVALUATE_H
#define PINLINE_TRAINER_EVALUATE_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "trainer/job.h"

typedef struct evaluator evaluator;

/* More classes than this get no confusion matrix. */
#define EVALUATE_CONFUSION_CLASSES 4096

/* Arrays belong to the evaluator and are valid until its next run. */
struct evaluation {
    int classes;
    uint64_t samples, correct1, correct5;
    double accuracy1, accuracy5; /* shares, 0 .. 1 */
    double loss;
    double seconds, samples_per_s;
    uint64_t bad_images;           /* not evaluated */
    const uint64_t *class_samples; /* by true class */
    const uint64_t *class_correct;
    const uint64_t *class_predicted; /* how often each class was said */
    const uint32_t *confusion;       /* [true][predicted]; NULL over the limit */
};

/* For an open job with a validation set. STATUS_NO_MEMORY, STATUS_LIMIT, STATUS_DEVICE. */
enum status evaluator_open(struct job *job, evaluator **out) MUST_USE;
void evaluator_close(evaluator **e);

/* One pass; images that are passed over are counted in a warning. STATUS_INTERRUPTED, STATUS_INVALID
 * (an image, or none that could be read), STATUS_DIVERGED (logits that are not finite),
 * STATUS_DEVICE. */
enum status evaluator_run(evaluator *e, struct evaluation *out) MUST_USE;

/* Members of an object: numbers, and with `tables` the class table and confusion matrix. */
void evaluation_write(const struct evaluation *result, const dataset *set, bool tables,
                      struct json_writer *writer);

/* Cross entropy of `label` and the number of classes that stand before it, from one row of logits. */
double evaluate_row(const float *logits, int classes, int label, int *before, int *predicted);

#endif
