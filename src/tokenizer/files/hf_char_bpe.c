// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_char_bpe.h"

#include "tokenizer/char_bpe.h"
#include "tokenizer/files/hf_merges.h"
#include "tokenizer/files/hf_node.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81";

bool hf_char_bpe_matches(const struct json *root)
{
    return json_true(json_get(json_get(root, "model"), "byte_fallback")) ||
           hf_node_type_is(json_get(root, "pre_tokenizer"), "Metaspace");
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

static enum status read_normalizer(struct tokenizer *t, const struct json *v)
{
    struct char_bpe *c = t->char_bpe;
    bool is_single;
    for (v = first_component(v, "normalizers", &is_single); v;
         v = is_single ? NULL : json_next(v)) {
        if (hf_node_type_is(v, "Prepend") &&
            json_string_is(json_get(v, "prepend"), escaped_space) && !c->prefix)
            c->prefix = PREFIX_ALWAYS;
        else if (is_replace(v, " ", escaped_space))
            c->escapes_spaces = true;
        else
            FAIL(UNSUPPORTED,
                 "%s: normalizer %s is not supported; expected Prepend, or Replace of spaces by "
                 "U+2581",
                 t->path, hf_node_type(v));
    }
    return STATUS_OK;
}

static enum status read_metaspace(struct tokenizer *t, const struct json *v)
{
    static const struct {
        const char *name;
        enum char_bpe_prefix prefix;
    } schemes[] = {{"always", PREFIX_MISSING}, {"first", PREFIX_FIRST}, {"never", PREFIX_NEVER}};
    struct char_bpe *c = t->char_bpe;
    const struct json *scheme = json_get(v, "prepend_scheme"), *split = json_get(v, "split");
    const struct json *prefix = json_get(v, "add_prefix_space");
    const char *name = json_is_string(scheme)                       ? json_string(scheme)
                       : json_is_bool(prefix) && !json_true(prefix) ? "never"
                                                                    : "always";
    size_t i = 0;
    while (i < 3 && strcmp(name, schemes[i].name)) i++;
    if (i == 3 || !json_string_is(json_get(v, "replacement"), escaped_space))
        FAIL(UNSUPPORTED, "%s: Metaspace: this replacement or prepend_scheme is not supported",
             t->path);
    if (c->prefix && schemes[i].prefix)
        FAIL(UNSUPPORTED,
             "%s: both a Prepend normalizer and Metaspace add a space; only one is supported",
             t->path);
    if (schemes[i].prefix) c->prefix = schemes[i].prefix;
    c->escapes_spaces = true;
    c->splits_words = !split || json_true(split);
    return STATUS_OK;
}

/* Whether v splits at spaces although the normalizer has replaced them all, which does nothing
 * (Gemma). */
static bool is_noop_split(const struct char_bpe *c, const struct json *v)
{
    return c->escapes_spaces && hf_node_type_is(v, "Split") &&
           json_string_is(json_get(json_get(v, "pattern"), "String"), " ") &&
           !json_true(json_get(v, "invert"));
}

static enum status read_pre_tokenizer(struct tokenizer *t, const struct json *v)
{
    if (hf_node_type_is(v, "Metaspace")) return read_metaspace(t, v);
    if (json_is_object(v) && !is_noop_split(t->char_bpe, v))
        FAIL(UNSUPPORTED,
             "%s: pre_tokenizer %s is not supported with byte_fallback; expected Metaspace",
             t->path, hf_node_type(v));
    if (!t->char_bpe->escapes_spaces)
        FAIL(UNSUPPORTED, "%s: BPE with byte_fallback must replace spaces by U+2581", t->path);
    return STATUS_OK;
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

static enum status add_token(struct tokenizer *t, const struct json *v, bool bytes,
                             struct text *unescaped)
{
    struct char_bpe *c = t->char_bpe;
    const char *token = json_key(v);
    int byte = char_bpe_parse_byte(token, strlen(token), true);
    int64_t id;
    if (!json_as_int(v, 0, VOCABULARY_MAX_ID, &id))
        FAIL(DATA, "%s: the ID of \"%s\" must be an integer between 0 and %d", t->path, token,
             VOCABULARY_MAX_ID);
    const char *added = special_tokens_text(&t->special_tokens, (int32_t)id);
    int32_t other = special_tokens_find(&t->special_tokens, token);
    if (added && strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and the token \"%s\" have the same ID", t->path,
             added, token);
    if (other >= 0 && other != id)
        FAIL(DATA, "%s: the added token \"%s\" has ID %d, but ID %lld in the vocabulary", t->path,
             token, other, (long long)id);
    add_piece(c, (int32_t)id, token, bytes);
    if (id >= t->vocab_size) t->vocab_size = (int32_t)id + 1;
    if (byte >= 0 && c->byte_fallback) c->byte_ids[byte] = (int32_t)id;
    if (strchr(token, ' ')) return STATUS_OK; /* cannot occur in normalized text */
    text_clear(unescaped);
    char_bpe_unescape(c, token, strlen(token), unescaped);
    if (vocabulary_add(&t->vocabulary, unescaped->data, unescaped->len, (int32_t)id))
        FAIL(DATA, "%s: %s", t->path, status_message());
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

static enum status read_vocabulary(struct tokenizer *t, const struct json *model, bool bytes)
{
    const struct json *vocab = json_get(model, "vocab"), *unknown = json_get(model, "unk_token");
    struct text unescaped = {0};
    enum status st = STATUS_OK;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    for (const struct json *v = json_first(vocab); v && !st; v = json_next(v))
        st = add_token(t, v, bytes, &unescaped);
    text_release(&unescaped);
    TRY(st);
    vocabulary_trim(&t->vocabulary);
    TRY(check_bytes(t));
    for (size_t i = 0; i < t->special_tokens.count; i++)
        add_piece(t->char_bpe, t->special_tokens.all[i].id, t->special_tokens.all[i].text, bytes);
    if (!json_is_string(unknown)) return STATUS_OK;
    int64_t id;
    if (!json_as_int(json_get(vocab, json_string(unknown)), 0, VOCABULARY_MAX_ID, &id))
        FAIL(DATA, "%s: model.unk_token \"%s\" is not in the vocabulary", t->path,
             json_string(unknown));
    t->char_bpe->unknown_id = (int32_t)id;
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
    TRY(read_normalizer(t, json_get(root, "normalizer")));
    TRY(read_pre_tokenizer(t, json_get(root, "pre_tokenizer")));
    TRY(read_decoder(t, json_get(root, "decoder"), &bytes));
    TRY(read_vocabulary(t, model, bytes));
    TRY(hf_merges_read(t, json_get(model, "merges"), decode_char_half));
    c->first_internal_id = t->vocabulary.id_limit;
    char_bpe_finish(c, &t->vocabulary);
    t->format = FORMAT_HF_CHAR_BPE;
    return STATUS_OK;
}
