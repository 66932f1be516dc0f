/* source_kind.h -- the interface between source.c, which opens sources and finds documents,
 * source_read.c, which reads them, and the kinds of sources, a file each: source_jsonl.c, ... */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "data/data_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct source;
struct source_range;
struct source_document;
struct source_file;
struct source_reader;
struct source_span;
struct source_tokens;

/* A document's text, borrowed.  Of a document that is part of a longer text only the first begins
 * it and only the last ends it. */
struct document_text {
    const char *bytes;
    size_t len;
    bool begins, ends;
};

enum { SOURCE_SUFFIXES = 6 };

struct source_kind {
    const char *suffixes[SOURCE_SUFFIXES]; /* of file names; the rest is NULL */
    const char *unit;                      /* what source_document.at counts, for messages */
    bool seeks;              /* finds the document at any position without reading from the start */
    bool copies_text;        /* `find` copies the document into source_document.text */
    uint64_t position_bytes; /* text bytes per position; 0: they vary */

    /* Opens f->path, adds its positions to the source and sets *size for the fingerprint. */
    enum status (*open)(struct source *s, struct source_file *f, uint64_t *size);
    void (*close)(struct source_file *f);
    /* Whether all bytes read so far were the file's: file_map_check.  NULL: nothing is mapped. */
    enum status (*check)(const struct source_file *f);
    /* As source_find. */
    enum status (*find)(const struct source *s, struct source_reader *r, struct source_range *c,
                        struct source_document *d, bool *none);
    /* As source_range_end; NULL: from the lengths of the documents, or position_bytes. */
    uint64_t (*range_end)(const struct source *s, struct source_reader *r, uint64_t position,
                          uint64_t *bytes);
    /* Sources of text: decodes the document, if need be into t->text. */
    enum status (*text)(const struct source *s, const struct source_document *d,
                        struct source_tokens *t, struct document_text *out);
    /* Sources of IDs: writes the d->len IDs of the document. */
    enum status (*ids)(const struct source *s, const struct source_document *d,
                       const struct source_tokens *t, int32_t *ids);
    /* As source_num_sequences etc.; NULL: it has no sequences. */
    uint64_t (*num_sequences)(const struct source *s);
    uint64_t (*sequence_length)(const struct source *s, uint64_t sequence);
    enum status (*read_sequence)(const struct source *s, const struct source_span *span,
                                 const struct source_tokens *t, int32_t *ids);
};

extern const struct source_kind source_jsonl, source_text, source_compressed_jsonl,
    source_compressed_text, source_table, source_megatron, source_npy, source_raw_tokens,
    source_mock, source_synthetic;

/* "FILE, UNIT N": where a document is, for messages. */
enum { SOURCE_WHERE = 512 };
void source_kind_where(const struct source *s, const struct source_document *d,
                       char where[SOURCE_WHERE]);
/* Makes it a bad record, for the reason of this thread's last failure. */
void source_kind_set_bad(struct source_document *d);
/* A text that needs no decoding.  RECORD: not UTF-8. */
enum status source_kind_plain_text(const struct source *s, const struct source_document *d,
                                   struct document_text *out);

/* Neurons of every session of spike counts; 0: as many as it has. */
size_t source_kind_neurons(const struct source_config *c);
/* "data.source.2.motifs", for messages. */
struct source_option {
    char key[64];
};
struct source_option source_kind_option(const struct source_config *c, const char *name);

static inline bool source_kind_filters(const struct source_config *c)
{
    return c->filter_column && c->filter_column[0];
}

/* Blank lines are no documents. */
static inline bool source_kind_is_blank(const void *line, size_t len)
{
    const char *at = line, *end = at + len;
    while (at < end && (*at == ' ' || *at == '\t' || *at == '\r')) at++;
    return at == end;
}

/* Clears a text for the next document, without keeping the buffer of a long one. */
static inline void source_kind_clear(struct text *t)
{
    enum { MAX_KEPT_BYTES = 1 << 20 };
    if (t->capacity > MAX_KEPT_BYTES) text_release(t);
    text_clear(t);
}
