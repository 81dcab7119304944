#include "models/memory_plan.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/size.h"

enum status memory_plan_init(struct memory_plan *plan, int capacity)
{
    *plan = (struct memory_plan){0};
    plan->spans = calloc((size_t)capacity, sizeof(*plan->spans));
    if (plan->spans == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a plan of %d buffers", capacity);
    }
    plan->capacity = capacity;
    return STATUS_OK;
}

void memory_plan_fini(struct memory_plan *plan)
{
    free(plan->spans);
    *plan = (struct memory_plan){0};
}

int memory_plan_add(struct memory_plan *plan, size_t bytes, int at)
{
    assert(plan->count < plan->capacity);
    plan->spans[plan->count] = (struct memory_span){
        .bytes = size_align(bytes, MEMORY_PLAN_ALIGNMENT), .first = at, .last = at};
    return plan->count++;
}

void memory_plan_use(struct memory_plan *plan, int span, int at)
{
    assert(span >= 0 && span < plan->count && at >= plan->spans[span].last);
    plan->spans[span].last = at;
}

static bool alive_together(const struct memory_span *a, const struct memory_span *b)
{
    return a->first <= b->last && b->first <= a->last;
}

static bool overlaps(const struct memory_span *span, size_t offset, size_t bytes)
{
    return offset < span->offset + span->bytes && span->offset < offset + bytes;
}

/* The lowest place that no placed span, alive at the same time, reaches into. Such a place is at 0
 * or right behind one of those spans. */
static size_t lowest_place(const struct memory_plan *plan, const int *placed, int placed_count,
                           const struct memory_span *span)
{
    size_t best = SIZE_MAX;
    for (int candidate = -1; candidate < placed_count; candidate++) {
        size_t offset = 0;
        if (candidate >= 0) {
            const struct memory_span *before = &plan->spans[placed[candidate]];
            offset = before->offset + before->bytes;
        }
        bool free_place = offset < best;
        for (int i = 0; i < placed_count && free_place; i++) {
            const struct memory_span *other = &plan->spans[placed[i]];
            free_place = !alive_together(span, other) || !overlaps(other, offset, span->bytes);
        }
        if (free_place) {
            best = offset;
        }
    }
    return best;
}

enum status memory_plan_solve(struct memory_plan *plan)
{
    plan->bytes = 0;
    if (plan->count == 0) {
        return STATUS_OK;
    }
    int *order = malloc((size_t)plan->count * sizeof(*order));
    if (order == NULL) {
        return FAIL(STATUS_NO_MEMORY, "no memory to plan %d buffers", plan->count);
    }
    /* Insertion keeps equal sizes in their first order: the plan is the same everywhere. */
    for (int i = 0; i < plan->count; i++) {
        int place = i;
        for (; place > 0 && plan->spans[order[place - 1]].bytes < plan->spans[i].bytes; place--) {
            order[place] = order[place - 1];
        }
        order[place] = i;
    }
    for (int i = 0; i < plan->count; i++) {
        struct memory_span *span = &plan->spans[order[i]];
        span->offset = lowest_place(plan, order, i, span);
        const size_t end = span->offset + span->bytes;
        plan->bytes = end > plan->bytes ? end : plan->bytes;
    }
    free(order);
    return STATUS_OK;
}
