/*
 * --dump-batches: the first batches as the network gets them, in one safetensors file, so that other
 * programs can be given the same. For batch i: "i.pixels" (n x 3 x size x size float32, normalised),
 * "i.labels" and "i.samples" (n int64, label -1 for a replaced image), "i.targets" (n x classes
 * float32, divided by the number of good images). Waits for the device: not for measured runs.
 */
#ifndef PINLINE_TRAINER_DUMP_H
#define PINLINE_TRAINER_DUMP_H

#include <stdbool.h>

#include "base/status.h"
#include "loader/loader.h"
#include "trainer/job.h"

typedef struct batch_dump batch_dump;

/* Takes settings.dump_batches and dump_count of the job. STATUS_NO_MEMORY. */
enum status batch_dump_open(struct job *job, batch_dump **out) MUST_USE;

/* After network_ingest of `batch`, before its release. The file is written with the last one; later
 * calls do nothing. STATUS_NO_MEMORY, STATUS_DEVICE, STATUS_IO. */
enum status batch_dump_add(batch_dump *dump, const struct batch *batch) MUST_USE;

/* Writes what there is, where training ended before the last batch that was asked for. */
enum status batch_dump_finish(batch_dump *dump) MUST_USE;
void batch_dump_close(batch_dump **dump);

#endif
