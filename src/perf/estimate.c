// SPDX-License-Identifier: Apache-2.0
#include "perf/estimate.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

enum { BASELINE = RESOURCE_COUNT - 1 }; /* index of the clock on the hardware itself */

static const struct {
    const char *name, *text;
} resources[] = {
#define X(name, text) {#name, text},
    RESOURCE_LIST(X)
#undef X
};

const char *estimate_resource_name(enum resource r) { return resources[r].name; }
const char *estimate_resource_advice(enum resource r) { return resources[r].text; }

struct hardware estimate_faster_hardware(const struct hardware *h, enum resource r)
{
    struct hardware fast = *h;
    switch (r) {
    case RESOURCE_matmul: fast.bf16_flops *= 2, fast.f32_flops *= 2; break;
    case RESOURCE_memory_rate: fast.memory_bandwidth *= 2; break;
    case RESOURCE_node_links: fast.node_bandwidth *= 2; break;
    case RESOURCE_network: fast.network_bandwidth *= 2; break;
    case RESOURCE_host_link: fast.host_bandwidth *= 2; break;
    case RESOURCE_latency: fast.latency_s /= 2; break;
    case RESOURCE_pipeline:
    case RESOURCE_memory_bytes:
    case RESOURCE_COUNT: break;
    }
    return fast;
}

/* Replays a schedule action by action. */
struct replay {
    const struct schedule *s;
    const double *seconds[DIRECTION_COUNT]; /* of a chunk on each rank */
    double p2p;
    double *done_s; /* end of each microbatch in each stage, in each direction; below 0: not yet */
    struct replay_rank {
        struct action *actions;
        int next;
        double now;
    } * ranks;
};

static double *done_of(const struct replay *r, enum direction direction, int stage, int micro)
{
    size_t stages = (size_t)r->s->pp * (size_t)r->s->chunks;
    size_t row = (size_t)direction * stages + (size_t)stage;
    return &r->done_s[row * (size_t)r->s->num_microbatches + (size_t)micro];
}

/* Replays a rank's next action; false if its input has not arrived. */
static bool replay_action(struct replay *r, int rank)
{
    struct replay_rank *at = &r->ranks[rank];
    const struct action *a = &at->actions[at->next];
    int stage = schedule_stage(r->s, rank, a->chunk), last = r->s->pp * r->s->chunks - 1;
    bool forward = a->direction == FORWARD;
    double arrives = 0;
    if (stage != (forward ? 0 : last)) {
        arrives = *done_of(r, a->direction, forward ? stage - 1 : stage + 1, a->micro);
        if (arrives < 0) return false;
        arrives += r->p2p;
    }
    at->now = fmax(at->now, arrives) + r->seconds[a->direction][rank];
    *done_of(r, a->direction, stage, a->micro) = at->now;
    at->next++;
    return true;
}

static double replay_all(struct replay r)
{
    const struct schedule *s = r.s;
    int length = schedule_length(s), left = length * s->pp;
    size_t results = (size_t)DIRECTION_COUNT * (size_t)s->pp * (size_t)s->chunks;
    double end = 0;
    r.ranks = heap((size_t)s->pp * sizeof *r.ranks);
    r.done_s = heap_grow(NULL, results * (size_t)s->num_microbatches, sizeof *r.done_s);
    for (size_t i = 0; i < results * (size_t)s->num_microbatches; i++) r.done_s[i] = -1;
    for (int rank = 0; rank < s->pp; rank++) {
        r.ranks[rank].actions = heap_grow(NULL, (size_t)length, sizeof(struct action));
        schedule_actions(s, rank, r.ranks[rank].actions);
    }
    for (int before = -1; left != before;) {
        before = left;
        for (int rank = 0; rank < s->pp; rank++)
            while (r.ranks[rank].next < length && replay_action(&r, rank)) left--;
    }
    BUG_IF(left);
    for (int rank = 0; rank < s->pp; rank++) {
        end = fmax(end, r.ranks[rank].now);
        free(r.ranks[rank].actions);
    }
    free(r.ranks);
    free(r.done_s);
    return end;
}

double estimate_pipeline(const struct schedule *s, const double *forward, const double *backward,
                         double p2p)
{
    enum { MAX_ROUNDS = 64, MAX_ACTIONS = 1 << 24 };
    struct schedule few = *s;
    double slowest = 0, all = 0;
    for (int r = 0; r < s->pp; r++) {
        slowest = fmax(slowest, forward[r] + backward[r]);
        all += forward[r] + backward[r] + 2 * p2p;
    }
    double steady = s->chunks * slowest; /* of a microbatch in the steady state */
    if (few.num_microbatches > MAX_ROUNDS * few.pp) few.num_microbatches = MAX_ROUNDS * few.pp;
    /* Beyond MAX_ROUNDS the schedule is in steady state.  If MAX_ROUNDS is still too many to
     * replay, assume that the first microbatch goes forward and back, and that all others follow in
     * the steady state. */
    if ((double)schedule_length(&few) * few.pp > MAX_ACTIONS)
        return all - 2 * p2p - slowest + s->num_microbatches * steady;
    struct replay r = {
        .s = &few, .seconds = {[FORWARD] = forward, [BACKWARD] = backward}, .p2p = p2p};
    return replay_all(r) + (s->num_microbatches - few.num_microbatches) * steady;
}

/* A step by the clocks of one index, of every rank. */
struct outcome {
    double step_s, microbatches_s; /* all microbatches through all stages */
    double p2p_s;                  /* the part of it that messages cost */
    const struct sim_clock *slowest;
};

/* Clocks of one index, in an array with `each` clocks per rank. */
struct clock_row {
    const struct sim_clock *clocks;
    int each, index;
};

static struct outcome outcome_of(const struct clock_row *row, const struct schedule *s)
{
    double *forward = heap(2 * (size_t)s->pp * sizeof *forward), *backward = forward + s->pp;
    double update = 0, p2p = 0;
    struct outcome o = {.slowest = &row->clocks[row->index]};
    for (int r = 0; r < s->pp; r++) {
        const struct sim_clock *c = &row->clocks[r * row->each + row->index];
        double each = c->microbatches_s / s->num_microbatches / s->chunks;
        /* Backward has two GEMMs for each one of forward. */
        forward[r] = each / 3, backward[r] = each - forward[r];
        update = fmax(update, c->now - c->microbatches_s), p2p = fmax(p2p, c->p2p_s);
        if (c->microbatches_s > o.slowest->microbatches_s) o.slowest = c;
    }
    o.microbatches_s = o.slowest->microbatches_s;
    if (s->pp > 1) {
        o.microbatches_s = estimate_pipeline(s, forward, backward, p2p);
        o.p2p_s = o.microbatches_s - estimate_pipeline(s, forward, backward, 0);
    }
    o.step_s = o.microbatches_s + update;
    free(forward);
    return o;
}

static void set_times(struct estimate *e, const struct outcome *o)
{
    const struct sim_clock *c = o->slowest;
    *e = (struct estimate){.step_s = o->step_s, .matmul_s = c->matmul_s, .memory_s = c->memory_s};
    for (enum group g = 0; g < GROUP_COUNT; g++) e->exposed_s[g] = c->exposed_s[g];
    e->exposed_s[GROUP_pp] += o->p2p_s;
    e->host_s = c->host_s;
    e->bubble_s = o->microbatches_s - o->p2p_s - c->microbatches_s;
    e->update_s = o->step_s - o->microbatches_s;
}

void estimate_make_time(struct estimate *e, const struct sim_clock *clocks,
                        const struct schedule *s)
{
    struct outcome o = outcome_of(&(struct clock_row){clocks, 1, 0}, s);
    set_times(e, &o);
}

void estimate_make(struct estimate *e, const struct sim_clock *clocks, const struct schedule *s)
{
    struct outcome o = outcome_of(&(struct clock_row){clocks, RESOURCE_COUNT, BASELINE}, s);
    set_times(e, &o);
    for (enum resource r = 0; r < RESOURCE_memory_bytes; r++) {
        double saved = e->bubble_s / 2; /* twice as many microbatches halve the bubble */
        if (r != RESOURCE_pipeline)
            saved = o.step_s -
                    outcome_of(&(struct clock_row){clocks, RESOURCE_COUNT, (int)r}, s).step_s;
        if (o.step_s > 0 && saved / o.step_s > e->saved) e->saved = saved / o.step_s, e->limit = r;
    }
}
