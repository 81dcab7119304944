/* pinline check */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread_pool.h"
#include "data/dataset.h"
#include "data/packed.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"
#include "trainer/scan.h"

enum { BLOCK = 256, KINDS = IMAGE_PNM + 1, TARGET_EDGE = 8 };

static struct settings settings;
static struct {
    bool csv;
} format;

static const struct option format_options[] = {
    {.name = "csv",
     .kind = OPTION_SWITCH,
     .help = "print a header line and a row for each file that cannot be used, as CSV"},
};
static const struct option_table options_format = {
    .title = "Format", .options = format_options, .count = 1};

static size_t bind(struct option_binding *bindings)
{
    settings_defaults(&settings);
    /* Damage deep in a JPEG shows only where all of it is decoded. */
    settings.loader.image.exact_decode = true;
    format.csv = false;
    bindings[0] = (struct option_binding){.table = &options_decoding, .base = &settings};
    bindings[1] = (struct option_binding){.table = &options_format, .base = &format};
    bindings[2] = (struct option_binding){.table = &options_output, .base = &settings};
    return 3;
}

struct bad_file {
    size_t sample;
    enum status status;
    char *reason;
};

/* One set. */
struct scan {
    const char *title;
    const dataset *set;
    size_t base; /* first sample of the block */
    struct scan_reader *readers;
    struct {
        struct status_report report;
        struct image_facts facts;
    } block[BLOCK];

    struct bad_file *bad;
    size_t bad_count, bad_capacity;
    size_t *class_samples, *class_bad;
    size_t kinds[KINDS];
    uint32_t least_width, least_height, most_width, most_height;
    size_t alpha, animated, turned;
    struct dataset_skipped skipped;
};

static void check_part(void *context, int part, int worker)
{
    struct scan *scan = context;
    uint8_t rgb[TARGET_EDGE * TARGET_EDGE * 3];
    const enum status status =
        scan_render(&scan->readers[worker], scan->set, scan->base + (size_t)part, TARGET_EDGE, rgb,
                    &scan->block[part].facts);
    status_save(&scan->block[part].report, status);
}

static enum status note_bad(struct scan *scan, size_t sample, const struct status_report *report)
{
    if (scan->bad_count == scan->bad_capacity) {
        const size_t capacity = scan->bad_capacity ? 2 * scan->bad_capacity : 64;
        struct bad_file *grown = realloc(scan->bad, capacity * sizeof *grown);
        if (!grown) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the list of files");
        }
        scan->bad = grown;
        scan->bad_capacity = capacity;
    }
    struct bad_file *bad = &scan->bad[scan->bad_count];
    bad->sample = sample;
    bad->status = report->status;
    bad->reason = strdup(report->message);
    if (!bad->reason) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the list of files");
    }
    scan->bad_count++;
    return STATUS_OK;
}

static void note_good(struct scan *scan, const struct image_facts *facts)
{
    scan->kinds[facts->kind]++;
    scan->alpha += facts->alpha;
    scan->animated += facts->animated;
    scan->turned += facts->orientation > 1;
    if (scan->least_width == 0 || facts->width < scan->least_width) {
        scan->least_width = facts->width;
    }
    if (scan->least_height == 0 || facts->height < scan->least_height) {
        scan->least_height = facts->height;
    }
    scan->most_width = facts->width > scan->most_width ? facts->width : scan->most_width;
    scan->most_height = facts->height > scan->most_height ? facts->height : scan->most_height;
}

static enum status check_block(struct scan *scan, thread_pool *pool, int count)
{
    thread_pool_run(pool, count, check_part, scan);
    for (int i = 0; i < count; i++) {
        const size_t sample = scan->base + (size_t)i;
        const int label = dataset_label(scan->set, sample);
        scan->class_samples[label]++;
        if (scan->block[i].report.status == STATUS_OK) {
            note_good(scan, &scan->block[i].facts);
            continue;
        }
        scan->class_bad[label]++;
        TRY(note_bad(scan, sample, &scan->block[i].report));
    }
    return STATUS_OK;
}

static enum status check_set(struct scan *scan, thread_pool *pool)
{
    const size_t count = dataset_count(scan->set);
    const size_t classes = (size_t)dataset_class_count(scan->set);
    scan->class_samples = calloc(classes, sizeof *scan->class_samples);
    scan->class_bad = calloc(classes, sizeof *scan->class_bad);
    if (!scan->class_samples || !scan->class_bad) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the counts of %zu classes", classes);
    }
    dataset_read_skipped(scan->set, &scan->skipped);
    for (scan->base = 0; scan->base < count; scan->base += BLOCK) {
        const size_t left = count - scan->base;
        char text[96];
        TRY(stop_check());
        TRY(check_block(scan, pool, left < BLOCK ? (int)left : BLOCK));
        snprintf(text, sizeof text, "%s: %zu of %zu read, %zu cannot be used", scan->title,
                 left < BLOCK ? count : scan->base + BLOCK, count, scan->bad_count);
        log_progress(text);
    }
    log_progress(NULL);
    return STATUS_OK;
}

static void scan_fini(struct scan *scan)
{
    for (size_t i = 0; i < scan->bad_count; i++) {
        free(scan->bad[i].reason);
    }
    free(scan->bad);
    free(scan->class_samples);
    free(scan->class_bad);
}

/* --- Printing ------------------------------------------------------------------------------- */

static void write_scan(const struct scan *scan, struct json_writer *writer)
{
    char name[PATH_MAX];
    json_begin_object(writer);
    json_key_int(writer, "images", (int64_t)dataset_count(scan->set));
    json_key_int(writer, "unusable", (int64_t)scan->bad_count);
    json_key(writer, "fingerprint");
    json_hex64(writer, dataset_fingerprint(scan->set));
    json_key(writer, "width");
    json_begin_array(writer);
    json_int(writer, scan->least_width);
    json_int(writer, scan->most_width);
    json_end_array(writer);
    json_key(writer, "height");
    json_begin_array(writer);
    json_int(writer, scan->least_height);
    json_int(writer, scan->most_height);
    json_end_array(writer);
    json_key(writer, "kinds");
    json_begin_object(writer);
    for (int kind = 0; kind < KINDS; kind++) {
        if (scan->kinds[kind] > 0) {
            json_key_int(writer, kind == IMAGE_UNKNOWN ? "pixels" : image_kind_name(kind),
                         (int64_t)scan->kinds[kind]);
        }
    }
    json_end_object(writer);
    json_key(writer, "classes");
    json_begin_array(writer);
    for (int c = 0; c < dataset_class_count(scan->set); c++) {
        json_begin_object(writer);
        json_key_string(writer, "name", dataset_class_name(scan->set, c));
        json_key_int(writer, "images", (int64_t)scan->class_samples[c]);
        json_key_int(writer, "unusable", (int64_t)scan->class_bad[c]);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_key(writer, "files");
    json_begin_array(writer);
    for (size_t i = 0; i < scan->bad_count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "name",
                        dataset_sample_name(scan->set, scan->bad[i].sample, name, sizeof name));
        json_key_string(writer, "status", status_name(scan->bad[i].status));
        json_key_string(writer, "reason", scan->bad[i].reason);
        json_end_object(writer);
    }
    json_end_array(writer);
    json_key_int(writer, "passed_over_hidden", (int64_t)scan->skipped.hidden);
    json_key_int(writer, "passed_over_unknown", (int64_t)scan->skipped.unknown_type);
    json_key_int(writer, "passed_over_unsupported", (int64_t)scan->skipped.unsupported);
    json_key_int(writer, "passed_over_loops", (int64_t)scan->skipped.loops);
    json_end_object(writer);
}

static void write_scans(void *context, struct json_writer *writer)
{
    const struct scan *scans = context;
    json_begin_object(writer);
    for (int i = 0; i < 2; i++) {
        if (scans[i].set) {
            json_key(writer, i == 0 ? "train" : "val");
            write_scan(&scans[i], writer);
        }
    }
    json_end_object(writer);
}

static void print_rows(const struct scan *scan)
{
    char name[PATH_MAX];
    for (size_t i = 0; i < scan->bad_count; i++) {
        printf("%s,", scan->title);
        command_print_csv_text(
            stdout, dataset_sample_name(scan->set, scan->bad[i].sample, name, sizeof name));
        putchar(',');
        command_print_csv_text(
            stdout, dataset_class_name(scan->set, dataset_label(scan->set, scan->bad[i].sample)));
        putchar(',');
        command_print_csv_text(stdout, scan->bad[i].reason);
        putchar('\n');
    }
}

static void print_text(const struct scan *scan)
{
    char name[PATH_MAX], quoted[PATH_MAX];
    printf("%s: %zu images, %zu cannot be used; %u to %u pixels wide, %u to %u high\n", scan->title,
           dataset_count(scan->set), scan->bad_count, scan->least_width, scan->most_width,
           scan->least_height, scan->most_height);
    for (int kind = 0; kind < KINDS; kind++) {
        if (scan->kinds[kind] > 0) {
            printf("  %zu %s\n", scan->kinds[kind],
                   kind == IMAGE_UNKNOWN ? "decoded" : image_kind_name(kind));
        }
    }
    for (int c = 0; c < dataset_class_count(scan->set); c++) {
        printf("  class %d: %zu images, %zu cannot be used: %s\n", c, scan->class_samples[c],
               scan->class_bad[c], dataset_class_name(scan->set, c));
    }
    if (scan->alpha + scan->animated + scan->turned > 0) {
        printf(
            "  %zu with transparency, which is dropped; %zu animated, of which the first picture "
            "counts; %zu with an EXIF orientation (--exif-orientation)\n",
            scan->alpha, scan->animated, scan->turned);
    }
    const struct dataset_skipped *skipped = &scan->skipped;
    if (skipped->hidden + skipped->unknown_type + skipped->unsupported + skipped->loops > 0) {
        printf("  passed over: %zu hidden, %zu of other types, %zu TIFF or WebP, %zu links that "
               "lead back\n",
               skipped->hidden, skipped->unknown_type, skipped->unsupported, skipped->loops);
    }
    for (size_t i = 0; i < scan->bad_count; i++) {
        dataset_sample_name(scan->set, scan->bad[i].sample, name, sizeof name);
        printf("  %s: %s\n", file_quote(name, quoted, sizeof quoted), scan->bad[i].reason);
    }
}

/* --- The command ---------------------------------------------------------------------------- */

static enum status check_sets(struct scan *scans, int threads)
{
    thread_pool *pool = NULL;
    struct scan_reader *readers = calloc((size_t)threads, sizeof *readers);
    enum status status = STATUS_OK;
    if (!readers) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d decoders", threads);
    }
    for (int i = 0; status == STATUS_OK && i < threads; i++) {
        status = scan_reader_init(&readers[i], &settings.loader.image);
    }
    if (status == STATUS_OK) {
        status = thread_pool_open(threads, &pool);
    }
    for (int i = 0; status == STATUS_OK && i < 2; i++) {
        scans[i].readers = readers;
        status = scans[i].set ? check_set(&scans[i], pool) : STATUS_OK;
    }
    thread_pool_close(&pool);
    for (int i = 0; i < threads; i++) {
        scan_reader_fini(&readers[i]);
    }
    free(readers);
    return status;
}

static enum status report(struct scan *scans)
{
    const size_t bad = scans[0].bad_count + scans[1].bad_count;
    if (settings.json) {
        command_print_json(write_scans, scans);
    } else if (format.csv) {
        printf("set,file,class,reason\n");
    }
    for (int i = 0; i < 2 && !settings.json; i++) {
        if (scans[i].set && format.csv) {
            print_rows(&scans[i]);
        } else if (scans[i].set) {
            print_text(&scans[i]);
        }
    }
    if (bad > 0) {
        return FAIL(STATUS_INVALID,
                    "%zu images cannot be used; remove or repair them, or train with "
                    "--on-bad-image skip",
                    bad);
    }
    return STATUS_OK;
}

static enum status run(char **operands, size_t operand_count)
{
    dataset *train = NULL, *val = NULL;
    (void)operand_count;
    TRY(command_set_log_level(&settings));
    if (settings.json && format.csv) {
        return FAIL(STATUS_USAGE, "--json and --csv exclude each other");
    }
    struct scan *scans = calloc(2, sizeof *scans);
    if (!scans) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the check");
    }
    settings.dataset.data = operands[0];
    enum status status = command_open_as_divided(&settings.dataset, &train, &val);
    if (status == STATUS_OK) {
        scans[0].title = "train";
        scans[0].set = train;
        scans[1].title = "val";
        scans[1].set = val;
        status = check_sets(scans, settings.loader.num_workers + 1);
    }
    if (status == STATUS_OK) {
        status = report(scans);
    }
    /* A changed pixel is a pixel: in a packed set the checksums tell. */
    if (status == STATUS_OK && packed_recognise(operands[0])) {
        status = packed_verify(operands[0], NULL);
    }
    scan_fini(&scans[0]);
    scan_fini(&scans[1]);
    free(scans);
    dataset_close(&train);
    dataset_close(&val);
    return status;
}

const struct command command_check = {
    .name = "check",
    .summary = "read every image once and list what cannot be used, and why",
    .operands = "DIR|FILE",
    .operands_min = 1,
    .operands_max = 1,
    .details =
        "Examples:\n"
        "  pinline check images\n"
        "  pinline check images --csv >unusable.csv\n"
        "\n"
        "Every file is read and decoded whole, and a packed set is compared with its checksums. The\n"
        "exit code is 1 when anything cannot be used.",
    .bind = bind,
    .run = run,
};
