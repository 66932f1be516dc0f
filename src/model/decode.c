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
#include "ops/embedding.h"
#include "ops/kv_append.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum status decode_init_cache(struct kv_cache *c, const struct model *m, int B, int capacity,
                              struct arena *run)
{
    size_t rows, tokens;
    if (B < 1 || B > KV_CACHE_ROWS || capacity < 1 || capacity > m->max_tokens ||
        B > INT_MAX / capacity || __builtin_mul_overflow((size_t)B, (size_t)m->shape.L, &rows) ||
        __builtin_mul_overflow(rows, (size_t)capacity, &tokens))
        FAIL(SHAPE, "a KV cache of %d rows of %d tokens: expected 1 to %d rows of 1 to %d tokens",
             B, capacity, KV_CACHE_ROWS, m->max_tokens);
    size_t each = (size_t)m->shape.G * (size_t)m->shape.K * dtype_bytes(m->dtype);
    *c = (struct kv_cache){.B = B, .capacity = capacity};
    c->k_LBSGK = arena_alloc(run, tokens, each);
    c->v_LBSGK = arena_alloc(run, tokens, each);
    return STATUS_OK;
}

/* The new tokens of some rows, one row after the other, on their way through the blocks. */
struct decoder {
    const struct model *m;
    const struct kv_cache *c;
    const struct decode_row *rows_R;
    int R, N; /* rows, and tokens of all of them */
    bool causal;
    struct activations a;
    const int32_t *lists; /* [LISTS][N], in device memory */
};

/* For each token its id, its position, its slot in the cache (kv_append.h) and the keys [start,
 * end) that it attends to; and the tokens whose logits are computed. */
enum list { IDS, POSITIONS, SLOTS, STARTS, ENDS, LOGITS, LISTS };

/* From token n on; NULL in a sizing pass. */
static const int32_t *list_from(const struct decoder *d, enum list list, size_t n)
{
    return d->lists ? d->lists + (size_t)list * (size_t)d->N + n : NULL;
}

static void fill_row_lists(const struct decoder *d, int i, size_t first, int32_t *lists)
{
    const struct decode_row *row = &d->rows_R[i];
    int length = d->c->length[row->index], window = d->m->shape.window;
    for (int t = 0; t < row->T; t++) {
        int position = length + t, begin = window && position >= window ? position + 1 - window : 0;
        const int32_t values[] = {row->ids_T ? row->ids_T[t] : 0, position,
                                  row->index * d->c->capacity + position, begin, position + 1};
        int32_t *to = lists + first + (size_t)t;
        for (int list = 0; list < LOGITS; list++) to[(size_t)list * (size_t)d->N] = values[list];
    }
}

/* The logits are those of `count` tokens: at `positions`, or if NULL the last one of each row. */
static enum status alloc_lists(struct decoder *d, const int32_t *positions, size_t count,
                               struct arena *step)
{
    size_t N = (size_t)d->N, bytes = LISTS * N * sizeof(int32_t), first = 0;
    int32_t *lists = heap(bytes), *to = arena_alloc(step, LISTS * N, sizeof *to);
    memset(lists + LOGITS * N, 0, N * sizeof *lists);
    for (int i = 0; i < d->R; i++) {
        fill_row_lists(d, i, first, lists);
        first += (size_t)d->rows_R[i].T;
        if ((size_t)i < count) lists[LOGITS * N + (size_t)i] = (int32_t)first - 1;
    }
    for (size_t i = 0; positions && i < count; i++) lists[LOGITS * N + i] = positions[i];
    enum status st = queue_copy(d->m->queue, to, lists, bytes);
    d->lists = to;
    free(lists);
    return st;
}

static enum status multiply(const struct model *m, struct linear op, const void *x, const void *w,
                            void *y)
{
    op.D = m->shape.D, op.dtype = m->dtype;
    TRY(linear_forward(m->ops, &op, &(struct linear_fwd){.x_ND = x, .w_FD = w, .y_NF = y},
                       m->queue));
    return STATUS_OK;
}

/* Rotates x, dense.  The positions of one row follow each other. */
static enum status apply_rope(const struct decoder *d, int heads, void *x)
{
    const struct model *m = d->m;
    struct rope op = {.B = 1,
                      .T = d->N,
                      .H = heads,
                      .K = m->shape.K,
                      .J = model_shape_rotary_pairs(&m->shape),
                      .first = d->c->length[d->rows_R[0].index],
                      .stride = (size_t)heads * (size_t)m->shape.K,
                      .dtype = m->dtype};
    struct rope_io io = {x, m->rope_cos, m->rope_sin, d->R > 1 ? list_from(d, POSITIONS, 0) : NULL};
    TRY(rope(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* The biases of queries, keys and values, if the model has them. */
static enum status add_biases(const struct decoder *d, int layer, void *const qkv[3])
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    for (int i = 0; i < 3 && s->qkv_bias; i++) {
        struct bias op = {d->N, (i ? s->G : s->H) * s->K, m->dtype};
        struct bias_fwd io = {unit_weight(m, (enum param_id)(PARAM_q_bias + i), layer), qkv[i]};
        TRY(bias_forward(m->ops, &op, &io, m->queue));
    }
    return STATUS_OK;
}

/* Queries, keys and values of the normalized input, normalized and rotated. */
static enum status project_qkv(const struct decoder *d, int layer, void *const qkv[3])
{
    const struct model_shape *s = &d->m->shape;
    const void *x = d->a.norm1_ND;
    struct linear queries = {.N = d->N, .F = s->H * s->K}, keys = {.N = d->N, .F = s->G * s->K};
    TRY(multiply(d->m, queries, x, unit_weight(d->m, PARAM_attn_q, layer), qkv[0]));
    TRY(multiply(d->m, keys, x, unit_weight(d->m, PARAM_attn_k, layer), qkv[1]));
    TRY(multiply(d->m, keys, x, unit_weight(d->m, PARAM_attn_v, layer), qkv[2]));
    TRY(add_biases(d, layer, qkv));
    struct qk_norm norm = {layer,
                           d->N,
                           {qkv[0], qkv[1]},
                           {qkv[0], qkv[1]},
                           {(size_t)s->H * (size_t)s->K, (size_t)s->G * (size_t)s->K},
                           d->a.qk_rstd_NR};
    if (s->qk_norm) TRY(qk_norm_forward(d->m, &norm));
    if (!model_shape_has_rope(s, layer)) return STATUS_OK;
    TRY(apply_rope(d, s->H, qkv[0]));
    TRY(apply_rope(d, s->G, qkv[1]));
    return STATUS_OK;
}

/* The keys or values of a block in the cache, from a token of a row on. */
static void *cache_at(const struct decoder *d, void *kv_LBSGK, int layer, int row, int token)
{
    const struct kv_cache *c = d->c;
    size_t P = (size_t)d->m->shape.G * (size_t)d->m->shape.K;
    size_t at = ((size_t)layer * (size_t)c->B + (size_t)row) * (size_t)c->capacity + (size_t)token;
    return element(kv_LBSGK, at * P, d->m->dtype);
}

/* Writes keys and values to the cache: those of one row directly, since they are contiguous
 * there. */
static enum status append_keys(const struct decoder *d, int layer)
{
    const struct model *m = d->m;
    const struct kv_cache *c = d->c;
    int row = d->rows_R[0].index, length = c->length[row], P = m->shape.G * m->shape.K;
    size_t N = (size_t)d->N, Q = (size_t)m->shape.H * (size_t)m->shape.K;
    void *q = d->a.qkv_NC;
    if (d->R == 1) {
        void *k = cache_at(d, c->k_LBSGK, layer, row, length);
        void *v = cache_at(d, c->v_LBSGK, layer, row, length);
        return project_qkv(d, layer, (void *const[]){q, k, v});
    }
    void *k = element(q, N * Q, m->dtype), *v = element(k, N * (size_t)P, m->dtype);
    TRY(project_qkv(d, layer, (void *const[]){q, k, v}));
    struct kv_append op = {d->N, P, m->dtype};
    struct kv_append_io io = {k, v, list_from(d, SLOTS, 0), cache_at(d, c->k_LBSGK, layer, 0, 0),
                              cache_at(d, c->v_LBSGK, layer, 0, 0)};
    TRY(kv_append(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* Attention of rows [first, end), whose tokens begin at `token`: one row, or neighbors with one
 * token each, which are sequences of one call; bounds exclude the unused slots of each. */
static enum status attend(const struct decoder *d, int layer, int first, int end, size_t token)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    const struct kv_cache *c = d->c;
    const struct decode_row *row = &d->rows_R[first];
    size_t Q = (size_t)s->H * (size_t)s->K;
    bool one = end - first == 1;
    struct attention op = {.B = end - first,
                           .T = row->T,
                           .S = one ? c->length[row->index] + row->T : c->capacity,
                           .H = s->H,
                           .G = s->G,
                           .K = s->K,
                           .q_stride = Q,
                           .kv_stride = (size_t)s->G * (size_t)s->K,
                           .scale = model_shape_attention_scale(s),
                           .dtype = m->dtype,
                           .causal = one && d->causal,
                           .window = one && d->causal ? s->window : 0};
    struct attention_fwd io = {.q_BTHK = element(d->a.qkv_NC, token * Q, m->dtype),
                               .k_BSGK = cache_at(d, c->k_LBSGK, layer, row->index, 0),
                               .v_BSGK = cache_at(d, c->v_LBSGK, layer, row->index, 0),
                               .start_BT = one ? NULL : list_from(d, STARTS, token),
                               .end_BT = one ? NULL : list_from(d, ENDS, token),
                               .out_BTHK = element(d->a.attended_NQ, token * Q, m->dtype),
                               .lse_BHT = d->a.lse_BHT};
    TRY(attention_forward(m->ops, &op, &io, m->queue));
    return STATUS_OK;
}

/* Each row by itself, but neighbors in the cache that have a token each together. */
static enum status attend_rows(const struct decoder *d, int layer)
{
    const struct decode_row *rows = d->rows_R;
    size_t token = 0;
    for (int first = 0, end; first < d->R; first = end) {
        size_t tokens = (size_t)rows[first].T;
        for (end = first + 1; end < d->R && rows[first].T == 1; end++, tokens++)
            if (rows[end].T != 1 || rows[end].index != rows[end - 1].index + 1) break;
        TRY(attend(d, layer, first, end, token));
        token += tokens;
    }
    return STATUS_OK;
}

/* --- blocks --- */

/* The input of attention: the stream, normalized unless the norms are behind. */
static enum status attention_input(const struct decoder *d, int layer)
{
    const struct model *m = d->m;
    const struct activations *a = &d->a;
    struct rmsnorm norm = {
        .N = d->N, .D = m->shape.D, .eps = (float)m->shape.norm_eps, .dtype = m->dtype};
    if (m->shape.post_norm) return residual_copy(m, (size_t)d->N, a->x_SD, a->norm1_ND, 1);
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
    struct block_call block = {m, layer, (size_t)d->N, a};
    TRY(unit_open(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    TRY(attention_input(d, layer));
    TRY(residual_cross(m, ATTN_IN, FORWARD, a->norm1_ND, (size_t)d->N));
    TRY(append_keys(d, layer));
    TRY(attend_rows(d, layer));
    TRY(block_add_attention(&block, a->x_SD));
    TRY(block_add_mlp(&block, a->x_SD));
    TRY(unit_close(m, PARAM_attn_norm, layer, USE_WEIGHTS));
    return STATUS_OK;
}

/* All blocks, to d->a.x_SD. */
static enum status run_blocks(struct decoder *d, struct arena *step)
{
    const struct model *m = d->m;
    struct microbatch b = {.B = 1, .T = d->N, .ids_BT = list_from(d, IDS, 0)};
    struct activations *a = &d->a;
    activations_alloc_shared(m, (size_t)d->N, RECOMPUTE_FULL, a, step);
    a->x_SD = a->middle_SD;
    TRY(embed_forward(m, &b, a->gathered_ND, a->x_SD));
    for (int layer = 0; layer < m->shape.L; layer++) TRY(run_block(d, layer));
    return STATUS_OK;
}

/* --- logits --- */

/* Gathers the slices of the vocabulary and concatenates them row by row, without their padding. */
static enum status gather_logits(const struct model *m, size_t rows, float *slices_PBV, float *to)
{
    size_t V = (size_t)m->shape.V, slices = (size_t)m->plan->parts;
    int columns = model_shape_vocab(&m->shape, m->shape.slice).rows;
    struct crossing c = {
        .x = slices_PBV, .rows = (int)(slices * rows), .columns = columns, .dtype = F32};
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

/* The stream of the first `count` tokens of LOGITS: the first of all if each row has one token. */
static enum status gather_for_logits(const struct decoder *d, size_t count, const void **x_SD)
{
    const struct model *m = d->m;
    *x_SD = d->a.x_SD;
    if (d->R == d->N) return STATUS_OK;
    struct embedding op = {.N = (int)count, .V = d->N, .D = m->shape.D, .dtype = m->dtype};
    struct embedding_fwd io = {list_from(d, LOGITS, 0), d->a.x_SD, d->a.norm2_ND};
    TRY(embedding_forward(m->ops, &op, &io, m->queue));
    *x_SD = d->a.norm2_ND;
    return STATUS_OK;
}

/* Logits of the first `count` tokens of LOGITS. */
static enum status run_head(const struct decoder *d, size_t count, float *logits,
                            struct arena *step)
{
    const struct model *m = d->m;
    const struct model_shape *s = &m->shape;
    const struct activations *a = &d->a;
    const void *x_SD;
    if (!count) return STATUS_OK;
    TRY(gather_for_logits(d, count, &x_SD));
    TRY(unit_open(m, PARAM_last_norm, -1, USE_WEIGHTS));
    struct rmsnorm norm = {
        .N = (int)count, .D = s->D, .eps = (float)s->norm_eps, .dtype = m->dtype};
    struct rmsnorm_fwd io = {x_SD, unit_weight(m, PARAM_last_norm, -1), a->norm1_ND, a->rstd1_S,
                             NULL};
    TRY(rmsnorm_forward(m->ops, &norm, &io, m->queue));
    TRY(head_scale(m, a->norm1_ND, count));
    TRY(residual_cross(m, HEAD_IN, FORWARD, a->norm1_ND, count));
    if (s->tied) TRY(unit_open(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(project_logits(m, count, a->norm1_ND, logits, step));
    if (s->tied) TRY(unit_close(m, PARAM_embed, -1, USE_WEIGHTS));
    TRY(unit_close(m, PARAM_last_norm, -1, USE_WEIGHTS));
    return STATUS_OK;
}

/* --- passes --- */

/* Sets *N to the tokens of all rows, which must fit in the cache. */
static enum status count_tokens(const struct kv_cache *c, const struct decode_io *io, int *N)
{
    bool seen[KV_CACHE_ROWS] = {false};
    *N = 0;
    if (io->R < 1 || io->R > c->B)
        FAIL(SHAPE, "cannot append to %d rows of a KV cache of %d", io->R, c->B);
    for (int i = 0; i < io->R; i++) {
        int row = io->rows_R[i].index, T = io->rows_R[i].T;
        if (row < 0 || row >= c->B || seen[row])
            FAIL(SHAPE, "row %d of a KV cache of %d rows: expected different rows from 0 to %d",
                 row, c->B, c->B - 1);
        if (T < 1 || T > c->capacity - c->length[row])
            FAIL(SHAPE, "cannot append %d tokens to row %d: the KV cache holds %d of %d", T, row,
                 c->length[row], c->capacity);
        seen[row] = true;
        if (__builtin_add_overflow(*N, T, N)) FAIL(SHAPE, "too many tokens in %d rows", io->R);
    }
    return STATUS_OK;
}

/* Appends to the rows; logits only of the first `count` of them. */
static enum status append(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                          size_t count, struct arena *step)
{
    struct decoder d = {.m = m, .c = c, .rows_R = io->rows_R, .R = io->R, .causal = true};
    TRY(count_tokens(c, io, &d.N));
    size_t mark = arena_mark(step);
    TRY(alloc_lists(&d, NULL, count, step));
    TRY(run_blocks(&d, step));
    TRY(run_head(&d, count, io->logits_RV, step));
    for (int i = 0; i < d.R; i++) c->length[io->rows_R[i].index] += io->rows_R[i].T;
    arena_reset(step, mark);
    return STATUS_OK;
}

enum status decode_next(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                        struct arena *step)
{
    TRY(append(m, c, io, (size_t)io->R, step));
    return STATUS_OK;
}

/* The next tokens, at most `chunk` and not the first `done`, of some rows; returns how many of the
 * rows end with them: all, or all but the last. */
static int next_pass(const struct decode_io *io, int done, int chunk, struct decode_row *rows,
                     struct decode_io *pass)
{
    int ended = 0;
    *pass = (struct decode_io){rows, 0, io->logits_RV};
    for (; pass->R < io->R && pass->R < KV_CACHE_ROWS && chunk > 0; pass->R++, done = 0) {
        struct decode_row *row = &rows[pass->R];
        *row = io->rows_R[pass->R];
        row->ids_T += done, row->T -= done;
        if (row->T <= chunk)
            ended++;
        else
            row->T = chunk;
        chunk -= row->T;
    }
    return ended;
}

enum status decode_prefill(const struct model *m, struct kv_cache *c, const struct decode_io *io,
                           int chunk, struct arena *step)
{
    struct decode_row rows[KV_CACHE_ROWS];
    struct decode_io left = *io, pass;
    int tokens;
    if (!io->R) return STATUS_OK;
    TRY(count_tokens(c, io, &tokens));
    for (int done = 0; left.R > 0;) {
        int ended = next_pass(&left, done, chunk, rows, &pass);
        TRY(append(m, c, &pass, (size_t)ended, step));
        done = ended == pass.R ? 0 : rows[ended].T + (ended ? 0 : done);
        left.rows_R += ended, left.R -= ended;
        left.logits_RV += (size_t)ended * (size_t)m->shape.V;
    }
    return STATUS_OK;
}

/* N tokens, spread evenly over R rows, at the end of the cache. */
static enum status size_pass(const struct model *m, struct kv_cache *c, int R, int N,
                             struct arena *step)
{
    struct decode_row rows[KV_CACHE_ROWS];
    for (int i = 0; i < R; i++) {
        rows[i] = (struct decode_row){i, N / R + (i < N % R), NULL};
        c->length[i] = c->capacity - rows[i].T;
    }
    TRY(decode_next(m, c, &(struct decode_io){rows, R, NULL}, step));
    memset(c->length, 0, sizeof c->length);
    return STATUS_OK;
}

enum status decode_size(const struct model *m, struct kv_cache *c, int tokens, struct arena *step)
{
    enum { EACH = 8 }; /* every number up to this; then, between powers of two, the largest */
    if (tokens > (long long)c->B * c->capacity)
        FAIL(SHAPE, "cannot append %d tokens to a KV cache of %d rows of %d", tokens, c->B,
             c->capacity);
    for (int n = 1, N = 0; N < tokens; n = n < EACH ? n + 1 : 2 * n) {
        N = n < tokens ? n : tokens;
        TRY(size_pass(m, c, 1, N < c->capacity ? N : c->capacity, step));
        if (c->B > 1) TRY(size_pass(m, c, N < c->B ? N : c->B, N, step));
    }
    for (int R = 2; R <= c->B; R++) TRY(size_pass(m, c, R, R, step));
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
    size_t mark = arena_mark(step), count = (size_t)io->P;
    const struct decode_row row = {0, io->T, io->ids_T};
    struct decoder d = {.m = m, .c = c, .rows_R = &row, .R = 1, .N = io->T};
    TRY(alloc_lists(&d, io->positions_P, count, step));
    TRY(run_blocks(&d, step));
    TRY(run_head(&d, count, io->logits_PV, step));
    arena_reset(step, mark);
    return STATUS_OK;
}
