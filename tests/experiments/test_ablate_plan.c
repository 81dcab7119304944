/* How a budget is divided, what stands for a model that is not ours, what spread a ring's reader
 * feels, and the diagnosis of jobs that are bound by a known part. */
#include "experiments/ablate_internal.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "experiments/ceilings.h"
#include "experiments/ceilings_internal.h"
#include "tests/support/check_run.h"

/* --- Budgets -------------------------------------------------------------------------------- */

/* Six cells of 10 s an epoch together and 5 s of settling; 64,000 samples, batches of 64. */
static struct ablate_fit fit(double seconds, int rounds, int epochs)
{
    const struct ablate_budget in = {.seconds = seconds,
                                     .fixed_s = 5,
                                     .sum_s = 10,
                                     .rounds = rounds,
                                     .epochs = epochs,
                                     .samples = 64000,
                                     .batch = 64};
    struct ablate_fit out;
    ablate__fit_budget(&in, &out);
    return out;
}

static void check_fit(struct ablate_fit found, int rounds, int epochs, int64_t limit)
{
    ck_assert_int_eq(found.rounds, rounds);
    ck_assert_int_eq(found.epochs, epochs);
    ck_assert_int_eq(found.limit, limit);
}

START_TEST(test_budget)
{
    /* 6 rounds of 5 + 3 x 10 s. */
    check_fit(fit(210, 6, 3), 6, 3, 0);
    /* Epochs are given up first: 6 x (5 + 2 x 10) = 150. */
    check_fit(fit(209, 6, 3), 6, 2, 0);
    check_fit(fit(90, 6, 3), 6, 1, 0);
    /* Then samples, in whole batches: 6 x (5 + 5) = 60 leaves half an epoch. */
    check_fit(fit(60, 6, 3), 6, 1, 32000);
    check_fit(fit(36, 6, 1), 6, 1, 6400);
    /* Ten batches stay; 0.1 s of cells a round. Then rounds go, down to two. */
    check_fit(fit(27, 6, 1), 5, 1, 640);
    check_fit(fit(12, 6, 1), 2, 1, 640);
    check_fit(fit(1, 6, 1), 2, 1, 640);
}
END_TEST

START_TEST(test_budget_of_a_small_set)
{
    const struct ablate_budget in = {.seconds = 10,
                                     .fixed_s = 1,
                                     .sum_s = 4,
                                     .rounds = 6,
                                     .epochs = 1,
                                     .samples = 640,
                                     .batch = 64};
    struct ablate_fit out;
    ablate__fit_budget(&in, &out);
    /* Ten batches are an epoch already. */
    check_fit(out, 2, 1, 0);
}
END_TEST

/* --- Emulation ------------------------------------------------------------------------------ */

START_TEST(test_batch_bytes)
{
    struct ablate_settings settings;
    ablate_settings_defaults(&settings);
    settings.job.loader.batch_size = 64;
    settings.step_ms = 35;
    settings.batch_bytes = 9633792; /* 64 x 224 x 224 x 3 */
    ck_assert_int_eq(ablate_apply_emulation(&settings), STATUS_OK);
    ck_assert_int_eq(settings.job.loader.size, 224);
    ck_assert_double_eq_tol(settings.job.step_seconds, 0.035, 1e-12);
    settings.job.loader.transfer = TRANSFER_F32;
    ck_assert_int_eq(ablate_apply_emulation(&settings), STATUS_OK);
    ck_assert_int_eq(settings.job.loader.size, 112);
    settings.batch_bytes = 100;
    ck_assert_int_eq(ablate_apply_emulation(&settings), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "12288")); /* 64 x 4 x 4 x 12 */
    settings.batch_bytes = INT64_C(1) << 50;
    ck_assert_int_eq(ablate_apply_emulation(&settings), STATUS_USAGE);
}
END_TEST

/* --- Spread --------------------------------------------------------------------------------- */

START_TEST(test_spread)
{
    enum { COUNT = 4000, SLOTS = 8 };
    static double times[COUNT];
    double mean, spread;
    struct rng rng;
    rng_init(&rng, 7, RNG_TEST, 0, 0);
    for (int i = 0; i < COUNT; i++) {
        times[i] = 0.01 * (1 + 0.2 * rng_normal(&rng));
    }
    ceilings__summarise(times, COUNT, SLOTS, &mean, &spread);
    ck_assert_double_eq_tol(mean, 0.01, 0.0002);
    ck_assert_double_eq_tol(spread, 0.2, 0.03);
    /* Bursts within the ring, as of a ring that gives out what it has and then waits: the reader of a
     * ring of eight feels none of it. */
    for (int i = 0; i < COUNT; i++) {
        times[i] = i % SLOTS == 0 ? 0.08 : 0;
    }
    ceilings__summarise(times, COUNT, SLOTS, &mean, &spread);
    ck_assert_double_eq_tol(mean, 0.01, 1e-9);
    ck_assert_double_eq_tol(spread, 0, 1e-9);
    /* A tenth of the times disturbed, in one piece: neither mean nor spread follows. */
    for (int i = 0; i < COUNT; i++) {
        times[i] = i < COUNT / 10 ? 1 : 0.01;
    }
    ceilings__summarise(times, COUNT, SLOTS, &mean, &spread);
    ck_assert_double_eq_tol(mean, 0.01, 1e-9);
    ck_assert_double_eq_tol(spread, 0, 1e-9);
    /* Few times are taken as they are. */
    ceilings__summarise((const double[]){1, 2, 3}, 3, 8, &mean, &spread);
    ck_assert_double_eq_tol(mean, 2, 1e-12);
    ck_assert_double_eq(spread, 0);
}
END_TEST

/* --- Reading ceilings ----------------------------------------------------------------------- */

static struct predict_ceilings ceilings_with(const char *members, bool pin, bool no_workers)
{
    char text[400];
    json_document *document = NULL;
    struct predict_ceilings out;
    snprintf(text, sizeof text, "{\"loader_s\":3,%s\"copy_pageable_s\":10,\"copy_locked_s\":1}",
             members);
    ck_assert_int_eq(json_parse(text, strlen(text), &document), STATUS_OK);
    ceilings_read(json_root(document), 7, pin, no_workers, &out);
    json_document_destroy(&document);
    return out;
}

static struct predict_ceilings ceilings_of(const char *members, bool pin)
{
    return ceilings_with(members, pin, false);
}

/* What the loader took beside copies holds their calls, where it runs in the thread that makes them. */
START_TEST(test_ceilings_without_workers)
{
    const char *all = "\"loader_pinned_s\":2,\"loader_copying_s\":12.8,\"call_pageable_s\":9.5,"
                      "\"loader_copying_pinned_s\":2.7,\"call_locked_s\":0.25,\"step_s\":5,";
    struct predict_ceilings in = ceilings_with(all, false, true);
    ck_assert(in.no_workers);
    /* Nothing is decoded beside a pageable copy. */
    ck_assert_double_eq(in.loader_s, 3);
    in = ceilings_with(all, true, true);
    ck_assert_double_eq_tol(in.loader_s, 2.45, 1e-12);
    ck_assert_double_eq(in.loader_quiet_s, 2);
    ck_assert(!ceilings_with(all, true, false).no_workers);
    /* Copies that set the pace hide it. */
    in = ceilings_with("\"loader_pinned_s\":0.5,\"loader_copying_pinned_s\":1.02,", true, true);
    ck_assert_double_eq(in.loader_s, 0.5);
}
END_TEST

/* Each cell has the loader and the step of its own kind of memory. Copies slow the loader down; where
 * they set the pace, its own time is what it has without them. */
START_TEST(test_ceilings_of_each_kind)
{
    const char *all = "\"loader_pinned_s\":2,\"loader_copying_s\":10.2,"
                      "\"loader_copying_pinned_s\":4,\"step_s\":5,\"step_pinned_s\":6,";
    struct predict_ceilings in = ceilings_of(all, false);
    ck_assert_double_eq(in.loader_s, 3);
    ck_assert_double_eq(in.loader_quiet_s, 3);
    ck_assert_double_eq(in.step_s, 5);
    in = ceilings_of(all, true);
    ck_assert_double_eq(in.loader_s, 4);
    ck_assert_double_eq(in.loader_quiet_s, 2);
    ck_assert_double_eq(in.step_s, 6);
    /* Steps that agree are one step measured twice. */
    const char *agree = "\"step_s\":5,\"step_pinned_s\":5.2,";
    ck_assert_double_eq_tol(ceilings_of(agree, false).step_s, 5.1, 1e-12);
    ck_assert_double_eq_tol(ceilings_of(agree, true).step_s, 5.1, 1e-12);
    /* So are loaders, whose rates wander more. */
    ck_assert_double_eq_tol(ceilings_of("\"loader_pinned_s\":3.4,", false).loader_s, 3.2, 1e-12);
    ck_assert_double_eq_tol(ceilings_of("\"loader_pinned_s\":3.4,", true).loader_s, 3.2, 1e-12);
    ck_assert_double_eq_tol(ceilings_of("\"loader_pinned_s\":3.4,", true).loader_quiet_s, 3.2,
                            1e-12);
    in = ceilings_of("\"loader_copying_s\":11,\"step_s\":5,", false);
    ck_assert_double_eq(in.loader_s, 11);
    /* A result that does not tell the kinds apart. */
    in = ceilings_of("\"step_s\":5,", true);
    ck_assert_double_eq(in.loader_s, 3);
    ck_assert_double_eq(in.step_s, 5);
    ck_assert_int_eq(in.batches, 7);
}
END_TEST

/* --- Diagnosis ------------------------------------------------------------------------------ */

/* The cells of the ablation that is diagnosed; none: whatever cells there are. */
static struct cells_request cells;
static bool predict_only;

/* Milliseconds of loader, step, issuing, pageable and page-locked copy. */
static json_document *diagnose(double decode, double step, double issue, double pageable,
                               double locked, struct settings *job)
{
    char text[800];
    json_document *found = NULL, *answer = NULL;
    snprintf(text, sizeof text,
             "{\"ceilings\":{\"loader_s\":%g,\"step_s\":%g,\"issue_s\":%g,\"copy_pageable_s\":%g,"
             "\"copy_locked_s\":%g,\"decode_share\":0.8,\"read_share\":0.1,\"slots\":8,"
             "\"pageable_drains\":true},\"machine\":{\"cpus_allowed\":16}}",
             decode * 1e-3, step * 1e-3, issue * 1e-3, pageable * 1e-3, locked * 1e-3);
    ck_assert_int_eq(json_parse(text, strlen(text), &found), STATUS_OK);
    static struct ablation a;
    memset(&a, 0, sizeof a);
    static struct ablate_settings settings;
    ablate_settings_defaults(&settings);
    settings.predict_only = predict_only;
    a.settings = &settings;
    a.job = *job;
    if (cells.names || cells.axes[0]) {
        ck_assert_int_eq(cells_choose(&cells, &a.cells), STATUS_OK);
        ck_assert_int_eq(cells_adopt(&a.cells, &a.job), STATUS_OK);
        ck_assert_int_eq(settings_complete(&a.job), STATUS_OK);
    }
    a.ceilings = found;
    a.found = json_member(json_root(found), "ceilings");
    a.batches = 100;
    a.samples = 6400;
    ablate__predict(&a);
    char *written = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&written, &bytes);
    ck_assert_ptr_nonnull(stream);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    json_begin_object(&writer);
    ablate__write_diagnosis(&a, &writer);
    json_end_object(&writer);
    fclose(stream);
    ck_assert_int_eq(json_parse(written, bytes, &answer), STATUS_OK);
    free(written);
    json_document_destroy(&found);
    return answer;
}

static const struct json_value *diagnosis_of(const json_document *document)
{
    return json_member(json_root(document), "diagnosis");
}

static const char *text_of(const json_document *document, const char *member)
{
    return json_member_string(diagnosis_of(document), member, "");
}

/* Factor of the first advice that holds `words`; -1 when there is none, 0 when it has no factor. */
static double advised(const json_document *document, const char *words)
{
    const struct json_value *advice = json_member(diagnosis_of(document), "advice");
    for (size_t i = 0; i < advice->count; i++) {
        if (strstr(json_member_string(&advice->items[i], "what", ""), words)) {
            return json_member_double(&advice->items[i], "factor", 0);
        }
    }
    return -1;
}

static struct settings job;

static void usual_job(void)
{
    cells = (struct cells_request){0};
    predict_only = false;
    settings_defaults(&job);
    job.loader.num_workers = 3;
}

START_TEST(test_loader_bound)
{
    usual_job();
    json_document *found = diagnose(20, 2, 0.1, 1, 0.5, &job);
    ck_assert_str_eq(text_of(found, "bound"), "loader");
    ck_assert_ptr_nonnull(strstr(text_of(found, "headline"), "20.00 ms"));
    ck_assert_ptr_nonnull(strstr(text_of(found, "headline"), "10 %"));
    /* 15 workers instead of 3 make it 4 ms. */
    ck_assert_double_eq_tol(advised(found, "--num-workers 15"), 5, 1e-6);
    /* Without decoding, four fifths of it, 4 ms; with half of it, 12 ms. */
    ck_assert_double_eq_tol(advised(found, "--cache decoded"), 5, 1e-6);
    ck_assert_double_eq_tol(advised(found, "images stored"), 20.0 / 12, 1e-6);
    ck_assert_double_lt(advised(found, "--pin-memory"), 0);
    json_document_destroy(&found);
}
END_TEST

START_TEST(test_copy_bound)
{
    usual_job();
    job.loader.transfer = TRANSFER_F32;
    json_document *found = diagnose(1, 5, 0.1, 9, 1, &job);
    ck_assert_str_eq(text_of(found, "bound"), "copy");
    ck_assert_str_eq(text_of(found, "best_bound"), "compute");
    /* 9 + 5 ms before, 5 ms after. */
    ck_assert_double_eq_tol(advised(found, "--pin-memory"), 14.0 / 5, 1e-6);
    ck_assert_double_eq_tol(advised(found, "in the default cell"), 14 / 7.25, 1e-6);
    json_document_destroy(&found);
}
END_TEST

START_TEST(test_compute_bound)
{
    usual_job();
    json_document *found = diagnose(1, 50, 0.1, 0.5, 0.1, &job);
    ck_assert_str_eq(text_of(found, "bound"), "compute");
    ck_assert_double_lt(advised(found, "--pin-memory"), 0);
    ck_assert_double_eq(advised(found, "bf16"), 0);
    json_document_destroy(&found);
}
END_TEST

START_TEST(test_host_bound)
{
    usual_job();
    json_document *found = diagnose(1, 0.5, 4, 0.2, 0.1, &job);
    ck_assert_str_eq(text_of(found, "bound"), "host");
    ck_assert_str_eq(text_of(found, "best_bound"), "host");
    /* Twice the batch costs the host the same 4 ms. */
    ck_assert_double_eq_tol(advised(found, "--batch-size"), 2, 1e-6);
    json_document_destroy(&found);
}
END_TEST

START_TEST(test_balanced)
{
    usual_job();
    json_document *found = diagnose(4, 5, 0.1, 5, 4, &job);
    ck_assert_str_eq(text_of(found, "bound"), "copy + compute");
    ck_assert_str_eq(text_of(found, "best_bound"), "compute");
    ck_assert_double_eq_tol(advised(found, "--pin-memory"), 2, 1e-6);
    json_document_destroy(&found);
}
END_TEST

static void check_headline(const json_document *document, const char *says, const char * not )
{
    const char *headline = text_of(document, "headline");
    ck_assert_msg(strstr(headline, says) != NULL, "\"%s\" does not say \"%s\"", headline, says);
    ck_assert_msg(!not || strstr(headline, not ) == NULL, "\"%s\" says \"%s\"", headline, not );
}

/* The parts are measured for a cell that runs, and it is named: the job's own value is spoken of where
 * a cell has it, and otherwise the first. */
START_TEST(test_a_cell_is_spoken_of)
{
    usual_job();
    cells = (struct cells_request){.axes = {"num-workers=1,2"}};
    json_document *found = diagnose(20, 2, 0.1, 1, 0.5, &job);
    check_headline(found, "in cell \"default num-workers=1\": a batch", NULL);
    check_headline(found, "with 1 worker,", "3 worker");
    ck_assert_str_eq(text_of(found, "cell"), "default num-workers=1");
    ck_assert_double_eq_tol(advised(found, "--num-workers 15 instead of 1"), 10, 1e-6);
    json_document_destroy(&found);
    cells = (struct cells_request){.axes = {"num-workers=2,3", "pin-how=alloc"}};
    found = diagnose(20, 2, 0.1, 1, 0.5, &job);
    check_headline(found, "with 3 workers", NULL);
    ck_assert_str_eq(text_of(found, "cell"), "default num-workers=3 pin-how=alloc");
    json_document_destroy(&found);
    /* Each other axis, and cells that lack the default one. */
    cells = (struct cells_request){.names = "pin,both", .axes = {"batch-size=8,128"}};
    found = diagnose(1, 5, 0.1, 20, 9, &job);
    check_headline(found, "in cell \"pin batch-size=8\": 9.00 ms a batch from page-locked memory",
                   "default");
    json_document_destroy(&found);
    cells = (struct cells_request){.names = "default/s", .axes = {"precision=bf16,f32"}};
    found = diagnose(1, 5, 0.1, 9, 1, &job);
    check_headline(found, "in cell \"default/s precision=f32\": 9.00 ms a batch from pageable",
                   "before");
    json_document_destroy(&found);
    cells = (struct cells_request){.names = "both", .axes = {"timing=0,1"}};
    found = diagnose(20, 2, 0.1, 1, 0.5, &job);
    check_headline(found, "in cell \"both timing=1\"", NULL);
    json_document_destroy(&found);
    cells = (struct cells_request){.names = "default,both"};
    found = diagnose(1, 5, 0.1, 9, 1, &job);
    check_headline(found, "Copying bounds this job in its default cell: 9.00 ms", "\"");
    json_document_destroy(&found);
}
END_TEST

/* What rounds measure is not predicted beside them. */
START_TEST(test_what_is_measured_is_not_advised)
{
    static const struct {
        const char *axis, *words;
        double ms[5];
    } axes[] = {{"num-workers=3,15", "--num-workers 15", {20, 2, 0.1, 1, 0.5}},
                {"cache=none,decoded", "--cache decoded", {20, 2, 0.1, 1, 0.5}},
                {"cache=encoded,none", "--cache encoded", {20, 2, 0.1, 1, 0.5}},
                {"transfer=f32,u8", "--transfer u8", {1, 5, 0.1, 9, 8}},
                {"batch-size=64,128", "--batch-size", {1, 0.5, 4, 0.2, 0.1}}};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        usual_job();
        job.loader.transfer = TRANSFER_F32;
        cells = (struct cells_request){.names = "default,both", .axes = {axes[i].axis}};
        const double *ms = axes[i].ms;
        json_document *found = diagnose(ms[0], ms[1], ms[2], ms[3], ms[4], &job);
        ck_assert_msg(advised(found, axes[i].words) < 0, "%s is advised", axes[i].words);
        json_document_destroy(&found);
        predict_only = true;
        found = diagnose(ms[0], ms[1], ms[2], ms[3], ms[4], &job);
        ck_assert_msg(advised(found, axes[i].words) >= 1, "%s is not advised", axes[i].words);
        json_document_destroy(&found);
    }
    usual_job();
    cells = (struct cells_request){.axes = {"precision=f32,bf16"}};
    json_document *found = diagnose(1, 50, 0.1, 9, 0.1, &job);
    ck_assert_double_lt(advised(found, "bf16"), 0);
    ck_assert_double_lt(advised(found, "--pin-memory"), 0);
    json_document_destroy(&found);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {test_budget,
                                  test_budget_of_a_small_set,
                                  test_batch_bytes,
                                  test_spread,
                                  test_ceilings_of_each_kind,
                                  test_ceilings_without_workers,
                                  test_loader_bound,
                                  test_copy_bound,
                                  test_compute_bound,
                                  test_host_bound,
                                  test_balanced,
                                  test_a_cell_is_spoken_of,
                                  test_what_is_measured_is_not_advised};
    return check_run("ablate_plan", tests, sizeof tests / sizeof tests[0], 0);
}
