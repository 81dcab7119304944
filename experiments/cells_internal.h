/* What the files about cells share. */
#ifndef PINLINE_EXPERIMENTS_CELLS_INTERNAL_H
#define PINLINE_EXPERIMENTS_CELLS_INTERNAL_H

#include "experiments/cells.h"

/* Adds a change, of an option whose name outlives the cell. STATUS_USAGE: too many, or too long. */
enum status cells__add_change(struct cell *cell, const char *option, const char *value) MUST_USE;

/* Replaces each cell by one for each of `values` (separated by commas). STATUS_USAGE. */
enum status cells__multiply(struct cell_list *list, const char *option,
                            const char *values) MUST_USE;

/* The same for an axis as it was asked for, "num-workers=1,2,4", which is checked. STATUS_USAGE. */
enum status cells__add_axis(struct cell_list *list, const char *axis) MUST_USE;

#endif
