/* The class tables of two sources, brought together by name. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/dataset_internal.h"

/* How many classes a message names. */
#define NAMED_CLASSES 5

/* A class table in the order of names, with the number of each. */
struct named_class {
    const char *name;
    int id;
};

static int compare_classes(const void *a, const void *b)
{
    return strcmp(((const struct named_class *)a)->name, ((const struct named_class *)b)->name);
}

static struct named_class *sorted_classes(const struct source *source)
{
    struct named_class *sorted = malloc((size_t)source->class_count * sizeof *sorted);
    for (int i = 0; sorted != NULL && i < source->class_count; i++) {
        sorted[i] = (struct named_class){source->class_names[i], i};
    }
    if (sorted != NULL) {
        qsort(sorted, (size_t)source->class_count, sizeof *sorted, compare_classes);
    }
    return sorted;
}

/* The names that only one side has, for the message. */
struct unshared {
    size_t count;
    char names[400];
};

static void note_unshared(struct unshared *unshared, const char *name)
{
    if (unshared->count < NAMED_CLASSES) {
        char quoted[72];
        (void)file_quote(name, quoted, sizeof quoted);
        const size_t used = strlen(unshared->names);
        (void)snprintf(unshared->names + used, sizeof unshared->names - used, "%s%s",
                       unshared->count == 0 ? "" : ", ", quoted);
    } else if (unshared->count == NAMED_CLASSES) {
        const size_t used = strlen(unshared->names);
        (void)snprintf(unshared->names + used, sizeof unshared->names - used, ", ...");
    }
    unshared->count++;
}

/* Writes for each class of `from` its number in `to`; both have the same names or it fails. */
static enum status match_sorted(const struct source *to, const struct source *from,
                                const struct named_class *left, const struct named_class *right,
                                int *map)
{
    struct unshared train_only = {0}, val_only = {0};
    int i = 0, j = 0;
    while (i < to->class_count || j < from->class_count) {
        const int order = i == to->class_count     ? 1
                          : j == from->class_count ? -1
                                                   : strcmp(left[i].name, right[j].name);
        if (order < 0) {
            note_unshared(&train_only, left[i++].name);
        } else if (order > 0) {
            note_unshared(&val_only, right[j++].name);
        } else {
            map[right[j++].id] = left[i++].id;
        }
    }
    if (train_only.count > 0 || val_only.count > 0) {
        return FAIL(
            STATUS_INVALID,
            "training and validation set have different classes: only in training: %s; only "
            "in validation: %s; give both the same class folders",
            train_only.count > 0 ? train_only.names : "none",
            val_only.count > 0 ? val_only.names : "none");
    }
    return STATUS_OK;
}

enum status class_match(const struct source *to, const struct source *from, int **map)
{
    *map = NULL;
    if (from == to) {
        return STATUS_OK;
    }
    struct named_class *left = sorted_classes(to);
    struct named_class *right = sorted_classes(from);
    int *numbers = calloc((size_t)from->class_count, sizeof *numbers);
    enum status status = STATUS_OK;
    if (left == NULL || right == NULL || numbers == NULL) {
        status = FAIL(STATUS_NO_MEMORY, "no memory for a table of %d classes", to->class_count);
    } else {
        status = match_sorted(to, from, left, right, numbers);
    }
    free(left);
    free(right);
    bool same = true;
    for (int i = 0; i < from->class_count && status == STATUS_OK; i++) {
        same = same && numbers[i] == i;
    }
    if (status != STATUS_OK || same) {
        free(numbers);
        numbers = NULL;
    }
    *map = numbers;
    return status;
}
