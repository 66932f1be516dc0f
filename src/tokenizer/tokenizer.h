/* tokenizer.h -- text to token IDs and back.
 *
 * Formats  "bytes" (the ID is the byte; 256 begins a text, 257 ends it, 258 is a mask), tiktoken
 *          .model (Llama 3 and 4, GPT-2 to GPT-4o, Qwen), SentencePiece BPE (Llama 2) or Unigram
 *          .model, Hugging Face tokenizer.json (byte-level BPE, BPE with byte_fallback, Unigram),
 *          tekken.json (Mistral).  The format is detected from the content.
 * Threads  A tokenizer is immutable after opening and is shared by all threads.  Each thread has
 *          its own encoder, which holds a cache and scratch memory.
 * Units    IDs are below tokenizer_vocab_size.  BOS and EOS are -1 if the tokenizer has none. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tokenizer/encoder.h"
#include "tokenizer/token_list.h"
#include "tokenizer/tokenizer_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;

/* `path` is "bytes", a file, or a folder with tokenizer.json, tokenizer.model or tekken.json.  With
 * several, opens tokenizer.json, unless we converted it from one of the others (hf_folder.h).
 * MISSING.  DATA, UNSUPPORTED: names the line or key. */
enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_config *config);
void tokenizer_close(struct tokenizer *t);
/* Whether the folder has a tokenizer's file. */
bool tokenizer_is_in(const char *folder);

/* Largest ID + 1, special tokens included; 0 of NULL. */
int32_t tokenizer_vocab_size(const struct tokenizer *t);
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
/* Whether Transformers, which calls it add_special_tokens, begins every text with BOS. */
bool tokenizer_adds_bos(const struct tokenizer *t);
/* ID of the special token with exactly this text, or -1. */
int32_t tokenizer_special(const struct tokenizer *t, const char *text);
/* Text of a special token, or NULL. */
const char *tokenizer_special_name(const struct tokenizer *t, int32_t id);
const char *tokenizer_kind(const struct tokenizer *t); /* "bytes", "tiktoken", ... */
/* The file it was read from, "" for "bytes".  Checkpoints copy it. */
const char *tokenizer_path(const struct tokenizer *t);
/* A hash of every byte of that file, and of the options; 0 for "bytes". */
uint64_t tokenizer_hash(const struct tokenizer *t);

/* Whether a token has this ID: added tokens may leave gaps below tokenizer_vocab_size. */
bool tokenizer_has(const struct tokenizer *t, int32_t id);

/* Appends the text of the IDs, which start a text.  DATA: an ID that the tokenizer does not
 * have. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                             struct text *out);
/* The same for IDs from the middle of a text, so that parts can be concatenated: keeps the space
 * that SentencePiece prepends to a text, and leaves incomplete UTF-8 as it is. */
enum status tokenizer_decode_part(const struct tokenizer *t, const int32_t *ids, size_t count,
                                  struct text *out);

/* Writes the tokenizer's file into a folder, so that tokenizer_open(folder) opens the same one; the
 * pattern of a tiktoken file that is not public is in tokenizer_config.json (hf_folder.h). */
enum status tokenizer_copy(const struct tokenizer *t, const char *folder);
