#include "trainer/job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "base/system.h"
#include "loader/image.h"
#include "trainer/checkpoint.h"
#include "trainer/job_options.h"

/* --- Opening -------------------------------------------------------------------------------- */

void job_eval_loader_settings(const struct settings *settings, struct loader_settings *out)
{
    *out = settings->loader;
    if (settings->eval_batch > 0) {
        out->batch_size = settings->eval_batch;
    }
    const bool centre = out->augment.kind == AUGMENT_RESIZED_CROP || //
                        out->augment.kind == AUGMENT_CENTRE;
    out->augment.kind = centre ? AUGMENT_CENTRE : AUGMENT_NONE;
    out->augment.flip = 0;
    out->shuffle = false;
    out->drop_last = false;
    out->label_smoothing = 0;
    out->prefetch_epochs = false;
    out->keep_shadows = 0;
    out->cache = CACHE_NONE;
}

static void log_skipped(const char *title, const dataset *set)
{
    struct dataset_skipped skipped;
    dataset_read_skipped(set, &skipped);
    if (skipped.unsupported > 0) {
        log_warn(
            "%s: %zu images of types that are not read (TIFF, WebP) were passed over, %s among "
            "them",
            title, skipped.unsupported, skipped.example);
    }
    if (skipped.hidden + skipped.unknown_type + skipped.loops > 0) {
        log_verbose(
            "%s: passed over %zu hidden files, %zu of other types, %zu links that lead back", title,
            skipped.hidden, skipped.unknown_type, skipped.loops);
    }
}

static enum status open_sets(struct job *job, const struct job_parts *parts)
{
    if (parts && (parts->train_set || parts->val_set)) {
        job->train_set = parts->train_set;
        job->val_set = job->use == JOB_TRAIN_ALONE ? NULL : parts->val_set;
    } else {
        const struct dataset_settings *wanted = &job->settings.dataset;
        if (!wanted->data) {
            return FAIL(STATUS_USAGE, "--data is missing: name a folder that holds one folder of "
                                      "images for each class (`pinline synth DIR` makes one)");
        }
        job->owns_sets = true;
        TRY(dataset_open(wanted, &job->train_set, &job->val_set));
        if (job->use == JOB_TRAIN_ALONE) {
            dataset_close(&job->val_set);
        }
    }
    if (job->use == JOB_EVALUATE) {
        if (!job->val_set) {
            return FAIL(STATUS_USAGE, "there is nothing to evaluate on: give --val-data, or a "
                                      "--val-fraction above 0");
        }
        if (job->owns_sets) {
            dataset_close(&job->train_set);
        } else {
            job->train_set = NULL;
        }
    } else if (!job->train_set) {
        return FAIL(STATUS_INTERNAL, "a training job without a training set");
    }
    if (job->train_set) {
        job->train_fingerprint = dataset_fingerprint(job->train_set);
        log_skipped("training images", job->train_set);
    }
    if (job->val_set) {
        job->val_fingerprint = dataset_fingerprint(job->val_set);
        log_skipped("validation images", job->val_set);
    }
    return STATUS_OK;
}

static enum status open_loaders(struct job *job)
{
    const struct settings *settings = &job->settings;
    if (job->use != JOB_EVALUATE) {
        const size_t images = dataset_count(job->train_set);
        const size_t share =
            images / (size_t)(settings->loader.world > 0 ? settings->loader.world : 1);
        if (settings->loader.drop_last && share < (size_t)settings->loader.batch_size) {
            return FAIL(STATUS_USAGE,
                        "--drop-last leaves no batch: there are %zu training images for a batch of "
                        "%d; lower --batch-size or leave out --drop-last",
                        share, settings->loader.batch_size);
        }
        TRY(loader_open(&settings->loader, job->train_set, job->dev, job->compute,
                        &job->train_loader));
        loader_read_layout(job->train_loader, &job->train_layout);
    }
    TRY(stop_check());
    if (job->val_set) {
        struct loader_settings eval;
        job_eval_loader_settings(settings, &eval);
        TRY(loader_open(&eval, job->val_set, job->dev, job->compute, &job->val_loader));
        loader_read_layout(job->val_loader, &job->val_layout);
    }
    return stop_check();
}

/* The batch sizes that occur: a set smaller than a batch has its only batch as full batch. */
static void read_batches(const struct loader_layout *layout, int full, int *batch, int *last)
{
    *batch = layout->batches == 1 ? layout->last_batch : full;
    *last = layout->last_batch;
}

static enum status bind_slots(struct job *job, const loader *from,
                              const struct loader_layout *layout, bool training)
{
    const struct loader_settings *settings = &job->settings.loader;
    device_buffer **buffers = calloc((size_t)layout->slots, sizeof(device_buffer *));
    if (!buffers) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a list of %d slots", layout->slots);
    }
    for (int i = 0; i < layout->slots; i++) {
        buffers[i] = loader_slot_buffer(from, i);
    }
    struct network_slots slots = {
        .buffers = buffers,
        .count = layout->slots,
        .scalars_offset = layout->scalars_offset,
        .targets_offset = layout->targets_offset,
        .pixels_offset = layout->pixels_offset,
        .pixel_dtype = settings->transfer == TRANSFER_F32 ? DTYPE_F32 : DTYPE_U8,
        .training = training,
    };
    memcpy(slots.mean, settings->mean, sizeof slots.mean);
    memcpy(slots.deviation, settings->deviation, sizeof slots.deviation);
    const enum status status = network_bind_slots(job->net, &slots);
    free(buffers);
    return status;
}

static enum status open_network(struct job *job)
{
    struct network_settings *settings = &job->settings.network;
    settings->train = job->use != JOB_EVALUATE && !job->settings.forward_only;
    settings->image_size = job->settings.loader.size;
    settings->precision = job->settings.device.precision;
    settings->classes = dataset_class_count(job->train_set ? job->train_set : job->val_set);
    settings->train_batch = settings->train_last_batch = 0;
    settings->eval_batch = settings->eval_last_batch = 0;
    if (job->train_loader && settings->train) {
        read_batches(&job->train_layout, job->settings.loader.batch_size, &settings->train_batch,
                     &settings->train_last_batch);
    } else if (job->train_loader) {
        read_batches(&job->train_layout, job->settings.loader.batch_size, &settings->eval_batch,
                     &settings->eval_last_batch);
    }
    if (job->val_loader) {
        read_batches(&job->val_layout, job->settings.eval_batch, &settings->eval_batch,
                     &settings->eval_last_batch);
    }
    TRY(network_open(job->dev, job->compute, settings, &job->net));
    TRY(stop_check());
    if (job->train_loader) {
        TRY(bind_slots(job, job->train_loader, &job->train_layout, settings->train));
    }
    if (job->val_loader) {
        TRY(bind_slots(job, job->val_loader, &job->val_layout, false));
    }
    TRY(network_prepare(job->net));
    if (job->settings.step_seconds > 0) {
        TRY(device_delay_program_create(job->dev, job->settings.step_seconds, job->compute,
                                        &job->emulated_step, &job->emulated_seconds));
    }
    return stop_check();
}

static enum status open_parts(struct job *job, const struct job_parts *parts,
                              const struct json_value *plans)
{
    TRY(open_sets(job, parts));
    TRY(stop_check());
    if (parts && parts->dev) {
        job->dev = parts->dev;
    } else {
        job->owns_device = true;
        TRY(device_open(&job->settings.device, &job->dev));
    }
    if (plans) {
        TRY(device_require_plans(job->dev, plans, job->settings.replan));
    }
    TRY(device_stream_create(job->dev, "compute", &job->compute));
    TRY(open_loaders(job));
    TRY(open_network(job));
    if (job->train_loader) {
        schedule_init(&job->schedule, &job->settings.optimiser, job->settings.epochs,
                      job->train_layout.batches);
    }
    TRY(job_reset_weights(job));
    return STATUS_OK;
}

enum status job_open(const struct settings *settings, enum job_use use,
                     const struct job_parts *parts, const struct json_value *plans, struct job *job)
{
    memset(job, 0, sizeof *job);
    job->settings = *settings;
    if (job->settings.eval_batch <= 0) {
        job->settings.eval_batch = job->settings.loader.batch_size;
    }
    job->use = use;
    const enum status status = open_parts(job, parts, plans);
    if (status != STATUS_OK) {
        job_close(job);
    }
    return status;
}

void job_close(struct job *job)
{
    loader_close(&job->train_loader);
    loader_close(&job->val_loader);
    if (job->emulated_step) {
        device_program_destroy(job->dev, &job->emulated_step);
    }
    network_close(&job->net);
    if (job->dev && job->compute) {
        device_stream_destroy(job->dev, &job->compute);
    }
    if (job->owns_device) {
        device_close(&job->dev);
    }
    if (job->owns_sets) {
        dataset_close(&job->train_set);
        dataset_close(&job->val_set);
    }
    memset(job, 0, sizeof *job);
}

enum status job_reset_weights(struct job *job)
{
    TRY(network_initialise(job->net, job->settings.seed));
    if (job->settings.weights) {
        TRY(checkpoint_load_weights(job->settings.weights, job->settings.network.model, job->net));
    }
    return STATUS_OK;
}

enum status job_submit_step(struct job *job, int n)
{
    if (job->emulated_step) {
        return device_program_submit(job->dev, job->emulated_step, job->compute);
    }
    return job->settings.forward_only ? network_evaluate(job->net, n) : network_train(job->net, n);
}

/* --- Writing -------------------------------------------------------------------------------- */

size_t job_bind_options(struct settings *settings, struct option_binding *bindings)
{
    static const struct option_table *const tables[] = {
        &options_data,   &options_loading,   &options_order,        &options_staging,
        &options_images, &options_decoding,  &options_augmentation, &options_device,
        &options_model,  &options_optimiser, &options_run,          &options_measuring,
    };
    const size_t count = sizeof tables / sizeof tables[0];
    for (size_t i = 0; i < count; i++) {
        bindings[i].table = tables[i];
        bindings[i].base = settings;
    }
    return count;
}

void job_write_settings(const struct settings *settings, struct json_writer *writer)
{
    /* The tables take a writable base because they parse too; writing changes nothing. */
    struct settings copy = *settings;
    struct option_binding bindings[16];
    const size_t count = job_bind_options(&copy, bindings);
    options_write(bindings, count, false, writer);
}

void job_write_machine(struct json_writer *writer)
{
    struct system_facts facts;
    char versions[256];
    system_read_facts(&facts);
    json_begin_object(writer);
    json_key_string(writer, "program", "pinline " PINLINE_VERSION);
    json_key_string(writer, "cpu", facts.cpu_model);
    json_key_int(writer, "cpus_online", facts.cpus_online);
    json_key_int(writer, "cpus_allowed", facts.cpus_allowed);
    json_key_double(writer, "cgroup_cpus", facts.cgroup_cpu_quota);
    json_key(writer, "memory_bytes");
    json_uint(writer, facts.memory_total);
    json_key(writer, "memory_available_bytes");
    json_uint(writer, facts.memory_available);
    json_key(writer, "last_level_cache_bytes");
    json_uint(writer, facts.last_level_cache);
    json_key_int(writer, "numa_nodes", facts.numa_nodes);
    json_key_string(writer, "kernel", facts.kernel);
    json_key_string(writer, "image_libraries", image_libraries_versions(versions, sizeof versions));
    json_key_string(writer, "resampler", image_resample_target());
    json_end_object(writer);
}

enum status job_write_device(device *dev, struct json_writer *writer)
{
    struct device_facts facts;
    TRY(device_read_facts(dev, &facts));
    json_begin_object(writer);
    json_key_string(writer, "kind", facts.kind == DEVICE_CUDA ? "cuda" : "host");
    json_key_string(writer, "name", facts.name);
    json_key_string(writer, "driver", facts.driver);
    json_key_string(writer, "runtime", facts.runtime);
    json_key_string(writer, "cudnn", facts.cudnn);
    json_key_string(writer, "blas", facts.blas);
    json_key_string(writer, "pci_bus", facts.pci_bus);
    json_key_int(writer, "pcie_generation", facts.pcie_generation);
    json_key_int(writer, "pcie_width", facts.pcie_width);
    json_key_int(writer, "numa_node", facts.numa_node);
    json_key(writer, "memory_bytes");
    json_uint(writer, facts.memory_total);
    json_key_bool(writer, "copies_are_real", facts.copies_are_real);
    json_end_object(writer);
    return STATUS_OK;
}

static void write_set(struct json_writer *writer, const char *key, const dataset *set,
                      uint64_t fingerprint)
{
    json_key(writer, key);
    if (!set) {
        json_null(writer);
        return;
    }
    struct dataset_skipped skipped;
    dataset_read_skipped(set, &skipped);
    json_begin_object(writer);
    json_key_int(writer, "images", (int64_t)dataset_count(set));
    json_key_int(writer, "classes", dataset_class_count(set));
    json_key(writer, "fingerprint");
    json_hex64(writer, fingerprint);
    json_key_int(writer, "passed_over_hidden", (int64_t)skipped.hidden);
    json_key_int(writer, "passed_over_unknown", (int64_t)skipped.unknown_type);
    json_key_int(writer, "passed_over_unsupported", (int64_t)skipped.unsupported);
    json_end_object(writer);
}

void job_write_data(const struct job *job, struct json_writer *writer)
{
    json_begin_object(writer);
    write_set(writer, "train", job->train_set, job->train_fingerprint);
    write_set(writer, "val", job->val_set, job->val_fingerprint);
    json_end_object(writer);
}

static void write_staging(struct json_writer *writer, const char *key, const loader *from,
                          const struct loader_layout *layout)
{
    json_key(writer, key);
    if (!from) {
        json_null(writer);
        return;
    }
    struct loader_staging staging;
    loader_read_staging(from, &staging);
    json_begin_object(writer);
    json_key_int(writer, "slots", layout->slots);
    json_key_int(writer, "slot_bytes", (int64_t)layout->slot_bytes);
    json_key_bool(writer, "page_locked", staging.page_locked);
    json_key_bool(writer, "fell_back", staging.fell_back);
    json_key_bool(writer, "streamed", staging.streamed);
    json_key_double(writer, "lock_seconds", staging.lock_seconds);
    json_key_int(writer, "host_bytes", (int64_t)staging.host_bytes);
    json_key_int(writer, "device_bytes", (int64_t)staging.device_bytes);
    json_key_string(writer, "note", staging.note);
    json_end_object(writer);
}

void job_write_memory(const struct job *job, struct json_writer *writer)
{
    struct network_memory memory;
    network_read_memory(job->net, &memory);
    json_begin_object(writer);
    json_key_int(writer, "train_set_bytes",
                 job->train_set ? (int64_t)dataset_memory(job->train_set) : 0);
    json_key_int(writer, "val_set_bytes", job->val_set ? (int64_t)dataset_memory(job->val_set) : 0);
    write_staging(writer, "train_staging", job->train_loader, &job->train_layout);
    write_staging(writer, "val_staging", job->val_loader, &job->val_layout);
    json_key_int(writer, "parameter_bytes", (int64_t)memory.parameters);
    json_key_int(writer, "gradient_bytes", (int64_t)memory.gradients);
    json_key_int(writer, "optimiser_bytes", (int64_t)memory.state);
    json_key_int(writer, "activation_bytes", (int64_t)memory.activations);
    json_end_object(writer);
}

enum status job_json_text(void (*write)(void *context, struct json_writer *writer), void *context,
                          char **text)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *stream = open_memstream(text, &bytes);
    if (!stream) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a line of JSON");
    }
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    write(context, &writer);
    if (fclose(stream) != 0 || !*text) {
        free(*text);
        *text = NULL;
        return FAIL(STATUS_NO_MEMORY, "no memory for a line of JSON");
    }
    return STATUS_OK;
}

static void write_settings(void *context, struct json_writer *writer)
{
    job_write_settings(context, writer);
}

enum status job_settings_text(const struct settings *settings, char **text)
{
    struct settings copy = *settings;
    TRY(job_json_text(write_settings, &copy, text));
    return STATUS_OK;
}
