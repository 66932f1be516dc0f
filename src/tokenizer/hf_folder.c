// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/hf_folder.h"

#include "base/checksum.h"
#include "base/json.h"
#include "tokenizer/char_bpe.h"
#include "tokenizer/export.h"
#include "tokenizer/files/hf_json.h"
#include "tokenizer/files/hf_write.h"
#include "tokenizer/text/unicode.h"
#include "tokenizer/tokenizer_impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Whether normalization changes a user-defined symbol outside its own text: SentencePiece leaves it
 * as it is, tokenizer.json would change it. */
static bool changes_symbol(const struct char_bpe *c, const unsigned char *text, size_t len)
{
    size_t size;
    int bytes;
    for (size_t at = 0; at < len; at += (size_t)bytes) {
        const char *mapped = charsmap_find(&c->charsmap, text + at, len - at, &size);
        bool is_space = mapped && !c->removes_extra_spaces && size == 3 && !strcmp(mapped, " ") &&
                        !memcmp(text + at, "\xE2\x96\x81", 3); /* escaped again afterwards */
        if (mapped && !is_space) return true;
        unicode_decode(text + at, len - at, &bytes);
    }
    return c->removes_extra_spaces && memchr(text, ' ', len);
}

/* Whether tokenizer.json can express a SentencePiece model. */
static bool is_convertible(const struct tokenizer *t, const struct token_table *pieces)
{
    const struct char_bpe *c = t->char_bpe;
    if (!c->escapes_spaces) return false;
    if (t->vocabulary.id_limit > pieces->num_tokens) return false; /* characters without a token */
    for (int32_t id = 0; id < pieces->num_tokens; id++) {
        const struct exported_token *p = &pieces->tokens[id];
        const char *text = pieces->texts.data + p->text.at;
        if (memchr(text, 0, p->text.len)) return false;
        if (p->kind == TOKEN_USER_DEFINED &&
            changes_symbol(c, (const unsigned char *)text, p->text.len))
            return false;
    }
    return true;
}

struct ranked_merge {
    int32_t rank;
    uint32_t len; /* of the result */
    size_t index;
};

static int compare_merges(const void *a, const void *b)
{
    const struct ranked_merge *x = a, *y = b;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    if (x->len != y->len) return x->len > y->len ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

/* Returns the merges as tokenizer.json lists them, which has no equal ranks.  Runs of spaces, which
 * have equal scores in SentencePiece models, merge there from left to right; so do those listed by
 * descending length. */
static struct hf_merge *list_merges(const struct tokenizer *t, size_t *count)
{
    struct merge_pair *pairs = vocabulary_sorted_pairs(&t->vocabulary, count);
    struct ranked_merge *ranked = heap((*count + 1) * sizeof *ranked);
    struct hf_merge *merges = heap((*count + 1) * sizeof *merges);
    for (size_t i = 0; i < *count; i++) {
        const struct token_bytes *merged = vocabulary_token(&t->vocabulary, pairs[i].merged);
        ranked[i] = (struct ranked_merge){pairs[i].rank, merged ? merged->len : 0, i};
    }
    qsort(ranked, *count, sizeof *ranked, compare_merges);
    for (size_t i = 0; i < *count; i++)
        merges[i] = (struct hf_merge){pairs[ranked[i].index].left, pairs[ranked[i].index].right};
    free(ranked), free(pairs);
    return merges;
}

static void convert_model(const struct tokenizer *t, const struct token_table *pieces,
                          struct text *json)
{
    size_t count;
    struct hf_merge *merges = list_merges(t, &count);
    hf_write_json(&(struct hf_write){.vocabulary = &t->vocabulary,
                                     .pattern = t->pattern,
                                     .nfc = t->normal_form == FORM_NFC,
                                     .pieces = pieces,
                                     .merges = merges,
                                     .num_merges = count,
                                     .specials = &t->special_tokens,
                                     .bos = t->bos,
                                     .ignore_merges = t->ignore_merges},
                  json);
    free(merges);
}

static bool is_sentencepiece(const struct tokenizer *t)
{
    return t->format == FORMAT_SENTENCEPIECE || t->format == FORMAT_SENTENCEPIECE_UNIGRAM;
}

#define CLUSTERS "grapheme clusters of several characters, such as letters with combining marks"
#define TIES     "words with segmentations of almost equal scores"

/* Writes tokenizer.json, unless the tokenizer has its own.  Returns for which texts it gives other
 * IDs, or NULL: Hugging Face's library applies a charsmap to grapheme clusters, and adds the scores
 * of a Unigram model in double precision. */
static const char *write_tokenizer_json(const struct tokenizer *t, struct text *json)
{
    struct token_table pieces;
    if (t->format == FORMAT_TIKTOKEN || t->format == FORMAT_TEKKEN) convert_model(t, NULL, json);
    if (!is_sentencepiece(t)) return NULL;
    bool converts = !export_token_table(t, &pieces) && is_convertible(t, &pieces);
    const char *ties = pieces.is_unigram ? TIES : NULL;
    const char *both = pieces.is_unigram ? CLUSTERS ", and " TIES : CLUSTERS;
    const char *other_ids = pieces.charsmap ? both : ties;
    if (converts) convert_model(t, &pieces, json);
    token_table_release(&pieces);
    return converts ? other_ids : NULL;
}

static void write_name(struct json_writer *w, const char *key, const struct tokenizer *t,
                       int32_t id)
{
    const char *name = id < 0 ? NULL : special_tokens_text(&t->special_tokens, id);
    if (name) json_write_string(w, key, name);
}

/* The token that pads batches in fine-tuning: the one meant for it, otherwise EOS. */
static int32_t find_padding(const struct tokenizer *t)
{
    static const char *const names[] = {"<|finetune_right_pad_id|>", "<|finetune_right_pad|>",
                                        "<pad>", "<|pad|>", "[PAD]"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        int32_t id = special_tokens_find(&t->special_tokens, names[i]);
        if (id >= 0) return id;
    }
    return t->eos;
}

static void write_special_names(struct json_writer *w, const struct tokenizer *t,
                                const char *mask_token)
{
    int32_t mask = mask_token ? special_tokens_find(&t->special_tokens, mask_token) : -1;
    write_name(w, "bos_token", t, t->bos);
    write_name(w, "eos_token", t, t->eos);
    if (t->char_bpe) write_name(w, "unk_token", t, t->char_bpe->unknown_id);
    write_name(w, "pad_token", t, find_padding(t));
    if (mask >= 0)
        write_name(w, "mask_token", t, mask); /* of several names, tokenizer.json's */
    else if (mask_token)
        json_write_string(w, "mask_token", mask_token);
}

static void write_special_tokens_map(const struct tokenizer *t, const char *mask_token,
                                     struct text *json)
{
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_LINES);
    write_special_names(&w, t, mask_token);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}

/* What a tiktoken file lacks, unless it is a public one. */
static void write_pattern(struct json_writer *w, const struct tokenizer *t)
{
    char id[16];
    json_write_string(w, "pattern", t->pattern_name);
    if (!t->lists_specials) return;
    json_begin_object(w, "added_tokens_decoder", JSON_LINES);
    for (size_t i = 0; i < t->special_tokens.count; i++) {
        const struct special_token *token = &t->special_tokens.all[i];
        snprintf(id, sizeof id, "%d", token->id);
        json_begin_object(w, id, JSON_INLINE);
        json_write_string(w, "content", token->text);
        json_write_bool(w, "special", true);
        json_end_object(w);
    }
    json_end_object(w);
}

static void write_tokenizer_config(const struct tokenizer *t, const struct hf_folder_options *o,
                                   const struct hf_folder *f, struct text *json)
{
    const struct text *converted = &f->files[0].text;
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_LINES);
    bool has_json = !is_sentencepiece(t) || converted->len;
    json_write_string(&w, "tokenizer_class",
                      has_json ? "PreTrainedTokenizerFast" : "SentencePieceBackend");
    write_special_names(&w, t, o->mask_token);
    if (!has_json) {
        json_write_string(&w, "special_tokens_pattern", t->bos >= 0 ? "bos" : "none");
        json_write_bool(&w, "legacy", true); /* as the model says, without changes */
    }
    if (t->format == FORMAT_TIKTOKEN && t->pattern_name) write_pattern(&w, t);
    json_write_bool(&w, "clean_up_tokenization_spaces", false);
    json_begin_array(&w, "model_input_names", JSON_INLINE); /* no token_type_ids */
    json_write_string(&w, NULL, "input_ids");
    json_write_string(&w, NULL, "attention_mask");
    json_end_array(&w);
    if (o->max_length > 0) json_write_int(&w, "model_max_length", o->max_length);
    if (converted->len)
        json_write_int(&w, "converted_tokenizer_json_crc32c",
                       checksum_crc32c(0, converted->data, converted->len));
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}

/* Llama 3 ends a text with <|end_of_text|>, a message with one of the others. */
static void write_stop_tokens(struct json_writer *w, const struct tokenizer *t, int32_t eos)
{
    static const char *const others[] = {"<|eom_id|>", "<|eot_id|>"};
    int32_t ids[3] = {eos};
    int count = 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        int32_t id = special_tokens_find(&t->special_tokens, others[i]);
        if (id >= 0 && id != eos) ids[count++] = id;
    }
    if (count == 1) {
        json_write_int(w, "eos_token_id", eos);
        return;
    }
    json_begin_array(w, "eos_token_id", JSON_INLINE);
    for (int i = 0; i < count; i++) json_write_int(w, NULL, ids[i]);
    json_end_array(w);
}

static void write_generation_config(const struct tokenizer *t, const struct hf_folder_options *o,
                                    struct text *json)
{
    int32_t bos = o->bos >= 0 ? o->bos : t->bos, eos = o->eos >= 0 ? o->eos : t->eos;
    struct json_writer w = {.text = json};
    json_begin_object(&w, NULL, JSON_LINES);
    if (bos >= 0) json_write_int(&w, "bos_token_id", bos);
    if (eos >= 0) write_stop_tokens(&w, t, eos);
    json_end_object(&w);
    json_finish(&w);
    text_adds(json, "\n");
}

/* Whether tokenizer_config.json beside tokenizer.json names everything that the model needs. */
static bool keeps_config(const struct tokenizer *t, const char *mask_token)
{
    const struct text *config = &t->companions[0].text;
    struct json *root = NULL;
    if (!config->len) return false;
    if (!mask_token) return true;
    bool names = !json_parse(config->data, config->len, t->path, &root) &&
                 hf_json_token_name(root, "mask_token");
    json_free(root);
    return names;
}

void hf_folder_make(struct hf_folder *f, const struct tokenizer *t,
                    const struct hf_folder_options *o)
{
    static const char *const names[HF_FOLDER_FILES] = {
        "tokenizer.json",    "tokenizer_config.json", "special_tokens_map.json",
        "added_tokens.json", "chat_template.jinja",   "generation_config.json"};
    bool keeps = keeps_config(t, o->mask_token);
    bool keeps_map = keeps || (t->companions[1].text.len && !o->mask_token);
    const bool kept[NUM_COMPANIONS] = {keeps, keeps_map, true, true};
    *f = (struct hf_folder){0};
    for (int i = 0; i < HF_FOLDER_FILES; i++) f->files[i].name = names[i];
    f->other_ids = write_tokenizer_json(t, &f->files[0].text);
    for (int i = 0; i < NUM_COMPANIONS; i++) {
        const struct text *own = &t->companions[i].text;
        if (own->len && kept[i]) text_add(&f->files[i + 1].text, own->data, own->len);
    }
    if (!keeps) write_tokenizer_config(t, o, f, &f->files[1].text);
    if (!keeps_map) write_special_tokens_map(t, o->mask_token, &f->files[2].text);
    write_generation_config(t, o, &f->files[5].text);
}

void hf_folder_release(struct hf_folder *f)
{
    for (int i = 0; i < HF_FOLDER_FILES; i++) text_release(&f->files[i].text);
    *f = (struct hf_folder){0};
}
