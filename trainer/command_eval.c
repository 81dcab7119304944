/* pinline eval */
#include <string.h>

#include "base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"
#include "trainer/evaluate.h"
#include "trainer/job.h"
#include "trainer/job_options.h"

enum { MOST_CONFUSION_COLUMNS = 20 };

static struct settings settings;

static size_t bind(struct option_binding *bindings)
{
    static const struct option_table *const tables[] = {
        &options_data,     &options_model,  &options_loading, &options_images,
        &options_decoding, &options_device, &options_output,
    };
    settings_defaults(&settings);
    for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++) {
        bindings[i] = (struct option_binding){.table = tables[i], .base = &settings};
    }
    return sizeof tables / sizeof tables[0];
}

/* The set must have the classes that the weights were trained on, in the same order. */
static enum status compare_classes(const struct checkpoint_model *model, const dataset *set)
{
    const int classes = dataset_class_count(set);
    if (model->classes != classes) {
        return FAIL(
            STATUS_MISMATCH,
            "the images have %d classes, %s was trained on %d: the folders must be those of "
            "the training set",
            classes, settings.weights, model->classes);
    }
    for (int i = 0; i < classes; i++) {
        const char *wanted = model->class_names->items[i].string;
        const char *found = dataset_class_name(set, i);
        if (strcmp(wanted, found) != 0) {
            return FAIL(STATUS_MISMATCH,
                        "class %d of the images is \"%s\", that of %s is \"%s\": the folders must "
                        "be those of the training set",
                        i, found, settings.weights, wanted);
        }
    }
    return STATUS_OK;
}

static enum status check_classes(const dataset *set)
{
    struct checkpoint_model model;
    enum status status = checkpoint_read_model(settings.weights, &model);
    if (status == STATUS_OK && model.known) {
        status = compare_classes(&model, set);
    }
    checkpoint_model_close(&model);
    return status;
}

struct report {
    const struct job *job;
    const struct evaluation *result;
};

static void write_report(void *context, struct json_writer *writer)
{
    const struct report *report = context;
    json_begin_object(writer);
    json_key_string(writer, "weights", settings.weights);
    json_key_string(writer, "model", settings.network.model);
    evaluation_write(report->result, report->job->val_set, true, writer);
    json_end_object(writer);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0;
}

static void print_confusion(const struct evaluation *result)
{
    if (!result->confusion || result->classes > MOST_CONFUSION_COLUMNS) {
        printf("\nThe confusion matrix of %d classes is in --json.\n", result->classes);
        return;
    }
    printf("\nConfusion: a row for each true class, a column for each predicted one\n      ");
    for (int c = 0; c < result->classes; c++) {
        printf(" %6d", c);
    }
    putchar('\n');
    for (int row = 0; row < result->classes; row++) {
        printf("%5d ", row);
        for (int c = 0; c < result->classes; c++) {
            printf(" %6u", result->confusion[row * result->classes + c]);
        }
        putchar('\n');
    }
}

static void print_report(const struct job *job, const struct evaluation *result)
{
    printf("%llu images: accuracy %.2f %%, top-5 %.2f %%, loss %.4f (%.0f images/s)\n\n",
           (unsigned long long)result->samples, result->accuracy1 * 100, result->accuracy5 * 100,
           result->loss, result->samples_per_s);
    printf("class  images  correct  predicted   recall  precision  name\n");
    for (int c = 0; c < result->classes; c++) {
        printf("%5d %7llu %8llu %10llu %7.2f %% %8.2f %%  %s\n", c,
               (unsigned long long)result->class_samples[c],
               (unsigned long long)result->class_correct[c],
               (unsigned long long)result->class_predicted[c],
               share(result->class_correct[c], result->class_samples[c]),
               share(result->class_correct[c], result->class_predicted[c]),
               dataset_class_name(job->val_set, c));
    }
    print_confusion(result);
}

static enum status evaluate_job(struct job *job)
{
    evaluator *e = NULL;
    struct evaluation result;
    TRY(evaluator_open(job, &e));
    const enum status status = evaluator_run(e, &result);
    if (status == STATUS_OK && settings.json) {
        struct report report = {.job = job, .result = &result};
        command_print_json(write_report, &report);
    } else if (status == STATUS_OK) {
        print_report(job, &result);
    }
    evaluator_close(&e);
    return status;
}

/* The set is opened first, so that a wrong number of classes is named as such. */
static enum status open_set(struct job_parts *parts)
{
    dataset *train = NULL;
    if (!settings.dataset.data) {
        return FAIL(STATUS_USAGE,
                    "--data is missing: name a folder that holds one folder of images "
                    "for each class");
    }
    if (options_was_given("val-fraction")) {
        TRY(dataset_open(&settings.dataset, &train, &parts->val_set));
    } else {
        TRY(command_open_as_divided(&settings.dataset, &train, &parts->val_set));
        if (!parts->val_set) {
            parts->val_set = train;
            train = NULL;
        }
    }
    dataset_close(&train);
    if (!parts->val_set) {
        return FAIL(STATUS_USAGE, "there is nothing to evaluate on: give --val-data, or a "
                                  "--val-fraction above 0");
    }
    return check_classes(parts->val_set);
}

static enum status evaluate_set(const struct job_parts *parts)
{
    struct job job;
    TRY(job_open(&settings, JOB_EVALUATE, parts, NULL, &job));
    const enum status status = evaluate_job(&job);
    job_close(&job);
    return status;
}

static enum status run(char **operands, size_t operand_count)
{
    struct job_parts parts;
    (void)operands;
    (void)operand_count;
    memset(&parts, 0, sizeof parts);
    TRY(command_set_log_level(&settings));
    TRY(command_check_device(&settings));
    TRY(command_take_model(&settings));
    TRY(settings_complete(&settings));
    enum status status = open_set(&parts);
    if (status == STATUS_OK) {
        status = evaluate_set(&parts);
    }
    dataset_close(&parts.train_set);
    dataset_close(&parts.val_set);
    return status;
}

const struct command command_eval = {
    .name = "eval",
    .summary = "accuracy, class table and confusion matrix of trained weights",
    .details =
        "Examples:\n"
        "  pinline eval --weights run/best.safetensors --data images\n"
        "  pinline eval --weights run/best.safetensors --data images/val --json\n"
        "\n"
        "Model, image size, mean, deviation and classes come from the weights file. Of a place with\n"
        "a validation part (val/ or test/ inside a folder, a packed set, CIFAR, MNIST) that part is\n"
        "evaluated; a place without is evaluated whole, or with --val-fraction only in the part that\n"
        "training holds out.",
    .bind = bind,
    .run = run,
};
