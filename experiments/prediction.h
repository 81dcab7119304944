/*
 * What each cell should reach, from ceilings that were measured before: by formula, and by a
 * simulation batch by batch of loader, host thread, copy engine and compute stream. Pure functions;
 * times are seconds a batch.
 */
#ifndef PINLINE_EXPERIMENTS_PREDICTION_H
#define PINLINE_EXPERIMENTS_PREDICTION_H

#include <stdbool.h>
#include <stdint.h>

/* What was measured. All times >= 0. */
struct predict_ceilings {
    double loader_s;        /* D: the loader, per batch, while each batch is copied as it comes */
    double loader_quiet_s;  /* the loader alone, without copies */
    double loader_spread;   /* standard deviation of a batch's decoding time over its mean */
    double first_batch_s;   /* from the beginning of an epoch to its first batch */
    double step_s;          /* S: a step whose batch is on the device already */
    double issue_s;         /* I: host time to submit a step */
    double wake_s;          /* w: from the end of device work to the host going on, and from the
                                host's submission to the device's first operation */
    double copy_pageable_s; /* Cp: one batch, while decoders run */
    double copy_locked_s;   /* Cl */
    double call_pageable_s; /* inside the call of an asynchronous pageable copy, stream idle */
    double call_locked_s;   /* inside the call of a page-locked copy */
    bool pageable_drains;   /* behind a busy stream, that pageable call waits for the stream */
    bool no_workers;        /* the host thread decodes too, between a step's issuing and a copy */
    int slots;              /* of the ring */
    int64_t batches;        /* an epoch */
};

struct predict_cell {
    bool pin, non_blocking, dedicated;
};

/* Which of its terms a cell waits for. */
enum predict_bound {
    PREDICT_LOADER = 0, /* decoding and reading */
    PREDICT_COPY,       /* the bus */
    PREDICT_COMPUTE,    /* the step */
    PREDICT_HOST,       /* issuing */
    PREDICT_SERIAL      /* copy and step one after the other */
};
const char *predict_bound_text(enum predict_bound bound); /* "loader", "copy", ... */

/*
 * Seconds a batch in the steady state. With D, S, I, w, C as above:
 *   compute stream  blocking, and non_blocking from pageable memory where the driver drains the
 *                   stream: max(D, C + w + max(S, I)); otherwise max(D, I, C + S)
 *   dedicated       pageable max(D, S, C + I); page-locked blocking max(D, S, C + w + I);
 *                   page-locked non_blocking max(D, S, C, I)
 * Without workers, decoding adds to what the host's thread does and overlaps only what the device does
 * by itself. With c the time inside the call of the copy:
 *   compute stream  where the host waits, C + w + max(S, D + I); otherwise max(C + S, D + c + I)
 *   dedicated       pageable max(S, D + C + I); page-locked blocking max(S, D + C + w + I);
 *                   page-locked non_blocking max(S, C, D + c + I, (D + c + C + S) / a)
 * where a steps may be under way (train_loop_ahead): a batch is decoded once the a-th before it is done.
 */
double predict_formula(const struct predict_ceilings *ceilings, const struct predict_cell *cell,
                       enum predict_bound *bound);

/* The trivial prediction, max(D, S) with the loader alone: what a comparison would say that knows no copies. */
double predict_trivial(const struct predict_ceilings *ceilings);

/* Seconds a batch over whole epochs, simulated from an empty ring at each epoch's start to the last
 * step, decoding times log-normal with the measured spread; a pure function of its arguments.
 * `epochs` >= 1. */
double predict_simulate(const struct predict_ceilings *ceilings, const struct predict_cell *cell,
                        int epochs, uint64_t seed);

#endif
