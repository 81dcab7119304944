/*
 * The request to stop: set by SIGINT or SIGTERM, polled by everything that can take long (listing,
 * decoding, training). The first signal asks; the second ends the process at once by the signal's
 * default action.
 */
#ifndef PINLINE_BASE_STOP_H
#define PINLINE_BASE_STOP_H

#include <stdbool.h>

#include "base/status.h"

/* Installs the handlers. Call once, from main, before threads are started. */
void stop_install(void);

/* True once a stop was asked for. An atomic load: cheap, any thread. */
bool stop_requested(void);

/* The signal that asked (SIGINT or SIGTERM), 0 when none did. The exit code is 128 + this. */
int stop_signal(void);

/* STATUS_OK, or STATUS_INTERRUPTED with a message once a stop was asked for. For TRY in loops. */
enum status stop_check(void) MUST_USE;

/* Asks for a stop from inside the program, as if `signal_number` had arrived; 0 takes the request
 * back. For tests, and for a budget that ran out. */
void stop_set(int signal_number);

#endif
