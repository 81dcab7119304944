/* Lowering: windows of max pools. */
#include <assert.h>

#include "models/lowering_internal.h"

/* Windows that cover an edge exactly, if need be with overlap, which does a maximum no harm. */
static void choose_window(int edge, int *window, int *stride)
{
    *window = *stride = edge;
    int fewest = edge;
    for (int w = 2; edge > GLOBAL_WINDOW && w <= GLOBAL_WINDOW; w++) {
        for (int s = 1; s <= w; s++) {
            const int count = (edge - w) / s + 1;
            if ((edge - w) % s == 0 && count < fewest) {
                fewest = count;
                *window = w;
                *stride = s;
            }
        }
    }
}

struct pooling lowering__pooling(const struct lowering *low, int i)
{
    const struct layer *layer = &low->net->model->layers[i];
    return (struct pooling){.window = layer->window,
                            .stride = layer->stride,
                            .pad = layer->pad,
                            .out = low->net->extents[i + 1]};
}

/* The stages of a global maximum; returns their number. */
int lowering__global_poolings(const struct lowering *low, int i,
                              struct pooling poolings[GLOBAL_STAGES])
{
    struct extent extent =
        low->net->extents[network__input_layer(i, low->net->model->layers[i].from)];
    int count = 0;
    do {
        assert(count < GLOBAL_STAGES && extent.h == extent.w);
        struct pooling *pooling = &poolings[count];
        *pooling = (struct pooling){.stage = count};
        choose_window(extent.h, &pooling->window, &pooling->stride);
        extent.h = extent.w = (extent.h - pooling->window) / pooling->stride + 1;
        pooling->out = extent;
        count++;
    } while (extent.h > 1);
    return count;
}
