/* What the reports share. */
#ifndef PINLINE_EXPERIMENTS_REPORT_INTERNAL_H
#define PINLINE_EXPERIMENTS_REPORT_INTERNAL_H

#include <stdio.h>

#include "experiments/result.h"

/* 1.05 -> 5. */
double report__percent(double ratio);

/* Sum over the complete rounds of a member of a run's group, "host", "wait_batch". */
double report__sum(const struct result_view *view, const struct result_cell *cell,
                   const char *group, const char *name);

/* Whether the stages of its runs were timed: not where the cell leaves the instrument out. */
bool report__is_timed(const struct result_cell *cell);

/* Timed seconds, and batches, of a cell over all complete rounds. */
double report__wall(const struct result_view *view, const struct result_cell *cell);
double report__batches(const struct result_view *view, const struct result_cell *cell);

/* One sentence: what was run, on what, how often. */
void report__job_text(const struct result_view *view, char *text, size_t bytes);

/* What the repeated cell says of the method; "" where there is none. */
void report__check_text(const struct result_view *view, char *text, size_t bytes);

/* Whether the cells' bits were compared and equal, in a sentence; "" where no round ran. */
const char *report__bits_text(const struct result_view *view);

/* Where the time of a round went, in a sentence; "" where it is not known. */
void report__spent_text(const struct result_view *view, char *text, size_t bytes);

/* What is known of the rounds that would settle an undecided effect, of so many as one result can have. */
void report__rounds_text(const struct effect *effect, char *text, size_t bytes);

/* What page-locking and memory cost, in a sentence; "" where nothing is known. */
void report__cost_text(const struct result_view *view, char *text, size_t bytes);

/* "both/default: +3.1 % (+2.4 to +3.8, 95 % interval), worth it" */
void report__effect_text(const struct effect *effect, double matters, char *text, size_t bytes);

/* Text with what HTML takes for markup escaped; NULL writes nothing. */
void report__html_text(FILE *out, const char *text);

/* A row of the page: its name, then what is drawn in between (SVG, x in per cent, 26 high), then its
 * value, as HTML. */
void report__html_begin_row(FILE *out, const char *name);
void report__html_end_row(FILE *out, const char *value);

/* Sections of the page with a row a cell: rates of every round beside what was predicted; where host
 * and device spent a batch; the first steps. For a view with at least one round. */
void report__html_cells(const struct result_view *view, FILE *out);
void report__html_stages(const struct result_view *view, FILE *out);
void report__html_timelines(const struct result_view *view, FILE *out);

#endif
