/* export.h -- exports a tokenizer as a token table. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "tokenizer/token_table.h"
#include "tokenizer/tokenizer.h"

/* A BPE with byte_fallback gets scores that reproduce its merges.  If two overlapping pairs would
 * give the same token, scores merge the left one first, not the one with the lower rank.
 * UNSUPPORTED: an unknown pre-tokenizer, or merges that no scores reproduce. */
enum status export_token_table(const struct tokenizer *t, struct token_table *e);
