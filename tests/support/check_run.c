#include "tests/support/check_run.h"

#include <stdlib.h>

int check_run(const char *unit, const TTest *const *tests, size_t count, double seconds)
{
    TCase *all = tcase_create("all");
    if (seconds > 0) {
        tcase_set_timeout(all, seconds);
    }
    for (size_t i = 0; i < count; i++) {
        tcase_add_test(all, tests[i]);
    }
    return check_run_case(unit, all);
}

int check_run_suite(Suite *suite)
{
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    const int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int check_run_case(const char *unit, TCase *tests)
{
    Suite *suite = suite_create(unit);
    suite_add_tcase(suite, tests);
    return check_run_suite(suite);
}
