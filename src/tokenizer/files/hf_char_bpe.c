// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_char_bpe.h"

#include "tokenizer/char_bpe.h"
#include "tokenizer/files/hf_merges.h"
#include "tokenizer/files/hf_node.h"
#include "tokenizer/files/hf_pipeline.h"
#include "tokenizer/tokenizer_impl.h"
#include "tokenizer/unigram.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81";

static bool has_metaspace(const struct json *v)
{
    if (hf_node_type_is(v, "Metaspace")) return true;
    if (!hf_node_type_is(v, "Sequence")) return false;
    bool has = false;
    for (v = json_first(json_get(v, "pretokenizers")); v; v = json_next(v))
        has |= hf_node_type_is(v, "Metaspace");
    return has;
}

static bool is_unigram(const struct json *root)
{
    return json_string_is(json_get(json_get(root, "model"), "type"), "Unigram");
}

/* Returns the first component of a Sequence; or the component itself, if it is the only one. */
static const struct json *first_component(const struct json *v, const char *list, bool *is_single)
{
    *is_single = !hf_node_type_is(v, "Sequence");
    return *is_single ? (json_is_object(v) ? v : NULL) : json_first(json_get(v, list));
}

static bool is_replace(const struct json *v, const char *from, const char *to)
{
    return hf_node_type_is(v, "Replace") &&
           json_string_is(json_get(json_get(v, "pattern"), "String"), from) &&
           json_string_is(json_get(v, "content"), to);
}

/* Whether the decoder writes U+2581 as a space. */
static bool decodes_spaces(const struct json *v)
{
    bool is_single, has = false;
    for (v = first_component(v, "decoders", &is_single); v; v = is_single ? NULL : json_next(v))
        has |= is_replace(v, escaped_space, " ") || hf_node_type_is(v, "Metaspace");
    return has;
}

bool hf_char_bpe_matches(const struct json *root)
{
    return json_true(json_get(json_get(root, "model"), "byte_fallback")) || is_unigram(root) ||
           has_metaspace(json_get(root, "pre_tokenizer")) ||
           decodes_spaces(json_get(root, "decoder"));
}

/* Reads Prepend and Replace; returns whether these are all steps. */
static bool read_plain_normalizer(struct char_bpe *c, const struct json *v)
{
    bool is_single;
    for (v = first_component(v, "normalizers", &is_single); v;
         v = is_single ? NULL : json_next(v)) {
        if (hf_node_type_is(v, "Prepend") &&
            json_string_is(json_get(v, "prepend"), escaped_space) && !c->prefix)
            c->prefix = PREFIX_ALWAYS;
        else if (is_replace(v, " ", escaped_space))
            c->escapes_spaces = true;
        else
            return false;
    }
    return true;
}

/* Reads a Metaspace that replaces no normalizer's prefix; returns whether it is one. */
static bool read_plain_metaspace(struct char_bpe *c, const struct json *v)
{
    static const struct {
        const char *name;
        enum char_bpe_prefix prefix;
    } schemes[] = {{"always", PREFIX_MISSING}, {"first", PREFIX_FIRST}, {"never", PREFIX_NEVER}};
    const struct json *scheme = json_get(v, "prepend_scheme"), *split = json_get(v, "split");
    const struct json *prefix = json_get(v, "add_prefix_space");
    const char *name = json_is_string(scheme)                       ? json_string(scheme)
                       : json_is_bool(prefix) && !json_true(prefix) ? "never"
                                                                    : "always";
    size_t i = 0;
    while (i < 3 && strcmp(name, schemes[i].name)) i++;
    if (i == 3 || !json_string_is(json_get(v, "replacement"), escaped_space) ||
        (c->prefix && schemes[i].prefix))
        return false;
    if (schemes[i].prefix) c->prefix = schemes[i].prefix;
    c->escapes_spaces = true;
    c->splits_words = !split || json_true(split);
    return true;
}

/* Whether v splits at spaces although the normalizer has replaced them all, which does nothing
 * (Gemma). */
static bool is_noop_split(const struct char_bpe *c, const struct json *v)
{
    return c->escapes_spaces && hf_node_type_is(v, "Split") &&
           json_string_is(json_get(json_get(v, "pattern"), "String"), " ") &&
           !json_true(json_get(v, "invert"));
}

/* Added tokens that match normalized text; special ones never match. */
static bool matches_normalized(const struct json *root)
{
    const struct json *added = json_get(root, "added_tokens");
    for (const struct json *v = json_first(added); v; v = json_next(v)) {
        const struct json *special = json_get(v, "special");
        if (json_true(json_get(v, "normalized")) && special && !json_true(special)) return true;
    }
    return false;
}

/* Whether the pipeline only writes spaces as U+2581 and prepends one, as Llama 2's: then *c
 * normalizes the text.  Otherwise the general normalizer and pre_tokenizer do. */
static bool read_plain_pipeline(struct char_bpe *c, const struct json *root)
{
    const struct json *normalizer = json_get(root, "normalizer");
    const struct json *pre = json_get(root, "pre_tokenizer");
    if (is_unigram(root) || !read_plain_normalizer(c, normalizer)) return false;
    if (!hf_node_is_noop(normalizer) && matches_normalized(root)) return false;
    if (hf_node_type_is(pre, "Metaspace")) return read_plain_metaspace(c, pre);
    return c->escapes_spaces && (!json_is_object(pre) || is_noop_split(c, pre));
}

bool hf_char_bpe_is_plain(const struct json *root)
{
    struct char_bpe c = {0};
    return read_plain_pipeline(&c, root);
}

static enum status read_decoder(struct tokenizer *t, const struct json *v, bool *bytes)
{
    struct char_bpe *c = t->char_bpe;
    bool is_single, spaces = false, fused = false;
    for (v = first_component(v, "decoders", &is_single); v; v = is_single ? NULL : json_next(v)) {
        int64_t start;
        if (is_replace(v, escaped_space, " ")) {
            spaces = true;
        } else if (hf_node_type_is(v, "ByteFallback")) {
            *bytes = true;
        } else if (hf_node_type_is(v, "Fuse")) {
            fused = true;
        } else if (hf_node_type_is(v, "Strip") && fused &&
                   json_string_is(json_get(v, "content"), " ") &&
                   json_as_int(json_get(v, "start"), 0, 1, &start) &&
                   json_as_int(json_get(v, "stop"), 0, 0, &(int64_t){0})) {
            if (start) c->strip = STRIP_ONE_SPACE;
        } else if (hf_node_type_is(v, "Metaspace") &&
                   json_string_is(json_get(v, "replacement"), escaped_space)) {
            const struct json *prefix = json_get(v, "add_prefix_space");
            bool never = json_string_is(json_get(v, "prepend_scheme"), "never") ||
                         (json_is_bool(prefix) && !json_true(prefix));
            c->strip = never ? STRIP_NOTHING : STRIP_FIRST_TOKEN;
            spaces = true;
        } else {
            FAIL(UNSUPPORTED, "%s: decoder %s is not supported, or not in this position", t->path,
                 hf_node_type(v));
        }
    }
    if (!spaces) FAIL(UNSUPPORTED, "%s: no decoder replaces U+2581 by spaces", t->path);
    c->strict_bytes = true;
    return STATUS_OK;
}

static void add_piece(struct char_bpe *c, int32_t id, const char *token, bool bytes)
{
    int byte = char_bpe_parse_byte(token, strlen(token), false);
    char_bpe_add_piece(c, id, bytes && byte >= 0 ? PIECE_BYTE : PIECE_TEXT, token, strlen(token));
    if (byte >= 0) c->pieces[id].byte = (uint8_t)byte;
}

static enum status fail_other_id(const struct tokenizer *t, const char *text, int32_t added,
                                 int32_t id)
{
    FAIL(DATA, "%s: the added token \"%s\" has ID %d, but ID %d in the vocabulary", t->path, text,
         added, id);
}

/* A token with a space that text has as U+2581 never matches: it is not in t->vocabulary. */
static enum status check_unmatched(const struct tokenizer *t, const char *token, int32_t id)
{
    int32_t added = special_tokens_find(&t->special_tokens, token);
    return added >= 0 && added != id ? fail_other_id(t, token, added, id) : STATUS_OK;
}

static enum status add_token(struct tokenizer *t, const char *token, int32_t id, bool bytes,
                             struct text *unescaped)
{
    struct char_bpe *c = t->char_bpe;
    int byte = char_bpe_parse_byte(token, strlen(token), true);
    const char *added = special_tokens_text(&t->special_tokens, id);
    if (added && strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and the token \"%s\" have the same ID", t->path,
             added, token);
    add_piece(c, id, token, bytes);
    if (id >= t->vocab_size) t->vocab_size = id + 1;
    if (byte >= 0 && c->byte_fallback) c->byte_ids[byte] = id;
    if (c->escapes_spaces && strchr(token, ' ')) return check_unmatched(t, token, id);
    text_clear(unescaped);
    char_bpe_unescape(c, token, strlen(token), unescaped);
    TRY_PREFIX(vocabulary_add(&t->vocabulary, unescaped->data, unescaped->len, id), "%s", t->path);
    return STATUS_OK;
}

/* Requires all byte tokens or none: with some, the tokenizers library puts unknown tokens in an
 * order that no one relies on. */
static enum status check_bytes(struct tokenizer *t)
{
    struct char_bpe *c = t->char_bpe;
    int count = 0, missing = 0;
    for (int i = 0; i < 256; i++)
        if (c->byte_ids[i] >= 0)
            count++;
        else
            missing = i;
    c->byte_fallback = count == 256;
    if (count && count < 256)
        FAIL(UNSUPPORTED, "%s: byte_fallback requires all byte tokens, but <0x%02X> is missing",
             t->path, missing);
    return STATUS_OK;
}

/* Adds the tokens of an object {"token": ID} or, of a Unigram model, of a list of
 * ["token", score]. */
static enum status add_tokens(struct tokenizer *t, const struct json *vocab, bool bytes)
{
    bool is_list = json_is_array(vocab);
    struct text unescaped = {0};
    enum status st = STATUS_OK;
    int64_t id = 0;
    for (const struct json *v = json_first(vocab); v; v = json_next(v)) {
        const struct json *token = is_list ? json_first(v) : NULL;
        if (is_list && (!json_is_string(token) || !json_is_number(json_next(token))))
            FAIL_OUT(DATA, "%s: entry %lld of model.vocab: expected [\"token\", score]", t->path,
                     (long long)id);
        if (is_list ? id > VOCABULARY_MAX_ID : !json_as_int(v, 0, VOCABULARY_MAX_ID, &id))
            FAIL_OUT(DATA, "%s: the ID of \"%s\" must be an integer between 0 and %d", t->path,
                     is_list ? json_string(token) : json_key(v), VOCABULARY_MAX_ID);
        const char *text = is_list ? json_string(token) : json_key(v);
        TRY_OUT(add_token(t, text, (int32_t)id, bytes, &unescaped));
        id += is_list;
    }
out:
    text_release(&unescaped);
    return st;
}

/* Checks that added tokens have the same IDs in the vocabulary, if that has them; of several with
 * the same text, the one with the lowest ID. */
static enum status check_added_ids(const struct tokenizer *t)
{
    struct text unescaped = {0};
    enum status st = STATUS_OK;
    for (size_t i = 0; i < t->special_tokens.count; i++) {
        const struct special_token *added = &t->special_tokens.all[i];
        if (t->char_bpe->escapes_spaces && strchr(added->text, ' ')) continue; /* add_token did */
        text_clear(&unescaped);
        char_bpe_unescape(t->char_bpe, added->text, strlen(added->text), &unescaped);
        int32_t id = vocabulary_find(&t->vocabulary, unescaped.data, unescaped.len);
        bool differs = id >= 0 && id != added->id;
        if (differs && special_tokens_find(&t->special_tokens, added->text) == added->id)
            TRY_OUT(fail_other_id(t, added->text, added->id, id));
    }
out:
    text_release(&unescaped);
    return st;
}

/* Added tokens that match normalized text are decoded to their normalized text. */
static void add_normalized_pieces(struct tokenizer *t, bool bytes)
{
    const struct added_tokens *a = &t->added_tokens;
    const struct vocabulary *normalized = &a->stages[1].strings;
    for (int32_t i = 0; i < a->count; i++) {
        const struct token_bytes *token = vocabulary_token(normalized, i);
        if (!token) continue;
        char *text = heap_string((const char *)normalized->bytes + token->at, token->len);
        add_piece(t->char_bpe, a->tokens[i].id, text, bytes);
        free(text);
    }
}

static enum status read_vocabulary(struct tokenizer *t, const struct json *model, bool bytes)
{
    const struct json *vocab = json_get(model, "vocab");
    TRY(add_tokens(t, vocab, bytes));
    vocabulary_trim(&t->vocabulary);
    TRY(check_added_ids(t));
    TRY(check_bytes(t));
    for (size_t i = 0; i < t->special_tokens.count; i++)
        add_piece(t->char_bpe, t->special_tokens.all[i].id, t->special_tokens.all[i].text, bytes);
    add_normalized_pieces(t, bytes);
    return STATUS_OK;
}

static enum status read_bpe(struct tokenizer *t, const struct json *model, bool bytes)
{
    const struct json *vocab = json_get(model, "vocab"), *unknown = json_get(model, "unk_token");
    int64_t id;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    TRY(read_vocabulary(t, model, bytes));
    if (!json_is_string(unknown)) return STATUS_OK;
    if (!json_as_int(json_get(vocab, json_string(unknown)), 0, VOCABULARY_MAX_ID, &id))
        FAIL(DATA, "%s: model.unk_token \"%s\" is not in the vocabulary", t->path,
             json_string(unknown));
    t->char_bpe->unknown_id = (int32_t)id;
    return STATUS_OK;
}

/* Hugging Face's library reads a number of more than 15 digits as an integer divided by a power of
 * ten, which rounds twice; this decides between segmentations of equal scores.  Its own files, and
 * Python's, have the fewest digits that give the number. */
static double as_serde_json(double value)
{
    char text[32], *exponent;
    int digits = 15;
    do snprintf(text, sizeof text, "%.*e", digits - 1, fabs(value));
    while (strtod(text, NULL) != fabs(value) && digits++ < 17);
    exponent = strchr(text, 'e');
    int shift = digits - 1 - (exponent ? (int)strtol(exponent + 1, NULL, 10) : 0);
    if (digits <= 15 || shift < 0 || shift > 22) return value;
    text[1] = text[0]; /* over the decimal point, so that the digits are adjacent */
    double power = 1, magnitude = (double)strtoull(text + 1, NULL, 10);
    while (shift-- > 0) power *= 10; /* exact up to 10^22 */
    return copysign(magnitude / power, value);
}

static enum status read_unigram(struct tokenizer *t, const struct json *model, bool bytes)
{
    const struct json *vocab = json_get(model, "vocab");
    size_t count = json_count(vocab);
    int64_t unknown;
    if (!json_is_array(vocab)) FAIL(DATA, "%s: model.vocab is not a list", t->path);
    TRY(read_vocabulary(t, model, bytes));
    if (!json_as_int(json_get(model, "unk_id"), 0, (int64_t)count - 1, &unknown))
        FAIL(UNSUPPORTED, "%s: model.unk_id must be the ID of a token of the Unigram model",
             t->path);
    t->char_bpe->unknown_id = (int32_t)unknown;
    struct unigram_model m = {.tokens = heap(count * sizeof *m.tokens), .count = count};
    int32_t id = 0;
    m.min_score = INFINITY;
    for (const struct json *v = json_first(vocab); v; v = json_next(v), id++) {
        const char *text = json_string(json_first(v));
        double score = as_serde_json(json_number(json_next(json_first(v))));
        m.tokens[id] = (struct unigram_token){
            .text = text, .len = (uint32_t)strlen(text), .id = id, .score = score};
        if (score < m.min_score) m.min_score = score;
    }
    t->unigram = unigram_make(&m);
    free(m.tokens);
    return STATUS_OK;
}

static enum status decode_char_half(const struct tokenizer *t, const char *text, size_t len,
                                    struct text *out)
{
    text_clear(out);
    char_bpe_unescape(t->char_bpe, text, len, out);
    return STATUS_OK;
}

enum status hf_char_bpe_read(struct tokenizer *t, const struct json *root)
{
    const struct json *model = json_get(root, "model");
    struct char_bpe *c = t->char_bpe = char_bpe_make();
    bool bytes = false;
    c->byte_fallback = json_true(json_get(model, "byte_fallback"));
    c->fuses_unknown = json_true(json_get(model, "fuse_unk"));
    t->ignore_merges = c->looks_up_words = json_true(json_get(model, "ignore_merges"));
    if (!hf_char_bpe_is_plain(root))
        TRY(hf_pipeline_read_pre_tokenizer(t, json_get(root, "pre_tokenizer")));
    else
        read_plain_pipeline(c, root);
    TRY(read_decoder(t, json_get(root, "decoder"), &bytes));
    t->format = is_unigram(root) ? FORMAT_HF_UNIGRAM : FORMAT_HF_CHAR_BPE;
    if (is_unigram(root)) {
        TRY(read_unigram(t, model, bytes));
    } else {
        TRY(read_bpe(t, model, bytes));
        TRY(hf_merges_read(t, json_get(model, "merges"), decode_char_half));
    }
    c->first_internal_id = t->vocabulary.id_limit;
    char_bpe_finish(c, &t->vocabulary);
    return STATUS_OK;
}
