/* Rates of another program from CSV: what is taken, and what is refused naming its line. */
#include "experiments/peer.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/made_result.h"

static enum status read_text(const char *text, struct peer_list *list)
{
    memset(list, 0, sizeof *list);
    return peer_read(made_result_file(text), list);
}

START_TEST(test_reads)
{
    struct peer_list list;
    ck_assert_int_eq(read_text("name,samples_per_s,note\r\ntorch default,100,x\n\n"
                               "\"a, \"\"b\"\"\",2.5e3\ntorch default,200\n",
                               &list),
                     STATUS_OK);
    ck_assert_uint_eq(list.count, 2);
    ck_assert_str_eq(list.peers[0].name, "torch default");
    ck_assert_uint_eq(list.peers[0].count, 2);
    ck_assert_double_eq(list.peers[0].rates[1], 200);
    ck_assert_str_eq(list.peers[1].name, "a, \"b\"");
    ck_assert_double_eq(list.peers[1].rates[0], 2500);
    peer_free(&list);
    made_result_file(NULL);
}
END_TEST

/* A header says where the two columns stand. */
START_TEST(test_header)
{
    struct peer_list list;
    ck_assert_int_eq(read_text("\xEF\xBB\xBFround,\"samples_per_s\",note,name\n"
                               "0,100,\"x, y\",torch\n1,200,,torch\n",
                               &list),
                     STATUS_OK);
    ck_assert_uint_eq(list.count, 1);
    ck_assert_str_eq(list.peers[0].name, "torch");
    ck_assert_uint_eq(list.peers[0].count, 2);
    ck_assert_double_eq(list.peers[0].rates[1], 200);
    peer_free(&list);
    made_result_file(NULL);
}
END_TEST

static const struct {
    const char *text, *names;
} refused[] = {
    {"", "no line"},
    {"name,samples_per_s\n", "no line"},
    {"torch 100\n", "line 1"},
    {"a,1\nb,fast\n", "line 2"},
    {"a,1\nb,0\n", "line 2"},
    {"a,1\nb,-3\n", "line 2"},
    {"a,1\nb,inf\n", "line 2"},
    {"a,1\nb,nan\n", "line 2"},
    {"a,1\n,3\n", "line 2"},
    {"a,1\n\"b,3\n", "line 2"},
    {"a,1\nb,1x\n", "line 2"},
    {"rate,name\n1,a\n", "no column \"samples_per_s\""},
    {"round,place,cell,samples_per_s\n0,0,a,1\n", "no column \"name\""},
    {"samples_per_s,name\n100\n", "line 2"},
    {"name,samples_per_s\na,fast,1\n", "\"fast\" is no rate"},
};

START_TEST(test_refuses)
{
    struct peer_list list;
    ck_assert_int_eq(read_text(refused[_i].text, &list), STATUS_INVALID);
    ck_assert_msg(strstr(status_message(), refused[_i].names) != NULL, "%s", status_message());
    peer_free(&list);
    made_result_file(NULL);
}
END_TEST

START_TEST(test_missing)
{
    struct peer_list list = {0};
    ck_assert_int_eq(peer_read("/nonexistent/peer.csv", &list), STATUS_NOT_FOUND);
    peer_free(&list);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("peer");
    tcase_add_test(tests, test_reads);
    tcase_add_test(tests, test_header);
    tcase_add_loop_test(tests, test_refuses, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tests, test_missing);
    return check_run_case("peer", tests);
}
