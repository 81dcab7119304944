/* The command table, and how a command's outcome becomes an exit code. Nothing else. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/status.h"
#include "base/stop.h"
#include "experiments/experiment_commands.h"
#include "trainer/commands.h"
#include "trainer/options.h"

static const struct command *const commands[] = {
    &command_train, &command_ablate, &command_compare, &command_eval,  &command_predict,
    &command_synth, &command_check,  &command_pack,    &command_bench, &command_doctor,
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static void print_overview(FILE *out)
{
    fprintf(out,
            "Usage: pinline COMMAND [OPTIONS] [OPERANDS]\n\n"
            "Trains image classifiers from image files, and tells by measurement what feeding the\n"
            "GPU differently would be worth.\n\nCommands:\n");
    options_print_commands(out, commands, COMMAND_COUNT);
    fprintf(out, "\n`pinline help COMMAND` shows a command's options and their defaults,\n"
                 "`pinline man` the manual page, `pinline completion` a completion for bash.\n");
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(commands[i]->name, name) == 0) {
            return commands[i];
        }
    }
    return NULL;
}

static enum status fail_unknown_command(const char *name)
{
    const char *names[COMMAND_COUNT + 2] = {NULL};
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        names[i] = commands[i]->name;
    }
    names[COMMAND_COUNT] = "help";
    const char *nearest = options_nearest(name, names);
    if (nearest) {
        return FAIL(STATUS_USAGE, "there is no command \"%s\"; did you mean %s?", name, nearest);
    }
    return FAIL(STATUS_USAGE, "there is no command \"%s\" (`pinline help` lists them)", name);
}

static enum status print_help_of(const char *name)
{
    const struct command *command = find_command(name);
    if (!command) {
        return fail_unknown_command(name);
    }
    struct option_binding bindings[OPTIONS_MOST_TABLES];
    size_t count = command->bind(bindings);
    options_print_help(stdout, command, bindings, count);
    return STATUS_OK;
}

static bool is_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static enum status run_command(const struct command *command, char **argv, int argc)
{
    for (int i = 0; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (is_help(argv[i])) {
            return print_help_of(command->name);
        }
    }
    struct option_binding bindings[OPTIONS_MOST_TABLES];
    size_t count = command->bind(bindings);
    size_t operands = 0;
    TRY(options_parse(command, bindings, count, argv, argc, &operands));
    TRY(command->run(argv, operands));
    return STATUS_OK;
}

/* The words that are no commands of the table; `most` is how many words each takes after it. */
static enum status check_words(int argc, char **argv)
{
    static const struct {
        const char *name;
        int most;
    } rules[] = {{"help", 1},      {"--help", 1}, {"-h", 1},        {"version", 0},
                 {"--version", 0}, {"man", 0},    {"completion", 0}};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (strcmp(argv[1], rules[i].name) == 0 && argc > 2 + rules[i].most) {
            return FAIL(STATUS_USAGE, "`pinline %s` does not know what to do with \"%s\"; %s",
                        argv[1], argv[2 + rules[i].most],
                        rules[i].most > 0 ? "it takes the name of one command" : "leave it out");
        }
    }
    return STATUS_OK;
}

static enum status dispatch(int argc, char **argv)
{
    const char *word = argv[1];
    TRY(check_words(argc, argv));
    if (is_help(word) || strcmp(word, "help") == 0) {
        if (argc > 2) {
            TRY(print_help_of(argv[2]));
        } else {
            print_overview(stdout);
        }
    } else if (strcmp(word, "--version") == 0 || strcmp(word, "version") == 0) {
        printf("pinline %s\n", PINLINE_VERSION);
    } else if (strcmp(word, "man") == 0) {
        options_print_man(stdout, commands, COMMAND_COUNT);
    } else if (strcmp(word, "completion") == 0) {
        options_print_completion(stdout, commands, COMMAND_COUNT);
    } else {
        const struct command *command = strcmp(word, command_ablate_child.name) == 0
                                            ? &command_ablate_child
                                            : find_command(word);
        if (!command) {
            return fail_unknown_command(word);
        }
        TRY(run_command(command, argv + 2, argc - 2));
    }
    return STATUS_OK;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_overview(stderr);
        return status_exit_code(STATUS_USAGE);
    }
    stop_install();
    enum status status = dispatch(argc, argv);
    if (status == STATUS_OK && (fflush(stdout) != 0 || ferror(stdout))) {
        status = FAIL(STATUS_IO, "cannot write to standard output: %s", strerror(errno));
    }
    log_progress(NULL);
    if (status != STATUS_OK) {
        log_error("%s", status_message());
        if (log_get_level() == LOG_VERBOSE && status_trace_text()[0]) {
            log_verbose("%s", status_trace_text());
        }
    }
    if (status == STATUS_INTERRUPTED && stop_signal() != 0) {
        return 128 + stop_signal();
    }
    return status_exit_code(status);
}
