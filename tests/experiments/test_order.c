/* Williams squares: every run once a row, once at every place, after every other equally often. */
#include "experiments/order.h"

#include "tests/support/check_run.h"

static void check_square(int runs, int rounds)
{
    int order[2 * ORDER_MAX_RUNS * ORDER_MAX_RUNS];
    order_fill(runs, rounds, 42, order);
    int at_place[ORDER_MAX_RUNS][ORDER_MAX_RUNS] = {{0}};
    for (int round = 0; round < rounds; round++) {
        int seen[ORDER_MAX_RUNS] = {0};
        for (int place = 0; place < runs; place++) {
            int run = order[round * runs + place];
            ck_assert_int_ge(run, 0);
            ck_assert_int_lt(run, runs);
            ck_assert_int_eq(seen[run]++, 0);
            at_place[run][place]++;
        }
    }
    for (int run = 0; run < runs; run++) {
        for (int place = 0; place < runs; place++) {
            ck_assert_int_eq(at_place[run][place], rounds / runs);
        }
    }
    ck_assert_int_eq(order_imbalance(order, runs, rounds), 0);
}

START_TEST(test_squares)
{
    check_square(2, 2);
    check_square(6, 6);
    check_square(8, 8);
    check_square(6, 12);
    check_square(3, 6);
    check_square(5, 10);
    check_square(64, 64);
}
END_TEST

START_TEST(test_seed_shuffles)
{
    int a[36], b[36], c[36], same = 0;
    order_fill(6, 6, 1, a);
    order_fill(6, 6, 1, b);
    order_fill(6, 6, 2, c);
    for (int i = 0; i < 36; i++) {
        ck_assert_int_eq(a[i], b[i]);
        same += a[i] == c[i];
    }
    ck_assert_int_lt(same, 36);
}
END_TEST

START_TEST(test_partial_square)
{
    int order[6 * 5];
    order_fill(6, 5, 9, order);
    /* 25 of the 30 ordered pairs occur, each once: a square that is not complete is as even as it
     * can be. */
    ck_assert_int_eq(order_imbalance(order, 6, 5), 1);
    int one[3];
    order_fill(1, 3, 0, one);
    ck_assert_int_eq(order_imbalance(one, 1, 3), 0);
}
END_TEST

/* Two runs that always stand in the same order, by hand: 0 before 1 in 3 of 3. */
START_TEST(test_imbalance_by_hand)
{
    const int order[] = {0, 1, 0, 1, 0, 1};
    ck_assert_int_eq(order_imbalance(order, 2, 3), 3);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_squares, test_seed_shuffles, test_partial_square,
                                  test_imbalance_by_hand};
    return check_run("order", tests, sizeof tests / sizeof tests[0], 0);
}
