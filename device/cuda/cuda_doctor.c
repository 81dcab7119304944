#include "device/cuda/cuda_doctor.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/system.h"
#include "device/cuda/cuda_internal.h"

#define GIB (1024.0 * 1024.0 * 1024.0)

struct doctor {
    device_doctor_line line;
    void *context;
};

PRINTF_LIKE(3, 4)
static void say(const struct doctor *doctor, bool problem, const char *format, ...)
{
    char text[768];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    doctor->line(doctor->context, problem, text);
}

/* Says what failed, as a problem, and forgets it. */
static void say_failure(const struct doctor *doctor, const char *what)
{
    say(doctor, true, "%s: %s", what, status_message());
    status_clear();
}

/* --- Libraries ------------------------------------------------------------------------------ */

/* The file that a function of a library comes from. */
static const char *origin(const void *function)
{
    Dl_info info;
    return dladdr(function, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "?";
}

/* dladdr wants an object pointer; POSIX gives function pointers the same representation. */
#define ORIGIN(function) origin_of((void (*)(void))(function))
static const char *origin_of(void (*function)(void))
{
    void *address = NULL;
    memcpy(&address, &function, sizeof address);
    return origin(address);
}

static void check_libraries(const struct doctor *doctor, const struct device_facts *facts)
{
    int driver = 0;
    int runtime = 0;
    (void)cudaDriverGetVersion(&driver);
    (void)cudaRuntimeGetVersion(&runtime);
    say(doctor, false, "driver %s (serves CUDA %d.%d), CUDA runtime %s, cuDNN %s, %s",
        facts->driver[0] == '\0' ? "of unknown version" : facts->driver, driver / 1000,
        driver % 1000 / 10, facts->runtime, facts->cudnn, facts->blas);
    say(doctor, false, "from %s, %s, %s", ORIGIN(cudaGetDeviceCount), ORIGIN(cudnnGetVersion),
        ORIGIN(cublasLtGetVersion));
    if (cudnnGraphVersionCheck() != CUDNN_STATUS_SUCCESS ||
        cudnnOpsVersionCheck() != CUDNN_STATUS_SUCCESS) {
        say(doctor, true,
            "the parts of cuDNN are of different versions: remove all but one of the installed ones "
            "(a system package beside one of a Python environment is the usual case)");
    }
    char name[32];
    snprintf(name, sizeof name, "libnvrtc.so.%d", runtime / 1000);
    void *nvrtc = dlopen(name, RTLD_LAZY | RTLD_LOCAL);
    if (nvrtc == NULL) {
        say(doctor, true,
            "%s is not found: cuDNN cannot compile fused operations and falls back or fails; "
            "install NVRTC or give its folder with --cuda-libs",
            name);
    } else {
        dlclose(nvrtc);
    }
}

/* --- The GPU -------------------------------------------------------------------------------- */

static void check_gpu(const struct doctor *doctor, const struct device_facts *facts, int index)
{
    say(doctor, false,
        "cuda:%d is %s, compute capability %d.%d, %.1f GiB with %.1f GiB free, at %s", index,
        facts->name, facts->compute_major, facts->compute_minor, (double)facts->memory_total / GIB,
        (double)facts->memory_free / GIB, facts->pci_bus);
    if (facts->compute_major < 8) {
        say(doctor, true,
            "compute capability %d.%d has neither TF32 nor bfloat16 products: use --precision f32",
            facts->compute_major, facts->compute_minor);
    }
    if (facts->memory_free < (uint64_t)1 << 30) {
        say(doctor, true,
            "less than 1 GiB of the GPU's memory is free: end what uses it, or take a small "
            "--batch-size");
    }
}

static void check_place(const struct doctor *doctor, const struct device_facts *facts)
{
    struct system_facts system;
    system_read_facts(&system);
    if (facts->numa_node < 0 || system.numa_nodes <= 1) {
        say(doctor, false, "NUMA: %s",
            system.numa_nodes <= 1 ? "one node" : "the GPU's is unknown");
        return;
    }
    unsigned cpu = 0;
    unsigned node = 0;
    if (getcpu(&cpu, &node) != 0) {
        return;
    }
    bool apart = node != (unsigned)facts->numa_node;
    say(doctor, apart, "NUMA: the GPU is at node %d, this process runs at node %u%s",
        facts->numa_node, node,
        apart ? ": copies cross between sockets; start with numactl --cpunodebind and --membind"
              : "");
}

static void check_sample(const struct doctor *doctor, const struct device_sample *sample)
{
    char text[160];
    if (!sample->valid) {
        say(doctor, true,
            "NVML (libnvidia-ml.so.1) is not there: no clocks, throttling or other processes");
        return;
    }
    if (sample->other_processes > 0) {
        say(doctor, true,
            "%d other process%s on this GPU: what is measured is not this program alone",
            sample->other_processes, sample->other_processes == 1 ? "" : "es");
    } else {
        say(doctor, false, "%s on this GPU",
            sample->other_processes == 0 ? "no other process" : "unknown other processes");
    }
    say(doctor, false, "clocks %d of %d MHz, memory %d MHz, %d C, %.0f W, %d %% busy",
        sample->sm_clock_mhz, sample->sm_clock_max_mhz, sample->memory_clock_mhz,
        sample->temperature_c, sample->power_w, sample->gpu_percent);
    if (nvml_throttle_text(sample->throttle_reasons, text, sizeof text)[0] != '\0') {
        say(doctor, true, "clocks are held down (%s): look at cooling and power limit", text);
    }
}

/* --- Copies --------------------------------------------------------------------------------- */

/* Bytes a second of `count` copies in a row, after one that is not timed. */
static enum status time_copies(device *dev, device_stream *stream, device_buffer *to,
                               const struct host_buffer *from, size_t bytes, int count,
                               double *rate)
{
    const struct device_backend *backend = dev->backend;
    device_event *start = NULL;
    device_event *end = NULL;
    double ms = 0;
    enum status status = backend->event_create(dev, true, &start);
    if (status == STATUS_OK) {
        status = backend->event_create(dev, true, &end);
    }
    for (int i = 0; i <= count && status == STATUS_OK; i++) {
        if (i == 1) {
            status = backend->event_record(dev, start, stream);
        }
        if (status == STATUS_OK) {
            status = backend->copy_to_device(dev, stream, to, 0, from->data, bytes);
        }
    }
    if (status == STATUS_OK) {
        status = backend->event_record(dev, end, stream);
    }
    if (status == STATUS_OK) {
        status = backend->event_wait(dev, end);
    }
    if (status == STATUS_OK) {
        status = backend->event_elapsed(dev, start, end, &ms);
    }
    if (start != NULL) {
        backend->event_destroy(dev, start);
    }
    if (end != NULL) {
        backend->event_destroy(dev, end);
    }
    *rate = ms > 0 ? (double)bytes * count / (ms / 1e3) : 0;
    return status;
}

/* The four rates: 1 MiB and 64 MiB, pageable and page-locked. */
static enum status measure_copies(device *dev, double rates[2][2])
{
    static const size_t sizes[2] = {(size_t)1 << 20, (size_t)64 << 20};
    static const int counts[2] = {64, 4};
    const struct device_backend *backend = dev->backend;
    device_stream *stream = NULL;
    device_buffer *to = NULL;
    enum status status = backend->stream_create(dev, "doctor", &stream);
    if (status == STATUS_OK) {
        status = backend->buffer_create(dev, sizes[1], &to);
    }
    for (int locked = 0; locked < 2 && status == STATUS_OK; locked++) {
        struct host_buffer from = {0};
        status = backend->host_buffer_create(
            dev, sizes[1], locked ? HOST_MEMORY_REGISTERED : HOST_MEMORY_PAGEABLE, &from);
        for (int i = 0; i < 2 && status == STATUS_OK; i++) {
            status = time_copies(dev, stream, to, &from, sizes[i], counts[i], &rates[locked][i]);
        }
        backend->host_buffer_destroy(dev, &from);
    }
    if (to != NULL) {
        backend->buffer_destroy(dev, to);
    }
    if (stream != NULL) {
        backend->stream_destroy(dev, stream);
    }
    return status;
}

/* GB/s that a PCIe link carries at most, by generation and lanes; 0 when unknown. */
static double link_rate(int generation, int width)
{
    static const double per_lane[] = {0, 0.25, 0.5, 0.985, 1.969, 3.938, 7.563};
    return generation >= 1 && generation <= 6 ? per_lane[generation] * width : 0;
}

static void check_copies(const struct doctor *doctor, device *dev)
{
    double rates[2][2] = {{0}};
    if (measure_copies(dev, rates) != STATUS_OK) {
        say_failure(doctor, "the copy test failed");
        return;
    }
    say(doctor, false,
        "copies to the GPU in GB/s: pageable %.1f at 1 MiB and %.1f at 64 MiB, page-locked %.1f and "
        "%.1f",
        rates[0][0] / 1e9, rates[0][1] / 1e9, rates[1][0] / 1e9, rates[1][1] / 1e9);
    /* Read now: an idle link is slower than one that has just worked. */
    struct nvml_link link;
    nvml_read_link(cuda_of(dev)->nvml, &link);
    if (link.generation == 0 || link.width == 0) {
        say(doctor, false, "PCIe link: unknown");
        return;
    }
    double most = link_rate(link.generation, link.width);
    bool narrow = link.width < link.width_max;
    say(doctor, narrow, "PCIe %d x%d (the GPU's most: %d x%d), %.1f GB/s at most%s",
        link.generation, link.width, link.generation_max, link.width_max, most,
        narrow ? ": the slot or a riser gives fewer lanes than the GPU has" : "");
    if (most > 0 && rates[1][1] / 1e9 < 0.6 * most) {
        say(doctor, true,
            "page-locked copies reach only %.0f %% of the link: another device on it, an IOMMU or a "
            "virtual machine, or memory of another NUMA node",
            100 * rates[1][1] / 1e9 / most);
    }
    if (rates[1][1] < rates[0][1]) {
        say(doctor, true,
            "page-locked copies are slower than pageable ones here: measure, do not "
            "assume, before using --pin-memory");
    }
}

void pinline_cuda_doctor(const struct device_settings *settings, device_doctor_line line,
                         void *context)
{
    const struct doctor doctor = {line, context};
    struct device_settings mine = *settings;
    device *dev = NULL;
    mine.plan_cache = NULL;
    if (pinline_cuda_open(&mine, &dev) != STATUS_OK) {
        say_failure(&doctor, "no CUDA device");
        return;
    }
    struct device_facts facts;
    struct device_sample sample;
    if (dev->backend->read_facts(dev, &facts) != STATUS_OK) {
        say_failure(&doctor, "the GPU cannot be asked");
    } else {
        check_gpu(&doctor, &facts, mine.index);
        check_libraries(&doctor, &facts);
        check_place(&doctor, &facts);
        dev->backend->read_sample(dev, &sample);
        check_sample(&doctor, &sample);
        check_copies(&doctor, dev);
    }
    dev->backend->close(dev);
}
