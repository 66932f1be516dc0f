/* place.h -- what an hf:// path says, where the cache is, and where in it a file belongs.
 *
 * Paths    hf://datasets/ORG/NAME[@REVISION]/GLOB and hf://ORG/MODEL[@REVISION][/FILE].  A slash in
 *          a revision is written %2F, but for refs/convert/X and refs/pr/N; ~X is refs/convert/X.
 * Cache    That of Hugging Face's own tools, shared with them both ways:
 *          CACHE/datasets--ORG--NAME/refs/REVISION         holds the commit,
 *                                   /blobs/HASH            what a file holds,
 *                                   /snapshots/COMMIT/FILE a relative link to it. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

enum { COMMIT_HEX = 41 }; /* with its NUL */

/* Where the Hub and the cache are: of the environment. */
struct hub_settings {
    char *endpoint;         /* HF_ENDPOINT, else https://huggingface.co; no slash at the end */
    char *cache;            /* HF_HUB_CACHE, $HF_HOME/hub, ~/.cache/huggingface/hub */
    char *token;            /* "": none */
    const char *token_from; /* "HF_TOKEN", or that it is of a file */
    bool offline;           /* HF_HUB_OFFLINE */
    /* Waits before a request is sent again; NULL: sleeps. */
    void (*wait)(void *context, double seconds);
    void *context;
};
/* CONFIG: no folder for a cache is known.  DATA: the token's file is not one. */
enum status hub_settings_read(struct hub_settings *s);
void hub_settings_release(struct hub_settings *s);

struct place {
    bool is_dataset;
    char *name;     /* the whole hf:// path, for messages */
    char *repo;     /* ORG/NAME */
    char *revision; /* "main" where none is given */
    char *path;     /* within the repository; "": all of it */
};
/* CONFIG: it is no such path; says what one looks like. */
enum status place_read(struct place *p, const char *path);
void place_release(struct place *p);

char *place_folder(const struct place *p, const char *cache); /* CACHE/datasets--ORG--NAME */
/* The commit the cache has for the revision.  MISSING: it has none. */
enum status place_commit(const struct place *p, const char *cache, char commit[COMMIT_HEX]);
/* Notes it there, unless the revision is the commit itself. */
enum status place_note(const struct place *p, const char *cache, const char *commit);

bool is_hex(const char *text, size_t digits); /* exactly so many, small letters */
/* A file's path that stays below the folder it is put into: no "..", not absolute. */
bool is_inside(const char *path);
