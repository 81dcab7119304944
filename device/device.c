#include "device/device.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/stop.h"
#include "device/device_backend.h"
#include "device/device_plugin.h"

void device_settings_defaults(struct device_settings *settings)
{
    *settings = (struct device_settings){
        .kind = DEVICE_AUTO,
        .precision = PRECISION_F32,
        .deterministic = true,
        .capture = true,
        .workspace_limit = (size_t)1 << 30,
        .plan_candidates = 8,
        .host_mode = HOST_IMMEDIATE,
        .simulated = {.pageable_bytes_per_s = 10e9, .locked_bytes_per_s = 50e9},
    };
}

size_t dtype_bytes(enum dtype dtype)
{
    switch (dtype) {
    case DTYPE_F32:
        return 4;
    case DTYPE_BF16:
        return 2;
    case DTYPE_U8:
        return 1;
    }
    assert(!"a dtype that does not exist");
    return 0;
}

size_t tensor_elements(const struct tensor *tensor)
{
    return (size_t)tensor->n * (size_t)tensor->h * (size_t)tensor->w * (size_t)tensor->c;
}

size_t tensor_bytes(const struct tensor *tensor)
{
    return tensor_elements(tensor) * dtype_bytes(tensor->dtype);
}

/* --- Opening --------------------------------------------------------------------------------- */

static enum status check_settings(const struct device_settings *s)
{
    if (s->index < 0) {
        return FAIL(STATUS_USAGE, "device index %d: it must be 0 or more", s->index);
    }
    if (s->plan_candidates < 1 || s->plan_candidates > 64) {
        return FAIL(STATUS_USAGE, "plan candidates %d: it must be 1 to 64", s->plan_candidates);
    }
    if (s->host_threads < 0 || s->host_threads > 1024) {
        return FAIL(STATUS_USAGE, "host threads %d: it must be 0 (all CPUs) to 1024",
                    s->host_threads);
    }
    if ((unsigned)s->precision > PRECISION_BF16) {
        return FAIL(STATUS_USAGE, "precision %d is unknown", (int)s->precision);
    }
    if ((unsigned)s->host_mode > HOST_SIMULATED) {
        return FAIL(STATUS_USAGE, "host mode %d is unknown", (int)s->host_mode);
    }
    const struct host_simulation *sim = &s->simulated;
    if (s->host_mode == HOST_SIMULATED &&
        (!(sim->pageable_bytes_per_s > 0) || !(sim->locked_bytes_per_s > 0) ||
         !(sim->copy_start_s >= 0) || !(sim->step_s >= 0) || !(sim->issue_s >= 0) ||
         !(sim->pin_page_s >= 0))) {
        return FAIL(STATUS_USAGE, "simulated rates must be above 0 and times at least 0");
    }
    return STATUS_OK;
}

enum status device_open(const struct device_settings *given, device **out)
{
    *out = NULL;
    TRY(check_settings(given));
    struct device_settings wanted = *given;
    const struct device_settings *settings = &wanted;
    if (wanted.plan_cache != NULL && strcmp(wanted.plan_cache, "none") == 0) {
        wanted.plan_cache = NULL;
    }
    switch (settings->kind) {
    case DEVICE_HOST:
        return device__open_host(settings, out);
    case DEVICE_CUDA:
        return device__open_plugin(settings, out);
    case DEVICE_AUTO: {
        enum status status = device__open_plugin(settings, out);
        if (status != STATUS_NOT_FOUND) {
            return status;
        }
        if (wanted.cuda_only != NULL) {
            log_warn("running on the CPU, which has no use for %s: %s", wanted.cuda_only,
                     status_message());
        } else {
            log_info("running on the CPU: %s", status_message());
        }
        status_clear();
        return device__open_host(settings, out);
    }
    }
    return FAIL(STATUS_USAGE, "device kind %d is unknown", (int)settings->kind);
}

/* What callers hold as a device_program: the implementation's own together with its table, because
 * asking whether a program is captured takes no device. */
struct program_handle {
    const struct device_backend *backend;
    device_program *program;
    struct program_handle *next; /* of the device's list */
};

void device_close(device **dev)
{
    if (*dev == NULL) {
        return;
    }
    struct program_handle *handle = (*dev)->programs;
    (*dev)->backend->close(*dev);
    *dev = NULL;
    while (handle != NULL) {
        struct program_handle *next = handle->next;
        free(handle);
        handle = next;
    }
}

/* --- Forwarding ------------------------------------------------------------------------------ */

/* Remembers the first failure of the device itself: nothing after it can be trusted. */
static enum status settle(device *dev, enum status status)
{
    if (status == STATUS_DEVICE && dev->poison.status == STATUS_OK) {
        status_save(&dev->poison, status);
    }
    return status;
}

/* Returns from the calling function when the device is poisoned. */
#define REFUSE_POISONED(dev)                                                                       \
    do {                                                                                           \
        if ((dev)->poison.status != STATUS_OK) {                                                   \
            return status_restore(&(dev)->poison);                                                 \
        }                                                                                          \
    } while (0)

enum status device_read_facts(device *dev, struct device_facts *facts)
{
    memset(facts, 0, sizeof *facts);
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->read_facts(dev, facts));
}

void device_read_sample(device *dev, struct device_sample *sample)
{
    memset(sample, 0, sizeof *sample);
    sample->other_processes = -1;
    if (dev->backend->read_sample != NULL) {
        dev->backend->read_sample(dev, sample);
    }
}

enum status device_buffer_create(device *dev, size_t bytes, device_buffer **out)
{
    *out = NULL;
    REFUSE_POISONED(dev);
    if (bytes == 0) {
        return FAIL(STATUS_INTERNAL, "a device buffer of 0 bytes was asked for");
    }
    return settle(dev, dev->backend->buffer_create(dev, bytes, out));
}

void device_buffer_destroy(device *dev, device_buffer **buffer)
{
    if (*buffer != NULL) {
        dev->backend->buffer_destroy(dev, *buffer);
        *buffer = NULL;
    }
}

size_t device_buffer_bytes(const device_buffer *buffer)
{
    return buffer->bytes;
}

enum status device_host_buffer_create(device *dev, size_t bytes, enum host_memory kind,
                                      struct host_buffer *out)
{
    memset(out, 0, sizeof *out);
    REFUSE_POISONED(dev);
    if (bytes == 0 || (unsigned)kind > HOST_MEMORY_ALLOCATED) {
        return FAIL(STATUS_INTERNAL, "host buffer of %zu bytes and kind %d: not possible", bytes,
                    (int)kind);
    }
    return settle(dev, dev->backend->host_buffer_create(dev, bytes, kind, out));
}

void device_host_buffer_destroy(device *dev, struct host_buffer *buffer)
{
    if (buffer->data != NULL || buffer->handle != NULL) {
        dev->backend->host_buffer_destroy(dev, buffer);
    }
    memset(buffer, 0, sizeof *buffer);
}

enum status device_stream_create(device *dev, const char *name, device_stream **out)
{
    *out = NULL;
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->stream_create(dev, name, out));
}

void device_stream_destroy(device *dev, device_stream **stream)
{
    if (*stream != NULL) {
        dev->backend->stream_destroy(dev, *stream);
        *stream = NULL;
    }
}

enum status device_stream_wait(device *dev, device_stream *stream)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->stream_wait(dev, stream));
}

enum status device_synchronize(device *dev)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->synchronize(dev));
}

enum status device_event_create(device *dev, bool timed, device_event **out)
{
    *out = NULL;
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_create(dev, timed, out));
}

void device_event_destroy(device *dev, device_event **event)
{
    if (*event != NULL) {
        dev->backend->event_destroy(dev, *event);
        *event = NULL;
    }
}

enum status device_event_record(device *dev, device_event *event, device_stream *stream)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_record(dev, event, stream));
}

enum status device_event_await(device *dev, device_event *event, device_stream *stream)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_await(dev, event, stream));
}

enum status device_event_query(device *dev, device_event *event, bool *complete)
{
    *complete = false;
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_query(dev, event, complete));
}

enum status device_event_wait(device *dev, device_event *event)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_wait(dev, event));
}

enum status device_event_elapsed(device *dev, device_event *from, device_event *to,
                                 double *milliseconds)
{
    *milliseconds = 0.0;
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->event_elapsed(dev, from, to, milliseconds));
}

/* Whether `bytes` bytes from `offset` lie inside the buffer. */
static bool in_range(const device_buffer *buffer, size_t offset, size_t bytes)
{
    return offset <= buffer->bytes && bytes <= buffer->bytes - offset;
}

enum status device_copy_to_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const void *from, size_t bytes)
{
    assert(in_range(to, to_offset, bytes));
    REFUSE_POISONED(dev);
    if (bytes == 0) {
        return STATUS_OK;
    }
    return settle(dev, dev->backend->copy_to_device(dev, stream, to, to_offset, from, bytes));
}

enum status device_copy_to_host(device *dev, device_stream *stream, void *to,
                                const device_buffer *from, size_t from_offset, size_t bytes)
{
    assert(in_range(from, from_offset, bytes));
    REFUSE_POISONED(dev);
    if (bytes == 0) {
        return STATUS_OK;
    }
    return settle(dev, dev->backend->copy_to_host(dev, stream, to, from, from_offset, bytes));
}

enum status device_copy_on_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const device_buffer *from, size_t from_offset,
                                  size_t bytes)
{
    assert(in_range(to, to_offset, bytes));
    assert(in_range(from, from_offset, bytes));
    REFUSE_POISONED(dev);
    if (bytes == 0) {
        return STATUS_OK;
    }
    return settle(
        dev, dev->backend->copy_on_device(dev, stream, to, to_offset, from, from_offset, bytes));
}

enum status device_zero(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                        size_t bytes)
{
    assert(in_range(to, to_offset, bytes));
    REFUSE_POISONED(dev);
    if (bytes == 0) {
        return STATUS_OK;
    }
    return settle(dev, dev->backend->zero(dev, stream, to, to_offset, bytes));
}

enum status device_op_create(device *dev, const struct op_desc *desc, device_op **out)
{
    *out = NULL;
    REFUSE_POISONED(dev);
    TRY(stop_check());
    TRY(device__check_op(desc));
    return settle(dev, dev->backend->op_create(dev, desc, out));
}

void device_op_destroy(device *dev, device_op **op)
{
    if (*op != NULL) {
        dev->backend->op_destroy(dev, *op);
        *op = NULL;
    }
}

enum status device_op_submit(device *dev, device_op *op, device_stream *stream)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->op_submit(dev, op, stream));
}

static struct program_handle *handle_of(device_program *program)
{
    return (struct program_handle *)(void *)program;
}

/* Wraps *program; when there is no memory for that, destroys it. */
static enum status wrap_program(device *dev, device_program *program, device_program **out)
{
    struct program_handle *handle = malloc(sizeof *handle);
    if (handle == NULL) {
        dev->backend->program_destroy(dev, program);
        return FAIL(STATUS_NO_MEMORY, "no memory for a program's handle");
    }
    *handle =
        (struct program_handle){.backend = dev->backend, .program = program, .next = dev->programs};
    dev->programs = handle;
    *out = (device_program *)(void *)handle;
    return STATUS_OK;
}

enum status device_program_create(device *dev, device_op *const *ops, size_t count,
                                  device_stream *stream, device_program **out)
{
    device_program *program = NULL;
    *out = NULL;
    REFUSE_POISONED(dev);
    TRY(settle(dev, dev->backend->program_create(dev, ops, count, stream, &program)));
    return wrap_program(dev, program, out);
}

void device_program_destroy(device *dev, device_program **program)
{
    if (*program != NULL) {
        struct program_handle *handle = handle_of(*program);
        struct program_handle **link = &dev->programs;
        while (*link != handle) {
            link = &(*link)->next;
        }
        *link = handle->next;
        dev->backend->program_destroy(dev, handle->program);
        free(handle);
        *program = NULL;
    }
}

enum status device_program_submit(device *dev, device_program *program, device_stream *stream)
{
    REFUSE_POISONED(dev);
    return settle(dev, dev->backend->program_submit(dev, handle_of(program)->program, stream));
}

bool device_program_is_captured(const device_program *program)
{
    const struct program_handle *handle = (const struct program_handle *)(const void *)program;
    return handle->backend->program_is_captured(handle->program);
}

/* --- Plans and measuring --------------------------------------------------------------------- */

void device_write_plans(device *dev, struct json_writer *writer)
{
    dev->backend->write_plans(dev, writer);
}

uint64_t device_plans_hash(device *dev)
{
    return dev->backend->plans_hash(dev);
}

enum status device_require_plans(device *dev, const struct json_value *plans, bool allow_others)
{
    REFUSE_POISONED(dev);
    if (plans == NULL || plans->kind != JSON_ARRAY) {
        return FAIL(STATUS_INVALID, "the plans to use again are not a list of plans");
    }
    return settle(dev, dev->backend->require_plans(dev, plans, allow_others));
}

enum status device_delay_program_create(device *dev, double seconds, device_stream *stream,
                                        device_program **out, double *measured_seconds)
{
    *out = NULL;
    *measured_seconds = 0.0;
    REFUSE_POISONED(dev);
    if (!(seconds >= 0.0) || seconds > 3600.0) {
        return FAIL(STATUS_USAGE, "a delay of %g s: it must be 0 to 3600", seconds);
    }
    device_program *program = NULL;
    TRY(settle(
        dev, dev->backend->delay_program_create(dev, seconds, stream, &program, measured_seconds)));
    return wrap_program(dev, program, out);
}

/* --- Doctor ---------------------------------------------------------------------------------- */

void device_doctor(device *dev, const struct device_settings *settings, device_doctor_line line,
                   void *context)
{
    struct device_settings defaults;
    if (settings == NULL) {
        device_settings_defaults(&defaults);
        settings = &defaults;
    }
    bool cuda_open = dev != NULL && strcmp(dev->backend->name, "host") != 0;
    if (dev == NULL || !cuda_open) {
        device__host_doctor(settings, line, context);
    }
    if (dev == NULL || cuda_open) {
        device__plugin_doctor(settings, line, context);
    }
}
