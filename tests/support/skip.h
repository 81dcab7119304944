/*
 * A check that cannot run here says so and returns: the runner counts the printed line as skipped.
 */
#ifndef PINLINE_TESTS_SUPPORT_SKIP_H
#define PINLINE_TESTS_SUPPORT_SKIP_H

#include <stdio.h>

/* For the body of a test: prints "SKIP: reason" and leaves the test. */
#define SKIP_TEST(reason)                                                                          \
    do {                                                                                           \
        printf("SKIP: %s\n", (reason));                                                            \
        fflush(stdout);                                                                            \
        return;                                                                                    \
    } while (0)

#endif
