/* listing.h -- the files of a repository at one commit, as the Hub tells them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/client.h"
#include "hub/digest.h"

struct hub_file {
    char *path; /* below the repository; stays inside, see is_inside */
    uint64_t size;
    bool is_folder;
    enum digest_kind kind; /* SHA256: of its bytes (LFS); SHA1: of git's blob */
    char hash[DIGEST_HEX]; /* also the name of its blob in the cache */
};

struct listing {
    struct hub_file *files; /* owned */
    size_t count;
};
void listing_release(struct listing *l);

/* Adds a page of the tree API.  DATA: it is not one; a name that leaves the folder; too many. */
enum status listing_add(struct listing *l, const char *json, size_t len, const char *what);
void listing_put(struct listing *l, const struct hub_file *file); /* the path is copied */

/* The commit of the place's revision, as the Hub says now. */
enum status listing_commit(struct client *c, const struct place *p, char commit[COMMIT_HEX]);
/* Adds what is in a folder ("": the top), with `deep` also below that. */
enum status listing_read(struct client *c, const struct place *p, const char *commit,
                         const char *folder, bool deep, struct listing *l);

/* The same as lines of text, which ranks send each other. */
void listing_write(const struct listing *l, struct text *out);
enum status listing_parse(struct listing *l, const char *lines);
