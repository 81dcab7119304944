/* Packed sets: what goes in comes out, and nothing that is damaged is taken. */
#include <check.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "data/packed.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"

/* Four training and two validation files in classes a and b; each holds its own name. */
static void make_set(void)
{
    data_files_touch("set/train/a/1.png");
    data_files_touch("set/train/a/2.jpg");
    data_files_touch("set/train/b/deeper/x.png");
    data_files_touch("set/train/b/y.png");
    data_files_touch("set/val/a/1.png");
    data_files_touch("set/val/b/2.png");
}

static void open_both(const char *name, dataset **train, dataset **val)
{
    const struct dataset_settings settings = {.data = data_files_path(name)};
    const enum status status = dataset_open(&settings, train, val);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
}

static void pack(const char *from, const char *to, enum sample_content content, int edge,
                 packed_supply supply, void *context, struct packed_result *result)
{
    dataset *train, *val;
    open_both(from, &train, &val);
    const struct packed_settings settings = {
        .path = data_files_path(to), .content = content, .width = edge, .height = edge};
    const enum status status = packed_write(&settings, train, val, supply, context, result);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
    dataset_close(&train);
    dataset_close(&val);
}

static void pack_encoded(const char *to)
{
    pack("set", to, SAMPLE_ENCODED, 0, NULL, NULL, NULL);
}

static enum status refuse(const char *name)
{
    const struct dataset_settings settings = {.data = data_files_path(name)};
    dataset *train = NULL, *val = NULL;
    const enum status status = dataset_open(&settings, &train, &val);
    dataset_close(&train);
    dataset_close(&val);
    return status;
}

START_TEST(test_encoded_round_trip)
{
    make_set();
    struct packed_result result;
    pack("set", "set.pack", SAMPLE_ENCODED, 0, NULL, NULL, &result);
    ck_assert_uint_eq(result.samples, 6);
    ck_assert_uint_eq(result.left_out, 0);
    struct stat facts;
    ck_assert_int_eq(stat(data_files_path("set.pack"), &facts), 0);
    ck_assert_uint_eq(result.bytes, (uint64_t)facts.st_size);
    ck_assert_int_ne(access(data_files_path("set.pack.partial"), F_OK), 0);

    dataset *sets[2], *packed[2];
    open_both("set", &sets[0], &sets[1]);
    open_both("set.pack", &packed[0], &packed[1]);
    for (int s = 0; s < 2; s++) {
        ck_assert_uint_eq(dataset_count(packed[s]), dataset_count(sets[s]));
        ck_assert_int_eq(dataset_class_count(packed[s]), 2);
        ck_assert_str_eq(dataset_class_name(packed[s], 1), "b");
        ck_assert_uint_eq(dataset_fingerprint(packed[s]), dataset_fingerprint(sets[s]));
        for (size_t i = 0; i < dataset_count(sets[s]); i++) {
            char name[PATH_MAX], other[PATH_MAX], path[PATH_MAX], content[PATH_MAX];
            (void)dataset_sample_name(sets[s], i, name, sizeof name);
            ck_assert_str_eq(dataset_sample_name(packed[s], i, other, sizeof other), name);
            ck_assert_int_eq(dataset_label(packed[s], i), dataset_label(sets[s], i));
            struct sample_location location;
            dataset_locate(packed[s], i, path, sizeof path, &location);
            ck_assert_int_eq(location.content, SAMPLE_ENCODED);
            (void)snprintf(content, sizeof content, "set/%s/%.200s", s == 0 ? "train" : "val",
                           name);
            ck_assert_uint_eq(location.bytes, strlen(content));
            ck_assert_mem_eq(location.data, content, location.bytes);
        }
        dataset_close(&sets[s]);
        dataset_close(&packed[s]);
    }
    size_t bad = 7;
    ck_assert_int_eq(packed_verify(data_files_path("set.pack"), &bad), STATUS_OK);
    ck_assert_uint_eq(bad, 0);
}
END_TEST

START_TEST(test_an_undivided_set_is_split_as_its_folder_is)
{
    for (int i = 0; i < 60; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "set/%c/%d.png", 'a' + i % 2, i);
        data_files_touch(name);
    }
    pack("set", "set.pack", SAMPLE_ENCODED, 0, NULL, NULL, NULL);
    uint64_t prints[2][2];
    for (int k = 0; k < 2; k++) {
        const struct dataset_settings settings = {
            .data = data_files_path(k == 0 ? "set" : "set.pack"), .val_fraction = 0.3};
        dataset *train, *val;
        ck_assert_int_eq(dataset_open(&settings, &train, &val), STATUS_OK);
        ck_assert_ptr_nonnull(val);
        prints[k][0] = dataset_fingerprint(train);
        prints[k][1] = dataset_fingerprint(val);
        dataset_close(&train);
        dataset_close(&val);
    }
    ck_assert_uint_eq(prints[0][0], prints[1][0]);
    ck_assert_uint_eq(prints[0][1], prints[1][1]);
}
END_TEST

/* Supplies 2 x 2 pixels whose value is the sample's number, leaves out names with "2". */
struct supplier {
    unsigned char pixels[12];
    int calls;
    int fail_at;  /* call, -1 for none */
    size_t bytes; /* 12 is right */
    bool drop_all;
    char order[512]; /* names as asked for */
};

static enum status supply(void *context, const dataset *set, size_t sample, const void **data,
                          size_t *bytes)
{
    struct supplier *supplier = context;
    char name[PATH_MAX];
    (void)dataset_sample_name(set, sample, name, sizeof name);
    const size_t used = strlen(supplier->order);
    (void)snprintf(supplier->order + used, sizeof supplier->order - used, "%.100s ", name);
    if (supplier->calls++ == supplier->fail_at) {
        return FAIL(STATUS_IO, "no more");
    }
    *data = NULL;
    *bytes = supplier->bytes;
    if (!supplier->drop_all && strchr(name, '2') == NULL) {
        memset(supplier->pixels, (int)(sample + 1), sizeof supplier->pixels);
        *data = supplier->pixels;
    }
    return STATUS_OK;
}

START_TEST(test_pixels_from_a_callback)
{
    make_set();
    struct supplier supplier = {.fail_at = -1, .bytes = 12};
    struct packed_result result;
    pack("set", "set.pack", SAMPLE_PIXELS, 2, supply, &supplier, &result);
    ck_assert_uint_eq(result.samples, 4);
    ck_assert_uint_eq(result.left_out, 2);
    ck_assert_str_eq(supplier.order, "a/1.png a/2.jpg b/y.png b/deeper/x.png a/1.png b/2.png ");
    dataset *train, *val;
    open_both("set.pack", &train, &val);
    ck_assert_uint_eq(dataset_count(train), 3);
    ck_assert_uint_eq(dataset_count(val), 1);
    for (size_t i = 0; i < 3; i++) {
        char path[PATH_MAX];
        struct sample_location location;
        dataset_locate(train, i, path, sizeof path, &location);
        ck_assert_int_eq(location.content, SAMPLE_PIXELS);
        ck_assert_int_eq(location.width, 2);
        ck_assert_int_eq(location.height, 2);
        ck_assert_uint_eq(location.bytes, 12);
        unsigned char expected[12];
        memset(expected, i == 0 ? 1 : (int)i + 2, sizeof expected);
        ck_assert_mem_eq(location.data, expected, 12);
    }
    ck_assert_int_eq(dataset_label(train, 2), 1);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_failures_leave_nothing_behind)
{
    make_set();
    dataset *train, *val;
    open_both("set", &train, &val);
    struct packed_settings settings = {
        .path = data_files_path("set.pack"), .content = SAMPLE_PIXELS, .width = 2, .height = 2};
    struct supplier failing = {.fail_at = 2, .bytes = 12};
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &failing, NULL), STATUS_IO);
    struct supplier wrong = {.fail_at = -1, .bytes = 11};
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &wrong, NULL), STATUS_INVALID);
    struct supplier none = {.fail_at = -1, .bytes = 12, .drop_all = true};
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &none, NULL), STATUS_INVALID);
    /* Encoded files are not pixels. */
    ck_assert_int_eq(packed_write(&settings, train, val, NULL, NULL, NULL), STATUS_INVALID);
    settings.width = 0;
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &wrong, NULL), STATUS_USAGE);
    settings = (struct packed_settings){.path = data_files_path("absent/set.pack"),
                                        .content = SAMPLE_ENCODED};
    ck_assert_int_eq(packed_write(&settings, train, val, NULL, NULL, NULL), STATUS_NOT_FOUND);
    ck_assert_int_ne(access(data_files_path("set.pack"), F_OK), 0);
    ck_assert_int_ne(access(data_files_path("set.pack.partial"), F_OK), 0);

    /* An existing file stays as it is, without overwrite and after a failed overwriting. */
    data_files_write("old.pack", "old", 3);
    settings = (struct packed_settings){
        .path = data_files_path("old.pack"), .content = SAMPLE_PIXELS, .width = 2, .height = 2};
    struct supplier good = {.fail_at = -1, .bytes = 12};
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &good, NULL), STATUS_INVALID);
    ck_assert_int_eq(good.calls, 0);
    settings.overwrite = true;
    failing.calls = 0;
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &failing, NULL), STATUS_IO);
    size_t bytes;
    unsigned char *old = data_files_read("old.pack", &bytes);
    ck_assert_uint_eq(bytes, 3);
    free(old);
    ck_assert_int_eq(packed_write(&settings, train, val, supply, &good, NULL), STATUS_OK);
    ck_assert_int_eq(packed_verify(settings.path, NULL), STATUS_OK);
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

START_TEST(test_pixels_pass_through)
{
    static const unsigned char images[] = {0, 0, 8, 4, 0, 0, 0, 2, 0, 0, 0, 1, 0,
                                           0, 0, 1, 0, 0, 0, 3, 1, 2, 3, 4, 5, 6};
    static const unsigned char labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 1, 0};
    data_files_write("idx/images-idx4-ubyte", images, sizeof images);
    data_files_write("idx/labels-idx1-ubyte", labels, sizeof labels);
    pack("idx", "set.pack", SAMPLE_PIXELS, 1, NULL, NULL, NULL);
    dataset *train, *val;
    open_both("set.pack", &train, &val);
    char path[PATH_MAX];
    struct sample_location location;
    dataset_locate(train, 1, path, sizeof path, &location);
    ck_assert_uint_eq(location.bytes, 3);
    ck_assert_mem_eq(location.data, images + 23, 3);
    ck_assert_int_eq(dataset_label(train, 1), 0);
    dataset_close(&train);
}
END_TEST

START_TEST(test_a_file_cut_anywhere_is_refused)
{
    make_set();
    pack_encoded("set.pack");
    size_t bytes;
    unsigned char *data = data_files_read("set.pack", &bytes);
    for (size_t keep = 0; keep < bytes; keep++) {
        data_files_write("cut.pack", data, keep);
        ck_assert_msg(refuse("cut.pack") == STATUS_INVALID, "cut to %zu bytes: %s", keep,
                      status_message());
        if (keep >= 128) {
            ck_assert_msg(strstr(status_message(), "cut") != NULL, "%s", status_message());
        }
    }
    unsigned char *longer = malloc(bytes + 1);
    ck_assert_ptr_nonnull(longer);
    memcpy(longer, data, bytes);
    longer[bytes] = 0;
    data_files_write("long.pack", longer, bytes + 1);
    ck_assert_int_eq(refuse("long.pack"), STATUS_INVALID);
    free(longer);
    free(data);
}
END_TEST

START_TEST(test_every_flipped_bit_is_noticed)
{
    make_set();
    pack_encoded("set.pack");
    size_t bytes;
    unsigned char *data = data_files_read("set.pack", &bytes);
    dataset *train, *val;
    open_both("set.pack", &train, &val);
    size_t image_bytes = 0, found = 0;
    for (size_t i = 0; i < 6; i++) {
        const dataset *set = i < 4 ? train : val;
        char path[PATH_MAX];
        struct sample_location location;
        dataset_locate(set, i < 4 ? i : i - 4, path, sizeof path, &location);
        image_bytes += location.bytes;
    }
    dataset_close(&train);
    dataset_close(&val);
    for (size_t at = 0; at < bytes; at++) {
        data[at] ^= (unsigned char)(1U << (at % 8));
        data_files_write("bad.pack", data, bytes);
        if (refuse("bad.pack") == STATUS_OK) {
            /* Header and tables are fine: then it is an image, or the filling between images. */
            size_t bad;
            const enum status status = packed_verify(data_files_path("bad.pack"), &bad);
            if (status != STATUS_OK) {
                ck_assert_int_eq(status, STATUS_INVALID);
                ck_assert_uint_eq(bad, 1);
                ck_assert_ptr_nonnull(strstr(status_message(), "1 of 6 samples are damaged"));
                found++;
            } else {
                ck_assert_uint_ge(at, 128);
            }
        }
        data[at] ^= (unsigned char)(1U << (at % 8));
    }
    ck_assert_uint_eq(found, image_bytes);
    free(data);
}
END_TEST

static void put(unsigned char *at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        at[i] = (unsigned char)(value >> (8 * i));
    }
}

/* A file whose checksums are right and whose contents are not: written by somebody with intent. */
START_TEST(test_senseless_tables_with_right_checksums)
{
    make_set();
    pack_encoded("set.pack");
    size_t bytes;
    unsigned char *data = data_files_read("set.pack", &bytes);
    uint64_t index = 0;
    for (int i = 7; i >= 0; i--) {
        index = index << 8 | data[56 + i];
    }
    static const struct {
        int place; /* below 0: in the header, at -place; otherwise in the first entry */
        int width;
        uint64_t value;
    } changes[] = {
        {0, 8, UINT64_MAX},     /* data far outside */
        {0, 8, UINT64_MAX - 8}, /* offset + size wraps */
        {0, 8, 0},              /* the header as an image */
        {8, 8, UINT64_MAX},     /* name outside */
        {16, 4, UINT32_MAX},    /* size reaches beyond */
        {16, 4, 0},             /* no bytes */
        {20, 4, 2},             /* label = number of classes */
        {-24, 8, 0},            /* no training samples */
        {-24, 8, UINT64_MAX},   /* counts wrap */
        {-32, 8, UINT32_MAX},   /* index larger than the file */
        {-40, 4, 0},            /* no classes */
        {-40, 4, UINT32_MAX},   /* negative number of classes */
        {-40, 4, 1000},         /* more classes than names */
        {-44, 4, 3},            /* unknown content */
        {-44, 4, 2},            /* pixels of 0 x 0 */
        {-56, 8, UINT64_MAX},   /* index outside */
        {-64, 8, 0},            /* names elsewhere */
        {-72, 8, UINT64_MAX},   /* names too long */
    };
    for (size_t k = 0; k < sizeof changes / sizeof changes[0]; k++) {
        unsigned char *bad = malloc(bytes);
        ck_assert_ptr_nonnull(bad);
        memcpy(bad, data, bytes);
        unsigned char *at =
            changes[k].place < 0 ? bad - changes[k].place : bad + index + changes[k].place;
        put(at, changes[k].value, changes[k].width);
        put(bad + 80, crc32(0, bad + index, (unsigned)(bytes - index)), 4);
        put(bad + 124, crc32(0, bad, 124), 4);
        data_files_write("bad.pack", bad, bytes);
        ck_assert_msg(refuse("bad.pack") == STATUS_INVALID, "change %zu was taken", k);
        free(bad);
    }
    /* The last name must be closed. */
    data[bytes - 1] = 'x';
    put(data + 80, crc32(0, data + index, (unsigned)(bytes - index)), 4);
    put(data + 124, crc32(0, data, 124), 4);
    data_files_write("bad.pack", data, bytes);
    ck_assert_int_eq(refuse("bad.pack"), STATUS_INVALID);
    free(data);
}
END_TEST

START_TEST(test_foreign_files)
{
    make_set();
    pack_encoded("set.pack");
    size_t bytes;
    unsigned char *data = data_files_read("set.pack", &bytes);
    data[8] = 2;
    put(data + 124, crc32(0, data, 124), 4);
    data_files_write("new.pack", data, bytes);
    ck_assert_int_eq(refuse("new.pack"), STATUS_UNSUPPORTED);
    ck_assert_ptr_nonnull(strstr(status_message(), "version 2"));
    memcpy(data, "NOTAPACK", 8);
    data_files_write("foreign.pack", data, bytes);
    ck_assert_int_eq(refuse("foreign.pack"), STATUS_INVALID);
    ck_assert_int_eq(packed_verify(data_files_path("foreign.pack"), NULL), STATUS_INVALID);
    ck_assert_int_eq(packed_verify(data_files_path("absent.pack"), NULL), STATUS_NOT_FOUND);
    free(data);
}
END_TEST

START_TEST(test_empty_files_cannot_be_packed)
{
    make_set();
    data_files_write("set/train/a/0.png", "", 0);
    dataset *train, *val;
    open_both("set", &train, &val);
    const struct packed_settings settings = {.path = data_files_path("set.pack"),
                                             .content = SAMPLE_ENCODED};
    ck_assert_int_eq(packed_write(&settings, train, val, NULL, NULL, NULL), STATUS_INVALID);
    ck_assert_ptr_nonnull(strstr(status_message(), "a/0.png"));
    dataset_close(&train);
    dataset_close(&val);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_test(tests, test_encoded_round_trip);
    tcase_add_test(tests, test_an_undivided_set_is_split_as_its_folder_is);
    tcase_add_test(tests, test_pixels_from_a_callback);
    tcase_add_test(tests, test_failures_leave_nothing_behind);
    tcase_add_test(tests, test_pixels_pass_through);
    tcase_add_test(tests, test_a_file_cut_anywhere_is_refused);
    tcase_add_test(tests, test_every_flipped_bit_is_noticed);
    tcase_add_test(tests, test_senseless_tables_with_right_checksums);
    tcase_add_test(tests, test_foreign_files);
    tcase_add_test(tests, test_empty_files_cannot_be_packed);
    return check_run_case("packed", tests);
}
