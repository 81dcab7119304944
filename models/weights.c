#include "models/weights.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Differences as a list for a message; what does not fit is counted. */
struct differences {
    char text[1024];
    size_t used;
    int count, left_out;
};

static void note(struct differences *list, const char *format, ...) PRINTF_LIKE(2, 3);
static void note(struct differences *list, const char *format, ...)
{
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    list->count++;
    const size_t length = strlen(line);
    if (list->used + length + 3 > sizeof list->text) {
        list->left_out++;
        return;
    }
    list->used += (size_t)snprintf(list->text + list->used, sizeof list->text - list->used, "%s%s",
                                   list->used > 0 ? "; " : "", line);
}

static const char *shape_text(int dims, const int64_t *shape, char *text, size_t bytes)
{
    size_t used = (size_t)snprintf(text, bytes, "[");
    for (int d = 0; d < dims && used < bytes; d++) {
        used += (size_t)snprintf(text + used, bytes - used, "%s%lld", d > 0 ? ", " : "",
                                 (long long)shape[d]);
    }
    if (used < bytes) {
        snprintf(text + used, bytes - used, "]");
    }
    return text;
}

static bool same_shape(const struct parameter *p, const struct safetensors_entry *entry)
{
    bool same = p->dims == entry->dims;
    for (int d = 0; same && d < p->dims; d++) {
        same = p->shape[d] == entry->shape[d];
    }
    return same;
}

static bool is_finite(const struct safetensors_entry *entry)
{
    const char *bytes = entry->data;
    for (size_t at = 0; at < entry->bytes; at += sizeof(float)) {
        float value;
        memcpy(&value, bytes + at, sizeof value);
        if (!isfinite(value)) {
            return false;
        }
    }
    return true;
}

static void compare_one(const struct parameter *p, const safetensors *file,
                        struct differences *list)
{
    const bool counter = p->kind == PARAMETER_COUNTER;
    const struct safetensors_entry *entry = safetensors_find(file, p->name);
    char found[96], wanted[96];
    if (entry == NULL) {
        if (!counter) {
            note(list, "%s is missing", p->name);
        }
    } else if (entry->dtype != (counter ? SAFETENSORS_I64 : SAFETENSORS_F32)) {
        note(list, "%s is not stored as %s", p->name, counter ? "I64" : "F32");
    } else if (!same_shape(p, entry)) {
        note(list, "%s is %s instead of %s", p->name,
             shape_text(entry->dims, entry->shape, found, sizeof found),
             shape_text(p->dims, p->shape, wanted, sizeof wanted));
    }
}

static bool is_known(const network *net, const char *name)
{
    for (int i = 0; i < network_parameter_count(net); i++) {
        if (strcmp(network_parameter(net, i)->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* The head is the last layer: its parameters have as many rows as there are classes. The rows of the
 * file's head when nothing but their number differs, else 0. */
static int64_t other_classes(const network *net, const safetensors *file, int differences)
{
    const int last = network_parameter_count(net) - 1;
    const bool bias = network_parameter(net, last)->dims == 1;
    const struct parameter *head = network_parameter(net, bias ? last - 1 : last);
    const struct safetensors_entry *entry = safetensors_find(file, head->name);
    if (differences != (bias ? 2 : 1) || entry == NULL || entry->dims != 2 ||
        entry->shape[1] != head->shape[1] || entry->shape[0] == head->shape[0]) {
        return 0;
    }
    if (bias) {
        const struct safetensors_entry *offsets =
            safetensors_find(file, network_parameter(net, last)->name);
        if (offsets == NULL || offsets->dims != 1 || offsets->shape[0] != entry->shape[0]) {
            return 0;
        }
    }
    return entry->shape[0];
}

static enum status check_fit(const char *path, const char *model, const safetensors *file,
                             const network *net)
{
    struct differences list = {.used = 0};
    for (int i = 0; i < network_parameter_count(net); i++) {
        compare_one(network_parameter(net, i), file, &list);
    }
    for (size_t i = 0; i < safetensors_count(file); i++) {
        if (!is_known(net, safetensors_at(file, i)->name)) {
            note(&list, "%s is unexpected", safetensors_at(file, i)->name);
        }
    }
    if (list.count == 0) {
        return STATUS_OK;
    }
    const int64_t classes = other_classes(net, file, list.count);
    if (classes > 0) {
        const int last = network_parameter_count(net) - 1;
        return FAIL(STATUS_MISMATCH,
                    "%s was trained for %lld classes, and the data have %lld: train anew, or give "
                    "the data it was trained on",
                    path, (long long)classes, (long long)network_parameter(net, last)->shape[0]);
    }
    char more[48] = "";
    if (list.left_out > 0) {
        snprintf(more, sizeof more, "; and %d more", list.left_out);
    }
    return FAIL(STATUS_MISMATCH,
                "%s does not fit %s: %s%s: it is of another model, stem or number of classes", path,
                model, list.text, more);
}

enum status weights_load(const char *path, const char *model, const safetensors *file, network *net)
{
    TRY(check_fit(path, model, file, net));
    for (size_t i = 0; i < safetensors_count(file); i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        if (entry->dtype == SAFETENSORS_F32 && !is_finite(entry)) {
            return FAIL(STATUS_INVALID,
                        "%s: %s holds a value that is not finite; use an earlier checkpoint", path,
                        entry->name);
        }
    }
    for (int i = 0; i < network_parameter_count(net); i++) {
        const struct safetensors_entry *entry =
            safetensors_find(file, network_parameter(net, i)->name);
        const int64_t zero = 0;
        TRY(network_set_parameter(net, i, entry != NULL ? entry->data : &zero));
    }
    return STATUS_OK;
}
