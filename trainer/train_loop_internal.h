/* What the files of the training loop share. */
#ifndef PINLINE_TRAINER_TRAIN_LOOP_INTERNAL_H
#define PINLINE_TRAINER_TRAIN_LOOP_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "trainer/dump.h"
#include "trainer/train_loop.h"
#include "trainer/verify.h"

/* Entries: those under way, and as many before them, whose times the overlap needs. */
#define TRAIN_LOOP_RING 16

/* A step that was issued. */
struct train_loop_entry {
    struct train_step step; /* `loss` once it was read */
    int slot;
    device_event *begin, *end; /* in the compute stream, timed where settings.timing */
    double begin_ms, end_ms;   /* since the epoch's origin, once read */
    uint32_t *samples;         /* `step.n` numbers */
};

struct train_loop {
    struct job *job;
    struct train_hooks hooks;
    bool timing; /* settings.timing */
    int ahead;
    /* Of every entry: its loss, a cache line apart; its logits, with settings.forward_only alone. */
    struct host_buffer losses_memory, logits_memory;
    size_t logits_stride;                /* floats */
    uint64_t turn_ns, free_ns, batch_ns; /* of the step in hand: as train_step's host_begin, ... */
    device_event *origin;
    struct train_loop_entry ring[TRAIN_LOOP_RING];
    uint64_t issued, seen; /* steps of this epoch: issued >= seen, issued - seen <= ahead */
    float *losses;         /* one a batch of an epoch */
    double loss_sum;       /* over samples */
    double compute_ms, copy_ms, hidden_ms;
    uint64_t begin_ns;                  /* of the epoch */
    const struct train_epoch *progress; /* its account, while it runs */
    verifier *verify;
    batch_dump *dump;
    /* Running statistics before the step, where a step can be given up half way; otherwise NULL. */
    float *statistics;
};

/* The time, or always the same one where nothing is timed. */
uint64_t train_loop__now(const train_loop *loop);

/* Places the oldest step under way, whose entry this is, and its copy on the device's clock, and adds
 * them to the epoch's sums. STATUS_DEVICE. */
enum status train_loop__read_times(train_loop *loop, struct train_loop_entry *entry) MUST_USE;

/* Fills what is known of an epoch at its end alone: sums, rates, losses and the loader's counters. It
 * began at these times. */
void train_loop__close_account(train_loop *loop, uint64_t from_ns, uint64_t cpu_from_ns,
                               struct train_epoch *result);

#endif
