/* Listing of class folders, on real folders with the troubles that real folders have. */
#include <check.h>
#include <limits.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/stop.h"
#include "data/folder_index.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"
#include "tests/support/skip.h"

static folder_index *list(const char *name, enum folder_layout layout)
{
    folder_index *index = NULL;
    const enum status status = folder_index_open(data_files_path(name), layout, &index);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
    return index;
}

static void refuse(const char *name, enum folder_layout layout, enum status expected,
                   const char *word)
{
    folder_index *index = (folder_index *)&index;
    const enum status status = folder_index_open(data_files_path(name), layout, &index);
    ck_assert_msg(status == expected, "%s: %s", status_name(status), status_message());
    ck_assert_ptr_null(index);
    ck_assert_msg(strstr(status_message(), word) != NULL, "\"%s\" lacks \"%s\"", status_message(),
                  word);
}

static void check_names(const folder_index *index, const char *const *expected)
{
    size_t count = 0;
    for (; expected[count] != NULL; count++) {
        char name[PATH_MAX];
        ck_assert_uint_lt(count, folder_index_count(index));
        ck_assert_str_eq(folder_index_name(index, count, name, sizeof name), expected[count]);
    }
    ck_assert_uint_eq(folder_index_count(index), count);
}

START_TEST(test_order_is_that_of_bytes)
{
    /* In English and German, "a" stands before "B"; in bytes it follows "Z" and "_". */
    static const char *const locales[] = {"de_DE.UTF-8", "en_US.UTF-8", "cs_CZ.UTF-8",
                                          "tr_TR.UTF-8"};
    (void)setlocale(LC_ALL, locales[_i]); /* where it is not installed, the order is the same */
    data_files_touch("set/a/1.png");
    data_files_touch("set/B/10.png");
    data_files_touch("set/B/2.png");
    data_files_touch("set/B/1.png");
    data_files_touch("set/10/I.PNG");
    data_files_touch("set/10/i.png");
    data_files_touch("set/9/\303\244.jpg"); /* a umlaut */
    data_files_touch("set/9/z.jpg");
    data_files_touch("set/_x/b-c.jpg");
    data_files_touch("set/_x/b.jpg");
    static const char *const expected[] = {"10/I.PNG", "10/i.png", "9/z.jpg", "9/\303\244.jpg",
                                           "B/1.png",  "B/10.png", "B/2.png", "_x/b-c.jpg",
                                           "_x/b.jpg", "a/1.png",  NULL};
    folder_index *index = list("set", FOLDER_CLASSES);
    check_names(index, expected);
    ck_assert_int_eq(folder_index_class_count(index), 5);
    static const char *const classes[] = {"10", "9", "B", "_x", "a"};
    for (int i = 0; i < 5; i++) {
        ck_assert_str_eq(folder_index_class_names(index)[i], classes[i]);
    }
    ck_assert_int_eq(folder_index_label(index, 0), 0);
    ck_assert_int_eq(folder_index_label(index, 4), 2);
    ck_assert_int_eq(folder_index_label(index, 9), 4);
    folder_index_close(&index);
    ck_assert_ptr_null(index);
}
END_TEST

START_TEST(test_nested_folders_are_in_the_order_of_paths)
{
    data_files_touch("set/cat/z.png");
    data_files_touch("set/cat/a/2.png");
    data_files_touch("set/cat/a/b/1.png");
    data_files_touch("set/cat/a-b/3.png"); /* '-' stands before '/' */
    data_files_touch("set/dog/1.png");
    static const char *const expected[] = {"cat/z.png",     "cat/a/2.png", "cat/a-b/3.png",
                                           "cat/a/b/1.png", "dog/1.png",   NULL};
    folder_index *index = list("set", FOLDER_CLASSES);
    check_names(index, expected);
    ck_assert_int_eq(folder_index_label(index, 3), 0);
    ck_assert_int_eq(folder_index_label(index, 4), 1);
    char path[PATH_MAX];
    ck_assert_str_eq(folder_index_path(index, 3, path, sizeof path),
                     data_files_path("set/cat/a/b/1.png"));
    ck_assert_uint_eq(folder_index_file_bytes(index, 3), strlen("set/cat/a/b/1.png"));
    folder_index_close(&index);
}
END_TEST

START_TEST(test_extensions_count_in_any_case)
{
    static const char *const names[] = {"jpg", "JPEG", "Png", "bMp", "gif",
                                        "TGA", "psd",  "PNM", "ppm", "PGM"};
    for (size_t i = 0; i < 10; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "set/a/x.%s", names[i]);
        data_files_touch(name);
    }
    data_files_touch("set/b/1.png");
    data_files_touch("set/b/1.webp");
    data_files_touch("set/b/2.TIF");
    data_files_touch("set/b/3.tiff");
    data_files_touch("set/b/notes.txt");
    data_files_touch("set/b/png");
    data_files_touch("set/b/a.png.bak");
    folder_index *index = list("set", FOLDER_CLASSES);
    ck_assert_uint_eq(folder_index_count(index), 11);
    struct dataset_skipped skipped;
    folder_index_read_skipped(index, &skipped);
    ck_assert_uint_eq(skipped.unsupported, 3);
    ck_assert_uint_eq(skipped.unknown_type, 3);
    ck_assert_uint_eq(skipped.hidden, 0);
    ck_assert_uint_eq(skipped.loops, 0);
    ck_assert(strcmp(skipped.example, "b/1.webp") == 0 || strcmp(skipped.example, "b/2.TIF") == 0 ||
              strcmp(skipped.example, "b/3.tiff") == 0);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_litter_is_passed_over_and_counted)
{
    data_files_touch("set/a/1.png");
    data_files_touch("set/a/.DS_Store");
    data_files_touch("set/a/._1.png");
    data_files_touch("set/a/Thumbs.db");
    data_files_touch("set/a/desktop.ini");
    data_files_touch("set/b/1.png");
    data_files_touch("set/b/.ipynb_checkpoints/1-checkpoint.png");
    data_files_touch("set/.ipynb_checkpoints/x.png");
    data_files_touch("set/.git/config");
    data_files_touch("set/__MACOSX/a/._1.png");
    static const char *const expected[] = {"a/1.png", "b/1.png", NULL};
    folder_index *index = list("set", FOLDER_CLASSES);
    check_names(index, expected);
    struct dataset_skipped skipped;
    folder_index_read_skipped(index, &skipped);
    ck_assert_uint_eq(skipped.hidden, 8);
    ck_assert_uint_eq(skipped.unknown_type, 0);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_odd_names)
{
    char long_name[300];
    memset(long_name, 'n', sizeof long_name);
    (void)snprintf(long_name + 240, sizeof long_name - 240, ".jpg");
    char file[400];
    (void)snprintf(file, sizeof file, "set/-rf/%s", long_name);
    data_files_touch(file);
    data_files_touch("set/two words/new\nline.png");
    data_files_touch("set/\xff\xfe/1.png"); /* not UTF-8 */
    data_files_touch("set/\xe7\x8c\xab/\xe7\x8c\xab.png");
    folder_index *index = list("set", FOLDER_CLASSES);
    ck_assert_int_eq(folder_index_class_count(index), 4);
    ck_assert_str_eq(folder_index_class_names(index)[0], "-rf");
    ck_assert_str_eq(folder_index_class_names(index)[1], "two words");
    ck_assert_str_eq(folder_index_class_names(index)[2], "\xe7\x8c\xab");
    ck_assert_str_eq(folder_index_class_names(index)[3], "\xff\xfe");
    for (size_t i = 0; i < 4; i++) {
        char path[PATH_MAX];
        ck_assert_int_eq(access(folder_index_path(index, i, path, sizeof path), R_OK), 0);
    }
    char name[PATH_MAX];
    ck_assert_str_eq(folder_index_name(index, 1, name, sizeof name), "two words/new\nline.png");
    ck_assert_uint_eq(strlen(folder_index_name(index, 0, name, sizeof name)), 4 + 244);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_links_are_followed_but_no_loop_is_entered)
{
    data_files_touch("elsewhere/1.png");
    data_files_touch("elsewhere/below/2.png");
    data_files_touch("set/a/own.png");
    data_files_link("../../elsewhere", "set/a/linked"); /* a folder */
    data_files_link("../../elsewhere/1.png", "set/a/file.png");
    data_files_link("../..", "set/a/up"); /* encloses the root */
    data_files_link("../a", "set/a/self");
    data_files_link("itself.png", "set/a/itself.png");
    data_files_link("nowhere", "set/a/broken.png");
    data_files_link("nowhere", "set/a/broken.txt");
    data_files_link("../elsewhere", "set/b"); /* a class */
    data_files_link(".", "set/c");            /* no class, but the root */
    static const char *const expected[] = {
        "a/broken.png",         "a/file.png", "a/own.png",     "a/linked/1.png",
        "a/linked/below/2.png", "b/1.png",    "b/below/2.png", NULL};
    folder_index *index = list("set", FOLDER_CLASSES);
    check_names(index, expected);
    ck_assert_int_eq(folder_index_class_count(index), 2);
    ck_assert_int_eq(folder_index_label(index, 5), 1);
    ck_assert_uint_eq(folder_index_file_bytes(index, 0), 0);
    ck_assert_uint_eq(folder_index_file_bytes(index, 1), strlen("elsewhere/1.png"));
    struct dataset_skipped skipped;
    folder_index_read_skipped(index, &skipped);
    ck_assert_uint_eq(skipped.loops, 4);
    ck_assert_uint_eq(skipped.unknown_type, 1);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_pipes_named_as_images_are_not_listed)
{
    data_files_touch("set/a/1.png");
    data_files_touch("set/b/1.png");
    ck_assert_int_eq(mkfifo(data_files_path("set/b/pipe.png"), 0600), 0);
    data_files_link("pipe.png", "set/b/linked.png");
    folder_index *index = list("set", FOLDER_CLASSES);
    ck_assert_uint_eq(folder_index_count(index), 2);
    struct dataset_skipped skipped;
    folder_index_read_skipped(index, &skipped);
    ck_assert_uint_eq(skipped.unknown_type, 2);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_a_folder_named_as_an_image_is_a_folder)
{
    data_files_touch("set/a.png/1.png");
    data_files_touch("set/b.jpg/c.gif/1.png");
    static const char *const expected[] = {"a.png/1.png", "b.jpg/c.gif/1.png", NULL};
    folder_index *index = list("set", FOLDER_CLASSES);
    check_names(index, expected);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_errors_name_the_thing_and_the_remedy)
{
    refuse("absent", FOLDER_CLASSES, STATUS_NOT_FOUND, "absent");
    data_files_touch("file");
    refuse("file", FOLDER_CLASSES, STATUS_INVALID, "is a file");
    data_files_folder("bare");
    refuse("bare", FOLDER_CLASSES, STATUS_INVALID, "no class folders");
    refuse("bare", FOLDER_FLAT, STATUS_INVALID, "no images");
    data_files_touch("flat/1.png");
    refuse("flat", FOLDER_CLASSES, STATUS_INVALID, "a folder of its own");
    data_files_touch("hole/a/1.png");
    data_files_folder("hole/empty one");
    data_files_touch("hole/texts/readme.txt");
    refuse("hole", FOLDER_CLASSES, STATUS_INVALID,
           "2 of 3 classes hold no images: empty one, texts");
    data_files_touch("web/a/1.png");
    data_files_touch("web/b/1.webp");
    refuse("web", FOLDER_CLASSES, STATUS_INVALID, "convert");
    data_files_folder("none/a");
    data_files_folder("none/b");
    refuse("none", FOLDER_CLASSES, STATUS_INVALID, "a, b");
}
END_TEST

START_TEST(test_many_empty_classes_make_one_short_message)
{
    for (int i = 0; i < 300; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "set/class %03d", i);
        data_files_folder(name);
    }
    refuse("set", FOLDER_CLASSES, STATUS_INVALID, "300 of 300");
    ck_assert_uint_lt(strlen(status_message()), 400);
}
END_TEST

START_TEST(test_an_unreadable_folder_is_an_error)
{
    data_files_touch("set/a/1.png");
    data_files_touch("set/b/1.png");
    data_files_touch("set/b/locked/2.png");
    ck_assert_int_eq(chmod(data_files_path("set/b/locked"), 0), 0);
    const bool is_root = geteuid() == 0;
    if (is_root) {
        /* The superuser reads every folder, so somebody else looks. */
        ck_assert_int_eq(chmod(data_files_path("."), 0755), 0);
        if (seteuid(65534) != 0) {
            SKIP_TEST("the superuser reads every folder and cannot be anybody else here");
        }
    }
    refuse("set", FOLDER_CLASSES, STATUS_IO, "locked");
    if (is_root) {
        ck_assert_int_eq(seteuid(0), 0);
    }
    ck_assert_int_eq(chmod(data_files_path("set/b/locked"), 0700), 0);
}
END_TEST

START_TEST(test_thousands_of_classes)
{
    for (int i = 0; i < 3000; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "set/n%05d/1.jpg", (i * 7919) % 3000);
        data_files_touch(name);
    }
    folder_index *index = list("set", FOLDER_CLASSES);
    ck_assert_int_eq(folder_index_class_count(index), 3000);
    for (int i = 0; i < 3000; i++) {
        char expected[64], name[PATH_MAX];
        (void)snprintf(expected, sizeof expected, "n%05d/1.jpg", i);
        ck_assert_str_eq(folder_index_name(index, (size_t)i, name, sizeof name), expected);
        ck_assert_int_eq(folder_index_label(index, (size_t)i), i);
    }
    /* Names and 16 bytes a file, a path and 16 bytes a folder, and a little. */
    ck_assert_uint_lt(folder_index_memory(index), 3000 * (6 + 16 + 7 + 16 + 8) + 8192);
    folder_index_close(&index);
}
END_TEST

START_TEST(test_flat_takes_every_image_below)
{
    data_files_touch("set/2.png");
    data_files_touch("set/a/1.png");
    data_files_touch("set/notes.txt");
    static const char *const expected[] = {"2.png", "a/1.png", NULL};
    folder_index *index = list("set/", FOLDER_FLAT);
    check_names(index, expected);
    ck_assert_int_eq(folder_index_class_count(index), 0);
    char path[PATH_MAX];
    ck_assert_str_eq(folder_index_path(index, 0, path, sizeof path), data_files_path("set/2.png"));
    folder_index_close(&index);
}
END_TEST

START_TEST(test_a_stop_ends_the_listing)
{
    for (int i = 0; i < 1100; i++) {
        char name[64];
        (void)snprintf(name, sizeof name, "set/a/%04d.png", i);
        data_files_touch(name);
    }
    data_files_touch("set/b/1.png");
    stop_set(SIGINT);
    folder_index *index = NULL;
    ck_assert_int_eq(folder_index_open(data_files_path("set"), FOLDER_CLASSES, &index),
                     STATUS_INTERRUPTED);
    ck_assert_ptr_null(index);
    stop_set(0);
    index = list("set", FOLDER_CLASSES);
    ck_assert_uint_eq(folder_index_count(index), 1101);
    folder_index_close(&index);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 60);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_loop_test(tests, test_order_is_that_of_bytes, 0, 4);
    tcase_add_test(tests, test_nested_folders_are_in_the_order_of_paths);
    tcase_add_test(tests, test_extensions_count_in_any_case);
    tcase_add_test(tests, test_litter_is_passed_over_and_counted);
    tcase_add_test(tests, test_odd_names);
    tcase_add_test(tests, test_links_are_followed_but_no_loop_is_entered);
    tcase_add_test(tests, test_pipes_named_as_images_are_not_listed);
    tcase_add_test(tests, test_a_folder_named_as_an_image_is_a_folder);
    tcase_add_test(tests, test_errors_name_the_thing_and_the_remedy);
    tcase_add_test(tests, test_many_empty_classes_make_one_short_message);
    tcase_add_test(tests, test_an_unreadable_folder_is_an_error);
    tcase_add_test(tests, test_thousands_of_classes);
    tcase_add_test(tests, test_flat_takes_every_image_below);
    tcase_add_test(tests, test_a_stop_ends_the_listing);
    return check_run_case("folder_index", tests);
}
