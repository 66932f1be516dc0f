// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/export.h"

#include "tokenizer/char_bpe.h"
#include "tokenizer/files/sentencepiece.h"
#include "tokenizer/text/byte_alphabet.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

static bool is_user_defined(const struct tokenizer *t, int32_t id)
{
    for (int32_t i = 0; i < t->added_tokens.count; i++)
        if (t->added_tokens.tokens[i].id == id) return !t->added_tokens.tokens[i].special;
    return false;
}

static void append_token(const struct tokenizer *t, int32_t id, struct text *out)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    byte_alphabet_encode(out, t->vocabulary.bytes + token->at, token->len);
}

static void add_byte_level_tokens(const struct tokenizer *t, struct token_table *e)
{
    e->num_tokens = t->vocab_size;
    e->tokens = heap((size_t)e->num_tokens * sizeof *e->tokens);
    for (int32_t id = 0; id < e->num_tokens; id++) {
        const char *special = special_tokens_text(&t->special_tokens, id);
        struct exported_token *o = &e->tokens[id];
        o->text.at = e->texts.len;
        if (special) {
            o->kind = is_user_defined(t, id) ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
            text_adds(&e->texts, special);
        } else if (vocabulary_token(&t->vocabulary, id)) {
            o->kind = TOKEN_NORMAL;
            append_token(t, id, &e->texts);
        } else {
            o->kind = TOKEN_UNUSED;
            text_addf(&e->texts, "[PAD%d]", id);
        }
        o->text.len = (uint32_t)(e->texts.len - o->text.at);
    }
}

static void add_merges(const struct tokenizer *t, struct token_table *e)
{
    size_t count;
    struct merge_pair *pairs = vocabulary_sorted_pairs(&t->vocabulary, &count);
    e->merges = heap((count + 1) * sizeof *e->merges);
    e->num_merges = count;
    for (size_t i = 0; i < count; i++) {
        e->merges[i].at = e->texts.len;
        append_token(t, pairs[i].left, &e->texts);
        text_adds(&e->texts, " ");
        append_token(t, pairs[i].right, &e->texts);
        e->merges[i].len = (uint32_t)(e->texts.len - e->merges[i].at);
    }
    free(pairs);
}

static enum token_kind char_token_kind(const struct tokenizer *t, int32_t id)
{
    const struct char_bpe_piece *p = &t->char_bpe->pieces[id];
    if (id == t->char_bpe->unknown_id) return TOKEN_UNKNOWN;
    if (special_tokens_text(&t->special_tokens, id))
        return is_user_defined(t, id) ? TOKEN_USER_DEFINED : TOKEN_CONTROL;
    if (p->kind == PIECE_BYTE && t->char_bpe->byte_ids[p->byte] == id) return TOKEN_BYTE;
    return vocabulary_token(&t->vocabulary, id) ? TOKEN_NORMAL : TOKEN_UNUSED;
}

static void append_escaped(const struct tokenizer *t, int32_t id, struct text *out)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    const char *bytes = (const char *)t->vocabulary.bytes + token->at;
    for (uint32_t i = 0; i < token->len; i++)
        if (bytes[i] == ' ' && t->char_bpe->escapes_spaces)
            text_adds(out, "\xE2\x96\x81");
        else
            text_add(out, bytes + i, 1);
}

static void add_char_tokens(const struct tokenizer *t, struct token_table *e)
{
    e->num_tokens = t->vocab_size;
    e->tokens = heap((size_t)e->num_tokens * sizeof *e->tokens);
    for (int32_t id = 0; id < e->num_tokens; id++) {
        struct exported_token *o = &e->tokens[id];
        const char *special = special_tokens_text(&t->special_tokens, id);
        o->kind = char_token_kind(t, id);
        o->text.at = e->texts.len;
        if (special)
            text_adds(&e->texts, special);
        else if (o->kind == TOKEN_BYTE)
            text_addf(&e->texts, "<0x%02X>", t->char_bpe->pieces[id].byte);
        else if (o->kind == TOKEN_UNUSED)
            text_addf(&e->texts, "[PAD%d]", id);
        else
            append_escaped(t, id, &e->texts);
        o->text.len = (uint32_t)(e->texts.len - o->text.at);
    }
}

/* With scores, any two tokens whose concatenation is a token merge: checks that they do so here. */
static enum status check_splits(const struct tokenizer *t, const struct token_table *e, int32_t id)
{
    const struct vocabulary *v = &t->vocabulary;
    const struct token_bytes *token = vocabulary_token(v, id);
    const unsigned char *bytes = v->bytes + token->at;
    for (uint32_t k = 1; k < token->len; k++) {
        if ((bytes[k] & 0xC0) == 0x80) continue;
        int32_t left = vocabulary_find(v, bytes, k);
        int32_t right = vocabulary_find(v, bytes + k, token->len - k);
        const struct merge_pair *p =
            left < 0 || right < 0 ? NULL : vocabulary_find_pair(v, left, right);
        bool both = left >= 0 && right >= 0 && e->tokens[left].kind == TOKEN_NORMAL &&
                    e->tokens[right].kind == TOKEN_NORMAL;
        if (both && (!p || p->merged != id))
            FAIL(UNSUPPORTED, "%s: tokens %d and %d concatenate to token %d, but do not merge",
                 t->path, left, right, id);
        if (bytes[k] == ' ' && t->char_bpe->splits_words)
            FAIL(UNSUPPORTED, "%s: words are split at spaces, but token %d has a space inside",
                 t->path, id);
    }
    return STATUS_OK;
}

/* The range of ranks of the merges that produce a token. */
struct token_ranks {
    int32_t id, first, last;
};

static int compare_first_ranks(const void *a, const void *b)
{
    const struct token_ranks *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

static enum status include_rank(const struct tokenizer *t, const struct merge_pair *p,
                                struct token_ranks *all)
{
    if (p->merged >= t->vocab_size || p->left >= t->vocab_size || p->right >= t->vocab_size)
        FAIL(UNSUPPORTED, "%s: a merge of an ID that is not a token", t->path);
    struct token_ranks *r = &all[p->merged];
    if (p->rank < r->first) r->first = p->rank;
    if (p->rank > r->last) r->last = p->rank;
    return STATUS_OK;
}

/* Whether the token repeats one byte: SentencePiece models have runs of spaces, all with one
 * score. */
static bool repeats_one_byte(const struct tokenizer *t, int32_t id)
{
    const struct token_bytes *token = vocabulary_token(&t->vocabulary, id);
    const unsigned char *bytes = token ? t->vocabulary.bytes + token->at : NULL;
    return token && token->len && !memcmp(bytes, bytes + 1, token->len - 1);
}

/* Assigns higher scores to tokens that merge earlier.  The rank ranges of two tokens must not
 * overlap, unless both tokens are runs. */
static enum status add_scores(const struct tokenizer *t, struct token_table *e)
{
    const struct vocabulary *v = &t->vocabulary;
    enum { LOW_IDS = 256 * 256 };
    struct token_ranks *all = heap(((size_t)e->num_tokens + 1) * sizeof *all);
    enum status st = STATUS_OK;
    for (int32_t id = 0; id < e->num_tokens; id++)
        all[id] = (struct token_ranks){id, INT32_MAX, -1};
    for (int i = 0; i < LOW_IDS; i++)
        if (v->low_pairs[i / 256] && v->low_pairs[i / 256][i % 256].left >= 0)
            TRY_OUT(include_rank(t, &v->low_pairs[i / 256][i % 256], all));
    for (size_t i = 0; i < v->num_pair_slots; i++)
        if (v->pairs[i].left >= 0) TRY_OUT(include_rank(t, &v->pairs[i], all));
    for (int32_t id = 0; id < e->num_tokens; id++)
        if (e->tokens[id].kind == TOKEN_NORMAL) TRY_OUT(check_splits(t, e, id));
    qsort(all, (size_t)e->num_tokens, sizeof *all, compare_first_ranks);
    for (int32_t i = 0, last = -1, score = 0; i < e->num_tokens; i++) {
        bool interleaved = all[i].last >= 0 && last > all[i].first;
        if (interleaved && !(repeats_one_byte(t, all[i - 1].id) && repeats_one_byte(t, all[i].id)))
            FAIL_OUT(UNSUPPORTED, "%s: the merges of tokens %d and %d are interleaved", t->path,
                     all[i - 1].id, all[i].id);
        if (all[i].last > last) last = all[i].last;
        score -= !interleaved;
        if (e->tokens[all[i].id].kind == TOKEN_NORMAL) e->tokens[all[i].id].score = (float)score;
    }
out:
    free(all);
    return st;
}

static enum status export_char_bpe(const struct tokenizer *t, struct token_table *e)
{
    const struct char_bpe *c = t->char_bpe;
    if (!c->byte_fallback || c->looks_up_words)
        FAIL(UNSUPPORTED,
             "%s: a %s %s cannot be exported: scores require byte_fallback without ignore_merges",
             t->path, tokenizer_kind(t),
             c->looks_up_words ? "with ignore_merges" : "without byte tokens");
    e->adds_space = c->prefix != PREFIX_NEVER;
    e->unknown = c->unknown_id;
    add_char_tokens(t, e);
    TRY(add_scores(t, e));
    return STATUS_OK;
}

#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define START "[^\\r\\n\\p{L}\\p{N}]?"

/* One rule of a splitter: of the first three, what is set is what matches. */
struct known_rule {
    size_t (*split)(const unsigned char *text, size_t len);
    const char *pattern;
    unsigned marks;
    enum split_behavior behavior;
};
struct known_splitter {
    const char *name;
    struct known_rule rules[4];
};

/* The pre_tokenizers that llama.cpp knows, too; see gguf_model.c for its names. */
static const struct known_splitter known_splitters[] = {
    {"llama3", {{.split = split_llama3}}},
    {"qwen2", {{.split = split_qwen2}}},
    {"gpt2", {{.split = split_gpt2}}},
    {"digits gpt2", {{.marks = UNICODE_DIGIT}, {.split = split_gpt2}}},
    {"gpt-4o", {{.pattern = split_o200k_pattern}}},
    {"tekken",
     {{.pattern = START UPPER "*" LOWER "+|" START UPPER "+" LOWER
                              "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|"
                              "\\s+(?!\\S)|\\s+"}}},
    {"deepseek-v3",
     {{.pattern = "\\p{N}{1,3}"},
      {.pattern = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"},
      {.pattern = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"
                  "[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|"
                  "\\s*[\r\n]+|\\s+(?!\\S)|\\s+"}}},
    {"falcon",
     {{.marks = UNICODE_PUNCTUATION, .behavior = SPLIT_CONTIGUOUS},
      {.split = split_gpt2},
      {.marks = UNICODE_DIGIT, .behavior = SPLIT_CONTIGUOUS},
      {.pattern = "[0-9][0-9][0-9]"}}},
    {"bloom", {{.pattern = " ?[^(\\s|[.,!?\u2026\u3002\uFF0C\u3001\u0964\u06D4\u060C])]+"}}},
};

static bool is_rule(const struct split_rule *s, const struct known_rule *k)
{
    bool same_pattern =
        k->pattern ? s->regex && !strcmp(regex_pattern(s->regex), k->pattern) : !s->regex;
    return s->split == k->split && same_pattern && s->marks == k->marks && !s->string &&
           s->behavior == k->behavior && !s->invert && !s->adds_prefix_space;
}

static size_t count_rules(const struct known_splitter *k)
{
    size_t count = 0;
    while (count < 4 && (k->rules[count].split || k->rules[count].pattern || k->rules[count].marks))
        count++;
    return count;
}

static const char *find_splitter(const struct tokenizer *t)
{
    const struct pre_tokenizer *p = &t->pre_tokenizer;
    if (!t->vocabulary.num_pairs && !p->count) return "llama3"; /* it splits nothing */
    for (size_t i = 0; i < sizeof known_splitters / sizeof *known_splitters; i++) {
        const struct known_splitter *k = &known_splitters[i];
        size_t count = count_rules(k);
        bool same = p->count ? p->count == count : count == 1 && t->split == k->rules[0].split;
        for (size_t r = 0; same && r < p->count; r++) same = is_rule(&p->rules[r], &k->rules[r]);
        if (same && (p->count || t->split)) return k->name;
    }
    return NULL;
}

enum status export_token_table(const struct tokenizer *t, struct token_table *e)
{
    *e = (struct token_table){.unknown = -1};
    if (t->format == FORMAT_SENTENCEPIECE || t->format == FORMAT_SENTENCEPIECE_UNIGRAM) {
        enum status st = sentencepiece_export(t, e);
        if (st) token_table_release(e);
        return st;
    }
    if (t->char_bpe) {
        enum status st = export_char_bpe(t, e);
        if (st) token_table_release(e);
        return st;
    }
    e->splitter = find_splitter(t);
    if (!e->splitter)
        FAIL(UNSUPPORTED,
             "%s: the pre_tokenizer must be that of Llama 3, Qwen 2, SmolLM, GPT-2, GPT-4o or "
             "Llama 4, Tekken, DeepSeek V3, Falcon or BLOOM",
             t->path);
    e->normalizes = t->normal_form != FORM_NONE || t->normalizer.count;
    e->has_merges = true;
    e->ignore_merges = t->ignore_merges;
    add_byte_level_tokens(t, e);
    add_merges(t, e);
    return STATUS_OK;
}
