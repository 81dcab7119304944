/* The reports' forms: CSV that parses, a page whose tags close and whose names are text, tables that
 * fit, a trace that is JSON. */
#include "experiments/report.h"

#include <stdlib.h>
#include <string.h>

#include "experiments/report_internal.h"
#include "tests/support/check_run.h"
#include "tests/support/made_result.h"

/* Each of <, >, & and quotes would end or begin something in one of the forms. */
#define ODD "odd <b>&\"x\"|"

static result *opened;

static const struct result_view *open_odd(void)
{
    static const double gains[6] = {1, 1.5, 1, 2, 2.2, 1};
    struct made_result made;
    made_result_usual(&made, 1000, gains);
    made.names[2] = ODD;
    made.command = "pinline ablate --data /tmp/<script>&\"'";
    made.extra = ",\"machine\":{\"cpu\":\"a <i>chip</i>\",\"caches\":{\"l3\":1}},"
                 "\"peer\":[{\"name\":\"<u>peer</u>\",\"rates\":[500,600]}]";
    char *text = made_result_text(&made);
    ck_assert_msg(result_open(made_result_file(text), &opened) == STATUS_OK, "%s",
                  status_message());
    free(text);
    return result_read_view(opened);
}

static void finish(void)
{
    result_close(&opened);
    made_result_file(NULL);
}

typedef void (*report_function)(const struct result_view *view, FILE *out);

static char *written(report_function report, const struct result_view *view)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(stream);
    report(view, stream);
    ck_assert_int_eq(fclose(stream), 0);
    ck_assert_uint_eq(strlen(text), bytes);
    return text;
}

/* --- CSV ------------------------------------------------------------------------------------ */

/* The next field by the rules of RFC 4180; *end says what follows it. */
static const char *next_field(const char *at, char *field, size_t room, char *end)
{
    size_t used = 0;
    if (*at == '"') {
        for (at++; *at && !(*at == '"' && at[1] != '"'); at++) {
            at += *at == '"';
            ck_assert_uint_lt(used + 1, room);
            field[used++] = *at;
        }
        ck_assert_int_eq(*at, '"');
        at++;
    } else {
        for (; *at && *at != ',' && *at != '\n'; at++) {
            ck_assert_int_ne(*at, '"');
            ck_assert_uint_lt(used + 1, room);
            field[used++] = *at;
        }
    }
    field[used] = '\0';
    *end = *at;
    ck_assert(*at == ',' || *at == '\n');
    return at + 1;
}

START_TEST(test_csv_parses)
{
    const struct result_view *view = open_odd();
    char *text = written(report_csv, view);
    char field[200], end = '\0';
    int columns = 0, rows = 0, odd = 0;
    for (const char *at = text; *at; rows++) {
        int column = 0;
        do {
            at = next_field(at, field, sizeof field, &end);
            odd += column == 2 && strcmp(field, ODD) == 0;
            if (rows > 0 && column == 3) {
                ck_assert_double_eq_tol(strtod(field, NULL),
                                        view->cells[(rows - 1) % 6].rates[(rows - 1) / 6], 0.01);
            }
            column++;
        } while (end == ',');
        columns = rows == 0 ? column : columns;
        ck_assert_int_eq(column, columns);
    }
    ck_assert_int_eq(rows, 1 + 6 * 6);
    ck_assert_int_eq(odd, 6);
    free(text);
    finish();
}
END_TEST

/* --- The page ------------------------------------------------------------------------------- */

enum { DEPTH = 32 };

/* Every tag that is opened is closed, in order; attributes are quoted; text holds no bare & or <. */
static void check_well_formed(const char *text)
{
    static char open[DEPTH][32];
    int depth = 0;
    const char *at = text + strlen("<!doctype html>");
    ck_assert_int_eq(strncmp(text, "<!doctype html>", strlen("<!doctype html>")), 0);
    while (*at) {
        if (*at == '&') {
            const size_t length = strcspn(at, ";");
            ck_assert_msg(length >= 3 && length <= 7, "a bare & at \"%.30s\"", at);
            at += length + 1;
            continue;
        }
        ck_assert_msg(*at != '>', "a bare > before \"%.30s\"", at);
        if (*at != '<') {
            at++;
            continue;
        }
        const bool closes = at[1] == '/';
        const char *name = at + 1 + closes;
        const size_t length = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789");
        ck_assert_msg(length > 0 && length < sizeof open[0], "no tag at \"%.30s\"", at);
        for (at = name + length; *at && *at != '>'; at++) {
            if (*at == '"') {
                at = strchr(at + 1, '"');
                ck_assert_ptr_nonnull(at);
            }
            ck_assert_int_ne(*at, '<');
        }
        ck_assert_int_eq(*at, '>');
        if (closes) {
            ck_assert_msg(depth > 0 && strlen(open[depth - 1]) == length &&
                              memcmp(open[depth - 1], name, length) == 0,
                          "</%.*s> closes <%s>", (int)length, name, depth ? open[depth - 1] : "");
            depth--;
        } else if (at[-1] != '/') {
            ck_assert_int_lt(depth, DEPTH);
            snprintf(open[depth++], sizeof open[0], "%.*s", (int)length, name);
        }
        at++;
    }
    ck_assert_int_eq(depth, 0);
}

START_TEST(test_page_is_well_formed)
{
    const struct result_view *view = open_odd();
    char *text = written(report_html, view);
    check_well_formed(text);
    static const char *const texts[] = {"odd &lt;b&gt;&amp;&quot;x&quot;|",
                                        "/tmp/&lt;script&gt;&amp;&quot;",
                                        "a &lt;i&gt;chip&lt;/i&gt;",
                                        "&lt;u&gt;peer&lt;/u&gt;",
                                        "more &lt;workers&gt;",
                                        "5 &lt; 6 &amp; 7"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ck_assert_msg(strstr(text, texts[i]) != NULL, "%s is missing", texts[i]);
    }
    /* Nothing is fetched, and nothing runs. */
    static const char *const never[] = {"http:", "https:", "<script", "src=", "@import", "url("};
    for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
        ck_assert_msg(strstr(text, never[i]) == NULL, "%s is there", never[i]);
    }
    ck_assert_ptr_nonnull(strstr(text, "<b>Set --pin-memory --non-blocking"));
    free(text);
    finish();
}
END_TEST

/* Bars of the host's stages fill the width: they sum to wall time. */
START_TEST(test_stage_bars_sum_to_wall_time)
{
    const struct result_view *view = open_odd();
    char *text = written(report_html, view);
    const char *at = strstr(text, "Where the host's thread spends a batch");
    ck_assert_ptr_nonnull(at);
    const char *row = strstr(at, "<svg");
    ck_assert_ptr_nonnull(row);
    const char *row_end = strstr(row, "</svg>");
    double sum = 0;
    for (const char *bar = strstr(row, "width=\""); bar && bar < row_end;
         bar = strstr(bar + 1, "width=\"")) {
        sum += strtod(bar + strlen("width=\""), NULL);
    }
    ck_assert_double_eq_tol(sum, 100, 0.01);
    free(text);
    finish();
}
END_TEST

/* --- Text, Markdown, trace ------------------------------------------------------------------ */

START_TEST(test_text_fits)
{
    static const int widths[] = {100, 80};
    const struct result_view *view = open_odd();
    for (size_t w = 0; w < 2; w++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&text, &bytes);
        ck_assert_ptr_nonnull(stream);
        report_text(view, stream, widths[w]);
        fclose(stream);
        for (const char *line = text; *line;) {
            const int length = (int)strcspn(line, "\n");
            ck_assert_msg(length <= widths[w], "%d columns: %.*s", length, length, line);
            line += length + (line[length] == '\n');
        }
        /* The answer comes first. */
        ck_assert_int_eq(strncmp(text, "Set --pin-memory", strlen("Set --pin-memory")), 0);
        ck_assert_ptr_nonnull(strstr(text, "<u>peer</u>"));
        ck_assert_ptr_nonnull(strstr(text, "default again/default"));
        free(text);
    }
    finish();
}
END_TEST

static char report_bytes[1 << 18];

/* A report as text, valid until the next. */
static const char *text_by(void (*report)(const struct result_view *, FILE *),
                           const struct result_view *view)
{
    FILE *stream = fmemopen(report_bytes, sizeof report_bytes, "w");
    ck_assert_ptr_nonnull(stream);
    report(view, stream);
    fclose(stream);
    return report_bytes;
}

static void report_text_100(const struct result_view *view, FILE *out)
{
    report_text(view, out, 100);
}

/* How often `words` stand after `mark`; -1 without a mark. */
static int count_after(const char *text, const char *mark, const char *words)
{
    int count = -1;
    const char *begin = strstr(text, mark);
    for (const char *at = begin; at; at = strstr(at + 1, words)) {
        count++;
    }
    return count;
}

/* What was not measured is called so, and is no zero. */
START_TEST(test_cell_without_the_instrument)
{
    struct made_result made;
    static const double gains[6] = {1, 1, 1, 2, 2, 1};
    made_result_usual(&made, 1000, gains);
    made.untimed = "pin";
    made.extra = ",\"rounds\":[{\"round\":0,\"wall_s\":10,\"start_s\":1,\"setup_s\":2,"
                 "\"settle_s\":2.5,\"timed_s\":4}]";
    char *source = made_result_text(&made);
    ck_assert_int_eq(result_open(made_result_file(source), &opened), STATUS_OK);
    free(source);
    const struct result_view *view = result_read_view(opened);
    const char *text = text_by(report_text_100, view);
    ck_assert_int_eq(count_after(text, "% of wall time", "not measured"), 1);
    ck_assert_ptr_nonnull(strstr(text,
                                 "A round took 10.0 s: 1.0 s to start and end its process, 2.0 s "
                                 "setting up 6 cells,"));
    text = text_by(report_html, view);
    /* The host's thread and the device. */
    ck_assert_int_eq(count_after(text, "<h2>", "not measured"), 2);
    text = text_by(report_csv, view);
    /* Six rounds without any of the fifteen figures; the made ones have no others. */
    ck_assert_int_eq(count_after(text, "round,", ",,,,,,,,,,,,,,,"), 6);
    finish();
}
END_TEST

START_TEST(test_failures_come_first)
{
    struct made_result made;
    static const double gains[6] = {1, 1, 1, 2, 2, 1};
    made_result_usual(&made, 1000, gains);
    made.failures = "\"the losses of cell \\\"both\\\" differ\"";
    char *source = made_result_text(&made);
    ck_assert_int_eq(result_open(made_result_file(source), &opened), STATUS_OK);
    free(source);
    const struct result_view *view = result_read_view(opened);
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    ck_assert_ptr_nonnull(stream);
    report_text(view, stream, 100);
    fclose(stream);
    ck_assert_int_eq(strncmp(text, "FAILED: the losses", strlen("FAILED: the losses")), 0);
    ck_assert_ptr_null(strstr(text, "the same bits"));
    free(text);
    text = written(report_markdown, view);
    ck_assert_int_eq(strncmp(text, "**FAILED:** the losses", strlen("**FAILED:** the losses")), 0);
    free(text);
    finish();
}
END_TEST

/* Columns of a row of Markdown, bars that are escaped aside. */
static int columns_of(const char *line)
{
    int bars = 0;
    for (; *line && *line != '\n'; line++) {
        if (*line == '\\') {
            line++;
        } else {
            bars += *line == '|';
        }
    }
    return bars - 1;
}

START_TEST(test_markdown_table)
{
    char *text = written(report_markdown, open_odd());
    int rows = 0;
    for (const char *line = strstr(text, "\n| cell"); line && line[1] == '|';
         line = strchr(line + 1, '\n')) {
        ck_assert_msg(columns_of(line + 1) == 9, "%.80s", line + 1);
        rows++;
    }
    ck_assert_int_eq(rows, 2 + 6 + 1);
    ck_assert_ptr_nonnull(strstr(text, "odd \\<b>&\"x\"\\|"));
    free(text);
    finish();
}
END_TEST

START_TEST(test_trace_is_json)
{
    char *text = written(report_trace, open_odd());
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(text, strlen(text), &document), STATUS_OK);
    const struct json_value *events = json_member(json_root(document), "traceEvents");
    ck_assert_ptr_nonnull(events);
    int spans = 0;
    for (size_t i = 0; i < events->count; i++) {
        if (strcmp(json_member_string(&events->items[i], "ph", ""), "X") == 0) {
            spans++;
            /* Microseconds. */
            ck_assert_double_eq_tol(json_member_double(&events->items[i], "ts", 0), 1000, 1e-6);
            ck_assert_double_eq_tol(json_member_double(&events->items[i], "dur", 0), 2000, 1e-6);
        }
    }
    ck_assert_int_eq(spans, 6);
    json_document_destroy(&document);
    free(text);
    finish();
}
END_TEST

/* An interaction is not something to be worth it. */
START_TEST(test_interaction_is_explained)
{
    const struct result_view *view = open_odd();
    struct effect effect = view->effects[0];
    char text[400];
    effect.interaction = true;
    report__effect_text(&effect, 0.02, text, sizeof text);
    ck_assert_ptr_nonnull(strstr(text, "bring more than one after the other"));
    ck_assert_ptr_null(strstr(text, "worth"));
    finish();
}
END_TEST

/* Only so many rounds are proposed as one result can have. */
START_TEST(test_rounds_that_settle)
{
    static const struct {
        int low, high;
        const char *says;
    } cases[] = {{7, 256, "7 to 256 rounds would probably settle it"},
                 {107, 600, "107 rounds may settle it, or more than the 256"},
                 {300, 900, "the 256 rounds of one result would probably not settle it"},
                 {0, 0, "more rounds would probably not settle it"}};
    struct effect effect = {.name = "a/b", .verdict = VERDICT_UNDECIDED, .confidence = 0.95};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[400];
        effect.rounds_low = cases[i].low;
        effect.rounds_high = cases[i].high;
        report__effect_text(&effect, 0.02, text, sizeof text);
        ck_assert_msg(strstr(text, cases[i].says) != NULL, "%s", text);
    }
}
END_TEST

static void compare_with_itself(const struct result_view *view, FILE *out)
{
    report_compare(view, view, "one", "two", out);
}

/* Rates that there are not are no zeros, and rates that say nothing are called so. */
START_TEST(test_comparison_tells_what_rates_are_worth)
{
    static const double gains[6] = {1, 1, 1, 1, 1, 1};
    static const struct {
        int rounds;
        const char *failures, *says, *lacks;
    } cases[] = {{6, NULL, "A: one (6 rounds)\nB: two (6 rounds)\n\n", "FAILED"},
                 {1, NULL, "A: one (1 round)\n", NULL},
                 {0, NULL, "A: one (0 rounds: predictions alone)\n", " 0\n"},
                 {6, "\"the losses differ\"", "   FAILED: the losses differ\nB: two", NULL}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct made_result made;
        made_result_usual(&made, 1000, gains);
        made.rounds = cases[i].rounds;
        made.failures = cases[i].failures;
        char *text = made_result_text(&made);
        ck_assert_int_eq(result_open(made_result_file(text), &opened), STATUS_OK);
        free(text);
        text = written(compare_with_itself, result_read_view(opened));
        ck_assert_msg(strstr(text, cases[i].says) != NULL, "%s", text);
        ck_assert_msg(!cases[i].lacks || strstr(text, cases[i].lacks) == NULL, "%s", text);
        free(text);
        finish();
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_csv_parses,
                                  test_page_is_well_formed,
                                  test_stage_bars_sum_to_wall_time,
                                  test_text_fits,
                                  test_cell_without_the_instrument,
                                  test_failures_come_first,
                                  test_markdown_table,
                                  test_trace_is_json,
                                  test_interaction_is_explained,
                                  test_rounds_that_settle,
                                  test_comparison_tells_what_rates_are_worth};
    return check_run("report", tests, sizeof tests / sizeof tests[0], 0);
}
