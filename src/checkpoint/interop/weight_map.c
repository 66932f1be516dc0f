// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/weight_map.h"

#include "base/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum status weight_map_check_link(const char *folder, const char *name)
{
    char target[PATH_MAX];
    char *path = file_join(folder, name);
    ssize_t len = readlink(path, target, sizeof target - 1);
    enum status st = STATUS_OK;
    if (len < 0) goto out; /* not a link, or the reader will say what is wrong */
    target[len] = 0;
    const char *rest = target;
    while (!strncmp(rest, "../", 3)) rest += 3;
    bool is_blob = rest - target >= 6 && !strncmp(rest, "blobs/", 6);
    rest = is_blob ? rest + 6 : target;
    if (!rest[0] || strchr(rest, '/') || rest[0] == '.')
        FAIL_OUT(DATA, "%s: a link to %s, outside the model's folder: copy the file", path, target);
out:
    free(path);
    return st;
}

static enum status check_file(const char *index, const char *name)
{
    if (!name[0] || strchr(name, '/') || name[0] == '.')
        FAIL(DATA, "%s: weight_map names \"%s\", which is not a file of the folder", index, name);
    char *folder = file_parent(index);
    enum status st = weight_map_check_link(folder, name);
    free(folder);
    return st;
}

enum status weight_map_read(const char *index, struct json **root, const struct json **map)
{
    TRY(json_read(index, 256 << 20, root));
    enum status st = STATUS_OK;
    *map = json_get(*root, "weight_map");
    if (!json_is_object(*map)) FAIL_OUT(DATA, "%s: weight_map is missing", index);
    for (const struct json *v = json_first(*map); v; v = json_next(v)) {
        if (!json_is_string(v))
            FAIL_OUT(DATA, "%s: weight_map: %s: expected the name of a file", index, json_key(v));
        TRY_OUT(check_file(index, json_string(v)));
    }
    return STATUS_OK;
out:
    json_free(*root);
    return st;
}
