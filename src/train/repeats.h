/* repeats.h -- logs when a source's documents repeat.
 *
 * Epochs   Each stream reads its own part of a source, so they begin an epoch at different steps:
 *          the source's epoch is the latest of any stream.  A line for epochs 2, 4, 8, ...
 * Resume   Starts from the cursor, so a resumed run logs the lines of an uninterrupted one. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "data/data_config.h"
#include "data/loader.h"

struct repeats {
    const struct data_config *data; /* borrowed */
    int64_t *epochs;                /* of each source, from 0; up to which lines were logged */
    int64_t *latest;                /* of each source now */
};

/* After the loader's cursor is loaded.  The loader is NULL on a rank that does not read.
 * Collective over the run. */
enum status repeats_open(struct repeats *r, const struct data_config *data, const struct loader *l,
                         const struct comm *world);
void repeats_close(struct repeats *r);

/* Logs the epochs that the rows up to this step have begun.  Collective over the run.  Allocates
 * nothing. */
enum status repeats_check(struct repeats *r, const struct loader *l, int64_t step,
                          const struct comm *world);
