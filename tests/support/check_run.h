/* The main of a test program: one suite, one case, each test in a process of its own. */
#ifndef PINLINE_TESTS_SUPPORT_CHECK_RUN_H
#define PINLINE_TESTS_SUPPORT_CHECK_RUN_H

#include <check.h>
#include <stddef.h>

/* Runs `count` tests (as START_TEST defines them) under the name of the unit and prints Check's
 * summary. `seconds` is each test's limit, 0 for the usual one. Returns the status for exit. */
int check_run(const char *unit, const TTest *const *tests, size_t count, double seconds);

/* The same for a suite with cases of its own, and for one with a single case; both are freed. */
int check_run_suite(Suite *suite);
int check_run_case(const char *unit, TCase *tests);

#endif
