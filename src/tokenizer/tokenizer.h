/* tokenizer.h -- text to token IDs and back.
 *
 * Formats  "bytes" (the ID is the byte; 256 begins a text, 257 ends it, 258 is a mask), tiktoken
 *          .model (Llama 3), SentencePiece BPE .model (Llama 2), Hugging Face tokenizer.json
 *          (byte-level BPE, BPE with byte_fallback).  The format is detected from the content.
 * Threads  A tokenizer is immutable after opening and is shared by all threads.  Each thread has
 *          its own encoder, which holds a cache and scratch memory.
 * Units    IDs are below tokenizer_vocab_size.  BOS and EOS are -1 if the tokenizer has none. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"
#include "base/text.h"
#include "tokenizer/tokenizer_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tokenizer;
struct encoder;

/* A growing array of token IDs.  Setting count to 0 empties it and keeps the memory. */
struct token_list {
    int32_t *ids; /* owned */
    size_t count, capacity;
};
/* Makes room for `more` IDs after the last. */
void token_list_reserve(struct token_list *l, size_t more);
void token_list_release(struct token_list *l);

/* `path` is "bytes", a file, or a folder with tokenizer.json or tokenizer.model.
 * MISSING.  DATA, UNSUPPORTED: names the line or key. */
enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_config *config);
void tokenizer_close(struct tokenizer *t);
/* Whether the folder has a tokenizer's file. */
bool tokenizer_is_in(const char *folder);

int32_t
tokenizer_vocab_size(const struct tokenizer *t); /* largest ID + 1, special tokens included */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
/* ID of the special token with exactly this text, or -1. */
int32_t tokenizer_special(const struct tokenizer *t, const char *text);
/* Text of a special token, or NULL. */
const char *tokenizer_special_name(const struct tokenizer *t, int32_t id);
const char *tokenizer_kind(const struct tokenizer *t); /* "bytes", "tiktoken", ... */
/* The file it was read from, "" for "bytes".  Checkpoints copy it. */
const char *tokenizer_path(const struct tokenizer *t);

enum status encoder_make(struct encoder **out, const struct tokenizer *t);
void encoder_free(struct encoder *e);
/* Appends the IDs of the text.  Text that looks like a special token is encoded as plain text, and
 * neither BOS nor EOS is added.  The text need not be valid UTF-8: invalid bytes are encoded as
 * they are (SentencePiece models encode them as U+FFFD). DATA: a piece of over 64 MiB that cannot
 * be split, or a pattern exceeds PCRE2's match limit. */
enum status encoder_encode(struct encoder *e, const char *bytes, size_t len,
                           struct token_list *out);

/* Appends the text of the IDs, which start a text.  DATA: an ID that the tokenizer does not
 * have. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                             struct text *out);
/* The same for IDs from the middle of a text, so that parts can be concatenated: keeps the space
 * that SentencePiece prepends to a text, and leaves incomplete UTF-8 as it is. */
enum status tokenizer_decode_part(const struct tokenizer *t, const int32_t *ids, size_t count,
                                  struct text *out);

/* Writes the tokenizer's file into a folder, so that tokenizer_open(folder) opens the same one. */
enum status tokenizer_copy(const struct tokenizer *t, const char *folder);
