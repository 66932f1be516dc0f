/* source_compressed.c -- .gz and .zst files of JSON lines or of text: a document per non-blank
 * line, at position file << 32 | number of the line among these.
 *
 * Such files cannot seek: a reader decompresses from the start of a file to the line it needs. */
// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"
#include "data/jsonl.h"
#include "data/source.h"
#include "data/source_kind.h"

enum { LINE_BITS = 32 };

static enum status compressed_open(struct source *s, struct source_file *f, uint64_t *size)
{
    (void)s;
    TRY(file_size(f->path, size));
    return STATUS_OK;
}

static void compressed_close(struct source_file *f) { (void)f; }

/* Files are assigned to the parts round robin; with fewer files than parts, the parts of a file
 * take its documents round robin. */
static uint64_t parts_of_file(const struct source *s, uint64_t file, uint64_t num_parts)
{
    if (s->num_files >= num_parts) return 1;
    return (num_parts - file + s->num_files - 1) / s->num_files;
}

uint64_t source_compressed_part(const struct source *s, uint64_t position, uint64_t num_parts)
{
    uint64_t file = position >> LINE_BITS, line = position & UINT32_MAX;
    if (s->num_files >= num_parts) return file % num_parts;
    return file + line % parts_of_file(s, file, num_parts) * s->num_files;
}

/* The next non-blank line of r->file; *end: end of file.  RECORD: the line is too long. */
static enum status next_line(const struct source *s, struct source_reader *r, const char **line,
                             size_t *len, bool *end)
{
    const char *path = s->files[r->file].path;
    enum status st;
    if (!r->lines) TRY(line_reader_open(&r->lines, path));
    do {
        st = line_reader_next(r->lines, line, len, end);
        if (st != STATUS_RECORD) TRY(st);
        r->line += !*end;
    } while (!st && !*end && source_kind_is_blank(*line, *len));
    r->next += !*end;
    if (r->next > UINT32_MAX) FAIL(DATA, "%s: more than %u documents in a file", path, UINT32_MAX);
    return st;
}

static enum status compressed_find(const struct source *s, struct source_reader *r,
                                   struct source_range *c, struct source_document *d, bool *none)
{
    uint64_t first = c->part % s->num_files;
    uint64_t stride = s->num_files >= c->num_parts ? c->num_parts : s->num_files;
    if (c->position >> LINE_BITS < first) c->position = first << LINE_BITS;
    if (r->next > (c->position & UINT32_MAX)) source_reader_close(r); /* cannot seek backwards */
    for (*none = true; *none && c->position >> LINE_BITS < s->num_files;) {
        uint64_t file = c->position >> LINE_BITS;
        const char *line;
        size_t len;
        bool end;
        if (r->file != file) source_reader_close(r);
        r->file = file;
        enum status st = next_line(s, r, &line, &len, &end);
        if (st != STATUS_RECORD) TRY(st);
        if (end) {
            source_reader_close(r);
            c->position = (file + stride) << LINE_BITS;
            continue;
        }
        uint64_t here = file << LINE_BITS | (r->next - 1);
        if (here < c->position || source_compressed_part(s, here, c->num_parts) != c->part)
            continue;
        *d = (struct source_document){here, file, r->line, len, d->text, false};
        source_kind_clear(&d->text);
        if (st)
            source_kind_set_bad(d);
        else
            text_add(&d->text, line, len);
        c->position = here + 1;
        *none = false;
    }
    return STATUS_OK;
}

static enum status compressed_json(const struct source *s, const struct source_document *d,
                                   struct source_tokens *t, struct document_text *out)
{
    char where[SOURCE_WHERE];
    source_kind_where(s, d, where);
    TRY(jsonl_text(d->text.data, d->text.len, s->config->column, where, &t->text));
    *out = (struct document_text){t->text.data, t->text.len, true, true};
    return STATUS_OK;
}

static enum status compressed_text(const struct source *s, const struct source_document *d,
                                   struct source_tokens *t, struct document_text *out)
{
    size_t mark = d->at == 1 ? text_bom_length(d->text.data, d->text.len) : 0;
    (void)t;
    *out = (struct document_text){d->text.data + mark, d->text.len - mark, true, true};
    return source_kind_plain_text(s, d, out);
}

const struct source_kind source_compressed_jsonl = {
    .suffixes = {".jsonl.gz", ".jsonl.zst", ".json.gz"},
    .unit = "line",
    .copies_text = true,
    .open = compressed_open,
    .close = compressed_close,
    .find = compressed_find,
    .text = compressed_json,
};

const struct source_kind source_compressed_text = {
    .suffixes = {".txt.gz", ".txt.zst"},
    .unit = "line",
    .copies_text = true,
    .open = compressed_open,
    .close = compressed_close,
    .find = compressed_find,
    .text = compressed_text,
};
