/* What the files of the ablation's engine share. */
#ifndef PINLINE_EXPERIMENTS_ABLATE_INTERNAL_H
#define PINLINE_EXPERIMENTS_ABLATE_INTERNAL_H

#include "base/json.h"
#include "experiments/ablate.h"
#include "experiments/order.h"
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

/* An ablation under way. */
struct ablation {
    const struct ablate_settings *settings;
    struct settings job; /* completed; what every cell begins from */
    struct cell_list cells;
    int rounds, rounds_done, epochs;
    int order[RESULT_MAX_ROUNDS * ORDER_MAX_RUNS];
    char created[32];
    json_document *ceilings; /* the answer of the ceilings' process, or that of an earlier result */
    json_document *earlier;  /* an earlier result that is gone on with */
    json_document *answers[RESULT_MAX_ROUNDS];
    const struct json_value *runs[RESULT_MAX_ROUNDS][CELLS_MAX]; /* by round and cell */
    const struct json_value *found;                              /* "ceilings" */
    const struct json_value *facts;                              /* "facts" */
    const struct json_value *plans;                              /* array, or NULL */
    struct ablate_prediction predictions[CELLS_MAX];
    struct ablate_notes failures, warnings;
};

/* Adds a sentence; what is too much or too long is cut. */
void ablate__note(struct ablate_notes *notes, const char *format, ...) PRINTF_LIKE(2, 3);

/* Rates of all cells from the ceilings. */
void ablate__predict(struct ablation *a);

/* Rounds, epochs and samples: as asked, or fitted to the budget. */
enum status ablate__plan(struct ablation *a) MUST_USE;

/* Compares bits and settings of all runs; fills failures and warnings. */
void ablate__check(struct ablation *a);

/* Writes result.json. `finished`: all rounds are done. */
enum status ablate__write(struct ablation *a, bool finished) MUST_USE;

/* Writes the member "diagnosis". */
void ablate__write_diagnosis(const struct ablation *a, struct json_writer *writer);

#endif
