/* Whether a run may go on from a checkpoint with the settings and the data at hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_internal.h"

/* What decides which pixels and which arithmetic a step sees: another value is another run. */
static const char *const fixed_options[] = {
    "model",
    "batch-size",
    "size",
    "seed",
    "shuffle",
    "drop-last",
    "augment",
    "padding",
    "flip",
    "mean",
    "std",
    "stem",
    "optimizer",
    "nesterov",
    "decay-all",
    "transfer",
    "label-smoothing",
    "decoders",
    "precision",
    "exact-decode",
    "exif-orientation",
};

/* What changes the result from here on, which may be wanted. */
static const char *const steering_options[] = {
    "epochs",      "lr",       "momentum",      "weight-decay",  "beta1",
    "beta2",       "epsilon",  "schedule",      "warmup-epochs", "step-epochs",
    "step-factor", "final-lr", "deterministic",
};

static bool is_one_of(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool values_equal(const struct json_value *a, const struct json_value *b)
{
    if (!a || !b || a->kind != b->kind) {
        return false;
    }
    switch (a->kind) {
    case JSON_BOOL:
        return a->boolean == b->boolean;
    case JSON_NUMBER:
        return a->number == b->number;
    case JSON_STRING:
        return strcmp(a->string, b->string) == 0;
    case JSON_ARRAY:
        if (a->count != b->count) {
            return false;
        }
        for (size_t i = 0; i < a->count; i++) {
            if (!values_equal(&a->items[i], &b->items[i])) {
                return false;
            }
        }
        return true;
    default:
        return true;
    }
}

static void value_text(const struct json_value *value, char *text, size_t bytes)
{
    if (!value) {
        snprintf(text, bytes, "nothing");
        return;
    }
    switch (value->kind) {
    case JSON_BOOL:
        snprintf(text, bytes, "%s", value->boolean ? "on" : "off");
        break;
    case JSON_NUMBER:
        snprintf(text, bytes, "%.10g", value->number);
        break;
    case JSON_STRING:
        snprintf(text, bytes, "%s", value->string);
        break;
    case JSON_ARRAY: {
        size_t used = 0;
        text[0] = '\0';
        for (size_t i = 0; i < value->count && used < bytes; i++) {
            used += (size_t)snprintf(text + used, bytes - used, "%s%.7g", i ? "," : "",
                                     value->items[i].number);
        }
        break;
    }
    default:
        snprintf(text, bytes, "nothing");
    }
}

static enum status compare_settings(const struct json_value *recorded,
                                    const struct json_value *present)
{
    const size_t fixed_count = sizeof fixed_options / sizeof fixed_options[0];
    const size_t steering_count = sizeof steering_options / sizeof steering_options[0];
    for (size_t i = 0; i < present->count; i++) {
        const char *name = present->names[i];
        const struct json_value *now = &present->items[i];
        const struct json_value *then = json_member(recorded, name);
        if (values_equal(then, now)) {
            continue;
        }
        char now_text[128], then_text[128];
        value_text(now, now_text, sizeof now_text);
        value_text(then, then_text, sizeof then_text);
        if (is_one_of(name, fixed_options, fixed_count)) {
            return FAIL(STATUS_MISMATCH,
                        "the run to resume has --%s %s, not %s; leave the flag out to go on, or "
                        "start a new run from its weights with --weights",
                        name, then_text, now_text);
        }
        if (is_one_of(name, steering_options, steering_count)) {
            log_warn("resuming with --%s %s instead of %s: from here on the result is not that of "
                     "an uninterrupted run",
                     name, now_text, then_text);
        }
    }
    return STATUS_OK;
}

enum status checkpoint_check_settings(const checkpoint *from, const struct settings *settings)
{
    char *text;
    json_document *document = NULL;
    TRY(job_settings_text(settings, &text));
    enum status status = json_parse(text, strlen(text), &document);
    if (status == STATUS_OK) {
        status = compare_settings(checkpoint_settings(from), json_root(document));
    }
    json_document_destroy(&document);
    free(text);
    return status;
}

enum status checkpoint_check_data(const checkpoint *from, const dataset *train_set)
{
    const size_t images = dataset_count(train_set);
    const int64_t recorded_images = json_member_int(from->root, "train_images", -1);
    uint64_t recorded = 0;
    if (recorded_images != (int64_t)images) {
        return FAIL(
            STATUS_MISMATCH,
            "%s was trained on %lld images, --data has %zu: a run goes on with its own data "
            "only; start a new one from its weights with --weights",
            from->path, (long long)recorded_images, images);
    }
    if (!checkpoint__read_hex64(json_member_string(from->root, "train_fingerprint", NULL),
                                &recorded) ||
        recorded != dataset_fingerprint(train_set)) {
        return FAIL(
            STATUS_MISMATCH,
            "%s was trained on other images: as many, but names, sizes or classes differ; a "
            "run goes on with its own data only; start a new one from its weights with "
            "--weights",
            from->path);
    }
    return STATUS_OK;
}
