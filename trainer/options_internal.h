/* What the files of options share. */
#ifndef PINLINE_TRAINER_OPTIONS_INTERNAL_H
#define PINLINE_TRAINER_OPTIONS_INTERNAL_H

#include <stddef.h>

#include "base/status.h"
#include "trainer/options.h"

/* The option whose name is the first `length` bytes of `name`, and the struct that it fills; NULL
 * where no table has it. */
const struct option *options__find(const struct option_binding *bindings, size_t binding_count,
                                   const char *name, size_t length, void **base);

/* Fills the option's field in the struct at `base`. OPTION_TEXT borrows `text`. STATUS_USAGE shows
 * what is accepted. */
enum status options__set_text(const struct option *option, void *base, const char *text) MUST_USE;

#endif
