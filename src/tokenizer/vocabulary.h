/* vocabulary.h -- tokens as bytes, and the pairs of them that merge.
 *
 * A token is a string of bytes with an id; a pair (left, right) has a rank and the id it becomes.
 * tiktoken's rule (merge the pair whose joined bytes have the lowest rank) is the same thing: its
 * pairs are all cuts of a token into two tokens, ranked by the token. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VOCABULARY_MOST_ID = (1 << 22) - 1 }; /* a table of them is made however few there are */

struct token_bytes {
    size_t at; /* in `bytes` */
    uint32_t len;
    int32_t id;
};

struct pair {
    int32_t left, right, rank, joined;
};

struct token_slot {
    uint32_t tag;  /* of the hash: most strings that are no token are known by it */
    int32_t index; /* -1: free */
};

struct vocabulary {
    unsigned char *bytes; /* of all tokens, end to end */
    size_t num_bytes, bytes_room;
    struct token_bytes *tokens; /* in the order they were added */
    int32_t count;
    int32_t *by_id;           /* index into tokens, or -1; size: ids below `most` */
    int32_t most;             /* largest id + 1 */
    struct token_slot *slots; /* hash of bytes to index into tokens */
    size_t num_slots;
    struct pair *pairs;    /* hash of (left, right); left -1: free */
    struct pair *low[256]; /* of ids below 256, where merging begins: by the left one a row of 256
                              by the right one, or NULL */
    size_t num_pair_slots, num_pairs;
    int32_t of_byte[256]; /* ids of the single bytes */
};

void vocabulary_init(struct vocabulary *v);
void vocabulary_release(struct vocabulary *v);

/* DATA: the id or the bytes are there already. */
enum status vocabulary_add(struct vocabulary *v, const void *bytes, size_t len, int32_t id);
/* After the last token: `most` becomes the largest id + 1. */
void vocabulary_trim(struct vocabulary *v);
/* The same, and the single bytes are looked up.  DATA: one of them is missing. */
enum status vocabulary_finish(struct vocabulary *v);
/* Of two ranks of a pair the later counts. */
void vocabulary_add_pair(struct vocabulary *v, int32_t left, int32_t right, int32_t rank,
                         int32_t joined);
/* Every cut of every token into two tokens, ranked by id. */
void vocabulary_add_cuts(struct vocabulary *v);

int32_t vocabulary_find(const struct vocabulary *v, const void *bytes, size_t len); /* -1: none */
const struct pair *vocabulary_pair(const struct vocabulary *v, int32_t left, int32_t right);
/* The token of an id, or NULL. */
const struct token_bytes *vocabulary_token(const struct vocabulary *v, int32_t id);

uint64_t vocabulary_hash(const void *bytes, size_t len);
