/* FNV-1a, 64 bits (Fowler, Noll, Vo; offset basis 14695981039346656037, prime 1099511628211). It
 * tells accidental differences apart and is easily recomputed by others; it is no cryptography. */
#ifndef PINLINE_BASE_HASH_H
#define PINLINE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START UINT64_C(14695981039346656037)

/* Continues `hash` over `bytes` bytes; begin with HASH_START. */
uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes);

/* The same over a string without its terminating zero. */
uint64_t hash_text(uint64_t hash, const char *text);

#endif
