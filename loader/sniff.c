/* Kinds of files by their first bytes. */
#include <ctype.h>
#include <string.h>
#include <zlib.h>

#include "loader/image_internal.h"

static bool begins(struct image_bytes file, const char *magic, size_t count)
{
    return file.count >= count && memcmp(file.data, magic, count) == 0;
}

static bool has_at(struct image_bytes file, size_t offset, const char *magic, size_t count)
{
    return file.count >= offset + count && memcmp(file.data + offset, magic, count) == 0;
}

static bool looks_like_bmp(struct image_bytes file)
{
    /* "BM" also begins texts; the size of the header that follows is one of a few. */
    if (!begins(file, "BM", 2)) {
        return false;
    }
    if (file.count < 18) {
        return true;
    }
    uint32_t header = image__le32(file.data + 14);
    return header == 12 || header == 16 || header == 40 || header == 52 || header == 56 ||
           header == 64 || header == 108 || header == 124;
}

static bool looks_like_pnm(struct image_bytes file)
{
    return file.count >= 3 && file.data[0] == 'P' && file.data[1] >= '1' && file.data[1] <= '6' &&
           (isspace(file.data[2]) || file.data[2] == '#');
}

enum image_kind image__sniff(struct image_bytes file)
{
    if (begins(file, "\xff\xd8", 2)) {
        return IMAGE_JPEG;
    }
    if (begins(file, "\x89PNG\r\n\x1a\n", 8)) {
        return IMAGE_PNG;
    }
    if (begins(file, "GIF87a", 6) || begins(file, "GIF89a", 6)) {
        return IMAGE_GIF;
    }
    if (looks_like_bmp(file)) {
        return IMAGE_BMP;
    }
    if (begins(file, "8BPS", 4)) {
        return IMAGE_PSD;
    }
    if (looks_like_pnm(file)) {
        return IMAGE_PNM;
    }
    if (image__looks_like_tga(file)) {
        return IMAGE_TGA;
    }
    return IMAGE_UNKNOWN;
}

/* --- What is not read ------------------------------------------------------------------------ */

struct other_kind {
    size_t offset;
    const char *magic;
    size_t count;
    const char *name;
};

#define MAGIC(text) (text), sizeof(text) - 1

/* Kinds of images that users meet under the names of others. The first that fits counts. */
static const struct other_kind OTHER_IMAGES[] = {
    {8, MAGIC("WEBP"), "WebP"},
    {0, MAGIC("II*\0"), "TIFF"},
    {0, MAGIC("MM\0*"), "TIFF"},
    {0, MAGIC("II+\0"), "BigTIFF"},
    {0, MAGIC("MM\0+"), "BigTIFF"},
    {4, MAGIC("ftypavif"), "AVIF"},
    {4, MAGIC("ftypavis"), "AVIF"},
    {4, MAGIC("ftyphei"), "HEIF"},
    {4, MAGIC("ftyphev"), "HEIF"},
    {4, MAGIC("ftypmif1"), "HEIF"},
    {4, MAGIC("ftypmsf1"), "HEIF"},
    {0, MAGIC("\0\0\0\x0cjP  \r\n\x87\n"), "JPEG 2000"},
    {0, MAGIC("\xff\x4f\xff\x51"), "JPEG 2000"},
    {0, MAGIC("\0\0\0\x0cJXL \r\n\x87\n"), "JPEG XL"},
    {0, MAGIC("\xff\x0a"), "JPEG XL"},
    {0, MAGIC("\x8aMNG\r\n\x1a\n"), "MNG"},
    {0, MAGIC("\x8bJNG\r\n\x1a\n"), "JNG"},
    {0, MAGIC("#?RADIANCE"), "Radiance HDR"},
    {0, MAGIC("#?RGBE"), "Radiance HDR"},
    {0, MAGIC("\x76\x2f\x31\x01"), "OpenEXR"},
    {0, MAGIC("qoif"), "QOI"},
    {0, MAGIC("DDS "), "DDS"},
    {0, MAGIC("P7\n"), "PAM"},
    {0, MAGIC("PF\n"), "PFM"},
    {0, MAGIC("Pf\n"), "PFM"},
    {0, MAGIC("\0\0\x01\0"), "ICO"},
    {0, MAGIC("\0\0\x02\0"), "CUR"},
    {0, MAGIC("\x53\x80\xf6\x34"), "Softimage PIC"},
    {0, MAGIC("\x01\xda"), "SGI"},
    {0, MAGIC("\x59\xa6\x6a\x95"), "Sun raster"},
    {0, MAGIC("gimp xcf"), "XCF"},
    {0, MAGIC("FORM"), "IFF"},
    {0, MAGIC("<svg"), "SVG"},
};

static const struct other_kind OTHER_FILES[] = {
    {4, MAGIC("ftyp"), "an MP4 or QuickTime file"},
    {0, MAGIC("BZh"), "bzip2 data"},
    {0,
     MAGIC("\xfd"
           "7zXZ\0"),
     "xz data"},
    {0, MAGIC("\x28\xb5\x2f\xfd"), "Zstandard data"},
    {0, MAGIC("PK\x03\x04"), "a ZIP archive"},
    {0, MAGIC("Rar!"), "a RAR archive"},
    {0, MAGIC("7z\xbc\xaf\x27\x1c"), "a 7z archive"},
    {257, MAGIC("ustar"), "a tar archive"},
    {0, MAGIC("%PDF"), "a PDF document"},
    {0, MAGIC("%!PS"), "a PostScript document"},
    {0, MAGIC("version https://git-lfs"), "a Git LFS pointer (fetch the file itself)"},
    {0, MAGIC("\0\x05\x16\x07"), "an AppleDouble resource file"},
    {0, MAGIC("\x93NUMPY"), "a NumPy array"},
    {0, MAGIC("\x89HDF\r\n\x1a\n"), "an HDF5 file"},
    {0,
     MAGIC("\x7f"
           "ELF"),
     "an ELF program"},
    {0, MAGIC("Bud1"), "a Finder settings file"},
    {4, MAGIC("Bud1"), "a Finder settings file"},
};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static const char *find(struct image_bytes file, const struct other_kind *kinds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (has_at(file, kinds[i].offset, kinds[i].magic, kinds[i].count)) {
            return kinds[i].name;
        }
    }
    return NULL;
}

/* Whether text, after white space and a byte order mark, begins with `word` in any case. */
static bool text_begins(struct image_bytes file, const char *word)
{
    size_t at = begins(file, "\xef\xbb\xbf", 3) ? 3 : 0;
    size_t length = strlen(word);

    while (at < file.count && isspace(file.data[at])) {
        at++;
    }
    if (file.count - at < length) {
        return false;
    }
    for (size_t i = 0; i < length; i++) {
        if (tolower(file.data[at + i]) != word[i]) {
            return false;
        }
    }
    return true;
}

/* The kind of image inside gzip data, from the first bytes that it inflates to. */
static enum image_kind kind_inside_gzip(struct image_bytes file)
{
    uint8_t head[64];
    z_stream stream = {0};
    enum image_kind kind = IMAGE_UNKNOWN;

    if (inflateInit2(&stream, 15 + 16) != Z_OK) {
        return kind;
    }
    uint8_t window[1024];
    size_t given = file.count < sizeof(window) ? file.count : sizeof(window);
    memcpy(window, file.data, given);
    stream.next_in = window;
    stream.avail_in = (uInt)given;
    stream.next_out = head;
    stream.avail_out = sizeof(head);
    int result = inflate(&stream, Z_SYNC_FLUSH);
    if (result == Z_OK || result == Z_STREAM_END || result == Z_BUF_ERROR) {
        struct image_bytes inside = {head, sizeof(head) - stream.avail_out};
        kind = image__sniff(inside);
    }
    inflateEnd(&stream);
    return kind;
}

static bool all_zero(struct image_bytes file)
{
    for (size_t i = 0; i < file.count; i++) {
        if (file.data[i] != 0) {
            return false;
        }
    }
    return true;
}

enum status image__fail_unknown(struct image_bytes file)
{
    const char *name;

    if (file.count == 0) {
        return FAIL(STATUS_INVALID, "empty file");
    }
    if (begins(file, "\x1f\x8b", 2)) {
        enum image_kind inside = kind_inside_gzip(file);
        if (inside != IMAGE_UNKNOWN) {
            return FAIL(STATUS_UNSUPPORTED,
                        "gzip-compressed %s data, not supported: decompress the file",
                        image_kind_name(inside));
        }
        return FAIL(STATUS_UNSUPPORTED, "gzip data, not an image");
    }
    name = find(file, OTHER_IMAGES, COUNT(OTHER_IMAGES));
    if (name != NULL) {
        return FAIL(STATUS_UNSUPPORTED, "%s data, not supported: convert it to PNG or JPEG", name);
    }
    name = find(file, OTHER_FILES, COUNT(OTHER_FILES));
    if (name != NULL) {
        return FAIL(STATUS_UNSUPPORTED, "not an image but %s", name);
    }
    if (text_begins(file, "<!doctype html") || text_begins(file, "<html")) {
        return FAIL(STATUS_INVALID, "an HTML page, not an image: a download that failed?");
    }
    if (text_begins(file, "<?xml") || text_begins(file, "<!doctype") || text_begins(file, "<svg")) {
        return FAIL(STATUS_UNSUPPORTED, "XML or SVG, not supported: convert it to PNG or JPEG");
    }
    if (all_zero(file)) {
        return FAIL(STATUS_INVALID, "nothing but zero bytes: a copy or download that failed?");
    }
    if (begins(file, "\x89PNG", 4) || begins(file, "\x89\n", 2)) {
        return FAIL(STATUS_INVALID, "a PNG signature that is cut or changed, as by a transfer in "
                                    "text mode");
    }
    return FAIL(STATUS_INVALID, "not an image of a known kind");
}
