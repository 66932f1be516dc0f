// SPDX-License-Identifier: Apache-2.0
#include "optim/optim.h"

#include "ops/adamw_8bit.h"
#include "ops/update.h"
#include "optim/moments.h"

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

enum dtype optim_moment_dtype(const struct optimizer_config *c)
{
    static const enum dtype dtypes[] = {
        [STATE_DTYPE_float32] = F32, [STATE_DTYPE_bfloat16] = BF16, [STATE_DTYPE_int8] = INT8};
    return dtypes[c->state_dtype];
}

static void *element_at(const void *base, size_t offset, size_t each)
{
    return base ? (char *)(uintptr_t)base + offset * each : NULL;
}

/* The arguments of optim_step. */
struct optim_call {
    const struct optim *o;
    const struct ops *ops;
    const void *gradients;
    struct queue *queue;
};

/* AdamW on elements [from, to) of the flat buffers. */
static enum status update_range(const struct optim_call *c, struct adamw a, size_t from, size_t to)
{
    const struct optim *o = c->o;
    a.n = to - from;
    struct adamw_io io = {.w_n = element_at(o->weights, from, sizeof *o->weights),
                          .m_n = element_at(o->exp_avg, from, dtype_bytes(o->moments)),
                          .v_n = element_at(o->exp_avg_sq, from, dtype_bytes(o->moments)),
                          .g_n = element_at(c->gradients, from, dtype_bytes(o->gradients)),
                          .copy_n = element_at(o->copy, from, dtype_bytes(o->copy_dtype)),
                          .low_n = element_at(o->low, from, sizeof *o->low)};
    TRY(adamw(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

static bool is_muon(const struct optim *o, const struct shard_run *p)
{
    return optim_is_muon(o->config, o->layout->tensors[p->tensor].id);
}

static bool is_undecayed(const struct optim *o, const struct shard_run *p)
{
    return !o->config->decay_norms && params[o->layout->tensors[p->tensor].id].is_norm;
}

static double rate_of(const struct optim *o, const struct shard_run *p,
                      const struct optim_update *u)
{
    enum param_id id = o->layout->tensors[p->tensor].id;
    return u->is_decoupled && (id == PARAM_embed || id == PARAM_head) ? u->decoupled_lr : u->lr;
}

/* With stochastic rounding, an op needs the positions of its elements in the whole model, so each
 * call takes equal runs of one tensor. */
static enum status update_by_position(const struct optim_call *c, struct adamw a,
                                      const struct optim_update *u)
{
    const struct optim *o = c->o;
    const struct shard *p = o->shard;
    double weight_decay = a.weight_decay;
    for (size_t i = 0, n; i < p->count; i += n) {
        const struct shard_run *first = &p->runs[i];
        n = shard_equal_runs(first, p->count - i);
        if (is_muon(o, first)) continue;
        a.weight_decay = is_undecayed(o, first) ? 0 : weight_decay;
        a.lr = rate_of(o, first, u);
        a.position = o->layout->tensors[first->tensor].offset + first->first;
        a.run = n > 1 ? first->count : 0;
        a.stride = n > 1 ? first[1].first - first->first : 0;
        TRY(update_range(c, a, first->at, first->at + n * first->count));
    }
    return STATUS_OK;
}

/* With 8-bit moments.  Those of other elements are f32, one after the other; `full` is where. */
static enum status update_quantized(const struct optim_call *c, struct adamw a, size_t from,
                                    size_t full)
{
    const struct optim *o = c->o;
    const struct store_blocks *m = &o->moment_blocks[0], *v = &o->moment_blocks[1];
    struct adamw_io io = {.w_n = element_at(o->weights, from, sizeof *o->weights),
                          .m_n = element_at(m->full, full, sizeof *m->full),
                          .v_n = element_at(v->full, full, sizeof *v->full),
                          .g_n = element_at(c->gradients, from, dtype_bytes(o->gradients)),
                          .copy_n = element_at(o->copy, from, dtype_bytes(o->copy_dtype)),
                          .low_n = element_at(o->low, from, sizeof *o->low)};
    size_t block = from / BLOCKWISE_BLOCK;
    struct adamw_8bit_io io8 = {.w_n = io.w_n,
                                .m_n = element_at(o->exp_avg, from, 1),
                                .v_n = element_at(o->exp_avg_sq, from, 1),
                                .m_scale = element_at(m->scales, block, sizeof *m->scales),
                                .v_scale = element_at(v->scales, block, sizeof *v->scales),
                                .g_n = io.g_n,
                                .copy_n = io.copy_n,
                                .low_n = io.low_n};
    if (a.moments == INT8)
        TRY(adamw_8bit(c->ops, &(struct adamw_8bit){a}, &io8, c->queue));
    else
        TRY(adamw(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

/* Tensor by tensor, as they are quantized or not. */
static enum status update_tensors(const struct optim_call *c, struct adamw a,
                                  const struct optim_update *u)
{
    const struct optim *o = c->o;
    const struct shard *p = o->shard;
    double weight_decay = a.weight_decay;
    size_t full = 0;
    for (size_t i = 0, n; i < p->count; i += n) {
        const struct shard_run *first = &p->runs[i];
        bool quantized = moments_are_quantized(&o->layout->tensors[first->tensor]);
        n = shard_equal_runs(first, p->count - i);
        a.n = n * first->count;
        a.moments = quantized ? INT8 : F32;
        a.weight_decay = is_undecayed(o, first) ? 0 : weight_decay;
        a.lr = rate_of(o, first, u);
        TRY(update_quantized(c, a, first->at, full));
        full += quantized ? 0 : a.n;
    }
    return STATUS_OK;
}

enum status optim_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                       struct queue *queue)
{
    const struct optimizer_config *config = o->config;
    const struct optim_call c = {o, ops, u->gradients, queue};
    struct adamw a = {.lr = u->lr,
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
    const struct shard *p = o->shard;
    bool is_uniform = config->name == OPTIMIZER_AdamW && config->decay_norms && !u->is_decoupled;
    if (o->moments == BF16) return update_by_position(&c, a, u);
    if (o->moments == INT8) return update_tensors(&c, a, u);
    if (is_uniform) return update_range(&c, a, 0, p->elements);
    /* Calls cover consecutive runs with the same weight decay and rate, and padding, which stays
     * zero. */
    for (size_t first = 0, next; first < p->count; first = next) {
        bool undecayed = is_undecayed(o, &p->runs[first]);
        double lr = rate_of(o, &p->runs[first], u);
        bool muon = is_muon(o, &p->runs[first]);
        next = first + 1;
        while (next < p->count && is_undecayed(o, &p->runs[next]) == undecayed &&
               rate_of(o, &p->runs[next], u) == lr && is_muon(o, &p->runs[next]) == muon)
            next++;
        if (muon) continue;
        size_t end = next < p->count ? p->runs[next].at : p->elements;
        a.weight_decay = undecayed ? 0 : config->weight_decay;
        a.lr = lr;
        TRY(update_range(&c, a, p->runs[first].at, end));
    }
    return STATUS_OK;
}
