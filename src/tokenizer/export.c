// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/export.h"

#include "tokenizer/kinds.h"
#include "tokenizer/sentence.h"
#include "tokenizer/text/letters.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"

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

static enum token_kind kind_of(const struct tokenizer *t, int32_t id)
{
    const struct sentence_piece *p = &t->sentence->pieces[id];
    if (id == t->sentence->unknown) return TOKEN_UNKNOWN;
    if (specials_text(&t->specials, id)) return is_found(t, id) ? TOKEN_FOUND : TOKEN_CONTROL;
    if (p->kind == PIECE_BYTE && t->sentence->byte_id[p->byte] == id) return TOKEN_BYTE;
    return vocabulary_token(&t->vocabulary, id) ? TOKEN_NORMAL : TOKEN_UNUSED;
}

static void add_spelt(const struct tokenizer *t, int32_t id, struct text *out)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    const char *bytes = (const char *)t->vocabulary.bytes + token->at;
    for (uint32_t i = 0; i < token->len; i++)
        if (bytes[i] == ' ' && t->sentence->escapes)
            text_adds(out, "\xE2\x96\x81");
        else
            text_add(out, bytes + i, 1);
}

static void add_sentence_tokens(const struct tokenizer *t, struct token_export *e)
{
    e->num_tokens = t->vocab_size;
    e->tokens = heap((size_t)e->num_tokens * sizeof *e->tokens);
    for (int32_t id = 0; id < e->num_tokens; id++) {
        struct exported_token *o = &e->tokens[id];
        const char *special = specials_text(&t->specials, id);
        o->kind = kind_of(t, id);
        o->text.at = e->texts.len;
        if (special)
            text_adds(&e->texts, special);
        else if (o->kind == TOKEN_BYTE)
            text_addf(&e->texts, "<0x%02X>", t->sentence->pieces[id].byte);
        else if (o->kind == TOKEN_UNUSED)
            text_addf(&e->texts, "[PAD%d]", id);
        else
            add_spelt(t, id, &e->texts);
        o->text.len = (uint32_t)(e->texts.len - o->text.at);
    }
}

/* Scores know no cuts: whatever two tokens make a token must merge. */
static enum status check_cuts(const struct tokenizer *t, const struct token_export *e, int32_t id)
{
    const struct vocabulary *v = &t->vocabulary;
    const struct token_bytes *token = vocabulary_token(v, id);
    const unsigned char *bytes = v->bytes + token->at;
    for (uint32_t k = 1; k < token->len; k++) {
        if ((bytes[k] & 0xC0) == 0x80) continue;
        int32_t left = vocabulary_find(v, bytes, k);
        int32_t right = vocabulary_find(v, bytes + k, token->len - k);
        const struct pair *p = left < 0 || right < 0 ? NULL : vocabulary_pair(v, left, right);
        bool both = left >= 0 && right >= 0 && e->tokens[left].kind == TOKEN_NORMAL &&
                    e->tokens[right].kind == TOKEN_NORMAL;
        if (both && (!p || p->joined != id))
            FAIL(UNSUPPORTED, "%s: the tokens %d and %d make token %d, but do not merge", t->path,
                 left, right, id);
        if (bytes[k] == ' ' && t->sentence->cuts_words)
            FAIL(UNSUPPORTED, "%s: words are cut out, and token %d has a space inside", t->path,
                 id);
    }
    return STATUS_OK;
}

/* Ranks of the merges that give a token. */
struct ranks {
    int32_t id, first, last;
};

static int by_first(const void *a, const void *b)
{
    const struct ranks *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static enum status add_rank(const struct tokenizer *t, const struct pair *p, struct ranks *all)
{
    if (p->joined >= t->vocab_size || p->left >= t->vocab_size || p->right >= t->vocab_size)
        FAIL(UNSUPPORTED, "%s: a merge of what is no token", t->path);
    struct ranks *r = &all[p->joined];
    if (p->rank < r->first) r->first = p->rank;
    if (p->rank > r->last) r->last = p->rank;
    return STATUS_OK;
}

/* One character again and again: SentencePiece's models have such of spaces, all of one score. */
static bool is_run(const struct tokenizer *t, int32_t id)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    const unsigned char *bytes = token ? t->vocabulary.bytes + token->at : NULL;
    return token && token->len && !memcmp(bytes, bytes + 1, token->len - 1);
}

/* The sooner a token's merges come the higher is its score; those of no two may be mixed, but of
 * runs. */
static enum status add_scores(const struct tokenizer *t, struct token_export *e)
{
    const struct vocabulary *v = &t->vocabulary;
    enum { LOW = 256 * 256 };
    struct ranks *all = heap(((size_t)e->num_tokens + 1) * sizeof *all);
    enum status st = STATUS_OK;
    for (int32_t id = 0; id < e->num_tokens; id++) all[id] = (struct ranks){id, INT32_MAX, -1};
    for (int i = 0; i < LOW; i++)
        if (v->low[i / 256] && v->low[i / 256][i % 256].left >= 0)
            TRY_OUT(add_rank(t, &v->low[i / 256][i % 256], all));
    for (size_t i = 0; i < v->num_pair_slots; i++)
        if (v->pairs[i].left >= 0) TRY_OUT(add_rank(t, &v->pairs[i], all));
    for (int32_t id = 0; id < e->num_tokens; id++)
        if (e->tokens[id].kind == TOKEN_NORMAL) TRY_OUT(check_cuts(t, e, id));
    qsort(all, (size_t)e->num_tokens, sizeof *all, by_first);
    for (int32_t i = 0, last = -1, score = 0; i < e->num_tokens; i++) {
        bool mixed = all[i].last >= 0 && last > all[i].first;
        if (mixed && !(is_run(t, all[i - 1].id) && is_run(t, all[i].id)))
            FAIL_OUT(UNSUPPORTED, "%s: merges that give the tokens %d and %d are mixed", t->path,
                     all[i - 1].id, all[i].id);
        if (all[i].last > last) last = all[i].last;
        score -= !mixed;
        if (e->tokens[all[i].id].kind == TOKEN_NORMAL) e->tokens[all[i].id].score = (float)score;
    }
out:
    free(all);
    return st;
}

static enum status sentence_export(const struct tokenizer *t, struct token_export *e)
{
    const struct sentence *s = t->sentence;
    if (!s->falls_back || s->whole_words)
        FAIL(UNSUPPORTED,
             "%s: a %s %s: only merges with a token of each byte have scores that give them",
             t->path, t->kind, s->whole_words ? "with ignore_merges" : "without them");
    e->adds_space = s->prefix != PREFIX_NEVER;
    e->unknown = s->unknown;
    add_sentence_tokens(t, e);
    TRY(add_scores(t, e));
    return STATUS_OK;
}

static bool is_alone(const struct step *s, bool inverted)
{
    return s->behavior == STEP_ISOLATED && s->inverted == inverted && !s->adds_space;
}

static const char *find_splitter(const struct tokenizer *t)
{
    static const struct {
        size_t (*split)(const unsigned char *text, size_t len);
        const char *name;
    } known[] = {{split_llama3, "llama3"}, {split_qwen2, "qwen2"}, {split_gpt2, "gpt2"}};
    const struct step *first = t->steps.all, *second = first + 1;
    if (!t->vocabulary.num_pairs && !t->steps.count) return "llama3";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (t->split == known[i].split && !t->steps.count) return known[i].name;
    bool digits = t->steps.count == 2 && first->marks == UNICODE_DIGIT && is_alone(first, false) &&
                  second->split == split_gpt2 && is_alone(second, false);
    return digits ? "digits gpt2" : NULL;
}

enum status tokenizer_export(const struct tokenizer *t, struct token_export *e)
{
    *e = (struct token_export){.unknown = -1};
    if (!strcmp(t->kind, SENTENCEPIECE_KIND)) {
        enum status st = sentencepiece_export(t, e);
        if (st) token_export_release(e);
        return st;
    }
    if (t->sentence) {
        enum status st = sentence_export(t, e);
        if (st) token_export_release(e);
        return st;
    }
    e->splitter = find_splitter(t);
    if (!e->splitter)
        FAIL(UNSUPPORTED, "%s: it splits texts neither as Llama 3, Qwen 2, SmolLM nor GPT-2 does",
             t->path);
    e->normalizes = t->form != FORM_NONE;
    e->has_merges = true;
    e->whole_pieces = t->whole_pieces;
    add_tokens(t, e);
    add_merges(t, e);
    return STATUS_OK;
}
