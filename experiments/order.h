/*
 * The order in which the runs of an experiment follow each other: rows of a Williams square (E. J.
 * Williams, "Experimental designs balanced for the estimation of residual effects of treatments",
 * 1949), in which every run stands once at every place and follows every other equally often, so
 * that a drift or an after-effect of the run before is shared by all.
 */
#ifndef PINLINE_EXPERIMENTS_ORDER_H
#define PINLINE_EXPERIMENTS_ORDER_H

#include <stdint.h>

#include "base/status.h"

#define ORDER_MAX_RUNS 64

/*
 * Fills order[round * runs + place] with run numbers 0 .. runs - 1. The square has `runs` rows (twice
 * as many when `runs` is odd); labels and the order of the rows are shuffled by `seed`; more rounds
 * than rows begin again with the first. `runs` 1 to ORDER_MAX_RUNS, `rounds` >= 1.
 */
void order_fill(int runs, int rounds, uint64_t seed, int *order);

/* How far an order is from balance: the largest less the smallest number of times that one run
 * directly follows another, over all pairs of different runs. 0 is perfect. */
int order_imbalance(const int *order, int runs, int rounds);

#endif
