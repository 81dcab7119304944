/* JSON of any bytes: parsed, walked, written again and parsed again to the same text. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static char *write_text(const json_document *document, size_t *bytes)
{
    char *text = NULL;
    FILE *stream = open_memstream(&text, bytes);
    if (stream == NULL) {
        abort();
    }
    struct json_writer writer;
    json_writer_init(&writer, stream, true);
    json_copy(&writer, json_root(document));
    fclose(stream);
    return text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    json_document *document = NULL;
    if (json_parse((const char *)data, bytes, &document) != STATUS_OK) {
        return 0;
    }
    size_t first_bytes, second_bytes;
    char *first = write_text(document, &first_bytes);
    json_document *again = NULL;
    if (json_parse(first, first_bytes, &again) != STATUS_OK) {
        abort();
    }
    char *second = write_text(again, &second_bytes);
    if (first_bytes != second_bytes || memcmp(first, second, first_bytes) != 0) {
        abort();
    }
    free(first);
    free(second);
    json_document_destroy(&again);
    json_document_destroy(&document);
    return 0;
}
