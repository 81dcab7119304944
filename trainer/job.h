/*
 * A job: data sets, device, compute stream, loaders and network, opened in the right order from one
 * struct settings, bound to each other and prepared, so that epochs can run. Called by the device's
 * thread alone.
 *
 * An experiment opens a job for each of its cells: it lends the job what all cells share (sets and
 * device), so that only slots, streams and the network are made anew.
 */
#ifndef PINLINE_TRAINER_JOB_H
#define PINLINE_TRAINER_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "data/dataset.h"
#include "device/device.h"
#include "loader/loader.h"
#include "models/network.h"
#include "trainer/options.h"
#include "trainer/schedule.h"
#include "trainer/settings.h"

enum job_use {
    JOB_TRAIN = 0,   /* training, and evaluation where there is a validation set */
    JOB_TRAIN_ALONE, /* training without evaluation: the cells of an experiment */
    JOB_EVALUATE     /* evaluation alone, over the validation set */
};

/* What a job borrows instead of opening it; what is NULL it opens and owns. Lent parts must outlive
 * the job. */
struct job_parts {
    dataset *train_set, *val_set;
    device *dev;
};

/* Fields are read-only for others. All zero is a job that is closed. */
struct job {
    struct settings settings; /* as given, with network's classes and batches filled in */
    enum job_use use;
    dataset *train_set, *val_set; /* val_set NULL: no evaluation */
    device *dev;
    device_stream *compute;
    loader *train_loader, *val_loader;
    network *net;
    device_program *emulated_step; /* of settings.step_seconds; NULL: the network's own step */
    double emulated_seconds;       /* its length as calibrated */
    struct loader_layout train_layout, val_layout; /* of loaders that are open */
    struct schedule_plan schedule;
    uint64_t train_fingerprint, val_fingerprint; /* of the data; 0 where there is none */
    bool owns_sets, owns_device;
};

/*
 * Opens everything for `settings` (completed by settings_complete; strings are borrowed) and gives
 * the network its first weights: those of settings.weights, otherwise random ones by settings.seed.
 * `parts` may be NULL. `plans`, an array as device_write_plans writes it, or NULL, must be usable
 * unless settings.replan.
 * *job is all zero after a failure. Statuses: those of dataset_open, device_open, loader_open,
 * network_open and checkpoint_load_weights; STATUS_USAGE where --data is missing, where
 * evaluation is asked for without a validation set, or where --drop-last leaves no batch;
 * STATUS_INTERRUPTED.
 */
enum status job_open(const struct settings *settings, enum job_use use,
                     const struct job_parts *parts, const struct json_value *plans,
                     struct job *job) MUST_USE;

/* Frees what the job owns, in the opposite order. Accepts half-built and all-zero jobs. */
void job_close(struct job *job);

/* The weights of the beginning again, optimiser state zero: what an experiment does before it times
 * a cell. Statuses of network_initialise and checkpoint_load_weights. */
enum status job_reset_weights(struct job *job) MUST_USE;

/* Submits the step of a batch of n images that was ingested: training, inference where
 * settings.forward_only is set, or the emulated step. Statuses of network_train. */
enum status job_submit_step(struct job *job, int n) MUST_USE;

/* Settings of the loader that evaluates: no chance, no shuffling, no smoothing, every image; random
 * resized crops are answered by the centre, everything else by the whole image. */
void job_eval_loader_settings(const struct settings *settings, struct loader_settings *out);

/* Every table of a job's options bound to `settings`; returns how many (at most 12). `bindings` holds
 * 16. */
size_t job_bind_options(struct settings *settings, struct option_binding *bindings);

/* An object of every setting; the same as text, malloc'ed (STATUS_NO_MEMORY, *text NULL). */
void job_write_settings(const struct settings *settings, struct json_writer *writer);
enum status job_settings_text(const struct settings *settings, char **text) MUST_USE;

/* Objects for results: the machine (CPUs, memory, kernel, libraries), the device, the data, staging
 * and memory of an open job. */
void job_write_machine(struct json_writer *writer);
enum status job_write_device(device *dev, struct json_writer *writer) MUST_USE;
void job_write_data(const struct job *job, struct json_writer *writer);
void job_write_memory(const struct job *job, struct json_writer *writer);

/* JSON text in memory, for metadata: writes by `write(context, writer)`; *text is malloc'ed.
 * STATUS_NO_MEMORY. */
enum status job_json_text(void (*write)(void *context, struct json_writer *writer), void *context,
                          char **text) MUST_USE;

#endif
