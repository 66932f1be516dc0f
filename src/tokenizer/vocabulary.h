/* vocabulary.h -- the tokens of a BPE model, and its merges.
 *
 * A token is a string of bytes with an ID.  A merge replaces a pair of adjacent token IDs
 * (left, right) by one ID and has a rank; lower ranks merge first.  tiktoken's rule (merge the pair
 * whose joined bytes have the lowest rank) is the same with every split of every token into two
 * tokens as a merge, ranked by the token's ID. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { VOCABULARY_MAX_ID = (1 << 22) - 1 }; /* bounds the table indexed by ID */

struct token_bytes {
    size_t at; /* offset into `bytes` */
    uint32_t len;
    int32_t id;
};

struct merge_pair {
    int32_t left, right, rank, merged;
};

struct token_slot {
    uint32_t tag;  /* upper bits of the hash: rejects most misses without comparing bytes */
    int32_t index; /* -1: empty */
};

/* A zeroed one is empty. */
struct vocabulary {
    unsigned char *bytes; /* of all tokens, concatenated */
    size_t num_bytes, bytes_capacity;
    struct token_bytes *tokens; /* in the order they were added */
    int32_t count;
    int32_t *by_id;           /* index into tokens, or -1; `id_limit` entries */
    int32_t id_limit;         /* largest ID + 1 */
    struct token_slot *slots; /* hash table: bytes to index into tokens */
    size_t num_slots;
    struct merge_pair *pairs;          /* hash table of (left, right); left -1: empty */
    struct merge_pair *low_pairs[256]; /* merges of two IDs below 256, where most look-ups are: a
                                          row of 256 for each left ID, or NULL */
    size_t num_pair_slots, num_pairs;
    uint64_t
        *pair_filter; /* a Bloom filter of `pairs`: most pairs that are looked up have no merge,
                              and this table is small enough for L2 */
    int32_t byte_ids[256]; /* IDs of the single-byte tokens; -1: none */
    bool lacks_bytes;      /* some bytes have no token; such bytes are dropped */
};

void vocabulary_release(struct vocabulary *v);

/* DATA: the ID or the bytes are in the vocabulary already. */
enum status vocabulary_add(struct vocabulary *v, const void *bytes, size_t len, int32_t id);
/* Call after the last token: sets `id_limit` to the largest ID + 1. */
void vocabulary_trim(struct vocabulary *v);
/* vocabulary_trim, and fills `byte_ids`.  DATA: a single byte has no token. */
enum status vocabulary_finish(struct vocabulary *v);
/* The same for a vocabulary that may lack bytes; returns how many. */
int vocabulary_finish_partial(struct vocabulary *v);
/* Adds a merge; if the pair has one already, the new one replaces it. */
void vocabulary_add_pair(struct vocabulary *v, int32_t left, int32_t right, int32_t rank,
                         int32_t merged);
/* Adds every split of every token into two tokens as a merge, ranked by the token's ID. */
void vocabulary_add_all_splits(struct vocabulary *v);

/* ID of the token with these bytes, or -1. */
int32_t vocabulary_find(const struct vocabulary *v, const void *bytes, size_t len);
/* The merge of a pair, or NULL. */
const struct merge_pair *vocabulary_find_pair(const struct vocabulary *v, int32_t left,
                                              int32_t right);
/* All merges by rank, and their number; on the heap.  Merges of equal rank (tiktoken: all splits of
 * one token) are ordered by the IDs of their halves. */
struct merge_pair *vocabulary_sorted_pairs(const struct vocabulary *v, size_t *count);
/* The token with an ID, or NULL. */
const struct token_bytes *vocabulary_token(const struct vocabulary *v, int32_t id);

uint64_t vocabulary_hash(const void *bytes, size_t len);
