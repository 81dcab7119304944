/* pinline predict */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "models/safetensors.h"
#include "trainer/checkpoint.h"
#include "trainer/commands.h"
#include "trainer/job_options.h"
#include "trainer/predictor.h"

static struct settings settings;
static bool as_csv;

static const struct option format_options[] = {
    {.name = "csv",
     .kind = OPTION_SWITCH,
     .help = "print a header line and a row for each file and class, as CSV"},
};
static const struct option_table options_format = {
    .title = "Format", .options = format_options, .count = 1};

static size_t bind(struct option_binding *bindings)
{
    static const struct option_table *const tables[] = {
        &options_model,    &options_predict, &options_images,
        &options_decoding, &options_device,  &options_output,
    };
    const size_t count = sizeof tables / sizeof tables[0];
    settings_defaults(&settings);
    as_csv = false;
    for (size_t i = 0; i < count; i++) {
        bindings[i] = (struct option_binding){.table = tables[i], .base = &settings};
    }
    bindings[count] = (struct option_binding){.table = &options_format, .base = &as_csv};
    return count + 1;
}

/* --- The list of files ---------------------------------------------------------------------- */

struct file_list {
    char **paths;
    size_t count, capacity;
};

static void list_fini(struct file_list *list)
{
    for (size_t i = 0; i < list->count; i++) {
        free(list->paths[i]);
    }
    free(list->paths);
}

static enum status list_add(struct file_list *list, const char *path)
{
    if (list->count == list->capacity) {
        const size_t capacity = list->capacity ? 2 * list->capacity : 64;
        char **grown = realloc(list->paths, capacity * sizeof *grown);
        if (!grown) {
            return FAIL(STATUS_NO_MEMORY, "no memory for a list of files");
        }
        list->paths = grown;
        list->capacity = capacity;
    }
    list->paths[list->count] = strdup(path);
    if (!list->paths[list->count]) {
        return FAIL(STATUS_NO_MEMORY, "no memory for a list of files");
    }
    list->count++;
    return STATUS_OK;
}

static bool is_image_name(const char *name)
{
    static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tga",
                                             ".psd", ".pnm",  ".ppm", ".pgm", ".pbm"};
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && name[0] != '.' && i < sizeof extensions / sizeof extensions[0]; i++) {
        if (strcasecmp(dot, extensions[i]) == 0) {
            return true;
        }
    }
    return false;
}

static enum status list_folder(struct file_list *list, const char *folder, int depth);

static enum status list_entry(struct file_list *list, const char *folder, const char *name,
                              int depth)
{
    char *path = file_join(folder, name);
    enum status status = STATUS_OK;
    if (!path) {
        status = FAIL(STATUS_NO_MEMORY, "no memory for a list of files");
    } else if (file_is_folder(path)) {
        status = list_folder(list, path, depth + 1);
    } else if (is_image_name(name)) {
        status = list_add(list, path);
    }
    free(path);
    return status;
}

static enum status list_folder(struct file_list *list, const char *folder, int depth)
{
    /* Links may lead back: nothing sensible is nested this deep. */
    enum { MOST_DEPTH = 32 };
    struct dirent **entries = NULL;
    if (depth > MOST_DEPTH) {
        return FAIL(STATUS_INVALID,
                    "%s is nested more than %d folders deep: a link that leads back?", folder,
                    MOST_DEPTH);
    }
    TRY(stop_check());
    const int count = scandir(folder, &entries, NULL, NULL);
    if (count < 0) {
        return FAIL(STATUS_IO, "%s cannot be listed", folder);
    }
    enum status status = STATUS_OK;
    const size_t before = list->count;
    for (int i = 0; i < count; i++) {
        if (status == STATUS_OK && entries[i]->d_name[0] != '.') {
            status = list_entry(list, folder, entries[i]->d_name, depth);
        }
        free(entries[i]);
    }
    free(entries);
    if (status == STATUS_OK && depth == 0 && list->count == before) {
        status = FAIL(STATUS_INVALID, "%s holds no images", folder);
    }
    return status;
}

static int compare_paths(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum status list_operands(struct file_list *list, char **operands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const size_t before = list->count;
        if (file_is_folder(operands[i])) {
            TRY(list_folder(list, operands[i], 0));
            qsort(list->paths + before, list->count - before, sizeof *list->paths, compare_paths);
        } else if (!file_exists(operands[i])) {
            return FAIL(STATUS_NOT_FOUND, "%s: there is no such file or folder", operands[i]);
        } else {
            TRY(list_add(list, operands[i]));
        }
    }
    return STATUS_OK;
}

/* --- Printing ------------------------------------------------------------------------------- */

struct output {
    const struct checkpoint_model *model;
    int classes, top;
    int *order;
    struct json_writer writer;
    size_t failed;
    struct status_report first_failure;
};

static const char *class_name(const struct output *output, int class_id, char *text, size_t bytes)
{
    if (output->model->known) {
        return output->model->class_names->items[class_id].string;
    }
    snprintf(text, bytes, "%d", class_id);
    return text;
}

static void print_json(struct output *output, const char *path, const struct prediction *result)
{
    struct json_writer *writer = &output->writer;
    char text[16];
    json_begin_object(writer);
    json_key_string(writer, "file", path);
    if (result->failure.status != STATUS_OK) {
        json_key_string(writer, "error", result->failure.message);
    } else {
        json_key(writer, "predictions");
        json_begin_array(writer);
        for (int i = 0; i < output->top; i++) {
            const int c = output->order[i];
            json_begin_object(writer);
            json_key_string(writer, "class", class_name(output, c, text, sizeof text));
            json_key_double(writer, "probability", (double)result->probabilities[c]);
            json_end_object(writer);
        }
        json_end_array(writer);
    }
    json_end_object(writer);
}

static void print_rows(const struct output *output, const char *path,
                       const struct prediction *result)
{
    char text[16];
    for (int i = 0; i < output->top; i++) {
        const int c = output->order[i];
        command_print_csv_text(stdout, path);
        printf(",%d,", i + 1);
        command_print_csv_text(stdout, class_name(output, c, text, sizeof text));
        printf(",%.6g\n", (double)result->probabilities[c]);
    }
}

static void print_lines(const struct output *output, const char *path,
                        const struct prediction *result)
{
    char text[16], quoted[1024];
    printf("%s\n", file_quote(path, quoted, sizeof quoted));
    for (int i = 0; i < output->top; i++) {
        const int c = output->order[i];
        printf("  %6.2f %%  %s\n", (double)result->probabilities[c] * 100,
               class_name(output, c, text, sizeof text));
    }
}

static void print_result(struct output *output, const char *path, const struct prediction *result)
{
    const bool failed = result->failure.status != STATUS_OK;
    if (failed) {
        if (output->failed++ == 0) {
            output->first_failure = result->failure;
        }
        log_warn("%s", result->failure.message);
    } else {
        predictor_top(result->probabilities, output->classes, output->top, output->order);
    }
    if (settings.json) {
        print_json(output, path, result);
    } else if (!failed && as_csv) {
        print_rows(output, path, result);
    } else if (!failed) {
        print_lines(output, path, result);
    }
}

/* --- The command ---------------------------------------------------------------------------- */

static enum status predict_files(predictor *p, const struct file_list *list, int batch,
                                 struct output *output)
{
    struct prediction *results = calloc(PREDICTOR_BATCH, sizeof *results);
    enum status status = STATUS_OK;
    if (!results) {
        return FAIL(STATUS_NO_MEMORY, "no memory for the results of a batch");
    }
    for (size_t at = 0; status == STATUS_OK && at < list->count; at += (size_t)batch) {
        const size_t left = list->count - at;
        const int count = left < (size_t)batch ? (int)left : batch;
        status = stop_check();
        if (status == STATUS_OK) {
            status = predictor_run(p, (const char *const *)list->paths + at, count, results);
        }
        for (int i = 0; status == STATUS_OK && i < count; i++) {
            print_result(output, list->paths[at + (size_t)i], &results[i]);
        }
    }
    free(results);
    return status;
}

static enum status print_predictions(predictor *p, const struct file_list *list, int batch,
                                     struct output *output)
{
    if (settings.json) {
        json_writer_init(&output->writer, stdout, true);
        json_begin_array(&output->writer);
    } else if (as_csv) {
        printf("file,rank,class,probability\n");
    }
    TRY(predict_files(p, list, batch, output));
    if (settings.json) {
        json_end_array(&output->writer);
        putchar('\n');
    }
    if (output->failed == 0) {
        return STATUS_OK;
    }
    return FAIL(output->first_failure.status, "%zu of %zu files could not be used, the first: %s",
                output->failed, list->count, output->first_failure.message);
}

/* Weights of other programs do not say how many classes there are: their last layer does. */
static enum status count_classes(const struct checkpoint_model *model, int *classes)
{
    static const char *const heads[] = {"fc.weight", "head.weight", "22.weight", "4.weight"};
    safetensors *file;
    *classes = model->classes;
    if (model->known) {
        return STATUS_OK;
    }
    TRY(safetensors_open(settings.weights, &file));
    for (size_t i = 0; *classes == 0 && i < sizeof heads / sizeof heads[0]; i++) {
        const struct safetensors_entry *entry = safetensors_find(file, heads[i]);
        if (entry && entry->dims == 2) {
            *classes = (int)entry->shape[0];
        }
    }
    safetensors_close(&file);
    if (*classes < 2) {
        return FAIL(STATUS_INVALID, "%s has no last layer that this program knows",
                    settings.weights);
    }
    return STATUS_OK;
}

static enum status predict_list(const struct file_list *list, const struct checkpoint_model *model)
{
    predictor *p = NULL;
    struct output output = {.model = model};
    TRY(count_classes(model, &output.classes));
    const int batch = list->count < PREDICTOR_BATCH ? (int)list->count : PREDICTOR_BATCH;
    output.top = settings.top_k < output.classes ? settings.top_k : output.classes;
    output.order = calloc((size_t)output.top, sizeof *output.order);
    if (!output.order) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d classes", output.top);
    }
    enum status status = predictor_open(&settings, output.classes, batch, &p);
    if (status == STATUS_OK) {
        status = print_predictions(p, list, batch, &output);
    }
    predictor_close(&p);
    free(output.order);
    return status;
}

static enum status run(char **operands, size_t operand_count)
{
    struct file_list list;
    struct checkpoint_model model;
    memset(&list, 0, sizeof list);
    memset(&model, 0, sizeof model);
    TRY(command_set_log_level(&settings));
    if (settings.json && as_csv) {
        return FAIL(STATUS_USAGE, "--json and --csv exclude each other");
    }
    TRY(command_check_device(&settings));
    TRY(command_take_model(&settings));
    TRY(settings_complete(&settings));
    enum status status = list_operands(&list, operands, operand_count);
    if (status == STATUS_OK) {
        status = checkpoint_read_model(settings.weights, &model);
    }
    if (status == STATUS_OK) {
        status = predict_list(&list, &model);
    }
    checkpoint_model_close(&model);
    list_fini(&list);
    return status;
}

const struct command command_predict = {
    .name = "predict",
    .summary = "the most probable classes of image files",
    .operands = "FILE|DIR...",
    .operands_min = 1,
    .operands_max = -1,
    .details =
        "Examples:\n"
        "  pinline predict --weights run/best.safetensors photo.jpg\n"
        "  pinline predict --weights run/best.safetensors --top-k 1 --csv folder >result.csv\n"
        "\n"
        "A file that cannot be used is named and passed over, and the exit code is 1. Folders\n"
        "are searched for images, in byte order of their paths.",
    .bind = bind,
    .run = run,
};
