/* What the files of tables share. */
#ifndef PINLINE_TRAINER_JOB_OPTIONS_INTERNAL_H
#define PINLINE_TRAINER_JOB_OPTIONS_INTERNAL_H

#include "trainer/job_options.h"
#include "trainer/settings.h"

#define FIELD(member) offsetof(struct settings, member)
#define TABLE(title_text, array)                                                                   \
    {                                                                                              \
        .title = (title_text), .options = (array), .count = sizeof(array) / sizeof((array)[0])     \
    }

_Static_assert(sizeof(size_t) == sizeof(uint64_t), "BYTES options also fill uint64_t fields");
_Static_assert(sizeof(enum transfer) == sizeof(int), "CHOICE options fill enums as int");

#endif
