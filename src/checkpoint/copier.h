/* copier.h -- copies finished checkpoints to an object store, in a thread of rank 0, and fetches
 * the newest copy when a run starts without local checkpoints.
 *
 * copy_store.h describes what a copy is, and when it is complete.
 * Order     Only the newest step is pending: if saves are faster than the network, the steps in
 *           between are skipped.  A failed copy is a warning; the next save or start tries again.
 * Deleting  Of the store's files only manifests are deleted, of copies that are replaced or set
 *           aside. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "checkpoint/copy_store.h"
#include "hub/hub_settings.h"

#include <stdbool.h>
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

/* CONFIG: the destination is malformed.  Contacts no store. */
enum status copier_check_destination(const char *destination);

/* Without local steps, fetches the one to resume from: load_step, or the newest unless steps were
 * set aside (folder_abandon).  Otherwise queues the newest local one, which is not copied if the
 * store has it.  CONFIG: the destination is malformed, or the store denies access; UNSUPPORTED:
 * built without libcurl; other errors of client_send and file.h.  With local steps, a store that
 * cannot be reached is only a warning. */
enum status copier_open(struct copier **out, const struct copier_options *o);
/* Queues a complete step: it is copied after the copy in progress, and replaces a pending one. */
void copier_add(struct copier *c, int64_t step);
/* The step whose files are being read, or -1.  After copier_add(c, n), only the copy of step n can
 * begin until the next copier_add. */
int64_t copier_busy(struct copier *c);
/* Sets aside the copies of all later steps: those that are pending or in progress are dropped, and
 * the thread deletes the manifests of the others, before it copies anything else.  If that fails, a
 * warning is logged. */
void copier_abandon(struct copier *c, int64_t step);
/* Waits for the copies in progress and pending; after a stop signal, or if the run failed and other
 * ranks wait for this one to report it, at most stop_timeout_s. */
void copier_close(struct copier *c, bool failed);

/* Lists the copies, ascending; the caller frees *steps.  `s` NULL: the environment's. */
enum status copier_list(const struct hub_settings *s, const char *destination,
                        struct copied_step **steps, size_t *count);
