/* listing.h -- the files of a repository at one commit, from the Hub's tree API, or the objects of
 * a bucket (s3_listing.h). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/client.h"
#include "hub/digest.h"
#include "hub/hub_path.h"

struct hub_file {
    char *path; /* within the repository; see hub_path_is_contained */
    uint64_t size;
    bool is_folder;
    enum digest_kind kind; /* SHA256: of an LFS file's bytes; SHA1: of a Git blob */
    char hash[DIGEST_HEX]; /* the ETag, which is also the name of its blob in the cache */
    char *etag; /* an object's, quoted; its hash is then not of its bytes.  NULL: a Hub file */
};

struct listing {
    struct hub_file *files; /* owned */
    size_t count;
};
void listing_release(struct listing *l);

/* Adds a page of the tree API's response.  DATA: malformed; a path that leaves the folder; too many
 * files. */
enum status listing_add_page(struct listing *l, const char *json, size_t len, const char *what);
void listing_append(struct listing *l, const struct hub_file *file); /* copies path and ETag */
/* Sets the hash of an object: that of its path, size and ETag. */
void listing_hash_object(struct hub_file *f);
/* Whether it is an ETag that this program sends and stores: quoted, printable. */
bool listing_is_etag(const char *etag);

/* Resolves the revision to a commit hash on the Hub. */
enum status listing_fetch_commit(struct client *c, const struct hub_path *p,
                                 char commit[COMMIT_HEX]);

struct tree_query {
    const char *folder; /* "": the root */
    bool recursive;     /* with the entries of its subfolders */
    const char *prefix; /* of the paths; NULL: any.  The Hub ignores it */
};
/* Adds the entries of a folder. */
enum status listing_fetch_tree(struct client *c, const struct hub_path *p, const char *commit,
                               const struct tree_query *q, struct listing *l);

/* Serializes to lines of text, which ranks send to each other, and back. */
void listing_write(const struct listing *l, struct text *out);
enum status listing_parse(struct listing *l, const char *lines);
