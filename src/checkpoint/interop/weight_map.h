/* weight_map.h -- the index of a sharded Hugging Face model (weight_map: tensor name to file
 * name). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

/* Checks that the weight file is not a link to any other file of this machine: a link may only lead
 * to a file beside it, or to ../../blobs/HASH (with more ../ from a subfolder), where the Hub's
 * cache keeps the contents of files.  DATA: it leads elsewhere. */
enum status weight_map_check_link(const char *folder, const char *name);

/* Reads *map from tensor names to file names, which must be in the folder; the caller frees root.
 * DATA: the map is missing or malformed, or names a file that fails weight_map_check_link. */
enum status weight_map_read(const char *index, struct json **root, const struct json **map);
