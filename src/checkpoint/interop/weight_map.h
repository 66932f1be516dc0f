/* weight_map.h -- the index of a model in several files, as Hugging Face writes it beside them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"

/* From the names of tensors to those of files, which may not leave the folder; json_free(root).
 * DATA: it has no such map, or what in it is wrong. */
enum status weight_map_read(const char *index, struct json **root, const struct json **map);
