// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_json.h"

#include "base/json.h"
#include "base/log.h"
#include "tokenizer/files/hf_char_bpe.h"
#include "tokenizer/files/hf_merges.h"
#include "tokenizer/files/hf_node.h"
#include "tokenizer/files/hf_pipeline.h"
#include "tokenizer/text/byte_alphabet.h"
#include "tokenizer/text/split.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdlib.h>
#include <string.h>

/* Sets *is_special to whether the ID belongs to a special token, which no merge produces.  The
 * vocabulary may list added tokens, too: special ones in plain text; others may be ordinary tokens
 * as well. */
static enum status check_special(const struct tokenizer *t, const char *token, int64_t id,
                                 bool *is_special)
{
    const char *added = special_tokens_text(&t->special_tokens, (int32_t)id);
    *is_special = false;
    if (!added) return STATUS_OK;
    if (strcmp(added, token))
        FAIL(DATA, "%s: the added token \"%s\" and the token \"%s\" have the same ID", t->path,
             added, token);
    for (int32_t i = 0; i < t->added_tokens.count; i++)
        if (t->added_tokens.tokens[i].id == id) *is_special = t->added_tokens.tokens[i].special;
    return STATUS_OK;
}

/* Adds the tokens that no text contains: they have an ID and a text, like special tokens. */
static enum status add_unreachable(struct tokenizer *t, struct special_tokens *unreachable)
{
    special_tokens_sort(unreachable);
    for (size_t i = 0; i < unreachable->count; i++) {
        const struct special_token *token = &unreachable->all[i];
        bool repeated = i && unreachable->all[i - 1].id == token->id;
        if (repeated || vocabulary_token(&t->vocabulary, token->id))
            FAIL(DATA, "%s: token ID %d occurs twice", t->path, token->id);
        special_tokens_add(&t->special_tokens, token->text, token->id);
        if (token->id >= t->vocab_size) t->vocab_size = token->id + 1;
    }
    special_tokens_sort(&t->special_tokens);
    return STATUS_OK;
}

/* The byte without a token that is a special token instead; -1: none. */
static int find_special_byte(const struct tokenizer *t)
{
    struct text name = {0};
    int found = -1;
    for (int i = 0; i < 256 && found < 0; i++) {
        if (t->vocabulary.byte_ids[i] >= 0) continue;
        text_clear(&name);
        byte_alphabet_encode(&name, &(unsigned char){(unsigned char)i}, 1);
        if (special_tokens_find(&t->special_tokens, name.data) >= 0) found = i;
    }
    text_release(&name);
    return found;
}

/* As Hugging Face does, drops bytes without a token, and accepts tokens that are not in the
 * byte-level alphabet, which no text contains.  torchtitan's test tokenizer has both. */
static enum status finish_vocabulary(struct tokenizer *t, struct special_tokens *unreachable)
{
    int missing = vocabulary_finish_partial(&t->vocabulary), special = find_special_byte(t);
    if (missing == 256) FAIL(DATA, "%s: no single byte has a token", t->path);
    if (special >= 0) FAIL(DATA, "%s: no token for the single byte 0x%02X", t->path, special);
    TRY(add_unreachable(t, unreachable));
    if (unreachable->count || missing)
        log_line(LOG_WARN,
                 "%s: %zu tokens are not in the byte-level alphabet, so no text contains them; %d "
                 "bytes have no token and are dropped",
                 t->path, unreachable->count, missing);
    return STATUS_OK;
}

static enum status read_vocabulary(struct tokenizer *t, const struct json *vocab)
{
    struct text bytes = {0};
    struct byte_alphabet alphabet;
    struct special_tokens unreachable = {0};
    enum status st = STATUS_OK;
    if (!json_is_object(vocab)) FAIL(DATA, "%s: model.vocab is not an object", t->path);
    byte_alphabet_init(&alphabet);
    for (const struct json *v = json_first(vocab); v; v = json_next(v)) {
        int64_t id;
        bool added;
        if (!json_as_int(v, 0, VOCABULARY_MAX_ID, &id))
            FAIL_OUT(DATA, "%s: the ID of \"%s\" must be an integer between 0 and %d", t->path,
                     json_key(v), VOCABULARY_MAX_ID);
        TRY_OUT(check_special(t, json_key(v), id, &added));
        if (added) continue;
        if (!byte_alphabet_decode(&alphabet, json_key(v), strlen(json_key(v)), &bytes)) {
            if (special_tokens_text(&t->special_tokens, (int32_t)id)) continue;
            if (!json_key(v)[0])
                FAIL_OUT(UNSUPPORTED, "%s: the empty token is not in the byte-level alphabet",
                         t->path);
            special_tokens_add(&unreachable, json_key(v), (int32_t)id);
            continue;
        }
        TRY_PREFIX_OUT(vocabulary_add(&t->vocabulary, bytes.data, bytes.len, (int32_t)id), "%s",
                       t->path);
    }
    TRY_OUT(finish_vocabulary(t, &unreachable));
out:
    special_tokens_release(&unreachable);
    text_release(&bytes);
    return st;
}

static enum status decode_byte_level_half(const struct tokenizer *t, const char *text, size_t len,
                                          struct text *out)
{
    struct byte_alphabet alphabet;
    byte_alphabet_init(&alphabet);
    if (!byte_alphabet_decode(&alphabet, text, len, out))
        FAIL(DATA, "%s: not in the byte-level alphabet", t->path);
    return STATUS_OK;
}

/* Sets *out to the normalized text. */
static enum status normalize_content(const struct tokenizer *t, const char *text, struct text *out)
{
    struct normalizer_scratch s;
    const unsigned char *normal = (const unsigned char *)text;
    size_t len = strlen(text);
    normalizer_scratch_init(&s, &t->normalizer);
    enum status st = normalizer_run(&s, normal, len, &normal, &len);
    if (!st && !unicode_normalize(t->normal_form, normal, len, out)) text_add(out, normal, len);
    normalizer_scratch_release(&s);
    return st;
}

/* Adds an added token to the stage that matches it: in raw or in normalized text. */
static enum status add_matched_token(struct tokenizer *t, const struct json *v, const char *content,
                                     int32_t id)
{
    const struct json *special = json_get(v, "special");
    struct added_token token = {id, !special || json_true(special),
                                json_true(json_get(v, "lstrip")), json_true(json_get(v, "rstrip")),
                                json_true(json_get(v, "single_word"))};
    bool normalized = json_true(json_get(v, "normalized"));
    struct text normal = {0};
    TRY(normalize_content(t, normalized ? content : "", &normal));
    const char *matched = normalized && normal.len ? normal.data : content;
    enum status st = added_tokens_add(&t->added_tokens, normalized, matched, token);
    text_release(&normal);
    TRY_PREFIX(st, "%s: the added token with ID %d", t->path, id);
    return STATUS_OK;
}

const char *hf_json_token_name(const struct json *config, const char *key)
{
    const struct json *name = json_get(config, key);
    if (json_is_object(name)) name = json_get(name, "content");
    return json_is_string(name) ? json_string(name) : NULL;
}

/* The ID that Hugging Face's tokenizers gives an added token: its own if the vocabulary has it,
 * otherwise the next one. */
static enum status find_added_id(const struct tokenizer *t, const struct json *vocab,
                                 const char *name, int64_t *id)
{
    const struct json *own = json_get(vocab, name);
    int64_t size = (int64_t)json_count(vocab);
    if (own && json_as_int(own, 0, VOCABULARY_MAX_ID, id)) return STATUS_OK;
    *id = t->vocab_size > size ? t->vocab_size : size;
    if (*id > VOCABULARY_MAX_ID) FAIL(DATA, "%s: too many tokens", t->path);
    return STATUS_OK;
}

/* Adds the BOS or EOS that tokenizer_config.json names, unless tokenizer.json has it. */
static enum status add_named_token(struct tokenizer *t, const struct json *root,
                                   const struct json *config, const char *key)
{
    const struct json *value = json_get(config, key);
    const char *name = hf_json_token_name(config, key);
    struct added_token token = {.special = true};
    int64_t id;
    if (!name && value && !json_is_null(value))
        FAIL(DATA,
             "%s: tokenizer_config.json beside it: %s: expected a string, or an object with "
             "\"content\"",
             t->path, key);
    if (!name || !name[0] || special_tokens_find(&t->special_tokens, name) >= 0) return STATUS_OK;
    TRY(find_added_id(t, json_get(json_get(root, "model"), "vocab"), name, &id));
    token.id = (int32_t)id;
    special_tokens_add(&t->special_tokens, name, token.id);
    TRY_PREFIX(added_tokens_add(&t->added_tokens, 0, name, token), "%s: %s \"%s\"", t->path, key,
               name);
    if (id >= t->vocab_size) t->vocab_size = token.id + 1;
    return STATUS_OK;
}

static enum status read_added(struct tokenizer *t, const struct json *root,
                              const struct json *config)
{
    const struct json *added = json_get(root, "added_tokens");
    for (const struct json *v = json_first(added); v; v = json_next(v)) {
        const char *content;
        int64_t id;
        TRY_PREFIX(json_get_string(v, "content", &content), "%s: added token", t->path);
        TRY_PREFIX(json_get_int(v, "id", 0, VOCABULARY_MAX_ID, &id), "%s: added token", t->path);
        special_tokens_add(&t->special_tokens, content, (int32_t)id);
        TRY(add_matched_token(t, v, content, (int32_t)id));
        if (id >= t->vocab_size) t->vocab_size = (int32_t)id + 1;
    }
    TRY(add_named_token(t, root, config, "bos_token"));
    TRY(add_named_token(t, root, config, "eos_token"));
    special_tokens_sort(&t->special_tokens);
    for (size_t i = 1; i < t->special_tokens.count; i++)
        if (t->special_tokens.all[i].id == t->special_tokens.all[i - 1].id)
            FAIL(DATA, "%s: two added tokens have the ID %d", t->path, t->special_tokens.all[i].id);
    return STATUS_OK;
}

/* The special token with which the post_processor's template begins, or ends if `last`; or NULL. */
static const char *template_end(const struct json *post, bool last)
{
    const struct json *single = json_get(post, "single");
    for (const struct json *p = json_first(json_get(post, "processors")); p && !single;
         p = json_next(p))
        single = json_get(p, "single");
    const struct json *piece = json_first(single);
    for (const struct json *p = piece; p && last; p = json_next(p)) piece = p;
    const struct json *id = json_get(json_get(piece, "SpecialToken"), "id");
    return json_is_string(id) ? json_string(id) : NULL;
}

/* tokenizer_config.json comes first; a template adds its tokens whatever that names.  Without
 * tokenizer_config.json a known name will do. */
static void find_bos_and_eos(struct tokenizer *t, const struct json *root,
                             const struct json *config)
{
    static const char *const begins[] = {"<|begin_of_text|>", "<s>", "<|startoftext|>",
                                         "<\uFF5Cbegin\u2581of\u2581sentence\uFF5C>"};
    static const char *const ends[] = {"<|end_of_text|>", "</s>", "<|endoftext|>",
                                       "<\uFF5Cend\u2581of\u2581sentence\uFF5C>"};
    const char *bos = template_end(json_get(root, "post_processor"), false);
    const char *eos = template_end(json_get(root, "post_processor"), true);
    const char *named_bos = hf_json_token_name(config, "bos_token");
    const char *named_eos = hf_json_token_name(config, "eos_token");
    if (bos) t->bos = special_tokens_find(&t->special_tokens, bos);
    t->adds_no_bos = t->bos < 0;
    if (eos) t->eos = special_tokens_find(&t->special_tokens, eos);
    if (named_bos) t->bos = special_tokens_find(&t->special_tokens, named_bos);
    if (named_eos) t->eos = special_tokens_find(&t->special_tokens, named_eos);
    for (size_t i = 0; i < sizeof ends / sizeof *ends && !config; i++) {
        if (t->bos < 0) t->bos = special_tokens_find(&t->special_tokens, begins[i]);
        if (t->eos < 0) t->eos = special_tokens_find(&t->special_tokens, ends[i]);
    }
}

static enum status check_model(const struct tokenizer *t, const struct json *root)
{
    static const char *const unsupported[] = {"dropout", "continuing_subword_prefix",
                                              "end_of_word_suffix"};
    const struct json *model = json_get(root, "model"), *type = json_get(model, "type");
    if (json_is_string(type) && !json_string_is(type, "BPE") && !json_string_is(type, "Unigram"))
        FAIL(UNSUPPORTED, "%s: model type %s is not supported; expected BPE or Unigram", t->path,
             json_string(type));
    for (size_t i = 0; i < sizeof unsupported / sizeof *unsupported; i++)
        if (!hf_node_is_noop(json_get(model, unsupported[i])))
            FAIL(UNSUPPORTED, "%s: BPE with %s is not supported", t->path, unsupported[i]);
    return STATUS_OK;
}

static enum status read_model(struct tokenizer *t, const struct json *root,
                              const struct json *config)
{
    const struct json *model = json_get(root, "model");
    TRY(check_model(t, root));
    if (!hf_char_bpe_matches(root) || !hf_char_bpe_is_plain(root))
        TRY(hf_pipeline_read_normalizer(t, json_get(root, "normalizer")));
    TRY(read_added(t, root, config));
    if (hf_char_bpe_matches(root)) {
        TRY(hf_char_bpe_read(t, root));
        find_bos_and_eos(t, root, config);
        return STATUS_OK;
    }
    t->format = FORMAT_HF_BYTE_LEVEL;
    TRY(hf_pipeline_read_pre_tokenizer(t, json_get(root, "pre_tokenizer")));
    TRY(read_vocabulary(t, json_get(model, "vocab")));
    TRY(hf_merges_read(t, json_get(model, "merges"), decode_byte_level_half));
    t->ignore_merges = json_true(json_get(model, "ignore_merges"));
    if (t->vocabulary.id_limit > t->vocab_size) t->vocab_size = t->vocabulary.id_limit;
    find_bos_and_eos(t, root, config);
    return STATUS_OK;
}

enum status hf_json_read(struct tokenizer *t, const struct json *root, const struct json *config)
{
    t->file_name = "tokenizer.json";
    return read_model(t, root, config);
}
