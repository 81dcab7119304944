/* The orientation tag of Exif (JEITA CP-3451, tag 0x0112), and the turns that it asks for. */
#include <string.h>

#include "loader/image_internal.h"

int image__exif_orientation(struct image_bytes tiff)
{
    if (tiff.count < 8) {
        return 1;
    }
    bool little = memcmp(tiff.data, "II*\0", 4) == 0;
    if (!little && memcmp(tiff.data, "MM\0*", 4) != 0) {
        return 1;
    }
    uint32_t (*read16)(const uint8_t *) = little ? image__le16 : image__be16;
    uint32_t (*read32)(const uint8_t *) = little ? image__le32 : image__be32;
    size_t directory = read32(tiff.data + 4);
    if (directory > tiff.count - 2) {
        return 1;
    }
    size_t entries = read16(tiff.data + directory);
    const uint8_t *entry = tiff.data + directory + 2;
    size_t fit = (tiff.count - directory - 2) / 12;
    for (size_t i = 0; i < entries && i < fit; i++, entry += 12) {
        uint32_t type = read16(entry + 2);
        if (read16(entry) != 0x0112) {
            continue;
        }
        if (read32(entry + 4) != 1 || (type != 3 && type != 4)) {
            return 1;
        }
        uint32_t value = type == 3 ? read16(entry + 8) : read32(entry + 8);
        return value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

void image__orient(const uint8_t *from, uint32_t width, uint32_t height, int orientation,
                   uint8_t *to)
{
    bool transposes = image__orientation_transposes(orientation);
    uint32_t out_width = transposes ? height : width;
    uint32_t out_height = transposes ? width : height;
    /* Where the stored picture's column and row run backwards as seen upright. */
    bool mirror_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    bool mirror_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;

    for (uint32_t y = 0; y < out_height; y++) {
        for (uint32_t x = 0; x < out_width; x++) {
            uint32_t source_x = transposes ? y : x;
            uint32_t source_y = transposes ? x : y;
            source_x = mirror_x ? width - 1 - source_x : source_x;
            source_y = mirror_y ? height - 1 - source_y : source_y;
            memcpy(to + ((size_t)y * out_width + x) * 3,
                   from + ((size_t)source_y * width + source_x) * 3, 3);
        }
    }
}
