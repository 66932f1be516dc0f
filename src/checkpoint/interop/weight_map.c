// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/weight_map.h"

#include <string.h>

enum status weight_map_read(const char *index, struct json **root, const struct json **map)
{
    TRY(json_read(index, 256 << 20, root));
    enum status st = STATUS_OK;
    *map = json_get(*root, "weight_map");
    if (!json_is_object(*map)) FAIL_OUT(DATA, "%s: weight_map is missing", index);
    for (const struct json *v = json_first(*map); v; v = json_next(v)) {
        if (!json_is_string(v))
            FAIL_OUT(DATA, "%s: weight_map: %s: expected the name of a file", index, json_key(v));
        const char *name = json_string(v);
        if (!name[0] || strchr(name, '/') || name[0] == '.')
            FAIL_OUT(DATA, "%s: weight_map names \"%s\", which is not a file of the folder", index,
                     name);
    }
    return STATUS_OK;
out:
    json_free(*root);
    return st;
}
