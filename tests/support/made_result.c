#include "tests/support/made_result.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"

void made_result_usual(struct made_result *made, double base, const double gains[6])
{
    static const char *const names[] = {"default", "pin",         "non_blocking",
                                        "both",    "both+stream", "default again"};
    /* In per cent; every row sums to zero. */
    static const double wobble[6][6] = {
        {0.1, -0.2, 0.1, 0.2, -0.1, -0.1}, {-0.1, 0.2, -0.2, 0.1, 0.1, -0.1},
        {0.2, -0.1, -0.1, 0.1, -0.2, 0.1}, {-0.2, 0.1, 0.2, -0.1, -0.1, 0.1},
        {0.1, 0.1, -0.2, -0.1, 0.2, -0.1}, {-0.1, -0.1, 0.2, -0.2, 0.1, 0.1}};
    *made = (struct made_result){.cells = 6, .rounds = 6};
    for (size_t c = 0; c < 6; c++) {
        made->names[c] = names[c];
        for (int r = 0; r < 6; r++) {
            made->rates[c][r] = base * gains[c] * (1 + wobble[c][r] / 100);
        }
    }
}

static void write_stages(struct json_writer *writer, double seconds)
{
    static const char *const host[] = {"wait_batch", "copy", "issue", "wait_device", "rest"};
    json_key(writer, "host");
    json_begin_object(writer);
    for (size_t i = 0; i < 5; i++) {
        json_key_double(writer, host[i], seconds / 5);
    }
    json_end_object(writer);
    json_key(writer, "device");
    json_begin_object(writer);
    json_key_double(writer, "span", seconds);
    json_key_double(writer, "compute", seconds / 2);
    json_key_double(writer, "copy", seconds / 4);
    json_key_double(writer, "hidden", seconds / 8);
    json_key_double(writer, "idle", seconds * 3 / 8);
    json_end_object(writer);
}

static void write_run(struct json_writer *writer, int round, size_t place, double rate, bool timing)
{
    const double seconds = 1000 / rate;
    json_begin_object(writer);
    json_key_int(writer, "round", round);
    json_key_int(writer, "place", (int)place);
    json_key_double(writer, "samples_per_s", rate);
    json_key(writer, "epoch_s");
    json_begin_array(writer);
    json_double(writer, seconds);
    json_end_array(writer);
    json_key_string(writer, "loss_hash", "0123456789abcdef");
    json_key_string(writer, "weights_hash", "fedcba9876543210");
    json_key_bool(writer, "page_locked", place % 2 == 1);
    json_key_string(writer, "marked", round == 2 ? "the clock went from 1980 to 1500 MHz" : "");
    json_key_bool(writer, "timing", timing);
    if (timing) {
        write_stages(writer, seconds);
    }
    json_key(writer, "counters");
    json_begin_object(writer);
    json_key_int(writer, "batches", 10);
    if (timing) {
        json_key_double(writer, "copy_device_s", seconds / 4);
    }
    json_end_object(writer);
    json_key(writer, "timeline");
    json_begin_array(writer);
    json_begin_object(writer);
    json_key_string(writer, "lane", "compute");
    json_key_string(writer, "name", "step");
    json_key_double(writer, "from", 0.001);
    json_key_double(writer, "to", 0.003);
    json_end_object(writer);
    json_end_array(writer);
    json_end_object(writer);
}

char *made_result_text(const struct made_result *made)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *stream = open_memstream(&text, &bytes);
    if (!stream) {
        abort();
    }
    fprintf(stream,
            "{\"pinline\":\"0\",\"kind\":\"ablation\",\"created\":\"2025-01-31T12:00:00Z\","
            "\"finished\":true,\"failures\":[%s],\"warnings\":[\"5 < 6 & 7\"],\"command\":",
            made->failures ? made->failures : "");
    struct json_writer writer;
    json_writer_init(&writer, stream, false);
    json_string(&writer, made->command ? made->command : "pinline ablate --data set");
    fprintf(stream,
            ",\"diagnosis\":{\"bound\":\"copy\",\"headline\":\"Copying bounds this job\","
            "\"advice\":[{\"what\":\"more <workers>\",\"factor\":1.5,\"how\":\"predicted\"}]},"
            "\"protocol\":{\"rounds\":%d,\"epochs\":1,\"matters\":0.02,\"seed\":1,"
            "\"samples\":1000},\"cells\":[",
            made->rounds);
    for (size_t c = 0; c < made->cells; c++) {
        fputs(c ? "," : "", stream);
        json_writer_init(&writer, stream, false);
        json_begin_object(&writer);
        json_key_string(&writer, "name", made->names[c]);
        json_key_bool(&writer, "repeats", strcmp(made->names[c], "default again") == 0);
        json_key(&writer, "rounds");
        json_begin_array(&writer);
        for (int r = 0; r < made->rounds; r++) {
            write_run(&writer, r, c, made->rates[c][r],
                      !made->untimed || strcmp(made->untimed, made->names[c]) != 0);
        }
        json_end_array(&writer);
        json_end_object(&writer);
    }
    fprintf(stream, "]%s}", made->extra ? made->extra : "");
    if (fclose(stream) != 0) {
        abort();
    }
    return text;
}

const char *made_result_file(const char *text)
{
    static char path[64];
    if (path[0]) {
        unlink(path);
    }
    snprintf(path, sizeof path, "/tmp/pinline-result-XXXXXX");
    const int file = text ? mkstemp(path) : -1;
    if (file < 0) {
        path[0] = '\0';
        return path;
    }
    const size_t bytes = strlen(text);
    if (write(file, text, bytes) != (ssize_t)bytes) {
        abort();
    }
    close(file);
    return path;
}
