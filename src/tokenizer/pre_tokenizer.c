// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pre_tokenizer.h"

#include "tokenizer/text/byte_alphabet.h"
#include "tokenizer/text/regex.h"
#include "tokenizer/text/split.h"
#include "tokenizer/text/unicode.h"

#include <stdlib.h>
#include <string.h>

enum status pre_tokenizer_set_pattern(struct split_rule *rule, const char *pattern)
{
    static const struct {
        const char *pattern;
        size_t (*split)(const unsigned char *text, size_t len);
    } known[] = {
        {split_llama3_pattern, split_llama3},
        {split_cl100k_pattern, split_cl100k},
        {split_qwen2_pattern, split_qwen2},
        {split_gpt2_pattern, split_gpt2},
    };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(pattern, known[i].pattern)) rule->split = known[i].split;
    return rule->split ? STATUS_OK : regex_compile(&rule->regex, pattern);
}

void pre_tokenizer_release(struct pre_tokenizer *p)
{
    for (size_t i = 0; i < p->count; i++) {
        regex_free(p->rules[i].regex);
        free(p->rules[i].string);
    }
    *p = (struct pre_tokenizer){0};
}

void pre_tokenizer_scratch_init(struct pre_tokenizer_scratch *s, const struct pre_tokenizer *p)
{
    *s = (struct pre_tokenizer_scratch){.pre_tokenizer = p};
    for (size_t i = 0; i < p->count; i++)
        if (p->rules[i].regex) s->rules[i].match = regex_match_make(p->rules[i].regex);
}

void pre_tokenizer_scratch_release(struct pre_tokenizer_scratch *s)
{
    for (size_t i = 0; i < PRE_TOKENIZER_MAX_RULES; i++) {
        regex_match_free(s->rules[i].match);
        text_release(&s->rules[i].text);
    }
    *s = (struct pre_tokenizer_scratch){0};
}

/* Receives the pieces of the last rule. */
struct piece_sink {
    piece_callback *emit;
    void *context;
};

/* The state of applying one rule to one piece. */
struct rule_run {
    struct pre_tokenizer_scratch *scratch;
    size_t index; /* of the rule */
    const struct piece_sink *sink;
    const unsigned char *text, *seen; /* the piece, and the form in which the rule sees it */
    size_t seen_len;
    size_t seen_at, text_at;   /* end of the last segment, as an offset into either form */
    size_t begin, end;         /* the pending piece in `text`, which may still grow */
    bool has_piece, was_match; /* a piece is pending; the last segment was a match */
};

static enum status run_rule(struct pre_tokenizer_scratch *s, const struct piece_sink *sink,
                            size_t index, const unsigned char *text, size_t len);

static const struct split_rule *current_rule(const struct rule_run *r)
{
    return &r->scratch->pre_tokenizer->rules[r->index];
}

/* Finds the next match at or after `at` in `seen`; without one, both offsets are its length. */
static enum status find_match(const struct rule_run *r, size_t at, struct regex_span *out)
{
    const struct split_rule *s = current_rule(r);
    const unsigned char *text = r->seen;
    size_t len = r->seen_len;
    int size;
    *out = (struct regex_span){len, len};
    if (s->split) {
        *out = (struct regex_span){at, at + s->split(text + at, len - at)};
    } else if (s->regex) {
        TRY(regex_find(r->scratch->rules[r->index].match, text, len, at, out));
    } else if (s->string) {
        const unsigned char *found = memmem(text + at, len - at, s->string, strlen(s->string));
        if (found) out->begin = (size_t)(found - text), out->end = out->begin + strlen(s->string);
    } else if (s->marks) {
        for (; at < len; at += (size_t)size) {
            uint32_t code = unicode_decode(text + at, len - at, &size);
            if ((size == 1 && text[at] >= 0x80) || !unicode_has_mark(code, s->marks)) continue;
            *out = (struct regex_span){at, at + (size_t)size};
            break;
        }
    }
    return STATUS_OK;
}

/* Passes the pending piece to the next rule. */
static enum status flush_piece(struct rule_run *r)
{
    if (!r->has_piece) return STATUS_OK;
    r->has_piece = false;
    return run_rule(r->scratch, r->sink, r->index + 1, r->text + r->begin, r->end - r->begin);
}

/* Adds the segment that ends at seen[end]: a match, or the text between two matches. */
static enum status add_segment(struct rule_run *r, size_t end, bool match)
{
    const struct split_rule *s = current_rule(r);
    size_t begin = r->text_at;
    if (!s->in_byte_alphabet)
        r->text_at = end;
    else /* one character for each byte */
        for (size_t i = r->seen_at; i < end; i++) r->text_at += (r->seen[i] & 0xC0) != 0x80;
    r->seen_at = end;
    match ^= s->invert;
    bool joins = (s->behavior == SPLIT_CONTIGUOUS && match == r->was_match) ||
                 (s->behavior == SPLIT_MERGED_WITH_PREVIOUS && match && !r->was_match) ||
                 (s->behavior == SPLIT_MERGED_WITH_NEXT && !match && r->was_match);
    r->was_match = match;
    if (r->has_piece && joins) {
        r->end = r->text_at;
        return STATUS_OK;
    }
    TRY(flush_piece(r));
    r->has_piece = s->behavior != SPLIT_REMOVED || !match;
    r->begin = begin, r->end = r->text_at;
    return STATUS_OK;
}

/* Sets `seen`: the piece itself, with a prefix space, or in the byte-level alphabet. */
static enum status prepare_text(struct rule_run *r, size_t len)
{
    const struct split_rule *s = current_rule(r);
    struct text *own = &r->scratch->rules[r->index].text;
    r->seen = r->text;
    r->seen_len = len;
    bool adds = s->adds_prefix_space && r->text[0] != ' ';
    if (!adds && !s->in_byte_alphabet) return STATUS_OK;
    if (adds) TRY(r->sink->emit(r->sink->context, NULL, 0));
    text_clear(own);
    if (adds) {
        text_adds(own, " ");
        text_add(own, r->text, len);
        r->text = (const unsigned char *)own->data;
    } else {
        byte_alphabet_encode(own, r->text, len);
    }
    r->seen = (const unsigned char *)own->data;
    r->seen_len = own->len;
    return STATUS_OK;
}

static enum status run_rule(struct pre_tokenizer_scratch *s, const struct piece_sink *sink,
                            size_t index, const unsigned char *text, size_t len)
{
    struct rule_run r = {.scratch = s, .sink = sink, .index = index, .text = text};
    if (!len) return STATUS_OK;
    if (index == s->pre_tokenizer->count) return sink->emit(sink->context, text, len);
    TRY(prepare_text(&r, len));
    struct regex_span match;
    for (size_t at = 0; at < r.seen_len; at = match.end) {
        TRY(find_match(&r, at, &match));
        if (match.begin > at) TRY(add_segment(&r, match.begin, false));
        if (match.end > match.begin) TRY(add_segment(&r, match.end, true));
    }
    return flush_piece(&r);
}

enum status pre_tokenizer_run(struct pre_tokenizer_scratch *s, const unsigned char *text,
                              size_t len, piece_callback *emit, void *context)
{
    const struct piece_sink sink = {emit, context};
    return run_rule(s, &sink, 0, text, len);
}
