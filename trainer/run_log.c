#include "trainer/run_log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "trainer/checkpoint.h"

static const char *const log_name = "log.jsonl";
static const char *const metrics_name = "metrics.csv";
static const char *const settings_name = "settings.json";
static const char *const metrics_header =
    "epoch,steps,samples,seconds,samples_per_s,loss,rate,wait_batch_s,copy_s,issue_s,"
    "wait_device_s,rest_s,val_accuracy,val_accuracy_top5,val_loss\n";

/* --- The folder ----------------------------------------------------------------------------- */

static bool holds(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    const bool found = path && file_exists(path);
    free(path);
    return found;
}

static void remove_file(const char *folder, const char *name)
{
    char *path = file_join(folder, name);
    if (path) {
        unlink(path);
    }
    free(path);
}

/* Whether the checkpoint to resume from lies in the run's folder. */
static bool resumes_here(const struct settings *settings)
{
    struct stat resumed, own;
    if (!settings->resume) {
        return false;
    }
    char *folder = file_folder(settings->resume);
    const bool same = folder && stat(folder, &resumed) == 0 && stat(settings->out, &own) == 0 &&
                      resumed.st_dev == own.st_dev && resumed.st_ino == own.st_ino;
    free(folder);
    return same;
}

enum status run_log_check(const struct settings *settings)
{
    if (file_exists(settings->out) && !file_is_folder(settings->out)) {
        return FAIL(STATUS_USAGE, "--out %s is a file, not a folder; give another name",
                    settings->out);
    }
    if (settings->overwrite || resumes_here(settings)) {
        return STATUS_OK;
    }
    static const char *const names[] = {"log.jsonl", "settings.json", "metrics.csv",
                                        "last.safetensors", "best.safetensors"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        if (holds(settings->out, names[i])) {
            return FAIL(STATUS_USAGE,
                        "--out %s holds an earlier run (%s); choose another folder, replace that "
                        "run with --overwrite, or go on with --resume %s/last.safetensors",
                        settings->out, names[i], settings->out);
        }
    }
    return STATUS_OK;
}

static enum status open_file(const char *folder, const char *name, const char *mode, FILE **out)
{
    char *path = file_join(folder, name);
    if (!path) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path in %s", folder);
    }
    *out = fopen(path, mode);
    const int error = errno;
    enum status status = STATUS_OK;
    if (!*out) {
        status = FAIL(STATUS_IO, "%s cannot be written: %s; choose another folder with --out", path,
                      strerror(error));
    }
    free(path);
    return status;
}

static enum status write_settings(const char *folder, const struct settings *settings)
{
    struct file_writer file;
    struct json_writer writer;
    char *path = file_join(folder, settings_name);
    if (!path) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path in %s", folder);
    }
    enum status status = file_writer_open(&file, path);
    if (status == STATUS_OK) {
        json_writer_init(&writer, file.stream, true);
        job_write_settings(settings, &writer);
        fputc('\n', file.stream);
        status = file_writer_commit(&file);
    }
    free(path);
    return status;
}

/* Keeps the rows of epochs before `first_epoch`. */
static enum status trim_metrics(const char *path, uint32_t first_epoch)
{
    void *data;
    size_t bytes;
    struct file_writer file;
    TRY(file_read(path, SIZE_MAX / 2, &data, &bytes));
    enum status status = file_writer_open(&file, path);
    if (status == STATUS_OK) {
        fputs(metrics_header, file.stream);
        const char *line = strchr(data, '\n');
        while (line && line[1] != '\0') {
            const char *end = strchr(line + 1, '\n');
            const long epoch = strtol(line + 1, NULL, 10);
            if (end && epoch >= 1 && (uint64_t)epoch <= first_epoch) {
                fwrite(line + 1, 1, (size_t)(end - line), file.stream);
            }
            line = end;
        }
        status = file_writer_commit(&file);
    }
    free(data);
    return status;
}

static enum status open_metrics(struct run_log *log, bool resumed, uint32_t first_epoch)
{
    if (resumed && holds(log->folder, metrics_name)) {
        char *path = file_join(log->folder, metrics_name);
        if (!path) {
            return FAIL(STATUS_NO_MEMORY, "no memory for a path in %s", log->folder);
        }
        const enum status status = trim_metrics(path, first_epoch);
        free(path);
        TRY(status);
        TRY(open_file(log->folder, metrics_name, "ae", &log->metrics));
        return STATUS_OK;
    }
    TRY(open_file(log->folder, metrics_name, "we", &log->metrics));
    fputs(metrics_header, log->metrics);
    fflush(log->metrics);
    return STATUS_OK;
}

static enum status open_parts(struct run_log *log, const struct settings *settings,
                              uint32_t first_epoch)
{
    const bool resumed = resumes_here(settings);
    TRY(run_log_check(settings));
    log->folder = strdup(settings->out);
    if (!log->folder) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a path");
    }
    TRY(file_make_folder(settings->out));
    if (settings->overwrite) {
        checkpoint_remove_all(settings->out);
        remove_file(settings->out, log_name);
        remove_file(settings->out, metrics_name);
        remove_file(settings->out, settings_name);
    }
    TRY(write_settings(settings->out, settings));
    TRY(open_file(settings->out, log_name, resumed ? "ae" : "we", &log->log));
    TRY(open_metrics(log, resumed, first_epoch));
    return STATUS_OK;
}

enum status run_log_open(struct run_log *log, const struct settings *settings, uint32_t first_epoch)
{
    memset(log, 0, sizeof *log);
    const enum status status = open_parts(log, settings, first_epoch);
    if (status != STATUS_OK) {
        run_log_close(log);
    }
    return status;
}

void run_log_close(struct run_log *log)
{
    if (log->log) {
        fclose(log->log);
    }
    if (log->metrics) {
        fclose(log->metrics);
    }
    free(log->folder);
    memset(log, 0, sizeof *log);
}

/* --- Lines ---------------------------------------------------------------------------------- */

void run_log_begin(struct run_log *log, const char *event, struct json_writer *writer)
{
    char time_text[32];
    json_writer_init(writer, log->log, false);
    json_begin_object(writer);
    json_key_string(writer, "event", event);
    clock_wall_text(time_text, sizeof time_text);
    json_key_string(writer, "time", time_text);
}

static enum status check_stream(const struct run_log *log, FILE *stream, const char *name)
{
    if (fflush(stream) != 0 || ferror(stream)) {
        return FAIL(STATUS_IO, "%s/%s cannot be written: %s", log->folder, name, strerror(errno));
    }
    return STATUS_OK;
}

enum status run_log_end(struct run_log *log, struct json_writer *writer)
{
    json_end_object(writer);
    fputc('\n', log->log);
    return check_stream(log, log->log, log_name);
}

enum status run_log_start(struct run_log *log, const struct job *job, const char *resumed_from,
                          uint32_t epoch, uint32_t batch)
{
    struct json_writer writer;
    run_log_begin(log, resumed_from ? "resume" : "start", &writer);
    if (resumed_from) {
        json_key_string(&writer, "from", resumed_from);
        json_key_int(&writer, "epoch", (int64_t)epoch + 1);
        json_key_int(&writer, "batch", batch);
    }
    json_key(&writer, "settings");
    job_write_settings(&job->settings, &writer);
    json_key(&writer, "machine");
    job_write_machine(&writer);
    json_key(&writer, "device");
    const enum status status = job_write_device(job->dev, &writer);
    if (status != STATUS_OK) {
        json_null(&writer);
    }
    json_key(&writer, "data");
    job_write_data(job, &writer);
    json_key(&writer, "memory");
    job_write_memory(job, &writer);
    json_key(&writer, "batches");
    json_int(&writer, job->train_layout.batches);
    json_key(&writer, "plans_hash");
    json_hex64(&writer, device_plans_hash(job->dev));
    json_key(&writer, "plans");
    device_write_plans(job->dev, &writer);
    TRY(run_log_end(log, &writer));
    return status;
}

enum status run_log_step(struct run_log *log, const struct train_step *step)
{
    struct json_writer writer;
    run_log_begin(log, "step", &writer);
    json_key_int(&writer, "step", (int64_t)step->step);
    json_key_int(&writer, "epoch", (int64_t)step->epoch + 1);
    json_key_int(&writer, "batch", step->batch);
    json_key_int(&writer, "images", step->good);
    json_key_double(&writer, "loss", (double)step->loss);
    json_key_double(&writer, "rate", step->rate);
    return run_log_end(log, &writer);
}

/* A look at the GPU at the end of the epoch; null where there is none. */
static void write_sample(struct json_writer *writer, device *dev)
{
    struct device_sample sample;
    device_read_sample(dev, &sample);
    json_key(writer, "gpu");
    if (!sample.valid) {
        json_null(writer);
        return;
    }
    json_begin_object(writer);
    json_key_int(writer, "busy_percent", sample.gpu_percent);
    json_key_int(writer, "memory_busy_percent", sample.memory_percent);
    json_key_int(writer, "memory_used_bytes", (int64_t)sample.memory_used);
    json_key_int(writer, "sm_clock_mhz", sample.sm_clock_mhz);
    json_key_int(writer, "sm_clock_max_mhz", sample.sm_clock_max_mhz);
    json_key_int(writer, "memory_clock_mhz", sample.memory_clock_mhz);
    json_key_int(writer, "temperature_c", sample.temperature_c);
    json_key_double(writer, "power_w", sample.power_w);
    json_key_int(writer, "throttle_reasons", (int64_t)sample.throttle_reasons);
    json_key_int(writer, "other_processes", sample.other_processes);
    json_end_object(writer);
}

enum status run_log_epoch(struct run_log *log, const struct job *job,
                          const struct train_epoch *epoch, const struct evaluation *evaluation)
{
    struct json_writer writer;
    run_log_begin(log, "epoch", &writer);
    train_epoch_write(epoch, &writer);
    json_key(&writer, "val");
    if (evaluation) {
        json_begin_object(&writer);
        evaluation_write(evaluation, job->val_set, false, &writer);
        json_end_object(&writer);
    } else {
        json_null(&writer);
    }
    write_sample(&writer, job->dev);
    TRY(run_log_end(log, &writer));
    /* An epoch whose steps were all before a resumption has no loss. */
    char loss[32] = "";
    if (epoch->steps > 0) {
        snprintf(loss, sizeof loss, "%.9g", epoch->loss);
    }
    fprintf(log->metrics, "%u,%zu,%llu,%.9g,%.9g,%s,%.9g,%.9g,%.9g,%.9g,%.9g,%.9g,",
            epoch->epoch + 1, epoch->steps, (unsigned long long)epoch->samples, epoch->seconds,
            epoch->samples_per_s, loss, epoch->rate, epoch->host.wait_batch, epoch->host.copy,
            epoch->host.issue, epoch->host.wait_device, epoch->host.rest);
    if (evaluation) {
        fprintf(log->metrics, "%.9g,%.9g,%.9g\n", evaluation->accuracy1, evaluation->accuracy5,
                evaluation->loss);
    } else {
        fputs(",,\n", log->metrics);
    }
    return check_stream(log, log->metrics, metrics_name);
}

static enum status write_bad_images(struct run_log *log, const char *part, const dataset *set,
                                    const loader *images)
{
    uint32_t sample;
    const char *reason;
    for (size_t i = 0; loader_bad_image(images, i, &sample, &reason); i++) {
        struct json_writer writer;
        char name[1024];
        run_log_begin(log, "bad_image", &writer);
        json_key_string(&writer, "set", part);
        json_key_int(&writer, "sample", sample);
        json_key_string(&writer, "name", dataset_sample_name(set, sample, name, sizeof name));
        json_key_string(&writer, "reason", reason);
        TRY(run_log_end(log, &writer));
    }
    return STATUS_OK;
}

enum status run_log_bad_images(struct run_log *log, const struct job *job)
{
    if (job->train_loader) {
        TRY(write_bad_images(log, "train", job->train_set, job->train_loader));
    }
    if (job->val_loader) {
        TRY(write_bad_images(log, "val", job->val_set, job->val_loader));
    }
    return STATUS_OK;
}
