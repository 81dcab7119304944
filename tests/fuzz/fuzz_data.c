/* Packed sets, IDX and CIFAR files of any content: opened, read through, verified. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "data/dataset.h"
#include "data/packed.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char folder[PATH_MAX];

static void remove_folder(void)
{
    (void)rmdir(folder);
}

static void write_file(const char *path, const uint8_t *data, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
        abort();
    }
}

/* Makes the checksums right, since a search by mutation would never get past them. */
static void repair(uint8_t *data, size_t bytes)
{
    if (bytes < 128) {
        return;
    }
    memcpy(data, "PINLPACK\1\0\0\0\200\0\0\0", 16);
    for (int i = 0; i < 8; i++) {
        data[16 + i] = (uint8_t)(bytes >> (8 * i));
    }
    uint64_t index = 0;
    for (int i = 7; i >= 0; i--) {
        index = index << 8 | data[56 + i];
    }
    uint32_t crc = index < bytes ? (uint32_t)crc32(0, data + index, (uInt)(bytes - index)) : 0;
    memcpy(data + 80, &crc, 4);
    crc = (uint32_t)crc32(0, data, 124);
    memcpy(data + 124, &crc, 4);
}

static void read_through(const char *path)
{
    const struct dataset_settings settings = {.data = path, .val_fraction = 0.3};
    dataset *train, *val;
    if (dataset_open(&settings, &train, &val) != STATUS_OK) {
        status_clear();
        return;
    }
    dataset *const sets[] = {train, val};
    uint64_t sum = 0;
    for (int s = 0; s < 2 && sets[s] != NULL; s++) {
        sum += dataset_fingerprint(sets[s]);
        for (size_t i = 0; i < dataset_count(sets[s]); i++) {
            char text[PATH_MAX];
            struct sample_location location;
            dataset_locate(sets[s], i, text, sizeof text, &location);
            sum += crc32(0, location.data, (uInt)location.bytes);
            if (dataset_label(sets[s], i) >= dataset_class_count(sets[s])) {
                abort();
            }
        }
    }
    if (sum == 1) {
        (void)puts("unlikely");
    }
    dataset_close(&train);
    dataset_close(&val);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (folder[0] == '\0') {
        (void)snprintf(folder, sizeof folder, "/tmp/pinline_fuzz_XXXXXX");
        if (mkdtemp(folder) == NULL) {
            abort();
        }
        (void)atexit(remove_folder);
    }
    if (bytes < 1) {
        return 0;
    }
    /* The first byte says what the rest is. */
    static const char *const names[] = {"set.pack", "set.pack", "images", "data_batch_1.bin",
                                        "train.bin"};
    static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
    const unsigned kind = data[0] % 5;
    char path[PATH_MAX + 32], beside[PATH_MAX + 32];
    (void)snprintf(path, sizeof path, "%s/%s", folder, names[kind]);
    (void)snprintf(beside, sizeof beside, "%s/labels", folder);
    uint8_t *copy = malloc(bytes);
    if (copy == NULL) {
        abort();
    }
    memcpy(copy, data + 1, bytes - 1);
    if (kind == 0) {
        repair(copy, bytes - 1);
    }
    write_file(path, copy, bytes - 1);
    free(copy);
    if (kind == 2) {
        write_file(beside, labels, sizeof labels);
    }
    read_through(path);
    if (kind < 2 && packed_verify(path, NULL) != STATUS_OK) {
        status_clear();
    }
    (void)unlink(path);
    (void)unlink(beside);
    return 0;
}
