/* Files of any kind, through everything behind the recognition of kinds. */
#include "tests/support/fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fuzz_image(data, bytes, "stb libpng,stb turbo,libpng,stb");
    return 0;
}
