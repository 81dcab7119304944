/* Parts run once each, on threads that do not share a number, any number of times. */
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "tests/support/check_run.h"

enum { MOST_PARTS = 500, MOST_THREADS = 8 };

struct record {
    atomic_int times[MOST_PARTS];
    atomic_int inside[MOST_THREADS]; /* parts that run under this worker's number now */
    atomic_int wrong;
    atomic_int workers_seen;
    int threads;
};

static void note_part(void *context, int part, int worker)
{
    struct record *record = context;
    if (worker < 0 || worker >= record->threads) {
        atomic_fetch_add(&record->wrong, 1);
        return;
    }
    if (atomic_fetch_add(&record->inside[worker], 1) != 0) {
        atomic_fetch_add(&record->wrong, 1);
    }
    atomic_fetch_add(&record->times[part], 1);
    atomic_fetch_or(&record->workers_seen, 1 << worker);
    atomic_fetch_sub(&record->inside[worker], 1);
}

static void run_and_check(thread_pool *pool, struct record *record, int parts)
{
    memset(record->times, 0, sizeof record->times);
    thread_pool_run(pool, parts, note_part, record);
    int differing = 0;
    for (int i = 0; i < MOST_PARTS; i++) {
        differing += atomic_load(&record->times[i]) != (i < parts ? 1 : 0);
    }
    ck_assert_int_eq(differing, 0);
    ck_assert_int_eq(atomic_load(&record->wrong), 0);
}

START_TEST(test_each_part_once)
{
    const int threads[] = {1, 2, 3, MOST_THREADS};
    const int parts[] = {0, 1, 2, 7, MOST_PARTS};
    for (size_t i = 0; i < sizeof threads / sizeof threads[0]; i++) {
        thread_pool *pool = NULL;
        ck_assert_int_eq(thread_pool_open(threads[i], &pool), STATUS_OK);
        ck_assert_int_eq(thread_pool_threads(pool), threads[i]);
        static struct record record;
        memset(&record, 0, sizeof record);
        record.threads = threads[i];
        for (size_t j = 0; j < sizeof parts / sizeof parts[0]; j++) {
            run_and_check(pool, &record, parts[j]);
        }
        thread_pool_close(&pool);
        ck_assert_ptr_null(pool);
    }
}
END_TEST

START_TEST(test_many_runs)
{
    thread_pool *pool = NULL;
    ck_assert_int_eq(thread_pool_open(3, &pool), STATUS_OK);
    static struct record record;
    record.threads = 3;
    for (int i = 0; i < 2000; i++) {
        run_and_check(pool, &record, 1 + i % 9);
    }
    thread_pool_close(&pool);
}
END_TEST

struct meeting {
    atomic_int arrived;
    atomic_int missed;
    atomic_int workers_seen;
};

/* Waits for three others, which must therefore run at the same time. */
static void meet(void *context, int part, int worker)
{
    (void)part;
    struct meeting *meeting = context;
    atomic_fetch_or(&meeting->workers_seen, 1 << worker);
    atomic_fetch_add(&meeting->arrived, 1);
    const uint64_t begin = clock_now_ns();
    while (atomic_load(&meeting->arrived) < 4) {
        if (clock_now_ns() - begin > UINT64_C(20000000000)) {
            atomic_fetch_add(&meeting->missed, 1);
            return;
        }
        clock_sleep_ns(1000000);
    }
}

START_TEST(test_threads_run_at_the_same_time)
{
    thread_pool *pool = NULL;
    ck_assert_int_eq(thread_pool_open(4, &pool), STATUS_OK);
    struct meeting meeting = {0};
    thread_pool_run(pool, 4, meet, &meeting);
    ck_assert_int_eq(atomic_load(&meeting.missed), 0);
    ck_assert_int_eq(atomic_load(&meeting.workers_seen), 15);
    thread_pool_close(&pool);
}
END_TEST

START_TEST(test_one_thread_runs_inline_and_in_order)
{
    thread_pool *pool = NULL;
    ck_assert_int_eq(thread_pool_open(1, &pool), STATUS_OK);
    static struct record record;
    record.threads = 1;
    run_and_check(pool, &record, 50);
    ck_assert_int_eq(atomic_load(&record.workers_seen), 1);
    thread_pool_close(&pool);
}
END_TEST

START_TEST(test_wrong_numbers_and_double_close)
{
    const int wrong[] = {0, -1, 1025};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        thread_pool *pool = (thread_pool *)&pool;
        ck_assert_int_eq(thread_pool_open(wrong[i], &pool), STATUS_LIMIT);
        ck_assert_ptr_null(pool);
        thread_pool_close(&pool);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_each_part_once,
        test_many_runs,
        test_threads_run_at_the_same_time,
        test_one_thread_runs_inline_and_in_order,
        test_wrong_numbers_and_double_close,
    };
    return check_run("thread_pool", tests, sizeof tests / sizeof tests[0], 0);
}
