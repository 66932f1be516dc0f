// SPDX-License-Identifier: Apache-2.0
#include "tasks/task_rows.h"

#include "base/file.h"
#include "base/file_map.h"
#include "data/line_reader.h"
#include "tasks/parquet_rows.h"

#include <stdlib.h>
#include <string.h>

struct task_rows {
    char *path;
    struct parquet_rows *table; /* NULL: lines */
    struct line_reader *lines;  /* NULL: not compressed */
    struct file_map map;
    uint64_t at;     /* in map */
    uint64_t number; /* of lines or rows read */
    struct text where, json;
};

static enum status open_file(struct task_rows *r)
{
    if (file_has_suffix(r->path, ".parquet")) return parquet_rows_open(&r->table, r->path);
    if (line_reader_handles(r->path)) return line_reader_open(&r->lines, r->path);
    if (!file_has_suffix(r->path, ".jsonl") && !file_has_suffix(r->path, ".json"))
        FAIL(CONFIG, "%s: expected a .jsonl, .jsonl.gz, .jsonl.zst or .parquet file", r->path);
    return file_map_open(&r->map, r->path);
}

enum status task_rows_open(struct task_rows **out, const char *path)
{
    struct task_rows *r = heap(sizeof *r);
    r->path = heap_strdup(path);
    enum status st = open_file(r);
    *out = st ? NULL : r;
    if (st) task_rows_close(r);
    return st;
}

void task_rows_close(struct task_rows *r)
{
    if (!r) return;
    parquet_rows_close(r->table);
    line_reader_close(r->lines);
    file_map_close(&r->map);
    text_release(&r->where), text_release(&r->json);
    free(r->path);
    free(r);
}

const char *task_rows_where(const struct task_rows *r) { return r->where.data; }

static bool is_blank(const char *line, size_t len)
{
    size_t i = 0;
    while (i < len && strchr(" \t\r", line[i]) && line[i]) i++;
    return i == len;
}

/* The next line, valid until the next call. */
static enum status next_line(struct task_rows *r, const char **line, size_t *len, bool *end)
{
    if (r->lines) return line_reader_next(r->lines, line, len, end);
    const unsigned char *begin = r->map.data + r->at;
    uint64_t left = r->map.size - r->at;
    *end = !left;
    if (*end) return STATUS_OK;
    const unsigned char *stop = memchr(begin, '\n', left);
    *line = (const char *)begin;
    *len = stop ? (size_t)(stop - begin) : left;
    r->at += *len + (stop != NULL);
    return STATUS_OK;
}

static enum status next_json(struct task_rows *r, const char **json, size_t *len)
{
    bool end;
    *json = NULL;
    text_clear(&r->where);
    if (r->table) {
        TRY(parquet_rows_next(r->table, &r->json, &end));
        text_addf(&r->where, "%s, row %llu", r->path, (unsigned long long)r->number);
        if (!end) *json = r->json.data, *len = r->json.len, r->number++;
        return STATUS_OK;
    }
    do {
        TRY(next_line(r, json, len, &end));
        if (end) *json = NULL;
        r->number += !end;
    } while (!end && is_blank(*json, *len));
    text_addf(&r->where, "%s, line %llu", r->path, (unsigned long long)r->number);
    return STATUS_OK;
}

enum status task_rows_next(struct task_rows *r, struct json **row)
{
    const char *json;
    size_t len = 0;
    *row = NULL;
    TRY(next_json(r, &json, &len));
    if (!json) return STATUS_OK;
    enum status st = json_parse(json, len, r->where.data, row);
    TRY_OUT(file_map_check_after(&r->map, st));
    if (!json_is_object(*row)) FAIL_OUT(DATA, "%s: expected a JSON object", r->where.data);
    return STATUS_OK;
out:
    json_free(*row);
    *row = NULL;
    return st;
}
