/*
 * A fixed set of threads that run the parts of one job and come back: the parallel loop of the host
 * device and of whole-set scans. It has no queue; the loader has workers of its own.
 */
#ifndef PINLINE_BASE_THREAD_POOL_H
#define PINLINE_BASE_THREAD_POOL_H

#include "base/status.h"

typedef struct thread_pool thread_pool;

/* Runs one part, 0 <= part < parts. `worker` is 0 .. threads-1, for per-thread scratch memory. */
typedef void (*thread_pool_part)(void *context, int part, int worker);

/*
 * Starts threads - 1 threads; the caller of run is the last one. `threads` 1 to 1024; 1 starts none
 * and runs parts inline. *out is NULL on failure.
 * STATUS_NO_MEMORY; STATUS_LIMIT when the system refuses a thread.
 */
enum status thread_pool_open(int threads, thread_pool **out) MUST_USE;

/* Ends and joins the threads; *pool becomes NULL. Accepts NULL inside. Not while a run is going. */
void thread_pool_close(thread_pool **pool);

int thread_pool_threads(const thread_pool *pool);

/*
 * Calls part(context, 0 .. parts-1, worker) once each, in any order, and returns when all are done.
 * Which thread runs a part is not fixed: results that must be the same bits every time are written
 * per part and reduced by the caller in order of parts. One run at a time; not from inside a part.
 */
void thread_pool_run(thread_pool *pool, int parts, thread_pool_part part, void *context);

#endif
