// SPDX-License-Identifier: Apache-2.0
#include "model/decode.h"

#include "model/block.h"
#include "model/embed.h"
#include "model/head.h"
#include "model/qk_norm.h"
#include "model/residual.h"
#include "model/unit.h"
#include "ops/attention.h"
#include "ops/bias.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <limits.h>

enum status decode_init_cache(struct kv_cache *c, const struct model *m, int B, int capacity,
                              struct arena *run)
{
    size_t rows, tokens;
    if (B < 1 || B > KV_CACHE_ROWS || capacity < 1 || capacity > m->max_tokens ||
        __builtin_mul_overflow((size_t)B, (size_t)m->shape.L, &rows) ||
        __builtin_mul_overflow(rows, (size_t)capacity, &tokens))
        FAIL(SHAPE, "a KV cache of %d rows of %d tokens: expected 1 to %d rows of 1 to %d tokens",
             B, capacity, KV_CACHE_ROWS, m->max_tokens);
    size_t each = (size_t)m->shape.G * (size_t)m->shape.K * dtype_bytes(m->dtype);
    *c = (struct kv_cache){.B = B, .capacity = capacity};
    c->k_LBSGK = arena_alloc(run, tokens, each);
    c->v_LBSGK = arena_alloc(run, tokens, each);
    return STATUS_OK;
}

/* The new tokens of some rows, on their way through the blocks. */
struct decoder {
    const struct model *m;
    const struct kv_cache *c;
    const int32_t *ids_RT;
    int R, T;
    const int *rows_R; /* NULL: all rows of the cache */
    bool causal;
    struct activations a;
    const int32_t *lists; /* [LISTS][R], in device memory, if is_batched */
};

/* Of one token a row: its position, and the keys [start, end) that it attends to. */
enum list { POSITIONS, STARTS, ENDS, LISTS };

/* From the i-th row on; NULL in a sizing pass. */
static const int32_t *list_from(const struct decoder *d, enum list list, int i)
{
    return d->lists ? d->lists + (size_t)list * (size_t)d->R + (size_t)i : NULL;
}

/* Whether operations process the tokens of all rows together. */
static bool is_batched(const struct decoder *d) { return d->T == 1 && d->R > 1; }

/* The cache's row of the i-th row. */
static int cache_row(const struct decoder *d, int i) { return d->rows_R ? d->rows_R[i] : i; }

static enum status multiply(const struct model *m, struct linear op, const void *x, const void *w,
                            void *y)
{
    op.D = m->shape.D, op.dtype = m->dtype;
    TRY(linear_forward(m->ops, &op, &(struct linear_fwd){.x_ND = x, .w_FD = w, .y_NF = y},
                       m->queue));
    return STATUS_OK;
}

/* Rotates x, dense, of the tokens of all rows, or of one row of this length. */
static enum status apply_rope(const struct decoder *d, int length, int heads, void *x)
{
    const struct model *m = d->m;
    struct rope op = {.B = is_batched(d) ? d->R : 1,
                      .T = d->T,
                      .H = heads,
                      .K = m->shape.K,
                      .J = model_shape_rotary_pairs(&m->shape),
                      .first = length,
                      .stride = (size_t)heads * (size_t)m->shape.K,
                      .dtype = m->dtype};
    struct rope_io io = {x, m->rope_cos, m->rope_sin, list_from(d, POSITIONS, 0)};
    TRY(rope(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* The biases of queries, keys and values, if the model has them. */
static enum status add_biases(const struct decoder *d, int layer, int tokens, void *const qkv[3])
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    for (int i = 0; i < 3 && s->qkv_bias; i++) {
        struct bias op = {tokens, (i ? s->G : s->H) * s->K, m->dtype};
        struct bias_fwd io = {unit_weight(m, (enum param_id)(PARAM_q_bias + i), layer), qkv[i]};
        TRY(bias_forward(m->ops, &op, &io, m->queue));
    }
    return STATUS_OK;
}

/* Queries, keys and values of tokens of the normalized input, normalized and rotated. */
static enum status project_qkv(const struct decoder *d, int layer, int length, const void *x,
                               void *const qkv[3])
{
    const struct model_shape *s = &d->m->shape;
    int tokens = is_batched(d) ? d->R : d->T;
    struct linear queries = {.N = tokens, .F = s->H * s->K}, keys = {.N = tokens, .F = s->G * s->K};
    TRY(multiply(d->m, queries, x, unit_weight(d->m, PARAM_attn_q, layer), qkv[0]));
    TRY(multiply(d->m, keys, x, unit_weight(d->m, PARAM_attn_k, layer), qkv[1]));
    TRY(multiply(d->m, keys, x, unit_weight(d->m, PARAM_attn_v, layer), qkv[2]));
    TRY(add_biases(d, layer, tokens, qkv));
    struct qk_norm norm = {layer,
                           tokens,
                           {qkv[0], qkv[1]},
                           {qkv[0], qkv[1]},
                           {(size_t)s->H * (size_t)s->K, (size_t)s->G * (size_t)s->K},
                           d->a.qk_rstd_NR};
    if (s->qk_norm) TRY(qk_norm_forward(d->m, &norm));
    if (!model_shape_has_rope(s, layer)) return STATUS_OK;
    TRY(apply_rope(d, length, s->H, qkv[0]));
    TRY(apply_rope(d, length, s->G, qkv[1]));
    return STATUS_OK;
}

/* Where the keys and values of the i-th row begin in the cache: an element of it. */
static size_t cache_begin(const struct decoder *d, int layer, int i)
{
    const struct kv_cache *c = d->c;
    size_t P = (size_t)d->m->shape.G * (size_t)d->m->shape.K;
    return ((size_t)layer * (size_t)c->B + (size_t)cache_row(d, i)) * (size_t)c->capacity * P;
}

/* Of tokens whose queries are dense, and whose keys are in the cache. */
static struct attention attention_of(const struct decoder *d)
{
    const struct model_shape *s = &d->m->shape;
    return (struct attention){.T = d->T,
                              .H = s->H,
                              .G = s->G,
                              .K = s->K,
                              .q_stride = (size_t)s->H * (size_t)s->K,
                              .kv_stride = (size_t)s->G * (size_t)s->K,
                              .scale = model_shape_attention_scale(s),
                              .dtype = d->m->dtype};
}

/* --- one row --------------------------------------------------------------------------------- */

/* The GEMMs write keys and values directly to the cache. */
static enum status attend_row(const struct decoder *d, int layer, int i)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    const struct kv_cache *c = d->c;
    int length = c->length[cache_row(d, i)];
    size_t P = (size_t)s->G * (size_t)s->K, Q = (size_t)s->H * (size_t)s->K;
    size_t token = (size_t)i * (size_t)d->T;
    size_t cached = cache_begin(d, layer, i), new = cached + (size_t)length *P;
    void *k = element(c->k_LBSGK, new, m->dtype), *v = element(c->v_LBSGK, new, m->dtype);
    void *q = d->a.qkv_NC;
    const void *x = element(d->a.norm1_ND, token * (size_t)s->D, m->dtype);
    TRY(project_qkv(d, layer, length, x, (void *const[]){q, k, v}));
    struct attention op = attention_of(d);
    op.B = 1, op.S = length + d->T, op.causal = d->causal, op.window = d->causal ? s->window : 0;
    struct attention_fwd io = {.q_BTHK = q,
                               .k_BSGK = element(c->k_LBSGK, cached, m->dtype),
                               .v_BSGK = element(c->v_LBSGK, cached, m->dtype),
                               .out_BTHK = element(d->a.attended_NQ, token * Q, m->dtype),
                               .lse_BHT = d->a.lse_BHT};
    TRY(attention_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* --- a token of each row --------------------------------------------------------------------- */

static enum status alloc_lists(struct decoder *d, struct arena *step)
{
    int32_t lists[LISTS * KV_CACHE_ROWS];
    size_t R = (size_t)d->R;
    int window = d->m->shape.window;
    for (int i = 0; i < d->R; i++) {
        int length = d->c->length[cache_row(d, i)];
        lists[POSITIONS * R + (size_t)i] = length;
        lists[STARTS * R + (size_t)i] = window && length >= window ? length + 1 - window : 0;
        lists[ENDS * R + (size_t)i] = length + 1;
    }
    int32_t *to = arena_alloc(step, LISTS * R, sizeof *to);
    d->lists = to;
    TRY(queue_copy(d->m->queue, to, lists, LISTS * R * sizeof *to));
    return STATUS_OK;
}

/* The GEMMs read the weights once for all rows; then keys and values are copied to the cache. */
static enum status project_rows(const struct decoder *d, int layer, void *q)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    size_t R = (size_t)d->R, P = (size_t)s->G * (size_t)s->K, Q = (size_t)s->H * (size_t)s->K;
    size_t bytes = P * dtype_bytes(m->dtype);
    void *k = element(q, R * Q, m->dtype), *v = element(k, R * P, m->dtype);
    TRY(project_qkv(d, layer, 0, d->a.norm1_ND, (void *const[]){q, k, v}));
    for (int i = 0; i < d->R; i++) {
        size_t to = cache_begin(d, layer, i) + (size_t)d->c->length[cache_row(d, i)] * P;
        const void *new_k = element(k, (size_t)i * P, m->dtype);
        const void *new_v = element(v, (size_t)i * P, m->dtype);
        TRY(queue_copy(m->queue, element(d->c->k_LBSGK, to, m->dtype), new_k, bytes));
        TRY(queue_copy(m->queue, element(d->c->v_LBSGK, to, m->dtype), new_v, bytes));
    }
    return STATUS_OK;
}

/* Rows that are neighbors in the cache are sequences of one attention, whose masks are as long as
 * the rows. */
static enum status attend_rows(const struct decoder *d, int layer)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    const struct kv_cache *c = d->c;
    size_t Q = (size_t)s->H * (size_t)s->K;
    TRY(project_rows(d, layer, d->a.qkv_NC));
    for (int first = 0, end; first < d->R; first = end) {
        for (end = first + 1; end < d->R; end++)
            if (cache_row(d, end) != cache_row(d, end - 1) + 1) break;
        size_t token = (size_t)first, cached = cache_begin(d, layer, first);
        struct attention op = attention_of(d);
        op.B = end - first, op.S = c->capacity;
        struct attention_fwd io = {.q_BTHK = element(d->a.qkv_NC, token * Q, m->dtype),
                                   .k_BSGK = element(c->k_LBSGK, cached, m->dtype),
                                   .v_BSGK = element(c->v_LBSGK, cached, m->dtype),
                                   .start_BT = list_from(d, STARTS, first),
                                   .end_BT = list_from(d, ENDS, first),
                                   .out_BTHK = element(d->a.attended_NQ, token * Q, m->dtype),
                                   .lse_BHT = d->a.lse_BHT};
        TRY(attention_forward(m->ops, &op, &io, m->queue));
    }
    return STATUS_OK;
}

/* --- blocks ---------------------------------------------------------------------------------- */

/* The input of attention: the stream, normalized unless the norms are behind. */
static enum status attention_input(const struct decoder *d, int layer, int N)
{
    const struct model *m = d->m;
    const struct activations *a = &d->a;
    struct rmsnorm norm = {
        .N = N, .D = m->shape.D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    if (m->shape.post_norm) return residual_copy(m, (size_t)N, a->x_SD, a->norm1_ND, 1);
    struct rmsnorm_fwd io = {a->x_SD, unit_weight(m, PARAM_attn_norm, layer), a->norm1_ND,
                             a->rstd1_S, NULL};
    TRY(rmsnorm_forward(m->ops, &norm, &io, m->queue));
    return STATUS_OK;
}

/* x += attention(norm(x)); x += mlp(norm(x)) */
static enum status run_block(const struct decoder *d, int layer)
{
    const struct model *m = d->m;
    const struct activations *a = &d->a;
    int N = d->R * d->T;
    struct block_call block = {m, layer, (size_t)N, a};
    TRY(unit_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    TRY(attention_input(d, layer, N));
    TRY(residual_cross(m, ATTN_IN, FORWARD, a->norm1_ND, (size_t)N));
    if (is_batched(d)) TRY(attend_rows(d, layer));
    for (int i = 0; i < d->R && !is_batched(d); i++) TRY(attend_row(d, layer, i));
    TRY(block_add_attention(&block, a->x_SD));
    TRY(block_add_mlp(&block, a->x_SD));
    TRY(unit_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    return STATUS_OK;
}

/* All blocks, to d->a.x_SD. */
static enum status run_blocks(struct decoder *d, struct arena *step)
{
    const struct model *m = d->m;
    struct microbatch b = {.B = d->R, .T = d->T};
    struct activations *a = &d->a;
    size_t N = (size_t)b.B * (size_t)b.T;
    int32_t *ids = arena_alloc(step, N, sizeof *ids);
    TRY(queue_copy(m->queue, ids, d->ids_RT, N * sizeof *ids));
    b.ids_BT = ids;
    if (is_batched(d)) TRY(alloc_lists(d, step));
    activations_alloc_shared(m, N, RECOMPUTE_FULL, a, step);
    a->x_SD = a->middle_SD;
    TRY(embed_forward(m, &b, a->gathered_ND, a->x_SD));
    for (int layer = 0; layer < m->shape.L; layer++) TRY(run_block(d, layer));
    return STATUS_OK;
}

/* --- logits ---------------------------------------------------------------------------------- */

/* Gathers the slices of the vocabulary and concatenates them row by row, without their padding. */
static enum status gather_logits(const struct model *m, size_t rows, float *slices_PBV, float *to)
{
    size_t V = (size_t)m->shape.V, slices = (size_t)m->plan->parts;
    int columns = model_shape_vocab(&m->shape, m->shape.slice).rows;
    struct crossing c = {slices_PBV, (int)(slices * rows), columns, F32};
    TRY(m->plan->cross(m->plan, LOSS, FORWARD, &c, m->queue));
    for (size_t p = 0; p < slices; p++) {
        struct vocab_slice vocab = model_shape_vocab(&m->shape, (int)p);
        struct cast op = {.n = (size_t)vocab.tokens};
        for (size_t row = 0; row < rows; row++) {
            struct cast_io io = {element(slices_PBV, (p * rows + row) * (size_t)columns, F32),
                                 element(to, row * V + (size_t)vocab.first, F32)};
            TRY(cast(m->ops, &op, &io, m->queue));
        }
    }
    return STATUS_OK;
}

/* Logits of `rows` normalized tokens, copied to the host. */
static enum status project_logits(const struct model *m, size_t rows, const void *y_BD, float *to,
                                  struct arena *step)
{
    size_t V = (size_t)m->shape.V, slices = (size_t)m->plan->parts;
    size_t columns = (size_t)model_shape_vocab(&m->shape, m->shape.slice).rows, n = rows * columns;
    float *logits = arena_alloc(step, rows * V, sizeof *logits);
    bool apart = slices > 1 || columns > V;
    float *gathered = apart ? arena_alloc(step, slices * n, sizeof *gathered) : logits;
    float *local = element(gathered, (size_t)m->plan->part * n, F32);
    void *half = m->dtype == F32 ? local : arena_alloc(step, n, dtype_bytes(m->dtype));
    struct linear op = {.N = (int)rows, .F = (int)columns};
    TRY(multiply(m, op, y_BD, unit_weight(m, head_param(m), -1), half));
    struct cast widen = {.n = n, .from = m->dtype, .to = F32};
    if (m->dtype != F32) TRY(cast(m->ops, &widen, &(struct cast_io){half, local}, m->queue));
    if (apart) TRY(gather_logits(m, rows, gathered, logits));
    TRY(queue_copy(m->queue, to, logits, rows * V * sizeof *to));
    return STATUS_OK;
}

/* Logits of `count` tokens: those at `positions`, or if NULL the last one of each row. */
static enum status run_head(const struct decoder *d, const int32_t *positions, size_t count,
                            float *logits, struct arena *step)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    const struct activations *a = &d->a;
    TRY(unit_open(m, PARAM_last_norm, -1, USE_WEIGHTS));
    struct rmsnorm norm = {.N = 1, .D = s->D, .eps = (float)s->norm_eps, .dtype = m->dtype};
    for (size_t i = 0; i < count; i++) {
        size_t D = (size_t)s->D;
        size_t token = positions ? (size_t)positions[i] : (i + 1) * (size_t)d->T - 1;
        struct rmsnorm_fwd io = {
            element(a->x_SD, token * D, m->dtype), unit_weight(m, PARAM_last_norm, -1),
            element(a->norm1_ND, i * D, m->dtype), element(a->rstd1_S, i, F32), NULL};
        TRY(rmsnorm_forward(m->ops, &norm, &io, m->queue));
    }
    TRY(head_scale(m, a->norm1_ND, count));
    TRY(residual_cross(m, HEAD_IN, FORWARD, a->norm1_ND, count));
    if (s->tied) TRY(unit_open(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(project_logits(m, count, a->norm1_ND, logits, step));
    if (s->tied) TRY(unit_close(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(unit_close(m, PARAM_last_norm, -1, USE_WEIGHTS));
    return STATUS_OK;
}

enum status decode_next(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                        struct arena *step)
{
    struct decoder d = {m,     c,          io->ids_RT,    io->rows_R ? io->R : c->B,
                        io->T, io->rows_R, .causal = true};
    if (d.R < 1 || d.R > c->B)
        FAIL(SHAPE, "cannot append to %d rows of a KV cache of %d", d.R, c->B);
    for (int i = 0; i < d.R; i++) {
        int row = cache_row(&d, i);
        if (row < 0 || row >= c->B)
            FAIL(SHAPE, "a KV cache of %d rows does not have row %d", c->B, row);
        if (io->T < 1 || io->T > c->capacity - c->length[row])
            FAIL(SHAPE, "cannot append %d tokens to row %d: the KV cache holds %d of %d", io->T,
                 row, c->length[row], c->capacity);
    }
    if (io->T > INT_MAX / d.R) FAIL(SHAPE, "%d rows of %d tokens are too many", d.R, io->T);
    size_t mark = arena_mark(step);
    TRY(run_blocks(&d, step));
    TRY(run_head(&d, NULL, (size_t)d.R, io->logits_RV, step));
    for (int i = 0; i < d.R; i++) c->length[cache_row(&d, i)] += io->T;
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status decode_prefill(const struct model *m, struct kv_cache *c, const struct decode_prompt *p,
                           struct arena *step)
{
    size_t chunk = (size_t)p->chunk;
    for (size_t at = 0; at < p->N; at += chunk) {
        size_t left = p->N - at;
        struct decode_io io = {p->ids_N + at, (int)(left < chunk ? left : chunk), p->logits_V,
                               &p->row, 1};
        TRY(decode_next(m, c, &io, step));
    }
    return STATUS_OK;
}

enum status decode_size_rows(const struct model *m, struct kv_cache *c, int T, int R,
                             struct arena *step)
{
    int rows[KV_CACHE_ROWS];
    for (int i = 0; i < R; i++) rows[i] = i, c->length[i] = c->capacity - T;
    struct decode_io io = {.T = T, .rows_R = rows, .R = R};
    TRY(decode_next(m, c, &io, step));
    memset(c->length, 0, sizeof c->length);
    return STATUS_OK;
}

enum status decode_size_chunks(const struct model *m, struct kv_cache *c, int T, struct arena *step)
{
    enum { EACH = 8 }; /* every length up to this; then, between powers of two, the longest */
    for (int t = 1; t < T; t = t < EACH ? t + 1 : 2 * t) TRY(decode_size_rows(m, c, t, 1, step));
    TRY(decode_size_rows(m, c, T, 1, step));
    return STATUS_OK;
}

enum status decode_masked(const struct model *m, const struct kv_cache *c,
                          const struct decode_masked_io *io, struct arena *step)
{
    if (c->B != 1 || c->length[0] || io->T < 1 || io->T > c->capacity || io->P < 1 || io->P > io->T)
        FAIL(SHAPE,
             "%d masked tokens in a row of %d: expected 1 to %d, and an empty KV cache of one row "
             "that can hold them; it has %d rows and holds %d of %d tokens",
             io->P, io->T, io->T, c->B, c->length[0], c->capacity);
    for (int i = 0; i < io->P; i++)
        if (io->positions_P[i] < 0 || io->positions_P[i] >= io->T)
            FAIL(SHAPE, "masked position %d is outside the row of %d tokens", io->positions_P[i],
                 io->T);
    size_t mark = arena_mark(step);
    struct decoder d = {m, c, io->ids_T, 1, io->T, .causal = false};
    TRY(run_blocks(&d, step));
    TRY(run_head(&d, io->positions_P, (size_t)io->P, io->logits_PV, step));
    arena_reset(step, mark);
    return STATUS_OK;
}
