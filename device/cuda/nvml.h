/*
 * The few functions of NVIDIA's management library that are used, opened by name at run time: its
 * header is in no package, and a machine without it only loses the readings. NVML itself may be called
 * from any thread.
 */
#ifndef PINLINE_DEVICE_CUDA_NVML_H
#define PINLINE_DEVICE_CUDA_NVML_H

#include "device/device.h"

struct nvml;

/* Opens the library and finds the GPU by its PCI address ("0000:3b:00.0"). NULL, without a failure,
 * when the library, a symbol that is needed, or the GPU is not there. */
struct nvml *nvml_open(const char *pci_bus);
void nvml_close(struct nvml **nvml);

/* "580.159.04", "" when unknown. Accepts NULL. */
const char *nvml_driver(const struct nvml *nvml);

struct nvml_link {
    int generation, width;         /* as linked now, 0 when unknown */
    int generation_max, width_max; /* as GPU and slot could */
};
void nvml_read_link(const struct nvml *nvml, struct nvml_link *link);

/* Fills in *sample; sample->valid stays false when nvml is NULL. */
void nvml_read_sample(const struct nvml *nvml, struct device_sample *sample);

/* Names of the bits of throttle_reasons that slow the GPU down against its will, "" for none. */
char *nvml_throttle_text(uint64_t reasons, char *text, size_t bytes);

#endif
