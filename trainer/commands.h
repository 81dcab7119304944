/* The subcommands of this layer, for the table in pinline.c. */
#ifndef PINLINE_TRAINER_COMMANDS_H
#define PINLINE_TRAINER_COMMANDS_H

#include "data/dataset.h"
#include "trainer/options.h"
#include "trainer/settings.h"

extern const struct command command_train;
extern const struct command command_eval;
extern const struct command command_predict;
extern const struct command command_doctor;
extern const struct command command_bench;
extern const struct command command_synth;
extern const struct command command_check;
extern const struct command command_pack;

/* Sets the log level by --quiet and --verbose: a command's results, warnings and errors are printed at
 * any. STATUS_USAGE where both are given. */
enum status command_set_log_level(const struct settings *settings) MUST_USE;

/*
 * A setting that was given and that nothing uses is a misunderstanding, better said than trained with:
 * STATUS_USAGE naming it and what it needs. `varies` tells, of a command that runs several jobs,
 * whether an option has other values in some of them; NULL for one job.
 */
enum status command_refuse_unused(const struct settings *settings,
                                  bool (*varies)(const char *option)) MUST_USE;

/*
 * Checks the options that were given against --device, of a command that takes all of them:
 * STATUS_USAGE where one does nothing on the device that was asked for. With --device auto those that
 * only a GPU uses go into settings->device.cuda_only, for the message where the host is taken.
 */
enum status command_check_device(struct settings *settings) MUST_USE;

/*
 * Takes model, stem, image size, mean, deviation, view, EXIF's turn and exactness from the weights in
 * settings->weights, where the command line does not say otherwise. The names stay valid as long as
 * the process. STATUS_USAGE where --weights is missing; statuses of checkpoint_read_model.
 */
enum status command_take_model(struct settings *settings) MUST_USE;

/*
 * Opens the sets of a place as it is divided itself: a folder with val/ or test/, a packed set, the
 * files of CIFAR or MNIST. *val is NULL where it is not divided, and nothing is held out then.
 * Statuses of dataset_open.
 */
enum status command_open_as_divided(const struct dataset_settings *settings, dataset **train,
                                    dataset **val) MUST_USE;

/* Prints one JSON document on standard output: `write(context, writer)`, pretty. */
void command_print_json(void (*write)(void *context, struct json_writer *writer), void *context);

/* Prints `text` as a CSV field: in quotes where it holds a comma, a quote or a line break. */
void command_print_csv_text(FILE *out, const char *text);

#endif
