// SPDX-License-Identifier: Apache-2.0
#include "optim/optim.h"

#include "ops/adamw_8bit.h"
#include "ops/update.h"
#include "optim/moments.h"
#include "optim/optim_offload.h"
#include "tensor/element.h"

#include <math.h>

double optim_clip_factor(double norm, double max_norm)
{
    if (!(max_norm > 0)) return 1;
    return fmin(1, max_norm / (norm + 1e-6));
}

bool optim_uses_split_weights(const struct optimizer_config *c)
{
    return c->master_weights == MASTER_WEIGHTS_split;
}

bool optim_is_muon(const struct optimizer_config *c, enum param_id id)
{
    return c->name == OPTIMIZER_Muon && params[id].axes[1] && id != PARAM_embed && id != PARAM_head;
}

uint32_t optim_first_moment_only(const struct optimizer_config *c)
{
    uint32_t set = 0;
    for (enum param_id id = 0; id < PARAM_COUNT; id++)
        if (optim_is_muon(c, id)) set |= param_set_of(id);
    return set;
}

enum dtype optim_moment_dtype(const struct optimizer_config *c)
{
    switch (c->state_dtype) {
    case STATE_DTYPE_float32: break;
    case STATE_DTYPE_bfloat16: return BF16;
    case STATE_DTYPE_int8: return INT8;
    }
    return F32;
}

/* The arguments of optim_step, and the part of the shard that is updated. */
struct optim_call {
    const struct optim *o;
    const struct ops *ops;
    const struct optim_update *u;
    const struct optim_chunk *chunk;
    struct adamw a; /* what all calls of adamw have in common */
    struct queue *queue;
    /* The first run that reaches this chunk or a later one, and how many f32 moments precede it:
     * runs are in the order of the shard, and chunks, too, so each chunk begins here. */
    size_t run, full;
};

/* The buffers from element `at` of the shard on; `omitted` elements of the chunk before it have no
 * second moment. */
static struct adamw_io io_from(const struct optim_call *c, size_t at, size_t omitted)
{
    const struct optim *o = c->o;
    const struct optim_chunk *k = c->chunk;
    size_t in_chunk = at - k->begin;
    return (struct adamw_io){.w_n = element(k->weights, in_chunk, F32),
                             .m_n = element(k->exp_avg, in_chunk, o->moments),
                             .v_n = element(k->exp_avg_sq, in_chunk - omitted, o->moments),
                             .g_n = element(c->u->gradients, at, o->gradients),
                             .copy_n = element(o->copy, at, o->copy_dtype),
                             .low_n = k->low ? k->low + in_chunk : NULL};
}

/* Parts of one call of adamw. */
struct part_list {
    struct adamw_part parts[ADAMW_MAX_PARTS];
    int count;
    size_t base;    /* of the chunk: where the last run of Muon's before the parts ends */
    size_t omitted; /* elements of Muon's runs before it, which have no second moment */
};

/* Updates the parts of the list and empties it. */
static enum status update_parts(const struct optim_call *c, struct part_list *l)
{
    struct adamw a = c->a;
    struct adamw_io io = io_from(c, c->chunk->begin + l->base, l->omitted);
    if (!l->count) return STATUS_OK;
    a.n = 0, a.parts = l->parts, a.num_parts = l->count;
    for (int i = 0; i < l->count; i++) a.n += l->parts[i].count, l->parts[i].begin -= l->base;
    TRY(adamw(c->ops, &a, &io, c->queue));
    l->count = 0;
    return STATUS_OK;
}

/* Whether both can be one part, together with the padding between them, which stays zero. */
static bool continues(const struct adamw_part *p, const struct adamw_part *next, enum dtype moments)
{
    if (p->lr != next->lr || p->weight_decay != next->weight_decay) return false;
    return moments != BF16 ||
           (!p->run && !next->run && next->position - p->position == next->begin - p->begin);
}

static enum status add_part(const struct optim_call *c, struct part_list *l,
                            const struct adamw_part *p)
{
    struct adamw_part *last = l->count ? &l->parts[l->count - 1] : NULL;
    if (last && continues(last, p, c->a.moments)) {
        last->count = p->begin + p->count - last->begin;
        return STATUS_OK;
    }
    if (l->count == ADAMW_MAX_PARTS) TRY(update_parts(c, l));
    l->parts[l->count++] = *p;
    return STATUS_OK;
}

static bool is_muon(const struct optim *o, const struct shard_run *p)
{
    return optim_is_muon(o->config, o->layout->tensors[p->tensor].id);
}

static bool is_undecayed(const struct optim *o, const struct shard_run *p)
{
    return !o->config->decay_norms && param_is_vector(o->layout->tensors[p->tensor].id);
}

static double rate_of(const struct optim *o, const struct shard_run *p,
                      const struct optim_update *u)
{
    enum param_id id = o->layout->tensors[p->tensor].id;
    return u->is_decoupled && (id == PARAM_embed || id == PARAM_head) ? u->decoupled_lr : u->lr;
}

/* Which of `count` elements from `begin` on are in the chunk: [*from, *to); false: none. */
static bool intersect(const struct optim_chunk *k, size_t begin, size_t count, size_t *from,
                      size_t *to)
{
    size_t end = begin + count < k->end ? begin + count : k->end;
    *from = begin > k->begin ? begin : k->begin, *to = end;
    return *from < end;
}

/* Whether run i begins before the end of the chunk; false: there is no run i. */
static bool is_before_end(const struct optim_call *c, size_t i)
{
    const struct shard *s = c->o->shard;
    return i < s->count && s->runs[i].at < c->chunk->end;
}

/* The next chunk begins behind runs [i, i + n) if they end within this one; false: they do not. */
static bool advance(struct optim_call *c, size_t i, size_t n)
{
    const struct shard_run *last = &c->o->shard->runs[i + n - 1];
    if (last->at + last->count > c->chunk->end) return false;
    c->run = i + n;
    return true;
}

/* With 8-bit moments.  Those of other elements are f32, one after the other; `full` is where. */
static enum status update_quantized(const struct optim_call *c, struct adamw a, size_t from,
                                    size_t full)
{
    const struct optim *o = c->o;
    const struct store_blocks *m = &o->moment_blocks[0], *v = &o->moment_blocks[1];
    struct adamw_io io = io_from(c, from, 0);
    size_t block = from / BLOCKWISE_BLOCK;
    struct adamw_8bit_io io8 = {.w_n = io.w_n,
                                .m_n = io.m_n,
                                .v_n = io.v_n,
                                .m_scale = m->scales ? m->scales + block : NULL,
                                .v_scale = v->scales ? v->scales + block : NULL,
                                .g_n = io.g_n,
                                .copy_n = io.copy_n,
                                .low_n = io.low_n};
    io.m_n = element(m->full, full, F32);
    io.v_n = element(v->full, full, F32);
    if (a.moments == INT8)
        TRY(adamw_8bit(c->ops, &(struct adamw_8bit){a}, &io8, c->queue));
    else
        TRY(adamw(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

/* Tensor by tensor, as they are quantized or not. */
static enum status update_tensors(struct optim_call *c)
{
    struct adamw a = c->a;
    const struct optim *o = c->o;
    const struct shard *p = o->shard;
    double weight_decay = a.weight_decay;
    size_t full = c->full;
    for (size_t i = c->run, n, from, to; is_before_end(c, i); i += n) {
        const struct shard_run *first = &p->runs[i];
        bool quantized = moments_are_quantized(&o->layout->tensors[first->tensor]);
        n = shard_equal_runs(first, p->count - i);
        a.moments = quantized ? INT8 : F32;
        a.weight_decay = is_undecayed(o, first) ? 0 : weight_decay;
        a.lr = rate_of(o, first, c->u);
        if (intersect(c->chunk, first->at, n * first->count, &from, &to)) {
            a.n = to - from;
            TRY(update_quantized(c, a, from, full + (from - first->at)));
        }
        full += quantized ? 0 : n * first->count;
        if (advance(c, i, n)) c->full = full;
    }
    return STATUS_OK;
}

/* Adds elements [from, to) of the shard.  `whole`: the part that they belong to, with its begin in
 * the shard; if it consists of runs, they may begin and end within one. */
static enum status add_range(const struct optim_call *c, struct part_list *l,
                             const struct adamw_part *whole, size_t from, size_t to)
{
    while (from < to) {
        struct adamw_part part = *whole;
        size_t i = from - whole->begin, run = whole->run, in_run = run ? i % run : 0;
        part.begin = from - c->chunk->begin, part.count = to - from;
        part.position += run ? i / run * whole->stride + in_run : i;
        if (run && (in_run || part.count < run)) { /* the rest of a run, or its beginning */
            part.run = part.stride = 0;
            if (part.count > run - in_run) part.count = run - in_run;
        } else if (run) {
            part.count -= part.count % run;
        }
        TRY(add_part(c, l, &part));
        from += part.count;
    }
    return STATUS_OK;
}

/* Updates the chunk's elements. */
static enum status update_chunk(struct optim_call *c)
{
    const struct optim *o = c->o;
    const struct shard *s = o->shard;
    if (o->moments == INT8) return update_tensors(c);
    struct part_list list = {.count = 0};
    /* With stochastic rounding a part needs the position of each element in the whole model, so it
     * is a run of the shard, or equal runs of one tensor. */
    for (size_t i = c->run, n, from, to; is_before_end(c, i); i += n) {
        const struct shard_run *first = &s->runs[i];
        n = o->moments == BF16 ? shard_equal_runs(first, s->count - i) : 1;
        (void)advance(c, i, n);
        if (!intersect(c->chunk, first->at, n * first->count, &from, &to)) continue;
        if (is_muon(o, first)) {
            TRY(update_parts(c, &list));
            list.base = to - c->chunk->begin, list.omitted += to - from;
            continue;
        }
        struct adamw_part part = {
            .begin = first->at,
            .lr = rate_of(o, first, c->u),
            .weight_decay = is_undecayed(o, first) ? 0 : o->config->weight_decay,
            .position = o->layout->tensors[first->tensor].offset + first->first,
            .run = n > 1 ? first->count : 0,
            .stride = n > 1 ? first[1].first - first->first : 0};
        TRY(add_range(c, &list, &part, from, to));
    }
    TRY(update_parts(c, &list));
    return STATUS_OK;
}

enum status optim_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                       struct queue *queue)
{
    const struct optimizer_config *config = o->config;
    const struct adamw a = {.lr = u->lr,
                            .beta1 = config->beta1,
                            .beta2 = config->beta2,
                            .eps = config->eps,
                            .weight_decay = config->weight_decay,
                            .scale = u->scale,
                            .step = u->step,
                            .copy_dtype = o->copy_dtype,
                            .moments = o->moments,
                            .gradients = o->gradients,
                            .split = o->split,
                            .seed = o->seed};
    struct optim_chunk chunk = {0,      o->shard->elements, o->weights,
                                o->low, o->exp_avg,         o->exp_avg_sq};
    struct optim_call c = {.o = o, .ops = ops, .u = u, .chunk = &chunk, .a = a, .queue = queue};
    struct optim_offload *f = o->offload;
    if (!f) return update_chunk(&c);
    BUG_IF(config->name == OPTIMIZER_Muon); /* chunks have as many second moments as first */
    TRY(optim_offload_begin(f, &chunk, queue));
    for (size_t i = 0; i < f->num_chunks; i++) {
        struct optim_chunk here;
        TRY(optim_offload_open(f, i, &here, queue));
        c.chunk = &here;
        TRY(update_chunk(&c));
        TRY(optim_offload_close(f, i, queue));
    }
    TRY(optim_offload_end(f, queue));
    return STATUS_OK;
}
