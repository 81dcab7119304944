#include "experiments/prediction.h"

#include <assert.h>
#include <math.h>

#include "base/rng.h"
#include "trainer/train_loop.h"

#define MAX_SLOTS 256

const char *predict_bound_text(enum predict_bound bound)
{
    static const char *const names[] = {"loader", "copy", "compute", "host", "copy + compute"};
    return names[bound];
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* Whether the host waits, in the copy call or after it, until copy and earlier steps are done. */
static bool waits_on_compute(const struct predict_ceilings *in, const struct predict_cell *cell)
{
    return !cell->non_blocking || (!cell->pin && in->pageable_drains);
}

double predict_trivial(const struct predict_ceilings *in)
{
    return larger(in->loader_quiet_s, in->step_s);
}

/* The terms of a cell, by what is waited for. */
struct terms {
    double of[PREDICT_SERIAL + 1];
};

/* What the host's thread does for a batch one after the other, named by the longest of it. */
static void take_chain(struct terms *terms, double decode, double copy, double issue, double sum)
{
    const enum predict_bound bound = decode >= copy && decode >= issue ? PREDICT_LOADER
                                     : copy >= issue                   ? PREDICT_COPY
                                                                       : PREDICT_HOST;
    terms->of[bound] = larger(terms->of[bound], sum);
}

static void take_terms_without_workers(const struct predict_ceilings *in,
                                       const struct predict_cell *cell, double copy,
                                       struct terms *terms)
{
    const double decode = in->loader_s, issue = in->issue_s;
    const double call = cell->pin ? in->call_locked_s : in->call_pageable_s;
    if (cell->dedicated) {
        terms->of[PREDICT_COMPUTE] = in->step_s;
        if (cell->pin && cell->non_blocking) {
            terms->of[PREDICT_COPY] = copy;
            take_chain(terms, decode, call, issue, decode + call + issue);
            const enum predict_bound whole = decode >= copy ? PREDICT_LOADER : PREDICT_SERIAL;
            const double sum = decode + call + copy + in->step_s;
            terms->of[whole] = larger(terms->of[whole], sum / train_loop_ahead(in->slots));
        } else {
            const double wake = cell->pin ? in->wake_s : 0;
            take_chain(terms, decode, copy, issue, decode + copy + wake + issue);
        }
    } else if (waits_on_compute(in, cell)) {
        if (in->step_s >= decode + issue) {
            terms->of[PREDICT_SERIAL] = copy + in->wake_s + in->step_s;
        } else {
            take_chain(terms, decode, copy, issue, copy + in->wake_s + decode + issue);
        }
    } else {
        terms->of[PREDICT_SERIAL] = copy + in->step_s;
        take_chain(terms, decode, call, issue, decode + call + issue);
    }
}

static void take_terms(const struct predict_ceilings *in, const struct predict_cell *cell,
                       double copy, struct terms *terms)
{
    terms->of[PREDICT_LOADER] = in->loader_s;
    if (!cell->dedicated && waits_on_compute(in, cell)) {
        terms->of[PREDICT_SERIAL] = copy + in->wake_s + larger(in->step_s, in->issue_s);
    } else if (!cell->dedicated) {
        terms->of[PREDICT_SERIAL] = copy + in->step_s;
        terms->of[PREDICT_HOST] = in->issue_s;
    } else {
        terms->of[PREDICT_COMPUTE] = in->step_s;
        if (!cell->pin) {
            terms->of[PREDICT_COPY] = copy + in->issue_s;
        } else if (!cell->non_blocking) {
            terms->of[PREDICT_COPY] = copy + in->wake_s + in->issue_s;
        } else {
            terms->of[PREDICT_COPY] = copy;
            terms->of[PREDICT_HOST] = in->issue_s;
        }
    }
}

double predict_formula(const struct predict_ceilings *in, const struct predict_cell *cell,
                       enum predict_bound *bound)
{
    const double copy = cell->pin ? in->copy_locked_s : in->copy_pageable_s;
    struct terms terms = {{0}};
    if (in->no_workers) {
        take_terms_without_workers(in, cell, copy, &terms);
    } else {
        take_terms(in, cell, copy, &terms);
    }
    int binding = 0;
    for (int i = 1; i <= PREDICT_SERIAL; i++) {
        if (terms.of[i] > terms.of[binding]) {
            binding = i;
        }
    }
    *bound = (enum predict_bound)binding;
    return terms.of[binding];
}

/* One positive time of the given mean whose logarithm is normal. */
static double draw(struct rng *rng, double mean, double spread)
{
    if (spread <= 0 || mean <= 0) {
        return mean;
    }
    double variance = log1p(spread * spread);
    return mean * exp(sqrt(variance) * rng_normal(rng) - variance / 2);
}

/* Clocks of one epoch, in seconds since its beginning. */
struct clocks {
    double loader;              /* the last batch was decoded */
    double host;                /* the training thread is free */
    double copier;              /* the copy engine is free */
    double compute;             /* the compute stream is empty */
    double copied[MAX_SLOTS];   /* the slot's host memory may be filled again */
    double consumed[MAX_SLOTS]; /* the slot's device memory may be overwritten */
    double ended[MAX_SLOTS];    /* steps, by their number modulo how many may be under way */
};

static void simulate_batch(const struct predict_ceilings *in, const struct predict_cell *cell,
                           struct clocks *at, int64_t number, int slots, double decode)
{
    const int slot = (int)(number % slots);
    double *ended = &at->ended[number % train_loop_ahead(slots)];
    double copy = cell->pin ? in->copy_locked_s : in->copy_pageable_s;
    double call = cell->pin ? in->call_locked_s : in->call_pageable_s;
    at->host = larger(at->host, *ended);
    if (in->no_workers) {
        at->loader = at->host;
    }
    at->loader = larger(at->loader, at->copied[slot]) + decode;
    if (at->loader > at->host) {
        at->host = at->loader;
    }
    double begin = larger(at->host, at->consumed[slot]);
    double end;
    if (cell->dedicated) {
        begin = larger(begin, at->copier);
        end = begin + copy;
        at->copier = end;
        /* A pageable copy is staged by the caller, so the call lasts as long as the copy. */
        bool waits = !cell->non_blocking;
        at->host = waits ? end + in->wake_s : cell->pin ? at->host + call : end;
    } else {
        begin = larger(begin, at->compute);
        end = begin + copy;
        at->compute = end;
        at->host = waits_on_compute(in, cell) ? end + in->wake_s : at->host + call;
    }
    at->copied[slot] = end;
    double start = larger(larger(at->compute, end), at->host);
    at->host += in->issue_s;
    /* Kernels run while later ones are still being issued. */
    at->compute = larger(start + in->step_s, at->host);
    *ended = at->compute;
    /* Pixels are read by the first operation of a step. */
    at->consumed[slot] = start;
}

double predict_simulate(const struct predict_ceilings *in, const struct predict_cell *cell,
                        int epochs, uint64_t seed)
{
    int slots = in->slots < 1 ? 1 : in->slots > MAX_SLOTS ? MAX_SLOTS : in->slots;
    assert(epochs >= 1 && in->batches >= 1);
    double total = 0;
    for (int epoch = 0; epoch < epochs; epoch++) {
        struct clocks at = {0};
        struct rng rng;
        rng_init(&rng, seed, RNG_TEST, (uint32_t)epoch, 0);
        for (int64_t k = 0; k < in->batches; k++) {
            double decode = draw(&rng, in->loader_s, in->loader_spread);
            if (k == 0 && in->first_batch_s > decode) {
                decode = in->first_batch_s;
            }
            simulate_batch(in, cell, &at, k, slots, decode);
        }
        total += larger(at.host, at.compute) + in->wake_s;
    }
    return total / ((double)in->batches * epochs);
}
