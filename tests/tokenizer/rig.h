/* rig.h -- what the tests of this room share: files of tokenizers made on the spot, and their ids.
 */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "tokenizer/tokenizer.h"

/* A tokenizer of a file with these bytes; the file lives in a test folder. */
enum status open_bytes(struct tokenizer **t, const char *name, const struct text *file);
/* The same, of a string, closed at once: does it open? */
enum status opens(const char *name, const char *file);

/* Appends what tokenizer.json calls this byte. */
void add_letter(struct text *t, int byte);

/* What a made tokenizer.json says; NULL: the usual. */
struct json_parts {
    const char *added; /* content of "added_tokens"; usually nothing */
    const char *normalizer;
    const char *pre;    /* the pre_tokenizer; usually ByteLevel with GPT-2's pattern */
    const char *vocab;  /* further tokens after the 256 bytes, each with a comma before it */
    const char *merges; /* content of "merges" */
    const char *model;  /* further keys of "model", each with a comma after it */
    const char *rest;   /* further keys of the file, each with a comma after it */
};
void write_json(struct text *file, const struct json_parts *parts);

/* Llama 3's form: the 256 bytes, then these tokens. */
void write_tiktoken(struct text *file, const char *const *tokens, size_t count);

struct token_list encoded(const struct tokenizer *t, const void *bytes, size_t len);
bool ids_are(const struct tokenizer *t, const char *text, const int32_t *ids, size_t count);
#define CHECK_IDS(t, string, ...)                                                                  \
    CHECK(ids_are(t, string, (const int32_t[]){__VA_ARGS__},                                       \
                  sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t)))
