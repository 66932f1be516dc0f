// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_attention_graph.h"

/* Tensors that forward and backward have in common. */
struct parts {
    const struct attention_graph *a;
    struct graph *g;
    struct graph_axes scores, numbers, queries, keys, turned; /* numbers: one a query */
    struct graph_axes q_row, kv_row, kv_turned, out_row, lse_row;
    graph_tensor lengths, q_begin, kv_begin, out_begin, lse_begin; /* NULL: no documents */
    graph_tensor scale, lowest;
};

static graph_tensor place(const struct parts *p, enum attention_tensor id, enum graph_type type,
                          struct graph_axes dims, struct graph_axes strides, graph_tensor ragged)
{
    struct graph_memory what = {
        .id = id, .type = type, .dims = dims, .strides = strides, .ragged = ragged};
    return graph_memory(p->g, &what);
}

static graph_tensor value(const struct parts *p, enum attention_tensor id)
{
    struct graph_memory what = {.id = id,
                                .type = GRAPH_F32,
                                .dims = {{1, 1, 1, 1}},
                                .strides = {{1, 1, 1, 1}},
                                .is_value = true};
    return graph_memory(p->g, &what);
}

static graph_tensor list(const struct parts *p, enum attention_tensor id, enum graph_type type,
                         int count)
{
    struct graph_axes one = {{1, 1, 1, 1}};
    return place(p, id, type, (struct graph_axes){{count, 1, 1, 1}}, one, NULL);
}

static void open_parts(struct parts *p, const struct attention_graph *a, struct graph *g)
{
    int64_t B = a->B, T = a->T, H = a->H, G = a->G, K = a->K, q = a->q_row, kv = a->kv_row;
    *p = (struct parts){.a = a, .g = g};
    p->scores = (struct graph_axes){{B, H, T, T}};
    p->numbers = (struct graph_axes){{B, H, T, 1}};
    p->queries = (struct graph_axes){{B, H, T, K}};
    p->keys = (struct graph_axes){{B, G, T, K}};
    p->turned = (struct graph_axes){{B, G, K, T}};
    p->q_row = (struct graph_axes){{T * q, K, q, 1}};
    p->kv_row = (struct graph_axes){{T * kv, K, kv, 1}};
    p->kv_turned = (struct graph_axes){{T * kv, K, 1, kv}};
    p->out_row = (struct graph_axes){{T * a->out_row, K, a->out_row, 1}};
    p->lse_row = a->documents ? (struct graph_axes){{T * H, 1, H, 1}}
                              : (struct graph_axes){{a->all_heads * T, T, 1, 1}};
    if (a->documents) {
        p->lengths = list(p, ATTENTION_LENGTHS, GRAPH_I32, a->B);
        p->q_begin = list(p, ATTENTION_Q_BEGIN, GRAPH_I64, a->B + 1);
        p->kv_begin = list(p, ATTENTION_KV_BEGIN, GRAPH_I64, a->B + 1);
        p->out_begin = list(p, ATTENTION_OUT_BEGIN, GRAPH_I64, a->B + 1);
        p->lse_begin = list(p, ATTENTION_LSE_BEGIN, GRAPH_I64, a->B + 1);
    }
    p->scale = value(p, ATTENTION_SCALE);
    p->lowest = value(p, ATTENTION_LOWEST);
}

/* The size of a result between operations is that of its first operand, or `dims`. */
static graph_tensor point(const struct parts *p, enum graph_point kind, graph_tensor x,
                          graph_tensor b, struct graph_axes dims)
{
    graph_tensor y = graph_between(p->g, GRAPH_F32, dims);
    graph_points(p->g,
                 (struct graph_points){.kind = kind, .in = GRAPH_F32, .x = x, .b = b, .y = y});
    return y;
}

static graph_tensor place_of(const struct parts *p, graph_tensor x, int axis, enum graph_type in)
{
    graph_tensor y = graph_between(p->g, GRAPH_I32, p->scores);
    graph_points(
        p->g, (struct graph_points){.kind = GRAPH_INDEX, .in = in, .axis = axis, .x = x, .y = y});
    return y;
}

static graph_tensor compare(const struct parts *p, enum graph_point kind, graph_tensor x,
                            graph_tensor b)
{
    graph_tensor y = graph_between(p->g, GRAPH_BOOL, p->scores);
    graph_points(p->g,
                 (struct graph_points){.kind = kind, .in = GRAPH_BOOL, .x = x, .b = b, .y = y});
    return y;
}

static graph_tensor choose(const struct parts *p, graph_tensor x, graph_tensor mask)
{
    graph_tensor y = graph_between(p->g, GRAPH_F32, p->scores);
    graph_points(
        p->g,
        (struct graph_points){
            .kind = GRAPH_CHOOSE, .in = GRAPH_F32, .x = x, .b = p->lowest, .mask = mask, .y = y});
    return y;
}

/* Only keys of the document's length are there. */
static graph_tensor inside(const struct parts *p, graph_tensor x)
{
    graph_tensor query = place_of(p, x, 2, GRAPH_I32), key = place_of(p, x, 3, GRAPH_I32);
    graph_tensor query_is = compare(p, GRAPH_LESS, query, p->lengths);
    graph_tensor key_is = compare(p, GRAPH_LESS, key, p->lengths);
    return choose(p, x, compare(p, GRAPH_AND, query_is, key_is));
}

static graph_tensor earlier(const struct parts *p, graph_tensor x)
{
    graph_tensor query = place_of(p, x, 2, GRAPH_F32), key = place_of(p, x, 3, GRAPH_F32);
    return choose(p, x, compare(p, GRAPH_NOT_LESS, query, key));
}

/* scale q k^T, with documents' bounds. */
static graph_tensor score(const struct parts *p, graph_tensor q, graph_tensor k)
{
    graph_tensor product = graph_between(p->g, GRAPH_F32, p->scores);
    graph_multiply(p->g, q, k, product,
                   (struct graph_lengths){.rows = p->lengths, .columns = p->lengths});
    graph_tensor x = point(p, GRAPH_MULTIPLY, product, p->scale, p->scores);
    return p->a->documents ? inside(p, x) : x;
}

static void build_forward(const struct parts *p)
{
    graph_tensor q = place(p, ATTENTION_Q, GRAPH_BF16, p->queries, p->q_row, p->q_begin);
    graph_tensor k = place(p, ATTENTION_K, GRAPH_BF16, p->turned, p->kv_turned, p->kv_begin);
    graph_tensor v = place(p, ATTENTION_V, GRAPH_BF16, p->keys, p->kv_row, p->kv_begin);
    graph_tensor out = place(p, ATTENTION_OUT, GRAPH_BF16, p->queries, p->out_row, p->out_begin);
    graph_tensor lse = place(p, ATTENTION_LSE, GRAPH_F32, p->numbers, p->lse_row, p->lse_begin);
    graph_tensor x = score(p, q, k);
    if (p->a->causal) x = earlier(p, x);
    graph_tensor top = graph_between(p->g, GRAPH_F32, p->numbers);
    graph_largest(p->g, x, top);
    graph_tensor e =
        point(p, GRAPH_EXP, point(p, GRAPH_SUBTRACT, x, top, p->scores), NULL, p->scores);
    graph_tensor sum = graph_between(p->g, GRAPH_F32, p->numbers);
    graph_sum(p->g, e, sum);
    graph_tensor log = point(p, GRAPH_LOG, sum, NULL, p->numbers);
    graph_points(p->g, (struct graph_points){
                           .kind = GRAPH_ADD, .in = GRAPH_F32, .x = top, .b = log, .y = lse});
    graph_tensor share = graph_between(p->g, GRAPH_BF16, p->scores);
    graph_points(p->g, (struct graph_points){
                           .kind = GRAPH_DIVIDE, .in = GRAPH_F32, .x = e, .b = sum, .y = share});
    graph_multiply(p->g, share, v, out,
                   (struct graph_lengths){.rows = p->lengths, .inner = p->lengths});
}

/* x [.., T, T] as its transpose, in bf16. */
static graph_tensor transpose(const struct parts *p, graph_tensor x)
{
    int64_t H = p->a->H, T = p->a->T;
    struct graph_memory what = {
        .type = GRAPH_BF16, .dims = p->scores, .strides = {{H * T * T, T * T, 1, T}}};
    graph_tensor y = graph_memory(p->g, &what);
    graph_turn(p->g, x, y);
    return y;
}

/* dk or dv: a product for every query head, and the sum of those that share a key's. */
static void gather(const struct parts *p, graph_tensor weights, graph_tensor rows,
                   enum attention_tensor result, enum attention_tensor all)
{
    const struct attention_graph *a = p->a;
    struct graph_lengths lengths = {.rows = p->lengths, .inner = p->lengths};
    graph_tensor sum = place(p, result, GRAPH_BF16, p->keys, p->kv_row, p->kv_begin);
    if (a->H == a->G) {
        graph_multiply(p->g, weights, rows, sum, lengths);
        return;
    }
    int64_t share = a->H / a->G, row = a->kv_row * share;
    struct graph_axes strides = {{a->T * row, a->K, row, 1}};
    /* Of a tensor with all query heads cuDNN takes a document's place times H / G. */
    graph_tensor each = a->documents ? place(p, all, GRAPH_BF16, p->queries, strides, p->kv_begin)
                                     : graph_between(p->g, GRAPH_BF16, p->queries);
    graph_multiply(p->g, weights, rows, each, lengths);
    graph_sum(p->g, each, sum);
}

/* sum of dout out over a head's elements */
static graph_tensor build_delta(const struct parts *p, graph_tensor dout, graph_tensor out)
{
    int64_t H = p->a->H, T = p->a->T, K = p->a->K;
    graph_tensor one = value(p, ATTENTION_ONE);
    struct graph_memory what = {
        .type = GRAPH_F32, .dims = p->queries, .strides = {{H * T * K, T * K, H * K, 1}}};
    graph_tensor product = graph_memory(p->g, &what);
    graph_points(p->g,
                 (struct graph_points){
                     .kind = GRAPH_MULTIPLY, .in = GRAPH_F32, .x = dout, .b = out, .y = product});
    graph_tensor sum = graph_between(p->g, GRAPH_F32, p->numbers);
    graph_sum(p->g, product, sum);
    struct graph_axes row = p->a->documents ? p->lse_row : (struct graph_axes){{H * T, T, 1, 1}};
    graph_tensor delta = place(p, ATTENTION_DELTA, GRAPH_F32, p->numbers, row, p->lse_begin);
    graph_points(p->g,
                 (struct graph_points){
                     .kind = GRAPH_MULTIPLY, .in = GRAPH_F32, .x = sum, .b = one, .y = delta});
    return delta;
}

static void build_dq(const struct parts *p, graph_tensor ds, graph_tensor k)
{
    const struct attention_graph *a = p->a;
    struct graph_lengths lengths = {.rows = p->lengths, .inner = p->lengths};
    struct graph_memory what = {
        .type = GRAPH_BF16, .dims = p->keys, .strides = p->kv_row, .ragged = p->kv_begin};
    graph_tensor rows = graph_memory(p->g, &what);
    graph_turn(p->g, k, rows);
    graph_tensor dq = place(p, ATTENTION_DQ, GRAPH_BF16, p->queries, p->q_row, p->q_begin);
    if (a->deterministic) {
        graph_multiply(p->g, ds, rows, dq, lengths);
        return;
    }
    int64_t H = a->H, T = a->T, K = a->K;
    struct graph_axes dense = {{H * T * K, T * K, K, 1}};
    graph_tensor sum = place(p, ATTENTION_DQ_SUM, GRAPH_F32, p->queries,
                             a->documents ? p->q_row : dense, p->q_begin);
    graph_multiply(p->g, ds, rows, sum, lengths);
    graph_points(p->g,
                 (struct graph_points){.kind = GRAPH_COPY, .in = GRAPH_F32, .x = sum, .y = dq});
}

static void build_backward(const struct parts *p)
{
    graph_tensor q = place(p, ATTENTION_Q, GRAPH_BF16, p->queries, p->q_row, p->q_begin);
    graph_tensor k = place(p, ATTENTION_K, GRAPH_BF16, p->turned, p->kv_turned, p->kv_begin);
    graph_tensor v = place(p, ATTENTION_V, GRAPH_BF16, p->turned, p->kv_turned, p->kv_begin);
    graph_tensor out = place(p, ATTENTION_OUT, GRAPH_BF16, p->queries, p->out_row, p->out_begin);
    graph_tensor dout = place(p, ATTENTION_DOUT, GRAPH_BF16, p->queries, p->out_row, p->out_begin);
    graph_tensor lse = place(p, ATTENTION_LSE, GRAPH_F32, p->numbers, p->lse_row, p->lse_begin);
    graph_tensor delta = build_delta(p, dout, out);

    graph_tensor x = point(p, GRAPH_SUBTRACT, score(p, q, k), lse, p->scores);
    if (p->a->causal) x = earlier(p, x);
    graph_tensor share = point(p, GRAPH_EXP, x, NULL, p->scores);
    gather(p, transpose(p, share), dout, ATTENTION_DV, ATTENTION_DV_ALL);

    graph_tensor dshare = graph_between(p->g, GRAPH_F32, p->scores);
    graph_multiply(p->g, dout, v, dshare,
                   (struct graph_lengths){.rows = p->lengths, .columns = p->lengths});
    graph_tensor ds = point(p, GRAPH_SUBTRACT, dshare, delta, p->scores);
    ds = point(p, GRAPH_MULTIPLY, ds, share, p->scores);
    ds = point(p, GRAPH_MULTIPLY, ds, p->scale, p->scores);
    gather(p, transpose(p, ds), q, ATTENTION_DK, ATTENTION_DK_ALL);
    build_dq(p, ds, k);
}

void attention_graph_build(const struct attention_graph *a, struct graph *g)
{
    struct parts p;
    open_parts(&p, a, g);
    if (a->backward)
        build_backward(&p);
    else
        build_forward(&p);
}

size_t attention_graph_bytes(const struct attention_graph *a, enum attention_tensor which,
                             size_t tokens)
{
    size_t H = (size_t)a->H, share = H / (size_t)a->G;
    if (!a->backward) return 0;
    if (which == ATTENTION_DELTA) return tokens * H * sizeof(float);
    if (which == ATTENTION_DQ_SUM && !a->deterministic)
        return tokens * (a->documents ? (size_t)a->q_row : H * (size_t)a->K) * sizeof(float);
    /* cuDNN's own front end sets aside four bytes for each of these elements of two. */
    if ((which == ATTENTION_DK_ALL || which == ATTENTION_DV_ALL) && a->documents && share > 1)
        return tokens * (size_t)a->kv_row * share * sizeof(float);
    return 0;
}
