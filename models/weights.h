/* A network's parameters from a safetensors file: all of them, or none. */
#ifndef PINLINE_MODELS_WEIGHTS_H
#define PINLINE_MODELS_WEIGHTS_H

#include "base/status.h"
#include "models/network.h"
#include "models/safetensors.h"

/*
 * Sets every parameter of `net` from `file` (path and model's name are for messages). Each one must
 * be there under its name, in its shape, as F32 (batch counters I64, which may be absent and are
 * zero then) and finite, and nothing else may be there.
 * STATUS_MISMATCH names every difference, missing, unexpected or of another shape, as far as the
 * message has room, or the two numbers of classes when these are all; STATUS_INVALID for values that
 * are not finite; STATUS_DEVICE. Nothing changes unless all fits. Called by the device's thread.
 */
enum status weights_load(const char *path, const char *model, const safetensors *file,
                         network *net) MUST_USE;

#endif
