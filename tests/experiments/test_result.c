/* What a result file must be, what is refused, and what is concluded from rates that are known. */
#include "experiments/result.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "tests/support/made_result.h"

static result *opened;

static enum status open_text(const char *text)
{
    result_close(&opened);
    return result_open(made_result_file(text), &opened);
}

static const struct result_view *open_made(const struct made_result *made)
{
    char *text = made_result_text(made);
    ck_assert_msg(open_text(text) == STATUS_OK, "%s", status_message());
    free(text);
    return result_read_view(opened);
}

static const struct result_view *open_gains(const double gains[6])
{
    struct made_result made;
    made_result_usual(&made, 1000, gains);
    return open_made(&made);
}

static void finish(void)
{
    result_close(&opened);
    made_result_file(NULL);
}

static const double none[6] = {1, 1, 1, 1, 1, 1};

/* --- Malformed files ------------------------------------------------------------------------ */

/* Text in which `from` stands as `to` is refused, with the path and `names` in the message. */
static void check_refused(const char *from, const char *to, const char *names)
{
    struct made_result made;
    made_result_usual(&made, 1000, none);
    char *text = made_result_text(&made);
    char *at = strstr(text, from);
    ck_assert_msg(at != NULL, "the made result lacks %s", from);
    const size_t bytes = strlen(text) + strlen(to) + 1;
    char *changed = malloc(bytes);
    ck_assert_ptr_nonnull(changed);
    snprintf(changed, bytes, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    ck_assert_msg(open_text(changed) == STATUS_INVALID, "%s for %s was taken", to, from);
    ck_assert_ptr_null(opened);
    ck_assert_msg(strstr(status_message(), names) != NULL, "\"%s\" does not name %s",
                  status_message(), names);
    ck_assert_ptr_nonnull(strstr(status_message(), "/tmp/pinline-result-"));
    free(changed);
    free(text);
}

START_TEST(test_malformed_is_refused)
{
    check_refused("\"ablation\"", "\"training\"", "ablate");
    check_refused("\"cells\":[", "\"cellars\":[", "ablate");
    check_refused("\"failures\":[]", "\"failures\":{}", "failures");
    check_refused("\"samples_per_s\":", "\"samples_per_min\":", "samples_per_s");
    check_refused("\"loss_hash\"", "\"loss\"", "hashes");
    check_refused("\"round\":0", "\"round\":1", "rounds");
    check_refused("\"round\":0", "\"round\":-1", "round");
    check_refused("\"name\":\"pin\"", "\"name\":\"default\"", "twice");
    check_refused("\"name\":\"pin\"", "\"name\":7", "name");
    check_refused("{\"pinline\"", "{,\"pinline\"", "line");
    check_refused("{\"pinline\"", "{,\"pinline\"", "is cut, or no result of `pinline ablate`");
    ck_assert_int_eq(open_text("[]"), STATUS_INVALID);
    ck_assert_int_eq(open_text(""), STATUS_INVALID);
    finish();
    ck_assert_int_eq(result_open("/nonexistent/result.json", &opened), STATUS_NOT_FOUND);
}
END_TEST

/* Cut anywhere, a result is refused and nothing crashes. */
START_TEST(test_cut_is_refused)
{
    struct made_result made;
    made_result_usual(&made, 1000, none);
    made.rounds = 2;
    made.cells = 2;
    char *text = made_result_text(&made);
    const size_t bytes = strlen(text);
    for (size_t kept = 0; kept < bytes; kept += 37) {
        char *cut = strndup(text, kept);
        ck_assert_ptr_nonnull(cut);
        ck_assert_int_eq(open_text(cut), STATUS_INVALID);
        free(cut);
    }
    free(text);
    finish();
}
END_TEST

/* --- Conclusions ---------------------------------------------------------------------------- */

START_TEST(test_effects_and_check)
{
    const double gains[6] = {1, 1.5, 1, 2, 2.2, 1};
    const struct result_view *view = open_gains(gains);
    ck_assert_uint_eq(view->rounds, 6);
    ck_assert_uint_eq(view->effect_count, 5);
    ck_assert(view->effects[0].primary);
    ck_assert_str_eq(view->effects[0].name, "both/default");
    ck_assert_double_eq_tol(view->effects[0].ratio.ratio, 2, 0.01);
    ck_assert_double_eq_tol(result_find_effect(view, "pin/default")->ratio.ratio, 1.5, 0.01);
    ck_assert_double_eq_tol(result_find_effect(view, "interaction")->ratio.ratio, 2 / 1.5, 0.01);
    ck_assert_double_eq_tol(result_find_effect(view, "both+stream/both")->ratio.ratio, 1.1, 0.01);
    ck_assert_int_eq(view->effects[0].verdict, VERDICT_WORTH_IT);
    /* The repeated cell belongs to no family. */
    ck_assert_str_eq(view->check.name, "default again/default");
    ck_assert(!effect_is_claimed(&view->check));
    ck_assert_double_eq_tol(view->cells[0].median, 1000, 2);
    ck_assert_double_eq_tol(view->cells[0].epoch_median, 1, 0.01);
    finish();
}
END_TEST

/* What measuring costs is told, and no flag is recommended for it. */
START_TEST(test_instrument_is_no_flag)
{
    struct made_result made = {
        .cells = 2, .rounds = 6, .names = {"both timing=0", "both timing=1"}};
    for (int r = 0; r < 6; r++) {
        made.rates[0][r] = 1000 + r % 3;
        made.rates[1][r] = 990 + r % 2;
    }
    const struct result_view *view = open_made(&made);
    ck_assert_uint_eq(view->effect_count, 1);
    ck_assert_double_eq_tol(view->effects[0].ratio.ratio, 0.9895, 0.001);
    ck_assert_int_eq(strncmp(view->advice.text, "The instrument on against off", 29), 0);
    ck_assert(view->advice.claims);
    finish();
}
END_TEST

START_TEST(test_check_finds_a_difference)
{
    const double gains[6] = {1, 1, 1, 1, 1, 1.04};
    const struct result_view *view = open_gains(gains);
    ck_assert(effect_is_claimed(&view->check));
    finish();
}
END_TEST

static void check_advice(const double gains[6], bool claims, const char *says, const char * not )
{
    const struct result_view *view = open_gains(gains);
    ck_assert_msg(strstr(view->advice.text, says) != NULL, "\"%s\" does not say %s",
                  view->advice.text, says);
    ck_assert_msg(!not || strstr(view->advice.text, not ) == NULL, "\"%s\" says %s",
                  view->advice.text, not );
    ck_assert_int_eq(view->advice.claims, claims);
    finish();
}

START_TEST(test_advice_follows_the_ladder)
{
    check_advice((const double[]){1, 1.05, 1, 1.1, 1.1, 1}, true,
                 "Set --pin-memory --non-blocking: +10.0 %", "dedicated");
    check_advice((const double[]){1, 1.05, 1, 1.1, 1.2, 1}, true,
                 "--copy-stream dedicated: another", NULL);
    check_advice((const double[]){1, 1.1, 1, 1, 1, 1}, true, "Set --pin-memory alone", "dedicated");
    check_advice((const double[]){1, 1, 1, 1, 1.1, 1}, true, "all three: +10.0 %", NULL);
    check_advice((const double[]){1, 1, 1, 0.9, 0.9, 1}, true, "Leave", "Set");
    check_advice((const double[]){1, 1, 1, 1, 1, 1}, true, "Leave the flags as they are", "Set");
    /* A stream that only wins back what both lost is no gain. */
    check_advice((const double[]){1, 1, 1, 0.9, 0.95, 1}, true, "they cost", "all three");
    /* The interval lies across what matters. */
    check_advice((const double[]){1, 1, 1, 1.02, 1.02, 1}, false, "Undecided", "Set");
}
END_TEST

START_TEST(test_no_advice_without_grounds)
{
    struct made_result made;
    const double gains[6] = {1, 1.5, 1, 2, 2.2, 1};
    made_result_usual(&made, 1000, gains);
    made.rounds = 5;
    const struct result_view *view = open_made(&made);
    ck_assert(!view->advice.claims);
    ck_assert_ptr_nonnull(strstr(view->advice.text, "5 rounds of the 6"));
    ck_assert_int_eq(view->effects[0].verdict, VERDICT_NONE);
    made.rounds = 6;
    made.failures = "\"the losses differ\"";
    view = open_made(&made);
    ck_assert_uint_eq(view->failures, 1);
    ck_assert(!view->advice.claims);
    ck_assert_ptr_nonnull(strstr(view->advice.text, "not comparable"));
    made.failures = NULL;
    made.rounds = 0;
    view = open_made(&made);
    ck_assert_uint_eq(view->effect_count, 0);
    ck_assert(!view->advice.claims);
    finish();
}
END_TEST

/* Each value of an axis has its own family, and is held against the first value cell by cell. */
START_TEST(test_axes)
{
    struct made_result made = {.cells = 4,
                               .rounds = 6,
                               .names = {"default num-workers=1", "both num-workers=1",
                                         "default num-workers=4", "both num-workers=4"}};
    for (int r = 0; r < 6; r++) {
        const double wobble = 1 + (r % 2 ? 0.001 : -0.001);
        made.rates[0][r] = 100;
        made.rates[1][r] = 100 * wobble;
        made.rates[2][r] = 300 * wobble;
        made.rates[3][r] = 600 + r;
    }
    const struct result_view *view = open_made(&made);
    ck_assert_uint_eq(view->effect_count, 4);
    ck_assert_str_eq(view->effects[0].name, "both/default at num-workers=1");
    ck_assert(view->effects[0].primary);
    ck_assert_int_eq(view->effects[0].verdict, VERDICT_NOT_WORTH_IT);
    ck_assert_double_eq_tol(result_find_effect(view, "both/default at num-workers=4")->ratio.ratio,
                            2, 0.02);
    ck_assert_double_eq_tol(
        result_find_effect(view, "default: num-workers=4 against num-workers=1")->ratio.ratio, 3,
        0.01);
    ck_assert_double_eq_tol(
        result_find_effect(view, "both: num-workers=4 against num-workers=1")->ratio.ratio, 6, 0.1);
    ck_assert_ptr_nonnull(strstr(view->advice.text, "both: num-workers=4"));
    finish();
}
END_TEST

/* What is undecided is what was varied, not the flags, and an effect that is decided is not it. */
START_TEST(test_undecided_axis)
{
    struct made_result made = {
        .cells = 4,
        .rounds = 6,
        .names = {"pin prefetch=2", "both prefetch=2", "pin prefetch=4", "both prefetch=4"}};
    for (int r = 0; r < 6; r++) {
        const double wobble = 0.05 * (r % 3 - 1);
        made.rates[0][r] = 1000;
        made.rates[1][r] = 1000 * (1 + wobble);
        made.rates[2][r] = 900 + r;
        made.rates[3][r] = 1000;
    }
    const struct result_view *view = open_made(&made);
    ck_assert_int_eq(result_find_effect(view, "pin: prefetch=4 against prefetch=2")->verdict,
                     VERDICT_COSTS);
    ck_assert_ptr_nonnull(strstr(view->advice.text, "Undecided whether what was varied is"));
    ck_assert_ptr_nonnull(strstr(view->advice.text, "both: prefetch=4 against prefetch=2 is"));
    ck_assert_ptr_null(strstr(view->advice.text, "flags"));
    finish();
}
END_TEST

START_TEST(test_dedicated_cells)
{
    struct made_result made = {
        .cells = 3, .rounds = 6, .names = {"default/s", "pin/s", "both+stream"}};
    for (size_t c = 0; c < 3; c++) {
        for (int r = 0; r < 6; r++) {
            made.rates[c][r] = 100 + 10 * (double)c + 0.01 * r;
        }
    }
    const struct result_view *view = open_made(&made);
    ck_assert_uint_eq(view->effect_count, 2);
    ck_assert_str_eq(view->effects[0].name, "both+stream / default/s");
    ck_assert_double_eq_tol(view->effects[0].ratio.ratio, 1.2, 0.001);
    finish();
}
END_TEST

START_TEST(test_peers)
{
    struct made_result made;
    made_result_usual(&made, 1000, none);
    made.extra = ",\"peer\":[{\"name\":\"torch\",\"rates\":[10,30,20]}]";
    const struct result_view *view = open_made(&made);
    ck_assert_uint_eq(view->peer_count, 1);
    ck_assert_str_eq(view->peers[0].name, "torch");
    ck_assert_double_eq(view->peers[0].median, 20);
    ck_assert_double_eq(view->peers[0].lowest, 10);
    ck_assert_double_eq(view->peers[0].highest, 30);
    made.extra = ",\"peer\":[{\"name\":\"torch\",\"rates\":[]}]";
    char *text = made_result_text(&made);
    ck_assert_int_eq(open_text(text), STATUS_INVALID);
    free(text);
    finish();
}
END_TEST

/* 64 bits go through JSON unharmed. */
START_TEST(test_seed_round_trip)
{
    static const uint64_t seeds[] = {0,
                                     1,
                                     UINT64_C(1) << 53,
                                     (UINT64_C(1) << 53) + 1,
                                     INT64_MAX,
                                     (uint64_t)INT64_MAX + 1,
                                     UINT64_MAX};
    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        char *text = NULL;
        size_t bytes = 0;
        FILE *stream = open_memstream(&text, &bytes);
        ck_assert_ptr_nonnull(stream);
        struct json_writer writer;
        json_writer_init(&writer, stream, false);
        json_begin_object(&writer);
        result_write_seed(&writer, seeds[i]);
        json_end_object(&writer);
        fclose(stream);
        json_document *document = NULL;
        ck_assert_int_eq(json_parse(text, bytes, &document), STATUS_OK);
        ck_assert(result_read_seed(json_root(document)) == seeds[i]);
        json_document_destroy(&document);
        free(text);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_malformed_is_refused,
                                  test_cut_is_refused,
                                  test_effects_and_check,
                                  test_instrument_is_no_flag,
                                  test_check_finds_a_difference,
                                  test_advice_follows_the_ladder,
                                  test_no_advice_without_grounds,
                                  test_axes,
                                  test_undecided_axis,
                                  test_dedicated_cells,
                                  test_peers,
                                  test_seed_round_trip};
    return check_run("result", tests, sizeof tests / sizeof tests[0], 0);
}
