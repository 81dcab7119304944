#include "trainer/options.h"

#include <string.h>

#include "trainer/options_internal.h"

#define MAX_GIVEN 256
#define VALUE_TEXT_BYTES 512

/* What the last parse found, for options_was_given and for contradictions. Written by the main
 * thread alone, before any other is started. */
static struct {
    const struct option *option;
    char value[VALUE_TEXT_BYTES];
} given[MAX_GIVEN];
static size_t given_count;

/* --- Looking up ----------------------------------------------------------------------------- */

const struct option *options__find(const struct option_binding *bindings, size_t binding_count,
                                   const char *name, size_t length, void **base)
{
    for (size_t b = 0; b < binding_count; b++) {
        const struct option_table *table = bindings[b].table;
        for (size_t i = 0; i < table->count; i++) {
            const struct option *option = &table->options[i];
            if (strlen(option->name) == length && memcmp(option->name, name, length) == 0) {
                *base = bindings[b].base;
                return option;
            }
        }
    }
    return NULL;
}

static const struct option *find_short(const struct option_binding *bindings, size_t binding_count,
                                       const char *letter, void **base)
{
    for (size_t b = 0; b < binding_count; b++) {
        const struct option_table *table = bindings[b].table;
        for (size_t i = 0; i < table->count; i++) {
            const struct option *option = &table->options[i];
            if (option->short_name && strcmp(option->short_name, letter) == 0) {
                *base = bindings[b].base;
                return option;
            }
        }
    }
    return NULL;
}

void options_pick(const struct option_table *from, const char *const *names, struct option *options,
                  struct option_table *table)
{
    *table = (struct option_table){.title = from->title, .options = options};
    for (; *names; names++) {
        for (size_t i = 0; i < from->count; i++) {
            if (strcmp(from->options[i].name, *names) == 0) {
                options[table->count++] = from->options[i];
            }
        }
    }
}

/* Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). */
static int edit_distance(const char *a, const char *b)
{
    enum { LONGEST = 48 };
    int rows[3][LONGEST + 1];
    int la = (int)strlen(a), lb = (int)strlen(b);
    if (la > LONGEST || lb > LONGEST) {
        return LONGEST;
    }
    for (int j = 0; j <= lb; j++) {
        rows[0][j] = j;
    }
    for (int i = 1; i <= la; i++) {
        int *row = rows[i % 3], *above = rows[(i + 2) % 3], *above2 = rows[(i + 1) % 3];
        row[0] = i;
        for (int j = 1; j <= lb; j++) {
            int best = above[j - 1] + (a[i - 1] != b[j - 1]);
            if (above[j] + 1 < best) {
                best = above[j] + 1;
            }
            if (row[j - 1] + 1 < best) {
                best = row[j - 1] + 1;
            }
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                above2[j - 2] + 1 < best) {
                best = above2[j - 2] + 1;
            }
            row[j] = best;
        }
    }
    return rows[la % 3][lb];
}

const char *options_nearest(const char *text, const char *const *names)
{
    const char *nearest = NULL;
    int best = 1 + (int)strlen(text) / 3;
    for (size_t i = 0; names[i]; i++) {
        int distance = edit_distance(text, names[i]);
        /* Half a name is as good as one wrong letter: "workers" for "num-workers". */
        for (const char *part = strchr(names[i], '-'); part && strlen(text) >= 4;
             part = strchr(part + 1, '-')) {
            const int rest = 1 + edit_distance(text, part + 1);
            distance = rest < distance ? rest : distance;
        }
        if (distance > 1 && strlen(text) >= 4 && strstr(names[i], text)) {
            distance = 1;
        }
        if (distance <= best && (!nearest || distance < best)) {
            best = distance;
            nearest = names[i];
        }
    }
    return nearest;
}

static bool has_negation(const struct option *option)
{
    return option->kind == OPTION_SWITCH || (option->kind == OPTION_CHOICE && option->bare != 0);
}

static enum status fail_unknown(const struct command *command,
                                const struct option_binding *bindings, size_t binding_count,
                                const char *word)
{
    const char *names[MAX_GIVEN * 2 + 1];
    char negations[MAX_GIVEN][48];
    size_t count = 0, negated = 0;
    for (size_t b = 0; b < binding_count; b++) {
        for (size_t i = 0; i < bindings[b].table->count && negated < MAX_GIVEN; i++) {
            const struct option *option = &bindings[b].table->options[i];
            names[count++] = option->name;
            if (has_negation(option)) {
                snprintf(negations[negated], sizeof negations[0], "no-%s", option->name);
                names[count++] = negations[negated++];
            }
        }
    }
    names[count] = NULL;
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word + 2, "="), word + 2);
    const char *nearest = options_nearest(name, names);
    if (nearest) {
        return FAIL(STATUS_USAGE,
                    "unknown option --%s; did you mean --%s? (`pinline help %s` lists all)", name,
                    nearest, command->name);
    }
    return FAIL(STATUS_USAGE, "unknown option --%s (`pinline help %s` lists all)", name,
                command->name);
}

/* --- Parsing -------------------------------------------------------------------------------- */

static enum status remember(const struct option *option, const char *value)
{
    for (size_t i = 0; i < given_count; i++) {
        if (given[i].option == option && !option->repeats) {
            if (strcmp(given[i].value, value) != 0) {
                return FAIL(STATUS_USAGE, "--%s is given twice, as \"%s\" and as \"%s\"",
                            option->name, given[i].value, value);
            }
            return STATUS_OK;
        }
    }
    if (given_count == MAX_GIVEN) {
        return FAIL(STATUS_USAGE, "more than %d options", MAX_GIVEN);
    }
    given[given_count].option = option;
    snprintf(given[given_count].value, VALUE_TEXT_BYTES, "%s", value);
    given_count++;
    return STATUS_OK;
}

bool options_was_given(const char *name)
{
    for (size_t i = 0; i < given_count; i++) {
        if (strcmp(given[i].option->name, name) == 0) {
            return true;
        }
    }
    return false;
}

static bool is_choice(const struct option *option, const char *text)
{
    for (size_t i = 0; option->choices[i]; i++) {
        if (strcmp(option->choices[i], text) == 0) {
            return true;
        }
    }
    return false;
}

/* One word that begins with a dash, and the word after it where that is its value. */
static enum status parse_option(const struct command *command,
                                const struct option_binding *bindings, size_t binding_count,
                                char **argv, int argc, int *at)
{
    char *word = argv[*at];
    void *base = NULL;
    const struct option *option;
    const char *value = NULL;
    if (word[1] != '-') {
        option = find_short(bindings, binding_count, word + 1, &base);
        if (!option) {
            return FAIL(STATUS_USAGE,
                        "unknown option %s (`pinline help %s` lists all; put -- in "
                        "front of names that begin with a dash)",
                        word, command->name);
        }
    } else {
        size_t length = strcspn(word + 2, "=");
        option = options__find(bindings, binding_count, word + 2, length, &base);
        if (word[2 + length] == '=') {
            value = word + 3 + length;
        }
        if (!option && strncmp(word + 2, "no-", 3) == 0) {
            option = options__find(bindings, binding_count, word + 5, length - 3, &base);
            if (option && has_negation(option)) {
                if (value) {
                    return FAIL(STATUS_USAGE, "--no-%s takes no value", option->name);
                }
                value = option->kind == OPTION_SWITCH ? "false" : option->choices[0];
                TRY(remember(option, value));
                return options__set_text(option, base, value);
            }
            option = NULL;
        }
        if (!option) {
            return fail_unknown(command, bindings, binding_count, word);
        }
    }
    if (!value && option->kind == OPTION_SWITCH) {
        value = "true";
    } else if (!value && option->kind == OPTION_CHOICE && option->bare != 0) {
        bool next_is_value = *at + 1 < argc && is_choice(option, argv[*at + 1]);
        value = next_is_value ? argv[++*at] : option->choices[option->bare];
    } else if (!value) {
        if (*at + 1 >= argc) {
            return FAIL(STATUS_USAGE, "--%s needs a value: %s", option->name, option->help);
        }
        value = argv[++*at];
    }
    TRY(remember(option, value));
    return options__set_text(option, base, value);
}

enum status options_parse(const struct command *command, const struct option_binding *bindings,
                          size_t binding_count, char **argv, int argc, size_t *operand_count)
{
    given_count = 0;
    size_t operands = 0;
    bool options_ended = false;
    for (int i = 0; i < argc; i++) {
        char *word = argv[i];
        if (options_ended || word[0] != '-' || word[1] == '\0') {
            argv[operands++] = word;
        } else if (strcmp(word, "--") == 0) {
            options_ended = true;
        } else {
            TRY(parse_option(command, bindings, binding_count, argv, argc, &i));
        }
    }
    *operand_count = operands;
    if (operands < (size_t)command->operands_min) {
        return FAIL(STATUS_USAGE, "`pinline %s` needs %s (see `pinline help %s`)", command->name,
                    command->operands, command->name);
    }
    if (command->operands_max >= 0 && operands > (size_t)command->operands_max) {
        return FAIL(STATUS_USAGE, "`pinline %s` does not know what to do with \"%s\"%s",
                    command->name, argv[command->operands_max],
                    command->operands_max == 0 ? "; folders and files are given by options" : "");
    }
    return STATUS_OK;
}

enum status options_set(const struct option_binding *bindings, size_t binding_count,
                        const char *name, const char *value)
{
    void *base = NULL;
    const struct option *option = options__find(bindings, binding_count, name, strlen(name), &base);
    if (!option) {
        return FAIL(STATUS_USAGE, "there is no option --%s here", name);
    }
    return options__set_text(option, base, value);
}
