#include "tests/support/loader_set.h"

#include <check.h>
#include <ftw.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"

uint8_t loader_set_pixel(int sample, size_t at)
{
    uint32_t x = (uint32_t)sample * 2654435761U + (uint32_t)at * 40503U + 12345U;
    x ^= x >> 15;
    x *= 2246822519U;
    return (uint8_t)(x >> 24);
}

int loader_set_label(const struct loader_set *set, int sample)
{
    return sample < (set->count + 1) / 2 ? 0 : 1;
}

char *loader_set_path(const struct loader_set *set, int sample, char text[PATH_MAX])
{
    snprintf(text, PATH_MAX, "%s/%c/%06d.ppm", set->folder,
             loader_set_label(set, sample) == 0 ? 'a' : 'b', sample);
    return text;
}

size_t loader_set_file_bytes(const struct loader_set *set)
{
    return (size_t)set->size * (size_t)set->size * 3 + 32;
}

size_t loader_set_encode(const struct loader_set *set, int sample, unsigned char *file)
{
    int header = snprintf((char *)file, 32, "P6\n%d %d\n255\n", set->size, set->size);
    size_t pixels = (size_t)set->size * (size_t)set->size * 3;
    for (size_t i = 0; i < pixels; i++) {
        file[(size_t)header + i] = loader_set_pixel(sample, i);
    }
    return (size_t)header + pixels;
}

void loader_set_replace(const struct loader_set *set, int sample, const void *data, size_t bytes)
{
    char path[PATH_MAX];
    FILE *file = fopen(loader_set_path(set, sample, path), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

void loader_set_make_pipe(const struct loader_set *set, int sample)
{
    char path[PATH_MAX];
    ck_assert_int_eq(unlink(loader_set_path(set, sample, path)), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
}

void loader_set_remove_files(const struct loader_set *set)
{
    char path[PATH_MAX];
    for (int i = 0; i < set->count; i++) {
        ck_assert_int_eq(unlink(loader_set_path(set, i, path)), 0);
    }
}

void loader_set_open(struct loader_set *set, int count, int size, enum host_mode mode)
{
    memset(set, 0, sizeof *set);
    set->count = count;
    set->size = size;
    snprintf(set->folder, sizeof set->folder, "/tmp/pinline_loader_XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(set->folder));
    char path[PATH_MAX];
    for (int class_id = 0; class_id < 2; class_id++) {
        snprintf(path, sizeof path, "%s/%c", set->folder, "ab"[class_id]);
        ck_assert_int_eq(mkdir(path, 0700), 0);
    }
    unsigned char *file = malloc(loader_set_file_bytes(set));
    ck_assert_ptr_nonnull(file);
    for (int i = 0; i < count; i++) {
        loader_set_replace(set, i, file, loader_set_encode(set, i, file));
    }
    free(file);
    const struct dataset_settings data = {.data = set->folder};
    ck_assert_msg(dataset_open(&data, &set->set, NULL) == STATUS_OK, "%s", status_message());
    ck_assert_uint_eq(dataset_count(set->set), (size_t)count);
    struct device_settings settings;
    device_settings_defaults(&settings);
    settings.kind = DEVICE_HOST;
    settings.host_mode = mode;
    settings.host_threads = 1;
    settings.simulated = (struct host_simulation){
        .pageable_bytes_per_s = 10e6, .locked_bytes_per_s = 20e6, .copy_start_s = 20e-6};
    ck_assert_msg(device_open(&settings, &set->dev) == STATUS_OK, "%s", status_message());
    ck_assert_int_eq(device_stream_create(set->dev, "compute", &set->stream), STATUS_OK);
}

static int remove_entry(const char *path, const struct stat *facts, int kind, struct FTW *where)
{
    (void)facts;
    (void)kind;
    (void)where;
    return remove(path);
}

void loader_set_close(struct loader_set *set)
{
    device_stream_destroy(set->dev, &set->stream);
    device_close(&set->dev);
    dataset_close(&set->set);
    ck_assert_int_eq(nftw(set->folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS), 0);
}

loader *loader_set_open_loader(const struct loader_set *set, const struct loader_settings *settings)
{
    loader *l = NULL;
    ck_assert_msg(loader_open(settings, set->set, set->dev, set->stream, &l) == STATUS_OK, "%s",
                  status_message());
    return l;
}

void loader_set_await_read(const struct loader_set *set, loader *l, uint64_t images)
{
    struct loader_counters counters;
    unsigned char file[512];
    uint64_t wanted = images * loader_set_encode(set, 0, file);
    uint64_t until = clock_now_ns() + UINT64_C(20000000000);
    do {
        clock_sleep_ns(1000000);
        loader_read_counters(l, &counters);
    } while (counters.bytes_read < wanted && clock_now_ns() < until);
    ck_assert_uint_eq(counters.bytes_read, wanted);
}

void loader_set_settings(const struct loader_set *set, struct loader_settings *settings)
{
    loader_settings_defaults(settings);
    settings->batch_size = 4;
    settings->num_workers = 2;
    settings->prefetch = 4;
    settings->shuffle = false;
    settings->size = set->size;
}

static struct seen_batch *append(struct seen *seen, const struct batch *batch)
{
    if (seen->count == seen->capacity) {
        seen->capacity = seen->capacity == 0 ? 64 : seen->capacity * 2;
        seen->batches = realloc(seen->batches, seen->capacity * sizeof *seen->batches);
        ck_assert_ptr_nonnull(seen->batches);
    }
    struct seen_batch *kept = &seen->batches[seen->count++];
    size_t n = (size_t)batch->n;
    *kept = (struct seen_batch){
        .n = batch->n, .good = batch->good, .epoch = batch->epoch, .index = batch->index};
    kept->samples = malloc(n * sizeof *kept->samples);
    kept->labels = malloc(n * sizeof *kept->labels);
    kept->block = calloc(1, seen->layout.slot_bytes);
    ck_assert(kept->samples != NULL && kept->labels != NULL && kept->block != NULL);
    memcpy(kept->samples, batch->samples, n * sizeof *kept->samples);
    memcpy(kept->labels, batch->labels, n * sizeof *kept->labels);
    return kept;
}

enum status seen_read(struct seen *seen, const struct loader_set *set, loader *l, uint32_t epoch,
                      uint32_t first_batch, size_t limit)
{
    loader_read_layout(l, &seen->layout);
    seen->image_bytes = (size_t)set->size * (size_t)set->size * 3;
    if (first_batch != UINT32_MAX) {
        TRY(loader_begin_epoch(l, epoch, first_batch));
    }
    for (size_t i = 0; i < limit; i++) {
        struct batch *batch = NULL;
        TRY(loader_next(l, &batch));
        if (batch == NULL) {
            break;
        }
        batch->scalars->rate = (float)batch->index;
        const struct seen_batch *kept = append(seen, batch);
        TRY(loader_upload(l, batch));
        TRY(device_copy_to_host(set->dev, set->stream, kept->block, batch->buffer, 0,
                                seen->layout.slot_bytes));
        TRY(loader_release(l, &batch));
        ck_assert_ptr_null(batch);
    }
    return device_stream_wait(set->dev, set->stream);
}

void seen_free(struct seen *seen)
{
    for (size_t i = 0; i < seen->count; i++) {
        free(seen->batches[i].samples);
        free(seen->batches[i].labels);
        free(seen->batches[i].block);
    }
    free(seen->batches);
    memset(seen, 0, sizeof *seen);
}

static const unsigned char *pixels_of(const struct seen *seen, const struct seen_batch *batch,
                                      int place)
{
    return batch->block + seen->layout.pixels_offset + (size_t)place * seen->image_bytes;
}

size_t seen_wrong_bytes(const struct seen *seen)
{
    size_t wrong = 0;
    for (size_t i = 0; i < seen->count; i++) {
        const struct seen_batch *batch = &seen->batches[i];
        float rate = 0;
        memcpy(&rate, batch->block + seen->layout.scalars_offset, sizeof rate);
        wrong += rate != (float)batch->index ? 1 : 0;
        for (int place = 0; place < batch->n; place++) {
            const unsigned char *pixels = pixels_of(seen, batch, place);
            for (size_t at = 0; at < seen->image_bytes; at++) {
                wrong += pixels[at] != loader_set_pixel((int)batch->samples[place], at) ? 1 : 0;
            }
        }
    }
    return wrong;
}

size_t seen_wrong_targets(const struct seen *seen, double on, double off)
{
    size_t wrong = 0;
    for (size_t i = 0; i < seen->count; i++) {
        const struct seen_batch *batch = &seen->batches[i];
        for (int place = 0; place < batch->n; place++) {
            for (int c = 0; c < seen->layout.classes; c++) {
                size_t at = (size_t)place * (size_t)seen->layout.classes + (size_t)c;
                double wanted = 0;
                if (batch->labels[place] >= 0) {
                    wanted = (c == batch->labels[place] ? on : off) / batch->good;
                }
                float row = 0;
                memcpy(&row, batch->block + seen->layout.targets_offset + at * sizeof row,
                       sizeof row);
                wrong += fabs(row - wanted) > 1e-7 ? 1 : 0;
            }
        }
    }
    return wrong;
}

int seen_equal(const struct seen *a, const struct seen *b)
{
    if (a->count != b->count) {
        return 0;
    }
    for (size_t i = 0; i < a->count; i++) {
        const struct seen_batch *x = &a->batches[i];
        const struct seen_batch *y = &b->batches[i];
        size_t bytes = (size_t)x->n * a->image_bytes;
        size_t rows = (size_t)x->n * (size_t)a->layout.classes * sizeof(float);
        if (x->n != y->n || x->good != y->good || x->epoch != y->epoch || x->index != y->index ||
            memcmp(x->samples, y->samples, (size_t)x->n * sizeof *x->samples) != 0 ||
            memcmp(x->labels, y->labels, (size_t)x->n * sizeof *x->labels) != 0 ||
            memcmp(pixels_of(a, x, 0), pixels_of(b, y, 0), bytes) != 0 ||
            memcmp(x->block + a->layout.targets_offset, y->block + b->layout.targets_offset,
                   rows) != 0) {
            return 0;
        }
    }
    return 1;
}

size_t loader_set_wrong_bytes(enum copy_stream copy_stream, enum staging staging, int workers)
{
    struct loader_set set;
    struct loader_settings settings;
    struct seen seen = {.count = 0};
    loader *l = NULL;
    loader_set_open(&set, 64, 8, HOST_DEFERRED);
    loader_set_settings(&set, &settings);
    settings.pin_memory = PIN_ON;
    settings.non_blocking = true;
    settings.copy_stream = copy_stream;
    settings.staging = staging;
    settings.num_workers = workers;
    settings.shuffle = true;
    ck_assert_int_eq(loader_open(&settings, set.set, set.dev, set.stream, &l), STATUS_OK);
    for (uint32_t epoch = 0; epoch < 2; epoch++) {
        ck_assert_int_eq(seen_read(&seen, &set, l, epoch, 0, SIZE_MAX), STATUS_OK);
    }
    const size_t wrong = seen_wrong_bytes(&seen);
    loader_close(&l);
    seen_free(&seen);
    loader_set_close(&set);
    return wrong;
}
