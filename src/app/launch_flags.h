/* launch_flags.h -- --ranks and --gpus of the commands that run on several ranks: they start the
 * ranks on this host, without mpirun. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "app/arguments.h"
#include "machine/launch.h"

struct launch_flags {
    int64_t ranks;    /* LAUNCH_UNSET: not given */
    const char *gpus; /* ""; not given */
};

#define LAUNCH_UNSET INT64_MIN
#define LAUNCH_NONE                                                                                \
    {                                                                                              \
        LAUNCH_UNSET, ""                                                                           \
    }

/* The rows of a command's table of flags. */
#define LAUNCH_FLAGS(f)                                                                            \
    {"ranks", FLAG_INT(1, LAUNCHER_MAX_RANKS), &(f)->ranks,                                        \
     "start this many ranks on this host, without mpirun"},                                        \
    {                                                                                              \
        "gpus", FLAG_TEXT, &(f)->gpus,                                                             \
            "start a rank for each GPU of this host: all, a number of GPUs, or indices as in "     \
            "0,2,3"                                                                                \
    }

/* Adds --gpus to the settings, as device.gpus.  USAGE: both flags are given. */
enum status launch_flags_apply(struct launch_flags *f, struct arguments *a);
/* Starts the ranks, as launch_ranks; `gpus` is the configuration's device.gpus.  Without flags and
 * without that, and under a launcher, this process is a rank itself.  Call it before the process
 * starts threads.  Errors as launch_ranks and launch_find_gpus. */
enum status launch_flags_start(const struct launch_flags *f, const char *gpus, bool *is_rank);
