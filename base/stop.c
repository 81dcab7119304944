#include "base/stop.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>

/* Lock-free, so that the handler may store to it. */
static atomic_int asked_by;

_Static_assert(ATOMIC_INT_LOCK_FREE == 2, "a signal handler needs a lock-free flag");

/* SA_RESETHAND has put the default action back, so the next signal of this kind ends the process;
 * the other kind is reset here for the same reason. */
static void on_signal(int number)
{
    atomic_store(&asked_by, number);
    signal(number == SIGINT ? SIGTERM : SIGINT, SIG_DFL);
}

void stop_install(void)
{
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    action.sa_flags = (int)(SA_RESETHAND | SA_RESTART);
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
}

bool stop_requested(void)
{
    return atomic_load_explicit(&asked_by, memory_order_relaxed) != 0;
}

int stop_signal(void)
{
    return atomic_load(&asked_by);
}

enum status stop_check(void)
{
    const int number = stop_signal();
    if (number == 0) {
        return STATUS_OK;
    }
    return FAIL(STATUS_INTERRUPTED, "stopped by %s",
                number == SIGINT    ? "Ctrl-C (SIGINT)"
                : number == SIGTERM ? "SIGTERM"
                                    : "a request");
}

void stop_set(int signal_number)
{
    atomic_store(&asked_by, signal_number);
}
