/* column_path.h -- how users name a column that lies within others: files[].text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <string.h>

/* The length of the first name of a path, without []; *rest is what follows its dot. */
static inline size_t column_path_name(const char *path, const char **rest)
{
    size_t len = strcspn(path, ".");
    *rest = path + len + (path[len] == '.');
    while (len >= 2 && path[len - 2] == '[' && path[len - 1] == ']') len -= 2;
    return len;
}
