/* JPEG of any bytes behind its first marker, by libjpeg-turbo and by stb_image. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    uint8_t *copy = malloc(bytes + 2);

    if (copy == NULL) {
        return 0;
    }
    memcpy(copy, data, bytes);
    if (bytes >= 2) {
        memcpy(copy, "\xff\xd8", 2);
    }
    fuzz_image(copy, bytes, "turbo stb");
    free(copy);
    return 0;
}
