// SPDX-License-Identifier: Apache-2.0
#include "metrics/history.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = INT32_MAX }; /* about five million lines */

struct history_reader {
    struct text all;      /* copied, not mapped: truncating a mapped file would raise SIGBUS */
    const char *at, *end; /* the unread rest */
};

static enum status reader_open(struct history_reader *r, const char *path)
{
    r->all = (struct text){0};
    enum status st = STATUS_OK;
    TRY_OUT(file_read(path, MAX_BYTES, &r->all));
    r->at = r->all.data;
    r->end = r->at + r->all.len;
    return STATUS_OK;
out:
    text_release(&r->all);
    return st;
}

/* `run`: a folder with metrics.jsonl, or such a file. */
static enum status open_run(struct history_reader *r, const char *run)
{
    if (!file_is_dir(run)) return reader_open(r, run);
    char *path = file_join(run, "metrics.jsonl");
    enum status st = reader_open(r, path);
    free(path);
    return st;
}

static void reader_close(struct history_reader *r) { text_release(&r->all); }

/* Reads the next line; `len` includes its newline.  *value is the parsed object, or NULL if the
 * line is not a JSON object with a step. */
static bool next_line(struct history_reader *r, const char **line, size_t *len, struct json **value,
                      int64_t *step)
{
    *value = NULL;
    if (r->at == r->end) return false;
    const char *newline = memchr(r->at, '\n', (size_t)(r->end - r->at));
    *line = r->at;
    r->at = newline ? newline + 1 : r->end;
    *len = (size_t)(r->at - *line);
    if (!newline || json_parse(*line, *len, "line", value)) return true;
    if (json_as_int(json_get(*value, "step"), 0, INT64_MAX, step)) return true;
    json_free(*value);
    *value = NULL;
    return true;
}

static bool keeps_line(const struct history_end *end, const struct json *value, int64_t step)
{
    bool is_validation = json_get(value, "validation_loss") || json_get(value, "task");
    if (!value || end->last_step == 0 || step > end->last_step) return false;
    if (step < end->last_step) return true;
    /* The checkpoint of step N is older than a rollback to step N. */
    return !json_get(value, "rollback_from") && !(end->validates && is_validation);
}

enum status history_truncate(const char *path, const struct history_end *end, size_t *num_removed)
{
    *num_removed = 0;
    if (!file_exists(path)) return STATUS_OK;
    struct history_reader r;
    struct text kept = {0};
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    TRY(reader_open(&r, path));
    while (next_line(&r, &line, &len, &value, &step)) {
        if (keeps_line(end, value, step))
            text_add(&kept, line, len);
        else
            (*num_removed)++;
        json_free(value);
    }
    reader_close(&r);
    enum status st = *num_removed ? file_write(path, kept.data, kept.len) : STATUS_OK;
    text_release(&kept);
    TRY(st);
    return STATUS_OK;
}

static void series_append(struct history_series *s, double step, double value)
{
    /* doubles the capacity at powers of two */
    if ((s->count & (s->count - 1)) == 0) {
        size_t capacity = s->count ? 2 * s->count : 1;
        s->steps = heap_grow(s->steps, capacity, sizeof *s->steps);
        s->values = heap_grow(s->values, capacity, sizeof *s->values);
    }
    s->steps[s->count] = step;
    s->values[s->count++] = value;
}

enum status history_read(const char *run, const char *key, struct history_series *s)
{
    struct history_reader r;
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    *s = (struct history_series){0};
    TRY(open_run(&r, run));
    while (next_line(&r, &line, &len, &value, &step)) {
        const struct json *number = json_get(value, key);
        if (json_is_number(number)) series_append(s, (double)step, json_number(number));
        json_free(value);
    }
    reader_close(&r);
    return STATUS_OK;
}

void history_series_release(struct history_series *s)
{
    free(s->steps);
    free(s->values);
    *s = (struct history_series){0};
}

/* Whether `word` is one of the words separated by spaces. */
static bool contains_word(const struct text *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = words->data; at && (at = strstr(at, word)); at += len)
        if ((at == words->data || at[-1] == ' ') && (at[len] == ' ' || !at[len])) return true;
    return false;
}

enum status history_keys(const char *run, struct text *keys)
{
    enum { MAX_KEYS_BYTES = 4096 };
    struct history_reader r;
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    text_clear(keys);
    TRY(open_run(&r, run));
    while (keys->len < MAX_KEYS_BYTES && next_line(&r, &line, &len, &value, &step)) {
        for (const struct json *v = json_first(value); v; v = json_next(v)) {
            if (!json_is_number(v) || !json_key(v)[0] || contains_word(keys, json_key(v))) continue;
            text_addf(keys, "%s%s", keys->len ? " " : "", json_key(v));
        }
        json_free(value);
    }
    reader_close(&r);
    return STATUS_OK;
}
