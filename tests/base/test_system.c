/* Facts and counters against what this process does to itself. */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/system.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

START_TEST(test_facts_are_plausible)
{
    if (access("/proc/meminfo", R_OK) != 0) {
        SKIP_TEST("/proc is not mounted here");
    }
    struct system_facts facts;
    system_read_facts(&facts);
    ck_assert_int_eq(facts.cpus_online, (int)sysconf(_SC_NPROCESSORS_ONLN));
    ck_assert_int_ge(facts.cpus_allowed, 1);
    ck_assert_int_le(facts.cpus_allowed, facts.cpus_online);
    ck_assert(facts.cgroup_cpu_quota >= 0);
    const uint64_t pages = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    ck_assert_uint_ge(facts.memory_total, pages / 10 * 9);
    ck_assert_uint_le(facts.memory_total, pages / 9 * 10);
    ck_assert_uint_gt(facts.memory_available, 0);
    ck_assert_uint_le(facts.memory_available, facts.memory_total);
    ck_assert_int_ge(facts.numa_nodes, 1);
    ck_assert_uint_gt(strlen(facts.cpu_model), 0);
    ck_assert_ptr_null(strchr(facts.cpu_model, '\n'));
    ck_assert(strncmp(facts.kernel, "Linux ", 6) == 0);
}
END_TEST

START_TEST(test_affinity_counts)
{
    cpu_set_t set, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &set)) {
            CPU_SET(i, &one);
            break;
        }
    }
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    struct system_facts facts;
    system_read_facts(&facts);
    ck_assert_int_eq(facts.cpus_allowed, 1);
}
END_TEST

START_TEST(test_locked_limit)
{
    const struct rlimit limit = {.rlim_cur = 4096 * 3, .rlim_max = 4096 * 3};
    ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
    struct system_facts facts;
    system_read_facts(&facts);
    ck_assert_uint_eq(facts.locked_limit, 4096 * 3);
}
END_TEST

static pthread_barrier_t barrier;

static void *do_nothing(void *argument)
{
    return argument;
}

static void *wait_twice(void *argument)
{
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return argument;
}

START_TEST(test_usage_follows_the_process)
{
    if (access("/proc/self/status", R_OK) != 0) {
        SKIP_TEST("/proc is not mounted here");
    }
    /* A first thread makes a sanitizer start one of its own. */
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, do_nothing, NULL), 0);
    pthread_join(thread, NULL);
    struct system_usage before, after;
    system_read_usage(&before);
    ck_assert_uint_gt(before.resident_bytes, 0);
    ck_assert_uint_ge(before.resident_peak_bytes, before.resident_bytes);

    const size_t bytes = (size_t)64 << 20;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    memset(memory, 1, bytes);
    const int descriptor = open("/dev/null", O_RDONLY);
    ck_assert_int_ge(descriptor, 0);
    ck_assert_int_eq(pthread_barrier_init(&barrier, NULL, 2), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_twice, NULL), 0);
    pthread_barrier_wait(&barrier);
    /* The call itself, because the address sanitizer makes mlock do nothing. */
    const int locked = syscall(SYS_mlock, memory, (size_t)1 << 16) == 0;
    system_read_usage(&after);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);

    int descriptors = 0;
    for (int i = 0; i < 1024; i++) {
        descriptors += fcntl(i, F_GETFD) >= 0;
    }
    ck_assert_int_eq(after.open_files, descriptors);
    ck_assert_uint_ge(after.resident_bytes, before.resident_bytes + bytes / 2);
    ck_assert_uint_ge(after.resident_peak_bytes, after.resident_bytes);
    ck_assert_int_eq(after.open_files, before.open_files + 1);
    ck_assert_int_eq(after.threads, before.threads + 1);
    if (!locked) {
        printf("SKIP: no memory may be locked here, so the count of it is not tested\n");
    } else {
        ck_assert_uint_eq(after.locked_bytes, before.locked_bytes + (1 << 16));
    }
    ck_assert_uint_ge(after.major_faults, before.major_faults);
    ck_assert_uint_ge(after.steal_ticks, before.steal_ticks);
    close(descriptor);
    munmap(memory, bytes);
    system_read_usage(&after);
    ck_assert_int_eq(after.open_files, before.open_files);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_facts_are_plausible, test_affinity_counts, test_locked_limit,
                                  test_usage_follows_the_process};
    return check_run("system", tests, sizeof tests / sizeof tests[0], 0);
}
