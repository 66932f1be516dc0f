// SPDX-License-Identifier: Apache-2.0
#include "metrics/history.h"

#include "base/file.h"
#include "base/json.h"

#include <string.h>

/* `line`: with its newline. */
static bool keeps_line(const struct history_end *end, const char *line, size_t len)
{
    struct json *v = NULL;
    int64_t step;
    if (json_parse(line, len, "line", &v)) return false;
    bool is_validation = json_get(v, "validation_loss") || json_get(v, "task");
    bool keeps = json_as_int(json_get(v, "step"), 0, INT64_MAX, &step) && end->last_step > 0 &&
                 step <= end->last_step;
    /* The checkpoint of step N is older than a rollback to step N. */
    if (keeps && step == end->last_step)
        keeps = !json_get(v, "rollback_from") && !(end->validates && is_validation);
    json_free(v);
    return keeps;
}

enum status history_truncate(const char *path, const struct history_end *end, size_t *num_removed)
{
    struct text all = {0}; /* copied, not mapped: the file is replaced */
    size_t kept = 0;
    enum status st = STATUS_OK;
    *num_removed = 0;
    if (!file_exists(path)) return STATUS_OK;
    TRY_OUT(file_read(path, UINT64_MAX, &all));
    for (const char *at = all.data, *stop = at + all.len, *next; at < stop; at = next) {
        const char *newline = memchr(at, '\n', (size_t)(stop - at));
        next = newline ? newline + 1 : stop;
        size_t len = (size_t)(next - at);
        if (newline && keeps_line(end, at, len))
            memmove(all.data + kept, at, len), kept += len;
        else
            ++*num_removed;
    }
    if (*num_removed) TRY_OUT(file_write(path, all.data, kept));
out:
    text_release(&all);
    return st;
}
