/*
 * One interface to what computes: buffers, host staging memory, streams, events, copies, and the
 * tensor operations that the models need. Two implementations, chosen at run time: "host" (plain C
 * and CBLAS, everywhere) and "cuda" (cuDNN graphs, cuBLAS, CUDA Runtime; build/pinline_cuda.so,
 * opened only when wanted).
 *
 * Threads. One thread, the one that opened the device, makes every call here, but for the functions
 * marked "any thread". Work submitted to one stream runs in order; work on two streams is ordered
 * only by events. Nothing runs on a default or legacy stream.
 *
 * Steady state. Creating operations and programs may allocate, search and take seconds; submitting,
 * copying, recording and awaiting neither allocate nor look anything up.
 *
 * Failures. STATUS_NO_MEMORY names what was asked and what is free; STATUS_DEVICE carries the
 * library's own text and the call; STATUS_UNSUPPORTED names operation, shape and type. After
 * STATUS_DEVICE the device is poisoned: every later call returns the same status and message, and
 * only the destroy and close functions still do anything.
 */
#ifndef PINLINE_DEVICE_DEVICE_H
#define PINLINE_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/json.h"
#include "base/status.h"

typedef struct device device;
typedef struct device_buffer device_buffer;
typedef struct device_stream device_stream;
typedef struct device_event device_event;
typedef struct device_op device_op;
typedef struct device_program device_program;

/* --- Opening -------------------------------------------------------------------------------- */

enum device_kind {
    DEVICE_AUTO = 0, /* the first GPU, or the host with one line that says so */
    DEVICE_HOST,
    DEVICE_CUDA
};

/* How floating-point work is done. Master weights, statistics, loss and update are float32 in all. */
enum precision {
    PRECISION_F32 = 0, /* float32 products, no tensor-core rounding */
    PRECISION_TF32,    /* float32 data, TF32 products where the GPU has them; = F32 on the host */
    PRECISION_BF16     /* bfloat16 activations and convolution weights, float32 accumulation */
};

/* What the host device does with work in its streams. */
enum host_mode {
    HOST_IMMEDIATE = 0, /* runs inside submit */
    HOST_DEFERRED,      /* runs only when somebody waits for it, as late as the events allow: a
                           buffer reused too early is corrupted every time; buffers begin as NaN.
                           An event queried 10,000 times runs after all. For tests */
    HOST_SIMULATED      /* a thread a stream; copies and steps take the time that `simulated` says,
                           so that experiments have known answers. For tests */
};

/* Times of the simulated bus and step; see HOST_SIMULATED. */
struct host_simulation {
    double pageable_bytes_per_s; /* > 0; such a copy occupies the calling thread while it lasts */
    double locked_bytes_per_s;   /* > 0 */
    double copy_start_s;         /* added to each copy, >= 0 */
    double step_s;               /* length of each submitted program, >= 0; operations do compute */
    double issue_s;              /* time that submitting a program keeps the caller, >= 0 */
    double pin_page_s; /* extra time of a step while a page or more is page-locked, >= 0 */
};

struct device_settings {
    enum device_kind kind;    /* default DEVICE_AUTO */
    int index;                /* GPU number among the visible ones, default 0 */
    enum precision precision; /* default PRECISION_F32 */
    bool deterministic;       /* default true: only plans that give the same bits every time */
    bool capture;             /* default true: programs run as captured graphs where possible */
    bool spin;                /* default false: host waits by spinning instead of blocking */
    size_t workspace_limit;   /* bytes a plan may ask for; default 1 GiB */
    int plan_candidates;      /* plans timed for each operation, 1 to 64; default 8; more
                                  where they cost little, fewer where they hardly differ */
    const char
        *plan_cache; /* file of remembered plans, read at open and added to; NULL or "none": none */
    const char *cuda_libs; /* folder searched first for CUDA's libraries; NULL: the usual places */
    int host_threads;      /* of the host device's operations; 0: CPUs allowed */
    enum host_mode host_mode; /* default HOST_IMMEDIATE */
    struct host_simulation simulated;
    /* What was asked for that only a GPU does, for DEVICE_AUTO's message where it takes the host;
     * NULL: nothing. */
    const char *cuda_only;
};

void device_settings_defaults(struct device_settings *settings);

/*
 * Opens a device; copies what it needs of *settings. *out is NULL on failure. DEVICE_AUTO takes the
 * host where there is no GPU, and says so.
 * STATUS_NOT_FOUND: no GPU, driver or library, with where it looked; STATUS_USAGE: index out of
 * range; STATUS_DEVICE; STATUS_NO_MEMORY; STATUS_LIMIT: threads refused.
 */
enum status device_open(const struct device_settings *settings, device **out) MUST_USE;

/* Waits for all work, frees everything that is left; *dev becomes NULL; accepts NULL inside. */
void device_close(device **dev);

/* Facts that go into every result. Strings are zero-terminated, "" when unknown. */
struct device_facts {
    enum device_kind kind; /* DEVICE_HOST or DEVICE_CUDA */
    char name[128];        /* "NVIDIA H200", "host (OpenBLAS SkylakeX, 2 threads)" */
    char driver[32];       /* "580.159.04" */
    char runtime[32];      /* CUDA runtime "13.0" */
    char cudnn[32];        /* "9.14.0" */
    char blas[96];         /* cuBLAS version, or OpenBLAS's configuration and kernel */
    char pci_bus[32];
    int compute_major, compute_minor;
    int pcie_generation, pcie_width;    /* as linked now, 0 when unknown */
    int numa_node;                      /* -1 when unknown */
    uint64_t memory_total, memory_free; /* bytes on the device at the time of the call */
    bool copies_are_real; /* false on the host, where staging flags change waiting, not speed */
};
enum status device_read_facts(device *dev, struct device_facts *facts) MUST_USE;

/* A look at the device while it works, for the watch. Any one thread at a time may call it, also
 * another than the device's own. `valid` is false where there is nothing to read (host device). */
struct device_sample {
    bool valid;
    int gpu_percent, memory_percent; /* utilisation, 0 to 100 */
    uint64_t memory_used;            /* bytes, all processes */
    int sm_clock_mhz, sm_clock_max_mhz, memory_clock_mhz;
    int temperature_c;
    double power_w;
    uint64_t throttle_reasons; /* NVML's clocks-event bits, 0 none */
    int other_processes;       /* other processes with a context on this GPU, -1 unknown */
};
void device_read_sample(device *dev, struct device_sample *sample);

/* --- Memory --------------------------------------------------------------------------------- */

/* Device memory, aligned to 256 bytes, contents undefined. STATUS_NO_MEMORY, STATUS_DEVICE. */
enum status device_buffer_create(device *dev, size_t bytes, device_buffer **out) MUST_USE;
void device_buffer_destroy(device *dev, device_buffer **buffer);
size_t device_buffer_bytes(const device_buffer *buffer);

/* Kinds of host memory that batches are staged in. */
enum host_memory {
    HOST_MEMORY_PAGEABLE = 0, /* anonymous mapping, touched once */
    HOST_MEMORY_REGISTERED,   /* the same pages, page-locked at open (cudaHostRegister) */
    HOST_MEMORY_ALLOCATED     /* page-locked memory of the runtime's own (cudaHostAlloc) */
};

/* Host memory for staging. Filled in by create; owned by the caller until destroy. */
struct host_buffer {
    void *data; /* page-aligned */
    size_t bytes;
    enum host_memory kind;
    bool page_locked;    /* as the runtime answers when asked about `data`, not as requested */
    double lock_seconds; /* time that page-locking took */
    void *handle;        /* the device's own */
};

/*
 * Page-locked kinds are refused before anything is taken when they exceed what is free or allowed
 * (STATUS_NO_MEMORY, STATUS_LIMIT, naming bytes wanted, free, the limit and the way out), and
 * STATUS_MISMATCH is returned when the runtime says that the memory did not become what was asked.
 * On the host device all kinds are the same memory and page_locked reports what was asked.
 */
enum status device_host_buffer_create(device *dev, size_t bytes, enum host_memory kind,
                                      struct host_buffer *out) MUST_USE;
/* Accepts an all-zero buffer; leaves it all zero. No copy may still use it. */
void device_host_buffer_destroy(device *dev, struct host_buffer *buffer);

/* --- Streams and events --------------------------------------------------------------------- */

/* A non-blocking stream. `name` is kept (a literal): it shows in traces. */
enum status device_stream_create(device *dev, const char *name, device_stream **out) MUST_USE;
void device_stream_destroy(device *dev, device_stream **stream);

/* The host waits until everything submitted to `stream` has run. */
enum status device_stream_wait(device *dev, device_stream *stream) MUST_USE;
/* The host waits for the whole device. */
enum status device_synchronize(device *dev) MUST_USE;

/* An event marks a place in a stream. With `timed` its time can be read. Never recorded = complete. */
enum status device_event_create(device *dev, bool timed, device_event **out) MUST_USE;
void device_event_destroy(device *dev, device_event **event);
enum status device_event_record(device *dev, device_event *event, device_stream *stream) MUST_USE;
/* Later work of `stream` waits for the last record of `event`; the host does not. */
enum status device_event_await(device *dev, device_event *event, device_stream *stream) MUST_USE;
/* *complete without waiting. */
enum status device_event_query(device *dev, device_event *event, bool *complete) MUST_USE;
/* The host waits for the last record. */
enum status device_event_wait(device *dev, device_event *event) MUST_USE;
/* Milliseconds between two timed, complete events. */
enum status device_event_elapsed(device *dev, device_event *from, device_event *to,
                                 double *milliseconds) MUST_USE;

/* --- Copies (asynchronous in their stream) -------------------------------------------------- */

/* Host memory must stay unchanged (to the device) or unread (to the host) until an event recorded
 * after the copy is complete. From pageable memory the call itself may wait: that is what is
 * measured. Ranges are checked by assertion. */
enum status device_copy_to_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const void *from, size_t bytes) MUST_USE;
enum status device_copy_to_host(device *dev, device_stream *stream, void *to,
                                const device_buffer *from, size_t from_offset,
                                size_t bytes) MUST_USE;
enum status device_copy_on_device(device *dev, device_stream *stream, device_buffer *to,
                                  size_t to_offset, const device_buffer *from, size_t from_offset,
                                  size_t bytes) MUST_USE;
/* Sets bytes to zero. */
enum status device_zero(device *dev, device_stream *stream, device_buffer *to, size_t to_offset,
                        size_t bytes) MUST_USE;

/* --- Tensors -------------------------------------------------------------------------------- */

enum dtype { DTYPE_F32 = 0, DTYPE_BF16, DTYPE_U8 };
size_t dtype_bytes(enum dtype dtype); /* 4, 2, 1 */

/*
 * A dense NHWC view of device memory: element (n, h, w, c) lies at ((n*H + h)*W + w)*C + c.
 * Convolution weights are K x R x S x C: n is the output channels, h and w the window, c the input
 * channels. Vectors have n = h = w = 1; matrices n rows of c. `offset` is in bytes, a multiple of
 * 16. An absent optional tensor has buffer NULL.
 */
struct tensor {
    device_buffer *buffer;
    size_t offset;
    enum dtype dtype;
    int n, h, w, c;
};
size_t tensor_elements(const struct tensor *tensor);
size_t tensor_bytes(const struct tensor *tensor);

/*
 * What changes from step to step lies in device memory as this block of floats, crosses the bus with
 * the batch, and is read by the operations there, so that a captured step never holds an old value.
 * Computed in double on the host. Field order is the layout (float index = order).
 */
struct step_scalars {
    float rate;         /* learning rate of this step */
    float momentum;     /* SGD */
    float decay;        /* weight decay (SGD: added to the gradient) */
    float averaging;    /* batch norm: new running value = (1 - averaging) old + averaging new */
    float beta1, beta2; /* AdamW */
    float one_minus_beta1, one_minus_beta2;
    float step_size;    /* AdamW: rate / (1 - beta1^t) */
    float second_scale; /* AdamW: 1 / sqrt(1 - beta2^t) */
    float epsilon;      /* AdamW */
    float decay_factor; /* AdamW: 1 - rate * decay */
    float reserved[4];  /* zero */
};

/* --- Operations ----------------------------------------------------------------------------- */

/*
 * An operation is created once with its buffers bound and submitted many times. Data tensors of one
 * operation share a dtype (F32 or BF16) unless said otherwise; scale, bias, statistics, loss and
 * master weights are F32. Fused parts (bias, residual, ReLU) are asked for here; where the device
 * has no fused plan it runs the parts one after another with the same result up to rounding.
 * Accumulation is in float32 at least.
 */
enum op_kind {
    OP_INGEST = 1,
    OP_CONV,
    OP_CONV_BACKWARD_DATA,
    OP_CONV_BACKWARD_FILTER,
    OP_BIAS_BACKWARD,
    OP_NORM,
    OP_NORM_INFER,
    OP_NORM_BACKWARD,
    OP_RELU_BACKWARD,
    OP_ADD,
    OP_MAX_POOL,
    OP_MAX_POOL_BACKWARD,
    OP_GLOBAL_AVERAGE,
    OP_GLOBAL_AVERAGE_BACKWARD,
    OP_LINEAR,
    OP_LINEAR_BACKWARD_DATA,
    OP_LINEAR_BACKWARD_WEIGHTS,
    OP_SOFTMAX_LOSS,
    OP_CAST,
    OP_SGD,
    OP_ADAMW
};

/* Pixels to the network's input. from: n x h x w x 3, U8 or F32; to: n x h x w x C, C >= 3, F32 or
 * BF16. to[.., c] = from[.., c] * scale[c] + offset[c] for c < 3, and 0 for c >= 3. */
struct op_ingest {
    struct tensor from, to;
    float scale[3], offset[3];
};

/* Cross-correlation as PyTorch's Conv2d, groups 1, dilation 1, zero padding `pad` on every side:
 * Ho = (H + 2 pad - R) / stride + 1. Forward: y = relu?(conv(x, w) + bias?). bias: F32, c = K.
 * Backward data: dx from dy (as y) and w. Backward filter: dw (as w; of w's dtype, or F32 where the
 * device can) from x and dy; overwrites, never adds. Forward uses x w bias y relu; backward data
 * dy w dx; backward filter x dy dw. */
struct op_conv {
    struct tensor x, w, bias, y;
    struct tensor dx, dw, dy;
    int stride, pad;
    bool relu;
};

/* db[c] = sum over n, h, w of dy. dy: any data dtype; db: F32, c = C. */
struct op_bias_backward {
    struct tensor dy, db;
};

/*
 * Batch normalisation over n, h, w for each channel; vectors are F32 with c = C.
 * OP_NORM: mean and biased variance of the batch; y = relu?((x - mean) * inv_std * scale + bias +
 * residual?), inv_std = 1 / sqrt(var + epsilon); saves mean and inv_std; running_mean and
 * running_var move by scalars.averaging, running_var with the unbiased variance (as PyTorch).
 * OP_NORM_INFER: the same y from the running statistics; uses x y residual scale bias running_*.
 * OP_NORM_BACKWARD: with dz = dy masked by y > 0 when relu is set: dscale, dbias, dx of the
 * normalisation; dresidual = dz when present (it may be dy itself). Uses x y dy scale saved_*
 * dx dresidual dscale dbias, and bias where it is given: with it, a device may work out the sign of y
 * from x instead of reading y. dx may not alias dy; y is the output of the last forward operation of
 * the same x and y, of which a device may have kept more than y.
 */
struct op_norm {
    struct tensor x, residual, y;
    struct tensor scale, bias, running_mean, running_var, saved_mean, saved_inv_std;
    struct tensor scalars; /* F32 vector holding struct step_scalars (OP_NORM alone) */
    struct tensor dy, dx, dresidual, dscale, dbias;
    float epsilon;
    bool relu;
};

/* dx = dy where y > 0, else 0. dx may alias dy. */
struct op_relu_backward {
    struct tensor y, dy, dx;
};

/* y = a + b; y may alias either. */
struct op_add {
    struct tensor a, b, y;
};

/* Max pooling as PyTorch's MaxPool2d: square window, padding counts as -infinity, floor mode.
 * Backward gives each window's gradient to its first maximum in row order and adds where windows
 * overlap; it uses x y dy dx and, where the device keeps one, an index that the forward operation
 * of the same x and y wrote (`index`, U8, bytes = elements of y; absent: recomputed from x). */
struct op_max_pool {
    struct tensor x, y, index;
    struct tensor dy, dx;
    int window, stride, pad;
};

/* y[n, c] = mean over h, w of x (y: n x 1 x 1 x C, F32 or x's dtype); dx[n, h, w, c] = dy[n, c] /
 * (H W), dx in x's dtype. */
struct op_global_average {
    struct tensor x, y;
    struct tensor dy, dx;
};

/* y[n, o] = factor * (sum_i x[n, i] w[o, i]) + bias?[o]; w: n = O, c = I, all F32.
 * Backward data: dx = factor * dy w. Backward weights: dw = factor * dy^T x, db = sum over n of dy
 * (when db is present). */
struct op_linear {
    struct tensor x, w, bias, y;
    struct tensor dx, dw, db, dy;
    float factor;
};

/* loss[0] = -sum over n, c of targets * log softmax(logits); dlogits = softmax * (row sum of
 * targets) - targets. All F32, n x classes. Targets are already divided by the batch's number of
 * good images, so the loss is the batch mean. dlogits may be absent (evaluation). */
struct op_softmax_loss {
    struct tensor logits, targets, loss, dlogits;
};

/* to = from, element by element, rounding to nearest even. F32 <-> BF16, or equal dtypes. */
struct op_cast {
    struct tensor from, to;
};

/*
 * One update over a contiguous region of parameters (vectors of equal length c).
 * OP_SGD (PyTorch's SGD): g += decay * p (when `decays`); v = momentum v + g; step = nesterov ?
 * g + momentum v : v; p -= rate * step. first = v. second absent.
 * OP_ADAMW (PyTorch's AdamW): p *= decay_factor (when `decays`); m = beta1 m + (1 - beta1) g;
 * v = beta2 v + (1 - beta2) g^2; p -= step_size * m / (sqrt(v) * second_scale + epsilon).
 * gradient: F32 or BF16. shadow, when present, receives p as BF16.
 */
struct op_update {
    struct tensor parameters, gradient, first, second, shadow;
    struct tensor scalars; /* F32 vector holding struct step_scalars */
    bool decays, nesterov;
};

struct op_desc {
    enum op_kind kind;
    const char *label; /* for plans, traces and messages, "conv3 forward"; copied */
    union {
        struct op_ingest ingest;
        struct op_conv conv;
        struct op_bias_backward bias;
        struct op_norm norm;
        struct op_relu_backward relu;
        struct op_add add;
        struct op_max_pool pool;
        struct op_global_average average;
        struct op_linear linear;
        struct op_softmax_loss loss;
        struct op_cast cast;
        struct op_update update;
    } u;
};

/*
 * Checks shapes and types, chooses a plan and binds the buffers. An operation whose workspace is
 * needed shares it with the others of its stream class: operations run on one compute stream only.
 * STATUS_UNSUPPORTED (names the operation, shapes and types), STATUS_NO_MEMORY, STATUS_DEVICE;
 * shapes that contradict each other are STATUS_INTERNAL with both shapes in the message.
 * STATUS_INTERRUPTED: a stop was asked for; searching plans takes long.
 */
enum status device_op_create(device *dev, const struct op_desc *desc, device_op **out) MUST_USE;
void device_op_destroy(device *dev, device_op **op);
enum status device_op_submit(device *dev, device_op *op, device_stream *stream) MUST_USE;

/*
 * A fixed sequence of operations, submitted as one: captured once into a graph where the device can
 * (device_settings.capture), otherwise replayed one by one. The operations stay the caller's, are
 * kept alive by it for the program's life, and must be warm: create may run them once on undefined
 * data (contents of output buffers are undefined afterwards).
 */
enum status device_program_create(device *dev, device_op *const *ops, size_t count,
                                  device_stream *stream, device_program **out) MUST_USE;
void device_program_destroy(device *dev, device_program **program);
/* STATUS_INTERRUPTED, on the host device alone, whose steps may take seconds: a stop was asked for
 * before the program's first update. No parameters were updated; all else that it writes, running
 * statistics included, is undefined. */
enum status device_program_submit(device *dev, device_program *program,
                                  device_stream *stream) MUST_USE;
/* Whether submitting is one launch of a captured graph. */
bool device_program_is_captured(const device_program *program);

/* --- Plans ---------------------------------------------------------------------------------- */

/* Writes the array of chosen plans, [{"op": label, "plan": id, "ms": best}, ...], in creation
 * order, at a place where the writer expects a value; and a hash of labels and ids. Two runs with
 * equal hashes compute in the same way. */
void device_write_plans(device *dev, struct json_writer *writer);
uint64_t device_plans_hash(device *dev);

/* Makes operations created from now on use the plans of `plans` (an array as written above), by their
 * labels. An operation whose label is there with a plan that is for another form of it, or that
 * cannot be used here, is STATUS_MISMATCH at creation, unless `allow_others`; one whose label is not
 * there (another batch size, evaluation of another set) is planned as usual. The list that
 * device_write_plans writes begins anew. */
enum status device_require_plans(device *dev, const struct json_value *plans,
                                 bool allow_others) MUST_USE;

/* --- Measuring ------------------------------------------------------------------------------ */

/* A program that keeps `stream` busy for about `seconds`, for experiments with a step of given
 * length. Calibrated at creation; the measured length is returned. */
enum status device_delay_program_create(device *dev, double seconds, device_stream *stream,
                                        device_program **out, double *measured_seconds) MUST_USE;

/* Doctor's lines about this device or why there is none; never fails. Each call of `line` gets one
 * line and whether it names a problem. Works without an open device (dev NULL: looks for CUDA as
 * device_open would with `settings`). */
typedef void (*device_doctor_line)(void *context, bool problem, const char *text);
void device_doctor(device *dev, const struct device_settings *settings, device_doctor_line line,
                   void *context);

#endif
