// SPDX-License-Identifier: Apache-2.0
#include "metrics/history.h"

#include "base/file.h"
#include "base/json.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_BYTES = INT32_MAX }; /* five million lines */

struct lines {
    struct text all; /* a copy: mapped, a file that is cut short meanwhile would end the program */
    const char *at, *end; /* of what is left */
};

static char *file_of(const char *run)
{
    return file_is_dir(run) ? file_join(run, "metrics.jsonl") : heap_string(run, strlen(run));
}

static enum status lines_open(struct lines *l, const char *path)
{
    l->all = (struct text){0};
    enum status st = STATUS_OK;
    TRY_OUT(file_read(path, MOST_BYTES, &l->all));
    l->at = l->all.data;
    l->end = l->at + l->all.len;
    return STATUS_OK;
out:
    text_release(&l->all);
    return st;
}

static void lines_close(struct lines *l) { text_release(&l->all); }

/* The next line, its newline counted in `len`; *value is it as an object with a step, or NULL. */
static bool next_line(struct lines *l, const char **line, size_t *len, struct json **value,
                      int64_t *step)
{
    *value = NULL;
    if (l->at == l->end) return false;
    const char *newline = memchr(l->at, '\n', (size_t)(l->end - l->at));
    *line = l->at;
    l->at = newline ? newline + 1 : l->end;
    *len = (size_t)(l->at - *line);
    if (!newline || json_parse(*line, *len, "line", value)) return true;
    if (json_as_int(json_get(*value, "step"), 0, INT64_MAX, step)) return true;
    json_free(*value);
    *value = NULL;
    return true;
}

enum status history_cut(const char *path, int64_t last_step, size_t *num_cut)
{
    *num_cut = 0;
    if (!file_exists(path)) return STATUS_OK;
    struct lines l;
    struct text kept = {0};
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    TRY(lines_open(&l, path));
    while (next_line(&l, &line, &len, &value, &step)) {
        if (value && last_step > 0 && step <= last_step)
            text_add(&kept, line, len);
        else
            (*num_cut)++;
        json_free(value);
    }
    lines_close(&l);
    enum status st = *num_cut ? file_write(path, kept.data, kept.len) : STATUS_OK;
    text_release(&kept);
    TRY(st);
    return STATUS_OK;
}

static void series_add(struct series *s, double step, double value)
{
    /* Grown at powers of two. */
    if ((s->count & (s->count - 1)) == 0) {
        size_t capacity = s->count ? 2 * s->count : 1;
        s->steps = heap_grow(s->steps, capacity, sizeof *s->steps);
        s->values = heap_grow(s->values, capacity, sizeof *s->values);
    }
    s->steps[s->count] = step;
    s->values[s->count++] = value;
}

enum status history_read(const char *run, const char *key, struct series *s)
{
    struct lines l;
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    char *path = file_of(run);
    *s = (struct series){0};
    enum status st = lines_open(&l, path);
    free(path);
    TRY(st);
    while (next_line(&l, &line, &len, &value, &step)) {
        const struct json *number = json_get(value, key);
        if (json_is_number(number)) series_add(s, (double)step, json_number(number));
        json_free(value);
    }
    lines_close(&l);
    return STATUS_OK;
}

void series_release(struct series *s)
{
    free(s->steps);
    free(s->values);
    *s = (struct series){0};
}

/* Is `word` one of the blank-separated words? */
static bool has_word(const struct text *words, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = words->data; at && (at = strstr(at, word)); at += len)
        if ((at == words->data || at[-1] == ' ') && (at[len] == ' ' || !at[len])) return true;
    return false;
}

enum status history_keys(const char *run, struct text *keys)
{
    enum { ENOUGH = 4096 };
    struct lines l;
    struct json *value;
    const char *line;
    size_t len;
    int64_t step = 0;
    char *path = file_of(run);
    text_clear(keys);
    enum status st = lines_open(&l, path);
    free(path);
    TRY(st);
    while (keys->len < ENOUGH && next_line(&l, &line, &len, &value, &step)) {
        for (const struct json *v = json_first(value); v; v = json_next(v)) {
            if (!json_is_number(v) || !json_key(v)[0] || has_word(keys, json_key(v))) continue;
            text_addf(keys, "%s%s", keys->len ? " " : "", json_key(v));
        }
        json_free(value);
    }
    lines_close(&l);
    return STATUS_OK;
}
