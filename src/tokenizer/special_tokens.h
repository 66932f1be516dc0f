/* special_tokens.h -- tokens that stand for no text, such as begin, end and mask. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

struct special_tokens {
    struct special_token {
        char *text; /* owned */
        int32_t id;
    } * all; /* sorted by ID; if several share an ID, the first added is displayed */
    size_t count, capacity;
};

void special_tokens_release(struct special_tokens *s);
/* Copies the text. */
void special_tokens_add(struct special_tokens *s, const char *text, int32_t id);
/* Adds the special tokens of tokenizers trained here: begin of text, end of text and mask, with IDs
 * from `first` up. */
enum { SPECIAL_TOKENS_DEFAULT = 3 };
void special_tokens_add_default(struct special_tokens *s, int32_t first);
/* Required before special_tokens_text, unless tokens were added in ascending order of ID. */
void special_tokens_sort(struct special_tokens *s);
int32_t special_tokens_find(const struct special_tokens *s, const char *text); /* -1: none */
const char *special_tokens_text(const struct special_tokens *s, int32_t id);   /* NULL: none */
