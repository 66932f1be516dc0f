/* s3_listing.h -- lists the objects of a bucket (ListObjectsV2). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "hub/listing.h"

/* Adds the objects and common prefixes (as folders) of a page of the XML response; *next becomes
 * the continuation token, or empty.  Objects whose key ends in a slash, which mark folders, are
 * skipped.  Keys may be any text; see hub_path_is_contained.  DATA: malformed; too many objects;
 * truncated without a continuation token, as stores without ListObjectsV2 answer. */
enum status s3_listing_add_page(struct listing *l, const char *xml, size_t len, const char *what,
                                struct text *next);

/* Adds the objects whose keys begin with query->prefix, or with query->folder and a slash. */
enum status s3_listing_fetch(struct client *c, const struct hub_path *p,
                             const struct tree_query *query, struct listing *l);
/* The "commit" of a list of objects: a hash of all their keys, sizes and ETags. */
void s3_listing_commit(const struct listing *l, char commit[COMMIT_HEX]);
