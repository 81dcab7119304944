/*
 * The steps of an epoch, and the account of where its time went. Called by the device's thread
 * alone.
 *
 * A step is: take the next batch, write its scalars, upload, ingest, give the slot back, train, and
 * copy the loss to a ring in page-locked memory. Nothing waits for a loss: a step's loss is read once
 * its event is complete. At most `ahead` steps (2 to 4, by the number of slots) are under way; before
 * one more, the host waits for the oldest. That wait is the device's share of the account, and it is
 * what bounds how late a loss that is not finite, or a request to stop, is noticed.
 *
 * Step numbers count batches: epoch * batches + index, so that a step's rate is a pure function of
 * its place. A batch without a good image has a number but no step.
 */
#ifndef PINLINE_TRAINER_TRAIN_LOOP_H
#define PINLINE_TRAINER_TRAIN_LOOP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "loader/loader.h"
#include "trainer/job.h"

typedef struct train_loop train_loop;

/* A step whose loss has been read. */
struct train_step {
    uint64_t step;
    uint32_t epoch, batch;
    int n, good;
    float loss; /* mean over the good images, label smoothing included */
    double rate;
    /* The rest is 0 without settings.timing. On the device's clock, seconds since the epoch's begin: the batch's copy; from ingest to end. */
    double copy_begin, copy_end, begin, end;
    /* On the host's clock, seconds since the epoch's begin: the step's turn came; the oldest step was
     * waited for; the batch was there; its copy was issued or waited for; the step was issued. */
    double host_begin, host_free, host_batch, host_copied, host_issued;
};

/* Seconds of the host's thread. Their sum is the epoch's time. All 0 without settings.timing. */
struct train_host_time {
    double wait_batch; /* no batch was ready */
    double copy;       /* issuing the copy, and waiting for it in blocking cells */
    double issue;      /* issuing ingest, step and the copy of the loss; on the host device the work
                           itself */
    double wait_device; /* for the oldest step under way, and at the end for all of them */
    double rest;        /* everything else: scalars, losses, checkpoints within the epoch */
};

/* Seconds of the device, from events in its streams. span = compute + copy - hidden + idle. All 0
 * without settings.timing. */
struct train_device_time {
    double span;    /* from the epoch's begin to the end of its last step */
    double compute; /* from a step's ingest to its end */
    double copy;    /* copies of batches */
    double hidden;  /* the part of copy during which a step was running */
    double idle;    /* neither */
};

/* What an epoch came to. `losses` belongs to the loop and is valid until its next epoch. */
struct train_epoch {
    uint32_t epoch;
    uint32_t first_batch, next_batch; /* batches first .. next - 1 are trained or left out */
    uint32_t left_out;                /* of these, without a good image */
    uint64_t samples;                 /* good images trained */
    double
        seconds; /* from a device synchronisation before the first read to one after the last step */
    double samples_per_s;
    double loss;         /* mean over the samples; NaN when there was no step */
    double rate;         /* of the last step */
    const float *losses; /* one a step, in order */
    size_t steps;
    uint64_t loss_hash; /* FNV-1a over the bytes of `losses` */
    struct train_host_time host;
    struct train_device_time device;
    uint64_t waits_device;           /* how often the oldest step was not complete */
    uint64_t host_cpu_ns;            /* CPU time of this thread; 0 without settings.timing */
    struct loader_counters counters; /* of this epoch */
};

/* What the caller hears while an epoch runs. Either may be NULL. A status other than OK ends the
 * epoch and is returned by it. */
struct train_hooks {
    void *context;
    /* A step's loss was read and is finite. Called in order of steps. */
    enum status (*seen)(void *context, const struct train_step *step);
    /* After each `pause_every` steps (by number), with nothing under way and all losses seen: the
     * place for a checkpoint. */
    enum status (*pause)(void *context, uint32_t epoch, uint32_t next_batch);
    uint64_t pause_every;
};

/* Steps that may be under way at once where the ring has so many slots. */
int train_loop_ahead(int slots);

/* Makes rings and events for an open training job, and what settings.verify_batches and dump_batches
 * ask for. *hooks is copied; NULL: none. STATUS_NO_MEMORY, STATUS_LIMIT, STATUS_DEVICE. */
enum status train_loop_open(struct job *job, const struct train_hooks *hooks,
                            train_loop **out) MUST_USE;
void train_loop_close(train_loop **loop);

/*
 * Trains batches first_batch .. end_batch - 1 of an epoch; end_batch 0 means all. When it returns,
 * nothing is under way, and result->next_batch is where the weights stand, also after
 *   STATUS_INTERRUPTED (a stop was asked for: the batch in hand was dropped),
 *   STATUS_INVALID, STATUS_IO (an image; the message names it), and what a hook returned.
 * STATUS_DIVERGED: a loss is not finite; the message names step, rate and samples; the weights are
 * worthless. STATUS_MISMATCH: --verify-batches. STATUS_DEVICE.
 */
enum status train_loop_epoch(train_loop *loop, uint32_t epoch, uint32_t first_batch,
                             uint32_t end_batch, struct train_epoch *result) MUST_USE;

/* Ends what runs over epochs: writes a dump that is not full. */
enum status train_loop_finish(train_loop *loop) MUST_USE;

/* Of the epoch that is running: seconds since its begin, and the part spent waiting for batches. */
void train_loop_read_progress(const train_loop *loop, double *seconds, double *waiting);

/* Batches that --verify-batches compared, over all epochs. */
uint64_t train_loop_verified(const train_loop *loop);

/* Members of an object for the run log and results: times, rates, counters. Epochs are counted from
 * 1 there and in messages, steps and batches from 0. */
void train_epoch_write(const struct train_epoch *result, struct json_writer *writer);

/* The stages alone, as members of an open object that are named as the fields are with `unit` behind:
 * "_s" in the run log, "" in results. */
void train_host_time_write(const struct train_host_time *time, const char *unit,
                           struct json_writer *writer);
void train_device_time_write(const struct train_device_time *time, const char *unit,
                             struct json_writer *writer);

#endif
