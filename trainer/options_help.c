/* Help, man page and completion: everything that is made from the tables for people and shells. */
#include <stdlib.h>
#include <string.h>

#include "trainer/options.h"

#define HELP_COLUMN 30
#define HELP_WIDTH 98

/* "-j, --num-workers N" or "--[no-]shuffle". */
static void describe_flag(const struct option *option, char *text, size_t bytes)
{
    char letter[8] = "";
    if (option->short_name) {
        snprintf(letter, sizeof letter, "-%s, ", option->short_name);
    }
    if (option->kind == OPTION_SWITCH) {
        snprintf(text, bytes, "%s--[no-]%s", letter, option->name);
    } else if (option->kind == OPTION_CHOICE) {
        char choices[160] = "";
        for (size_t i = 0; option->choices[i]; i++) {
            size_t used = strlen(choices);
            snprintf(choices + used, sizeof choices - used, "%s%s", i ? "|" : "",
                     option->choices[i]);
        }
        if (option->bare) {
            snprintf(text, bytes, "%s--[no-]%s [%s]", letter, option->name, choices);
        } else {
            snprintf(text, bytes, "%s--%s %s", letter, option->name, choices);
        }
    } else {
        snprintf(text, bytes, "%s--%s %s", letter, option->name,
                 option->metavar ? option->metavar : "VALUE");
    }
}

/* The present value as text, "" when there is nothing worth showing. */
static void describe_default(const struct option *option, const void *base, char *text,
                             size_t bytes)
{
    text[0] = '\0';
    char *json = NULL;
    size_t json_bytes = 0;
    FILE *stream = open_memstream(&json, &json_bytes);
    if (!stream) {
        return;
    }
    struct option_table one = {NULL, option, 1};
    struct option_binding binding = {&one, NULL};
    /* The writer does not change what it reads. */
    memcpy(&binding.base, &base, sizeof base);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    options_write(&binding, 1, false, &writer);
    fclose(stream);
    const char *colon = json ? strchr(json, ':') : NULL;
    if (colon) {
        const char *value = colon + 1 + strspn(colon + 1, " ");
        size_t length = strlen(value);
        length -= length > 0; /* the closing brace */
        if ((value[0] == '"' || value[0] == '[') && length >= 2) {
            value++;
            length -= 2;
        }
        if (strncmp(value, "null", 4) != 0 && length > 0) {
            snprintf(text, bytes, "%.*s", (int)length, value);
        }
    }
    free(json);
    if (option->kind == OPTION_SWITCH) {
        snprintf(text, bytes, "%s", strcmp(text, "true") == 0 ? "on" : "off");
    }
}

/* Prints `text` from column `column` on, broken at spaces. */
static void print_wrapped(FILE *out, const char *text, int column)
{
    int at = column;
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > column && at + 1 + (int)word > HELP_WIDTH) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        fprintf(out, "%.*s", (int)word, text);
        at += (int)word;
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

static void print_usage(FILE *out, const struct command *command, size_t binding_count)
{
    fprintf(out, "pinline %s%s%s%s", command->name, binding_count ? " [OPTIONS]" : "",
            command->operands ? " " : "", command->operands ? command->operands : "");
}

void options_print_help(FILE *out, const struct command *command,
                        const struct option_binding *bindings, size_t binding_count)
{
    fprintf(out, "Usage: ");
    print_usage(out, command, binding_count);
    fprintf(out, "\n\n%s\n", command->summary);
    for (size_t b = 0; b < binding_count; b++) {
        const struct option_table *table = bindings[b].table;
        fprintf(out, "\n%s:\n", table->title);
        for (size_t i = 0; i < table->count; i++) {
            char flag[256], value[128], text[640];
            describe_flag(&table->options[i], flag, sizeof flag);
            describe_default(&table->options[i], bindings[b].base, value, sizeof value);
            snprintf(text, sizeof text, "%s%s%s%s", table->options[i].help, value[0] ? " [" : "",
                     value, value[0] ? "]" : "");
            int width = fprintf(out, "  %s", flag);
            if (width + 2 > HELP_COLUMN) {
                fprintf(out, "\n%*s", HELP_COLUMN, "");
            } else {
                fprintf(out, "%*s", HELP_COLUMN - width, "");
            }
            print_wrapped(out, text, HELP_COLUMN);
        }
    }
    if (command->details) {
        fprintf(out, "\n%s\n", command->details);
    }
}

void options_print_commands(FILE *out, const struct command *const *commands, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    }
}

/* Text for troff: dashes stay dashes, backslashes and leading dots are no requests. */
static void print_troff(FILE *out, const char *text)
{
    for (const char *at = text; *at; at++) {
        if (*at == '-') {
            fputs("\\-", out);
        } else if (*at == '\\') {
            fputs("\\e", out);
        } else {
            if ((*at == '.' || *at == '\'') && (at == text || at[-1] == '\n')) {
                fputs("\\&", out);
            }
            fputc(*at, out);
        }
    }
}

/* `owner` is the command that a table belongs to where another has the same title, or NULL. */
static void print_man_table(FILE *out, const struct option_binding *binding, const char *owner)
{
    fprintf(out, ".SS %s%s%s%s\n", binding->table->title, owner ? " (" : "", owner ? owner : "",
            owner ? ")" : "");
    for (size_t i = 0; i < binding->table->count; i++) {
        const struct option *option = &binding->table->options[i];
        char flag[256], value[128];
        describe_flag(option, flag, sizeof flag);
        describe_default(option, binding->base, value, sizeof value);
        fprintf(out, ".TP\n.B ");
        print_troff(out, flag);
        fputc('\n', out);
        print_troff(out, option->help);
        if (value[0]) {
            fprintf(out, " (default: ");
            print_troff(out, value);
            fprintf(out, ")");
        }
        fprintf(out, ".\n");
    }
}

void options_print_man(FILE *out, const struct command *const *commands, size_t count)
{
    const struct option_table *seen[64];
    size_t seen_count = 0;
    fprintf(out, ".TH PINLINE 1\n.SH NAME\npinline \\- train image classifiers and measure what "
                 "feeding the GPU costs\n.SH SYNOPSIS\n.B pinline\n.I COMMAND\n[\\fIOPTIONS\\fR] "
                 "[\\fIOPERANDS\\fR]\n.SH COMMANDS\n");
    for (size_t c = 0; c < count; c++) {
        struct option_binding bindings[OPTIONS_MOST_TABLES];
        size_t bound = commands[c]->bind(bindings);
        fprintf(out, ".TP\n.B %s", commands[c]->name);
        if (commands[c]->operands) {
            fprintf(out, " ");
            print_troff(out, commands[c]->operands);
        }
        fputc('\n', out);
        print_troff(out, commands[c]->summary);
        fprintf(out, ".\n");
        for (size_t b = 0; b < bound; b++) {
            fprintf(out, "%s%s", b == 0 ? "Options: " : ", ", bindings[b].table->title);
        }
        fprintf(out, "%s", bound ? ".\n" : "");
    }
    fprintf(out, ".SH OPTIONS\n");
    for (size_t c = 0; c < count; c++) {
        struct option_binding bindings[OPTIONS_MOST_TABLES];
        size_t bound = commands[c]->bind(bindings);
        for (size_t b = 0; b < bound; b++) {
            bool known = false, same_title = false;
            for (size_t s = 0; s < seen_count; s++) {
                known = known || seen[s] == bindings[b].table;
                same_title = same_title || strcmp(seen[s]->title, bindings[b].table->title) == 0;
            }
            if (!known && seen_count < sizeof seen / sizeof seen[0]) {
                seen[seen_count++] = bindings[b].table;
                print_man_table(out, &bindings[b], same_title ? commands[c]->name : NULL);
            }
        }
    }
    fprintf(out, ".SH EXIT STATUS\n");
    static const char *const codes[][2] = {
        {"0", "Success."},
        {"1", "An input, a file or the system is at fault; the message says which."},
        {"2", "An option, a value or a combination of options is wrong."},
        {"3", "The GPU, its driver or one of its libraries failed."},
        {"4", "The loss became infinite or not a number."},
        {"5",
         "Two things that must be equal are not: cells of an experiment, a batch, a checkpoint."},
        {"130, 143", "Stopped by SIGINT or SIGTERM; the state was saved."},
    };
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++) {
        fprintf(out, ".TP\n.B %s\n%s\n", codes[i][0], codes[i][1]);
    }
}

static void print_completion_values(FILE *out, const struct option *option)
{
    fprintf(out, "        --%s) ", option->name);
    if (option->kind == OPTION_CHOICE) {
        fprintf(out, "COMPREPLY=($(compgen -W \"");
        for (size_t i = 0; option->choices[i]; i++) {
            fprintf(out, "%s%s", i ? " " : "", option->choices[i]);
        }
        fprintf(out, "\" -- \"$cur\")); return ;;\n");
    } else if (option->metavar && strcmp(option->metavar, "DIR") == 0) {
        fprintf(out, "COMPREPLY=($(compgen -d -- \"$cur\")); return ;;\n");
    } else if (option->metavar && strcmp(option->metavar, "FILE") == 0) {
        fprintf(out, "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;\n");
    } else {
        fprintf(out, "return ;;\n");
    }
}

void options_print_completion(FILE *out, const struct command *const *commands, size_t count)
{
    fprintf(out, "# bash completion for pinline, made from its option tables\n"
                 "_pinline() {\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    COMPREPLY=()\n"
                 "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                 "        COMPREPLY=($(compgen -W \"help");
    for (size_t c = 0; c < count; c++) {
        fprintf(out, " %s", commands[c]->name);
    }
    fprintf(out, "\" -- \"$cur\")); return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (size_t c = 0; c < count; c++) {
        struct option_binding bindings[OPTIONS_MOST_TABLES];
        size_t bound = commands[c]->bind(bindings);
        fprintf(out, "    %s)\n        case $prev in\n", commands[c]->name);
        for (size_t b = 0; b < bound; b++) {
            for (size_t i = 0; i < bindings[b].table->count; i++) {
                const struct option *option = &bindings[b].table->options[i];
                if (option->kind != OPTION_SWITCH) {
                    print_completion_values(out, option);
                }
            }
        }
        fprintf(out, "        esac\n        case $cur in\n        -*) COMPREPLY=($(compgen -W \"");
        for (size_t b = 0; b < bound; b++) {
            for (size_t i = 0; i < bindings[b].table->count; i++) {
                const struct option *option = &bindings[b].table->options[i];
                fprintf(out, "--%s ", option->name);
                if (option->kind == OPTION_SWITCH ||
                    (option->kind == OPTION_CHOICE && option->bare)) {
                    fprintf(out, "--no-%s ", option->name);
                }
            }
        }
        fprintf(out, "--help\" -- \"$cur\")) ;;\n");
        if (commands[c]->operands) {
            fprintf(out, "        *) COMPREPLY=($(compgen -f -- \"$cur\")) ;;\n");
        }
        fprintf(out, "        esac ;;\n");
    }
    fprintf(out, "    help) COMPREPLY=($(compgen -W \"");
    for (size_t c = 0; c < count; c++) {
        fprintf(out, "%s%s", c ? " " : "", commands[c]->name);
    }
    fprintf(out, "\" -- \"$cur\")) ;;\n    esac\n}\ncomplete -o filenames -F _pinline pinline\n");
}
