#include "loader/loader_internal.h"

void loader_copy_events(const loader *loader, int slot, device_event **from, device_event **to)
{
    *from = loader->copy_begun[slot];
    *to = loader->copied[slot];
}
