/* What a run came to, as JSON, and its memory. */
#include <stdlib.h>
#include <string.h>

#include "trainer/job.h"
#include "trainer/train_run.h"

void train_run_result_close(struct train_run_result *result)
{
    free(result->epochs);
    memset(result, 0, sizeof *result);
}

void train_run_write(const struct train_run_result *result, const struct settings *settings,
                     struct json_writer *writer)
{
    json_begin_object(writer);
    json_key_string(writer, "out", settings->out);
    json_key_bool(writer, "finished", result->finished);
    json_key(writer, "best_accuracy");
    if (result->position.best_accuracy >= 0) {
        json_double(writer, result->position.best_accuracy);
    } else {
        json_null(writer);
    }
    json_key_double(writer, "train_seconds", result->position.seconds);
    json_key(writer, "weights_hash");
    json_hex64(writer, result->weights_hash);
    json_key(writer, "settings");
    job_write_settings(settings, writer);
    json_key(writer, "epochs");
    json_begin_array(writer);
    for (size_t i = 0; i < result->epoch_count; i++) {
        const struct train_run_epoch *epoch = &result->epochs[i];
        json_begin_object(writer);
        train_epoch_write(&epoch->train, writer);
        json_key(writer, "val");
        if (epoch->evaluated) {
            json_begin_object(writer);
            json_key_double(writer, "accuracy", epoch->accuracy1);
            json_key_double(writer, "accuracy_top5", epoch->accuracy5);
            json_key_double(writer, "loss", epoch->loss);
            json_end_object(writer);
        } else {
            json_null(writer);
        }
        json_end_object(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}
