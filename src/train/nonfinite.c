// SPDX-License-Identifier: Apache-2.0
#include "train/nonfinite.h"

#include "base/activity.h"
#include "base/log.h"
#include "model/value_check.h"

#include <math.h>
#include <stdlib.h>

/* Where a bad value may be, in the order of the search. */
enum place { IN_EXP_AVG, IN_EXP_AVG_SQ, IN_WEIGHT, IN_COMPUTE_WEIGHT, IN_LOSS, IN_GRADIENT };

/* A bad value of this rank; all ranks exchange theirs as bytes. */
struct bad_value {
    int64_t order; /* lower is earlier; INT64_MAX: this rank has no bad value */
    int64_t place, rank;
    int64_t tensor, element; /* in the whole model */
    int64_t reader, row;     /* of a loss: the data-parallel rank, and the place in its batch */
    double value;
};

struct search {
    const struct trainer *trainer;
    struct bad_value first;
    float *chunk; /* CHUNK values in host memory; owned */
};
enum { CHUNK = 1 << 20 };

static int64_t order_of(const struct trainer *t, enum place place, int64_t at)
{
    int64_t last = t->whole.num_tensors - 1;
    return ((int64_t)place << 48) + (place == IN_GRADIENT ? last - at : at);
}

static enum status search_run(struct search *s, const struct bad_value *at, enum value_kind kind,
                              const struct store *flat, const struct shard_run *p)
{
    for (size_t done = 0, n; done < p->count; done += n) {
        n = p->count - done < CHUNK ? p->count - done : CHUNK;
        TRY(store_read(flat, p->at + done, n, s->chunk));
        size_t bad = value_check_find(kind, F32, s->chunk, n);
        if (bad == n) continue;
        s->first = *at;
        s->first.element = (int64_t)(p->first + done + bad);
        s->first.value = (double)s->chunk[bad];
        return STATUS_OK;
    }
    return STATUS_OK;
}

static enum status search_buffer(struct search *s, enum place place, enum value_kind kind,
                                 struct store flat)
{
    const struct trainer *t = s->trainer;
    const struct shard *shard = place == IN_EXP_AVG_SQ ? t->optim.exp_avg_sq_shard : &t->shard;
    flat.queue = t->machine.queue;
    for (size_t i = 0; i < shard->count; i++) {
        const struct shard_run *p = &shard->runs[i];
        struct bad_value at = s->first;
        at.order = order_of(t, place, p->tensor), at.place = place, at.tensor = p->tensor;
        if (at.order < s->first.order) TRY(search_run(s, &at, kind, &flat, p));
    }
    return STATUS_OK;
}

static void search_losses(struct search *s)
{
    const struct trainer *t = s->trainer;
    size_t T = (size_t)t->local.T, n = (size_t)t->local.B * T;
    for (size_t i = 0; i < n && t->loss_BT; i++) {
        if (isfinite(t->loss_BT[i])) continue;
        int64_t row = (int64_t)(i / T), readers = trainer_group(t, GROUP_data)->size;
        s->first.reader = trainer_group(t, GROUP_data)->rank, s->first.row = row;
        s->first.order = order_of(t, IN_LOSS, row * readers + s->first.reader);
        s->first.place = IN_LOSS, s->first.value = (double)t->loss_BT[i];
        return;
    }
}

/* What this rank holds, up to the first place that has a bad value. */
static enum status search_rank(struct search *s)
{
    const struct trainer *t = s->trainer;
    const struct optim *o = &t->optim;
    const struct store_blocks *blocks = o->moment_blocks;
    void *master = o->split ? o->copy : o->weights;
    const struct {
        enum place place;
        enum value_kind kind;
        struct store flat;
    } buffers[] = {
        {IN_EXP_AVG, VALUE_EXP_AVG, {.x = o->exp_avg, .dtype = o->moments, .blocks = blocks}},
        {IN_EXP_AVG_SQ,
         VALUE_EXP_AVG_SQ,
         {.x = o->exp_avg_sq, .dtype = o->moments, .blocks = blocks ? blocks + 1 : NULL}},
        {IN_WEIGHT, VALUE_WEIGHT, {.x = master, .low = o->low, .dtype = o->low ? BF16 : F32}},
        {IN_COMPUTE_WEIGHT, VALUE_WEIGHT, {.x = o->copy, .dtype = BF16}},
        {IN_LOSS, 0, {0}},
        {IN_GRADIENT, VALUE_GRADIENT, {.x = t->gradients, .dtype = o->gradients}},
    };
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers && s->first.order == INT64_MAX; i++) {
        if (buffers[i].place == IN_LOSS)
            search_losses(s);
        else if (buffers[i].flat.x)
            TRY(search_buffer(s, buffers[i].place, buffers[i].kind, buffers[i].flat));
    }
    return STATUS_OK;
}

/* The first bad value of all ranks.  Collective. */
static enum status find_first(const struct trainer *t, struct bad_value *first)
{
    const struct comm *world = trainer_group(t, GROUP_world);
    struct bad_value *all = heap((size_t)world->size * sizeof *all);
    struct search s = {.trainer = t, .chunk = heap(CHUNK * sizeof *s.chunk)};
    enum status st = STATUS_OK;
    activity_enter(ACTIVITY_searching);
    s.first = (struct bad_value){.order = INT64_MAX, .rank = world->rank};
    TRY_OUT(comm_agree(world, search_rank(&s)));
    all[world->rank] = s.first;
    TRY_OUT(comm_all_gather_bytes(world, all, sizeof *all));
    *first = all[0];
    for (int r = 1; r < world->size; r++)
        if (all[r].order < first->order) *first = all[r];
out:
    free(s.chunk), free(all);
    return st;
}

/* printf prints the sign of a NaN, which means nothing. */
static double unsigned_nan(double x) { return isnan(x) ? (double)NAN : x; }

static void describe(const struct trainer *t, const struct loader *loader,
                     const struct bad_value *v, struct text *out)
{
    static const enum value_kind kinds[] = {[IN_EXP_AVG] = VALUE_EXP_AVG,
                                            [IN_EXP_AVG_SQ] = VALUE_EXP_AVG_SQ,
                                            [IN_WEIGHT] = VALUE_WEIGHT,
                                            [IN_COMPUTE_WEIGHT] = VALUE_WEIGHT,
                                            [IN_GRADIENT] = VALUE_GRADIENT};
    if (v->order == INT64_MAX) {
        text_adds(out, "all weights, moments, losses and gradients are finite");
        return;
    }
    text_addf(out, "the first bad value is on rank %d: ", (int)v->rank);
    if (v->place == IN_LOSS) {
        uint64_t row = loader_delivered_row(loader, (int)v->reader, (int)v->row);
        text_addf(out, "the loss of row %llu is %g, while the weights are finite",
                  (unsigned long long)row, unsigned_nan(v->value));
        return;
    }
    if (v->place == IN_COMPUTE_WEIGHT) text_adds(out, "bfloat16 copy of ");
    value_check_describe(&(struct bad_element){.kind = kinds[v->place],
                                               .tensor = &t->whole.tensors[v->tensor],
                                               .element = (size_t)v->element,
                                               .value = v->value},
                         out);
}

enum status nonfinite_handle(const struct trainer *t, const struct loader *loader,
                             const struct step_result *result)
{
    const struct guard_config *guard = &t->config->guard;
    const struct comm *world = trainer_group(t, GROUP_world);
    bool skips = guard->nonfinite == NONFINITE_skip;
    bool stops = skips ? t->skips > guard->max_skips : guard->nonfinite == NONFINITE_stop;
    struct bad_value first;
    struct text what = {0};
    enum status st = STATUS_OK;
    TRY(find_first(t, &first));
    if (world->rank) return comm_agree(world, STATUS_OK);
    BUG_IF(!loader); /* the first rank reads */
    text_addf(&what, "step %lld (rows %llu to %llu): loss %g, gradient norm %g; ",
              (long long)result->step, (unsigned long long)loader_step_row(loader),
              (unsigned long long)loader_position(loader) - 1, unsigned_nan(result->loss),
              unsigned_nan(result->grad_norm));
    describe(t, loader, &first, &what);
    if (stops)
        st = FAILURE(DIVERGED, "%s (%s)", what.data,
                     skips ? "guard.max_skips reached" : "guard.nonfinite = \"stop\"");
    else
        log_line(LOG_WARN, "%s; its update is skipped", what.data);
    text_release(&what);
    return comm_agree(world, st);
}
