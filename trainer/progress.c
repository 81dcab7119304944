#include "trainer/progress.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

static const uint64_t redraw_ns = UINT64_C(100000000);
static const uint64_t plain_ns = UINT64_C(30000000000);
static const double loss_memory = 50;

char *progress_duration_text(double seconds, char *text, size_t bytes)
{
    const double whole = seconds < 0 ? 0 : seconds;
    const unsigned long long rounded = (unsigned long long)(whole + 0.5);
    if (rounded >= 3600) {
        snprintf(text, bytes, "%llu h %02llu min", rounded / 3600, rounded % 3600 / 60);
    } else if (rounded >= 60) {
        snprintf(text, bytes, "%llu min %02llu s", rounded / 60, rounded % 60);
    } else {
        snprintf(text, bytes, "%.1f s", whole);
    }
    return text;
}

void progress_init(struct progress *progress, const struct job *job, bool real_copies)
{
    memset(progress, 0, sizeof *progress);
    progress->job = job;
    progress->real_copies = real_copies;
    progress->accuracy = -1;
}

void progress_begin_epoch(struct progress *progress, uint32_t epoch, uint32_t first_batch)
{
    progress->epoch = epoch;
    progress->first_batch = first_batch;
    progress->samples = 0;
    progress->loss = -1;
    progress->drawn_ns = clock_now_ns();
}

/* Seconds until the run ends, from this epoch's rate of steps. */
static double time_left(const struct progress *progress, const struct train_step *step,
                        double seconds)
{
    const struct job *job = progress->job;
    const double done = (double)step->batch + 1 - progress->first_batch;
    const double epochs_left = (double)job->settings.epochs - step->epoch - 1;
    const double batches_left =
        (double)job->train_layout.batches * (epochs_left + 1) - step->batch - 1;
    return batches_left * seconds / (done > 0 ? done : 1) +
           (epochs_left + 1) * progress->eval_seconds;
}

void progress_step(struct progress *progress, const train_loop *loop, const struct train_step *step)
{
    const uint64_t now = clock_now_ns();
    const double loss = (double)step->loss;
    progress->samples += (uint64_t)step->good;
    progress->loss =
        progress->loss < 0 ? loss : progress->loss + (loss - progress->loss) / loss_memory;
    const bool terminal = log_is_terminal();
    if (log_get_level() == LOG_QUIET ||
        now - progress->drawn_ns < (terminal ? redraw_ns : plain_ns)) {
        return;
    }
    progress->drawn_ns = now;
    double seconds, waiting;
    char text[256], left[32], accuracy[48] = "";
    train_loop_read_progress(loop, &seconds, &waiting);
    seconds = seconds > 0 ? seconds : 1e-9;
    if (progress->accuracy >= 0) {
        snprintf(accuracy, sizeof accuracy, ", acc %.1f %%", progress->accuracy * 100);
    }
    /* Within 80 columns. */
    snprintf(text, sizeof text,
             "epoch %u/%d %u/%u: loss %.4f%s, %.0f samples/s, data %.0f %%, %s left",
             step->epoch + 1, progress->job->settings.epochs, step->batch + 1,
             progress->job->train_layout.batches, progress->loss, accuracy,
             (double)progress->samples / seconds, 100 * waiting / seconds,
             progress_duration_text(time_left(progress, step, seconds), left, sizeof left));
    if (terminal) {
        log_progress(text);
    } else {
        log_info("%s", text);
    }
}

static double percent(double part, double whole)
{
    return whole > 0 ? 100 * part / whole : 0;
}

/* Waiting for data, copies, steps and device; on a GPU also what overlapped there. */
static void say_where_time_went(const struct progress *progress, const struct train_epoch *epoch)
{
    const struct train_host_time *host = &epoch->host;
    const struct train_device_time *on_device = &epoch->device;
    log_info("    waiting for data %.1f %%, copying %.1f %%, %s %.1f %%, waiting for the device "
             "%.1f %%, rest %.1f %%",
             percent(host->wait_batch, epoch->seconds), percent(host->copy, epoch->seconds),
             progress->real_copies ? "issuing steps" : "computing",
             percent(host->issue, epoch->seconds), percent(host->wait_device, epoch->seconds),
             percent(host->rest, epoch->seconds));
    if (progress->real_copies) {
        log_info(
            "    GPU: computing %.1f %%, copying %.1f %% (%.0f %% of it behind computing), idle "
            "%.1f %%",
            percent(on_device->compute, on_device->span), percent(on_device->copy, on_device->span),
            percent(on_device->hidden, on_device->copy), percent(on_device->idle, on_device->span));
    }
}

void progress_end_epoch(struct progress *progress, const struct train_epoch *epoch,
                        const struct evaluation *evaluation)
{
    char text[512], duration[32];
    size_t used = (size_t)snprintf(text, sizeof text, "epoch %u/%d:", epoch->epoch + 1,
                                   progress->job->settings.epochs);
    if (epoch->steps > 0) {
        used += (size_t)snprintf(text + used, sizeof text - used, " loss %.4f, %.0f samples/s, %s",
                                 epoch->loss, epoch->samples_per_s,
                                 progress_duration_text(epoch->seconds, duration, sizeof duration));
    }
    if (evaluation) {
        progress->accuracy = evaluation->accuracy1;
        progress->eval_seconds = evaluation->seconds;
        snprintf(text + used, sizeof text - used,
                 "%s validation accuracy %.2f %%, top-5 %.2f %%, loss %.4f",
                 epoch->steps > 0 ? ";" : "", evaluation->accuracy1 * 100,
                 evaluation->accuracy5 * 100, evaluation->loss);
    }
    log_progress(NULL);
    log_info("%s", text);
    if (epoch->steps == 0) {
        return;
    }
    say_where_time_went(progress, epoch);
    if (epoch->counters.bad_images > 0 || epoch->left_out > 0) {
        log_warn(
            "images that could not be read: %llu (the run log names them); batches left out: %u",
            (unsigned long long)epoch->counters.bad_images, epoch->left_out);
    }
}

void progress_end(struct progress *progress)
{
    (void)progress;
    log_progress(NULL);
}
