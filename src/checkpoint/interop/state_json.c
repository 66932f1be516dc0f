// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interop/state_json.h"

#include "base/file.h"
#include "base/json.h"

enum { FORMAT = 1 };

void state_json_write(int64_t step, const char *train, struct text *out)
{
    struct json_writer w = {.text = out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "format", FORMAT);
    json_write_int(&w, "step", step);
    json_write_raw(&w, "train", train ? train : "null");
    json_end_object(&w);
    json_finish(&w);
    text_adds(out, "\n");
}

enum status state_json_read(const char *path, int64_t *step, struct text *train)
{
    struct text file = {0};
    struct json *root = NULL;
    int64_t format;
    enum status st = STATUS_OK;
    TRY_OUT(file_read(path, 1 << 30, &file));
    TRY_OUT(json_parse(file.data, file.len, path, &root));
    TRY_OUT(json_get_int(root, "format", FORMAT, FORMAT, &format));
    TRY_OUT(json_get_int(root, "step", 0, JSON_MAX_INT, step));
    if (json_is_object(json_get(root, "train")) && !json_member_text(file.data, "train", train))
        FAIL_OUT(DATA, "%s: the key \"train\" must not be escaped", path);
out:
    json_free(root);
    text_release(&file);
    return st;
}
