/* What the files of the ablation's engine share. */
#ifndef PINLINE_EXPERIMENTS_ABLATE_INTERNAL_H
#define PINLINE_EXPERIMENTS_ABLATE_INTERNAL_H

#include "base/json.h"
#include "experiments/ablate.h"
#include "experiments/order.h"
#include "experiments/peer.h"
#include "experiments/prediction.h"
#include "experiments/result.h"

#define ABLATE_MAX_NOTES 64
#define ABLATE_NOTE_BYTES 400

struct ablate_notes {
    char text[ABLATE_MAX_NOTES][ABLATE_NOTE_BYTES];
    size_t count;
};

struct ablate_prediction {
    bool known; /* false where the cell changes what the ceilings were measured with */
    double samples_per_s, formula, trivial;
    enum predict_bound bound;
};

/* Where the seconds of a round went, as result.h has them. */
struct ablate_spent {
    bool known; /* false: measured by a version that did not tell */
    double wall_s, start_s, setup_s, settle_s, timed_s;
};

/* An ablation under way. */
struct ablation {
    struct ablate_settings own; /* as given, or as recorded where a result is gone on with */
    const struct ablate_settings *settings; /* = &own */
    struct settings job;                    /* completed; what every cell begins from */
    struct cell_list cells;
    int rounds, rounds_done, epochs;
    int order[RESULT_MAX_ROUNDS * ORDER_MAX_RUNS];
    int64_t batches, samples; /* of an epoch */
    char created[32];
    struct peer_list peers;
    json_document *ceilings; /* the answer of the ceilings' process, or that of an earlier result */
    json_document *earlier;  /* an earlier result that is gone on with */
    json_document *answers[RESULT_MAX_ROUNDS];
    const struct json_value *runs[RESULT_MAX_ROUNDS][CELLS_MAX]; /* by round and cell */
    const struct json_value *found;                              /* "ceilings" */
    const struct json_value *facts;                              /* "facts" */
    const struct json_value *plans; /* array, or NULL: the ceilings', later the first round's */
    struct ablate_prediction predictions[CELLS_MAX];
    struct ablate_spent spent[RESULT_MAX_ROUNDS];
    struct ablate_notes failures, warnings;
    size_t planned_warnings; /* the first of them come from planning; the rest is found anew */
};

/* Adds a sentence; what is too much or too long is cut. */
void ablate__note(struct ablate_notes *notes, const char *format, ...) PRINTF_LIKE(2, 3);

/* Whether any cell may choose plans of its own, because it computes something else. */
bool ablate__has_arithmetic(const struct ablation *a);

/* Ceilings, facts and plans from the root of an answer or of an earlier result. */
void ablate__take_ceilings(struct ablation *a, const struct json_value *root);

/* Reads the result in `out` and takes over its rounds, predictions and protocol. STATUS_NOT_FOUND;
 * STATUS_INVALID: it does not belong to these settings. */
enum status ablate__go_on(struct ablation *a) MUST_USE;

/* Batches and samples of an epoch when at most `limit` samples are used, 0 for all. */
void ablate__take_facts(struct ablation *a, int64_t limit);

/* Samples of an epoch of a cell with these settings, which may be limited otherwise than the job.
 * INT64_MAX: all of a set of which the job's limit left a part. */
int64_t ablate__cell_samples(const struct ablation *a, const struct settings *settings);

/* "512 samples", "64 to 512 samples": those of the cells' epochs. Returns text. */
char *ablate__samples_text(const struct ablation *a, char *text, size_t bytes);

/* The first cell that is the job but for its flags, and its settings: what the ceilings speak of. NULL
 * where there is none. */
const struct cell *ablate__reference(const struct ablation *a, struct settings *settings);

/* Rates of all cells from the ceilings. */
void ablate__predict(struct ablation *a);

/* Rounds, epochs and samples: as asked, or fitted to the budget. */
enum status ablate__plan(struct ablation *a) MUST_USE;

/* What a budget has to be divided between, and how it is: epochs are given up first, then samples,
 * down to 10 batches, then rounds, down to 2. */
struct ablate_budget {
    double seconds; /* for the rounds */
    double fixed_s; /* of a round, whatever is timed */
    double sum_s;   /* one epoch of every cell */
    int rounds, epochs;
    int64_t samples;
    int batch;
};
struct ablate_fit {
    int rounds, epochs;
    int64_t limit; /* samples of an epoch, a multiple of the batch; 0: all */
};
void ablate__fit_budget(const struct ablate_budget *in, struct ablate_fit *fit);

/* Compares bits, plans and settings of all runs; fills failures and warnings. */
void ablate__check(struct ablation *a);

/* Writes result.json with what there is. */
enum status ablate__write(struct ablation *a) MUST_USE;

/* Writes the member "diagnosis". */
void ablate__write_diagnosis(const struct ablation *a, struct json_writer *writer);

/* A member of what the parts were measured with: the ceilings' answer, or the earlier result. NULL when
 * absent. */
const struct json_value *ablate__from_ceilings(const struct ablation *a, const char *name);

#endif
