/* Results of ablations made by hand, as text, for tests of what reads them. */
#ifndef PINLINE_TESTS_SUPPORT_MADE_RESULT_H
#define PINLINE_TESTS_SUPPORT_MADE_RESULT_H

#include <stddef.h>

#define MADE_CELLS 8
#define MADE_ROUNDS 8

struct made_result {
    size_t cells;
    int rounds;
    const char *names[MADE_CELLS]; /* "default again" is marked as a repeat */
    double rates[MADE_CELLS][MADE_ROUNDS];
    const char *untimed;  /* the cell whose stages were not timed; NULL none */
    const char *failures; /* members of the list, as JSON; NULL none */
    const char *command;  /* NULL: a plain one */
    const char *extra;    /* further members of the root, with a comma in front; NULL none */
};

/* The five cells and default again, six rounds: rates[c][r] = base * gains[c] * (1 + wobble of the
 * round and cell), small and different in every run. */
void made_result_usual(struct made_result *made, double base, const double gains[6]);

/* JSON of it; malloc'ed. Ends the program when memory is exhausted. */
char *made_result_text(const struct made_result *made);

/* Writes `text` to a temporary file and returns its path, valid until the next call; the file before
 * is removed, and with NULL nothing else happens. */
const char *made_result_file(const char *text);

#endif
