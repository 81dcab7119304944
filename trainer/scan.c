#include "trainer/scan.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"

enum status scan_reader_init(struct scan_reader *reader, const struct image_settings *settings)
{
    memset(reader, 0, sizeof *reader);
    reader->max_file_bytes = (size_t)settings->max_file_bytes;
    return image_decoder_open(settings, &reader->decoder);
}

void scan_reader_fini(struct scan_reader *reader)
{
    image_decoder_close(&reader->decoder);
    free(reader->file);
    memset(reader, 0, sizeof *reader);
}

enum status scan_read(struct scan_reader *reader, const dataset *set, size_t sample,
                      struct sample_location *location)
{
    free(reader->file);
    reader->file = NULL;
    dataset_locate(set, sample, reader->path, sizeof reader->path, location);
    if (location->content != SAMPLE_FILE) {
        return STATUS_OK;
    }
    TRY(file_read(location->path, reader->max_file_bytes, &reader->file, &location->bytes));
    location->data = reader->file;
    return STATUS_OK;
}

enum status scan_render(struct scan_reader *reader, const dataset *set, size_t sample,
                        uint32_t size, uint8_t *rgb, struct image_facts *facts)
{
    struct sample_location location;
    struct image_view view;
    const struct image_output output = {.format = IMAGE_U8, .pixels = rgb};
    memset(facts, 0, sizeof *facts);
    TRY(scan_read(reader, set, sample, &location));
    if (location.content == SAMPLE_PIXELS) {
        facts->width = (uint32_t)location.width;
        facts->height = (uint32_t)location.height;
        image_view_whole(facts->width, facts->height, size, &view);
        return image_render_pixels(reader->decoder, location.data, facts->width, facts->height, 3,
                                   &view, &output);
    }
    TRY(image_probe(reader->decoder, location.data, location.bytes, facts));
    image_view_whole(facts->width, facts->height, size, &view);
    return image_render(reader->decoder, location.data, location.bytes, &view, &output);
}
