/* checkpoint_show.h -- `checkpoint show`: a model's dimensions, parameters, files or tensors. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "checkpoint/interop/dcp_generation.h"

#include <stdbool.h>

enum { CHECKPOINT_NAME_BYTES = 512 }; /* printed of the name of a tensor or file */

/* Prints what `path` holds: a checkpoint, or a folder of a format that convert reads.  tensors:
 * lists tensors instead of files.  MISSING, DATA, UNSUPPORTED: no such folder or not readable. */
enum status checkpoint_show(const char *path, bool tensors, bool json);
/* Prints the keys that `convert --to dcp` would write for this generation.  As above. */
enum status checkpoint_show_as(const char *path, enum dcp_generation generation, bool json);
