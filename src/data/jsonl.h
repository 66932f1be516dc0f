/* jsonl.h -- the string of one key in a line of JSON, or of a list's objects, without building a
 * tree.
 *
 * The line must be one object, after a byte order mark at most.  Other members are stepped over,
 * nested or not: their strings and brackets must close, and that is all that is asked of them. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Replaces `out` by the value of `path`, a key, unescaped (lone surrogates become U+FFFD).  As
 * files[].text it is a key within a list of objects, as of a repository's files: all of them, each
 * behind two line ends, as columns of a table are joined; what is null or absent is left out.
 * DATA: not an object or more than one, no such key or twice, not a string, not UTF-8; `where` and
 * the byte within the line are told. */
enum status jsonl_text(const char *line, size_t len, const char *path, const char *where,
                       struct text *out);
