// SPDX-License-Identifier: Apache-2.0
#include "infer/text_batch.h"

#include "base/clock.h"

#include <stdlib.h>

/* The texts that are being decoded. */
struct rows {
    struct text_batch *b;
    struct generation *g;
    struct text_batch_item *at[KV_CACHE_ROWS]; /* NULL: the row is free */
    float *logits_RV;
    size_t next, visited; /* items */
    bool is_interrupted;
};

static enum status encode_prompts(struct text_batch *b, struct generation *g)
{
    g->max_prompt = 1;
    for (size_t i = 0; i < b->count; i++) {
        struct text_batch_item *item = &b->items[i];
        loaded_model_raise_signal(&g->loaded); /* encoding a large file of prompts takes long */
        TRY_PREFIX(text_generation_encode(&g->loaded, item->prompt, &item->ids), "prompt %zu",
                   i + 1);
        item->num_prompt = item->ids.count;
        item->text = (struct text_generation){.stops = b->stops, .num_stops = b->num_stops};
        if (item->num_prompt > g->max_prompt) g->max_prompt = item->num_prompt;
    }
    return STATUS_OK;
}

static enum status visit_done(struct rows *r)
{
    struct text_batch *b = r->b;
    for (; r->visited < b->count && b->items[r->visited].is_done; r->visited++)
        TRY(b->visit(b->context, &b->items[r->visited]));
    return STATUS_OK;
}

/* Samples the next token of a row from its logits; frees the row if the text ends there. */
static enum status sample_row(struct rows *r, int row, float *logits_V)
{
    struct generation *g = r->g;
    struct text_batch_item *item = r->at[row];
    const struct generation_choice c = {logits_V, &item->ids, item->seed};
    size_t made = item->ids.count - item->num_prompt;
    int32_t id;
    double log_p = 0;
    TRY(generation_choose(g, &c, &id, &log_p));
    TRY(text_generation_add(&item->text, g->loaded.tokenizer, id));
    if (item->text.finish != TEXT_FINISH_eos) {
        item->log_probabilities[made++] = log_p;
        item->ids.ids[item->ids.count++] = id;
    }
    item->is_done = item->text.finish != TEXT_FINISH_length || (int64_t)made == g->max_tokens;
    if (!item->is_done) return STATUS_OK;
    r->at[row] = NULL;
    TRY(visit_done(r));
    return STATUS_OK;
}

static enum status sample_rows(struct rows *r, const struct decode_io *io)
{
    size_t V = (size_t)r->g->loaded.shape.V;
    for (int i = 0; i < io->R; i++)
        TRY(sample_row(r, io->rows_R[i].index, io->logits_RV + (size_t)i * V));
    return STATUS_OK;
}

/* Begins the next texts in free rows, until none is free: some end at once. */
static enum status fill_rows(struct rows *r)
{
    struct generation *g = r->g;
    struct decode_row rows[KV_CACHE_ROWS];
    struct decode_io io;
    do {
        io = (struct decode_io){rows, 0, r->logits_RV};
        for (int row = 0; row < g->cache.B; row++) {
            if (r->at[row] || r->next == r->b->count) continue;
            struct text_batch_item *item = r->at[row] = &r->b->items[r->next++];
            token_list_reserve(&item->ids, (size_t)g->max_tokens);
            item->log_probabilities = heap((size_t)g->max_tokens * sizeof(double));
            rows[io.R++] = (struct decode_row){row, (int)item->ids.count, item->ids.ids};
        }
        double begin = clock_monotonic_s();
        TRY(generation_prefill_rows(g, &io));
        r->b->prompt_seconds += clock_monotonic_s() - begin;
        TRY(sample_rows(r, &io));
    } while (io.R);
    return STATUS_OK;
}

/* Appends the last token of every text, and samples the next. */
static enum status advance_rows(struct rows *r, bool *any)
{
    struct generation *g = r->g;
    struct decode_row rows[KV_CACHE_ROWS];
    struct decode_io io = {rows, 0, r->logits_RV};
    for (int row = 0; row < g->cache.B; row++) {
        const struct text_batch_item *item = r->at[row];
        if (!item) continue;
        rows[io.R++] = (struct decode_row){row, 1, item->ids.ids + item->ids.count - 1};
    }
    *any = io.R > 0;
    if (!*any) return STATUS_OK;
    TRY(decode_next(&g->loaded.model, &g->cache, &io, &g->loaded.step));
    TRY(sample_rows(r, &io));
    return STATUS_OK;
}

/* Texts that have begun are passed on as they are. */
static enum status end_rows(struct rows *r)
{
    for (int row = 0; row < r->g->cache.B; row++) {
        if (!r->at[row]) continue;
        r->at[row]->text.finish = TEXT_FINISH_interrupt;
        r->at[row]->is_done = true;
    }
    TRY(visit_done(r));
    return STATUS_OK;
}

enum status text_batch_run(struct text_batch *b, struct generation *g)
{
    struct rows r = {.b = b, .g = g};
    enum status st = STATUS_OK;
    TRY(comm_agree(&g->loaded.machine.world, encode_prompts(b, g)));
    if ((size_t)g->num_rows > b->count) g->num_rows = (int)b->count;
    TRY(generation_open(g));
    loaded_model_warn_context(&g->loaded, (int64_t)g->max_prompt + g->max_tokens);
    r.logits_RV = heap((size_t)g->cache.B * (size_t)g->loaded.shape.V * sizeof *r.logits_RV);
    double begin = clock_monotonic_s();
    for (bool any = true; any;) {
        TRY_OUT(text_generation_is_interrupted(&b->items[0].text, g, &r.is_interrupted));
        if (r.is_interrupted) break;
        TRY_OUT(fill_rows(&r));
        TRY_OUT(advance_rows(&r, &any));
    }
    b->seconds = clock_monotonic_s() - begin;
    if (r.is_interrupted) TRY_OUT(end_rows(&r));
out:
    free(r.logits_RV);
    return st;
}

void text_batch_release(struct text_batch *b)
{
    for (size_t i = 0; i < b->count; i++) {
        text_generation_release(&b->items[i].text);
        token_list_release(&b->items[i].ids);
        free(b->items[i].log_probabilities);
    }
}
