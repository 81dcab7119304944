/* IDX files (MNIST), made by hand byte by byte. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "data/dataset.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"

/* Two images of height 2 and width 3, and their labels. */
static const unsigned char grey[] = {0, 0, 8, 3, 0, 0, 0, 2, 0,  0,  0,  2,  0,  0,
                                     0, 3, 1, 2, 3, 4, 5, 6, 10, 20, 30, 40, 50, 255};
static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 2, 0};
/* One more image with label 1. */
static const unsigned char one_grey[] = {0, 0, 8, 3, 0, 0, 0, 1, 0, 0, 0,
                                         2, 0, 0, 0, 3, 9, 9, 9, 9, 9, 9};
static const unsigned char one_label[] = {0, 0, 8, 1, 0, 0, 0, 1, 1};

static enum status try_open(const char *name, dataset **train, dataset **val)
{
    const struct dataset_settings settings = {.data = data_files_path(name)};
    return dataset_open(&settings, train, val);
}

static void open_both(const char *name, dataset **train, dataset **val)
{
    const enum status status = try_open(name, train, val);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
}

static void refuse(const char *name, enum status expected, const char *word)
{
    dataset *train, *val;
    const enum status status = try_open(name, &train, &val);
    ck_assert_msg(status == expected, "%s: %s", status_name(status), status_message());
    ck_assert_msg(strstr(status_message(), word) != NULL, "\"%s\" lacks \"%s\"", status_message(),
                  word);
}

static void write_either(const char *name, const void *data, size_t bytes, bool gz)
{
    char full[160];
    (void)snprintf(full, sizeof full, "%s%s", name, gz ? ".gz" : "");
    if (gz) {
        data_files_write_gz(full, data, bytes);
    } else {
        data_files_write(full, data, bytes);
    }
}

static void check_sample(const dataset *set, size_t sample, const unsigned char *values, int label,
                         const char *name)
{
    char text[PATH_MAX];
    struct sample_location location;
    dataset_locate(set, sample, text, sizeof text, &location);
    ck_assert_int_eq(location.content, SAMPLE_PIXELS);
    ck_assert_int_eq(location.width, 3);
    ck_assert_int_eq(location.height, 2);
    ck_assert_uint_eq(location.bytes, 18);
    const unsigned char *pixels = location.data;
    for (int i = 0; i < 18; i++) {
        ck_assert_uint_eq(pixels[i], values[i / 3]);
    }
    ck_assert_int_eq(dataset_label(set, sample), label);
    ck_assert_str_eq(dataset_sample_name(set, sample, text, sizeof text), name);
}

START_TEST(test_mnist_folder)
{
    const bool gz = _i % 2 == 1;
    const char *folder = _i < 2 ? "set" : "set/MNIST/raw";
    char name[128];
    (void)snprintf(name, sizeof name, "%s/train-images-idx3-ubyte", folder);
    write_either(name, grey, sizeof grey, gz);
    (void)snprintf(name, sizeof name, "%s/train-labels-idx1-ubyte", folder);
    write_either(name, labels, sizeof labels, gz);
    (void)snprintf(name, sizeof name, "%s/t10k-images-idx3-ubyte", folder);
    write_either(name, one_grey, sizeof one_grey, gz);
    (void)snprintf(name, sizeof name, "%s/t10k-labels-idx1-ubyte", folder);
    write_either(name, one_label, sizeof one_label, gz);
    dataset *train, *val;
    open_both("set", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 2);
    ck_assert_uint_eq(dataset_count(val), 1);
    ck_assert_int_eq(dataset_class_count(train), 3);
    ck_assert_str_eq(dataset_class_name(train, 2), "2");
    check_sample(train, 0, grey + 16, 2, "train-images-idx3-ubyte#0");
    check_sample(train, 1, grey + 22, 0, "train-images-idx3-ubyte#1");
    check_sample(val, 0, one_grey + 16, 1, "t10k-images-idx3-ubyte#0");
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_one_file_and_other_spellings)
{
    data_files_write("a/train-images.idx3-ubyte", grey, sizeof grey);
    data_files_write_gz("a/train-labels.idx1-ubyte.gz", labels, sizeof labels);
    dataset *train, *val;
    open_both("a/train-images.idx3-ubyte", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 2);
    ck_assert_ptr_null(val);
    dataset_close(&train);
    open_both("a", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 2);
    dataset_close(&train);
    /* Told by its first bytes. */
    data_files_write("b/my images", grey, sizeof grey);
    data_files_write("b/my labels", labels, sizeof labels);
    open_both("b/my images", &train, &val);
    check_sample(train, 1, grey + 22, 0, "my images#1");
    dataset_close(&train);
}
END_TEST

START_TEST(test_plain_and_compressed_copies_count_once)
{
    data_files_write("set/train-images-idx3-ubyte", grey, sizeof grey);
    data_files_write_gz("set/train-images-idx3-ubyte.gz", grey, sizeof grey);
    data_files_write("set/train-labels-idx1-ubyte", labels, sizeof labels);
    dataset *train, *val;
    open_both("set", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 2);
    dataset_close(&train);
    data_files_write("set/other-train-images-idx3-ubyte", grey, sizeof grey);
    refuse("set", STATUS_INVALID, "several sets");
}
END_TEST

START_TEST(test_colour)
{
    static const unsigned char colour[] = {0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0,
                                           0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    data_files_write("set/images-idx4-ubyte", colour, sizeof colour);
    data_files_write("set/labels-idx1-ubyte", labels, sizeof labels);
    dataset *train, *val;
    open_both("set", &train, &val);
    char text[PATH_MAX];
    struct sample_location location;
    dataset_locate(train, 1, text, sizeof text, &location);
    ck_assert_int_eq(location.width, 1);
    ck_assert_uint_eq(location.bytes, 3);
    ck_assert_mem_eq(location.data, colour + 23, 3);
    dataset_close(&train);
}
END_TEST

START_TEST(test_a_file_cut_anywhere_is_refused)
{
    data_files_write("set/train-labels-idx1-ubyte", labels, sizeof labels);
    for (size_t keep = 0; keep < sizeof grey; keep++) {
        data_files_write("set/train-images-idx3-ubyte", grey, keep);
        refuse("set", STATUS_INVALID, "train-images-idx3-ubyte");
    }
    data_files_write("set/train-images-idx3-ubyte", grey, sizeof grey);
    for (size_t keep = 0; keep < sizeof labels; keep++) {
        data_files_write("set/train-labels-idx1-ubyte", labels, keep);
        refuse("set", STATUS_INVALID, "train-labels-idx1-ubyte");
    }
}
END_TEST

START_TEST(test_damage_is_named)
{
    unsigned char bytes[sizeof grey + 1];
    data_files_write("set/train-labels-idx1-ubyte", labels, sizeof labels);
    memcpy(bytes, grey, sizeof grey);
    bytes[sizeof grey] = 0;
    data_files_write("set/train-images-idx3-ubyte", bytes, sizeof bytes);
    refuse("set", STATUS_INVALID, "more than its header says");
    memset(bytes + 4, 0xff, 12); /* sizes whose product overflows */
    data_files_write("set/train-images-idx3-ubyte", bytes, sizeof grey);
    refuse("set", STATUS_INVALID, "claims more");
    memcpy(bytes, grey, sizeof grey);
    bytes[5] = 1; /* 65,538 images */
    data_files_write("set/train-images-idx3-ubyte", bytes, sizeof grey);
    refuse("set", STATUS_INVALID, "claims more");
    memcpy(bytes, grey, sizeof grey);
    bytes[2] = 0x0d; /* floats */
    data_files_write("set/train-images-idx3-ubyte", bytes, sizeof grey);
    refuse("set", STATUS_UNSUPPORTED, "0x0d");
    memcpy(bytes, grey, sizeof grey);
    bytes[11] = 0; /* no rows */
    data_files_write("set/train-images-idx3-ubyte", bytes, sizeof grey);
    refuse("set", STATUS_INVALID, "no values");
    data_files_write("set/train-images-idx3-ubyte", one_grey, sizeof one_grey);
    refuse("set", STATUS_INVALID, "2 labels in 1 dimensions for 1 images");
    data_files_write("set/train-images-idx3-ubyte", labels, sizeof labels);
    refuse("set", STATUS_INVALID, "holds labels");
}
END_TEST

START_TEST(test_compressed_claims_are_bounded)
{
    /* A few bytes that claim 2^32 - 1 images of 256 x 256: refused before memory is taken. */
    static const unsigned char claim[] = {0, 0, 8, 3, 0xff, 0xff, 0xff, 0xff,
                                          0, 0, 1, 0, 0,    0,    1,    0};
    data_files_write_gz("set/train-images-idx3-ubyte.gz", claim, sizeof claim);
    data_files_write("set/train-labels-idx1-ubyte", labels, sizeof labels);
    refuse("set", STATUS_INVALID, "claims more");
}
END_TEST

START_TEST(test_labels_are_needed)
{
    data_files_write("set/train-images-idx3-ubyte", grey, sizeof grey);
    refuse("set", STATUS_NOT_FOUND, "labels");
    data_files_write("set/train-labels-idx1-ubyte", labels, sizeof labels);
    refuse("set/train-labels-idx1-ubyte", STATUS_INVALID, "images");
    data_files_write("set/train-labels-idx1-ubyte", "\0\0\10\1\0\0\0\2\0\0", 10);
    refuse("set", STATUS_INVALID, "single class");
    data_files_write("set/t10k-images-idx3-ubyte", one_grey, sizeof one_grey);
    data_files_write("set/t10k-labels-idx1-ubyte", one_label, sizeof one_label);
    dataset *train, *val;
    open_both("set", &train, &val); /* the other class is in the test file */
    ck_assert_int_eq(dataset_class_count(train), 2);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_loop_test(tests, test_mnist_folder, 0, 4);
    tcase_add_test(tests, test_one_file_and_other_spellings);
    tcase_add_test(tests, test_plain_and_compressed_copies_count_once);
    tcase_add_test(tests, test_colour);
    tcase_add_test(tests, test_a_file_cut_anywhere_is_refused);
    tcase_add_test(tests, test_damage_is_named);
    tcase_add_test(tests, test_compressed_claims_are_bounded);
    tcase_add_test(tests, test_labels_are_needed);
    return check_run_case("idx", tests);
}
