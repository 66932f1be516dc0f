// SPDX-License-Identifier: Apache-2.0
#include "data/corpus.h"

#include "base/log.h"
#include "data/source.h"
#include "data/source_kind.h"

/* State that is kept across sources. */
struct document_walk {
    struct source_tokens tokens;
    struct token_list ids;
    struct source_document found;
    uint64_t left;
    const bool *is_enough;
};

static bool holds_spikes(const struct source *s) { return source_holds_counts(s) && !s->motifs; }

static enum status walk_source(struct document_walk *w, const struct source *s,
                               struct source_reader *reader,
                               enum status (*take)(void *, const struct document *), void *context)
{
    bool none = false;
    struct source_range range = source_part(s, 0, 1);
    while (w->left && !(w->is_enough && *w->is_enough)) {
        TRY(source_find(s, reader, &range, &w->found, &none));
        if (none) break;
        w->ids.count = 0;
        TRY(source_read(s, &w->found, &w->tokens, &w->ids));
        size_t count = w->ids.count, within = count < w->left ? count : (size_t)w->left;
        struct document one = {.ids = w->ids.ids, .count = count, .within = within};
        if (holds_spikes(s)) one.neurons = table_reader_neurons(reader->table);
        if (count) TRY(take(context, &one));
        w->left -= within;
    }
    return source_tokens_check(&w->tokens);
}

/* Logs what was skipped of a source, before its paths are freed. */
static void report_skipped(struct bad_records *skipped)
{
    struct text found = {0};
    bad_records_describe(skipped, NULL, &found);
    if (skipped->num_bad) log_line(LOG_WARN, "%s", found.data);
    text_release(&found);
    bad_records_clear(skipped);
    skipped->num_read = skipped->num_bad = 0;
}

enum status corpus_each(const struct corpus *d,
                        enum status (*take)(void *context, const struct document *one),
                        void *context)
{
    struct document_walk w = {.left = d->max_ids ? d->max_ids : UINT64_MAX,
                              .is_enough = d->is_enough};
    struct bad_records skipped = {.is_unlimited = true};
    w.tokens = (struct source_tokens){
        .tokenizer = d->tokenizer, .vocab_size = d->vocab_size, .bos = d->bos, .eos = d->eos};
    if (d->skips_bad) w.tokens.bad = &skipped;
    enum status st = STATUS_OK;
    if (d->tokenizer) TRY(encoder_make(&w.tokens.encoder, d->tokenizer));
    for (size_t i = 0; i < d->num_sources && !st; i++) {
        struct source s;
        struct source_reader reader = {0};
        st = source_open(&s, &d->sources[i]);
        if (st) break;
        st = walk_source(&w, &s, &reader, take, context);
        source_reader_close(&reader);
        if (!d->is_quiet) report_skipped(&skipped);
        source_close(&s);
    }
    bad_records_release(&skipped);
    encoder_free(w.tokens.encoder);
    text_release(&w.tokens.text);
    text_release(&w.found.text);
    token_list_release(&w.ids);
    return st;
}

enum status corpus_is_spike_counts(const struct source_config *source, bool *are)
{
    struct source s;
    TRY(source_open(&s, source));
    *are = holds_spikes(&s);
    source_close(&s);
    return STATUS_OK;
}

static enum status read_session(const struct source *s, uint64_t row, struct source_reader *reader,
                                struct source_document *f, struct token_list *ids)
{
    struct source_tokens tokens = {.vocab_size = TABLE_BIN_SEPARATOR + 1};
    bool none = row >= s->num_positions;
    if (!holds_spikes(s))
        FAIL(CONFIG, "%s: column \"%s\" does not hold spike counts (lists of lists of bytes)",
             s->config->path, s->config->column);
    struct source_range range = source_part(s, 0, 1);
    range.position = row;
    if (!none) TRY(source_find(s, reader, &range, f, &none));
    if (none)
        FAIL(CONFIG, "%s: no session at or after row %llu; the source has %llu rows",
             s->config->path, (unsigned long long)row, (unsigned long long)s->num_positions);
    TRY(source_read(s, f, &tokens, ids));
    return source_tokens_check(&tokens);
}

enum status corpus_read_session(const struct source_config *source, uint64_t row,
                                struct token_list *ids, size_t *neurons)
{
    struct source s;
    struct source_reader reader = {0};
    struct source_document f = {0};
    TRY(source_open(&s, source));
    enum status st = read_session(&s, row, &reader, &f, ids);
    if (!st) *neurons = table_reader_neurons(reader.table);
    source_reader_close(&reader);
    text_release(&f.text);
    source_close(&s);
    return st;
}
