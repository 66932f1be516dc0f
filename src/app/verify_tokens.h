/* verify_tokens.h -- `checkpoint verify PREFIX`: compares token files with their checksums. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

/* Whether the path is that of token files, PREFIX.bin and PREFIX.idx, with or without suffix. */
bool verify_tokens_handles(const char *path);
/* Reads both files and prints whether they are intact, as `checkpoint verify` does for checkpoints.
 * DATA: they are not.  MISSING: PREFIX.sum does not exist. */
enum status verify_tokens(const char *path, bool json);
