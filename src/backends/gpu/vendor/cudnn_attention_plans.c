// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_attention_plans.h"

#include "backends/gpu/varlen.h"
#include "base/byte_size.h"
#include "base/log.h"
#include "base/text.h"

#include <stdlib.h>

enum {
    MIN_VERSION_VARLEN = 91800, /* NaN with several sequence lengths before */
    /* Before this version Transformer Engine excludes a deterministic backward on 10.x (cuDNN's
     * front end does before 9.18.0) and everything on 12.x, where it always excludes a
     * deterministic backward. */
    MIN_VERSION_BLACKWELL = 91801,
    /* cuDNN's front end excludes a packed log-sum-exp on 8.x and 12.x, although engines accept
     * it. */
    MIN_CAPABILITY_VARLEN = 90,
    END_CAPABILITY_VARLEN = 120,
    /* Caps the number of sequences of a varlen plan, because empty ones cost time. */
    TOKENS_PER_SEQUENCE = 256,
};

void cudnn_attention_plans_release(struct cudnn_attention_plans *c)
{
    for (struct sdpa_plan *p = c->newest, *next; p; p = next) {
        next = p->next;
        cudnn_graph_release_plan(&p->plan);
        free(p);
    }
    c->newest = NULL;
}

/* --- what is supported --- */

bool cudnn_attention_plans_has_varlen(const struct cudnn_attention_plans *c)
{
    return c->version >= MIN_VERSION_VARLEN && c->capability >= MIN_CAPABILITY_VARLEN &&
           c->capability < END_CAPABILITY_VARLEN;
}

bool cudnn_attention_plans_has_head_size(int head_size)
{
    return head_size > 0 && head_size % 8 == 0 && head_size <= 256;
}

static int queries_of(const struct attention *a) { return a->T - a->rectangle.first_query; }

static int keys_of(const struct attention *a)
{
    return a->rectangle.num_keys ? a->rectangle.num_keys : a->S;
}

static bool has_partial_tile(const struct attention *a)
{
    return queries_of(a) % CUDNN_ATTENTION_TILE || keys_of(a) % CUDNN_ATTENTION_TILE;
}

static bool supports_shape(const struct attention *a)
{
    if (a->keys != ALL_KEYS || a->dtype != BF16 || a->S != a->T) return false;
    if (has_partial_tile(a)) return false;
    if (!cudnn_attention_plans_has_head_size(a->K)) return false;
    return a->q_stride % 8 == 0 && a->kv_stride % 8 == 0; /* rows are aligned to 16 bytes */
}

static bool supports_gpu(const struct cudnn_attention_plans *c, bool backward)
{
    bool is_deterministic = backward && c->deterministic;
    bool is_old = c->version < MIN_VERSION_BLACKWELL;
    if (c->capability / 10 == 10) return !(is_deterministic && is_old);
    if (c->capability / 10 == 12) return !is_deterministic && !is_old;
    return true;
}

enum status cudnn_attention_plans_check_gpu(const struct cudnn_attention_plans *c)
{
    if (supports_gpu(c, false)) return STATUS_OK;
    FAIL(UNSUPPORTED,
         "cuDNN %zu is too old for a GPU of compute capability %d.%d: install %d or later",
         c->version, c->capability / 10, c->capability % 10, MIN_VERSION_BLACKWELL);
}

const char *cudnn_attention_plans_case_name(struct attention_case what)
{
    if (what.parts) return "ring parts";
    if (!what.window) return "documents";
    return what.documents ? "documents and a sliding window" : "a sliding window";
}

void cudnn_attention_plans_add_rejected(const struct cudnn_attention_plans *c, struct text *out)
{
    static const struct attention_case cases[] = {
        {.documents = true}, {.window = true}, {true, true, false}, {.parts = true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attention_case what = cases[i];
        bool rejects = what.parts ? c->rejects_parts : c->rejects[what.documents][what.window];
        if (rejects)
            text_addf(out, "%s%s", out->len ? "; " : "", cudnn_attention_plans_case_name(what));
    }
}

static bool is_supported(const struct cudnn_attention_plans *c, const struct sdpa_key *key)
{
    if (!supports_shape(&key->shape) || !supports_gpu(c, key->backward)) return false;
    if (key->varlen && !cudnn_attention_plans_has_varlen(c)) return false;
    if (key->shape.rectangle.num_keys) return !c->rejects_parts;
    return !c->rejects[key->varlen][key->shape.window > 0];
}

static struct cudnn_attention_graph graph_of(const struct cudnn_attention_plans *c,
                                             const struct sdpa_key *key)
{
    const struct attention *a = &key->shape;
    struct cudnn_attention_graph g = {.B = a->B,
                                      .T = queries_of(a),
                                      .S = keys_of(a),
                                      .H = a->H,
                                      .G = a->G,
                                      .K = a->K,
                                      .q_stride = (int64_t)a->q_stride,
                                      .kv_stride = (int64_t)a->kv_stride,
                                      .out_stride = (int64_t)a->H * a->K,
                                      .dq_stride = (int64_t)a->q_stride,
                                      .dkv_stride = (int64_t)a->kv_stride,
                                      .row_queries = a->T,
                                      .row_keys = a->S,
                                      .row_out = a->T,
                                      .total_heads = a->H,
                                      .causal = a->causal,
                                      .window = a->window,
                                      .varlen = key->varlen,
                                      .backward = key->backward,
                                      .deterministic = c->deterministic};
    if (a->rectangle.num_keys) { /* its own results are dense (attention_part.h) */
        g.dq_stride = (int64_t)a->H * a->K, g.dkv_stride = (int64_t)a->G * a->K;
        if (!key->backward) g.row_out = g.T;
    }
    if (!key->varlen) return g;
    size_t max = (size_t)a->B * (size_t)a->T / TOKENS_PER_SEQUENCE + (size_t)a->B;
    g.B = max < VARLEN_MAX_SEQUENCES ? (int)max : VARLEN_MAX_SEQUENCES;
    return g;
}

/* --- the limit of a deterministic backward --- */

static size_t row_heads(const struct cudnn_attention_graph *g)
{
    return (size_t)g->B * (size_t)g->H;
}

/* Workspace for a head of a row: dS; with fewer key/value heads, its dk and dv, too. */
static size_t stored_bytes(const struct cudnn_attention_graph *g)
{
    size_t T = (size_t)g->T, S = (size_t)g->S, bytes = T * S * sizeof(bf16);
    if (g->H > g->G) bytes += 2 * S * (size_t)g->K * sizeof(bf16);
    return bytes;
}

/* To the next smaller divisor; false: it is 1. */
static bool shrink(int *count)
{
    for (int n = *count - 1; n > 0; n--) {
        if (*count % n) continue;
        *count = n;
        return true;
    }
    return false;
}

/* Reduces a call to as many rows, then to as many key/value heads of one row, as fit if a head of a
 * row takes head_bytes; false: not even one key/value head fits. */
static bool fit_to_limit(struct cudnn_attention_graph *g, size_t head_bytes, size_t max_bytes)
{
    int heads_per_group = g->H / g->G;
    while (row_heads(g) * head_bytes > max_bytes) {
        if (!shrink(&g->B) && !shrink(&g->G)) return false;
        g->H = g->G * heads_per_group;
    }
    return true;
}

/* --- building --- */

/* `engine` NULL: the heuristics choose. */
static enum status build(const struct cudnn_attention_plans *c, struct sdpa_plan *p,
                         const struct cudnn_engine *engine)
{
    struct cudnn_graph *g;
    cudnn_graph_open(&g);
    cudnn_attention_graph_build(&p->graph, g);
    enum status st = cudnn_graph_build_plan(g, &c->target, engine, &p->plan);
    cudnn_graph_close(g);
    return st;
}

/* What device.attention_bytes limits; 0: no plan. */
static size_t limited_bytes(const struct sdpa_plan *p)
{
    size_t bytes = p->plan.workspace, tokens = cudnn_attention_plans_tokens(p);
    if (!p->plan.plan) return 0;
    bytes += cudnn_attention_graph_scratch(&p->graph, ATTENTION_DK_FULL, tokens);
    return bytes + cudnn_attention_graph_scratch(&p->graph, ATTENTION_DV_FULL, tokens);
}

/* This engine stores no dS, so its workspace grows with rows and heads: that of a call for all rows
 * tells about how much a head takes.  A call with documents always covers all of them. */
static enum status build_with_engine(const struct cudnn_attention_plans *c, struct sdpa_plan *p,
                                     const struct cudnn_engine *engine)
{
    const struct cudnn_attention_graph all = p->graph;
    enum status st = build(c, p, engine);
    while (!st && limited_bytes(p) > c->max_bytes) {
        size_t head_bytes = p->plan.workspace / row_heads(&p->graph) + 1; /* so that it shrinks */
        cudnn_graph_release_plan(&p->plan);
        if (!p->graph.varlen && fit_to_limit(&p->graph, head_bytes, c->max_bytes))
            st = build(c, p, engine);
    }
    if (!p->plan.plan) p->graph = all;
    return st;
}

/* The heuristics' engines store dS in a deterministic backward.  False: none fits the limit. */
static bool fit_proposed(const struct cudnn_attention_plans *c, struct cudnn_attention_graph *g)
{
    if (!g->backward) return true;
    /* Deterministic varlen would store T x T for every possible sequence; and cuDNN's front end
     * excludes varlen with head sizes that are not a multiple of 16. */
    if (g->varlen && (g->deterministic || g->K % 16)) return false;
    return !g->deterministic || fit_to_limit(g, stored_bytes(g), c->max_bytes);
}

static enum status build_proposed(const struct cudnn_attention_plans *c, struct sdpa_plan *p)
{
    enum status st = build(c, p, NULL);
    if (p->graph.deterministic && p->plan.workspace > c->max_bytes)
        cudnn_graph_release_plan(&p->plan); /* it stores more than stored_bytes assumes */
    return st;
}

static void log_plan(const struct sdpa_plan *p, size_t max_bytes)
{
    const struct cudnn_attention_graph *g = &p->graph;
    const char *pass = p->key.backward ? "backward" : "forward";
    struct text sizes = {0};
    text_addf(&sizes, "T=%d, ", g->T);
    if (p->key.shape.rectangle.num_keys) text_addf(&sizes, "%d keys of a ring part, ", g->S);
    text_addf(&sizes, "K=%d", g->K);
    if (!p->plan.plan)
        log_line(LOG_INFO, "attention %s, %s: our own kernel; cuDNN has no%s engine within %s",
                 pass, sizes.data, g->deterministic ? " deterministic" : "",
                 byte_size_format((double)max_bytes).text);
    else
        log_line(LOG_INFO,
                 "attention %s, %s: cuDNN engine %d, %s%d %s and %d key/value heads per call, "
                 "workspace %s",
                 pass, sizes.data, p->plan.engine, p->key.varlen ? "at most " : "", g->B,
                 p->key.varlen ? "documents" : "rows", g->G,
                 byte_size_format((double)p->plan.workspace).text);
    text_release(&sizes);
}

static void build_plan(const struct cudnn_attention_plans *c, struct sdpa_plan *p)
{
    struct cudnn_engine engine;
    enum status st = STATUS_OK;
    if (cudnn_attention_graph_engine(&p->graph, c->capability, c->version, &engine))
        st = build_with_engine(c, p, &engine);
    if (!p->plan.plan && fit_proposed(c, &p->graph)) st = build_proposed(c, p);
    if (st) log_line(LOG_WARN, "%s", status_message()); /* not fatal: our own kernel takes over */
    if (!c->is_quiet) log_plan(p, c->max_bytes);
}

/* --- looking up --- */

static bool is_same_key(const struct sdpa_key *x, const struct sdpa_key *y)
{
    const struct attention *a = &x->shape, *b = &y->shape;
    return x->varlen == y->varlen && x->backward == y->backward && a->B == b->B && a->T == b->T &&
           a->H == b->H && a->G == b->G && a->K == b->K && a->q_stride == b->q_stride &&
           a->kv_stride == b->kv_stride && a->causal == b->causal && a->window == b->window &&
           a->scale == b->scale && a->rectangle.first_query == b->rectangle.first_query &&
           a->rectangle.num_keys == b->rectangle.num_keys;
}

static struct sdpa_plan *add_plan(struct cudnn_attention_plans *c, const struct sdpa_key *key)
{
    struct sdpa_plan *p = heap(sizeof *p);
    *p = (struct sdpa_plan){.key = *key, .graph = graph_of(c, key), .next = c->newest};
    c->newest = p;
    return p;
}

/* What T has to be a multiple of: causal ring attention has parts of T / 2 queries or keys. */
static int tokens_of_whole_tiles(const struct attention *a)
{
    const struct attention_rectangle *r = &a->rectangle;
    bool has_halves = r->num_keys && (a->causal || r->num_keys < a->S || r->first_query);
    return has_halves ? 2 * CUDNN_ATTENTION_TILE : CUDNN_ATTENTION_TILE;
}

/* Logs once that plans for this T would exist if it were such a multiple. */
static void log_partial_tile(struct cudnn_attention_plans *c, const struct sdpa_key *key)
{
    const struct attention *a = &key->shape;
    struct sdpa_key whole = *key;
    int multiple = tokens_of_whole_tiles(a), more = multiple - a->T % multiple;
    if (c->is_quiet || !has_partial_tile(a)) return;
    whole.shape.T += more, whole.shape.S += more;
    whole.shape.rectangle =
        (struct attention_rectangle){.num_keys = a->rectangle.num_keys ? whole.shape.S : 0};
    if (!is_supported(c, &whole)) return;
    for (const struct sdpa_plan *p = c->newest; p; p = p->next)
        if (p->key.shape.T == a->T && has_partial_tile(&p->key.shape)) return;
    add_plan(c, key);
    log_line(LOG_INFO,
             "attention%s, T=%d, K=%d: our own kernel, which is slower; cuDNN requires a multiple "
             "of %d %stokens",
             a->rectangle.num_keys ? " in ring parts" : "", a->T, a->K, multiple,
             a->rectangle.num_keys ? "local " : "");
}

const struct sdpa_plan *cudnn_attention_plans_find(struct cudnn_attention_plans *c,
                                                   const struct sdpa_key *key, bool builds)
{
    struct sdpa_plan *p = c->newest;
    if (!is_supported(c, key)) {
        if (builds) log_partial_tile(c, key);
        return NULL;
    }
    while (p && !is_same_key(&p->key, key)) p = p->next;
    if (!p && builds) {
        p = add_plan(c, key);
        build_plan(c, p);
    }
    return p && p->plan.plan ? p : NULL;
}

size_t cudnn_attention_plans_tokens(const struct sdpa_plan *p)
{
    size_t rows = (size_t)(p->key.varlen ? p->key.shape.B : p->graph.B);
    return rows * (size_t)p->graph.T;
}
