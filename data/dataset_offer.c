/* What a path is, and which samples for training and validation it offers. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/log.h"
#include "data/dataset_internal.h"
#include "data/folder_index.h"
#include "data/packed.h"

void offer_release(struct offer *offer)
{
    source_release(&offer->train);
    source_release(&offer->val);
}

static void offer_take_source(struct offer *offer, struct source *source)
{
    offer->train = source;
    offer->train_count = source->train_count;
    if (source->count > source->train_count) {
        offer->val = source_share(source);
        offer->val_first = source->train_count;
        offer->val_count = source->count - source->train_count;
    }
}

/* Which splits a folder holds, and what else. */
struct split_folders {
    bool train;
    const char *val; /* "val", "valid", "validation" or "test", in this order of preference */
    size_t others;   /* folders that are none of these */
};

static void find_splits(const char *path, struct split_folders *found)
{
    static const char *const val_names[] = {"val", "valid", "validation", "test"};
    const size_t names = sizeof val_names / sizeof val_names[0];
    *found = (struct split_folders){0};
    size_t best = names;
    DIR *stream = opendir(path);
    if (stream == NULL) {
        return;
    }
    const struct dirent *entry;
    while ((entry = readdir(stream)) != NULL) {
        if (folder_name_classify(entry->d_name) == FOLDER_NAME_HIDDEN) {
            continue;
        }
        size_t split = 0;
        while (split < names && strcmp(entry->d_name, val_names[split]) != 0) {
            split++;
        }
        const bool is_train = strcmp(entry->d_name, "train") == 0;
        bool is_folder = entry->d_type == DT_DIR;
        if (entry->d_type == DT_LNK || entry->d_type == DT_UNKNOWN) {
            /* A look at the splits alone: others are counted for messages. */
            struct stat facts;
            is_folder = (is_train || split < names) &&
                        fstatat(dirfd(stream), entry->d_name, &facts, 0) == 0 &&
                        S_ISDIR(facts.st_mode);
        }
        if (!is_folder) {
            continue;
        }
        if (is_train) {
            found->train = true;
        } else if (split == names) {
            found->others++;
        } else if (split < best) {
            best = split;
        }
    }
    (void)closedir(stream);
    found->val = best < names ? val_names[best] : NULL;
}

static enum status open_split(const char *path, const char *name, struct source **out)
{
    char *folder = file_join(path, name);
    if (folder == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to open %s", path);
    }
    const enum status status = folder_source_open(folder, out);
    free(folder);
    TRY(status);
    return STATUS_OK;
}

static enum status open_folder(const char *path, struct offer *offer)
{
    char quoted[512];
    (void)file_quote(path, quoted, sizeof quoted);
    struct source *source;
    struct split_folders splits;
    find_splits(path, &splits);
    if (splits.val != NULL && !splits.train) {
        return FAIL(STATUS_INVALID,
                    "%s holds %s/ but no train/; name both (--data for training, --val-data for "
                    "validation) or add train/",
                    quoted, splits.val);
    }
    if (splits.val == NULL && splits.train && splits.others == 0) {
        TRY(open_split(path, "train", &source));
        offer_take_source(offer, source);
        return STATUS_OK;
    }
    if (splits.val == NULL) {
        TRY(folder_source_open(path, &source));
        offer_take_source(offer, source);
        return STATUS_OK;
    }
    if (splits.others > 0) {
        log_warn("%s: train/ and %s/ are used; %zu other folders beside them are not", quoted,
                 splits.val, splits.others);
    }
    TRY(open_split(path, "train", &offer->train));
    TRY(open_split(path, splits.val, &offer->val));
    offer->train_count = offer->train->count;
    offer->val_count = offer->val->count;
    return STATUS_OK;
}

static enum status fail_unknown_file(const char *path)
{
    char quoted[512];
    (void)file_quote(path, quoted, sizeof quoted);
    if (folder_name_classify(path) != FOLDER_NAME_UNKNOWN) {
        return FAIL(STATUS_INVALID,
                    "%s is one image, not a set of them; give the folder that holds "
                    "the class folders",
                    quoted);
    }
    const char *dot = strrchr(path, '.');
    if (dot != NULL &&
        (strcmp(dot, ".tar") == 0 || strcmp(dot, ".tgz") == 0 || strcmp(dot, ".zip") == 0 ||
         strcmp(dot, ".gz") == 0 || strcmp(dot, ".xz") == 0 || strcmp(dot, ".zst") == 0)) {
        return FAIL(STATUS_INVALID, "%s looks like an archive; unpack it and give the folder",
                    quoted);
    }
    return FAIL(
        STATUS_INVALID,
        "%s is no set that this program knows: a folder with a folder a class, a packed "
        "file (pinline pack), CIFAR's .bin files, or IDX files (MNIST), these also .gz; check "
        "the path",
        quoted);
}

enum status offer_open(const char *path, struct offer *offer)
{
    *offer = (struct offer){0};
    struct stat facts;
    if (stat(path, &facts) != 0) {
        const int reason = errno;
        char quoted[512];
        (void)file_quote(path, quoted, sizeof quoted);
        if (reason == ENOENT || reason == ENOTDIR) {
            return FAIL(STATUS_NOT_FOUND, "there is no folder or file %s; check the path", quoted);
        }
        return FAIL(STATUS_IO, "%s cannot be looked at: %s", quoted, strerror(reason));
    }
    const bool is_folder = S_ISDIR(facts.st_mode);
    struct source *source = NULL;
    if (!is_folder && packed_recognise(path)) {
        TRY(packed_source_open(path, &source));
    } else if (cifar_recognise(path)) {
        TRY(cifar_source_open(path, &source));
    } else if (idx_recognise(path)) {
        TRY(idx_source_open(path, &source));
    } else if (is_folder) {
        TRY(open_folder(path, offer));
        return STATUS_OK;
    } else {
        return fail_unknown_file(path);
    }
    offer_take_source(offer, source);
    return STATUS_OK;
}

/* --- Where nothing may be written ------------------------------------------------------------ */

static enum status is_within_split(const char *folder, const char *place, const char *split,
                                   bool *within)
{
    char *path = file_join(place, split);
    if (path == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to look at %s", place);
    }
    *within = *within || file_is_within(folder, path);
    free(path);
    return STATUS_OK;
}

static enum status check_place(const char *place, const char *option, const char *folder)
{
    struct split_folders splits;
    if (!file_is_folder(place)) {
        return STATUS_OK;
    }
    find_splits(place, &splits);
    bool within = file_is_within(folder, place);
    const bool itself = within && file_is_within(place, folder);
    if (itself) {
        /* Whatever the set is. */
    } else if (cifar_recognise(place) || idx_recognise(place)) {
        within = false;
    } else if (splits.train && splits.val != NULL) {
        within = false;
        TRY(is_within_split(folder, place, "train", &within));
        TRY(is_within_split(folder, place, splits.val, &within));
    }
    if (within) {
        char quoted[512], inside[512];
        (void)file_quote(folder, quoted, sizeof quoted);
        return FAIL(STATUS_USAGE,
                    "%s %s %s%s: what is written there would lie among the images, as a class or "
                    "in one, and the next listing would fail; name a folder elsewhere",
                    option, quoted,
                    itself ? "is the folder of the data" : "lies in the data's folder ",
                    itself ? "" : file_quote(place, inside, sizeof inside));
    }
    return STATUS_OK;
}

enum status dataset_check_output(const struct dataset_settings *settings, const char *option,
                                 const char *folder)
{
    TRY(check_place(settings->data, option, folder));
    if (settings->val_data != NULL) {
        TRY(check_place(settings->val_data, option, folder));
    }
    return STATUS_OK;
}
