// SPDX-License-Identifier: Apache-2.0
#include "optim/optim.h"

#include "ops/update.h"

#include <math.h>

enum status optim_squares(const struct optim *o, const struct ops *ops, const float *flat,
                          double *squares, struct queue *on)
{
    double sum = 0;
    TRY(sum_squares(ops, &(struct sum_squares){o->pieces->elements},
                    &(struct sum_squares_io){flat, &sum}, on));
    if (!on->measuring) *squares = sum;
    return STATUS_OK;
}

double optim_clip_factor(double norm, double max_norm)
{
    if (!(max_norm > 0)) return 1;
    return fmin(1, max_norm / (norm + 1e-6));
}

bool optim_splits(const struct optimizer_config *c)
{
    return c->master_weights == MASTER_WEIGHTS_split;
}

enum dtype optim_moments(const struct optimizer_config *c)
{
    return c->state_dtype == STATE_DTYPE_bfloat16 ? BF16 : F32;
}

static void *at(const void *base, size_t offset, size_t each)
{
    return base ? (char *)(uintptr_t)base + offset * each : NULL;
}

/* Elements [from, to) of the flat buffers. */
static enum status update(const struct optim *o, const struct ops *ops, struct adamw what,
                          const float *gradients, size_t from, size_t to, struct queue *on)
{
    what.n = to - from;
    struct adamw_io io = {.w_n = at(o->weights, from, sizeof *o->weights),
                          .m_n = at(o->exp_avg, from, dtype_bytes(o->moments)),
                          .v_n = at(o->exp_avg_sq, from, dtype_bytes(o->moments)),
                          .g_n = at(gradients, from, sizeof *gradients),
                          .copy_n = at(o->copy, from, dtype_bytes(o->copy_dtype)),
                          .low_n = at(o->low, from, sizeof *o->low)};
    TRY(adamw(ops, &what, &io, on));
    return STATUS_OK;
}

static bool is_undecayed(const struct optim *o, const struct piece *p)
{
    return !o->config->decay_norms && params[o->layout->tensors[p->tensor].id].is_norm;
}

/* How many pieces from p on are alike: runs of one length of one tensor, as far apart in it. */
static size_t alike(const struct piece *p, size_t most)
{
    size_t n = 1;
    while (n < most && p[n].tensor == p->tensor && p[n].count == p->count &&
           p[n].at == p[n - 1].at + p->count && p[n].first > p[n - 1].first &&
           p[n].first - p[n - 1].first == p[1].first - p->first)
        n++;
    return n;
}

/* Places in the whole model come with each call, which so takes what is of one tensor. */
static enum status update_placed(const struct optim *o, const struct ops *ops, struct adamw what,
                                 const float *gradients, struct queue *on)
{
    const struct pieces *p = o->pieces;
    double decay = what.decay;
    for (size_t i = 0, n; i < p->count; i += n) {
        const struct piece *first = &p->all[i];
        n = alike(first, p->count - i);
        what.decay = is_undecayed(o, first) ? 0 : decay;
        what.position = o->layout->tensors[first->tensor].offset + first->first;
        what.run = n > 1 ? first->count : 0;
        what.stride = n > 1 ? first[1].first - first->first : 0;
        TRY(update(o, ops, what, gradients, first->at, first->at + n * first->count, on));
    }
    return STATUS_OK;
}

enum status optim_step(const struct optim *o, const struct ops *ops, const float *gradients,
                       double lr, double scale, int64_t step, struct queue *on)
{
    const struct optimizer_config *c = o->config;
    struct adamw what = {.lr = lr,
                         .beta1 = c->beta1,
                         .beta2 = c->beta2,
                         .eps = c->eps,
                         .decay = c->weight_decay,
                         .scale = scale,
                         .step = step,
                         .copy_dtype = o->copy_dtype,
                         .moments = o->moments,
                         .split = o->split,
                         .seed = o->seed};
    const struct pieces *p = o->pieces;
    if (o->moments == BF16) return update_placed(o, ops, what, gradients, on);
    if (c->decay_norms) return update(o, ops, what, gradients, 0, p->elements, on);
    /* Runs of pieces with one decay, the gap behind a piece with it: gaps stay zero. */
    for (size_t first = 0, next; first < p->count; first = next) {
        bool undecayed = is_undecayed(o, &p->all[first]);
        next = first + 1;
        while (next < p->count && is_undecayed(o, &p->all[next]) == undecayed) next++;
        size_t end = next < p->count ? p->all[next].at : p->elements;
        what.decay = undecayed ? 0 : c->weight_decay;
        TRY(update(o, ops, what, gradients, p->all[first].at, end, on));
    }
    return STATUS_OK;
}
