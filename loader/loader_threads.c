/* The workers' and the staging thread's lives. */
#include "loader/loader_internal.h"

#include <signal.h>
#include <string.h>

#include "base/clock.h"

/* How long close waits for a worker that is inside a read, and how often it looks. */
#define ABANDON_NS UINT64_C(1000000000)
#define LOOK_NS UINT64_C(2000000)

static enum status start_thread(loader *l, struct worker *worker, void *(*run)(void *))
{
    /* Signals are the main thread's: a worker that took one would keep it from being noticed. */
    sigset_t all;
    sigset_t before;
    worker->ended = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&worker->thread, NULL, run, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error != 0) {
        return FAIL(
            STATUS_LIMIT,
            "the system refuses a thread for the %d workers: %s; use a smaller --num-workers "
            "or raise the limit (ulimit -u)",
            l->settings.num_workers, strerror(error));
    }
    worker->started = true;
    return STATUS_OK;
}

enum status loader__start_threads(loader *l)
{
    if (l->stager != NULL && !l->stager->started) {
        TRY(start_thread(l, l->stager, loader__staging_run));
    }
    for (int i = 0; i < l->settings.num_workers; i++) {
        if (!l->workers[i]->started) {
            TRY(start_thread(l, l->workers[i], loader__worker_run));
        }
    }
    return STATUS_OK;
}

static bool has_ended(loader *l, const struct worker *worker)
{
    pthread_mutex_lock(&l->mutex);
    bool ended = worker->ended;
    pthread_mutex_unlock(&l->mutex);
    return ended;
}

/* Joins, or after the time leaves a reading worker behind, which then belongs to its thread. */
static void end_worker(loader *l, struct worker **slot, bool abandon, uint64_t until)
{
    struct worker *worker = *slot;
    if (worker == NULL || !worker->started) {
        return;
    }
    pthread_t thread = worker->thread; /* an abandoned worker may be gone at once */
    while (abandon && !has_ended(l, worker)) {
        if (clock_now_ns() >= until) {
            int reading = ACTIVITY_READING;
            if (atomic_compare_exchange_strong(&worker->activity, &reading, ACTIVITY_ABANDONED)) {
                pthread_detach(thread);
                *slot = NULL;
                return;
            }
        }
        pthread_mutex_lock(&l->mutex);
        if (!worker->ended) {
            loader__wait_locked(l, &l->ended, LOOK_NS);
        }
        pthread_mutex_unlock(&l->mutex);
    }
    pthread_join(thread, NULL);
    worker->started = false;
}

void loader__end_threads(loader *l, bool abandon)
{
    if (!l->mutex_ready) {
        return;
    }
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    atomic_store(&l->stopping, true);
    pthread_cond_broadcast(&l->work);
    pthread_cond_broadcast(&l->filled);
    pthread_mutex_unlock(&l->mutex);
    uint64_t until = clock_now_ns() + ABANDON_NS;
    end_worker(l, &l->stager, false, until);
    for (int i = 0; i < l->worker_count; i++) {
        end_worker(l, &l->workers[i], abandon, until);
    }
    pthread_mutex_lock(&l->mutex);
    l->stop = false;
    atomic_store(&l->stopping, false);
    pthread_mutex_unlock(&l->mutex);
}
