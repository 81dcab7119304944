/* Splits, class tables, limits and fingerprints of whole sets. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"

static struct dataset_settings settings_for(const char *name)
{
    return (struct dataset_settings){.data = data_files_path(name)};
}

static void open_both(const struct dataset_settings *settings, dataset **train, dataset **val)
{
    const enum status status = dataset_open(settings, train, val);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
}

static void refuse(const struct dataset_settings *settings, enum status expected, const char *word)
{
    dataset *train = (dataset *)&train, *val = (dataset *)&val;
    const enum status status = dataset_open(settings, &train, &val);
    ck_assert_msg(status == expected, "%s: %s", status_name(status), status_message());
    ck_assert_ptr_null(train);
    ck_assert_ptr_null(val);
    ck_assert_msg(strstr(status_message(), word) != NULL, "\"%s\" lacks \"%s\"", status_message(),
                  word);
}

static void check_name(const dataset *set, size_t sample, const char *expected)
{
    char name[PATH_MAX];
    ck_assert_str_eq(dataset_sample_name(set, sample, name, sizeof name), expected);
}

/* `count` files a class in the classes named by `classes`, each a letter. */
static void make_set(const char *name, const char *classes, int count)
{
    for (const char *c = classes; *c != '\0'; c++) {
        for (int i = 0; i < count; i++) {
            char path[128];
            (void)snprintf(path, sizeof path, "%s/%c/%04d.png", name, *c, i);
            data_files_touch(path);
        }
    }
}

START_TEST(test_train_and_val_folders)
{
    static const char *const val_names[] = {"val", "test", "valid", "validation"};
    char val_folder[64];
    (void)snprintf(val_folder, sizeof val_folder, "set/%s", val_names[_i]);
    make_set("set/train", "ab", 3);
    make_set(val_folder, "ab", 2);
    data_files_touch("set/LICENSE.txt");
    struct dataset_settings settings = settings_for("set");
    settings.val_fraction = 0.5; /* without effect: there is a val folder */
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train), 6);
    ck_assert_uint_eq(dataset_count(val), 4);
    ck_assert_int_eq(dataset_class_count(train), 2);
    ck_assert_int_eq(dataset_class_count(val), 2);
    ck_assert_str_eq(dataset_class_name(val, 1), "b");
    check_name(train, 3, "b/0000.png");
    check_name(val, 3, "b/0001.png");
    ck_assert_int_eq(dataset_label(train, 3), 1);
    char path[PATH_MAX];
    struct sample_location location;
    dataset_locate(val, 3, path, sizeof path, &location);
    ck_assert_int_eq(location.content, SAMPLE_FILE);
    char expected[128];
    (void)snprintf(expected, sizeof expected, "%s/b/0001.png", val_folder);
    ck_assert_str_eq(location.path, data_files_path(expected));
    ck_assert_uint_eq(location.bytes, strlen(expected));
    dataset_close(&train);
    ck_assert_ptr_null(train);
    /* Each lives without the other. */
    ck_assert_str_eq(dataset_class_name(val, 0), "a");
    ck_assert_int_eq(dataset_label(val, 3), 1);
    dataset_close(&val);
}
END_TEST

START_TEST(test_val_is_preferred_to_test)
{
    make_set("set/train", "ab", 1);
    make_set("set/val", "ab", 2);
    make_set("set/test", "ab", 3);
    const struct dataset_settings settings = settings_for("set");
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(val), 4);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_classes_may_be_named_as_words_that_hold_split_names)
{
    /* A rule that looked for "train" or "test" anywhere in a path would take these apart. */
    make_set("training data/rain", "x", 1);
    data_files_touch("training data/contest/1.png");
    data_files_touch("training data/interval/1.png");
    data_files_touch("training data/train/1.png"); /* a railway set: no val/ beside it */
    const struct dataset_settings settings = settings_for("training data");
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_ptr_null(val);
    ck_assert_int_eq(dataset_class_count(train), 4);
    ck_assert_str_eq(dataset_class_name(train, 0), "contest");
    ck_assert_str_eq(dataset_class_name(train, 1), "interval");
    ck_assert_str_eq(dataset_class_name(train, 2), "rain");
    ck_assert_str_eq(dataset_class_name(train, 3), "train");
    dataset_close(&train);
}
END_TEST

START_TEST(test_train_alone_is_the_set)
{
    make_set("set/train", "ab", 2);
    const struct dataset_settings settings = settings_for("set");
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_ptr_null(val);
    ck_assert_uint_eq(dataset_count(train), 4);
    check_name(train, 0, "a/0000.png");
    dataset_close(&train);
}
END_TEST

START_TEST(test_everything_as_one_set)
{
    make_set("set/train", "ab", 2);
    make_set("set/val", "ab", 1);
    const struct dataset_settings settings = settings_for("set");
    dataset *all;
    open_both(&settings, &all, NULL);
    ck_assert_uint_eq(dataset_count(all), 6);
    check_name(all, 0, "train/a/0000.png");
    check_name(all, 3, "train/b/0001.png");
    check_name(all, 4, "val/a/0000.png");
    ck_assert_int_eq(dataset_label(all, 5), 1);
    dataset_close(&all);
}
END_TEST

START_TEST(test_val_data)
{
    make_set("one", "ab", 2);
    make_set("two", "ab", 3);
    make_set("three/train", "ab", 4);
    make_set("three/val", "ab", 5);
    struct dataset_settings settings = settings_for("one");
    settings.val_data = data_files_path("two");
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train), 4);
    ck_assert_uint_eq(dataset_count(val), 6);
    dataset_close(&train);
    dataset_close(&val);
    /* Of a folder that is divided itself, the validation part is meant. */
    settings.val_data = data_files_path("three");
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(val), 10);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_unshared_classes_are_named)
{
    make_set("set/train", "abc", 1);
    make_set("set/val", "bcd", 1);
    const struct dataset_settings settings = settings_for("set");
    refuse(&settings, STATUS_INVALID, "only in training: a; only in validation: d");
    dataset *all;
    ck_assert_int_eq(dataset_open(&settings, &all, NULL), STATUS_INVALID);
    ck_assert_ptr_null(all);
}
END_TEST

static bool is_in(const dataset *set, const char *wanted)
{
    for (size_t i = 0; set != NULL && i < dataset_count(set); i++) {
        char name[PATH_MAX];
        if (strcmp(dataset_sample_name(set, i, name, sizeof name), wanted) == 0) {
            return true;
        }
    }
    return false;
}

START_TEST(test_the_split_does_not_move_when_files_are_added)
{
    make_set("set", "ab", 300);
    struct dataset_settings settings = settings_for("set");
    settings.val_fraction = 0.2;
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train) + dataset_count(val), 600);
    /* 600 draws at 0.2: 120, standard deviation 9.8; five of them. */
    ck_assert_uint_gt(dataset_count(val), 71);
    ck_assert_uint_lt(dataset_count(val), 169);
    for (size_t i = 0; i < 600; i++) {
        char name[PATH_MAX];
        (void)snprintf(name, sizeof name, "%c/%04zu.png", i < 300 ? 'a' : 'b', i % 300);
        ck_assert_int_ne(is_in(train, name), is_in(val, name));
    }

    make_set("set", "Acd", 50);
    data_files_touch("set/a/0000000.png");
    data_files_touch("set/b/zzz.png");
    dataset *more_train, *more_val;
    open_both(&settings, &more_train, &more_val);
    ck_assert_uint_eq(dataset_count(more_train) + dataset_count(more_val), 752);
    for (size_t i = 0; i < dataset_count(val); i++) {
        char name[PATH_MAX];
        ck_assert(is_in(more_val, dataset_sample_name(val, i, name, sizeof name)));
    }
    for (size_t i = 0; i < dataset_count(train); i++) {
        char name[PATH_MAX];
        ck_assert(is_in(more_train, dataset_sample_name(train, i, name, sizeof name)));
    }
    /* A larger share holds out the same samples and more. */
    settings.val_fraction = 0.4;
    dataset *wide_train, *wide_val;
    open_both(&settings, &wide_train, &wide_val);
    for (size_t i = 0; i < dataset_count(more_val); i++) {
        char name[PATH_MAX];
        ck_assert(is_in(wide_val, dataset_sample_name(more_val, i, name, sizeof name)));
    }
    dataset_close(&train);
    dataset_close(&val);
    dataset_close(&more_train);
    dataset_close(&more_val);
    dataset_close(&wide_train);
    dataset_close(&wide_val);
}
END_TEST

START_TEST(test_both_parts_of_a_split_have_every_class)
{
    make_set("set", "abcdefghij", 1);
    struct dataset_settings settings = settings_for("set");
    settings.val_fraction = 0.3;
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_int_eq(dataset_class_count(train), 10);
    if (val != NULL) {
        ck_assert_int_eq(dataset_class_count(val), 10);
        for (size_t i = 0; i < dataset_count(val); i++) {
            char name[PATH_MAX];
            ck_assert_int_eq(dataset_label(val, i),
                             dataset_sample_name(val, i, name, sizeof name)[0] - 'a');
        }
    }
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_limit_is_spread_evenly)
{
    make_set("set", "ab", 10);
    struct dataset_settings settings = settings_for("set");
    settings.limit_samples = 4;
    dataset *train, *val;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train), 4);
    check_name(train, 0, "a/0000.png");
    check_name(train, 1, "a/0005.png");
    check_name(train, 2, "b/0000.png");
    check_name(train, 3, "b/0005.png");
    ck_assert_int_eq(dataset_label(train, 2), 1);
    dataset_close(&train);
    settings.limit_samples = 100;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train), 20);
    dataset_close(&train);
    /* Validation is not limited, and the split comes first. */
    settings.val_fraction = 0.5;
    settings.limit_samples = 0;
    open_both(&settings, &train, &val);
    const size_t held_out = dataset_count(val);
    dataset_close(&train);
    dataset_close(&val);
    settings.limit_samples = 2;
    open_both(&settings, &train, &val);
    ck_assert_uint_eq(dataset_count(train), 2);
    ck_assert_uint_eq(dataset_count(val), held_out);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

static uint64_t fingerprint_of(const char *name, size_t limit)
{
    struct dataset_settings settings = settings_for(name);
    settings.limit_samples = limit;
    dataset *train, *val;
    open_both(&settings, &train, &val);
    const uint64_t value = dataset_fingerprint(train);
    ck_assert_uint_eq(value, dataset_fingerprint(train));
    dataset_close(&train);
    dataset_close(&val);
    return value;
}

START_TEST(test_fingerprint_sees_names_labels_and_sizes)
{
    data_files_write("one/a/1.png", "xyz", 3);
    data_files_write("one/b/2.png", "xyzw", 4);
    data_files_write("two/b/2.png", "XYZW", 4); /* made in another order, other place */
    data_files_write("two/a/1.png", "XYZ", 3);
    data_files_write("size/a/1.png", "xyz", 3);
    data_files_write("size/b/2.png", "xyzwv", 5);
    data_files_write("name/a/1.png", "xyz", 3);
    data_files_write("name/b/3.png", "xyzw", 4);
    data_files_write("class/a/1.png", "xyz", 3);
    data_files_write("class/c/2.png", "xyzw", 4);
    const uint64_t one = fingerprint_of("one", 0);
    ck_assert_uint_eq(one, fingerprint_of("two", 0));
    ck_assert_uint_ne(one, fingerprint_of("size", 0));
    ck_assert_uint_ne(one, fingerprint_of("name", 0));
    ck_assert_uint_ne(one, fingerprint_of("class", 0));
    ck_assert_uint_ne(one, fingerprint_of("one", 1));
}
END_TEST

/* FNV-1a, written down once more. */
static uint64_t fnv(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    while (bytes-- > 0) {
        hash ^= *at++;
        hash *= UINT64_C(0x100000001b3);
    }
    return hash;
}

START_TEST(test_fingerprint_is_the_documented_one)
{
    data_files_write("set/a/1.png", "xyz", 3);
    data_files_write("set/b/2.png", "xyzw", 4);
    static const unsigned char two[8] = {2}, zero[8] = {0}, one[8] = {1}, three[8] = {3},
                               four[8] = {4};
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    hash = fnv(hash, two, 8); /* classes */
    hash = fnv(hash, "a\0b", 4);
    hash = fnv(hash, "a/1.png", 8);
    hash = fnv(fnv(hash, zero, 8), three, 8);
    hash = fnv(hash, "b/2.png", 8);
    hash = fnv(fnv(hash, one, 8), four, 8);
    ck_assert_uint_eq(fingerprint_of("set", 0), hash);
}
END_TEST

START_TEST(test_skipped_adds_both_splits)
{
    make_set("set/train", "ab", 1);
    make_set("set/val", "ab", 1);
    data_files_touch("set/train/a/.DS_Store");
    data_files_touch("set/val/a/.DS_Store");
    data_files_touch("set/val/b/x.webp");
    const struct dataset_settings settings = settings_for("set");
    dataset *all;
    open_both(&settings, &all, NULL);
    struct dataset_skipped skipped;
    dataset_read_skipped(all, &skipped);
    ck_assert_uint_eq(skipped.hidden, 2);
    ck_assert_uint_eq(skipped.unsupported, 1);
    ck_assert_str_eq(skipped.example, "b/x.webp");
    dataset_close(&all);
}
END_TEST

START_TEST(test_wrong_uses)
{
    struct dataset_settings settings = {0};
    refuse(&settings, STATUS_USAGE, "--data");
    settings = settings_for("absent");
    refuse(&settings, STATUS_NOT_FOUND, "absent");
    make_set("set", "ab", 2);
    settings = settings_for("set");
    settings.val_data = data_files_path("missing val");
    refuse(&settings, STATUS_NOT_FOUND, "missing val");
    settings = settings_for("set");
    settings.val_fraction = 0.95;
    refuse(&settings, STATUS_USAGE, "0.95");
    settings.val_fraction = -0.1;
    refuse(&settings, STATUS_USAGE, "-0.1");
    settings.val_fraction = (double)NAN;
    refuse(&settings, STATUS_USAGE, "nan");
    make_set("single", "a", 5);
    settings = settings_for("single");
    refuse(&settings, STATUS_INVALID, "a single class, a");
    make_set("half/val", "ab", 1);
    settings = settings_for("half");
    refuse(&settings, STATUS_INVALID, "no train/");
    data_files_touch("photo.jpg");
    settings = settings_for("photo.jpg");
    refuse(&settings, STATUS_INVALID, "is one image");
    data_files_touch("set.tar");
    settings = settings_for("set.tar");
    refuse(&settings, STATUS_INVALID, "unpack");
    data_files_touch("notes.txt");
    settings = settings_for("notes.txt");
    refuse(&settings, STATUS_INVALID, "no set that this program knows");
    data_files_write("nothing", "", 0);
    settings = settings_for("nothing");
    refuse(&settings, STATUS_INVALID, "no set that this program knows");
    make_set("empty/train", "ab", 1);
    data_files_folder("empty/val/a");
    data_files_folder("empty/val/b");
    settings = settings_for("empty");
    refuse(&settings, STATUS_INVALID, "empty/val");
}
END_TEST

static void check_output(const char *data, const char *folder, enum status expected)
{
    char place[PATH_MAX];
    (void)snprintf(place, sizeof place, "%s", data_files_path(folder));
    const struct dataset_settings settings = settings_for(data);
    const enum status status = dataset_check_output(&settings, "--out", place);
    ck_assert_msg(status == expected, "%s for %s: %s", folder, data, status_name(status));
    if (status != STATUS_OK) {
        ck_assert_ptr_nonnull(strstr(status_message(), "--out "));
        ck_assert_ptr_nonnull(strstr(status_message(), folder));
    }
}

START_TEST(test_nothing_is_written_among_the_images)
{
    make_set("classes", "ab", 1);
    make_set("divided/train", "ab", 1);
    make_set("divided/val", "ab", 1);
    make_set("alone/train", "ab", 1);
    check_output("classes", "classes", STATUS_USAGE);
    check_output("classes", "classes/a", STATUS_USAGE);
    check_output("classes", "classes/a/run", STATUS_USAGE);
    check_output("classes", "classes/run", STATUS_USAGE);
    check_output("classes", "classes run", STATUS_OK);
    check_output("classes", "run/classes", STATUS_OK);
    check_output("divided", "divided", STATUS_USAGE);
    check_output("divided", "divided/train/run", STATUS_USAGE);
    check_output("divided", "divided/val/a", STATUS_USAGE);
    /* Listed as before: other folders beside the two are not looked into. */
    check_output("divided", "divided/run", STATUS_OK);
    /* Here another folder would make train/ a class. */
    check_output("alone", "alone/run", STATUS_USAGE);
    check_output("none", "none", STATUS_OK);
    data_files_touch("file.pack");
    check_output("file.pack", "run", STATUS_OK);
    struct dataset_settings settings = settings_for("divided/train");
    char *val_data = strdup(data_files_path("classes"));
    settings.val_data = val_data;
    ck_assert_int_eq(dataset_check_output(&settings, "--out", data_files_path("classes/c")),
                     STATUS_USAGE);
    free(val_data);
}
END_TEST

START_TEST(test_close_accepts_nothing)
{
    dataset *set = NULL;
    dataset_close(&set);
    ck_assert_ptr_null(set);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_loop_test(tests, test_train_and_val_folders, 0, 4);
    tcase_add_test(tests, test_val_is_preferred_to_test);
    tcase_add_test(tests, test_classes_may_be_named_as_words_that_hold_split_names);
    tcase_add_test(tests, test_train_alone_is_the_set);
    tcase_add_test(tests, test_everything_as_one_set);
    tcase_add_test(tests, test_val_data);
    tcase_add_test(tests, test_unshared_classes_are_named);
    tcase_add_test(tests, test_the_split_does_not_move_when_files_are_added);
    tcase_add_test(tests, test_both_parts_of_a_split_have_every_class);
    tcase_add_test(tests, test_limit_is_spread_evenly);
    tcase_add_test(tests, test_fingerprint_sees_names_labels_and_sizes);
    tcase_add_test(tests, test_fingerprint_is_the_documented_one);
    tcase_add_test(tests, test_skipped_adds_both_splits);
    tcase_add_test(tests, test_wrong_uses);
    tcase_add_test(tests, test_nothing_is_written_among_the_images);
    tcase_add_test(tests, test_close_accepts_nothing);
    return check_run_case("dataset", tests);
}
