/* hf_folder.h -- the files beside a model's weights from which Transformers' AutoTokenizer, and the
 * programs built on it, open the same tokenizer.
 *
 * A tokenizer.json keeps the files beside it (tokenizer_config.json, special_tokens_map.json,
 * added_tokens.json, chat_template.jinja) as they are, unless a masked model needs a mask token
 * that they do not name.  For others:
 *
 * tokenizer.json          Converted from tokenizer.model or tekken.json.
 * tokenizer_config.json   Names of the special tokens.  Also the checksum of a converted
 *                         tokenizer.json: as long as it matches, tokenizer_open reads the
 *                         original.  Also what a tiktoken file that is not public lacks.
 * special_tokens_map.json The names again, for programs that read only these.
 * generation_config.json  BOS, and all tokens that end a text. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"

#include <stdbool.h>

struct tokenizer;

struct hf_folder_options {
    int bos, eos;           /* of the model; negative: the tokenizer's */
    int max_length;         /* tokens that fit into the model's context; 0: unknown */
    const char *mask_token; /* of a masked model; NULL: none */
};

enum { HF_FOLDER_FILES = 6 };
struct hf_folder {
    struct hf_folder_file {
        const char *name;
        struct text text; /* empty: the folder does not need this file */
    } files[HF_FOLDER_FILES];
    const char *other_ids; /* texts in valid UTF-8 for which Transformers gives other IDs than the
                              tokenizer; NULL: none */
};

/* A SentencePiece model that tokenizer.json cannot express (spaces that are not escaped, symbols
 * that normalization would change, characters without a token) gets none: Transformers 5 then opens
 * the model itself, with the sentencepiece library. */
void hf_folder_make(struct hf_folder *f, const struct tokenizer *t,
                    const struct hf_folder_options *o);
void hf_folder_release(struct hf_folder *f);
