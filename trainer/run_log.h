/*
 * The folder of a run: settings.json (every setting), log.jsonl (one JSON object a line: the run's
 * beginning with settings, machine, device, data, memory and plans; logged steps; epochs; bad
 * images; the end) and metrics.csv (one row an epoch). Lines are flushed as they are written, so
 * that a run that is killed keeps its log. Used by one thread.
 */
#ifndef PINLINE_TRAINER_RUN_LOG_H
#define PINLINE_TRAINER_RUN_LOG_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"
#include "trainer/evaluate.h"
#include "trainer/job.h"
#include "trainer/train_loop.h"

/* All zero is closed. */
struct run_log {
    char *folder;
    FILE *log, *metrics;
};

/* STATUS_USAGE when `settings.out` holds an earlier run and neither settings.overwrite nor
 * settings.resume is set. Makes nothing; for an early refusal. */
enum status run_log_check(const struct settings *settings) MUST_USE;

/*
 * Makes the folder, removes an earlier run's files (and no others) under settings.overwrite, opens
 * the log and the metrics. When the run is resumed it goes on in them; rows of epochs from
 * `first_epoch` on are taken out of the metrics, since they will be trained again.
 * STATUS_USAGE as run_log_check; STATUS_IO; STATUS_NO_MEMORY.
 */
enum status run_log_open(struct run_log *log, const struct settings *settings,
                         uint32_t first_epoch) MUST_USE;
void run_log_close(struct run_log *log);

/* Begins and ends a line of the log; members are written in between. end: STATUS_IO. */
void run_log_begin(struct run_log *log, const char *event, struct json_writer *writer);
enum status run_log_end(struct run_log *log, struct json_writer *writer) MUST_USE;

/* The lines of a run. All STATUS_IO. */
enum status run_log_start(struct run_log *log, const struct job *job, const char *resumed_from,
                          uint32_t epoch, uint32_t batch) MUST_USE;
enum status run_log_step(struct run_log *log, const struct train_step *step) MUST_USE;
/* `evaluation` may be NULL. Also writes the row of metrics.csv. */
enum status run_log_epoch(struct run_log *log, const struct job *job,
                          const struct train_epoch *epoch,
                          const struct evaluation *evaluation) MUST_USE;
enum status run_log_bad_images(struct run_log *log, const struct job *job) MUST_USE;

#endif
