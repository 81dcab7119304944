/* PNG of any bytes, as they are and with its checksums mended, by libpng and by stb_image. */
#include <stdlib.h>
#include <string.h>

#include "tests/support/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const char signature[] = "\x89PNG\r\n\x1a\n";
    uint8_t *mended = malloc(bytes + 8);

    if (mended == NULL) {
        return 0;
    }
    fuzz_image(data, bytes, "libpng stb");
    memcpy(mended, data, bytes);
    memcpy(mended, signature, bytes < 8 ? bytes : 8);
    fuzz_image_mend_png(mended, bytes);
    fuzz_image(mended, bytes, "libpng stb");
    free(mended);
    return 0;
}
