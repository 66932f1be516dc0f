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

static float *at(const float *base, size_t offset)
{
    return base ? (float *)(uintptr_t)base + offset : NULL;
}

/* Elements [from, to) of the flat buffers. */
static enum status update(const struct optim *o, const struct ops *ops, struct adamw what,
                          const float *gradients, size_t from, size_t to, struct queue *on)
{
    unsigned char *copy = o->copy;
    what.n = to - from;
    struct adamw_io io = {.w_n = at(o->weights, from),
                          .m_n = at(o->exp_avg, from),
                          .v_n = at(o->exp_avg_sq, from),
                          .g_n = at(gradients, from),
                          .copy_n = copy ? copy + from * dtype_bytes(o->copy_dtype) : NULL};
    TRY(adamw(ops, &what, &io, on));
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
                         .copy_dtype = o->copy_dtype};
    const struct pieces *p = o->pieces;
    if (c->decay_norms) return update(o, ops, what, gradients, 0, p->elements, on);
    /* Runs of pieces with one decay, the gap behind a piece with it: gaps stay zero. */
    for (size_t first = 0, next; first < p->count; first = next) {
        bool is_norm = params[o->layout->tensors[p->all[first].tensor].id].is_norm;
        next = first + 1;
        while (next < p->count &&
               params[o->layout->tensors[p->all[next].tensor].id].is_norm == is_norm)
            next++;
        size_t end = next < p->count ? p->all[next].at : p->elements;
        what.decay = is_norm ? 0 : c->weight_decay;
        TRY(update(o, ops, what, gradients, p->all[first].at, end, on));
    }
    return STATUS_OK;
}
