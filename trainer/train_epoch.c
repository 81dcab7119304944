/* What an epoch came to, as JSON. */
#include <stdio.h>

#include "trainer/train_loop.h"

static void write_seconds(struct json_writer *writer, const char *name, const char *unit,
                          double seconds)
{
    char key[32];
    snprintf(key, sizeof key, "%s%s", name, unit);
    json_key_double(writer, key, seconds);
}

void train_host_time_write(const struct train_host_time *time, const char *unit,
                           struct json_writer *writer)
{
    write_seconds(writer, "wait_batch", unit, time->wait_batch);
    write_seconds(writer, "copy", unit, time->copy);
    write_seconds(writer, "issue", unit, time->issue);
    write_seconds(writer, "wait_device", unit, time->wait_device);
    write_seconds(writer, "rest", unit, time->rest);
}

void train_device_time_write(const struct train_device_time *time, const char *unit,
                             struct json_writer *writer)
{
    write_seconds(writer, "span", unit, time->span);
    write_seconds(writer, "compute", unit, time->compute);
    write_seconds(writer, "copy", unit, time->copy);
    write_seconds(writer, "hidden", unit, time->hidden);
    write_seconds(writer, "idle", unit, time->idle);
}

static void write_counters(const struct loader_counters *counters, struct json_writer *writer)
{
    const double images = counters->images > 0 ? (double)counters->images : 1;
    const double copies = counters->copies > 0 ? (double)counters->copies : 1;
    json_begin_object(writer);
    json_key_int(writer, "batches", (int64_t)counters->batches);
    json_key_int(writer, "images", (int64_t)counters->images);
    json_key_double(writer, "wait_batch_s", (double)counters->wait_batch_ns * 1e-9);
    json_key_int(writer, "waits_batch", (int64_t)counters->waits_batch);
    json_key_double(writer, "wait_free_slot_s", (double)counters->wait_free_ns * 1e-9);
    json_key_int(writer, "waits_free_slot", (int64_t)counters->waits_free);
    json_key_double(writer, "workers_wait_slot_s", (double)counters->wait_slot_ns * 1e-9);
    json_key_int(writer, "workers_waits_slot", (int64_t)counters->waits_slot);
    json_key_double(writer, "wait_copy_s", (double)counters->wait_copy_ns * 1e-9);
    json_key_int(writer, "waits_copy", (int64_t)counters->waits_copy);
    json_key_int(writer, "copies", (int64_t)counters->copies);
    json_key_int(writer, "copy_bytes", (int64_t)counters->copy_bytes);
    json_key_double(writer, "copy_call_s", (double)counters->copy_call_ns * 1e-9);
    json_key_double(writer, "copy_device_s", counters->copy_device_ms * 1e-3);
    json_key_double(writer, "copy_call_ms_a_batch", (double)counters->copy_call_ns * 1e-6 / copies);
    json_key_double(writer, "copy_device_ms_a_batch", counters->copy_device_ms / copies);
    json_key_double(writer, "read_us_an_image", (double)counters->read_ns * 1e-3 / images);
    json_key_double(writer, "decode_us_an_image", (double)counters->decode_ns * 1e-3 / images);
    json_key_double(writer, "write_us_an_image", (double)counters->write_ns * 1e-3 / images);
    json_key_double(writer, "worker_cpu_s", (double)counters->worker_cpu_ns * 1e-9);
    json_key_int(writer, "bytes_read", (int64_t)counters->bytes_read);
    json_key_int(writer, "bytes_copied_on_host", (int64_t)counters->bytes_copied_on_host);
    json_key_int(writer, "cache_hits", (int64_t)counters->cache_hits);
    json_key_int(writer, "cache_images", (int64_t)counters->cache_images);
    json_key_int(writer, "cache_bytes", (int64_t)counters->cache_bytes);
    json_key_int(writer, "cache_limit", (int64_t)counters->cache_limit);
    json_key_int(writer, "bad_images", (int64_t)counters->bad_images);
    json_end_object(writer);
}

void train_epoch_write(const struct train_epoch *result, struct json_writer *writer)
{
    json_key_int(writer, "epoch", (int64_t)result->epoch + 1);
    json_key_int(writer, "first_batch", result->first_batch);
    json_key_int(writer, "next_batch", result->next_batch);
    json_key_int(writer, "steps", (int64_t)result->steps);
    json_key_int(writer, "left_out", result->left_out);
    json_key_int(writer, "samples", (int64_t)result->samples);
    json_key_double(writer, "seconds", result->seconds);
    json_key_double(writer, "samples_per_s", result->samples_per_s);
    json_key_double(writer, "loss", result->loss);
    json_key_double(writer, "rate", result->rate);
    json_key(writer, "loss_hash");
    json_hex64(writer, result->loss_hash);
    json_key(writer, "host");
    json_begin_object(writer);
    train_host_time_write(&result->host, "_s", writer);
    json_key_double(writer, "cpu_s", (double)result->host_cpu_ns * 1e-9);
    json_key_int(writer, "waits_device", (int64_t)result->waits_device);
    json_end_object(writer);
    json_key(writer, "device");
    json_begin_object(writer);
    train_device_time_write(&result->device, "_s", writer);
    json_end_object(writer);
    json_key(writer, "loader");
    write_counters(&result->counters, writer);
}
