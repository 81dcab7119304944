/* What a loader may be asked for, and what follows from it. */
#include "loader/loader_internal.h"

#include <math.h>
#include <string.h>

#include "base/size.h"
#include "base/system.h"

#define ALIGNMENT ((size_t)256)
#define PAGE ((size_t)4096)

void loader_settings_defaults(struct loader_settings *settings)
{
    struct system_facts facts;
    system_read_facts(&facts);
    memset(settings, 0, sizeof *settings);
    settings->batch_size = 64;
    settings->num_workers = facts.cpus_allowed > 1 ? facts.cpus_allowed - 1 : 1;
    settings->persistent_workers = true;
    settings->prefetch_epochs = true;
    settings->timing = true;
    settings->shuffle = true;
    settings->size = 32;
    for (int c = 0; c < 3; c++) {
        settings->mean[c] = 0.5f;
        settings->deviation[c] = 0.25f;
    }
    augment_settings_defaults(&settings->augment);
    image_settings_defaults(&settings->image);
    settings->world = 1;
}

/* `low` to `high`, both included. */
static enum status check_range(const char *name, long long value, long long low, long long high)
{
    if (value < low || value > high) {
        return FAIL(STATUS_USAGE, "%s is %lld; it must be %lld to %lld", name, value, low, high);
    }
    return STATUS_OK;
}

static enum status check_settings(const struct loader_settings *s)
{
    TRY(check_range("batch_size (--batch-size)", s->batch_size, 1, 65536));
    TRY(check_range("num_workers (--num-workers)", s->num_workers, 0, 1024));
    if (s->prefetch != 0) {
        TRY(check_range("prefetch (--prefetch)", s->prefetch, 2, 256));
    }
    TRY(check_range("size (--size)", s->size, 4, 4096));
    TRY(check_range("keep_shadows (--verify-batches)", s->keep_shadows, 0, 64));
    TRY(check_range("pin_memory (--pin-memory)", s->pin_memory, PIN_OFF, PIN_AUTO));
    TRY(check_range("pin_how (--pin-how)", s->pin_how, PIN_REGISTER, PIN_ALLOC));
    TRY(check_range("copy_stream (--copy-stream)", s->copy_stream, COPY_STREAM_DEDICATED,
                    COPY_STREAM_COMPUTE));
    TRY(check_range("transfer (--transfer)", s->transfer, TRANSFER_U8, TRANSFER_F32));
    TRY(check_range("staging (--staging)", s->staging, STAGING_SLOT, STAGING_THREAD));
    TRY(check_range("stores (--stores)", s->stores, STORES_AUTO, STORES_STREAMED));
    TRY(check_range("cache (--cache)", s->cache, CACHE_NONE, CACHE_DECODED));
    TRY(check_range("on_bad_image (--on-bad-image)", s->on_bad_image, BAD_IMAGE_STOP,
                    BAD_IMAGE_SKIP));
    TRY(check_range("io (--io)", s->io, IO_THREADS, IO_MMAP));
    if (!(s->label_smoothing >= 0 && s->label_smoothing < 1)) {
        return FAIL(STATUS_USAGE,
                    "label_smoothing (--label-smoothing) is %g; it must be 0 to below 1",
                    s->label_smoothing);
    }
    for (int c = 0; c < 3; c++) {
        if (!isfinite(s->mean[c])) {
            return FAIL(STATUS_USAGE, "mean of channel %d is not finite", c);
        }
        if (!isfinite(s->deviation[c]) || s->deviation[c] <= 0) {
            return FAIL(STATUS_USAGE, "deviation of channel %d is %g; it must be above 0", c,
                        (double)s->deviation[c]);
        }
    }
    return STATUS_OK;
}

/* The ring when none is asked for: one batch is computed, one crosses the bus, and enough are being
 * filled that a batch with slow images does not leave the workers without work. */
static int choose_slots(const struct loader_settings *s, size_t slot_bytes, uint64_t memory)
{
    int filling = (s->num_workers + 1) / 2;
    if (filling < 2) {
        filling = 2;
    }
    if (filling > 8) {
        filling = 8;
    }
    int needed = (2 * s->num_workers + s->batch_size - 1) / s->batch_size;
    if (filling < needed) {
        filling = needed;
    }
    int slots = filling + 2 < 256 ? filling + 2 : 256;
    while (slots > 3 && slot_bytes > memory / 10 / (uint64_t)slots) {
        slots--;
    }
    return slots;
}

static enum status lay_out(loader *l)
{
    const struct loader_settings *s = &l->settings;
    struct loader_layout *layout = &l->layout;
    struct system_facts facts;
    system_read_facts(&facts);
    layout->classes = dataset_class_count(l->set);
    size_t edge = (size_t)s->size;
    l->image_bytes = edge * edge * 3 * (s->transfer == TRANSFER_F32 ? sizeof(float) : 1);
    layout->scalars_offset = 0;
    layout->targets_offset = size_align(sizeof(struct step_scalars), ALIGNMENT);
    size_t targets = 0;
    size_t pixels = 0;
    if (!size_multiply((size_t)s->batch_size * sizeof(float), (size_t)layout->classes, &targets) ||
        !size_multiply((size_t)s->batch_size, l->image_bytes, &pixels) ||
        !size_add(targets, 2 * ALIGNMENT + PAGE, &targets) ||
        !size_add(targets, pixels, &layout->slot_bytes)) {
        return FAIL(STATUS_USAGE, "a batch of %d images of %d x %d does not fit into memory",
                    s->batch_size, s->size, s->size);
    }
    layout->pixels_offset =
        layout->targets_offset +
        size_align((size_t)s->batch_size * (size_t)layout->classes * sizeof(float), ALIGNMENT);
    layout->slot_bytes = layout->pixels_offset + pixels;
    layout->slots =
        s->prefetch != 0 ? s->prefetch : choose_slots(s, layout->slot_bytes, facts.memory_total);
    size_t all = 0;
    if (!size_multiply(size_align(layout->slot_bytes, PAGE), (size_t)layout->slots, &all) ||
        all > facts.memory_total) {
        return FAIL(STATUS_USAGE,
                    "a ring of %d batches of %zu bytes is more than this machine's memory of %llu; "
                    "use a smaller --batch-size, --size or --prefetch",
                    layout->slots, layout->slot_bytes, (unsigned long long)facts.memory_total);
    }
    return STATUS_OK;
}

/* What systems report as the last-level cache may be the sum of many, none of which is larger. */
#define LARGEST_CACHE (UINT64_C(64) << 20)
#define USUAL_CACHE (UINT64_C(32) << 20)
/* Seen with one and two workers: while the memory keeps up, a streaming store takes 1.3 times as long as
 * a plain one. Many workers are bound by the memory, to which a plain store costs a read besides: with 15,
 * beside an H200, streamed floats came 1.04 times as fast. */
#define STREAMING_WORKERS 4

static bool choose_streaming(const loader *l)
{
    const struct loader_settings *s = &l->settings;
    struct system_facts facts;
    if (s->stores != STORES_AUTO) {
        return s->stores == STORES_STREAMED;
    }
    system_read_facts(&facts);
    uint64_t cache = facts.last_level_cache > 0 ? facts.last_level_cache : USUAL_CACHE;
    cache = cache < LARGEST_CACHE ? cache : LARGEST_CACHE;
    return s->staging == STAGING_SLOT && s->keep_shadows == 0 &&
           s->num_workers >= STREAMING_WORKERS &&
           (uint64_t)l->layout.slot_bytes * (uint64_t)l->layout.slots > cache;
}

/* At most so many that every worker finds some twice over in the batches that can be filled at once;
 * one by one in the main thread, which looks for a request to stop in between. */
#define MOST_PLACES 16

static int choose_places(const loader *l)
{
    int64_t filling = l->layout.slots > 2 ? l->layout.slots - 2 : 1;
    int workers = l->settings.num_workers;
    int64_t most = workers > 0 ? l->settings.batch_size * filling / (2 * (int64_t)workers) : 1;
    return (int)(most < 1 ? 1 : most < MOST_PLACES ? most : MOST_PLACES);
}

/*
 * What a decoded cache may keep. Where the file is always brought to the final size in the same way
 * and chance comes after (flip, padded crop), pixels of final size are kept; otherwise the whole
 * image. The way is the same whether a sample is found in the cache or not, so that what happens to
 * fit changes no pixel.
 */
static void settle_augment(loader *l)
{
    struct augment_settings *augment = &l->settings.augment;
    l->cache_base_is_final = augment->kind != AUGMENT_RESIZED_CROP;
    l->base_augment = *augment;
    l->base_augment.flip = 0;
    if (augment->kind == AUGMENT_PADDED_CROP) {
        l->base_augment.kind = AUGMENT_NONE;
    }
    l->rest_augment = *augment;
    if (augment->kind == AUGMENT_CENTRE) {
        l->rest_augment.kind = AUGMENT_NONE;
    }
}

enum status loader__settle(loader *l)
{
    struct loader_settings *s = &l->settings;
    TRY(check_settings(s));
    s->augment.size = (uint32_t)s->size;
    TRY(augment_settings_check(&s->augment));
    l->sampler = (struct sampler){.count = dataset_count(l->set),
                                  .batch_size = s->batch_size,
                                  .shuffle = s->shuffle,
                                  .drop_last = s->drop_last,
                                  .seed = s->seed,
                                  .rank = s->rank,
                                  .world = s->world};
    TRY(sampler_init(&l->sampler));
    TRY(lay_out(l));
    l->staging.streamed = choose_streaming(l);
    l->most_places = choose_places(l);
    settle_augment(l);
    l->layout.batches = l->sampler.batches;
    l->layout.last_batch = l->sampler.last_batch > 0 ? l->sampler.last_batch : 1;
    /* Files are asked for far enough ahead that every worker has some to wait for. */
    int ahead = 4 * s->num_workers > 64 ? 4 * s->num_workers : 64;
    l->ahead_batches = (ahead + s->batch_size - 1) / s->batch_size;
    return STATUS_OK;
}
