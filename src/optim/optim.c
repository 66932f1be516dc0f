// SPDX-License-Identifier: Apache-2.0
#include "optim/optim.h"

#include "ops/update.h"

#include <math.h>

enum status optim_squares(const struct optim *o, const struct ops *ops, const float *flat,
                          double *squares, struct queue *queue)
{
    double sum = 0;
    TRY(sum_squares(ops, &(struct sum_squares){o->pieces->elements},
                    &(struct sum_squares_io){flat, &sum}, queue));
    if (!queue->measuring) *squares = sum;
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

static void *element_at(const void *base, size_t offset, size_t each)
{
    return base ? (char *)(uintptr_t)base + offset * each : NULL;
}

/* AdamW on elements [from, to) of the flat buffers. */
static enum status update_range(const struct optim *o, const struct ops *ops, struct adamw what,
                                const float *gradients, size_t from, size_t to, struct queue *queue)
{
    what.n = to - from;
    struct adamw_io io = {.w_n = element_at(o->weights, from, sizeof *o->weights),
                          .m_n = element_at(o->exp_avg, from, dtype_bytes(o->moments)),
                          .v_n = element_at(o->exp_avg_sq, from, dtype_bytes(o->moments)),
                          .g_n = element_at(gradients, from, sizeof *gradients),
                          .copy_n = element_at(o->copy, from, dtype_bytes(o->copy_dtype)),
                          .low_n = element_at(o->low, from, sizeof *o->low)};
    TRY(adamw(ops, &what, &io, queue));
    return STATUS_OK;
}

static bool is_undecayed(const struct optim *o, const struct piece *p)
{
    return !o->config->decay_norms && params[o->layout->tensors[p->tensor].id].is_norm;
}

/* How many runs from p on are of equal length and at a constant stride in one tensor. */
static size_t count_equal_runs(const struct piece *p, size_t most)
{
    size_t n = 1;
    while (n < most && p[n].tensor == p->tensor && p[n].count == p->count &&
           p[n].at == p[n - 1].at + p->count && p[n].first > p[n - 1].first &&
           p[n].first - p[n - 1].first == p[1].first - p->first)
        n++;
    return n;
}

/* With stochastic rounding, an op needs the positions of its elements in the whole model, so each
 * call takes equal runs of one tensor. */
static enum status update_by_position(const struct optim *o, const struct ops *ops,
                                      struct adamw what, const float *gradients,
                                      struct queue *queue)
{
    const struct pieces *p = o->pieces;
    double decay = what.decay;
    for (size_t i = 0, n; i < p->count; i += n) {
        const struct piece *first = &p->all[i];
        n = count_equal_runs(first, p->count - i);
        what.decay = is_undecayed(o, first) ? 0 : decay;
        what.position = o->layout->tensors[first->tensor].offset + first->first;
        what.run = n > 1 ? first->count : 0;
        what.stride = n > 1 ? first[1].first - first->first : 0;
        TRY(update_range(o, ops, what, gradients, first->at, first->at + n * first->count, queue));
    }
    return STATUS_OK;
}

enum status optim_step(const struct optim *o, const struct ops *ops, const float *gradients,
                       double lr, double scale, int64_t step, struct queue *queue)
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
    if (o->moments == BF16) return update_by_position(o, ops, what, gradients, queue);
    if (c->decay_norms) return update_range(o, ops, what, gradients, 0, p->elements, queue);
    /* Calls cover consecutive runs with the same decay, padding included, which stays zero. */
    for (size_t first = 0, next; first < p->count; first = next) {
        bool undecayed = is_undecayed(o, &p->all[first]);
        next = first + 1;
        while (next < p->count && is_undecayed(o, &p->all[next]) == undecayed) next++;
        size_t end = next < p->count ? p->all[next].at : p->elements;
        what.decay = undecayed ? 0 : c->weight_decay;
        TRY(update_range(o, ops, what, gradients, p->all[first].at, end, queue));
    }
    return STATUS_OK;
}
