/* source_jsonl.c -- .jsonl files: a document per non-blank line, at the byte where it begins. */
// SPDX-License-Identifier: Apache-2.0
#include "data/jsonl.h"
#include "data/source.h"
#include "data/source_kind.h"

#include <string.h>

static enum status jsonl_open(struct source *s, struct source_file *f, uint64_t *size)
{
    TRY(file_map_open(&f->map, f->path));
    *size = f->map.size;
    s->num_positions += f->map.size;
    return STATUS_OK;
}

static enum status jsonl_check(const struct source_file *f) { return file_map_check(&f->map); }
static void jsonl_close(struct source_file *f) { file_map_close(&f->map); }

/* Finds the next line that begins at or after the position, which may be inside a line. */
static enum status jsonl_find(const struct source *s, struct source_reader *r,
                              struct source_range *c, struct source_document *d, bool *none)
{
    (void)r;
    for (*none = true; *none && c->position < c->end;) {
        size_t i = source_file_at(s, c->position);
        const struct source_file *file = &s->files[i];
        const unsigned char *data = file->map.data;
        uint64_t at = c->position - file->first_position, size = file->map.size;
        if (at > 0 && data[at - 1] != '\n') { /* inside a line that the previous part owns */
            const unsigned char *stop = memchr(data + at, '\n', size - at);
            c->position = file->first_position + (stop ? (uint64_t)(stop - data) + 1 : size);
            continue;
        }
        const unsigned char *stop = memchr(data + at, '\n', size - at);
        uint64_t len = stop ? (uint64_t)(stop - data) - at : size - at;
        *d = (struct source_document){c->position, i, at, len, d->text, false};
        c->position += len + (stop != NULL);
        *none = source_kind_is_blank(data + at, len);
    }
    return STATUS_OK;
}

static enum status jsonl_document(const struct source *s, const struct source_document *d,
                                  struct source_tokens *t, struct document_text *out)
{
    const char *line = (const char *)s->files[d->file].map.data + d->at;
    char where[SOURCE_WHERE];
    source_kind_where(s, d, where);
    TRY(jsonl_text(line, d->len, s->config->column, where, &t->text));
    *out = (struct document_text){t->text.data, t->text.len, true, true};
    return STATUS_OK;
}

const struct source_kind source_jsonl = {
    .suffixes = {".jsonl", ".json"},
    .unit = "from byte",
    .seeks = true,
    .position_bytes = 1,
    .open = jsonl_open,
    .check = jsonl_check,
    .close = jsonl_close,
    .find = jsonl_find,
    .text = jsonl_document,
};
