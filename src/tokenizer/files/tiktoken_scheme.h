/* tiktoken_scheme.h -- what a tiktoken file does not contain: the pre-tokenizer pattern and the
 * special tokens.
 *
 * Public files are known by their SHA-256.  For other files the user names a scheme.
 * Sources  tiktoken_ext/openai_public.py of tiktoken 0.12 (r50k_base, p50k_base, cl100k_base,
 *          o200k_base), tokenizer.py of llama-models (Llama 3 and 4), tokenization_qwen.py. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/text.h"
#include "tokenizer/text/unicode_normalize.h"

#include <stddef.h>
#include <stdint.h>

struct tokenizer;

struct tiktoken_scheme {
    const char *name;    /* a value of tokenizer.pattern */
    const char *pattern; /* in tokenizer.json's syntax */
    enum unicode_form normal_form;
    const struct special_run *specials;
    const char *bos; /* NULL: none */
    const char *eos;
};

/* The scheme of a public file; NULL: not one of them. */
const struct tiktoken_scheme *tiktoken_scheme_of_file(const char *bytes, size_t len);
/* NULL: no scheme has this name. */
const struct tiktoken_scheme *tiktoken_scheme_find(const char *name);
/* Appends all names, for messages: "llama3, llama4, ...". */
void tiktoken_scheme_list(struct text *out);
/* Adds the special tokens of a vocabulary whose largest rank is `num_ranks` - 1, and sets BOS, EOS
 * and the vocabulary's size. */
void tiktoken_scheme_add_specials(const struct tiktoken_scheme *s, struct tokenizer *t,
                                  int32_t num_ranks);
