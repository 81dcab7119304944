#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "models/safetensors.h"
#include "models/weights.h"
#include "trainer/checkpoint.h"
#include "trainer/checkpoint_internal.h"

/* --- Paths ---------------------------------------------------------------------------------- */

enum status checkpoint__paths_init(struct checkpoint__paths *paths, const char *folder)
{
    paths->weights = file_join(folder, "last.safetensors");
    paths->state = file_join(folder, "last.state.safetensors");
    paths->previous = file_join(folder, "last.previous.safetensors");
    paths->new_weights = file_join(folder, "last.new.safetensors");
    paths->new_state = file_join(folder, "last.new.state.safetensors");
    if (!paths->weights || !paths->state || !paths->previous || !paths->new_weights ||
        !paths->new_state) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the paths of a checkpoint");
    }
    return STATUS_OK;
}

void checkpoint__paths_fini(struct checkpoint__paths *paths)
{
    free(paths->weights);
    free(paths->state);
    free(paths->previous);
    free(paths->new_weights);
    free(paths->new_state);
    memset(paths, 0, sizeof *paths);
}

/* --- Hashes --------------------------------------------------------------------------------- */

static uint64_t hash_weights(const safetensors *file)
{
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < safetensors_count(file); i++) {
        hash = checkpoint__hash_values(hash, safetensors_at(file, i));
    }
    return hash;
}

bool checkpoint__read_hex64(const char *text, uint64_t *value)
{
    char *end = NULL;
    if (!text || strlen(text) != 16) {
        return false;
    }
    *value = strtoull(text, &end, 16);
    return *end == '\0';
}

/* The JSON of a file's "pinline" entry; *document NULL where the file has none. */
static enum status parse_metadata(const char *path, const safetensors *file,
                                  json_document **document)
{
    const char *text = safetensors_metadata_value(file, CHECKPOINT_KEY);
    *document = NULL;
    if (!text) {
        return STATUS_OK;
    }
    const enum status status = json_parse(text, strlen(text), document);
    if (status != STATUS_OK) {
        status_prefix("%s: metadata \"%s\"", path, CHECKPOINT_KEY);
    }
    return status;
}

/* Whether a file is what this program wrote; files of others have no hash to compare. */
static enum status check_hash(const char *path, const safetensors *file)
{
    uint64_t recorded;
    const char *text = safetensors_metadata_value(file, CHECKPOINT_KEY);
    const char *digits = safetensors_metadata_value(file, CHECKPOINT_HASH_KEY);
    const char *format = safetensors_metadata_value(file, "format");
    if (!text && !digits) {
        return STATUS_OK;
    }
    uint64_t hash = hash_text(HASH_START, text ? text : "");
    for (size_t i = 0; i < safetensors_count(file); i++) {
        hash = checkpoint__hash_entry(hash, safetensors_at(file, i));
    }
    if (!text || !format || strcmp(format, CHECKPOINT_FORMAT) != 0 ||
        !checkpoint__read_hex64(digits, &recorded) || hash != recorded) {
        return FAIL(STATUS_INVALID,
                    "%s was changed after it was written: it does not have the hash that it "
                    "records; use another checkpoint",
                    path);
    }
    return STATUS_OK;
}

/* --- Weights -------------------------------------------------------------------------------- */

/* Names the model that a file says it holds. */
static const char *recorded_model(const struct json_value *root)
{
    return root ? json_member_string(root, "model", NULL) : NULL;
}

static enum status load_weights(const char *path, const char *model, const safetensors *file,
                                network *net)
{
    json_document *document;
    TRY(check_hash(path, file));
    TRY(parse_metadata(path, file, &document));
    const char *other = document ? recorded_model(json_root(document)) : NULL;
    enum status status = STATUS_OK;
    if (other && strcmp(other, model) != 0) {
        status = FAIL(STATUS_MISMATCH, "%s holds weights of %s, not of %s; give --model %s", path,
                      other, model, other);
    }
    json_document_destroy(&document);
    TRY(status);
    return weights_load(path, model, file, net);
}

enum status checkpoint_load_weights(const char *path, const char *model, network *net)
{
    safetensors *file = NULL;
    enum status status = safetensors_open(path, &file);
    if (status == STATUS_OK) {
        status = load_weights(path, model, file, net);
    }
    safetensors_close(&file);
    return status;
}

static void read_floats(const struct json_value *array, float values[3])
{
    for (size_t i = 0; i < 3 && array && array->kind == JSON_ARRAY && i < array->count; i++) {
        values[i] = (float)array->items[i].number;
    }
}

enum status checkpoint_read_model(const char *path, struct checkpoint_model *out)
{
    safetensors *file = NULL;
    memset(out, 0, sizeof *out);
    enum status status = safetensors_open(path, &file);
    if (status == STATUS_OK) {
        status = check_hash(path, file);
    }
    if (status == STATUS_OK) {
        status = parse_metadata(path, file, &out->document);
    }
    safetensors_close(&file);
    TRY(status);
    const struct json_value *root = out->document ? json_root(out->document) : NULL;
    const struct json_value *names = json_member(root, "classes");
    out->model = recorded_model(root);
    if (!out->model || !names || names->kind != JSON_ARRAY) {
        return STATUS_OK;
    }
    for (size_t i = 0; i < names->count; i++) {
        if (names->items[i].kind != JSON_STRING) {
            return FAIL(STATUS_INVALID,
                        "%s: the table of classes is damaged; use another checkpoint", path);
        }
    }
    out->known = true;
    out->stem = json_member_string(root, "stem", "auto");
    out->size = (int)json_member_int(root, "size", 0);
    out->classes = (int)names->count;
    out->class_names = names;
    out->centre = strcmp(json_member_string(root, "view", "whole"), "centre") == 0;
    out->exif_orientation = json_member_bool(root, "exif_orientation", false);
    out->exact_decode = json_member_bool(root, "exact_decode", false);
    for (int i = 0; i < 3; i++) {
        out->mean[i] = 0.5F;
        out->deviation[i] = 0.25F;
    }
    read_floats(json_member(root, "mean"), out->mean);
    read_floats(json_member(root, "std"), out->deviation);
    return STATUS_OK;
}

void checkpoint_model_close(struct checkpoint_model *model)
{
    json_document_destroy(&model->document);
    memset(model, 0, sizeof *model);
}

/* --- Opening a pair ------------------------------------------------------------------------- */

static enum status open_state(const char *path, checkpoint *from)
{
    TRY(safetensors_open(path, &from->state));
    if (!safetensors_metadata_value(from->state, CHECKPOINT_KEY)) {
        return FAIL(
            STATUS_INVALID,
            "%s is not the state of a run of this program; start from the weights with --weights",
            path);
    }
    TRY(check_hash(path, from->state));
    TRY(parse_metadata(path, from->state, &from->document));
    from->root = json_root(from->document);
    if (json_member_int(from->root, "version", -1) != CHECKPOINT_VERSION) {
        return FAIL(
            STATUS_UNSUPPORTED,
            "%s has version %lld of the format, this program reads %d; start from the weights with --weights",
            path, (long long)json_member_int(from->root, "version", -1), CHECKPOINT_VERSION);
    }
    return STATUS_OK;
}

/* Opens the weights at `path` when they are those of the state. */
static enum status open_weights(const char *path, const struct json_value *state,
                                safetensors **weights)
{
    uint64_t recorded;
    TRY(safetensors_open(path, weights));
    enum status status = check_hash(path, *weights);
    if (status == STATUS_OK &&
        (!checkpoint__read_hex64(json_member_string(state, "weights_hash", NULL), &recorded) ||
         hash_weights(*weights) != recorded)) {
        status = FAIL(STATUS_INVALID,
                      "%s does not belong to the state beside it: its weights have another hash; "
                      "start from it with --weights instead",
                      path);
    }
    if (status != STATUS_OK) {
        safetensors_close(weights);
    }
    return status;
}

bool checkpoint__belongs(const char *weights, const char *state)
{
    checkpoint from;
    memset(&from, 0, sizeof from);
    const bool belongs = open_state(state, &from) == STATUS_OK &&
                         open_weights(weights, from.root, &from.weights) == STATUS_OK;
    safetensors_close(&from.weights);
    safetensors_close(&from.state);
    json_document_destroy(&from.document);
    status_clear();
    return belongs;
}

static enum status open_pair(const char *path, const struct checkpoint__paths *paths,
                             checkpoint *from)
{
    if (!file_exists(path) && !file_exists(paths->state)) {
        return FAIL(STATUS_NOT_FOUND, "there is no checkpoint %s; check the path", path);
    }
    if (!file_exists(paths->state)) {
        return FAIL(STATUS_NOT_FOUND,
                    "%s: there is no %s beside it, so it is weights alone and cannot be resumed; "
                    "start from it with --weights",
                    path, paths->state);
    }
    TRY(open_state(paths->state, from));
    const enum status status = open_weights(path, from->root, &from->weights);
    if (status == STATUS_OK) {
        from->path = strdup(path);
    } else {
        struct status_report report;
        status_save(&report, status);
        if (!file_exists(paths->previous) ||
            open_weights(paths->previous, from->root, &from->weights) != STATUS_OK) {
            return status_restore(&report);
        }
        status_clear();
        log_warn("the last checkpoint was not finished; going on from the one before, %s",
                 paths->previous);
        from->path = strdup(paths->previous);
    }
    return from->path ? STATUS_OK : FAIL(STATUS_NO_MEMORY, "no memory for a path");
}

enum status checkpoint_open(const char *path, checkpoint **out)
{
    struct checkpoint__paths paths;
    *out = NULL;
    if (strcmp(file_name(path), "last.safetensors") != 0) {
        return FAIL(STATUS_USAGE,
                    "--resume takes a run's last.safetensors, whose state lies beside it, not %s; "
                    "--weights starts from any weights",
                    path);
    }
    char *folder = file_folder(path);
    checkpoint *from = calloc(1, sizeof *from);
    enum status status = STATUS_OK;
    memset(&paths, 0, sizeof paths);
    if (!folder || !from) {
        status = FAIL(STATUS_NO_MEMORY, "no memory for a checkpoint");
    }
    if (status == STATUS_OK) {
        status = checkpoint__paths_init(&paths, folder);
    }
    if (status == STATUS_OK) {
        status = open_pair(path, &paths, from);
    }
    checkpoint__paths_fini(&paths);
    free(folder);
    if (status != STATUS_OK) {
        checkpoint_close(&from);
    }
    *out = from;
    return status;
}

void checkpoint_close(checkpoint **from)
{
    if (!*from) {
        return;
    }
    safetensors_close(&(*from)->weights);
    safetensors_close(&(*from)->state);
    json_document_destroy(&(*from)->document);
    free((*from)->path);
    free(*from);
    *from = NULL;
}

const struct json_value *checkpoint_settings(const checkpoint *from)
{
    return json_member(from->root, "settings");
}

const struct json_value *checkpoint_plans(const checkpoint *from)
{
    return json_member(from->root, "plans");
}

void checkpoint_read_position(const checkpoint *from, struct checkpoint_position *position)
{
    position->epoch = (uint32_t)json_member_int(from->root, "epoch", 0);
    position->batch = (uint32_t)json_member_int(from->root, "batch", 0);
    position->best_accuracy = json_member_double(from->root, "best_accuracy", -1);
    position->best_epoch = (uint32_t)json_member_int(from->root, "best_epoch", 0);
    position->seconds = json_member_double(from->root, "seconds", 0);
}

/* --- Restoring ---------------------------------------------------------------------------------- */

static void warn_other_libraries(const checkpoint *from, struct job *job)
{
    struct device_facts facts;
    if (device_read_facts(job->dev, &facts) != STATUS_OK) {
        status_clear();
        return;
    }
    const struct json_value *then = json_member(from->root, "device");
    const struct {
        const char *what, *recorded, *now;
    } items[] = {
        {"device", json_member_string(then, "name", ""), facts.name},
        {"BLAS", json_member_string(then, "blas", ""), facts.blas},
        {"cuDNN", json_member_string(then, "cudnn", ""), facts.cudnn},
    };
    for (size_t i = 0; i < sizeof items / sizeof items[0]; i++) {
        if (strcmp(items[i].recorded, items[i].now) != 0) {
            log_warn(
                "the checkpoint was written with %s \"%s\", this is \"%s\": results may differ "
                "in their last bits",
                items[i].what, items[i].recorded, items[i].now);
        }
    }
}

/* The weights fitted, so a state that does not is not theirs. */
static bool state_fits(const struct parameter *parameter, const struct safetensors_entry *entry)
{
    bool same = entry->dtype == SAFETENSORS_F32 && entry->dims == parameter->dims;
    for (int d = 0; same && d < entry->dims; d++) {
        same = entry->shape[d] == parameter->shape[d];
    }
    return same;
}

enum status checkpoint_restore(const checkpoint *from, struct job *job)
{
    network *net = job->net;
    TRY(load_weights(from->path, job->settings.network.model, from->weights, net));
    for (int which = 0; which < network_state_count(net); which++) {
        for (int i = 0; i < network_parameter_count(net); i++) {
            const struct parameter *parameter = network_parameter(net, i);
            if (parameter->kind != PARAMETER_WEIGHT) {
                continue;
            }
            char name[CHECKPOINT_NAME_BYTES];
            checkpoint__state_name(parameter->name, which, name);
            const struct safetensors_entry *entry = safetensors_find(from->state, name);
            if (!entry) {
                return FAIL(
                    STATUS_MISMATCH,
                    "the state beside %s has no \"%s\": start from the weights with --weights",
                    from->path, name);
            }
            if (!state_fits(parameter, entry)) {
                return FAIL(STATUS_MISMATCH,
                            "the state beside %s has \"%s\" in another shape than the weights: "
                            "start from them with --weights",
                            from->path, name);
            }
            TRY(network_set_state(net, i, which, entry->data));
        }
    }
    warn_other_libraries(from, job);
    return STATUS_OK;
}
