/*
 * What is remembered of plans: those that were found, read from the cache file or required, by the key
 * of their graph; and the choices of this process in the order of their making.
 */
#ifndef PINLINE_DEVICE_PLAN_TABLE_H
#define PINLINE_DEVICE_PLAN_TABLE_H

#include "device/cuda/plan_config.h"

/* The id that says that nothing can run a graph. */
#define PLAN_NONE "none"

struct plan_entry {
    uint64_t key;
    double ms;
    bool required;
    bool saved; /* stands in the cache file */
    char id[PLAN_ID_BYTES];
};

struct plan_choice {
    uint64_t key;
    double ms;
    char id[PLAN_ID_BYTES];
    char label[128];
};

/* Zero is an empty one. */
struct plan_table {
    struct plan_entry *entries;
    size_t entry_count, entry_room;
    struct plan_choice *choices; /* in order of creation */
    size_t choice_count, choice_room;
    bool require;      /* operations that were given a plan must use it */
    bool allow_others; /* except where it cannot be used */
    uint64_t *labels;  /* hashes of the labels that were given plans */
    size_t label_count;
    bool dirty;
    char *path;        /* of the cache file, NULL for none */
    char machine[256]; /* GPU, driver and library versions: plans of another one do not count */
};

/* Reads the cache file when settings name one; a file that cannot be read is reported as a warning and
 * replaced later. STATUS_NO_MEMORY. */
enum status plan_table__open(const struct cuda_device *dev, struct plan_table *plans) MUST_USE;
/* Writes the cache file where something was added. */
void plan_table__flush(struct plan_table *plans);
void plan_table__fini(struct plan_table *plans);

/* Whether the operation of this label must use a plan that was given. */
bool plan_table__must(const struct plan_table *plans, const char *label);

/* The key of a graph under the settings that decide which plans are allowed. */
uint64_t plan_table__key(const struct cuda_device *dev, const char *text);
struct plan_entry *plan_table__find(struct plan_table *plans, uint64_t key);
enum status plan_table__add(struct plan_table *plans, uint64_t key, const char *id, double ms,
                            bool required, bool saved) MUST_USE;
enum status plan_table__choose(struct plan_table *plans, const char *label, uint64_t key,
                               const char *id, double ms) MUST_USE;

#endif
