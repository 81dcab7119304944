#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/stop.h"
#include "trainer/bench.h"
#include "trainer/commands.h"
#include "trainer/job.h"
#include "trainer/scan.h"

enum { MOST_IMAGES = 2000, MOST_ROWS = 64, KINDS = IMAGE_PNM + 1 };
static const size_t most_bytes = (size_t)256 << 20;

/* An encoded image in memory. */
struct blob {
    void *data;
    size_t bytes;
    struct image_facts facts;
};

/* One library on one kind of file. */
struct row {
    const char *library;
    enum image_kind kind;
    bool whole; /* every pixel, otherwise squashed to --size */
    size_t images;
    double images_per_s, megapixels_per_s;
};

struct decode_bench {
    const struct settings *settings;
    const struct bench_settings *bench;
    struct blob *blobs;
    size_t count, bytes;
    uint8_t *pixels; /* room for the largest image */
    size_t capacity;
    struct row rows[MOST_ROWS];
    int row_count;
};

/* Samples spread evenly over the set, so that all classes and kinds occur. */
static enum status read_blobs(struct decode_bench *b, const dataset *set)
{
    struct scan_reader reader;
    const size_t images = dataset_count(set);
    const size_t wanted = images < MOST_IMAGES ? images : MOST_IMAGES;
    enum status status = scan_reader_init(&reader, &b->settings->loader.image);
    for (size_t i = 0; status == STATUS_OK && i < wanted && b->bytes < most_bytes; i++) {
        struct sample_location location;
        struct blob *blob = &b->blobs[b->count];
        status = scan_read(&reader, set, i * images / wanted, &location);
        if (status != STATUS_OK || location.content == SAMPLE_PIXELS) {
            break;
        }
        if (image_probe(reader.decoder, location.data, location.bytes, &blob->facts) != STATUS_OK) {
            status_clear();
            continue;
        }
        blob->data = malloc(location.bytes);
        if (!blob->data) {
            status = FAIL(STATUS_NO_MEMORY, "no memory for an image of %zu bytes", location.bytes);
            break;
        }
        memcpy(blob->data, location.data, location.bytes);
        blob->bytes = location.bytes;
        b->bytes += blob->bytes;
        b->count++;
        const size_t pixel_bytes = (size_t)blob->facts.width * blob->facts.height * 3;
        b->capacity = pixel_bytes > b->capacity ? pixel_bytes : b->capacity;
    }
    scan_reader_fini(&reader);
    TRY(status);
    if (b->count == 0) {
        return FAIL(STATUS_INVALID, "--data holds no encoded images that can be read");
    }
    const size_t edge = (size_t)b->settings->loader.size;
    b->capacity = edge * edge * 3 > b->capacity ? edge * edge * 3 : b->capacity;
    b->pixels = malloc(b->capacity > 0 ? b->capacity : 1);
    if (!b->pixels) {
        return FAIL(STATUS_NO_MEMORY, "no memory for pixels (%zu bytes)", b->capacity);
    }
    return STATUS_OK;
}

static enum status decode_blob(const struct decode_bench *b, image_decoder *decoder,
                               const struct blob *blob, bool whole)
{
    struct image_view view;
    const struct image_output output = {.format = IMAGE_U8, .pixels = b->pixels};
    if (whole) {
        return image_decode_rgb(decoder, blob->data, blob->bytes, b->pixels, b->capacity, NULL);
    }
    image_view_whole(blob->facts.width, blob->facts.height, (uint32_t)b->settings->loader.size,
                     &view);
    return image_render(decoder, blob->data, blob->bytes, &view, &output);
}

/* Passes over all images of a kind; those that the library cannot read are left out. */
static enum status measure(struct decode_bench *b, image_decoder *decoder, struct row *row)
{
    double best = 0;
    double pixels = 0;
    const uint64_t begun = clock_now_ns();
    do {
        const uint64_t from = clock_now_ns();
        pixels = 0;
        row->images = 0;
        for (size_t i = 0; i < b->count; i++) {
            if (b->blobs[i].facts.kind != row->kind) {
                continue;
            }
            if (decode_blob(b, decoder, &b->blobs[i], row->whole) != STATUS_OK) {
                status_clear();
                continue;
            }
            row->images++;
            pixels += (double)b->blobs[i].facts.width * b->blobs[i].facts.height;
        }
        TRY(stop_check());
        const double seconds = clock_seconds(from, clock_now_ns());
        if (best == 0 || seconds < best) {
            best = seconds;
        }
    } while (row->images > 0 && clock_seconds(begun, clock_now_ns()) < b->bench->seconds);
    if (row->images > 0 && best > 0) {
        row->images_per_s = (double)row->images / best;
        row->megapixels_per_s = pixels / best * 1e-6;
        b->row_count++;
    }
    return STATUS_OK;
}

static enum status measure_library(struct decode_bench *b, const char *name)
{
    struct image_settings wanted = b->settings->loader.image;
    image_decoder *decoder;
    if (image_settings_parse_libraries(&wanted, name) != STATUS_OK) {
        status_clear();
        return STATUS_OK;
    }
    TRY(image_decoder_open(&wanted, &decoder));
    enum status status = STATUS_OK;
    for (int kind = IMAGE_UNKNOWN + 1; status == STATUS_OK && kind < KINDS; kind++) {
        for (int whole = 1; status == STATUS_OK && whole >= 0; whole--) {
            if (b->row_count == MOST_ROWS) {
                break;
            }
            b->rows[b->row_count] =
                (struct row){.library = name, .kind = (enum image_kind)kind, .whole = whole == 1};
            status = measure(b, decoder, &b->rows[b->row_count]);
        }
    }
    image_decoder_close(&decoder);
    return status;
}

static void write_result(void *context, struct json_writer *writer)
{
    const struct decode_bench *b = context;
    json_begin_object(writer);
    json_key_int(writer, "images", (int64_t)b->count);
    json_key_int(writer, "bytes", (int64_t)b->bytes);
    json_key_int(writer, "size", b->settings->loader.size);
    json_key(writer, "machine");
    job_write_machine(writer);
    json_key(writer, "rows");
    json_begin_array(writer);
    for (int i = 0; i < b->row_count; i++) {
        const struct row *row = &b->rows[i];
        json_begin_object(writer);
        json_key_string(writer, "library", row->library);
        json_key_string(writer, "kind", image_kind_name(row->kind));
        json_key_string(writer, "to", row->whole ? "whole" : "size");
        json_key_int(writer, "images", (int64_t)row->images);
        json_key_double(writer, "images_per_s", row->images_per_s);
        json_key_double(writer, "megapixels_per_s", row->megapixels_per_s);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_end_object(writer);
}

static void print_result(const struct decode_bench *b)
{
    printf("%zu images of %.1f KiB on average, one thread, best pass\nlibrary  kind  to          "
           "images   images/s   megapixels/s\n",
           b->count, (double)b->bytes / 1024 / (double)b->count);
    for (int i = 0; i < b->row_count; i++) {
        const struct row *row = &b->rows[i];
        char to[24] = "whole";
        if (!row->whole) {
            snprintf(to, sizeof to, "%dx%d", b->settings->loader.size, b->settings->loader.size);
        }
        printf("%-8s %-5s %-10s %7zu %10.0f %14.1f\n", row->library, image_kind_name(row->kind), to,
               row->images, row->images_per_s, row->megapixels_per_s);
    }
}

enum status bench_decode(const struct settings *settings, const struct bench_settings *bench)
{
    static const char *const libraries[] = {"turbo", "libpng", "stb"};
    dataset *set = NULL, *val = NULL;
    struct decode_bench b;
    memset(&b, 0, sizeof b);
    b.settings = settings;
    b.bench = bench;
    if (!settings->dataset.data) {
        return FAIL(STATUS_USAGE, "bench decode needs --data: a folder of classes of images");
    }
    TRY(dataset_open(&settings->dataset, &set, &val));
    b.blobs = calloc(MOST_IMAGES, sizeof *b.blobs);
    enum status status =
        b.blobs ? read_blobs(&b, set) : FAIL(STATUS_NO_MEMORY, "no memory for a list of images");
    for (size_t i = 0; status == STATUS_OK && i < sizeof libraries / sizeof libraries[0]; i++) {
        status = measure_library(&b, libraries[i]);
    }
    if (status == STATUS_OK && settings->json) {
        command_print_json(write_result, &b);
    } else if (status == STATUS_OK) {
        print_result(&b);
    }
    for (size_t i = 0; b.blobs && i < b.count; i++) {
        free(b.blobs[i].data);
    }
    free(b.blobs);
    free(b.pixels);
    dataset_close(&set);
    dataset_close(&val);
    return status;
}
