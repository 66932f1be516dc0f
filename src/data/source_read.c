// SPDX-License-Identifier: Apache-2.0
#include "data/source.h"
#include "data/source_kind.h"

#include <stdio.h>
#include <string.h>

enum { MAX_DOCUMENT = 1 << 30 };

void source_kind_where(const struct source *s, const struct source_document *d,
                       char where[SOURCE_WHERE])
{
    snprintf(where, SOURCE_WHERE, "%.400s, %s %llu", s->files[d->file].path, s->kind->unit,
             (unsigned long long)d->at);
}

void source_kind_set_bad(struct source_document *d)
{
    text_clear(&d->text);
    text_adds(&d->text, status_message());
    d->len = d->text.len;
    d->is_bad = true;
}

enum status source_kind_plain_text(const struct source *s, const struct source_document *d,
                                   struct document_text *out)
{
    char where[SOURCE_WHERE];
    if (text_is_utf8(out->bytes, out->len)) return STATUS_OK;
    const unsigned char *begin = (const unsigned char *)out->bytes, *at = begin;
    for (size_t n; (n = text_utf8_length(at, begin + out->len));) at += n;
    source_kind_where(s, d, where);
    FAIL(RECORD, "%s: the text is not UTF-8: its byte %zu is 0x%02X", where, (size_t)(at - begin),
         *at);
}

static void append_special(struct token_list *out, bool enabled, int32_t id)
{
    if (!enabled || id < 0) return;
    token_list_reserve(out, 1);
    out->ids[out->count++] = id;
}

bool source_adds_eos(const struct tokenizer *t, bool bos, bool eos)
{
    bool is_one = t && bos && tokenizer_eos(t) >= 0 && tokenizer_bos(t) == tokenizer_eos(t);
    return eos && !is_one;
}

static enum status read_text(const struct source *s, const struct source_document *d,
                             struct source_tokens *t, struct token_list *out)
{
    struct document_text text;
    if (d->len > MAX_DOCUMENT) {
        char where[SOURCE_WHERE];
        source_kind_where(s, d, where);
        FAIL(RECORD, "%s: the document has %llu bytes; the limit is %d", where,
             (unsigned long long)d->len, MAX_DOCUMENT);
    }
    TRY(s->kind->text(s, d, t, &text));
    if (!text.len) return STATUS_OK; /* an empty text has no tokens, not even BOS and EOS */
    append_special(out, t->bos && text.begins, tokenizer_bos(t->tokenizer));
    enum status st = encoder_encode(t->encoder, text.bytes, text.len, out);
    if (st) {
        char where[SOURCE_WHERE];
        source_kind_where(s, d, where);
        TRY_PREFIX(st, "%s", where);
    }
    bool eos = text.ends && source_adds_eos(t->tokenizer, t->bos, t->eos);
    append_special(out, eos, tokenizer_eos(t->tokenizer));
    return STATUS_OK;
}

static enum status read_document(const struct source *s, const struct source_document *d,
                                 struct source_tokens *t, struct token_list *out)
{
    if (d->is_bad) FAIL(RECORD, "%s", d->text.data);
    if (!s->holds_ids) {
        if (!t->encoder) FAIL(CONFIG, "%s is text: data.tokenizer is required", s->config->path);
        return read_text(s, d, t, out);
    }
    if (d->len > MAX_DOCUMENT)
        FAIL(RECORD, "%s: a document has %llu tokens, which exceeds the limit of %d",
             s->config->path, (unsigned long long)d->len, MAX_DOCUMENT);
    token_list_reserve(out, d->len);
    TRY(s->kind->ids(s, d, t, out->ids + out->count));
    out->count += d->len;
    return STATUS_OK;
}

/* Adds this thread's last failure, without the place that it begins with. */
static enum status skip_record(const struct source *s, const struct source_document *d,
                               const char *unit, struct bad_records *bad)
{
    char where[SOURCE_WHERE];
    source_kind_where(s, d, where);
    size_t prefix = strlen(where);
    const char *reason = status_message();
    if (!strncmp(reason, where, prefix) && !strncmp(reason + prefix, ": ", 2)) reason += prefix + 2;
    const struct bad_record r = {.source = s->config->path,
                                 .file = s->files[d->file].path,
                                 .unit = unit,
                                 .at = d->at,
                                 .reason = reason};
    return bad_records_add(bad, &r);
}

enum status source_tokens_check(struct source_tokens *t)
{
    const struct source *s = t->unchecked;
    t->unchecked = NULL;
    return s && s->kind->check ? s->kind->check(&s->files[t->unchecked_file]) : STATUS_OK;
}

/* After reading from a file with result `st`: a torn mapping may be the cause of a failure;
 * successes are checked when another file is read, and by the caller in the end. */
static enum status note_read(const struct source *s, size_t file, struct source_tokens *t,
                             enum status st)
{
    bool is_other = t->unchecked != s || t->unchecked_file != file;
    if (!s->kind->check) return st;
    if (is_other) TRY(source_tokens_check(t));
    t->unchecked = s, t->unchecked_file = file;
    if (st) TRY(source_tokens_check(t));
    return st;
}

enum status source_read(const struct source *s, const struct source_document *d,
                        struct source_tokens *t, struct token_list *out)
{
    size_t before = out->count;
    enum status st = note_read(s, d->file, t, read_document(s, d, t, out));
    if (t->bad && !t->bad->is_repeat) t->bad->num_read++;
    if (st == STATUS_RECORD && t->bad) {
        out->count = before;
        st = skip_record(s, d, source_unit(s), t->bad);
    }
    TRY(st);
    return STATUS_OK;
}

uint64_t source_num_sequences(const struct source *s)
{
    return s->kind->num_sequences ? s->kind->num_sequences(s) : 0;
}

uint64_t source_sequence_length(const struct source *s, uint64_t sequence)
{
    return s->kind->sequence_length(s, sequence);
}

enum status source_read_sequence(const struct source *s, const struct source_span *span,
                                 struct source_tokens *t, int32_t *ids)
{
    if (t->bad) t->bad->num_read++;
    TRY(note_read(s, 0, t, s->kind->read_sequence(s, span, t, ids)));
    return STATUS_OK;
}

enum status source_skip_sequence(const struct source *s, const struct source_span *span,
                                 const struct source_tokens *t)
{
    const struct source_document d = {.at = span->sequence};
    return skip_record(s, &d, "sequence", t->bad);
}
