/*
 * The cells of an ablation: one training job, run with some settings changed. A cell is a name and
 * the options that it sets; everything else is the job's.
 */
#ifndef PINLINE_EXPERIMENTS_CELLS_H
#define PINLINE_EXPERIMENTS_CELLS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/json.h"
#include "base/status.h"
#include "experiments/prediction.h"
#include "trainer/settings.h"

#define CELLS_MAX 64
#define CELL_MAX_CHANGES 12
#define CELLS_MAX_AXES 6

enum cells_stream { CELLS_STREAM_COMPUTE = 0, CELLS_STREAM_DEDICATED, CELLS_STREAM_BOTH };

/* What the command line asks for. Zero is the default: the article's four cells on the compute
 * stream, both+stream, and default a second time. */
struct cells_request {
    const char *names;         /* "default,both", or NULL; a name that stands twice, or "default
                                  again", is the check on the method */
    enum cells_stream streams; /* BOTH: the eight cells; DEDICATED: the four on their own stream */
    bool both_transfers;       /* each cell with u8 and with f32 */
    bool both_stagings;        /* each cell with slot and with thread */
    bool again;                /* the first cell a second time, whatever the others are */
    const char *axes[CELLS_MAX_AXES]; /* "num-workers=1,2,4", NULL at the end */
};

struct cell_change {
    const char *option; /* "pin-memory" */
    char value[48];
};

struct cell {
    char name[96]; /* "both+stream", "default num-workers=4", "default again" */
    struct cell_change changes[CELL_MAX_CHANGES];
    size_t change_count;
    bool repeats;    /* the same settings as an earlier cell: the check on the method */
    bool arithmetic; /* a change alters what is computed: compared by loss curves, not bits */
};

struct cell_list {
    struct cell cells[CELLS_MAX];
    size_t count;
};

/* What the name of a repeated cell ends with. */
#define CELL_AGAIN " again"

/*
 * Lists the cells. With axes and no `names`, the cells "default" and "both+stream" are taken at every
 * value of every axis. STATUS_USAGE: an unknown cell (naming the known ones), an axis that is no
 * option of a job, or has a value that it does not take, that is empty or that stands there already,
 * however it is written; more than CELLS_MAX cells.
 */
enum status cells_choose(const struct cells_request *request, struct cell_list *list) MUST_USE;

/* As settings_complete, in words that speak of cells. */
enum status cells_complete(struct settings *job) MUST_USE;

/* The job's settings with the cell's changes, completed. STATUS_USAGE. */
enum status cells_settings(const struct settings *job, const struct cell *cell,
                           struct settings *out) MUST_USE;

/*
 * What the parts are measured with, and a report speaks of, must be what cells have: where no cell has
 * the job's value of an option that axes vary, the job takes the first cell's. The flags that every
 * cell sets itself are left. `job` not completed. STATUS_USAGE, STATUS_NO_MEMORY.
 */
enum status cells_adopt(const struct cell_list *list, struct settings *job) MUST_USE;

/*
 * Cells that differ in their optimiser have a rate of their own each: where neither the job, not
 * completed, nor an axis names one, the optimiser's default becomes a change of the cell, since the
 * completed job has that of its own optimiser. STATUS_USAGE: too many changes.
 */
enum status cells_choose_rates(struct cell_list *list, const struct settings *job) MUST_USE;

/* Whether the settings of every cell of a job fit each other. STATUS_USAGE names the cell. */
enum status cells_check(const struct cell_list *list, const struct settings *job) MUST_USE;

/* Whether an option is one of those that every known cell sets: how batches are staged and copied. */
bool cells_is_flag(const char *option);

/*
 * Compares the settings of two cells as written by options_write (compared_only) and the plans that
 * each run used: they may differ in the options that either cell names. STATUS_MISMATCH naming the
 * option and both values.
 */
enum status cells_check_equal(const struct cell *a, const struct json_value *settings_a,
                              const struct cell *b, const struct json_value *settings_b) MUST_USE;

/* Which formula of predict.h speaks for these settings. */
struct predict_cell cells_prediction(const struct settings *settings);

#endif
