/* column_path.h -- the syntax in which users name a nested column, such as files[].text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* Whether the path begins with this name, and perhaps a [] after it.  Sets *rest to the path after
 * the dot that follows.  The name may have dots of its own. */
static inline bool column_path_match(const char *path, const char *name, size_t len,
                                     const char **rest)
{
    if (!len || strnlen(path, len) < len || memcmp(path, name, len) != 0) return false;
    path += len;
    while (path[0] == '[' && path[1] == ']') path += 2;
    *rest = path + (path[0] == '.');
    return !path[0] || path[0] == '.';
}
