/*
 * The learning rate and the other scalars of a step, each a pure function of the step's number, so
 * that a resumed run computes what an uninterrupted one would have. No state; thread-safe.
 *
 * With s the step (from 0), E the steps of an epoch, T = epochs * E and W the steps of the warm-up,
 * round(warmup_epochs * E), at most T:
 *
 *   during the warm-up, s < W      rate * (s + 1) / W
 *   constant                       rate
 *   step                           rate * step_factor ^ floor(floor(s / E) / step_epochs)
 *   cosine                         final + (rate - final) * (1 + cos(pi * (s - W) / (T - W))) / 2
 *   one-cycle                      rate * (T - s) / (T - W)
 *
 * One-cycle has a warm-up of 0.3 * epochs where none is set. From s = T on (a run that was made
 * longer) cosine stays at final and one-cycle at 0.
 */
#ifndef PINLINE_TRAINER_SCHEDULE_H
#define PINLINE_TRAINER_SCHEDULE_H

#include <stdint.h>

#include "device/device.h"
#include "trainer/settings.h"

/* What the formulas need, worked out once. Plain data. */
struct schedule_plan {
    struct optimiser_settings optimiser;
    uint64_t epoch_steps;  /* E, >= 1 */
    uint64_t total_steps;  /* T, >= 1 */
    uint64_t warmup_steps; /* W, 0 .. T */
};

/* `epoch_steps` is the number of batches of an epoch, >= 1. */
void schedule_init(struct schedule_plan *plan, const struct optimiser_settings *optimiser,
                   int epochs, uint64_t epoch_steps);

/* The learning rate of a step. */
double schedule_rate(const struct schedule_plan *plan, uint64_t step);

/* All scalars of a step, computed in double and rounded once. AdamW's bias corrections take
 * t = step + 1; batch norm's averaging factor is 0.1, as in PyTorch. */
void schedule_fill(const struct schedule_plan *plan, uint64_t step, struct step_scalars *scalars);

#endif
