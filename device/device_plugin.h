/*
 * Finding and opening the CUDA device, which is a library of its own so that the program starts on
 * machines without CUDA. Only device.c includes this. Not thread-safe.
 */
#ifndef PINLINE_DEVICE_DEVICE_PLUGIN_H
#define PINLINE_DEVICE_DEVICE_PLUGIN_H

#include "device/device.h"

/*
 * Opens the CUDA device. The library is looked for beside the executable, one and two folders
 * up, and in ../lib/pinline; libraries of CUDA that the dynamic linker does not find are looked for in
 * settings->cuda_libs, in the folders below it that Python environments use, and in the usual
 * places. STATUS_NOT_FOUND when there is no library, with where it looked, or one of CUDA's is
 * missing, with its name; STATUS_MISMATCH when it belongs to another build; otherwise what the
 * library's own open returns.
 */
enum status device__open_plugin(const struct device_settings *settings, device **out) MUST_USE;

/* Doctor's lines about CUDA: the library's own, or the one that says why it cannot be opened. */
void device__plugin_doctor(const struct device_settings *settings, device_doctor_line line,
                           void *context);

#endif
