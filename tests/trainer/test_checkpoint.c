/* Checkpoints that are cut, changed, half renamed, or of something else. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "data/synth.h"
#include "models/safetensors.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"
#include "tests/support/trainer_set.h"
#include "trainer/checkpoint.h"
#include "trainer/job.h"

enum { SIZE = 8, IMAGES = 20 };

static const char *const weights_name = "run/last.safetensors";
static const char *const state_name = "run/last.state.safetensors";

/* A run of one epoch. */
static void make_run(struct settings *settings, const char *out)
{
    static struct seen_run seen;
    trainer_set_settings(settings, SIZE, out);
    settings->dataset.val_fraction = 0;
    settings->network.model = "probe";
    settings->epochs = 1;
    trainer_set_run(settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_OK, "%s", status_message());
}

static enum status try_open(void)
{
    checkpoint *from = NULL;
    const enum status status = checkpoint_open(trainer_set_path(weights_name), &from);
    ck_assert((status == STATUS_OK) == (from != NULL));
    checkpoint_close(&from);
    return status;
}

static void assert_refused(const char *what, size_t at)
{
    const enum status status = try_open();
    ck_assert_msg(status == STATUS_INVALID, "%s at %zu: %s %s", what, at, status_name(status),
                  status_message());
    ck_assert_msg(strstr(status_message(), "safetensors") != NULL, "%s", status_message());
}

static void spoil(const char *name, const unsigned char *data, size_t bytes)
{
    struct rng rng;
    unsigned char *changed = malloc(bytes);
    ck_assert_ptr_nonnull(changed);
    /* Everywhere in the beginning and around the end, and at strides between. */
    for (size_t length = 0; length < bytes; length += length < 16 || bytes - length < 8 ? 1 : 97) {
        data_files_write(name, data, length);
        assert_refused("cut", length);
    }
    rng_init(&rng, 7, RNG_TEST, 0, 0);
    for (int i = 0; i < 300; i++) {
        const size_t at = rng_below(&rng, (uint32_t)bytes);
        memcpy(changed, data, bytes);
        changed[at] ^= (unsigned char)(1U << rng_below(&rng, 8));
        data_files_write(name, changed, bytes);
        assert_refused("changed", at);
    }
    memcpy(changed, data, bytes);
    data_files_write(name, data, bytes);
    ck_assert_int_eq(try_open(), STATUS_OK);
    free(changed);
}

START_TEST(test_cut_or_changed_pair_is_refused)
{
    struct settings settings;
    size_t weights_bytes, state_bytes;
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&settings, "run");
    unsigned char *weights = data_files_read(weights_name, &weights_bytes);
    unsigned char *state = data_files_read(state_name, &state_bytes);
    ck_assert_int_eq(try_open(), STATUS_OK);
    spoil(weights_name, weights, weights_bytes);
    spoil(state_name, state, state_bytes);
    free(weights);
    free(state);
    trainer_set_end();
}
END_TEST

/* Every state that a crash can leave while the second pair replaces the first one resumes from one
 * of the two. */
START_TEST(test_crash_between_renames_leaves_a_pair)
{
    struct settings settings;
    size_t bytes;
    unsigned char *old_weights, *old_state, *new_weights, *new_state;
    size_t old_weights_bytes, old_state_bytes, new_weights_bytes, new_state_bytes;
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&settings, "run");
    old_weights = data_files_read(weights_name, &old_weights_bytes);
    old_state = data_files_read(state_name, &old_state_bytes);
    static struct seen_run seen;
    settings.resume = trainer_set_path(weights_name);
    settings.epochs = 2;
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_OK, "%s", status_message());
    new_weights = data_files_read(weights_name, &new_weights_bytes);
    new_state = data_files_read(state_name, &new_state_bytes);
    ck_assert(!file_exists(trainer_set_path("run/last.previous.safetensors")));
    ck_assert(!file_exists(trainer_set_path("run/last.new.safetensors")));

    /* The old weights have both names. */
    data_files_write(weights_name, old_weights, old_weights_bytes);
    data_files_write(state_name, old_state, old_state_bytes);
    data_files_write("run/last.previous.safetensors", old_weights, old_weights_bytes);
    ck_assert_int_eq(try_open(), STATUS_OK);
    /* The new weights are in place, the new state is not. */
    data_files_write(weights_name, new_weights, new_weights_bytes);
    ck_assert_int_eq(try_open(), STATUS_OK);
    checkpoint *from;
    struct checkpoint_position position;
    ck_assert_int_eq(checkpoint_open(trainer_set_path(weights_name), &from), STATUS_OK);
    checkpoint_read_position(from, &position);
    ck_assert_uint_eq(position.epoch, 1);
    checkpoint_close(&from);
    /* Going on from there ends where the run that was not cut off did. */
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_OK, "%s", status_message());
    unsigned char *again = data_files_read(weights_name, &bytes);
    ck_assert_uint_eq(bytes, new_weights_bytes);
    ck_assert_mem_eq(again, new_weights, bytes);
    free(again);
    ck_assert(!file_exists(trainer_set_path("run/last.previous.safetensors")));
    /* Without hard links: the old weights have the second name alone. */
    data_files_write(state_name, old_state, old_state_bytes);
    data_files_write("run/last.previous.safetensors", old_weights, old_weights_bytes);
    ck_assert_int_eq(unlink(trainer_set_path(weights_name)), 0);
    ck_assert_int_eq(try_open(), STATUS_OK);
    /* Both are new, the second name is not yet gone. */
    data_files_write(weights_name, new_weights, new_weights_bytes);
    data_files_write(state_name, new_state, new_state_bytes);
    ck_assert_int_eq(try_open(), STATUS_OK);
    free(old_weights);
    free(old_state);
    free(new_weights);
    free(new_state);
    trainer_set_end();
}
END_TEST

/* The disk is full after `bytes` of a file: nothing that was there changes, and nothing is left. */
START_TEST(test_full_disk_keeps_what_was_there)
{
    struct settings settings;
    struct job job;
    size_t weights_bytes, state_bytes, bytes;
    struct rlimit limit, usual;
    const struct checkpoint_position position = {.epoch = 1, .best_accuracy = -1};
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&settings, "run");
    unsigned char *weights = data_files_read(weights_name, &weights_bytes);
    unsigned char *state = data_files_read(state_name, &state_bytes);
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_int_eq(job_open(&settings, JOB_TRAIN_ALONE, NULL, NULL, &job), STATUS_OK);
    signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    /* Neither file fits; the weights fit and the state does not. */
    const rlim_t limits[] = {100, weights_bytes + 64};
    ck_assert_uint_gt(state_bytes, limits[1]);
    for (size_t i = 0; i < 2; i++) {
        limit = usual;
        limit.rlim_cur = limits[i];
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
        const enum status status = checkpoint_save(&job, settings.out, &position);
        ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
        ck_assert_msg(status == STATUS_IO, "%s: %s", status_name(status), status_message());
        unsigned char *now = data_files_read(weights_name, &bytes);
        ck_assert_uint_eq(bytes, weights_bytes);
        ck_assert_mem_eq(now, weights, bytes);
        free(now);
        now = data_files_read(state_name, &bytes);
        ck_assert_uint_eq(bytes, state_bytes);
        ck_assert_mem_eq(now, state, bytes);
        free(now);
        ck_assert(!file_exists(trainer_set_path("run/last.new.safetensors")));
        ck_assert(!file_exists(trainer_set_path("run/last.new.state.safetensors")));
    }
    ck_assert_int_eq(checkpoint_save(&job, settings.out, &position), STATUS_OK);
    job_close(&job);
    free(weights);
    free(state);
    trainer_set_end();
}
END_TEST

static void assert_other(struct settings *settings, const char *named)
{
    static struct seen_run seen;
    trainer_set_run(settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_MISMATCH, "%s: %s", status_name(seen.status),
                  status_message());
    ck_assert_msg(strstr(status_message(), named) != NULL, "%s", status_message());
}

START_TEST(test_another_run_is_refused_by_name)
{
    struct settings first, settings;
    struct synth_settings synth;
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&first, "run");
    first.resume = trainer_set_path(weights_name);
    first.epochs = 2;
    settings = first;
    settings.loader.batch_size = 4;
    assert_other(&settings, "--batch-size 8, not 4");
    settings = first;
    settings.network.model = "smallcnn";
    assert_other(&settings, "--model probe, not smallcnn");
    settings = first;
    settings.seed = 1;
    assert_other(&settings, "--seed 0, not 1");
    settings = first;
    settings.loader.mean[1] = 0.25F;
    assert_other(&settings, "--mean");
    settings = first;
    settings.network.optimiser = OPTIMISER_ADAMW;
    assert_other(&settings, "--optimizer sgd, not adamw");
    settings = first;
    settings.dataset.limit_samples = 10;
    assert_other(&settings, "trained on 20 images");
    /* As many images, of other content and size. */
    synth_settings_defaults(&synth);
    synth.folder = trainer_set_path("others");
    synth.train_count = IMAGES;
    synth.val_count = 0;
    synth.width = synth.height = 16;
    ck_assert_int_eq(synth_write(&synth, NULL), STATUS_OK);
    settings = first;
    settings.dataset.data = synth.folder;
    assert_other(&settings, "other images");
    trainer_set_end();
}
END_TEST

START_TEST(test_weights_load_only_where_they_fit)
{
    struct settings settings;
    struct job job;
    size_t bytes;
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&settings, "run");
    settings.weights = trainer_set_path(weights_name);
    ck_assert_int_eq(settings_complete(&settings), STATUS_OK);
    ck_assert_msg(job_open(&settings, JOB_TRAIN_ALONE, NULL, NULL, &job) == STATUS_OK, "%s",
                  status_message());
    uint64_t hash, again;
    ck_assert_int_eq(network_weights_hash(job.net, &hash), STATUS_OK);
    ck_assert_int_eq(network_initialise(job.net, 5), STATUS_OK);
    ck_assert_int_eq(network_weights_hash(job.net, &again), STATUS_OK);
    ck_assert_uint_ne(hash, again);
    ck_assert_int_eq(job_reset_weights(&job), STATUS_OK);
    ck_assert_int_eq(network_weights_hash(job.net, &again), STATUS_OK);
    ck_assert_uint_eq(hash, again);
    /* One changed byte of the data is noticed, and the weights in the network stay. */
    unsigned char *data = data_files_read(weights_name, &bytes);
    data[bytes - 1] ^= 1;
    data_files_write(weights_name, data, bytes);
    ck_assert_int_eq(checkpoint_load_weights(settings.weights, "probe", job.net), STATUS_INVALID);
    free(data);
    ck_assert_int_eq(checkpoint_load_weights(trainer_set_path("none"), "probe", job.net),
                     STATUS_NOT_FOUND);
    ck_assert_int_eq(network_weights_hash(job.net, &again), STATUS_OK);
    ck_assert_uint_eq(hash, again);
    job_close(&job);
    settings.network.model = "smallcnn";
    ck_assert_int_eq(job_open(&settings, JOB_TRAIN_ALONE, NULL, NULL, &job), STATUS_INVALID);
    trainer_set_end();
}
END_TEST

START_TEST(test_weights_file_says_how_to_use_it)
{
    struct settings settings;
    struct checkpoint_model model;
    safetensors *file;
    trainer_set_begin(IMAGES, 0, SIZE);
    make_run(&settings, "run");
    ck_assert_int_eq(checkpoint_read_model(trainer_set_path(weights_name), &model), STATUS_OK);
    ck_assert(model.known);
    ck_assert_str_eq(model.model, "probe");
    ck_assert_int_eq(model.size, SIZE);
    ck_assert_int_eq(model.classes, SYNTH_CLASSES);
    for (int i = 0; i < SYNTH_CLASSES; i++) {
        ck_assert_str_eq(model.class_names->items[i].string, synth_class_name(i));
    }
    for (int i = 0; i < 3; i++) {
        ck_assert_float_eq(model.mean[i], 0.5F);
        ck_assert_float_eq(model.deviation[i], 0.25F);
    }
    ck_assert(!model.centre);
    ck_assert(!model.exif_orientation);
    ck_assert(!model.exact_decode);
    checkpoint_model_close(&model);
    /* PyTorch's names and layout, and nothing else. */
    ck_assert_int_eq(safetensors_open(trainer_set_path(weights_name), &file), STATUS_OK);
    ck_assert_uint_eq(safetensors_count(file), 4);
    const struct safetensors_entry *entry = safetensors_find(file, "0.weight");
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(entry->dims, 4);
    ck_assert_int_eq(entry->shape[0], 32);
    ck_assert_int_eq(entry->shape[1], 3);
    ck_assert_int_eq(entry->shape[2], 3);
    ck_assert_int_eq(entry->shape[3], 3);
    entry = safetensors_find(file, "4.weight");
    ck_assert_ptr_nonnull(entry);
    ck_assert_int_eq(entry->shape[0], SYNTH_CLASSES);
    ck_assert_int_eq(entry->shape[1], 32);
    safetensors_close(&file);
    /* What changes pixels goes with the weights. */
    static struct seen_run seen;
    settings.out = trainer_set_path("turned");
    settings.loader.image.exif_orientation = true;
    settings.loader.image.exact_decode = true;
    settings.loader.augment.kind = AUGMENT_RESIZED_CROP;
    trainer_set_run(&settings, -1, &seen);
    ck_assert_msg(seen.status == STATUS_OK, "%s", status_message());
    ck_assert_int_eq(checkpoint_read_model(trainer_set_path("turned/last.safetensors"), &model),
                     STATUS_OK);
    ck_assert(model.exif_orientation);
    ck_assert(model.exact_decode);
    ck_assert(model.centre);
    checkpoint_model_close(&model);
    trainer_set_end();
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_cut_or_changed_pair_is_refused,   test_crash_between_renames_leaves_a_pair,
        test_full_disk_keeps_what_was_there,   test_another_run_is_refused_by_name,
        test_weights_load_only_where_they_fit, test_weights_file_says_how_to_use_it,
    };
    return check_run("checkpoint", tests, sizeof tests / sizeof tests[0], 60);
}
