/* hub_path.h -- parses hf:// and s3:// paths, and locates a repository or bucket in the local
 * cache.
 *
 * Paths    hf://datasets/ORG/NAME[@REVISION]/GLOB and hf://ORG/MODEL[@REVISION][/FILE].  A slash in
 *          a revision is written %2F, except in refs/convert/X and refs/pr/N; ~X is an alias of
 *          refs/convert/X.  s3://BUCKET[/KEY], where the key may be a pattern or a folder.
 * Cache    The layout of huggingface_hub, shared with its tools in both directions:
 *          CACHE/datasets--ORG--NAME/refs/REVISION         contains the commit hash,
 *                                   /blobs/ETAG            is the content of a file,
 *                                   /snapshots/COMMIT/FILE is a relative symlink to a blob.
 *          A bucket has the same layout in a cache of its own.  A "commit" is then a hash of a list
 *          of objects, a "revision" a hash of the path that was listed. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

enum { COMMIT_HEX = 41 }; /* with its NUL */

struct hub_path {
    bool is_dataset, is_s3;
    char *name;     /* the complete path, for messages */
    char *repo;     /* ORG/NAME, or BUCKET */
    char *revision; /* default "main" */
    char *path;     /* within the repository or bucket; "": all of it */
};
/* CONFIG: malformed; the message shows the syntax. */
enum status hub_path_parse(struct hub_path *p, const char *path);
void hub_path_release(struct hub_path *p);

/* CONFIG: a URL of a scheme other than hf and s3. */
enum status hub_path_check_scheme(const char *path);

char *hub_path_cache_folder(const struct hub_path *p,
                            const char *cache); /* CACHE/datasets--ORG--NAME; heap */
/* The commit that the cache has for the revision (refs/REVISION).  MISSING: none. */
enum status hub_path_cached_commit(const struct hub_path *p, const char *cache,
                                   char commit[COMMIT_HEX]);
/* Writes refs/REVISION, unless the revision is the commit itself. */
enum status hub_path_write_ref(const struct hub_path *p, const char *cache, const char *commit);

/* Whether the path stays below the folder it is relative to: no "..", not absolute. */
bool hub_path_is_contained(const char *path);
