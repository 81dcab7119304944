#include "data/synth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "base/thread_pool.h"
#include "data/synth_internal.h"

#define MOST_IMAGES 99999999
#define LEAST_EDGE 8
#define MOST_EDGE 8192
/* Images a thread between two looks at the request to stop. */
#define IMAGES_AT_ONCE 64

static const char *const split_names[] = {"train", "val"};

void synth_settings_defaults(struct synth_settings *settings)
{
    *settings = (struct synth_settings){
        .train_count = 4000,
        .val_count = 1000,
        .width = 32,
        .height = 32,
        .format = SYNTH_PNG,
        .jpeg_quality = 90,
        .threads = 1,
    };
}

static enum status check_settings(const struct synth_settings *settings)
{
    if (settings->folder == NULL || settings->folder[0] == '\0') {
        return FAIL(STATUS_USAGE, "no folder was named for the made images");
    }
    if (settings->train_count < SYNTH_CLASSES || settings->train_count > MOST_IMAGES) {
        return FAIL(STATUS_USAGE, "%zu training images are outside %d (one a class) to %d",
                    settings->train_count, SYNTH_CLASSES, MOST_IMAGES);
    }
    if (settings->val_count != 0 &&
        (settings->val_count < SYNTH_CLASSES || settings->val_count > MOST_IMAGES)) {
        return FAIL(STATUS_USAGE, "%zu validation images are neither 0 nor %d (one a class) to %d",
                    settings->val_count, SYNTH_CLASSES, MOST_IMAGES);
    }
    if (settings->width < LEAST_EDGE || settings->width > MOST_EDGE ||
        settings->height < LEAST_EDGE || settings->height > MOST_EDGE) {
        return FAIL(STATUS_USAGE, "a size of %d x %d is outside %d to %d pixels", settings->width,
                    settings->height, LEAST_EDGE, MOST_EDGE);
    }
    if (settings->format < SYNTH_PNG || settings->format > SYNTH_MIXED) {
        return FAIL(STATUS_USAGE, "format %d is none of png, jpeg, mixed", (int)settings->format);
    }
    if (settings->jpeg_quality < 1 || settings->jpeg_quality > 100) {
        return FAIL(STATUS_USAGE, "a JPEG quality of %d is outside 1 to 100",
                    settings->jpeg_quality);
    }
    if (settings->threads < 1 || settings->threads > 1024) {
        return FAIL(STATUS_USAGE, "%d threads are outside 1 to 1024", settings->threads);
    }
    if (settings->format != SYNTH_PNG && !PINLINE_HAVE_TURBO) {
        return FAIL(STATUS_UNSUPPORTED,
                    "this build has no libjpeg-turbo, so it writes no JPEG; use --format png");
    }
    return STATUS_OK;
}

/* --- What is there already ----------------------------------------------------------------- */

/* Digits and .png or .jpg: a name that synth_write gives. */
static bool is_made_name(const char *name)
{
    const size_t digits = strspn(name, "0123456789");
    return digits >= 6 &&
           (strcmp(name + digits, ".png") == 0 || strcmp(name + digits, ".jpg") == 0);
}

static bool is_class_name(const char *name)
{
    for (int i = 0; i < SYNTH_CLASSES; i++) {
        if (strcmp(name, synth_class_name(i)) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static enum status fail_path(const char *path, const char *verb)
{
    const int reason = errno;
    char quoted[512];
    return FAIL(STATUS_IO, "%s cannot be %s: %s", file_quote(path, quoted, sizeof quoted), verb,
                strerror(reason));
}

/* Walks over the entries of a folder that are not `accept`ed: the first one is named as foreign.
 * With `remove`, accepted ones are removed instead. An absent folder is fine. */
static enum status visit(const char *path, bool (*accept)(const char *), bool remove_files)
{
    DIR *stream = opendir(path);
    if (stream == NULL) {
        return errno == ENOENT ? STATUS_OK : fail_path(path, "listed");
    }
    enum status status = STATUS_OK;
    const struct dirent *entry;
    while (status == STATUS_OK && (entry = readdir(stream)) != NULL) {
        if (is_dots(entry->d_name)) {
            continue;
        }
        if (!accept(entry->d_name)) {
            char quoted[512], name[256];
            status = FAIL(STATUS_INVALID,
                          "%s holds %s, which is no made image; nothing was removed: give another "
                          "folder or move it away",
                          file_quote(path, quoted, sizeof quoted),
                          file_quote(entry->d_name, name, sizeof name));
        } else if (remove_files && unlinkat(dirfd(stream), entry->d_name, 0) != 0) {
            status = fail_path(path, "emptied");
        }
    }
    (void)closedir(stream);
    return status;
}

/* Visits DIR/train/<class> and DIR/val/<class>, and with them what else lies there. */
static enum status visit_made_set(const char *folder, bool remove_files)
{
    for (int split = 0; split < 2; split++) {
        char path[PATH_MAX];
        (void)snprintf(path, sizeof path, "%s/%s", folder, split_names[split]);
        TRY(visit(path, is_class_name, false));
        for (int i = 0; i < SYNTH_CLASSES; i++) {
            char class_path[PATH_MAX];
            (void)snprintf(class_path, sizeof class_path, "%s/%s/%s", folder, split_names[split],
                           synth_class_name(i));
            TRY(visit(class_path, is_made_name, remove_files));
            if (remove_files && rmdir(class_path) != 0 && errno != ENOENT) {
                return fail_path(class_path, "removed");
            }
        }
        if (remove_files && rmdir(path) != 0 && errno != ENOENT) {
            return fail_path(path, "removed");
        }
    }
    return STATUS_OK;
}

static enum status prepare_folder(const struct synth_settings *settings)
{
    char quoted[512];
    (void)file_quote(settings->folder, quoted, sizeof quoted);
    if (strlen(settings->folder) > PATH_MAX - 64) {
        return FAIL(STATUS_USAGE, "the path %s is too long", quoted);
    }
    if (file_exists(settings->folder) && !file_is_folder(settings->folder)) {
        return FAIL(STATUS_INVALID, "%s is a file; give a folder", quoted);
    }
    DIR *stream = opendir(settings->folder);
    if (stream == NULL) {
        if (errno != ENOENT) {
            return fail_path(settings->folder, "listed");
        }
        return STATUS_OK;
    }
    bool any = false;
    const struct dirent *entry;
    while (!any && (entry = readdir(stream)) != NULL) {
        any = !is_dots(entry->d_name);
    }
    (void)closedir(stream);
    if (!any) {
        return STATUS_OK;
    }
    if (!settings->overwrite) {
        return FAIL(STATUS_INVALID,
                    "%s is not empty; give a new folder, or --overwrite to replace a "
                    "made set",
                    quoted);
    }
    TRY(visit_made_set(settings->folder, false));
    TRY(visit_made_set(settings->folder, true));
    return STATUS_OK;
}

static enum status make_folders(const struct synth_settings *settings)
{
    for (int split = 0; split < 2; split++) {
        for (int i = 0; i < SYNTH_CLASSES && (split == 0 || settings->val_count > 0); i++) {
            char path[PATH_MAX];
            (void)snprintf(path, sizeof path, "%s/%s/%s", settings->folder, split_names[split],
                           synth_class_name(i));
            TRY(file_make_folder(path));
        }
    }
    return STATUS_OK;
}

/* --- Writing ------------------------------------------------------------------------------- */

/* Memory of one thread. */
struct scratch {
    uint8_t *pixels;
    struct synth_buffer encoded;
};

struct job {
    const struct synth_settings *settings;
    size_t first;            /* of the images of this run of the pool, counted over both splits */
    struct scratch *scratch; /* one a thread */
    atomic_bool failed;
    atomic_ullong bytes;
    pthread_mutex_t lock; /* guards `failure` */
    struct status_report failure;
};

static enum status write_file(const char *path, const void *data, size_t bytes)
{
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        return fail_path(path, "made");
    }
    const char *at = data;
    while (bytes > 0) {
        const ssize_t written = write(fd, at, bytes);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written < 0) {
            const enum status status = fail_path(path, "written");
            (void)close(fd);
            return status;
        }
        at += written;
        bytes -= (size_t)written;
    }
    if (close(fd) != 0) {
        return fail_path(path, "written");
    }
    return STATUS_OK;
}

static enum status write_image(struct job *job, size_t image, struct scratch *scratch)
{
    const struct synth_settings *settings = job->settings;
    const bool is_train = image < settings->train_count;
    const size_t index = is_train ? image : image - settings->train_count;
    const enum synth_split split = is_train ? SYNTH_TRAIN : SYNTH_VAL;
    const bool jpeg = settings->format == SYNTH_JPEG ||
                      (settings->format == SYNTH_MIXED && index / SYNTH_CLASSES % 2 == 1);
    synth_render(settings, split, index, scratch->pixels);
    TRY(jpeg ? synth_encode_jpeg(scratch->pixels, settings->width, settings->height,
                                 settings->jpeg_quality, &scratch->encoded)
             : synth_encode_png(scratch->pixels, settings->width, settings->height,
                                &scratch->encoded));
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/%s/%s/%06zu.%s", settings->folder, split_names[split],
                   synth_class_name((int)(index % SYNTH_CLASSES)), index, jpeg ? "jpg" : "png");
    TRY(write_file(path, scratch->encoded.data, scratch->encoded.bytes));
    (void)atomic_fetch_add(&job->bytes, scratch->encoded.bytes);
    return STATUS_OK;
}

static void write_part(void *context, int part, int worker)
{
    struct job *job = context;
    if (atomic_load(&job->failed)) {
        return;
    }
    const enum status status = write_image(job, job->first + (size_t)part, &job->scratch[worker]);
    if (status == STATUS_OK) {
        return;
    }
    pthread_mutex_lock(&job->lock);
    if (!atomic_exchange(&job->failed, true)) {
        status_save(&job->failure, status);
    }
    pthread_mutex_unlock(&job->lock);
}

static enum status write_all(struct job *job, thread_pool *pool, size_t count)
{
    const size_t at_once = (size_t)job->settings->threads * IMAGES_AT_ONCE;
    for (job->first = 0; job->first < count; job->first += at_once) {
        TRY(stop_check());
        const size_t left = count - job->first;
        thread_pool_run(pool, (int)(left < at_once ? left : at_once), write_part, job);
        if (atomic_load(&job->failed)) {
            TRY(status_restore(&job->failure));
        }
        if (log_is_terminal()) {
            char text[96];
            (void)snprintf(text, sizeof text, "making images: %zu of %zu",
                           job->first + at_once < count ? job->first + at_once : count, count);
            log_progress(text);
        }
    }
    return STATUS_OK;
}

static enum status open_scratch(struct job *job)
{
    const struct synth_settings *settings = job->settings;
    const size_t bytes = (size_t)settings->width * (size_t)settings->height * 3;
    job->scratch = calloc((size_t)settings->threads, sizeof *job->scratch);
    bool enough = job->scratch != NULL;
    for (int i = 0; enough && i < settings->threads; i++) {
        job->scratch[i].pixels = malloc(bytes);
        enough = job->scratch[i].pixels != NULL;
    }
    if (!enough) {
        return FAIL(STATUS_NO_MEMORY, "no memory for %d images of %d x %d; use fewer threads",
                    settings->threads, settings->width, settings->height);
    }
    return STATUS_OK;
}

static void close_scratch(struct job *job)
{
    for (int i = 0; job->scratch != NULL && i < job->settings->threads; i++) {
        free(job->scratch[i].pixels);
        free(job->scratch[i].encoded.data);
    }
    free(job->scratch);
}

enum status synth_write(const struct synth_settings *settings, struct synth_result *result)
{
    TRY(check_settings(settings));
    TRY(prepare_folder(settings));
    TRY(make_folders(settings));
    const size_t count = settings->train_count + settings->val_count;
    struct job job = {.settings = settings, .lock = PTHREAD_MUTEX_INITIALIZER};
    atomic_init(&job.failed, false);
    atomic_init(&job.bytes, 0);
    thread_pool *pool = NULL;
    enum status status = thread_pool_open(settings->threads, &pool);
    if (status == STATUS_OK) {
        status = open_scratch(&job);
    }
    if (status == STATUS_OK) {
        status = write_all(&job, pool, count);
        log_progress(NULL);
    }
    thread_pool_close(&pool);
    close_scratch(&job);
    (void)pthread_mutex_destroy(&job.lock);
    TRY(status);
    if (result != NULL) {
        *result = (struct synth_result){.files = count, .bytes = atomic_load(&job.bytes)};
    }
    return STATUS_OK;
}
