// SPDX-License-Identifier: Apache-2.0
#include "backends/gpu/vendor/cudnn_attention.h"

#include "backends/gpu/attention_part.h"
#include "backends/gpu/queue.h"
#include "backends/gpu/runtime.h"
#include "backends/gpu/varlen.h"
#include "backends/gpu/vendor/cudnn_attention_plans.h"
#include "backends/gpu/vendor/cudnn_load.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"

#include <cudnn.h>
#include <float.h>
#include <stdlib.h>

enum { MIN_VERSION = 91100 }; /* wrong backward results in 9.10 */
enum { ANY_HEAD_SIZE = 64 };  /* checked where cuDNN does not compute heads of the model's size */

struct cudnn_attention {
    struct cudnn_attention_plans plans; /* without a handle, these cannot run */
    bool has_too_many;                  /* documents, which has been logged */
    int head_size;                      /* of checks */
    bool has_checked[2][2];             /* masks [with documents][with a window] */
    bool has_checked_parts;
};

static enum status check_version(void)
{
    TRY(cudnn_load());
    size_t version = cudnnGetVersion();
    if (version < MIN_VERSION)
        FAIL(UNSUPPORTED, "cuDNN %zu is too old: install %d or later", version, MIN_VERSION);
    return STATUS_OK;
}

enum status cudnn_attention_library(struct text *out)
{
    TRY(check_version());
    size_t version = cudnnGetVersion();
    text_addf(out, "cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    return STATUS_OK;
}

static enum status open_version(struct cudnn_attention **out, bool deterministic)
{
    *out = NULL;
    TRY(check_version());
    struct cudnn_attention *c = heap(sizeof *c);
    c->plans.version = cudnnGetVersion();
    c->plans.deterministic = deterministic;
    c->plans.max_bytes = CUDNN_ATTENTION_MAX_BYTES;
    *out = c;
    return STATUS_OK;
}

static enum status create_handle(struct cudnn_attention_plans *c, void *stream)
{
    int device;
    cudnnHandle_t handle;
    GPU_TRY(cudaGetDevice(&device));
    GPU_TRY(gpu_compute_capability(&c->capability, device));
    cudnnStatus_t status = cudnnCreate(&handle);
    if (!status) c->target.handle = handle;
    if (!status) status = cudnnSetStream(handle, stream);
    if (status)
        FAIL(UNSUPPORTED, "cannot create a handle of cuDNN %zu: %s", c->version,
             cudnnGetErrorString(status));
    return STATUS_OK;
}

void cudnn_attention_limit(struct cudnn_attention *c, size_t max_bytes)
{
    BUG_IF(c->plans.newest);
    c->plans.max_bytes = max_bytes;
}

enum status cudnn_attention_open(struct cudnn_attention **out, void *stream, bool deterministic)
{
    TRY(open_version(out, deterministic));
    enum status st = create_handle(&(*out)->plans, stream);
    if (!st) st = cudnn_attention_plans_check_gpu(&(*out)->plans);
    if (!st) return STATUS_OK;
    cudnn_attention_close(*out);
    *out = NULL;
    return st;
}

static enum status describe(struct cudnn_attention_plans *c, const char *text, size_t length)
{
    struct json *properties;
    int64_t version;
    TRY(cudnn_graph_describe_device(text, length, &c->target.device));
    TRY(json_parse(text, length, "a device's properties", &properties));
    enum status st = json_get_int(properties, "deviceVer", 0, INT32_MAX, &version);
    json_free(properties);
    TRY(st);
    c->capability = (int)version / 10; /* 900 is 9.0 */
    return STATUS_OK;
}

enum status cudnn_attention_open_described(struct cudnn_attention **out, const char *json,
                                           size_t length, bool deterministic)
{
    TRY(open_version(out, deterministic));
    enum status st = describe(&(*out)->plans, json, length);
    if (!st) return STATUS_OK;
    cudnn_attention_close(*out);
    *out = NULL;
    return st;
}

void cudnn_attention_close(struct cudnn_attention *c)
{
    if (!c) return;
    cudnn_attention_plans_release(&c->plans);
    cudnn_graph_free_device(c->plans.target.device);
    if (c->plans.target.handle) cudnnDestroy(c->plans.target.handle);
    free(c);
}

/* --- comparing with our own kernels --- */

static enum status check_forward(void *c, const struct attention *a, const struct attention_fwd *io,
                                 struct queue *queue, bool *done)
{
    TRY(cudnn_attention_forward(c, a, io, queue, done));
    return STATUS_OK;
}

static enum status check_backward(void *c, const struct attention *a,
                                  const struct attention_bwd *io, struct queue *queue, bool *done)
{
    TRY(cudnn_attention_backward(c, a, io, queue, done));
    return STATUS_OK;
}

static enum status compare_with_own_kernels(struct cudnn_attention *c, struct attention_case what,
                                            struct queue *queue)
{
    struct attention_library library = {c, NULL, check_forward, check_backward};
    c->plans.is_quiet = true;
    enum status st = gpu_attention_check(&library, what, c->head_size, queue);
    c->plans.is_quiet = false;
    if (st) status_prefix(st, "cuDNN %zu fails a self-test", c->plans.version);
    return st;
}

/* Whether the last check has ended because no engine supports its forward pass. */
static bool lacks_forward(const struct cudnn_attention *c)
{
    const struct sdpa_plan *p = c->plans.newest;
    return p && !p->key.backward && p->key.shape.K == c->head_size && !p->plan.plan;
}

enum status cudnn_attention_check(struct cudnn_attention *c, int head_size, struct queue *queue)
{
    const struct attention_case none = {0};
    bool can_have_plans = cudnn_attention_plans_has_head_size(head_size);
    c->head_size = can_have_plans ? head_size : ANY_HEAD_SIZE;
    c->has_checked[false][false] = true;
    enum status st = compare_with_own_kernels(c, none, queue);
    if (st != STATUS_UNSUPPORTED || c->head_size == ANY_HEAD_SIZE || !lacks_forward(c)) return st;
    c->head_size = ANY_HEAD_SIZE;
    return compare_with_own_kernels(c, none, queue);
}

enum status cudnn_attention_check_case(struct cudnn_attention *c, struct attention_case what,
                                       struct queue *queue)
{
    struct cudnn_attention_plans *p = &c->plans;
    bool *has_checked =
        what.parts ? &c->has_checked_parts : &c->has_checked[what.documents][what.window];
    bool *rejects = what.parts ? &p->rejects_parts : &p->rejects[what.documents][what.window];
    if (*has_checked || (what.documents && !cudnn_attention_plans_has_varlen(p))) return STATUS_OK;
    *has_checked = true;
    enum status st = compare_with_own_kernels(c, what, queue);
    if (st && st != STATUS_UNSUPPORTED && st != STATUS_MEMORY) return st;
    if (st)
        log_line(LOG_WARN,
                 "attention with %s uses our own kernels, at about half of cuDNN's speed: %s",
                 cudnn_attention_plans_case_name(what), status_message());
    *rejects = st != STATUS_OK;
    return STATUS_OK;
}

void cudnn_attention_add_rejected(const struct cudnn_attention *c, struct text *out)
{
    cudnn_attention_plans_add_rejected(&c->plans, out);
}

bool cudnn_attention_plan(const struct cudnn_attention *c, int i, struct cudnn_attention_plan *out)
{
    const struct sdpa_plan *p = c->plans.newest;
    while (p && i--) p = p->next;
    if (!p) return false;
    *out = (struct cudnn_attention_plan){.shape = p->key.shape,
                                         .backward = p->key.backward,
                                         .varlen = p->key.varlen,
                                         .found = p->plan.plan,
                                         .engine = p->plan.engine,
                                         .rows = p->graph.B,
                                         .kv_heads = p->graph.G,
                                         .workspace = p->plan.workspace};
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++)
        out->scratch += cudnn_attention_graph_scratch(&p->graph, (enum attention_tensor)id,
                                                      cudnn_attention_plans_tokens(p));
    return true;
}

/* --- calls --- */

/* One execution of a plan: its scratch and the tensors bound to it. */
struct sdpa_call {
    const struct sdpa_plan *p;
    struct cudnn_attention *c;
    struct queue *queue;
    int count;
    int64_t ids[ATTENTION_TENSOR_COUNT];
    void *pointers[ATTENTION_TENSOR_COUNT];
    void *workspace;
    float scale, mask_value, window, one;
};

/* NULL: the graph does not have the tensor. */
static void bind_tensor(struct sdpa_call *call, enum attention_tensor id, const void *pointer)
{
    if (!pointer) return;
    call->ids[call->count] = id;
    call->pointers[call->count++] = (void *)(uintptr_t)pointer;
}

static void *alloc_scratch(struct sdpa_call *call, size_t bytes)
{
    return bytes ? arena_alloc(&call->queue->scratch, bytes, 1) : NULL;
}

static void open_call(struct sdpa_call *call, struct cudnn_attention *c, const struct sdpa_plan *p,
                      struct queue *queue)
{
    *call = (struct sdpa_call){.p = p,
                               .c = c,
                               .queue = queue,
                               .scale = p->key.shape.scale,
                               .mask_value = -FLT_MAX,
                               .window = (float)p->key.shape.window,
                               .one = 1};
    call->workspace = alloc_scratch(call, p->plan.workspace);
    bind_tensor(call, ATTENTION_SCALE, &call->scale);
    if (p->key.shape.causal || p->key.varlen)
        bind_tensor(call, ATTENTION_MASK_VALUE, &call->mask_value);
    if (p->key.shape.window) bind_tensor(call, ATTENTION_WINDOW, &call->window);
    if (p->key.backward) bind_tensor(call, ATTENTION_ONE, &call->one);
    size_t tokens = cudnn_attention_plans_tokens(p);
    for (int id = 0; id < ATTENTION_TENSOR_COUNT; id++) {
        enum attention_tensor which = (enum attention_tensor)id;
        size_t bytes = cudnn_attention_graph_scratch(&p->graph, which, tokens);
        bind_tensor(call, which, alloc_scratch(call, bytes));
    }
}

static enum status execute(struct sdpa_call *call)
{
    struct cudnn_variant_pack pack = {call->count, call->ids, call->pointers, call->workspace};
    TRY(cudnn_graph_execute(&call->p->plan, call->c->plans.target.handle, &pack));
    return STATUS_OK;
}

/* Binds the lengths and ragged offsets of the sequences; `v` NULL during a sizing pass. */
static enum status bind_offsets(struct sdpa_call *call, const struct varlen *v)
{
    static const enum attention_tensor lists[VARLEN_LISTS] = {
        ATTENTION_Q_OFFSETS, ATTENTION_KV_OFFSETS, ATTENTION_OUT_OFFSETS, ATTENTION_LSE_OFFSETS};
    const struct cudnn_attention_graph *g = &call->p->graph;
    struct varlen_offsets to = {.sequences = g->B,
                                .token_elements = {g->q_stride, g->kv_stride, g->out_stride, g->H}};
    to.lengths = alloc_scratch(call, (size_t)g->B * sizeof *to.lengths);
    bind_tensor(call, ATTENTION_LENGTHS, to.lengths);
    for (int i = 0; i < VARLEN_LISTS; i++) {
        to.offsets[i] = alloc_scratch(call, ((size_t)g->B + 1) * sizeof *to.offsets[i]);
        bind_tensor(call, lists[i], to.offsets[i]);
    }
    if (v) TRY(gpu_varlen_write_offsets(v, &to, call->queue));
    return STATUS_OK;
}

static bool are_aligned(const void *const *x, int count)
{
    for (int i = 0; i < count; i++)
        if ((uintptr_t)x[i] % 16) return false;
    return true;
}

/* Bounds that the host can read; NULL: they are in device memory only. */
static const int32_t *on_host(const struct queue *queue, const int32_t *bound_BT)
{
    return gpu_is_device_memory(bound_BT) ? queue_host_copy(queue, bound_BT) : bound_BT;
}

/* Whether the bounds are a document mask that the plan supports. */
static bool read_documents(struct cudnn_attention *c, const struct sdpa_plan *p,
                           const struct queue *queue, const int32_t *const bounds_BT[2],
                           struct varlen *out)
{
    if (!p->key.varlen) return true;
    struct varlen_bounds bounds = {on_host(queue, bounds_BT[0]), on_host(queue, bounds_BT[1]),
                                   p->key.shape.B, p->key.shape.T};
    if (!bounds.start_BT || !bounds.end_BT) return false;
    bool found = gpu_varlen_find(&bounds, p->graph.B, out);
    if (!found && out->count == p->graph.B && !c->has_too_many) {
        log_line(LOG_INFO,
                 "our own kernels compute the attention of %d rows of %d tokens with more than %d "
                 "documents, at about half of cuDNN's speed",
                 p->key.shape.B, p->key.shape.T, p->graph.B);
        c->has_too_many = true;
    }
    return found;
}

/* lse with heads last, as ragged plans have it. */
static float *alloc_lse(struct sdpa_call *call)
{
    const struct attention *a = &call->p->key.shape;
    return alloc_scratch(call, (size_t)a->B * (size_t)a->T * (size_t)a->H * sizeof(float));
}

static struct varlen_shape varlen_shape_of(const struct attention *a)
{
    return (struct varlen_shape){a->B, a->T, a->H};
}

static const void *advance(const void *x, size_t elements)
{
    return (const char *)x + elements * dtype_bytes(BF16);
}

static enum status run_forward(struct sdpa_call *call, const struct attention_fwd *io,
                               const struct varlen *v)
{
    const struct sdpa_plan *p = call->p;
    float *lse_NH = p->key.varlen ? alloc_lse(call) : NULL;
    if (p->key.varlen) TRY(bind_offsets(call, v));
    if (call->queue->sizing) return STATUS_OK;
    size_t first_query = (size_t)p->key.shape.rectangle.first_query;
    bind_tensor(call, ATTENTION_Q, advance(io->q_BTHK, first_query * p->key.shape.q_stride));
    bind_tensor(call, ATTENTION_K, io->k_BSGK);
    bind_tensor(call, ATTENTION_V, io->v_BSGK);
    bind_tensor(call, ATTENTION_OUT, io->out_BTHK);
    bind_tensor(call, ATTENTION_LSE, p->key.varlen ? lse_NH : io->lse_BHT);
    TRY(execute(call));
    if (p->key.varlen)
        TRY(gpu_varlen_to_heads(lse_NH, io->lse_BHT, varlen_shape_of(&p->key.shape), call->queue));
    return STATUS_OK;
}

static enum status forward(void *context, const struct attention *a, const struct attention_fwd *io,
                           struct queue *queue, bool *done)
{
    struct cudnn_attention *c = context;
    const void *const buffers[] = {io->q_BTHK, io->k_BSGK, io->v_BSGK, io->out_BTHK, io->lse_BHT};
    const int32_t *const bounds[2] = {io->start_BT, io->end_BT};
    struct sdpa_key key = {*a, .varlen = io->start_BT, .backward = false};
    const struct sdpa_plan *p = cudnn_attention_plans_find(&c->plans, &key, queue->sizing);
    struct varlen v;
    struct sdpa_call call;
    *done = false;
    if (!p) return STATUS_OK;
    if (!queue->sizing && !(are_aligned(buffers, sizeof buffers / sizeof *buffers) &&
                            read_documents(c, p, queue, bounds, &v)))
        return STATUS_OK;
    size_t mark = arena_mark(&queue->scratch);
    open_call(&call, c, p, queue);
    TRY(run_forward(&call, io, queue->sizing ? NULL : &v));
    arena_reset(&queue->scratch, mark);
    *done = true;
    return STATUS_OK;
}

/* Binds the tensors of a call that starts at row b and key/value head g. */
static void bind_part(struct sdpa_call *call, const struct attention_bwd *io, size_t b, size_t g,
                      const float *lse)
{
    const struct attention *a = &call->p->key.shape;
    const struct cudnn_attention_graph *graph = &call->p->graph;
    size_t T = (size_t)graph->T, S = (size_t)graph->S, K = (size_t)a->K;
    size_t h = g * (size_t)(a->H / a->G),
           query = b * (size_t)a->T + (size_t)a->rectangle.first_query;
    size_t q = query * a->q_stride + h * K, kv = b * (size_t)a->S * a->kv_stride + g * K;
    size_t out = (query * (size_t)a->H + h) * K;
    size_t dq = b * T * (size_t)graph->dq_stride + h * K;
    size_t dkv = b * S * (size_t)graph->dkv_stride + g * K;
    bind_tensor(call, ATTENTION_Q, advance(io->q_BTHK, q));
    bind_tensor(call, ATTENTION_K, advance(io->k_BSGK, kv));
    bind_tensor(call, ATTENTION_V, advance(io->v_BSGK, kv));
    bind_tensor(call, ATTENTION_OUT, advance(io->out_BTHK, out));
    bind_tensor(call, ATTENTION_DOUT, advance(io->dout_BTHK, out));
    bind_tensor(call, ATTENTION_LSE, lse + (b * (size_t)a->H + h) * T);
    bind_tensor(call, ATTENTION_DQ, advance(io->dq_BTHK, dq));
    bind_tensor(call, ATTENTION_DK, advance(io->dk_BSGK, dkv));
    bind_tensor(call, ATTENTION_DV, advance(io->dv_BSGK, dkv));
}

static enum status run_varlen_backward(struct sdpa_call *call, const struct attention_bwd *io,
                                       const struct varlen *v)
{
    float *lse_NH = alloc_lse(call);
    TRY(bind_offsets(call, v));
    if (call->queue->sizing) return STATUS_OK;
    TRY(gpu_varlen_to_tokens(io->lse_BHT, lse_NH, varlen_shape_of(&call->p->key.shape),
                             call->queue));
    bind_part(call, io, 0, 0, lse_NH);
    TRY(execute(call));
    return STATUS_OK;
}

/* Executes the plan once per group of rows and key/value heads. */
static enum status run_backward(struct sdpa_call *call, const struct attention_bwd *io)
{
    const struct attention *a = &call->p->key.shape;
    int rows = call->p->graph.B, kv_heads = call->p->graph.G, bound = call->count;
    if (call->queue->sizing) return STATUS_OK;
    for (int b = 0; b < a->B; b += rows)
        for (int g = 0; g < a->G; g += kv_heads) {
            call->count = bound;
            bind_part(call, io, (size_t)b, (size_t)g, io->lse_BHT);
            TRY(execute(call));
        }
    return STATUS_OK;
}

static enum status backward(void *context, const struct attention *a,
                            const struct attention_bwd *io, struct queue *queue, bool *done)
{
    struct cudnn_attention *c = context;
    const void *const buffers[] = {io->q_BTHK,   io->k_BSGK,    io->v_BSGK,
                                   io->out_BTHK, io->dout_BTHK, io->dq_BTHK,
                                   io->dk_BSGK,  io->dv_BSGK,   io->lse_BHT};
    const int32_t *const bounds[2] = {io->start_BT, io->end_BT};
    struct sdpa_key key = {*a, .varlen = io->start_BT, .backward = true};
    const struct sdpa_plan *p = cudnn_attention_plans_find(&c->plans, &key, queue->sizing);
    struct varlen v;
    struct sdpa_call call;
    *done = false;
    if (!p) return STATUS_OK;
    if (!queue->sizing && !(are_aligned(buffers, sizeof buffers / sizeof *buffers) &&
                            read_documents(c, p, queue, bounds, &v)))
        return STATUS_OK;
    size_t mark = arena_mark(&queue->scratch);
    open_call(&call, c, p, queue);
    if (p->key.varlen)
        TRY(run_varlen_backward(&call, io, queue->sizing ? NULL : &v));
    else
        TRY(run_backward(&call, io));
    arena_reset(&queue->scratch, mark);
    *done = true;
    return STATUS_OK;
}

/* --- parts of the keys --- */

static bool has_plan(void *context, const struct attention *a, bool backward,
                     const struct queue *queue)
{
    struct cudnn_attention *c = context;
    struct sdpa_key key = {*a, .varlen = false, .backward = backward};
    return cudnn_attention_plans_find(&c->plans, &key, queue->sizing);
}

enum status cudnn_attention_forward(struct cudnn_attention *c, const struct attention *a,
                                    const struct attention_fwd *io, struct queue *queue, bool *done)
{
    struct attention_library library = {c, has_plan, forward, backward};
    if (a->keys == ALL_KEYS) return forward(c, a, io, queue, done);
    return gpu_attention_part_forward(&library, a, io, queue, done);
}

enum status cudnn_attention_backward(struct cudnn_attention *c, const struct attention *a,
                                     const struct attention_bwd *io, struct queue *queue,
                                     bool *done)
{
    struct attention_library library = {c, has_plan, forward, backward};
    if (a->keys == ALL_KEYS) return backward(c, a, io, queue, done);
    return gpu_attention_part_backward(&library, a, io, queue, done);
}
