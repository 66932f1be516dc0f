// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/export.h"

#include "tokenizer/kinds.h"
#include "tokenizer/letters.h"
#include "tokenizer/split.h"

#include <stdlib.h>
#include <string.h>

void token_export_release(struct token_export *e)
{
    free(e->tokens), free(e->merges);
    text_release(&e->texts);
    *e = (struct token_export){0};
}

static bool is_found(const struct tokenizer *t, int32_t id)
{
    for (int32_t i = 0; i < t->added.count; i++)
        if (t->added.tokens[i].id == id) return !t->added.tokens[i].special;
    return false;
}

static void add_letters(const struct tokenizer *t, int32_t id, struct text *out)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    letters_add(out, t->vocabulary.bytes + token->at, token->len, false);
}

static void add_tokens(const struct tokenizer *t, struct token_export *e)
{
    e->num_tokens = t->vocab_size;
    e->tokens = heap((size_t)e->num_tokens * sizeof *e->tokens);
    for (int32_t id = 0; id < e->num_tokens; id++) {
        const char *special = specials_text(&t->specials, id);
        struct exported_token *o = &e->tokens[id];
        o->text.at = e->texts.len;
        if (special) {
            o->kind = is_found(t, id) ? TOKEN_FOUND : TOKEN_CONTROL;
            text_adds(&e->texts, special);
        } else if (vocabulary_token(&t->vocabulary, id)) {
            o->kind = TOKEN_NORMAL;
            add_letters(t, id, &e->texts);
        } else {
            o->kind = TOKEN_UNUSED;
            text_addf(&e->texts, "[PAD%d]", id);
        }
        o->text.len = (uint32_t)(e->texts.len - o->text.at);
    }
}

/* Merges of the same rank, as all cuts of a tiktoken's token are, by the ranks of their halves. */
static int by_rank(const void *a, const void *b)
{
    const struct pair *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->left != y->left) return x->left < y->left ? -1 : 1;
    return (x->right > y->right) - (x->right < y->right);
}

static void add_merges(const struct tokenizer *t, struct token_export *e)
{
    const struct vocabulary *v = &t->vocabulary;
    enum { LOW = 256 };
    struct pair *pairs = heap((v->num_pairs + 1) * sizeof *pairs);
    size_t count = 0;
    for (int i = 0; i < LOW * LOW; i++) {
        const struct pair *row = v->low[i / LOW];
        if (row && row[i % LOW].left >= 0) pairs[count++] = row[i % LOW];
    }
    for (size_t i = 0; i < v->num_pair_slots; i++)
        if (v->pairs[i].left >= 0) pairs[count++] = v->pairs[i];
    qsort(pairs, count, sizeof *pairs, by_rank);
    e->merges = heap((count + 1) * sizeof *e->merges);
    e->num_merges = count;
    for (size_t i = 0; i < count; i++) {
        e->merges[i].at = e->texts.len;
        add_letters(t, pairs[i].left, &e->texts);
        text_adds(&e->texts, " ");
        add_letters(t, pairs[i].right, &e->texts);
        e->merges[i].len = (uint32_t)(e->texts.len - e->merges[i].at);
    }
    free(pairs);
}

enum status tokenizer_export(const struct tokenizer *t, struct token_export *e)
{
    *e = (struct token_export){.unknown = -1};
    if (!strcmp(t->kind, SENTENCEPIECE_KIND)) {
        enum status st = sentencepiece_export(t, e);
        if (st) token_export_release(e);
        return st;
    }
    if (t->sentence)
        FAIL(UNSUPPORTED, "%s: a %s has no scores; SentencePiece's tokenizer.model has", t->path,
             t->kind);
    if (t->steps.count || t->form)
        FAIL(UNSUPPORTED, "%s: it splits texts by several rules, or normalizes them", t->path);
    if (t->split == split_llama3 || !t->vocabulary.num_pairs)
        e->splitter = "llama3";
    else if (t->split == split_gpt2)
        e->splitter = "gpt2";
    else
        FAIL(UNSUPPORTED, "%s: it splits texts neither as Llama 3 nor as GPT-2 does", t->path);
    e->has_merges = true;
    e->whole_pieces = t->whole_pieces;
    add_tokens(t, e);
    add_merges(t, e);
    return STATUS_OK;
}
