/*
 * From verdicts to what to do: the ladder default, pin, both, both+stream, each step kept when it is
 * worth it. What the spread does not allow is not said.
 */
#include <math.h>
#include <string.h>

#include "experiments/report_internal.h"
#include "experiments/result_internal.h"

static enum verdict verdict_of(const struct effect *effect)
{
    return effect ? effect->verdict : VERDICT_NONE;
}

/* "+3.1 % samples/s (95 % interval +2.4 to +3.8)" */
static void size_text(const struct effect *effect, char *text, size_t bytes)
{
    snprintf(text, bytes, "%+.1f %% samples/s (%.4g %% interval %+.1f to %+.1f)",
             report__percent(effect->ratio.ratio), 100 * effect->confidence,
             report__percent(effect->ratio.low), report__percent(effect->ratio.high));
}

static void advise_take(const struct effect *effect, const char *flags, const char *against,
                        struct result_advice *advice)
{
    char size[120];
    size_text(effect, size, sizeof size);
    snprintf(advice->text, sizeof advice->text, "Set %s: %s against %s", flags, size, against);
    advice->claims = true;
}

/* The last step of the ladder stands on what lies below it: where both did not pay by themselves, the
 * three together are held against default. */
static bool stream_pays(const struct result_view *view, struct statistics_ratio *whole)
{
    const struct result_cell *stream = result_find_cell(view, "both+stream");
    const struct result_cell *none = result_find_cell(view, "default");
    if (!stream || !none) {
        return false;
    }
    statistics_paired_ratio(stream->rates, none->rates, view->rounds, 0.95, whole);
    return whole->low > 1 + view->matters;
}

/* `what` are "the flags" or what else was varied; `leave` what to do until it is known. */
static void advise_undecided(const struct effect *primary, double matters, const char *what,
                             const char *leave, struct result_advice *advice)
{
    char size[120], rounds[120];
    size_text(primary, size, sizeof size);
    report__rounds_text(primary, rounds, sizeof rounds);
    snprintf(
        advice->text, sizeof advice->text,
        "Undecided whether %s worth it here: %s is %s, too wide to tell a gain of %.3g %% from "
        "none; %s. Until then %s",
        what, primary->name, size, 100 * matters, rounds, leave);
}

static void advise_ladder(const struct result_view *view, struct result_advice *advice)
{
    const struct effect *both = result_find_effect(view, "both/default");
    const struct effect *pin = result_find_effect(view, "pin/default");
    const struct effect *stream = result_find_effect(view, "both+stream/both");
    const bool stream_worth = verdict_of(stream) == VERDICT_WORTH_IT;
    struct statistics_ratio whole;
    if (both->verdict == VERDICT_WORTH_IT) {
        advise_take(both, "--pin-memory --non-blocking", "the default", advice);
        const size_t used = strlen(advice->text);
        if (stream_worth) {
            char size[120];
            size_text(stream, size, sizeof size);
            snprintf(advice->text + used, sizeof advice->text - used,
                     "; and --copy-stream dedicated: another %s", size);
        } else if (verdict_of(pin) == VERDICT_WORTH_IT) {
            snprintf(advice->text + used, sizeof advice->text - used,
                     "; --pin-memory alone brings %+.1f %% (%+.1f to %+.1f)",
                     report__percent(pin->ratio.ratio), report__percent(pin->ratio.low),
                     report__percent(pin->ratio.high));
        }
    } else if (stream_worth && stream_pays(view, &whole)) {
        snprintf(advice->text, sizeof advice->text,
                 "Set --pin-memory --non-blocking --copy-stream dedicated, all three: %+.1f %% "
                 "samples/s against the default (95 %% interval %+.1f to %+.1f); without the "
                 "stream of its own they are not shown to pay",
                 report__percent(whole.ratio), report__percent(whole.low),
                 report__percent(whole.high));
        advice->claims = true;
    } else if (verdict_of(pin) == VERDICT_WORTH_IT) {
        advise_take(pin, "--pin-memory alone", "the default", advice);
    } else if (both->verdict == VERDICT_COSTS) {
        char size[120];
        size_text(both, size, sizeof size);
        snprintf(advice->text, sizeof advice->text,
                 "Leave --pin-memory and --non-blocking off: together they cost, %s", size);
        advice->claims = true;
    } else if (both->verdict == VERDICT_NOT_WORTH_IT) {
        snprintf(advice->text, sizeof advice->text,
                 "Leave the flags as they are: --pin-memory --non-blocking bring %+.1f %% at most "
                 "(95 %% interval %+.1f to %+.1f), less than the %.3g %% that matter",
                 report__percent(both->ratio.high), report__percent(both->ratio.low),
                 report__percent(both->ratio.high), 100 * view->matters);
        advice->claims = true;
    } else {
        advise_undecided(both, view->matters, "the flags are", "leave them as they are", advice);
    }
}

/* The effect that is undecided; of several the first. */
static const struct effect *first_open(const struct result_view *view)
{
    for (size_t i = 0; i < view->effect_count; i++) {
        if (view->effects[i].verdict == VERDICT_UNDECIDED) {
            return &view->effects[i];
        }
    }
    return &view->effects[0];
}

/* Without the article's cells: the largest of the effects that are worth it. */
static void advise_best(const struct result_view *view, struct result_advice *advice)
{
    const struct effect *best = NULL;
    bool open = false;
    for (size_t i = 0; i < view->effect_count; i++) {
        const struct effect *effect = &view->effects[i];
        open = open || effect->verdict == VERDICT_UNDECIDED;
        if (!effect->interaction && effect->verdict == VERDICT_WORTH_IT &&
            (!best || effect->ratio.ratio > best->ratio.ratio)) {
            best = effect;
        }
    }
    if (best) {
        char size[120];
        size_text(best, size, sizeof size);
        snprintf(advice->text, sizeof advice->text, "The largest gain shown is %s: %s", best->name,
                 size);
        advice->claims = true;
    } else if (open) {
        advise_undecided(first_open(view), view->matters, "what was varied is", "leave it as it is",
                         advice);
    } else {
        snprintf(advice->text, sizeof advice->text,
                 "Nothing that was varied is worth %.3g %% here: leave it as it is",
                 100 * view->matters);
        advice->claims = true;
    }
}

/* An A/A run: cells that are the same and nothing else. */
static void advise_same(const struct result_view *view, struct result_advice *advice)
{
    char size[120];
    size_text(&view->check, size, sizeof size);
    advice->claims = effect_is_claimed(&view->check);
    snprintf(advice->text, sizeof advice->text,
             advice->claims
                 ? "An A/A run claims a difference where there is none: %s is %s; something else "
                   "moves these rates, so distrust effects of this size"
                 : "An A/A run claims nothing: %s is %s",
             view->check.name, size);
}

/* The instrument on against off is no setting that a user would choose. */
static bool is_of_instrument(const struct effect *effect)
{
    return strstr(effect->name, ": timing=1 against timing=0") != NULL;
}

static void advise_instrument(const struct effect *effect, struct result_advice *advice)
{
    char size[120];
    size_text(effect, size, sizeof size);
    snprintf(advice->text, sizeof advice->text, "The instrument on against off, %s: %s",
             effect->name, size);
    advice->claims = effect_is_claimed(effect);
}

void result__advise(const struct result_view *view, struct result_advice *advice)
{
    advice->text[0] = '\0';
    advice->claims = false;
    if (view->failures > 0) {
        snprintf(advice->text, sizeof advice->text,
                 "No advice: the cells are not comparable, so their rates say nothing about the "
                 "flags");
    } else if (view->rounds == 0) {
        snprintf(advice->text, sizeof advice->text,
                 "Predicted from the parts alone; no round was run");
    } else if (view->rounds >= VERDICT_MIN_ROUNDS && view->effect_count == 0 && view->check.name) {
        advise_same(view, advice);
    } else if (view->rounds < VERDICT_MIN_ROUNDS || view->effect_count == 0) {
        snprintf(advice->text, sizeof advice->text,
                 "No verdict: %zu round%s of the %d that it takes at least", view->rounds,
                 view->rounds == 1 ? "" : "s", VERDICT_MIN_ROUNDS);
    } else if (is_of_instrument(&view->effects[0])) {
        advise_instrument(&view->effects[0], advice);
    } else if (result_find_effect(view, "both/default")) {
        advise_ladder(view, advice);
    } else {
        advise_best(view, advice);
    }
}
