/* hub.h -- paths of the Hugging Face Hub (place.h has their grammar): fetched first, then local.
 *
 * hub_fetch asks the Hub and fills the cache; hub_find asks nobody and says where a path then is.
 * Paths that do not begin with hf:// go through both as they are.
 * Offline  With HF_HUB_OFFLINE=1 nothing is asked, and what the cache has is used. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "hub/place.h"

/* name, which files a path means that names a repository or a folder in it; data: only those its
 * pattern matches (for X.idx and a prefix X the .bin and .idx, too) */
enum hub_what { HUB_DATA, HUB_TOKENIZER, HUB_WEIGHTS };

bool hub_is_path(const char *path);

/* Collective: rank 0 asks what there is and fetches it, then those who do not see its files do.
 * NULL: a rank alone.  The statuses of client_get; MISSING: nothing there matches; UNSUPPORTED:
 * built without libcurl. */
enum status hub_fetch(const char *path, enum hub_what what, const struct comm *world);
/* The same with settings that are not the environment's. */
enum status hub_fetch_with(const struct hub_settings *s, const char *path, enum hub_what what,
                           const struct comm *world);

/* The local path, or pattern; heap.  MISSING: it was not fetched. */
enum status hub_find(const char *path, char **local);
enum status hub_find_with(const struct hub_settings *s, const char *path, char **local);
