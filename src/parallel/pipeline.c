// SPDX-License-Identifier: Apache-2.0
#include "parallel/pipeline.h"

#include "base/text.h"
#include "model/activation_offload.h"
#include "model/stage_pass.h"

#include <stdlib.h>
#include <string.h>

/* A residual stream to be sent or received. */
struct residual_buffer {
    void *x;
    struct transfer transfer;
    bool pending;
};

/* Buffers that microbatches use in turn: microbatch i has buffer i % count. */
struct buffer_ring {
    struct residual_buffer *buffers; /* owned */
    int count;
};

struct pipeline_chunk {
    struct stage_pass *passes; /* microbatch i has pass i % max_in_flight; owned */
    int max_in_flight;
    struct buffer_ring inputs, outputs; /* of forward, if there is a backward */
    struct buffer_ring streams;         /* of everything else: the output replaces the input */
};

struct pipeline_state {
    struct pipeline_chunk *chunks;
    struct action *actions;
    int length, max_length;
    struct activations shared;
};

static void grow_ring(struct buffer_ring *r, int count)
{
    if (count <= r->count) return;
    r->buffers = heap_grow(r->buffers, (size_t)count, sizeof *r->buffers);
    memset(r->buffers + r->count, 0, (size_t)(count - r->count) * sizeof *r->buffers);
    r->count = count;
}

/* Makes room for a step under that schedule. */
static void grow_chunk(struct pipeline *p, const struct schedule *s, int chunk)
{
    const struct stage *stage = &p->stages[chunk];
    struct pipeline_chunk *c = &p->state->chunks[chunk];
    int buffers = p->forward_only ? 1 : schedule_send_buffers(s);
    grow_ring(&c->streams, s->pp > 1 ? buffers + 1 : 1);
    if (p->forward_only) return;
    int in_flight = schedule_max_in_flight(s, p->group->rank, chunk);
    if (in_flight > c->max_in_flight) {
        c->passes = heap_grow(c->passes, (size_t)in_flight, sizeof *c->passes);
        for (int i = c->max_in_flight; i < in_flight; i++) stage_pass_init(&c->passes[i], stage);
        c->max_in_flight = in_flight;
    }
    grow_ring(&c->inputs, stage->embeds ? 0 : c->max_in_flight + 1);
    /* GPipe's forwards follow one another: one computes while the output of the one before is
     * sent. */
    bool sends_beside_next = s->kind == SCHEDULE_GPipe;
    grow_ring(&c->outputs, stage->heads ? 0 : buffers + sends_beside_next);
}

static void set_actions(struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    struct pipeline_state *state = p->state;
    state->length = p->forward_only ? s->num_microbatches * s->chunks : schedule_length(s);
    BUG_IF(state->length > state->max_length);
    if (p->forward_only)
        schedule_forward_actions(s, state->actions);
    else
        schedule_actions(s, p->group->rank, state->actions);
}

void pipeline_open(struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    struct pipeline_state *state = p->state = heap(sizeof *state);
    BUG_IF(s->pp != p->group->size);
    state->max_length = schedule_length(s);
    state->actions = heap((size_t)state->max_length * sizeof *state->actions);
    set_actions(p);
    state->chunks = heap((size_t)s->chunks * sizeof *state->chunks);
    for (int i = 0; i < s->chunks; i++) grow_chunk(p, s, i);
}

void pipeline_reserve(struct pipeline *p, int num_microbatches)
{
    struct schedule s = p->schedule;
    s.num_microbatches = num_microbatches;
    for (int i = 0; i < s.chunks; i++) grow_chunk(p, &s, i);
}

void pipeline_set_microbatches(struct pipeline *p, int num_microbatches)
{
    p->schedule.num_microbatches = num_microbatches;
    set_actions(p);
}

void pipeline_close(struct pipeline *p)
{
    struct pipeline_state *s = p->state;
    if (!s) return;
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct pipeline_chunk *c = &s->chunks[i];
        for (int j = 0; j < c->max_in_flight; j++) stage_pass_release(&c->passes[j]);
        free(c->passes);
        free(c->inputs.buffers), free(c->outputs.buffers), free(c->streams.buffers);
    }
    free(s->chunks);
    free(s->actions);
    free(s);
    p->state = NULL;
}

bool pipeline_has_loss(const struct pipeline *p) { return p->stages[p->schedule.chunks - 1].heads; }

static void alloc_ring(const struct pipeline *p, const struct microbatch *b, struct buffer_ring *r,
                       struct arena *step)
{
    const struct model *m = p->model;
    size_t elements = stage_pass_residual_elements(m, b);
    for (int i = 0; i < r->count; i++)
        r->buffers[i] =
            (struct residual_buffer){.x = arena_alloc(step, elements, dtype_bytes(m->dtype))};
}

static void alloc_step(struct pipeline *p, const struct microbatch *b, struct arena *step)
{
    struct pipeline_state *s = p->state;
    if (p->forward_only)
        activations_alloc_shared(p->model, (size_t)b->B * (size_t)b->T, RECOMPUTE_FULL, &s->shared,
                                 step);
    else
        stage_pass_alloc_shared(p->model, b, &s->shared, step);
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct pipeline_chunk *c = &s->chunks[i];
        for (int j = 0; j < c->max_in_flight; j++)
            stage_pass_alloc(p->model, b, &s->shared, &c->passes[j], step);
        alloc_ring(p, b, &c->inputs, step);
        alloc_ring(p, b, &c->outputs, step);
        alloc_ring(p, b, &c->streams, step);
    }
}

/* --- one action --- */

static struct residual_buffer *buffer_of(const struct buffer_ring *r, int micro)
{
    return r->count ? &r->buffers[micro % r->count] : NULL;
}

/* The buffers of an action's input and output; NULL: they stay in the stage_pass. */
static struct residual_buffer *input_of(const struct pipeline *p, const struct action *a)
{
    const struct pipeline_chunk *c = &p->state->chunks[a->chunk];
    bool saved = a->direction == FORWARD && !p->forward_only;
    return buffer_of(saved ? &c->inputs : &c->streams, a->micro);
}
static struct residual_buffer *output_of(const struct pipeline *p, const struct action *a)
{
    const struct pipeline_chunk *c = &p->state->chunks[a->chunk];
    bool saved = a->direction == FORWARD && !p->forward_only;
    return buffer_of(saved ? &c->outputs : &c->streams, a->micro);
}

/* In a sizing pass also those of a group that does not count. */
static bool skips_transfers(const struct pipeline *p)
{
    bool sizing = p->model->queue->sizing;
    return !comm_transfers(p->group, sizing) || (sizing && !p->group->counts);
}

/* Waits for the buffer's transfer, if one is pending. */
static enum status wait_buffer(const struct pipeline *p, struct residual_buffer *b)
{
    struct trace *trace = p->model->queue->trace;
    if (!b || !b->pending) return STATUS_OK;
    b->pending = false;
    double begin = trace_begin(trace);
    TRY(comm_wait(&b->transfer));
    trace_end(trace, b->transfer.kind == TRANSFER_send ? "wait for send" : "wait for receive",
              begin);
    return STATUS_OK;
}

static enum status start_transfer(const struct pipeline *p, const struct microbatch *micro,
                                  struct residual_buffer *b, enum transfer_kind kind,
                                  struct p2p_message m)
{
    if (m.peer < 0 || skips_transfers(p)) return STATUS_OK;
    b->transfer = (struct transfer){.kind = kind,
                                    .dtype = p->model->dtype,
                                    .count = stage_pass_residual_elements(p->model, micro),
                                    .x = b->x,
                                    .peer = m.peer,
                                    .tag = m.tag};
    TRY(comm_start(p->group, &b->transfer));
    b->pending = true;
    return STATUS_OK;
}

/* Starts to receive the action's input. */
static enum status post_receive(const struct pipeline *p, const struct microbatch *micro,
                                const struct action *a)
{
    struct residual_buffer *in = input_of(p, a);
    struct p2p_message from = schedule_input(&p->schedule, p->group->rank, a);
    if (from.peer < 0) return STATUS_OK;
    TRY(wait_buffer(p, in));
    TRY(start_transfer(p, micro, in, TRANSFER_receive, from));
    return STATUS_OK;
}

/* The stage's forward or backward; input and output are NULL if they stay in the stage_pass. */
static enum status compute(struct pipeline *p, const struct microbatch *micro,
                           const struct action *a, struct arena *step)
{
    const struct stage *stage = &p->stages[a->chunk];
    const struct residual_buffer *in = input_of(p, a), *out = output_of(p, a);
    struct pipeline_chunk *c = &p->state->chunks[a->chunk];
    if (p->forward_only) {
        struct stage_pass unsaved = {.stage = stage, .shared = &p->state->shared};
        TRY(stage_pass_infer(p->model, micro, &unsaved, in->x, step));
        return STATUS_OK;
    }
    struct stage_pass *pass = &c->passes[a->micro % c->max_in_flight];
    if (a->direction == BACKWARD) {
        TRY(stage_pass_backward(p->model, micro, pass, out->x, step));
        return STATUS_OK;
    }
    bool empty = stage->begin == stage->end;
    if (in) pass->in_SD = in->x;
    if (out) pass->out_SD = out->x;
    if (empty && !in) pass->in_SD = pass->out_SD;
    if (empty && !out) pass->out_SD = pass->in_SD;
    TRY(stage_pass_forward(p->model, micro, pass));
    return STATUS_OK;
}

static enum status run_action(struct pipeline *p, const struct microbatch *micro,
                              const struct action *a, struct arena *step)
{
    struct residual_buffer *in = input_of(p, a), *out = output_of(p, a);
    TRY(wait_buffer(p, in));
    TRY(wait_buffer(p, out));
    TRY(compute(p, micro, a, step));
    TRY(start_transfer(p, micro, out, TRANSFER_send,
                       schedule_output(&p->schedule, p->group->rank, a)));
    return STATUS_OK;
}

enum status pipeline_declare_p2p(const struct pipeline *p)
{
    const struct schedule *s = &p->schedule;
    struct p2p_message sends[DIRECTION_COUNT], receives[DIRECTION_COUNT];
    int num_sends = 0, num_receives = 0;
    for (enum direction d = 0; d < DIRECTION_COUNT; d++) {
        struct p2p_message out = {.peer = -1}, in = {.peer = -1}; /* the same for all chunks */
        for (int chunk = 0; chunk < s->chunks; chunk++) {
            struct action a = {.direction = d, .chunk = chunk};
            if (out.peer < 0) out = schedule_output(s, p->group->rank, &a);
            if (in.peer < 0) in = schedule_input(s, p->group->rank, &a);
        }
        if (out.peer >= 0) sends[num_sends++] = out;
        if (in.peer >= 0) receives[num_receives++] = in;
    }
    return comm_declare_p2p(p->group, sends, num_sends, receives, num_receives);
}

static enum status wait_all(const struct pipeline *p)
{
    for (int i = 0; i < p->schedule.chunks; i++) {
        struct pipeline_chunk *c = &p->state->chunks[i];
        for (int j = 0; j < c->outputs.count; j++) TRY(wait_buffer(p, &c->outputs.buffers[j]));
        for (int j = 0; j < c->streams.count; j++) TRY(wait_buffer(p, &c->streams.buffers[j]));
    }
    return STATUS_OK;
}

/* Whether an action's input is received while the action before computes.  A GPU may wait for all
 * its transfers before it loads a kernel, which it does at the kernel's first launch.  With one or
 * two microbatches such a transfer could depend on that kernel. */
static bool receives_early(const struct pipeline *p) { return p->schedule.num_microbatches > 2; }

enum status pipeline_run(struct pipeline *p, const struct microbatch *microbatches,
                         struct arena *step)
{
    struct pipeline_state *s = p->state;
    struct arena *host = p->model->offload ? p->model->offload->host : NULL;
    size_t mark = arena_mark(step), host_mark = host ? arena_mark(host) : 0;
    bool is_early = receives_early(p);
    TRY(stage_pass_check(p->model, microbatches));
    alloc_step(p, microbatches, step);
    for (int i = 0; i < s->length; i++) {
        const struct action *a = &s->actions[i], *next = i + 1 < s->length ? a + 1 : NULL;
        /* Two microbatches show how much memory all need: the first overwrites gradients. */
        if (skips_transfers(p) && a->micro > 1) continue;
        if (!i || !is_early) TRY(post_receive(p, microbatches, a));
        if (next && is_early) TRY(post_receive(p, microbatches, next));
        TRY(run_action(p, &microbatches[a->micro], a, step));
    }
    TRY(wait_all(p));
    arena_reset(step, mark);
    if (host) arena_reset(host, host_mark);
    return STATUS_OK;
}
