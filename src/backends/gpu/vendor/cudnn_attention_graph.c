// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_attention_graph.h"

#include <cudnn.h>

struct sdpa_layout {
    struct cudnn_dims dims, strides;
    cudnn_tensor offsets; /* NULL: not ragged */
};

/* What forward and backward share. */
struct sdpa_builder {
    const struct cudnn_attention_graph *a;
    struct cudnn_graph *g;
    struct sdpa_layout q, kv, kv_transposed, out, lse, dq, dkv;
    struct cudnn_dims scores, row_stats; /* row_stats: one value per query */
    cudnn_tensor lengths;                /* NULL: not varlen */
    cudnn_tensor scale, mask_value;
};

static cudnn_tensor tensor(const struct sdpa_builder *b, enum attention_tensor id,
                           enum graph_type type, const struct sdpa_layout *layout)
{
    struct cudnn_tensor_spec spec = {.id = id,
                                     .type = type,
                                     .dims = layout->dims,
                                     .strides = layout->strides,
                                     .offsets = layout->offsets};
    return cudnn_graph_tensor(b->g, &spec);
}

static cudnn_tensor scalar(const struct sdpa_builder *b, enum attention_tensor id)
{
    struct cudnn_tensor_spec spec = {.id = id,
                                     .type = GRAPH_F32,
                                     .dims = {{1, 1, 1, 1}},
                                     .strides = {{1, 1, 1, 1}},
                                     .by_value = true};
    return cudnn_graph_tensor(b->g, &spec);
}

static cudnn_tensor list(const struct sdpa_builder *b, enum attention_tensor id,
                         enum graph_type type, int count)
{
    struct sdpa_layout layout = {{{count, 1, 1, 1}}, {{1, 1, 1, 1}}, NULL};
    return tensor(b, id, type, &layout);
}

static void open_builder(struct sdpa_builder *b, const struct cudnn_attention_graph *a,
                         struct cudnn_graph *g)
{
    int64_t B = a->B, T = a->T, S = a->S, H = a->H, G = a->G, K = a->K;
    int64_t q = a->q_stride, kv = a->kv_stride, out = a->out_stride;
    int64_t dq = a->dq_stride, dkv = a->dkv_stride;
    int64_t q_row = a->row_queries * q, kv_row = a->row_keys * kv, out_row = a->row_out * out;
    *b = (struct sdpa_builder){.a = a, .g = g};
    b->scores = (struct cudnn_dims){{B, H, T, S}};
    b->row_stats = (struct cudnn_dims){{B, H, T, 1}};
    b->q = (struct sdpa_layout){{{B, H, T, K}}, {{q_row, K, q, 1}}, NULL};
    b->kv = (struct sdpa_layout){{{B, G, S, K}}, {{kv_row, K, kv, 1}}, NULL};
    b->kv_transposed = (struct sdpa_layout){{{B, G, K, S}}, {{kv_row, K, 1, kv}}, NULL};
    b->out = (struct sdpa_layout){{{B, H, T, K}}, {{out_row, K, out, 1}}, NULL};
    b->dq = (struct sdpa_layout){b->q.dims, {{T * dq, K, dq, 1}}, NULL};
    b->dkv = (struct sdpa_layout){b->kv.dims, {{S * dkv, K, dkv, 1}}, NULL};
    b->lse = (struct sdpa_layout){b->row_stats, {{a->total_heads * T, T, 1, 1}}, NULL};
    if (a->varlen) {
        b->lse.strides = (struct cudnn_dims){{T * H, 1, H, 1}};
        b->lengths = list(b, ATTENTION_LENGTHS, GRAPH_I32, a->B);
        b->q.offsets = list(b, ATTENTION_Q_OFFSETS, GRAPH_I64, a->B + 1);
        b->kv.offsets = list(b, ATTENTION_KV_OFFSETS, GRAPH_I64, a->B + 1);
        b->kv_transposed.offsets = b->kv.offsets;
        b->dq.offsets = b->q.offsets, b->dkv.offsets = b->kv.offsets;
        b->out.offsets = list(b, ATTENTION_OUT_OFFSETS, GRAPH_I64, a->B + 1);
        b->lse.offsets = list(b, ATTENTION_LSE_OFFSETS, GRAPH_I64, a->B + 1);
    }
    b->scale = scalar(b, ATTENTION_SCALE);
    b->mask_value = scalar(b, ATTENTION_MASK_VALUE);
}

/* A virtual f32 result of size `dims`; an operand may be a scalar or one value per row. */
static cudnn_tensor pointwise(const struct sdpa_builder *b, enum graph_pointwise mode,
                              cudnn_tensor x, cudnn_tensor operand, struct cudnn_dims dims)
{
    cudnn_tensor y = cudnn_graph_virtual(b->g, GRAPH_F32, dims);
    cudnn_graph_pointwise(
        b->g,
        (struct cudnn_pointwise){.mode = mode, .compute = GRAPH_F32, .x = x, .b = operand, .y = y});
    return y;
}

static void pointwise_into(const struct sdpa_builder *b, enum graph_pointwise mode, cudnn_tensor x,
                           cudnn_tensor operand, cudnn_tensor y)
{
    cudnn_graph_pointwise(
        b->g,
        (struct cudnn_pointwise){.mode = mode, .compute = GRAPH_F32, .x = x, .b = operand, .y = y});
}

static cudnn_tensor gen_index(const struct sdpa_builder *b, cudnn_tensor x, int axis,
                              enum graph_type compute)
{
    cudnn_tensor y = cudnn_graph_virtual(b->g, GRAPH_I32, b->scores);
    cudnn_graph_pointwise(
        b->g, (struct cudnn_pointwise){
                  .mode = GRAPH_GEN_INDEX, .compute = compute, .axis = axis, .x = x, .y = y});
    return y;
}

static cudnn_tensor compare(const struct sdpa_builder *b, enum graph_pointwise mode, cudnn_tensor x,
                            cudnn_tensor operand)
{
    cudnn_tensor y = cudnn_graph_virtual(b->g, GRAPH_BOOL, b->scores);
    cudnn_graph_pointwise(b->g,
                          (struct cudnn_pointwise){
                              .mode = mode, .compute = GRAPH_BOOL, .x = x, .b = operand, .y = y});
    return y;
}

static cudnn_tensor apply_mask(const struct sdpa_builder *b, cudnn_tensor x, cudnn_tensor mask)
{
    cudnn_tensor y = cudnn_graph_virtual(b->g, GRAPH_F32, b->scores);
    cudnn_graph_pointwise(b->g, (struct cudnn_pointwise){.mode = GRAPH_SELECT,
                                                         .compute = GRAPH_F32,
                                                         .x = x,
                                                         .b = b->mask_value,
                                                         .mask = mask,
                                                         .y = y});
    return y;
}

/* Masks everything beyond each sequence's length. */
static cudnn_tensor padding_mask(const struct sdpa_builder *b, cudnn_tensor x)
{
    cudnn_tensor query = gen_index(b, x, 2, GRAPH_I32), key = gen_index(b, x, 3, GRAPH_I32);
    cudnn_tensor query_valid = compare(b, GRAPH_CMP_LT, query, b->lengths);
    cudnn_tensor key_valid = compare(b, GRAPH_CMP_LT, key, b->lengths);
    return apply_mask(b, x, compare(b, GRAPH_AND, query_valid, key_valid));
}

static cudnn_tensor causal_mask(const struct sdpa_builder *b, cudnn_tensor x)
{
    cudnn_tensor query = gen_index(b, x, 2, GRAPH_F32), key = gen_index(b, x, 3, GRAPH_F32);
    return apply_mask(b, x, compare(b, GRAPH_CMP_GE, query, key));
}

/* Masks keys `window` or more tokens before the query. */
static cudnn_tensor window_mask(const struct sdpa_builder *b, cudnn_tensor x)
{
    cudnn_tensor query = gen_index(b, x, 2, GRAPH_F32), key = gen_index(b, x, 3, GRAPH_F32);
    cudnn_tensor end = pointwise(b, GRAPH_ADD, key, scalar(b, ATTENTION_WINDOW), b->scores);
    return apply_mask(b, x, compare(b, GRAPH_CMP_GT, end, query));
}

static cudnn_tensor apply_masks(const struct sdpa_builder *b, cudnn_tensor x)
{
    if (b->a->varlen) x = padding_mask(b, x);
    if (b->a->causal) x = causal_mask(b, x);
    return b->a->window ? window_mask(b, x) : x;
}

/* scale q k^T */
static cudnn_tensor build_scores(const struct sdpa_builder *b, cudnn_tensor q, cudnn_tensor k)
{
    cudnn_tensor qk = cudnn_graph_virtual(b->g, GRAPH_F32, b->scores);
    cudnn_graph_matmul(b->g, q, k, qk, (struct cudnn_lengths){.m = b->lengths, .n = b->lengths});
    return pointwise(b, GRAPH_MUL, qk, b->scale, b->scores);
}

static void build_forward(const struct sdpa_builder *b)
{
    cudnn_tensor q = tensor(b, ATTENTION_Q, GRAPH_BF16, &b->q);
    cudnn_tensor k = tensor(b, ATTENTION_K, GRAPH_BF16, &b->kv_transposed);
    cudnn_tensor v = tensor(b, ATTENTION_V, GRAPH_BF16, &b->kv);
    cudnn_tensor out = tensor(b, ATTENTION_OUT, GRAPH_BF16, &b->out);
    cudnn_tensor lse = tensor(b, ATTENTION_LSE, GRAPH_F32, &b->lse);
    cudnn_tensor x = apply_masks(b, build_scores(b, q, k));
    cudnn_tensor max = cudnn_graph_virtual(b->g, GRAPH_F32, b->row_stats);
    cudnn_graph_reduce_max(b->g, x, max);
    x = pointwise(b, GRAPH_SUB, x, max, b->scores);
    cudnn_tensor e = pointwise(b, GRAPH_EXP, x, NULL, b->scores);
    cudnn_tensor sum = cudnn_graph_virtual(b->g, GRAPH_F32, b->row_stats);
    cudnn_graph_reduce_sum(b->g, e, sum);
    cudnn_tensor log = pointwise(b, GRAPH_LOG, sum, NULL, b->row_stats);
    pointwise_into(b, GRAPH_ADD, max, log, lse);
    cudnn_tensor probs = cudnn_graph_virtual(b->g, GRAPH_BF16, b->scores);
    pointwise_into(b, GRAPH_DIV, e, sum, probs);
    cudnn_graph_matmul(b->g, probs, v, out,
                       (struct cudnn_lengths){.m = b->lengths, .k = b->lengths});
}

/* x [.., T, S] as its transpose, in bf16. */
static cudnn_tensor transpose(const struct sdpa_builder *b, cudnn_tensor x)
{
    int64_t B = b->a->B, H = b->a->H, T = b->a->T, S = b->a->S;
    struct sdpa_layout layout = {{{B, H, S, T}}, {{H * T * S, T * S, 1, S}}, NULL};
    cudnn_tensor y = tensor(b, ATTENTION_NONE, GRAPH_BF16, &layout);
    cudnn_graph_reshape(b->g, x, y);
    return y;
}

/* dk or dv: a matmul per query head, summed over the query heads that share a key/value head. */
static void build_kv_gradient(const struct sdpa_builder *b, cudnn_tensor weights, cudnn_tensor rows,
                              enum attention_tensor result, enum attention_tensor full)
{
    const struct cudnn_attention_graph *a = b->a;
    struct cudnn_lengths lengths = {.m = b->lengths, .k = b->lengths};
    cudnn_tensor sum = tensor(b, result, GRAPH_BF16, &b->dkv);
    if (a->H == a->G) {
        cudnn_graph_matmul(b->g, weights, rows, sum, lengths);
        return;
    }
    int64_t heads_per_group = a->H / a->G, row = a->dkv_stride * heads_per_group;
    struct cudnn_dims all_heads = {{a->B, a->H, a->S, a->K}};
    /* cuDNN multiplies the ragged offsets of a tensor with all query heads by H / G. */
    struct sdpa_layout layout = {all_heads, {{a->S * row, a->K, row, 1}}, b->dkv.offsets};
    cudnn_tensor per_head = a->varlen ? tensor(b, full, GRAPH_BF16, &layout)
                                      : cudnn_graph_virtual(b->g, GRAPH_BF16, all_heads);
    cudnn_graph_matmul(b->g, weights, rows, per_head, lengths);
    cudnn_graph_reduce_sum(b->g, per_head, sum);
}

/* delta = rowsum(dout * out) */
static cudnn_tensor build_delta(const struct sdpa_builder *b, cudnn_tensor dout, cudnn_tensor out)
{
    int64_t H = b->a->H, T = b->a->T, K = b->a->K;
    cudnn_tensor one = scalar(b, ATTENTION_ONE);
    struct sdpa_layout dense = {b->q.dims, {{H * T * K, T * K, H * K, 1}}, NULL};
    cudnn_tensor product = tensor(b, ATTENTION_NONE, GRAPH_F32, &dense);
    pointwise_into(b, GRAPH_MUL, dout, out, product);
    cudnn_tensor sum = cudnn_graph_virtual(b->g, GRAPH_F32, b->row_stats);
    cudnn_graph_reduce_sum(b->g, product, sum);
    struct sdpa_layout layout = b->lse;
    if (!b->a->varlen) layout.strides = (struct cudnn_dims){{H * T, T, 1, 1}};
    cudnn_tensor delta = tensor(b, ATTENTION_DELTA, GRAPH_F32, &layout);
    pointwise_into(b, GRAPH_MUL, sum, one, delta);
    return delta;
}

static void build_dq(const struct sdpa_builder *b, cudnn_tensor ds, cudnn_tensor k)
{
    const struct cudnn_attention_graph *a = b->a;
    struct cudnn_lengths lengths = {.m = b->lengths, .k = b->lengths};
    cudnn_tensor rows = tensor(b, ATTENTION_NONE, GRAPH_BF16, &b->kv);
    cudnn_graph_reshape(b->g, k, rows);
    cudnn_tensor dq = tensor(b, ATTENTION_DQ, GRAPH_BF16, &b->dq);
    if (a->deterministic) {
        cudnn_graph_matmul(b->g, ds, rows, dq, lengths);
        return;
    }
    int64_t H = a->H, T = a->T, K = a->K;
    struct sdpa_layout layout = b->dq;
    if (!a->varlen) layout.strides = (struct cudnn_dims){{H * T * K, T * K, K, 1}};
    cudnn_tensor sum = tensor(b, ATTENTION_DQ_ACCUM, GRAPH_F32, &layout);
    cudnn_graph_matmul(b->g, ds, rows, sum, lengths);
    pointwise_into(b, GRAPH_IDENTITY, sum, NULL, dq);
}

static void build_backward(const struct sdpa_builder *b)
{
    cudnn_tensor q = tensor(b, ATTENTION_Q, GRAPH_BF16, &b->q);
    cudnn_tensor k = tensor(b, ATTENTION_K, GRAPH_BF16, &b->kv_transposed);
    cudnn_tensor v = tensor(b, ATTENTION_V, GRAPH_BF16, &b->kv_transposed);
    cudnn_tensor out = tensor(b, ATTENTION_OUT, GRAPH_BF16, &b->out);
    cudnn_tensor dout = tensor(b, ATTENTION_DOUT, GRAPH_BF16, &b->out);
    cudnn_tensor lse = tensor(b, ATTENTION_LSE, GRAPH_F32, &b->lse);
    cudnn_tensor delta = build_delta(b, dout, out);

    cudnn_tensor x = pointwise(b, GRAPH_SUB, build_scores(b, q, k), lse, b->scores);
    cudnn_tensor probs = pointwise(b, GRAPH_EXP, apply_masks(b, x), NULL, b->scores);
    build_kv_gradient(b, transpose(b, probs), dout, ATTENTION_DV, ATTENTION_DV_FULL);

    cudnn_tensor dprobs = cudnn_graph_virtual(b->g, GRAPH_F32, b->scores);
    cudnn_graph_matmul(b->g, dout, v, dprobs,
                       (struct cudnn_lengths){.m = b->lengths, .n = b->lengths});
    cudnn_tensor ds = pointwise(b, GRAPH_SUB, dprobs, delta, b->scores);
    ds = pointwise(b, GRAPH_MUL, ds, probs, b->scores);
    ds = pointwise(b, GRAPH_MUL, ds, b->scale, b->scores);
    build_kv_gradient(b, transpose(b, ds), q, ATTENTION_DK, ATTENTION_DK_FULL);
    build_dq(b, ds, k);
}

void cudnn_attention_graph_build(const struct cudnn_attention_graph *a, struct cudnn_graph *g)
{
    struct sdpa_builder b;
    open_builder(&b, a, g);
    if (a->backward)
        build_backward(&b);
    else
        build_forward(&b);
}

bool cudnn_attention_graph_engine(const struct cudnn_attention_graph *a, int capability,
                                  size_t version, struct cudnn_engine *out)
{
    enum {
        BLACKWELL = 100,
        BLACKWELL_ULTRA = 103,
        BLACKWELL_END = 110,
        TILE_KNOBS_VERSION = 92300
    };
    bool has_tile_knobs = version >= TILE_KNOBS_VERSION;
    if (!a->backward || !a->deterministic || (a->varlen && a->K % 16)) return false;
    if (capability < BLACKWELL || capability >= BLACKWELL_END) return false;
    /* Tiles of 128 x 128; the values are those of override_heuristics_query. */
    *out = (struct cudnn_engine){
        .index = capability > BLACKWELL_ULTRA ? 17 : 5,
        .num_knobs = has_tile_knobs ? 6 : 2,
        .knobs = {{CUDNN_KNOB_TYPE_STAGES, 2},
                  {CUDNN_KNOB_TYPE_KERNEL_CFG, has_tile_knobs ? 2 : 31},
                  {CUDNN_KNOB_TYPE_TILE_M, 3},
                  {CUDNN_KNOB_TYPE_TILE_N, 2},
                  {CUDNN_KNOB_TYPE_STREAM_K, 0},
                  {CUDNN_KNOB_TYPE_TILE_CGA_M, 0}},
    };
    return true;
}

size_t cudnn_attention_graph_scratch(const struct cudnn_attention_graph *a,
                                     enum attention_tensor which, size_t tokens)
{
    size_t H = (size_t)a->H, heads_per_group = H / (size_t)a->G;
    if (!a->backward) return 0;
    if (which == ATTENTION_DELTA) return tokens * H * sizeof(float);
    if (which == ATTENTION_DQ_ACCUM && !a->deterministic)
        return tokens * (a->varlen ? (size_t)a->dq_stride : H * (size_t)a->K) * sizeof(float);
    /* As cuDNN's front end: four bytes for each of these bf16 elements. */
    if ((which == ATTENTION_DK_FULL || which == ATTENTION_DV_FULL) && a->varlen &&
        heads_per_group > 1)
        return tokens * (size_t)a->dkv_stride * heads_per_group * sizeof(float);
    return 0;
}
