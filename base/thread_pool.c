#include "base/thread_pool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MAX_THREADS 1024

struct worker {
    struct thread_pool *pool;
    pthread_t thread;
    int number;
};

struct thread_pool {
    struct worker *workers; /* threads - 1 of them; worker 0 is the caller of run */
    int threads;
    int started;

    /* `lock` guards the fields up to `stop`; a job's own fields do not change while it runs. */
    pthread_mutex_t lock;
    pthread_cond_t job_given; /* `generation` has grown, or `stop` is set */
    pthread_cond_t job_done;  /* `busy` is 0 */
    uint64_t generation;
    int busy; /* threads that have not finished the present job */
    bool stop;
    thread_pool_part part;
    void *context;
    int parts;

    atomic_int next_part;
};

static void run_parts(struct thread_pool *pool, int worker)
{
    const int parts = pool->parts;
    for (;;) {
        const int part = atomic_fetch_add_explicit(&pool->next_part, 1, memory_order_relaxed);
        if (part >= parts) {
            return;
        }
        pool->part(pool->context, part, worker);
    }
}

static void *worker_main(void *argument)
{
    struct worker *worker = argument;
    struct thread_pool *pool = worker->pool;
    uint64_t seen = 0;
    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->generation == seen) {
            pthread_cond_wait(&pool->job_given, &pool->lock);
        }
        if (pool->stop) {
            break;
        }
        seen = pool->generation;
        pthread_mutex_unlock(&pool->lock);
        run_parts(pool, worker->number);
        pthread_mutex_lock(&pool->lock);
        if (--pool->busy == 0) {
            pthread_cond_signal(&pool->job_done);
        }
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

enum status thread_pool_open(int threads, thread_pool **out)
{
    *out = NULL;
    if (threads < 1 || threads > MAX_THREADS) {
        return FAIL(STATUS_LIMIT, "%d threads: choose 1 to %d", threads, MAX_THREADS);
    }
    struct thread_pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a pool of %d threads", threads);
    }
    pool->threads = threads;
    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->job_given, NULL);
    pthread_cond_init(&pool->job_done, NULL);
    if (threads > 1) {
        pool->workers = calloc((size_t)threads - 1, sizeof *pool->workers);
        if (pool->workers == NULL) {
            thread_pool_close(&pool);
            return FAIL(STATUS_NO_MEMORY, "no memory for a pool of %d threads", threads);
        }
    }
    for (int i = 0; i < threads - 1; i++) {
        struct worker *worker = &pool->workers[i];
        worker->pool = pool;
        worker->number = i + 1;
        const int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error != 0) {
            thread_pool_close(&pool);
            return FAIL(STATUS_LIMIT,
                        "the system refused thread %d of %d: %s; ask for fewer threads or raise "
                        "the limit (ulimit -u)",
                        i + 2, threads, strerror(error));
        }
        pool->started++;
    }
    *out = pool;
    return STATUS_OK;
}

void thread_pool_close(thread_pool **pool)
{
    struct thread_pool *closing = *pool;
    *pool = NULL;
    if (closing == NULL) {
        return;
    }
    pthread_mutex_lock(&closing->lock);
    assert(closing->busy == 0);
    closing->stop = true;
    pthread_cond_broadcast(&closing->job_given);
    pthread_mutex_unlock(&closing->lock);
    for (int i = 0; i < closing->started; i++) {
        pthread_join(closing->workers[i].thread, NULL);
    }
    pthread_cond_destroy(&closing->job_done);
    pthread_cond_destroy(&closing->job_given);
    pthread_mutex_destroy(&closing->lock);
    free(closing->workers);
    free(closing);
}

int thread_pool_threads(const thread_pool *pool)
{
    return pool->threads;
}

void thread_pool_run(thread_pool *pool, int parts, thread_pool_part part, void *context)
{
    assert(parts >= 0);
    if (pool->threads == 1 || parts <= 1) {
        for (int i = 0; i < parts; i++) {
            part(context, i, 0);
        }
        return;
    }
    pthread_mutex_lock(&pool->lock);
    assert(pool->busy == 0);
    pool->part = part;
    pool->context = context;
    pool->parts = parts;
    atomic_store_explicit(&pool->next_part, 0, memory_order_relaxed);
    pool->busy = pool->threads - 1;
    pool->generation++;
    pthread_cond_broadcast(&pool->job_given);
    pthread_mutex_unlock(&pool->lock);

    run_parts(pool, 0);

    pthread_mutex_lock(&pool->lock);
    while (pool->busy != 0) {
        pthread_cond_wait(&pool->job_done, &pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
}
