/* Whole files: what is read, what is refused, and that a failed write leaves the old file. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "tests/support/check_run.h"
#include "tests/support/skip.h"

/* A fresh folder, and the working directory from here on. */
static char folder[] = "/tmp/pinline-test-file-XXXXXX";

static void enter_folder(void)
{
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void leave_folder(void)
{
    char command[128];
    ck_assert_int_eq(chdir("/"), 0);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    ck_assert_int_eq(system(command), 0);
}

static void put(const char *path, const char *text)
{
    FILE *stream = fopen(path, "wb");
    ck_assert_ptr_nonnull(stream);
    ck_assert_int_ge(fputs(text, stream), 0);
    ck_assert_int_eq(fclose(stream), 0);
}

static void expect(const char *path, const char *text)
{
    void *data;
    size_t bytes;
    ck_assert_int_eq(file_read(path, 1000, &data, &bytes), STATUS_OK);
    ck_assert_uint_eq(bytes, strlen(text));
    ck_assert_str_eq(data, text);
    free(data);
}

static void expect_refused(const char *path, size_t limit, enum status status, const char *reason)
{
    void *data = &data;
    size_t bytes = 7;
    ck_assert_int_eq(file_read(path, limit, &data, &bytes), status);
    ck_assert_ptr_null(data);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_ptr_nonnull(strstr(status_message(), path));
    ck_assert_ptr_nonnull(strstr(status_message(), reason));
}

START_TEST(test_read)
{
    enter_folder();
    put("empty", "");
    expect("empty", "");
    put("five", "12345");
    expect("five", "12345");
    void *data;
    size_t bytes;
    ck_assert_int_eq(file_read("five", 5, &data, &bytes), STATUS_OK);
    ck_assert_uint_eq(bytes, 5);
    free(data);
    ck_assert_int_eq(file_read("five", SIZE_MAX, &data, &bytes), STATUS_OK);
    free(data);
    ck_assert_int_eq(file_read("empty", 0, &data, &bytes), STATUS_OK);
    free(data);
    leave_folder();
}
END_TEST

START_TEST(test_read_a_file_that_claims_to_be_empty)
{
    void *data;
    size_t bytes;
    if (!file_exists("/proc/self/status")) {
        SKIP_TEST("/proc is not mounted here");
    }
    ck_assert_int_eq(file_read("/proc/self/status", 100000, &data, &bytes), STATUS_OK);
    ck_assert_uint_gt(bytes, 100);
    ck_assert_ptr_nonnull(strstr(data, "Threads:"));
    free(data);
    expect_refused("/proc/self/status", 20, STATUS_LIMIT, "limit of 20");
    ck_assert_int_eq(file_make_folder("/proc/pinline"), STATUS_IO);
}
END_TEST

START_TEST(test_read_refuses)
{
    enter_folder();
    put("five", "12345");
    expect_refused("five", 4, STATUS_LIMIT, "limit of 4");
    expect_refused("absent", 10, STATUS_NOT_FOUND, "No such file");
    ck_assert_int_eq(mkdir("sub", 0777), 0);
    expect_refused("sub", 10, STATUS_INVALID, "a folder");
    ck_assert_int_eq(mkfifo("fifo", 0666), 0);
    expect_refused("fifo", 10, STATUS_INVALID, "pipe");
    expect_refused("/dev/zero", 10, STATUS_INVALID, "device");
    expect_refused("five/below", 10, STATUS_IO, "Not a directory");
    leave_folder();
}
END_TEST

START_TEST(test_write)
{
    enter_folder();
    put("target", "old");
    struct file_writer writer;
    ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_OK);
    ck_assert_int_ge(fputs("new text", writer.stream), 0);
    ck_assert_int_eq(fflush(writer.stream), 0);
    expect("target", "old");
    ck_assert(file_exists("target.partial"));
    ck_assert_int_eq(file_writer_commit(&writer), STATUS_OK);
    expect("target", "new text");
    ck_assert(!file_exists("target.partial"));
    file_writer_abort(&writer); /* nothing left to do, and allowed */
    expect("target", "new text");

    ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_OK);
    ck_assert_int_ge(fputs("other", writer.stream), 0);
    file_writer_abort(&writer);
    ck_assert(!file_exists("target.partial"));
    expect("target", "new text");

    struct file_writer zero = {0};
    file_writer_abort(&zero);
    leave_folder();
}
END_TEST

START_TEST(test_a_full_disk_keeps_the_old_file)
{
    struct stat facts;
    if (stat("/dev/full", &facts) != 0 || !S_ISCHR(facts.st_mode)) {
        SKIP_TEST("no /dev/full here");
    }
    enter_folder();
    put("target", "old");
    /* Everything written through this name fails with "No space left on device". The second time it
     * fails before commit, when stdio runs out of buffer. */
    for (int large = 0; large < 2; large++) {
        ck_assert_int_eq(symlink("/dev/full", "target.partial"), 0);
        struct file_writer writer;
        ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_OK);
        for (int i = 0; i < (large ? 100000 : 1); i++) {
            fputs("new text", writer.stream);
        }
        ck_assert_int_eq(file_writer_commit(&writer), STATUS_IO);
        ck_assert_ptr_nonnull(strstr(status_message(), "No space left on device"));
        ck_assert_ptr_nonnull(strstr(status_message(), "target"));
        expect("target", "old");
        ck_assert(!file_exists("target.partial"));
    }
    leave_folder();
}
END_TEST

START_TEST(test_a_write_that_failed_once_is_not_forgotten)
{
    enter_folder();
    put("target", "old");
    /* No file may grow past 4 KiB for a while: something in the middle is lost. */
    struct rlimit limit;
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit low = {.rlim_cur = 4096, .rlim_max = limit.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    struct file_writer writer;
    ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_OK);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &low), 0);
    for (int i = 0; i < 10000; i++) {
        fputs("new text", writer.stream);
    }
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    ck_assert(ferror(writer.stream));
    ck_assert_int_eq(file_writer_commit(&writer), STATUS_IO);
    expect("target", "old");
    ck_assert(!file_exists("target.partial"));
    leave_folder();
}
END_TEST

START_TEST(test_write_refuses)
{
    enter_folder();
    struct file_writer writer;
    ck_assert_int_eq(file_writer_open(&writer, "absent/target"), STATUS_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(status_message(), "absent/target"));
    file_writer_abort(&writer);
    ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_OK);
    ck_assert_int_eq(mkdir("target", 0777), 0);
    ck_assert_int_eq(file_writer_commit(&writer), STATUS_IO);
    ck_assert(!file_exists("target.partial"));
    /* What is no file is not replaced by one: a folder, a pipe, and so a device. */
    struct stat facts;
    ck_assert_int_eq(file_writer_open(&writer, "target"), STATUS_IO);
    ck_assert_int_eq(mkfifo("pipe", 0666), 0);
    ck_assert_int_eq(file_writer_open(&writer, "pipe"), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(status_message(), "pipe"));
    ck_assert_int_eq(lstat("pipe", &facts), 0);
    ck_assert(S_ISFIFO(facts.st_mode));
    ck_assert(!file_exists("pipe.partial"));
    leave_folder();
}
END_TEST

START_TEST(test_join)
{
    const char *const rows[][3] = {
        {"a", "b", "a/b"}, {"a/", "b", "a/b"}, {"/", "b", "/b"}, {"", "b", "b"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *joined = file_join(rows[i][0], rows[i][1]);
        ck_assert_str_eq(joined, rows[i][2]);
        free(joined);
    }
}
END_TEST

START_TEST(test_name_and_folder)
{
    const char *const rows[][3] = {{"a", "a", "."},
                                   {"a/b", "b", "a"},
                                   {"/a", "a", "/"},
                                   {"../a b/c.d", "c.d", "../a b"},
                                   {"a/b/", "", "a/b"},
                                   {"/", "", "/"},
                                   {"/long/er", "er", "/long"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *lies_in = file_folder(rows[i][0]);
        ck_assert_str_eq(file_name(rows[i][0]), rows[i][1]);
        ck_assert_str_eq(lies_in, rows[i][2]);
        free(lies_in);
    }
}
END_TEST

START_TEST(test_make_folder)
{
    enter_folder();
    ck_assert_int_eq(file_make_folder("a//b/c/"), STATUS_OK);
    ck_assert(file_is_folder("a/b/c"));
    ck_assert_int_eq(file_make_folder("a/b/c"), STATUS_OK);
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/x/y", folder);
    ck_assert_int_eq(file_make_folder(absolute), STATUS_OK);
    ck_assert(file_is_folder("x/y"));
    ck_assert_int_eq(file_make_folder("/"), STATUS_OK);
    put("file", "");
    ck_assert(file_exists("file") && !file_is_folder("file"));
    ck_assert_int_eq(file_make_folder("file"), STATUS_IO);
    ck_assert_ptr_nonnull(strstr(status_message(), "in the way"));
    ck_assert_int_eq(file_make_folder("file/below"), STATUS_IO);
    ck_assert_int_eq(file_make_folder(""), STATUS_IO);
    leave_folder();
}
END_TEST

/* By the folders themselves, not by how they are written; of what is not there yet, too. */
START_TEST(test_is_within)
{
    enter_folder();
    ck_assert_int_eq(file_make_folder("data/cat"), STATUS_OK);
    ck_assert_int_eq(file_make_folder("database"), STATUS_OK);
    ck_assert_int_eq(symlink("data/cat", "link"), 0);
    ck_assert_int_eq(symlink("nowhere", "broken"), 0);
    char absolute[128];
    snprintf(absolute, sizeof absolute, "%s/data/new", folder);
    const struct {
        const char *path, *folder;
        bool within;
    } rows[] = {
        {"data", "data", true},
        {"./data/", "data", true},
        {"data/cat/", "data", true},
        {"data/new/deep//", "data", true},
        {absolute, "data", true},
        {"new", ".", true},
        {"link", "data", true},
        {"link/new", "./data/", true},
        {"database/../data/new", "data", true},
        {"data/..", "data", false},
        {"database", "data", false},
        {"database/new", "data", false},
        {"data/cat", "data/cat/more", false},
        {"data", "data/cat", false},
        {"new", "data", false},
        {"broken", "data", false},
        {"/", "data", false},
        {"data", "/", true},
        {"data", "none", false},
        {"", "data", false},
    };
    put("file", "");
    ck_assert(!file_is_within("data", "file"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ck_assert_msg(file_is_within(rows[i].path, rows[i].folder) == rows[i].within, "%s in %s",
                      rows[i].path, rows[i].folder);
    }
    leave_folder();
}
END_TEST

START_TEST(test_quote)
{
    char out[64];
    ck_assert_str_eq(file_quote("plain name \xC3\xA4.png", out, sizeof out),
                     "plain name \xC3\xA4.png");
    ck_assert_str_eq(file_quote("a\nb\"c\\d\x1B\x7F", out, sizeof out),
                     "a\\nb\\\"c\\\\d\\x1B\\x7F");
    char small[6];
    ck_assert_str_eq(file_quote("abcdefgh", small, sizeof small), "abcde");
    ck_assert_str_eq(file_quote("abcd\n", small, sizeof small), "abcd");
    ck_assert_str_eq(file_quote("abc", small, 1), "");
    ck_assert_ptr_eq(file_quote("abc", small, 0), small);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        test_read,
        test_read_a_file_that_claims_to_be_empty,
        test_read_refuses,
        test_write,
        test_a_full_disk_keeps_the_old_file,
        test_a_write_that_failed_once_is_not_forgotten,
        test_write_refuses,
        test_join,
        test_name_and_folder,
        test_make_folder,
        test_is_within,
        test_quote,
    };
    return check_run("file", tests, sizeof tests / sizeof tests[0], 0);
}
