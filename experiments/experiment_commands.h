/* The subcommands of this layer, for the table in pinline.c. */
#ifndef PINLINE_EXPERIMENTS_EXPERIMENT_COMMANDS_H
#define PINLINE_EXPERIMENTS_EXPERIMENT_COMMANDS_H

#include "trainer/options.h"

extern const struct command command_ablate;
extern const struct command command_compare;

/* For `pinline ablate` itself, which starts the program anew with it; not listed in the help. */
extern const struct command command_ablate_child;

#endif
