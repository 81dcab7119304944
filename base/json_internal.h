/* Shared by the writer and the reader of JSON. */
#ifndef PINLINE_BASE_JSON_INTERNAL_H
#define PINLINE_BASE_JSON_INTERNAL_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the well-formed UTF-8 sequence (RFC 3629: shortest form, no surrogates, at most U+10FFFF)
 * at the start of `text`, of which `left` bytes are there; 0 when there is none. */
size_t json__utf8_length(const unsigned char *text, size_t left);

/* Writes a code point, at most U+10FFFF and no surrogate, to `out`: 1 to 4 bytes, no zero behind them.
 * Returns their number. */
size_t json__put_utf8(char *out, uint32_t code);

#endif
