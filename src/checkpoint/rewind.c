// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rewind.h"

#include "base/file.h"
#include "base/json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_RECORD_BYTES = 1 << 16 };

static char *record_path(const char *folder) { return file_join(folder, "rewind.json"); }

enum status rewind_is_done(const char *folder, int64_t step, bool *is_done)
{
    char *path = record_path(folder);
    enum file_kind kind;
    int64_t recorded;
    struct json *record = NULL;
    enum status st = STATUS_OK;
    *is_done = false;
    TRY_OUT(file_find(path, &kind));
    if (kind == FILE_ABSENT) goto out;
    TRY_OUT(json_read(path, MAX_RECORD_BYTES, &record));
    TRY_OUT(json_get_int(record, "load_step", 0, INT64_C(1) << 50, &recorded));
    *is_done = recorded == step;
out:
    json_free(record);
    free(path);
    return st;
}

enum status rewind_record(const char *folder, int64_t step, const char *moved_to)
{
    char *path = record_path(folder);
    struct text out = {0};
    struct json_writer w = {.text = &out};
    json_begin_object(&w, NULL, JSON_INLINE);
    json_write_int(&w, "load_step", step);
    json_write_string(&w, "abandoned", moved_to);
    json_end_object(&w);
    json_finish(&w);
    enum status st = file_write(path, out.data, out.len);
    text_release(&out);
    free(path);
    return st;
}

enum status rewind_forget(const char *folder)
{
    char *path = record_path(folder);
    bool has_failed = unlink(path) && errno != ENOENT;
    int why = errno;
    enum status st = STATUS_OK;
    if (has_failed) FAIL_OUT(IO, "%s: %s", path, strerror(why));
out:
    free(path);
    return st;
}
