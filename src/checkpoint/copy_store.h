/* copy_store.h -- copies of a run's checkpoints in an object store: looks at, uploads, fetches and
 * sets aside steps.
 *
 * A step's files are PREFIX/step-N/FILE.  Its manifest is uploaded last and deleted before a copy
 * is replaced, so a copy without a manifest is incomplete.
 * Errors   Those of client_send and file.h. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "checkpoint/folder.h"
#include "hub/client.h"
#include "hub/hub_path.h"
#include "hub/hub_settings.h"

#include <stdbool.h>
#include <stdint.h>

/* A connection to the store. */
struct copy_store {
    struct client client; /* the caller may set its `cancel` */
    struct hub_settings own;
    const struct hub_path *destination; /* s3://BUCKET/PREFIX; borrowed */
};

/* `settings` NULL: the environment's, read now, as credentials expire. */
enum status copy_store_open(struct copy_store *s, const struct hub_settings *settings,
                            const struct hub_path *destination);
void copy_store_close(struct copy_store *s); /* one that is not open is fine */

/* The steps that have a folder, complete or not. */
enum status copy_store_list(struct copy_store *s, struct folder_steps *l);

struct copied_step {
    int64_t step;
    uint64_t bytes;
    bool is_complete; /* has a manifest */
};
/* A step that does not exist has no bytes. */
enum status copy_store_look(struct copy_store *s, int64_t step, struct copied_step *out);

/* Uploads a checkpoint from its folder; *uploaded is false if the store has it already.  DATA: it
 * is damaged.  IO, too: a run replaced it during the copy. */
enum status copy_store_upload(struct copy_store *s, int64_t step, const char *path, bool *uploaded);
/* Fetches a step into the folder of a run's checkpoints; *found is false if its copy has no
 * manifest.  DATA: the copy is damaged, and nothing is left in the folder. */
enum status copy_store_fetch(struct copy_store *s, int64_t step, const char *folder, bool *found);
/* Deletes the manifests of all complete steps after `kept`, the oldest first, and appends " step-N"
 * for each. */
enum status copy_store_set_aside(struct copy_store *s, int64_t kept, struct text *deleted);
