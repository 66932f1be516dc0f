/* kinds.h -- what stands behind a struct tokenizer, and the files it is read from; for this room.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/json.h"
#include "tokenizer/added.h"
#include "tokenizer/specials.h"
#include "tokenizer/steps.h"
#include "tokenizer/text/unicode_form.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

#include <stdbool.h>

struct sentence;

struct tokenizer {
    const char *kind; /* "bytes", "tiktoken", "byte-level BPE", "SentencePiece BPE", ... */
    char *path;
    const char *file_name; /* under which tokenizer_copy puts it */
    struct text file;      /* its bytes */
    struct vocabulary vocabulary;
    struct specials specials;
    struct added added; /* nothing unless some are found in texts */
    int32_t vocab_size, bos, eos;
    size_t (*split)(const unsigned char *text,
                    size_t len); /* NULL: steps, or a text is one piece */
    struct steps steps;
    bool spells_bytes; /* a step is ByteLevel */
    enum unicode_form form;
    struct sentence *sentence; /* NULL: merging begins with bytes */
    bool whole_pieces; /* a piece that is a token is that token, whatever merges would give */
    bool meta_cuts;
};

/* encoder_make, of an encoder that remembers 2^slot_bits short pieces; slot_bits > 0. */
enum status encoder_make_sized(struct encoder **out, const struct tokenizer *t, int slot_bits);

/* Llama 3's file: a line a token, base64 and rank.  DATA: which line, and why. */
enum status tiktoken_read(struct tokenizer *t, const char *bytes, size_t len);

/* tokenizer.json.  UNSUPPORTED: another model, normalizer, pre-tokenizer than is known. */
enum status hf_json_read(struct tokenizer *t, const char *bytes, size_t len);
/* The "type" of one of its parts. */
static inline bool hf_type_is(const struct json *v, const char *type)
{
    return json_string_is(json_get(v, "type"), type);
}
static inline const char *hf_type_of(const struct json *v)
{
    const struct json *type = json_get(v, "type");
    return json_is_string(type) ? json_string(type) : "without a type";
}
/* Absent, null, false, 0, "", an empty list or Sequence ask for nothing. */
bool hf_is_nothing(const struct json *v);
enum status hf_read_form(struct tokenizer *t, const struct json *normalizer);
enum status hf_read_steps(struct tokenizer *t, const struct json *pre_tokenizer);
/* Of the kind that begins with characters: after its added tokens. */
bool hf_is_sentence(const struct json *root);
enum status hf_sentence_read(struct tokenizer *t, const struct json *root);
/* A merge's half as it is in the vocabulary, cleared first; not OK: it cannot be there. */
typedef enum status spell_half(const struct tokenizer *t, const char *text, size_t len,
                               struct text *out);
enum status hf_read_merges(struct tokenizer *t, const struct json *merges, spell_half *spell_it);

/* A SentencePiece model.  UNSUPPORTED: another model than BPE. */
enum status sentencepiece_read(struct tokenizer *t, const char *bytes, size_t len);
/* tokenizer_config.json: what Hugging Face's libraries want beside such a model. */
void sentencepiece_write_config(const struct tokenizer *t, struct text *json);
/* Its pieces, from the model's file. */
struct token_export;
enum status sentencepiece_export(const struct tokenizer *t, struct token_export *e);
#define SENTENCEPIECE_KIND "SentencePiece BPE"

/* A merge of training, in the order found. */
struct merge {
    int32_t left, right;
};
/* tokenizer.json of a byte-level BPE with Llama 3's splitter. */
void hf_json_write(const struct vocabulary *v, const struct merge *merges, size_t num_merges,
                   const struct specials *specials, struct text *json);
