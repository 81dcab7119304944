#include "experiments/order.h"

#include <assert.h>
#include <limits.h>

#include "base/rng.h"

static void shuffle(struct rng *rng, int *values, int count)
{
    for (int i = count - 1; i > 0; i--) {
        int j = (int)rng_below(rng, (uint32_t)i + 1);
        int swap = values[i];
        values[i] = values[j];
        values[j] = swap;
    }
}

/* Entry of the standard square: rows start with 0, 1, n-1, 2, n-2, ... and go up by one; an odd
 * number of runs takes the mirrored rows as well. */
static int square_entry(int runs, int row, int place)
{
    if (row >= runs) {
        return square_entry(runs, row - runs, runs - 1 - place);
    }
    int first = place % 2 == 1 ? (place + 1) / 2 : (runs - place / 2) % runs;
    return (first + row) % runs;
}

void order_fill(int runs, int rounds, uint64_t seed, int *order)
{
    assert(runs >= 1 && runs <= ORDER_MAX_RUNS && rounds >= 1);
    int labels[ORDER_MAX_RUNS], rows[2 * ORDER_MAX_RUNS];
    int row_count = runs % 2 == 0 || runs == 1 ? runs : 2 * runs;
    for (int i = 0; i < runs; i++) {
        labels[i] = i;
    }
    for (int i = 0; i < row_count; i++) {
        rows[i] = i;
    }
    struct rng rng;
    rng_init(&rng, seed, RNG_PLAN, 0, 0);
    shuffle(&rng, labels, runs);
    shuffle(&rng, rows, row_count);
    for (int round = 0; round < rounds; round++) {
        for (int place = 0; place < runs; place++) {
            order[round * runs + place] =
                labels[square_entry(runs, rows[round % row_count], place)];
        }
    }
}

int order_imbalance(const int *order, int runs, int rounds)
{
    int follows[ORDER_MAX_RUNS][ORDER_MAX_RUNS] = {{0}};
    for (int round = 0; round < rounds; round++) {
        for (int place = 1; place < runs; place++) {
            follows[order[round * runs + place - 1]][order[round * runs + place]]++;
        }
    }
    int least = INT_MAX, most = 0;
    for (int a = 0; a < runs; a++) {
        for (int b = 0; b < runs; b++) {
            if (a != b) {
                least = follows[a][b] < least ? follows[a][b] : least;
                most = follows[a][b] > most ? follows[a][b] : most;
            }
        }
    }
    return runs < 2 ? 0 : most - least;
}
