/* jsonl.h -- extracts the text of one key from a line of JSON, or of each object in a list, without
 * building a tree.
 *
 * The line must be a single object, optionally after a byte order mark.  Other members are skipped,
 * but checked: the whole line must have the grammar of RFC 8259.  Only lone surrogates, duplicate
 * keys and bytes that are not UTF-8 are accepted there, and nesting is limited to 200 levels. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"

/* Replaces `out` with the unescaped value of `path` (lone surrogates become U+FFFD).  `path` is a
 * key, or, if the object has no such key, KEY.KEY for a member of an object in it; or PATH[].PATH,
 * as files[].text for the files of a repository: then `out` is the strings of all objects in that
 * list, each after two line breaks, as table.h joins lists of text; null or missing ones are
 * skipped.  Lists nest, as in files[].parts[].text.  If the value itself is null, `out` is empty,
 * as a null of a table.
 * RECORD: not exactly one object, key missing or duplicate, not a string, not UTF-8.  The message
 * begins with `where` and gives the byte within the line. */
enum status jsonl_text(const char *line, size_t len, const char *path, const char *where,
                       struct text *out);
