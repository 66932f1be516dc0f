// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp.h"

#include "base/activity.h"
#include "base/text.h"
#include "model/float8.h"
#include "ops/accumulate_gradients.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/element.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_IN_FLIGHT = 2 }; /* transfers of a kind */

/* A buffer for one unit's unsharded weights or gradients. */
struct unit_slot {
    void *x;
    size_t elements;
    int holds; /* the unit whose weights or gradients it has; -1: none */
};

struct unit_state {
    int weights, gradients; /* slots */
    bool open, gathering, reducing;
    bool last;   /* the pending reduce-scatter is the step's last */
    bool direct; /* it writes to f->gradients rather than to this rank's part of the slot */
    int micro;   /* microbatches of this step whose gradients have been added; elastic or BF16 */
    size_t first_run; /* of f->runs; BF16 */
    /* In this step: unsharded gradients have been written; this rank's shard of the sum has. */
    bool has_gradients, has_sum;
    struct transfer all_gather, reduce_scatter, all_reduce;
};

/* Pending sums of gradients, a ring with the oldest at `next`. */
struct in_flight {
    int unit[MAX_IN_FLIGHT], next;
    void *work[MAX_IN_FLIGHT];
    float *sums[MAX_IN_FLIGHT]; /* what is summed, where gradients are BF16; else NULL */
};

struct fsdp_state {
    struct unit_slot *weights, *gradients;
    int num_weights, num_gradients;
    struct float8_weights *float8; /* slots like those of weights, or one of each unit */
    int num_float8;
    struct unit_state *units;
    struct in_flight reduce_scatters, all_reduces;
};

static int num_shards(const struct fsdp *f) { return f->shard->size; }
static bool rounds_gradients(const struct fsdp *f) { return f->gradient_dtype == BF16; }
/* Whether a unit's gradients are computed in a slot, rather than in f->gradients. */
static bool has_gradient_slots(const struct fsdp *f)
{
    return num_shards(f) > 1 || rounds_gradients(f);
}
/* In a sizing pass buffers are NULL. */
static bool is_sizing(const struct fsdp *f) { return f->queue->sizing; }
static bool skips_transfers(const struct fsdp *f)
{
    return !comm_transfers(f->shard, is_sizing(f));
}
static size_t shard_elements(const struct fsdp *f, int unit)
{
    return f->layout->units[unit].elements / (size_t)num_shards(f);
}
static size_t shard_offset(const struct fsdp *f, int unit)
{
    return f->layout->units[unit].offset / (size_t)num_shards(f);
}
size_t fsdp_shard_elements(const struct fsdp *f)
{
    return f->layout->elements / (size_t)num_shards(f);
}

/* Elastic sums of reduce-scattered gradients add them from the slot that they arrive in. */
static bool merges_directly(const struct fsdp *f)
{
    return num_shards(f) > 1 && f->replicate->size == 1;
}
int fsdp_gradient_buffers(const struct fsdp *f)
{
    return f->elastic ? elastic_num_buffers(f->elastic, merges_directly(f)) : 1;
}
/* This rank's shard of the unit's gradients in a flat buffer. */
static void *gradient_shard(const struct fsdp *f, int unit, int buffer)
{
    size_t begin = (size_t)buffer * fsdp_shard_elements(f) + shard_offset(f, unit);
    return element(f->gradients, begin, f->gradient_dtype);
}
/* Where the gradients of the unit's current microbatch go. */
static void *current_shard(const struct fsdp *f, int unit)
{
    int micro = f->state->units[unit].micro;
    return gradient_shard(f, unit, f->elastic ? elastic_buffer(f->elastic, micro) : 0);
}

static bool is_embedding(const struct fsdp *f, int unit)
{
    return unit == layout_unit(f->layout, PARAM_embed, -1);
}

/* --- slots --- */

/* Blocks alternate between two slots.  Embedding and head are never needed at once, except if tied.
 * `own`: each unit has its own slot. */
static int slot_of(const struct fsdp *f, int unit, bool own)
{
    if (own) return unit;
    if (is_embedding(f, unit)) return 2;
    if (unit == layout_unit(f->layout, PARAM_last_norm, -1)) return f->tied ? 3 : 2;
    return unit % 2;
}

/* Without transfers to wait for, one slot serves all units but a tied embedding. */
static int gradient_slot_of(const struct fsdp *f, int unit)
{
    if (num_shards(f) == 1) return f->tied && is_embedding(f, unit);
    return slot_of(f, unit, f->whole_gradients);
}

/* Slots for weights, or for gradients. */
static int alloc_slots(const struct fsdp *f, bool gradients, struct unit_slot **slots,
                       struct arena *run)
{
    bool own = gradients ? f->whole_gradients : f->keep;
    enum dtype dtype = gradients ? F32 : f->dtype;
    int count = own ? f->layout->num_units : 4;
    struct unit_slot *s = *slots = heap((size_t)count * sizeof *s);
    for (int i = 0; i < count; i++) s[i] = (struct unit_slot){.holds = -1};
    for (int unit = 0; unit < f->layout->num_units; unit++) {
        struct unit_slot *slot = &s[gradients ? gradient_slot_of(f, unit) : slot_of(f, unit, own)];
        if (slot->elements < f->layout->units[unit].elements)
            slot->elements = f->layout->units[unit].elements;
    }
    for (int i = 0; i < count; i++) s[i].x = arena_alloc(run, s[i].elements, dtype_bytes(dtype));
    return count;
}

/* Without shards the weights are where they are, and each unit keeps its FP8 copies. */
static int float8_slot(const struct fsdp *f, int unit)
{
    return slot_of(f, unit, f->keep || num_shards(f) == 1);
}

/* The block's FP8 copies; NULL: not a block, or not kept. */
static struct float8_weights *float8_of(const struct fsdp *f, int unit)
{
    const struct tensor_slot *t = &f->layout->tensors[f->layout->units[unit].first_tensor];
    if (!f->float8 || t->layer < 0 || !float8_has_block(f->float8, t->layer)) return NULL;
    return &f->state->float8[float8_slot(f, unit)];
}

static void alloc_float8(struct fsdp *f, struct arena *run)
{
    struct fsdp_state *s = f->state;
    int units = f->layout->num_units, count = f->keep || num_shards(f) == 1 ? units : 4;
    size_t *elements = heap((size_t)count * sizeof *elements);
    s->float8 = heap((size_t)count * sizeof *s->float8), s->num_float8 = count;
    for (int unit = 0; unit < units; unit++) {
        size_t *most = &elements[float8_slot(f, unit)];
        if (float8_of(f, unit) && *most < f->layout->units[unit].elements)
            *most = f->layout->units[unit].elements;
    }
    for (int i = 0; i < count; i++) s->float8[i].x = arena_alloc(run, elements[i], sizeof(bf16));
    free(elements);
}

static void forget_float8(struct float8_weights *w)
{
    memset(w->is_current, 0, sizeof w->is_current);
}

/* Working memory for transfers of up to `elements` per rank. */
static void alloc_in_flight(struct in_flight *w, enum transfer_kind kind, size_t elements, int size,
                            struct arena *run)
{
    *w = (struct in_flight){.unit = {-1, -1}};
    for (int i = 0; i < MAX_IN_FLIGHT; i++)
        w->work[i] = arena_alloc(run, transfer_work_bytes(kind, F32, elements, size), 1);
}

/* The runs of a unit are consecutive. */
static void find_first_runs(struct fsdp *f)
{
    size_t run = 0;
    for (int unit = 0; unit < f->layout->num_units; unit++) {
        while (run < f->runs->count && f->runs->runs[run].at < shard_offset(f, unit)) run++;
        f->state->units[unit].first_run = run;
    }
}

static enum status open_unit(struct unit_provider *p, int unit, unsigned use,
                             struct unit_buffers *buffers);
static enum status close_unit(struct unit_provider *p, int unit, unsigned use);

void fsdp_alloc(struct fsdp *f, struct arena *run)
{
    const struct layout *l = f->layout;
    size_t widest = 0;
    f->units = (struct unit_provider){open_unit, close_unit};
    f->state = heap(sizeof *f->state);
    struct fsdp_state *s = f->state;
    *s = (struct fsdp_state){.units = heap((size_t)l->num_units * sizeof *s->units)};
    for (int unit = 0; unit < l->num_units; unit++) {
        s->units[unit] = (struct unit_state){.weights = slot_of(f, unit, f->keep),
                                             .gradients = gradient_slot_of(f, unit)};
        if (!f->forward_only && shard_elements(f, unit) > widest) widest = shard_elements(f, unit);
    }
    if (num_shards(f) > 1) s->num_weights = alloc_slots(f, false, &s->weights, run);
    if (has_gradient_slots(f) && !f->forward_only)
        s->num_gradients = alloc_slots(f, true, &s->gradients, run);
    if (f->float8) alloc_float8(f, run);
    alloc_in_flight(&s->reduce_scatters, TRANSFER_reduce_scatter, widest, num_shards(f), run);
    alloc_in_flight(&s->all_reduces, TRANSFER_all_reduce, widest, f->replicate->size, run);
    for (int i = 0; i < MAX_IN_FLIGHT && rounds_gradients(f) && f->replicate->size > 1; i++)
        s->all_reduces.sums[i] = arena_alloc(run, widest, sizeof(float));
    if (rounds_gradients(f)) find_first_runs(f);
}

/* --- weights --- */

static enum status wait_all_gather(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    if (!u->gathering) return STATUS_OK;
    u->gathering = false;
    double begin = trace_begin(f->queue->trace);
    TRY(comm_wait(&u->all_gather));
    trace_end(f->queue->trace, "wait for all-gather", begin);
    return STATUS_OK;
}

/* Unless the unit is gathered already or being gathered. */
static enum status start_all_gather(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    struct unit_slot *s = &f->state->weights[u->weights];
    size_t shard = shard_elements(f, unit), bytes = shard * dtype_bytes(f->dtype);
    if (s->holds == unit) return STATUS_OK;
    if (s->holds >= 0) TRY(wait_all_gather(f, s->holds));
    s->holds = unit;
    if (float8_of(f, unit)) forget_float8(float8_of(f, unit));
    TRY(queue_copy(f->queue, element(s->x, (size_t)f->shard->rank * shard, f->dtype),
                   element(f->weights, shard_offset(f, unit), f->dtype), bytes));
    u->all_gather = (struct transfer){TRANSFER_all_gather, f->dtype, shard, .x = s->x};
    TRY(comm_start(f->shard, &u->all_gather));
    u->gathering = true;
    return STATUS_OK;
}

/* Starts to gather the unit that the pass needs next, unless that is the embedding in backward,
 * which needs no weights. */
static enum status prefetch_next(struct fsdp *f, int unit, bool backward)
{
    struct fsdp_state *s = f->state;
    int next = backward ? unit - 1 : unit + 1;
    int head = layout_unit(f->layout, PARAM_last_norm, -1);
    if (!backward && is_embedding(f, unit) && head >= 0 && s->units[head].open)
        return STATUS_OK; /* a tied embedding, opened as the head: no unit follows */
    if (next < 0 || next >= f->layout->num_units) return STATUS_OK;
    if (backward && is_embedding(f, next)) return STATUS_OK;
    if (f->layout->units[next].stage != f->layout->units[unit].stage) return STATUS_OK;
    int holds = s->weights[s->units[next].weights].holds;
    if (holds < 0 || !s->units[holds].open) TRY(start_all_gather(f, next));
    return STATUS_OK;
}

/* --- gradients --- */

/* Adds the gradients of the unit's current microbatch to those before, as elastic.h says.  `own`:
 * where they are, unless in current_shard. */
static enum status merge_gradients(struct fsdp *f, int unit, const float *own)
{
    int micro = f->state->units[unit].micro++;
    int buffer = elastic_buffer(f->elastic, micro), merges = elastic_merges(f->elastic, micro);
    struct cast op = {.n = shard_elements(f, unit)};
    if (own && !merges)
        TRY(cast(f->ops, &op, &(struct cast_io){own, gradient_shard(f, unit, buffer)}, f->queue));
    op.accumulate = true;
    for (; merges; merges--, buffer--, own = NULL) {
        const float *from = own ? own : gradient_shard(f, unit, buffer);
        struct cast_io io = {from, gradient_shard(f, unit, buffer - 1)};
        TRY(cast(f->ops, &op, &io, f->queue));
    }
    return STATUS_OK;
}

/* Adds x, this rank's shard of the unit's sum of a microbatch, to BF16 gradients; one call covers
 * equal runs of a tensor. */
static enum status round_gradients(struct fsdp *f, int unit, const float *x)
{
    struct unit_state *u = &f->state->units[unit];
    size_t begin = shard_offset(f, unit), end = begin + shard_elements(f, unit), n;
    struct accumulate_gradients op = {
        .accumulate = u->has_sum, .seed = f->seed, .step = f->step, .index = (uint64_t)u->micro++};
    u->has_sum = true;
    for (size_t i = u->first_run; i < f->runs->count && f->runs->runs[i].at < end; i += n) {
        const struct shard_run *first = &f->runs->runs[i];
        n = shard_equal_runs(first, f->runs->count - i);
        op.n = n * first->count;
        op.position = f->whole->tensors[first->tensor].offset + first->first;
        op.run = n > 1 ? first->count : 0;
        op.stride = n > 1 ? first[1].first - first->first : 0;
        struct accumulate_gradients_io io = {element(x, first->at - begin, F32),
                                             element(f->gradients, first->at, BF16)};
        TRY(accumulate_gradients(f->ops, &op, &io, f->queue));
    }
    return STATUS_OK;
}

/* Copies BF16 gradients of the unit to the f32 buffer of its all-reduce, or back. */
static enum status convert_sums(struct fsdp *f, int unit, float *sums, bool back)
{
    struct cast op = {.n = shard_elements(f, unit), .from = BF16};
    struct cast_io io = {gradient_shard(f, unit, 0), sums};
    if (back)
        op.from = F32, op.to = BF16, io = (struct cast_io){io.y_n, gradient_shard(f, unit, 0)};
    if (!is_sizing(f)) TRY(cast(f->ops, &op, &io, f->queue));
    return STATUS_OK;
}

static enum status wait_all_reduce(struct fsdp *f, int index)
{
    struct in_flight *w = &f->state->all_reduces;
    int unit = w->unit[index];
    if (unit < 0) return STATUS_OK;
    w->unit[index] = -1;
    TRY(comm_wait(&f->state->units[unit].all_reduce));
    if (rounds_gradients(f)) TRY(convert_sums(f, unit, w->sums[index], true));
    if (f->elastic) TRY(merge_gradients(f, unit, NULL));
    return STATUS_OK;
}

/* Waits for the unit's sum over the replicas, if one is pending. */
static enum status finish_all_reduce(struct fsdp *f, int unit)
{
    for (int i = 0; i < MAX_IN_FLIGHT; i++)
        if (f->state->all_reduces.unit[i] == unit) TRY(wait_all_reduce(f, i));
    return STATUS_OK;
}

/* Starts to sum this rank's shard of the unit's gradients over the replicas. */
static enum status all_reduce_replicas(struct fsdp *f, int unit)
{
    struct in_flight *w = &f->state->all_reduces;
    struct unit_state *u = &f->state->units[unit];
    if (f->replicate->size == 1) return STATUS_OK;
    int index = w->next++ % MAX_IN_FLIGHT;
    TRY(wait_all_reduce(f, index));
    void *x = rounds_gradients(f) ? w->sums[index] : current_shard(f, unit);
    if (rounds_gradients(f)) TRY(convert_sums(f, unit, x, false));
    u->all_reduce = (struct transfer){TRANSFER_all_reduce, F32, shard_elements(f, unit), .x = x,
                                      .work = w->work[index]};
    TRY(comm_start(f->replicate, &u->all_reduce));
    w->unit[index] = unit;
    return STATUS_OK;
}

/* Waits for the unit's reduce-scatter and accumulates this rank's shard into f->gradients. */
static enum status finish_reduce_scatter(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    if (!u->reducing) return STATUS_OK;
    u->reducing = false;
    double begin = trace_begin(f->queue->trace);
    TRY(comm_wait(&u->reduce_scatter));
    trace_end(f->queue->trace, "wait for reduce-scatter", begin);
    if (f->elastic && merges_directly(f)) return merge_gradients(f, unit, u->reduce_scatter.own);
    if (f->elastic) TRY(finish_all_reduce(f, unit));
    struct cast op = {.n = shard_elements(f, unit), .accumulate = u->has_sum && !f->elastic};
    if (rounds_gradients(f)) {
        TRY(round_gradients(f, unit, u->reduce_scatter.own));
    } else if (u->direct) {
        u->has_sum = true;
    } else {
        struct cast_io io = {u->reduce_scatter.own, current_shard(f, unit)};
        u->has_sum = true;
        if (!is_sizing(f)) TRY(cast(f->ops, &op, &io, f->queue));
    }
    if (u->last || f->elastic) TRY(all_reduce_replicas(f, unit));
    return STATUS_OK;
}

static enum status start_reduce_scatter(struct fsdp *f, int unit, bool last)
{
    struct in_flight *w = &f->state->reduce_scatters;
    struct unit_state *u = &f->state->units[unit];
    float *x = f->state->gradients[u->gradients].x;
    size_t shard = shard_elements(f, unit);
    int index = w->next++ % MAX_IN_FLIGHT;
    if (w->unit[index] >= 0) TRY(finish_reduce_scatter(f, w->unit[index]));
    w->unit[index] = unit;
    u->direct = !u->has_sum && !f->elastic && !rounds_gradients(f);
    u->reduce_scatter = (struct transfer){TRANSFER_reduce_scatter,
                                          F32,
                                          shard,
                                          .x = x,
                                          .own = element(x, (size_t)f->shard->rank * shard, F32),
                                          .work = w->work[index]};
    if (u->direct) u->reduce_scatter.own = current_shard(f, unit);
    TRY(comm_start(f->shard, &u->reduce_scatter));
    u->reducing = true, u->last = last;
    return STATUS_OK;
}

/* Waits until the slot's pending reduce-scatter is complete, then assigns the slot to this unit. */
static enum status claim_gradient_slot(struct fsdp *f, int unit)
{
    struct fsdp_state *s = f->state;
    struct unit_slot *slot = &s->gradients[s->units[unit].gradients];
    if (slot->holds >= 0) TRY(finish_reduce_scatter(f, slot->holds));
    slot->holds = unit;
    return STATUS_OK;
}

/* Whether to overwrite the unit's gradients (zero_grad) rather than accumulate: always if they are
 * reduced or merged after each microbatch, else in the first microbatch of gradient
 * accumulation. */
static bool overwrites_gradients(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    bool is_whole = f->whole_gradients && num_shards(f) > 1;
    bool accumulates = (!has_gradient_slots(f) || is_whole) && !f->elastic;
    bool overwrites = !accumulates || !u->has_gradients;
    u->has_gradients = true;
    return overwrites;
}

/* The unit's gradients of this rank, before they are summed over ranks. */
static float *own_gradients(const struct fsdp *f, int unit)
{
    if (has_gradient_slots(f)) return f->state->gradients[f->state->units[unit].gradients].x;
    return current_shard(f, unit);
}

/* --- unit_provider --- */

static enum status open_unit(struct unit_provider *p, int unit, unsigned use,
                             struct unit_buffers *buffers)
{
    struct fsdp *f = (struct fsdp *)p;
    struct unit_state *u = &f->state->units[unit];
    activity_tick();
    *buffers = (struct unit_buffers){.float8 = float8_of(f, unit)};
    if (use & USE_GRADIENTS) buffers->overwrite = overwrites_gradients(f, unit);
    if (skips_transfers(f)) return STATUS_OK;
    if (num_shards(f) == 1) {
        if (f->elastic && use & USE_GRADIENTS) TRY(finish_all_reduce(f, unit));
        buffers->weights = element(f->weights, f->layout->units[unit].offset, f->dtype);
        buffers->gradients = own_gradients(f, unit);
        return STATUS_OK;
    }
    u->open = true;
    if (use & USE_WEIGHTS) {
        TRY(start_all_gather(f, unit));
        TRY(wait_all_gather(f, unit));
        TRY(prefetch_next(f, unit, use & USE_GRADIENTS));
        buffers->weights = f->state->weights[u->weights].x;
    }
    if (use & USE_GRADIENTS) {
        if (!f->whole_gradients) TRY(claim_gradient_slot(f, unit));
        buffers->gradients = own_gradients(f, unit);
    }
    return STATUS_OK;
}

static enum status close_unit(struct unit_provider *p, int unit, unsigned use)
{
    struct fsdp *f = (struct fsdp *)p;
    struct unit_state *u = &f->state->units[unit];
    if (skips_transfers(f)) return STATUS_OK;
    bool last = use & USE_FINAL;
    u->open = false;
    if (!(use & USE_GRADIENTS)) return STATUS_OK;
    if (f->observer && !is_sizing(f))
        TRY(f->observer->see(f->observer, own_gradients(f, unit), f->layout->units[unit].elements));
    if (num_shards(f) == 1 && rounds_gradients(f))
        TRY(round_gradients(f, unit, own_gradients(f, unit)));
    if (num_shards(f) == 1 && (last || f->elastic)) TRY(all_reduce_replicas(f, unit));
    if (num_shards(f) == 1 && f->elastic && f->replicate->size == 1)
        TRY(merge_gradients(f, unit, NULL));
    if (num_shards(f) > 1 && (last || !f->whole_gradients))
        TRY(start_reduce_scatter(f, unit, last));
    return STATUS_OK;
}

void fsdp_begin_step(struct fsdp *f)
{
    for (int i = 0; i < f->layout->num_units; i++) {
        struct unit_state *u = &f->state->units[i];
        u->has_gradients = u->has_sum = false;
        u->micro = 0;
    }
}

enum status fsdp_finish_gradients(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    for (int i = 0; i < MAX_IN_FLIGHT; i++) {
        int unit = s->reduce_scatters.unit[(s->reduce_scatters.next + i) % MAX_IN_FLIGHT];
        if (unit >= 0) TRY(finish_reduce_scatter(f, unit));
    }
    for (int i = 0; i < MAX_IN_FLIGHT; i++)
        TRY(wait_all_reduce(f, (s->all_reduces.next + i) % MAX_IN_FLIGHT));
    return STATUS_OK;
}

float *fsdp_idle_buffer(const struct fsdp *f, size_t *elements)
{
    *elements = f->state->gradients[0].elements;
    return f->state->gradients[0].x;
}

void fsdp_invalidate_weights(struct fsdp *f)
{
    for (int i = 0; i < f->state->num_weights; i++) f->state->weights[i].holds = -1;
    for (int i = 0; i < f->state->num_float8; i++) forget_float8(&f->state->float8[i]);
}

static enum status wait_for_all(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    for (int unit = 0; unit < f->layout->num_units; unit++) {
        if (s->units[unit].gathering) TRY(comm_wait(&s->units[unit].all_gather));
        if (s->units[unit].reducing) TRY(comm_wait(&s->units[unit].reduce_scatter));
    }
    for (int i = 0; i < MAX_IN_FLIGHT; i++) TRY(wait_all_reduce(f, i));
    return STATUS_OK;
}

void fsdp_release(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    struct failure why = {0};
    if (!s) return;
    f->elastic = NULL;              /* what is pending is not added */
    status_save(&why, STATUS_COMM); /* keep the message of the failure that ends the run */
    if (wait_for_all(f)) status_restore(&why);
    free(s->weights);
    free(s->gradients);
    free(s->float8);
    free(s->units);
    free(s);
    f->state = NULL;
}
