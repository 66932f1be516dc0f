// SPDX-License-Identifier: Apache-2.0
#include "optim/muon.h"

#include "ops/linear.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <math.h>

/* torch.optim.Muon's ns_coefficients and eps. */
static const double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315, min_norm = 1e-7;

/* A step, where it is in this rank's list of runs, and scratch memory for the largest matrix. */
struct muon_call {
    const struct optim *o;
    const struct ops *ops;
    const struct optim_update *u;
    struct queue *queue;
    size_t next; /* no run before it belongs to the current or a later matrix */
    size_t most_elements, longest_side;
    float *mine, *other, *y; /* whole matrices: this rank's of the round; another rank's */
    float *gram, *square;
};

/* One matrix, and this rank's runs of it. */
struct matrix {
    const struct tensor_slot *slot;
    const struct shard_run *runs;
    size_t count;        /* of runs */
    size_t at, elements; /* of this rank, in the flat buffers */
    float *own;          /* this rank's elements */
    float *x;            /* whole */
};

static int size_of(const struct comm *group) { return group ? group->size : 1; }
static int count_sharers(const struct optim *o) { return size_of(o->fsdp) * size_of(o->tp); }
static int shorter_side(const struct tensor_slot *s)
{
    return (int)(s->rows < s->columns ? s->rows : s->columns);
}

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

static void alloc_scratch(struct muon_call *c, struct arena *scratch)
{
    size_t n = c->most_elements, nn = c->longest_side * c->longest_side;
    c->mine = arena_alloc(scratch, n, sizeof *c->mine);
    c->other = count_sharers(c->o) > 1 ? arena_alloc(scratch, n, sizeof *c->other) : NULL;
    c->y = arena_alloc(scratch, n, sizeof *c->y);
    c->gram = arena_alloc(scratch, nn, sizeof *c->gram);
    c->square = arena_alloc(scratch, nn, sizeof *c->square);
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

/* Advances this rank's momentum, and leaves its part of the update in own.  y serves as a
 * float32 copy of momentum stored as BF16. */
static enum status update_momentum(const struct muon_call *c, const struct matrix *x)
{
    const struct optim *o = c->o;
    double momentum = o->config->momentum, added = (1 - momentum) * c->u->scale;
    const float *g = element(c->u->gradients, x->at, F32);
    void *stored = element(o->exp_avg, x->at, o->moments);
    float *m = o->moments == BF16 ? c->y : stored;
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
    if (comm_transfers(group, c->queue->sizing)) TRY(comm_run(group, &t));
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

static enum status broadcast(const struct muon_call *c, const struct comm *group, int root,
                             const struct matrix *x)
{
    struct transfer t = {TRANSFER_broadcast, F32, x->slot->elements, .x = x->x, .peer = root};
    if (size_of(group) == 1) return STATUS_OK;
    if (comm_transfers(group, c->queue->sizing)) TRY(comm_run(group, &t));
    return STATUS_OK;
}

/* Sends the matrix of a sharer to all: over its tensor-parallel group, whose ranks then send it
 * over their FSDP groups. */
static enum status scatter_matrix(const struct muon_call *c, int sharer, const struct matrix *x)
{
    int tp = size_of(c->o->tp);
    if (c->o->sharer / tp == sharer / tp) TRY(broadcast(c, c->o->tp, sharer % tp, x));
    return broadcast(c, c->o->fsdp, sharer / tp, x);
}

/* A product of N x D and D x F elements.  Where the model computes in bfloat16, rounding to TF32
 * is finer than what torch does here. */
static struct linear product_of(const struct muon_call *c, int N, int D, int F)
{
    return (struct linear){
        .N = N, .D = D, .F = F, .dtype = F32, .allow_tf32 = c->o->copy_dtype == BF16};
}

/* gram = X X^T, or X^T X of a matrix of more rows than columns. */
static enum status multiply_gram(const struct muon_call *c, const struct matrix *x)
{
    int m = (int)x->slot->rows, n = (int)x->slot->columns;
    const struct linear tall = product_of(c, m, n, n), wide = product_of(c, m, n, m);
    if (m > n)
        return linear_backward_weight(
            c->ops, &tall,
            &(struct linear_bwd_weight){.dy_NF = x->x, .x_ND = x->x, .dw_FD = c->gram}, c->queue);
    return linear_forward(
        c->ops, &wide, &(struct linear_fwd){.x_ND = x->x, .w_FD = x->x, .y_NF = c->gram}, c->queue);
}

/* y = P X, or X P, where P, the symmetric polynomial of the Gram matrix, is in `square`. */
static enum status multiply_polynomial(const struct muon_call *c, const struct matrix *x)
{
    int m = (int)x->slot->rows, n = (int)x->slot->columns;
    const struct linear tall = product_of(c, m, n, n), wide = product_of(c, m, n, m);
    if (m > n)
        return linear_forward(c->ops, &tall,
                              &(struct linear_fwd){.x_ND = x->x, .w_FD = c->square, .y_NF = c->y},
                              c->queue);
    return linear_backward_input(
        c->ops, &wide, &(struct linear_bwd_input){.dy_NF = c->square, .w_FD = x->x, .dx_ND = c->y},
        c->queue);
}

/* Newton-Schulz on the whole matrix. */
static enum status orthogonalize(const struct muon_call *c, const struct matrix *x)
{
    size_t n = x->slot->elements;
    int side = shorter_side(x->slot);
    size_t nn = (size_t)side * (size_t)side;
    const struct linear square = product_of(c, side, side, side);
    double squares = 0;
    TRY(sum_squares(c->ops, &(struct sum_squares){.n = n}, &(struct sum_squares_io){x->x, &squares},
                    c->queue));
    TRY(combine(c, (struct axpby){n, 1 / fmax(sqrt(squares), min_norm), 0}, x->x, NULL, x->x));
    for (int64_t i = 0; i < c->o->config->ns_steps; i++) {
        TRY(multiply_gram(c, x));
        TRY(linear_forward(
            c->ops, &square,
            &(struct linear_fwd){.x_ND = c->gram, .w_FD = c->gram, .y_NF = c->square}, c->queue));
        TRY(combine(c, (struct axpby){nn, ns_b, ns_c}, c->gram, c->square, c->square));
        TRY(multiply_polynomial(c, x));
        TRY(combine(c, (struct axpby){n, ns_a, 1}, x->x, c->y, x->x));
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
    struct apply_update_io io = {.w_n = element(o->weights, x->at, F32),
                                 .u_n = x->own,
                                 .copy_n = element(o->copy, x->at, o->copy_dtype),
                                 .low_n = o->low ? o->low + x->at : NULL};
    TRY(apply_update(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

/* Finds the next of this rank's stages' matrices from index *i on; false: there is no other. */
static bool find_next(struct muon_call *c, int *i, struct matrix *x)
{
    const struct layout *local = c->o->local ? c->o->local : c->o->layout;
    for (; *i < local->num_tensors; ++*i) {
        const struct tensor_slot *t = &local->tensors[*i];
        if (!optim_is_muon(c->o->config, t->id)) continue;
        find_matrix(c, layout_find(c->o->layout, t->id, t->layer), x);
        ++*i;
        return true;
    }
    return false;
}

/* Makes the updates of the round's matrices whole, and orthogonalizes this rank's. */
static enum status begin_round(struct muon_call *c, int first)
{
    int sharers = count_sharers(c->o), here = c->o->sharer, i = first;
    struct arena *scratch = &c->queue->scratch;
    struct matrix x, mine = {0};
    for (int k = 0; k < sharers && find_next(c, &i, &x); k++) {
        size_t mark = arena_mark(scratch);
        x.own = arena_alloc(scratch, x.elements, sizeof *x.own);
        x.x = k == here ? c->mine : c->other;
        if (k == here) mine = x;
        TRY(update_momentum(c, &x));
        TRY(gather_matrix(c, &x));
        arena_reset(scratch, mark);
    }
    if (mine.slot) TRY(orthogonalize(c, &mine));
    return STATUS_OK;
}

/* Distributes the matrices of the round and updates the weights; advances *i to the next round. */
static enum status end_round(struct muon_call *c, int *i)
{
    int sharers = count_sharers(c->o), here = c->o->sharer;
    struct arena *scratch = &c->queue->scratch;
    struct matrix x;
    for (int k = 0; k < sharers && find_next(c, i, &x); k++) {
        size_t mark = arena_mark(scratch);
        x.own = arena_alloc(scratch, x.elements, sizeof *x.own);
        x.x = k == here ? c->mine : c->other;
        TRY(scatter_matrix(c, k, &x));
        TRY(update_weights(c, &x));
        arena_reset(scratch, mark);
    }
    return STATUS_OK;
}

enum status muon_step(const struct optim *o, const struct ops *ops, const struct optim_update *u,
                      struct queue *queue)
{
    struct muon_call c = {.o = o, .ops = ops, .u = u, .queue = queue};
    struct matrix x;
    size_t mark = arena_mark(&queue->scratch);
    int i = 0, num_tensors = 0;
    while (find_next(&c, &i, &x)) {
        size_t side = (size_t)shorter_side(x.slot);
        if (x.slot->elements > c.most_elements) c.most_elements = x.slot->elements;
        if (side > c.longest_side) c.longest_side = side;
        num_tensors = i; /* after the last matrix */
    }
    if (!num_tensors) return STATUS_OK;
    alloc_scratch(&c, &queue->scratch);
    c.next = 0;
    for (i = 0; i < num_tensors;) {
        size_t next = c.next;
        TRY(begin_round(&c, i));
        c.next = next;
        TRY(end_round(&c, &i));
    }
    arena_reset(&queue->scratch, mark);
    return STATUS_OK;
}
