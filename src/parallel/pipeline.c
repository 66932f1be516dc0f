// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline.h"

#include "base/text.h"
#include "model/pass.h"

#include <stdlib.h>

/* A stream that comes or goes, one thing at a time. */
struct buffer {
    void *at;
    struct transfer move;
    bool moving;
};

/* Buffers that micro-batches take in turn. */
struct turns {
    struct buffer *all; /* owned */
    int count;
};

struct chunk {
    struct pass *passes; /* micro-batch i has pass i % peak; owned */
    int peak;
    struct turns inputs, outputs; /* forward, where there is a backward too */
    struct turns streams; /* of everything else: what goes out takes the place of its input */
};

struct pipeline_state {
    struct chunk *chunks;
    struct action *program;
    int length;
    struct activations shared;
};

static struct turns turns_of(int count)
{
    return (struct turns){heap((size_t)count * sizeof(struct buffer)), count};
}

static void open_chunk(const struct pipeline *p, int chunk)
{
    const struct schedule *s = &p->schedule;
    const struct stage *stage = &p->stages[chunk];
    struct chunk *c = &p->state->chunks[chunk];
    int buffers = p->forward_only ? 1 : schedule_buffers(s);
    *c = (struct chunk){.streams = turns_of(s->pp > 1 ? buffers + 1 : 1)};
    if (p->forward_only) return;
    c->peak = schedule_peak(s, p->group->rank, chunk);
    c->passes = heap((size_t)c->peak * sizeof *c->passes);
    for (int i = 0; i < c->peak; i++) pass_init(&c->passes[i], stage);
    c->inputs = turns_of(stage->embeds ? 0 : c->peak + 1);
    c->outputs = turns_of(stage->heads ? 0 : buffers);
}

void pipeline_open(struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    struct pipeline_state *state = p->state = heap(sizeof *state);
    BUG_IF(s->pp != p->group->size);
    state->length = p->forward_only ? s->micros * s->chunks : schedule_length(s);
    state->program = heap((size_t)state->length * sizeof *state->program);
    if (p->forward_only)
        schedule_fill_forward(s, state->program);
    else
        schedule_fill(s, p->group->rank, state->program);
    state->chunks = heap((size_t)s->chunks * sizeof *state->chunks);
    for (int i = 0; i < s->chunks; i++) open_chunk(p, i);
}

void pipeline_close(struct pipeline *p)
{
    struct pipeline_state *s = p->state;
    if (!s) return;
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct chunk *c = &s->chunks[i];
        for (int j = 0; j < c->peak; j++) pass_release(&c->passes[j]);
        free(c->passes);
        free(c->inputs.all), free(c->outputs.all), free(c->streams.all);
    }
    free(s->chunks);
    free(s->program);
    free(s);
    p->state = NULL;
}

bool pipeline_has_loss(const struct pipeline *p) { return p->stages[p->schedule.chunks - 1].heads; }

static void take_turns(const struct pipeline *p, const struct micro_batch *b, struct turns *r,
                       struct arena *step)
{
    const struct model *m = p->model;
    for (int i = 0; i < r->count; i++)
        r->all[i] =
            (struct buffer){.at = arena_take(step, pass_elements(m, b), dtype_bytes(m->dtype))};
}

static void take(struct pipeline *p, const struct micro_batch *b, struct arena *step)
{
    struct pipeline_state *s = p->state;
    if (p->forward_only)
        activations_share(p->model, (size_t)b->B * (size_t)b->T, RECOMPUTE_FULL, &s->shared, step);
    else
        pass_share(p->model, b, &s->shared, step);
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct chunk *c = &s->chunks[i];
        for (int j = 0; j < c->peak; j++) pass_take(p->model, b, &s->shared, &c->passes[j], step);
        take_turns(p, b, &c->inputs, step);
        take_turns(p, b, &c->outputs, step);
        take_turns(p, b, &c->streams, step);
    }
}

/* --- one action ---------------------------------------------------------------------------- */

static struct buffer *turn(const struct turns *r, int micro)
{
    return r->count ? &r->all[micro % r->count] : NULL;
}

/* Where an action's input and output lie; NULL: in the pass. */
static struct buffer *input_of(const struct pipeline *p, const struct action *a)
{
    const struct chunk *c = &p->state->chunks[a->chunk];
    bool kept = a->way == FORWARD && !p->forward_only;
    return turn(kept ? &c->inputs : &c->streams, a->micro);
}
static struct buffer *output_of(const struct pipeline *p, const struct action *a)
{
    const struct chunk *c = &p->state->chunks[a->chunk];
    bool kept = a->way == FORWARD && !p->forward_only;
    return turn(kept ? &c->outputs : &c->streams, a->micro);
}

/* Measuring among ranks that are there: they are left alone. */
static bool is_silent(const struct pipeline *p)
{
    return p->model->on->measuring && p->group->transport;
}

/* What comes to or goes from the buffer is over. */
static enum status settle(const struct pipeline *p, struct buffer *b)
{
    struct trace *trace = p->model->on->trace;
    if (!b || !b->moving) return STATUS_OK;
    b->moving = false;
    double begin = trace_begin(trace);
    TRY(comm_wait(&b->move));
    trace_end(trace, b->move.kind == TRANSFER_send ? "wait to send" : "wait for a stage", begin);
    return STATUS_OK;
}

static enum status start(const struct pipeline *p, const struct micro_batch *micro,
                         struct buffer *b, enum transfer_kind kind, struct p2p_message m)
{
    if (m.peer < 0 || is_silent(p)) return STATUS_OK;
    b->move = (struct transfer){.kind = kind,
                                .dtype = p->model->dtype,
                                .count = pass_elements(p->model, micro),
                                .x = b->at,
                                .peer = m.peer,
                                .tag = m.tag};
    TRY(comm_start(p->group, &b->move));
    b->moving = true;
    return STATUS_OK;
}

/* Asks for the action's input. */
static enum status prepare(const struct pipeline *p, const struct micro_batch *micro,
                           const struct action *a)
{
    struct buffer *in = input_of(p, a);
    struct p2p_message from = schedule_input(&p->schedule, p->group->rank, a);
    if (from.peer < 0) return STATUS_OK;
    TRY(settle(p, in));
    TRY(start(p, micro, in, TRANSFER_receive, from));
    return STATUS_OK;
}

static enum status compute(struct pipeline *p, const struct micro_batch *micro,
                           const struct action *a, const struct buffer *in,
                           const struct buffer *out, struct arena *step)
{
    const struct stage *stage = &p->stages[a->chunk];
    struct chunk *c = &p->state->chunks[a->chunk];
    if (p->forward_only) {
        TRY(pass_infer(p->model, micro, stage, &p->state->shared, in->at, step));
        return STATUS_OK;
    }
    struct pass *pass = &c->passes[a->micro % c->peak];
    if (a->way == BACKWARD) {
        TRY(pass_backward(p->model, micro, pass, out->at, step));
        return STATUS_OK;
    }
    bool empty = stage->begin == stage->end;
    if (in) pass->in_SD = in->at;
    if (out) pass->out_SD = out->at;
    if (empty && !in) pass->in_SD = pass->out_SD;
    if (empty && !out) pass->out_SD = pass->in_SD;
    TRY(pass_forward(p->model, micro, pass));
    return STATUS_OK;
}

static enum status act(struct pipeline *p, const struct micro_batch *micro, const struct action *a,
                       struct arena *step)
{
    struct buffer *in = input_of(p, a), *out = output_of(p, a);
    TRY(settle(p, in));
    TRY(settle(p, out));
    TRY(compute(p, micro, a, in, out, step));
    TRY(start(p, micro, out, TRANSFER_send, schedule_output(&p->schedule, p->group->rank, a)));
    return STATUS_OK;
}

enum status pipeline_expect(const struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    size_t most = (size_t)s->chunks * DIRECTION_COUNT;
    struct p2p_message *sends = heap(most * sizeof *sends),
                       *receives = heap(most * sizeof *receives);
    int num_sends = 0, num_receives = 0;
    for (int chunk = 0; chunk < s->chunks; chunk++)
        for (enum direction way = 0; way < DIRECTION_COUNT; way++) {
            struct action a = {.way = way, .chunk = chunk};
            struct p2p_message out = schedule_output(s, p->group->rank, &a);
            struct p2p_message in = schedule_input(s, p->group->rank, &a);
            if (out.peer >= 0) sends[num_sends++] = out;
            if (in.peer >= 0) receives[num_receives++] = in;
        }
    enum status st = comm_declare_p2p(p->group, sends, num_sends, receives, num_receives);
    free(sends), free(receives);
    return st;
}

static enum status settle_all(const struct pipeline *p)
{
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct chunk *c = &p->state->chunks[i];
        for (int j = 0; j < c->outputs.count; j++) TRY(settle(p, &c->outputs.all[j]));
        for (int j = 0; j < c->streams.count; j++) TRY(settle(p, &c->streams.all[j]));
    }
    return STATUS_OK;
}

enum status pipeline_run(struct pipeline *p, const struct micro_batch *micros, struct arena *step)
{
    struct pipeline_state *s = p->state;
    size_t mark = arena_mark(step);
    TRY(pass_check(p->model, micros));
    take(p, micros, step);
    for (int i = 0; i < s->length; i++) {
        const struct action *a = &s->program[i], *next = i + 1 < s->length ? a + 1 : NULL;
        /* Two micro-batches show what all of them take: the first has no gradients to add to. */
        if (is_silent(p) && a->micro > 1) continue;
        if (!i) TRY(prepare(p, micros, a));
        if (next) TRY(prepare(p, micros, next));
        TRY(act(p, &micros[a->micro], a, step));
    }
    TRY(settle_all(p));
    arena_reset(step, mark);
    return STATUS_OK;
}
