/* One image: found, read, decoded into its place, with its label and target. */
#include "loader/loader_internal.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "base/stop.h"

/* A read that takes longer than this, and a nanosecond a byte besides, waited for storage. */
#define SLOW_READ_NS UINT64_C(100000)
/* So many of about 64 reads must be slow before files are asked for ahead: for files in memory the
 * extra calls only cost. */
#define SLOW_READS_PAY 16

enum status loader__worker_create(loader *l, struct worker **out)
{
    struct worker *worker = aligned_alloc(alignof(struct worker), sizeof *worker);
    *out = worker;
    if (worker == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the loader's workers");
    }
    memset(worker, 0, sizeof *worker);
    worker->loader = l;
    worker->file_limit = l->settings.image.max_file_bytes;
    worker->map_files = l->settings.io == IO_MMAP;
    return image_decoder_open(&l->settings.image, &worker->decoder);
}

void loader__worker_destroy(struct worker **worker)
{
    if (*worker != NULL) {
        loader__read_end(*worker);
        image_decoder_close(&(*worker)->decoder);
        free((*worker)->file);
        free((*worker)->base);
        free(*worker);
        *worker = NULL;
    }
}

/* --- Where the bytes are ------------------------------------------------------------------- */

/* The encoded or decoded bytes of one sample. */
struct source {
    enum sample_content content; /* SAMPLE_FILE never: what was read is SAMPLE_ENCODED */
    const void *data;
    size_t bytes;
    uint32_t width, height; /* SAMPLE_PIXELS */
    bool from_file;
};

/* Outcome of one place. */
struct outcome {
    enum status status;
    bool fatal;     /* not the image's fault */
    bool abandoned; /* touch nothing */
};

static void note_read(struct worker *worker, uint64_t ns, size_t bytes)
{
    if (ns > SLOW_READ_NS + bytes) {
        worker->slow_reads += worker->slow_reads < 64 ? 1 : 0;
    } else if (worker->slow_reads > 0) {
        worker->slow_reads--;
    }
}

static enum status read_file(struct worker *worker, struct source *source, struct outcome *outcome)
{
    bool bad = false;
    /* From here on the worker touches only what is its own, until it has come back. */
    atomic_store(&worker->activity, ACTIVITY_READING);
    enum status status = loader__read_begin(worker, &source->data, &source->bytes, &bad);
    int reading = ACTIVITY_READING;
    outcome->abandoned =
        !atomic_compare_exchange_strong(&worker->activity, &reading, ACTIVITY_BUSY);
    outcome->fatal = !bad;
    return status;
}

static enum status find_source(struct worker *worker, uint32_t sample, struct source *source,
                               struct outcome *outcome)
{
    loader *l = worker->loader;
    if (l->settings.cache == CACHE_ENCODED) {
        const struct cache_entry *entry = loader__cache_find(&l->cache, sample);
        if (entry != NULL) {
            *source = (struct source){
                .content = SAMPLE_ENCODED, .data = entry->data, .bytes = entry->bytes};
            loader__count(&worker->counts.cache_hits, 1);
            return STATUS_OK;
        }
    }
    struct sample_location location;
    memset(&location, 0, sizeof location);
    dataset_locate(l->set, sample, worker->path, sizeof worker->path, &location);
    *source = (struct source){.content = location.content,
                              .data = location.data,
                              .bytes = location.bytes,
                              .width = (uint32_t)location.width,
                              .height = (uint32_t)location.height};
    if (location.content != SAMPLE_FILE) {
        return STATUS_OK;
    }
    source->content = SAMPLE_ENCODED;
    source->from_file = true;
    uint64_t begin = clock_now_ns();
    TRY(read_file(worker, source, outcome));
    if (!outcome->abandoned) {
        uint64_t took = clock_now_ns() - begin;
        note_read(worker, took, source->bytes);
        loader__count(&worker->counts.bytes_read, source->bytes);
        if (l->settings.cache == CACHE_ENCODED) {
            loader__cache_insert(&l->cache, sample, 0, 0, source->data, source->bytes);
        }
    }
    return STATUS_OK;
}

/* --- Decoding ------------------------------------------------------------------------------ */

static void draw_view(const loader *l, const struct augment_settings *augment, uint32_t epoch,
                      uint32_t sample, uint32_t width, uint32_t height, struct image_view *view)
{
    if (!augment_is_random(augment)) {
        augment_draw(augment, width, height, NULL, view);
        return;
    }
    struct rng rng;
    rng_init(&rng, l->settings.seed, RNG_AUGMENT, epoch, sample);
    augment_draw(augment, width, height, &rng, view);
}

/* Where in the slot, and as what. */
static struct image_output output_at(const loader *l, void *pixels)
{
    struct image_output output = {.format =
                                      l->settings.transfer == TRANSFER_F32 ? IMAGE_F32 : IMAGE_U8,
                                  .pixels = pixels,
                                  .streamed = l->staging.streamed};
    for (int c = 0; c < 3; c++) {
        output.mean[c] = l->settings.mean[c];
        output.std[c] = l->settings.deviation[c];
    }
    return output;
}

static enum status source_size(struct worker *worker, const struct source *source, uint32_t *width,
                               uint32_t *height)
{
    if (source->content == SAMPLE_PIXELS) {
        *width = source->width;
        *height = source->height;
        return STATUS_OK;
    }
    struct image_facts facts;
    TRY(image_probe(worker->decoder, source->data, source->bytes, &facts));
    *width = facts.width;
    *height = facts.height;
    return STATUS_OK;
}

static enum status render(struct worker *worker, const struct source *source,
                          const struct image_view *view, const struct image_output *output)
{
    if (source->content == SAMPLE_PIXELS) {
        return image_render_pixels(worker->decoder, source->data, source->width, source->height, 3,
                                   view, output);
    }
    return image_render(worker->decoder, source->data, source->bytes, view, output);
}

/* From pixels as the decoded cache keeps them to the slot. */
static enum status render_base(struct worker *worker, const struct slot *slot, uint32_t sample,
                               const unsigned char *base, uint32_t width, uint32_t height,
                               unsigned char *pixels)
{
    const loader *l = worker->loader;
    struct image_view view;
    draw_view(l, &l->rest_augment, slot->epoch, sample, width, height, &view);
    struct image_output output = output_at(l, pixels);
    return image_render_pixels(worker->decoder, base, width, height, 3, &view, &output);
}

/* The decoded cache's way: first to what it keeps, then to the slot. */
static enum status decode_by_base(struct worker *worker, const struct slot *slot, uint32_t sample,
                                  const struct source *source, unsigned char *pixels)
{
    loader *l = worker->loader;
    uint32_t width = 0;
    uint32_t height = 0;
    TRY(source_size(worker, source, &width, &height));
    uint32_t size = (uint32_t)l->settings.size;
    if (source->content == SAMPLE_PIXELS &&
        (!l->cache_base_is_final || (width == size && height == size))) {
        /* It lies in memory as the cache would keep it. */
        return render_base(worker, slot, sample, source->data, width, height, pixels);
    }
    size_t bytes = l->cache_base_is_final ? (size_t)size * size * 3 : (size_t)width * height * 3;
    TRY(loader__grow(&worker->base, &worker->base_capacity, bytes));
    if (l->cache_base_is_final) {
        struct image_view view;
        draw_view(l, &l->base_augment, slot->epoch, sample, width, height, &view);
        struct image_output output = {.format = IMAGE_U8, .pixels = worker->base};
        TRY(render(worker, source, &view, &output));
        width = size;
        height = size;
    } else {
        TRY(image_decode_rgb(worker->decoder, source->data, source->bytes, worker->base, bytes,
                             NULL));
    }
    loader__cache_insert(&l->cache, sample, width, height, worker->base, bytes);
    return render_base(worker, slot, sample, worker->base, width, height, pixels);
}

static enum status decode(struct worker *worker, const struct slot *slot, uint32_t sample,
                          const struct source *source, unsigned char *pixels)
{
    const loader *l = worker->loader;
    if (l->settings.cache == CACHE_DECODED) {
        return decode_by_base(worker, slot, sample, source, pixels);
    }
    uint32_t width = 0;
    uint32_t height = 0;
    TRY(source_size(worker, source, &width, &height));
    struct image_view view;
    draw_view(l, &l->settings.augment, slot->epoch, sample, width, height, &view);
    struct image_output output = output_at(l, pixels);
    return render(worker, source, &view, &output);
}

/* --- One place ----------------------------------------------------------------------------- */

static enum status fill_pixels(struct worker *worker, const struct slot *slot, uint32_t sample,
                               unsigned char *pixels, struct outcome *outcome)
{
    loader *l = worker->loader;
    uint64_t begin = loader__now(l);
    if (l->settings.cache == CACHE_DECODED) {
        const struct cache_entry *entry = loader__cache_find(&l->cache, sample);
        if (entry != NULL) {
            loader__count(&worker->counts.cache_hits, 1);
            outcome->fatal = true;
            TRY(render_base(worker, slot, sample, entry->data, entry->width, entry->height,
                            pixels));
            loader__count(&worker->counts.write_ns, loader__now(l) - begin);
            return STATUS_OK;
        }
    }
    struct source source;
    enum status status = find_source(worker, sample, &source, outcome);
    if (outcome->abandoned) {
        return status;
    }
    uint64_t found = loader__now(l);
    loader__count(&worker->counts.read_ns, found - begin);
    if (status == STATUS_OK) {
        status = decode(worker, slot, sample, &source, pixels);
        outcome->fatal = status == STATUS_NO_MEMORY || status == STATUS_INTERNAL;
        loader__count(&worker->counts.decode_ns, loader__now(l) - found);
        if (source.from_file) {
            loader__read_end(worker);
        }
    }
    return status;
}

static void ask_ahead(struct worker *worker, const struct slot *slot, int place)
{
    const loader *l = worker->loader;
    if (worker->slow_reads < SLOW_READS_PAY || place >= slot->ahead_count ||
        loader__cache_find(&l->cache, slot->ahead[place]) != NULL) {
        return;
    }
    struct sample_location location;
    dataset_locate(l->set, slot->ahead[place], worker->ahead_path, sizeof worker->ahead_path,
                   &location);
    if (location.content == SAMPLE_FILE) {
        loader__read_ahead(worker);
    }
}

/* An image of the decoded cache lies anywhere in memory: its beginning is fetched while the one before
 * it is written. */
static void fetch_ahead(const loader *l, uint32_t sample)
{
    const struct cache_entry *entry = loader__cache_find(&l->cache, sample);
    if (entry != NULL) {
        __builtin_prefetch(entry);
        __builtin_prefetch((const unsigned char *)entry + 64);
        __builtin_prefetch((const unsigned char *)entry + 128);
    }
}

/* false: abandoned. */
static bool fill_place(struct worker *worker, struct slot *slot, int place)
{
    loader *l = worker->loader;
    uint32_t sample = slot->samples[place];
    unsigned char *pixels = slot->pixels + (size_t)place * l->image_bytes;
    struct outcome outcome = {.status = STATUS_OK};
    ask_ahead(worker, slot, place);
    outcome.status = fill_pixels(worker, slot, sample, pixels, &outcome);
    if (outcome.abandoned) {
        return false;
    }
    slot->labels[place] = slot->empty_share ? -1 : dataset_label(l->set, sample);
    loader__write_target(l, slot, place, slot->n);
    if (slot->shadow != NULL) {
        memcpy(slot->shadow + (size_t)place * l->image_bytes, pixels, l->image_bytes);
    }
    if (outcome.status != STATUS_OK) {
        loader__note_bad(l, slot, place, outcome.status, outcome.fatal);
    }
    return true;
}

static void count_cpu(struct worker *worker)
{
    if (!worker->loader->settings.timing) {
        return;
    }
    uint64_t now = clock_thread_cpu_ns();
    loader__count(&worker->counts.cpu_ns, now - worker->cpu_seen);
    worker->cpu_seen = now;
}

/* Workers that fill small images one by one would spend their time passing the counters of the slot
 * around. */
#define TAKEN_NS UINT64_C(100000)

static int places_at_once(const struct worker *worker)
{
    uint64_t most = (uint64_t)worker->loader->most_places;
    if (worker->place_ns == 0 || most == 1) {
        return 1;
    }
    uint64_t fit = TAKEN_NS / worker->place_ns;
    return (int)(fit < 1 ? 1 : fit < most ? fit : most);
}

static void note_places(struct worker *worker, uint64_t ns, int count)
{
    uint64_t each = ns / (uint64_t)count + 1;
    uint64_t falling = (3 * worker->place_ns + each) / 4;
    worker->place_ns = each > falling ? each : falling;
}

/* false: abandoned. */
static bool fill_places(struct worker *worker, struct slot *slot, int first, int count)
{
    const loader *l = worker->loader;
    uint64_t begin = clock_now_ns();
    for (int place = first; place < first + count; place++) {
        if (place + 1 < first + count) {
            fetch_ahead(l, slot->samples[place + 1]);
        }
        if (!fill_place(worker, slot, place)) {
            return false;
        }
    }
    note_places(worker, clock_now_ns() - begin, count);
    loader__finish_places(worker->loader, slot, count);
    return true;
}

bool loader__worker_fill(struct worker *worker, struct slot *slot)
{
    loader *l = worker->loader;
    /* Inline, a request to stop is met between two images; workers go on until they are told. */
    while (!atomic_load_explicit(&l->stopping, memory_order_relaxed) &&
           (l->settings.num_workers > 0 || !stop_requested())) {
        int first = 0;
        int count = loader__take_places(slot, places_at_once(worker), &first);
        if (count == 0) {
            return true;
        }
        if (!fill_places(worker, slot, first, count)) {
            return false;
        }
    }
    return true;
}

/* All threads of a process share one table of open files, which every open, read and close must guard
 * against the others: for small images that costs two workers some 4 %. A worker opens for itself alone, so
 * it takes an empty table of its own. Where the kernel does not know how, the shared one does;
 * PINLINE_ONE_FILE_TABLE is for the thread sanitizer, which takes equal numbers for the same file. */
static void take_own_file_table(void)
{
#if defined SYS_close_range && !defined PINLINE_ONE_FILE_TABLE
    const unsigned unshare = 1U << 1; /* CLOSE_RANGE_UNSHARE, which older headers lack */
    (void)syscall(SYS_close_range, STDERR_FILENO + 1U, ~0U, unshare);
#endif
}

void *loader__worker_run(void *argument)
{
    struct worker *worker = argument;
    loader *l = worker->loader;
    take_own_file_table();
    worker->cpu_seen = clock_thread_cpu_ns();
    for (;;) {
        struct slot *slot = NULL;
        if (!atomic_load_explicit(&l->stopping, memory_order_relaxed)) {
            slot = loader__find_open(l);
        }
        if (slot == NULL) {
            count_cpu(worker);
            slot = loader__take_slot(l, worker);
        }
        if (slot == NULL) {
            break;
        }
        if (!loader__worker_fill(worker, slot)) {
            loader__worker_destroy(&worker);
            return NULL;
        }
    }
    pthread_mutex_lock(&l->mutex);
    worker->ended = true;
    pthread_cond_signal(&l->ended);
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}
