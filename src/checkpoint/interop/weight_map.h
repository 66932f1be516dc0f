/* weight_map.h -- the index of a sharded Hugging Face model (weight_map: tensor name to file
 * name). */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

/* Reads *map from tensor names to file names, which must be in the folder; the caller frees root.
 * DATA: the map is missing or malformed. */
enum status weight_map_read(const char *index, struct json **root, const struct json **map);
