/* attention_decode_tiles.h -- attention of a few queries on AMX, the inner loops of
 * attention_decode.c: scores of a block of keys, and sums of its values.  Keys are left tiles as
 * they are in memory; values are interleaved in pairs of keys.
 *
 * Order    Scores: along K, 32 elements a step.  Sums: along the keys, 32 a step. */
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backends/cpu/kernels/kernels.h"
#include "ops/attention.h"

enum {
    DECODE_QUERIES = 4,     /* that are computed together */
    DECODE_KEYS = 32,       /* of a block */
    DECODE_QUERY_FLOATS = 8 /* of packed queries, for each of K */
};
/* Size of the sums of values of DECODE_QUERIES queries. */
#define DECODE_SUM_FLOATS(K) (((size_t)(K) + 63) / 64 * 1024)

/* Up to DECODE_KEYS keys, or values, of a head. */
struct decode_tiles {
    const bf16 *keys;        /* the first key */
    size_t K, count, stride; /* count of keys; elements from a key to the next */
    /* What is probably read after a block of these is prefetched: rows of `next_width` elements,
     * in the order of their addresses, so that the hardware prefetcher follows. */
    const bf16 *next;
    size_t next_width, next_count; /* also `stride` elements apart */
};

/* Returns whether tiles can compute it: bf16, and heads of whole tiles. */
bool KERNEL(attention_decode_tiles_used)(const struct attention *a);
/* Packs queries [K], some of which may be NULL, and sets the sums to 0. */
void KERNEL(attention_decode_begin)(const bf16 *const queries[DECODE_QUERIES], size_t K,
                                    float *packed, float *sums);
/* scores[DECODE_KEYS][DECODE_QUERIES] = scale q.k; stores all, of which only `count` are scores. */
void KERNEL(attention_decode_scores)(const struct decode_tiles *p, float scale, const float *packed,
                                     float *scores);
/* Adds values to the sums, weighted by the probs [count][DECODE_QUERIES]: bf16 numbers. */
void KERNEL(attention_decode_values)(const struct decode_tiles *p, const float *probs, float *sums);
/* The sums of query q go to to + q * row, in the order of vector_get_two. */
void KERNEL(attention_decode_end)(const float *sums, size_t K, float *to, size_t row);
