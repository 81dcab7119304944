/*
 * What a user sees of a run: on a terminal one line that is drawn again and again, otherwise a line
 * every half minute; and a line at the end of each epoch. All of it goes to standard error and
 * falls silent with --quiet. Used by one thread.
 */
#ifndef PINLINE_TRAINER_PROGRESS_H
#define PINLINE_TRAINER_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "trainer/evaluate.h"
#include "trainer/job.h"
#include "trainer/train_loop.h"

/* Plain data. */
struct progress {
    const struct job *job;
    bool real_copies; /* the device's part of the account says something */
    uint32_t epoch, first_batch;
    uint64_t samples;    /* of this epoch so far */
    double loss;         /* running mean of about the last 50 steps */
    double accuracy;     /* of the last evaluation; below 0: none yet */
    double eval_seconds; /* of the last evaluation */
    uint64_t drawn_ns;   /* when the line was drawn last */
};

void progress_init(struct progress *progress, const struct job *job, bool real_copies);
void progress_begin_epoch(struct progress *progress, uint32_t epoch, uint32_t first_batch);
/* Draws at most ten times a second. */
void progress_step(struct progress *progress, const train_loop *loop,
                   const struct train_step *step);
/* The epoch's line; `evaluation` may be NULL. */
void progress_end_epoch(struct progress *progress, const struct train_epoch *epoch,
                        const struct evaluation *evaluation);
/* Removes the line from the terminal. */
void progress_end(struct progress *progress);

/* "1 h 02 min", "3 min 05 s", "4.2 s". Returns text. */
char *progress_duration_text(double seconds, char *text, size_t bytes);

#endif
