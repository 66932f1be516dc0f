// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/files/hf_write.h"

#include "base/json.h"
#include "tokenizer/files/base64.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text/byte_alphabet.h"
#include "tokenizer/text/split.h"
#include "tokenizer/token_table.h"
#include "tokenizer/vocabulary.h"

#include <stdlib.h>
#include <string.h>

static void write_added_tokens(struct json_writer *w, const struct special_tokens *specials)
{
    json_begin_array(w, "added_tokens", JSON_LINES);
    for (size_t i = 0; i < specials->count; i++) {
        if (i && specials->all[i].id == specials->all[i - 1].id) continue; /* another name */
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_int(w, "id", specials->all[i].id);
        json_write_string(w, "content", specials->all[i].text);
        json_write_bool(w, "single_word", false);
        json_write_bool(w, "lstrip", false);
        json_write_bool(w, "rstrip", false);
        json_write_bool(w, "normalized", false);
        json_write_bool(w, "special", true);
        json_end_object(w);
    }
    json_end_array(w);
}

static void write_byte_level(struct json_writer *w, const char *key, bool adds_space, bool regex)
{
    json_begin_object(w, key, JSON_INLINE);
    json_write_string(w, "type", "ByteLevel");
    json_write_bool(w, "add_prefix_space", adds_space);
    json_write_bool(w, "trim_offsets", true);
    json_write_bool(w, "use_regex", regex);
    json_end_object(w);
}

static void write_splitter(struct json_writer *w, const char *pattern)
{
    json_begin_object(w, "pre_tokenizer", JSON_INLINE);
    json_write_string(w, "type", "Sequence");
    json_begin_array(w, "pretokenizers", JSON_INLINE);
    json_newline(w, 4);
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "type", "Split");
    json_begin_object(w, "pattern", JSON_INLINE);
    json_write_string(w, "Regex", pattern);
    json_end_object(w);
    json_write_string(w, "behavior", "Isolated");
    json_write_bool(w, "invert", false);
    json_end_object(w);
    json_newline(w, 4);
    write_byte_level(w, NULL, false, false);
    json_end_array(w);
    json_end_object(w);
}

static void write_template_item(struct json_writer *w, const char *kind, const char *id, int type)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_begin_object(w, kind, JSON_INLINE);
    json_write_string(w, "id", id);
    json_write_int(w, "type_id", type);
    json_end_object(w);
    json_end_object(w);
}

/* Prepends BOS to each sequence. */
static void write_post_processor(struct json_writer *w, const char *bos, int32_t id)
{
    json_begin_object(w, "post_processor", JSON_INLINE);
    json_write_string(w, "type", "TemplateProcessing");
    json_begin_array(w, "single", JSON_INLINE);
    write_template_item(w, "SpecialToken", bos, 0);
    write_template_item(w, "Sequence", "A", 0);
    json_end_array(w);
    json_begin_array(w, "pair", JSON_INLINE);
    write_template_item(w, "SpecialToken", bos, 0);
    write_template_item(w, "Sequence", "A", 0);
    write_template_item(w, "SpecialToken", bos, 1);
    write_template_item(w, "Sequence", "B", 1);
    json_end_array(w);
    json_begin_object(w, "special_tokens", JSON_INLINE);
    json_begin_object(w, bos, JSON_INLINE);
    json_write_string(w, "id", bos);
    json_begin_array(w, "ids", JSON_INLINE);
    json_write_int(w, NULL, id);
    json_end_array(w);
    json_begin_array(w, "tokens", JSON_INLINE);
    json_write_string(w, NULL, bos);
    json_end_array(w);
    json_end_object(w);
    json_end_object(w);
    json_end_object(w);
}

static const char space[] = "\xE2\x96\x81"; /* stands for a space in pieces */

/* `kind` is String or Regex. */
static void write_replacement(struct json_writer *w, const char *kind, const char *from,
                              const char *to)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "type", "Replace");
    json_begin_object(w, "pattern", JSON_INLINE);
    json_write_string(w, kind, from);
    json_end_object(w);
    json_write_string(w, "content", to);
    json_end_object(w);
}

static void write_type(struct json_writer *w, const char *type)
{
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "type", type);
    json_end_object(w);
}

static void write_charsmap(struct json_writer *w, const struct token_table *pieces)
{
    struct text base64 = {0};
    base64_encode(&base64, pieces->charsmap, pieces->charsmap_bytes);
    json_begin_object(w, NULL, JSON_INLINE);
    json_write_string(w, "type", "Precompiled");
    json_write_string(w, "precompiled_charsmap", base64.data);
    json_end_object(w);
    text_release(&base64);
}

/* Llama 2's.  Metaspace, which newer files use instead, adds no space before a text that starts
 * with one. */
static void write_normalizer(struct json_writer *w, const struct hf_write *m)
{
    const struct token_table *pieces = m->pieces;
    if (!pieces && !m->nfc) {
        json_write_null(w, "normalizer");
        return;
    }
    json_begin_object(w, "normalizer", JSON_INLINE);
    if (!pieces) {
        json_write_string(w, "type", "NFC");
        json_end_object(w);
        return;
    }
    json_write_string(w, "type", "Sequence");
    json_begin_array(w, "normalizers", JSON_INLINE);
    if (pieces->charsmap) write_charsmap(w, pieces);
    if (pieces->removes_extra_spaces) {
        write_replacement(w, "Regex", " {2,}", " ");
        write_replacement(w, "Regex", "\\A +|[ \xE2\x96\x81]+\\z", "");
    }
    if (pieces->adds_space) {
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "type", "Prepend");
        json_write_string(w, "prepend", space);
        json_end_object(w);
    }
    write_replacement(w, "String", " ", space);
    json_end_array(w);
    json_end_object(w);
}

/* By length, descending. */
static int compare_texts(const void *a, const void *b)
{
    const struct exported_text *x = a, *y = b;
    return x->len != y->len ? (x->len < y->len ? 1 : -1) : (x->at > y->at) - (x->at < y->at);
}

/* BPE: makes each user-defined symbol a piece of its own, which ignore_merges then looks up.  As
 * added tokens they would cut the text before it is normalized, and each part would begin with a
 * space. */
static void write_symbols(struct json_writer *w, const struct token_table *pieces)
{
    struct exported_text *all = heap(((size_t)pieces->num_tokens + 1) * sizeof *all);
    size_t count = 0;
    struct text pattern = {0};
    for (int32_t i = 0; i < pieces->num_tokens; i++)
        if (pieces->tokens[i].kind == TOKEN_USER_DEFINED) all[count++] = pieces->tokens[i].text;
    qsort(all, count, sizeof *all, compare_texts);
    for (size_t i = 0; i < count; i++) {
        const char *text = pieces->texts.data + all[i].at;
        if (i) text_adds(&pattern, "|");
        for (uint32_t k = 0; k < all[i].len; k++) {
            if (text[k] && strchr("\\^$.|?*+()[]{}/-&#~", text[k])) text_adds(&pattern, "\\");
            text_add(&pattern, text + k, 1);
        }
    }
    json_begin_object(w, "pre_tokenizer", JSON_INLINE);
    json_write_string(w, "type", "Split");
    json_begin_object(w, "pattern", JSON_INLINE);
    json_write_string(w, "Regex", pattern.data);
    json_end_object(w);
    json_write_string(w, "behavior", "Isolated");
    json_write_bool(w, "invert", false);
    json_end_object(w);
    text_release(&pattern);
    free(all);
}

/* BPE with user-defined symbols. */
static bool has_symbols(const struct token_table *pieces)
{
    bool has = false;
    for (int32_t i = 0; pieces && !pieces->is_unigram && i < pieces->num_tokens; i++)
        has |= pieces->tokens[i].kind == TOKEN_USER_DEFINED;
    return has;
}

static void write_piece_decoder(struct json_writer *w, bool adds_space)
{
    json_begin_object(w, "decoder", JSON_INLINE);
    json_write_string(w, "type", "Sequence");
    json_begin_array(w, "decoders", JSON_INLINE);
    write_replacement(w, "String", space, " ");
    write_type(w, "ByteFallback");
    write_type(w, "Fuse");
    if (adds_space) {
        json_begin_object(w, NULL, JSON_INLINE);
        json_write_string(w, "type", "Strip");
        json_write_string(w, "content", " ");
        json_write_int(w, "start", 1);
        json_write_int(w, "stop", 0);
        json_end_object(w);
    }
    json_end_array(w);
    json_end_object(w);
}

/* The token as in the file, in `buffer`. */
static const char *token_text(const struct hf_write *m, int32_t id, struct text *buffer)
{
    text_clear(buffer);
    if (m->pieces) {
        const struct exported_text *piece = &m->pieces->tokens[id].text;
        text_add(buffer, m->pieces->texts.data + piece->at, piece->len);
    } else {
        const struct token_bytes *token = vocabulary_token(m->vocabulary, id);
        byte_alphabet_encode(buffer, m->vocabulary->bytes + token->at, token->len);
    }
    return buffer->data;
}

static void write_vocabulary(struct json_writer *w, const struct hf_write *m, struct text *buffer)
{
    int32_t count = m->pieces ? m->pieces->num_tokens : m->vocabulary->count;
    json_begin_object(w, "vocab", JSON_LINES);
    for (int32_t i = 0; i < count; i++) {
        int32_t id = m->pieces ? i : m->vocabulary->tokens[i].id;
        json_write_int(w, token_text(m, id, buffer), id);
    }
    json_end_object(w);
}

static bool is_reachable(const struct exported_token *t)
{
    return t->kind == TOKEN_NORMAL || t->kind == TOKEN_USER_DEFINED;
}

/* Hugging Face's library matches every token of a Unigram model in text: a low score keeps those
 * that SentencePiece does not match, such as byte tokens, out of segmentations. */
static void write_unigram(struct json_writer *w, const struct hf_write *m)
{
    enum { UNREACHABLE = -100000 };
    struct text buffer = {0};
    json_begin_object(w, "model", JSON_INLINE);
    json_write_string(w, "type", "Unigram");
    json_write_int(w, "unk_id", m->pieces->unknown);
    json_newline(w, 4);
    json_begin_array(w, "vocab", JSON_LINES);
    for (int32_t i = 0; i < m->pieces->num_tokens; i++) {
        const struct exported_token *t = &m->pieces->tokens[i];
        json_begin_array(w, NULL, JSON_INLINE);
        json_write_string(w, NULL, token_text(m, i, &buffer));
        /* the digits of a float: that many are read exactly */
        json_write_format(w, NULL, "%.9g", is_reachable(t) ? (double)t->score : UNREACHABLE);
        json_end_array(w);
    }
    json_end_array(w);
    json_newline(w, 4);
    json_write_bool(w, "byte_fallback", m->pieces->byte_fallback);
    json_newline(w, 2);
    json_end_object(w);
    text_release(&buffer);
}

static void write_model(struct json_writer *w, const struct hf_write *m)
{
    struct text buffer = {0};
    bool has_unknown = m->pieces && m->pieces->unknown >= 0;
    json_begin_object(w, "model", JSON_INLINE);
    json_write_string(w, "type", "BPE");
    json_write_null(w, "dropout");
    json_write_string(w, "unk_token",
                      has_unknown ? token_text(m, m->pieces->unknown, &buffer) : NULL);
    json_write_null(w, "continuing_subword_prefix");
    json_write_null(w, "end_of_word_suffix");
    json_write_bool(w, "fuse_unk", m->pieces);
    json_write_bool(w, "byte_fallback", m->pieces && m->pieces->byte_fallback);
    json_write_bool(w, "ignore_merges", m->ignore_merges || has_symbols(m->pieces));
    json_newline(w, 4);
    write_vocabulary(w, m, &buffer);
    json_newline(w, 4);
    json_begin_array(w, "merges", JSON_LINES);
    for (size_t i = 0; i < m->num_merges; i++) {
        json_begin_array(w, NULL, JSON_INLINE);
        json_write_string(w, NULL, token_text(m, m->merges[i].left, &buffer));
        json_write_string(w, NULL, token_text(m, m->merges[i].right, &buffer));
        json_end_array(w);
    }
    json_end_array(w);
    json_newline(w, 2);
    json_end_object(w);
    text_release(&buffer);
}

void hf_write_json(const struct hf_write *m, struct text *json)
{
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_LINES);
    json_write_string(&w, "version", "1.0");
    json_write_null(&w, "truncation");
    json_write_null(&w, "padding");
    write_added_tokens(&w, m->specials);
    write_normalizer(&w, m);
    if (has_symbols(m->pieces))
        write_symbols(&w, m->pieces);
    else if (m->pieces)
        json_write_null(&w, "pre_tokenizer");
    else
        write_splitter(&w, m->pattern);
    if (m->bos >= 0)
        write_post_processor(&w, special_tokens_text(m->specials, m->bos), m->bos);
    else
        json_write_null(&w, "post_processor");
    if (m->pieces)
        write_piece_decoder(&w, m->pieces->adds_space);
    else
        write_byte_level(&w, "decoder", true, true);
    if (m->pieces && m->pieces->is_unigram)
        write_unigram(&w, m);
    else
        write_model(&w, m);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}
