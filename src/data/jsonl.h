/* jsonl.h -- the string of one key in a line of JSON, without building a tree.
 *
 * The line must be one object, after a byte order mark at most.  Other members are stepped over,
 * nested or not: their strings and brackets must close, and that is all that is asked of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Replaces `out` by the value of `key`, unescaped (lone surrogates become U+FFFD).  DATA: not an
 * object or more than one, no such key or twice, not a string, not UTF-8; `where` and the byte
 * within the line are told. */
enum status jsonl_text(const char *line, size_t len, const char *key, const char *where,
                       struct text *out);
