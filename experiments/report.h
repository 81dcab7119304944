/*
 * A result in the forms that people and programs read. Each writes to an open stream and reads
 * nothing but the view; errors of the stream are the caller's to find (ferror).
 */
#ifndef PINLINE_EXPERIMENTS_REPORT_H
#define PINLINE_EXPERIMENTS_REPORT_H

#include <stdio.h>

#include "base/status.h"
#include "experiments/result.h"

/* The answer first: failures if there are any, what bounds the job, what each flag is worth, what to
 * change instead; then the table of cells, stages, prediction against outcome, warnings. At most
 * `columns` wide (60 or more). */
void report_text(const struct result_view *view, FILE *out, int columns);

/* The same as Markdown, to paste where people discuss. */
void report_markdown(const struct result_view *view, FILE *out);

/* A header line and one row a cell-run: round, place, cell, samples_per_s, epoch_s, hashes, stages. */
void report_csv(const struct result_view *view, FILE *out);

/* One self-contained page: no network, no script that is needed to read it; light and dark, phone
 * and desktop. Cells with intervals and every round as a point, stage bars that sum to wall time,
 * time lines of a few steps, GPU idle gaps, prediction against outcome, settings and machine. */
void report_html(const struct result_view *view, FILE *out);

/* Time lines in the trace event format of ui.perfetto.dev and chrome://tracing. */
void report_trace(const struct result_view *view, FILE *out);

/* Two results side by side: differences of each common cell with intervals (unpaired, Welch), and
 * every setting and machine fact that differs. */
void report_compare(const struct result_view *a, const struct result_view *b, const char *name_a,
                    const char *name_b, FILE *out);

#endif
