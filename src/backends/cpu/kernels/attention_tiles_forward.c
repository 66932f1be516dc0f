/* attention_tiles_forward.c (cpu) -- software pipeline: while the vector units compute the probs of
 * one key panel, the tiles multiply the scores of the next one and the values of earlier ones.
 *
 * Row max is not searched in every block.  It is that of the first key panel, and is updated only
 * when probs overflow.  Score accumulators start at -row_max, so that scores are small and the
 * probs of the largest one are exact. */
// SPDX-License-Identifier: Apache-2.0
#include "backends/cpu/kernels/attention_tiles_forward.h"

#include "backends/cpu/kernels/attention_softmax.h"
#include "backends/cpu/kernels/attention_tiles.h"

#include <math.h>

#if defined(TILES)
enum { PAIRS_PER_PANEL = PANEL / 2 };

/* Key panels whose probs are collected, in one half of p->probs, before they are multiplied by
 * values. */
struct key_group {
    size_t first, count, half;
};

struct forward_state {
    const struct attention_mask *mask;
    struct key_group softmax_group, pv_group;
    float *pending;    /* destination of the accumulators that the tiles hold */
    size_t head_panel; /* of pv_group's head panels, the next to multiply */

    /* initial accumulators of scores */
    float neg_row_max[PANEL] __attribute__((aligned(64)));
};

static inline float *scores_of(const struct tiles_forward *p, size_t key)
{
    return p->scores + key % 2 * MICRO_TILE;
}
static inline char *probs_of(const struct tiles_forward *p, struct key_group g)
{
    return p->probs + g.half * FORWARD_GROUP * KSTEP_BYTES;
}

static struct tile_matmul scores_matmul(const struct tiles_forward *p,
                                        const struct forward_state *state, size_t key)
{
    return (struct tile_matmul){.left = p->keys + key * p->head_panels * KSTEP_BYTES,
                                .right = p->queries,
                                .left_step = KSTEP_BYTES,
                                .right_step = KSTEP_BYTES,
                                .right_l1 = true,
                                .steps = p->head_panels,
                                .init = state->neg_row_max,
                                .broadcast_row = true,
                                .to = scores_of(p, key)};
}

/* What a group of key panels, whose probs are contiguous, adds to 32 of K of out. */
static struct tile_matmul pv_matmul(const struct tiles_forward *p, struct key_group g,
                                    size_t head_panel)
{
    float *out = p->out + head_panel * MICRO_TILE;
    return (struct tile_matmul){.left = p->values +
                                        (head_panel * p->key_panels + g.first) * KSTEP_BYTES,
                                .right = probs_of(p, g),
                                .left_step = KSTEP_BYTES,
                                .right_step = KSTEP_BYTES,
                                .right_l1 = true,
                                .steps = g.count,
                                .init = out,
                                .to = out};
}

static void finish_pv(const struct tiles_forward *p, struct forward_state *state,
                      struct key_group g, size_t head_panel)
{
    for (; g.count && head_panel < p->head_panels; head_panel++) {
        struct tile_matmul x = pv_matmul(p, g, head_panel);
        tile_matmul_run(&x, &state->pending);
    }
}

static void flush_tiles(const struct tiles_forward *p, struct forward_state *state)
{
    tile_matmul_flush(&state->pending, p->scores + 2 * MICRO_TILE);
}

static void compute_scores(const struct tiles_forward *p, struct forward_state *state, size_t key)
{
    struct tile_matmul x = scores_matmul(p, state, key);
    tile_matmul_run(&x, &state->pending);
    flush_tiles(p, state);
}

/* Multiplies all collected probs by their values; the softmax group starts again, empty. */
static void drain_groups(const struct tiles_forward *p, struct forward_state *state)
{
    finish_pv(p, state, state->pv_group, state->head_panel);
    finish_pv(p, state, state->softmax_group, 0);
    flush_tiles(p, state);
    state->pv_group.count = 0;
    state->softmax_group.first += state->softmax_group.count, state->softmax_group.count = 0;
}

/* Recomputes a panel's scores, raises row max to their maximum, makes the scores relative to it,
 * and rescales sums and out. */
static void update_row_max(struct tiles_forward *p, struct forward_state *state, size_t key,
                           bool has_sums)
{
    float *scores = scores_of(p, key), row_max[PANEL], rescale[PANEL];
    memset(state->neg_row_max, 0, sizeof state->neg_row_max);
    compute_scores(p, state, key);
    attention_mask_apply(state->mask, key, scores);
    memcpy(row_max, p->row_max, sizeof row_max);
    for (size_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++)
            row_max[i] = scores[k * PANEL + i] > row_max[i] ? scores[k * PANEL + i] : row_max[i];
    for (size_t k = 0; k < PANEL; k++)
#pragma omp simd
        for (size_t i = 0; i < PANEL; i++) scores[k * PANEL + i] -= row_max[i];
    for (size_t i = 0; has_sums && i < PANEL; i++)
        p->sum[i] *= rescale[i] = exp2f((p->row_max[i] - row_max[i]) * p->scale_log2);
    for (size_t i = 0; i < PANEL; i++)
        p->row_max[i] = row_max[i], state->neg_row_max[i] = -row_max[i];
    for (size_t k = 0; has_sums && k < p->head_panels * PANEL; k++)
        for (size_t i = 0; i < PANEL; i++) p->out[k * PANEL + i] *= rescale[i];
}

static inline void softmax_until(struct softmax_lanes *s, const float *scores, char *probs,
                                 size_t *done, size_t until)
{
    for (; *done < until; ++*done) softmax_keys(s, scores + 2 * *done * PANEL, probs + *done * 64);
}

/* Recomputes a panel's probs with a higher row max, and the next panel's scores, which started from
 * the old one.  What still overflows is NaN. */
static void redo_softmax(struct tiles_forward *p, struct forward_state *state, size_t key,
                         bool has_next, float *sum)
{
    size_t done = 0;
    drain_groups(p, state);
    update_row_max(p, state, key, true);
    struct softmax_lanes s = softmax_begin(p->scale_log2);
    softmax_until(&s, scores_of(p, key), probs_of(p, state->softmax_group), &done, PAIRS_PER_PANEL);
    uint32_t overflow = softmax_end(&s, sum);
    for (int q = 0; q < PANEL; q++)
        if (overflow >> q & 1) sum[q] = NAN;
    if (has_next) compute_scores(p, state, key + 1);
}

/* Probs of one key panel, interleaved with the tile products of the next panel's scores and of
 * earlier values. */
static void softmax_panel(struct tiles_forward *p, struct forward_state *state, size_t key,
                          bool has_next)
{
    size_t part = (state->softmax_group.count + 1) * p->head_panels, tile_steps = 0, done = 0;
    size_t until =
        state->pv_group.count ? (part + FORWARD_GROUP - 1) / FORWARD_GROUP : state->head_panel;
    bool has_pv = until > state->head_panel;
    size_t total = (has_next ? p->head_panels : 0) +
                   (has_pv ? until - state->head_panel : 0) * state->pv_group.count;
    const float *scores = scores_of(p, key);
    char *probs = probs_of(p, state->softmax_group) + state->softmax_group.count * KSTEP_BYTES;
    struct softmax_lanes s = softmax_begin(p->scale_log2);
    while (tile_steps < total) {
        struct tile_matmul x = has_next && !tile_steps
                                   ? scores_matmul(p, state, key + 1)
                                   : pv_matmul(p, state->pv_group, state->head_panel++);
        for (size_t i = 0; i < x.steps; i++) {
            tile_matmul_step(&x, i, &state->pending);
            softmax_until(&s, scores, probs, &done, PAIRS_PER_PANEL * ++tile_steps / total);
        }
    }
    softmax_until(&s, scores, probs, &done, PAIRS_PER_PANEL);
    if (!has_pv) flush_tiles(p, state);
    float sum[PANEL];
    if (softmax_end(&s, sum)) redo_softmax(p, state, key, has_next, sum);
    for (size_t q = 0; q < PANEL; q++) p->sum[q] += sum[q];
}

void KERNEL(attention_tiles_forward)(struct tiles_forward *p, const struct attention_mask *s,
                                     size_t begin, size_t end)
{
    struct forward_state state = {
        .mask = s, .softmax_group = {.first = begin}, .pending = p->scores + 2 * MICRO_TILE};
    p->headroom = SOFTMAX_HEADROOM - 1;
    if (begin >= end) return;
    update_row_max(p, &state, begin, false);
    for (size_t key = begin; key < end; key++) {
        if (key > begin) attention_mask_apply(s, key, scores_of(p, key));
        attention_prefetch_rows(&p->prefetch, 4);
        softmax_panel(p, &state, key, key + 1 < end);
        if (++state.softmax_group.count < FORWARD_GROUP) continue;
        finish_pv(p, &state, state.pv_group, state.head_panel);
        state.pv_group = state.softmax_group, state.head_panel = 0;
        state.softmax_group = (struct key_group){key + 1, 0, !state.pv_group.half};
    }
    drain_groups(p, &state);
}
#else
void KERNEL(attention_tiles_forward)(struct tiles_forward *p, const struct attention_mask *s,
                                     size_t begin, size_t end)
{
    (void)p, (void)s, (void)begin, (void)end;
    BUG_IF(true);
}
#endif
