/* pinline pack */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/thread_pool.h"
#include "data/packed.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"
#include "trainer/scan.h"

enum { BLOCK = 256 };

static struct settings settings;
static struct {
    bool decoded, overwrite, verify;
} wanted;

#define FIELD(member) offsetof(__typeof__(wanted), member)

static const struct option pack_options[] = {
    {.name = "decoded",
     .kind = OPTION_SWITCH,
     .offset = FIELD(decoded),
     .help = "store pixels of --size instead of the files: larger, but nothing is left to decode"},
    {.name = "verify",
     .kind = OPTION_SWITCH,
     .offset = FIELD(verify),
     .help = "read the file back and compare its checksums"},
    {.name = "overwrite",
     .kind = OPTION_SWITCH,
     .offset = FIELD(overwrite),
     .help = "replace an existing file"},
};
static const struct option size_options[] = {
    {.name = "size",
     .kind = OPTION_INT,
     .offset = offsetof(struct settings, loader.size),
     .low = 4,
     .high = 4096,
     .metavar = "N",
     .help = "edge of the square images that --decoded stores, in pixels"},
};
static const struct option_table options_size = {
    .title = "Size", .options = size_options, .count = 1};

static const struct option_table options_pack = {
    .title = "Packing",
    .options = pack_options,
    .count = sizeof pack_options / sizeof pack_options[0],
};

static size_t bind(struct option_binding *bindings)
{
    settings_defaults(&settings);
    memset(&wanted, 0, sizeof wanted);
    wanted.verify = true;
    bindings[0] = (struct option_binding){.table = &options_pack, .base = &wanted};
    bindings[1] = (struct option_binding){.table = &options_decoding, .base = &settings};
    bindings[2] = (struct option_binding){.table = &options_size, .base = &settings};
    bindings[3] = (struct option_binding){.table = &options_output, .base = &settings};
    return 4;
}

/* Pixels are decoded a block ahead by several threads. */
struct block {
    thread_pool *pool;
    struct scan_reader *readers;
    int threads;
    const dataset *set; /* of the block in hand */
    size_t begin, end;
    size_t image_bytes;
    uint8_t *pixels;
    struct status_report *reports;
};

static void decode_part(void *context, int part, int worker)
{
    struct block *block = context;
    struct image_facts facts;
    const enum status status = scan_render(
        &block->readers[worker], block->set, block->begin + (size_t)part,
        (uint32_t)settings.loader.size, block->pixels + (size_t)part * block->image_bytes, &facts);
    status_save(&block->reports[part], status);
}

static enum status supply(void *context, const dataset *set, size_t sample, const void **data,
                          size_t *bytes)
{
    struct block *block = context;
    if (set != block->set || sample < block->begin || sample >= block->end) {
        const size_t left = dataset_count(set) - sample;
        TRY(stop_check());
        block->set = set;
        block->begin = sample;
        block->end = sample + (left < BLOCK ? left : BLOCK);
        thread_pool_run(block->pool, (int)(block->end - block->begin), decode_part, block);
    }
    const struct status_report *report = &block->reports[sample - block->begin];
    if (report->status != STATUS_OK) {
        char name[1024];
        const enum status status = status_restore(report);
        status_prefix("%s", dataset_sample_name(set, sample, name, sizeof name));
        return status;
    }
    *data = block->pixels + (sample - block->begin) * block->image_bytes;
    *bytes = block->image_bytes;
    return STATUS_OK;
}

static enum status block_init(struct block *block)
{
    const size_t edge = (size_t)settings.loader.size;
    memset(block, 0, sizeof *block);
    block->threads = settings.loader.num_workers + 1;
    block->image_bytes = edge * edge * 3;
    block->pixels = malloc(block->image_bytes * BLOCK);
    block->reports = calloc(BLOCK, sizeof *block->reports);
    block->readers = calloc((size_t)block->threads, sizeof *block->readers);
    if (!block->pixels || !block->reports || !block->readers) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a block of images (%zu bytes)",
                    block->image_bytes * BLOCK);
    }
    for (int i = 0; i < block->threads; i++) {
        TRY(scan_reader_init(&block->readers[i], &settings.loader.image));
    }
    return thread_pool_open(block->threads, &block->pool);
}

static void block_fini(struct block *block)
{
    thread_pool_close(&block->pool);
    for (int i = 0; block->readers && i < block->threads; i++) {
        scan_reader_fini(&block->readers[i]);
    }
    free(block->readers);
    free(block->pixels);
    free(block->reports);
}

static enum status pack_sets(const char *path, const dataset *train, const dataset *val,
                             struct packed_result *result)
{
    const struct packed_settings packed = {
        .path = path,
        .content = wanted.decoded ? SAMPLE_PIXELS : SAMPLE_ENCODED,
        .width = settings.loader.size,
        .height = settings.loader.size,
        .overwrite = wanted.overwrite,
    };
    if (!wanted.decoded) {
        return packed_write(&packed, train, val, NULL, NULL, result);
    }
    struct block block;
    enum status status = block_init(&block);
    if (status == STATUS_OK) {
        status = packed_write(&packed, train, val, supply, &block, result);
    }
    block_fini(&block);
    return status;
}

static void write_result(void *context, struct json_writer *writer)
{
    const struct packed_result *result = context;
    json_begin_object(writer);
    json_key_int(writer, "samples", (int64_t)result->samples);
    json_key_int(writer, "left_out", (int64_t)result->left_out);
    json_key_int(writer, "bytes", (int64_t)result->bytes);
    json_key_bool(writer, "decoded", wanted.decoded);
    json_key_bool(writer, "verified", wanted.verify);
    json_end_object(writer);
}

static enum status run(char **operands, size_t operand_count)
{
    dataset *train = NULL, *val = NULL;
    struct packed_result result;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    if (options_was_given("size") && !wanted.decoded) {
        return FAIL(STATUS_USAGE,
                    "--size does nothing without --decoded; leave it out, or give both");
    }
    settings.dataset.data = operands[0];
    enum status status = command_open_as_divided(&settings.dataset, &train, &val);
    if (status == STATUS_OK) {
        status = pack_sets(operands[1], train, val, &result);
    }
    if (status == STATUS_OK && wanted.verify) {
        status = packed_verify(operands[1], NULL);
    }
    if (status == STATUS_OK && settings.json) {
        command_print_json(write_result, &result);
    } else if (status == STATUS_OK) {
        log_info("%s: %zu images, %.1f MB%s", operands[1], result.samples,
                 (double)result.bytes / 1e6, wanted.verify ? ", checksums compared" : "");
    }
    dataset_close(&train);
    dataset_close(&val);
    return status;
}

const struct command command_pack = {
    .name = "pack",
    .summary = "put a set of images into one file that is read by mapping",
    .operands = "DIR FILE",
    .operands_min = 2,
    .operands_max = 2,
    .details = "Examples:\n"
               "  pinline pack images images.pack\n"
               "  pinline pack images images.pack --decoded --size 64\n"
               "  pinline train --data images.pack\n"
               "\n"
               "Without --decoded the files are stored as they are. The format is described in\n"
               "data/README.md.",
    .bind = bind,
    .run = run,
};
