#include "data/dataset.h"

#include <assert.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/stop.h"
#include "data/dataset_internal.h"

/* Some samples of one source. */
struct part {
    struct source *source; /* one reference */
    size_t first, count;   /* without `chosen`: that range of the source */
    uint32_t *chosen;      /* `count` samples of the source, ascending, or NULL */
    int *label_map;        /* from the source's labels to the set's, or NULL when equal */
    const char *prefix;    /* before names: "" or, where two splits are one set, "train/", "val/" */
};

struct dataset {
    struct part parts[2];
    int part_count;
    size_t count;
    /* Whose class table holds: that of the training set, also for a validation set from elsewhere,
     * which may outlive it. One reference. */
    struct source *naming;
};

void source_release(struct source **source)
{
    if (*source != NULL && atomic_fetch_sub(&(*source)->references, 1) == 1) {
        (*source)->operations->close(*source);
    }
    *source = NULL;
}

struct source *source_share(struct source *source)
{
    atomic_fetch_add(&source->references, 1);
    return source;
}

/* --- Making sets --------------------------------------------------------------------------- */

static struct dataset *dataset_create(void)
{
    return calloc(1, sizeof(struct dataset));
}

static void add_part(struct dataset *set, struct source *source, size_t first, size_t count)
{
    assert(set->part_count < 2);
    struct part *part = &set->parts[set->part_count++];
    part->source = source_share(source);
    part->first = first;
    part->count = count;
    part->prefix = "";
    set->count += count;
    if (set->naming == NULL) {
        set->naming = source_share(source);
    }
}

/* Held out or not: by the name alone, so that other files coming or going change nothing. */
static bool is_held_out(const char *name, double fraction)
{
    struct rng rng;
    rng_init(&rng, 0, RNG_SPLIT, 0, hash_text(HASH_START, name) & ((UINT64_C(1) << 56) - 1));
    return rng_uniform_double(&rng) < fraction;
}

/* Divides one undivided source by the hash of names. `val` stays empty where no sample falls to it. */
static enum status split_by_hash(struct dataset *train, struct dataset *val, double fraction)
{
    const struct part *whole = &train->parts[0];
    uint32_t *kept = malloc(whole->count * sizeof *kept);
    uint32_t *held = malloc(whole->count * sizeof *held);
    if (kept == NULL || held == NULL) {
        free(kept);
        free(held);
        return FAIL(STATUS_NO_MEMORY, "no memory to divide %zu samples", whole->count);
    }
    struct part *train_part = &train->parts[0];
    add_part(val, whole->source, 0, 0);
    struct part *val_part = &val->parts[0];
    train_part->chosen = kept;
    val_part->chosen = held;
    size_t kept_count = 0, held_count = 0;
    for (size_t i = 0; i < whole->count; i++) {
        char name[PATH_MAX];
        if (i % 4096 == 0) {
            TRY(stop_check());
        }
        const size_t sample = whole->first + i;
        (void)whole->source->operations->name(whole->source, sample, name, sizeof name);
        if (is_held_out(name, fraction)) {
            held[held_count++] = (uint32_t)sample;
        } else {
            kept[kept_count++] = (uint32_t)sample;
        }
    }
    train_part->count = train->count = kept_count;
    val_part->count = val->count = held_count;
    if (kept_count == 0) {
        return FAIL(STATUS_INVALID,
                    "all %zu images fall into the validation share of %g; add images or lower the "
                    "share",
                    held_count, fraction);
    }
    uint32_t *smaller = realloc(kept, kept_count * sizeof *kept);
    train_part->chosen = smaller != NULL ? smaller : kept;
    smaller = held_count > 0 ? realloc(held, held_count * sizeof *held) : NULL;
    val_part->chosen = smaller != NULL ? smaller : held;
    return STATUS_OK;
}

/* Keeps `limit` samples, evenly spread: sample floor(k * count / limit) for k = 0 .. limit - 1. */
static enum status limit_part(struct part *part, size_t limit)
{
    uint32_t *chosen = malloc(limit * sizeof *chosen);
    if (chosen == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to choose %zu samples", limit);
    }
    /* limit <= count < 2^32, so the product fits. */
    for (size_t k = 0; k < limit; k++) {
        const uint64_t at = (uint64_t)k * part->count / limit;
        chosen[k] = part->chosen != NULL ? part->chosen[at] : (uint32_t)(part->first + at);
    }
    free(part->chosen);
    part->chosen = chosen;
    part->count = limit;
    return STATUS_OK;
}

static enum status limit_set(struct dataset *set, size_t limit)
{
    if (limit == 0 || limit >= set->count) {
        return STATUS_OK;
    }
    if (set->part_count == 2) {
        const size_t first_share = (size_t)((uint64_t)limit * set->parts[0].count / set->count);
        TRY(limit_part(&set->parts[1], limit - first_share));
        if (first_share == 0) {
            return FAIL(STATUS_USAGE,
                        "a limit of %zu samples leaves none for training; raise --limit-samples",
                        limit);
        }
        TRY(limit_part(&set->parts[0], first_share));
    } else {
        TRY(limit_part(&set->parts[0], limit));
    }
    set->count = limit;
    return STATUS_OK;
}

static enum status check_settings(const struct dataset_settings *settings)
{
    if (settings->data == NULL || settings->data[0] == '\0') {
        return FAIL(STATUS_USAGE, "no data was named; give a folder or file with --data");
    }
    if (settings->val_data != NULL && settings->val_data[0] == '\0') {
        return FAIL(STATUS_USAGE, "--val-data is empty; give a folder or file, or leave it out");
    }
    if (!(settings->val_fraction >= 0.0 && settings->val_fraction <= 0.9)) {
        return FAIL(STATUS_USAGE, "a validation share of %g is outside 0 to 0.9",
                    settings->val_fraction);
    }
    return STATUS_OK;
}

static enum status check_source(const char *path, const struct source *source)
{
    if (source->count > UINT32_MAX) {
        return FAIL(STATUS_LIMIT, "%s holds %zu samples; a set can have 4,294,967,295", path,
                    source->count);
    }
    if (source->class_count < 2) {
        char folder[512], name[256];
        return FAIL(STATUS_INVALID,
                    "%s has a single class, %s; at least two are needed: check whether the folder "
                    "above it was meant",
                    file_quote(path, folder, sizeof folder),
                    file_quote(source->class_names[0], name, sizeof name));
    }
    return STATUS_OK;
}

/* Both offers are known; makes the sets, half-built on failure. */
static enum status build(const struct dataset_settings *settings, const struct offer *offer,
                         struct dataset *train, struct dataset *val)
{
    TRY(check_source(settings->data, offer->train));
    add_part(train, offer->train, offer->train_first, offer->train_count);
    if (val == NULL) {
        if (offer->val_count > 0) {
            add_part(train, offer->val, offer->val_first, offer->val_count);
            train->parts[0].prefix = "train/";
            train->parts[1].prefix = "val/";
            TRY(class_match(offer->train, offer->val, &train->parts[1].label_map));
        }
        if (train->count > UINT32_MAX) {
            return FAIL(STATUS_LIMIT, "%s holds %zu samples; a set can have 4,294,967,295",
                        settings->data, train->count);
        }
    } else if (offer->val_count > 0) {
        val->naming = source_share(offer->train);
        add_part(val, offer->val, offer->val_first, offer->val_count);
        TRY(class_match(offer->train, offer->val, &val->parts[0].label_map));
    } else if (settings->val_fraction > 0.0) {
        TRY(split_by_hash(train, val, settings->val_fraction));
        if (val->count == 0) {
            log_warn("%s: none of its %zu images falls into the validation share of %g; there is "
                     "no validation",
                     settings->data, train->count, settings->val_fraction);
        }
    }
    TRY(limit_set(train, settings->limit_samples));
    return STATUS_OK;
}

/* Replaces the validation part of `offer` by what val_data offers. */
static enum status open_val_data(const char *path, struct offer *offer)
{
    struct offer other;
    const enum status status = offer_open(path, &other);
    if (status == STATUS_OK) {
        source_release(&offer->val);
        const bool divided = other.val_count > 0;
        offer->val = source_share(divided ? other.val : other.train);
        offer->val_first = divided ? other.val_first : other.train_first;
        offer->val_count = divided ? other.val_count : other.train_count;
    }
    offer_release(&other);
    TRY(status);
    return STATUS_OK;
}

enum status dataset_open(const struct dataset_settings *settings, dataset **train, dataset **val)
{
    *train = NULL;
    if (val != NULL) {
        *val = NULL;
    }
    TRY(check_settings(settings));
    struct offer offer = {0};
    enum status status = offer_open(settings->data, &offer);
    if (status == STATUS_OK && settings->val_data != NULL) {
        status = open_val_data(settings->val_data, &offer);
    }
    struct dataset *first = dataset_create();
    struct dataset *second = val != NULL ? dataset_create() : NULL;
    if (status == STATUS_OK && (first == NULL || (val != NULL && second == NULL))) {
        status = FAIL(STATUS_NO_MEMORY, "no memory to open %s", settings->data);
    }
    if (status == STATUS_OK) {
        status = build(settings, &offer, first, second);
    }
    offer_release(&offer);
    if (status != STATUS_OK) {
        dataset_close(&first);
        dataset_close(&second);
        TRY(status);
    }
    *train = first;
    if (second != NULL && second->count == 0) {
        dataset_close(&second);
    }
    if (val != NULL) {
        *val = second;
    }
    return STATUS_OK;
}

void dataset_close(dataset **set)
{
    if (*set == NULL) {
        return;
    }
    for (int i = 0; i < (*set)->part_count; i++) {
        struct part *part = &(*set)->parts[i];
        source_release(&part->source);
        free(part->chosen);
        free(part->label_map);
    }
    source_release(&(*set)->naming);
    free(*set);
    *set = NULL;
}

/* --- Reading ------------------------------------------------------------------------------- */

size_t dataset_count(const dataset *set)
{
    return set->count;
}

int dataset_class_count(const dataset *set)
{
    return set->naming->class_count;
}

const char *dataset_class_name(const dataset *set, int class_id)
{
    assert(class_id >= 0 && class_id < set->naming->class_count);
    return set->naming->class_names[class_id];
}

/* The part that holds sample `*sample`, which becomes the number in the part's source. */
static const struct part *find_part(const dataset *set, size_t *sample)
{
    assert(*sample < set->count);
    const struct part *part = &set->parts[0];
    if (*sample >= part->count) {
        *sample -= part->count;
        part = &set->parts[1];
    }
    *sample = part->chosen != NULL ? part->chosen[*sample] : part->first + *sample;
    return part;
}

int dataset_label(const dataset *set, size_t sample)
{
    const struct part *part = find_part(set, &sample);
    const int label = part->source->operations->label(part->source, sample);
    return part->label_map != NULL ? part->label_map[label] : label;
}

char *dataset_sample_name(const dataset *set, size_t sample, char *text, size_t bytes)
{
    const struct part *part = find_part(set, &sample);
    const size_t prefix = strlen(part->prefix);
    if (prefix >= bytes) {
        (void)snprintf(text, bytes, "%s", part->prefix);
        return text;
    }
    memcpy(text, part->prefix, prefix);
    (void)part->source->operations->name(part->source, sample, text + prefix, bytes - prefix);
    return text;
}

void dataset_locate(const dataset *set, size_t sample, char *path_text, size_t path_bytes,
                    struct sample_location *location)
{
    const struct part *part = find_part(set, &sample);
    part->source->operations->locate(part->source, sample, path_text, path_bytes, location);
}

void dataset_read_skipped(const dataset *set, struct dataset_skipped *skipped)
{
    *skipped = (struct dataset_skipped){0};
    for (int i = 0; i < set->part_count; i++) {
        const struct dataset_skipped *one = &set->parts[i].source->skipped;
        if (i > 0 && set->parts[i].source == set->parts[0].source) {
            continue;
        }
        skipped->hidden += one->hidden;
        skipped->unknown_type += one->unknown_type;
        skipped->unsupported += one->unsupported;
        skipped->loops += one->loops;
        if (skipped->example[0] == '\0') {
            memcpy(skipped->example, one->example, sizeof skipped->example);
        }
    }
}

static uint64_t hash_number(uint64_t hash, uint64_t value)
{
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(value >> (8 * i));
    }
    return hash_bytes(hash, bytes, sizeof bytes);
}

uint64_t dataset_fingerprint(const dataset *set)
{
    const int classes = dataset_class_count(set);
    uint64_t hash = hash_number(HASH_START, (uint64_t)classes);
    for (int i = 0; i < classes; i++) {
        const char *name = dataset_class_name(set, i);
        hash = hash_bytes(hash, name, strlen(name) + 1);
    }
    for (size_t i = 0; i < set->count; i++) {
        char path[PATH_MAX], name[PATH_MAX];
        struct sample_location location;
        dataset_locate(set, i, path, sizeof path, &location);
        (void)dataset_sample_name(set, i, name, sizeof name);
        hash = hash_bytes(hash, name, strlen(name) + 1);
        hash = hash_number(hash, (uint64_t)dataset_label(set, i));
        hash = hash_number(hash, location.bytes);
    }
    return hash;
}

size_t dataset_memory(const dataset *set)
{
    size_t bytes = sizeof *set;
    for (int i = 0; i < set->part_count; i++) {
        const struct part *part = &set->parts[i];
        bytes += part->chosen != NULL ? part->count * sizeof *part->chosen : 0;
        bytes += part->label_map != NULL ? (size_t)dataset_class_count(set) * sizeof(int) : 0;
        if (i == 0 || part->source != set->parts[0].source) {
            bytes += part->source->operations->memory(part->source);
        }
    }
    return bytes;
}
