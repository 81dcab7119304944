/*
 * Checkpoints. FOLDER/last.safetensors, best.safetensors and step-N.safetensors hold weights alone,
 * under PyTorch's names in its layout (OIHW), with a metadata entry "pinline" that says how to use
 * them: model, classes, image size, mean and deviation. FOLDER/last.state.safetensors holds what
 * resuming needs besides: optimiser state, position in the run, settings, plans, fingerprints of the
 * data, and the hash of the weights that it belongs to.
 *
 * A pair is replaced without a moment in which none is whole: both files are written aside and
 * synced, the weights that are there get the additional name last.previous.safetensors, then the new
 * weights and at last the new state are renamed into place. Whatever a crash leaves, the state that
 * is there finds its weights by their hash under one of the two names.
 *
 * Called by the device's thread alone.
 */
#ifndef PINLINE_TRAINER_CHECKPOINT_H
#define PINLINE_TRAINER_CHECKPOINT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "models/network.h"
#include "trainer/job.h"

/* How far a run is. Zero is its beginning, but best_accuracy, which begins at -1. */
struct checkpoint_position {
    uint32_t epoch; /* the epoch that is not finished */
    uint32_t batch; /* its first batch that was not trained; when it is the number of batches, only
                       the evaluation is left */
    double best_accuracy; /* top-1 of best.safetensors, 0 .. 1; -1 when there is none */
    uint32_t best_epoch;
    double seconds; /* spent training so far, over all parts of the run */
};

/* --- Writing -------------------------------------------------------------------------------- */

/*
 * Writes the pair. The caller has seen that the losses of all steps are finite; a weight or optimiser
 * state that is not finite is STATUS_DIVERGED, and nothing is replaced.
 * STATUS_IO (no space: what was there is untouched), STATUS_NO_MEMORY, STATUS_DEVICE.
 */
enum status checkpoint_save(struct job *job, const char *folder,
                            const struct checkpoint_position *position) MUST_USE;

/* Writes weights alone to FOLDER/NAME.safetensors, aside and renamed. Statuses as checkpoint_save. */
enum status checkpoint_save_weights(struct job *job, const char *folder, const char *name,
                                    const struct checkpoint_position *position) MUST_USE;

/* STATUS_IO when the file system of `folder` has not the space that the run's checkpoints will take:
 * `extra` additional weight files, and the pairs, old and new. Names bytes wanted and free. */
enum status checkpoint_check_space(const struct job *job, const char *folder,
                                   uint64_t extra) MUST_USE;

/* Removes the files of an earlier run's checkpoints from `folder`, and no others. */
void checkpoint_remove_all(const char *folder);

/* --- Reading weights ------------------------------------------------------------------------ */

/*
 * Loads a weights file into a network: every parameter must be there in its shape, and nothing else;
 * num_batches_tracked may be absent. `model` is the name of the network's model.
 * STATUS_NOT_FOUND, STATUS_INVALID (cut, changed since it was written, not finite), STATUS_MISMATCH
 * (another model or another number of classes, naming the first difference).
 */
enum status checkpoint_load_weights(const char *path, const char *model, network *net) MUST_USE;

/* What a weights file says of itself. `known` is false for files of other programs. */
struct checkpoint_model {
    bool known;
    const char *model, *stem; /* owned by `document` */
    int size, classes;
    float mean[3], deviation[3];
    bool centre; /* evaluation shows the middle, not the whole image squashed */
    bool exif_orientation, exact_decode;  /* as in struct image_settings */
    const struct json_value *class_names; /* array of strings */
    json_document *document;
};
/* Reads it from the header. STATUS_NOT_FOUND, STATUS_INVALID. Close it also after a failure. */
enum status checkpoint_read_model(const char *path, struct checkpoint_model *out) MUST_USE;
void checkpoint_model_close(struct checkpoint_model *model);

/* --- Resuming ------------------------------------------------------------------------------- */

typedef struct checkpoint checkpoint;

/*
 * Opens FOLDER/last.safetensors and its state, and checks that both are whole and belong together.
 * When the state belongs to last.previous.safetensors (the program ended between two renames), that
 * is used and said. STATUS_NOT_FOUND, STATUS_INVALID (cut or changed), STATUS_IO, STATUS_NO_MEMORY.
 */
enum status checkpoint_open(const char *path, checkpoint **out) MUST_USE;
void checkpoint_close(checkpoint **from);

/* The recorded settings (an object as job_write_settings writes it) and plans (an array). */
const struct json_value *checkpoint_settings(const checkpoint *from);
const struct json_value *checkpoint_plans(const checkpoint *from);
void checkpoint_read_position(const checkpoint *from, struct checkpoint_position *position);

/*
 * Whether a run with `settings` may go on from here. STATUS_MISMATCH names the first flag that must
 * not differ (batch size, model, seed, everything that decides which pixels a step sees), with both
 * values. What may differ but changes the result from here on (rate, epochs, schedule) is logged as
 * a warning; staging flags, workers and places may differ without a word.
 */
enum status checkpoint_check_settings(const checkpoint *from,
                                      const struct settings *settings) MUST_USE;
/* The same for the data: STATUS_MISMATCH with the numbers of images, or that files differ. */
enum status checkpoint_check_data(const checkpoint *from, const dataset *train_set) MUST_USE;

/* Puts weights and optimiser state into the open job. Logs when libraries differ from the recorded
 * ones, which may change bits. STATUS_MISMATCH, STATUS_INVALID, STATUS_DEVICE. */
enum status checkpoint_restore(const checkpoint *from, struct job *job) MUST_USE;

#endif
