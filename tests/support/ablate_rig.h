/*
 * The program itself, run on small jobs of the host device with a simulated bus and step, and what is
 * asked of its results. The program is $PINLINE.
 */
#ifndef PINLINE_TESTS_SUPPORT_ABLATE_RIG_H
#define PINLINE_TESTS_SUPPORT_ABLATE_RIG_H

#include <stdbool.h>
#include <sys/types.h>

#include "base/status.h"
#include "experiments/result.h"
#include "tests/support/skip.h"

/* The test's own folder, once it is prepared: "set" is in it, results go to "out". */
extern char ablate_rig_folder[];

/* Eight batches of 64 images of 16 x 16 bytes, 0.052 MB with their targets. */
#define ABLATE_RIG_JOB                                                                             \
    "--quiet --data %s/set --device host --model probe --size 16 --settle 0.05 --num-workers 1 "   \
    "--prefetch 2 --epochs 1 "
#define ABLATE_RIG_COMMON "ablate --ceiling-seconds 0.1 --overwrite " ABLATE_RIG_JOB "--out %s/out "
#define ABLATE_RIG_GO_ON "ablate " ABLATE_RIG_JOB "--resume %s/out/result.json "
/* Gigabytes a second at which such a batch takes so many milliseconds. */
#define COPY_1_MS "0.052"
#define COPY_20_MS "0.0026"
#define COPY_30_MS "0.00173"
#define COPY_40_MS "0.0013"

/* Makes the folder and its set; false where $PINLINE names no program. */
bool ablate_rig_prepare(void);
void ablate_rig_clean_up(void);

/* Runs the program with words separated by spaces, none of which holds one, and returns its exit status,
 * 128 + the number of a signal; or starts it, to be waited for by finish. */
int ablate_rig_run(const char *format, ...) PRINTF_LIKE(1, 2);
pid_t ablate_rig_run_beside(const char *format, ...) PRINTF_LIKE(1, 2);
int ablate_rig_finish(pid_t child);

/* Sanitizers slow the arithmetic down, so that a step takes longer than its simulated length; and on a
 * machine with too much to do nothing that waits is woken in time. */
bool ablate_rig_times_mean_something(void);

#define ABLATE_RIG_TIMED()                                                                         \
    do {                                                                                           \
        if (!ablate_rig_times_mean_something()) {                                                  \
            SKIP_TEST("times mean nothing in this build, or on a machine as busy as this");        \
        }                                                                                          \
        if (!ablate_rig_prepare()) {                                                               \
            SKIP_TEST("PINLINE does not name the program");                                        \
        }                                                                                          \
    } while (0)

/* The result in "out"; result_close closes it. */
result *ablate_rig_open_result(void);
enum verdict ablate_rig_verdict_of(const struct result_view *view, const char *name);
const char *ablate_rig_diagnosis_of(const struct result_view *view, const char *member);

/*
 * One cell's best rate to another's: where this machine's load strikes a round, others stay. What is
 * left of the load is on the side of the cells that wait for each copy: their host wakes late once a
 * batch, which is time that the simulated device does not have. Tolerances leave room for that on one
 * side, and none for a copy or a step that is hidden where it must not be, or not hidden where it must.
 */
double ablate_rig_best_ratio(const struct result_view *view, const char *a, const char *b);
void ablate_rig_check_ratio(const struct result_view *view, const char *a, const char *b,
                            double least, double most);

/* Every cell's best rate is the predicted one, to within this share. */
void ablate_rig_check_predictions(const struct result_view *view, double tolerance);
/* The same of the result in "out", as an answer. */
bool ablate_rig_predictions_hold(double tolerance);

#endif
