#include "device/device_plugin.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "device/device_backend.h"

#define PLUGIN_NAME "pinline_cuda.so"

/* More libraries than CUDA's parts need; it bounds the attempts. */
#define PRELOADS_MAX 32

/* Patterns of folders that hold CUDA's libraries, below a folder that the user names. */
static const char *const named_patterns[] = {
    "%s",
    "%s/lib64",
    "%s/lib",
    "%s/targets/x86_64-linux/lib",
    "%s/nvidia/*/lib",
    "%s/lib/python3*/site-packages/nvidia/*/lib",
    "%s/site-packages/nvidia/*/lib",
};

static const char *const usual_patterns[] = {
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/opt/cuda/lib64",
    "/usr/local/cuda-*/lib64",
    "/usr/local/lib/python3*/dist-packages/nvidia/*/lib",
    "/usr/local/lib/python3*/site-packages/nvidia/*/lib",
    "/usr/lib/python3*/dist-packages/nvidia/*/lib",
    "/opt/conda/lib",
    "/opt/conda/lib/python3*/site-packages/nvidia/*/lib",
};

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The folder of the running executable, without the last slash. */
static bool executable_folder(char folder[PATH_MAX])
{
    ssize_t length = readlink("/proc/self/exe", folder, PATH_MAX - 1);
    if (length <= 0) {
        return false;
    }
    folder[length] = '\0';
    char *slash = strrchr(folder, '/');
    if (slash == NULL) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* The library's path in `path`, or false and the folders that were tried in `tried`. */
static bool find_plugin(char *path, size_t path_bytes, char *tried, size_t tried_bytes)
{
    /* The last serves test programs, which are built two folders down. */
    static const char *const places[] = {"", "/..", "/../lib/pinline", "/../.."};
    char folder[PATH_MAX];
    tried[0] = '\0';
    if (!executable_folder(folder)) {
        snprintf(tried, tried_bytes, "(the executable's own folder is unknown)");
        return false;
    }
    size_t used = 0;
    for (size_t i = 0; i < COUNT(places); i++) {
        int length = snprintf(path, path_bytes, "%s%s/%s", folder, places[i], PLUGIN_NAME);
        if (length > 0 && (size_t)length < path_bytes && file_exists(path)) {
            return true;
        }
        int written = snprintf(tried + used, tried_bytes - used, "%s%s%s", i == 0 ? "" : ", ",
                               folder, places[i]);
        if (written > 0 && (size_t)written < tried_bytes - used) {
            used += (size_t)written;
        }
    }
    return false;
}

/* --- CUDA's libraries in unusual places -------------------------------------------------------- */

/* Opens `library` from the folders that match one pattern; true when it is loaded. It is opened for
 * all, so that the plugin's own need of the same name is met by it. */
static bool preload_from(const char *pattern, const char *library)
{
    glob_t found;
    bool loaded = false;
    if (glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
        return false;
    }
    for (size_t i = 0; i < found.gl_pathc && !loaded; i++) {
        char path[PATH_MAX];
        int length = snprintf(path, sizeof path, "%s/%s", found.gl_pathv[i], library);
        loaded = length > 0 && (size_t)length < sizeof path && file_exists(path) &&
                 dlopen(path, RTLD_NOW | RTLD_GLOBAL) != NULL;
    }
    globfree(&found);
    return loaded;
}

static bool preload(const struct device_settings *settings, const char *library)
{
    if (settings->cuda_libs != NULL) {
        for (size_t i = 0; i < COUNT(named_patterns); i++) {
            char pattern[PATH_MAX];
            char *end = strstr(named_patterns[i], "%s");
            int length = snprintf(pattern, sizeof pattern, "%s%s", settings->cuda_libs, end + 2);
            if (length > 0 && (size_t)length < sizeof pattern && preload_from(pattern, library)) {
                return true;
            }
        }
    }
    for (size_t i = 0; i < COUNT(usual_patterns); i++) {
        if (preload_from(usual_patterns[i], library)) {
            return true;
        }
    }
    return false;
}

/* The name of the library that the dynamic linker misses, from "libx.so.1: cannot open shared
 * object file: ..."; false when the text says something else. A name with a slash is the plugin
 * itself, not something that it needs. */
static bool missing_library(const char *error, char *name, size_t bytes)
{
    const char *colon = strstr(error, ": cannot open shared object file");
    size_t length = colon != NULL ? (size_t)(colon - error) : 0;
    if (length == 0 || length >= bytes || memchr(error, '/', length) != NULL) {
        return false;
    }
    memcpy(name, error, length);
    name[length] = '\0';
    return true;
}

/* --- Opening --------------------------------------------------------------------------------- */

/* ISO C has no conversion from an object pointer to a function pointer; POSIX has the
 * representation. `function` points to the function pointer to set. */
static bool find_symbol(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Opens the library and compares its version. The handle is never closed: CUDA's libraries keep
 * threads and exit handlers. */
static enum status load_plugin(const struct device_settings *settings, void **library)
{
    char path[2 * PATH_MAX];
    char tried[4 * PATH_MAX];
    *library = NULL;
    if (!find_plugin(path, sizeof path, tried, sizeof tried)) {
        return FAIL(STATUS_NOT_FOUND,
                    "the CUDA device is not built or not installed: there is no %s in %.1500s; "
                    "build where CUDA is installed, or use --device host",
                    PLUGIN_NAME, tried);
    }
    for (int attempt = 0; attempt < PRELOADS_MAX; attempt++) {
        *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (*library != NULL) {
            break;
        }
        const char *error = dlerror();
        char reason[512];
        snprintf(reason, sizeof reason, "%s", error != NULL ? error : "no reason given");
        char name[256];
        if (!missing_library(reason, name, sizeof name)) {
            return FAIL(STATUS_NOT_FOUND, "%s cannot be opened: %s", path, reason);
        }
        if (!preload(settings, name)) {
            return FAIL(STATUS_NOT_FOUND,
                        "%s needs %s, which is neither known to the dynamic linker nor in %s or "
                        "the usual places; give its folder with --cuda-libs DIR",
                        path, name,
                        settings->cuda_libs != NULL ? settings->cuda_libs : "(no --cuda-libs)");
        }
    }
    if (*library == NULL) {
        return FAIL(STATUS_NOT_FOUND,
                    "%s needs more libraries than can be found; name their folder with --cuda-libs",
                    path);
    }
    device_plugin_version_function version;
    if (!find_symbol(*library, "pinline_cuda_version", &version) ||
        version() != DEVICE_PLUGIN_VERSION) {
        return FAIL(STATUS_MISMATCH,
                    "%s belongs to another build of pinline: build or install both again", path);
    }
    return STATUS_OK;
}

enum status device__open_plugin(const struct device_settings *settings, device **out)
{
    void *library;
    *out = NULL;
    TRY(load_plugin(settings, &library));
    device_plugin_open_function open_device;
    if (!find_symbol(library, "pinline_cuda_open", &open_device)) {
        return FAIL(STATUS_MISMATCH, "%s has no pinline_cuda_open: build it again", PLUGIN_NAME);
    }
    return open_device(settings, out);
}

void device__plugin_doctor(const struct device_settings *settings, device_doctor_line line,
                           void *context)
{
    void *library;
    if (load_plugin(settings, &library) != STATUS_OK) {
        line(context, true, status_message());
        status_clear();
        return;
    }
    device_plugin_doctor_function doctor;
    if (find_symbol(library, "pinline_cuda_doctor", &doctor)) {
        doctor(settings, line, context);
    }
}
