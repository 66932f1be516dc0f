/* download.h -- one file of the Hub into the cache: whole and checked, or not at all.
 *
 * What has come is in blobs/HASH.incomplete, from where the next attempt goes on, also of another
 * process; Hugging Face's tools and we keep each other out by .locks/REPOSITORY/HASH.lock. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/listing.h"

/* A snapshot in the cache. */
struct snapshot {
    const struct place *place; /* borrowed */
    const char *cache;         /* borrowed */
    char commit[COMMIT_HEX];
    char *folder; /* CACHE/datasets--ORG--NAME; owned */
};
void snapshot_init(struct snapshot *s, const struct place *place, const char *cache,
                   const char *commit);
void snapshot_release(struct snapshot *s);

char *snapshot_path(const struct snapshot *s, const char *path); /* of a file in it; heap */
/* Is the file there, of that size? */
bool snapshot_has(const struct snapshot *s, const struct hub_file *f);

/* Told of every piece that arrives. */
struct download_watch {
    void (*got)(struct download_watch *w, const struct hub_file *f, uint64_t have, size_t len);
};

/* The revision means this snapshot from now on. */
enum status snapshot_note(const struct snapshot *s);
/* Nothing where it is there.  DATA: what came is not what the Hub said; it is deleted. */
enum status snapshot_fetch(const struct snapshot *s, struct client *c, const struct hub_file *f,
                           struct download_watch *watch);
