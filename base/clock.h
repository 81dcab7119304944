/* Clocks. All values are nanoseconds in uint64_t; no function fails. Thread-safe. */
#ifndef PINLINE_BASE_CLOCK_H
#define PINLINE_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

/* Monotonic time since an arbitrary start. The only clock used for durations. */
uint64_t clock_now_ns(void);

/* CPU time used by the calling thread, and by the whole process. */
uint64_t clock_thread_cpu_ns(void);
uint64_t clock_process_cpu_ns(void);

/* Seconds between two values of the same clock, as a double. */
double clock_seconds(uint64_t from_ns, uint64_t to_ns);

/* Sleeps for at least `ns`; returns early only when a signal arrives. */
void clock_sleep_ns(uint64_t ns);

/* The present wall-clock time as "2025-01-31T12:00:00Z" (UTC), cut to `bytes`; for logs only. */
void clock_wall_text(char *text, size_t bytes);

#endif
