// SPDX-License-Identifier: Apache-2.0
#include "model/model.h"

#include "model/head.h"
#include "model/pass.h"
#include "ops/attention.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <math.h>

enum status kv_cache_init(struct kv_cache *c, const struct model *m, int B, int capacity,
                          struct arena *run)
{
    size_t rows, tokens;
    if (B < 1 || capacity < 1 || capacity > m->max_tokens ||
        __builtin_mul_overflow((size_t)B, (size_t)m->shape.L, &rows) ||
        __builtin_mul_overflow(rows, (size_t)capacity, &tokens))
        FAIL(SHAPE, "a cache of %d rows of %d tokens: at least 1 of 1..%d", B, capacity,
             m->max_tokens);
    size_t each = (size_t)m->shape.G * (size_t)m->shape.K * dtype_bytes(m->dtype);
    *c = (struct kv_cache){.B = B, .capacity = capacity};
    c->k_LBSGK = arena_take(run, tokens, each);
    c->v_LBSGK = arena_take(run, tokens, each);
    return STATUS_OK;
}

/* What one row of the batch is at in one layer. */
struct place {
    const struct model *m;
    const struct kv_cache *c;
    int layer, row, T;
    bool causal;
};

static enum status multiply(const struct model *m, int N, int F, const void *x, const void *w,
                            void *y)
{
    struct linear what = {.N = N, .D = m->shape.D, .F = F, .dtype = m->dtype};
    TRY(linear_forward(m->ops, &what, &(struct linear_fwd){.x_ND = x, .w_FD = w, .y_NF = y},
                       m->on));
    return STATUS_OK;
}

static enum status rotate(const struct place *p, int heads, void *x)
{
    const struct model *m = p->m;
    struct rope what = {.B = 1,
                        .T = p->T,
                        .H = heads,
                        .K = m->shape.K,
                        .first = p->c->length,
                        .stride = (size_t)heads * (size_t)m->shape.K,
                        .dtype = m->dtype};
    TRY(rope(m->ops, &what, &(struct rope_io){x, m->rope_cos, m->rope_sin}, m->on));
    return STATUS_OK;
}

/* Keys and values go straight to their place in the cache; q_TQ and out_TQ are the row's. */
static enum status attend(const struct place *p, const void *norm_TD, void *q_TQ, void *out_TQ,
                          float *lse_HT)
{
    const struct model *m = p->m;
    const struct model_shape *s = &m->shape;
    const struct kv_cache *c = p->c;
    size_t P = (size_t)s->G * (size_t)s->K;
    size_t row = ((size_t)p->layer * (size_t)c->B + (size_t)p->row) * (size_t)c->capacity * P;
    size_t here = row + (size_t)c->length * P;
    void *k = element(c->k_LBSGK, here, m->dtype), *v = element(c->v_LBSGK, here, m->dtype);
    TRY(multiply(m, p->T, s->H * s->K, norm_TD, model_weight(m, PARAM_attn_q, p->layer), q_TQ));
    TRY(multiply(m, p->T, s->G * s->K, norm_TD, model_weight(m, PARAM_attn_k, p->layer), k));
    TRY(multiply(m, p->T, s->G * s->K, norm_TD, model_weight(m, PARAM_attn_v, p->layer), v));
    TRY(rotate(p, s->H, q_TQ));
    TRY(rotate(p, s->G, k));
    struct attention what = {.B = 1,
                             .T = p->T,
                             .S = c->length + p->T,
                             .H = s->H,
                             .G = s->G,
                             .K = s->K,
                             .q_stride = (size_t)s->H * (size_t)s->K,
                             .kv_stride = P,
                             .scale = 1 / sqrtf((float)s->K),
                             .causal = p->causal,
                             .dtype = m->dtype};
    struct attention_fwd io = {.q_BTHK = q_TQ,
                               .k_BSGK = element(c->k_LBSGK, row, m->dtype),
                               .v_BSGK = element(c->v_LBSGK, row, m->dtype),
                               .out_BTHK = out_TQ,
                               .lse_BHT = lse_HT};
    TRY(attention_forward(m->ops, &what, &io, m->on));
    return STATUS_OK;
}

/* x += attention(norm(x)); x += mlp(norm(x)) */
static enum status block(const struct model *m, const struct kv_cache *c, int layer, int T,
                         bool causal, const struct activations *a)
{
    const struct model_shape *s = &m->shape;
    int N = c->B * T, Q = s->H * s->K;
    TRY(model_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    struct rmsnorm norm = {.N = N, .D = s->D, .eps = (float)s->norm_eps, .dtype = m->dtype};
    struct rmsnorm_fwd norm_io = {a->x_SD, model_weight(m, PARAM_attn_norm, layer), a->norm1_ND,
                                  a->rstd1_S, NULL};
    TRY(rmsnorm_forward(m->ops, &norm, &norm_io, m->on));
    TRY(model_cross(m, ATTN_IN, FORWARD, a->norm1_ND, (size_t)N, s->D));
    for (int row = 0; row < c->B; row++) {
        struct place p = {m, c, layer, row, T, causal};
        size_t first = (size_t)row * (size_t)T;
        TRY(attend(&p, element(a->norm1_ND, first * (size_t)s->D, m->dtype), a->qkv_NC,
                   element(a->attended_NQ, first * (size_t)Q, m->dtype), a->lse_BHT));
    }
    TRY(block_join(m, (size_t)N, layer, a, a->x_SD));
    TRY(block_mlp(m, N, layer, a, a->x_SD));
    TRY(model_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    return STATUS_OK;
}

/* What each part of the vocabulary has for the rows, side by side. */
static enum status join_logits(const struct model *m, size_t rows, float *parts_PBV, float *to)
{
    size_t V = (size_t)m->shape.V, parts = (size_t)m->plan->parts;
    struct crossing c = {parts_PBV, (int)(parts * rows), m->shape.V, F32};
    struct cast piece = {.n = V};
    TRY(m->plan->cross(m->plan, LOSS, FORWARD, &c, m->on));
    for (size_t p = 0; p < parts; p++)
        for (size_t row = 0; row < rows; row++) {
            struct cast_io io = {element(parts_PBV, (p * rows + row) * V, F32),
                                 element(to, (row * parts + p) * V, F32)};
            TRY(cast(m->ops, &piece, &io, m->on));
        }
    return STATUS_OK;
}

static enum status logits_of(const struct model *m, size_t rows, const void *y_BD, float *to,
                             struct arena *step)
{
    size_t n = rows * (size_t)m->shape.V, parts = (size_t)m->plan->parts;
    float *joined = arena_take(step, parts * n, sizeof *joined);
    float *all = parts > 1 ? arena_take(step, parts * n, sizeof *all) : joined;
    float *here = element(all, (size_t)m->plan->part * n, F32);
    void *logits = m->dtype == F32 ? here : arena_take(step, n, dtype_bytes(m->dtype));
    TRY(multiply(m, (int)rows, m->shape.V, y_BD, model_weight(m, head_param(m), -1), logits));
    struct cast what = {.n = n, .from = m->dtype, .to = F32};
    if (m->dtype != F32) TRY(cast(m->ops, &what, &(struct cast_io){logits, here}, m->on));
    if (parts > 1) TRY(join_logits(m, rows, all, joined));
    TRY(queue_copy(m->on, to, joined, parts * n * sizeof *to));
    return STATUS_OK;
}

/* Logits of so many tokens: of those at `places`, or of the last of each row of T. */
static enum status logits_at(const struct model *m, const int32_t *places, int T, size_t count,
                             const struct activations *a, float *logits_PV, struct arena *step)
{
    const struct model_shape *s = &m->shape;
    size_t D = (size_t)s->D;
    TRY(model_open(m, PARAM_last_norm, -1, USE_WEIGHTS));
    struct rmsnorm norm = {.N = 1, .D = s->D, .eps = (float)s->norm_eps, .dtype = m->dtype};
    for (size_t i = 0; i < count; i++) {
        size_t place = places ? (size_t)places[i] : (i + 1) * (size_t)T - 1;
        struct rmsnorm_fwd io = {
            element(a->x_SD, place * D, m->dtype), model_weight(m, PARAM_last_norm, -1),
            element(a->norm1_ND, i * D, m->dtype), element(a->rstd1_S, i, F32), NULL};
        TRY(rmsnorm_forward(m->ops, &norm, &io, m->on));
    }
    TRY(model_cross(m, HEAD_IN, FORWARD, a->norm1_ND, count, s->D));
    if (s->tied) TRY(model_open(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(logits_of(m, count, a->norm1_ND, logits_PV, step));
    if (s->tied) TRY(model_close(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(model_close(m, PARAM_last_norm, -1, USE_WEIGHTS));
    return STATUS_OK;
}

/* T tokens of each row through all blocks, to a->x_SD. */
static enum status run_blocks(const struct model *m, const struct kv_cache *c,
                              const int32_t *ids_BT, int T, bool causal, struct activations *a,
                              struct arena *step)
{
    struct micro_batch b = {.B = c->B, .T = T};
    size_t N = (size_t)c->B * (size_t)T;
    int32_t *ids = arena_take(step, N, sizeof *ids);
    TRY(queue_copy(m->on, ids, ids_BT, N * sizeof *ids));
    b.ids_BT = ids;
    activations_share(m, N, RECOMPUTE_FULL, a, step);
    a->x_SD = a->middle_SD;
    TRY(model_embed(m, &b, a->wide_ND, a->x_SD));
    for (int layer = 0; layer < m->shape.L; layer++) TRY(block(m, c, layer, T, causal, a));
    return STATUS_OK;
}

enum status model_decode(const struct model *m, struct kv_cache *c, const int32_t *ids_BT, int T,
                         float *logits_BV, struct arena *step)
{
    int N;
    if (T < 1 || T > c->capacity - c->length || __builtin_mul_overflow(c->B, T, &N))
        FAIL(SHAPE, "%d more tokens in each of %d rows: the cache holds %d of %d", T, c->B,
             c->length, c->capacity);
    size_t mark = arena_mark(step);
    struct activations a;
    TRY(run_blocks(m, c, ids_BT, T, true, &a, step));
    TRY(logits_at(m, NULL, T, (size_t)c->B, &a, logits_BV, step));
    c->length += T;
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status model_fill(const struct model *m, const struct kv_cache *c, const int32_t *ids_T, int T,
                       const int32_t *places_P, int P, float *logits_PV, struct arena *step)
{
    if (c->B != 1 || c->length || T < 1 || T > c->capacity || P < 1 || P > T)
        FAIL(SHAPE, "%d of %d tokens to fill in: an empty cache of one row holds %d", P, T,
             c->capacity);
    for (int i = 0; i < P; i++)
        if (places_P[i] < 0 || places_P[i] >= T)
            FAIL(SHAPE, "place %d of %d tokens to fill in", places_P[i], T);
    size_t mark = arena_mark(step);
    struct activations a;
    TRY(run_blocks(m, c, ids_T, T, false, &a, step));
    TRY(logits_at(m, places_P, T, (size_t)P, &a, logits_PV, step));
    arena_reset(step, mark);
    return STATUS_OK;
}
