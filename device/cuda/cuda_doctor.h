/* What the CUDA device exports, and what doctor shares with opening. */
#ifndef PINLINE_DEVICE_CUDA_DOCTOR_H
#define PINLINE_DEVICE_CUDA_DOCTOR_H

#include "device/device_backend.h"

int pinline_cuda_version(void);
enum status pinline_cuda_open(const struct device_settings *settings, device **out) MUST_USE;
void pinline_cuda_doctor(const struct device_settings *settings, device_doctor_line line,
                         void *context);

/* Looks for driver, GPU number `index` and versions that fit; *count is the number of GPUs.
 * STATUS_NOT_FOUND, STATUS_USAGE (index), STATUS_DEVICE, each with the remedy. */
enum status cuda__check_machine(int index, int *count) MUST_USE;

/* NUMA node of a PCI device, -1 when unknown. */
int cuda__numa_node(const char *pci_bus);

#endif
