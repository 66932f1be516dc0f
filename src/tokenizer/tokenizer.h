/* tokenizer.h -- text to token ids and back.
 *
 * Kinds    "bytes" (id = byte; 256 begins, 257 ends a text, 258 is a mask), tiktoken .model (Llama
 *          3), SentencePiece BPE .model (Llama 2), Hugging Face tokenizer.json (byte-level BPE, BPE
 *          with byte_fallback).  The kind is detected from the file.
 * Order    A tokenizer is immutable after opening: threads share it.  Each thread encodes through
 *          its own encoder, which holds the cache and the working memory.
 * Units    Ids are below tokenizer_vocab_size.  Special ids are -1 where the tokenizer has none. */
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

/* Ids of one or more documents; grows, keeps its memory when cleared. */
struct token_list {
    int32_t *ids; /* owned */
    size_t count, capacity;
};
void token_list_reserve(struct token_list *l, size_t more);
void token_list_release(struct token_list *l);

/* `path` is "bytes", a file, or a folder that holds tokenizer.json or tokenizer.model.
 * MISSING, DATA: which line or key, and why. */
enum status tokenizer_open(struct tokenizer **out, const char *path,
                           const struct tokenizer_config *config);
void tokenizer_close(struct tokenizer *t);
/* Is there one in the folder? */
bool tokenizer_is_in(const char *folder);

int32_t tokenizer_vocab_size(const struct tokenizer *t); /* largest id + 1, specials included */
int32_t tokenizer_bos(const struct tokenizer *t);
int32_t tokenizer_eos(const struct tokenizer *t);
/* Id of a special token by its exact text, or -1. */
int32_t tokenizer_special(const struct tokenizer *t, const char *text);
/* The text of a special id, or NULL. */
const char *tokenizer_special_name(const struct tokenizer *t, int32_t id);
const char *tokenizer_kind(const struct tokenizer *t); /* "bytes", "tiktoken", ... */
/* The file it was read from, "" for bytes; checkpoints copy it. */
const char *tokenizer_path(const struct tokenizer *t);

enum status encoder_make(struct encoder **out, const struct tokenizer *t);
void encoder_free(struct encoder *e);
/* Appends the ids of the text; special-looking text is encoded as plain text, no BOS or EOS is
 * added.  The text need not be UTF-8 (bytes that are not are encoded as they are; SentencePiece
 * takes them for U+FFFD).
 * DATA: 64 MiB without a place to split, or a file's own splitting pattern gives up. */
enum status encoder_encode(struct encoder *e, const char *bytes, size_t len,
                           struct token_list *out);

/* Appends the text of the ids, from its beginning on.  DATA: an id the tokenizer does not have. */
enum status tokenizer_decode(const struct tokenizer *t, const int32_t *ids, size_t count,
                             struct text *out);
/* The same of ids that others came before: what SentencePiece puts before a text stays there, and
 * bytes need not be UTF-8, so parts can be joined. */
enum status tokenizer_decode_part(const struct tokenizer *t, const int32_t *ids, size_t count,
                                  struct text *out);

/* Puts the tokenizer's file into a folder, so that tokenizer_open(folder) gives the same one. */
enum status tokenizer_copy(const struct tokenizer *t, const char *folder);
