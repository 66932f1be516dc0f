/* copier.h -- copies finished checkpoints to an object store, in a thread of rank 0, and fetches
 * the newest copy when a run starts without local checkpoints.
 *
 * A step's files become PREFIX/step-N/FILE, its manifest last: a copy without a manifest was never
 * finished, and is neither listed nor resumed from.  A copy that is replaced loses its manifest
 * first.
 * Order     Only the newest step waits: if saves are faster than the network, steps between are
 *           skipped.  A failed copy is a warning; the next save, or the next start, tries again.
 * Deleting  No step is deleted from the store. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "hub/hub_path.h"
#include "hub/hub_settings.h"

#include <stdint.h>

struct copier;

struct copier_options {
    const char *folder;                  /* of the local checkpoints */
    const char *destination;             /* s3://BUCKET/PREFIX */
    int64_t load_step;                   /* the step to resume from; negative: the newest */
    int stop_timeout_s;                  /* how long copier_close waits after a stop signal */
    bool read_only;                      /* uploads nothing */
    const struct hub_settings *settings; /* NULL: the environment's, read for each copy */
};

/* Without local steps, fetches the one to resume from; with any, queues the newest for copying
 * unless the store has it.  CONFIG: the destination is malformed, or the store denies access;
 * UNSUPPORTED: built without libcurl; other errors of client_send and file.h.  With local steps, a
 * store that cannot be reached is only a warning. */
enum status copier_open(struct copier **out, const struct copier_options *o);
/* Starts to copy a step that is complete, after the one in progress. */
void copier_add(struct copier *c, int64_t step);
/* The step whose files are being read, or -1.  After copier_add(c, n), no other step than n begins
 * until the next copier_add. */
int64_t copier_busy(struct copier *c);
/* Waits for the pending copies, but after a stop signal, or if the run failed and other ranks wait
 * for this one to say so, only stop_timeout_s. */
void copier_close(struct copier *c, bool failed);

struct copied_step {
    int64_t step;
    uint64_t bytes;
    bool is_complete; /* has a manifest */
};
/* Lists the copies, ascending; the caller frees *steps.  `s` NULL: the environment's. */
enum status copier_list(const struct hub_settings *s, const char *destination,
                        struct copied_step **steps, size_t *count);
