/* source_text.c -- .txt files: chunks of about 4 KiB of one long text, at the number of the
 * chunk. */
// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"
#include "data/source_kind.h"

#include <string.h>

enum { CHUNK_BYTES = 4096 };

static enum status text_open(struct source *s, struct source_file *f, uint64_t *size)
{
    TRY(file_map_open(&f->map, f->path));
    *size = f->map.size;
    s->num_positions += (f->map.size + CHUNK_BYTES - 1) / CHUNK_BYTES;
    return STATUS_OK;
}

static enum status text_check(const struct source_file *f) { return file_map_check(&f->map); }
static void text_close(struct source_file *f) { file_map_close(&f->map); }

/* Where chunk k begins: after the first line break within it, else after a space, else at a
 * character.  A byte order mark is not text. */
static uint64_t chunk_begin(const struct source_file *f, uint64_t k)
{
    uint64_t from = k * CHUNK_BYTES, size = f->map.size;
    const unsigned char *data = f->map.data;
    if (!k) return text_bom_length(data, size);
    if (from >= size) return size;
    uint64_t room = size - from < CHUNK_BYTES ? size - from : CHUNK_BYTES;
    if (data[from - 1] == '\n') return from;
    const unsigned char *stop = memchr(data + from, '\n', room);
    if (!stop) stop = memchr(data + from, ' ', room);
    if (stop) return (uint64_t)(stop - data) + 1;
    for (int i = 0; i < 3 && from < size && (data[from] & 0xC0) == 0x80; i++) from++;
    return from;
}

static enum status text_find(const struct source *s, struct source_reader *r,
                             struct source_range *c, struct source_document *d, bool *none)
{
    (void)r;
    for (*none = true; *none && c->position < c->end; ++c->position) {
        size_t i = source_file_at(s, c->position);
        const struct source_file *file = &s->files[i];
        uint64_t k = c->position - file->first_position, at = chunk_begin(file, k);
        uint64_t len = chunk_begin(file, k + 1) - at;
        *d = (struct source_document){c->position, i, at, len, d->text, false};
        *none = !len;
    }
    return STATUS_OK;
}

static enum status text_document(const struct source *s, const struct source_document *d,
                                 struct source_tokens *t, struct document_text *out)
{
    const struct source_file *file = &s->files[d->file];
    (void)t;
    *out = (struct document_text){.bytes = (const char *)file->map.data + d->at,
                                  .len = d->len,
                                  .begins = d->at == chunk_begin(file, 0),
                                  .ends = d->at + d->len == file->map.size};
    return source_kind_plain_text(s, d, out);
}

const struct source_kind source_text = {
    .suffixes = {".txt"},
    .unit = "from byte",
    .seeks = true,
    .position_bytes = CHUNK_BYTES,
    .open = text_open,
    .check = text_check,
    .close = text_close,
    .find = text_find,
    .text = text_document,
};
