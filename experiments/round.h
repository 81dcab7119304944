/*
 * One round of an ablation, in a process of its own: the parent writes a request, starts this program
 * anew with it, and reads what it wrote. A round opens the device, runs every cell once with slots
 * allocated anew, and records what happened; it judges nothing.
 *
 * Request (JSON): {"round": 0, "epochs": 3, "settle_s": 1, "timeline_steps": 8, "job": {...options},
 *   "eval": false, "step_s": 0, "order": [2, 0, 1], "plans": [...] or null, "other_plans": true,
 *   "spoil": "", "cells": [{"name": "...", "changes": [["option", "value"], ...]}, ...]}
 * Cells must find their plans among "plans", where it is given; with "other_plans" those that change
 * the arithmetic may choose what it lacks.
 * Answer: {"runs": [{"cell": "...", "settings": {...}, then the members of a run as result.h lists
 *   them}, ...], "plans": [...]}, plans being those of all cells, each once.
 */
#ifndef PINLINE_EXPERIMENTS_ROUND_H
#define PINLINE_EXPERIMENTS_ROUND_H

#include "base/json.h"
#include "base/status.h"

/*
 * Runs the request and writes the answer. Statuses of job_open and train_loop_epoch, the cell named
 * in front of the message; STATUS_INVALID for a request that is not understood;
 * STATUS_INTERRUPTED.
 */
enum status round_run(const struct json_value *request, struct json_writer *answer) MUST_USE;

/*
 * For the parent: writes `request` (JSON text) beside `result_path`, runs this program with it, and
 * parses its answer. `mode` is "round" or "ceilings". The child's messages pass through. Returns the
 * child's failure with its message; STATUS_INTERRUPTED when a stop was asked for.
 */
enum status round_spawn(const char *mode, const char *request, size_t request_bytes,
                        const char *result_path, json_document **answer) MUST_USE;

/* What the child's command does: reads the request file, runs it, writes the answer file. */
enum status round_child(const char *mode, const char *request_path,
                        const char *answer_path) MUST_USE;

#endif
