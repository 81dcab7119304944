#include "device/cuda/plan_table.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "device/cuda/cuda_plans.h"

#define CACHE_VERSION 1
#define CACHE_MAX_BYTES ((size_t)64 << 20)

/* --- The table ------------------------------------------------------------------------------ */

struct plan_entry *plan_table__find(struct plan_table *plans, uint64_t key)
{
    for (size_t i = 0; i < plans->entry_count; i++) {
        if (plans->entries[i].key == key) {
            return &plans->entries[i];
        }
    }
    return NULL;
}

bool plan_table__must(const struct plan_table *plans, const char *label)
{
    const uint64_t hash = hash_text(HASH_START, label);
    bool given = false;
    for (size_t i = 0; i < plans->label_count && !given; i++) {
        given = plans->labels[i] == hash;
    }
    return given && plans->require && !plans->allow_others;
}

enum status plan_table__add(struct plan_table *plans, uint64_t key, const char *id, double ms,
                            bool required, bool saved)
{
    struct plan_entry *entry = plan_table__find(plans, key);
    if (entry == NULL) {
        if (plans->entry_count == plans->entry_room) {
            size_t room = plans->entry_room == 0 ? 64 : plans->entry_room * 2;
            struct plan_entry *grown = realloc(plans->entries, room * sizeof *grown);
            if (grown == NULL) {
                return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
            }
            plans->entries = grown;
            plans->entry_room = room;
        }
        entry = &plans->entries[plans->entry_count++];
    }
    *entry = (struct plan_entry){.key = key, .ms = ms, .required = required, .saved = saved};
    snprintf(entry->id, sizeof entry->id, "%s", id);
    if (!saved) {
        plans->dirty = true;
    }
    return STATUS_OK;
}

enum status plan_table__choose(struct plan_table *plans, const char *label, uint64_t key,
                               const char *id, double ms)
{
    /* Operations that are created again (slots, another network of the same shape) add nothing. */
    for (size_t i = 0; i < plans->choice_count; i++) {
        const struct plan_choice *known = &plans->choices[i];
        if (known->key == key && strcmp(known->id, id) == 0 && strcmp(known->label, label) == 0) {
            return STATUS_OK;
        }
    }
    if (plans->choice_count == plans->choice_room) {
        size_t room = plans->choice_room == 0 ? 64 : plans->choice_room * 2;
        struct plan_choice *grown = realloc(plans->choices, room * sizeof *grown);
        if (grown == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the list of plans");
        }
        plans->choices = grown;
        plans->choice_room = room;
    }
    struct plan_choice *choice = &plans->choices[plans->choice_count++];
    *choice = (struct plan_choice){.key = key, .ms = ms};
    snprintf(choice->id, sizeof choice->id, "%s", id);
    snprintf(choice->label, sizeof choice->label, "%.127s", label);
    return STATUS_OK;
}

/* The key of a graph under the settings that decide which plans are allowed. */
uint64_t plan_table__key(const struct cuda_device *dev, const char *text)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "|%s%s", dev->settings.precision == PRECISION_F32 ? "f32" : "",
             dev->settings.deterministic ? "" : "any");
    return hash_text(hash_text(HASH_START, text), suffix);
}

/* --- The cache file ------------------------------------------------------------------------- */

static enum status parse_file(const char *path, json_document **out)
{
    *out = NULL;
    void *text = NULL;
    size_t bytes = 0;
    TRY(file_read(path, CACHE_MAX_BYTES, &text, &bytes));
    enum status status = json_parse(text, bytes, out);
    free(text);
    return status;
}

static bool parse_hex64(const char *text, uint64_t *value)
{
    char *end = NULL;
    if (text == NULL || strlen(text) != 16) {
        return false;
    }
    *value = strtoull(text, &end, 16);
    return *end == '\0';
}

static enum status load_cache(struct plan_table *plans)
{
    json_document *document = NULL;
    enum status status = parse_file(plans->path, &document);
    if (status == STATUS_NOT_FOUND) {
        status_clear();
        return STATUS_OK;
    }
    if (status != STATUS_OK) {
        log_warn("the cache of plans %s is not used: %s", plans->path, status_message());
        status_clear();
        return STATUS_OK;
    }
    const struct json_value *machines = json_member(json_root(document), "machines");
    if (json_member_int(json_root(document), "version", 0) == CACHE_VERSION && machines != NULL &&
        machines->kind == JSON_ARRAY) {
        for (size_t i = 0; i < machines->count && status == STATUS_OK; i++) {
            const struct json_value *machine = &machines->items[i];
            const struct json_value *list = json_member(machine, "plans");
            if (strcmp(json_member_string(machine, "machine", ""), plans->machine) != 0 ||
                list == NULL || list->kind != JSON_ARRAY) {
                continue;
            }
            for (size_t j = 0; j < list->count && status == STATUS_OK; j++) {
                uint64_t key = 0;
                if (parse_hex64(json_member_string(&list->items[j], "graph", ""), &key)) {
                    status = plan_table__add(
                        plans, key, json_member_string(&list->items[j], "plan", PLAN_NONE),
                        json_member_double(&list->items[j], "ms", 0), false, true);
                }
            }
        }
    }
    json_document_destroy(&document);
    return status;
}

static void write_machine(struct json_writer *writer, const char *name)
{
    json_begin_object(writer);
    json_key_string(writer, "machine", name);
    json_key(writer, "plans");
    json_begin_array(writer);
}

static void write_entry(struct json_writer *writer, uint64_t key, const char *id, double ms)
{
    json_begin_object(writer);
    json_key(writer, "graph");
    json_hex64(writer, key);
    json_key_string(writer, "plan", id);
    json_key_double(writer, "ms", ms);
    json_end_object(writer);
}

/* Writes the machines of the present file that are not this one, so that a folder shared by several
 * machines keeps all of them. */
static void copy_other_machines(const struct plan_table *plans, struct json_writer *writer)
{
    json_document *document = NULL;
    if (parse_file(plans->path, &document) != STATUS_OK) {
        status_clear();
        return;
    }
    const struct json_value *machines = json_member(json_root(document), "machines");
    for (size_t i = 0; machines != NULL && machines->kind == JSON_ARRAY && i < machines->count;
         i++) {
        const struct json_value *list = json_member(&machines->items[i], "plans");
        const char *name = json_member_string(&machines->items[i], "machine", "");
        if (strcmp(name, plans->machine) == 0 || list == NULL || list->kind != JSON_ARRAY) {
            continue;
        }
        write_machine(writer, name);
        for (size_t j = 0; j < list->count; j++) {
            uint64_t key = 0;
            if (parse_hex64(json_member_string(&list->items[j], "graph", ""), &key)) {
                write_entry(writer, key, json_member_string(&list->items[j], "plan", PLAN_NONE),
                            json_member_double(&list->items[j], "ms", 0));
            }
        }
        json_end_array(writer);
        json_end_object(writer);
    }
    json_document_destroy(&document);
}

void plan_table__flush(struct plan_table *plans)
{
    if (plans->path == NULL || !plans->dirty) {
        return;
    }
    plans->dirty = false;
    struct file_writer file = {0};
    enum status status = file_writer_open(&file, plans->path);
    if (status == STATUS_OK) {
        struct json_writer writer;
        json_writer_init(&writer, file.stream, true);
        json_begin_object(&writer);
        json_key_int(&writer, "version", CACHE_VERSION);
        json_key(&writer, "machines");
        json_begin_array(&writer);
        copy_other_machines(plans, &writer);
        write_machine(&writer, plans->machine);
        for (size_t i = 0; i < plans->entry_count; i++) {
            write_entry(&writer, plans->entries[i].key, plans->entries[i].id, plans->entries[i].ms);
            plans->entries[i].saved = true;
        }
        json_end_array(&writer);
        json_end_object(&writer);
        json_end_array(&writer);
        json_end_object(&writer);
        status = file_writer_commit(&file);
    }
    if (status != STATUS_OK) {
        file_writer_abort(&file);
        log_warn("the cache of plans was not written: %s", status_message());
        status_clear();
    }
}

enum status plan_table__open(const struct cuda_device *dev, struct plan_table *plans)
{
    int driver = 0;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    snprintf(plans->machine, sizeof plans->machine,
             "%.128s %d.%d, driver %s (CUDA %d), cuDNN %zu, CUDA runtime %zu", dev->properties.name,
             dev->properties.major, dev->properties.minor, nvml_driver(dev->nvml), driver,
             cudnnGetVersion(), cudnnGetCudartVersion());
    if (dev->settings.plan_cache == NULL) {
        return STATUS_OK;
    }
    plans->path = strdup(dev->settings.plan_cache);
    if (plans->path == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the table of plans");
    }
    return load_cache(plans);
}

void plan_table__fini(struct plan_table *plans)
{
    plan_table__flush(plans);
    free(plans->entries);
    free(plans->choices);
    free(plans->labels);
    free(plans->path);
    *plans = (struct plan_table){0};
}

/* --- Lists ---------------------------------------------------------------------------------- */

/* The table begins the device's plans; see cuda_plans.c. */
static struct plan_table *plans_of(struct cuda_device *dev)
{
    return (struct plan_table *)(void *)dev->plans;
}

enum status cuda__plans_note(struct cuda_device *dev, const char *label, const char *key,
                             const char *id)
{
    return plan_table__choose(plans_of(dev), label, plan_table__key(dev, key), id, 0);
}

enum status cuda__plans_wanted(struct cuda_device *dev, const char *label, const char *key,
                               char id[PLAN_ID_BYTES])
{
    struct plan_entry *entry = plan_table__find(plans_of(dev), plan_table__key(dev, key));
    id[0] = '\0';
    if (entry != NULL && entry->required) {
        snprintf(id, PLAN_ID_BYTES, "%s", entry->id);
    } else if (plan_table__must(plans_of(dev), label)) {
        return FAIL(STATUS_MISMATCH,
                    "%s: the plans to be used are for another form of this operation; --replan "
                    "chooses new ones",
                    label);
    }
    return STATUS_OK;
}

void cuda__write_plans(device *dev, struct json_writer *writer)
{
    const struct plan_table *plans = plans_of(cuda_of(dev));
    json_begin_array(writer);
    for (size_t i = 0; i < plans->choice_count; i++) {
        json_begin_object(writer);
        json_key_string(writer, "op", plans->choices[i].label);
        json_key_string(writer, "plan", plans->choices[i].id);
        json_key_double(writer, "ms", plans->choices[i].ms);
        json_key(writer, "graph");
        json_hex64(writer, plans->choices[i].key);
        json_end_object(writer);
    }
    json_end_array(writer);
}

uint64_t cuda__plans_hash(device *dev)
{
    const struct plan_table *plans = plans_of(cuda_of(dev));
    uint64_t sum = HASH_START;
    /* A sum, so that the order in which operations were created does not matter. */
    for (size_t i = 0; i < plans->choice_count; i++) {
        uint64_t hash = hash_text(hash_text(HASH_START, plans->choices[i].label), "\n");
        sum += hash_text(hash, plans->choices[i].id);
    }
    return sum;
}

enum status cuda__require_plans(device *dev, const struct json_value *plans, bool allow_others)
{
    struct plan_table *table = plans_of(cuda_of(dev));
    if (plans == NULL || plans->kind != JSON_ARRAY) {
        return FAIL(STATUS_INVALID, "the plans to be used are no list");
    }
    uint64_t *labels = malloc((plans->count + 1) * sizeof *labels);
    if (labels == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the plans to be used");
    }
    free(table->labels);
    table->labels = labels;
    table->label_count = 0;
    table->choice_count = 0;
    for (size_t i = 0; i < plans->count; i++) {
        uint64_t key = 0;
        labels[table->label_count++] =
            hash_text(HASH_START, json_member_string(&plans->items[i], "op", ""));
        const char *id = json_member_string(&plans->items[i], "plan", "");
        if (id[0] == '\0' ||
            !parse_hex64(json_member_string(&plans->items[i], "graph", ""), &key)) {
            return FAIL(STATUS_INVALID, "entry %zu of the plans to be used has no plan or graph",
                        i);
        }
        struct plan_entry *entry = plan_table__find(table, key);
        bool saved = entry != NULL && entry->saved && strcmp(entry->id, id) == 0;
        TRY(plan_table__add(table, key, id, json_member_double(&plans->items[i], "ms", 0), true,
                            saved));
    }
    table->require = true;
    table->allow_others = allow_others;
    return STATUS_OK;
}
