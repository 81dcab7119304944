/* Tables of what comes in: data, loading, staging, images. */
#include "trainer/job_options_internal.h"

/* Names of choices, in the order of their enums. */
static const char *const pin_memory_names[] = {"off", "on", "auto", NULL};
static const char *const pin_how_names[] = {"register", "alloc", NULL};
static const char *const copy_stream_names[] = {"dedicated", "compute", NULL};
static const char *const transfer_names[] = {"u8", "f32", NULL};
static const char *const staging_names[] = {"slot", "thread", NULL};
static const char *const stores_names[] = {"auto", "plain", "streamed", NULL};
static const char *const cache_names[] = {"none", "encoded", "decoded", NULL};
static const char *const bad_image_names[] = {"stop", "skip", NULL};
static const char *const io_names[] = {"threads", "mmap", NULL};
static const char *const augment_names[] = {"none", "centre", "crop", "rrc", NULL};

static enum status parse_decoders(void *field, const char *text)
{
    TRY(image_settings_parse_libraries(field, text));
    return STATUS_OK;
}

static void write_decoders(const void *field, struct json_writer *writer)
{
    char text[32];
    json_string(writer, image_settings_libraries_text(field, text, sizeof text));
}

static const struct option data_options[] = {
    {.name = "data",
     .kind = OPTION_TEXT,
     .offset = FIELD(dataset.data),
     .metavar = "DIR",
     .help = "images in class folders (with train/ and val/ or test/ inside, or split by "
             "--val-fraction), a packed set, or CIFAR or IDX files"},
    {.name = "val-data",
     .kind = OPTION_TEXT,
     .offset = FIELD(dataset.val_data),
     .metavar = "DIR",
     .help = "images for validation, in the same classes"},
    {.name = "val-fraction",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(dataset.val_fraction),
     .high = 0.9,
     .metavar = "X",
     .help = "share of the images held out where nothing else is given for validation"},
    {.name = "limit-samples",
     .kind = OPTION_COUNT,
     .offset = FIELD(dataset.limit_samples),
     .metavar = "N",
     .help = "train on at most so many images, spread evenly over the set; 0 means all"},
};
const struct option_table options_data = TABLE("Data", data_options);

static const struct option loading_options[] = {
    {.name = "batch-size",
     .short_name = "b",
     .kind = OPTION_INT,
     .offset = FIELD(loader.batch_size),
     .low = 1,
     .high = 65536,
     .metavar = "N",
     .help = "images a step"},
    {.name = "num-workers",
     .short_name = "j",
     .kind = OPTION_INT,
     .offset = FIELD(loader.num_workers),
     .high = 1024,
     .low = 0,
     .metavar = "N",
     .help = "decoding threads; 0 decodes in the training thread; the default is the CPUs allowed "
             "less one"},
    {.name = "prefetch",
     .kind = OPTION_INT,
     .offset = FIELD(loader.prefetch),
     .high = 256,
     .metavar = "N",
     .help = "batches in the whole ring of slots; 0 chooses"},
    {.name = "io",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.io),
     .choices = io_names,
     .help = "how files are read"},
    {.name = "on-bad-image",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.on_bad_image),
     .choices = bad_image_names,
     .help = "stop at an image that cannot be read, or count it and go on without it"},
};
const struct option_table options_loading = TABLE("Loading", loading_options);

static const struct option order_options[] = {
    {.name = "persistent-workers",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.persistent_workers),
     .help = "keep the decoding threads from epoch to epoch"},
    {.name = "prefetch-epochs",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.prefetch_epochs),
     .help = "begin the next epoch's batches while this one ends"},
    {.name = "shuffle",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.shuffle),
     .help = "a new order every epoch"},
    {.name = "drop-last",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.drop_last),
     .help = "leave out the last batch when it is not full"},
    {.name = "seed",
     .kind = OPTION_SEED,
     .offset = FIELD(seed),
     .metavar = "N",
     .help = "of weights, order and augmentation"},
    {.name = "cache",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.cache),
     .choices = cache_names,
     .help = "keep files or pixels in memory after the first epoch"},
    {.name = "cache-bytes",
     .kind = OPTION_BYTES,
     .offset = FIELD(loader.cache_bytes),
     .metavar = "BYTES",
     .help = "limit of the cache; 0 means half of the memory that is free"},
    {.name = "stores",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.stores),
     .choices = stores_names,
     .help =
         "how workers write pixels: through the cache, past it, or as suits the size of the ring"},
    {.name = "allow-large-pinned",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.allow_large_pinned),
     .help = "page-lock more than a tenth of the machine's memory"},
};
const struct option_table options_order = TABLE("Order and memory", order_options);

static const struct option staging_options[] = {
    {.name = "pin-memory",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.pin_memory),
     .choices = pin_memory_names,
     .bare = PIN_ON,
     .help = "stage batches in page-locked memory; auto falls back to pageable memory and says so"},
    {.name = "pin-how",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.pin_how),
     .choices = pin_how_names,
     .help = "page-lock by cudaHostRegister or take cudaHostAlloc's memory"},
    {.name = "non-blocking",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.non_blocking),
     .help = "go on after issuing a copy instead of waiting for it"},
    {.name = "copy-stream",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.copy_stream),
     .choices = copy_stream_names,
     .help = "issue copies on a stream of their own, or on the stream of the kernels as PyTorch's "
             ".to() does"},
    {.name = "transfer",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.transfer),
     .choices = transfer_names,
     .help = "what crosses the bus: bytes, normalised on the device, or normalised floats"},
    {.name = "staging",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.staging),
     .choices = staging_names,
     .help = "workers decode into the slot, or a copying thread fills it as PyTorch's pin thread "
             "does"},
};
const struct option_table options_staging = TABLE("Staging", staging_options);

static const struct option image_options[] = {
    {.name = "size",
     .kind = OPTION_INT,
     .offset = FIELD(loader.size),
     .low = 4,
     .high = 4096,
     .metavar = "N",
     .help = "edge of the square images that the network sees, in pixels"},
    {.name = "augment",
     .kind = OPTION_CHOICE,
     .offset = FIELD(loader.augment.kind),
     .choices = augment_names,
     .help = "the whole image squashed; the middle; a crop of the padded image; or a random "
             "resized crop"},
    {.name = "mean",
     .kind = OPTION_FLOAT3,
     .offset = FIELD(loader.mean),
     .low = -1,
     .high = 2,
     .metavar = "R,G,B",
     .help = "subtracted from pixels in 0 .. 1; one number or three"},
    {.name = "std",
     .kind = OPTION_FLOAT3,
     .offset = FIELD(loader.deviation),
     .low = 1e-6,
     .high = 1000,
     .metavar = "R,G,B",
     .help = "then divided by; one number or three"},
};
const struct option_table options_images = TABLE("Images", image_options);

static const struct option decoding_options[] = {
    {.name = "decoders",
     .kind = OPTION_CUSTOM,
     .offset = FIELD(loader.image),
     .metavar = "LIST",
     .help = "decoding libraries in the order of preference, of turbo, libpng and stb; what is "
             "left out is never called",
     .parse = parse_decoders,
     .write = write_decoders},
    {.name = "exact-decode",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.image.exact_decode),
     .help = "decode JPEG at full scale and with smooth chroma even where the target is smaller"},
    {.name = "exif-orientation",
     .kind = OPTION_SWITCH,
     .offset = FIELD(loader.image.exif_orientation),
     .help = "turn images as their EXIF tag says"},
    {.name = "max-pixels",
     .kind = OPTION_BYTES,
     .offset = FIELD(loader.image.max_pixels),
     .metavar = "N",
     .help = "refuse images of more pixels, from the header"},
    {.name = "max-file-bytes",
     .kind = OPTION_BYTES,
     .offset = FIELD(loader.image.max_file_bytes),
     .metavar = "BYTES",
     .help = "refuse larger files"},
};
const struct option_table options_decoding = TABLE("Decoding", decoding_options);

static const struct option augmentation_options[] = {
    {.name = "padding",
     .kind = OPTION_INT,
     .offset = FIELD(loader.augment.padding),
     .high = 4095,
     .metavar = "N",
     .help = "pixels of padding a side for --augment crop"},
    {.name = "flip",
     .kind = OPTION_SWITCH,
     .offset = FIELD(flip),
     .help = "mirror every other image, at random"},
    {.name = "label-smoothing",
     .kind = OPTION_DOUBLE,
     .offset = FIELD(loader.label_smoothing),
     .high = 0.99,
     .metavar = "X",
     .help = "share of each target that is spread over all classes"},
};
const struct option_table options_augmentation = TABLE("Augmentation", augmentation_options);
