/* state_json.h -- state.json of a checkpoint: {"format": 1, "step": N, "train": {...}}, where
 * `train` is the trainer's own JSON object, which is copied unchanged. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

#include <stdint.h>

/* `train` NULL: null. */
void state_json_write(int64_t step, const char *train, struct text *out);
/* Sets *step, and appends the trainer's object to `train` as it is in the file; nothing if it is
 * not an object.  MISSING: no such file.  DATA: malformed. */
enum status state_json_read(const char *path, int64_t *step, struct text *train);
