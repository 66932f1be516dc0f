// SPDX-License-Identifier: Apache-2.0
#include "parallel/estimate.h"

#include "base/text.h"

#include <math.h>
#include <stdlib.h>

enum { AS_IT_IS = RESOURCE_COUNT - 1 };

static const struct {
    const char *name, *text;
} resources[] = {
#define X(name, text) {#name, text},
    RESOURCE_LIST(X)
#undef X
};

const char *resource_name(enum resource r) { return resources[r].name; }
const char *resource_text(enum resource r) { return resources[r].text; }

struct hardware hardware_faster(const struct hardware *h, enum resource r)
{
    struct hardware fast = *h;
    switch (r) {
    case RESOURCE_products: fast.bf16_flops *= 2, fast.f32_flops *= 2; break;
    case RESOURCE_memory_rate: fast.memory_rate *= 2; break;
    case RESOURCE_node_links: fast.node_rate *= 2; break;
    case RESOURCE_network: fast.network_rate *= 2; break;
    case RESOURCE_latency: fast.latency_s /= 2; break;
    case RESOURCE_pipeline:
    case RESOURCE_memory_bytes:
    case RESOURCE_COUNT: break;
    }
    return fast;
}

struct player {
    struct action *program;
    int at;
    double now;
};

/* When each stage was done with each micro-batch, in each direction; below 0: not yet. */
static double *done_of(const struct schedule *s, double *done, enum direction way, int stage,
                       int micro)
{
    size_t stages = (size_t)s->pp * (size_t)s->chunks;
    return &done[((size_t)way * stages + (size_t)stage) * (size_t)s->micros + (size_t)micro];
}

/* The rank's next action, if its input is there. */
static bool play(const struct schedule *s, struct player *p, int rank, double *done,
                 const double *const seconds[DIRECTION_COUNT], double message)
{
    const struct action *a = &p->program[p->at];
    int stage = schedule_stage(s, rank, a->chunk), last = s->pp * s->chunks - 1;
    bool begins = stage == (a->way == FORWARD ? 0 : last);
    double from = 0;
    if (!begins) {
        from = *done_of(s, done, a->way, a->way == FORWARD ? stage - 1 : stage + 1, a->micro);
        if (from < 0) return false;
        from += message;
    }
    p->now = fmax(p->now, from) + seconds[a->way][rank];
    *done_of(s, done, a->way, stage, a->micro) = p->now;
    p->at++;
    return true;
}

static double play_all(const struct schedule *s, const double *const seconds[DIRECTION_COUNT],
                       double message)
{
    int length = schedule_length(s), left = length * s->pp;
    size_t results = (size_t)DIRECTION_COUNT * (size_t)s->pp * (size_t)s->chunks;
    struct player *players = heap((size_t)s->pp * sizeof *players);
    double *done = heap_grow(NULL, results * (size_t)s->micros, sizeof *done), end = 0;
    for (size_t i = 0; i < results * (size_t)s->micros; i++) done[i] = -1;
    for (int r = 0; r < s->pp; r++) {
        players[r].program = heap_grow(NULL, (size_t)length, sizeof(struct action));
        schedule_fill(s, r, players[r].program);
    }
    for (int before = -1; left != before;) {
        before = left;
        for (int r = 0; r < s->pp; r++)
            while (players[r].at < length && play(s, &players[r], r, done, seconds, message))
                left--;
    }
    BUG_IF(left);
    for (int r = 0; r < s->pp; r++) {
        end = fmax(end, players[r].now);
        free(players[r].program);
    }
    free(players);
    free(done);
    return end;
}

double estimate_pipeline(const struct schedule *s, const double *forward, const double *backward,
                         double message)
{
    enum { MOST_ROUNDS = 64, MOST_ACTIONS = 1 << 24 };
    const double *const seconds[] = {[FORWARD] = forward, [BACKWARD] = backward};
    struct schedule few = *s;
    double slowest = 0, all = 0;
    for (int r = 0; r < s->pp; r++) {
        slowest = fmax(slowest, forward[r] + backward[r]);
        all += forward[r] + backward[r] + 2 * message;
    }
    double turn = s->chunks * slowest; /* of a micro-batch, where nothing is waited for */
    if (few.micros > MOST_ROUNDS * few.pp) few.micros = MOST_ROUNDS * few.pp;
    /* Then every round is as the one before; and where even so few are too many to be played, the
     * first micro-batch goes there and back, and all others follow it. */
    if ((double)schedule_length(&few) * few.pp > MOST_ACTIONS)
        return all - 2 * message - slowest + s->micros * turn;
    return play_all(&few, seconds, message) + (s->micros - few.micros) * turn;
}

/* What one of the clocks of every rank comes to. */
struct outcome {
    double step, pass;         /* `pass`: all micro-batches, through all stages */
    double messages;           /* what of it they cost */
    const struct clock *worst; /* of the rank with the most to do */
};

static struct outcome outcome(const struct clock *clocks, const struct schedule *s, int which)
{
    double *forward = heap(2 * (size_t)s->pp * sizeof *forward), *backward = forward + s->pp;
    double update = 0, message = 0;
    struct outcome o = {.worst = &clocks[which]};
    for (int r = 0; r < s->pp; r++) {
        const struct clock *c = &clocks[r * RESOURCE_COUNT + which];
        double each = c->micros / s->micros / s->chunks;
        /* Backward makes two products where forward makes one. */
        forward[r] = each / 3, backward[r] = each - forward[r];
        update = fmax(update, c->now - c->micros), message = fmax(message, c->message);
        if (c->micros > o.worst->micros) o.worst = c;
    }
    o.pass = o.worst->micros;
    if (s->pp > 1) {
        o.pass = estimate_pipeline(s, forward, backward, message);
        o.messages = o.pass - estimate_pipeline(s, forward, backward, 0);
    }
    o.step = o.pass + update;
    free(forward);
    return o;
}

void estimate_make(struct estimate *e, const struct clock *clocks, const struct schedule *s)
{
    struct outcome o = outcome(clocks, s, AS_IT_IS);
    const struct clock *c = o.worst;
    *e = (struct estimate){.step_s = o.step, .products_s = c->products, .memory_s = c->memory};
    for (enum group g = 0; g < GROUP_COUNT; g++) e->exposed_s[g] = c->exposed[g];
    e->exposed_s[GROUP_pp] += o.messages;
    e->bubble_s = o.pass - o.messages - c->micros;
    e->update_s = o.step - o.pass;
    for (enum resource r = 0; r < RESOURCE_memory_bytes; r++) {
        double saved = e->bubble_s / 2; /* a half of it, for each of twice as many micro-batches */
        if (r != RESOURCE_pipeline) saved = o.step - outcome(clocks, s, (int)r).step;
        if (o.step > 0 && saved / o.step > e->saved) e->saved = saved / o.step, e->limit = r;
    }
}
