#include "experiments/round_totals.h"

#include "base/hash.h"

void round_totals_add(struct round_totals *totals, const struct train_epoch *epoch)
{
    totals->host.wait_batch += epoch->host.wait_batch;
    totals->host.copy += epoch->host.copy;
    totals->host.issue += epoch->host.issue;
    totals->host.wait_device += epoch->host.wait_device;
    totals->host.rest += epoch->host.rest;
    totals->on_device.span += epoch->device.span;
    totals->on_device.compute += epoch->device.compute;
    totals->on_device.copy += epoch->device.copy;
    totals->on_device.hidden += epoch->device.hidden;
    totals->on_device.idle += epoch->device.idle;
    totals->counters.waits_copy += epoch->counters.waits_copy;
    totals->counters.wait_copy_ns += epoch->counters.wait_copy_ns;
    totals->counters.copy_call_ns += epoch->counters.copy_call_ns;
    totals->counters.copy_bytes += epoch->counters.copy_bytes;
    totals->counters.copies += epoch->counters.copies;
    totals->counters.copy_device_ms += epoch->counters.copy_device_ms;
    totals->counters.batches += epoch->counters.batches;
    totals->counters.bytes_copied_on_host += epoch->counters.bytes_copied_on_host;
    totals->counters.worker_cpu_ns += epoch->counters.worker_cpu_ns;
    totals->counters.read_ns += epoch->counters.read_ns;
    totals->counters.decode_ns += epoch->counters.decode_ns;
    totals->counters.bytes_read += epoch->counters.bytes_read;
    totals->counters.cache_hits += epoch->counters.cache_hits;
    totals->counters.bad_images += epoch->counters.bad_images;
    totals->seconds += epoch->seconds;
    totals->samples += epoch->samples;
    totals->host_cpu_ns += epoch->host_cpu_ns;
    totals->loss_hash =
        hash_bytes(totals->loss_hash, epoch->losses, epoch->steps * sizeof *epoch->losses);
    totals->epoch_s[totals->epochs++] = epoch->seconds;
}

static void write_stages(const struct round_totals *totals, struct json_writer *writer)
{
    json_key(writer, "host");
    json_begin_object(writer);
    train_host_time_write(&totals->host, "", writer);
    json_end_object(writer);
    json_key(writer, "device");
    json_begin_object(writer);
    train_device_time_write(&totals->on_device, "", writer);
    json_end_object(writer);
}

void round_totals_write(const struct round_totals *totals, bool timing, struct json_writer *writer)
{
    json_key_double(writer, "samples_per_s", (double)totals->samples / totals->seconds);
    json_key(writer, "epoch_s");
    json_begin_array(writer);
    for (size_t i = 0; i < totals->epochs; i++) {
        json_double(writer, totals->epoch_s[i]);
    }
    json_end_array(writer);
    json_key(writer, "loss_hash");
    json_hex64(writer, totals->loss_hash);
    if (timing) {
        write_stages(totals, writer);
    }
    json_key(writer, "counters");
    json_begin_object(writer);
    json_key_int(writer, "batches", (int64_t)totals->counters.batches);
    json_key_int(writer, "waits_copy", (int64_t)totals->counters.waits_copy);
    if (timing) {
        json_key_double(writer, "wait_copy_s", (double)totals->counters.wait_copy_ns * 1e-9);
        json_key_double(writer, "copy_call_s", (double)totals->counters.copy_call_ns * 1e-9);
        json_key_double(writer, "copy_device_s", totals->counters.copy_device_ms * 1e-3);
    }
    json_key_int(writer, "copy_bytes", (int64_t)totals->counters.copy_bytes);
    json_key_int(writer, "copies", (int64_t)totals->counters.copies);
    json_key_int(writer, "host_copies", (int64_t)totals->counters.bytes_copied_on_host);
    json_key_int(writer, "bytes_read", (int64_t)totals->counters.bytes_read);
    json_key_int(writer, "cache_hits", (int64_t)totals->counters.cache_hits);
    json_key_int(writer, "bad_images", (int64_t)totals->counters.bad_images);
    json_end_object(writer);
    json_key(writer, "cpu");
    json_begin_object(writer);
    json_key_double(writer, "process_s", (double)totals->process_cpu_ns * 1e-9);
    if (timing) {
        json_key_double(writer, "main_s", (double)totals->host_cpu_ns * 1e-9);
        json_key_double(writer, "workers_s", (double)totals->counters.worker_cpu_ns * 1e-9);
        json_key_double(writer, "read_s", (double)totals->counters.read_ns * 1e-9);
        json_key_double(writer, "decode_s", (double)totals->counters.decode_ns * 1e-9);
    }
    json_end_object(writer);
}
