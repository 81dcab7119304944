/*
 * A look at host memory, swap and the GPU while a cell runs, a few times a second from a thread of its
 * own, without touching any stream.
 */
#ifndef PINLINE_EXPERIMENTS_WATCH_H
#define PINLINE_EXPERIMENTS_WATCH_H

#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "device/device.h"

typedef struct watch watch;

/* Begins to look every `period_s` seconds, > 0. The device is kept by reference. STATUS_NO_MEMORY,
 * STATUS_LIMIT when a thread is refused. */
enum status watch_open(device *dev, double period_s, watch **out) MUST_USE;

/* Ends looking. What was seen stays readable until close. */
void watch_stop(watch *w);
void watch_close(watch **w);

/* The object "watch" of result.h. After stop. */
void watch_write(const watch *w, struct json_writer *writer);

/* A sentence that says what makes the run doubtful (clocks that differ by 3 % between its ends,
 * throttling, another process on the GPU, swapping, CPU quota, steal), "" when nothing does. After
 * stop. Returns text. */
char *watch_describe(const watch *w, char *text, size_t bytes);

#endif
