// SPDX-License-Identifier: Apache-2.0
#include "optim/muon.h"

#include "ops/linear.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <math.h>

/* torch.optim.Muon's ns_coefficients and eps. */
static const double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315, min_norm = 1e-7;

/* A step, and where it is in the rank's list of runs. */
struct muon_call {
    const struct optim *o;
    const struct ops *ops;
    const struct optim_update *u;
    struct queue *queue;
    size_t next; /* no run before it belongs to the current or a later matrix */
};

/* One matrix, this rank's runs of it, and scratch memory. */
struct matrix {
    const struct tensor_slot *slot;
    const struct shard_run *runs;
    size_t count;        /* of runs */
    size_t at, elements; /* of this rank, in the flat buffers */
    float *own;          /* this rank's elements */
    float *x, *y;        /* whole */
    float *gram, *square;
};

/* The matrix and its runs, which are in the order of tensors. */
static void find_matrix(struct muon_call *c, const struct tensor_slot *slot, struct matrix *x)
{
    const struct shard *shard = c->o->shard;
    int tensor = (int)(slot - c->o->layout->tensors);
    while (c->next < shard->count && shard->runs[c->next].tensor < tensor) c->next++;
    size_t first = c->next;
    while (c->next < shard->count && shard->runs[c->next].tensor == tensor) c->next++;
    *x = (struct matrix){.slot = slot, .runs = shard->runs + first, .count = c->next - first};
    if (!x->count) return;
    const struct shard_run *last = &x->runs[x->count - 1];
    x->at = x->runs->at, x->elements = last->at + last->count - x->at;
}

static void alloc_matrix(struct matrix *x, struct arena *scratch)
{
    const struct tensor_slot *s = x->slot;
    size_t side = (size_t)(s->rows < s->columns ? s->rows : s->columns);
    x->own = arena_alloc(scratch, x->elements, sizeof *x->own);
    x->x = arena_alloc(scratch, s->elements, sizeof *x->x);
    x->y = arena_alloc(scratch, s->elements, sizeof *x->y);
    x->gram = arena_alloc(scratch, side * side, sizeof *x->gram);
    x->square = arena_alloc(scratch, side * side, sizeof *x->square);
}

static enum status convert(const struct muon_call *c, struct cast a, const void *from, void *to)
{
    TRY(cast(c->ops, &a, &(struct cast_io){from, to}, c->queue));
    return STATUS_OK;
}

/* z = alpha x + beta y */
static enum status combine(const struct muon_call *c, struct axpby a, const float *x,
                           const float *y, float *z)
{
    TRY(axpby(c->ops, &a, &(struct axpby_io){x, y, z}, c->queue));
    return STATUS_OK;
}

/* Advances this rank's momentum, and leaves its part of the update in own.  x->y serves as a
 * float32 copy of momentum stored as BF16. */
static enum status update_momentum(const struct muon_call *c, const struct matrix *x)
{
    const struct optim *o = c->o;
    double momentum = o->config->momentum, added = (1 - momentum) * c->u->scale;
    const float *g = element(c->u->gradients, x->at, F32);
    void *stored = element(o->exp_avg, x->at, o->moments);
    float *m = o->moments == BF16 ? x->y : stored;
    const struct axpby blend = {x->elements, added, momentum};
    const struct cast load = {.n = x->elements, .from = o->moments};
    const struct cast save = {.n = x->elements, .to = o->moments};
    if (!x->count) return STATUS_OK;
    if (o->moments == BF16) TRY(convert(c, load, stored, m));
    TRY(combine(c, blend, g, m, m));
    if (o->moments == BF16) TRY(convert(c, save, m, stored));
    if (o->config->nesterov) return combine(c, blend, g, m, x->own);
    return convert(c, (struct cast){.n = x->elements}, m, x->own);
}

/* Copies this rank's elements into the whole matrix, or back. */
static enum status copy_runs(const struct muon_call *c, const struct matrix *x, bool back)
{
    for (size_t i = 0, n; i < x->count; i += n) {
        const struct shard_run *p = &x->runs[i];
        n = shard_equal_runs(p, x->count - i);
        size_t stride = n > 1 ? p[1].first - p->first : p->count;
        struct cast a = {.n = p->count, .rows = n, .from_stride = p->count, .to_stride = p->count};
        if (back)
            a.from_stride = stride;
        else
            a.to_stride = stride;
        float *own = element(x->own, p->at - x->at, F32), *whole = element(x->x, p->first, F32);
        TRY(convert(c, a, back ? whole : own, back ? own : whole));
    }
    return STATUS_OK;
}

static enum status sum_matrix(const struct muon_call *c, const struct comm *group,
                              const struct matrix *x)
{
    struct arena *scratch = &c->queue->scratch;
    if (!group || group->size == 1) return STATUS_OK;
    size_t mark = arena_mark(scratch), n = x->slot->elements;
    size_t work = transfer_work_bytes(TRANSFER_all_reduce, F32, n, group->size);
    struct transfer t = {TRANSFER_all_reduce, F32, n, .x = x->x};
    t.work = work ? arena_alloc(scratch, work, 1) : NULL;
    arena_reset(scratch, mark);
    if (!c->queue->sizing || !group->transport) TRY(comm_run(group, &t));
    return STATUS_OK;
}

/* Makes the update whole on every rank. */
static enum status gather_matrix(const struct muon_call *c, const struct matrix *x)
{
    bool is_duplicate = c->o->is_kv_duplicate && params[x->slot->id].tp == 'P';
    TRY(queue_zero(c->queue, x->x, x->slot->elements * sizeof *x->x));
    if (!is_duplicate) TRY(copy_runs(c, x, false));
    TRY(sum_matrix(c, c->o->fsdp, x));
    TRY(sum_matrix(c, c->o->tp, x));
    return STATUS_OK;
}

/* gram = X X^T, or X^T X of a matrix of more rows than columns. */
static enum status multiply_gram(const struct muon_call *c, const struct matrix *x)
{
    int m = (int)x->slot->rows, n = (int)x->slot->columns;
    if (m > n)
        return linear_backward_weight(
            c->ops, &(struct linear){.N = m, .D = n, .F = n, .dtype = F32},
            &(struct linear_bwd_weight){.dy_NF = x->x, .x_ND = x->x, .dw_FD = x->gram}, c->queue);
    return linear_forward(c->ops, &(struct linear){.N = m, .D = n, .F = m, .dtype = F32},
                          &(struct linear_fwd){.x_ND = x->x, .w_FD = x->x, .y_NF = x->gram},
                          c->queue);
}

/* y = P X, or X P, where P, the symmetric polynomial of the Gram matrix, is in `square`. */
static enum status multiply_polynomial(const struct muon_call *c, const struct matrix *x)
{
    int m = (int)x->slot->rows, n = (int)x->slot->columns;
    if (m > n)
        return linear_forward(c->ops, &(struct linear){.N = m, .D = n, .F = n, .dtype = F32},
                              &(struct linear_fwd){.x_ND = x->x, .w_FD = x->square, .y_NF = x->y},
                              c->queue);
    return linear_backward_input(
        c->ops, &(struct linear){.N = m, .D = n, .F = m, .dtype = F32},
        &(struct linear_bwd_input){.dy_NF = x->square, .w_FD = x->x, .dx_ND = x->y}, c->queue);
}

/* Newton-Schulz on the whole matrix. */
static enum status orthogonalize(const struct muon_call *c, const struct matrix *x)
{
    size_t n = x->slot->elements;
    int side = (int)(x->slot->rows < x->slot->columns ? x->slot->rows : x->slot->columns);
    size_t nn = (size_t)side * (size_t)side;
    const struct linear square = {.N = side, .D = side, .F = side, .dtype = F32};
    double squares = 0;
    TRY(sum_squares(c->ops, &(struct sum_squares){n}, &(struct sum_squares_io){x->x, &squares},
                    c->queue));
    TRY(combine(c, (struct axpby){n, 1 / fmax(sqrt(squares), min_norm), 0}, x->x, NULL, x->x));
    for (int64_t i = 0; i < c->o->config->ns_steps; i++) {
        TRY(multiply_gram(c, x));
        TRY(linear_forward(
            c->ops, &square,
            &(struct linear_fwd){.x_ND = x->gram, .w_FD = x->gram, .y_NF = x->square}, c->queue));
        TRY(combine(c, (struct axpby){nn, ns_b, ns_c}, x->gram, x->square, x->square));
        TRY(multiply_polynomial(c, x));
        TRY(combine(c, (struct axpby){n, ns_a, 1}, x->x, x->y, x->x));
    }
    return STATUS_OK;
}

/* The factor of lr that torch.optim.Muon's adjust_lr_fn gives. */
static double adjust_lr(enum adjust_lr_fn how, const struct tensor_slot *s)
{
    double rows = (double)s->rows, columns = (double)s->columns;
    if (how == ADJUST_LR_match_rms_adamw) return 0.2 * sqrt(fmax(rows, columns));
    return sqrt(fmax(1, rows / columns));
}

static enum status update_weights(const struct muon_call *c, const struct matrix *x)
{
    const struct optim *o = c->o;
    if (!x->count) return STATUS_OK;
    TRY(copy_runs(c, x, true));
    struct apply_update a = {.n = x->elements,
                             .keep = 1 - c->u->lr * o->config->weight_decay,
                             .rate = c->u->lr * adjust_lr(o->config->adjust_lr_fn, x->slot),
                             .copy_dtype = o->copy_dtype,
                             .split = o->split};
    struct apply_update_io io = {.w_n = o->weights ? element(o->weights, x->at, F32) : NULL,
                                 .u_n = x->own,
                                 .copy_n = o->copy ? element(o->copy, x->at, o->copy_dtype) : NULL,
                                 .low_n = o->low ? o->low + x->at : NULL};
    TRY(apply_update(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

enum status muon_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                      struct queue *queue)
{
    const struct layout *local = o->local ? o->local : o->layout;
    struct muon_call c = {o, ops, u, queue, 0};
    for (int i = 0; i < local->num_tensors; i++) {
        const struct tensor_slot *t = &local->tensors[i];
        size_t mark = arena_mark(&queue->scratch);
        struct matrix x;
        if (!optim_is_muon(o->config, t->id)) continue;
        find_matrix(&c, layout_find(o->layout, t->id, t->layer), &x);
        alloc_matrix(&x, &queue->scratch);
        TRY(update_momentum(&c, &x));
        TRY(gather_matrix(&c, &x));
        TRY(orthogonalize(&c, &x));
        TRY(update_weights(&c, &x));
        arena_reset(&queue->scratch, mark);
    }
    return STATUS_OK;
}
