#include "base/system.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define TEXT_BYTES 16384 /* of a file of /proc or /sys; what is longer is cut */

/* Reads the start of a small file; "" and false when it cannot be read. */
static bool read_text(const char *path, char *text, size_t bytes)
{
    text[0] = '\0';
    const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) {
        return false;
    }
    size_t used = 0;
    ssize_t got;
    while (used < bytes - 1 && (got = read(descriptor, text + used, bytes - 1 - used)) > 0) {
        used += (size_t)got;
    }
    text[used] = '\0';
    close(descriptor);
    return used > 0;
}

/* The number after `name` at the start of a line of `text`; false when there is none. */
static bool find_number(const char *text, const char *name, uint64_t *out)
{
    const size_t length = strlen(name);
    for (const char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, name, length) == 0) {
            char *end;
            const unsigned long long value = strtoull(line + length, &end, 10);
            if (end != line + length) {
                *out = value;
                return true;
            }
        }
        line = strchr(line, '\n');
        line = line == NULL ? NULL : line + 1;
    }
    return false;
}

static uint64_t find_or_zero(const char *text, const char *name)
{
    uint64_t value = 0;
    return find_number(text, name, &value) ? value : 0;
}

/* --- cgroups ------------------------------------------------------------------------------- */

/* A folder of the process's cgroup, or of one that contains it. */
struct cgroup {
    char path[PATH_MAX];
    size_t root; /* length of the part that is never cut off */
};

/* The cgroup of the process under `mount`, for the controller named in /proc/self/cgroup ("" for
 * version 2). In a container the path may be one of the host that does not exist here; walking up
 * then arrives at the mount, where the container's own files are. */
static bool cgroup_find(const char *controller, const char *mount, struct cgroup *cgroup)
{
    char text[TEXT_BYTES];
    if (!read_text("/proc/self/cgroup", text, sizeof text)) {
        return false;
    }
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line != NULL;
         line = strtok_r(NULL, "\n", &rest)) {
        char *list = strchr(line, ':');
        char *path = list == NULL ? NULL : strchr(list + 1, ':');
        if (path == NULL) {
            continue;
        }
        *path++ = '\0';
        list++;
        bool listed = strcmp(list, controller) == 0;
        const size_t length = strlen(controller);
        for (const char *at = list; length > 0 && (at = strstr(at, controller)) != NULL; at++) {
            listed |= (at == list || at[-1] == ',') && (at[length] == ',' || at[length] == '\0');
        }
        if (listed) {
            cgroup->root = strlen(mount);
            const int written = snprintf(cgroup->path, sizeof cgroup->path, "%s%s", mount,
                                         strcmp(path, "/") == 0 ? "" : path);
            return written > 0 && (size_t)written < sizeof cgroup->path;
        }
    }
    return false;
}

/* Goes to the parent; false at the top. */
static bool cgroup_up(struct cgroup *cgroup)
{
    if (strlen(cgroup->path) <= cgroup->root) {
        return false;
    }
    char *slash = strrchr(cgroup->path, '/');
    const size_t length = (size_t)(slash - cgroup->path);
    cgroup->path[length < cgroup->root ? cgroup->root : length] = '\0';
    return true;
}

static bool cgroup_text(const struct cgroup *cgroup, const char *name, char *text, size_t bytes)
{
    char path[PATH_MAX + 64];
    snprintf(path, sizeof path, "%s/%s", cgroup->path, name);
    return read_text(path, text, bytes);
}

static bool cgroup_number(const struct cgroup *cgroup, const char *name, uint64_t *out)
{
    char text[128];
    return cgroup_text(cgroup, name, text, sizeof text) && find_number(text, "", out);
}

/* CPUs that the process's cgroups grant, 0 when unlimited: the smallest on the way up. */
static double cgroup_cpu_quota(void)
{
    double smallest = 0;
    struct cgroup cgroup;
    if (cgroup_find("", "/sys/fs/cgroup", &cgroup)) {
        do {
            char text[128];
            double quota, period;
            if (cgroup_text(&cgroup, "cpu.max", text, sizeof text) &&
                sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0 &&
                (smallest == 0 || quota / period < smallest)) {
                smallest = quota / period;
            }
        } while (cgroup_up(&cgroup));
    }
    if (cgroup_find("cpu", "/sys/fs/cgroup/cpu", &cgroup)) {
        do {
            uint64_t quota, period;
            char text[128];
            /* -1 means no limit. */
            if (cgroup_text(&cgroup, "cpu.cfs_quota_us", text, sizeof text) && text[0] != '-' &&
                find_number(text, "", &quota) &&
                cgroup_number(&cgroup, "cpu.cfs_period_us", &period) && period > 0 &&
                (smallest == 0 || (double)quota / (double)period < smallest)) {
                smallest = (double)quota / (double)period;
            }
        } while (cgroup_up(&cgroup));
    }
    return smallest;
}

/* Lowers the facts' limit and what is available to what one cgroup leaves. Pages of files count as
 * used there, but give way. */
static void apply_memory_limit(struct system_facts *facts, const struct cgroup *cgroup,
                               const char *limit_name, const char *used_name)
{
    uint64_t limit, used;
    /* Version 1 writes a number near 2^63 for "no limit". */
    if (!cgroup_number(cgroup, limit_name, &limit) || limit >= UINT64_C(1) << 62) {
        return;
    }
    if (limit < facts->memory_limit) {
        facts->memory_limit = limit;
    }
    if (cgroup_number(cgroup, used_name, &used)) {
        char text[TEXT_BYTES];
        if (cgroup_text(cgroup, "memory.stat", text, sizeof text)) {
            const uint64_t files = find_or_zero(text, "inactive_file ");
            used = used > files ? used - files : 0;
        }
        const uint64_t left = limit > used ? limit - used : 0;
        if (left < facts->memory_available) {
            facts->memory_available = left;
        }
    }
}

static void read_memory(struct system_facts *facts)
{
    char text[TEXT_BYTES];
    facts->memory_limit = UINT64_MAX;
    if (read_text("/proc/meminfo", text, sizeof text)) {
        facts->memory_total = find_or_zero(text, "MemTotal:") * 1024;
        facts->memory_available = find_or_zero(text, "MemAvailable:") * 1024;
        facts->swap_used =
            (find_or_zero(text, "SwapTotal:") - find_or_zero(text, "SwapFree:")) * 1024;
    }
    struct cgroup cgroup;
    if (cgroup_find("", "/sys/fs/cgroup", &cgroup)) {
        do {
            apply_memory_limit(facts, &cgroup, "memory.max", "memory.current");
        } while (cgroup_up(&cgroup));
    }
    if (cgroup_find("memory", "/sys/fs/cgroup/memory", &cgroup)) {
        do {
            apply_memory_limit(facts, &cgroup, "memory.limit_in_bytes", "memory.usage_in_bytes");
        } while (cgroup_up(&cgroup));
    }
    struct rlimit limit;
    facts->locked_limit = UINT64_MAX;
    if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        facts->locked_limit = limit.rlim_cur;
    }
}

/* --- CPUs ---------------------------------------------------------------------------------- */

static int count_affinity(int online)
{
    /* More CPUs than a cpu_set_t holds need a larger set, which the call itself asks for. */
    for (int cpus = CPU_SETSIZE; cpus <= CPU_SETSIZE * 64; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL) {
            break;
        }
        const size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        const int error = sched_getaffinity(0, bytes, set);
        const int count = error == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) {
            return count;
        }
    }
    return online;
}

static uint64_t read_last_level_cache(void)
{
    uint64_t largest = 0;
    for (int i = 0; i < 8; i++) {
        char path[96], text[64];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", i);
        if (!read_text(path, text, sizeof text)) {
            continue;
        }
        char *unit;
        uint64_t bytes = strtoull(text, &unit, 10);
        bytes *= *unit == 'M' ? UINT64_C(1) << 20 : *unit == 'K' ? UINT64_C(1) << 10 : 1;
        largest = bytes > largest ? bytes : largest;
    }
    const long level3 = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return largest == 0 && level3 > 0 ? (uint64_t)level3 : largest;
}

static int count_entries(const char *path, const char *prefix)
{
    DIR *folder = opendir(path);
    if (folder == NULL) {
        return 0;
    }
    int count = 0;
    const size_t length = strlen(prefix);
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        const char *rest = entry->d_name + length;
        count += strncmp(entry->d_name, prefix, length) == 0 && *rest >= '0' && *rest <= '9';
    }
    closedir(folder);
    return count;
}

static void read_cpu_model(char *model, size_t bytes, const char *fallback)
{
    char text[TEXT_BYTES];
    const char *name = NULL;
    if (read_text("/proc/cpuinfo", text, sizeof text)) {
        name = strstr(text, "model name");
        name = name == NULL ? NULL : strchr(name, ':');
    }
    if (name == NULL) {
        snprintf(model, bytes, "%s", fallback);
        return;
    }
    name += strspn(name, ": \t");
    snprintf(model, bytes, "%.*s", (int)strcspn(name, "\n"), name);
}

void system_read_facts(struct system_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    struct utsname names;
    memset(&names, 0, sizeof names);
    if (uname(&names) == 0) {
        snprintf(facts->kernel, sizeof facts->kernel, "%.40s %.60s %.20s", names.sysname,
                 names.release, names.machine);
    }
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    facts->cpus_online = online >= 1 ? (int)online : 1;
    facts->cpus_allowed = count_affinity(facts->cpus_online);
    facts->cgroup_cpu_quota = cgroup_cpu_quota();
    if (facts->cgroup_cpu_quota > 0 && ceil(facts->cgroup_cpu_quota) < facts->cpus_allowed) {
        facts->cpus_allowed = (int)ceil(facts->cgroup_cpu_quota);
    }
    read_memory(facts);
    facts->last_level_cache = read_last_level_cache();
    const int nodes = count_entries("/sys/devices/system/node", "node");
    facts->numa_nodes = nodes >= 1 ? nodes : 1;
    read_cpu_model(facts->cpu_model, sizeof facts->cpu_model, names.machine);
}

/* --- Counters ------------------------------------------------------------------------------ */

/* Time that the process's cgroup was kept from running, 0 when the system does not tell. */
static uint64_t read_throttled_ns(void)
{
    struct cgroup cgroup;
    char text[TEXT_BYTES];
    uint64_t value, most = 0;
    if (cgroup_find("", "/sys/fs/cgroup", &cgroup)) {
        do {
            if (cgroup_text(&cgroup, "cpu.stat", text, sizeof text) &&
                find_number(text, "throttled_usec ", &value) && value * 1000 > most) {
                most = value * 1000;
            }
        } while (cgroup_up(&cgroup));
    }
    if (cgroup_find("cpu", "/sys/fs/cgroup/cpu", &cgroup)) {
        do {
            if (cgroup_text(&cgroup, "cpu.stat", text, sizeof text) &&
                find_number(text, "throttled_time ", &value) && value > most) {
                most = value;
            }
        } while (cgroup_up(&cgroup));
    }
    return most;
}

void system_read_usage(struct system_usage *usage)
{
    memset(usage, 0, sizeof *usage);
    char text[TEXT_BYTES];
    if (read_text("/proc/self/status", text, sizeof text)) {
        usage->resident_bytes = find_or_zero(text, "VmRSS:") * 1024;
        usage->resident_peak_bytes = find_or_zero(text, "VmHWM:") * 1024;
        usage->locked_bytes = (find_or_zero(text, "VmLck:") + find_or_zero(text, "VmPin:")) * 1024;
        usage->threads = (int)find_or_zero(text, "Threads:");
    }
    struct rusage own;
    memset(&own, 0, sizeof own);
    if (getrusage(RUSAGE_SELF, &own) == 0) {
        usage->major_faults = (uint64_t)own.ru_majflt;
        usage->context_switches = (uint64_t)own.ru_nivcsw;
        if (usage->resident_peak_bytes == 0) {
            usage->resident_peak_bytes = (uint64_t)own.ru_maxrss * 1024;
        }
    }
    if (read_text("/proc/self/io", text, sizeof text)) {
        usage->read_bytes = find_or_zero(text, "read_bytes:");
    }
    usage->cgroup_throttled_ns = read_throttled_ns();
    if (read_text("/proc/stat", text, sizeof text)) {
        unsigned long long field[8] = {0};
        if (sscanf(text, "cpu %llu %llu %llu %llu %llu %llu %llu %llu", &field[0], &field[1],
                   &field[2], &field[3], &field[4], &field[5], &field[6], &field[7]) == 8) {
            usage->steal_ticks = field[7];
        }
    }
    if (read_text("/proc/vmstat", text, sizeof text)) {
        usage->swap_in_pages = find_or_zero(text, "pswpin ");
        usage->swap_out_pages = find_or_zero(text, "pswpout ");
    }
    /* The listing's own descriptor is not one of the program's. */
    const int open_files = count_entries("/proc/self/fd", "");
    usage->open_files = open_files > 0 ? open_files - 1 : 0;
}
