/*
 * The table of functions that an implementation fills in; device.c checks arguments, keeps the
 * poisoned state, and forwards. Signatures and statuses are those of device.h. Only device.c and
 * the two implementations include this.
 */
#ifndef PINLINE_DEVICE_DEVICE_BACKEND_H
#define PINLINE_DEVICE_DEVICE_BACKEND_H

#include "device/device.h"

struct device_backend {
    const char *name;
    void (*close)(device *dev);
    enum status (*read_facts)(device *dev, struct device_facts *facts);
    void (*read_sample)(device *dev, struct device_sample *sample);
    enum status (*buffer_create)(device *dev, size_t bytes, device_buffer **out);
    void (*buffer_destroy)(device *dev, device_buffer *buffer);
    enum status (*host_buffer_create)(device *dev, size_t bytes, enum host_memory kind,
                                      struct host_buffer *out);
    void (*host_buffer_destroy)(device *dev, struct host_buffer *buffer);
    enum status (*stream_create)(device *dev, const char *name, device_stream **out);
    void (*stream_destroy)(device *dev, device_stream *stream);
    enum status (*stream_wait)(device *dev, device_stream *stream);
    enum status (*synchronize)(device *dev);
    enum status (*event_create)(device *dev, bool timed, device_event **out);
    void (*event_destroy)(device *dev, device_event *event);
    enum status (*event_record)(device *dev, device_event *event, device_stream *stream);
    enum status (*event_await)(device *dev, device_event *event, device_stream *stream);
    enum status (*event_query)(device *dev, device_event *event, bool *complete);
    enum status (*event_wait)(device *dev, device_event *event);
    enum status (*event_elapsed)(device *dev, device_event *from, device_event *to, double *ms);
    enum status (*copy_to_device)(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const void *from, size_t bytes);
    enum status (*copy_to_host)(device *dev, device_stream *stream, void *to,
                                const device_buffer *from, size_t from_offset, size_t bytes);
    enum status (*copy_on_device)(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const device_buffer *from, size_t from_offset,
                                  size_t bytes);
    enum status (*zero)(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                        size_t bytes);
    enum status (*op_create)(device *dev, const struct op_desc *desc, device_op **out);
    void (*op_destroy)(device *dev, device_op *op);
    enum status (*op_submit)(device *dev, device_op *op, device_stream *stream);
    enum status (*program_create)(device *dev, device_op *const *ops, size_t count,
                                  device_stream *stream, device_program **out);
    void (*program_destroy)(device *dev, device_program *program);
    enum status (*program_submit)(device *dev, device_program *program, device_stream *stream);
    bool (*program_is_captured)(const device_program *program);
    void (*write_plans)(device *dev, struct json_writer *writer);
    uint64_t (*plans_hash)(device *dev);
    enum status (*require_plans)(device *dev, const struct json_value *plans, bool allow_others);
    enum status (*delay_program_create)(device *dev, double seconds, device_stream *stream,
                                        device_program **out, double *measured_seconds);
};

/* Every implementation's device begins with this. */
struct device {
    const struct device_backend *backend;
    struct status_report poison;     /* the first STATUS_DEVICE, returned by every later call */
    struct program_handle *programs; /* device.c's own; zero at open */
};

/* Every implementation's buffer begins with this. */
struct device_buffer {
    size_t bytes;
};

/* Checks dtypes, shapes and required tensors of a description: the same for both devices.
 * STATUS_OK or STATUS_INTERNAL. */
enum status device__check_op(const struct op_desc *desc) MUST_USE;

/* "conv3 forward: x 64x32x32x64 f32, w ..." for messages. Returns text. */
char *device__describe_op(const struct op_desc *desc, char *text, size_t bytes);

/* How an operation uses one of its tensors. */
enum op_access { OP_READS = 1, OP_WRITES = 2 };
struct op_tensor {
    const char *name;            /* as in device.h, "saved_mean" */
    const struct tensor *tensor; /* inside the description; buffer NULL when absent */
    unsigned access;             /* OP_READS, OP_WRITES or both */
    bool required;
    unsigned dtypes; /* bit 1 << dtype of each type that is allowed */
};
#define OP_TENSORS_MAX 12

/* The tensors that an operation of this kind uses, in a fixed order, absent optional ones included;
 * returns their number, 0 for an unknown kind. The other tensors of the description are ignored. */
int device__op_tensors(const struct op_desc *desc, struct op_tensor items[OP_TENSORS_MAX]);

/* "conv backward data", "f32": a word or two, never NULL. */
const char *device__op_kind_name(enum op_kind kind);
const char *device__dtype_name(enum dtype dtype);

/* The host implementation. */
enum status device__open_host(const struct device_settings *settings, device **out) MUST_USE;
/* Doctor's lines about what the host device would compute with. */
void device__host_doctor(const struct device_settings *settings, device_doctor_line line,
                         void *context);

/*
 * What build/pinline_cuda.so exports, by these names. The version is compared before anything else:
 * a library of another build is refused.
 */
#define DEVICE_PLUGIN_VERSION 1
typedef int (*device_plugin_version_function)(void); /* pinline_cuda_version */
typedef enum status (*device_plugin_open_function)(const struct device_settings *settings,
                                                   device **out); /* pinline_cuda_open */
typedef void (*device_plugin_doctor_function)(const struct device_settings *settings,
                                              device_doctor_line line,
                                              void *context); /* pinline_cuda_doctor */

#endif
