/* Tables of what a job computes with, and of how a run is kept. */
#include <stdlib.h>
#include <string.h>

#include "trainer/job_options_internal.h"

/* --- Names of choices, in the order of their enums ------------------------------------------ */

const char *const precision_names[] = {"f32", "tf32", "bf16", NULL};
static const char *const stem_names[] = {"auto", "small", "large", NULL};
static const char *const optimiser_names[] = {"sgd", "adamw", NULL};
static const char *const schedule_names[] = {"constant", "step", "cosine", "one-cycle", NULL};

/* --- Values of other forms ------------------------------------------------------------------ */

static enum status parse_device(void *field, const char *text)
{
    struct device_settings *chosen = field;
    if (strcmp(text, "auto") == 0) {
        chosen->kind = DEVICE_AUTO;
        chosen->index = 0;
        return STATUS_OK;
    }
    if (strcmp(text, "host") == 0 || strcmp(text, "cpu") == 0) {
        chosen->kind = DEVICE_HOST;
        chosen->index = 0;
        return STATUS_OK;
    }
    size_t digits = strncmp(text, "cuda:", 5) == 0 ? strspn(text + 5, "0123456789") : 0;
    if (strcmp(text, "cuda") == 0 || (digits > 0 && digits < 5 && text[5 + digits] == '\0')) {
        chosen->kind = DEVICE_CUDA;
        chosen->index = digits ? atoi(text + 5) : 0;
        return STATUS_OK;
    }
    return FAIL(STATUS_USAGE, "--device takes auto, host, cuda or cuda:N, not \"%s\"", text);
}

static void write_device(const void *field, struct json_writer *writer)
{
    const struct device_settings *chosen = field;
    char text[32];
    if (chosen->kind == DEVICE_CUDA) {
        snprintf(text, sizeof text, "cuda:%d", chosen->index);
    }
    json_string(writer, chosen->kind == DEVICE_CUDA   ? text
                        : chosen->kind == DEVICE_HOST ? "host"
                                                      : "auto");
}

/* "PAGEABLE_GB_S,LOCKED_GB_S,STEP_MS[,ISSUE_MS[,PIN_MS]]": the host device then takes these times. */
static enum status parse_simulation(void *field, const char *text)
{
    struct device_settings *chosen = field;
    double values[5] = {0};
    int count = 0, used = 0;
    if (strcmp(text, "off") == 0) {
        chosen->host_mode = HOST_IMMEDIATE;
        return STATUS_OK;
    }
    for (const char *at = text; count < 5; at += used + 1) {
        if (sscanf(at, "%lf%n", &values[count], &used) != 1 || !(values[count] >= 0)) {
            count = 0;
            break;
        }
        count++;
        if (at[used] != ',') {
            count = at[used] == '\0' ? count : 0;
            break;
        }
    }
    if (count < 3 || !(values[0] > 0 && values[1] > 0)) {
        return FAIL(STATUS_USAGE,
                    "--simulate takes PAGEABLE_GB_S,LOCKED_GB_S,STEP_MS and perhaps "
                    "ISSUE_MS and PIN_MS, for instance 11,55,5, not \"%s\"",
                    text);
    }
    chosen->host_mode = HOST_SIMULATED;
    chosen->simulated = (struct host_simulation){.pageable_bytes_per_s = values[0] * 1e9,
                                                 .locked_bytes_per_s = values[1] * 1e9,
                                                 .step_s = values[2] * 1e-3,
                                                 .issue_s = values[3] * 1e-3,
                                                 .pin_page_s = values[4] * 1e-3};
    return STATUS_OK;
}

static void write_simulation(const void *field, struct json_writer *writer)
{
    const struct device_settings *chosen = field;
    char text[160];
    snprintf(text, sizeof text, "%.17g,%.17g,%.17g,%.17g,%.17g",
             chosen->simulated.pageable_bytes_per_s * 1e-9,
             chosen->simulated.locked_bytes_per_s * 1e-9, chosen->simulated.step_s * 1e3,
             chosen->simulated.issue_s * 1e3, chosen->simulated.pin_page_s * 1e3);
    json_string(writer, chosen->host_mode == HOST_SIMULATED ? text : "off");
}

static enum status parse_model(void *field, const char *text)
{
    char known[256] = "";
    for (size_t i = 0; network_model_names[i]; i++) {
        if (strcmp(network_model_names[i], text) == 0) {
            *(const char **)field = network_model_names[i];
            return STATUS_OK;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", network_model_names[i]);
    }
    const char *nearest = options_nearest(text, network_model_names);
    return FAIL(STATUS_USAGE, "there is no model \"%s\"; known are %s%s%s%s", text, known,
                nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

static void write_model(const void *field, struct json_writer *writer)
{
    json_string(writer, *(const char *const *)field);
}

/* --- Tables --------------------------------------------------------------------------------- */

static const struct option device_options[] = {
    {.name = "device",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(device),
     .metavar = "DEVICE",
     .help = "auto, host, cuda or cuda:N",
     .parse = parse_device,
     .write = write_device},
    {.name = "precision",
     .kind = OPTION_CHOICE,
     .offset = FIELD(device.precision),
     .choices = precision_names,
     .help = "arithmetic; weights are kept in float32 in all of them"},
    {.name = "deterministic",
     .kind = OPTION_SWITCH,
     .offset = FIELD(device.deterministic),
     .help = "use only plans that give the same bits every time"},
    {.name = "capture",
     .kind = OPTION_SWITCH,
     .offset = FIELD(device.capture),
     .help = "launch a step as one captured graph"},
    {.name = "spin",
     .kind = OPTION_SWITCH,
     .offset = FIELD(device.spin),
     .help = "wait for the GPU by spinning, which costs a core, instead of sleeping"},
    {.name = "workspace",
     .kind = OPTION_BYTES,
     .offset = FIELD(device.workspace_limit),
     .metavar = "BYTES",
     .help = "most scratch memory that a cuDNN plan may ask for"},
    {.name = "plan-candidates",
     .kind = OPTION_INT,
     .offset = FIELD(device.plan_candidates),
     .low = 1,
     .high = 64,
     .metavar = "N",
     .help = "cuDNN plans timed for each operation before training"},
    {.name = "plan-cache",
     .kind = OPTION_TEXT,
     .offset = FIELD(device.plan_cache),
     .metavar = "FILE",
     .help = "remembers the best plans from run to run; none for no such file; the default is "
             "pinline/plans.json in the user's cache folder",
     .not_compared = true},
    {.name = "cuda-libs",
     .kind = OPTION_TEXT,
     .offset = FIELD(device.cuda_libs),
     .metavar = "DIR",
     .help = "folder of CUDA's and cuDNN's libraries, searched first"},
    {.name = "host-threads",
     .kind = OPTION_INT,
     .offset = FIELD(device.host_threads),
     .high = 1024,
     .metavar = "N",
     .help = "threads of the host device's arithmetic; 0 means the CPUs allowed"},
    {.name = "simulate",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(device),
     .metavar = "RATES",
     .help = "host device alone: a bus of PAGEABLE_GB_S,LOCKED_GB_S and a step of STEP_MS, to try "
             "the method on a job whose answer is known",
     .parse = parse_simulation,
     .write = write_simulation},
};
const struct option_table options_device = TABLE("Device", device_options);

static const struct option model_options[] = {
    {.name = "model",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(network.model),
     .metavar = "NAME",
     .help = "smallcnn, resnet9, resnet18 or probe",
     .parse = parse_model,
     .write = write_model},
    {.name = "stem",
     .kind = OPTION_CHOICE,
     .offset = FIELD(network.stem),
     .choices = stem_names,
     .help = "first layers of resnet18: 3x3, or 7x7 with pooling (auto: from 64 pixels on)"},
    {.name = "weights",
     .kind = OPTION_TEXT,
     .offset = FIELD(weights),
     .metavar = "FILE",
     .help = "safetensors file with the weights to use or to start from"},
};
const struct option_table options_model = TABLE("Model", model_options);

static const struct option optimiser_options[] = {
    {.name = "optimizer",
     .kind = OPTION_CHOICE,
     .offset = FIELD(network.optimiser),
     .choices = optimiser_names,
     .help = "how weights are updated"},
    {.name = "lr",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.rate),
     .high = 1e6,
     .metavar = "X",
     .help = "learning rate, the highest of the schedule; 0 means 0.05 for sgd, 0.001 for adamw"},
    {.name = "momentum",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.momentum),
     .high = 0.999999,
     .metavar = "X",
     .help = "momentum of sgd"},
    {.name = "nesterov",
     .kind = OPTION_SWITCH,
     .offset = FIELD(network.nesterov),
     .help = "Nesterov's momentum"},
    {.name = "weight-decay",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.weight_decay),
     .high = 1e6,
     .metavar = "X",
     .help = "added to the gradient by sgd, decoupled in adamw"},
    {.name = "decay-all",
     .kind = OPTION_SWITCH,
     .offset = FIELD(network.decay_all),
     .help = "decay biases and batch norm too, as PyTorch does unless told otherwise"},
    {.name = "beta1",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.beta1),
     .high = 0.999999,
     .metavar = "X",
     .help = "decay of the first moment of adamw"},
    {.name = "beta2",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.beta2),
     .high = 0.9999999,
     .metavar = "X",
     .help = "decay of the second moment of adamw"},
    {.name = "epsilon",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.epsilon),
     .low = 1e-16,
     .high = 1,
     .metavar = "X",
     .help = "added to the denominator by adamw"},
    {.name = "schedule",
     .kind = OPTION_CHOICE,
     .offset = FIELD(optimiser.schedule),
     .choices = schedule_names,
     .help = "how the learning rate changes"},
    {.name = "warmup-epochs",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.warmup_epochs),
     .high = 1e6,
     .metavar = "X",
     .help = "epochs in which the rate rises; one-cycle takes 0 as 0.3 of all"},
    {.name = "step-epochs",
     .kind = OPTION_INT,
     .offset = FIELD(optimiser.step_epochs),
     .low = 1,
     .high = 1000000,
     .metavar = "N",
     .help = "epochs between the drops of the step schedule"},
    {.name = "step-factor",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.step_factor),
     .low = 1e-6,
     .high = 1,
     .metavar = "X",
     .help = "factor at each drop"},
    {.name = "final-lr",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(optimiser.final_rate),
     .high = 1e6,
     .metavar = "X",
     .help = "rate at the end of the cosine schedule"},
};
const struct option_table options_optimiser = TABLE("Optimiser", optimiser_options);

static const struct option run_options[] = {
    {.name = "epochs",
     .short_name = "e",
     .kind = OPTION_INT,
     .offset = FIELD(epochs),
     .low = 1,
     .high = 1000000,
     .metavar = "N",
     .help = "passes over the training images"},
    {.name = "max-steps",
     .kind = OPTION_LONG,
     .offset = FIELD(max_steps),
     .low = 0,
     .high = 1e15,
     .metavar = "N",
     .help = "end after so many steps; 0 means no limit"},
    {.name = "eval-batch-size",
     .kind = OPTION_INT,
     .offset = FIELD(eval_batch),
     .high = 65536,
     .metavar = "N",
     .help = "images a step of evaluation; 0 means that of training"},
    {.name = "eval-every",
     .kind = OPTION_INT,
     .offset = FIELD(eval_every),
     .high = 1000000,
     .metavar = "N",
     .help = "epochs between evaluations; 0 means never"},
    {.name = "save-every",
     .kind = OPTION_INT,
     .offset = FIELD(save_every),
     .high = 1000000000,
     .metavar = "N",
     .help = "steps between additional checkpoints; 0 means none",
     .not_compared = true},
    {.name = "log-every",
     .kind = OPTION_INT,
     .offset = FIELD(log_every),
     .high = 1000000000,
     .metavar = "N",
     .help = "steps between step lines in the run log; 0 means none",
     .not_compared = true},
    {.name = "out",
     .short_name = "o",
     .kind = OPTION_TEXT,
     .offset = FIELD(out),
     .metavar = "DIR",
     .help = "the run's folder: settings, log, metrics and checkpoints",
     .not_compared = true},
    {.name = "resume",
     .kind = OPTION_TEXT,
     .offset = FIELD(resume),
     .metavar = "FILE",
     .help = "go on from a run's last.safetensors",
     .not_compared = true},
    {.name = "overwrite",
     .kind = OPTION_SWITCH,
     .offset = FIELD(overwrite),
     .help = "replace an earlier run in the same folder",
     .not_compared = true},
    {.name = "replan",
     .kind = OPTION_SWITCH,
     .offset = FIELD(replan),
     .help = "resume although the recorded plans cannot be used here",
     .not_compared = true},
    {.name = "verify-batches",
     .kind = OPTION_SWITCH,
     .offset = FIELD(verify_batches),
     .help = "compare every batch, as the first layer reads it, with what was decoded"},
    {.name = "dump-batches",
     .kind = OPTION_TEXT,
     .offset = FIELD(dump_batches),
     .metavar = "FILE",
     .help = "write the first batches, as the network gets them, to a safetensors file",
     .not_compared = true},
    {.name = "dump-count",
     .kind = OPTION_INT,
     .offset = FIELD(dump_count),
     .low = 1,
     .high = 100000,
     .metavar = "N",
     .help = "how many batches --dump-batches writes",
     .not_compared = true},
};
const struct option_table options_run = TABLE("Run", run_options);

static const struct option measuring_options[] = {
    {.name = "timing",
     .kind = OPTION_SWITCH,
     .offset = FIELD(timing),
     .help = "time steps and copies by events and clocks, and watch the machine; --axis timing=0,1 "
             "shows what that costs"},
};
const struct option_table options_measuring = TABLE("Measuring", measuring_options);

static const struct option predict_options[] = {
    {.name = "top-k",
     .short_name = "k",
     .kind = OPTION_INT,
     .offset = FIELD(top_k),
     .low = 1,
     .high = 100000,
     .metavar = "N",
     .help = "classes listed for each image"},
};
const struct option_table options_predict = TABLE("Prediction", predict_options);

static const struct option output_options[] = {
    {.name = "json",
     .kind = OPTION_SWITCH,
     .offset = FIELD(json),
     .help = "print results as JSON on standard output",
     .not_compared = true},
    {.name = "quiet",
     .short_name = "q",
     .kind = OPTION_SWITCH,
     .offset = FIELD(quiet),
     .help = "leave out progress and notes; results, warnings and errors are printed",
     .not_compared = true},
    {.name = "verbose",
     .short_name = "v",
     .kind = OPTION_SWITCH,
     .offset = FIELD(verbose),
     .help = "print decisions, and places of errors, too",
     .not_compared = true},
};
const struct option_table options_output = TABLE("Output", output_options);
