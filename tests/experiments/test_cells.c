/* The cells that a request makes, what they set, what is refused, and that a setting which differs
 * unseen is found. */
#include "experiments/cells.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/check_run.h"
#include "trainer/job.h"

static struct cell_list list;

static void choose(struct cells_request request, size_t count)
{
    ck_assert_msg(cells_choose(&request, &list) == STATUS_OK, "%s", status_message());
    ck_assert_uint_eq(list.count, count);
}

static const struct cell *find(const char *name)
{
    for (size_t i = 0; i < list.count; i++) {
        if (strcmp(list.cells[i].name, name) == 0) {
            return &list.cells[i];
        }
    }
    ck_abort_msg("no cell %s", name);
    return NULL;
}

static struct settings settings_of(const char *name)
{
    struct settings job, out;
    settings_defaults(&job);
    ck_assert_int_eq(cells_settings(&job, find(name), &out), STATUS_OK);
    return out;
}

START_TEST(test_usual)
{
    choose((struct cells_request){0}, 6);
    ck_assert_str_eq(list.cells[0].name, "default");
    ck_assert(list.cells[5].repeats);
    struct settings s = settings_of("default");
    ck_assert(s.loader.pin_memory == PIN_OFF && !s.loader.non_blocking &&
              s.loader.copy_stream == COPY_STREAM_COMPUTE);
    s = settings_of("pin");
    ck_assert(s.loader.pin_memory == PIN_ON && !s.loader.non_blocking &&
              s.loader.copy_stream == COPY_STREAM_COMPUTE);
    s = settings_of("non_blocking");
    ck_assert(s.loader.pin_memory == PIN_OFF && s.loader.non_blocking);
    s = settings_of("both+stream");
    ck_assert(s.loader.pin_memory == PIN_ON && s.loader.non_blocking &&
              s.loader.copy_stream == COPY_STREAM_DEDICATED);
    struct predict_cell cell = cells_prediction(&s);
    ck_assert(cell.pin && cell.non_blocking && cell.dedicated);
}
END_TEST

START_TEST(test_eight_and_axes)
{
    choose((struct cells_request){.streams = CELLS_STREAM_BOTH}, 8);
    choose((struct cells_request){.streams = CELLS_STREAM_BOTH, .both_stagings = true}, 16);
    ck_assert(!find("pin/s staging=thread")->arithmetic);
    choose((struct cells_request){.axes = {"num-workers=1,2,4"}}, 6);
    ck_assert_int_eq(settings_of("both+stream num-workers=4").loader.num_workers, 4);
    choose((struct cells_request){.names = "default,both", .both_transfers = true}, 4);
    ck_assert(find("both transfer=f32")->arithmetic);
    ck_assert(settings_of("both transfer=f32").loader.transfer == TRANSFER_F32);
    choose((struct cells_request){.names = "pin", .axes = {"pin-how=register,alloc"}}, 2);
}
END_TEST

/* The job takes the first cell's value of an axis where no cell has its own, and nothing else. */
START_TEST(test_adopt)
{
    struct settings job;
    settings_defaults(&job);
    job.loader.num_workers = 3;
    choose((struct cells_request){.axes = {"num-workers=1,2", "batch-size=064,128", "prefetch=7"}},
           8);
    ck_assert_int_eq(cells_adopt(&list, &job), STATUS_OK);
    ck_assert_int_eq(job.loader.num_workers, 1);
    ck_assert_int_eq(job.loader.batch_size, 64);
    ck_assert_int_eq(job.loader.prefetch, 7);
    job.loader.num_workers = 2;
    ck_assert_int_eq(cells_adopt(&list, &job), STATUS_OK);
    ck_assert_int_eq(job.loader.num_workers, 2);
    /* The flags are the cells' own. */
    job.loader.non_blocking = false;
    choose((struct cells_request){.names = "both,both+stream"}, 2);
    ck_assert_int_eq(cells_adopt(&list, &job), STATUS_OK);
    ck_assert(job.loader.pin_memory == PIN_OFF && !job.loader.non_blocking);
    ck_assert(cells_is_flag("copy-stream") && !cells_is_flag("num-workers"));
}
END_TEST

/* The check on the method can be asked for with any cells, and is the same cell but for its name. */
START_TEST(test_again)
{
    choose((struct cells_request){.names = "default,default"}, 2);
    ck_assert_str_eq(list.cells[1].name, "default again");
    ck_assert(list.cells[1].repeats && !list.cells[0].repeats);
    choose((struct cells_request){.names = "both again,default,both"}, 3);
    ck_assert(find("both again")->repeats && !find("both")->repeats);
    ck_assert_uint_eq(find("both again")->change_count, find("both")->change_count);
    struct settings a = settings_of("both"), b = settings_of("both again");
    ck_assert_mem_eq(&a.loader, &b.loader, sizeof a.loader);
    choose((struct cells_request){.streams = CELLS_STREAM_BOTH, .again = true}, 9);
    ck_assert(find("default again")->repeats);
    choose((struct cells_request){.again = true}, 6);
    choose((struct cells_request){.names = "pin/s,pin/s", .axes = {"num-workers=1,2"}}, 4);
    ck_assert(find("pin/s num-workers=2 again")->repeats);
    ck_assert_int_eq(settings_of("pin/s num-workers=2 again").loader.num_workers, 2);
    choose((struct cells_request){.axes = {"num-workers=1,2"}, .again = true}, 5);
    ck_assert(find("default num-workers=1 again")->repeats);
}
END_TEST

/* The instrument can be left out of some cells; that changes no arithmetic. */
START_TEST(test_timing_is_an_axis)
{
    choose((struct cells_request){.names = "both", .axes = {"timing=0,1"}}, 2);
    ck_assert(!settings_of("both timing=0").timing && !settings_of("both timing=0").loader.timing);
    ck_assert(settings_of("both timing=1").timing && settings_of("both timing=1").loader.timing);
    ck_assert(!find("both timing=0")->arithmetic);
}
END_TEST

static const struct cells_request refused[] = {
    {.names = "default,pinned"},
    {.names = "default,both,"},
    {.names = ""},
    {.names = "default"},
    {.names = "default,default,default"},
    {.names = "default,default", .again = true},
    {.names = "default again,both"},
    {.names = " again,both"},
    {.names = "both again again,both"},
    {.axes = {"num-workers"}},
    {.axes = {"num-workers="}},
    {.axes = {"num-workers=1,two"}},
    {.axes = {"no-such=1,2"}},
    {.axes = {"out=a,b"}},
    {.axes = {"log-every=1,2"}},
    {.axes = {"max-steps=1,2"}},
    {.axes = {"num-workers=1,2", "num-workers=3,4"}},
    {.axes = {"pin-memory=on,off"}},
    {.axes = {"batch-size=1,2,3,4,5,6,7,8,9", "num-workers=1,2,3,4,5,6,7,8,9"}},
};

START_TEST(test_refused)
{
    ck_assert_int_eq(cells_choose(&refused[_i], &list), STATUS_USAGE);
    ck_assert_uint_gt(strlen(status_message()), 10);
}
END_TEST

/* The message of an axis says what was meant, or where its values belong. */
START_TEST(test_axis_messages)
{
    static const struct {
        struct cells_request request;
        const char *says;
    } wrong[] = {{{.axes = {"num-wrokers=1,2"}}, "(did you mean num-workers?)"},
                 {{.axes = {"--prefetch=2,3"}}, "(did you mean prefetch?)"},
                 {{.axes = {"=1,2"}}, "\"\" is no setting"},
                 {{.axes = {"num-workers=1,2", "num-workers=3,4"}}, "in one place"},
                 {{.axes = {"copy-stream=compute,dedicated"}}, "--cells"},
                 {{.axes = {"num-workers=1,2,"}}, "--axis num-workers=1,2,: value 3 is empty"},
                 {{.axes = {"num-workers=1,,2"}}, "value 2 is empty"},
                 {{.axes = {"num-workers=,1,2"}}, "value 1 is empty"},
                 {{.axes = {"num-workers=,"}}, "value 1 is empty"},
                 {{.axes = {"model=smallcnn,"}}, "value 2 is empty"}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ck_assert_int_eq(cells_choose(&wrong[i].request, &list), STATUS_USAGE);
        ck_assert_msg(strstr(status_message(), wrong[i].says) != NULL, "%s", status_message());
    }
}
END_TEST

/* However a value is written, for every kind of option: equal cells would be no ablation. */
START_TEST(test_equal_values_are_refused)
{
    static const struct {
        const char *axis, *says;
    } equal[] = {{"num-workers=1,01", "values 1 and 2, \"1\" and \"01\""},
                 {"num-workers=1,2,1", "values 1 and 3, \"1\" and \"1\""},
                 {"lr=0.1,1e-1", "same setting"},
                 {"lr=0.1,.10", "same setting"},
                 {"timing=1,true", "same setting"},
                 {"flip=false,true,0", "values 1 and 3, \"false\" and \"0\""},
                 {"seed=7,007", "same setting"},
                 {"limit-samples=64,064", "same setting"},
                 {"cache-bytes=1M,1024K", "same setting"},
                 {"mean=0.5,.5", "same setting"},
                 {"cache=none,encoded,none", "same setting"},
                 {"model=probe,smallcnn,probe", "same setting"}};
    for (size_t i = 0; i < sizeof equal / sizeof equal[0]; i++) {
        const struct cells_request request = {.axes = {equal[i].axis}};
        ck_assert_msg(cells_choose(&request, &list) == STATUS_USAGE, "%s", equal[i].axis);
        ck_assert_msg(strstr(status_message(), equal[i].says) != NULL, "%s", status_message());
    }
    choose((struct cells_request){.names = "both", .axes = {"lr=0.1,0.10000000000000002"}}, 2);
    choose((struct cells_request){.names = "both", .axes = {"seed=1,18446744073709551615"}}, 2);
}
END_TEST

static double rate_of(const char *name, const struct settings *job)
{
    struct settings completed = *job, out;
    ck_assert_int_eq(cells_complete(&completed), STATUS_OK);
    ck_assert_msg(cells_settings(&completed, find(name), &out) == STATUS_OK, "%s",
                  status_message());
    return out.optimiser.rate;
}

/* As `train --optimizer` has it, and whatever the job's own optimiser is. */
START_TEST(test_each_optimiser_has_its_own_rate)
{
    struct settings job;
    for (int own = OPTIMISER_SGD; own <= OPTIMISER_ADAMW; own++) {
        settings_defaults(&job);
        job.network.optimiser = (enum optimiser)own;
        choose((struct cells_request){.names = "both", .axes = {"optimizer=sgd,adamw"}}, 2);
        ck_assert_int_eq(cells_choose_rates(&list, &job), STATUS_OK);
        ck_assert(rate_of("both optimizer=sgd", &job) == 0.05);
        ck_assert(rate_of("both optimizer=adamw", &job) == 0.001);
    }
    /* One that is named is everybody's. */
    job.optimiser.rate = 0.02;
    choose((struct cells_request){.names = "both", .axes = {"optimizer=sgd,adamw"}}, 2);
    ck_assert_int_eq(cells_choose_rates(&list, &job), STATUS_OK);
    ck_assert(rate_of("both optimizer=sgd", &job) == 0.02);
    ck_assert(rate_of("both optimizer=adamw", &job) == 0.02);
    /* An axis of rates has its own, and the default where it says 0. */
    job.optimiser.rate = 0;
    choose((struct cells_request){.names = "both", .axes = {"lr=0,0.3", "optimizer=sgd,adamw"}}, 4);
    ck_assert_int_eq(cells_choose_rates(&list, &job), STATUS_OK);
    ck_assert(rate_of("both lr=0 optimizer=sgd", &job) == 0.05);
    ck_assert(rate_of("both lr=0 optimizer=adamw", &job) == 0.001);
    ck_assert(rate_of("both lr=0.3 optimizer=adamw", &job) == 0.3);
}
END_TEST

/* Settings are held against each other as the job has them, not as a job of defaults would. */
START_TEST(test_cells_are_checked_with_their_job)
{
    struct settings job;
    settings_defaults(&job);
    choose((struct cells_request){.names = "both", .axes = {"warmup-epochs=1,11"}}, 2);
    ck_assert_int_eq(cells_check(&list, &job), STATUS_USAGE);
    /* --epochs of an ablation are those that are timed. */
    ck_assert_ptr_nonnull(strstr(status_message(), "warmup-epochs=11"));
    ck_assert_ptr_nonnull(strstr(status_message(), "a training of 10 epochs, however many"));
    ck_assert_ptr_null(strstr(status_message(), "--epochs 10"));
    job.optimiser.warmup_epochs = 12;
    ck_assert_int_eq(cells_complete(&job), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "take 10 at most"));
    settings_defaults(&job);
    job.optimiser.schedule = SCHEDULE_COSINE;
    job.optimiser.rate = 1;
    choose((struct cells_request){.names = "both",
                                  .axes = {"schedule=cosine,step", "final-lr=0.5,0.6"}},
           4);
    ck_assert_int_eq(cells_check(&list, &job), STATUS_OK);
    job.optimiser.rate = 0.55;
    ck_assert_int_eq(cells_check(&list, &job), STATUS_USAGE);
    settings_defaults(&job);
    job.network.nesterov = true;
    choose((struct cells_request){.names = "both", .axes = {"optimizer=sgd,adamw"}}, 2);
    ck_assert_int_eq(cells_check(&list, &job), STATUS_USAGE);
    ck_assert_ptr_nonnull(strstr(status_message(), "optimizer=adamw"));
}
END_TEST

/* What the update does is arithmetic too. */
START_TEST(test_schedules_are_arithmetic)
{
    choose((struct cells_request){.names = "default", .axes = {"schedule=constant,cosine"}}, 2);
    ck_assert(find("default schedule=cosine")->arithmetic);
    choose((struct cells_request){.names = "default", .axes = {"nesterov=0,1"}}, 2);
    ck_assert(find("default nesterov=1")->arithmetic);
    choose((struct cells_request){.names = "default", .axes = {"exif-orientation=0,1"}}, 2);
    ck_assert(find("default exif-orientation=1")->arithmetic);
    choose((struct cells_request){.names = "default", .axes = {"prefetch=2,4"}}, 2);
    ck_assert(!find("default prefetch=4")->arithmetic);
}
END_TEST

static json_document *written(const struct settings *settings)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    struct settings copy = *settings;
    struct option_binding bindings[16];
    size_t count = job_bind_options(&copy, bindings);
    options_write(bindings, count, true, &writer);
    fclose(stream);
    json_document *document = NULL;
    ck_assert_int_eq(json_parse(text, bytes, &document), STATUS_OK);
    free(text);
    return document;
}

START_TEST(test_unequal_settings_are_found)
{
    choose((struct cells_request){0}, 6);
    struct settings a = settings_of("default"), b = settings_of("both");
    json_document *of_a = written(&a), *of_b = written(&b);
    ck_assert_int_eq(
        cells_check_equal(find("default"), json_root(of_a), find("both"), json_root(of_b)),
        STATUS_OK);
    json_document_destroy(&of_b);
    b.loader.num_workers = a.loader.num_workers + 1;
    of_b = written(&b);
    ck_assert_int_eq(
        cells_check_equal(find("default"), json_root(of_a), find("both"), json_root(of_b)),
        STATUS_MISMATCH);
    ck_assert_ptr_nonnull(strstr(status_message(), "num-workers"));
    json_document_destroy(&of_a);
    json_document_destroy(&of_b);
}
END_TEST

int main(void)
{
    TCase *tests = tcase_create("cells");
    tcase_add_test(tests, test_usual);
    tcase_add_test(tests, test_eight_and_axes);
    tcase_add_test(tests, test_adopt);
    tcase_add_test(tests, test_again);
    tcase_add_test(tests, test_axis_messages);
    tcase_add_test(tests, test_equal_values_are_refused);
    tcase_add_test(tests, test_each_optimiser_has_its_own_rate);
    tcase_add_test(tests, test_cells_are_checked_with_their_job);
    tcase_add_test(tests, test_schedules_are_arithmetic);
    tcase_add_test(tests, test_timing_is_an_axis);
    tcase_add_loop_test(tests, test_refused, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tests, test_unequal_settings_are_found);
    return check_run_case("cells", tests);
}
