/* hf_sentence.c -- tokenizer.json of a BPE that begins with characters, as Llama 2's. */
// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/kinds.h"
#include "tokenizer/sentence.h"

#include <stdlib.h>
#include <string.h>

static const char escaped_space[] = "\xE2\x96\x81";

bool hf_is_sentence(const struct json *root)
{
    return json_true(json_get(json_get(root, "model"), "byte_fallback")) ||
           hf_type_is(json_get(root, "pre_tokenizer"), "Metaspace");
}

/* The steps of a Sequence, or the one step: this one and what follows. */
static const struct json *steps_of(const struct json *v, const char *list, bool *alone)
{
    *alone = !hf_type_is(v, "Sequence");
    return *alone ? (json_is_object(v) ? v : NULL) : json_first(json_get(v, list));
}

static bool replaces(const struct json *v, const char *from, const char *to)
{
    return hf_type_is(v, "Replace") &&
           json_string_is(json_get(json_get(v, "pattern"), "String"), from) &&
           json_string_is(json_get(v, "content"), to);
}

static enum status read_normalizer(struct tokenizer *t, const struct json *v)
{
    struct sentence *s = t->sentence;
    bool alone;
    for (v = steps_of(v, "normalizers", &alone); v; v = alone ? NULL : json_next(v)) {
        if (hf_type_is(v, "Prepend") && json_string_is(json_get(v, "prepend"), escaped_space) &&
            !s->prefix)
            s->prefix = PREFIX_ALWAYS;
        else if (replaces(v, " ", escaped_space))
            s->escapes = true;
        else
            FAIL(UNSUPPORTED,
                 "%s: normalizer %s; Prepend and Replace of spaces by U+2581 are known", t->path,
                 hf_type_of(v));
    }
    return STATUS_OK;
}

static enum status read_metaspace(struct tokenizer *t, const struct json *v)
{
    static const struct {
        const char *name;
        enum sentence_prefix prefix;
    } schemes[] = {{"always", PREFIX_MISSING}, {"first", PREFIX_FIRST}, {"never", PREFIX_NEVER}};
    struct sentence *s = t->sentence;
    const struct json *scheme = json_get(v, "prepend_scheme"), *split = json_get(v, "split");
    const struct json *prefix = json_get(v, "add_prefix_space");
    const char *name = json_is_string(scheme)                       ? json_string(scheme)
                       : json_is_bool(prefix) && !json_true(prefix) ? "never"
                                                                    : "always";
    size_t i = 0;
    while (i < 3 && strcmp(name, schemes[i].name)) i++;
    if (i == 3 || !json_string_is(json_get(v, "replacement"), escaped_space))
        FAIL(UNSUPPORTED, "%s: Metaspace with a replacement or prepend_scheme that is not known",
             t->path);
    if (s->prefix && schemes[i].prefix)
        FAIL(UNSUPPORTED, "%s: a normalizer with Prepend, and Metaspace, too", t->path);
    if (schemes[i].prefix) s->prefix = schemes[i].prefix;
    s->escapes = true;
    s->cuts_words = !split || json_true(split);
    return STATUS_OK;
}

/* Where all spaces were replaced, splitting at them does nothing (Gemma). */
static bool splits_nothing(const struct sentence *s, const struct json *v)
{
    return s->escapes && hf_type_is(v, "Split") &&
           json_string_is(json_get(json_get(v, "pattern"), "String"), " ") &&
           !json_true(json_get(v, "invert"));
}

static enum status read_pre_tokenizer(struct tokenizer *t, const struct json *v)
{
    if (hf_type_is(v, "Metaspace")) return read_metaspace(t, v);
    if (json_is_object(v) && !splits_nothing(t->sentence, v))
        FAIL(UNSUPPORTED, "%s: pre_tokenizer %s of a BPE with byte_fallback; Metaspace is known",
             t->path, hf_type_of(v));
    if (!t->sentence->escapes)
        FAIL(UNSUPPORTED, "%s: a BPE with byte_fallback whose spaces stay spaces", t->path);
    return STATUS_OK;
}

static enum status read_decoder(struct tokenizer *t, const struct json *v, bool *bytes)
{
    struct sentence *s = t->sentence;
    bool alone, spaces = false, fused = false;
    for (v = steps_of(v, "decoders", &alone); v; v = alone ? NULL : json_next(v)) {
        int64_t start;
        if (replaces(v, escaped_space, " ")) {
            spaces = true;
        } else if (hf_type_is(v, "ByteFallback")) {
            *bytes = true;
        } else if (hf_type_is(v, "Fuse")) {
            fused = true;
        } else if (hf_type_is(v, "Strip") && fused && json_string_is(json_get(v, "content"), " ") &&
                   json_as_int(json_get(v, "start"), 0, 1, &start) &&
                   json_as_int(json_get(v, "stop"), 0, 0, &(int64_t){0})) {
            if (start) s->start = START_DROPS_SPACE;
        } else if (hf_type_is(v, "Metaspace") &&
                   json_string_is(json_get(v, "replacement"), escaped_space)) {
            const struct json *prefix = json_get(v, "add_prefix_space");
            bool never = json_string_is(json_get(v, "prepend_scheme"), "never") ||
                         (json_is_bool(prefix) && !json_true(prefix));
            s->start = never ? START_KEEPS : START_DROPS_TOKEN_SPACES;
            spaces = true;
        } else {
            FAIL(UNSUPPORTED, "%s: decoder %s among those that are not known, or not there",
                 t->path, hf_type_of(v));
        }
    }
    if (!spaces) FAIL(UNSUPPORTED, "%s: no decoder makes spaces of U+2581", t->path);
    s->strict_bytes = true;
    return STATUS_OK;
}

static void add_decoded(struct sentence *s, int32_t id, const char *token, bool bytes)
{
    int byte = sentence_byte_named(token, strlen(token), false);
    sentence_add_piece(s, id, bytes && byte >= 0 ? PIECE_BYTE : PIECE_TEXT, token, strlen(token));
    if (byte >= 0) s->pieces[id].byte = (uint8_t)byte;
}

static enum status add_token(struct tokenizer *t, const struct json *v, bool bytes,
                             struct text *here)
{
    struct sentence *s = t->sentence;
    const char *token = json_key(v);
    int byte = sentence_byte_named(token, strlen(token), true);
    int64_t id;
    if (!json_as_int(v, 0, VOCABULARY_MOST_ID, &id))
        FAIL(DATA, "%s: the id of \"%s\" is no whole number between 0 and %d", t->path, token,
             VOCABULARY_MOST_ID);
    const char *added = specials_text(&t->specials, (int32_t)id);
    int32_t other = specials_id(&t->specials, token);
    if (added && strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and \"%s\" have the same id", t->path, added, token);
    if (other >= 0 && other != id)
        FAIL(DATA, "%s: the added token \"%s\" has the id %d, in the vocabulary %lld", t->path,
             token, other, (long long)id);
    add_decoded(s, (int32_t)id, token, bytes);
    if (id >= t->vocab_size) t->vocab_size = (int32_t)id + 1;
    if (byte >= 0 && s->falls_back) s->byte_id[byte] = (int32_t)id;
    if (strchr(token, ' ')) return STATUS_OK; /* no normalized text has it */
    text_clear(here);
    sentence_spell(s, token, strlen(token), here);
    if (vocabulary_add(&t->vocabulary, here->data, here->len, (int32_t)id))
        FAIL(DATA, "%s: %s", t->path, status_message());
    return STATUS_OK;
}

/* All bytes or none: with some of them the library's order of unknown ones is no one's intent. */
static enum status check_bytes(struct tokenizer *t)
{
    struct sentence *s = t->sentence;
    int count = 0, missing = 0;
    for (int i = 0; i < 256; i++)
        if (s->byte_id[i] >= 0)
            count++;
        else
            missing = i;
    s->falls_back = count == 256;
    if (count && count < 256)
        FAIL(UNSUPPORTED, "%s: byte_fallback, but there is no token <0x%02X>", t->path, missing);
    return STATUS_OK;
}

static enum status read_vocabulary(struct tokenizer *t, const struct json *model, bool bytes)
{
    const struct json *vocab = json_get(model, "vocab"), *unknown = json_get(model, "unk_token");
    struct text here = {0};
    enum status st = STATUS_OK;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    for (const struct json *v = json_first(vocab); v && !st; v = json_next(v))
        st = add_token(t, v, bytes, &here);
    text_release(&here);
    TRY(st);
    vocabulary_trim(&t->vocabulary);
    TRY(check_bytes(t));
    for (size_t i = 0; i < t->specials.count; i++)
        add_decoded(t->sentence, t->specials.all[i].id, t->specials.all[i].text, bytes);
    if (!json_is_string(unknown)) return STATUS_OK;
    int64_t id;
    if (!json_as_int(json_get(vocab, json_string(unknown)), 0, VOCABULARY_MOST_ID, &id))
        FAIL(DATA, "%s: model.unk_token \"%s\" is not in the vocabulary", t->path,
             json_string(unknown));
    t->sentence->unknown = (int32_t)id;
    return STATUS_OK;
}

static enum status spell_merge(const struct tokenizer *t, const char *text, size_t len,
                               struct text *out)
{
    text_clear(out);
    sentence_spell(t->sentence, text, len, out);
    return STATUS_OK;
}

enum status hf_sentence_read(struct tokenizer *t, const struct json *root)
{
    const struct json *model = json_get(root, "model");
    struct sentence *s = t->sentence = sentence_make();
    bool bytes = false;
    s->falls_back = json_true(json_get(model, "byte_fallback"));
    s->fuses = json_true(json_get(model, "fuse_unk"));
    t->whole_pieces = s->whole_words = json_true(json_get(model, "ignore_merges"));
    TRY(read_normalizer(t, json_get(root, "normalizer")));
    TRY(read_pre_tokenizer(t, json_get(root, "pre_tokenizer")));
    TRY(read_decoder(t, json_get(root, "decoder"), &bytes));
    TRY(read_vocabulary(t, model, bytes));
    TRY(hf_read_merges(t, json_get(model, "merges"), spell_merge));
    s->first_made = t->vocabulary.most;
    sentence_finish(s, &t->vocabulary);
    t->kind = "BPE with byte_fallback";
    return STATUS_OK;
}
