/* Images that cannot be used: noted by workers, replaced or reported at their batch's turn. */
#include "loader/loader_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

/* Names in messages; longer ones are cut. */
#define NAME_BYTES 512

void loader__note_bad(loader *l, struct slot *slot, int place, enum status status, bool fatal)
{
    const char *message = status_message();
    size_t bytes = strlen(message) + 1;
    struct bad_place *bad = malloc(sizeof *bad + bytes);
    pthread_mutex_lock(&l->mutex);
    if (bad == NULL) {
        slot->reason_lost = true;
        pthread_mutex_unlock(&l->mutex);
        return;
    }
    bad->place = place;
    bad->status = status;
    bad->fatal = fatal;
    memcpy(bad->reason, message, bytes);
    bad->next = slot->bad;
    slot->bad = bad;
    pthread_mutex_unlock(&l->mutex);
}

void loader__free_bad(struct slot *slot)
{
    slot->reason_lost = false;
    while (slot->bad != NULL) {
        struct bad_place *bad = slot->bad;
        slot->bad = bad->next;
        free(bad);
    }
}

void loader__replace_bad(const loader *l, struct slot *slot)
{
    for (const struct bad_place *bad = slot->bad; bad != NULL; bad = bad->next) {
        slot->labels[bad->place] = -1;
    }
    int first = -1;
    slot->good = 0;
    for (int i = 0; i < slot->n; i++) {
        if (slot->labels[i] >= 0) {
            slot->good++;
            if (first < 0) {
                first = i;
            }
        }
    }
    for (int i = 0; i < slot->n; i++) {
        loader__write_target(l, slot, i, slot->good);
        if (slot->labels[i] >= 0) {
            continue;
        }
        size_t to = (size_t)i * l->image_bytes;
        if (first < 0) {
            memset(slot->pixels + to, 0, l->image_bytes);
        } else {
            memcpy(slot->pixels + to, slot->pixels + (size_t)first * l->image_bytes,
                   l->image_bytes);
        }
        if (slot->shadow != NULL) {
            memcpy(slot->shadow + to, slot->pixels + to, l->image_bytes);
        }
    }
}

/* Each sample once, however many epochs meet it. */
static enum status record_bad(loader *l, uint32_t sample, const char *reason)
{
    l->counts.bad_images++;
    if ((l->bad_seen[sample / 8] >> (sample % 8) & 1) != 0) {
        return STATUS_OK;
    }
    if (l->bad_count == l->bad_capacity) {
        size_t capacity = l->bad_capacity == 0 ? 16 : l->bad_capacity * 2;
        struct bad_image_record *larger = realloc(l->bad_images, capacity * sizeof *l->bad_images);
        if (larger == NULL) {
            return FAIL(STATUS_NO_MEMORY, "no memory for the list of bad images");
        }
        l->bad_images = larger;
        l->bad_capacity = capacity;
    }
    char *copy = strdup(reason);
    if (copy == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the list of bad images");
    }
    l->bad_seen[sample / 8] |= (unsigned char)(1U << (sample % 8));
    l->bad_images[l->bad_count++] = (struct bad_image_record){.sample = sample, .reason = copy};
    return STATUS_OK;
}

/* The first bad place in the order of the batch, whichever thread met it first. */
static const struct bad_place *first_bad(const struct slot *slot, bool fatal_alone)
{
    const struct bad_place *first = NULL;
    for (const struct bad_place *bad = slot->bad; bad != NULL; bad = bad->next) {
        if ((bad->fatal || !fatal_alone) && (first == NULL || bad->place < first->place)) {
            first = bad;
        }
    }
    return first;
}

static enum status fail_bad(const loader *l, const struct slot *slot, const struct bad_place *bad)
{
    char name[NAME_BYTES];
    char quoted[NAME_BYTES];
    uint32_t sample = slot->samples[bad->place];
    dataset_sample_name(l->set, sample, name, sizeof name);
    file_quote(name, quoted, sizeof quoted);
    if (bad->fatal) {
        return FAIL(bad->status, "%s (sample %u): %s", quoted, sample, bad->reason);
    }
    return FAIL(
        bad->status == STATUS_IO || bad->status == STATUS_NOT_FOUND ? STATUS_IO : STATUS_INVALID,
        "%s (sample %u): %s; --on-bad-image skip goes on without it", quoted, sample, bad->reason);
}

enum status loader__settle_bad(loader *l, struct slot *slot)
{
    if (slot->reason_lost) {
        return FAIL(STATUS_NO_MEMORY, "no memory while a batch was decoded");
    }
    bool skip = l->settings.on_bad_image == BAD_IMAGE_SKIP;
    const struct bad_place *bad = first_bad(slot, skip);
    if (bad != NULL) {
        return fail_bad(l, slot, bad);
    }
    for (int place = 0; place < slot->n; place++) {
        for (bad = slot->bad; bad != NULL; bad = bad->next) {
            if (bad->place == place) {
                TRY(record_bad(l, slot->samples[place], bad->reason));
            }
        }
    }
    loader__free_bad(slot);
    return STATUS_OK;
}

bool loader_bad_image(const loader *l, size_t n, uint32_t *sample, const char **reason)
{
    if (n >= l->bad_count) {
        return false;
    }
    *sample = l->bad_images[n].sample;
    *reason = l->bad_images[n].reason;
    return true;
}
