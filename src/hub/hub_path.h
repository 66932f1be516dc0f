/* hub_path.h -- parses hf:// paths, and locates a repository in the local cache.
 *
 * Paths    hf://datasets/ORG/NAME[@REVISION]/GLOB and hf://ORG/MODEL[@REVISION][/FILE].  A slash in
 *          a revision is written %2F, except in refs/convert/X and refs/pr/N; ~X is an alias of
 *          refs/convert/X.
 * Cache    The layout of huggingface_hub, shared with its tools in both directions:
 *          CACHE/datasets--ORG--NAME/refs/REVISION         contains the commit hash,
 *                                   /blobs/ETAG            is the content of a file,
 *                                   /snapshots/COMMIT/FILE is a relative symlink to a blob. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

enum { COMMIT_HEX = 41 }; /* with its NUL */

struct hub_path {
    bool is_dataset;
    char *name;     /* the complete hf:// path, for messages */
    char *repo;     /* ORG/NAME */
    char *revision; /* default "main" */
    char *path;     /* within the repository; "": all of it */
};
/* CONFIG: malformed; the message shows the syntax. */
enum status hub_path_parse(struct hub_path *p, const char *path);
void hub_path_release(struct hub_path *p);

char *hub_path_cache_folder(const struct hub_path *p,
                            const char *cache); /* CACHE/datasets--ORG--NAME; heap */
/* The commit that the cache has for the revision (refs/REVISION).  MISSING: none. */
enum status hub_path_cached_commit(const struct hub_path *p, const char *cache,
                                   char commit[COMMIT_HEX]);
/* Writes refs/REVISION, unless the revision is the commit itself. */
enum status hub_path_write_ref(const struct hub_path *p, const char *cache, const char *commit);

/* Does a file's path stay below the folder it is relative to?  No "..", not absolute. */
bool hub_path_is_contained(const char *path);
