/* Buffers that are alive at the same time never share memory; others do where they can. */
#include <check.h>
#include <stdbool.h>

#include "base/rng.h"
#include "models/memory_plan.h"
#include "tests/support/check_run.h"

static size_t overlapping_pairs(const struct memory_plan *plan)
{
    size_t pairs = 0;
    for (int i = 0; i < plan->count; i++) {
        for (int k = 0; k < i; k++) {
            const struct memory_span *a = &plan->spans[i];
            const struct memory_span *b = &plan->spans[k];
            const bool in_time = a->first <= b->last && b->first <= a->last;
            const bool in_space =
                a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes;
            pairs += in_time && in_space;
        }
    }
    return pairs;
}

/* A chain in which each buffer is read by the next operation alone needs room for two. */
START_TEST(test_chain_needs_two)
{
    struct memory_plan plan;
    ck_assert_int_eq(memory_plan_init(&plan, 10), STATUS_OK);
    int before = -1;
    for (int op = 0; op < 10; op++) {
        if (before >= 0) {
            memory_plan_use(&plan, before, op);
        }
        before = memory_plan_add(&plan, 1000, op);
    }
    ck_assert_int_eq(memory_plan_solve(&plan), STATUS_OK);
    ck_assert_uint_eq(overlapping_pairs(&plan), 0);
    ck_assert_uint_eq(plan.bytes, 2 * 1024);
    memory_plan_fini(&plan);
}
END_TEST

START_TEST(test_all_alive_takes_the_sum)
{
    struct memory_plan plan;
    ck_assert_int_eq(memory_plan_init(&plan, 3), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        memory_plan_add(&plan, (size_t)(100 * (i + 1)), i);
    }
    for (int i = 0; i < 3; i++) {
        memory_plan_use(&plan, i, 9);
    }
    ck_assert_int_eq(memory_plan_solve(&plan), STATUS_OK);
    ck_assert_uint_eq(overlapping_pairs(&plan), 0);
    ck_assert_uint_eq(plan.bytes, 256 + 256 + 512);
    memory_plan_fini(&plan);
}
END_TEST

START_TEST(test_empty_plan)
{
    struct memory_plan plan;
    ck_assert_int_eq(memory_plan_init(&plan, 1), STATUS_OK);
    ck_assert_int_eq(memory_plan_solve(&plan), STATUS_OK);
    ck_assert_uint_eq(plan.bytes, 0);
    memory_plan_fini(&plan);
    memory_plan_fini(&plan);
}
END_TEST

/* Random lifetimes and sizes: no overlap, aligned places, within the arena, never more than the sum
 * and never less than what is alive at one time. */
START_TEST(test_random_plans)
{
    struct rng rng;
    rng_init(&rng, 1, RNG_TEST, 0, (uint64_t)_i);
    struct memory_plan plan;
    ck_assert_int_eq(memory_plan_init(&plan, 60), STATUS_OK);
    size_t sum = 0;
    for (int i = 0; i < 60; i++) {
        const int span = memory_plan_add(&plan, rng_below(&rng, 5000), i);
        memory_plan_use(&plan, span, i + (int)rng_below(&rng, 20));
        sum += plan.spans[span].bytes;
    }
    ck_assert_int_eq(memory_plan_solve(&plan), STATUS_OK);
    ck_assert_uint_eq(overlapping_pairs(&plan), 0);
    size_t most = 0;
    for (int op = 0; op < 80; op++) {
        size_t alive = 0;
        for (int i = 0; i < plan.count; i++) {
            const struct memory_span *span = &plan.spans[i];
            ck_assert_uint_eq(span->offset % MEMORY_PLAN_ALIGNMENT, 0);
            ck_assert(span->offset + span->bytes <= plan.bytes);
            alive += span->first <= op && op <= span->last ? span->bytes : 0;
        }
        most = alive > most ? alive : most;
    }
    ck_assert_uint_ge(plan.bytes, most);
    ck_assert_uint_lt(plan.bytes, sum);
    memory_plan_fini(&plan);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, test_chain_needs_two);
    tcase_add_test(tests, test_all_alive_takes_the_sum);
    tcase_add_test(tests, test_empty_plan);
    tcase_add_loop_test(tests, test_random_plans, 0, 20);
    return check_run_case("memory_plan", tests);
}
