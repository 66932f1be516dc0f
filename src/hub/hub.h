/* hub.h -- hf:// paths of the Hugging Face Hub and s3:// paths of object stores (hub_path.h has
 * their syntax) as local files.
 *
 * hub_fetch downloads what a path refers to into the cache; hub_find returns its local path without
 * any request.  Both return local paths unchanged; a URL of another scheme is an error (CONFIG).
 * Offline  With HF_HUB_OFFLINE=1 neither the Hub nor an object store is contacted; hub_fetch only
 *          checks the cache. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "comm/comm.h"
#include "hub/hub_path.h"
#include "hub/hub_settings.h"

/* Which files to download: those that match a path's pattern (for X.idx, X.bin or the prefix X both
 * files of the pair); or, for the path of a repository or a folder, its tokenizer, or its weights
 * and tokenizer. */
enum hub_selection { HUB_DATA, HUB_TOKENIZER, HUB_WEIGHTS };

bool hub_is_path(const char *path); /* hf:// or s3:// */
/* Whether a file of that name in a model's folder belongs to the model, and whether it holds
 * weights. */
bool hub_is_model_file(const char *name);
bool hub_is_weights(const char *name);

/* Collective: rank 0 lists and downloads the files, then the ranks that do not share its cache
 * download them as well.  Errors of client_get; MISSING: no file matches; UNSUPPORTED: built
 * without libcurl. */
enum status hub_fetch(const char *path, enum hub_selection selection, const struct comm *world);
/* The same with explicit settings instead of the environment's. */
enum status hub_fetch_with(const struct hub_settings *s, const char *path,
                           enum hub_selection selection, const struct comm *world);

/* The local path, or pattern; heap.  MISSING: not in the cache. */
enum status hub_find(const char *path, char **local);
enum status hub_find_with(const struct hub_settings *s, const char *path, char **local);

/* Checks which paths' data files are cached, without downloading any: cached[i] becomes true if
 * the cache has all files of paths[i], or if that is a local path.  `report` receives what is
 * missing, or that the Hub cannot be reached; then the files that the cache has of a path count as
 * all of them.  Errors: those of hub_fetch that are not about reaching the Hub. */
enum status hub_look(const char *const *paths, size_t count, bool *cached, struct text *report);
enum status hub_look_with(const struct hub_settings *s, const char *const *paths, size_t count,
                          bool *cached, struct text *report);
