/* The main of a test program: one suite, one case, each test in a process of its own. */
#ifndef PINLINE_TESTS_SUPPORT_CHECK_RUN_H
#define PINLINE_TESTS_SUPPORT_CHECK_RUN_H

#include <check.h>
#include <stddef.h>

/* Runs `count` tests (as START_TEST defines them) under the name of the unit and prints Check's
 * summary. `seconds` is each test's limit, 0 for the usual one. Returns the status for exit. */
int check_run(const char *unit, const TTest *const *tests, size_t count, double seconds);

#endif
