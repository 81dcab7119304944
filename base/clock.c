#include "base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_ns(clockid_t id)
{
    struct timespec now = {0};
    clock_gettime(id, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

uint64_t clock_now_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t clock_process_cpu_ns(void)
{
    return read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

double clock_seconds(uint64_t from_ns, uint64_t to_ns)
{
    /* The difference first: it is exact, which two doubles of nanoseconds since boot are not. */
    return to_ns >= from_ns ? (double)(to_ns - from_ns) * 1e-9 : -(double)(from_ns - to_ns) * 1e-9;
}

void clock_sleep_ns(uint64_t ns)
{
    const struct timespec length = {.tv_sec = (time_t)(ns / UINT64_C(1000000000)),
                                    .tv_nsec = (long)(ns % UINT64_C(1000000000))};
    clock_nanosleep(CLOCK_MONOTONIC, 0, &length, NULL);
}

void clock_wall_text(char *text, size_t bytes)
{
    if (bytes == 0) {
        return;
    }
    const time_t now = time(NULL);
    struct tm parts;
    char whole[32] = "";
    if (gmtime_r(&now, &parts) != NULL) {
        strftime(whole, sizeof whole, "%Y-%m-%dT%H:%M:%SZ", &parts);
    }
    snprintf(text, bytes, "%s", whole);
}
