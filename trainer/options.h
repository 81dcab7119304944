/*
 * Command-line options from tables. One table entry is the only place that knows an option: parsing,
 * range, default, --help, man page, shell completion, and the settings block of results all come
 * from it. Layers above (experiments) bring tables of their own.
 */
#ifndef PINLINE_TRAINER_OPTIONS_H
#define PINLINE_TRAINER_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/json.h"
#include "base/status.h"

enum option_kind {
    OPTION_SWITCH, /* bool; --name, --no-name, --name=true|false */
    OPTION_INT,    /* int, within low .. high */
    OPTION_LONG,   /* int64_t, within low .. high */
    OPTION_SEED,   /* uint64_t */
    OPTION_COUNT,  /* size_t; plain number */
    OPTION_BYTES,  /* size_t; number with optional KiB, MiB, GiB or K, M, G (powers of 1024) */
    OPTION_DOUBLE, /* double, within low .. high */
    OPTION_TEXT,   /* const char *, borrowed */
    OPTION_CHOICE, /* an enum (int): `choices` lists "name" for 0, 1, 2, ...; a switch-like choice
                      also takes the bare --name (value `bare`) and --no-name (value 0) */
    OPTION_FLOAT3, /* float[3]; one number for all, or three with commas */
    OPTION_CUSTOM  /* parsed and written by functions */
};

struct option {
    const char *name;       /* "num-workers", without dashes */
    const char *short_name; /* "j" or NULL: also -j */
    enum option_kind kind;
    size_t offset;              /* of the field in the table's struct */
    double low, high;           /* INT, LONG, DOUBLE: inclusive; both 0: unlimited */
    const char *const *choices; /* CHOICE: names, NULL at the end */
    int bare;                   /* CHOICE: value of the bare flag; 0: a value is required */
    const char *metavar;        /* "N", "DIR"; NULL for switches */
    const char *help;  /* one or two sentences, lower case start, no full stop at the end */
    bool repeats;      /* CUSTOM: may be given several times, each a value of its own */
    bool not_compared; /* not part of what an experiment's cells must share (paths, output) */
    enum status (*parse)(void *field, const char *text);          /* CUSTOM */
    void (*write)(const void *field, struct json_writer *writer); /* CUSTOM */
};

/* A titled table over one struct; `base` is filled in when it is used. */
struct option_table {
    const char *title; /* "Loading", as in --help */
    const struct option *options;
    size_t count;
};

/* The options of `from` that `names` (NULL at the end) lists, in that order: fills `options`, with room
 * for all of them, and a table over it. */
void options_pick(const struct option_table *from, const char *const *names, struct option *options,
                  struct option_table *table);

/* A table together with the struct that it fills. */
struct option_binding {
    const struct option_table *table;
    void *base;
};

/* Tables that one command may have. */
#define OPTIONS_MOST_TABLES 24

/* A subcommand. */
struct command {
    const char *name;               /* "train" */
    const char *summary;            /* one line */
    const char *operands;           /* "FILE...", "DIR", NULL when it takes none */
    int operands_min, operands_max; /* -1: any number */
    const char *details; /* further paragraphs of its help: examples, exit codes; NULL none */
    /* Fills *bindings (at most OPTIONS_MOST_TABLES) with this command's tables over its own settings, defaults already
     * set; called once before parsing or printing help. Returns the number. */
    size_t (*bind)(struct option_binding *bindings);
    /* Runs with what was parsed. */
    enum status (*run)(char **operands, size_t operand_count);
};

/*
 * Parses argv[0 .. argc-1] (the words after the command). Values as --name VALUE or --name=VALUE;
 * `--` ends options. Operands are put to the front of argv and counted. STATUS_USAGE: unknown option
 * (naming the nearest known one), missing or malformed value (showing what is accepted), a value for
 * a switch that takes none, an option given twice with different values.
 */
enum status options_parse(const struct command *command, const struct option_binding *bindings,
                          size_t binding_count, char **argv, int argc,
                          size_t *operand_count) MUST_USE;

/* Sets one option by name, as the axes of an experiment do. STATUS_USAGE. */
enum status options_set(const struct option_binding *bindings, size_t binding_count,
                        const char *name, const char *value) MUST_USE;

/* Whether the option was given on the command line of the last options_parse. */
bool options_was_given(const char *name);

/* Writes the value of every option as an object {"num-workers": 4, ...}; with `compared_only`, those
 * that an experiment's cells must share. */
void options_write(const struct option_binding *bindings, size_t binding_count, bool compared_only,
                   struct json_writer *writer);

/* Reads such an object back (resume, child processes). STATUS_INVALID names what is unknown or out
 * of range. Strings are copied into memory that lives as long as the process. */
enum status options_read(const struct option_binding *bindings, size_t binding_count,
                         const struct json_value *object) MUST_USE;

/* --help of one command; the list of commands; man page (troff) and bash completion of all. */
void options_print_help(FILE *out, const struct command *command,
                        const struct option_binding *bindings, size_t binding_count);
void options_print_commands(FILE *out, const struct command *const *commands, size_t count);
void options_print_man(FILE *out, const struct command *const *commands, size_t count);
void options_print_completion(FILE *out, const struct command *const *commands, size_t count);

/* The nearest of `names` (NULL at the end) to `text` by edit distance, NULL when none is near. */
const char *options_nearest(const char *text, const char *const *names);

#endif
