/* kinds.h -- internal to the tokenizer: the fields of struct tokenizer, and the readers of its file
 * formats. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/text/unicode_normalize.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

#include <stdbool.h>

struct char_bpe;

struct tokenizer {
    const char *kind; /* "bytes", "tiktoken", "byte-level BPE", "SentencePiece BPE", ... */
    char *path;
    const char *file_name; /* the name under which tokenizer_copy writes it */
    struct text file;      /* the content of that file */
    struct vocabulary vocabulary;
    struct special_tokens special_tokens;
    struct added_tokens added_tokens; /* empty unless some match text */
    int32_t vocab_size, bos, eos;
    /* Byte-level BPE splits text by `split` if the pre_tokenizer is one known splitter; otherwise
     * by its rules; without rules, a text is one piece. */
    size_t (*split)(const unsigned char *text, size_t len);
    struct pre_tokenizer pre_tokenizer;
    bool is_byte_level; /* a ByteLevel pre_tokenizer was read */
    enum unicode_form normal_form;
    struct char_bpe *char_bpe; /* NULL: byte-level */
    bool ignore_merges;        /* a piece that is a token is that token, without merging */
    bool meta_cuts;            /* cut long texts as Meta's tokenizer.py does */
};

/* encoder_make with a cache of 2^slot_bits short pieces; slot_bits > 0. */
enum status encoder_make_sized(struct encoder **out, const struct tokenizer *t, int slot_bits);

/* Reads a tiktoken .model file (Llama 3): a token in base64 and its rank on each line.
 * DATA: names the line. */
enum status tiktoken_read(struct tokenizer *t, const char *bytes, size_t len);

/* Reads tokenizer.json.  UNSUPPORTED: a model, normalizer, pre_tokenizer or decoder that is not
 * implemented. */
enum status hf_json_read(struct tokenizer *t, const char *bytes, size_t len);
/* Whether a component has this "type". */
static inline bool hf_node_type_is(const struct json *v, const char *type)
{
    return json_string_is(json_get(v, "type"), type);
}
static inline const char *hf_node_type(const struct json *v)
{
    const struct json *type = json_get(v, "type");
    return json_is_string(type) ? json_string(type) : "without a type";
}
/* Whether a component or setting does nothing: absent, null, false, 0, "", an empty list or
 * Sequence. */
bool hf_node_is_noop(const struct json *v);
enum status hf_pipeline_read_normalizer(struct tokenizer *t, const struct json *normalizer);
enum status hf_pipeline_read_pre_tokenizer(struct tokenizer *t, const struct json *pre_tokenizer);
/* Whether the model is a BPE that starts from characters.  hf_char_bpe_read requires that the added
 * tokens have been read. */
bool hf_char_bpe_matches(const struct json *root);
enum status hf_char_bpe_read(struct tokenizer *t, const struct json *root);
/* Converts one half of a merge to its bytes in the vocabulary; clears `out` first. */
typedef enum status decode_half(const struct tokenizer *t, const char *text, size_t len,
                                struct text *out);
enum status hf_merges_read(struct tokenizer *t, const struct json *merges, decode_half *decode);

/* Reads a SentencePiece .model file.  UNSUPPORTED: not a BPE model. */
enum status sentencepiece_read(struct tokenizer *t, const char *bytes, size_t len);
/* Appends the tokenizer_config.json that Transformers requires with such a model. */
void sentencepiece_write_config(const struct tokenizer *t, struct text *json);
/* Appends its pieces, read again from t->file. */
struct token_export;
enum status sentencepiece_export(const struct tokenizer *t, struct token_export *e);
#define SENTENCEPIECE_KIND "SentencePiece BPE"

/* A merge found by training. */
struct hf_merge {
    int32_t left, right;
};
/* Appends a tokenizer.json: byte-level BPE with Llama 3's splitter. */
void hf_json_write(const struct vocabulary *v, const struct hf_merge *merges, size_t num_merges,
                   const struct special_tokens *specials, struct text *json);
