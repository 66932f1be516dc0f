/* rig.h -- helpers shared by the tokenizer tests: write tokenizer files, check token IDs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "test.h"

#include "tokenizer/tokenizer.h"

/* Writes the bytes to a file in a test folder and opens it. */
enum status open_bytes(struct tokenizer **t, const char *name, const struct text *file);
/* The same for a string; closes the tokenizer again and returns the status of opening it. */
enum status opens(const char *name, const char *file);

/* Appends the byte in GPT-2's byte-level alphabet, escaped for JSON. */
void append_byte_level(struct text *t, int byte);

/* Parts of a byte-level tokenizer.json; NULL: the default. */
struct json_parts {
    const char *added_tokens; /* content of "added_tokens"; default: none */
    const char *normalizer;
    const char *pre;    /* the pre_tokenizer; default: ByteLevel with GPT-2's pattern */
    const char *vocab;  /* more tokens after the 256 bytes, each preceded by a comma */
    const char *merges; /* content of "merges" */
    const char *model;  /* more keys of "model", each followed by a comma */
    const char *rest;   /* more keys of the file, each followed by a comma */
};
void write_json(struct text *file, const struct json_parts *parts);

void append_base64(struct text *t, const unsigned char *bytes, size_t len);
/* Appends a tiktoken file: the 256 bytes, then these tokens. */
void write_tiktoken(struct text *file, const char *const *tokens, size_t count);

struct token_list encoded(const struct tokenizer *t, const void *bytes, size_t len);
bool ids_are(const struct tokenizer *t, const char *text, const int32_t *ids, size_t count);
#define CHECK_IDS(t, string, ...)                                                                  \
    CHECK(ids_are(t, string, (const int32_t[]){__VA_ARGS__},                                       \
                  sizeof(const int32_t[]){__VA_ARGS__} / sizeof(int32_t)))
