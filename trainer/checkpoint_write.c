#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/size.h"
#include "models/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_internal.h"

/* --- Copies of parameters ------------------------------------------------------------------- */

/* Entries of one file with the memory that they point to. */
struct image {
    struct safetensors_entry *entries;
    size_t count;
    uint8_t *data;
    char *names; /* of state entries; weights borrow the network's names */
};

static void image_fini(struct image *image)
{
    free(image->entries);
    free(image->data);
    free(image->names);
    memset(image, 0, sizeof *image);
}

static size_t parameter_bytes(const struct parameter *parameter)
{
    return parameter->kind == PARAMETER_COUNTER ? sizeof(int64_t)
                                                : parameter->elements * sizeof(float);
}

static size_t weights_bytes(const network *net)
{
    size_t bytes = 0;
    for (int i = 0; i < network_parameter_count(net); i++) {
        bytes += size_align(parameter_bytes(network_parameter(net, i)), 8);
    }
    return bytes;
}

static size_t state_bytes(const network *net)
{
    size_t bytes = 0;
    for (int i = 0; i < network_parameter_count(net); i++) {
        const struct parameter *parameter = network_parameter(net, i);
        if (parameter->kind == PARAMETER_WEIGHT) {
            bytes += size_align(parameter_bytes(parameter), 8);
        }
    }
    return bytes * (size_t)network_state_count(net);
}

static enum status check_finite(const struct safetensors_entry *entry)
{
    if (entry->dtype != SAFETENSORS_F32) {
        return STATUS_OK;
    }
    const float *values = entry->data;
    for (size_t i = 0; i < entry->bytes / sizeof *values; i++) {
        if (!isfinite(values[i])) {
            return FAIL(STATUS_DIVERGED,
                        "no checkpoint is written: \"%s\" holds a value that is not finite; lower "
                        "--lr or add --warmup-epochs; the last checkpoint is untouched",
                        entry->name);
        }
    }
    return STATUS_OK;
}

static void describe(struct safetensors_entry *entry, const char *name,
                     const struct parameter *parameter, const void *data)
{
    entry->name = name;
    entry->dtype = parameter->kind == PARAMETER_COUNTER ? SAFETENSORS_I64 : SAFETENSORS_F32;
    entry->dims = parameter->dims;
    for (int d = 0; d < parameter->dims; d++) {
        entry->shape[d] = parameter->shape[d];
    }
    entry->data = data;
    entry->bytes = parameter_bytes(parameter);
}

static enum status read_weights(network *net, struct image *image)
{
    const int count = network_parameter_count(net);
    memset(image, 0, sizeof *image);
    image->entries = calloc((size_t)count, sizeof *image->entries);
    image->data = malloc(weights_bytes(net));
    if (!image->entries || !image->data) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a copy of the weights (%zu bytes)",
                    weights_bytes(net));
    }
    uint8_t *at = image->data;
    for (int i = 0; i < count; i++) {
        const struct parameter *parameter = network_parameter(net, i);
        TRY(network_get_parameter(net, i, at));
        describe(&image->entries[i], parameter->name, parameter, at);
        TRY(check_finite(&image->entries[i]));
        at += size_align(parameter_bytes(parameter), 8);
    }
    image->count = (size_t)count;
    return STATUS_OK;
}

static enum status read_state(network *net, struct image *image)
{
    const int count = network_parameter_count(net);
    const int states = network_state_count(net);
    memset(image, 0, sizeof *image);
    const size_t most = (size_t)count * (size_t)states + 1;
    const size_t bytes = state_bytes(net);
    image->entries = calloc(most, sizeof *image->entries);
    image->data = malloc(bytes ? bytes : 1);
    image->names = calloc(most, CHECKPOINT_NAME_BYTES);
    if (!image->entries || !image->data || !image->names) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a copy of the optimiser's state (%zu bytes)",
                    bytes);
    }
    uint8_t *at = image->data;
    for (int which = 0; which < states; which++) {
        for (int i = 0; i < count; i++) {
            const struct parameter *parameter = network_parameter(net, i);
            if (parameter->kind != PARAMETER_WEIGHT) {
                continue;
            }
            char *name = image->names + image->count * CHECKPOINT_NAME_BYTES;
            checkpoint__state_name(parameter->name, which, name);
            TRY(network_get_state(net, i, which, (float *)(void *)at));
            describe(&image->entries[image->count], name, parameter, at);
            TRY(check_finite(&image->entries[image->count]));
            image->count++;
            at += size_align(parameter_bytes(parameter), 8);
        }
    }
    return STATUS_OK;
}

uint64_t checkpoint__hash_values(uint64_t hash, const struct safetensors_entry *entry)
{
    return hash_bytes(hash_text(hash, entry->name), entry->data, entry->bytes);
}

uint64_t checkpoint__hash_entry(uint64_t hash, const struct safetensors_entry *entry)
{
    const int64_t kind[2] = {(int64_t)entry->dtype, entry->dims};
    hash = hash_bytes(hash, kind, sizeof kind);
    hash = hash_bytes(hash, entry->shape, (size_t)entry->dims * sizeof entry->shape[0]);
    return checkpoint__hash_values(hash, entry);
}

void checkpoint__state_name(const char *parameter, int which, char *name)
{
    snprintf(name, CHECKPOINT_NAME_BYTES, "%s.%s", parameter, which == 0 ? "first" : "second");
}

/* The hash of a file that holds these entries and this metadata, as hexadecimal digits. */
static void file_hash_digits(const char *text, const struct image *image, char digits[17])
{
    uint64_t hash = hash_text(HASH_START, text);
    for (size_t i = 0; i < image->count; i++) {
        hash = checkpoint__hash_entry(hash, &image->entries[i]);
    }
    snprintf(digits, 17, "%016llx", (unsigned long long)hash);
}

/* --- Metadata ------------------------------------------------------------------------------- */

struct description {
    struct job *job;
    const struct checkpoint_position *position;
    uint64_t weights_hash;
    enum status status;
};

static uint64_t position_step(const struct job *job, const struct checkpoint_position *position)
{
    return (uint64_t)position->epoch * job->train_layout.batches + position->batch;
}

static void write_floats(struct json_writer *writer, const char *key, const float values[3])
{
    json_key(writer, key);
    json_begin_array(writer);
    for (int i = 0; i < 3; i++) {
        json_double(writer, (double)values[i]);
    }
    json_end_array(writer);
}

/* What whoever uses the weights must know. */
static void write_model(void *context, struct json_writer *writer)
{
    const struct description *what = context;
    const struct job *job = what->job;
    static const char *const stems[] = {"auto", "small", "large"};
    struct loader_settings eval;
    job_eval_loader_settings(&job->settings, &eval);
    json_begin_object(writer);
    json_key_int(writer, "version", CHECKPOINT_VERSION);
    json_key_string(writer, "program", "pinline " PINLINE_VERSION);
    json_key_string(writer, "model", job->settings.network.model);
    json_key_string(writer, "stem", stems[job->settings.network.stem]);
    json_key_int(writer, "size", job->settings.loader.size);
    write_floats(writer, "mean", job->settings.loader.mean);
    write_floats(writer, "std", job->settings.loader.deviation);
    json_key_string(writer, "view", eval.augment.kind == AUGMENT_CENTRE ? "centre" : "whole");
    json_key_bool(writer, "exif_orientation", job->settings.loader.image.exif_orientation);
    json_key_bool(writer, "exact_decode", job->settings.loader.image.exact_decode);
    json_key(writer, "classes");
    json_begin_array(writer);
    for (int i = 0; i < dataset_class_count(job->train_set); i++) {
        json_string(writer, dataset_class_name(job->train_set, i));
    }
    json_end_array(writer);
    json_key_int(writer, "epoch", what->position->epoch);
    json_key_int(writer, "step", (int64_t)position_step(job, what->position));
    json_key(writer, "best_accuracy");
    if (what->position->best_accuracy >= 0) {
        json_double(writer, what->position->best_accuracy);
    } else {
        json_null(writer);
    }
    json_key(writer, "weights_hash");
    json_hex64(writer, what->weights_hash);
    json_end_object(writer);
}

static void write_state(void *context, struct json_writer *writer)
{
    struct description *what = context;
    struct job *job = what->job;
    json_begin_object(writer);
    json_key_int(writer, "version", CHECKPOINT_VERSION);
    json_key(writer, "weights_hash");
    json_hex64(writer, what->weights_hash);
    json_key_int(writer, "epoch", what->position->epoch);
    json_key_int(writer, "batch", what->position->batch);
    json_key_int(writer, "step", (int64_t)position_step(job, what->position));
    json_key_double(writer, "best_accuracy", what->position->best_accuracy);
    json_key_int(writer, "best_epoch", what->position->best_epoch);
    json_key_double(writer, "seconds", what->position->seconds);
    json_key_int(writer, "train_images", (int64_t)dataset_count(job->train_set));
    json_key(writer, "train_fingerprint");
    json_hex64(writer, job->train_fingerprint);
    json_key(writer, "settings");
    job_write_settings(&job->settings, writer);
    json_key(writer, "machine");
    job_write_machine(writer);
    json_key(writer, "device");
    what->status = job_write_device(job->dev, writer);
    if (what->status != STATUS_OK) {
        json_null(writer);
    }
    json_key(writer, "plans");
    device_write_plans(job->dev, writer);
    json_end_object(writer);
}

/* --- Files ---------------------------------------------------------------------------------- */

static enum status write_file(const char *path, const struct image *image, const char *text)
{
    char digits[17];
    file_hash_digits(text, image, digits);
    const struct safetensors_metadata metadata[] = {
        {"format", CHECKPOINT_FORMAT}, {CHECKPOINT_KEY, text}, {CHECKPOINT_HASH_KEY, digits}};
    return safetensors_write(path, image->entries, image->count, metadata, 3);
}

static enum status write_weights_file(struct description *what, const struct image *image,
                                      const char *path)
{
    char *text;
    what->weights_hash = HASH_START;
    for (size_t i = 0; i < image->count; i++) {
        what->weights_hash = checkpoint__hash_values(what->weights_hash, &image->entries[i]);
    }
    TRY(job_json_text(write_model, what, &text));
    const enum status status = write_file(path, image, text);
    free(text);
    return status;
}

static enum status write_state_file(struct description *what, const char *path)
{
    char *text = NULL;
    struct image image;
    enum status status = read_state(what->job->net, &image);
    if (status == STATUS_OK) {
        status = job_json_text(write_state, what, &text);
    }
    if (status == STATUS_OK) {
        status = what->status;
    }
    if (status == STATUS_OK) {
        status = write_file(path, &image, text);
    }
    free(text);
    image_fini(&image);
    return status;
}

static enum status rename_file(const char *from, const char *to)
{
    if (rename(from, to) != 0) {
        return FAIL(STATUS_IO, "%s cannot be renamed to %s: %s", from, to, strerror(errno));
    }
    return STATUS_OK;
}

static void sync_folder(const char *folder)
{
    const int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0) {
        /* Not every file system can; the renames themselves have succeeded. */
        (void)fsync(fd);
        close(fd);
    }
}

/* The weights that are there stay reachable until the new state is in place. */
static enum status keep_previous(const struct checkpoint__paths *paths)
{
    if (!file_exists(paths->weights) || !file_exists(paths->state)) {
        return STATUS_OK;
    }
    unlink(paths->previous);
    if (link(paths->weights, paths->previous) == 0) {
        return STATUS_OK;
    }
    /* A file system without hard links: the name moves, and the state finds it there. */
    return rename_file(paths->weights, paths->previous);
}

static enum status put_in_place(const struct checkpoint__paths *paths, const char *folder)
{
    TRY(keep_previous(paths));
    TRY(rename_file(paths->new_weights, paths->weights));
    sync_folder(folder);
    TRY(rename_file(paths->new_state, paths->state));
    sync_folder(folder);
    unlink(paths->previous);
    return STATUS_OK;
}

static enum status write_pair(struct description *what, const struct checkpoint__paths *paths)
{
    struct image image;
    enum status status = read_weights(what->job->net, &image);
    if (status == STATUS_OK) {
        status = write_weights_file(what, &image, paths->new_weights);
    }
    image_fini(&image);
    TRY(status);
    TRY(write_state_file(what, paths->new_state));
    return STATUS_OK;
}

/* A crash between the renames left a state that belongs to the previous weights: before these lose
 * their second name, the pair is put together again. */
static void repair_pair(const struct checkpoint__paths *paths)
{
    if (file_exists(paths->previous) && file_exists(paths->state) &&
        !checkpoint__belongs(paths->weights, paths->state) &&
        checkpoint__belongs(paths->previous, paths->state)) {
        if (rename(paths->previous, paths->weights) != 0) {
            log_warn("%s cannot be renamed to %s: %s", paths->previous, paths->weights,
                     strerror(errno));
        }
    }
    status_clear();
}

enum status checkpoint_save(struct job *job, const char *folder,
                            const struct checkpoint_position *position)
{
    struct checkpoint__paths paths;
    struct description what = {.job = job, .position = position};
    enum status status = checkpoint__paths_init(&paths, folder);
    if (status == STATUS_OK) {
        repair_pair(&paths);
        status = write_pair(&what, &paths);
        if (status == STATUS_OK) {
            status = put_in_place(&paths, folder);
        }
        if (status != STATUS_OK) {
            unlink(paths.new_weights);
            unlink(paths.new_state);
        }
    }
    checkpoint__paths_fini(&paths);
    return status;
}

enum status checkpoint_save_weights(struct job *job, const char *folder, const char *name,
                                    const struct checkpoint_position *position)
{
    char file[64];
    struct image image;
    struct description what = {.job = job, .position = position};
    snprintf(file, sizeof file, "%s.safetensors", name);
    char *path = file_join(folder, file);
    if (!path) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the path of a checkpoint");
    }
    enum status status = read_weights(job->net, &image);
    if (status == STATUS_OK) {
        status = write_weights_file(&what, &image, path);
    }
    image_fini(&image);
    free(path);
    return status;
}

enum status checkpoint_check_space(const struct job *job, const char *folder, uint64_t extra)
{
    struct statvfs facts;
    if (statvfs(folder, &facts) != 0) {
        return FAIL(STATUS_IO, "%s: the free space cannot be read: %s", folder, strerror(errno));
    }
    /* Headers and the recorded plans are small beside this megabyte. */
    const uint64_t margin = UINT64_C(1) << 20;
    const uint64_t weights = weights_bytes(job->net) + margin;
    const uint64_t state = state_bytes(job->net) + margin;
    const uint64_t best = job->val_set ? 2 * weights : 0;
    const uint64_t wanted = 2 * (weights + state) + best + extra * weights;
    const uint64_t unused = (uint64_t)facts.f_bavail * facts.f_frsize;
    if (wanted > unused) {
        return FAIL(
            STATUS_IO,
            "%s: the checkpoints of this run take up to %.1f MiB and %.1f MiB are free; make "
            "room, or choose another folder with --out",
            folder, (double)wanted / 1048576.0, (double)unused / 1048576.0);
    }
    return STATUS_OK;
}

/* Also the name under which a file is begun: a program that was killed leaves it. */
static bool is_name_or_part(const char *name, const char *wanted)
{
    const size_t length = strlen(wanted);
    return strncmp(name, wanted, length) == 0 &&
           (name[length] == '\0' || strcmp(name + length, ".partial") == 0);
}

static bool is_checkpoint_name(const char *name)
{
    static const char *const fixed[] = {
        "last.safetensors",     "last.state.safetensors",     "last.previous.safetensors",
        "last.new.safetensors", "last.new.state.safetensors", "best.safetensors",
    };
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) {
        if (is_name_or_part(name, fixed[i])) {
            return true;
        }
    }
    const size_t digits = strncmp(name, "step-", 5) == 0 ? strspn(name + 5, "0123456789") : 0;
    return digits > 0 && is_name_or_part(name + 5 + digits, ".safetensors");
}

void checkpoint_remove_all(const char *folder)
{
    DIR *listing = opendir(folder);
    if (!listing) {
        return;
    }
    for (const struct dirent *found = readdir(listing); found; found = readdir(listing)) {
        if (is_checkpoint_name(found->d_name)) {
            unlinkat(dirfd(listing), found->d_name, 0);
        }
    }
    closedir(listing);
}
