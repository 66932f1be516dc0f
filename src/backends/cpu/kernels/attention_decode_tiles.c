// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_decode_tiles.h"

#include "backends/cpu/kernels/panel.h"
#include "backends/cpu/kernels/tiles.h"
#include "backends/cpu/kernels/vector.h"

#if defined(TILES)
enum {
    TILE = 16,    /* rows of a tile, and words of a row: pairs of bf16, or f32 */
    WIDTH = 32,   /* elements of a row */
    MAX_K = 256,  /* for a buffer on the stack */
    COLUMNS = 64, /* of a head, whose sums four tiles hold */
    TILE_FLOATS = TILE * TILE,
};

bool KERNEL(attention_decode_tiles_used)(const struct attention *a)
{
    return a->dtype == BF16 && a->K % WIDTH == 0 && a->K <= MAX_K;
}

/* Packed queries are right tiles: [K/32][16 pairs][16 queries][2]. */
void KERNEL(attention_decode_begin)(const bf16 *const queries[DECODE_QUERIES], size_t K,
                                    float *packed, float *sums)
{
    memset(packed, 0, DECODE_QUERY_FLOATS * K * sizeof *packed);
    memset(sums, 0, DECODE_SUM_FLOATS(K) * sizeof *sums);
    for (size_t q = 0; q < DECODE_QUERIES; q++)
        for (size_t pair = 0; pair < K / 2 && queries[q]; pair++)
            memcpy(packed + pair * TILE + q, queries[q] + 2 * pair, 2 * sizeof(bf16));
}

/* --- prefetch --- */

/* A few lines after each tile multiply and in loops between them: many prefetches in a row would
 * delay the tiles, and memory would be idle while tiles multiply. */
enum { LINES_PER_KEY_DOT = 8, LINES_PER_VALUE_DOT = 12, LINES_PER_PAIR = 1 };

/* Where the prefetch of struct decode_tiles has arrived. */
struct prefetch_cursor {
    size_t row, column;
};

/* Prefetches up to `lines` of 32 elements. */
static inline void prefetch_lines(const struct decode_tiles *p, struct prefetch_cursor *at,
                                  size_t lines)
{
    for (size_t i = 0; i < lines && at->row < p->next_count; i++) {
        __builtin_prefetch(p->next + at->row * p->stride + at->column, 0, 2);
        at->column += WIDTH;
        if (at->column >= p->next_width) at->row++, at->column = 0;
    }
}

/* --- scores --- */

/* Two left tiles of keys.  The last keys are copied, so that no key past the end is read; a second
 * tile that has no key repeats the first. */
struct key_tiles {
    const bf16 *at[2];
    size_t stride[2]; /* elements */
};

static struct key_tiles find_keys(const struct decode_tiles *p, bf16 *last)
{
    struct key_tiles t;
    for (size_t i = 0; i < 2; i++) {
        size_t key = i * TILE, left = key < p->count ? p->count - key : 0;
        t.at[i] = p->keys + key * p->stride, t.stride[i] = p->stride;
        if (left >= TILE) continue;
        t.at[i] = left ? last : t.at[0], t.stride[i] = left ? p->K : t.stride[0];
        for (size_t k = 0; k < left; k++)
            memcpy(last + k * p->K, p->keys + (key + k) * p->stride, p->K * sizeof *last);
        if (left) memset(last + left * p->K, 0, (TILE - left) * p->K * sizeof *last);
    }
    return t;
}

static void multiply_keys(const struct decode_tiles *p, const struct key_tiles *t,
                          const float *packed, struct prefetch_cursor *next,
                          float products[DECODE_KEYS][TILE])
{
    TILE_ZERO(0);
    TILE_ZERO(1);
    for (size_t k = 0; k < p->K; k += WIDTH, packed += TILE_FLOATS) {
        TILE_LOAD(6, packed, 64);
        TILE_STREAM(4, t->at[0] + k, t->stride[0] * sizeof(bf16));
        TILE_DOT(0, 4, 6);
        prefetch_lines(p, next, LINES_PER_KEY_DOT);
        TILE_STREAM(5, t->at[1] + k, t->stride[1] * sizeof(bf16));
        TILE_DOT(1, 5, 6);
        prefetch_lines(p, next, LINES_PER_KEY_DOT);
    }
    TILE_STORE(0, products[0], 64);
    TILE_STORE(1, products[TILE], 64);
}

void KERNEL(attention_decode_scores)(const struct decode_tiles *p, float scale, const float *packed,
                                     float *scores)
{
    float products[DECODE_KEYS][TILE] __attribute__((aligned(64)));
    bf16 last[TILE * MAX_K] __attribute__((aligned(64)));
    struct key_tiles t = find_keys(p, last);
    struct prefetch_cursor next = {0};
    multiply_keys(p, &t, packed, &next, products);
    for (size_t i = 0; i < DECODE_KEYS; i++) {
        prefetch_lines(p, &next, (p->K / WIDTH + 1) / 2);
        for (size_t q = 0; q < DECODE_QUERIES; q++)
            scores[i * DECODE_QUERIES + q] = scale * products[i][q];
    }
}

/* --- values --- */

/* Probs of up to DECODE_KEYS keys as the first rows of a left tile: [query][keys]. */
static void pack_probs(const float *probs, size_t count, uint32_t tile[TILE][TILE])
{
    uint32_t bits[DECODE_KEYS * DECODE_QUERIES] = {0};
    memcpy(bits, probs, count * DECODE_QUERIES * sizeof *bits);
    for (size_t i = 0; i < TILE; i++)
        for (size_t q = 0; q < DECODE_QUERIES; q++) {
            uint32_t even = bits[2 * i * DECODE_QUERIES + q];
            uint32_t odd = bits[(2 * i + 1) * DECODE_QUERIES + q];
            tile[q][i] = even >> 16 | (odd & 0xFFFF0000u);
        }
}

/* WIDTH columns of the values of two keys: the even ones and the odd ones, each a row of a right
 * tile. */
static inline void interleave(const bf16 *first, const bf16 *second, uint32_t even[TILE],
                              uint32_t odd[TILE])
{
    for (size_t i = 0; i < TILE; i += LANES) {
        vector_words a, b, low, high;
        memcpy(&a, first + 2 * i, sizeof a);
        memcpy(&b, second + 2 * i, sizeof b);
        low = (a & 0xFFFFu) | b << 16, high = a >> 16 | (b & 0xFFFF0000u);
        memcpy(even + i, &low, sizeof low);
        memcpy(odd + i, &high, sizeof high);
    }
}

/* The values, of `columns` columns from column k on, as right tiles: of even and of odd columns, in
 * turn.  Those past the end are 0. */
static inline __attribute__((always_inline)) void pack_values(const struct decode_tiles *p,
                                                              size_t k, size_t columns,
                                                              struct prefetch_cursor *next,
                                                              uint32_t tiles[4][TILE][TILE])
{
    static const bf16 zeros[COLUMNS];
    const bf16 *at = p->keys + k;
    for (size_t key = 0; key < DECODE_KEYS; key += 2, at += 2 * p->stride) {
        const bf16 *even = key < p->count ? at : zeros;
        const bf16 *odd = key + 1 < p->count ? at + p->stride : zeros;
        prefetch_lines(p, next, LINES_PER_PAIR);
        for (size_t c = 0; c < columns; c += WIDTH)
            interleave(even + c, odd + c, tiles[c / TILE][key / 2], tiles[c / TILE + 1][key / 2]);
    }
}

/* Adds to the sums of `columns` columns from column k on. */
static inline __attribute__((always_inline)) void
add_columns(const struct decode_tiles *p, size_t k, size_t columns, struct prefetch_cursor *next,
            uint32_t left[TILE][TILE], float *sums)
{
    uint32_t right[4][TILE][TILE] __attribute__((aligned(64)));
    TILE_LOAD(0, sums, 64);
    TILE_LOAD(1, sums + TILE_FLOATS, 64);
    TILE_LOAD(2, sums + 2 * TILE_FLOATS, 64);
    TILE_LOAD(3, sums + 3 * TILE_FLOATS, 64);
    pack_values(p, k, columns, next, right);
    TILE_LOAD(4, left, 64);
    TILE_LOAD(5, right[0], 64);
    TILE_DOT(0, 4, 5);
    prefetch_lines(p, next, LINES_PER_VALUE_DOT);
    TILE_LOAD(6, right[1], 64);
    TILE_DOT(1, 4, 6);
    prefetch_lines(p, next, LINES_PER_VALUE_DOT);
    if (columns == COLUMNS) {
        TILE_LOAD(5, right[2], 64);
        TILE_DOT(2, 4, 5);
        prefetch_lines(p, next, LINES_PER_VALUE_DOT);
        TILE_LOAD(6, right[3], 64);
        TILE_DOT(3, 4, 6);
        prefetch_lines(p, next, LINES_PER_VALUE_DOT);
    }
    TILE_STORE(0, sums, 64);
    TILE_STORE(1, sums + TILE_FLOATS, 64);
    TILE_STORE(2, sums + 2 * TILE_FLOATS, 64);
    TILE_STORE(3, sums + 3 * TILE_FLOATS, 64);
}

void KERNEL(attention_decode_values)(const struct decode_tiles *p, const float *probs, float *sums)
{
    uint32_t left[TILE][TILE] __attribute__((aligned(64))) = {0};
    struct prefetch_cursor next = {0};
    size_t k = 0;
    pack_probs(probs, p->count, left);
    for (; k + COLUMNS <= p->K; k += COLUMNS, sums += 4 * TILE_FLOATS)
        add_columns(p, k, COLUMNS, &next, left, sums);
    if (k < p->K) add_columns(p, k, WIDTH, &next, left, sums);
}

void KERNEL(attention_decode_end)(const float *sums, size_t K, float *to, size_t row)
{
    for (size_t k = 0; k < K; k += WIDTH, sums += 2 * TILE_FLOATS)
        for (size_t q = 0; q < DECODE_QUERIES; q++)
            for (size_t c = 0; c < WIDTH; c++)
                to[q * row + vectors_index(BF16, k + c, K)] =
                    sums[c % 2 * TILE_FLOATS + q * TILE + c / 2];
}
#else
bool KERNEL(attention_decode_tiles_used)(const struct attention *a)
{
    (void)a;
    return false;
}
void KERNEL(attention_decode_begin)(const bf16 *const queries[DECODE_QUERIES], size_t K,
                                    float *packed, float *sums)
{
    (void)queries, (void)K, (void)packed, (void)sums;
    BUG_IF(true);
}
void KERNEL(attention_decode_scores)(const struct decode_tiles *p, float scale, const float *packed,
                                     float *scores)
{
    (void)p, (void)scale, (void)packed, (void)scores;
    BUG_IF(true);
}
void KERNEL(attention_decode_values)(const struct decode_tiles *p, const float *probs, float *sums)
{
    (void)p, (void)probs, (void)sums;
    BUG_IF(true);
}
void KERNEL(attention_decode_end)(const float *sums, size_t K, float *to, size_t row)
{
    (void)sums, (void)K, (void)to, (void)row;
    BUG_IF(true);
}
#endif
