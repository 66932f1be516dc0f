// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_attention.h"

#include "backends/gpu/runtime.h"
#include "backends/gpu/varlen.h"
#include "backends/gpu/vendor/cudnn_attention_graph.h"
#include "base/log.h"
#include "base/text.h"

#include <cudnn.h>
#include <float.h>
#include <stdlib.h>

enum {
    OLDEST = 91100,           /* 9.10 has a wrong backward */
    OLDEST_DOCUMENTS = 91800, /* NaN in rows of several lengths before */
    TOKENS_A_DOCUMENT = 256,  /* as many documents as there may be: that is what empty ones cost */
    MOST_IDS = ATTENTION_TENSOR_COUNT
};

struct plan {
    struct attention what;
    bool documents;
    struct attention_graph graph; /* what is done at once */
    struct graph_plan plan;
    struct plan *next;
};

struct attention_cudnn {
    cudnnHandle_t handle; /* NULL: only plans are made */
    void *device;
    bool deterministic;
    size_t version;
    struct plan *plans; /* the newest first */
};

static enum status open_any(struct attention_cudnn **out, bool deterministic)
{
    struct attention_cudnn *c = heap(sizeof *c);
    c->version = cudnnGetVersion();
    c->deterministic = deterministic;
    *out = c;
    if (c->version >= OLDEST) return STATUS_OK;
    log_line(LOG_INFO, "cuDNN %zu is too old: attention is by our own kernels", c->version);
    attention_cudnn_close(c);
    *out = NULL;
    return STATUS_OK;
}

static enum status start(struct attention_cudnn *c, void *stream)
{
    cudnnStatus_t got = cudnnCreate(&c->handle);
    if (!got) got = cudnnSetStream(c->handle, stream);
    if (got) FAIL(DEVICE, "cuDNN %zu does not start: %s", c->version, cudnnGetErrorString(got));
    return STATUS_OK;
}

enum status attention_cudnn_open(struct attention_cudnn **out, void *stream, bool deterministic)
{
    TRY(open_any(out, deterministic));
    if (!*out) return STATUS_OK;
    enum status st = start(*out, stream);
    if (!st) return STATUS_OK;
    attention_cudnn_close(*out);
    *out = NULL;
    return st;
}

enum status attention_cudnn_describe(struct attention_cudnn **out, const char *json, size_t length,
                                     bool deterministic)
{
    TRY(open_any(out, deterministic));
    if (!*out) return STATUS_OK;
    enum status st = graph_describe(json, length, &(*out)->device);
    if (!st) return STATUS_OK;
    attention_cudnn_close(*out);
    *out = NULL;
    return st;
}

void attention_cudnn_close(struct attention_cudnn *c)
{
    if (!c) return;
    for (struct plan *p = c->plans, *next; p; p = next) {
        next = p->next;
        graph_plan_release(&p->plan);
        free(p);
    }
    graph_forget(c->device);
    if (c->handle) cudnnDestroy(c->handle);
    free(c);
}

static bool takes(const struct attention_cudnn *c, const struct attention *a, bool documents)
{
    if (a->keys != ALL_KEYS || a->dtype != BF16 || a->S != a->T) return false;
    if (a->T % ATTENTION_TILE || a->K % 8 || a->K > 256) return false;
    if (a->q_stride % 8 || a->kv_stride % 8) return false; /* rows begin at 16 bytes */
    return !documents || c->version >= OLDEST_DOCUMENTS;
}

static size_t tokens_of(const struct plan *p)
{
    size_t rows = (size_t)(p->documents ? p->what.B : p->graph.B);
    return rows * (size_t)p->what.T;
}

/* ---- plans */

static struct attention_graph graph_of(const struct attention_cudnn *c, const struct attention *a,
                                       bool documents, bool backward)
{
    struct attention_graph g = {.B = a->B,
                                .T = a->T,
                                .H = a->H,
                                .G = a->G,
                                .K = a->K,
                                .q_row = (int64_t)a->q_stride,
                                .kv_row = (int64_t)a->kv_stride,
                                .out_row = (int64_t)a->H * a->K,
                                .all_heads = a->H,
                                .causal = a->causal,
                                .documents = documents,
                                .backward = backward,
                                .deterministic = c->deterministic};
    if (!documents) return g;
    size_t most = (size_t)a->B * (size_t)a->T / TOKENS_A_DOCUMENT + (size_t)a->B;
    g.B = most < MOST_DOCUMENTS ? (int)most : MOST_DOCUMENTS;
    return g;
}

/* Stored scores' gradients, and keys' and values' gradients of every query head. */
static size_t stored_bytes(const struct attention_graph *g)
{
    size_t T = (size_t)g->T, a_head = T * T * 2;
    if (g->H > g->G) a_head += 2 * T * (size_t)g->K * 2;
    return (size_t)g->B * (size_t)g->H * a_head;
}

static bool shrink(int *count)
{
    for (int n = *count - 1, all = *count; n > 0; n--)
        if (all % n == 0) return *count = n, true;
    return false;
}

/* As many rows, then as many key heads of one row, as fit; false: not even one. */
static bool fit(struct attention_graph *g)
{
    if (!g->backward) return true;
    /* T x T for as many documents as there may be; and cuDNN's front end knows of a fault of heads
     * that are no multiple of 16. */
    if (g->documents && (g->deterministic || g->K % 16)) return false;
    if (!g->deterministic) return true;
    int share = g->H / g->G;
    while (stored_bytes(g) > ATTENTION_MOST_BYTES) {
        if (!shrink(&g->B) && !shrink(&g->G)) return false;
        g->H = g->G * share;
    }
    return true;
}

static void tell(const struct plan *p)
{
    struct attention_way w = {.rows = p->graph.B, .groups = p->graph.G};
    const char *pass = p->graph.backward ? "backward" : "forward";
    if (!p->plan.plan)
        log_line(
            LOG_INFO,
            "attention %s, T=%d, K=%d: no%s engine of cuDNN within %.2f GiB, so our own kernel",
            pass, p->what.T, p->what.K, p->graph.deterministic ? " reproducible" : "",
            (double)ATTENTION_MOST_BYTES / (1 << 30));
    else
        log_line(LOG_INFO,
                 "attention %s, T=%d, K=%d: cuDNN's engine %d for %d %s and %d key heads at once, "
                 "%.0f MiB",
                 pass, p->what.T, p->what.K, p->plan.engine, w.rows,
                 p->documents ? "documents at most" : "rows", w.groups,
                 (double)p->plan.workspace / (1 << 20));
}

static enum status make_plan(const struct attention_cudnn *c, struct plan *p)
{
    struct graph_target target = {c->handle, c->device};
    struct graph *g;
    if (!fit(&p->graph)) return STATUS_OK;
    graph_open(&g);
    attention_graph_build(&p->graph, g);
    enum status st = graph_plan(g, &target, &p->plan);
    graph_close(g);
    if (st)
        log_line(LOG_INFO, "%s",
                 status_message()); /* a shape that is refused is our own kernel's */
    if (p->graph.deterministic && p->plan.workspace > ATTENTION_MOST_BYTES)
        graph_plan_release(&p->plan); /* it does not go the way that we know */
    return STATUS_OK;
}

static bool is_same(const struct attention *a, const struct attention *b)
{
    return a->B == b->B && a->T == b->T && a->H == b->H && a->G == b->G && a->K == b->K &&
           a->q_stride == b->q_stride && a->kv_stride == b->kv_stride && a->causal == b->causal;
}

/* The plan for this shape, made if need be over a measuring queue; NULL: there is none. */
static enum status find_plan(struct attention_cudnn *c, const struct attention *a, bool documents,
                             bool backward, const struct queue *on, const struct plan **out)
{
    struct plan *p = c->plans;
    *out = NULL;
    if (!takes(c, a, documents)) return STATUS_OK;
    while (p &&
           !(is_same(&p->what, a) && p->documents == documents && p->graph.backward == backward))
        p = p->next;
    if (!p && on->measuring) {
        p = heap(sizeof *p);
        *p = (struct plan){*a, documents, graph_of(c, a, documents, backward), {0}, c->plans};
        c->plans = p;
        TRY(make_plan(c, p));
        tell(p);
    }
    if (p && p->plan.plan) *out = p;
    return STATUS_OK;
}

bool attention_cudnn_way(const struct attention_cudnn *c, int i, struct attention_way *out)
{
    const struct plan *p = c->plans;
    while (p && i--) p = p->next;
    if (!p) return false;
    *out = (struct attention_way){.what = p->what,
                                  .backward = p->graph.backward,
                                  .documents = p->documents,
                                  .found = p->plan.plan,
                                  .engine = p->plan.engine,
                                  .rows = p->graph.B,
                                  .groups = p->graph.G,
                                  .workspace = p->plan.workspace};
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++)
        out->work += attention_graph_bytes(&p->graph, (enum attention_tensor)id, tokens_of(p));
    return true;
}

/* ---- runs */

/* What goes with a run: where its tensors lie. */
struct run {
    const struct plan *p;
    struct attention_cudnn *c;
    struct queue *on;
    int count;
    int64_t ids[MOST_IDS];
    void *at[MOST_IDS];
    void *workspace;
    float scale, lowest, one;
};

/* NULL: not in this graph. */
static void bind(struct run *r, enum attention_tensor id, const void *at)
{
    if (!at) return;
    r->ids[r->count] = id;
    r->at[r->count++] = (void *)(uintptr_t)at;
}

static void *take(struct run *r, size_t bytes)
{
    return bytes ? arena_take(&r->on->scratch, bytes, 1) : NULL;
}

static void open_run(struct run *r, struct attention_cudnn *c, const struct plan *p,
                     struct queue *on)
{
    *r = (struct run){
        .p = p, .c = c, .on = on, .scale = p->what.scale, .lowest = -FLT_MAX, .one = 1};
    r->workspace = take(r, p->plan.workspace);
    bind(r, ATTENTION_SCALE, &r->scale);
    if (p->what.causal || p->documents) bind(r, ATTENTION_LOWEST, &r->lowest);
    if (p->graph.backward) bind(r, ATTENTION_ONE, &r->one);
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++)
        bind(r, (enum attention_tensor)id,
             take(r, attention_graph_bytes(&p->graph, (enum attention_tensor)id, tokens_of(p))));
}

static enum status start_run(struct run *r)
{
    TRY(graph_run(&r->p->plan, r->c->handle, r->count, r->ids, r->at, r->workspace));
    return STATUS_OK;
}

/* Where documents begin, for the device; `d` NULL while measuring. */
static enum status bind_documents(struct run *r, const struct documents *d)
{
    static const enum attention_tensor lists[DOCUMENT_LISTS] = {
        ATTENTION_Q_BEGIN, ATTENTION_KV_BEGIN, ATTENTION_OUT_BEGIN, ATTENTION_LSE_BEGIN};
    const struct attention_graph *g = &r->p->graph;
    struct document_places to = {.rows = g->B, .elements = {g->q_row, g->kv_row, g->out_row, g->H}};
    to.lengths = take(r, (size_t)g->B * sizeof *to.lengths);
    bind(r, ATTENTION_LENGTHS, to.lengths);
    for (int i = 0; i < DOCUMENT_LISTS; i++) {
        to.begin[i] = take(r, ((size_t)g->B + 1) * sizeof *to.begin[i]);
        bind(r, lists[i], to.begin[i]);
    }
    if (d) TRY(gpu_documents_place(d, &to, r->on));
    return STATUS_OK;
}

static bool are_aligned(const void *const *x, int count)
{
    for (int i = 0; i < count; i++)
        if ((uintptr_t)x[i] % 16) return false;
    return true;
}

/* Whether the bounds of the batch are documents that the plan takes. */
static bool read_documents(const struct plan *p, const int32_t *start_BT, const int32_t *end_BT,
                           struct documents *out)
{
    if (!p->documents) return true;
    if (gpu_is_device(start_BT) || gpu_is_device(end_BT)) return false;
    return gpu_documents_find(start_BT, end_BT, p->what.B, p->what.T, p->graph.B, out);
}

static enum status run_forward(struct run *r, const struct attention_fwd *io,
                               const struct documents *d)
{
    const struct plan *p = r->p;
    const struct attention *a = &p->what;
    size_t lse = (size_t)a->B * (size_t)a->T * (size_t)a->H * sizeof(float);
    float *lse_NH = p->documents ? take(r, lse) : NULL;
    if (p->documents) TRY(bind_documents(r, d));
    if (r->on->measuring) return STATUS_OK;
    bind(r, ATTENTION_Q, io->q_BTHK);
    bind(r, ATTENTION_K, io->k_BSGK);
    bind(r, ATTENTION_V, io->v_BSGK);
    bind(r, ATTENTION_OUT, io->out_BTHK);
    bind(r, ATTENTION_LSE, p->documents ? lse_NH : io->lse_BHT);
    TRY(start_run(r));
    if (p->documents) TRY(gpu_by_head(lse_NH, io->lse_BHT, a->B, a->T, a->H, r->on));
    return STATUS_OK;
}

enum status attention_cudnn_forward(struct attention_cudnn *c, const struct attention *a,
                                    const struct attention_fwd *io, struct queue *on, bool *done)
{
    const void *const buffers[] = {io->q_BTHK, io->k_BSGK, io->v_BSGK, io->out_BTHK, io->lse_BHT};
    const struct plan *p;
    struct documents d;
    struct run r;
    *done = false;
    TRY(find_plan(c, a, io->start_BT != NULL, false, on, &p));
    if (!p) return STATUS_OK;
    if (!on->measuring && !(are_aligned(buffers, sizeof buffers / sizeof *buffers) &&
                            read_documents(p, io->start_BT, io->end_BT, &d)))
        return STATUS_OK;
    size_t mark = arena_mark(&on->scratch);
    open_run(&r, c, p, on);
    TRY(run_forward(&r, io, on->measuring ? NULL : &d));
    arena_reset(&on->scratch, mark);
    *done = true;
    return STATUS_OK;
}

static const void *step(const void *x, size_t elements)
{
    return (const char *)x + elements * dtype_bytes(BF16);
}

/* From row b and key head g on. */
static void bind_part(struct run *r, const struct attention_bwd *io, size_t b, size_t g,
                      const float *lse)
{
    const struct attention *a = &r->p->what;
    size_t T = (size_t)a->T, K = (size_t)a->K, h = g * (size_t)(a->H / a->G);
    size_t q = b * T * a->q_stride + h * K, kv = b * T * a->kv_stride + g * K;
    size_t out = (b * T * (size_t)a->H + h) * K;
    bind(r, ATTENTION_Q, step(io->q_BTHK, q));
    bind(r, ATTENTION_K, step(io->k_BSGK, kv));
    bind(r, ATTENTION_V, step(io->v_BSGK, kv));
    bind(r, ATTENTION_OUT, step(io->out_BTHK, out));
    bind(r, ATTENTION_DOUT, step(io->dout_BTHK, out));
    bind(r, ATTENTION_LSE, lse + (b * (size_t)a->H + h) * T);
    bind(r, ATTENTION_DQ, step(io->dq_BTHK, q));
    bind(r, ATTENTION_DK, step(io->dk_BSGK, kv));
    bind(r, ATTENTION_DV, step(io->dv_BSGK, kv));
}

static enum status run_documents(struct run *r, const struct attention_bwd *io,
                                 const struct documents *d)
{
    const struct attention *a = &r->p->what;
    size_t lse = (size_t)a->B * (size_t)a->T * (size_t)a->H * sizeof(float);
    float *lse_NH = take(r, lse);
    TRY(bind_documents(r, d));
    if (r->on->measuring) return STATUS_OK;
    TRY(gpu_by_token(io->lse_BHT, lse_NH, a->B, a->T, a->H, r->on));
    bind_part(r, io, 0, 0, lse_NH);
    TRY(start_run(r));
    return STATUS_OK;
}

static enum status run_backward(struct run *r, const struct attention_bwd *io)
{
    const struct attention *a = &r->p->what;
    int rows = r->p->graph.B, groups = r->p->graph.G, bound = r->count;
    if (r->on->measuring) return STATUS_OK;
    for (int b = 0; b < a->B; b += rows)
        for (int g = 0; g < a->G; g += groups) {
            r->count = bound;
            bind_part(r, io, (size_t)b, (size_t)g, io->lse_BHT);
            TRY(start_run(r));
        }
    return STATUS_OK;
}

enum status attention_cudnn_backward(struct attention_cudnn *c, const struct attention *a,
                                     const struct attention_bwd *io, struct queue *on, bool *done)
{
    const void *const buffers[] = {io->q_BTHK,   io->k_BSGK,    io->v_BSGK,
                                   io->out_BTHK, io->dout_BTHK, io->dq_BTHK,
                                   io->dk_BSGK,  io->dv_BSGK,   io->lse_BHT};
    const struct plan *p;
    struct documents d;
    struct run r;
    *done = false;
    TRY(find_plan(c, a, io->start_BT != NULL, true, on, &p));
    if (!p) return STATUS_OK;
    if (!on->measuring && !(are_aligned(buffers, sizeof buffers / sizeof *buffers) &&
                            read_documents(p, io->start_BT, io->end_BT, &d)))
        return STATUS_OK;
    size_t mark = arena_mark(&on->scratch);
    open_run(&r, c, p, on);
    if (p->documents)
        TRY(run_documents(&r, io, on->measuring ? NULL : &d));
    else
        TRY(run_backward(&r, io));
    arena_reset(&on->scratch, mark);
    *done = true;
    return STATUS_OK;
}
