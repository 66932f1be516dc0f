// SPDX-License-Identifier: Apache-2.0
#include "parallel/fsdp.h"

#include "model/block.h"
#include "ops/update.h"
#include "tensor/device.h"
#include "tensor/queue.h"

#include <stdlib.h>

enum { FLIGHTS = 2 }; /* transfers of a kind under way at once */

/* Where a unit is whole for a while. */
struct slot {
    void *at;
    size_t elements;
    int holds; /* the unit whose weights it has; -1: none */
};

struct unit_state {
    int weights, gradients; /* slots */
    bool open, gathering, reducing;
    bool last;          /* the sum under way is the step's last */
    bool begun, summed; /* in this step: whole gradients are there; this rank's part of a sum */
    struct transfer gather, reduce, copy;
};

/* Sums under way, the older one next. */
struct flights {
    int unit[FLIGHTS], next;
    void *work[FLIGHTS];
};

struct fsdp_state {
    struct slot *weights, *gradients;
    int num_weights, num_gradients;
    struct unit_state *units;
    struct flights reductions, copies;
};

static int parts(const struct fsdp *f) { return f->shard->size; }
/* Measuring: there is no memory.  Ranks that are there are left alone; those of a plan are not. */
static bool is_dry(const struct fsdp *f) { return f->on->measuring; }
static bool is_silent(const struct fsdp *f) { return is_dry(f) && f->shard->transport; }
static size_t part_of(const struct fsdp *f, int unit)
{
    return f->layout->units[unit].elements / (size_t)parts(f);
}
static size_t offset_of(const struct fsdp *f, int unit)
{
    return f->layout->units[unit].offset / (size_t)parts(f);
}
size_t fsdp_elements(const struct fsdp *f) { return f->layout->elements / (size_t)parts(f); }

static bool is_embedding(const struct fsdp *f, int unit)
{
    return unit == layout_unit(f->layout, PARAM_embed, -1);
}

/* Blocks take two slots in turn.  The embedding and the head are never needed at once, save where
 * they are one. */
static int slot_of(const struct fsdp *f, int unit, bool whole)
{
    if (whole) return unit;
    if (is_embedding(f, unit)) return 2;
    if (unit == layout_unit(f->layout, PARAM_last_norm, -1)) return f->tied ? 3 : 2;
    return unit % 2;
}

static int slots_take(const struct fsdp *f, bool whole, enum dtype dtype, struct slot **slots,
                      struct arena *run)
{
    int count = whole ? f->layout->num_units : 4;
    struct slot *s = *slots = heap((size_t)count * sizeof *s);
    for (int i = 0; i < count; i++) s[i] = (struct slot){.holds = -1};
    for (int unit = 0; unit < f->layout->num_units; unit++) {
        struct slot *of = &s[slot_of(f, unit, whole)];
        if (of->elements < f->layout->units[unit].elements)
            of->elements = f->layout->units[unit].elements;
    }
    for (int i = 0; i < count; i++) s[i].at = arena_take(run, s[i].elements, dtype_bytes(dtype));
    return count;
}

/* Working memory for the widest unit. */
static void flights_take(struct flights *w, enum transfer_kind kind, size_t most, int size,
                         struct arena *run)
{
    *w = (struct flights){.unit = {-1, -1}};
    for (int i = 0; i < FLIGHTS; i++)
        w->work[i] = arena_take(run, transfer_work_bytes(kind, F32, most, size), 1);
}

static enum status open_unit(struct units *u, int unit, unsigned use, struct unit_place *place);
static enum status close_unit(struct units *u, int unit, unsigned use);

void fsdp_take(struct fsdp *f, struct arena *run)
{
    const struct layout *l = f->layout;
    size_t most = 0;
    f->units = (struct units){open_unit, close_unit};
    f->state = heap(sizeof *f->state);
    struct fsdp_state *s = f->state;
    *s = (struct fsdp_state){.units = heap((size_t)l->num_units * sizeof *s->units)};
    for (int unit = 0; unit < l->num_units; unit++) {
        s->units[unit] = (struct unit_state){.weights = slot_of(f, unit, f->keep),
                                             .gradients = slot_of(f, unit, f->whole_gradients)};
        if (!f->forward_only && part_of(f, unit) > most) most = part_of(f, unit);
    }
    if (parts(f) > 1) {
        s->num_weights = slots_take(f, f->keep, f->dtype, &s->weights, run);
        if (!f->forward_only)
            s->num_gradients = slots_take(f, f->whole_gradients, F32, &s->gradients, run);
    }
    flights_take(&s->reductions, TRANSFER_reduce_scatter, most, parts(f), run);
    flights_take(&s->copies, TRANSFER_all_reduce, most, f->replicate->size, run);
}

/* --- weights ------------------------------------------------------------------------------- */

static enum status gathered(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    if (!u->gathering) return STATUS_OK;
    u->gathering = false;
    double begin = trace_begin(f->on->trace);
    TRY(comm_wait(&u->gather));
    trace_end(f->on->trace, "wait for weights", begin);
    return STATUS_OK;
}

static enum status gather(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    struct slot *s = &f->state->weights[u->weights];
    size_t part = part_of(f, unit), bytes = part * dtype_bytes(f->dtype);
    if (s->holds == unit) return STATUS_OK;
    if (s->holds >= 0) TRY(gathered(f, s->holds));
    s->holds = unit;
    TRY(queue_copy(f->on, element(s->at, (size_t)f->shard->rank * part, f->dtype),
                   element(f->weights, offset_of(f, unit), f->dtype), bytes));
    u->gather = (struct transfer){TRANSFER_all_gather, f->dtype, part, .x = s->at};
    TRY(comm_start(f->shard, &u->gather));
    u->gathering = true;
    return STATUS_OK;
}

/* Starts on the unit that the pass comes to next, which of the embedding needs gradients only. */
static enum status gather_ahead(struct fsdp *f, int unit, bool backward)
{
    struct fsdp_state *s = f->state;
    int next = backward ? unit - 1 : unit + 1;
    int head = layout_unit(f->layout, PARAM_last_norm, -1);
    if (!backward && is_embedding(f, unit) && head >= 0 && s->units[head].open)
        return STATUS_OK; /* it is the head */
    if (next < 0 || next >= f->layout->num_units) return STATUS_OK;
    if (backward && is_embedding(f, next)) return STATUS_OK;
    if (f->layout->units[next].stage != f->layout->units[unit].stage) return STATUS_OK;
    int holds = s->weights[s->units[next].weights].holds;
    if (holds < 0 || !s->units[holds].open) TRY(gather(f, next));
    return STATUS_OK;
}

/* --- gradients ----------------------------------------------------------------------------- */

/* The replicas' sum, once it is over. */
static enum status copied(struct fsdp *f, int flight)
{
    struct flights *w = &f->state->copies;
    int unit = w->unit[flight];
    if (unit < 0) return STATUS_OK;
    w->unit[flight] = -1;
    TRY(comm_wait(&f->state->units[unit].copy));
    return STATUS_OK;
}

/* Sums this rank's part of the unit over the replicas. */
static enum status copy(struct fsdp *f, int unit)
{
    struct flights *w = &f->state->copies;
    struct unit_state *u = &f->state->units[unit];
    if (f->replicate->size == 1) return STATUS_OK;
    int flight = w->next++ % FLIGHTS;
    TRY(copied(f, flight));
    u->copy = (struct transfer){TRANSFER_all_reduce, F32, part_of(f, unit),
                                .x = element(f->gradients, offset_of(f, unit), F32),
                                .work = w->work[flight]};
    TRY(comm_start(f->replicate, &u->copy));
    w->unit[flight] = unit;
    return STATUS_OK;
}

/* This rank's part of the unit's sum, once it is over, is added to what the step has. */
static enum status reduced(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    if (!u->reducing) return STATUS_OK;
    u->reducing = false;
    double begin = trace_begin(f->on->trace);
    TRY(comm_wait(&u->reduce));
    trace_end(f->on->trace, "wait for a sum", begin);
    struct cast add = {.n = part_of(f, unit), .accumulate = u->summed};
    struct cast_io io = {u->reduce.own, element(f->gradients, offset_of(f, unit), F32)};
    u->summed = true;
    if (!is_dry(f)) TRY(cast(f->ops, &add, &io, f->on));
    if (u->last) TRY(copy(f, unit));
    return STATUS_OK;
}

static enum status reduce(struct fsdp *f, int unit, bool last)
{
    struct flights *w = &f->state->reductions;
    struct unit_state *u = &f->state->units[unit];
    float *x = f->state->gradients[u->gradients].at;
    size_t part = part_of(f, unit);
    int flight = w->next++ % FLIGHTS;
    if (w->unit[flight] >= 0) TRY(reduced(f, w->unit[flight]));
    w->unit[flight] = unit;
    u->reduce = (struct transfer){TRANSFER_reduce_scatter,
                                  F32,
                                  part,
                                  .x = x,
                                  .own = element(x, (size_t)f->shard->rank * part, F32),
                                  .work = w->work[flight]};
    TRY(comm_start(f->shard, &u->reduce));
    u->reducing = true, u->last = last;
    return STATUS_OK;
}

/* A slot for the unit's gradients, where none wait to be summed. */
static enum status vacate(struct fsdp *f, int unit)
{
    struct fsdp_state *s = f->state;
    struct slot *slot = &s->gradients[s->units[unit].gradients];
    if (slot->holds >= 0) TRY(reduced(f, slot->holds));
    slot->holds = unit;
    return STATUS_OK;
}

/* Whether the unit has no gradients yet, which from here on it has. */
static bool begin_gradients(struct fsdp *f, int unit)
{
    struct unit_state *u = &f->state->units[unit];
    bool whole = parts(f) == 1 || f->whole_gradients, fresh = !whole || !u->begun;
    u->begun = true;
    return fresh;
}

/* --- what the model asks for --------------------------------------------------------------- */

static enum status open_unit(struct units *units, int unit, unsigned use, struct unit_place *place)
{
    struct fsdp *f = (struct fsdp *)units;
    struct unit_state *u = &f->state->units[unit];
    *place = (struct unit_place){0};
    if (use & USE_GRADIENTS) place->fresh = begin_gradients(f, unit);
    if (is_silent(f)) return STATUS_OK;
    if (parts(f) == 1) {
        size_t offset = f->layout->units[unit].offset;
        place->weights = element(f->weights, offset, f->dtype);
        place->gradients = element(f->gradients, offset, F32);
        return STATUS_OK;
    }
    u->open = true;
    if (use & USE_WEIGHTS) {
        TRY(gather(f, unit));
        TRY(gathered(f, unit));
        TRY(gather_ahead(f, unit, use & USE_GRADIENTS));
        place->weights = f->state->weights[u->weights].at;
    }
    if (use & USE_GRADIENTS) {
        if (!f->whole_gradients) TRY(vacate(f, unit));
        place->gradients = f->state->gradients[u->gradients].at;
    }
    return STATUS_OK;
}

static enum status close_unit(struct units *units, int unit, unsigned use)
{
    struct fsdp *f = (struct fsdp *)units;
    struct unit_state *u = &f->state->units[unit];
    if (is_silent(f)) return STATUS_OK;
    bool last = use & USE_LAST;
    u->open = false;
    if (!(use & USE_GRADIENTS)) return STATUS_OK;
    if (parts(f) == 1 && last) TRY(copy(f, unit));
    if (parts(f) > 1 && (last || !f->whole_gradients)) TRY(reduce(f, unit, last));
    return STATUS_OK;
}

void fsdp_begin(struct fsdp *f)
{
    for (int i = 0; i < f->layout->num_units; i++)
        f->state->units[i].begun = f->state->units[i].summed = false;
}

enum status fsdp_finish(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    for (int i = 0; i < FLIGHTS; i++) {
        int unit = s->reductions.unit[(s->reductions.next + i) % FLIGHTS];
        if (unit >= 0) TRY(reduced(f, unit));
    }
    for (int i = 0; i < FLIGHTS; i++) TRY(copied(f, (s->copies.next + i) % FLIGHTS));
    return STATUS_OK;
}

void fsdp_changed(struct fsdp *f)
{
    for (int i = 0; i < f->state->num_weights; i++) f->state->weights[i].holds = -1;
}

static enum status wait_for_all(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    for (int unit = 0; unit < f->layout->num_units; unit++) {
        if (s->units[unit].gathering) TRY(comm_wait(&s->units[unit].gather));
        if (s->units[unit].reducing) TRY(comm_wait(&s->units[unit].reduce));
    }
    for (int i = 0; i < FLIGHTS; i++) TRY(copied(f, i));
    return STATUS_OK;
}

void fsdp_release(struct fsdp *f)
{
    struct fsdp_state *s = f->state;
    struct failure why = {0};
    if (!s) return;
    failure_keep(&why, STATUS_COMM); /* a run that has failed keeps its reason */
    if (wait_for_all(f)) failure_tell(&why);
    free(s->weights);
    free(s->gradients);
    free(s->units);
    free(s);
    f->state = NULL;
}
