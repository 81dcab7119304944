/* Order and shares of samples: permutations, batches, ranks. */
#include <stdlib.h>
#include <string.h>

#include "loader/sampler.h"
#include "tests/support/check_run.h"

static struct sampler make(size_t count, int batch_size, bool shuffle, bool drop_last, int rank,
                           int world)
{
    return (struct sampler){.count = count,
                            .batch_size = batch_size,
                            .shuffle = shuffle,
                            .drop_last = drop_last,
                            .seed = 17,
                            .rank = rank,
                            .world = world};
}

START_TEST(test_batches_by_hand)
{
    uint32_t order[10];
    const uint32_t *samples = NULL;
    struct sampler sampler = make(10, 4, false, false, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    ck_assert_uint_eq(sampler.batches, 3);
    ck_assert_int_eq(sampler.last_batch, 2);
    sampler_draw_order(&sampler, 5, order);
    ck_assert_int_eq(sampler_batch(&sampler, order, 1, &samples), 4);
    ck_assert_uint_eq(samples[0], 4);
    ck_assert_int_eq(sampler_batch(&sampler, order, 2, &samples), 2);
    ck_assert_uint_eq(samples[0], 8);
    ck_assert_uint_eq(samples[1], 9);

    sampler = make(10, 4, false, true, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    ck_assert_uint_eq(sampler.batches, 2);
    ck_assert_int_eq(sampler.last_batch, 4);

    sampler = make(8, 4, false, false, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    ck_assert_uint_eq(sampler.batches, 2);
    ck_assert_int_eq(sampler.last_batch, 4);

    sampler = make(3, 4, false, false, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    ck_assert_uint_eq(sampler.batches, 1);
    ck_assert_int_eq(sampler.last_batch, 3);
}
END_TEST

START_TEST(test_shuffling_is_a_permutation_of_seed_and_epoch)
{
    enum { COUNT = 1000 };
    uint32_t first[COUNT];
    uint32_t again[COUNT];
    uint32_t next[COUNT];
    int times[COUNT];
    struct sampler sampler = make(COUNT, 7, true, false, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    sampler_draw_order(&sampler, 3, first);
    sampler_draw_order(&sampler, 3, again);
    sampler_draw_order(&sampler, 4, next);
    ck_assert_mem_eq(first, again, sizeof first);
    size_t same_place = 0;
    size_t in_place = 0;
    memset(times, 0, sizeof times);
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_uint_lt(first[i], COUNT);
        times[first[i]]++;
        same_place += first[i] == next[i] ? 1 : 0;
        in_place += first[i] == i ? 1 : 0;
    }
    for (size_t i = 0; i < COUNT; i++) {
        ck_assert_int_eq(times[i], 1);
    }
    /* One is expected of each; twelve of a Poisson variable with mean 1 has a chance below 1e-9. */
    ck_assert_uint_lt(same_place, 12);
    ck_assert_uint_lt(in_place, 12);
    sampler.seed = 18;
    sampler_draw_order(&sampler, 3, again);
    ck_assert(memcmp(first, again, sizeof first) != 0);
}
END_TEST

/* What the ranks read together is what one process with the batch of all of them reads. */
START_TEST(test_ranks_share_each_global_batch)
{
    static const size_t counts[] = {1, 5, 8, 24, 100, 101, 119};
    uint32_t order[119];
    for (size_t k = 0; k < sizeof counts / sizeof counts[0]; k++) {
        for (int world = 1; world <= 5; world++) {
            struct sampler whole = make(counts[k], 4 * world, true, false, 0, 1);
            ck_assert_int_eq(sampler_init(&whole), STATUS_OK);
            sampler_draw_order(&whole, 2, order);
            for (uint32_t b = 0; b < whole.batches; b++) {
                const uint32_t *all = NULL;
                int total = sampler_batch(&whole, order, b, &all);
                int read = 0;
                for (int rank = 0; rank < world; rank++) {
                    struct sampler part = make(counts[k], 4, true, false, rank, world);
                    ck_assert_int_eq(sampler_init(&part), STATUS_OK);
                    ck_assert_uint_eq(part.batches, whole.batches);
                    const uint32_t *share = NULL;
                    int n = sampler_batch(&part, order, b, &share);
                    ck_assert_int_ge(n, total / world);
                    ck_assert_int_le(n, (total + world - 1) / world);
                    if (b + 1 == whole.batches) {
                        ck_assert_int_eq(n, part.last_batch);
                    }
                    ck_assert(n == 0 ? share == all : share == all + read);
                    read += n;
                }
                ck_assert_int_eq(read, total);
            }
        }
    }
}
END_TEST

START_TEST(test_what_cannot_be_sampled_is_refused)
{
    struct sampler sampler = make(3, 4, false, true, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "--drop-last"));
    sampler = make(7, 4, false, true, 1, 2);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_USAGE);
    sampler = make(8, 4, false, true, 1, 2);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_OK);
    sampler = make(8, 4, false, false, 2, 2);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_USAGE);
    sampler = make(8, 4, false, false, -1, 2);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_USAGE);
    sampler = make(8, 4, false, false, 0, 0);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_USAGE);
    sampler = make((size_t)1 << 32, 4, false, false, 0, 1);
    ck_assert_int_eq(sampler_init(&sampler), STATUS_LIMIT);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_batches_by_hand, test_shuffling_is_a_permutation_of_seed_and_epoch,
        test_ranks_share_each_global_batch, test_what_cannot_be_sampled_is_refused};
    return check_run("sampler", tests, sizeof tests / sizeof tests[0], 0);
}
