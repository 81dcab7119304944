#include "trainer/schedule.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;
static const double one_cycle_share = 0.3;
static const double norm_averaging = 0.1;

void schedule_init(struct schedule_plan *plan, const struct optimiser_settings *optimiser,
                   int epochs, uint64_t epoch_steps)
{
    double warmup = optimiser->warmup_epochs;
    if (optimiser->schedule == SCHEDULE_ONE_CYCLE && warmup <= 0) {
        warmup = one_cycle_share * epochs;
    }
    memset(plan, 0, sizeof *plan);
    plan->optimiser = *optimiser;
    plan->epoch_steps = epoch_steps;
    plan->total_steps = (uint64_t)epochs * epoch_steps;
    const double steps = floor(warmup * (double)epoch_steps + 0.5);
    plan->warmup_steps =
        steps >= (double)plan->total_steps ? plan->total_steps : (uint64_t)(steps > 0 ? steps : 0);
}

double schedule_rate(const struct schedule_plan *plan, uint64_t step)
{
    const struct optimiser_settings *o = &plan->optimiser;
    if (step < plan->warmup_steps) {
        return o->rate * (double)(step + 1) / (double)plan->warmup_steps;
    }
    const bool over = step >= plan->total_steps;
    const double length = (double)(plan->total_steps - plan->warmup_steps);
    switch (o->schedule) {
    case SCHEDULE_STEP: {
        const uint64_t epoch = step / plan->epoch_steps;
        const uint64_t drops = o->step_epochs > 0 ? epoch / (uint64_t)o->step_epochs : 0;
        return o->rate * pow(o->step_factor, (double)drops);
    }
    case SCHEDULE_COSINE: {
        const double share = over ? 1.0 : (double)(step - plan->warmup_steps) / length;
        return o->final_rate + (o->rate - o->final_rate) * 0.5 * (1.0 + cos(pi * share));
    }
    case SCHEDULE_ONE_CYCLE:
        return over ? 0.0 : o->rate * (double)(plan->total_steps - step) / length;
    case SCHEDULE_CONSTANT:
    default:
        return o->rate;
    }
}

void schedule_fill(const struct schedule_plan *plan, uint64_t step, struct step_scalars *scalars)
{
    const struct optimiser_settings *o = &plan->optimiser;
    const double rate = schedule_rate(plan, step);
    const double t = (double)step + 1.0;
    memset(scalars, 0, sizeof *scalars);
    scalars->rate = (float)rate;
    scalars->momentum = (float)o->momentum;
    scalars->decay = (float)o->weight_decay;
    scalars->averaging = (float)norm_averaging;
    scalars->beta1 = (float)o->beta1;
    scalars->beta2 = (float)o->beta2;
    scalars->one_minus_beta1 = (float)(1.0 - o->beta1);
    scalars->one_minus_beta2 = (float)(1.0 - o->beta2);
    scalars->step_size = (float)(rate / (1.0 - pow(o->beta1, t)));
    scalars->second_scale = (float)(1.0 / sqrt(1.0 - pow(o->beta2, t)));
    scalars->epsilon = (float)o->epsilon;
    scalars->decay_factor = (float)(1.0 - rate * o->weight_decay);
}
