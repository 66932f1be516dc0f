// SPDX-License-Identifier: Apache-2.0
#include "parallel/ring.h"

#include "model/block.h"
#include "ops/context.h"
#include "ops/update.h"
#include "tensor/queue.h"

enum tag { TAG_KEYS, TAG_GRADIENTS, TAG_COUNT };

struct ring {
    const struct comm *group;
    const struct ops *ops;
    const struct attention *what;
    struct queue *on;
    size_t N, Q, P;                   /* tokens, and elements of their queries and keys */
    const int32_t *start_BT, *end_BT; /* positions in whole rows */
    int32_t *begin_BT, *close_BT;     /* bounds among the keys at hand */
    void *keys[2];                    /* [N, 2P] keys and values: at hand, and on their way */
    size_t mark;                      /* of the queue's scratch */
};

/* To the next rank and from the one before. */
struct passing {
    struct transfer send, receive;
};

static void ring_open(struct ring *r, const int32_t *start_BT, const int32_t *end_BT)
{
    const struct attention *a = r->what;
    struct arena *scratch = &r->on->scratch;
    BUG_IF(a->S != a->T || a->keys != ALL_KEYS || r->group->size < 2);
    r->N = (size_t)a->B * (size_t)a->T;
    r->Q = (size_t)a->H * (size_t)a->K, r->P = (size_t)a->G * (size_t)a->K;
    r->start_BT = start_BT, r->end_BT = end_BT;
    r->mark = arena_mark(scratch);
    r->begin_BT = arena_take(scratch, r->N, sizeof *r->begin_BT);
    r->close_BT = arena_take(scratch, r->N, sizeof *r->close_BT);
    for (int i = 0; i < 2; i++)
        r->keys[i] = arena_take(scratch, r->N * 2 * r->P, dtype_bytes(a->dtype));
}

static void ring_close(struct ring *r) { arena_reset(&r->on->scratch, r->mark); }

/* The rank whose keys come by after `step` times of passing on. */
static int owner_of(const struct ring *r, int step)
{
    int size = r->group->size;
    return (r->group->rank - step % size + size) % size;
}

/* The part of rows that a rank has. */
static struct context context_of(const struct ring *r, int rank)
{
    return (struct context){r->group->size, rank, r->what->causal};
}

/* Which of the owner's keys each token here sees. */
static enum status find_bounds(const struct ring *r, int owner)
{
    const struct attention *a = r->what;
    struct context_bounds what = {a->B, a->T, context_of(r, r->group->rank), context_of(r, owner),
                                  a->causal};
    struct context_bounds_io io = {r->start_BT, r->end_BT, r->begin_BT, r->close_BT};
    return context_bounds(r->ops, &what, &io, r->on);
}

/* A measuring pass of ranks that are there moves nothing; one that plans counts. */
static bool is_still(const struct ring *r) { return r->on->measuring && r->group->transport; }

static enum status pass_send(const struct ring *r, struct passing *p, struct transfer what)
{
    what.kind = TRANSFER_send, what.peer = (r->group->rank + 1) % r->group->size;
    p->send = what;
    if (!is_still(r)) TRY(comm_start(r->group, &p->send));
    return STATUS_OK;
}

static enum status pass_receive(const struct ring *r, struct passing *p, struct transfer what)
{
    what.kind = TRANSFER_receive, what.peer = owner_of(r, 1);
    p->receive = what;
    if (!is_still(r)) TRY(comm_start(r->group, &p->receive));
    return STATUS_OK;
}

static enum status pass_wait(const struct ring *r, struct transfer *t)
{
    double begin = trace_begin(r->on->trace);
    if (!is_still(r)) TRY(comm_wait(t));
    trace_end(r->on->trace, transfer_name(t->kind), begin);
    return STATUS_OK;
}

enum status ring_expect(const struct comm *group)
{
    struct p2p_message sends[TAG_COUNT], receives[TAG_COUNT];
    for (int tag = 0; tag < TAG_COUNT; tag++) {
        sends[tag] = (struct p2p_message){(group->rank + 1) % group->size, tag};
        receives[tag] = (struct p2p_message){(group->rank + group->size - 1) % group->size, tag};
    }
    return comm_declare_p2p(group, sends, TAG_COUNT, receives, TAG_COUNT);
}

/* The keys at hand go on, and the next ones begin to come. */
static enum status pass_keys(const struct ring *r, struct passing *p, int step)
{
    struct transfer keys = {.dtype = r->what->dtype, .count = r->N * 2 * r->P, .tag = TAG_KEYS};
    keys.x = r->keys[(step + 1) % 2];
    TRY(pass_receive(r, p, keys));
    keys.x = r->keys[step % 2];
    TRY(pass_send(r, p, keys));
    return STATUS_OK;
}

static enum status keys_wait(const struct ring *r, struct passing *p)
{
    TRY(pass_wait(r, &p->receive));
    TRY(pass_wait(r, &p->send));
    return STATUS_OK;
}

/* This rank's keys and values, side by side. */
static enum status pack(const struct ring *r, const void *k, const void *v, void *to)
{
    enum dtype dtype = r->what->dtype;
    struct cast rows = {.n = r->P,
                        .rows = r->N,
                        .from = dtype,
                        .to = dtype,
                        .from_stride = r->what->kv_stride,
                        .to_stride = 2 * r->P};
    TRY(cast(r->ops, &rows, &(struct cast_io){k, to}, r->on));
    TRY(cast(r->ops, &rows, &(struct cast_io){v, element(to, r->P, dtype)}, r->on));
    return STATUS_OK;
}

/* Attention to the keys of one rank. */
static struct attention part_of(const struct ring *r, enum attention_keys keys)
{
    struct attention a = *r->what;
    a.kv_stride = 2 * r->P, a.causal = false, a.keys = keys;
    a.seen = r->what->causal ? 0.5f : 1; /* in a zigzag, of each rank's keys */
    return a;
}

static enum status meet(const struct ring *r, const struct attention_fwd *io, int step, void *out)
{
    struct attention a = part_of(r, step ? MORE_KEYS : FIRST_KEYS);
    struct attention_fwd part = {.q_BTHK = io->q_BTHK,
                                 .k_BSGK = r->keys[step % 2],
                                 .v_BSGK = element(r->keys[step % 2], r->P, a.dtype),
                                 .start_BT = r->begin_BT,
                                 .end_BT = r->close_BT,
                                 .out_BTHK = out,
                                 .lse_BHT = io->lse_BHT};
    TRY(find_bounds(r, owner_of(r, step)));
    TRY(attention_forward(r->ops, &a, &part, r->on));
    return STATUS_OK;
}

enum status ring_forward(const struct comm *group, const struct ops *ops,
                         const struct attention *what, const struct attention_fwd *io,
                         struct queue *on)
{
    struct ring r = {.group = group, .ops = ops, .what = what, .on = on};
    struct passing keys;
    ring_open(&r, io->start_BT, io->end_BT);
    void *out = io->out_BTHK;
    if (what->dtype != F32) out = arena_take(&on->scratch, r.N * r.Q, sizeof(float));
    TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[0]));
    for (int step = 0; step < group->size; step++) {
        bool last = step == group->size - 1;
        if (!last) TRY(pass_keys(&r, &keys, step));
        TRY(meet(&r, io, step, out));
        if (!last) TRY(keys_wait(&r, &keys));
    }
    struct cast all = {.n = r.N * r.Q, .to = what->dtype};
    if (what->dtype != F32) TRY(cast(ops, &all, &(struct cast_io){out, io->out_BTHK}, on));
    ring_close(&r);
    return STATUS_OK;
}

/* ---- backward ---- */

enum { SUMS = 3 }; /* of gradients: computed, on their way here, on their way on */

struct sums {
    float *keys[SUMS]; /* [N, 2P] */
    float *queries;    /* [N, Q] */
};

static struct sums sums_take(const struct ring *r)
{
    struct sums s;
    for (int i = 0; i < SUMS; i++)
        s.keys[i] = arena_take(&r->on->scratch, r->N * 2 * r->P, sizeof(float));
    s.queries = arena_take(&r->on->scratch, r->N * r->Q, sizeof(float));
    return s;
}

static enum status meet_backward(const struct ring *r, const struct attention_bwd *io, int step,
                                 const struct sums *s)
{
    struct attention a = part_of(r, step > 1 ? MORE_KEYS : FIRST_KEYS);
    struct attention_bwd part = *io;
    part.k_BSGK = r->keys[step % 2];
    part.v_BSGK = element(r->keys[step % 2], r->P, a.dtype);
    part.start_BT = r->begin_BT, part.end_BT = r->close_BT;
    part.dq_BTHK = s->queries;
    part.dk_BSGK = s->keys[step % SUMS], part.dv_BSGK = element(part.dk_BSGK, r->P, F32);
    TRY(find_bounds(r, owner_of(r, step)));
    TRY(attention_backward(r->ops, &a, &part, r->on));
    return STATUS_OK;
}

/* The sums of the ranks before join what this one has computed, and go on with it. */
static enum status join_gradients(const struct ring *r, struct passing *p, int step,
                                  const struct sums *s)
{
    struct transfer sums = {.dtype = F32, .count = r->N * 2 * r->P, .tag = TAG_GRADIENTS};
    if (step > 1) {
        struct cast add = {.n = sums.count, .accumulate = true};
        struct cast_io io = {p->receive.x, s->keys[step % SUMS]};
        TRY(pass_wait(r, &p->receive));
        TRY(cast(r->ops, &add, &io, r->on));
        TRY(pass_wait(r, &p->send));
    }
    sums.x = s->keys[step % SUMS];
    if (step < r->group->size) TRY(pass_send(r, p, sums));
    return STATUS_OK;
}

/* Gradients to their places in fused rows. */
static enum status put_gradients(const struct ring *r, const struct attention_bwd *io,
                                 const struct sums *s)
{
    const float *dkeys = s->keys[r->group->size % SUMS];
    struct cast rows = {.n = r->Q,
                        .rows = r->N,
                        .to = r->what->dtype,
                        .from_stride = r->Q,
                        .to_stride = r->what->q_stride};
    TRY(cast(r->ops, &rows, &(struct cast_io){s->queries, io->dq_BTHK}, r->on));
    rows.n = r->P, rows.from_stride = 2 * r->P, rows.to_stride = r->what->kv_stride;
    TRY(cast(r->ops, &rows, &(struct cast_io){dkeys, io->dk_BSGK}, r->on));
    TRY(cast(r->ops, &rows, &(struct cast_io){element(dkeys, r->P, F32), io->dv_BSGK}, r->on));
    return STATUS_OK;
}

enum status ring_backward(const struct comm *group, const struct ops *ops,
                          const struct attention *what, const struct attention_bwd *io,
                          struct queue *on)
{
    struct ring r = {.group = group, .ops = ops, .what = what, .on = on};
    struct passing keys, gradients;
    int size = group->size;
    ring_open(&r, io->start_BT, io->end_BT);
    struct sums s = sums_take(&r);
    struct transfer sums = {.dtype = F32, .count = r.N * 2 * r.P, .tag = TAG_GRADIENTS};
    TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[0]));
    TRY(pass_keys(&r, &keys, 0));
    TRY(keys_wait(&r, &keys));
    for (int step = 1; step <= size; step++) {
        bool passes = step < size - 1;
        sums.x = s.keys[(step + 1) % SUMS];
        if (passes) TRY(pass_keys(&r, &keys, step));
        if (step == size) TRY(pack(&r, io->k_BSGK, io->v_BSGK, r.keys[step % 2]));
        if (step > 1) TRY(pass_receive(&r, &gradients, sums));
        TRY(meet_backward(&r, io, step, &s));
        if (passes) TRY(keys_wait(&r, &keys));
        TRY(join_gradients(&r, &gradients, step, &s));
    }
    TRY(put_gradients(&r, io, &s));
    ring_close(&r);
    return STATUS_OK;
}
