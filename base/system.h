/* What this machine allows the process: CPUs, memory, limits. Linux; values that the system does not
 * tell are 0 or UINT64_MAX as said. Reads /proc, /sys and limits; thread-safe; never fails. */
#ifndef PINLINE_BASE_SYSTEM_H
#define PINLINE_BASE_SYSTEM_H

#include <stdint.h>

struct system_facts {
    int cpus_online;           /* CPUs of the machine, >= 1 */
    int cpus_allowed;          /* by affinity and by cgroup quota (rounded up), >= 1 */
    double cgroup_cpu_quota;   /* CPUs that the cgroup grants, 0 when unlimited */
    uint64_t memory_total;     /* bytes of RAM */
    uint64_t memory_available; /* bytes, MemAvailable, or less where the cgroup limit leaves less */
    uint64_t memory_limit;     /* bytes, the cgroup's limit, UINT64_MAX when there is none */
    uint64_t swap_used;        /* bytes */
    uint64_t locked_limit;     /* bytes, RLIMIT_MEMLOCK, UINT64_MAX when unlimited */
    uint64_t last_level_cache; /* bytes, 0 when unknown */
    int numa_nodes;            /* >= 1 */
    char cpu_model[128];
    char kernel[128]; /* "Linux 6.1.0 x86_64" */
};
void system_read_facts(struct system_facts *facts);

/* Counters of this process and its cgroup since their start; differences are what matters. */
struct system_usage {
    uint64_t resident_bytes;
    uint64_t resident_peak_bytes;
    uint64_t locked_bytes; /* VmLck + VmPin */
    uint64_t major_faults;
    uint64_t read_bytes;       /* fetched from storage */
    uint64_t context_switches; /* involuntary */
    uint64_t cgroup_throttled_ns;
    uint64_t steal_ticks;   /* /proc/stat steal, all CPUs */
    uint64_t swap_in_pages; /* the machine's */
    uint64_t swap_out_pages;
    int threads;
    int open_files;
};
void system_read_usage(struct system_usage *usage);

#endif
