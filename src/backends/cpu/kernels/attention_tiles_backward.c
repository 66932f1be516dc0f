/* attention_tiles_backward.c (cpu) -- software pipeline: while the vector units compute probs and
 * score gradients of one block, the tiles multiply the scores and dprobs of the next block, and dk
 * and dv of the previous key panel. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_tiles_backward.h"

#include "backends/cpu/kernels/attention_softmax.h"
#include "backends/cpu/kernels/attention_tiles.h"

#if defined(TILES)
enum { PAIRS_PER_PANEL = PANEL / 2 };

/* Position in the loop over blocks: key panel `key`, which query panels [first, first + count) see,
 * and the at-th of these. score_buffer alternates per block, prob_buffer per key panel. */
struct panel_pair {
    size_t key, first, count, at;
    size_t score_buffer, prob_buffer;
};

struct backward_state {
    float *pending;
    struct panel_pair dkv_pair; /* the key panel whose dk and dv are pending; count 0: none */
    size_t dkv_done;            /* of its 2 * head_panels matrix multiplies */
    /* initial accumulators of scores and dprobs: -lse / scale and -delta */
    float scores[BACKWARD_GROUP * PANEL],
        dprobs[BACKWARD_GROUP * PANEL] __attribute__((aligned(64)));
};

static inline size_t query_panel_of(const struct panel_pair *x) { return x->first + x->at; }
static inline size_t scores_offset(const struct panel_pair *x)
{
    return x->score_buffer * MICRO_TILE;
}
static inline size_t left_offset(const struct panel_pair *x, size_t query)
{
    return (x->prob_buffer * BACKWARD_GROUP + query) * KSTEP_BYTES;
}
static inline size_t right_offset(size_t key, size_t query)
{
    return (query * BACKWARD_GROUP + key % BACKWARD_GROUP) * KSTEP_BYTES;
}

/* Advances to the next query panel, of this or a later key panel; false: none is left. */
static bool next_pair(const struct tiles_backward *b, const struct attention_mask *s,
                      struct panel_pair *x)
{
    x->score_buffer = !x->score_buffer;
    if (++x->at < x->count) return true;
    x->prob_buffer = !x->prob_buffer;
    for (x->key++; x->key < b->key_panels; x->key++) {
        size_t first = 0, end = b->query_panels;
        while (first < end && !attention_mask_sees(&s[first], x->key)) first++;
        while (end > first && !attention_mask_sees(&s[end - 1], x->key)) end--;
        x->first = first, x->count = end - first, x->at = 0;
        if (x->count) return true;
    }
    return false;
}

static struct tile_matmul scores_matmul(const struct tiles_backward *b,
                                        const struct backward_state *state,
                                        const struct panel_pair *x)
{
    return (struct tile_matmul){.left = b->keys + x->key * b->head_panels * KSTEP_BYTES,
                                .right =
                                    b->queries + query_panel_of(x) * b->head_panels * KSTEP_BYTES,
                                .left_step = KSTEP_BYTES,
                                .right_step = KSTEP_BYTES,
                                .steps = b->head_panels,
                                .init = state->scores + query_panel_of(x) * PANEL,
                                .broadcast_row = true,
                                .to = b->scores + scores_offset(x)};
}

static struct tile_matmul dprobs_matmul(const struct tiles_backward *b,
                                        const struct backward_state *state,
                                        const struct panel_pair *x)
{
    return (struct tile_matmul){.left = b->values + x->key * b->head_panels * KSTEP_BYTES,
                                .right = b->dout + query_panel_of(x) * b->head_panels * KSTEP_BYTES,
                                .left_step = KSTEP_BYTES,
                                .right_step = KSTEP_BYTES,
                                .steps = b->head_panels,
                                .init = state->dprobs + query_panel_of(x) * PANEL,
                                .broadcast_row = true,
                                .to = b->dprobs + scores_offset(x)};
}

/* Matrix multiply n of the 2 * head_panels that update dk and dv of a key panel. */
static struct tile_matmul dkv_matmul(const struct tiles_backward *b, const struct panel_pair *x,
                                     size_t n)
{
    size_t width = n / 2, skip = (width * b->query_panels + x->first) * KSTEP_BYTES;
    float *to = (n % 2 ? b->dkeys : b->dvalues) + (x->key * b->head_panels + width) * MICRO_TILE;
    return (struct tile_matmul){.left = (n % 2 ? b->dscores : b->probs) + left_offset(x, x->first),
                                .right = (n % 2 ? b->queries_split : b->dout_split) + skip,
                                .left_step = KSTEP_BYTES,
                                .right_step = KSTEP_BYTES,
                                .steps = x->count,
                                .init = to,
                                .to = to};
}

static void finish_dkv(const struct tiles_backward *b, struct backward_state *state)
{
    for (; state->dkv_pair.count && state->dkv_done < 2 * b->head_panels; state->dkv_done++) {
        struct tile_matmul p = dkv_matmul(b, &state->dkv_pair, state->dkv_done);
        tile_matmul_run(&p, &state->pending);
    }
    state->dkv_pair.count = 0, state->dkv_done = 0;
}

/* Adds to dq of all query panels what the group of key panels that ends with `key` contributes. */
static void accumulate_dq(const struct tiles_backward *b, const struct attention_mask *s,
                          struct backward_state *state, size_t key)
{
    size_t group = key / BACKWARD_GROUP * BACKWARD_GROUP;
    for (size_t j = 0; j < b->query_panels; j++) {
        size_t first = group, end = key + 1;
        while (first < end && !attention_mask_sees(&s[j], first)) first++;
        while (end > first && !attention_mask_sees(&s[j], end - 1)) end--;
        for (size_t n = 0; first < end && n < b->head_panels; n++) {
            float *to = b->dqueries + (j * b->head_panels + n) * MICRO_TILE;
            struct tile_matmul p = {.left = b->keys_transposed +
                                            (n * b->key_panels + first) * KSTEP_BYTES,
                                    .right = b->dscores_right + right_offset(first, j),
                                    .left_step = KSTEP_BYTES,
                                    .right_step = KSTEP_BYTES,
                                    .steps = end - first,
                                    .init = to,
                                    .to = to};
            tile_matmul_run(&p, &state->pending);
        }
    }
}

static inline void softmax_until(const struct softmax_block *s, size_t *done, size_t until)
{
    for (size_t pair = *done; pair < until; pair++) softmax_keys_backward(s, pair);
    *done = until;
}

/* Probs and score gradients of block x, interleaved with tile products: those of `next` first. */
static void process_pair(const struct tiles_backward *b, struct backward_state *state,
                         const struct panel_pair *x, const struct panel_pair *next)
{
    size_t until =
        state->dkv_pair.count ? (2 * b->head_panels * (x->at + 1) + x->count - 1) / x->count : 0;
    size_t total = next ? 2 * b->head_panels : 0, tile_steps = 0, done = 0,
           query = query_panel_of(x);
    total += until > state->dkv_done ? (until - state->dkv_done) * state->dkv_pair.count : 0;
    struct softmax_block s = {
        .scale_log2 = b->scale * 1.44269504f,
        .scores = b->scores + scores_offset(x),
        .dprobs = b->dprobs + scores_offset(x),
        .probs = b->probs + left_offset(x, query),
        .dscores = b->dscores + left_offset(x, query),
        .dscores_right = b->dscores_right + right_offset(x->key, query),
    };
    for (size_t n = next ? 0 : 2; n < 2 || state->dkv_done < until; n++) {
        struct tile_matmul p = n == 0   ? scores_matmul(b, state, next)
                               : n == 1 ? dprobs_matmul(b, state, next)
                                        : dkv_matmul(b, &state->dkv_pair, state->dkv_done++);
        for (size_t i = 0; i < p.steps; i++) {
            tile_matmul_step(&p, i, &state->pending);
            softmax_until(&s, &done, PAIRS_PER_PANEL * ++tile_steps / total);
        }
    }
    softmax_until(&s, &done, PAIRS_PER_PANEL);
    tile_matmul_flush(&state->pending, b->scores + 2 * MICRO_TILE);
}

void KERNEL(attention_tiles_backward)(struct tiles_backward *b, const struct attention_mask *masks)
{
    struct backward_state state = {.pending = b->scores + 2 * MICRO_TILE};
    struct panel_pair x = {.key = (size_t)-1}, next;
    for (size_t i = 0; i < b->query_panels * PANEL; i++)
        state.scores[i] = -b->lse[i] / b->scale, state.dprobs[i] = -b->delta[i];
    bool has_next = next_pair(b, masks, &x);
    if (!has_next) return;
    struct tile_matmul first[] = {scores_matmul(b, &state, &x), dprobs_matmul(b, &state, &x)};
    for (size_t n = 0; n < 2; n++) tile_matmul_run(&first[n], &state.pending);
    tile_matmul_flush(&state.pending, b->scores + 2 * MICRO_TILE);
    for (; has_next; x = next) {
        next = x;
        has_next = next_pair(b, masks, &next);
        attention_mask_apply(&masks[query_panel_of(&x)], x.key, b->scores + scores_offset(&x));
        for (size_t i = 0; i < 3; i++) attention_prefetch_rows(&b->prefetch[i], 4);
        process_pair(b, &state, &x, has_next ? &next : NULL);
        if (has_next && next.key == x.key) continue;
        finish_dkv(b, &state);
        state.dkv_pair = x;
        if (!has_next || next.key / BACKWARD_GROUP != x.key / BACKWARD_GROUP)
            accumulate_dq(b, masks, &state, x.key);
    }
    finish_dkv(b, &state);
    tile_matmul_flush(&state.pending, b->scores + 2 * MICRO_TILE);
}
#else
void KERNEL(attention_tiles_backward)(struct tiles_backward *b, const struct attention_mask *masks)
{
    (void)b, (void)masks;
    BUG_IF(true);
}
#endif
