/* Shared by the writer and the reader of JSON. */
#ifndef PINLINE_BASE_JSON_INTERNAL_H
#define PINLINE_BASE_JSON_INTERNAL_H

#include <stddef.h>

/* Bytes of the well-formed UTF-8 sequence (RFC 3629: shortest form, no surrogates, at most U+10FFFF)
 * at the start of `text`, of which `left` bytes are there; 0 when there is none. */
size_t json__utf8_length(const unsigned char *text, size_t left);

#endif
