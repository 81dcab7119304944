/* Every file of the fuzzers' corpus goes through what the fuzzers do. Runs in the tree's root. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "tests/support/check_run.h"
#include "tests/support/fuzz_image.h"

static int replay_folder(const char *folder, const char *orders, bool mend)
{
    DIR *list = opendir(folder);
    int files = 0;

    ck_assert_msg(list != NULL, "%s is not here: run tests in the root of the tree", folder);
    for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
        void *data = NULL;
        size_t bytes = 0;
        if (entry->d_name[0] == '.') {
            continue;
        }
        char *path = file_join(folder, entry->d_name);
        ck_assert_ptr_nonnull(path);
        ck_assert_int_eq(file_read(path, (size_t)1 << 20, &data, &bytes), STATUS_OK);
        /* Memory of exactly the file's size, so that a sanitiser sees every read beyond it. */
        uint8_t *tight = malloc(bytes == 0 ? 1 : bytes);
        ck_assert_ptr_nonnull(tight);
        memcpy(tight, data, bytes);
        fuzz_image(tight, bytes, orders);
        if (mend) {
            fuzz_image_mend_png(tight, bytes);
            fuzz_image(tight, bytes, orders);
        }
        free(tight);
        free(data);
        free(path);
        files++;
    }
    closedir(list);
    return files;
}

START_TEST(test_png)
{
    ck_assert_int_ge(replay_folder("tests/corpus/png", "libpng stb", true), 20);
}
END_TEST

START_TEST(test_jpeg)
{
    ck_assert_int_ge(replay_folder("tests/corpus/jpeg", "turbo stb", false), 15);
}
END_TEST

START_TEST(test_any)
{
    ck_assert_int_ge(replay_folder("tests/corpus/any", "stb libpng,stb turbo,libpng,stb", false),
                     30);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_png, test_jpeg, test_any};
    return check_run("image_corpus", tests, sizeof tests / sizeof tests[0], 60);
}
