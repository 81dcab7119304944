/* FNV-1a against the vectors that its authors published. */
#include "base/hash.h"
#include "tests/support/check_run.h"

START_TEST(test_vectors)
{
    ck_assert_uint_eq(hash_text(HASH_START, ""), UINT64_C(0xcbf29ce484222325));
    ck_assert_uint_eq(hash_text(HASH_START, "a"), UINT64_C(0xaf63dc4c8601ec8c));
    ck_assert_uint_eq(hash_text(HASH_START, "foobar"), UINT64_C(0x85944171f73967e8));
    ck_assert_uint_eq(hash_bytes(HASH_START, "\0", 1), UINT64_C(0xaf63bd4c8601b7df));
}
END_TEST

START_TEST(test_parts_continue)
{
    ck_assert_uint_eq(hash_bytes(hash_bytes(HASH_START, "foo", 3), "bar", 3),
                      hash_text(HASH_START, "foobar"));
    ck_assert_uint_eq(hash_bytes(HASH_START, NULL, 0), HASH_START);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_vectors, test_parts_continue};
    return check_run("hash", tests, sizeof tests / sizeof tests[0], 0);
}
