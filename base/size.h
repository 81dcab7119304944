/*
 * Size arithmetic on numbers that come from outside: each function reports overflow instead of
 * wrapping. Leaf header, no state.
 */
#ifndef PINLINE_BASE_SIZE_H
#define PINLINE_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* *out = a + b; false, *out untouched, when it does not fit. */
static inline bool size_add(size_t a, size_t b, size_t *out)
{
    if (b > SIZE_MAX - a) {
        return false;
    }
    *out = a + b;
    return true;
}

/* *out = a * b; false, *out untouched, when it does not fit. */
static inline bool size_multiply(size_t a, size_t b, size_t *out)
{
    if (a != 0 && b > SIZE_MAX / a) {
        return false;
    }
    *out = a * b;
    return true;
}

/* The next multiple of `alignment` (a power of two) at or above `value`. The caller guarantees that
 * it fits; for outside numbers add first with size_add. */
static inline size_t size_align(size_t value, size_t alignment)
{
    return (value + alignment - 1) & ~(alignment - 1);
}

#endif
