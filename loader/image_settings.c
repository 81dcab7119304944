/* Settings of the decoders, and what this build has of them. */
#include <stdio.h>
#include <string.h>

#include "loader/image_internal.h"

static const struct {
    enum image_library library;
    const char *name;
} LIBRARIES[IMAGE_LIBRARIES] = {
    {IMAGE_LIBRARY_TURBO, "turbo"},
    {IMAGE_LIBRARY_LIBPNG, "libpng"},
    {IMAGE_LIBRARY_STB, "stb"},
};

static const char *library_name(enum image_library library)
{
    for (int i = 0; i < IMAGE_LIBRARIES; i++) {
        if (LIBRARIES[i].library == library) {
            return LIBRARIES[i].name;
        }
    }
    return "";
}

static bool has_turbo(void)
{
    return image__turbo_version()[0] != '\0';
}

void image_settings_defaults(struct image_settings *settings)
{
    int count = 0;

    memset(settings, 0, sizeof(*settings));
    if (has_turbo()) {
        settings->libraries[count++] = IMAGE_LIBRARY_TURBO;
    }
    settings->libraries[count++] = IMAGE_LIBRARY_LIBPNG;
    settings->libraries[count] = IMAGE_LIBRARY_STB;
    settings->max_pixels = 178956970;
    settings->max_dimension = 1000000;
    settings->max_file_bytes = (uint64_t)512 << 20;
}

static enum image_library find_library(const char *word, size_t length)
{
    for (int i = 0; i < IMAGE_LIBRARIES; i++) {
        if (strlen(LIBRARIES[i].name) == length && memcmp(LIBRARIES[i].name, word, length) == 0) {
            return LIBRARIES[i].library;
        }
    }
    return IMAGE_LIBRARY_NONE;
}

static enum status check_libraries(const enum image_library *libraries)
{
    bool ended = false;

    if (libraries[0] == IMAGE_LIBRARY_NONE) {
        return FAIL(STATUS_USAGE, "--decoders names none: give some of turbo,libpng,stb");
    }
    for (int i = 0; i < IMAGE_LIBRARIES; i++) {
        ended = ended || libraries[i] == IMAGE_LIBRARY_NONE;
        if (ended) {
            continue;
        }
        if (library_name(libraries[i])[0] == '\0') {
            return FAIL(STATUS_USAGE, "decoder number %d does not exist", (int)libraries[i]);
        }
        for (int other = 0; other < i; other++) {
            if (libraries[other] == libraries[i]) {
                return FAIL(STATUS_USAGE, "--decoders names %s twice", library_name(libraries[i]));
            }
        }
        if (libraries[i] == IMAGE_LIBRARY_TURBO && !has_turbo()) {
            return FAIL(STATUS_UNSUPPORTED,
                        "--decoders names turbo, but this build has no libjpeg-turbo: leave it out "
                        "(stb reads JPEG), or install libjpeg-turbo and build again");
        }
    }
    return STATUS_OK;
}

enum status image_settings_parse_libraries(struct image_settings *settings, const char *text)
{
    enum image_library libraries[IMAGE_LIBRARIES] = {IMAGE_LIBRARY_NONE};
    const char *word = text;
    int count = 0;

    while (*text != '\0') {
        size_t length = strcspn(word, ",");
        enum image_library library = find_library(word, length);
        if (library == IMAGE_LIBRARY_NONE) {
            return FAIL(STATUS_USAGE,
                        "--decoders %s: there is no decoder '%.*s'; there are turbo, libpng, stb",
                        text, (int)length, word);
        }
        if (count == IMAGE_LIBRARIES) {
            return FAIL(STATUS_USAGE, "--decoders %s: a decoder is named twice", text);
        }
        libraries[count++] = library;
        if (word[length] == '\0') {
            break;
        }
        word += length + 1;
    }
    TRY(check_libraries(libraries));
    memcpy(settings->libraries, libraries, sizeof(libraries));
    return STATUS_OK;
}

char *image_settings_libraries_text(const struct image_settings *settings, char *text, size_t bytes)
{
    size_t used = 0;

    if (bytes > 0) {
        text[0] = '\0';
    }
    for (int i = 0; i < IMAGE_LIBRARIES && used < bytes; i++) {
        if (settings->libraries[i] == IMAGE_LIBRARY_NONE) {
            break;
        }
        int written = snprintf(text + used, bytes - used, "%s%s", i == 0 ? "" : ",",
                               library_name(settings->libraries[i]));
        used += written > 0 ? (size_t)written : 0;
    }
    return text;
}

char *image_libraries_versions(char *text, size_t bytes)
{
    const char *deflate = image__deflate_version();
    snprintf(text, bytes, "%s%s%slibpng %s, %s%sstb_image", has_turbo() ? "libjpeg-turbo " : "",
             image__turbo_version(), has_turbo() ? ", " : "", image__libpng_version(), deflate,
             deflate[0] != '\0' ? ", " : "");
    return text;
}

const char *image_resample_target(void)
{
    const struct resample_kernels *fast = resample_find_avx2();

    return fast != NULL ? fast->name : resample_kernels_c.name;
}

enum status image__check_settings(const struct image_settings *settings)
{
    TRY(check_libraries(settings->libraries));
    if (settings->max_pixels < 1) {
        return FAIL(STATUS_USAGE, "--max-pixels 0 would refuse every image; give 1 or more");
    }
    if (settings->max_dimension < 1 || settings->max_dimension > 16777216) {
        return FAIL(STATUS_USAGE, "the largest width and height must be 1 to 16777216, not %u",
                    settings->max_dimension);
    }
    if (settings->max_file_bytes < 1) {
        return FAIL(STATUS_USAGE, "--max-file-bytes 0 would refuse every file; give 1 or more");
    }
    return STATUS_OK;
}
