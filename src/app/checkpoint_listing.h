/* checkpoint_listing.h -- `checkpoint ls` and `checkpoint verify`: a line for each checkpoint of a
 * run. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>

/* Prints the checkpoints in `path`: a run's folder, the folder of its checkpoints, one of them, or
 * with s3://BUCKET/PREFIX the copies in an object store.  verify: reads every byte; otherwise only
 * manifests and sizes are checked.  MISSING: no checkpoint.  DATA: verify found a damaged one.
 * USAGE: verify of copies. */
enum status checkpoint_listing_print(const char *path, bool json, bool verify);
