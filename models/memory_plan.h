/*
 * Places for buffers that live during a part of a program: two of them may share memory when the
 * one's last use comes before the other's first. Plain data of the caller; no thread-safety.
 */
#ifndef PINLINE_MODELS_MEMORY_PLAN_H
#define PINLINE_MODELS_MEMORY_PLAN_H

#include <stddef.h>

#include "base/status.h"

#define MEMORY_PLAN_ALIGNMENT 256

struct memory_span {
    size_t bytes;    /* rounded up to the alignment */
    size_t offset;   /* set by memory_plan_solve; a multiple of the alignment */
    int first, last; /* numbers of the operations of the first and the last use */
};

struct memory_plan {
    struct memory_span *spans;
    int count, capacity;
    size_t bytes; /* of the whole arena; set by memory_plan_solve */
};

/* Room for `capacity` spans. STATUS_NO_MEMORY. fini accepts an all-zero plan. */
enum status memory_plan_init(struct memory_plan *plan, int capacity) MUST_USE;
void memory_plan_fini(struct memory_plan *plan);

/* Adds a buffer first used at operation `at`; returns its number. The capacity must suffice. */
int memory_plan_add(struct memory_plan *plan, size_t bytes, int at);

/* Buffer `span` is used at operation `at`, too; operations come in rising order. */
void memory_plan_use(struct memory_plan *plan, int span, int at);

/* Gives every span an offset: spans that are alive at the same operation never overlap. Largest
 * first, each at the lowest free place. STATUS_NO_MEMORY. */
enum status memory_plan_solve(struct memory_plan *plan) MUST_USE;

#endif
