/* pinline doctor */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/system.h"
#include "loader/image.h"
#include "trainer/commands.h"
#include "trainer/job.h"
#include "trainer/job_options.h"

static struct settings settings;

enum { MOST_LINES = 128, LINE_BYTES = 512 };

/* Lines are gathered, since they are printed as text or as JSON. */
static struct {
    char text[LINE_BYTES];
    bool problem;
} lines[MOST_LINES];
static size_t line_count;

/* Of the device's options those that say which one, and what it has: nothing is computed. */
static size_t bind(struct option_binding *bindings)
{
    static const char *const names[] = {"device", "cuda-libs", "host-threads", NULL};
    static struct option options[sizeof names / sizeof names[0]];
    static struct option_table device_table;
    options_pick(&options_device, names, options, &device_table);
    settings_defaults(&settings);
    bindings[0] = (struct option_binding){.table = &device_table, .base = &settings};
    bindings[1] = (struct option_binding){.table = &options_output, .base = &settings};
    return 2;
}

static void add_line(void *context, bool problem, const char *text)
{
    (void)context;
    if (line_count < MOST_LINES) {
        lines[line_count].problem = problem;
        snprintf(lines[line_count].text, LINE_BYTES, "%s", text);
        line_count++;
    }
}

static void bytes_text(uint64_t bytes, char *text, size_t size)
{
    if (bytes == UINT64_MAX) {
        snprintf(text, size, "unlimited");
    } else if (bytes >= UINT64_C(1) << 30) {
        snprintf(text, size, "%.1f GiB", (double)bytes / 1073741824.0);
    } else {
        snprintf(text, size, "%.1f MiB", (double)bytes / 1048576.0);
    }
}

static void describe_machine(void)
{
    struct system_facts facts;
    char text[LINE_BYTES], total[32], available[32], limit[32], locked[32], versions[256];
    system_read_facts(&facts);
    snprintf(text, sizeof text, "pinline %s on %s", PINLINE_VERSION, facts.kernel);
    add_line(NULL, false, text);
    snprintf(text, sizeof text, "CPU: %s; %d online, %d allowed to this process",
             facts.cpu_model[0] ? facts.cpu_model : "unknown", facts.cpus_online,
             facts.cpus_allowed);
    add_line(NULL, false, text);
    if (facts.cgroup_cpu_quota > 0) {
        snprintf(text, sizeof text, "the cgroup grants %.2f CPUs", facts.cgroup_cpu_quota);
        add_line(NULL, false, text);
    }
    if (facts.cpus_allowed < 2) {
        add_line(NULL, true,
                 "a single CPU is allowed: decoding and training take turns; allow more "
                 "(taskset, the container's CPU limit)");
    }
    bytes_text(facts.memory_total, total, sizeof total);
    bytes_text(facts.memory_available, available, sizeof available);
    bytes_text(facts.memory_limit, limit, sizeof limit);
    snprintf(text, sizeof text, "memory: %s, %s available, cgroup limit %s", total, available,
             limit);
    add_line(NULL, false, text);
    if (facts.swap_used > 0) {
        bytes_text(facts.swap_used, total, sizeof total);
        snprintf(text, sizeof text,
                 "%s of swap are in use: measurements are doubtful while pages "
                 "move",
                 total);
        add_line(NULL, true, text);
    }
    bytes_text(facts.locked_limit, locked, sizeof locked);
    const bool small = facts.locked_limit < UINT64_C(64) << 20;
    snprintf(text, sizeof text, "locked-memory limit (ulimit -l): %s%s", locked,
             small ? "; raise it (ulimit -l unlimited, or the container's memlock limit) if "
                     "--pin-memory is refused"
                   : "");
    add_line(NULL, small, text);
    bytes_text(facts.last_level_cache, total, sizeof total);
    snprintf(text, sizeof text, "last-level cache: %s; NUMA nodes: %d", total, facts.numa_nodes);
    add_line(NULL, false, text);
    snprintf(text, sizeof text, "image libraries: %s; resampler: %s",
             image_libraries_versions(versions, sizeof versions), image_resample_target());
    add_line(NULL, false, text);
}

static bool is_told(const char *reason)
{
    for (size_t i = 0; i < line_count; i++) {
        if (strstr(lines[i].text, reason)) {
            return true;
        }
    }
    return false;
}

/* Without an open device, its own lines say why there is none; what they leave out is added. */
static void describe_devices(void)
{
    struct device_settings wanted = settings.device;
    char reason[LINE_BYTES - 64] = "";
    device *dev = NULL;
    wanted.kind = wanted.kind == DEVICE_HOST ? DEVICE_HOST : DEVICE_CUDA;
    if (device_open(&wanted, &dev) != STATUS_OK) {
        snprintf(reason, sizeof reason, "%s", status_message());
        status_clear();
    }
    device_doctor(dev, &wanted, add_line, NULL);
    if (!is_told(reason)) {
        add_line(NULL, true, reason);
    }
    device_close(&dev);
}

static void write_lines(void *context, struct json_writer *writer)
{
    (void)context;
    json_begin_object(writer);
    json_key(writer, "machine");
    job_write_machine(writer);
    json_key(writer, "lines");
    json_begin_array(writer);
    for (size_t i = 0; i < line_count; i++) {
        json_begin_object(writer);
        json_key_bool(writer, "problem", lines[i].problem);
        json_key_string(writer, "text", lines[i].text);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}

static enum status run(char **operands, size_t operand_count)
{
    (void)operands;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    TRY(command_check_device(&settings));
    line_count = 0;
    describe_machine();
    describe_devices();
    if (settings.json) {
        command_print_json(write_lines, NULL);
        return STATUS_OK;
    }
    size_t problems = 0;
    for (size_t i = 0; i < line_count; i++) {
        printf("%s %s\n", lines[i].problem ? "!" : " ", lines[i].text);
        problems += lines[i].problem;
    }
    printf("%zu problem%s\n", problems, problems == 1 ? "" : "s");
    return STATUS_OK;
}

const struct command command_doctor = {
    .name = "doctor",
    .summary = "what this machine offers, and what stands in the way",
    .details =
        "Lists CPUs and memory that the process may use, the limit of locked memory, the\n"
        "libraries, and the devices, or why there is none. Lines with ! name a problem and its\n"
        "remedy, and do not change the exit code.",
    .bind = bind,
    .run = run,
};
