/* CIFAR's binary files, made by hand record by record. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"

#define PLANE 1024

/* The byte of record `number` at plane c, row y, column x: every position has another value nearby. */
static unsigned char value(int number, int c, int y, int x)
{
    return (unsigned char)(number * 31 + c * 101 + y * 7 + x * 3);
}

/* Records with the labels given; `coarse` puts a second label in front. */
static size_t make_records(unsigned char *out, const int *labels, int count, int first, bool coarse)
{
    unsigned char *at = out;
    for (int i = 0; i < count; i++) {
        if (coarse) {
            *at++ = (unsigned char)(labels[i] / 5);
        }
        *at++ = (unsigned char)labels[i];
        for (int c = 0; c < 3; c++) {
            for (int y = 0; y < 32; y++) {
                for (int x = 0; x < 32; x++) {
                    *at++ = value(first + i, c, y, x);
                }
            }
        }
    }
    return (size_t)(at - out);
}

static void make_file(const char *name, const int *labels, int count, int first, bool coarse,
                      bool gz)
{
    unsigned char *bytes = malloc((size_t)count * (2 + 3 * PLANE));
    ck_assert_ptr_nonnull(bytes);
    const size_t used = make_records(bytes, labels, count, first, coarse);
    if (gz) {
        data_files_write_gz(name, bytes, used);
    } else {
        data_files_write(name, bytes, used);
    }
    free(bytes);
}

static void check_sample(const dataset *set, size_t sample, int number, int label, const char *name)
{
    char text[PATH_MAX];
    struct sample_location location;
    dataset_locate(set, sample, text, sizeof text, &location);
    ck_assert_int_eq(location.content, SAMPLE_PIXELS);
    ck_assert_int_eq(location.width, 32);
    ck_assert_int_eq(location.height, 32);
    ck_assert_uint_eq(location.bytes, 3 * PLANE);
    const unsigned char *pixel = location.data;
    for (int y = 0; y < 32; y++) {
        for (int x = 0; x < 32; x++) {
            for (int c = 0; c < 3; c++) {
                ck_assert_uint_eq(*pixel++, value(number, c, y, x));
            }
        }
    }
    ck_assert_int_eq(dataset_label(set, sample), label);
    ck_assert_str_eq(dataset_sample_name(set, sample, text, sizeof text), name);
}

static void open_both(const char *name, dataset **train, dataset **val)
{
    const struct dataset_settings settings = {.data = data_files_path(name)};
    const enum status status = dataset_open(&settings, train, val);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
}

static void refuse(const char *name, enum status expected, const char *word)
{
    const struct dataset_settings settings = {.data = data_files_path(name)};
    dataset *train, *val;
    const enum status status = dataset_open(&settings, &train, &val);
    ck_assert_msg(status == expected, "%s: %s", status_name(status), status_message());
    ck_assert_msg(strstr(status_message(), word) != NULL, "\"%s\" lacks \"%s\"", status_message(),
                  word);
}

static const int three[] = {3, 9, 0};
static const int two[] = {1, 7};

START_TEST(test_cifar10_folder)
{
    /* Plain and compressed, in the folder itself and in that of the published archive. */
    const bool gz = _i % 2 == 1;
    char name[128];
    const char *folder = _i < 2 ? "set" : "set/cifar-10-batches-bin";
    const char *end = gz ? ".gz" : "";
    (void)snprintf(name, sizeof name, "%s/data_batch_1.bin%s", folder, end);
    make_file(name, three, 3, 0, false, gz);
    (void)snprintf(name, sizeof name, "%s/data_batch_2.bin%s", folder, end);
    make_file(name, two, 2, 3, false, gz);
    (void)snprintf(name, sizeof name, "%s/test_batch.bin%s", folder, end);
    make_file(name, two, 2, 5, false, gz);
    (void)snprintf(name, sizeof name, "%s/batches.meta.txt", folder);
    static const char names[] = "zero\none\r\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\n\n";
    data_files_write(name, names, sizeof names - 1);

    dataset *train, *val;
    open_both("set", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 5);
    ck_assert_uint_eq(dataset_count(val), 2);
    ck_assert_int_eq(dataset_class_count(train), 10);
    ck_assert_str_eq(dataset_class_name(train, 1), "one");
    ck_assert_str_eq(dataset_class_name(val, 9), "nine");
    check_sample(train, 0, 0, 3, "data_batch_1.bin#0");
    check_sample(train, 2, 2, 0, "data_batch_1.bin#2");
    check_sample(train, 4, 4, 7, "data_batch_2.bin#1");
    check_sample(val, 1, 6, 7, "test_batch.bin#1");
    ck_assert_uint_ge(dataset_memory(train), (size_t)7 * 3072);
    dataset_close(&train);
    dataset_close(&val);

    dataset *all;
    open_both("set", &all, NULL);
    ck_assert_uint_eq(dataset_count(all), 7);
    check_sample(all, 6, 6, 7, "val/test_batch.bin#1");
    dataset_close(&all);
}
END_TEST

START_TEST(test_one_file)
{
    make_file("set/data_batch_1.bin", three, 3, 0, false, false);
    dataset *train, *val;
    open_both("set/data_batch_1.bin", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 3);
    ck_assert_ptr_null(val);
    ck_assert_str_eq(dataset_class_name(train, 3), "cat"); /* without a file of names */
    dataset_close(&train);
}
END_TEST

START_TEST(test_cifar100_uses_fine_labels)
{
    static const int labels[] = {99, 5, 42};
    make_file("set/cifar-100-binary/train.bin", labels, 3, 0, true, false);
    make_file("set/cifar-100-binary/test.bin", labels, 2, 3, true, false);
    char names[100 * 8];
    size_t used = 0;
    for (int i = 0; i < 100; i++) {
        used += (size_t)snprintf(names + used, sizeof names - used, "fine%d\n", i);
    }
    data_files_write("set/cifar-100-binary/fine_label_names.txt", names, used);
    dataset *train, *val;
    open_both("set", &train, &val);
    ck_assert_int_eq(dataset_class_count(train), 100);
    ck_assert_str_eq(dataset_class_name(train, 42), "fine42");
    check_sample(train, 0, 0, 99, "train.bin#0");
    check_sample(val, 1, 4, 5, "test.bin#1");
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_many_records)
{
    /* More than are read at once, and more than the first reservation holds. */
    enum { COUNT = 9000 };
    int *labels = malloc(COUNT * sizeof *labels);
    ck_assert_ptr_nonnull(labels);
    for (int i = 0; i < COUNT; i++) {
        labels[i] = i % 10;
    }
    make_file("set/data_batch_1.bin.gz", labels, COUNT, 0, false, true);
    free(labels);
    dataset *train, *val;
    open_both("set", &train, &val);
    ck_assert_uint_eq(dataset_count(train), COUNT);
    check_sample(train, 255, 255, 5, "data_batch_1.bin#255");
    check_sample(train, 256, 256, 6, "data_batch_1.bin#256");
    check_sample(train, 8999, 8999, 9, "data_batch_1.bin#8999");
    dataset_close(&train);
}
END_TEST

START_TEST(test_damaged_files_are_refused)
{
    unsigned char bytes[3 * 3073 + 1] = {0};
    data_files_write("cut/data_batch_1.bin", bytes, 3 * 3073 - 1);
    refuse("cut", STATUS_INVALID, "9218 bytes");
    data_files_write("long/data_batch_1.bin", bytes, 3 * 3073 + 1);
    refuse("long", STATUS_INVALID, "no multiple");
    data_files_write("empty/data_batch_1.bin", bytes, 0);
    refuse("empty", STATUS_INVALID, "empty");
    bytes[3073] = 10;
    data_files_write("label/data_batch_1.bin", bytes, 3 * 3073);
    refuse("label", STATUS_INVALID, "record 1 has label 10");
    bytes[3073] = 0;
    data_files_write("names/data_batch_1.bin", bytes, 3 * 3073);
    data_files_write("names/batches.meta.txt", "a\nb\n", 4);
    refuse("names", STATUS_INVALID, "names 2 classes");
    data_files_write("other.bin", bytes, 100);
    refuse("other.bin", STATUS_INVALID, "100 bytes");
}
END_TEST

START_TEST(test_damaged_gzip_is_refused)
{
    make_file("whole/data_batch_1.bin.gz", three, 3, 0, false, true);
    size_t bytes;
    unsigned char *data = data_files_read("whole/data_batch_1.bin.gz", &bytes);
    for (size_t keep = bytes - 1; keep > 20; keep = keep * 2 / 3) {
        data_files_write("cut/data_batch_1.bin.gz", data, keep);
        refuse("cut", STATUS_INVALID, "data_batch_1.bin.gz");
    }
    data[bytes - 5] ^= 1; /* in the checksum's trailer */
    data_files_write("crc/data_batch_1.bin.gz", data, bytes);
    refuse("crc", STATUS_INVALID, "damaged");
    free(data);
}
END_TEST

START_TEST(test_the_python_version_is_named)
{
    data_files_touch("set/cifar-10-batches-py/data_batch_1");
    refuse("set", STATUS_UNSUPPORTED, "Python");
}
END_TEST

START_TEST(test_folder_and_cifar_share_classes_by_name)
{
    /* Class folders in another order than CIFAR's table: labels follow the names. */
    static const char names[] = "j\ni\nh\ng\nf\ne\nd\nc\nb\na\n";
    make_file("set/test_batch.bin", three, 3, 0, false, false);
    data_files_write("set/batches.meta.txt", names, sizeof names - 1);
    for (char c = 'a'; c <= 'j'; c++) {
        char name[32];
        (void)snprintf(name, sizeof name, "folder/%c/1.png", c);
        data_files_touch(name);
    }
    const struct dataset_settings settings = {.data = data_files_path("folder"),
                                              .val_data = data_files_path("set/test_batch.bin")};
    dataset *train, *val;
    ck_assert_int_eq(dataset_open(&settings, &train, &val), STATUS_OK);
    ck_assert_str_eq(dataset_class_name(val, 0), "a");
    /* Labels 3, 9, 0 are g, a, j. */
    ck_assert_int_eq(dataset_label(val, 0), 6);
    ck_assert_int_eq(dataset_label(val, 1), 0);
    ck_assert_int_eq(dataset_label(val, 2), 9);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_loop_test(tests, test_cifar10_folder, 0, 4);
    tcase_add_test(tests, test_one_file);
    tcase_add_test(tests, test_cifar100_uses_fine_labels);
    tcase_add_test(tests, test_many_records);
    tcase_add_test(tests, test_damaged_files_are_refused);
    tcase_add_test(tests, test_damaged_gzip_is_refused);
    tcase_add_test(tests, test_the_python_version_is_named);
    tcase_add_test(tests, test_folder_and_cifar_share_classes_by_name);
    return check_run_case("cifar", tests);
}
