/* Sums over the timed epochs of one cell. */
#ifndef PINLINE_EXPERIMENTS_ROUND_TOTALS_H
#define PINLINE_EXPERIMENTS_ROUND_TOTALS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "trainer/train_loop.h"

/* All zero but `loss_hash`, which is HASH_START, and `epoch_s`, the caller's, one double an epoch. */
struct round_totals {
    struct train_host_time host;
    struct train_device_time on_device;
    struct loader_counters counters;
    double seconds;
    uint64_t samples, loss_hash, host_cpu_ns, process_cpu_ns;
    double *epoch_s;
    size_t epochs;
};

void round_totals_add(struct round_totals *totals, const struct train_epoch *epoch);

/* Writes rate, epochs, stages, counters and CPU times as result.h has them, as members of an open object;
 * without `timing`, what was not timed is left out. */
void round_totals_write(const struct round_totals *totals, bool timing, struct json_writer *writer);

#endif
