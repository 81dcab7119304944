/* Where the time of an epoch went: the host's clock, the device's events, and their sums. */
#include <math.h>

#include "base/clock.h"
#include "base/hash.h"
#include "trainer/train_loop_internal.h"

uint64_t train_loop__now(const train_loop *loop)
{
    return loop->timing ? clock_now_ns() : 0;
}

static double overlap(double a_begin, double a_end, double b_begin, double b_end)
{
    const double begin = a_begin > b_begin ? a_begin : b_begin;
    const double end = a_end < b_end ? a_end : b_end;
    return end > begin ? end - begin : 0;
}

/* Times are counted from the event that is nearest before, since a difference loses digits with its
 * length. The copy was issued after the host had seen the step `ahead` before it end, so it overlaps
 * none but the steps in between. */
enum status train_loop__read_times(train_loop *loop, struct train_loop_entry *entry)
{
    device *dev = loop->job->dev;
    const uint64_t number = loop->seen;
    const struct train_loop_entry *before =
        number > 0 ? &loop->ring[(number - 1) % TRAIN_LOOP_RING] : NULL;
    const uint64_t ahead = (uint64_t)loop->ahead;
    const struct train_loop_entry *ended =
        number >= ahead ? &loop->ring[(number - ahead) % TRAIN_LOOP_RING] : NULL;
    double gap, length, copy_wait, copy_length;
    TRY(device_event_elapsed(dev, before ? before->end : loop->origin, entry->begin, &gap));
    TRY(device_event_elapsed(dev, entry->begin, entry->end, &length));
    entry->begin_ms = (before ? before->end_ms : 0) + gap;
    entry->end_ms = entry->begin_ms + length;
    device_event *copy_from, *copy_to;
    loader_copy_events(loop->job->train_loader, entry->slot, &copy_from, &copy_to);
    TRY(device_event_elapsed(dev, ended ? ended->end : loop->origin, copy_from, &copy_wait));
    TRY(device_event_elapsed(dev, copy_from, copy_to, &copy_length));
    const double copy_begin = (ended ? ended->end_ms : 0) + copy_wait;
    for (uint64_t other = number >= ahead ? number - ahead : 0; other < number; other++) {
        const struct train_loop_entry *running = &loop->ring[other % TRAIN_LOOP_RING];
        loop->hidden_ms +=
            overlap(copy_begin, copy_begin + copy_length, running->begin_ms, running->end_ms);
    }
    entry->step.copy_begin = copy_begin * 1e-3;
    entry->step.copy_end = (copy_begin + copy_length) * 1e-3;
    entry->step.begin = entry->begin_ms * 1e-3;
    entry->step.end = entry->end_ms * 1e-3;
    loop->compute_ms += length;
    loop->copy_ms += copy_length;
    return STATUS_OK;
}

void train_loop__close_account(train_loop *loop, uint64_t from_ns, uint64_t cpu_from_ns,
                               struct train_epoch *result)
{
    struct train_host_time *host = &result->host;
    struct train_device_time *on_device = &result->device;
    result->seconds = clock_seconds(from_ns, clock_now_ns());
    if (loop->timing) {
        result->host_cpu_ns = clock_thread_cpu_ns() - cpu_from_ns;
        host->rest =
            result->seconds - host->wait_batch - host->copy - host->issue - host->wait_device;
    }
    result->samples_per_s = result->seconds > 0 ? (double)result->samples / result->seconds : 0;
    result->losses = loop->losses;
    result->steps = (size_t)loop->seen;
    result->loss_hash = hash_bytes(HASH_START, loop->losses, result->steps * sizeof *loop->losses);
    result->loss = result->samples > 0 ? loop->loss_sum / (double)result->samples : NAN;
    if (loop->seen > 0 && loop->timing) {
        on_device->span = loop->ring[(loop->seen - 1) % TRAIN_LOOP_RING].end_ms / 1000;
    }
    on_device->compute = loop->compute_ms / 1000;
    on_device->copy = loop->copy_ms / 1000;
    on_device->hidden = loop->hidden_ms / 1000;
    on_device->idle = on_device->span - on_device->compute - on_device->copy + on_device->hidden;
    loader_read_counters(loop->job->train_loader, &result->counters);
}
