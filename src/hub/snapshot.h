/* snapshot.h -- downloads files of one commit into the cache, each complete and verified or not at
 * all.
 *
 * A partial download is kept in blobs/ETAG.incomplete, from which the next attempt resumes, even of
 * another process.  .locks/REPOSITORY/ETAG.lock excludes other processes and huggingface_hub. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/listing.h"

struct snapshot {
    const struct hub_path *path; /* borrowed */
    const char *cache;           /* borrowed */
    char commit[COMMIT_HEX];
    char *folder;     /* CACHE/datasets--ORG--NAME or CACHE/BUCKET; owned */
    const char *base; /* URL of an object store's bucket; NULL: the Hub */
};
void snapshot_init(struct snapshot *s, const struct hub_path *path, const char *cache,
                   const char *commit);
void snapshot_release(struct snapshot *s);

char *snapshot_path(const struct snapshot *s, const char *path); /* of a file in it; heap */
/* Whether the file exists with the right size. */
bool snapshot_has(const struct snapshot *s, const struct hub_file *f);

/* Called for every chunk that arrives. */
struct download_observer {
    void (*on_bytes)(struct download_observer *w, const struct hub_file *f, uint64_t have,
                     size_t len);
};

/* Makes the revision refer to this snapshot. */
enum status snapshot_write_ref(const struct snapshot *s);
/* Downloads a file unless the cache has it.  DATA: size or hash mismatch; the file is deleted.  An
 * object has no hash; the server checks that its ETag is still the one that was listed. */
enum status snapshot_download(const struct snapshot *s, struct client *c, const struct hub_file *f,
                              struct download_observer *observer);
