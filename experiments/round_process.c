/* Starting this program anew for a round, and the child's side of it. */
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/stop.h"
#include "experiments/ceilings.h"
#include "experiments/round.h"

#define PATH_BYTES 4096
#define MOST_ANSWER_BYTES ((size_t)256 << 20)
#define POLL_NS UINT64_C(20000000)

extern char **environ;

static enum status write_whole(const char *path, const char *text, size_t bytes)
{
    struct file_writer file;
    TRY(file_writer_open(&file, path));
    fwrite(text, 1, bytes, file.stream);
    TRY(file_writer_commit(&file));
    return STATUS_OK;
}

/* Waits for the child; passes a request to stop on to it, since only a signal from the terminal
 * reaches both. */
static enum status wait_for(pid_t child, int *outcome)
{
    bool told = false;
    for (;;) {
        const pid_t done = waitpid(child, outcome, WNOHANG);
        if (done == child) {
            return STATUS_OK;
        }
        if (done < 0 && errno != EINTR) {
            return FAIL(STATUS_INTERNAL, "lost the process of a round: %s", strerror(errno));
        }
        if (stop_requested() && !told) {
            kill(child, SIGTERM);
            told = true;
        }
        clock_sleep_ns(POLL_NS);
    }
}

/* The child's answer, or its failure: {"failed": status, "message": "..."} */
static enum status read_answer(const char *path, int outcome, json_document **answer)
{
    void *text = NULL;
    size_t bytes = 0;
    TRY(stop_check());
    if (!WIFEXITED(outcome)) {
        return FAIL(STATUS_INTERNAL, "the process of a round ended by signal %d (%s)",
                    WTERMSIG(outcome), strsignal(WTERMSIG(outcome)));
    }
    if (WEXITSTATUS(outcome) != 0 || !file_exists(path)) {
        return FAIL(STATUS_IO,
                    "the process of a round left no answer in %s (exit code %d): is the disk full, "
                    "or the folder read-only? What is finished is kept; --resume goes on",
                    path, WEXITSTATUS(outcome));
    }
    TRY(file_read(path, MOST_ANSWER_BYTES, &text, &bytes));
    enum status status = json_parse(text, bytes, answer);
    free(text);
    TRY(status);
    const struct json_value *root = json_root(*answer);
    const int64_t failed = json_member_int(root, "failed", 0);
    if (failed != 0) {
        status = FAIL((enum status)failed, "%s", json_member_string(root, "message", "no message"));
        json_document_destroy(answer);
        return status;
    }
    return STATUS_OK;
}

enum status round_spawn(const char *mode, const char *request, size_t request_bytes,
                        const char *result_path, json_document **answer)
{
    char request_path[PATH_BYTES], answer_path[PATH_BYTES];
    *answer = NULL;
    if (strlen(result_path) + 16 > PATH_BYTES) {
        return FAIL(STATUS_USAGE, "the path %s is too long", result_path);
    }
    snprintf(request_path, sizeof request_path, "%s.request", result_path);
    snprintf(answer_path, sizeof answer_path, "%s.answer", result_path);
    TRY(write_whole(request_path, request, request_bytes));
    unlink(answer_path);
    char program[] = "/proc/self/exe", command[] = "ablate-child", mode_text[16];
    snprintf(mode_text, sizeof mode_text, "%s", mode);
    char *const arguments[] = {program, command, mode_text, request_path, answer_path, NULL};
    pid_t child = 0;
    int outcome = 0;
    const int error = posix_spawn(&child, program, NULL, NULL, arguments, environ);
    enum status status =
        error ? FAIL(STATUS_LIMIT, "cannot start the process of a round: %s", strerror(error))
              : wait_for(child, &outcome);
    if (status == STATUS_OK) {
        status = read_answer(answer_path, outcome, answer);
    }
    unlink(request_path);
    unlink(answer_path);
    return status;
}

static enum status run_request(const char *mode, const struct json_value *request,
                               struct json_writer *writer)
{
    if (strcmp(mode, "round") == 0) {
        return round_run(request, writer);
    }
    if (strcmp(mode, "ceilings") == 0) {
        return ceilings_measure(request, writer);
    }
    return FAIL(STATUS_USAGE, "ablate-child is for `pinline ablate` alone");
}

enum status round_child(const char *mode, const char *request_path, const char *answer_path)
{
    void *text = NULL;
    size_t bytes = 0, answer_bytes = 0;
    char *answer_text = NULL;
    json_document *request = NULL;
    /* A parent that was killed leaves nobody who would want the answer. */
    (void)prctl(PR_SET_PDEATHSIG, SIGTERM);
    TRY(file_read(request_path, MOST_ANSWER_BYTES, &text, &bytes));
    enum status status = json_parse(text, bytes, &request);
    free(text);
    TRY(status);
    const int64_t level = json_member_int(json_root(request), "log", LOG_NORMAL);
    log_set_level(level == LOG_QUIET ? LOG_QUIET : level == LOG_VERBOSE ? LOG_VERBOSE : LOG_NORMAL);
    FILE *memory = open_memstream(&answer_text, &answer_bytes);
    if (!memory) {
        json_document_destroy(&request);
        return FAIL(STATUS_NO_MEMORY, "no memory for the answer of a round");
    }
    struct json_writer writer;
    json_writer_init(&writer, memory, false);
    status = run_request(mode, json_root(request), &writer);
    fclose(memory);
    if (status != STATUS_OK) {
        /* What was written so far is no document; the failure takes its place. */
        free(answer_text);
        answer_text = NULL;
        memory = open_memstream(&answer_text, &answer_bytes);
        if (memory) {
            json_writer_init(&writer, memory, false);
            json_begin_object(&writer);
            json_key_int(&writer, "failed", status);
            json_key_string(&writer, "message", status_message());
            json_end_object(&writer);
            fclose(memory);
        }
    }
    if (answer_text) {
        status = write_whole(answer_path, answer_text, answer_bytes);
    }
    free(answer_text);
    json_document_destroy(&request);
    return status;
}
