/* checks.h -- what `llamero doctor` looks at; each adds its findings. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "doctor/findings.h"

#include <stdint.h>

void check_program(struct findings *f);
/* Whether this program can run on many ranks, and on those that were started with it. */
void check_ranks(struct findings *f);
/* Load by others: before anything here makes some. */
void check_load(struct findings *f);
void check_processor(struct findings *f);
void check_clock(struct findings *f);
void check_memory(struct findings *f);
void check_limits(struct findings *f);
/* The GPUs this program can use, and what one of a known kind does at best. */
void check_gpus(struct findings *f);
/* Peaks and bandwidths, about a second. */
void check_speed(struct findings *f);
/* Of the file system there: its kind, room, and writing a file that lasts. */
void check_folder(struct findings *f, const char *path);

/* What Linux calls a kind of file system in statfs: a name, and what is to be said against it for
 * runs and checkpoints, or NULL.  A kind that is not known has no name: NULL. */
struct filesystem {
    uint32_t magic;
    const char *name, *advice;
};
const struct filesystem *filesystem_find(uint32_t magic);
