/* token_list.h -- a growing array of token IDs. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Setting count to 0 empties a list and keeps its memory. */
struct token_list {
    int32_t *ids; /* owned */
    size_t count, capacity;
};
/* Makes room for `more` IDs after the last. */
void token_list_reserve(struct token_list *l, size_t more);
void token_list_release(struct token_list *l);
/* Removes the IDs below 0 of an array; returns how many remain. */
size_t token_list_drop_missing(int32_t *ids, size_t count);
