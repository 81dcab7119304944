/* What writing and reading of checkpoints share. */
#ifndef PINLINE_TRAINER_CHECKPOINT_INTERNAL_H
#define PINLINE_TRAINER_CHECKPOINT_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"
#include "models/safetensors.h"

#define CHECKPOINT_VERSION 1
#define CHECKPOINT_KEY "pinline"
#define CHECKPOINT_HASH_KEY "pinline_hash"
#define CHECKPOINT_NAME_BYTES 160

/* An open pair. */
struct checkpoint {
    char *path; /* of the weights that are used */
    safetensors *weights, *state;
    json_document *document;
    const struct json_value *root;
};

/* Sixteen hexadecimal digits; false for anything else, NULL included. */
bool checkpoint__read_hex64(const char *text, uint64_t *value);

/* Paths of the pair in one folder, malloc'ed. */
struct checkpoint__paths {
    char *weights, *state, *previous, *new_weights, *new_state;
};
/* STATUS_NO_MEMORY; fini accepts a half-built value. */
enum status checkpoint__paths_init(struct checkpoint__paths *paths, const char *folder) MUST_USE;
void checkpoint__paths_fini(struct checkpoint__paths *paths);

/* Whether both files are whole and the state names the hash of these weights. */
bool checkpoint__belongs(const char *weights, const char *state);

#define CHECKPOINT_FORMAT "pt" /* what PyTorch's readers look for in the entry "format" */

/* Continues a hash over the name and the bytes of an entry: over all of a weights file it is the
 * hash that network_weights_hash gives. */
uint64_t checkpoint__hash_values(uint64_t hash, const struct safetensors_entry *entry);
/* The same over everything that describes the entry, too. A file records this, over the text of its
 * metadata and all entries, so that any change of it is noticed. */
uint64_t checkpoint__hash_entry(uint64_t hash, const struct safetensors_entry *entry);

/* The name of an optimiser state entry, into CHECKPOINT_NAME_BYTES bytes. */
void checkpoint__state_name(const char *parameter, int which, char *name);

#endif
