/* Made images: the same everywhere, decodable, well divided, and never over somebody's files. */
#include <check.h>
#include <limits.h>
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#if PINLINE_HAVE_TURBO
#include <jpeglib.h>
#endif

#include "base/hash.h"
#include "base/stop.h"
#include "data/dataset.h"
#include "data/synth.h"
#include "tests/support/check_run.h"
#include "tests/support/data_files.h"
#include "tests/support/skip.h"

static struct synth_settings small(const char *name)
{
    struct synth_settings settings;
    synth_settings_defaults(&settings);
    settings.folder = data_files_path(name);
    settings.train_count = 40;
    settings.val_count = 20;
    return settings;
}

static void make(const struct synth_settings *settings, struct synth_result *result)
{
    const enum status status = synth_write(settings, result);
    ck_assert_msg(status == STATUS_OK, "%s", status_message());
}

static void refuse(const struct synth_settings *settings, enum status expected, const char *word)
{
    const enum status status = synth_write(settings, NULL);
    ck_assert_msg(status == expected, "%s: %s", status_name(status), status_message());
    ck_assert_msg(strstr(status_message(), word) != NULL, "\"%s\" lacks \"%s\"", status_message(),
                  word);
}

static uint64_t render_hash(const struct synth_settings *settings, enum synth_split split,
                            size_t index)
{
    const size_t bytes = (size_t)settings->width * (size_t)settings->height * 3;
    uint8_t *pixels = malloc(bytes);
    ck_assert_ptr_nonnull(pixels);
    synth_render(settings, split, index, pixels);
    const uint64_t hash = hash_bytes(HASH_START, pixels, bytes);
    free(pixels);
    return hash;
}

START_TEST(test_pixels_are_a_function_of_seed_split_and_index)
{
    struct synth_settings settings;
    synth_settings_defaults(&settings);
    const uint64_t first = render_hash(&settings, SYNTH_TRAIN, 17);
    ck_assert_uint_eq(render_hash(&settings, SYNTH_TRAIN, 17), first);
    ck_assert_uint_ne(render_hash(&settings, SYNTH_VAL, 17), first);
    ck_assert_uint_ne(render_hash(&settings, SYNTH_TRAIN, 27), first);
    settings.train_count = 100000;
    settings.val_count = 0;
    settings.threads = 8;
    settings.jpeg_quality = 1;
    ck_assert_uint_eq(render_hash(&settings, SYNTH_TRAIN, 17), first);
    settings.seed = 1;
    ck_assert_uint_ne(render_hash(&settings, SYNTH_TRAIN, 17), first);
}
END_TEST

START_TEST(test_pixels_are_the_same_everywhere)
{
    /* The hash over ten images, one a class, as every machine must make them: small ones, and ones
     * whose shapes are drawn by the shorter way. It changes only when the pictures are meant to. */
    static const struct {
        int width, height;
        uint64_t hash;
    } expected[] = {{48, 32, UINT64_C(12767094446381581835)},
                    {90, 100, UINT64_C(11786224695831651001)}};
    struct synth_settings settings;
    synth_settings_defaults(&settings);
    settings.width = expected[_i].width;
    settings.height = expected[_i].height;
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < 10; i++) {
        const uint64_t one = render_hash(&settings, SYNTH_TRAIN, i);
        hash = hash_bytes(hash, &one, sizeof one);
    }
    ck_assert_uint_eq(hash, expected[_i].hash);
}
END_TEST

/* Decodes by the library itself into rgb; the size must be as said. */
static void decode_png(const char *path, int width, int height, uint8_t *rgb)
{
    png_image image;
    memset(&image, 0, sizeof image);
    image.version = PNG_IMAGE_VERSION;
    ck_assert_msg(png_image_begin_read_from_file(&image, path), "%s: %s", path, image.message);
    ck_assert_int_eq((int)image.width, width);
    ck_assert_int_eq((int)image.height, height);
    image.format = PNG_FORMAT_RGB;
    ck_assert_msg(png_image_finish_read(&image, NULL, rgb, 0, NULL), "%s: %s", path, image.message);
}

static void decode_jpeg(const char *path, int width, int height, uint8_t *rgb)
{
#if PINLINE_HAVE_TURBO
    struct jpeg_decompress_struct codec;
    struct jpeg_error_mgr errors; /* its default ends the test's process on any error */
    codec.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&codec);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    jpeg_stdio_src(&codec, file);
    (void)jpeg_read_header(&codec, TRUE);
    ck_assert_int_eq((int)codec.image_width, width);
    ck_assert_int_eq((int)codec.image_height, height);
    codec.out_color_space = JCS_RGB;
    (void)jpeg_start_decompress(&codec);
    while (codec.output_scanline < codec.output_height) {
        JSAMPROW row = rgb + (size_t)codec.output_scanline * (size_t)width * 3;
        (void)jpeg_read_scanlines(&codec, &row, 1);
    }
    (void)jpeg_finish_decompress(&codec);
    ck_assert_int_eq((int)errors.num_warnings, 0);
    jpeg_destroy_decompress(&codec);
    (void)fclose(file);
#else
    (void)rgb;
    ck_abort_msg("%s, %d x %d: no JPEG in this build", path, width, height);
#endif
}

/* Root of the mean squared difference. */
static double distance(const uint8_t *a, const uint8_t *b, size_t bytes)
{
    double sum = 0.0;
    for (size_t i = 0; i < bytes; i++) {
        const double difference = (double)a[i] - (double)b[i];
        sum += difference * difference;
    }
    return sqrt(sum / (double)bytes);
}

static void check_files(const struct synth_settings *settings)
{
    const size_t bytes = (size_t)settings->width * (size_t)settings->height * 3;
    uint8_t *file = malloc(bytes), *made = malloc(bytes);
    ck_assert(file != NULL && made != NULL);
    for (int split = 0; split < 2; split++) {
        const size_t count = split == 0 ? settings->train_count : settings->val_count;
        for (size_t i = 0; i < count; i++) {
            char path[PATH_MAX];
            const bool jpeg = settings->format == SYNTH_JPEG ||
                              (settings->format == SYNTH_MIXED && i / 10 % 2 == 1);
            (void)snprintf(path, sizeof path, "%s/%s/%s/%06zu.%s", settings->folder,
                           split == 0 ? "train" : "val", synth_class_name((int)(i % 10)), i,
                           jpeg ? "jpg" : "png");
            synth_render(settings, split == 0 ? SYNTH_TRAIN : SYNTH_VAL, i, made);
            if (jpeg) {
                decode_jpeg(path, settings->width, settings->height, file);
                /* Colour is halved in both directions, which blurs the borders of saturated shapes:
                 * some 10 to 25. A picture of another index is 60 and more away. */
                ck_assert_double_lt(distance(file, made, bytes), 32.0);
            } else {
                decode_png(path, settings->width, settings->height, file);
                ck_assert_mem_eq(file, made, bytes);
            }
        }
    }
    free(file);
    free(made);
}

START_TEST(test_png_files_hold_the_pixels)
{
    struct synth_settings settings = small("set");
    settings.width = 40;
    settings.height = 24;
    struct synth_result result;
    make(&settings, &result);
    ck_assert_uint_eq(result.files, 60);
    /* Noise keeps a PNG near the size of its pixels, as photographs do: 40 x 24 x 3 = 2,880. */
    ck_assert_uint_gt(result.bytes, 60 * 1400);
    ck_assert_uint_lt(result.bytes, 60 * 3100);
    check_files(&settings);
}
END_TEST

START_TEST(test_mixed_files_decode)
{
#if PINLINE_HAVE_TURBO
    struct synth_settings settings = small("set");
    settings.format = SYNTH_MIXED;
    settings.seed = 99;
    make(&settings, NULL);
    check_files(&settings);
    settings = small("jpeg");
    settings.format = SYNTH_JPEG;
    settings.width = 33;
    settings.height = 65;
    make(&settings, NULL);
    check_files(&settings);
#else
    struct synth_settings settings = small("set");
    settings.format = SYNTH_JPEG;
    refuse(&settings, STATUS_UNSUPPORTED, "libjpeg-turbo");
#endif
}
END_TEST

START_TEST(test_the_set_opens_with_its_split)
{
    struct synth_settings settings = small("set");
    settings.threads = 3;
    make(&settings, NULL);
    const struct dataset_settings data = {.data = settings.folder};
    dataset *train, *val;
    ck_assert_int_eq(dataset_open(&data, &train, &val), STATUS_OK);
    ck_assert_uint_eq(dataset_count(train), 40);
    ck_assert_uint_eq(dataset_count(val), 20);
    ck_assert_int_eq(dataset_class_count(train), SYNTH_CLASSES);
    int counts[SYNTH_CLASSES] = {0};
    for (size_t i = 0; i < 40; i++) {
        counts[dataset_label(train, i)]++;
    }
    for (int i = 0; i < SYNTH_CLASSES; i++) {
        ck_assert_int_eq(counts[i], 4);
        ck_assert_str_eq(dataset_class_name(train, i), synth_class_name(i));
    }
    dataset_close(&train);
    dataset_close(&val);
    settings = small("no val");
    settings.val_count = 0;
    make(&settings, NULL);
    ck_assert_int_ne(access(data_files_path("no val/val"), F_OK), 0);
}
END_TEST

static uint64_t hash_of_set(const struct synth_settings *settings)
{
    const struct dataset_settings data = {.data = settings->folder};
    dataset *all;
    ck_assert_int_eq(dataset_open(&data, &all, NULL), STATUS_OK);
    uint64_t hash = HASH_START;
    for (size_t i = 0; i < dataset_count(all); i++) {
        char path[PATH_MAX], name[PATH_MAX];
        struct sample_location location;
        dataset_locate(all, i, path, sizeof path, &location);
        FILE *file = fopen(location.path, "rb");
        ck_assert_ptr_nonnull(file);
        unsigned char bytes[8192];
        const size_t got = fread(bytes, 1, sizeof bytes, file);
        (void)fclose(file);
        hash = hash_text(hash, dataset_sample_name(all, i, name, sizeof name));
        hash = hash_bytes(hash, bytes, got);
    }
    dataset_close(&all);
    return hash;
}

START_TEST(test_files_do_not_depend_on_threads)
{
    struct synth_settings one = small("one"), many = small("many");
    one.format = many.format = PINLINE_HAVE_TURBO ? SYNTH_MIXED : SYNTH_PNG;
    many.threads = 7;
    make(&one, NULL);
    make(&many, NULL);
    ck_assert_uint_eq(hash_of_set(&one), hash_of_set(&many));
}
END_TEST

START_TEST(test_a_folder_in_use_is_refused)
{
    data_files_touch("set/letter.txt");
    struct synth_settings settings = small("set");
    refuse(&settings, STATUS_INVALID, "not empty");
    settings = small("set/letter.txt");
    refuse(&settings, STATUS_INVALID, "is a file");
    data_files_folder("bare");
    settings = small("bare");
    make(&settings, NULL);
    refuse(&settings, STATUS_INVALID, "--overwrite");
}
END_TEST

START_TEST(test_overwrite_replaces_a_made_set_and_nothing_else)
{
    struct synth_settings settings = small("set");
    make(&settings, NULL);
    data_files_touch("set/notes.txt");
    settings.overwrite = true;
    settings.train_count = 10;
    settings.val_count = 0;
    make(&settings, NULL);
    ck_assert_int_ne(access(data_files_path("set/train/circle/000011.png"), F_OK), 0);
    ck_assert_int_ne(access(data_files_path("set/val"), F_OK), 0);
    ck_assert_int_eq(access(data_files_path("set/notes.txt"), F_OK), 0);

    /* A photograph among them: everything stays. */
    data_files_touch("set/train/circle/holiday.png");
    refuse(&settings, STATUS_INVALID, "holiday.png");
    ck_assert_int_eq(access(data_files_path("set/train/circle/000001.png"), F_OK), 0);
    ck_assert_int_eq(access(data_files_path("set/train/checker/000000.png"), F_OK), 0);
    ck_assert_int_eq(unlink(data_files_path("set/train/circle/holiday.png")), 0);
    data_files_touch("set/train/cat/000001.png");
    refuse(&settings, STATUS_INVALID, "cat");
    ck_assert_int_eq(access(data_files_path("set/train/checker/000000.png"), F_OK), 0);
}
END_TEST

START_TEST(test_wrong_settings)
{
    struct synth_settings settings = small("set");
    settings.folder = NULL;
    refuse(&settings, STATUS_USAGE, "folder");
    settings = small("set");
    settings.train_count = 9;
    refuse(&settings, STATUS_USAGE, "9 training images");
    settings = small("set");
    settings.val_count = 1;
    refuse(&settings, STATUS_USAGE, "1 validation images");
    settings = small("set");
    settings.width = 7;
    refuse(&settings, STATUS_USAGE, "7 x 32");
    settings.width = 32;
    settings.height = 8193;
    refuse(&settings, STATUS_USAGE, "32 x 8193");
    settings = small("set");
    settings.jpeg_quality = 0;
    refuse(&settings, STATUS_USAGE, "quality of 0");
    settings = small("set");
    settings.threads = 0;
    refuse(&settings, STATUS_USAGE, "0 threads");
    settings = small("set");
    settings.format = (enum synth_format)3;
    refuse(&settings, STATUS_USAGE, "format 3");
    ck_assert_int_ne(access(data_files_path("set"), F_OK), 0);
}
END_TEST

START_TEST(test_a_file_that_cannot_be_written_is_named)
{
    /* A folder stands where the file should go; this holds for the superuser too. */
    struct synth_settings settings = small("set");
    settings.threads = 4;
    settings.folder = data_files_path("made");
    make(&settings, NULL);
    settings.overwrite = true;
    ck_assert_int_eq(unlink(data_files_path("made/train/ring/000015.png")), 0);
    data_files_folder("made/train/ring/000015.png");
    refuse(&settings, STATUS_IO, "ring");
}
END_TEST

START_TEST(test_a_stop_ends_the_making)
{
    struct synth_settings settings = small("set");
    stop_set(SIGTERM);
    ck_assert_int_eq(synth_write(&settings, NULL), STATUS_INTERRUPTED);
    stop_set(0);
}
END_TEST

/* What the pictures promise: a shape that differs from its ground, of many places and colours. */
START_TEST(test_pictures_vary)
{
    struct synth_settings settings;
    synth_settings_defaults(&settings);
    uint8_t pixels[32 * 32 * 3];
    double red_sum = 0.0, red_squares = 0.0, blue_sum = 0.0, blue_squares = 0.0;
    const int count = 200;
    for (int i = 0; i < count; i++) {
        synth_render(&settings, SYNTH_TRAIN, (size_t)i, pixels);
        double red = 0.0, blue = 0.0;
        for (int p = 0; p < 32 * 32; p++) {
            red += pixels[3 * p];
            blue += pixels[3 * p + 2];
        }
        red /= 32.0 * 32.0;
        blue /= 32.0 * 32.0;
        red_sum += red;
        red_squares += red * red;
        blue_sum += blue;
        blue_squares += blue * blue;
    }
    const double red_mean = red_sum / count, blue_mean = blue_sum / count;
    ck_assert_double_gt(red_mean, 90.0);
    ck_assert_double_lt(red_mean, 165.0);
    ck_assert_double_gt(sqrt(red_squares / count - red_mean * red_mean), 30.0);
    ck_assert_double_gt(sqrt(blue_squares / count - blue_mean * blue_mean), 30.0);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("all");
    tcase_set_timeout(tests, 120);
    tcase_add_checked_fixture(tests, data_files_begin, data_files_end);
    tcase_add_test(tests, test_pixels_are_a_function_of_seed_split_and_index);
    tcase_add_loop_test(tests, test_pixels_are_the_same_everywhere, 0, 2);
    tcase_add_test(tests, test_png_files_hold_the_pixels);
    tcase_add_test(tests, test_mixed_files_decode);
    tcase_add_test(tests, test_the_set_opens_with_its_split);
    tcase_add_test(tests, test_files_do_not_depend_on_threads);
    tcase_add_test(tests, test_a_folder_in_use_is_refused);
    tcase_add_test(tests, test_overwrite_replaces_a_made_set_and_nothing_else);
    tcase_add_test(tests, test_wrong_settings);
    tcase_add_test(tests, test_a_file_that_cannot_be_written_is_named);
    tcase_add_test(tests, test_a_stop_ends_the_making);
    tcase_add_test(tests, test_pictures_vary);
    return check_run_case("synth", tests);
}
