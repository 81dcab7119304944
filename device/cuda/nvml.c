#include "device/cuda/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NVML_OK 0
#define NVML_CLOCK_SM 1
#define NVML_CLOCK_MEMORY 2
#define NVML_TEMPERATURE_GPU 0
#define MAX_PROCESSES 64

typedef struct nvml_gpu_struct *nvml_gpu;

/* Layouts as NVML's interface documents them. */
struct nvml_utilization {
    unsigned gpu, memory;
};
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml_process {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
};

struct nvml {
    void *library;
    nvml_gpu gpu;
    char driver[96];
    int (*shutdown)(void);
    int (*utilization)(nvml_gpu, struct nvml_utilization *);
    int (*memory)(nvml_gpu, struct nvml_memory *);
    int (*clock)(nvml_gpu, int, unsigned *);
    int (*clock_max)(nvml_gpu, int, unsigned *);
    int (*temperature)(nvml_gpu, int, unsigned *);
    int (*power)(nvml_gpu, unsigned *);
    int (*reasons)(nvml_gpu, unsigned long long *);
    int (*link_generation)(nvml_gpu, unsigned *);
    int (*link_width)(nvml_gpu, unsigned *);
    int (*link_generation_max)(nvml_gpu, unsigned *);
    int (*link_width_max)(nvml_gpu, unsigned *);
    int (*processes)(nvml_gpu, unsigned *, struct nvml_process *);
};

/* Looks a function up; POSIX says that the object pointer of dlsym may be copied into one. */
static void find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
}

struct nvml *nvml_open(const char *pci_bus)
{
    struct nvml *nvml = calloc(1, sizeof *nvml);
    if (nvml == NULL) {
        return NULL;
    }
    int (*init)(void) = NULL;
    int (*by_bus)(const char *, nvml_gpu *) = NULL;
    int (*driver)(char *, unsigned) = NULL;
    nvml->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL) {
        free(nvml);
        return NULL;
    }
    void *library = nvml->library;
    find(library, "nvmlInit_v2", &init);
    find(library, "nvmlShutdown", &nvml->shutdown);
    find(library, "nvmlDeviceGetHandleByPciBusId_v2", &by_bus);
    find(library, "nvmlSystemGetDriverVersion", &driver);
    find(library, "nvmlDeviceGetUtilizationRates", &nvml->utilization);
    find(library, "nvmlDeviceGetMemoryInfo", &nvml->memory);
    find(library, "nvmlDeviceGetClockInfo", &nvml->clock);
    find(library, "nvmlDeviceGetMaxClockInfo", &nvml->clock_max);
    find(library, "nvmlDeviceGetTemperature", &nvml->temperature);
    find(library, "nvmlDeviceGetPowerUsage", &nvml->power);
    find(library, "nvmlDeviceGetCurrentClocksEventReasons", &nvml->reasons);
    if (nvml->reasons == NULL) {
        find(library, "nvmlDeviceGetCurrentClocksThrottleReasons", &nvml->reasons);
    }
    find(library, "nvmlDeviceGetCurrPcieLinkGeneration", &nvml->link_generation);
    find(library, "nvmlDeviceGetCurrPcieLinkWidth", &nvml->link_width);
    find(library, "nvmlDeviceGetMaxPcieLinkGeneration", &nvml->link_generation_max);
    find(library, "nvmlDeviceGetMaxPcieLinkWidth", &nvml->link_width_max);
    find(library, "nvmlDeviceGetComputeRunningProcesses_v3", &nvml->processes);
    if (init == NULL || nvml->shutdown == NULL || by_bus == NULL || init() != NVML_OK) {
        dlclose(nvml->library);
        free(nvml);
        return NULL;
    }
    if (by_bus(pci_bus, &nvml->gpu) != NVML_OK) {
        nvml_close(&nvml);
        return NULL;
    }
    if (driver == NULL || driver(nvml->driver, sizeof nvml->driver) != NVML_OK) {
        nvml->driver[0] = '\0';
    }
    return nvml;
}

void nvml_close(struct nvml **nvml)
{
    if (*nvml == NULL) {
        return;
    }
    (void)(*nvml)->shutdown();
    dlclose((*nvml)->library);
    free(*nvml);
    *nvml = NULL;
}

const char *nvml_driver(const struct nvml *nvml)
{
    return nvml == NULL ? "" : nvml->driver;
}

static int read_unsigned(int (*function)(nvml_gpu, unsigned *), nvml_gpu gpu)
{
    unsigned value = 0;
    return function != NULL && function(gpu, &value) == NVML_OK ? (int)value : 0;
}

static int read_indexed(int (*function)(nvml_gpu, int, unsigned *), nvml_gpu gpu, int index)
{
    unsigned value = 0;
    return function != NULL && function(gpu, index, &value) == NVML_OK ? (int)value : 0;
}

void nvml_read_link(const struct nvml *nvml, struct nvml_link *link)
{
    *link = (struct nvml_link){0};
    if (nvml != NULL) {
        link->generation = read_unsigned(nvml->link_generation, nvml->gpu);
        link->width = read_unsigned(nvml->link_width, nvml->gpu);
        link->generation_max = read_unsigned(nvml->link_generation_max, nvml->gpu);
        link->width_max = read_unsigned(nvml->link_width_max, nvml->gpu);
    }
}

/* Processes with a context on this GPU that are not this one. In a container the driver may name
 * processes by numbers of another namespace, or none; then one of them is taken to be this one. */
static int other_processes(const struct nvml *nvml)
{
    struct nvml_process list[MAX_PROCESSES];
    unsigned count = MAX_PROCESSES;
    if (nvml->processes == NULL || nvml->processes(nvml->gpu, &count, list) != NVML_OK) {
        return -1;
    }
    int others = (int)count;
    bool seen = false;
    for (unsigned i = 0; i < count && i < MAX_PROCESSES; i++) {
        seen = seen || list[i].pid == (unsigned)getpid();
    }
    return seen || others > 0 ? others - 1 : 0;
}

void nvml_read_sample(const struct nvml *nvml, struct device_sample *sample)
{
    *sample = (struct device_sample){.other_processes = -1};
    if (nvml == NULL) {
        return;
    }
    struct nvml_utilization use = {0};
    struct nvml_memory memory = {0};
    unsigned long long reasons = 0;
    if (nvml->utilization != NULL && nvml->utilization(nvml->gpu, &use) == NVML_OK) {
        sample->gpu_percent = (int)use.gpu;
        sample->memory_percent = (int)use.memory;
    }
    if (nvml->memory != NULL && nvml->memory(nvml->gpu, &memory) == NVML_OK) {
        sample->memory_used = memory.used;
    }
    if (nvml->reasons != NULL && nvml->reasons(nvml->gpu, &reasons) == NVML_OK) {
        sample->throttle_reasons = reasons;
    }
    sample->sm_clock_mhz = read_indexed(nvml->clock, nvml->gpu, NVML_CLOCK_SM);
    sample->sm_clock_max_mhz = read_indexed(nvml->clock_max, nvml->gpu, NVML_CLOCK_SM);
    sample->memory_clock_mhz = read_indexed(nvml->clock, nvml->gpu, NVML_CLOCK_MEMORY);
    sample->temperature_c = read_indexed(nvml->temperature, nvml->gpu, NVML_TEMPERATURE_GPU);
    sample->power_w = read_unsigned(nvml->power, nvml->gpu) / 1000.0;
    sample->other_processes = other_processes(nvml);
    sample->valid = true;
}

char *nvml_throttle_text(uint64_t reasons, char *text, size_t bytes)
{
    /* Idle clocks (bit 0) and clocks that somebody asked for (bits 1 and 4) are no throttling. */
    static const struct {
        uint64_t bit;
        const char *name;
    } names[] = {{0x04, "power cap"},        {0x08, "hardware slowdown"},
                 {0x20, "thermal slowdown"}, {0x40, "hardware thermal slowdown"},
                 {0x80, "power brake"},      {0x100, "display clocks"}};
    size_t length = 0;
    text[0] = '\0';
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if ((reasons & names[i].bit) != 0 && length < bytes) {
            length += (size_t)snprintf(text + length, bytes - length, "%s%s",
                                       length == 0 ? "" : ", ", names[i].name);
        }
    }
    return text;
}
