// SPDX-License-Identifier: Apache-2.0
#include "optim/muon.h"

#include "base/text.h"
#include "ops/linear.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* torch.optim.Muon's ns_coefficients and eps. */
static const double ns_a = 3.4445, ns_b = -4.7750, ns_c = 2.0315, min_norm = 1e-7;

enum { IN_FLIGHT = 2 }; /* rounds */
enum { ALIGNED = 128 }; /* elements: both halves of a buffer are aligned */

/* One matrix for each rank that shards matrices, in order. */
struct round {
    float *own;        /* this rank's shards of them, one after the other */
    float *x;          /* the whole matrix of this rank */
    struct transfer t; /* over o->fsdp: own to x, or x to own */
    bool in_flight;    /* t */
    /* Parts of t.  A matrix belongs to a rank of o->fsdp: to a member of that rank's o->tp. */
    size_t *held;   /* elements that this rank holds of the matrices of each rank of o->fsdp */
    size_t *others; /* elements that each rank of o->fsdp holds of this rank's matrices */
};

/* Steps reuse it, because no step allocates.  Pointers that are not owned are those of the step. */
struct muon {
    const struct optim *o;
    const struct ops *ops;
    const struct optim_update *u;
    struct queue *queue;
    const struct layout *local;          /* of this rank's stages; its tensors are slices */
    const struct tensor_slot **matrices; /* of `local`; owned */
    int count, fsdp, tp;                 /* matrices; sizes of the groups */
    size_t longest_side;                 /* the longest of the shorter sides of whole matrices */
    size_t most_elements; /* the largest total of a matrix's slices on all ranks of o->tp */
    size_t most_own;      /* of a round */
    size_t *sizes;        /* of parts: of both rounds, then of transfers over o->tp; owned */
    struct round rounds[IN_FLIGHT];
    float *y;      /* scratch of an iteration; the slices of a matrix while they are exchanged */
    float *slices; /* this rank's of the matrices of its o->tp */
    void *gram;    /* then the polynomial of it; of gemm_dtype */
    float *square; /* of the Gram matrix */
};

/* Dtype of the GEMMs' operands: that of the weights the model computes with. */
static enum dtype gemm_dtype(const struct muon *c) { return c->o->copy_dtype; }

static int size_of(const struct comm *group) { return group ? group->size : 1; }
static int shorter_side(const struct tensor_slot *s)
{
    return (int)(s->rows < s->columns ? s->rows : s->columns);
}
static int count_partitions(const struct muon *c) { return c->fsdp * c->tp; }
static int count_rounds(const struct muon *c)
{
    return (c->count + count_partitions(c) - 1) / count_partitions(c);
}
static struct round *round_of(struct muon *c, int round) { return &c->rounds[round % IN_FLIGHT]; }
static float *x_of(const struct muon *c, int round) { return c->rounds[round % IN_FLIGHT].x; }

/* The slice of matrix k of the round; NULL: there are fewer. */
static const struct tensor_slot *slice_of(const struct muon *c, int round, int k)
{
    int i = round * count_partitions(c) + k;
    return i < c->count ? c->matrices[i] : NULL;
}
/* Those of this rank's o->tp: number `tp`, which the rank of that number makes whole. */
static const struct tensor_slot *slice_here(const struct muon *c, int round, int tp)
{
    return slice_of(c, round, c->o->partition / c->tp * c->tp + tp);
}
static const struct tensor_slot *slice_of_mine(const struct muon *c, int round)
{
    return slice_here(c, round, c->o->partition % c->tp);
}
static const struct tensor_slot *whole_of(const struct muon *c, const struct tensor_slot *slice)
{
    return layout_find(c->o->layout, slice->id, slice->layer);
}

/* What a rank of o->fsdp holds of a slice. */
static struct shard_run shard_of(const struct muon *c, const struct tensor_slot *slice, int holder)
{
    return shard_find(c->local, (int)(slice - c->local->tensors), holder, c->fsdp);
}
static struct shard_run own_shard(const struct muon *c, const struct tensor_slot *slice)
{
    return shard_of(c, slice, c->o->partition / c->tp);
}

struct costly {
    const struct tensor_slot *slice;
    double cost;
};

/* Multiplications of an iteration: of the Gram matrix, its square, and their product with X. */
static double cost_of(const struct tensor_slot *whole)
{
    double m = (double)shorter_side(whole), mn = (double)whole->elements;
    return m * (2 * mn + m * m);
}

/* Descending; matrices of the same cost remain in order. */
static int compare_costs(const void *x, const void *y)
{
    const struct costly *a = x, *b = y;
    if (a->cost != b->cost) return a->cost < b->cost ? 1 : -1;
    return a->slice < b->slice ? -1 : 1;
}

/* Finds the matrices, and their largest sizes. */
static void init(struct muon *c)
{
    const struct layout *l = c->local;
    struct costly *all = heap((size_t)l->num_tensors * sizeof *all + 1);
    c->matrices = heap((size_t)l->num_tensors * sizeof *c->matrices + 1);
    for (int i = 0; i < l->num_tensors; i++) {
        if (!optim_is_muon(c->o->config, l->tensors[i].id)) continue;
        const struct tensor_slot *whole = whole_of(c, &l->tensors[i]);
        size_t side = (size_t)shorter_side(whole),
               elements = (size_t)c->tp * l->tensors[i].elements;
        /* More than the whole matrix if slices have the same key/value heads. */
        if (elements > c->most_elements) c->most_elements = elements;
        if (side > c->longest_side) c->longest_side = side;
        all[c->count++] = (struct costly){&l->tensors[i], cost_of(whole)};
    }
    c->most_elements = (c->most_elements + ALIGNED - 1) / ALIGNED * ALIGNED;
    qsort(all, (size_t)c->count, sizeof *all, compare_costs);
    for (int i = 0; i < c->count; i++) c->matrices[i] = all[i].slice;
    free(all);
    for (int round = 0; round < count_rounds(c); round++) {
        size_t own = 0;
        for (int k = 0; k < count_partitions(c) && slice_of(c, round, k); k++)
            own += own_shard(c, slice_of(c, round, k)).count;
        if (own > c->most_own) c->most_own = own;
    }
    size_t fsdp = (size_t)c->fsdp;
    c->sizes = heap((2 * IN_FLIGHT * fsdp + 2 * (size_t)c->tp) * sizeof *c->sizes);
    for (int i = 0; i < IN_FLIGHT; i++) {
        c->rounds[i].held = c->sizes + 2 * (size_t)i * fsdp;
        c->rounds[i].others = c->rounds[i].held + fsdp;
    }
}

/* Transfers in flight need two rounds' buffers; one rank iterates on what it holds. */
static void alloc_scratch(struct muon *c, struct arena *scratch)
{
    size_t n = c->most_elements, nn = c->longest_side * c->longest_side;
    int in_flight = c->fsdp > 1 ? IN_FLIGHT : 1;
    for (int i = 0; i < in_flight; i++) {
        struct round *r = &c->rounds[i];
        r->x = arena_alloc(scratch, n, sizeof *r->x);
        r->own = r->x;
        if (count_partitions(c) > 1) r->own = arena_alloc(scratch, c->most_own, sizeof *r->own);
    }
    for (int i = in_flight; i < IN_FLIGHT; i++)
        c->rounds[i].x = c->rounds[0].x, c->rounds[i].own = c->rounds[0].own;
    c->y = arena_alloc(scratch, n, sizeof *c->y);
    c->slices = NULL;
    if (c->fsdp > 1 && c->tp > 1) c->slices = arena_alloc(scratch, n, sizeof *c->slices);
    c->gram = arena_alloc(scratch, nn, dtype_bytes(gemm_dtype(c)));
    c->square = arena_alloc(scratch, nn, sizeof *c->square);
}

static enum status convert(const struct muon *c, struct cast a, const void *from, void *to)
{
    TRY(cast(c->ops, &a, &(struct cast_io){from, to}, c->queue));
    return STATUS_OK;
}

/* z = alpha x + beta y */
static enum status combine(const struct muon *c, struct axpby a, const float *x, const float *y,
                           float *z)
{
    TRY(axpby(c->ops, &a, &(struct axpby_io){x, y, z}, c->queue));
    return STATUS_OK;
}

/* Advances the momentum of a shard, and leaves its part of the update in own.  y serves as a
 * float32 copy of momentum stored as BF16. */
static enum status update_momentum(const struct muon *c, struct shard_run s, float *own)
{
    const struct optim *o = c->o;
    double momentum = o->config->momentum, added = (1 - momentum) * c->u->scale;
    const float *g = element(c->u->gradients, s.at, F32);
    void *stored = element(o->exp_avg, s.at, o->moments);
    float *m = o->moments == BF16 ? c->y : stored;
    const struct axpby blend = {s.count, added, momentum};
    const struct cast load = {.n = s.count, .from = o->moments};
    const struct cast save = {.n = s.count, .to = o->moments};
    if (!s.count) return STATUS_OK;
    if (o->moments == BF16) TRY(convert(c, load, stored, m));
    TRY(combine(c, blend, g, m, m));
    if (o->moments == BF16) TRY(convert(c, save, m, stored));
    if (o->config->nesterov) return combine(c, blend, g, m, own);
    return convert(c, (struct cast){.n = s.count}, m, own);
}

/* The factor of lr that torch.optim.Muon's adjust_lr_fn gives. */
static double adjust_lr(enum adjust_lr_fn how, const struct tensor_slot *s)
{
    double rows = (double)s->rows, columns = (double)s->columns;
    switch (how) {
    case ADJUST_LR_original: return sqrt(fmax(1, rows / columns));
    case ADJUST_LR_match_rms_adamw: return 0.2 * sqrt(fmax(rows, columns));
    case ADJUST_LR_spectral_unclamped: return sqrt(rows / columns);
    }
    BUG("unknown adjust_lr_fn");
}

static enum status update_weights(const struct muon *c, const struct tensor_slot *slice,
                                  struct shard_run s, const float *own)
{
    const struct optim *o = c->o;
    if (!s.count) return STATUS_OK;
    struct apply_update a = {.n = s.count,
                             .keep = 1 - c->u->lr * o->config->weight_decay,
                             .rate =
                                 c->u->lr * adjust_lr(o->config->adjust_lr_fn, whole_of(c, slice)),
                             .copy_dtype = o->copy_dtype,
                             .split = o->split};
    struct apply_update_io io = {.w_n = element(o->weights, s.at, F32),
                                 .u_n = own,
                                 .copy_n = element(o->copy, s.at, o->copy_dtype),
                                 .low_n = o->low ? o->low + s.at : NULL};
    TRY(apply_update(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

/* --- FSDP: between what ranks hold and the slices of this rank's o->tp --- */

static enum status start_over_fsdp(struct muon *c, int round, bool gathers)
{
    struct round *r = round_of(c, round);
    const struct comm *fsdp = c->o->fsdp;
    size_t all = 0;
    memset(r->held, 0, 2 * (size_t)c->fsdp * sizeof *r->held); /* and others */
    for (int k = 0; k < count_partitions(c) && slice_of(c, round, k); k++) {
        const struct tensor_slot *slice = slice_of(c, round, k);
        all += slice->elements;
        r->held[k / c->tp] += own_shard(c, slice).count;
        for (int i = 0; i < c->fsdp && k / c->tp == c->o->partition / c->tp; i++)
            r->others[i] += shard_of(c, slice, i).count;
    }
    r->t = (struct transfer){.kind = TRANSFER_all_to_all, .count = all, .begins_first = true};
    r->t.x = gathers ? r->own : r->x, r->t.own = gathers ? r->x : r->own;
    r->t.sends = gathers ? r->held : r->others, r->t.receives = gathers ? r->others : r->held;
    if (!comm_transfers(fsdp, c->queue->sizing)) return STATUS_OK;
    TRY(comm_start(fsdp, &r->t));
    r->in_flight = true;
    return STATUS_OK;
}

static enum status wait_over_fsdp(struct round *r)
{
    if (!r->in_flight) return STATUS_OK;
    r->in_flight = false;
    TRY(comm_wait(&r->t));
    return STATUS_OK;
}

/* x has the slices as ranks of o->fsdp hold them, rank by rank: copies them to `slices`, one after
 * the other, or back. */
static enum status copy_slices(struct muon *c, int round, bool back)
{
    float *x = round_of(c, round)->x;
    size_t done = 0;
    for (int holder = 0; holder < c->fsdp; holder++) {
        size_t begin = 0;
        for (int k = 0; k < c->tp && slice_here(c, round, k); k++) {
            const struct tensor_slot *slice = slice_here(c, round, k);
            struct shard_run s = shard_of(c, slice, holder);
            float *there = element(x, done, F32), *here = element(c->slices, begin + s.first, F32);
            if (s.count)
                TRY(convert(c, (struct cast){.n = s.count}, back ? here : there,
                            back ? there : here));
            begin += slice->elements, done += s.count;
        }
    }
    return STATUS_OK;
}

/* --- tensor parallelism: between slices and whole matrices --- */

static float *slices_of(struct muon *c, int round)
{
    return c->fsdp > 1 ? c->slices : round_of(c, round)->own;
}

static enum status run_over_tp(struct muon *c, int round, bool gathers)
{
    size_t *sizes = c->sizes + 2 * IN_FLIGHT * (size_t)c->fsdp, *mine = sizes + c->tp, all = 0;
    const struct tensor_slot *slice_mine = slice_of_mine(c, round);
    float *slices = slices_of(c, round);
    for (int k = 0; k < c->tp; k++) {
        const struct tensor_slot *slice = slice_here(c, round, k);
        sizes[k] = slice ? slice->elements : 0, mine[k] = slice_mine ? slice_mine->elements : 0;
        all += (size_t)c->tp * sizes[k];
    }
    struct transfer t = {.kind = TRANSFER_all_to_all, .count = all};
    t.x = gathers ? slices : c->y, t.own = gathers ? c->y : slices;
    t.sends = gathers ? sizes : mine, t.receives = gathers ? mine : sizes;
    if (comm_transfers(c->o->tp, c->queue->sizing)) TRY(comm_run(c->o->tp, &t));
    return STATUS_OK;
}

/* y has the slices of this rank's matrix: copies them into x, or back.  Ranks with the same
 * key/value heads have the same slice; that of the first is copied. */
static enum status copy_whole(struct muon *c, int round, bool back)
{
    const struct tensor_slot *slice = slice_of_mine(c, round);
    if (!slice) return STATUS_OK;
    const struct tensor_slot *whole = whole_of(c, slice);
    size_t equal = (size_t)c->tp * slice->elements / whole->elements; /* slices */
    size_t rows = (size_t)slice->rows, columns = (size_t)slice->columns;
    bool by_columns = slice->columns < whole->columns;
    for (size_t k = 0; k < (size_t)c->tp; k++) {
        size_t stride = (size_t)whole->columns, at = k / equal * (by_columns ? 1 : rows) * columns;
        struct cast a = {.n = columns, .rows = rows, .from_stride = columns, .to_stride = columns};
        *(back ? &a.from_stride : &a.to_stride) = stride;
        float *part = element(c->y, k * slice->elements, F32),
              *there = element(round_of(c, round)->x, at, F32);
        if (k % equal && !back) continue;
        TRY(convert(c, a, back ? there : part, back ? part : there));
    }
    return STATUS_OK;
}

/* --- rounds --- */

/* Advances the momentum of the round's matrices, and starts to gather their updates. */
static enum status begin_gather(struct muon *c, int round)
{
    struct round *r = round_of(c, round);
    size_t done = 0;
    for (int k = 0; k < count_partitions(c) && slice_of(c, round, k); k++) {
        struct shard_run s = own_shard(c, slice_of(c, round, k));
        TRY(update_momentum(c, s, element(r->own, done, F32)));
        done += s.count;
    }
    if (c->fsdp > 1) TRY(start_over_fsdp(c, round, true));
    return STATUS_OK;
}

static enum status end_gather(struct muon *c, int round)
{
    TRY(wait_over_fsdp(round_of(c, round)));
    if (c->tp == 1) return STATUS_OK;
    if (c->fsdp > 1) TRY(copy_slices(c, round, false));
    TRY(run_over_tp(c, round, true));
    TRY(copy_whole(c, round, false));
    return STATUS_OK;
}

static enum status begin_scatter(struct muon *c, int round)
{
    if (c->tp > 1) {
        TRY(copy_whole(c, round, true));
        TRY(run_over_tp(c, round, false));
        if (c->fsdp > 1) TRY(copy_slices(c, round, true));
    }
    if (c->fsdp > 1) TRY(start_over_fsdp(c, round, false));
    return STATUS_OK;
}

static enum status end_scatter(struct muon *c, int round)
{
    struct round *r = round_of(c, round);
    size_t done = 0;
    TRY(wait_over_fsdp(r));
    for (int k = 0; k < count_partitions(c) && slice_of(c, round, k); k++) {
        struct shard_run s = own_shard(c, slice_of(c, round, k));
        TRY(update_weights(c, slice_of(c, round, k), s, element(r->own, done, F32)));
        done += s.count;
    }
    return STATUS_OK;
}

/* Ends the previous round, and begins the next one in its buffers. */
static enum status end_previous_begin_next(struct muon *c, int round)
{
    if (round > 0) TRY(end_scatter(c, round - 1));
    if (round + 1 < count_rounds(c)) TRY(begin_gather(c, round + 1));
    return STATUS_OK;
}

/* --- Newton-Schulz --- */

/* X after `done` iterations of this round.  In BF16 x and y have room for two matrices each: X is
 * in y before the first iteration and after the last, in x between, since begin_gather uses y as
 * scratch.  In F32 it is always in x. */
static void *matrix_after(const struct muon *c, int round, int64_t done)
{
    float *x = x_of(c, round);
    if (gemm_dtype(c) == F32) return x;
    if (done == 0) return c->y;
    if (done == c->o->config->ns_steps) return element(c->y, c->most_elements, BF16);
    return element(x, done % 2 ? 0 : c->most_elements, BF16);
}

/* A GEMM of N x D and D x F elements. */
static struct linear gemm_of(const struct muon *c, int N, int D, int F)
{
    return (struct linear){.N = N, .D = D, .F = F, .dtype = gemm_dtype(c)};
}

/* gram = X X^T, or of a matrix of more rows than columns X^T X, which comes from
 * linear_backward_weight; that returns f32, which is then rounded. */
static enum status multiply_gram(const struct muon *c, const struct tensor_slot *whole,
                                 const void *x)
{
    int m = (int)whole->rows, n = (int)whole->columns;
    const struct linear tall = gemm_of(c, m, n, n), wide = gemm_of(c, m, n, m);
    bool rounds = tall.dtype != F32;
    float *product = rounds ? c->square : c->gram;
    if (m <= n)
        return linear_forward(
            c->ops, &wide, &(struct linear_fwd){.x_ND = x, .w_FD = x, .y_NF = c->gram}, c->queue);
    TRY(linear_backward_weight(c->ops, &tall,
                               &(struct linear_bwd_weight){.dy_NF = x, .x_ND = x, .dw_FD = product},
                               c->queue));
    if (!rounds) return STATUS_OK;
    return convert(c, (struct cast){.n = (size_t)n * (size_t)n, .to = tall.dtype}, product,
                   c->gram);
}

/* y = P X, or X P, where P, the symmetric polynomial of the Gram matrix, is in `gram`. */
static enum status multiply_polynomial(const struct muon *c, const struct tensor_slot *whole,
                                       const void *x, void *y)
{
    int m = (int)whole->rows, n = (int)whole->columns;
    const struct linear tall = gemm_of(c, m, n, n), wide = gemm_of(c, m, n, m);
    if (m > n)
        return linear_forward(
            c->ops, &tall, &(struct linear_fwd){.x_ND = x, .w_FD = c->gram, .y_NF = y}, c->queue);
    return linear_backward_input(
        c->ops, &wide, &(struct linear_bwd_input){.dy_NF = c->gram, .w_FD = x, .dx_ND = y},
        c->queue);
}

/* `to` = (a I + b A + c A^2) X, where A is the Gram matrix of X. */
static enum status iterate(const struct muon *c, const struct tensor_slot *whole, const void *x,
                           void *to)
{
    int side = shorter_side(whole);
    const struct linear square = gemm_of(c, side, side, side);
    const struct matrix_polynomial p = {side, ns_a, ns_b, ns_c, square.dtype};
    bool in_place = square.dtype == F32; /* `to` is x */
    void *y = in_place ? c->y : to;
    TRY(multiply_gram(c, whole, x));
    TRY(linear_backward_weight(
        c->ops, &square,
        &(struct linear_bwd_weight){.dy_NF = c->gram, .x_ND = c->gram, .dw_FD = c->square},
        c->queue));
    TRY(matrix_polynomial(c->ops, &p, &(struct matrix_polynomial_io){c->square, c->gram},
                          c->queue));
    TRY(multiply_polynomial(c, whole, x, y));
    if (in_place) TRY(convert(c, (struct cast){.n = whole->elements}, y, to));
    return STATUS_OK;
}

static enum status normalize_whole(const struct muon *c, const struct tensor_slot *whole, int round)
{
    const struct divide_by_norm a = {whole->elements, gemm_dtype(c), min_norm};
    const struct divide_by_norm_io io = {x_of(c, round), matrix_after(c, round, 0)};
    TRY(divide_by_norm(c->ops, &a, &io, c->queue));
    return STATUS_OK;
}

/* The result, as f32 in x. */
static enum status widen(const struct muon *c, const struct tensor_slot *whole, int round)
{
    const struct cast a = {.n = whole->elements, .from = gemm_dtype(c)};
    if (a.from == F32) return STATUS_OK;
    return convert(c, a, matrix_after(c, round, c->o->config->ns_steps), x_of(c, round));
}

/* Newton-Schulz on the whole matrix.  Halfway, the previous round's scatter ends and the next
 * round's gather begins, so that both overlap iterations. */
static enum status orthogonalize(struct muon *c, int round)
{
    const struct tensor_slot *slice = slice_of_mine(c, round);
    const struct tensor_slot *whole = slice ? whole_of(c, slice) : NULL;
    int64_t steps = c->o->config->ns_steps;
    if (whole) TRY(normalize_whole(c, whole, round));
    for (int64_t i = 0; i < steps; i++) {
        if (whole) TRY(iterate(c, whole, matrix_after(c, round, i), matrix_after(c, round, i + 1)));
        if (whole && i + 1 == steps) TRY(widen(c, whole, round));
        if (i == (steps - 1) / 2 && c->fsdp > 1) TRY(end_previous_begin_next(c, round));
    }
    return STATUS_OK;
}

static enum status run_rounds(struct muon *c)
{
    TRY(begin_gather(c, 0));
    for (int round = 0, last = count_rounds(c) - 1; round <= last; round++) {
        TRY(end_gather(c, round));
        TRY(orthogonalize(c, round));
        TRY(begin_scatter(c, round));
        if (c->fsdp == 1 || round == last) TRY(end_scatter(c, round));
        if (c->fsdp == 1 && round < last) TRY(begin_gather(c, round + 1));
    }
    return STATUS_OK;
}

/* Forgets what is valid during a step only. */
static void end_step(struct muon *c)
{
    c->o = NULL, c->ops = NULL, c->u = NULL, c->queue = NULL;
    for (int i = 0; i < IN_FLIGHT; i++) c->rounds[i].x = c->rounds[i].own = NULL;
    c->y = c->slices = c->square = NULL, c->gram = NULL;
}

enum status muon_step(struct optim *o, const struct ops *ops, const struct optim_update *u,
                      struct queue *queue)
{
    struct muon *c = o->muon;
    struct failure why = {0};
    if (o->config->name != OPTIMIZER_Muon) return STATUS_OK;
    if (!c) {
        c = o->muon = heap(sizeof *c);
        *c = (struct muon){.local = o->local ? o->local : o->layout};
        c->o = o, c->fsdp = size_of(o->fsdp), c->tp = size_of(o->tp);
        init(c);
    }
    if (!c->count) return STATUS_OK;
    c->o = o, c->ops = ops, c->u = u, c->queue = queue;
    size_t mark = arena_mark(&queue->scratch);
    alloc_scratch(c, &queue->scratch);
    if (status_save(&why, run_rounds(c))) /* transfers in flight use the scratch memory */
        for (int i = 0; i < IN_FLIGHT; i++) (void)wait_over_fsdp(&c->rounds[i]);
    arena_reset(&queue->scratch, mark);
    end_step(c);
    return status_restore(&why);
}

void muon_release(struct optim *o)
{
    if (o->muon) free(o->muon->matrices), free(o->muon->sizes);
    free(o->muon);
    o->muon = NULL;
}
