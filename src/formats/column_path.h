/* column_path.h -- the syntax in which users name a nested column, such as files[].text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <string.h>

/* Returns the length of the path's first name, without a trailing [], and sets *rest to the path
 * after the dot that ends it. */
static inline size_t column_path_next(const char *path, const char **rest)
{
    size_t len = strcspn(path, ".");
    *rest = path + len + (path[len] == '.');
    while (len >= 2 && path[len - 2] == '[' && path[len - 1] == ']') len -= 2;
    return len;
}
