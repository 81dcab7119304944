/* Whole runs on the host device: what is learned, what is written, and what becomes of a run that
 * stops. */
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "base/stop.h"
#include "base/system.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"
#include "tests/support/trainer_set.h"

enum { SIZE = 8, IMAGES = 44, VAL = 20, BATCHES = 6 /* 5 of 8 and one of 4 */ };

static void assert_same_losses(const struct seen_run *a, const struct seen_run *b, uint64_t from)
{
    for (uint64_t i = from; i <= a->last_step; i++) {
        ck_assert_msg(memcmp(&a->losses[i], &b->losses[i], sizeof(float)) == 0,
                      "step %llu: %.9g and %.9g", (unsigned long long)i, (double)a->losses[i],
                      (double)b->losses[i]);
    }
}

static void assert_ok(const struct seen_run *seen)
{
    ck_assert_msg(seen->status == STATUS_OK, "%s: %s", status_name(seen->status), status_message());
}

/* --- Learning ------------------------------------------------------------------------------- */

START_TEST(test_sixteen_images_are_learned)
{
    static struct seen_run seen;
    struct settings settings;
    trainer_set_begin(20, 0, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.dataset.val_fraction = 0;
    settings.dataset.limit_samples = 16;
    settings.loader.batch_size = 16;
    settings.epochs = 120;
    settings.optimiser.rate = 0.05;
    settings.optimiser.weight_decay = 0;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert_uint_eq(seen.steps, 120);
    ck_assert_float_gt(seen.losses[0], 1.5F); /* ten classes, nothing known: about ln 10 = 2.3 */
    ck_assert_float_lt(seen.losses[119], 1e-3F);
    trainer_set_end();
}
END_TEST

/* --- Stopping and resuming ------------------------------------------------------------------ */

START_TEST(test_resuming_equals_not_stopping)
{
    /* Inside an epoch, at both its ends, and in the last step but one. */
    static const int64_t stops[] = {0, 2, BATCHES - 1, BATCHES, BATCHES + 3, 2 * BATCHES - 2};
    static struct seen_run whole, first, rest;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "whole");
    settings.loader.num_workers = 0;
    trainer_set_run(&settings, -1, &whole);
    assert_ok(&whole);
    ck_assert_uint_eq(whole.steps, 2 * BATCHES);
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        trainer_set_settings(&settings, SIZE, "parts");
        settings.overwrite = true;
        settings.loader.num_workers = 2;
        settings.loader.prefetch = 3;
        trainer_set_run(&settings, stops[i], &first);
        ck_assert_int_eq(first.status, STATUS_INTERRUPTED);
        ck_assert_uint_eq(first.last_step, (uint64_t)stops[i]);
        assert_same_losses(&first, &whole, 0);
        /* Another number of workers and another cell. */
        settings.overwrite = false;
        settings.resume = trainer_set_path("parts/last.safetensors");
        settings.loader.num_workers = (int)(i % 3);
        settings.loader.prefetch = 0;
        settings.loader.pin_memory = i % 2 == 0 ? PIN_ON : PIN_OFF;
        settings.loader.non_blocking = i % 2 == 0;
        settings.loader.copy_stream = i % 3 == 0 ? COPY_STREAM_COMPUTE : COPY_STREAM_DEDICATED;
        trainer_set_run(&settings, -1, &rest);
        assert_ok(&rest);
        ck_assert_uint_eq(rest.steps, 2 * BATCHES - first.steps);
        assert_same_losses(&rest, &whole, (uint64_t)stops[i] + 1);
        ck_assert_uint_eq(rest.result.weights_hash, whole.result.weights_hash);
        ck_assert_double_eq(rest.result.position.best_accuracy,
                            whole.result.position.best_accuracy);
    }
    trainer_set_end();
}
END_TEST

START_TEST(test_adamw_resumes_to_the_same_bits)
{
    static struct seen_run whole, first, rest;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "whole");
    settings.network.optimiser = OPTIMISER_ADAMW;
    trainer_set_run(&settings, -1, &whole);
    assert_ok(&whole);
    settings.out = trainer_set_path("parts");
    trainer_set_run(&settings, 3, &first);
    ck_assert_int_eq(first.status, STATUS_INTERRUPTED);
    settings.resume = trainer_set_path("parts/last.safetensors");
    trainer_set_run(&settings, -1, &rest);
    assert_ok(&rest);
    ck_assert_uint_eq(rest.result.weights_hash, whole.result.weights_hash);
    trainer_set_end();
}
END_TEST

static uint64_t stop_after_ns;

static void *ask_for_stop(void *argument)
{
    clock_sleep_ns(stop_after_ns);
    stop_set(SIGTERM);
    return argument;
}

/* Goes on with the run in `parts`, asking for a stop sooner or later, until it is done; returns how
 * often it was interrupted. The first requests come at once, later ones after up to `length_ns`, which
 * is about what a whole run takes. */
static int run_in_parts(struct settings *settings, double length_ns, struct seen_run *part)
{
    struct rng rng;
    int interrupted = 0;
    rng_init(&rng, 1, RNG_TEST, 0, 0);
    settings->overwrite = true;
    for (int tries = 0; tries < 40; tries++) {
        pthread_t thread;
        const double most = length_ns * tries / 20;
        stop_after_ns = (uint64_t)(rng_uniform_double(&rng) * (tries < 20 ? most : length_ns));
        ck_assert_int_eq(pthread_create(&thread, NULL, ask_for_stop, NULL), 0);
        const uint64_t from = clock_now_ns();
        trainer_set_run(settings, -1, part);
        const uint64_t took_ns = clock_now_ns() - from;
        pthread_join(thread, NULL);
        stop_set(0);
        if (part->status == STATUS_OK) {
            return interrupted;
        }
        ck_assert_msg(part->status == STATUS_INTERRUPTED, "%s", status_message());
        /* Two seconds, and three for a disk that others keep busy to take the state. */
        ck_assert_uint_lt(took_ns, stop_after_ns + UINT64_C(5000000000));
        interrupted++;
        if (file_exists(trainer_set_path("parts/last.safetensors"))) {
            settings->overwrite = false;
            settings->resume = trainer_set_path("parts/last.safetensors");
        }
    }
    trainer_set_run(settings, -1, part);
    assert_ok(part);
    return interrupted;
}

/* Wherever the request falls (listing, opening, steps, evaluation, checkpoints), the run ends soon,
 * and going on from what it left gives the same bits. */
START_TEST(test_stop_in_every_phase)
{
    static struct seen_run whole, part;
    struct settings settings;
    trainer_set_begin(IMAGES, 200, SIZE);
    trainer_set_settings(&settings, SIZE, "whole");
    const uint64_t begun = clock_now_ns();
    trainer_set_run(&settings, -1, &whole);
    assert_ok(&whole);
    const double length_ns = (double)(clock_now_ns() - begun);
    trainer_set_settings(&settings, SIZE, "parts");
    ck_assert_int_gt(run_in_parts(&settings, length_ns, &part), 0);
    ck_assert_uint_eq(part.result.weights_hash, whole.result.weights_hash);
    ck_assert_double_eq(part.result.position.best_accuracy, whole.result.position.best_accuracy);
    trainer_set_end();
}
END_TEST

/* Steps that are long beside everything else are given up half way, and leave no trace. */
START_TEST(test_stop_within_a_step)
{
    static struct seen_run whole, part;
    struct settings settings;
    trainer_set_begin(20, 0, 32);
    trainer_set_settings(&settings, 32, "whole");
    settings.dataset.val_fraction = 0;
    settings.loader.batch_size = 10;
    const uint64_t begun = clock_now_ns();
    trainer_set_run(&settings, -1, &whole);
    assert_ok(&whole);
    const double length_ns = (double)(clock_now_ns() - begun);
    settings.out = trainer_set_path("parts");
    ck_assert_int_gt(run_in_parts(&settings, length_ns, &part), 0);
    ck_assert_uint_eq(part.result.weights_hash, whole.result.weights_hash);
    trainer_set_end();
}
END_TEST

/* --- Divergence ----------------------------------------------------------------------------- */

static void assert_same_bytes(const char *a, const char *b)
{
    size_t a_bytes, b_bytes;
    unsigned char *a_data = data_files_read(a, &a_bytes);
    unsigned char *b_data = data_files_read(b, &b_bytes);
    ck_assert_uint_eq(a_bytes, b_bytes);
    ck_assert_mem_eq(a_data, b_data, a_bytes);
    free(a_data);
    free(b_data);
}

static void keep_copy(const char *from, const char *to)
{
    size_t bytes;
    unsigned char *data = data_files_read(from, &bytes);
    data_files_write(to, data, bytes);
    free(data);
}

START_TEST(test_divergence_names_the_step_and_leaves_the_checkpoint)
{
    static struct seen_run seen;
    struct settings settings;
    char step[64];
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.epochs = 1;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    keep_copy("run/last.safetensors", "kept");
    keep_copy("run/last.state.safetensors", "kept.state");
    settings.resume = trainer_set_path("run/last.safetensors");
    settings.epochs = 3;
    settings.optimiser.schedule = SCHEDULE_CONSTANT;
    settings.optimiser.rate = 1e30;
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_DIVERGED, "%s", status_message());
    ck_assert_uint_ge(seen.last_step, BATCHES);
    snprintf(step, sizeof step, "the loss of step %llu ", (unsigned long long)seen.last_step + 1);
    ck_assert_msg(strstr(status_message(), step) != NULL, "%s", status_message());
    ck_assert_msg(strstr(status_message(), "--lr") != NULL, "%s", status_message());
    assert_same_bytes("run/last.safetensors", "kept");
    assert_same_bytes("run/last.state.safetensors", "kept.state");
    trainer_set_end();
}
END_TEST

START_TEST(test_divergence_names_rate_and_samples)
{
    static struct seen_run seen;
    struct settings settings;
    char step[64];
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.optimiser.schedule = SCHEDULE_CONSTANT;
    settings.optimiser.rate = 1e30;
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_DIVERGED, "%s", status_message());
    snprintf(step, sizeof step, "the loss of step %llu ", (unsigned long long)seen.last_step + 1);
    ck_assert_msg(strstr(status_message(), step) != NULL, "%s", status_message());
    ck_assert_msg(strstr(status_message(), "rate 1e+30") != NULL, "%s", status_message());
    ck_assert_msg(strstr(status_message(), ".png") != NULL, "%s", status_message());
    ck_assert(!file_exists(trainer_set_path("run/last.safetensors")));
    trainer_set_end();
}
END_TEST

/* --- What is written ------------------------------------------------------------------------ */

static const struct json_value *parse_line(const char *line, size_t bytes, json_document **document)
{
    ck_assert_msg(json_parse(line, bytes, document) == STATUS_OK, "%s", status_message());
    return json_root(*document);
}

/* Times sum to the epoch, rate times time is the number of images. */
static void assert_epoch(const struct json_value *line)
{
    const struct json_value *host = json_member(line, "host");
    const struct json_value *on_device = json_member(line, "device");
    const double seconds = json_member_double(line, "seconds", -1);
    const double sum =
        json_member_double(host, "wait_batch_s", NAN) + json_member_double(host, "copy_s", NAN) +
        json_member_double(host, "issue_s", NAN) + json_member_double(host, "wait_device_s", NAN) +
        json_member_double(host, "rest_s", NAN);
    ck_assert_double_gt(seconds, 0);
    ck_assert_double_eq_tol(sum, seconds, 1e-9 + 1e-9 * seconds);
    ck_assert_double_ge(json_member_double(host, "rest_s", -1), 0);
    ck_assert_double_eq_tol(json_member_double(line, "samples_per_s", 0) * seconds, IMAGES, 1e-6);
    ck_assert_int_eq(json_member_int(line, "samples", 0), IMAGES);
    ck_assert_int_eq(json_member_int(line, "steps", 0), BATCHES);
    const double compute = json_member_double(on_device, "compute_s", -1);
    const double copy = json_member_double(on_device, "copy_s", -1);
    const double hidden = json_member_double(on_device, "hidden_s", -1);
    const double idle = json_member_double(on_device, "idle_s", -1);
    const double span = json_member_double(on_device, "span_s", -1);
    ck_assert_double_gt(compute, 0);
    ck_assert_double_ge(copy, 0);
    ck_assert_double_ge(hidden, 0);
    ck_assert_double_le(hidden, copy + 1e-9);
    ck_assert_double_ge(idle, -1e-9);
    ck_assert_double_eq_tol(compute + copy - hidden + idle, span, 1e-9);
    ck_assert_double_le(span, seconds + 1e-6);
    const struct json_value *counters = json_member(line, "loader");
    ck_assert_int_eq(json_member_int(counters, "batches", 0), BATCHES);
    ck_assert_int_eq(json_member_int(counters, "waits_copy", -1), BATCHES); /* blocking: 1 a step */
    ck_assert_int_eq(json_member_int(counters, "bytes_copied_on_host", -1), 0);
    const struct json_value *val = json_member(line, "val");
    ck_assert_int_eq(json_member_int(val, "samples", 0), VAL);
}

START_TEST(test_log_and_metrics_can_be_read)
{
    static struct seen_run seen;
    struct settings settings;
    size_t bytes;
    int starts = 0, steps = 0, epochs = 0, ends = 0;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    char *log = (char *)data_files_read("run/log.jsonl", &bytes);
    for (char *line = log; line < log + bytes;) {
        char *end = memchr(line, '\n', (size_t)(log + bytes - line));
        ck_assert_ptr_nonnull(end);
        json_document *document;
        const struct json_value *root = parse_line(line, (size_t)(end - line), &document);
        const char *event = json_member_string(root, "event", "");
        if (strcmp(event, "start") == 0) {
            starts++;
            ck_assert_ptr_nonnull(json_member(root, "settings"));
            ck_assert_ptr_nonnull(json_member(root, "machine"));
            ck_assert_ptr_nonnull(json_member(root, "plans"));
            ck_assert_int_eq(
                json_member_int(json_member(json_member(root, "data"), "train"), "images", 0),
                IMAGES);
        } else if (strcmp(event, "step") == 0) {
            ck_assert_double_eq(json_member_double(root, "loss", -1), (double)seen.losses[steps]);
            ck_assert_int_eq(json_member_int(root, "step", -1), steps);
            steps++;
        } else if (strcmp(event, "epoch") == 0) {
            epochs++;
            ck_assert_int_eq(json_member_int(root, "epoch", 0), epochs);
            assert_epoch(root);
        } else if (strcmp(event, "end") == 0) {
            ends++;
            ck_assert_str_eq(json_member_string(root, "status", ""), "ok");
        }
        json_document_destroy(&document);
        line = end + 1;
    }
    free(log);
    ck_assert_int_eq(starts, 1);
    ck_assert_int_eq(steps, 2 * BATCHES);
    ck_assert_int_eq(epochs, 2);
    ck_assert_int_eq(ends, 1);

    char *metrics = (char *)data_files_read("run/metrics.csv", &bytes);
    int rows = 0, header_commas = 0;
    metrics = realloc(metrics, bytes + 1);
    metrics[bytes] = '\0';
    for (char *line = strtok(metrics, "\n"); line; line = strtok(NULL, "\n")) {
        int commas = 0;
        for (const char *c = line; *c; c++) {
            commas += *c == ',';
        }
        if (rows == 0) {
            header_commas = commas;
        } else {
            ck_assert_int_eq(strtol(line, NULL, 10), rows);
        }
        ck_assert_int_eq(commas, header_commas);
        rows++;
    }
    free(metrics);
    ck_assert_int_eq(rows, 3);
    trainer_set_end();
}
END_TEST

START_TEST(test_earlier_run_is_kept_unless_told)
{
    static struct seen_run seen;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    data_files_touch("run/mine.txt");
    trainer_set_settings(&settings, SIZE, "run");
    settings.epochs = 1;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    trainer_set_run(&settings, -1, &seen);
    ck_assert_int_eq(seen.status, STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "--overwrite"));
    settings.overwrite = true;
    settings.save_every = 4;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert(file_exists(trainer_set_path("run/step-4.safetensors")));
    data_files_touch("run/step-9.safetensors.partial");
    data_files_touch("run/last.new.safetensors.partial");
    data_files_touch("run/step-9.safetensors.mine");
    settings.save_every = 0;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert(!file_exists(trainer_set_path("run/step-4.safetensors")));
    ck_assert(!file_exists(trainer_set_path("run/step-9.safetensors.partial")));
    ck_assert(!file_exists(trainer_set_path("run/last.new.safetensors.partial")));
    ck_assert(file_exists(trainer_set_path("run/step-9.safetensors.mine")));
    ck_assert(file_exists(trainer_set_path("run/mine.txt")));
    trainer_set_end();
}
END_TEST

/* An image that cannot be read ends the run with its name; the state before is kept, and the run can
 * go on without the image. */
START_TEST(test_bad_image_ends_the_run_with_its_name)
{
    static struct seen_run seen;
    struct settings settings;
    size_t bytes;
    trainer_set_begin(IMAGES, VAL, SIZE);
    unsigned char *png = data_files_read("images/train/circle/000001.png", &bytes);
    data_files_write("images/train/circle/000001.png", png, bytes / 2);
    free(png);
    trainer_set_settings(&settings, SIZE, "run");
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_INVALID, "%s", status_message());
    ck_assert_msg(strstr(status_message(), "circle/000001.png") != NULL, "%s", status_message());
    ck_assert_msg(strstr(status_message(), "--resume") != NULL, "%s", status_message());
    ck_assert_uint_lt(seen.steps, BATCHES);
    const size_t before = seen.steps;
    settings.resume = trainer_set_path("run/last.safetensors");
    settings.loader.on_bad_image = BAD_IMAGE_SKIP;
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert_uint_eq(seen.steps, 2 * BATCHES - before);
    char *log = (char *)data_files_read("run/log.jsonl", &bytes);
    log = realloc(log, bytes + 1);
    log[bytes] = '\0';
    const char *line = strstr(log, "\"event\":\"bad_image\"");
    ck_assert_ptr_nonnull(line);
    ck_assert_ptr_nonnull(strstr(line, "circle/000001.png"));
    free(log);
    trainer_set_end();
}
END_TEST

static void spoil(const char *folder)
{
    static const char *const classes[] = {"checker", "circle", "crescent", "cross",   "heart",
                                          "ring",    "square", "star",     "stripes", "triangle"};
    char name[64];
    for (int i = 0; i < IMAGES; i++) {
        snprintf(name, sizeof name, "images/%s/%s/%06d.png", folder, classes[i % 10], i);
        if (file_exists(trainer_set_path(name))) {
            data_files_write(name, "none", 4);
        }
    }
}

static char *read_text(const char *name)
{
    size_t bytes;
    char *text = (char *)data_files_read(name, &bytes);
    text = realloc(text, bytes + 1);
    ck_assert_ptr_nonnull(text);
    text[bytes] = '\0';
    return text;
}

/* Nothing was trained, and nothing was evaluated: no accuracy of 0 % and no loss of 0 are made of
 * that. */
START_TEST(test_skipping_every_image_is_no_result)
{
    static const char *const parts[] = {"train", "val"};
    static const char *const names[] = {"44 images", "20 validation images"};
    for (int i = 0; i < 2; i++) {
        static struct seen_run seen;
        struct settings settings;
        trainer_set_begin(IMAGES, VAL, SIZE);
        spoil(parts[i]);
        trainer_set_settings(&settings, SIZE, "run");
        settings.loader.on_bad_image = BAD_IMAGE_SKIP;
        trainer_set_run(&settings, -1, &seen);
        ck_assert_int_eq(seen.status, STATUS_INVALID);
        ck_assert_msg(strstr(status_message(), names[i]) != NULL, "%s", status_message());
        ck_assert_msg(strstr(status_message(), "pinline check") != NULL, "%s", status_message());
        ck_assert_uint_eq(seen.steps, i == 0 ? 0 : BATCHES);
        ck_assert(!file_exists(trainer_set_path("run/best.safetensors")));
        char *log = read_text("run/log.jsonl");
        ck_assert_ptr_nonnull(strstr(log, i == 0 ? "\"set\":\"train\"" : "\"set\":\"val\""));
        free(log);
        trainer_set_end();
    }
}
END_TEST

/* The best weights so far lie in the folder of the run that was resumed. */
START_TEST(test_resuming_into_another_folder_seeks_the_best_anew)
{
    static struct seen_run seen;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "first");
    trainer_set_run(&settings, BATCHES + 1, &seen);
    ck_assert_int_eq(seen.status, STATUS_INTERRUPTED);
    ck_assert_double_ge(seen.result.position.best_accuracy, 0);
    settings.resume = trainer_set_path("first/last.safetensors");
    settings.out = trainer_set_path("second");
    settings.optimiser.rate = 1e-12; /* nothing is learned any more */
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert_uint_eq(seen.result.position.best_epoch, 1);
    ck_assert(file_exists(trainer_set_path("second/best.safetensors")));
    trainer_set_end();
}
END_TEST

/* A run that is stopped during an evaluation goes on with it; the epoch then has no step whose loss
 * could be told. */
START_TEST(test_epoch_without_steps_has_no_loss)
{
    static struct seen_run seen;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    trainer_set_run(&settings, BATCHES - 1, &seen);
    ck_assert_int_eq(seen.status, STATUS_INTERRUPTED);
    settings.resume = trainer_set_path("run/last.safetensors");
    trainer_set_run(&settings, -1, &seen);
    assert_ok(&seen);
    ck_assert_uint_eq(seen.steps, BATCHES);
    char *metrics = read_text("run/metrics.csv");
    const char *row = strchr(metrics, '\n') + 1;
    ck_assert_int_eq(strncmp(row, "1,0,0,", 6), 0);
    int column = 0;
    for (const char *c = row; *c != '\n'; c++) {
        column += *c == ',';
        ck_assert_msg(column != 5 || *c == ',', "a loss in %s", row);
    }
    free(metrics);
    char *log = read_text("run/log.jsonl");
    ck_assert_ptr_nonnull(strstr(log, "\"samples\":0,"));
    ck_assert_ptr_nonnull(strstr(log, "\"loss\":null"));
    free(log);
    trainer_set_end();
}
END_TEST

START_TEST(test_max_steps_ends_within_an_epoch)
{
    static struct seen_run whole, cut, rest;
    struct settings settings;
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "whole");
    trainer_set_run(&settings, -1, &whole);
    assert_ok(&whole);
    settings.out = trainer_set_path("cut");
    settings.max_steps = BATCHES + 2;
    trainer_set_run(&settings, -1, &cut);
    assert_ok(&cut);
    ck_assert_uint_eq(cut.steps, BATCHES + 2);
    settings.max_steps = 0;
    settings.resume = trainer_set_path("cut/last.safetensors");
    trainer_set_run(&settings, -1, &rest);
    assert_ok(&rest);
    ck_assert_uint_eq(rest.result.weights_hash, whole.result.weights_hash);
    trainer_set_end();
}
END_TEST

/* --- Resources ------------------------------------------------------------------------------ */

struct flat {
    struct system_usage early, late;
    size_t early_bytes, late_bytes; /* allocated and not freed */
    uint64_t early_step, late_step;
};

static size_t allocated_bytes(void)
{
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
}

static void look(void *context, const struct train_step *step)
{
    struct flat *flat = context;
    if (step->step == flat->early_step) {
        system_read_usage(&flat->early);
        flat->early_bytes = allocated_bytes();
    } else if (step->step == flat->late_step) {
        system_read_usage(&flat->late);
        flat->late_bytes = allocated_bytes();
    }
}

START_TEST(test_memory_files_and_threads_stay_flat)
{
    struct settings settings;
    struct train_run_result result;
    struct flat flat = {.early_step = 3 * BATCHES + 3, .late_step = 23 * BATCHES + 3};
    const struct train_run_observer observer = {.context = &flat, .step = look};
    trainer_set_begin(IMAGES, VAL, SIZE);
    trainer_set_settings(&settings, SIZE, "run");
    settings.epochs = 24;
    settings.loader.persistent_workers = true;
    settings.loader.num_workers = 2;
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_msg(train_run(&settings, &observer, &result) == STATUS_OK, "%s", status_message());
    train_run_result_close(&result);
    ck_assert_int_gt(flat.early.threads, 0);
    ck_assert_int_eq(flat.late.threads, flat.early.threads);
    ck_assert_int_eq(flat.late.open_files, flat.early.open_files);
    /* Workers have a file and a decoder's memory in hand at one time and not at another: some hundred
     * kilobytes each. A copy of the weights that is not freed would be a megabyte an epoch. */
    ck_assert_uint_le(flat.late_bytes, flat.early_bytes + (1U << 20));
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    /* The allocator keeps what checkpoints took, in pieces that differ. */
    ck_assert_uint_le(flat.late.resident_bytes, flat.early.resident_bytes + (UINT64_C(4) << 20));
#endif
    trainer_set_end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_sixteen_images_are_learned,
        test_resuming_equals_not_stopping,
        test_adamw_resumes_to_the_same_bits,
        test_stop_in_every_phase,
        test_stop_within_a_step,
        test_divergence_names_the_step_and_leaves_the_checkpoint,
        test_divergence_names_rate_and_samples,
        test_log_and_metrics_can_be_read,
        test_earlier_run_is_kept_unless_told,
        test_bad_image_ends_the_run_with_its_name,
        test_skipping_every_image_is_no_result,
        test_resuming_into_another_folder_seeks_the_best_anew,
        test_epoch_without_steps_has_no_loss,
        test_max_steps_ends_within_an_epoch,
        test_memory_files_and_threads_stay_flat,
    };
    return check_run("train_run", tests, sizeof tests / sizeof tests[0], 60);
}
