/* The safetensors format: what is written is read back, by this program and by others; what is broken
 * is refused. */
#include <check.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "models/safetensors.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

static char folder[] = "/tmp/pinline-safetensors-XXXXXX";
static char path[64], other[64];

static void make_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.safetensors", folder);
    snprintf(other, sizeof other, "%s/b.safetensors", folder);
}

static void remove_folder(void)
{
    unlink(path);
    unlink(other);
    rmdir(folder);
}

static const float weights[6] = {1.5F, -2.0F, 0.0F, 3.25F, 1e-30F, -1e30F};
static const int64_t counter = INT64_C(-123456789012);
static const uint16_t narrow[2] = {0x3f80, 0xc000};
static const uint8_t bytes[3] = {0, 127, 255};

static const struct safetensors_entry entries[] = {
    {"layer.weight", SAFETENSORS_F32, 2, {2, 3}, weights, sizeof weights},
    {"a \"quoted\"\nname", SAFETENSORS_I64, 0, {0}, &counter, sizeof counter},
    {"empty", SAFETENSORS_F32, 1, {0}, NULL, 0},
    {"narrow", SAFETENSORS_BF16, 1, {2}, narrow, sizeof narrow},
    {"pixels", SAFETENSORS_U8, 4, {1, 1, 1, 3}, bytes, sizeof bytes},
};
#define ENTRIES (sizeof entries / sizeof entries[0])
static const struct safetensors_metadata metadata[] = {{"format", "pt"},
                                                       {"classes", "[\"a\", \"b\"]"}};

static void write_all(void)
{
    ck_assert_int_eq(safetensors_write(path, entries, ENTRIES, metadata, 2), STATUS_OK);
}

START_TEST(test_what_is_written_is_read)
{
    write_all();
    safetensors *file;
    ck_assert_int_eq(safetensors_open(path, &file), STATUS_OK);
    ck_assert_uint_eq(safetensors_count(file), ENTRIES);
    for (size_t i = 0; i < ENTRIES; i++) {
        const struct safetensors_entry *entry = safetensors_at(file, i);
        ck_assert_ptr_eq(entry, safetensors_find(file, entries[i].name));
        ck_assert_str_eq(entry->name, entries[i].name);
        ck_assert_int_eq(entry->dtype, entries[i].dtype);
        ck_assert_int_eq(entry->dims, entries[i].dims);
        for (int d = 0; d < entry->dims; d++) {
            ck_assert_int_eq(entry->shape[d], entries[i].shape[d]);
        }
        ck_assert_uint_eq(entry->bytes, entries[i].bytes);
        if (entry->bytes > 0) {
            ck_assert_mem_eq(entry->data, entries[i].data, entry->bytes);
        }
    }
    ck_assert_ptr_null(safetensors_find(file, "layer"));
    ck_assert_str_eq(safetensors_metadata_value(file, "classes"), "[\"a\", \"b\"]");
    ck_assert_ptr_null(safetensors_metadata_value(file, "absent"));
    safetensors_close(&file);
    ck_assert_ptr_null(file);
}
END_TEST

START_TEST(test_data_are_aligned)
{
    write_all();
    safetensors *file;
    ck_assert_int_eq(safetensors_open(path, &file), STATUS_OK);
    ck_assert_uint_eq((uintptr_t)safetensors_at(file, 0)->data % 8, 0);
    safetensors_close(&file);
}
END_TEST

START_TEST(test_file_without_tensors)
{
    ck_assert_int_eq(safetensors_write(path, NULL, 0, NULL, 0), STATUS_OK);
    safetensors *file;
    ck_assert_int_eq(safetensors_open(path, &file), STATUS_OK);
    ck_assert_uint_eq(safetensors_count(file), 0);
    ck_assert_ptr_null(safetensors_metadata_value(file, "format"));
    safetensors_close(&file);
}
END_TEST

/* The reader is told nothing by this program: struct and json of Python take the file apart. */
START_TEST(test_independent_reader)
{
    if (system("python3 -c 'import json, struct' >/dev/null 2>&1") != 0) {
        SKIP_TEST("python3 is not there");
    }
    write_all();
    static const char script[] =
        "import json, struct, sys\n"
        "raw = open(sys.argv[1], \"rb\").read()\n"
        "n = struct.unpack(\"<Q\", raw[:8])[0]\n"
        "head = json.loads(raw[8:8 + n]); data = raw[8 + n:]\n"
        "assert head.pop(\"__metadata__\") == {\"format\": \"pt\", \"classes\": \"[\\\"a\\\", "
        "\\\"b\\\"]\"}\n"
        "assert list(head) == [\"layer.weight\", \"a \\\"quoted\\\"\\nname\", \"empty\", "
        "\"narrow\", \"pixels\"]\n"
        "def get(name, kind, dtype, shape):\n"
        "    t = head[name]; a, b = t[\"data_offsets\"]\n"
        "    assert t[\"dtype\"] == dtype and t[\"shape\"] == shape, t\n"
        "    return struct.unpack(\"<\" + kind, data[a:b])\n"
        "w = get(\"layer.weight\", \"6f\", \"F32\", [2, 3])\n"
        "assert w[:4] == (1.5, -2.0, 0.0, 3.25) and abs(w[5] / -1e30 - 1) < 1e-6\n"
        "assert get(\"a \\\"quoted\\\"\\nname\", \"q\", \"I64\", []) == (-123456789012,)\n"
        "assert get(\"narrow\", \"2H\", \"BF16\", [2]) == (0x3f80, 0xc000)\n"
        "assert get(\"pixels\", \"3B\", \"U8\", [1, 1, 1, 3]) == (0, 127, 255)\n"
        "assert len(data) == 24 + 8 + 0 + 4 + 3\n";
    FILE *stream = fopen(other, "w");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_ge(fputs(script, stream), 0);
    ck_assert_int_eq(fclose(stream), 0);
    char command[256];
    snprintf(command, sizeof command, "python3 %s %s", other, path);
    ck_assert_int_eq(system(command), 0);
}
END_TEST

/* --- Broken files --------------------------------------------------------------------------- */

static void write_raw(const void *data, size_t count)
{
    FILE *stream = fopen(other, "wb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_uint_eq(fwrite(data, 1, count, stream), count);
    ck_assert_int_eq(fclose(stream), 0);
}

static void refused(const char *part_of_message)
{
    safetensors *file = NULL;
    const enum status status = safetensors_open(other, &file);
    ck_assert_ptr_null(file);
    ck_assert_msg(status == STATUS_INVALID, "status %s for %s", status_name(status),
                  part_of_message);
    ck_assert_msg(strstr(status_message(), part_of_message) != NULL, "\"%s\" not in \"%s\"",
                  part_of_message, status_message());
    ck_assert_msg(strstr(status_message(), "b.safetensors") != NULL, "no name in \"%s\"",
                  status_message());
}

START_TEST(test_cut_at_every_byte)
{
    write_all();
    FILE *stream = fopen(path, "rb");
    static char whole[4096];
    const size_t size = fread(whole, 1, sizeof whole, stream);
    fclose(stream);
    ck_assert(size > 100 && size < sizeof whole);
    for (size_t kept = 0; kept < size; kept++) {
        write_raw(whole, kept);
        refused("");
    }
    whole[size] = 0;
    write_raw(whole, size + 1);
    refused("bytes of data");
    write_raw(whole, size);
    safetensors *file;
    ck_assert_int_eq(safetensors_open(other, &file), STATUS_OK);
    safetensors_close(&file);
}
END_TEST

/* A file of `header` and `data_bytes` zero bytes. */
static void write_header(const char *header, size_t data_bytes)
{
    char raw[1024] = {0};
    const uint64_t length = strlen(header);
    memcpy(raw, &length, sizeof length);
    memcpy(raw + 8, header, (size_t)length);
    write_raw(raw, 8 + (size_t)length + data_bytes);
}

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end   \
    "]}"

static const struct {
    const char *what;
    const char *header;
    size_t data_bytes;
    const char *message;
} broken[] = {
    {"gap", "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "8", "12") "}",
     12, "gap"},
    {"gap at the beginning", "{" TENSOR("a", "F32", "[1]", "4", "8") "}", 8, "gap"},
    {"overlap",
     "{" TENSOR("a", "F32", "[2]", "0", "8") "," TENSOR("b", "F32", "[2]", "4", "12") "}", 12,
     "overlaps"},
    {"same place",
     "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("b", "F32", "[1]", "0", "4") "}", 4,
     "overlaps"},
    {"data left over", "{" TENSOR("a", "F32", "[1]", "0", "4") "}", 5, "5 bytes of data"},
    {"shape against offsets", "{" TENSOR("a", "F32", "[2,2]", "0", "12") "}", 12, "16 bytes"},
    {"beyond the end", "{" TENSOR("a", "F32", "[2]", "0", "8") "}", 4, "cut"},
    {"falling offsets", "{" TENSOR("a", "F32", "[1]", "4", "0") "}", 4, "data_offsets"},
    {"negative offset", "{" TENSOR("a", "F32", "[1]", "-4", "0") "}", 4, "data_offsets"},
    {"fractional offset", "{" TENSOR("a", "F32", "[1]", "0", "4.5") "}", 4, "data_offsets"},
    {"negative length", "{" TENSOR("a", "F32", "[-1]", "0", "4") "}", 4, "dimension 0"},
    {"shape that overflows", "{" TENSOR("a", "F32", "[4294967296,4294967296]", "0", "4") "}", 4,
     "dimension 1"},
    {"too many dimensions", "{" TENSOR("a", "F32", "[1,1,1,1,1,1,1,1,1]", "0", "4") "}", 4,
     "shape"},
    {"shape of another kind", "{" TENSOR("a", "F32", "4", "0", "4") "}", 4, "shape"},
    {"unknown type", "{" TENSOR("a", "F80", "[1]", "0", "10") "}", 10, "F80"},
    {"no type", "{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype"},
    {"no offsets", "{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "data_offsets"},
    {"tensor that is a number", "{\"a\":4}", 4, "object"},
    {"duplicate names",
     "{" TENSOR("a", "F32", "[1]", "0", "4") "," TENSOR("a", "F32", "[1]", "4", "8") "}", 8, "a"},
    {"metadata that are no strings", "{\"__metadata__\":{\"a\":1}}", 0, "__metadata__"},
    {"an array", "[]", 0, "begin with {"},
    {"no JSON", "{\"a\":", 0, "header"},
    {"nothing", "", 0, "begin with {"},
};

START_TEST(test_broken_headers)
{
    write_header(broken[_i].header, broken[_i].data_bytes);
    refused(broken[_i].message);
}
END_TEST

START_TEST(test_header_length_beyond_the_limit)
{
    char raw[16] = {0};
    const uint64_t length = UINT64_C(100000001);
    memcpy(raw, &length, sizeof length);
    write_raw(raw, sizeof raw);
    refused("100,000,000");
    memset(raw, 0xff, 8);
    write_raw(raw, sizeof raw);
    refused("100,000,000");
}
END_TEST

START_TEST(test_missing_file_and_folder)
{
    safetensors *file;
    ck_assert_int_eq(safetensors_open(other, &file), STATUS_NOT_FOUND);
    ck_assert_int_eq(safetensors_open(folder, &file), STATUS_INVALID);
    char missing[96];
    snprintf(missing, sizeof missing, "%s/missing/a", folder);
    ck_assert_int_eq(safetensors_write(missing, entries, ENTRIES, NULL, 0), STATUS_NOT_FOUND);
}
END_TEST

/* A tensor order in the file that is not that of the header is well-formed. */
START_TEST(test_any_order_of_offsets)
{
    write_header(
        "{" TENSOR("a", "F32", "[1]", "4", "8") "," TENSOR("b", "F32", "[1]", "0", "4") "}", 8);
    safetensors *file;
    ck_assert_int_eq(safetensors_open(other, &file), STATUS_OK);
    const char *a = safetensors_find(file, "a")->data;
    const char *b = safetensors_find(file, "b")->data;
    ck_assert_int_eq(a - b, 4);
    safetensors_close(&file);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, make_folder, remove_folder);
    tcase_add_test(tests, test_what_is_written_is_read);
    tcase_add_test(tests, test_data_are_aligned);
    tcase_add_test(tests, test_file_without_tensors);
    tcase_add_test(tests, test_independent_reader);
    tcase_add_test(tests, test_cut_at_every_byte);
    tcase_add_loop_test(tests, test_broken_headers, 0, (int)(sizeof broken / sizeof broken[0]));
    tcase_add_test(tests, test_header_length_beyond_the_limit);
    tcase_add_test(tests, test_missing_file_and_folder);
    tcase_add_test(tests, test_any_order_of_offsets);
    return check_run_case("safetensors", tests);
}
