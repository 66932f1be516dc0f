// SPDX-License-Identifier: Apache-2.0
#include "data/loader.h"

#include "base/log.h"
#include "data/loader_exchange.h"
#include "data/loader_rows.h"
#include "data/source_kind.h"

#include <stdlib.h>
#include <string.h>

uint64_t loader_delivered_row(const struct loader *l, int reader, int place)
{
    uint64_t row = (uint64_t)loader_rows_at_place(l, place);
    uint64_t before = row_split_count(&l->split, (uint64_t)reader, l->step_begin);
    return loader_rows_number(l, row_split_position(&l->split, (uint64_t)reader, before + row));
}

int loader_place(const struct loader *l, int i) { return loader_rows_place(l, i); }

uint64_t loader_position(const struct loader *l) { return loader_rows_number(l, l->next); }

uint64_t loader_step_row(const struct loader *l) { return loader_rows_number(l, l->step_begin); }

void loader_skip(struct loader *l, struct row_interval rows)
{
    BUG_IF(l->running || l->num_built);
    if (rows.begin < l->first_row) rows.begin = l->first_row;
    row_ranges_add(&l->skips, rows);
}

/* The number after that of the last row before a position. */
static uint64_t end_before(const struct loader *l, uint64_t position)
{
    return position > l->first_position ? loader_rows_number(l, position - 1) + 1 : l->first_row;
}

void loader_list_skipped(const struct loader *l, struct row_ranges *out)
{
    const struct row_interval step = {end_before(l, l->step_begin), end_before(l, l->next)};
    row_ranges_add_part(out, &l->skips, step);
    row_ranges_add_part(out, &l->untrained, step);
}

void loader_record_skipped(struct loader *l, struct row_interval rows)
{
    BUG_IF(rows.end > loader_position(l));
    row_ranges_add(&l->passed, rows);
}

void loader_skip_step(struct loader *l)
{
    struct row_interval step = {loader_step_row(l), end_before(l, l->next)};
    row_ranges_add(&l->untrained, step);
}

static enum status copy_own_rows(struct loader *l, struct batch *b, int count, int *rows)
{
    for (int i = 0; i < count; i++) {
        struct loader_row *r;
        TRY(loader_rows_take(l, &r));
        if (r->empty) {
            batch_pad_row(b, loader_rows_place(l, i));
            continue;
        }
        batch_copy_row(b, loader_rows_place(l, i), &r->row);
        loader_rows_release(l);
        ++*rows;
    }
    return STATUS_OK;
}

enum status loader_next_step(struct loader *l, struct batch *b, uint64_t step_rows, int *rows)
{
    uint64_t reader = (uint64_t)l->options.reader, end = l->next + step_rows;
    uint64_t before = row_split_count(&l->split, reader, l->next);
    int count = (int)(row_split_count(&l->split, reader, end) - before);
    BUG_IF(b->T != l->options.seq_len || count > b->B);
    TRY(loader_rows_start(l));
    b->valid = b->bytes = b->padding = 0;
    *rows = 0;
    if (loader_rows_are_exchanged(l)) {
        TRY(loader_exchange_rows(l, b, l->next, end));
        *rows = count;
    } else {
        TRY(copy_own_rows(l, b, count, rows));
    }
    for (int i = count; i < b->B; i++) batch_pad_row(b, loader_rows_place(l, i));
    l->step_begin = l->next, l->next = end;
    return STATUS_OK;
}

enum status loader_next(struct loader *l, struct batch *b, int *rows)
{
    return loader_next_step(l, b, (uint64_t)b->B * l->split.readers, rows);
}

enum status loader_next_tokens(struct loader *l, const struct token_row **row, uint64_t *number)
{
    struct loader_row *r;
    BUG_IF(l->split.readers != 1 || l->running);
    TRY(loader_rows_take(l, &r));
    *row = r->empty ? NULL : &r->tokens;
    *number = r->number;
    if (r->empty) return STATUS_OK;
    loader_rows_release(l); /* read_next overwrites it, at the next call */
    l->step_begin = l->next++;
    return STATUS_OK;
}

void loader_mark(struct loader *l)
{
    memcpy(l->marked, l->cursors, loader_num_cursor_ints(l) * sizeof *l->marked);
    l->next_marked = l->next;
    l->marked_read = l->bad.num_read, l->marked_bad = l->bad.num_bad;
}

void loader_restore_mark(struct loader *l)
{
    loader_rows_stop(l);
    memcpy(l->cursors, l->marked, loader_num_cursor_ints(l) * sizeof *l->cursors);
    l->next = l->step_begin = l->next_marked;
    bad_records_clear(&l->bad);
    l->bad.num_read = l->marked_read, l->bad.num_bad = l->marked_bad;
    l->bad_total[0] = (int64_t)l->bad.num_read, l->bad_total[1] = (int64_t)l->bad.num_bad;
}

/* The separator is the last ID in gpt-neuro-arch, and the one after the motifs here. */
static enum status check_motifs(const struct source *s, int64_t vocab_size)
{
    if (!s->motifs || !vocab_size || motifs_separator(s->motifs) + 1 == vocab_size)
        return STATUS_OK;
    FAIL(CONFIG, "%s: model.vocab_size = %lld: must be %d, k_limit + 2 of that file",
         s->config->motifs, (long long)vocab_size, motifs_separator(s->motifs) + 1);
}

static enum status open_sources(struct loader *l)
{
    const struct data_config *c = l->options.data;
    if (!c->num_sources) FAIL(CONFIG, "no [[data.source]] is configured");
    l->sources = heap(c->num_sources * sizeof *l->sources);
    l->identities = heap(c->num_sources * sizeof *l->identities);
    for (size_t i = 0; i < c->num_sources; i++) {
        TRY(source_open(&l->sources[i], &c->sources[i]));
        l->identities[i] = (struct source_identity){i, c->num_sources};
        l->num_sources++;
        TRY(check_motifs(&l->sources[i], l->options.vocab_size));
    }
    l->provenance = (struct provenance){.sources = l->sources,
                                        .num_sources = l->num_sources,
                                        .tokenizer = l->options.tokenizer,
                                        .reader = (size_t)l->options.reader,
                                        .num_readers = (size_t)l->options.num_readers};
    return l->options.once ? STATUS_OK : provenance_sample(&l->provenance);
}

static void warn_missing(const char *key, bool is_enabled, int32_t id, const char *token)
{
    if (!is_enabled || id >= 0) return;
    log_line(LOG_WARN,
             "data.%s = true, but the tokenizer has no %s token, so documents get none: name it in "
             "the tokenizer_config.json beside tokenizer.json, or set data.%s = false",
             key, token, key);
}

/* GPT-2's tokenizer_config.json, for example, names neither. */
static void warn_missing_tokens(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    bool is_text = false;
    for (size_t i = 0; i < l->num_sources; i++) is_text |= !l->sources[i].holds_ids;
    if (!o->tokenizer || !is_text || o->reader || o->once || o->validation || o->is_quiet) return;
    warn_missing("bos", o->data->bos, tokenizer_bos(o->tokenizer), "begin-of-text");
    warn_missing("eos", o->data->eos, tokenizer_eos(o->tokenizer), "end-of-text");
}

/* Only in a source of several files: a source without documents is an error. */
static void warn_empty_files(const struct loader *l)
{
    const struct loader_options *o = &l->options;
    if (o->reader || o->once || o->validation || o->is_quiet) return;
    for (size_t i = 0; i < l->num_sources; i++) {
        const struct source *s = &l->sources[i];
        for (size_t k = 0; k < s->num_files && s->kind->seeks; k++) {
            bool is_last = k + 1 == s->num_files;
            uint64_t end = is_last ? s->num_positions : s->files[k + 1].first_position;
            if (end == s->files[k].first_position)
                log_line(LOG_WARN, "%s: the file has no documents", s->files[k].path);
        }
    }
}

static enum status open_tokens(struct loader *l)
{
    const struct loader_options *o = &l->options;
    const struct tokenizer *t = o->tokenizer;
    int32_t size = tokenizer_vocab_size(t);
    l->tokens = (struct source_tokens){.tokenizer = t,
                                       .vocab_size = o->vocab_size ? o->vocab_size : size,
                                       .bos = o->data->bos,
                                       .eos = o->data->eos};
    warn_missing_tokens(l), warn_empty_files(l);
    l->masked = o->objective->name != OBJECTIVE_causal;
    if (o->vocab_size && size > o->vocab_size)
        FAIL(CONFIG, "the tokenizer has %d tokens, more than model.vocab_size = %d; increase it",
             size, o->vocab_size);
    if (l->masked && !t)
        FAIL(CONFIG, "objective.name = \"%s\" requires data.tokenizer",
             objective_kind_word(o->objective->name));
    if (l->masked) {
        l->mask_id = tokenizer_special(t, o->objective->mask_token);
        if (l->mask_id < 0)
            FAIL(CONFIG, "objective.mask_token = \"%s\": not a special token of the tokenizer",
                 o->objective->mask_token);
    }
    l->eod_id = o->data->eod_mask_loss && t ? tokenizer_eos(t) : -1;
    if (o->data->eod_mask_loss && l->eod_id < 0)
        FAIL(CONFIG, "data.eod_mask_loss = true requires a tokenizer with an end-of-text token");
    if (!t) return STATUS_OK;
    struct text bytes = {0};
    int64_t ids = l->tokens.vocab_size > size ? l->tokens.vocab_size : size;
    l->bytes_of_id = heap((size_t)ids);
    for (int32_t id = 0; id < size; id++) {
        text_clear(&bytes);
        if (tokenizer_special_name(t, id) || tokenizer_decode_part(t, &id, 1, &bytes)) continue;
        l->bytes_of_id[id] = (unsigned char)(bytes.len < 255 ? bytes.len : 255);
    }
    text_release(&bytes);
    TRY(encoder_make(&l->tokens.encoder, t));
    return STATUS_OK;
}

static enum status open_order(struct loader *l)
{
    static enum status (*const open[])(struct order **, const struct order_setup *) = {
        [ORDER_streams] = order_streams_open, [ORDER_megatron] = order_megatron_open};
    const struct order_setup setup = {.options = &l->options,
                                      .sources = l->sources,
                                      .identities = l->identities,
                                      .num_sources = l->num_sources,
                                      .tokens = &l->tokens,
                                      .masked = l->masked};
    l->seed = (uint64_t)(l->options.data->seed < 0 ? 0 : l->options.data->seed);
    return open[l->options.data->order](&l->order, &setup);
}

static enum status open_loader(struct loader *l)
{
    const struct loader_options *o = &l->options;
    TRY(open_sources(l));
    TRY(open_tokens(l));
    TRY(open_order(l));
    loader_rows_alloc_cursors(l);
    l->split = (struct row_split){(uint64_t)o->num_readers, l->order->block};
    l->ring_size = o->prefetch_rows ? (uint64_t)o->prefetch_rows : 1;
    uint64_t streams = l->order->num_streams;
    if (loader_rows_have_streams(l) &&
        streams < l->split.readers) /* each is read for several readers */
        l->ring_size *= (l->split.readers + streams - 1) / streams;
    loader_rows_init(&l->received, l);
    if (o->is_sizing) return STATUS_OK;
    l->ring = heap(l->ring_size * sizeof *l->ring);
    for (uint64_t i = 0; i < l->ring_size; i++) loader_rows_init(&l->ring[i], l);
    return STATUS_OK;
}

enum status loader_open(struct loader **out, const struct loader_options *options)
{
    struct loader *l = heap(sizeof *l);
    l->options = *options;
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->changed, NULL);
    enum status st = open_loader(l);
    *out = st ? NULL : l;
    if (st) loader_close(l);
    return st;
}

void loader_close(struct loader *l)
{
    if (!l) return;
    loader_rows_stop(l);
    if (l->order) l->order->kind->close(l->order);
    for (uint64_t i = 0; l->ring && i < l->ring_size; i++) loader_rows_free(&l->ring[i]);
    provenance_release(&l->provenance);
    source_positions_release(&l->retired);
    for (size_t i = 0; i < l->num_sources; i++) source_close(&l->sources[i]);
    encoder_free(l->tokens.encoder);
    text_release(&l->tokens.text);
    row_ranges_release(&l->skips), row_ranges_release(&l->passed);
    row_ranges_release(&l->untrained);
    bad_records_release(&l->bad);
    free(l->ring), free(l->sources), free(l->identities), free(l->cursors), free(l->marked);
    loader_rows_free(&l->received);
    free(l->bytes_of_id), free(l->exchange);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->changed);
    free(l);
}

size_t loader_num_sources(const struct loader *l) { return l->num_sources; }
const struct source *loader_source(const struct loader *l, size_t i) { return &l->sources[i]; }

struct bad_records *loader_bad_records(struct loader *l) { return &l->bad; }

int64_t loader_memory_bytes(const struct loader *l)
{
    const struct encoder *encoder = l->tokens.encoder;
    int64_t row = (int64_t)l->options.seq_len * 21 + (int64_t)l->order->cursor_ints * 8;
    return (int64_t)(l->ring_size + 1) * row + loader_exchange_bytes(l) +
           l->order->kind->memory_bytes(l->order) +
           (int64_t)(encoder ? encoder_memory_bytes(encoder) : 0);
}

uint64_t loader_epoch(const struct loader *l, size_t i)
{
    size_t ints = l->order->cursor_ints;
    int64_t latest = 0;
    for (uint64_t s = 0; ints && s < l->order->num_streams; s++) {
        int64_t epoch = l->cursors[s * ints + STREAM_INTS + PARTITION_INTS * i + PARTITION_EPOCH];
        if (epoch > latest) latest = epoch;
    }
    return (uint64_t)latest;
}
